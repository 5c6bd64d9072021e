"""Test that public randomness is identical at every agent, in every block and on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp

# dp_dsgd that mixes a random half of the coordinates in a round; which half is public.
TEXT = """
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.exchange import Gossip


@dataclass(frozen=True)
class Coordinates(DpDsgd):
    '''Decentralised SGD that mixes a random half of the coordinates.'''

    def step(self, t, dataset, s):
        own, near = yield Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * own.y + near.y
        mixed = np.where(dataset.public_rng(t).random(dataset.q) < 0.5, combined, own.y)
        return s._replace(y=mixed - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, mixed))
"""


@pytest.fixture
def scenario(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "coordinates.py").write_text(TEXT)
    return {
        "seed": 5,
        "topology": {"kind": "ring", "agents": 6},
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 8, "records": 20, "test_records": 20},
        },
        "code_folders": [str(tmp_path)],
        "algorithm": {"kind": "coordinates:Coordinates", "learning_rate": {"scale": 0.5}, "rounds": 3},
        "privacy": {"guarantee": "none"},
    }


def released(scenario: dict[str, Any], **run: Any) -> Any:
    return decentral_dp.run({**scenario, "run": run}).released["y"]


def test_blocks_and_engines_have_the_same_coins(scenario: dict[str, Any]) -> None:
    whole = released(scenario)
    np.testing.assert_array_equal(released(scenario, blocks=3), whole)


def test_coins_are_of_the_round_and_of_the_seed(scenario: dict[str, Any]) -> None:
    job, again = (decentral_dp.build(scenario, set={"seed": seed}).simulation() for seed in (5, 6))
    one, other = (j.nodes()[0].dataset for j in (job, again))
    draws = [one.public_rng(t).random(4) for t in (1, 1, 2)] + [other.public_rng(1).random(4)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert not np.array_equal(draws[0], draws[3])


def test_what_is_released_is_planned_and_certified(scenario: dict[str, Any]) -> None:
    """Choose only among released values, so that public randomness does not change the privacy cost."""
    private = {"guarantee": "certified", "epsilon": 4.0, "clip": 1.0, "mechanism": "gaussian"}
    run = decentral_dp.run({**scenario, "privacy": private})
    assert run.result.status == "ok"
    assert run.result.privacy.epsilon_max == pytest.approx(4.0, abs=0.01)
