"""GBDSBO against the loops of its paper, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from decentral_dp.algorithms.gossip.gbdsbo import Gbdsbo
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from papers.published.gossip import PublishedGbdsbo
from tests.conformance.gossip import GossipConformance, Shares, Told
from tests.support import uneven
from tests.support.naive import SAMPLINGS, finished
from tests.support.replay import Noise, conversation
from tests.support.uneven import PROBLEMS, made, naive_mean, stationary

ALGORITHM: dict[str, Any] = {
    "kind": "gbdsbo",
    "x": {"scale": 0.4, "decay": 0.5},
    "y": {"scale": 0.3, "decay": 0.2},
    "averaging": {"scale": 0.6, "decay": 0.3},
    "inverse": 3,
    "smoothness": 4.0,
}


def base(guarantee: str = "certified", sampling: Any = "full", **more: Any) -> Any:
    return uneven.base(ALGORITHM | more, guarantee, problem={"sampling": sampling})


# Naive loops ---------------------------------------------------------------------------------------------------------


def naive(job: Job, kind: str, noise: Noise, clips: Mapping[str, float]) -> list[dict[str, np.ndarray]]:
    """Return all messages, by loops over agents and explicit matrices, including q."""
    algorithm = job.algorithm
    assert isinstance(algorithm, Gbdsbo | PublishedGbdsbo)
    weights, m, b = job.topology.mixing.toarray(), job.n_agents, algorithm.inverse
    printed = algorithm.protocol == "as_published"
    terms = {"s": "upper_grad_x", "h": "upper_grad_y", "u": "lower_jacobian"}
    terms |= {f"v{j}": "lower_hessian" for j in range(1, b + 1)}
    own: list[dict[str, np.ndarray]] = []
    for _ in range(m):
        zero = {"s": np.zeros(3), "h": np.zeros(2), "u": np.zeros((3, 2))}
        zero |= {c: np.zeros((2, 2)) for c in terms if c[0] == "v"}
        own.append({"x": np.full(3, algorithm.start["x"]), "y": np.full(2, algorithm.start["y"]), **zero})
    reads = {"lower_jacobian": "lower_jvp", "lower_hessian": "lower_hvp"}
    touched = {c for c, term in terms.items() if reads.get(term, term) in job.problem.reads_records} | {"y"}
    told = []
    for t in range(job.rounds + 1):
        sent = ["x", "y"] if t == job.rounds else list(own[0])
        said = []
        for i in range(m):
            out = {}
            for c in sent:
                noised = printed or (t > 0 and c in touched)
                out[c] = own[i][c] + noised * noise(t, c, i, own[i][c].size).reshape(own[i][c].shape)
            said.append(out)
        told.append({c: np.array([out[c].ravel() for out in said]) for c in sent})
        if t == job.rounds:
            break
        used = own if printed else said
        new = []
        for i in range(m):
            mine = used[i]
            mixed = {
                c: (1.0 + weights[i, i]) * v + sum((weights[i, j] * said[j][c] for j in range(m) if j != i), 0.0 * v)
                for c, v in mine.items()
            }
            x, y, beta = mine["x"], mine["y"], algorithm.averaging(t)
            q = np.eye(2)
            for j in range(1, b + 1):
                q = np.eye(2) + (np.eye(2) - mine[f"v{j}"] / algorithm.smoothness) @ q
            q = q / algorithm.smoothness
            after = {
                c: (1 - beta) * mixed[c] + beta * naive_mean(job, t, i, term, x, y, clips) for c, term in terms.items()
            }
            after["x"] = mixed["x"] - algorithm.x(t) * (mine["s"] - mine["u"] @ q @ mine["h"])
            after["y"] = mixed["y"] - algorithm.y(t) * naive_mean(job, t, i, "lower_grad_y", x, y, clips)
            new.append({c: after[c] for c in mine})
        own = new
    return told


# Conformance ---------------------------------------------------------------------------------------------------------


class TestGbdsbo(GossipConformance):
    table = ALGORITHM
    small = uneven.SMALL
    kinds = hosted = tuple(PROBLEMS)
    longer = MappingProxyType({"rounds": 5})
    # In one round with a step of zero nothing moves.
    rounds, seeds = 4, 8
    moved = MappingProxyType({"train": {"y", "u", "v1", "v2"}, "validation": {"s", "h"}})

    def told(self, *job: Any) -> Told:
        return naive(*job)

    def certified(self) -> Gbdsbo:
        start = {"x": 0.7, "y": -0.4}
        return Gbdsbo(StepSize(0.4, 0.5), StepSize(0.3, 0.2), StepSize(0.6, 0.3), 2, 4.0, start=start)

    def scene(self, worst: bool) -> Any:
        widths = {c: channel.width for c, channel in self.certified().releases(3, 2).items()}

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            return {c: rng.normal(size=(1, w)) for c, w in widths.items()}, rng.normal(size=(1, sum(widths.values())))

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        for one in every[::2]:
            assert min(one[channel].min() for channel in self.moved[kind]) > 0.999


def test_every_hessian_has_a_sample_of_its_own() -> None:
    for sampling, alike in zip(SAMPLINGS, (True, True, False), strict=True):
        said = conversation(made("all", base("none", sampling=sampling)))[1]
        assert np.array_equal(said["v1"], said["v2"]) == alike


# Limits --------------------------------------------------------------------------------------------------------------


def truncated(smoothness: float, inverse: int) -> Any:
    def series(hessian: np.ndarray) -> np.ndarray:
        powers = [np.linalg.matrix_power(np.eye(2) - hessian / smoothness, k) for k in range(inverse + 1)]
        return np.sum(powers, axis=0) / smoothness

    return series


def test_one_agent_ends_where_the_truncated_series_says() -> None:
    """The bias of b + 1 terms, by closed form; it vanishes as b grows."""
    apart = []
    for inverse in (1, 4, 16):
        steps = {"x": {"scale": 0.2}, "y": {"scale": 0.3}, "averaging": {"scale": 0.5}}
        content = base("none", **steps, inverse=inverse, smoothness=8.0, rounds=250) | {
            "topology": {"kind": "complete", "agents": 1}
        }
        job = made("all", content)
        end = finished(job).last_snapshot.released["x"][0]
        np.testing.assert_allclose(end, stationary(job, truncated(8.0, inverse)), atol=1e-9)
        apart.append(np.abs(end - stationary(job, np.linalg.inv)).max())
    assert apart[0] > 0.01
    assert apart[0] > 2 * apart[1] > 40 * apart[2]


# Plans ---------------------------------------------------------------------------------------------------------------


def test_printed_proves_nothing_but_of_what_met_no_record() -> None:
    job = made("all", base("as_published"), priced=True)
    accumulated = {c.channel: np.isinf(c.sensitivity["train"]).all(axis=1) for c in job.ledger.charged_channels}
    assert accumulated.pop("x").tolist() == [False, True, True]
    assert all(m.all() for m in accumulated.values())
    assert np.isinf(job.budget.epsilon).all()
