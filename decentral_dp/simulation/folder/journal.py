"""The folder of a run that is not complete: what was, or may have been, released is on record before it travels.

While a run is under way its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`,
which its owner alone may read:

journal.jsonl   one JSON object a line, appended and synced. {"leased": L}: from now on everything up to round L may be
                released. {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K,
                "versions": …}: the run goes on from there, and what was kept after it is void. {"machines": […]}:
                digests of what the last bits of each block of agents depend on. {"extended": N}: it has N rounds from
                now on. {"part": [A, B], …}: released values in a file of their own, with its
                digest. {"charged_again": [S, L]}: with another root, rounds S to L are released and charged once more.
                {"unkept": REASON}: no state can be kept. {"ended": STATUS, …}.
noise_root.json the root of all noise, its generator and what it was drawn for, readable by its owner only; gone when
                the run is done.
saved-K.npz     states (`saved_values`); the last two are kept. metrics-K.parquet: what was measured up to there. Where
                records are with their agents, so are the states (`AgentStates`), and here are receipts.
releases-A-B.parquet: released values, where they are kept (`kept_releases`).
scenario.toml   as the run was begun, where it has more rounds since. lock: held while the run is.

Rounds are leased in advance, for about a second each time, so that a record on disk does not cost more than the round.
After a crash, what was leased counts as released. A run that goes on repeats these rounds with the same draws, so that
nothing is released twice.

Reading the folder of a run that is not complete, and whether that run can go on here with the same draws.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
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
from decentral_dp.errors import InputError, option_error
from decentral_dp.files.durable import OWNERS, OWNERS_FOLDER, digest, intact, write_synced
from decentral_dp.files.package import versions
from decentral_dp.files.parquet import to_parquet
from decentral_dp.files.regular import refuse_unreadable, regular
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.ledger import Window
from decentral_dp.privacy.randomness import GENERATORS, PHILOX, Root, generator_of, key_of, root_of
from decentral_dp.simulation.events import TENSORBOARD
from decentral_dp.simulation.folder.layout import copy_inputs, remove_inputs, resolved_toml, write_graph
from decentral_dp.simulation.folder.releases import Digests, KeptReleases, intact_until
from decentral_dp.simulation.folder.states import UnreadableError, from_bytes, module_of, to_bytes
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.metrics import Row, tabulate
from decentral_dp.simulation.plan import problem_summary, title_of, topology_summary
from decentral_dp.simulation.result import IN_PROGRESS, is_complete, text_of
from decentral_dp.simulation.statements.of_job import statement_of

JOURNAL, ROOT, LOCK, SCENARIO = "journal.jsonl", "noise_root.json", "lock", "scenario.toml"


@dataclass(frozen=True)
class Interruption:
    """What a folder says of a run that is not complete.

    Args:
        root: of its noise; None where it was not kept.
        input_digest: digest of the scenario and of the records that it was drawn for.
        versions: of what computed it.
        leased_rounds: rounds that may have been released.
        in_flight: rounds that may have been released since the root was last another, or since the run was begun.
        saved_state: the last state that can be read; None for the start.
        state_number: number of that state's file; 0 for the start.
        rows: what was measured up to there.
        extended_rounds: rounds of the run, where they are more than it was begun with.
        windows: rounds that are charged once more, because their root was not kept.
        states: of the journal, those of this course of the run.
        releases: digests of the parts of what it released, as they were written.
        machines: digests of what the last bits of each block depend on.
    """

    root: Root | None
    input_digest: str
    versions: dict[str, str]
    leased_rounds: int
    in_flight: int
    saved_state: tuple[int, bytes] | None
    state_number: int
    rows: list[Row]
    extended_rounds: int | None = None
    windows: tuple[Window, ...] = ()
    states: Sequence[dict[str, Any]] = ()
    releases: Digests = field(default_factory=dict)
    machines: tuple[str, ...] = ()

    def state(self, job: Job) -> SavedState | None:
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
    path = regular(folder / IN_PROGRESS / LOCK, str(folder))
    if path.is_dir():
        raise InputError(f"{folder}: {path} is a folder; remove it, and then the same again.")
    lock = path.open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise InputError(f"{folder}: this run is under way. Wait until it ends, or end it first.") from None
    return lock


def progress_in(folder: Path) -> Literal["none", "under way", "complete"]:
    """How far the run in a folder came; what was cut off before it could release anything is removed.

    Raises:
        InputError: somebody runs it now.
    """
    if not (folder / IN_PROGRESS).is_dir():
        return "complete" if (folder / "result.json").is_file() and is_complete(folder) else "none"
    with lock_folder(folder):
        if is_complete(folder):
            shutil.rmtree(folder / IN_PROGRESS)
            return "complete"
        if first_scenario(folder).is_file():
            return "under way"
        _remove(folder)
        return "none"


def find(folder: Path) -> tuple[Interruption, IO[bytes]]:
    """Read the folder of a run that is not complete, and take its lock.

    Raises:
        InputError: there is none, it is under way, or its files are damaged or may not be read.
    """
    place = folder / IN_PROGRESS
    with refuse_unreadable("resume"):
        if not place.is_dir():
            state = "is complete" if (folder / "result.json").is_file() else "is no run folder"
            raise InputError(f"resume: {folder} {state}; give the folder of a run that was interrupted.")
        lock = lock_folder(folder)
        try:
            if is_complete(folder):
                # It was killed between its result and the end of its tidying up.
                shutil.rmtree(place)
                raise InputError(f"resume: {folder} is complete; give the folder of a run that was interrupted.")
            return _read_interruption(folder), lock
        except BaseException:
            lock.close()
            raise


def _read_interruption(folder: Path) -> Interruption:
    place = folder / IN_PROGRESS
    try:
        about = json.loads(regular(place / ROOT, "resume").read_text())
        root = _read_root(about, folder)
        scenario = regular(first_scenario(folder), "resume").read_text(encoding="utf-8")
        if not scenario.endswith(str(about.get("ends", ""))):
            raise ValueError(f"the last line of {SCENARIO} is missing")
        input_digest, entries = str(about["given"]), _entries(place / JOURNAL)
        by = next((e["versions"] for e in reversed(entries) if "versions" in e), about["versions"])
        computed_by = {str(k): str(v) for k, v in by.items()}
        machines = next((tuple(map(str, e["machines"])) for e in reversed(entries) if "machines" in e), ())
        leased = max((int(e["leased"]) for e in entries if "leased" in e), default=0)
        windows, in_flight = _windows_to_charge(entries)
        extended = max((int(e["extended"]) for e in entries if "extended" in e), default=None)
        states = _states(entries)
        saved, number, rows = _last_state(place, states)
        # A part that was made once more has the name of the one before.
        releases = {(int(e["part"][0]), int(e["part"][1])): str(e["digest"]) for e in entries if "part" in e}
    except (InputError, PermissionError):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"resume: {place} is damaged ({error}), and the run cannot go on. What it may have released is in the "
            'ledger of "decentral-dp plan" with its scenario.toml; run the scenario again in another folder.'
        ) from error
    of_course = (saved, number, rows, extended, windows, states, releases, machines)
    return Interruption(root, input_digest, computed_by, leased, in_flight, *of_course)


def first_scenario(folder: Path) -> Path:
    """The scenario that the run in a folder was begun with."""
    place = folder / IN_PROGRESS / SCENARIO
    return place if place.is_file() else folder / SCENARIO


def root_of_run(interruption: Interruption, job: Job, folder: Path) -> Root | None:
    """The root of a run that goes on; None where it was not kept, so that nothing can be drawn again.

    Raises:
        InputError: it would not make the same draws, or not on the same records.
    """
    if run_digest(job) != interruption.input_digest:
        raise InputError(
            f"resume: the records, or a file that {folder}/scenario.toml names, are others than when the run was "
            "begun, and on them its noise would be drawn twice: two messages under one noise show their difference "
            "bare. Put them back, or run the scenario again in another folder."
        )
    here = machine_of(job)
    others = [f"{k} {v} (here {here.get(k, 'none')})" for k, v in interruption.versions.items() if here.get(k) != v]
    # The first release of the round after a kept state is made again, too.
    if others and interruption.leased_rounds:
        raise InputError(
            f"resume: the run was begun with {', '.join(others)}, and rounds in flight would be released again with "
            "other last bits under the same noise. Fix: resume on the machine and with the versions that it was begun "
            "with."
        )
    return interruption.root


def before_damage(interruption: Interruption, job: Job, folder: Path) -> Interruption:
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
    return {"root": root, "generator": generator, "check": _check_of(root, generator)}


def _read_root(content: dict[str, Any], folder: Path) -> Root | None:
    # Folders from before secret noise had a generator of its own name none.
    root, generator = content["root"], content.get("generator")
    if content["check"] != _check_of(root, generator):
        raise ValueError(f"{ROOT} is not what was written")
    known = generator or PHILOX
    if known not in GENERATORS:
        raise InputError(
            f"resume: the noise of {folder} comes from the generator {known!r}, and this version has "
            f"{' and '.join(GENERATORS)}; go on with the version of decentral_dp that the run was begun with."
        )
    return None if root is None else root_of(bytes.fromhex(root), known)


def _check_of(root: str | None, generator: str | None) -> str:
    return digest((f"{root}" if generator is None else f"{generator} {root}").encode())


def _entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last line that was cut off was never acted on."""
    lines = regular(path, "resume").read_bytes().split(b"\n")
    entries = [json.loads(line) for line in lines[:-1]]
    if not all(isinstance(e, dict) for e in entries):
        raise ValueError(f"{path.name} has a line that is no object")
    return entries


