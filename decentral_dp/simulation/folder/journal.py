"""The journal of an unfinished run, in which every release is logged before it is sent.

While a run is under way its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`,
which its owner alone may read:

journal.jsonl   one JSON object a line (`journal_lines`), appended and synced. The first binds the scenario and the
                noise key by their digests. {"leased": L}: from now on everything up to round L may be released.
                {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K, "versions": …}: the
                run goes on from there, and what was kept after it is void. {"machines": […]}: digests of what the last
                bits of each block of agents depend on. {"part": [A, B], …}: released values in a file of their own,
                with its digest. {"unkept": REASON}: no state can be kept. {"ended": STATUS, …}. {"complete": D}: the
                run's own result.json has the digest D.
noise_root.json the root of all noise, its generator and what it was drawn for, readable by its owner only; gone when
                the run is done.
saved-K.npz     states (`saved_values`); the last two are kept. metrics-K.parquet: what was measured up to there. Where
                records are with their agents, so are the states (`AgentStates`), and here are receipts.
releases-A-B.parquet: released values, where they are kept (`kept_releases`).
lock            held while the run is.

Rounds are leased in advance, for about a second each time, so that a record on disk does not cost more than the round.
After a crash, what was leased counts as released. A run that goes on repeats these rounds with the same draws, so that
nothing is released twice.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal, TypeGuard

from decentral_dp.engines.arithmetic import machine
from decentral_dp.engines.protocol import SavedState, Snapshot
from decentral_dp.errors import InputError, option_error, quoted_path
from decentral_dp.files.durable import OWNERS, OWNERS_FOLDER, digest, intact, write_synced
from decentral_dp.files.locks import lock_file, require_locks
from decentral_dp.files.package import versions
from decentral_dp.files.parquet import to_parquet
from decentral_dp.files.regular import own, refuse_unreadable
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.randomness import GENERATORS, Root, generator_of, root_bytes, root_of
from decentral_dp.simulation.folder.journal_lines import FORMAT, next_line, read_lines
from decentral_dp.simulation.folder.layout import TENSORBOARD, copy_inputs, remove_inputs, resolved_toml, write_graph
from decentral_dp.simulation.folder.releases import Digests, KeptReleases, intact_until
from decentral_dp.simulation.folder.states import UnreadableError, from_bytes, module_of, to_bytes
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import Row, tabulate
from decentral_dp.simulation.result import FORMAT as RESULT_FORMAT
from decentral_dp.simulation.result import IN_PROGRESS, RESULT, is_complete, is_sealed, seal, text_of
from decentral_dp.simulation.setting import statement_of
from decentral_dp.simulation.summary import problem_summary, title_of, topology_summary

JOURNAL, ROOT, LOCK, SCENARIO = "journal.jsonl", "noise_root.json", "lock", "scenario.toml"


@dataclass(frozen=True)
class Interruption:
    """What a folder says of a run that is not complete.

    Args:
        root: of its noise; None where it was not kept.
        input_digest: digest of the scenario and of the records that it was drawn for.
        versions: of what computed it.
        leased_rounds: rounds that may have been released.
        saved_state: the last state that can be read; None for the start.
        state_number: number of that state's file; 0 for the start.
        rows: what was measured up to there.
        states: of the journal, those of this course of the run.
        releases: digests of the parts of what it released, as they were written.
        machines: digests of what the last bits of each block depend on.
    """

    root: Root | None
    input_digest: str
    versions: dict[str, str]
    leased_rounds: int
    saved_state: tuple[int, bytes] | None
    state_number: int
    rows: list[Row]
    states: Sequence[dict[str, Any]] = ()
    releases: Digests = field(default_factory=dict)
    machines: tuple[str, ...] = ()

    def state(self, job: PlannedJob) -> SavedState | None:
        """Where the run goes on; None where it starts anew, with the same draws.

        Raises:
            InputError: the state is of another version of the algorithm, or of other blocks of agents.
        """
        if self.saved_state is None:
            return None
        t, content = self.saved_state
        try:
            parts = tuple(from_bytes(content, module_of(job.algorithm)))
        except UnreadableError as error:
            raise InputError(
                f"resume: the state after round {t} cannot be read ({error}); go on with the versions of "
                "decentral_dp and of the algorithm's file that the run was begun with."
            ) from error
        # A coordinator's state is one.
        blocks = 1 if job.plans_ahead else len(job.sizes())
        if len(parts) != blocks:
            raise InputError(
                f"resume: agents were hosted in {len(parts)} blocks, and are in {blocks} now. Put run.blocks, "
                "run.engine and run.agents_per_actor back to what they were."
            )
        return SavedState(t, parts)


def lock_folder(folder: Path) -> IO[bytes]:
    """Lock a folder against other processes until the file is closed. Raises InputError where it is locked."""
    require_locks(str(folder))
    path = own(folder / IN_PROGRESS / LOCK, folder, str(folder))
    if path.is_dir():
        raise InputError(f"{folder}: {path} is a folder; remove it, and then the same again.")
    held = path.open("ab")
    try:
        lock_file(held)
    except OSError:
        held.close()
        raise InputError(f"{folder}: this run is under way. Wait until it ends, or end it first.") from None
    return held


def progress_in(folder: Path) -> Literal["none", "under way", "complete"]:
    """How far the run in a folder came; what was cut off before it could release anything is removed.

    Raises:
        InputError: somebody runs it now.
    """
    if not (folder / IN_PROGRESS).is_dir():
        return "complete" if (folder / RESULT).is_file() and is_complete(folder) else "none"
    with refuse_unreadable("resume"), lock_folder(folder):
        entries = _entries(folder / IN_PROGRESS)
        if _has_own_result(folder, entries):
            _remove_progress(folder / IN_PROGRESS)
            return "complete"
        if len(entries) > 1 or (folder / SCENARIO).is_file():
            return "under way"
        if (folder / IN_PROGRESS / ROOT).is_file():
            _remove(folder)
        else:
            # Nothing was copied before the noise key was written; what else is here is not the run's.
            _remove_progress(folder / IN_PROGRESS)
        return "none"


def _entries(place: Path) -> list[dict[str, Any]]:
    """The entries of the journal; none where there is no journal. Raises InputError for a damaged one."""
    try:
        return read_lines(own(place / JOURNAL, place.parent, "resume")).entries
    except FileNotFoundError:
        return []
    except (ValueError, IsADirectoryError) as error:
        raise _damaged(place, error) from error


def _damaged(place: Path, error: Exception) -> InputError:
    return InputError(
        f"resume: {place} is damaged ({error}), and the run cannot resume. What it may have released is in the "
        'ledger of "decentral-dp plan" with its scenario.toml; run the scenario again in another folder.'
    )


def _has_own_result(folder: Path, entries: Sequence[dict[str, Any]]) -> bool:
    """Whether the run in a folder is complete, and was killed while it tidied up.

    Its journal says so, or is removed already; a result from elsewhere is not that of the run under way.
    """
    path = folder / RESULT
    content = own(path, folder, "resume").read_bytes() if path.is_file() else b""
    if {file.name for file in (folder / IN_PROGRESS).iterdir()} <= {LOCK}:
        return bool(content) and is_complete(folder)
    return any(entry.get("complete") == digest(content) for entry in entries)


def _remove_progress(place: Path) -> None:
    """Remove a folder `in_progress`: the journal, which says that the run is complete, after what it speaks of."""
    last = (JOURNAL, LOCK)
    for path in place.iterdir():
        if path.name not in last:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in last:
        (place / name).unlink(missing_ok=True)
    place.rmdir()


def open_interrupted(folder: Path) -> tuple[Interruption, IO[bytes]]:
    """Read the folder of a run that is not complete, and take its lock.

    Raises:
        InputError: there is none, it is under way, or its files are damaged or may not be read.
    """
    place = folder / IN_PROGRESS
    with refuse_unreadable("resume"):
        if not place.is_dir():
            state = "is complete" if (folder / RESULT).is_file() else "is no run folder"
            raise InputError(f"resume: {folder} {state}; give the folder of a run that was interrupted.")
        lock = lock_folder(folder)
        try:
            if _has_own_result(folder, _entries(place)):
                _remove_progress(place)
                raise InputError(f"resume: {folder} is complete; give the folder of a run that was interrupted.")
            return _read_interruption(folder), lock
        except BaseException:
            lock.close()
            raise


def _read_interruption(folder: Path) -> Interruption:
    place = folder / IN_PROGRESS
    try:
        begun, *entries = read_lines(place / JOURNAL).entries or [{}]
        if not begun:
            raise ValueError(f"{JOURNAL} is empty")
        _require_bound(folder / SCENARIO, folder, begun["scenario"])
        about = json.loads(_require_bound(place / ROOT, folder, begun["noise_key"]))
        root = _read_root(about, folder)
        by = next((e["versions"] for e in reversed(entries) if "versions" in e), about["versions"])
        input_digest, computed_by = str(about["given"]), {str(k): str(v) for k, v in by.items()}
        machines = next((tuple(map(str, e["machines"])) for e in reversed(entries) if "machines" in e), ())
        leased = max((int(e[key]) for e in entries for key in ("leased", "released") if key in e), default=0)
        _require_known(place, folder, entries, leased)
        states = _states(entries)
        saved, number, rows = _last_state(place, states)
        # A part that was made once more has the name of the one before.
        releases = {(int(e["part"][0]), int(e["part"][1])): str(e["digest"]) for e in entries if "part" in e}
    except (InputError, PermissionError):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(place, error) from error
    return Interruption(root, input_digest, computed_by, leased, saved, number, rows, states, releases, machines)


def _require_known(place: Path, folder: Path, entries: Sequence[dict[str, Any]], leased: int) -> None:
    """Refuse a journal that lacks its last lines: what it leads to is on disk. Raises ValueError."""
    numbers = [int(e["saved"]) for e in entries if "saved" in e]
    states = [int(m[1]) for path in place.iterdir() if (m := re.fullmatch(r"saved-(\d+)\.npz", path.name))]
    # A state is written before its line.
    if max(states, default=0) > max(numbers, default=0) + 1:
        raise ValueError(f"{JOURNAL} lacks lines of states that are there")
    path = folder / RESULT
    text = own(path, folder, "resume").read_bytes().decode(errors="replace") if path.is_file() else ""
    if text and not is_sealed(text):
        raise InputError(
            f"resume: {quoted_path(path)} is not the file that the run wrote. Fix: remove it, and resume again."
        )
    kept = json.loads(text) if text else {}
    # A result from elsewhere may be of another run, which is complete.
    if kept.get("status") in ("interrupted", "failed") and int(kept.get("rounds") or 0) > leased:
        raise ValueError(f"{JOURNAL} lacks lines of rounds that {RESULT} has")


def root_of_run(interruption: Interruption, job: PlannedJob, folder: Path) -> Root:
    """Return the noise key of a run that resumes.

    Raises:
        InputError: it was not kept, or would not make the same draws, or not on the same records.
    """
    if interruption.root is None:
        raise InputError(
            f"resume: the noise key of {folder} was not kept, and its noise cannot be drawn again. Run the scenario "
            "again in another folder; the budgets of both runs add up."
        )
    if run_digest(job) != interruption.input_digest:
        raise InputError(
            f"resume: the records, or a file that {folder}/scenario.toml names, are others than when the run was "
            "begun, and on them its noise would be drawn twice: two messages under one noise show their difference "
            "bare. Put them back, or run the scenario again in another folder."
        )
    here = machine_of(job)
    others = [f"{k} {v} (here {here.get(k, 'none')})" for k, v in interruption.versions.items() if here.get(k) != v]
    if others and interruption.leased_rounds:
        raise InputError(
            f"resume: the run was begun with {', '.join(others)}, and rounds in flight would be released again with "
            "other last bits under the same noise. Fix: resume on the machine and with the versions that it was begun "
            "with."
        )
    return interruption.root


def before_damage(interruption: Interruption, job: PlannedJob, folder: Path) -> Interruption:
    """What a folder says of a run, up to the last state before the first value that is not on disk as it was released.

    From there the same draws give the same values.
    """
    if not job.scenario.run.keep_releases or interruption.saved_state is None:
        return interruption
    place = folder / IN_PROGRESS
    with refuse_unreadable("resume"):
        end = intact_until(place, job, interruption.releases)
    if end >= job.first_release(interruption.saved_state[0]):
        return interruption
    sound = [e for e in interruption.states if job.first_release(int(e["round"])) <= end]
    saved, number, rows = _last_state(place, sound)
    return replace(interruption, saved_state=saved, state_number=number, rows=rows)


def written_root(key: bytes | None, generator: str) -> dict[str, Any]:
    """What a folder says of the root of its noise.

    Args:
        key: of the root; None where it is not kept.
        generator: that its noise comes from.
    """
    root = None if key is None else key.hex()
    return {"root": root, "generator": generator}


def _read_root(content: dict[str, Any], folder: Path) -> Root | None:
    root, generator = content["root"], content["generator"]
    if generator not in GENERATORS:
        raise InputError(
            f"resume: the noise of {folder} comes from the generator {generator!r}, and this version has "
            f"{' and '.join(GENERATORS)}; go on with the version of decentral_dp that the run was begun with."
        )
    return None if root is None else root_of(bytes.fromhex(root), generator)


def _require_bound(path: Path, folder: Path, expected: str) -> bytes:
    """Read a file that the first line of the journal binds. Raises InputError where it is another than then."""
    content = own(path, folder, "resume").read_bytes()
    if digest(content) != expected:
        raise InputError(
            f"resume: {path} is not the file that the run was begun with. Put it back, or run the scenario again in "
            "another folder; the budgets of both runs add up."
        )
    return content


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
        content = intact(place / f"metrics-{int(entry['saved'])}.parquet", entry["metrics"])
        if content is None:
            break
        parts.append(list(pd.read_parquet(io.BytesIO(content)).itertuples(index=False, name=None)))
    for n in range(len(parts), 0, -1):
        number = int(entries[n - 1]["saved"])
        content = intact(place / f"saved-{number}.npz", entries[n - 1]["digest"])
        if content is not None:
            return (int(entries[n - 1]["round"]), content), number, [row for part in parts[:n] for row in part]
    return None, 0, []


def machine_of(job: PlannedJob) -> dict[str, str]:
    """What the last bits of a job's values depend on, in this process."""
    return machine(getattr(job.problem, "device", job.scenario.run.device))


