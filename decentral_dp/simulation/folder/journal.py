"""Journal of an unfinished run, in which every release is logged before it is sent.

During a run, its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`, which only
its owner can read:

journal.jsonl   one JSON object a line (`journal_lines`), appended and synced. The first binds the scenario and the
                noise key by their digests. {"leased": L}: rounds up to L may be released from now on.
                {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K, "versions": …}: the
                run resumed from there. {"machines": […]}: for each block of agents, a digest of the libraries and the
                processor. {"part": [A, B], …}: a file of released values, with its digest. {"unkept": REASON}: no
                state can be saved.
noise_root.json the noise key, its generator and the digest of its run's inputs; removed when the run is complete.
saved-K.npz     the last state (`states`). metrics-K.parquet: the metrics since the previous state. Agents that hold
                their records keep their states (`AgentStates`), and their receipts are here.
releases-A-B.parquet: released values, with `run.keep_releases` (`releases`).
lock            held during the run.

Rounds are leased in advance, for about a second each time, so that the journal costs less than the rounds. After a
crash, leased rounds count as released. A resumed run repeats these rounds with the same draws, so that nothing is
released twice. The journal has the digest of every file, and a file with another digest is refused.
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
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from decentral_dp.engines.arithmetic import machine
from decentral_dp.engines.protocol import SavedState, Snapshot
from decentral_dp.errors import InputError, converting, option_error, quoted, quoted_path
from decentral_dp.files.durable import OWNERS, OWNERS_FOLDER, digest, lock_file, require_locks, write_synced
from decentral_dp.files.exports import to_parquet
from decentral_dp.files.package import versions
from decentral_dp.files.regular import own
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.privacy.randomness import Root, generator_of, root_bytes, root_of
from decentral_dp.simulation.folder.journal_lines import (
    FORMAT,
    JOURNAL,
    first_digest,
    next_line,
    read_bound,
    read_lines,
)
from decentral_dp.simulation.folder.layout import CODE, INPUTS, TENSORBOARD, copy_inputs, resolved_toml
from decentral_dp.simulation.folder.releases import Digests, KeptReleases
from decentral_dp.simulation.folder.states import from_bytes, module_of, to_bytes
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
    """Content of the folder of a run that is not complete.

    Args:
        root: noise key.
        input_digest: digest of the scenario and the records for which the key was drawn.
        versions: versions of the machine and the packages that computed the run.
        leased_rounds: rounds that may have been released.
        saved_state: round and bytes of the last state; None for the start.
        state_number: number of that state's file; 0 for the start.
        rows: metrics up to that round.
        releases: digests of the parts of the released values.
        machines: digest, for each block, of the machine facts on which its last bits depend.
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
        """Return the state from which the run resumes; None for its start.

        Raises:
            InputError: the state is from a different version of the algorithm or from different blocks of agents.
        """
        if self.saved_state is None:
            return None
        t, content = self.saved_state
        fix = "resume with the versions of decentral_dp and of the algorithm's file that the run was begun with"
        problem = f"resume: the state after round {t} cannot be read"
        with converting(ValueError, lambda error: f"{problem} ({error}). Fix: {fix}."):
            parts = tuple(from_bytes(content, module_of(job.algorithm)))
        # A coordinator's state is one.
        blocks = 1 if job.plans_ahead else len(job.sizes())
        if len(parts) != blocks:
            raise InputError(
                f"resume: number of blocks of agents changed (got {blocks}, expected {len(parts)}). Fix: "
                "restore the original run.blocks, run.engine and run.agents_per_actor."
            )
        return SavedState(t, parts)


def lock_folder(folder: Path) -> IO[bytes]:
    """Lock a folder against other processes until the file is closed. Raises InputError if it is locked."""
    require_locks(str(folder))
    lock = own(folder / IN_PROGRESS / LOCK, folder, str(folder)).open("ab")
    try:
        lock_file(lock)
    except OSError:
        lock.close()
        raise InputError(f"{folder}: this run is in progress. Fix: wait until it ends, or interrupt it.") from None
    return lock


