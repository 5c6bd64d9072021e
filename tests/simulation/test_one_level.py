"""Runs whose x no record has a say in: no upper level is measured, and no page speaks of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.problems.lower_level import LowerLevel
from decentral_dp.simulation.jobs.build import build_job

ONE_LEVEL = {"kind": "dp_dsgd", "rounds": 4, "learning_rate": {"scale": 0.5}, "init": {"x": -3.0}}


@pytest.fixture
def base(scenario: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return scenario()


@pytest.fixture
def unsolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The exact lower solves that are asked for; none is answered."""
    asked: list[str] = []
    monkeypatch.setattr(LowerLevel, "minimiser", lambda *_: asked.append("lower"))
    return asked


def _scenario(base: dict[str, Any], **algorithm: Any) -> dict[str, Any]:
    privacy = {"guarantee": "certified", "mechanism": "gaussian", "epsilon": 8.0, "clip": 1.0}
    return {**base, "algorithm": {**ONE_LEVEL, **algorithm}, "privacy": privacy}


@pytest.mark.parametrize("kind", ["dp_dsgd", "ldp_single_level", "gradient_tracking", "exact_diffusion"])
def test_no_lower_level_is_solved_for_a_method_that_moves_no_x(
    base: dict[str, Any], kind: str, unsolved: list[str]
) -> None:
    run = decentral_dp.run(_scenario(base, kind=kind))
    assert not unsolved
    assert run.result["tunes_x"] is False
    assert not run.result.tunes_x


def test_large_weights_are_computed_in_small_blocks_to_the_same_bits() -> None:
    draw, agents = np.random.default_rng(0), 30
    data = {
        "features": draw.normal(size=(4 * agents, 100)),
        "labels": draw.integers(2, size=4 * agents),
        "agent": np.repeat(np.arange(agents), 4),
        "classes": [0, 1],
    }
    content: dict[str, Any] = {
        "seed": 3,
        "problem": {"kind": "classification", "data": "digits", "model": {"kind": "mlp", "hidden": [200]}},
        "topology": {"kind": "ring", "agents": agents},
        "algorithm": {"kind": "dp_dsgd", "rounds": 3, "learning_rate": {"scale": 0.1}},
        "privacy": {"mechanism": "gaussian", "epsilon": 8.0, "delta": 1e-5, "clip": 1.0},
    }
    small = build_job(load(content), data=data)
    whole = build_job(load(content | {"run": {"blocks": 1}}), data=data)
    assert (small.sizes(), whole.sizes()) == ([25, 5], [30])
    runs = [decentral_dp.run(c, data=data) for c in (content, content | {"run": {"blocks": 1}})]
    assert runs[0].released["y"].tobytes() == runs[1].released["y"].tobytes()
