"""The journal of an unfinished run, in which every release is logged before it is sent.

While a run is under way its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`,
which its owner alone may read:

journal.jsonl   one JSON object a line (`journal_lines`), appended and synced. The first binds the scenario and the
                noise key by their digests. {"leased": L}: from now on everything up to round L may be released.
                {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K, "versions": …}: the
                run resumed from there. {"machines": […]}: digests of what the last bits of each block of agents depend
                on. {"part": [A, B], …}: released values in a file of their own, with its digest. {"unkept": REASON}: no
                state can be saved.
noise_root.json the noise key, its generator and the digest of what it was drawn for; removed when the run is complete.
saved-K.npz     the last state (`states`). metrics-K.parquet: the metrics since the state before. Agents that hold their
                own records keep their states (`AgentStates`), and receipts of them are here.
releases-A-B.parquet: released values, if they are kept (`releases`).
lock            held while the run is under way.

Rounds are leased in advance, for about a second each time, so that a record on disk does not cost more than the round.
After a crash, leased rounds count as released. A run that resumes repeats these rounds with the same draws, so that
nothing is released twice. Every file is read by the digest that the journal has of it: another file is refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from decentral_dp.engines.arithmetic import machine
from decentral_dp.engines.protocol import SavedState, Snapshot
from decentral_dp.errors import InputError, option_error, quoted, quoted_path
from decentral_dp.files.durable import OWNERS, OWNERS_FOLDER, digest, write_synced
from decentral_dp.files.locks import lock_file, require_locks
from decentral_dp.files.package import versions
from decentral_dp.files.parquet import to_parquet
from decentral_dp.files.regular import own
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.randomness import Root, generator_of, root_bytes, root_of
from decentral_dp.simulation.folder.journal_lines import (
    FORMAT,
    JOURNAL,
    first_digest,
    next_line,
    read_bound,
    read_lines,
)
from decentral_dp.simulation.folder.layout import TENSORBOARD, copy_inputs, remove_inputs, resolved_toml
from decentral_dp.simulation.folder.releases import Digests, KeptReleases
from decentral_dp.simulation.folder.states import UnreadableError, from_bytes, module_of, to_bytes
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import Row, tabulate
from decentral_dp.simulation.result import FORMAT as RESULT_FORMAT
from decentral_dp.simulation.result import IN_PROGRESS, INCOMPLETE, RESULT, is_complete, read_any_result, seal, text_of
from decentral_dp.simulation.statement import without_bound
from decentral_dp.simulation.summary import problem_summary, statement_of, title_of, topology_summary

ROOT, LOCK, SCENARIO = "noise_root.json", "lock", "scenario.toml"


@dataclass(frozen=True)
class Interruption:
    """The content of the folder of a run that is not complete.

    Args:
        root: the noise key.
        input_digest: digest of the scenario and of the records that the key was drawn for.
        versions: of the machine and the packages that computed the run.
        leased_rounds: rounds that may have been released.
        saved_state: round and bytes of the last state; None for the start.
        state_number: number of that state's file; 0 for the start.
        rows: the metrics up to there.
        releases: digests of the parts of the released values.
        machines: digests of what the last bits of each block depend on.
    """

    root: Root
    input_digest: str
    versions: dict[str, str]
    leased_rounds: int
    saved_state: tuple[int, bytes] | None
    state_number: int
    rows: list[Row]
    releases: Digests
    machines: tuple[str, ...]

    def state(self, job: PlannedJob) -> SavedState | None:
        """Return the state that the run resumes from; None for its start.

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
                f"resume: the state after round {t} cannot be read ({error}). Fix: resume with the versions of "
                "decentral_dp and of the algorithm's file that the run was begun with."
            ) from error
        # A coordinator's state is one.
        blocks = 1 if job.plans_ahead else len(job.sizes())
        if len(parts) != blocks:
            raise InputError(
                f"resume: the agents are in other blocks (got {blocks}, expected {len(parts)}). Fix: put run.blocks, "
                "run.engine and run.agents_per_actor back to what they were."
            )
        return SavedState(t, parts)


def lock_folder(folder: Path) -> IO[bytes]:
    """Lock a folder against other processes until the file is closed. Raises InputError if it is locked."""
    require_locks(str(folder))
    held = own(folder / IN_PROGRESS / LOCK, folder, str(folder)).open("ab")
    try:
        lock_file(held)
    except OSError:
        held.close()
        raise InputError(f"{folder}: this run is under way. Wait until it ends, or end it first.") from None
    return held


