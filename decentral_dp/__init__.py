"""Simulate, price and audit private decentralised optimisation.

import decentral_dp
run = decentral_dp.run("ring_breast_cancer")
run.result["privacy"]["epsilon_max"], run.metrics, run.ledger, run.released
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decentral_dp.errors import InputError
    from decentral_dp.job import Job, build
    from decentral_dp.problems.losses import from_losses
    from decentral_dp.runner import Run, run
    from decentral_dp.scenario import load
    from decentral_dp.schema import Scenario
    from decentral_dp.tuner import Tuned, tune

__all__ = ["InputError", "Job", "Run", "Scenario", "Tuned", "build", "from_losses", "load", "run", "tune"]

_HOMES = {
    "InputError": "errors",
    "Job": "job",
    "Run": "runner",
    "Scenario": "schema",
    "Tuned": "tuner",
    "build": "job",
    "from_losses": "problems.losses",
    "load": "scenario",
    "run": "runner",
    "tune": "tuner",
}


def __getattr__(name: str) -> Any:
    # Names are imported when they are first used, so that `import decentral_dp` and `--help` stay fast.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
