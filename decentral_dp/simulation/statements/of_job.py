"""Statements, limits, claims, settings and theorems of a job, by its type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from decentral_dp.simulation.jobs.job import CoordinatorBilevelJob, CoordinatorMinimaxJob, GossipJob, Job
from decentral_dp.simulation.statements import coordinator, gossip
from decentral_dp.simulation.statements.statement import Horizon, PaperClaim, PrivacyStatement


@singledispatch
def statement_of(job: Job) -> PrivacyStatement:
    """State the guarantee of a job and its price: what anyone may know before the run.

    Example:
        >>> from decentral_dp.simulation.jobs.build import build
        >>> statement_of(build("quadratic")).guarantee
        'none'
    """
    raise NotImplementedError(type(job).__name__)


@singledispatch
def horizon_of(job: Job) -> Horizon:
    """Return the limit of the budget for T → ∞, as far as it is known."""
    raise NotImplementedError(type(job).__name__)


@singledispatch
def claim_of(job: Job) -> PaperClaim | None:
    """Return the budget that a paper claims: for comparison, never a certificate."""
    raise NotImplementedError(type(job).__name__)


@singledispatch
def settings_of(job: Job) -> dict[str, Any] | None:
    """Return the hyper-parameters as they run; None where the scenario has them all."""
    return None


@singledispatch
def theorem_of(job: Job) -> dict[str, Any] | None:
    """Return the conditions of a convergence theorem, case by case; None where none is known."""
    return None


statement_of.register(GossipJob, gossip.privacy_statement)
horizon_of.register(GossipJob, gossip.gossip_horizon)
claim_of.register(GossipJob, gossip.gossip_claim)
theorem_of.register(GossipJob, gossip.theorem)
for coordinated in (CoordinatorBilevelJob, CoordinatorMinimaxJob):
    statement_of.register(coordinated, coordinator.privacy_statement)
    horizon_of.register(coordinated, coordinator.coordinator_horizon)
    claim_of.register(coordinated, coordinator.coordinator_claim)
    settings_of.register(coordinated, coordinator.settings)
