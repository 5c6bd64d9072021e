"""Bytes of declared files: local paths as they are, URLs through a cache. What has a checksum is verified first.

A checksum is verified on the very bytes that are handed on, so nothing looks at bytes that were not verified, and
nothing reaches the cache before. A file in the cache is named by its SHA-256 and verified again whenever it is read.
Compressed files and archives are read in memory: nothing is ever unpacked to a path that an archive names.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from decentral_dp.errors import InputError

CACHE_VARIABLE = "DECENTRAL_DP_CACHE"

# Twice what the largest of these files (CIFAR-10, unpacked) takes; more is no such file.
MOST_BYTES = 2**29
_CHUNK = 2**20
_SECONDS = 30.0


class Readable(Protocol):
    """A source of bytes, read piece by piece."""

    def read(self, size: int, /) -> bytes: ...


class DeclaredFile(NamedTuple):
    """A declared file.

    Args:
        key: its place in the scenario, for messages.
        place: path or URL.
        sha256: 64 hexadecimal digits; None for a path without a checksum.
    """

    key: str
    place: str
    sha256: str | None = None


def check(declared: DeclaredFile) -> None:
    """Refuse, before anything is fetched, what cannot be verified.

    Raises:
        InputError: a URL without a checksum, or a malformed checksum.
    """
    key, place, sha256 = declared
    if sha256 is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise InputError(
            f'{key}: the checksum of {place!r} is "{sha256}", but the 64 hexadecimal digits of a SHA-256 are wanted; '
            "sha256sum FILE prints them."
        )
    if is_url(place) and sha256 is None:
        table, _, name = key.rpartition(".")
        raise InputError(
            f"{key}: {place!r} is a URL without a checksum, and nothing unverified is used; add the SHA-256 that its "
            f'publisher states, as in {table}.sha256 = {{ {name} = "<64 hexadecimal digits>" }}.'
        )


def read_verified(declared: DeclaredFile, root: Path | None = None) -> bytes:
    """Read the verified bytes of a local file, or of a URL, through the cache.

    Args:
        declared: the file.
        root: where relative paths start.

    Raises:
        InputError: the file cannot be had, or has another checksum; then nothing was cached.
    """
    check(declared)
    key, place, sha256 = declared
    if not is_url(place):
        return _verify(_local(key, (root or Path()) / Path(place).expanduser()), declared)
    scheme, _, rest = place.partition(":")
    local = re.fullmatch(r"(?://(?:localhost)?)?(/.*)", rest, re.DOTALL)
    if scheme.lower() == "file" and local is not None and not local[1].startswith("//"):
        # Here and in _download: urllib.request takes longer to import than all else here, and few runs need it.
        from urllib.request import url2pathname

        return _verify(_local(key, Path(url2pathname(local[1]))), declared)
    if scheme.lower() not in ("http", "https") or sha256 is None:
        raise InputError(f"{key}: {place!r} cannot be fetched, only http, https and local file URLs can; give a path.")
    cached = cache_folder() / sha256.lower()
    if cached.is_file():
        content = _local(key, cached)
        if _sha256(content) == sha256.lower():
            return content
    content = _verify(_download(declared), declared)
    _store(content, cached, key)
    return content


def gunzip(content: bytes, where: str) -> bytes:
    """Decompress the content if it is gzip (by its first two bytes).

    Args:
        content: bytes.
        where: begins the messages.

    Raises:
        InputError: it is damaged or too long.

    Example:
        >>> gunzip(gzip.compress(b"1,2"), "file"), gunzip(b"1,2", "file")
        (b'1,2', b'1,2')
    """
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return _read_bounded(file, where)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{where} is a truncated or damaged gzip file ({error}); get it anew.") from error


def members(content: bytes, names: Sequence[str], folder: str, where: str) -> dict[str, bytes]:
    """Read members of a tar archive (gzip or plain), by name.

    Args:
        content: bytes of the archive.
        names: of members, at the archive's top or in `folder`; others are not read.
        folder: where else they may be.
        where: begins the messages.

    Returns:
        Name → bytes.

    Raises:
        InputError: a name that leads outside of the archive, a wanted member that is a link or is there twice, one that
            is missing, or a damaged archive.
    """
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(gunzip(content, where)), mode="r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise InputError(
                        f"{where} has a member {member.name!r}, whose path leads outside of the archive; get the "
                        "archive anew from its publisher."
                    )
                if path.name not in names or str(path.parent) not in (".", folder):
                    continue
                plain = member.isreg() and not member.issparse() and path.name not in contents
                file = archive.extractfile(member) if plain else None
                if file is None:
                    raise InputError(
                        f"{where} has {member.name!r} twice or not as a plain file; get the archive anew from its "
                        "publisher."
                    )
                contents[path.name] = file.read()
    except InputError:
        raise
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise InputError(f"{where} is no tar archive, or a damaged one ({error}); get it anew.") from error
    missing = [name for name in names if name not in contents]
    if missing:
        raise InputError(f"{where} has no member {missing[0]!r}; it is truncated or another archive, so get it anew.")
    return contents


def cache_folder() -> Path:
    """Return where verified downloads are kept: DECENTRAL_DP_CACHE, or the platform's folder for caches."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "decentral_dp"


