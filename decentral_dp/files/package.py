"""A digest of what computes the numbers, so that those of another state of this package are not taken for its own."""

from __future__ import annotations

import functools
import importlib.metadata
from hashlib import blake2b
from pathlib import Path

from decentral_dp.files.regular import regular

PACKAGE = Path(__file__).parent.parent
# Rooms that no number depends on.
_UNREAD = ("cli", "reporting")


@functools.cache
def package_digest() -> str:
    """Digest version and sources of what computes the numbers."""
    digest = blake2b(importlib.metadata.version("decentral_dp").encode(), digest_size=8)
    for path in sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.csv")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] not in _UNREAD:
            digest.update(str(name).encode() + b"\0" + regular(path, "scenario").read_bytes())
    return digest.hexdigest()
