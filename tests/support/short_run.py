"""A run of two rounds, for attacks and audits of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.reporting import page


def short_run(out: Path) -> Path:
    """Run ten agents for two rounds into this folder, without its pictures."""
    scenario = load("ring_breast_cancer", ["algorithm.rounds=2", 'problem.partition="iid"'])
    with pytest.MonkeyPatch.context() as here:
        here.setattr(page, "draw_run", lambda *_: None)
        decentral_dp.run(scenario, out=out)
    return out
