"""BSA against a loop of its formulas, against adversarial servers, and at its limits."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.bsa import Bsa
from decentral_dp.algorithms.protocol import StepSize
from tests.conformance.gossip import GossipConformance, Shares, largest
from tests.support.closed_forms import optimum_of
from tests.support.naive import (
    Loop,
    Vectors,
    base,
    made,
    series,
    settled,
    squares,
)
from tests.support.replay import conversation

ALGORITHM = {
    "kind": "bsa",
    "x": {"scale": 0.6, "decay": 0.2},
    "y": {"scale": 0.5, "decay": 0.1},
    "inner": 2,
    "inverse": 3,
    "smoothness": 3.0,
}


class Naive(Loop):
    """The server's loop, over agents that answer with noise."""

    def run(self) -> list[dict[str, np.ndarray]]:
        a, index = self.algorithm, 0
        x, y = (np.full(2, a.start[c]) for c in "xy")

        def tell() -> None:
            self.say(index, "x", [x] * self.m, False)
            self.say(index, "y", [y] * self.m, False)

        def ask(channel: str, answers: Vectors, noised: bool = True) -> np.ndarray:
            nonlocal index
            index += 1
            return sum(self.say(index, channel, answers, noised), np.zeros(2)) / self.m

        def each(term: str, t: int, z: np.ndarray) -> Vectors:
            return [self.mean(term, t, i, x, y, z) for i in range(self.m)]

        for t in range(self.job.rounds):
            tell()
            for _ in range(a.inner):
                y = y - a.y.scale / (t + 1) ** a.y.decay * ask("gy", each("lower_grad_y", t, y))
            v = ask("v", each("upper_grad_y", t, y))
            w = v / a.smoothness
            for _ in range(a.inverse - 1):
                v = ask("v", [v - turned / a.smoothness for turned in each("lower_hvp", t, v)])
                w = w + v / a.smoothness
            u = [f - j for f, j in zip(each("upper_grad_x", t, w), each("lower_jvp", t, w), strict=True)]
            x = x - a.x.scale / (t + 1) ** a.x.decay * ask("gx", u, self.reads_x)
            index += 1
        tell()
        return self.told


# Conformance ---------------------------------------------------------------------------------------------------------


class TestBsa(GossipConformance):
    loop = Naive
    table = ALGORITHM
    blocks = (1, 2, 3, 4)
    short = (
        {"inner": 1, "inverse": 1, "rounds": 1},
        {"inner": 3, "inverse": 1, "rounds": 2},
        {"inner": 1, "inverse": 4, "rounds": 2},
    )
    moved = MappingProxyType({"train": {"gy", "v", "gx"}, "validation": {"v", "gx"}})

    test_protocols_differ_only_by_noise = None

    def free(self, kind: str) -> set[str]:
        return {"x", "y"} if kind == "crossed" else {"x", "y", "gx"}

    def same_ends(self, ends: Any) -> None:
        """To the last bit: the mean of all answers adds up in the same order everywhere."""
        for end in ends:
            for channel in "xy":
                assert np.array_equal(end[channel], ends[0][channel])
                assert (end[channel] == end[channel][0]).all()

    def certified(self) -> Bsa:
        return Bsa(StepSize(0.1, 0.2), StepSize(0.1), 2, 3, 2.0, start={"x": 9.0, "y": 9.0})

    def scene(self, worst: bool) -> Any:
        """Means of answers that keep the points away from where any term vanishes."""

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: rng.normal(size=(1, 2)) for c in ("gy", "v", "gx")}
            return own, 1.0 + rng.random(size=(1, 4 if e == 0 else 2))

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        first = np.arange(9) % 3 == 0
        read, unread = (~first, first) if kind == "train" else (first, ~first)
        assert largest(every, "gx").min() > 0.999
        assert kind == "validation" or largest(every, "gy").min() > 0.999
        assert largest(every, "v")[read].min() > 0.999
        assert (largest(every, "v")[unread] == 0.0).all()


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [1, 4])
@pytest.mark.parametrize("topology", [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 1}])
def test_the_quadratic_optimum_is_reached(inner: int, topology: dict[str, Any]) -> None:
    """Agents with one class each do not matter, the server averages Hessians; here even a short series has the root."""
    flat = {"x": {"scale": 2.0}, "y": {"scale": 0.8}, "inner": inner, "rounds": 300}
    job, last = settled(ALGORITHM | flat, topology=topology)
    optimum = optimum_of(job)
    m = job.n_agents
    np.testing.assert_allclose(last.released["x"], np.tile(optimum.x, (m, 1)), atol=1e-7)
    np.testing.assert_allclose(last.released["y"], np.tile(optimum.y, (m, 1)), atol=1e-7)


def test_w_is_the_truncated_series_of_the_mean_hessian() -> None:
    """x moves by α ½ w, w = (1/L) Σ_k (I − H/L)^k v_0, for H = mean_i H_i, v_0 = mean_i ∇_y f_i from moments."""
    job = made("quadratic", base(ALGORITHM | {"rounds": 2}, "none"))
    said, e, agents = conversation(job), job.algorithm.releases_per_round, squares(job)
    hessian = np.mean([s.hessian for s in agents], axis=0)
    for t in range(2):
        x, y = said[t * e]["x"][0], said[(t + 1) * e]["y"][0]
        v = np.mean([s.upper @ y - s.target for s in agents], axis=0)
        sensitivity = 0.6 / (t + 1) ** 0.2 * 0.5 * series(hessian, 3.0, 3) @ v
        np.testing.assert_allclose(said[(t + 1) * e]["x"][0], x - sensitivity, atol=1e-13)