def progress_in(folder: Path) -> Literal["none", "under way", "complete"]:
    """Return the progress of the run in a folder, removing a run that ended before its first release.

    Raises:
        InputError: a process is running it.
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
            # Files are copied after the noise key is written: other files here do not belong to the run.
            shutil.rmtree(place)
        return "none"


def open_interrupted(folder: Path) -> tuple[Interruption, IO[bytes]]:
    """Read the folder of an incomplete run, and lock it.

    Raises:
        InputError: the folder has no run, the run is in progress or complete, or a file does not belong to the run.
    """
    place = folder / IN_PROGRESS
    if place.is_dir():
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(lock_folder(folder))
            if not is_complete(folder):
                interruption = _read_interruption(folder)
                stack.pop_all()
                return interruption, lock
            shutil.rmtree(place)
    state = "is complete" if (folder / RESULT).is_file() else "is not a run folder"
    raise InputError(f"resume: {folder} {state}. Fix: use the folder of an interrupted run.")


def _read_interruption(folder: Path) -> Interruption:
    import pandas as pd

    place = folder / IN_PROGRESS
    damaged = partial(
        converting,
        (ValueError, FileNotFoundError, IsADirectoryError),
        lambda error: (
            f"resume: {place} is damaged ({error}), so the run cannot resume. Fix: run the scenario again in "
            'another folder. "decentral-dp plan" of its scenario.toml lists the releases that it may have '
            "made."
        ),
    )
    with damaged():
        first_line, *entries = read_lines(own(place / JOURNAL, folder, "resume")).entries
    lease_end = max((e["leased"] for e in entries if "leased" in e), default=0)
    saves = [e for e in entries if "saved" in e]
    # A state is written before its line, and a result after its rounds are leased.
    states = [int(m[1]) for path in place.iterdir() if (m := re.fullmatch(r"saved-(\d+)\.npz", path.name))]
    lacks_lines = max(states, default=0) > len(saves) + 1
    if (folder / RESULT).exists():
        result = read_any_result(folder)
        if result.status not in INCOMPLETE:
            raise InputError(
                f"resume: {quoted_path(folder / RESULT)} is the result of another run. Fix: remove it, then resume."
            )
        lacks_lines |= result.status in ("interrupted", "failed") and result.rounds > lease_end
    with damaged():
        if lacks_lines:
            raise ValueError(f"{JOURNAL} lacks lines")
    read_bound(folder / SCENARIO, folder, first_line["scenario"])
    about = json.loads(read_bound(place / ROOT, folder, first_line["noise_key"]))
    state, rows = None, list[Row]()
    for entry in saves:
        metrics = read_bound(place / f"metrics-{entry['saved']}.parquet", folder, entry["metrics"])
        rows += pd.read_parquet(io.BytesIO(metrics)).itertuples(index=False, name=None)
    if saves:
        last = saves[-1]
        state = last["round"], read_bound(place / f"saved-{last['saved']}.npz", folder, last["digest"])
    releases: dict[tuple[int, int], str] = {}
    for first, end, expected in ((*e["part"], e["digest"]) for e in entries if "part" in e):
        # Parts that a resumed run writes replace later ones.
        releases = {part: d for part, d in releases.items() if part[1] <= first}
        releases[first, end] = expected
    return Interruption(
        root=root_of(bytes.fromhex(about["root"]), about["generator"]),
        input_digest=about["given"],
        versions=next((e["versions"] for e in reversed(entries) if "versions" in e), about["versions"]),
        leased_rounds=lease_end,
        saved_state=state,
        state_number=len(saves),
        rows=rows,
        releases=releases,
        machines=next((tuple(e["machines"]) for e in reversed(entries) if "machines" in e), ()),
    )


def root_of_run(interruption: Interruption, job: PlannedJob, folder: Path) -> Root:
    """Return the noise key of a run that resumes.

    Raises:
        InputError: the records differ, or this machine would round released values differently.
    """
    here, device = machine_of(job), device_of(job)
    differences = [
        f"{k} {v} (here {here.get(k, 'none')})" for k, v in interruption.versions.items() if here.get(k) != v
    ]
    problem = ""
    if run_digest(job) != interruption.input_digest:
        problem = (
            f"resume: the records, the Python objects, or a file that {folder}/scenario.toml names, are others than "
            "when the run was begun, and the same noise on other records would reveal differences. Fix: pass or "
            "restore them, or run the scenario again in another folder."
        )
    elif differences and interruption.leased_rounds:
        problem = (
            f"resume: the run was started with {', '.join(differences)}, so rounds in flight would be "
            "released again with different rounding under the same noise. Fix: resume on the original "
            "machine with the original versions."
        )
    elif device != "cpu" and interruption.leased_rounds:
        from decentral_dp.problems.bilevel.losses import LossProblem

        # A custom loss raises on a kernel that rounds differently each time. The layers of a model do not. A lease
        # covers the first release after every state, which is made again from the records.
        if not isinstance(job.problem, LossProblem):
            problem = (
                "run.device: rounds in flight would be released again under the same noise, and GPU kernels "
                f'may round differently each time (got {quoted(device)}, expected "cpu"). Fix: run the '
                "scenario again in another folder. The budgets of both runs add up."
            )
    if problem:
        raise InputError(problem)
    return interruption.root


def device_of(job: PlannedJob) -> str:
    """Return the device on which the problem of a job computes."""
    return str(getattr(job.problem, "device", job.scenario.run.device))


def machine_of(job: PlannedJob) -> dict[str, str]:
    """Return the libraries and the processor of this process, which determine the last bits of a job's values."""
    return machine(device_of(job))