def progress_in(folder: Path) -> Literal["none", "under way", "complete"]:
    """Return the progress of the run in a folder, and remove one that ended before it could release anything.

    Raises:
        InputError: somebody runs it now.
    """
    place = folder / IN_PROGRESS
    if not place.is_dir():
        return "complete" if (folder / RESULT).is_file() and is_complete(folder) else "none"
    with lock_folder(folder):
        if is_complete(folder):
            shutil.rmtree(place)
            return "complete"
        if (place / JOURNAL).is_file():
            return "under way"
        if (place / ROOT).is_file():
            _remove(folder)
        else:
            # Nothing was copied before the noise key was written: other files here are not the run's.
            shutil.rmtree(place)
        return "none"


def open_interrupted(folder: Path) -> tuple[Interruption, IO[bytes]]:
    """Read the folder of a run that is not complete, and take its lock.

    Raises:
        InputError: there is none, it is under way or complete, or a file is not what the run wrote.
    """
    place = folder / IN_PROGRESS
    if place.is_dir():
        lock = lock_folder(folder)
        try:
            if not is_complete(folder):
                return _read_interruption(folder), lock
            shutil.rmtree(place)
        except BaseException:
            lock.close()
            raise
        lock.close()
    state = "is complete" if (folder / RESULT).is_file() else "is no run folder"
    raise InputError(f"resume: {folder} {state}. Fix: give the folder of a run that was interrupted.")


def _read_interruption(folder: Path) -> Interruption:
    import pandas as pd

    place = folder / IN_PROGRESS
    try:
        begun, *entries = read_lines(own(place / JOURNAL, folder, "resume")).entries
    except (ValueError, FileNotFoundError, IsADirectoryError) as error:
        if isinstance(error, InputError):
            raise
        raise _damaged(place, error) from error
    leased = max((e["leased"] for e in entries if "leased" in e), default=0)
    saved = [e for e in entries if "saved" in e]
    # A state is written before its line, and a result after what it says is leased.
    states = [int(m[1]) for path in place.iterdir() if (m := re.fullmatch(r"saved-(\d+)\.npz", path.name))]
    lacks_lines = max(states, default=0) > len(saved) + 1
    if (folder / RESULT).exists():
        result = read_any_result(folder)
        if result.status not in INCOMPLETE:
            raise InputError(
                f"resume: {quoted_path(folder / RESULT)} is the result of another run. Fix: remove it, then resume."
            )
        lacks_lines |= result.status in ("interrupted", "failed") and result.rounds > leased
    if lacks_lines:
        raise _damaged(place, ValueError(f"{JOURNAL} lacks lines"))
    read_bound(folder / SCENARIO, folder, begun["scenario"])
    about = json.loads(read_bound(place / ROOT, folder, begun["noise_key"]))
    state, rows = None, list[Row]()
    for entry in saved:
        measured = read_bound(place / f"metrics-{entry['saved']}.parquet", folder, entry["metrics"])
        rows += pd.read_parquet(io.BytesIO(measured)).itertuples(index=False, name=None)
    if saved:
        last = saved[-1]
        state = last["round"], read_bound(place / f"saved-{last['saved']}.npz", folder, last["digest"])
    releases: dict[tuple[int, int], str] = {}
    for first, end, expected in ((*e["part"], e["digest"]) for e in entries if "part" in e):
        # A part that begins earlier was written by the run that resumed there.
        releases = {part: kept for part, kept in releases.items() if part[1] <= first} | {(first, end): expected}
    return Interruption(
        root=root_of(bytes.fromhex(about["root"]), about["generator"]),
        input_digest=about["given"],
        versions=next((e["versions"] for e in reversed(entries) if "versions" in e), about["versions"]),
        leased_rounds=leased,
        saved_state=state,
        state_number=len(saved),
        rows=rows,
        releases=releases,
        machines=next((tuple(e["machines"]) for e in reversed(entries) if "machines" in e), ()),
    )


def _damaged(place: Path, error: Exception) -> InputError:
    return InputError(
        f"resume: {place} is damaged ({error}), and the run cannot resume. Fix: run the scenario again in another "
        'folder; "decentral-dp plan" of its scenario.toml has what it may have released.'
    )


def root_of_run(interruption: Interruption, job: PlannedJob, folder: Path) -> Root:
    """Return the noise key of a run that resumes.

    Raises:
        InputError: the records differ, or this machine would not round the same values each time.
    """
    here, device = machine_of(job), device_of(job)
    others = [f"{k} {v} (here {here.get(k, 'none')})" for k, v in interruption.versions.items() if here.get(k) != v]
    problem = ""
    if run_digest(job) != interruption.input_digest:
        problem = (
            f"resume: the records, or a file that {folder}/scenario.toml names, are others than when the run was "
            "begun, and on them its noise would be drawn twice: two messages under one noise show their difference "
            "bare. Put them back, or run the scenario again in another folder."
        )
    elif others and interruption.leased_rounds:
        problem = (
            f"resume: the run was begun with {', '.join(others)}, and rounds in flight would be released again with "
            "other last bits under the same noise. Fix: resume on the machine and with the versions that it was begun "
            "with."
        )
    elif device != "cpu" and interruption.leased_rounds:
        from decentral_dp.problems.bilevel.losses import LossProblem

        # A custom loss raises on a kernel that rounds differently each time. The layers of a model do not. A lease
        # covers the first release after every state, which is made again from the records.
        if not isinstance(job.problem, LossProblem):
            problem = (
                "run.device: rounds in flight would be released again under the same noise, and kernels of a model may "
                f'round differently each time (got {quoted(device)}, expected "cpu"). Fix: run the scenario again in '
                "another folder. The budgets of both runs add up."
            )
    if problem:
        raise InputError(problem)
    return interruption.root


