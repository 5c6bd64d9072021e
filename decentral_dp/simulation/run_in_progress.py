"""The folder of a run that is not complete: what was, or may have been, released is on record before it travels.

While a run is under way its folder holds `scenario.toml`, `result.json` with the status "running", and `in_progress`,
which its owner alone may read:

journal.jsonl   one JSON object a line, appended and synced. {"leased": L}: from now on everything up to round L may be
                released. {"saved": K, "round": t, …}: the state after round t, in files K. {"resumed": K}: the run goes
                on from there, and what was kept after it is void. {"extended": N}: it has N rounds from now on.
                {"part": [A, B], …}: released values in a file of their own, with its digest.
                {"charged_again": [S, L]}: with another root, rounds S to L are released and charged once more.
                {"unkept": REASON}: no state can be kept. {"ended": STATUS, …}.
noise_root.json the root of all noise, its generator and what it was drawn for, readable by its owner only; gone when
                the run is done.
saved-K.npz     states (`saved_values`); the last two are kept. metrics-K.parquet: what was measured up to there. Where
                records are with their agents, so are the states (`agent_states`), and here are receipts.
releases-A-B.parquet: released values, where they are kept (`kept_releases`).
scenario.toml   as the run was begun, where it has more rounds since. lock: held while the run is.

Rounds are leased in advance, for about a second each time, so that a record on disk does not cost more than the round.
After a crash, what was leased counts as released. A run that goes on repeats these rounds with the same draws, so that
nothing is released twice.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from decentral_dp.engines.protocol import Snapshot
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.randomness import generator_of, key_of
from decentral_dp.privacy.released_again import Window
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.in_progress_files import (
    BEGUN,
    JOURNAL,
    OWNERS,
    OWNERS_FOLDER,
    ROOT,
    TENSORBOARD,
    digest,
    locked,
    write_synced,
)
from decentral_dp.simulation.interrupted_run import Found, computed_on, given, machine, written_root
from decentral_dp.simulation.job_summary import problem_summary, title_of, topology_summary
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.kept_releases import Digests, KeptReleases
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.result import IN_PROGRESS, text_of
from decentral_dp.simulation.run_folder import resolved_toml, versions
from decentral_dp.simulation.run_inputs import copy_inputs, remove_inputs, write_graph
from decentral_dp.simulation.saved_values import home_of, to_bytes

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
        after = 0 if found is None or found.saved is None else found.saved[0]
        whole = {} if found is None else found.releases
        self._releases = KeptReleases(self._place, job, after, whole) if job.scenario.run.keep_releases else None
        # An earlier version let others read it.
        self._place.chmod(OWNERS_FOLDER)
        self._journal = (self._place / JOURNAL).open("ab")
        if found is not None:
            # A line that was cut off was never acted on, and must not run into the next one.
            self._journal.truncate((self._place / JOURNAL).read_bytes().rfind(b"\n") + 1)
            self._write(resumed=found.kept)

    def extend(self) -> None:
        """Put on record that the run has the rounds of its job from now on, and what they cost."""
        if not (self._place / BEGUN).exists():
            # The noise was drawn for that one; the folder's own is that of the longer run in the end.
            write_synced(self._place / BEGUN, (self.folder / BEGUN).read_bytes())
        write_synced(self.folder / "result.json", _partial(self._job, self._job.rounds, "running", _cut(self.folder)))
        self._write(extended=self._job.rounds)

    def charge_again(self, window: Window) -> None:
        """Put on record that rounds are released once more with other noise, and what all of it costs."""
        write_synced(self.folder / "result.json", _partial(self._job, self._job.rounds, "running", _cut(self.folder)))
        self._write(charged_again=list(window))
        # Rounds under the new root are on record before they are released, as those under the old one were.
        self._leased = self._leased_from = window.first

    # --- from the engine --------------------------------------------------------------------------------------------

    def due(self, t: int) -> bool:
        """Whether something is to be written before round t + 1 begins."""
        self._reached = max(self._reached, t)
        full = self._releases is not None and self._releases.due(t)
        return t < self._job.rounds and (t >= self._leased or full or time.monotonic() >= self._next_save)

    @property
    def keeps_releases(self) -> bool:
        """Whether released values are written."""
        return self._releases is not None

    @property
    def parts(self) -> Digests:
        """Digests of the parts in which released values lie; none where they are not kept."""
        return {} if self._releases is None else self._releases.digests

    def passed(self, s: Snapshot, rows: Sequence[Row]) -> None:
        """Write what is due. rows: all that was measured so far."""
        self._reached = max(self._reached, s.round)
        ending = s.round == self._job.rounds or s.divergence is not None
        if self._releases is not None and (
            ending or self._releases.due(s.round) or time.monotonic() >= self._next_save
        ):
            # Before the state that goes on behind them.
            for part, told in self._releases.collect(s.round, s.drain(ending)):
                self._write(part=part, digest=told)
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
        number = self._kept + 1
        try:
            content = to_bytes(list(s.save().parts), self._home)
        except TypeError as error:
            # The run itself is none the worse: cut off, it goes on from its start, with the same draws.
            self._write(unkept=str(error))
            self._next_save = math.inf
            return
        measured = measuring.frame(rows[self._written :]).to_parquet(index=False)
        write_synced(self._place / f"metrics-{number}.parquet", measured, OWNERS)
        write_synced(self._place / f"saved-{number}.npz", content, OWNERS)
        digests = {"digest": digest(content), "metrics": digest(measured)}
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
        return self._about()["root"] is not None

    @property
    def states(self) -> str | None:
        """The name under which agents keep their states; None of a run that an older version has begun."""
        name = self._about().get("states")
        return name if isinstance(name, str) and _NAME.fullmatch(name) else None

    def _about(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self._place / ROOT).read_text())
        return told

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
            write_synced(self.folder / "result.json", _partial(self._job, self.released, status, reason))
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
        raise InputError(f"--out: another run writes {folder} already. Give another folder.") from None
    lock = locked(folder)
    try:
        _begin(folder, job, keep_secret)
        return RunInProgress(folder, job, lock)
    except BaseException as error:
        # Nothing was released, and nothing stays.
        lock.close()
        _remove(folder)
        if isinstance(error, OSError):
            raise not_begun(folder, error) from error
        raise


def not_begun(folder: Path, error: OSError) -> OSError:
    """What is said where a folder cannot be written before anything is released."""
    return OSError(
        f"{folder} could not be written ({error}). Nothing was released, and nothing is left there. {mended(error)}, "
        "then run it again."
    )


def is_full(error: BaseException) -> bool:
    """Whether there is no room for what was to be written."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def mended(error: OSError) -> str:
    """What to do about a file that could not be written."""
    return "Make room" if is_full(error) else "Mend that"


