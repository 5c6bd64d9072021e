"""A mechanism of one's own that is told whose noise it draws: agent, round, channel, neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.privacy.mechanisms.protocol import DrawContext

SEEN: list[DrawContext] = []


@dataclass(frozen=True)
class Told:
    """Rounded Gaussian noise, of which nothing is claimed here; keeps whom it was asked for."""

    name = "told"
    norm = "l2"
    unit = "μ"
    deviation = 1.0

    def cost(self, sensitivity: Any, scale: Any, width: int) -> Any:
        return sensitivity / scale

    def sample(self, generator: Any, query: Any, grid: float, scale: float, context: DrawContext) -> Any:
        SEEN.append(context)
        return grid * np.rint((query + scale * generator.standard_normal(query.size)) / grid)


@dataclass(frozen=True)
class Untold(Told):
    def sample(self, generator: Any, query: Any, grid: float, scale: float) -> Any:  # type: ignore[override]
        return grid * np.rint((query + scale * generator.standard_normal(query.size)) / grid)


def scenario(**run: Any) -> dict[str, Any]:
    return {
        "seed": 2,
        "topology": {"kind": "ring", "agents": 5},
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 3, "records": 20, "test_records": 20},
        },
        "algorithm": {"kind": "dp_dsgd", "y": {"scale": 0.5}, "rounds": 3},
        "privacy": {"delta": 1e-5, "clip": {"y": 1.0}, "y": {"scale": 0.5}},
        "run": run,
    }


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_it_is_told_agent_round_channel_and_neighbours(blocks: int) -> None:
    SEEN.clear()
    run = decentral_dp.run(scenario(blocks=blocks), mechanism=Told())
    weights = run.simulation().topology.mixing.toarray()
    told = {(d.agent, d.release): d for d in SEEN if d.channel}
    assert {(a, t) for a, t in told if t > 0} == {(a, t) for a in range(5) for t in range(1, 4)}
    for (agent, index), drawing in told.items():
        assert (drawing.round, drawing.channel) == (index, "y")
        assert drawing.neighbours.tolist() == sorted([(agent - 1) % 5, (agent + 1) % 5])
        np.testing.assert_allclose(drawing.weights, weights[agent, drawing.neighbours])
    np.testing.assert_array_equal(run.released["y"], decentral_dp.run(scenario(), mechanism=Told()).released["y"])


def test_one_that_does_not_ask_is_called_as_before() -> None:
    SEEN.clear()
    run = decentral_dp.run(scenario(), mechanism=Untold())
    assert not SEEN
    assert run.result.status == "ok"


def test_coordinators_have_no_neighbours() -> None:
    one = DrawContext()
    assert (one.agent, one.neighbours.size, one.weights.size) == (-1, 0, 0)