def device_of(job: PlannedJob) -> str:
    """Return the device that the problem of a job computes on."""
    return str(getattr(job.problem, "device", job.scenario.run.device))


def machine_of(job: PlannedJob) -> dict[str, str]:
    """Return what the last bits of a job's values depend on, in this process."""
    return machine(device_of(job))


# Seconds that a lease is for; least seconds between two states kept, and their share of the time at most.
_LEASE, _INTERVAL, _SHARE = 1.0, 5.0, 0.02


class RunInProgress:
    """The record of a run, written as it goes.

    Args:
        folder: of the run.
        job: what is run.
        lock: the open file whose lock says that the run is under way.
        interruption: where it resumes; by default it starts anew.

    Attributes:
        states: the name under which agents keep their states.
        begun: the digest of the journal's first line.
    """

    def __init__(
        self, folder: Path, job: PlannedJob, lock: IO[bytes], interruption: Interruption | None = None
    ) -> None:
        self.folder, self._job, self._lock = folder, job, lock
        self._place = folder / IN_PROGRESS
        self._home = module_of(job.algorithm)
        self._resumes, start = interruption is not None, interruption
        self._before = self._leased = start.leased_rounds if start else 0
        self._ahead, self._leased_at, self._leased_from = 1, time.monotonic(), self._leased
        self._number, self._written = (start.state_number, len(start.rows)) if start else (0, 0)
        self._reached = 0
        self._next_save = time.monotonic() + _INTERVAL
        self._machines = start.machines if start else ()
        self.states: str = json.loads((self._place / ROOT).read_text())["states"]
        after, parts = (start.saved_state[0] if start.saved_state else 0, start.releases) if start else (0, {})
        self._releases = KeptReleases(self._place, job, after, parts) if job.scenario.run.keep_releases else None
        self.begun = first_digest(self._place / JOURNAL)
        lines = read_lines(self._place / JOURNAL)
        self._chain = lines.chain
        self._journal = (self._place / JOURNAL).open("ab")
        if start is not None:
            # A line that was cut off was never acted on, and must not run into the next one.
            self._journal.truncate(lines.size)
            self._write(resumed=start.state_number, versions=machine_of(job))

    # --- from the engine --------------------------------------------------------------------------------------------

    def due(self, t: int) -> bool:
        """Whether something is to be written before round t + 1 begins."""
        self._reached = max(self._reached, t)
        full = self._releases is not None and self._releases.due(t)
        return t < self._job.rounds and (t >= self._leased or full or time.monotonic() >= self._next_save)

    def check_machines(self, machines: Sequence[str]) -> None:
        """Log where blocks of agents compute, before they release anything.

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
        """Digests of the parts that have the released values; none if they are not kept."""
        return {} if self._releases is None else self._releases.digests

    def write_due(self, s: Snapshot, rows: Sequence[Row]) -> None:
        """Write what is due. rows: all metrics so far."""
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
            leased = min(s.round + self._ahead, self._job.rounds)
            self._write(leased=leased)
            # Only a lease that is on the disk counts.
            self._leased = leased

    def _save(self, s: Snapshot, rows: Sequence[Row]) -> None:
        started = time.monotonic()
        number = self._number + 1
        try:
            content = to_bytes(list(s.save().parts), self._home)
        except TypeError as error:
            # An interrupted run then resumes from its last state or its start, with the same draws.
            self._write(unkept=str(error))
            self._next_save = math.inf
            return
        measured = to_parquet(tabulate(rows[self._written :]))
        write_synced(self._place / f"metrics-{number}.parquet", measured, OWNERS)
        write_synced(self._place / f"saved-{number}.npz", content, OWNERS)
        self._write(saved=number, round=s.round, digest=digest(content), metrics=digest(measured))
        (self._place / f"saved-{number - 1}.npz").unlink(missing_ok=True)
        self._number, self._written = number, len(rows)
        now = time.monotonic()
        self._next_save = now + max(_INTERVAL, (now - started) / _SHARE)

    def _write(self, **entry: Any) -> None:
        line, self._chain = next_line(self._chain, entry)
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    # --- how it ends ------------------------------------------------------------------------------------------------

    @property
    def released_rounds(self) -> int:
        """Rounds of which something may have been released."""
        return max(self._before, min(self._leased, self._reached + 1))

    def write_interruption(self, status: str, reason: str, planned: bool = True) -> None:
        """Write into the folder why the run is not complete, what was released, and its privacy cost.

        Args:
            status: "interrupted" or "failed".
            reason: a sentence.
            planned: whether all releases were planned; else no ε holds.
        """
        try:
            # A full disk must not hide why the run ended.
            with contextlib.suppress(OSError):
                content = _partial(self._job, self.released_rounds, status, reason, planned)
                write_synced(self.folder / RESULT, content, _mode(self._job))
        finally:
            self.close()

    def discard(self) -> bool:
        """Remove the folder, if nothing was released. Returns whether it did."""
        if self._leased or self._resumes:
            return False
        self.close()
        _remove(self.folder)
        return True

    def complete(self) -> None:
        """Remove the files of a run under way, the noise key among them."""
        self.close()
        shutil.rmtree(self._place)

    def close(self) -> None:
        """Close the journal, and release the lock."""
        # On a full disk what a failed write has left is written once more here, and must not hide why the run ended.
        with contextlib.suppress(OSError):
            self._journal.close()
        self._lock.close()


def begin(folder: Path, job: PlannedJob) -> RunInProgress:
    """Make the folder of a run.

    Args:
        folder: new or empty.
        job: what will be run.

    Raises:
        InputError: somebody else has made it meanwhile.
        OSError: it cannot be written; nothing is left there.
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
        about = {"root": root_bytes(job.root).hex(), "generator": generator_of(job.root), "given": run_digest(job)}
        key = json.dumps({**about, "versions": machine_of(job), "states": os.urandom(8).hex()}).encode()
        write_synced(place / ROOT, key, OWNERS)
        copy_inputs(job.components, folder)
        scenario = resolved_toml(job.components, job.topology, folder).encode()
        write_synced(folder / SCENARIO, scenario)
        # The key's digest does not help to guess 256 random bits.
        line, _ = next_line("", {"format": FORMAT, "scenario": digest(scenario), "noise_key": digest(key)})
        # Last: a run that has a journal can resume.
        write_synced(place / JOURNAL, line, OWNERS)
        reason = f'under way, or interrupted; "decentral-dp resume {folder}" resumes; the budget is that of all rounds'
        write_synced(folder / RESULT, _partial(job, job.rounds, "running", reason), _mode(job))
        return RunInProgress(folder, job, lock)
    except BaseException as error:
        # Nothing was released, and nothing stays.
        lock.close()
        _remove(folder)
        if isinstance(error, OSError):
            raise unwritable_error(folder, error) from error
        raise