def _begin(folder: Path, job: Job, keep_secret: bool) -> None:
    secret = job.scenario.seed is None and not keep_secret
    about = written_root(None if secret else key_of(job.root), generator_of(job.root)) | {"given": given(job)}
    about["versions"] = machine() | computed_on(job)
    about |= {"states": os.urandom(8).hex(), "ends": _LAST_LINE}
    write_synced(folder / IN_PROGRESS / ROOT, json.dumps(about).encode(), OWNERS)
    (folder / IN_PROGRESS / JOURNAL).touch(OWNERS)
    copy_inputs(job.scenario, folder)
    write_graph(job.scenario, job.topology, folder)
    text = resolved_toml(job.scenario, job.topology, folder)
    write_synced(folder / "scenario.toml", (text + _LAST_LINE).encode())
    write_synced(folder / "result.json", _partial(job, job.rounds, "running", _cut(folder)))


def _cut(folder: Path) -> str:
    return f'under way, or cut off; then "decentral-dp resume {folder}" goes on; the budget is that of all rounds'


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
        ledger = job.ledger.until(released)
        budget = price(ledger, job.scenario.privacy.delta)
        spent = replace(spent, rounds=released, ledger=ledger, budget=budget)
    covered = "none were released" if not released else f"rounds 1 to {released}" if released > 1 else "round 1"
    told = {
        "running": f"This run is not complete. The budget is that of all {job.rounds} rounds, which may be released.",
        "interrupted": f"This run was cut off and has no result. The budget is that of what may be out: {covered}.",
        "failed": f"This run failed and has no result. The budget is that of what may be out: {covered}.",
    }
    content = {
        "title": title_of(job),
        "status": status,
        "incomplete": told[status],
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": 0 if status == "running" else released,
        "rounds_planned": job.scenario.algorithm.rounds,
        "metrics": {},
        # The budget holds for what was released, and says nothing of a run that is whole.
        "privacy": {"incomplete": told[status], **spent.statement().to_dict()},
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return text_of(content).encode()