# Seconds that a lease is for; least seconds between two states kept, and their share of the time at most.
_LEASE, _INTERVAL, _SHARE = 1.0, 5.0, 0.02
# Of a run, where agents keep their states.
_NAME = re.compile("[0-9a-f]{16}")


class RunInProgress:
    """The record of a run, written as it goes.

    Args:
        folder: of the run.
        job: what is run.
        lock: the open file whose lock says that the run is under way.
        interruption: where it goes on; by default it starts anew.
    """

    def __init__(
        self, folder: Path, job: PlannedJob, lock: IO[bytes], interruption: Interruption | None = None
    ) -> None:
        self.folder, self._job, self._lock = folder, job, lock
        self._place = folder / IN_PROGRESS
        self._home = module_of(job.algorithm)
        start = interruption or Interruption(None, "", {}, 0, None, 0, [])
        self._before = self._leased = start.leased_rounds
        self._ahead, self._leased_at, self._leased_from = 1, time.monotonic(), self._leased
        self._number, self._written = start.state_number, len(start.rows)
        self._reached = 0
        self._next_save = time.monotonic() + _INTERVAL
        self._goes_on, self._machines = interruption is not None, start.machines
        after, parts = start.saved_state[0] if start.saved_state else 0, start.releases
        self._releases = KeptReleases(self._place, job, after, parts) if job.scenario.run.keep_releases else None
        # An earlier version let others read it.
        self._place.chmod(OWNERS_FOLDER)
        lines = read_lines(self._place / JOURNAL)
        self._chain = lines.chain
        self._journal = (self._place / JOURNAL).open("ab")
        if interruption is not None:
            # A line that was cut off was never acted on, and must not run into the next one.
            self._journal.truncate(lines.size)
            self._write(resumed=interruption.state_number, versions=machine_of(job))

    # --- from the engine --------------------------------------------------------------------------------------------

    def due(self, t: int) -> bool:
        """Whether something is to be written before round t + 1 begins."""
        self._reached = max(self._reached, t)
        full = self._releases is not None and self._releases.due(t)
        return t < self._job.rounds and (t >= self._leased or full or time.monotonic() >= self._next_save)

    def check_machines(self, machines: Sequence[str]) -> None:
        """Put on record where blocks of agents compute, before they release anything.

        Raises:
            InputError: rounds may be out, and a block computed them on a machine that rounds differently.
        """
        if self._leased and self._machines and tuple(machines) != self._machines:
            raise InputError(
                "resume: agents run on machines with other processors or versions than before, and rounds in flight "
                "would be released again with other last bits under the same noise. Fix: start Ray on machines like "
                "those that the run was begun on."
            )
        if tuple(machines) != self._machines:
            self._machines = tuple(machines)
            self._write(machines=list(machines))

    @property
    def keeps_releases(self) -> bool:
        """Whether released values are written."""
        return self._releases is not None

    @property
    def release_digests(self) -> Digests:
        """Digests of the parts in which released values lie; none where they are not kept."""
        return {} if self._releases is None else self._releases.digests

    def write_due(self, s: Snapshot, rows: Sequence[Row]) -> None:
        """Write what is due. rows: all that was measured so far."""
        self._reached = max(self._reached, s.round)
        ending = s.round == self._job.rounds or s.divergence is not None
        # Asked once: a state is never kept without what was released before it.
        saves = time.monotonic() >= self._next_save
        if self._releases is not None and (ending or saves or self._releases.due(s.round)):
            for part, digest in self._releases.collect(s.round, s.drain(ending)):
                self._write(part=part, digest=digest)
        if s.divergence is not None:
            return
        if saves:
            self._save(s, rows)
        if s.round >= self._leased and s.round < self._job.rounds:
            now = time.monotonic()
            speed = (s.round - self._leased_from) / max(now - self._leased_at, 1e-6)
            # At most twice as many as before: the first rounds may be quicker than those that follow.
            self._ahead = max(1, min(2 * self._ahead, int(_LEASE * speed)))
            self._leased_at, self._leased_from = now, s.round
            self._leased = min(s.round + self._ahead, self._job.rounds)
            self._write(leased=self._leased)

    def _save(self, s: Snapshot, rows: Sequence[Row]) -> None:
        started = time.monotonic()
        number = self._number + 1
        try:
            content = to_bytes(list(s.save().parts), self._home)
        except TypeError as error:
            # The run itself is none the worse: cut off, it goes on from its start, with the same draws.
            self._write(unkept=str(error))
            self._next_save = math.inf
            return
        measured = to_parquet(tabulate(rows[self._written :]))
        write_synced(self._place / f"metrics-{number}.parquet", measured, OWNERS)
        write_synced(self._place / f"saved-{number}.npz", content, OWNERS)
        digests = {"digest": digest(content), "metrics": digest(measured)}
        self._write(saved=number, round=s.round, **digests)
        (self._place / f"saved-{number - 2}.npz").unlink(missing_ok=True)
        self._number, self._written = number, len(rows)
        now = time.monotonic()
        self._next_save = now + max(_INTERVAL, (now - started) / _SHARE)

    def _write(self, **entry: Any) -> None:
        line, self._chain = next_line(self._chain, entry)
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    @property
    def keeps_secret(self) -> bool:
        """Whether the root of the noise lies in the folder."""
        return self._root_content()["root"] is not None

    @property
    def states(self) -> str | None:
        """The name under which agents keep their states; None of a run that an older version has begun."""
        name = self._root_content().get("states")
        return name if isinstance(name, str) and _NAME.fullmatch(name) else None

    def _root_content(self) -> dict[str, Any]:
        root: dict[str, Any] = json.loads((self._place / ROOT).read_text())
        return root

    # --- how it ends ------------------------------------------------------------------------------------------------

    @property
    def released_rounds(self) -> int:
        """Rounds of which something may have been released."""
        return max(self._before, min(self._leased, self._reached + 1))

    def write_interruption(self, status: str, reason: str) -> None:
        """Say in the folder why the run is not complete, what was released, and what that costs.

        Args:
            status: "interrupted" or "failed".
            reason: a sentence.
        """
        with contextlib.suppress(OSError):
            # A full disk must not hide why the run ended.
            self._write(ended=status, released=self.released_rounds)
            content = _partial(self._job, self.released_rounds, status, reason)
            write_synced(self.folder / RESULT, content, _mode(self._job))
        self.close()

    def discard(self) -> bool:
        """Remove the folder, if nothing was released. Returns whether it did."""
        if self._leased or self._goes_on:
            return False
        self.close()
        _remove(self.folder)
        return True

    def record_result(self, content: bytes) -> None:
        """Put on record which result.json is the run's own, before it is in its place."""
        self._write(complete=digest(content))

    def complete(self) -> None:
        """Remove what is of a run under way only: its noise is nobody's business any more."""
        self.close()
        _remove_progress(self._place)

    def close(self) -> None:
        # On a full disk what a failed write has left is written once more here, and must not hide why the run ended.
        with contextlib.suppress(OSError):
            self._journal.close()
        self._lock.close()