def _windows_to_charge(entries: Sequence[dict[str, Any]]) -> tuple[tuple[Window, ...], int]:
    """The rounds that are charged once more, and those that may be out under the root that the run had last."""
    windows: list[Window] = []
    in_flight = 0
    for entry in entries:
        if "charged_again" in entry:
            first, last = entry["charged_again"]
            windows.append(Window(int(first), int(last)))
            # Of a new root the first release is that of the state that it goes on from.
            in_flight = windows[-1].first_round
        in_flight = max(in_flight, int(entry.get("leased", 0)))
    return tuple(windows), in_flight


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


def machine_of(job: Job) -> dict[str, str]:
    """What the last bits of a job's values depend on, in this process."""
    return machine(getattr(job.problem, "device", job.scenario.run.device))


# Seconds that a lease is for; least seconds between two states kept, and their share of the time at most.
_LEASE, _INTERVAL, _SHARE = 1.0, 5.0, 0.02
# Of the scenario of a run that is not complete: where tables at the end are lost, what is left is a scenario, too.
_LAST_LINE = "\n# The end of the file, without which no run goes on.\n"
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

    def __init__(self, folder: Path, job: Job, lock: IO[bytes], interruption: Interruption | None = None) -> None:
        self.folder, self._job, self._lock = folder, job, lock
        self._place = folder / IN_PROGRESS
        self._home = module_of(job.algorithm)
        start = interruption or Interruption(None, "", {}, 0, 0, None, 0, [])
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
        self._journal = (self._place / JOURNAL).open("ab")
        if interruption is not None:
            # A line that was cut off was never acted on, and must not run into the next one.
            self._journal.truncate((self._place / JOURNAL).read_bytes().rfind(b"\n") + 1)
            self._write(resumed=interruption.state_number, versions=machine_of(job))

    def extend(self) -> None:
        """Put on record that the run has the rounds of its job from now on, and what they cost."""
        if not (self._place / SCENARIO).exists():
            # The noise was drawn for that one; the folder's own is that of the longer run in the end.
            write_synced(self._place / SCENARIO, (self.folder / SCENARIO).read_bytes())
        _write_running(self.folder, self._job)
        self._write(extended=self._job.rounds)

    def charge_again(self, window: Window) -> None:
        """Put on record that rounds are released once more with other noise, and what all of it costs."""
        _write_running(self.folder, self._job)
        self._write(charged_again=list(window))
        # Rounds under the new root are on record before they are released, as those under the old one were.
        self._leased = self._leased_from = window.first_round

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
        if self._releases is not None and (
            ending or self._releases.due(s.round) or time.monotonic() >= self._next_save
        ):
            # Before the state that goes on behind them.
            for part, digest in self._releases.collect(s.round, s.drain(ending)):
                self._write(part=part, digest=digest)
        if s.divergence is not None:
            return
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
        self._journal.write(json.dumps(entry).encode() + b"\n")
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
            write_synced(self.folder / "result.json", _partial(self._job, self.released_rounds, status, reason))
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
        # On a full disk what a failed write has left is written once more here, and must not hide why the run ended.
        with contextlib.suppress(OSError):
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
        place.mkdir(OWNERS_FOLDER)
    except FileExistsError:
        raise option_error("out", f": another run writes {folder} already. Give another folder.") from None
    lock = lock_folder(folder)
    try:
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
        f"{folder} could not be written ({error}). Nothing was released, and nothing is left there. {advice_on(error)},"
        " then run it again."
    )


