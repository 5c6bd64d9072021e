"""The folder of a run that is not complete: what was, or may have been, released is on record before it travels.

While a run is under way its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`:

journal.jsonl   one JSON object a line, appended and synced. {"leased": L}: from now on everything up to round L may be
                released. {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K}: the run goes
                on from there, and what was kept after it is void. {"extended": N}: it has N rounds from now on.
                {"unkept": REASON}: no state can be kept. {"ended": STATUS, …}.
noise_root.json the root of all noise and what it was drawn for, readable by its owner only; gone when the run is done.
saved-K.npz     states (`saved_values`); the last two are kept. metrics-K.parquet: what was measured up to there.
scenario.toml   as the run was begun, where it has more rounds since. lock: held while the run is.

Rounds are leased in advance, for about a second each time, so that a record on disk does not cost more than the round.
After a crash, what was leased counts as released. A run that goes on repeats these rounds with the same draws, so that
nothing is released twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

from decentral_dp.engines.protocol import Saved, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.noise_root import noise_root
from decentral_dp.simulation.result import IN_PROGRESS, is_complete, plain, problem_summary, title_of, topology_summary
from decentral_dp.simulation.run_folder import resolved_toml, versions
from decentral_dp.simulation.saved_values import UnreadableError, from_bytes, home_of, to_bytes

_JOURNAL, _ROOT, _LOCK, _BEGUN = "journal.jsonl", "noise_root.json", "lock", "scenario.toml"
# Seconds that a lease is for; least seconds between two states kept, and their share of the time at most.
_LEASE, _INTERVAL, _SHARE = 1.0, 5.0, 0.02


@dataclass(frozen=True)
class Found:
    """What a folder says of a run that is not complete.

    Args:
        root: of its noise; None where it was not kept.
        given: digest of the scenario and of the records that it was drawn for.
        versions: of what computed it.
        leased: rounds that may have been released.
        saved: the last state that can be read; None for the start.
        kept: number of that state's file; 0 for the start.
        rows: what was measured up to there.
        extended: rounds of the run, where they are more than it was begun with.
    """

    root: bytes | None
    given: str
    versions: dict[str, str]
    leased: int
    saved: tuple[int, bytes] | None
    kept: int
    rows: list[Row]
    extended: int | None = None

    def state(self, job: Job) -> Saved | None:
        """Where the run goes on; None where it starts anew, with the same draws.

        Raises:
            InputError: the state is of another version of the algorithm.
        """
        if self.saved is None:
            return None
        t, content = self.saved
        try:
            return Saved(t, tuple(from_bytes(content, home_of(job.algorithm))))
        except UnreadableError as error:
            raise InputError(
                f"resume: the state after round {t} cannot be read ({error}); go on with the versions of "
                "decentral_dp and of the algorithm's file that the run was begun with."
            ) from error


class RunInProgress:
    """The record of a run, written as it goes.

    Args:
        folder: of the run.
        job: what is run.
        lock: the open file whose lock says that the run is under way.
        found: where it goes on; by default it starts anew.
    """

    def __init__(self, folder: Path, job: Job, lock: IO[bytes], found: Found | None = None) -> None:
        self.folder, self._job, self._lock = folder, job, lock
        self._place = folder / IN_PROGRESS
        self._home = home_of(job.algorithm)
        self._before = self._leased = 0 if found is None else found.leased
        self._ahead, self._leased_at, self._leased_from = 1, time.monotonic(), self._leased
        self._kept, self._written = (0, 0) if found is None else (found.kept, len(found.rows))
        self._reached = 0
        self._next_save = time.monotonic() + _INTERVAL
        self._goes_on = found is not None
        self._journal = (self._place / _JOURNAL).open("ab")
        if found is not None:
            # A line that was cut off was never acted on, and must not run into the next one.
            self._journal.truncate((self._place / _JOURNAL).read_bytes().rfind(b"\n") + 1)
            self._write(resumed=found.kept)

    def extend(self) -> None:
        """Put on record that the run has the rounds of its job from now on, and what they cost."""
        if not (self._place / _BEGUN).exists():
            # The noise was drawn for that one; the folder's own is that of the longer run in the end.
            _write_synced(self._place / _BEGUN, (self.folder / _BEGUN).read_bytes())
        _write_synced(self.folder / "result.json", _partial(self._job, self._job.rounds, "running", _cut(self.folder)))
        self._write(extended=self._job.rounds)

    # --- from the engine --------------------------------------------------------------------------------------------

    def due(self, t: int) -> bool:
        """Whether something is to be written before round t + 1 begins."""
        self._reached = max(self._reached, t)
        return t < self._job.rounds and (t >= self._leased or time.monotonic() >= self._next_save)

    def passed(self, s: Snapshot, rows: Sequence[Row]) -> None:
        """Write what is due. rows: all that was measured so far."""
        self._reached = max(self._reached, s.round)
        if time.monotonic() >= self._next_save:
            self._save(s, rows)
        if s.round >= self._leased and s.round < self._job.rounds:
            self._lease(s.round)

    def _lease(self, t: int) -> None:
        now = time.monotonic()
        speed = (t - self._leased_from) / max(now - self._leased_at, 1e-6)
        # At most twice as many as before: the first rounds may be quicker than those that follow.
        self._ahead = max(1, min(2 * self._ahead, int(_LEASE * speed)))
        self._leased, self._leased_at, self._leased_from = min(t + self._ahead, self._job.rounds), now, t
        self._write(leased=self._leased)

    def _save(self, s: Snapshot, rows: Sequence[Row]) -> None:
        started = time.monotonic()
        number = self._kept + 1
        try:
            content = to_bytes(list(s.save().parts), self._home)
        except TypeError as error:
            # The run itself is none the worse: cut off, it goes on from its start, with the same draws.
            self._write(unkept=str(error))
            self._next_save = math.inf
            return
        measured = measuring.frame(rows[self._written :]).to_parquet(index=False)
        _write_synced(self._place / f"metrics-{number}.parquet", measured)
        _write_synced(self._place / f"saved-{number}.npz", content)
        digests = {"digest": _digest(content), "metrics": _digest(measured)}
        self._write(saved=number, round=s.round, **digests)
        (self._place / f"saved-{number - 2}.npz").unlink(missing_ok=True)
        self._kept, self._written = number, len(rows)
        now = time.monotonic()
        self._next_save = now + max(_INTERVAL, (now - started) / _SHARE)

    def _write(self, **entry: Any) -> None:
        self._journal.write(json.dumps(entry).encode() + b"\n")
        self._journal.flush()
        os.fsync(self._journal.fileno())

    @property
    def keeps_secret(self) -> bool:
        """Whether the root of the noise lies in the folder."""
        return json.loads((self._place / _ROOT).read_text())["root"] is not None

    # --- how it ends ------------------------------------------------------------------------------------------------

    @property
    def released(self) -> int:
        """Rounds of which something may have been released."""
        return max(self._before, min(self._leased, self._reached + 1))

    def end(self, status: str, reason: str) -> None:
        """Say in the folder why the run is not complete, what was released, and what that costs.

        Args:
            status: "interrupted" or "failed".
            reason: a sentence.
        """
        with contextlib.suppress(OSError):
            # A full disk must not hide why the run ended.
            self._write(ended=status, released=self.released)
            _write_synced(self.folder / "result.json", _partial(self._job, self.released, status, reason))
        self.close()

    def discard(self) -> bool:
        """Remove the folder, if nothing was released. Returns whether it did."""
        if self._leased or self._goes_on:
            return False
        self.close()
        _remove(self.folder)
        return True

    def complete(self) -> None:
        """Remove what is of a run under way only: its noise is nobody's business any more."""
        self.close()
        shutil.rmtree(self._place)

    def close(self) -> None:
        self._journal.close()
        self._lock.close()


