"""Test federated averaging, isolated agents and a trusted server by loops of their formulas and adversarial servers."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.gossip.federated import Federated
from decentral_dp.algorithms.protocol import StepSize
from tests.conformance.gossip import GossipConformance, Shares, largest
from tests.support import naive
from tests.support.naive import CLIPS, Loop, finished, made, squares

TABLE = {"kind": "federated", "rounds": 5, "learning_rate": {"scale": 0.3, "decay": 0.2}, "momentum": 0.4}
RING = {"kind": "ring", "agents": 4}


def base(*guarantee: str, **changes: Any) -> dict[str, Any]:
    content = naive.base({**TABLE, **changes.pop("algorithm", {})}, *guarantee, **changes)
    return content | {"privacy": only_y(content["privacy"])}


def only_y(privacy: Any) -> dict[str, Any]:
    out = {key: value for key, value in privacy.items() if key not in ("x", "z")}
    return out | ({"clip": CLIPS["y"]} if "clip" in out else {})


class Naive(Loop):
    """The server's loop, over agents that answer with noise."""

    def run(self) -> list[dict[str, np.ndarray]]:
        x, y = (np.full(2, self.algorithm.start[c]) for c in "xy")
        before = y
        for t in range(self.job.rounds + 1):
            self.say(2 * t, "x", [x] * self.m, False)
            self.say(2 * t, "y", [y] * self.m, False)
            if t == self.job.rounds:
                return self.told
            step = 0.3 / (t + 1) ** 0.2
            u = [-step * self.mean("lower_grad_y", t, i, x, y, y) for i in range(self.m)]
            mean = sum(self.say(2 * t + 1, "u", u, True), np.zeros(2)) / self.m
            y, before = y + 0.4 * (y - before) + mean, y
        return self.told


class TestFederated(GossipConformance):
    loop = Naive
    table = TABLE
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    hosted = ("crossed",)
    rounds, seeds = 4, 12
    moved = MappingProxyType({"train": {"u"}, "validation": set()})
    short = ({"rounds": 1},)
    # No paper prints another form.
    test_printed_has_its_noise_where_the_paper_has_it = None
    test_protocols_differ_only_by_noise = None

    def content(self, *guarantee: Any, **tables: Any) -> dict[str, Any]:
        content = super().content(*guarantee, **tables)
        return content | {"privacy": only_y(content["privacy"])}

    def free(self, kind: str) -> set[str]:
        return {"x", "y"}

    def certified(self) -> Any:
        return Federated(StepSize(0.5, 0.3), momentum=0.4, start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            return {"u": rng.normal(size=(1, 2))}, rng.normal(size=(1, 4 if e == 0 else 2)) * 5

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert kind == "validation" or largest(every, "u").min() > 0.99


@pytest.mark.parametrize("topology", [RING, {"kind": "star", "agents": 5}])
def test_without_noise_it_is_gradient_descent_on_the_mean(topology: dict[str, Any]) -> None:
    """y ← y + β (y − y before) − λ (H y − c), H and c the means of moments of each agent's records."""
    content = base("none", topology=topology)
    content["problem"]["normalise"] = "l2"
    job = made("quadratic", content)
    start = job.algorithm.start
    parts = [(s.hessian, s.linear + 0.5 * start["x"]) for s in squares(job)]
    hessian, linear = (np.mean(each, axis=0) for each in zip(*parts, strict=True))
    y = before = np.full(2, start["y"])
    for t in range(5):
        step = 0.3 / (t + 1) ** 0.2
        y, before = y + 0.4 * (y - before) - step * (hessian @ y - linear), y
    np.testing.assert_allclose(
        finished(job).last_snapshot.released["y"], np.tile(y, (job.n_agents, 1)), rtol=0, atol=1e-12
    )


# Isolated agents and a trusted server ---------------------------------------------------------------------------------

SET = {"algorithm.rounds": 20, "topology.agents": 5, "run.evaluate_every": 20}
FREE = SET | {"privacy": {"guarantee": "none"}, "algorithm.learning_rate": {"scale": 0.5}}


def test_agents_alone_are_dp_dsgd_without_links() -> None:
    alone = decentral_dp.run("alone", set=FREE)
    apart = decentral_dp.run("alone", set=FREE | {"algorithm.kind": "dp_dsgd", "topology.kind": "isolated"})
    np.testing.assert_array_equal(alone.released["y"], apart.released["y"])
    assert alone.result.communication is not None
    assert alone.result.communication.messages == 0


def test_a_trusted_server_has_the_records_of_all() -> None:
    job = decentral_dp.build("central", set=SET)
    apart = decentral_dp.build("federated", set=SET).simulation()
    shards = job.simulation().shards
    assert job.n_agents == 1
    assert shards.train[0].tolist() == [i for index in apart.shards.train for i in index]
    assert shards.test.tolist() == apart.shards.test.tolist()
    x, y = job.simulation().ledger.charged_channels
    clip, step = job.simulation().clip.y, strip_centring(job.simulation().algorithm).learning_rate.scale
    records = int(apart.shards.train_counts.sum())
    np.testing.assert_allclose(y.sensitivity["train"], 2 * clip * step / records, rtol=1e-8)
    # Mean of the features.
    np.testing.assert_allclose(x.sensitivity["train"], 2 * job.simulation().clip.x / records, rtol=1e-8)
    assert job.plan().communication.messages == 0
    assert "whom all 5 agents trust" in " ".join(str(job.plan()).split())


def test_without_noise_a_trusted_server_is_federated_averaging_where_agents_have_equally_many() -> None:
    records = {"dimension": 3, "records": 20, "test_records": 10}
    kind = {"kind": "classification", "data": "synthetic_classification", "normalise": "l2", "synthetic": records}
    made_up = FREE | {"problem": kind, "algorithm.centring": False}
    ends = [
        decentral_dp.run("federated", set=made_up | {"algorithm.kind": kind}).released["y"][0]
        for kind in ("federated", "central")
    ]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-10)


def test_all_that_an_agent_holds_is_one_clipped_block() -> None:
    given = {"algorithm.learning_rate": {"scale": 0.5}, "privacy.clip": 1.0}
    job = decentral_dp.build("federated", set=SET | given | {"privacy.unit": "agent", "algorithm.local_steps": 3})
    (u,) = job.simulation().ledger.charged_channels
    assert u.channel == "u"
    assert job.ledger.releases_per_round == 2
    bound = job.simulation().clip.y
    assert (u.sensitivity["train"] >= 2 * bound).all()
    assert (u.sensitivity["train"] < 2.001 * bound).all()