def is_full(error: BaseException) -> TypeGuard[OSError]:
    """Whether there is no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def advice_on(error: OSError) -> str:
    """What to do about a file that could not be written."""
    return "Make room" if is_full(error) else "Mend that"


def _begin(folder: Path, job: Job, keep_secret: bool) -> None:
    secret = job.scenario.seed is None and not keep_secret
    about = written_root(None if secret else key_of(job.root), generator_of(job.root))
    about |= {"given": run_digest(job), "versions": machine_of(job)}
    about |= {"states": os.urandom(8).hex(), "ends": _LAST_LINE}
    write_synced(folder / IN_PROGRESS / ROOT, json.dumps(about).encode(), OWNERS)
    (folder / IN_PROGRESS / JOURNAL).touch(OWNERS)
    copy_inputs(job.components, folder)
    write_graph(job.components, job.topology, folder)
    text = resolved_toml(job.components, job.topology, folder)
    write_synced(folder / "scenario.toml", (text + _LAST_LINE).encode())
    _write_running(folder, job)


def _write_running(folder: Path, job: Job) -> None:
    reason = f'under way, or cut off; then "decentral-dp resume {folder}" goes on; the budget is that of all rounds'
    write_synced(folder / "result.json", _partial(job, job.rounds, "running", reason))


def _remove(folder: Path) -> None:
    """Remove the folder of a run that has released nothing, and folders above that it leaves empty."""
    shutil.rmtree(folder / IN_PROGRESS)
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    remove_inputs(folder)
    for path in folder.iterdir():
        if path.name.lstrip(".").removesuffix(".part") in ("scenario.toml", "result.json"):
            path.unlink()
    for empty in (folder, *folder.parents):
        try:
            empty.rmdir()
        except OSError:
            break


def _partial(job: Job, released: int, status: str, reason: str) -> bytes:
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
        "title": title_of(job),
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
    return text_of(content).encode()
