"""Outcomes of keyed tasks on disk, beside the request; the same request resumes them.

Tasks are the cells of a study, the runs of an audit, the audits of a table. Whatever decides their
outcomes has a fingerprint, this package among it: outcomes of another are never taken for one's own.

Many small outcomes share one JSON file with what was asked (`keep_outcomes`). Large ones have a file each in a folder
(`write` and `read_outcome`), and so has the request.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

from decentral_dp.config.components import inputs_digest
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, Stopped, option_error
from decentral_dp.files.durable import OWNERS, digest, new_salt, write_whole
from decentral_dp.files.locks import HAS_LOCKS, lock_file
from decentral_dp.files.package import package_digest
from decentral_dp.files.regular import regular
from decentral_dp.simulation.result import plain

T = TypeVar("T")
INTERRUPTED, COMPLETE = "interrupted", "complete"
# Names of files that tell what a folder is of: what a study was asked and its cells, and what a table of audits has.
STUDY, CELLS, TABLE = "begun.json", "cells", "audits.json"
# Of a scenario, what decides no outcome.
_DESCRIPTIVE_KEYS = {"title", "description", "versions", "objects", "run"}


def fingerprint(scenarios: Sequence[Scenario], settings: Any, salt: bytes) -> str:
    """Hash whatever decides outcomes, this package among it.

    Args:
        scenarios: what is run; titles, versions and `run` play no part, but the content of files that they name.
        settings: whatever else decides, as JSON values.
        salt: that keys the digests of files.

    Returns:
        16 hexadecimal digits.
    """
    contents = [[s.model_dump(mode="json", exclude=_DESCRIPTIVE_KEYS), inputs_digest(s, salt)] for s in scenarios]
    text = json.dumps([contents, settings, package_digest()], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def number(stored: Any) -> float:
    """Return a number as `plain` wrote it: infinities are words, what is missing is NaN.

    Example:
        >>> number("inf"), number(None)
        (inf, nan)
    """
    return math.nan if stored is None else float(stored)


def write_json(out: Path, content: Mapping[str, Any], mode: int = 0o666) -> None:
    """Write JSON values in place whole. mode: of a new file, less the umask."""
    write_whole(out, (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode(), mode)


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read an object; empty where the file holds none. what: begins the refusal of what is no regular file."""
    regular(path, what)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# --- one file for all -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What is asked, before anything of it is done.

    Args:
        title: "audit" or "table of audits".
        request: what it takes to ask again, as JSON values; None where no other process can.
        mark: salt → fingerprint of what is asked.
        others_text: what a file holds whose fingerprint is another, as "of another scenario".
        kept_text: number of outcomes → words for them, as "7 runs are kept".
        every: least seconds between two writes.
        place: what goes on, where it is not the file but its folder.
        is_extensible: whether a file that is complete may be asked for more; default no.
    """

    title: str
    request: Any
    mark: Callable[[bytes], str]
    others_text: str
    kept_text: Callable[[int], str]
    every: float = 0.0
    place: Path | None = None
    is_extensible: bool = False


@dataclass
class Outcomes(Generic[T]):
    """The outcomes so far of what is asked, by task. path: their file; None keeps nothing."""

    path: Path | None
    request: Request
    fingerprint: str
    salt: bytes
    done: dict[str, T] = field(default_factory=dict)
    _written_at: float = field(default_factory=lambda: time.monotonic())

    def add(self, task: str, outcome: T) -> None:
        """Keep one more; it is on the disk at once, or after `every` seconds with others."""
        self.done[task] = outcome
        if time.monotonic() >= self._written_at + self.request.every:
            self.write()
            self._written_at = time.monotonic()

    def write(self, status: str = INTERRUPTED) -> None:
        """Write the file, for its owner alone: it has the salt."""
        if self.path is not None:
            about = {"status": status, "what": self.request.title, "asked": self.request.request}
            marked = {"fingerprint": self.fingerprint, "salt": self.salt.hex()}
            write_json(self.path, {**about, **marked, "outcomes": self.done}, OWNERS)


@contextmanager
def keep_outcomes(out: Path | None, request: Request, read: Callable[[Any], T]) -> Iterator[Outcomes[T]]:
    """Keep outcomes inside this in a file, from the beginning on; one that holds some of them is gone on with.

    Args:
        out: the file, or None.
        request: what is asked.
        read: JSON value → outcome; raises ValueError, TypeError or KeyError for what is none.

    Yields:
        The outcomes that there are, to be added to.

    Raises:
        InputError: the file holds anything else, or there is no folder for it.
        Stopped: interrupted, and the file has the outcomes. Where there are none, no file is left.
    """
    outcomes = outcomes_in(out, request, read)
    outcomes.write()
    try:
        yield outcomes
    except BaseException as error:
        if out is None or not outcomes.done:
            if out is not None:
                out.unlink(missing_ok=True)
            raise
        outcomes.write()
        if not isinstance(error, KeyboardInterrupt):
            raise
        said, place = request.kept_text(len(outcomes.done)), request.place or out
        raise Stopped(f'Interrupted; {said} in {place}, and "decentral-dp resume {place}" goes on.') from None


def outcomes_in(out: Path | None, request: Request, read: Callable[[Any], T]) -> Outcomes[T]:
    """Find what a file holds of what is asked; nothing of a new one. Raises InputError as `keep_outcomes`."""
    if out is None or not out.exists():
        if out is not None and not out.parent.is_dir():
            raise option_error("out", f": there is no folder {out.parent}; make it, or give a file in another.")
        salt = new_salt()
        return Outcomes(out, request, request.mark(salt), salt)
    content = read_json(out, "--out")
    try:
        known = content["status"] == INTERRUPTED or (request.is_extensible and content["status"] == COMPLETE)
        marked, salt = str(content["fingerprint"]), bytes.fromhex(content["salt"])
        # One of an earlier version has its outcomes under other names, and is of another state of the package.
        done = {str(task): read(outcome) for task, outcome in content.get("outcomes", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise option_error("out", f": {out} exists already, and nothing is written over; give another file.")
    if marked != request.mark(salt):
        raise InputError(
            f"{out} holds an interrupted {request.title} {request.others_text}, or by another state of this package; "
            "put back what it was of, or give another file."
        )
    return Outcomes(out, request, marked, salt, done)


# --- a file for each --------------------------------------------------------------------------------------------------


def write(folder: Path, key: str, record: Any) -> None:
    """Write the outcome of a task, with the digest of its text: what was damaged is computed again.

    Args:
        folder: of the outcomes.
        key: of the task, the stem of its file.
        record: JSON values; others are written as their text.

    Raises:
        OSError: it cannot be written.
        ValueError: a number in it is not finite.
    """
    text = json.dumps(record, allow_nan=False, default=str)
    write_whole(folder / f"{key}.json", f"{digest(text.encode())}\n{text}\n".encode())


def read_outcome(folder: Path, key: str) -> Any:
    """Read the outcome that was kept under the key; None where there is none that is whole.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(Path(folder), "key", {"status": "ok"})
        ...     read_outcome(Path(folder), "key"), read_outcome(Path(folder), "another")
        ({'status': 'ok'}, None)
    """
    try:
        head, _, rest = regular(folder / f"{key}.json", "study").read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError):
        return None
    text = rest.removesuffix("\n")
    return json.loads(text) if head == digest(text.encode()) else None


@contextmanager
def refuse_foreign(path: Path, mend: str) -> Iterator[None]:
    """Read what was asked inside this: where a file is not what was written, one sentence says so.

    Args:
        path: of the file.
        mend: a sentence on what to do instead.

    Raises:
        InputError: whatever of it cannot be read.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"resume: {path} is not what was written. {mend}") from None


@contextmanager
def hold_folder(folder: Path, under_way: str) -> Iterator[None]:
    """Hold a folder of outcomes inside this, and remove what others left unfinished.

    Args:
        folder: that exists.
        under_way: a sentence.

    Raises:
        InputError: another process computes there; the sentence.
    """
    place = os.open(folder, os.O_RDONLY) if HAS_LOCKS else None
    try:
        # A file system without locks is taken at its word.
        with suppress(OSError):
            try:
                if place is not None:
                    lock_file(place)
            except BlockingIOError:
                raise InputError(under_way) from None
        for unfinished in folder.glob(".*.part"):
            unfinished.unlink()
        yield
    finally:
        if place is not None:
            os.close(place)
