"""Versions of this package and its dependencies, and a digest of its sources."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from hashlib import blake2b
from pathlib import Path

from decentral_dp.files.regular import regular

PACKAGE = Path(__file__).parent.parent
# Folders that do not affect numbers, and folders of files that runs read.
_UNREAD = ("cli", "reporting", "scenarios", "topologies")


def shipped_folder(name: str) -> Path:
    """Return a folder inside the installed package, or next to the package in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


@functools.cache
def package_digest() -> str:
    """Return the digest of the package's version and of the sources that compute its numbers."""
    digest = blake2b(importlib.metadata.version("decentral_dp").encode(), digest_size=8)
    for path in sorted(path for ending in ("py", "csv", "toml") for path in PACKAGE.rglob(f"*.{ending}")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] not in _UNREAD:
            digest.update(str(name).encode() + b"\0" + regular(path, "scenario").read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Return the installed versions of this package and of the libraries that compute its numbers."""
    names = ("decentral_dp", "numpy", "scipy", "scikit-learn", "torch", "ray")
    version_of = {n: version for n in names if (version := _version(n)) is not None}
    return {"python": platform.python_version(), **version_of}


@functools.cache
def _version(name: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
