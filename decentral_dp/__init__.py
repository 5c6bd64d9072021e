"""Simulate, price and audit private decentralised optimisation.

import decentral_dp
plan = decentral_dp.plan("ring_breast_cancer")      # what it would cost each agent
run = decentral_dp.run("ring_breast_cancer")
run.result.privacy.epsilon_max, run.metrics, run.ledger, run.released
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decentral_dp.adversaries.attack.attack import Inference, attack
    from decentral_dp.adversaries.audit.result import AuditResult
    from decentral_dp.adversaries.check.result import CheckResult
    from decentral_dp.adversaries.network.view import NetworkView
    from decentral_dp.api import Job, audit, build, check, network_view, plan, run, study, write_shards
    from decentral_dp.config.loading import load
    from decentral_dp.config.schema import Scenario
    from decentral_dp.errors import InputError
    from decentral_dp.problems.bilevel.losses import from_losses
    from decentral_dp.reporting.comparison import Comparison, compare
    from decentral_dp.resumption.resume import resume
    from decentral_dp.simulation.events import Progress
    from decentral_dp.simulation.plan import Plan
    from decentral_dp.simulation.result import RunResult
    from decentral_dp.simulation.run import Run
    from decentral_dp.studies.study import Findings
    from decentral_dp.tuner import Tuned, tune

__all__ = [
    "AuditResult",
    "CheckResult",
    "Comparison",
    "Findings",
    "Inference",
    "InputError",
    "Job",
    "NetworkView",
    "Plan",
    "Progress",
    "Run",
    "RunResult",
    "Scenario",
    "Tuned",
    "attack",
    "audit",
    "build",
    "check",
    "compare",
    "from_losses",
    "load",
    "network_view",
    "plan",
    "resume",
    "run",
    "study",
    "tune",
    "write_shards",
]

_HOMES = {
    "NetworkView": "adversaries.network.view",
    "Inference": "adversaries.attack.attack",
    "Findings": "studies.study",
    "CheckResult": "adversaries.check.result",
    "AuditResult": "adversaries.audit.result",
    "Comparison": "reporting.comparison",
    "InputError": "errors",
    "Job": "api",
    "Plan": "simulation.plan",
    "Progress": "simulation.events",
    "Run": "simulation.run",
    "RunResult": "simulation.result",
    "Scenario": "config.schema",
    "Tuned": "tuner",
    "attack": "adversaries.attack.attack",
    "audit": "api",
    "build": "api",
    "check": "api",
    "compare": "reporting.comparison",
    "from_losses": "problems.bilevel.losses",
    "load": "config.loading",
    "network_view": "api",
    "plan": "api",
    "resume": "resumption.resume",
    "run": "api",
    "study": "api",
    "tune": "tuner",
    "write_shards": "api",
}


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used, so that `import decentral_dp` and `--help` stay fast.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    # So that a shell completes names that are not imported yet, and none of this file's own.
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
