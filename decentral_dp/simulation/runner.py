"""Running a scenario, and the folder that a run leaves behind.

More rounds for a run that was cut off: priced, or refused where they would not be the same run, only longer.

Going on without the root of the noise: what was in flight is released once more, and charged once more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from threadpoolctl import threadpool_limits

from decentral_dp.config.components import Objects
from decentral_dp.config.loading import load, read_toml
from decentral_dp.config.schema import Scenario
from decentral_dp.engines import ENGINES
from decentral_dp.engines.protocol import Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError, Stopped
from decentral_dp.formatting import agent_names, delta_text, epsilon_text
from decentral_dp.privacy.ledger import Ledger, Window, released_again
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.events import ProgressCallback, Reporter, check_installed, logged
from decentral_dp.simulation.folder.journal import (
    Found,
    RunInProgress,
    before_damage,
    begin,
    continued,
    find,
    is_full,
    mended,
    not_begun,
    scenario_begun,
)
from decentral_dp.simulation.folder.layout import check_writable, write_contents
from decentral_dp.simulation.jobs.build import build, hosted
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.plan import Plan
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.run import SPENT, Run, evaluated_rounds, priced, result_of, spent_after
from decentral_dp.user_code import USER_ERRORS, UserCodeError


def run_job(
    planned: Job, out: str | Path | None = None, progress: ProgressCallback | None = None, keep_secret: bool = True
) -> Run:
    """Run a planned job, and write its folder where one is asked for; nothing is drawn.

    Args:
        planned: as `build` makes it.
        out: the folder to write, new or empty; by default nothing is written.
        progress: told of progress at every evaluation.
        keep_secret: whether secret noise has its root in the folder, for `resume` and its owner alone, until it ends.

    Returns:
        The run. Its folder is complete but for its pictures and its page.

    Raises:
        InputError: the folder holds something, or cannot be written.
        Stopped: interrupted; what was released is on record in the folder.
    """
    job = hosted(planned)
    if out is None:
        return _finished(job, progress)
    folder = Path(out)
    check_writable(folder)
    check_installed(job.scenario.run.log or ())
    return _recorded(job, begin(folder, job, keep_secret), progress)


def resume(
    folder: str | Path,
    *,
    progress: ProgressCallback | None = None,
    rounds: int | None = None,
    priced: Callable[[Plan], None] | None = None,
    charge_again: bool = False,
    **objects: Unpack[Objects],
) -> Run:
    """Go on with a run that was cut off, from the last state in its folder; nothing is drawn.

    Args:
        folder: of the run, whose status is "running", "interrupted" or "failed".
        progress, rounds, priced, charge_again, **objects: as of `resume`.

    Returns:
        The finished run.

    Raises:
        InputError: as of `resume`.
        Stopped: interrupted again.
    """
    folder = Path(folder)
    found, lock = find(folder)
    try:

        def made(scenario: Scenario) -> Job:
            return build(scenario, **objects)

        # Wherever the text lies, it names files from the folder of the run.
        first = made(load(read_toml(scenario_begun(folder)), folder=folder.resolve()))
        check_installed(first.scenario.run.log or ())
        root, found = continued(found, first, folder), before_damage(found, first, folder)
        job, window = lengthened(first, found, folder, rounds, made), None
        if root is None:
            if job.states_are_elsewhere:
                found = replace(found, saved=None, kept=0, rows=[])
            job, window = charged_again(job, found, folder, charge_again)
        else:
            job = job.keyed(root)
        if priced is not None and (rounds is not None or window is not None):
            priced(Plan.of(job))
        kept = RunInProgress(folder, job, lock, found)
        if rounds is not None:
            kept.extend()
        if window is not None:
            kept.charge_again(window)
    except BaseException:
        lock.close()
        raise
    return _recorded(job, kept, progress, found)


def _finished(
    job: Job, progress: ProgressCallback | None, kept: RunInProgress | None = None, found: Found | None = None
) -> Run:
    started = time.perf_counter()
    names, place = ((), Path()) if kept is None else (job.scenario.run.log or (), kept.folder)
    with logged(names, place, job.scenario.title, progress) as callback:
        rows, outcome = _perform(job, callback, kept, found)
    ledger = all_released(job, outcome.ledger)
    seconds = time.perf_counter() - started
    metrics = measuring.named(measuring.frame(rows), agent_names(job.topology.labels))
    result = result_of(job, outcome, metrics, seconds)
    last, folder = outcome.last, None if kept is None else kept.folder
    return Run(
        scenario=job.scenario,
        simulation=Secret("the records and the noise of a run", job),
        metrics=metrics,
        records=ledger,
        released=last.released,
        published=last.published,
        unnoised=Secret("the un-noised values of a run", last.state),
        result=result,
        folder=folder,
    )


def _recorded(job: Job, kept: RunInProgress, progress: ProgressCallback | None, found: Found | None = None) -> Run:
    """Run with a folder that says at every moment what was released."""
    folder = kept.folder
    try:
        done = _finished(job, progress, kept, found)
        if job.scenario.seed is None and kept.keeps_secret:
            result = RunResult.from_content({**done.result.content, "root_was_kept": True}, done.result.privacy)
            done = replace(done, result=result)
        write_contents(done, folder, kept.parts)
    except KeyboardInterrupt:
        if kept.discard():
            raise
        kept.end("interrupted", f'interrupted; "decentral-dp resume {folder}" goes on')
        raise Stopped(
            f"Interrupted. Up to round {kept.released} of {job.rounds} may have been released, and is on record in "
            f'{folder}. "decentral-dp resume {folder}" goes on.'
        ) from None
    except BaseException as error:
        if not kept.discard():
            kept.end("failed", " ".join(str(error).split()) or type(error).__name__)
            if isinstance(error, OSError):
                raise OSError(
                    f"{folder} could not be written ({error}). Up to round {kept.released} of {job.rounds} may have "
                    f'been released. {mended(error)}, then "decentral-dp resume {folder}" goes on.'
                ) from error
            if isinstance(error, UserCodeError):
                raise UserCodeError(
                    f"{error} Up to round {kept.released} of {job.rounds} may have been released, and is on record in "
                    f"{folder}."
                ) from error
        elif isinstance(error, OSError) and is_full(error):
            raise not_begun(folder, error) from error
        raise
    kept.complete()
    return done


def _perform(
    job: Job, progress: ProgressCallback | None, kept: RunInProgress | None = None, found: Found | None = None
) -> tuple[list[Row], Outcome]:
    evaluator, report = job.evaluator(), Reporter(progress, "rounds")
    evaluation_rounds = evaluated_rounds(job.rounds, job.scenario.run.evaluate_every)
    spent = spent_after(job, evaluation_rounds)
    saved = None if found is None else found.state(job)
    # What a state comes with was measured before it was kept.
    rows: list[Row] = [] if found is None else priced(found.rows, spent)
    # Where agents have lost states, rounds that were measured come again.
    measured = max([-1 if saved is None else saved.round, *(row[0] for row in rows)])
    listed = set(evaluation_rounds)
    certified = job.scenario.privacy.guarantee == "certified"

    def observe(s: Snapshot) -> bool:
        if s.divergence is not None:
            if kept is not None:
                kept.passed(s, rows)
            return True
        if s.round in listed and s.round > measured:
            evaluate(s)
        if kept is not None:
            kept.passed(s, rows)
        return False

    def evaluate(s: Snapshot) -> None:
        # What overflows here is reported as infinite, and as divergence once a released value does.
        with np.errstate(all="ignore"):
            try:
                taken = evaluator.rows(s, averaged=job.scenario.run.average > 1)
                rows.extend(measuring.chosen_rows(taken, job.scenario.run.measures))
            except USER_ERRORS as error:
                # Scores read records, and no certified run may end because of one: it goes on without these scores.
                if not certified or isinstance(error, MemoryError):
                    raise
        if s.round in spent:
            rows.append((s.round, "mean", SPENT, spent[s.round]))
        if progress is not None:
            names = ("upper_loss", "primal") if job.tunes_x else ("lower_loss",)
            loss = next((v for r, a, n, v in reversed(rows) if n in names and a == "mean"), math.nan)
            # Between two priced rounds the later one: never less than what is spent.
            report(s.round, job.rounds, loss=loss, epsilon=next(e for t, e in spent.items() if t >= s.round))

    table = job.scenario.run
    engine = ENGINES[table.engine](table.address, table.place, dict(table.recovery or ()))
    control = RunControl(evaluation_rounds, observe, saved=saved)
    if kept is not None:
        control = control._replace(due=kept.due, keeps_releases=kept.keeps_releases, states=kept.states)
    # Products of one agent's records are too small to share: two BLAS threads on a busy machine cost far more than one.
    with threadpool_limits(limits=1):
        return rows, job.start(engine, control)


# As many as a scenario may have.
_MOST = 10**12


def lengthened(job: Job, found: Found, folder: Path, rounds: int | None, build: Callable[[Scenario], Job]) -> Job:
    """The job of a run that goes on, with the rounds that it has by now.

    Noise keeps its schedule: where a target epsilon set it, that is the price of the rounds that were planned first,
    and all rounds cost more. What may have been released must be priced in the longer plan as it was in the shorter.

    Args:
        job: as the run was begun.
        found: what its folder says, with the rounds that were asked for since.
        folder: of the run.
        rounds: that are asked for now; None leaves them as they are.
        build: makes the job of a scenario, with the objects that the run was given.

    Returns:
        The job itself where no more was ever asked for.

    Raises:
        InputError: the longer run would pass a cap or has other noise, or the last round may have been released.
    """
    current = job if found.extended is None else build(_longer(job.scenario, found.extended))
    if rounds is None:
        return current
    asked = current.scenario.algorithm.rounds
    if not asked < rounds <= _MOST:
        raise _no_longer(rounds, f" is not more than the {asked} rounds that are planned, or more than {_MOST}.")
    if current.plans_ahead:
        raise _no_longer(
            rounds,
            f": {job.scenario.algorithm.kind} plans its whole budget beforehand, and more rounds would have needed "
            "more noise in the first.",
        )
    if found.leased >= current.rounds:
        raise _no_longer(
            rounds,
            f": the last of the {current.rounds} rounds of {folder} may have been released, and what leaves at the "
            "end of a run is not what leaves between two rounds.",
        )
    longer = build(_longer(job.scenario, rounds))
    if longer.rounds < rounds:
        raise _no_longer(
            rounds,
            f" would pass the declared cap ε = {job.scenario.privacy.cap:g}; {longer.rounds} rounds are within it. "
            "Give at most as many.",
        )
    if not _is_same_so_far(current, longer, found.leased):
        raise _no_longer(
            rounds, f": in a run of so many rounds the first {found.leased} would have been released otherwise."
        )
    return longer


def _no_longer(rounds: int, why: str) -> InputError:
    """The refusal of so many rounds."""
    said = f"{rounds}{why} Leave it out to go on as planned."
    return InputError(f"resume: rounds = {said}", command=f"resume: --rounds {said}")


def _longer(scenario: Scenario, rounds: int) -> Scenario:
    """The scenario with more rounds; a target epsilon stays that of the rounds that were planned first."""
    privacy = scenario.privacy
    if privacy.epsilon is not None and privacy.epsilon_rounds is None:
        privacy = privacy.model_copy(update={"epsilon_rounds": scenario.algorithm.rounds})
    table = scenario.algorithm.model_copy(update={"rounds": rounds})
    return scenario.model_copy(update={"algorithm": table, "privacy": privacy})


def _is_same_so_far(job: Any, longer: Any, leased: int) -> bool:
    """Whether both jobs make the same releases, with the same noise, up to a round."""
    if longer.algorithm != job.algorithm or longer.noise.keys() != job.noise.keys():
        return False
    alike = all(
        np.array_equal(mine.scale, longer.noise[channel].scale)
        and np.array_equal(mine.decay, longer.noise[channel].decay)
        for channel, mine in job.noise.items()
    )
    return alike and _until(job.ledger, leased).same_releases(_until(longer.ledger, leased))


def _until(ledger: Ledger, rounds: int) -> Ledger:
    """The releases that are out after so many rounds, without the channels that have none yet."""
    kept = ledger.until(rounds)
    return replace(kept, channels=tuple(c for c in kept.channels if c.rounds.size))


def charged_again(job: Job, found: Found, folder: Path, agreed: bool) -> tuple[Job, Window | None]:
    """The job of a run that goes on with another root, with what was in flight in its ledger and in its budget.

    `privacy/ledger.py` says why that covers both passes. What is charged is what may have been released: rounds
    are on record in advance.

    Args:
        job: with the rounds that it has by now.
        found: what its folder says.
        folder: of the run.
        agreed: whether whoever asks for it agrees to the new price.

    Returns:
        The job, and the rounds that are charged again from now on; None where nothing was in flight.

    Raises:
        InputError: nobody agreed, the price would pass a cap, or a trusted coordinator has planned its whole budget.
    """
    at = found.saved[0] if found.saved else 0
    new = Window(at, found.in_flight) if found.in_flight else None
    if job.plans_ahead:
        if new is None:
            return job.keyed(secret_root()), None
        raise InputError(
            f"{_lost(folder)} {job.scenario.algorithm.kind} plans its whole budget beforehand, and what it would "
            "release again is not in that plan. Run the scenario again in another folder; both runs are to be paid for."
        )
    # A state that cannot be read is refused before anything is charged.
    found.state(job)
    before = job.with_windows(found.windows)
    after = before if new is None else job.with_windows((*found.windows, new))
    if new is not None:
        _check(before, after, new, folder, agreed)
    return after.keyed(secret_root()), new


def all_released(job: Job, recorded: Ledger) -> Ledger:
    """All that a run has released.

    Args:
        job: what was run.
        recorded: by the course that it ended with.

    Raises:
        RuntimeError: what was released is not what was planned. The budget is the plan's price, and would not hold.
    """
    if not job.covers(recorded):
        raise RuntimeError(
            f"{job.scenario.algorithm.kind}: the releases that were recorded are not those that were planned and "
            "priced, so the budget does not hold. Mend the algorithm's plan of releases, or its `step`."
        )
    return released_again(recorded, job.course, job.windows)


def _check(before: Job, after: Job, new: Window, folder: Path, agreed: bool) -> None:
    was, now = (float(j.budget.epsilon.max()) for j in (before, after))
    privacy = after.scenario.privacy
    cost = f"ε = {epsilon_text(now)} instead of {epsilon_text(was)} at δ = {delta_text(privacy.delta)}"
    rounds = f"{new.first} to {new.last}"
    if privacy.cap is not None and now > privacy.cap:
        raise InputError(
            f"{_lost(folder)} Releasing rounds {rounds} once more would cost {cost}, and pass the declared cap "
            f"ε = {privacy.cap:g}. Run the scenario again in another folder; both runs are to be paid for."
        )
    if not agreed:
        why = (
            f"{_lost(folder)} Rounds {rounds} may be out, and would be released once more with other noise, which is a "
            f"second release: the run would cost {cost}. Agree with"
        )
        mend = "or run the scenario again in another folder; both runs are to be paid for then."
        raise InputError(f"{why} charge_again=True, {mend}", command=f"{why} --charge-again, {mend}")


def _lost(folder: Path) -> str:
    return f"resume: the secret of {folder} was not kept, and its noise cannot be drawn again."