def begin(folder: Path, job: Job, keep_secret: bool = True) -> RunInProgress:
    """Make the folder of a run.

    Args:
        folder: new or empty.
        job: what will be run.
        keep_secret: whether to keep the root of secret noise until the run is complete, so that it can go on after an
            interruption; default True.

    Raises:
        InputError: somebody else has made it meanwhile.
    """
    place = folder / IN_PROGRESS
    folder.mkdir(parents=True, exist_ok=True)
    try:
        place.mkdir()
    except FileExistsError:
        raise InputError(f"--out: another run writes {folder} already. Give another folder.") from None
    lock = _locked(folder)
    try:
        _begin(folder, job, keep_secret)
        return RunInProgress(folder, job, lock)
    except BaseException:
        # Nothing was released, and nothing stays.
        lock.close()
        _remove(folder)
        raise


def _begin(folder: Path, job: Job, keep_secret: bool) -> None:
    secret = job.scenario.seed is None and not keep_secret
    root = None if secret else job.root.hex()
    about = {"root": root, "check": _digest(str(root).encode()), "given": given(job), "versions": machine()}
    _write_synced(folder / IN_PROGRESS / _ROOT, json.dumps(about).encode(), mode=0o600)
    (folder / IN_PROGRESS / _JOURNAL).touch()
    _write_synced(folder / "scenario.toml", resolved_toml(job.scenario).encode())
    _write_synced(folder / "result.json", _partial(job, job.rounds, "running", _cut(folder)))


