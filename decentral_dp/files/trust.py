"""Consent to run code that came with somebody's data: Python files in a run folder, or named by one.

A scenario of your own names your own code, which runs. A run folder is data, and may be from elsewhere. Code that it
holds or names runs where this machine has run the same bytes before, or where you say so: `--trust` on the command
line, `trust=True` of `resume`, `with trusting():` in Python. `require_trust` decides, for every command alike.
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
# A folder with one of these is that of a run, which may lie in one with code, inputs or baselines.
_OF_RUNS = ("result.json", "in_progress")


@contextlib.contextmanager
def trusting() -> Iterator[None]:
    """Run the code of run folders inside this.

    Example:
        >>> with trusting():
        ...     require_trust(Path("runs/one/code/heavy_ball.py"), b"STEP = 0.1")
    """
    token = _TRUSTED.set(True)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def needs_trust(folder: Path) -> bool:
    """Whether code that is named from this folder needs consent: it is of a run."""
    return any(os.path.lexists(folder / name) for name in _OF_RUNS)


def is_in_run_folder(path: Path) -> bool:
    """Whether a file lies in the folder of a run, by its name or where a link leads."""
    return any(needs_trust(parent) for place in (path.absolute(), path.resolve()) for parent in place.parents)


def require_trust(path: Path, content: bytes) -> None:
    """Refuse code of a run folder that this machine has not run before, unless it is trusted.

    Args:
        path: of the Python file.
        content: that is to be run.

    Raises:
        InputError: it is unknown here.
    """
    if _TRUSTED.get() or sha256(content).hexdigest() in _known():
        return
    text = f"{quoted_path(path)} is code of a run folder, and this machine has not run it before. Fix: read it, then "
    raise InputError(
        f"{text}repeat this with trust=True, or inside `with decentral_dp.trusting():`.",
        command=f"{text}repeat this with --trust.",
    )


def remember(content: bytes) -> None:
    """Keep the digest of code that is the user's own, for the copies of it that run folders hold."""
    if _TRUSTED.get():
        # A run folder may have named it, and consent is given once.
        return
    line = sha256(content).hexdigest()
    # A home that cannot be written costs a --trust later, and no run now.
    with contextlib.suppress(OSError):
        if line in _known():
            return
        path = _file()
        path.parent.mkdir(OWNERS_FOLDER, parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, OWNERS), "a", encoding="ascii") as file:
            file.write(f"{line}\n")


def _file() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "decentral_dp" / "code_digests"


def _known() -> frozenset[str]:
    try:
        return frozenset(_file().read_text(encoding="ascii").split())
    except (OSError, ValueError, RuntimeError):
        return frozenset()