def unwritable_error(folder: Path, error: OSError) -> OSError:
    """Return the error of a folder that could not be written before anything was released."""
    return OSError(
        f"{folder} could not be written ({error}). Nothing was released, and nothing is left there. Fix: make room or "
        "give another folder, then run it again."
    )


def _mode(job: PlannedJob) -> int:
    """The mode of files that an adversary of secret noise must not read."""
    return OWNERS if job.scenario.seed is None else 0o666


def _remove(folder: Path) -> None:
    """Remove the folder of a run that has released nothing, and folders above that it leaves empty."""
    for place in (folder / IN_PROGRESS, folder / TENSORBOARD):
        shutil.rmtree(place, ignore_errors=True)
    remove_inputs(folder)
    for path in folder.iterdir():
        if path.name.lstrip(".").removesuffix(".part") in (SCENARIO, RESULT):
            path.unlink()
    for empty in (folder, *folder.parents):
        try:
            empty.rmdir()
        except OSError:
            break


def _partial(job: PlannedJob, released: int, status: str, reason: str, planned: bool = True) -> bytes:
    """The text of result.json: the privacy cost of what is released after so many rounds."""
    spent: Any = job
    if released < job.rounds:
        ledger = job.ledger.truncate(released)
        budget = price(ledger, job.scenario.privacy.delta)
        spent = replace(spent, rounds=released, ledger=ledger, budget=budget)
    covered = "none were released" if not released else f"rounds 1 to {released}" if released > 1 else "round 1"
    reasons = {
        "running": f"This run is not complete. The budget is that of all {job.rounds} rounds, which may be released.",
        "interrupted": f"This run was cut off and has no result. The budget is that of what may be out: {covered}.",
        "failed": f"This run failed and has no result. The budget is that of what may be out: {covered}."
        if planned
        else "This run failed and has no result. It released values that were not planned, so no ε holds.",
    }
    statement = statement_of(spent) if planned else without_bound(statement_of(spent))
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
        "privacy": {"incomplete": reasons[status], **statement.to_dict()},
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return text_of(seal(content)).encode()