def _cut(folder: Path) -> str:
    return f'under way, or cut off; then "decentral-dp resume {folder}" goes on; the budget is that of all rounds'


def _remove(folder: Path) -> None:
    """Remove the folder of a run that has released nothing, and folders above that it leaves empty."""
    shutil.rmtree(folder / IN_PROGRESS)
    for path in folder.iterdir():
        if path.name.lstrip(".").removesuffix(".part") in ("scenario.toml", "result.json"):
            path.unlink()
    for empty in (folder, *folder.parents):
        try:
            empty.rmdir()
        except OSError:
            break


def find(folder: Path) -> tuple[Found, IO[bytes]]:
    """Read the folder of a run that is not complete, and take its lock.

    Raises:
        InputError: there is none, it is under way, or its files are damaged.
    """
    place = folder / IN_PROGRESS
    if not place.is_dir():
        state = "is complete" if (folder / "result.json").is_file() else "is no run folder"
        raise InputError(f"resume: {folder} {state}; give the folder of a run that was interrupted.")
    lock = _locked(folder)
    if is_complete(folder):
        # It was killed between its result and the end of its tidying up.
        lock.close()
        shutil.rmtree(place)
        raise InputError(f"resume: {folder} is complete; give the folder of a run that was interrupted.")
    try:
        kept = json.loads((place / _ROOT).read_text())
        if kept["check"] != _digest(str(kept["root"]).encode()):
            raise ValueError(f"{_ROOT} is not what was written")
        root = None if kept["root"] is None else bytes.fromhex(kept["root"])
        drawn_for, computed_by = str(kept["given"]), {str(k): str(v) for k, v in kept["versions"].items()}
        entries = _entries(place / _JOURNAL)
        leased = max((int(e["leased"]) for e in entries if "leased" in e), default=0)
        extended = max((int(e["extended"]) for e in entries if "extended" in e), default=None)
        saved, number, rows = _last_state(place, _states(entries))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        lock.close()
        raise InputError(
            f"resume: {place} is damaged ({error}), and the run cannot go on. What it may have released is in the "
            'ledger of "decentral-dp plan" with its scenario.toml; run the scenario again in another folder.'
        ) from error
    return Found(root, drawn_for, computed_by, leased, saved, number, rows, extended), lock


def scenario_begun(folder: Path) -> Path:
    """The scenario that the run in a folder was begun with."""
    kept = folder / IN_PROGRESS / _BEGUN
    return kept if kept.is_file() else folder / _BEGUN


