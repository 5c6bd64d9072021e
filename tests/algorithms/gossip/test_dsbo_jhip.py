"""DSBO-JHIP against the loops of its paper, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms import protocol
from decentral_dp.algorithms.gossip.dsbo_jhip import DsboJhip
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from papers.published.gossip import PublishedDsboJhip
from tests.conformance.gossip import Shares, Told
from tests.conformance.gossip_tracking import TrackingConformance
from tests.support import uneven
from tests.support.naive import built, finished
from tests.support.replay import Noise
from tests.support.uneven import PROBLEMS, Uneven, made, naive_mean, stationary

ALGORITHM: dict[str, Any] = {
    "kind": "dsbo_jhip",
    "x": {"scale": 0.4, "decay": 0.5},
    "y": {"scale": 0.3, "decay": 0.2},
    "z": {"scale": 0.2, "decay": 0.1},
    "inner": 2,
    "inverse": 3,
}


def base(guarantee: str = "certified", **more: Any) -> Any:
    return uneven.base(ALGORITHM | more, guarantee)


# Naive loops ---------------------------------------------------------------------------------------------------------


def naive(
    job: Job, kind: str, noise: Noise, clips: Mapping[str, float], separately: bool | None = None
) -> list[dict[str, np.ndarray]]:
    """Return all messages, by loops over agents and (q, p) matrices.

    separately: whether D moves by S^{k+1} − S^k, as in the paper, or by one product along Z^{k+1} − Z^k. By
    default as in the paper without clips.
    """
    algorithm, separately = job.algorithm, not np.isfinite(clips["z"]) if separately is None else separately
    assert isinstance(algorithm, DsboJhip | PublishedDsboJhip)
    weights, m, reads_records = job.topology.mixing.toarray(), job.n_agents, job.problem.reads_records
    printed, per_round = algorithm.protocol == "as_published", 1 + algorithm.inner + algorithm.inverse
    told: list[dict[str, np.ndarray]] = [{} for _ in range(job.rounds * per_round + 1)]

    def say(index: int, channel: str, values: list[np.ndarray], noised: bool) -> list[np.ndarray]:
        out = [v + noised * noise(index, channel, i, v.size).reshape(v.shape) for i, v in enumerate(values)]
        told[index][channel] = np.array([v.ravel() for v in out])
        return out

    def mixed(i: int, own: np.ndarray, heard: list[np.ndarray]) -> np.ndarray:
        return (1.0 + weights[i, i]) * own + sum((weights[i, j] * heard[j] for j in range(m) if j != i), 0.0 * own)

    def mean(term: str, t: int, i: int, z: Any = None) -> np.ndarray:
        return naive_mean(job, t, i, term, at[i], y[i], clips, z)

    x = [np.full(3, algorithm.start["x"]) for _ in range(m)]
    y = [np.full(2, algorithm.start["y"]) for _ in range(m)]
    y_said = list(y)
    for t in range(job.rounds):
        index = t * per_round
        x_said = say(index, "x", x, printed or (t > 0 and "upper_grad_x" in reads_records))
        at = x if printed else x_said
        for k in range(algorithm.inner):
            y = [mixed(i, y[i], y_said) - algorithm.y(t) * mean("lower_grad_y", t, i) for i in range(m)]
            y_said = say(index + 1 + k, "y", y, True)
            y = y if printed else y_said
        h = [mean("upper_grad_y", t, i) for i in range(m)]
        jacobian = [mean("lower_jacobian", t, i) for i in range(m)]
        z = [np.zeros((2, 3)) for _ in range(m)]
        s = [-j.T for j in jacobian]
        d = list(s)
        for k in range(algorithm.inverse):
            spot = index + 1 + algorithm.inner + k
            z_said = say(spot, "Z", z, printed and k > 0)
            d_said = say(spot, "D", d, printed or ("lower_hvp" if k else "lower_jvp") in reads_records)
            if k == 0 and not printed:
                h = say(spot, "h", h, True)
            d = d if printed else d_said
            before = z if printed else z_said
            z = [mixed(i, before[i], z_said) - algorithm.z(t) * d[i] for i in range(m)]
            new = [mean("lower_hessian_product", t, i, z[i]) - jacobian[i].T for i in range(m)]
            sensitivity = [new[i] - s[i] for i in range(m)]
            if not separately:
                sensitivity = [mean("lower_hessian_product", t, i, z[i] - before[i]) for i in range(m)]
            d = [mixed(i, d[i], d_said) + sensitivity[i] for i in range(m)]
            s = new
        x = [mixed(i, at[i], x_said) - algorithm.x(t) * (mean("upper_grad_x", t, i) - z[i].T @ h[i]) for i in range(m)]
    last = job.rounds * per_round
    say(last, "x", x, printed or "upper_grad_x" in reads_records)
    say(last, "y", y, printed)
    return told


# Conformance ---------------------------------------------------------------------------------------------------------

INNER, INVERSE = 2, 4


class TestDsboJhip(TrackingConformance):
    table = ALGORITHM
    small = uneven.SMALL
    kinds = hosted = tuple(PROBLEMS)
    tracked_on = ("all",)
    differs = "D at 5"
    seeds = 8
    moved = MappingProxyType({"train": {"y", "D"}, "validation": {"x", "h"}})
    _round = ((0, "lower_grad_y"), (1, "lower_grad_y"), (2, "upper_grad_y"), (2, "lower_jacobian"))
    _products = ("lower_hessian_product", "lower_jacobian")
    asked = MappingProxyType(
        {
            "released": (*_round, *((2, "lower_hessian_product") for _ in range(2)), (5, "upper_grad_x")),
            "as_published": (*_round, *product((3, 4), _products), (5, "upper_grad_x")),
        }
    )

    def told(self, *job: Any, separately: bool | None = None) -> Told:
        return naive(*job, separately=separately)

    def certified(self) -> DsboJhip:
        start = {"x": 0.7, "y": -0.4}
        return DsboJhip(StepSize(0.4, 0.5), StepSize(0.3, 0.2), StepSize(0.2, 0.1), INNER, INVERSE, start=start)

    def scene(self, worst: bool) -> Any:
        """At worst Z goes far from one k to the next."""

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: rng.normal(size=(1, w)) for c, w in {"x": 3, "y": 2, "D": 6, "h": 2}.items()}
            message = rng.normal(size=(1, 3 if e == 0 else 2 if e <= INNER else 14 if e == INNER + 1 else 12))
            if worst and e > INNER:
                message[0, :6] = 50.0 * (-1) ** e
            return own, message

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        for one in every[::2]:
            assert min(one[channel].min() for channel in self.moved[kind]) > 0.999


# Limits --------------------------------------------------------------------------------------------------------------


def truncated(step: float, inverse: int) -> Any:
    def series(hessian: np.ndarray) -> np.ndarray:
        return step * np.sum([np.linalg.matrix_power(np.eye(2) - step * hessian, k) for k in range(inverse)], axis=0)

    return series


def test_one_agent_ends_where_so_many_steps_of_z_say() -> None:
    """N steps of size γ from 0 are the first N terms of a Neumann series: a bias in closed form."""
    apart = []
    for inverse in (1, 3, 40):
        steps = {"x": {"scale": 0.3}, "y": {"scale": 0.3}, "z": {"scale": 0.15}}
        rounds = 150 if inverse < 40 else 60
        content = base("none", **steps, inverse=inverse, inner=3, rounds=rounds)
        job = made("all", content | {"topology": {"kind": "complete", "agents": 1}})
        end = finished(job).last_snapshot.released["x"][0]
        np.testing.assert_allclose(end, stationary(job, truncated(0.15, inverse)), atol=1e-7)
        apart.append(np.abs(end - stationary(job, np.linalg.inv)).max())
    assert apart[0] > 0.02
    assert apart[0] > 1.5 * apart[1]
    assert apart[2] < 1e-5


# Plans ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inverse", [1, 2, 3])
def test_the_tracker_is_charged_where_it_reads_a_record_and_nowhere_else(inverse: int) -> None:
    for without in ((), ("lower_jvp",), ("lower_hvp",), ("lower_jvp", "lower_hvp")):
        job = built(decentral_dp.load(base(inverse=inverse)), Uneven(without=without))
        ledger = finished(job).ledger
        assert ledger.same_releases(job.ledger)
        charged = [] if "lower_jvp" in without else [0]
        charged += [] if "lower_hvp" in without else range(1, inverse)
        tracker = next(c for c in ledger.channels if c.channel == "D")
        assert [int(i) % job.algorithm.releases_per_round - 3 for i in tracker.rounds if tracker.mechanism.charged] == (
            charged * job.rounds
        )


# Refusals ------------------------------------------------------------------------------------------------------------


def test_messages_that_are_too_large_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "LARGEST_MESSAGE", 8 * 12 - 1)
    with pytest.raises(InputError, match=r"dsbo_jhip is too large .got 96 bytes with p = 3 and q = 2"):
        made("all", base())
    monkeypatch.setattr(protocol, "LARGEST_MESSAGE", 8 * 12)
    made("all", base())
