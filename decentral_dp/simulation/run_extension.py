"""More rounds for a run that was cut off: priced, or refused where they would not be the same run, only longer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.simulation.interrupted_run import Found
from decentral_dp.simulation.jobs import GossipJob, Job

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
        raise InputError(
            f"resume: --rounds {rounds} is not more than the {asked} rounds that are planned, or more than {_MOST}. "
            "Leave it out to go on as planned."
        )
    if not isinstance(current, GossipJob):
        raise InputError(
            f"resume: --rounds {rounds}: {job.scenario.algorithm.kind} plans its whole budget beforehand, and more "
            "rounds would have needed more noise in the first. Leave it out to go on as planned."
        )
    if found.leased >= current.rounds:
        raise InputError(
            f"resume: --rounds {rounds}: the last of the {current.rounds} rounds of {folder} may have been released, "
            "and what leaves at the end of a run is not what leaves between two rounds. Leave it out to go on as "
            "planned."
        )
    longer = build(_longer(job.scenario, rounds))
    if longer.rounds < rounds:
        raise InputError(
            f"resume: --rounds {rounds} would pass the declared cap ε = {job.scenario.privacy.cap:g}; {longer.rounds} "
            "rounds are within it. Give at most as many, or leave it out to go on as planned."
        )
    if not _is_same_so_far(current, longer, found.leased):
        raise InputError(
            f"resume: --rounds {rounds}: in a run of so many rounds the first {found.leased} would have been released "
            "otherwise. Leave it out to go on as planned."
        )
    return longer


def _longer(scenario: Scenario, rounds: int) -> Scenario:
    """The scenario with more rounds; a target epsilon stays that of the rounds that were planned first."""
    privacy = scenario.privacy
    if privacy.epsilon is not None and privacy.epsilon_rounds is None:
        privacy = privacy.model_copy(update={"epsilon_rounds": scenario.algorithm.rounds})
    table = scenario.algorithm.model_copy(update={"rounds": rounds})
    return scenario.model_copy(update={"algorithm": table, "privacy": privacy})


def _is_same_so_far(job: GossipJob, longer: Job, leased: int) -> bool:
    """Whether both jobs make the same releases, with the same noise, up to a round."""
    if (
        not isinstance(longer, GossipJob)
        or longer.algorithm != job.algorithm
        or longer.noise.keys() != job.noise.keys()
    ):
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