def is_url(place: str) -> bool:
    """Say whether a place is a URL rather than a path.

    Example:
        >>> is_url("https://example.org/a.csv"), is_url("C:/data.csv")
        (True, False)
    """
    # A drive such as C: has one letter.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", place, re.IGNORECASE) is not None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _verify(content: bytes, declared: DeclaredFile) -> bytes:
    if declared.sha256 is not None and _sha256(content) != declared.sha256.lower():
        raise InputError(
            f"{declared.key}: {declared.place!r} ({len(content)} bytes) has the SHA-256 {_sha256(content)}, but "
            f"{declared.sha256.lower()} is declared; it is damaged, truncated or another file, and none of it was used "
            "or cached. Get it anew, or mend the checksum."
        )
    return content


def _local(key: str, path: Path) -> bytes:
    try:
        # Before opening: a pipe would wait for its writer for ever.
        if path.exists() and not path.is_file():
            raise InputError(f"{key}: {str(path)!r} is no file; give the path of a file.")
        with path.open("rb") as file:
            return _read_bounded(file, f"{key}: {str(path)!r}")
    except InputError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{key}: {str(path)!r} cannot be read: {reason}; give the path of the file.") from error


def _read_bounded(stream: Readable, where: str) -> bytes:
    """All that a stream holds, unless it holds more than any of these files could."""
    content = bytearray()
    while part := stream.read(_CHUNK):
        content += part
        if len(content) > MOST_BYTES:
            raise InputError(f"{where} holds more than {MOST_BYTES} bytes, which no such file does; check its name.")
    return bytes(content)


def _download(declared: DeclaredFile) -> bytes:
    import http.client
    import urllib.error
    import urllib.request

    key, place, _ = declared
    opener = urllib.request.OpenerDirector()
    # No handlers for files and ftp, so that no redirection leads there.
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    try:
        with opener.open(place, timeout=_SECONDS) as response:
            promised = response.headers.get("Content-Length")
            content = _read_bounded(response, f"{key}: {place!r}")
    except InputError:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or error
        raise InputError(
            f"{key}: {place!r} could not be fetched ({reason}), and nothing was cached; check the address and the "
            "connection, or fetch it by other means and give its path."
        ) from error
    if promised is not None and promised.isdigit() and len(content) < int(promised):
        raise InputError(
            f"{key}: {place!r} broke off after {len(content)} of {promised} bytes, and nothing was cached; try "
            "again, or fetch it by other means and give its path."
        )
    return content


def _store(content: bytes, path: Path, key: str) -> None:
    """Write beside its place and move it there whole: no reader ever meets half a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(partial, path)
        finally:
            Path(partial).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"{key}: the cache folder {str(path.parent)!r} cannot be written ({error.strerror}); set {CACHE_VARIABLE} "
            "to a folder that can."
        ) from error
