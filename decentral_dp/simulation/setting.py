"""The settings of a job, by name: who trusts whom, and on which kind of problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from decentral_dp import annexes
from decentral_dp.config.components import Components
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.statement import PaperClaim, PrivacyStatement

SETTINGS: Mapping[str, str] = {"gossip": "decentral_dp.simulation.job_statement:GOSSIP"} | dict(annexes.SETTINGS)


class Setting(NamedTuple):
    """How jobs of a setting are built, and what is promised of them; a job itself starts and evaluates runs.

    Args:
        build: what a scenario names → the job, planned and priced, whose noise has no root yet.
        statement: job → its guarantee and privacy cost.
        claim: job → ε that a paper claims, for comparison.
        settings: job → hyper-parameters as they run; None if the scenario has them all.
    """

    build: Callable[[Components], PlannedJob]
    statement: Callable[[Any], PrivacyStatement]
    claim: Callable[[Any], PaperClaim | None]
    settings: Callable[[Any], dict[str, Any] | None] = lambda job: None


def setting_of(name: str) -> Setting:
    """Return a setting by its name, imported now. Raises KeyError for a name that is none."""
    setting: Setting = annexes.import_place(SETTINGS[name])
    return setting


def statement_of(job: PlannedJob) -> PrivacyStatement:
    """State the guarantee of a job and its privacy cost, from public facts only.

    Example:
        >>> from decentral_dp.simulation.jobs.build import build_job
        >>> statement_of(build_job("quadratic")).guarantee
        'none'
    """
    return setting_of(job.setting).statement(job)


def claim_of(job: PlannedJob) -> PaperClaim | None:
    """Return the ε that a paper claims: for comparison, never a certificate."""
    return setting_of(job.setting).claim(job)


def settled_parameters(job: PlannedJob) -> dict[str, Any] | None:
    """Return the hyper-parameters as they run; None if the scenario has them all."""
    return setting_of(job.setting).settings(job)
