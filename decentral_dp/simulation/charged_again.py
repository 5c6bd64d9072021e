"""Going on without the root of the noise: what was in flight is released once more, and charged once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from decentral_dp.errors import InputError
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.privacy.released_again import Window, released_again
from decentral_dp.simulation.interrupted_run import Found
from decentral_dp.simulation.jobs import GossipJob, Job


def charged_again(job: Job, found: Found, folder: Path, agreed: bool) -> tuple[Job, Window | None]:
    """The job of a run that goes on with another root, with what was in flight in its ledger and in its budget.

    `privacy/released_again.py` says why that covers both passes. What is charged is what may have been released: rounds
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
    if not isinstance(job, GossipJob):
        if new is None:
            return job.keyed(secret_root()), None
        raise InputError(
            f"{_lost(folder)} {job.scenario.algorithm.kind} plans its whole budget beforehand, and what it would "
            "release again is not in that plan. Run the scenario again in another folder; both runs are to be paid for."
        )
    # A state that cannot be read is refused before anything is charged.
    found.state(job)
    before = with_windows(job, found.windows)
    after = before if new is None else with_windows(job, (*found.windows, new))
    if new is not None:
        _check(before, after, new, folder, agreed)
    return after.keyed(secret_root()), new


def with_windows(job: GossipJob, windows: tuple[Window, ...]) -> GossipJob:
    """The job with the releases of these rounds in its ledger and its budget once more."""
    if not windows:
        return job
    ledger = released_again(job.course, job.course, windows)
    budget = price(ledger, job.scenario.privacy.delta)
    return replace(job, ledger=ledger, budget=budget, windows=windows, planned_course=job.course)


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
    return released_again(recorded, job.course, job.windows) if isinstance(job, GossipJob) else recorded


def _check(before: GossipJob, after: GossipJob, new: Window, folder: Path, agreed: bool) -> None:
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
        raise InputError(
            f"{_lost(folder)} Rounds {rounds} may be out, and would be released once more with other noise, which is a "
            f"second release: the run would cost {cost}. Agree with --charge-again (in Python charge_again=True), or "
            "run the scenario again in another folder; both runs are to be paid for then."
        )


def _lost(folder: Path) -> str:
    return f"resume: the secret of {folder} was not kept, and its noise cannot be drawn again."
