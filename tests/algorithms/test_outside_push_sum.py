"""Push-sum as an author writes it: shares, a channel of one number in the clear, and what is published instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip

STEP = StepSize(0.5)
ARCS = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])


class State(NamedTuple):
    x: np.ndarray
    y: Any
    w: np.ndarray


@dataclass(frozen=True)
class Push:
    """Push-sum of an author's own."""

    y: StepSize
    channels: ClassVar[Any] = ("x", "y", "w")
    RELEASES: ClassVar[Any] = {"y": {"lower_grad_y": "y"}, "w": {}}
    WIDTHS: ClassVar[Any] = {"w": 1}
    conserves_mass: ClassVar[bool] = True

    def init(self, dataset: Any, x: np.ndarray, y: np.ndarray) -> State:
        return State(x, y, dataset.public(1.0, 1))

    def solution(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": values["y"] / values["w"]}

    def step(self, t: int, dataset: Any, s: State) -> Any:
        own, near = yield Gossip(y=s.y, w=s.w)
        u, w = (dataset.kept_weight * own[c] + near[c] for c in ("y", "w"))
        return State(s.x, u - self.y(t) * dataset.batch(t).lower_grad_y(s.x, u / w), w)


class Gossiping(Push):
    """Does not say that it averages with shares."""

    conserves_mass = False


def content(**privacy: Any) -> dict[str, Any]:
    return {
        "seed": 5,
        "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges", "test": 0.2},
        "algorithm": {"kind": "push_sum", "rounds": 9, "y": {"scale": 0.5}},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 0.1}} | privacy,
        "run": {"average": 1, "measures": ["lower_loss"]},
    }


@pytest.mark.parametrize("drop", [0.0, 0.3])
def test_an_authors_push_sum_is_that_of_the_package(drop: float) -> None:
    plain = content() | {"privacy": {"guarantee": "none"}}
    keys = {"topology.drop": drop}
    own = decentral_dp.run(plain, set=keys, topology=ARCS, algorithm=Push(STEP))
    ours = decentral_dp.run(plain, set=keys, topology=ARCS)
    for channel in ("y", "w"):
        np.testing.assert_allclose(own.released[channel], ours.released[channel], rtol=0, atol=1e-14)
    priced = decentral_dp.run(content(), set=keys, topology=ARCS, algorithm=Push(STEP))
    assert priced.records.same_releases(priced.simulation().ledger)
    assert priced.result.privacy.epsilon_max == pytest.approx(4.0, rel=1e-3)


def test_a_directed_graph_needs_an_algorithm_that_conserves_mass() -> None:
    with pytest.raises(InputError, match="is directed, and Gossiping averages"):
        decentral_dp.plan(content(), topology=ARCS, algorithm=Gossiping(STEP))
