"""The settings of a job, by name: who trusts whom, and on which kind of problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from decentral_dp import annexes
from decentral_dp.config.components import Components
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.statements.statement import Horizon, PaperClaim, PrivacyStatement

SETTINGS: Mapping[str, str] = {"gossip": "decentral_dp.simulation.statements.of_job:GOSSIP"} | dict(annexes.SETTINGS)


class Setting(NamedTuple):
    """How jobs of a setting are built, and what is promised of them; a job itself starts and evaluates runs.

    Args:
        build: what a scenario names → the job, planned and priced, whose noise has no root yet.
        statement: job → its guarantee and price. horizon: the limit of its budget for T → ∞. claim: a paper's budget.
        settings: job → hyper-parameters as they run; None where the scenario has them all.
    """

    build: Callable[[Components], Job]
    statement: Callable[[Any], PrivacyStatement]
    horizon: Callable[[Any], Horizon]
    claim: Callable[[Any], PaperClaim | None]
    settings: Callable[[Any], dict[str, Any] | None] = lambda job: None


def setting_of(name: str) -> Setting:
    """Return a setting by its name, imported now. Raises KeyError for a name that is none."""
    setting: Setting = annexes.load(SETTINGS[name])
    return setting
