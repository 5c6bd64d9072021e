"""This package and what it computes with: versions, and a digest that no other state of its sources has."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from hashlib import blake2b
from pathlib import Path

from decentral_dp.files.regular import regular

PACKAGE = Path(__file__).parent.parent
# Rooms that no number depends on, and what is read as files of its own.
_UNREAD = ("cli", "reporting", "scenarios", "topologies")


def shipped_folder(name: str) -> Path:
    """Return where files that come with the package are: in the installed package, or beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


@functools.cache
def package_digest() -> str:
    """Digest version and sources of what computes the numbers."""
    digest = blake2b(importlib.metadata.version("decentral_dp").encode(), digest_size=8)
    for path in sorted(path for ending in ("py", "csv", "toml") for path in PACKAGE.rglob(f"*.{ending}")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] not in _UNREAD:
            digest.update(str(name).encode() + b"\0" + regular(path, "scenario").read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of this package and of what computes its numbers, as far as it is installed."""
    names = ("decentral_dp", "numpy", "scipy", "scikit-learn", "torch", "ray")
    version_of = {n: version for n in names if (version := _version(n)) is not None}
    return {"python": platform.python_version(), **version_of}


@functools.cache
def _version(name: str) -> str | None:
    """Of a package, or None where it is not installed; its metadata are read once."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