def continued(found: Found, job: Job, folder: Path) -> bytes:
    """The root of a run that goes on.

    Raises:
        InputError: it would not make the same draws, or not on the same records.
    """
    if given(job) != found.given:
        raise InputError(
            f"resume: the records, or a file that {folder}/scenario.toml names, are others than when the run was "
            "begun, and on them its noise would be drawn twice. Put them back, or run the scenario again in another "
            "folder."
        )
    if found.root is None:
        raise InputError(
            f"resume: the secret of {folder} was not kept, and its noise cannot be drawn again; other noise for the "
            f"same releases would be a second release of up to {found.leased} rounds. Run the scenario again in "
            "another folder; both runs are to be paid for."
        )
    here = machine()
    others = [f"{k} {v} (here {here.get(k, 'none')})" for k, v in found.versions.items() if here.get(k) != v]
    if others and found.leased > (found.saved[0] if found.saved else 0):
        raise InputError(
            f"resume: the run was begun with {', '.join(others)}. What is under way would be released again with other "
            "last bits, which is a second release. Go on where it was begun, or with the same versions."
        )
    return found.root


def _entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last line that was cut off was never acted on."""
    lines = path.read_bytes().split(b"\n")
    entries = [json.loads(line) for line in lines[:-1]]
    if not all(isinstance(e, dict) for e in entries):
        raise ValueError(f"{path.name} has a line that is no object")
    return entries


def _states(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The states that belong to one course of the run: going on from one voids what was kept after it."""
    states: list[dict[str, Any]] = []
    for entry in entries:
        if "resumed" in entry:
            states = [e for e in states if int(e["saved"]) <= int(entry["resumed"])]
        elif "saved" in entry:
            states.append(entry)
    return states


def _last_state(place: Path, entries: Sequence[dict[str, Any]]) -> tuple[tuple[int, bytes] | None, int, list[Row]]:
    """The last state of which everything is as it was written: (round, content), its number, and what was measured.

    Damaged ones are passed over: an earlier state, or the start, leads to the same releases, only later.
    """
    import pandas as pd

    parts: list[list[Row]] = []
    for entry in entries:
        content = _intact(place / f"metrics-{int(entry['saved'])}.parquet", entry["metrics"])
        if content is None:
            break
        parts.append(list(pd.read_parquet(io.BytesIO(content)).itertuples(index=False, name=None)))
    for n in range(len(parts), 0, -1):
        number = int(entries[n - 1]["saved"])
        content = _intact(place / f"saved-{number}.npz", entries[n - 1]["digest"])
        if content is not None:
            return (int(entries[n - 1]["round"]), content), number, [row for part in parts[:n] for row in part]
    return None, 0, []


def _intact(path: Path, digest: str) -> bytes | None:
    content = path.read_bytes() if path.is_file() else b""
    return content if _digest(content) == digest else None


def _locked(folder: Path) -> IO[bytes]:
    lock = (folder / IN_PROGRESS / _LOCK).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(f"{folder}: this run is under way. Wait until it ends, or end it first.") from None
    return lock


def given(job: Job) -> str:
    """A digest of everything that the noise of a job was drawn for, whether or not its root is secret."""
    if job.scenario.seed is not None:
        # The root is that digest already; files are not read a second time.
        return _digest(job.root)
    seeded = job.scenario.model_copy(update={"seed": 0})
    return noise_root(seeded, job.shards, job.mechanism).hex()


def machine() -> dict[str, str]:
    """What the last bits of a state depend on."""
    processor = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    return {**versions(), "processor": processor}


def _partial(job: Job, released: int, status: str, reason: str) -> bytes:
    """The text of result.json: the price of what is released after so many rounds."""
    spent: Any = job
    if released < job.rounds:
        ledger = job.ledger.until(released)
        budget = price(ledger, job.scenario.privacy.delta)
        spent = replace(spent, rounds=released, ledger=ledger, budget=budget)
    content = {
        "title": title_of(job),
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": 0 if status == "running" else released,
        "rounds_planned": job.scenario.algorithm.rounds,
        "metrics": {},
        "privacy": spent.statement().to_dict(),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode()


def _write_synced(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Put a file in place whole: after a power cut there is the old one or the new one."""
    beside = path.with_name(f".{path.name}.part")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