def begin(folder: Path, job: PlannedJob, keep_secret: bool = True) -> RunInProgress:
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
        place.mkdir(OWNERS_FOLDER)
    except FileExistsError:
        raise option_error("out", f": another run writes {folder} already. Give another folder.") from None
    lock = lock_folder(folder)
    try:
        if job.scenario.seed is None:
            folder.chmod(OWNERS_FOLDER)
        _begin(folder, job, keep_secret)
        return RunInProgress(folder, job, lock)
    except BaseException as error:
        # Nothing was released, and nothing stays.
        lock.close()
        _remove(folder)
        if isinstance(error, OSError):
            raise unwritable_error(folder, error) from error
        raise


def unwritable_error(folder: Path, error: OSError) -> OSError:
    """What is said where a folder cannot be written before anything is released."""
    return OSError(
        f"{folder} could not be written ({error}). Nothing was released, and nothing is left there. "
        f"{advise_on_write(error)}, then run it again."
    )


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether there is no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advise_on_write(error: OSError) -> str:
    """What to do about a file that could not be written."""
    return "Make room" if is_full(error) else "Mend that"


def _begin(folder: Path, job: PlannedJob, keep_secret: bool) -> None:
    secret = job.scenario.seed is None and not keep_secret
    about = written_root(None if secret else root_bytes(job.root), generator_of(job.root))
    about |= {"given": run_digest(job), "versions": machine_of(job), "states": os.urandom(8).hex()}
    key = json.dumps(about).encode()
    write_synced(folder / IN_PROGRESS / ROOT, key, OWNERS)
    copy_inputs(job.components, folder)
    write_graph(job.components, job.topology, folder)
    scenario = resolved_toml(job.components, job.topology, folder).encode()
    # The key's digest does not help to guess 256 random bits.
    line, _ = next_line("", {"format": FORMAT, "scenario": digest(scenario), "noise_key": digest(key)})
    write_synced(folder / IN_PROGRESS / JOURNAL, line, OWNERS)
    # Last: a folder with a scenario has a journal.
    write_synced(folder / SCENARIO, scenario)
    reason = f'under way, or cut off; then "decentral-dp resume {folder}" goes on; the budget is that of all rounds'
    write_synced(folder / RESULT, _partial(job, job.rounds, "running", reason), _mode(job))


