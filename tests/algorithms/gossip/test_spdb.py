"""SPDB against a loop of its formulas, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.spdb import Spdb
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import GossipConformance, Shares, largest
from tests.support.naive import (
    Loop,
    base,
    ledgers,
    made,
    series,
    settled,
    squares,
)

ALGORITHM = {
    "kind": "spdb",
    "x": {"scale": 0.4, "decay": 0.2},
    "y": {"scale": 0.5, "decay": 0.1},
    "penalty": 0.7,
    "dual": {"scale": 0.3, "decay": 0.4},
    "smoothness": 3.0,
    "inverse": 3,
}


class Naive(Loop):
    """The formulas, agent by agent, with a multiplier for every edge."""

    def run(self) -> list[dict[str, np.ndarray]]:
        a, e = self.algorithm, self.per_round
        x, y = self.start("x"), self.start("y")
        pair = {(i, j): np.zeros(2) for i in range(self.m) for j in range(self.m) if i != j}
        for t in range(self.job.rounds):
            alpha, beta, dual = (s.scale / (t + 1) ** s.decay for s in (a.x, a.y, a.dual))
            x_said = self.say(t * e, "x", x, self.printed or (self.reads_x and t > 0))
            y_said = self.say(t * e, "y", y, self.printed or t > 0)
            if not self.printed:
                x, y = x_said, y_said
            for (i, j), value in pair.items():
                pair[i, j] = value + dual * (x[i] - x_said[j])
            v = [self.mean("upper_grad_y", t, i, x[i], y[i], y[i]) for i in range(self.m)]
            w = self.zeros()
            for k in range(a.inverse):
                if k:
                    turned = [self.mean("lower_hvp", t, i, x[i], y[i], v[i]) for i in range(self.m)]
                    v = [v[i] - turned[i] / a.smoothness for i in range(self.m)]
                if not self.printed:
                    v = self.say(t * e + 1 + k, "v", v, True)
                w = [w[i] + v[i] / a.smoothness for i in range(self.m)]
            new_x, new_y = [], []
            for i in range(self.m):
                u = self.mean("upper_grad_x", t, i, x[i], y[i], w[i]) - self.mean("lower_jvp", t, i, x[i], y[i], w[i])
                others = [j for j in range(self.m) if j != i]
                multiplier = sum(self.weights[i, j] * pair[i, j] for j in others)
                apart = sum(self.weights[i, j] * (x[i] - x_said[j]) for j in others)
                new_x.append(x[i] - alpha * (u + multiplier + a.penalty * apart))
                new_y.append(y[i] - beta * self.mean("lower_grad_y", t, i, x[i], y[i], w[i]))
            x, y = new_x, new_y
        self.say(self.job.rounds * e, "x", x, self.printed or self.reads_x)
        self.say(self.job.rounds * e, "y", y, True)
        return self.told


# Conformance ---------------------------------------------------------------------------------------------------------


class TestSpdb(GossipConformance):
    loop = Naive
    table = ALGORITHM
    short = ({"inverse": 1, "rounds": 1}, {"inverse": 1, "rounds": 3}, {"inverse": 5, "rounds": 2})
    moved = MappingProxyType({"train": {"x", "y", "v"}, "validation": {"x", "v"}})

    def free(self, kind: str) -> set[str]:
        return set() if kind == "crossed" else {"x"}

    def certified(self) -> Spdb:
        return Spdb(StepSize(0.5, 0.2), StepSize(0.4), 1.0, StepSize(0.3), 2.0, 3, start={"x": 1.0, "y": 1.0})

    def scene(self, worst: bool) -> Any:
        """Points away from where any term vanishes."""

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: 1.0 + rng.random(size=(1, 2)) for c in ("x", "y", "v")}
            return own, rng.normal(size=(1, 4 if e == 0 else 2))

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        first = np.arange(9) % 3 == 0
        read, unread = (~first, first) if kind == "train" else (first, ~first)
        assert largest(every, "x").min() > 0.999
        assert kind == "validation" or largest(every, "y").min() > 0.999
        assert largest(every, "v")[read].min() > 0.999
        assert (largest(every, "v")[unread] == 0.0).all()


# Multipliers ---------------------------------------------------------------------------------------------------------


class Spied(NamedTuple):
    """A program that shows its multipliers."""

    program: Any
    seen: list[Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        s = yield from self.program.step(t, dataset, s)
        self.seen.append(s.multiplier)
        return s


def test_multipliers_add_to_zero_only_where_everybody_uses_what_was_released() -> None:
    """Test runs with noise in the released protocol; in the published one, values drift."""
    sums = []
    for guarantee in ("certified", "as_published"):
        job = made("crossed", base(ALGORITHM | {"rounds": 5}, guarantee))
        spied = Spied(job.algorithm, [])
        ledgers(job, spied)
        last = spied.seen[-1]
        sums.append(np.abs((last.value if isinstance(last, Bounded) else last).sum(axis=0)).max())
    assert sums[0] < 1e-12
    assert sums[1] > 1e-3


# Limits --------------------------------------------------------------------------------------------------------------


def limit(job: Job, terms: int) -> np.ndarray:
    """Σ_i M_i (Ā_i y_i*(x) − c̄_i) = 0, with M_i the series of agent i's Hessian and y_i*(x) = H_i⁻¹ (c_i + ½ x)."""
    left, right = np.zeros((2, 2)), np.zeros(2)
    for s in squares(job):
        m, inverse = series(s.hessian, 3.0, terms), np.linalg.inv(s.hessian)
        left += m @ s.upper @ inverse * 0.5
        right += m @ (s.target - s.upper @ inverse @ s.linear)
    return np.linalg.solve(left, right)


@pytest.mark.parametrize("topology", [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 4}])
def test_the_limit_is_the_root_of_the_mean_truncated_hypergradient(topology: dict[str, Any]) -> None:
    """Constant steps, agents with one class each: exact consensus, and every y is the agent's own."""
    flat = {"x": {"scale": 0.5}, "y": {"scale": 0.8}, "dual": {"scale": 0.5}, "rounds": 600}
    job, last = settled(ALGORITHM | flat, topology=topology)
    x = limit(job, 3)
    np.testing.assert_allclose(last.released["x"], np.tile(x, (4, 1)), atol=1e-6)
    own = np.stack([np.linalg.solve(s.hessian, s.linear + 0.5 * x) for s in squares(job)])
    np.testing.assert_allclose(last.released["y"], own, atol=1e-6)
    assert np.ptp(own, axis=0).max() > 0.1
