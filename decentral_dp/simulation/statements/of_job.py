"""Statements, limits, claims and settings of a job, by its setting."""

from __future__ import annotations

from typing import Any

from decentral_dp.simulation.jobs.gossip_plan import gossip_job
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.setting import Setting, setting_of
from decentral_dp.simulation.statements import gossip
from decentral_dp.simulation.statements.statement import Horizon, PaperClaim, PrivacyStatement

GOSSIP = Setting(gossip_job, gossip.privacy_statement, gossip.gossip_horizon, gossip.gossip_claim)


def statement_of(job: Job) -> PrivacyStatement:
    """State the guarantee of a job and its price: what anyone may know before the run.

    Example:
        >>> from decentral_dp.simulation.jobs.build import build
        >>> statement_of(build("quadratic")).guarantee
        'none'
    """
    return setting_of(job.setting).statement(job)


def horizon_of(job: Job) -> Horizon:
    """Return the limit of the budget for T → ∞, as far as it is known."""
    return setting_of(job.setting).horizon(job)


def claim_of(job: Job) -> PaperClaim | None:
    """Return the budget that a paper claims: for comparison, never a certificate."""
    return setting_of(job.setting).claim(job)


def settings_of(job: Job) -> dict[str, Any] | None:
    """Return the hyper-parameters as they run; None where the scenario has them all."""
    return setting_of(job.setting).settings(job)