def _mode(job: PlannedJob) -> int:
    """The mode of files that an adversary of secret noise must not read."""
    return OWNERS if job.scenario.seed is None else 0o666


def _remove_events(board: Path) -> None:
    """Remove what TensorBoard wrote, and nothing else that is there."""
    if not board.is_symlink():
        for path in board.glob("events.out.tfevents.*"):
            path.unlink()
        with contextlib.suppress(OSError):
            board.rmdir()


def _remove(folder: Path) -> None:
    """Remove the folder of a run that has released nothing, and folders above that it leaves empty."""
    shutil.rmtree(folder / IN_PROGRESS)
    _remove_events(folder / TENSORBOARD)
    remove_inputs(folder)
    for path in folder.iterdir():
        if path.name.lstrip(".").removesuffix(".part") in (SCENARIO, RESULT):
            path.unlink()
    for empty in (folder, *folder.parents):
        try:
            empty.rmdir()
        except OSError:
            break


def _partial(job: PlannedJob, released: int, status: str, reason: str) -> bytes:
    """The text of result.json: the price of what is released after so many rounds."""
    spent: Any = job
    if released < job.rounds:
        ledger = job.ledger.truncate(released)
        budget = price(ledger, job.scenario.privacy.delta)
        spent = replace(spent, rounds=released, ledger=ledger, budget=budget)
    covered = "none were released" if not released else f"rounds 1 to {released}" if released > 1 else "round 1"
    reasons = {
        "running": f"This run is not complete. The budget is that of all {job.rounds} rounds, which may be released.",
        "interrupted": f"This run was cut off and has no result. The budget is that of what may be out: {covered}.",
        "failed": f"This run failed and has no result. The budget is that of what may be out: {covered}.",
    }
    content = {
        "format": RESULT_FORMAT,
        "title": title_of(job.scenario),
        "status": status,
        "incomplete": reasons[status],
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": 0 if status == "running" else released,
        "rounds_planned": job.scenario.algorithm.rounds,
        "metrics": {},
        # The budget holds for what was released, and says nothing of a run that is whole.
        "privacy": {"incomplete": reasons[status], **statement_of(spent).to_dict()},
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return text_of(seal(content)).encode()
