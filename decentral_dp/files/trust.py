"""Consent to running the code of run folders, which may come from other people.

The code that a scenario names is run. A run folder is data: its code is run only if this machine has run the same bytes
before, or with consent, which is `--trust` on the command line, and `trust=True` of `resume` or `with trusting():` in
Python. All commands use `require_trust`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from hashlib import sha256
from pathlib import Path

from decentral_dp.errors import InputError, quoted_path
from decentral_dp.files.durable import OWNERS, OWNERS_FOLDER

_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)
# Files that mark a run folder.
_OF_RUNS = ("result.json", "in_progress")


@contextlib.contextmanager
def trusting() -> Iterator[None]:
    """Allow code from run folders to run in this context.

    Example:
        >>> with trusting():
        ...     require_trust(Path("runs/one/code/momentum.py"), b"STEP = 0.1")
    """
    token = _TRUSTED.set(True)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def needs_trust(folder: Path) -> bool:
    """Return whether code from this folder needs consent, as code from run folders does."""
    return any(os.path.lexists(folder / name) for name in _OF_RUNS)


def is_in_run_folder(path: Path) -> bool:
    """Return whether a file is in a run folder, by its path or its resolved path."""
    return any(needs_trust(parent) for place in (path.absolute(), path.resolve()) for parent in place.parents)


def require_trust(path: Path, content: bytes) -> None:
    """Raise InputError for code from a run folder that this machine has not run before, unless it is trusted.

    Args:
        path: path of the Python file.
        content: code to run.
    """
    if _TRUSTED.get() or sha256(content).hexdigest() in _read_digests():
        return
    text = f"{quoted_path(path)} is code of a run folder, and this machine has not run it before. Fix: read it, then "
    raise InputError(
        f"{text}repeat this with trust=True, or inside `with decentral_dp.trusting():`.",
        command=f"{text}repeat this with --trust.",
    )


def remember(content: bytes) -> None:
    """Record the digest of the user's code, so that copies of it in run folders are trusted."""
    if _TRUSTED.get():
        # Consent is for one call only.
        return
    line = sha256(content).hexdigest()
    # If the home folder is read-only, later runs need --trust.
    with contextlib.suppress(OSError):
        if line in _read_digests():
            return
        path = _file()
        path.parent.mkdir(OWNERS_FOLDER, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNERS), "a", encoding="ascii") as file:
            file.write(f"{line}\n")


def _file() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "decentral_dp" / "code_digests"


def _read_digests() -> frozenset[str]:
    try:
        return frozenset(_file().read_text(encoding="ascii").split())
    except (OSError, ValueError, RuntimeError):
        return frozenset()