# Seconds of a lease, smallest number of seconds between two saved states, and largest share of the time to save them.
_LEASE, _INTERVAL, _SHARE = 1.0, 5.0, 0.02


class RunInProgress:
    """Journal of a run in progress.

    Args:
        folder: run folder.
        job: job of the run.
        lock: open lock file.
        interruption: interrupted run to resume; None (the default) starts a new run.

    Attributes:
        states: name of the run, under which agents keep their states.
        begun: digest of the first line of the journal.
        releases: writer of released values; None if they are not kept.
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
        self.releases = KeptReleases(self._place, job, after, parts) if job.scenario.run.keep_releases else None
        self.begun = first_digest(self._place / JOURNAL)
        lines = read_lines(self._place / JOURNAL)
        self._chain = lines.chain
        self._journal = (self._place / JOURNAL).open("ab")
        if start is not None:
            # An incomplete last line released nothing, and must not precede the next line.
            self._journal.truncate(lines.size)
            self._write(resumed=start.state_number, versions=machine_of(job))

    # --- during rounds ----------------------------------------------------------------------------------------------

    def due(self, t: int) -> bool:
        """Return whether the journal must be written before round t + 1."""
        self._reached = max(self._reached, t)
        full = self.releases is not None and self.releases.due(t)
        return t < self._job.rounds and (t >= self._leased or full or time.monotonic() >= self._next_save)

    def check_machines(self, machines: Sequence[str]) -> None:
        """Log the machines of blocks of agents before their first release.

        Raises:
            InputError: rounds may have been released, and a block is on a machine that rounds differently.
        """
        if self._leased and self._machines and tuple(machines) != self._machines:
            raise InputError(
                "resume: agents run on other processors or versions than before, so rounds in flight would "
                "be released again with different rounding under the same noise. Fix: start Ray on machines "
                "like the original ones."
            )
        if tuple(machines) != self._machines:
            self._machines = tuple(machines)
            self._write(machines=list(machines))

    def write_due(self, s: Snapshot, rows: Sequence[Row], ends: bool = False) -> None:
        """Write released values, a state and a lease if they are due.

        Args:
            s: snapshot of the round.
            rows: metrics of all rounds so far.
            ends: whether the run ends before its last round, default False.
        """
        self._reached = max(self._reached, s.round)
        ending = s.round == self._job.rounds or ends
        # Evaluated once: releases before a state are written with it.
        saves = time.monotonic() >= self._next_save
        if self.releases is not None and (ending or saves or self.releases.due(s.round)):
            for part, digest in self.releases.collect(s.round, s.drain(ending)):
                self._write(part=part, digest=digest)
        if ends:
            return
        if saves:
            self._save(s, rows)
        if s.round >= self._leased and s.round < self._job.rounds:
            now = time.monotonic()
            speed = (s.round - self._leased_from) / max(now - self._leased_at, 1e-6)
            # At most twice the last lease: the first rounds may be quicker than later ones.
            self._ahead = max(1, min(2 * self._ahead, int(_LEASE * speed)))
            self._leased_at, self._leased_from = now, s.round
            lease_end = min(s.round + self._ahead, self._job.rounds)
            self._write(leased=lease_end)
            # Set after the line is synced.
            self._leased = lease_end

    def _save(self, s: Snapshot, rows: Sequence[Row]) -> None:
        start = time.monotonic()
        number = self._number + 1
        try:
            content = to_bytes(list(s.save().parts), self._home)
        except TypeError as error:
            # An interrupted run then resumes from its last state or its start, with the same draws.
            self._write(unkept=str(error))
            self._next_save = math.inf
            return
        metrics = to_parquet(tabulate(rows[self._written :]))
        write_synced(self._place / f"metrics-{number}.parquet", metrics, OWNERS)
        write_synced(self._place / f"saved-{number}.npz", content, OWNERS)
        self._write(saved=number, round=s.round, digest=digest(content), metrics=digest(metrics))
        (self._place / f"saved-{number - 1}.npz").unlink(missing_ok=True)
        self._number, self._written = number, len(rows)
        now = time.monotonic()
        self._next_save = now + max(_INTERVAL, (now - start) / _SHARE)

    def _write(self, **entry: Any) -> None:
        line, self._chain = next_line(self._chain, entry)
        self._journal.write(line)
        self._journal.flush()
        os.fsync(self._journal.fileno())

    # --- end of the run ---------------------------------------------------------------------------------------------

    @property
    def released_rounds(self) -> int:
        """Number of rounds that may have been released."""
        return max(self._before, min(self._leased, self._reached + 1))

    def write_interruption(self, status: str, reason: str, is_planned: bool = True, is_adaptive: bool = False) -> None:
        """Write result.json of an incomplete run, with the reason, the released rounds, and their privacy cost.

        Args:
            status: status "interrupted" or "failed".
            reason: reason in a sentence.
            is_planned: whether all releases were planned; if not, no ε holds.
            is_adaptive: whether the last round may depend on released values, so that only the plan's ε holds.
        """
        try:
            # A full disk must not hide why the run ended.
            with contextlib.suppress(OSError):
                content = _partial(self._job, self.released_rounds, status, reason, is_planned, is_adaptive)
                write_synced(self.folder / RESULT, content, _mode(self._job))
        finally:
            self.close()

    def discard(self) -> bool:
        """Remove the folder if nothing was released, and return whether it was removed."""
        if self._leased or self._resumes:
            return False
        self.close()
        _remove(self.folder)
        return True

    def complete(self) -> None:
        """Remove the files of a run in progress, including the noise key."""
        self.close()
        shutil.rmtree(self._place)

    def close(self) -> None:
        """Close the journal, and release the lock."""
        # Closing writes the buffer of a failed write again; on a full disk this must not hide the first error.
        with contextlib.suppress(OSError):
            self._journal.close()
        self._lock.close()


def begin(folder: Path, job: PlannedJob) -> RunInProgress:
    """Create the folder of a run.

    Args:
        folder: run folder, new or empty.
        job: job to run.

    Raises:
        InputError: another run writes to the folder.
        OSError: the folder cannot be written; it is removed.
    """
    place = folder / IN_PROGRESS
    folder.mkdir(parents=True, exist_ok=True)
    try:
        place.mkdir(OWNERS_FOLDER)
    except FileExistsError:
        raise option_error("out", f": another run is writing to {folder}. Fix: use another folder.") from None
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
        # The digest of 256 random bits is of no help in guessing them.
        line, _ = next_line("", {"format": FORMAT, "scenario": digest(scenario), "noise_key": digest(key)})
        # Last: a run that has a journal can resume.
        write_synced(place / JOURNAL, line, OWNERS)
        reason = f'under way, or interrupted; "decentral-dp resume {folder}" resumes; the budget is that of all rounds'
        write_synced(folder / RESULT, _partial(job, job.rounds, "running", reason), _mode(job))
        return RunInProgress(folder, job, lock)
    except BaseException as error:
        # Nothing was released.
        lock.close()
        _remove(folder)
        if isinstance(error, OSError):
            raise unwritable_error(folder, error) from error
        raise


def unwritable_error(folder: Path, error: OSError) -> OSError:
    """Return the error of a folder that could not be written before anything was released."""
    return OSError(
        f"{folder} could not be written ({error}). Nothing was released, and no file is left. Fix: free space or use "
        "another folder, and run it again."
    )


def _mode(job: PlannedJob) -> int:
    """Return the mode of files that an adversary of secret noise must not read."""
    return OWNERS if job.scenario.seed is None else 0o666


def _remove(folder: Path) -> None:
    """Remove the folder of a run without a release, and parent folders that become empty."""
    for name in (IN_PROGRESS, TENSORBOARD, CODE, INPUTS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in folder.iterdir():
        if path.name.lstrip(".").removesuffix(".part") in (SCENARIO, RESULT):
            path.unlink()
    for empty in (folder, *folder.parents):
        try:
            empty.rmdir()
        except OSError:
            break


def _partial(
    job: PlannedJob, released: int, status: str, reason: str, is_planned: bool = True, is_adaptive: bool = False
) -> bytes:
    """Return the text of result.json of an incomplete run, with the privacy cost of its released rounds."""
    spending_job: Any = job
    if released < job.rounds and not is_adaptive:
        ledger = job.ledger.truncate(released)
        budget = account(ledger, job.scenario.privacy.delta)
        spending_job = replace(spending_job, rounds=released, ledger=ledger, budget=budget)
    statement = statement_of(spending_job) if is_planned else without_bound(statement_of(spending_job))
    content = {
        "format": RESULT_FORMAT,
        "title": title_of(job.scenario),
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": 0 if status == "running" else released,
        "rounds_planned": job.scenario.algorithm.rounds,
        "metrics": {},
        # The budget is that of the released rounds, not of the complete run.
        "privacy": statement.to_dict(),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return text_of(seal(content)).encode()
