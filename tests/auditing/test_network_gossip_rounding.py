"""The effect of float64 on network DP: the bound, compared with runs of the engine and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from decentral_dp import topology
from decentral_dp.auditing.network_gossip import Messages, NetworkBudget, certified_epsilon, pairwise, rounding
from decentral_dp.auditing.network_view import compute_view
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.privacy.accounting.accountants import gaussian_epsilon
from decentral_dp.privacy.accounting.float_slack import noise_alone
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.randomness import Streams, seeded_root, tag
from decentral_dp.privacy.releasers import NoiseSchedule, ScheduledReleaser
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.network_jobs import CLIP, LAMBDA, RIDGE, job_of
from tests.support.release_cost_oracle import grid


def messages(job: Job) -> list[Any]:
    sent: list[Any] = []

    def keep(snap: Any) -> bool:
        sent.append(snap.released["y"])
        return False

    LocalEngine().run(job.nodes(), job.rounds, RunControl(range(1, job.rounds + 1), keep))
    return sent


def of(job: Job) -> Messages:
    step = LAMBDA * (np.arange(job.rounds) + 1.0) ** -0.2
    noise = job.noise["y"].scales(np.arange(1, job.rounds + 1), "gaussian")
    one, added = np.ones(job.rounds), step * (CLIP + RIDGE * 0.3)
    mixing = job.topology.mixing.toarray()
    return Messages(mixing, one, step * (1 + RIDGE), noise, job.problem.q, 0.0 * noise, 0.0, added)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_everything_sent_lies_on_the_grid_of_its_noise(kind: str) -> None:
    """For every public part: its low bits depend on received messages."""
    rng = np.random.default_rng(1)
    schedule = NoiseSchedule(10.0 ** rng.uniform(-3, 3, 5), np.zeros(5))
    mechanism = ScheduledReleaser(kind, {"y": schedule}, Streams(seeded_root(1, b""), "noise", np.arange(5)))
    spread = {"train": Sensitivity(np.ones(5), np.ones(5), None)}
    public = rng.normal(size=(5, 40)) * 10.0 ** rng.uniform(-8, 4, (5, 1))
    value = Bounded(public, rng.normal(size=(5, 40)), spread, "l1" if kind == "laplace" else "l2")
    cells = grid(schedule.scales(3, kind), kind, 40)[:, None]
    released = mechanism.release(3, {"y": value})["y"]
    assert (np.mod(released, cells) == 0.0).all()
    assert (np.mod(public, cells) != 0.0).mean() > 0.9


@pytest.mark.parametrize("members", [[], [2], [0, 5]])
def test_a_run_strays_from_real_arithmetic_by_less_than_the_bound(members: list[int]) -> None:
    """The engine's own messages and noise, against the recursion in real numbers; the bound is met within a factor."""
    job = job_of("privacy.y.scale=0.05")
    sent, told, m, q = messages(job), of(job), job.n_agents, job.problem.q
    streams, inside = Streams(job.root, "noise", np.arange(m)), np.isin(np.arange(m), members)
    path, strayed = np.zeros((m, q)), 0.0
    for t in range(job.rounds):
        step = LAMBDA * (t + 1.0) ** -0.2
        means = []
        for records, n in zip(job.records["train"], job.sampling.averaged_counts(t, job.counts["train"]), strict=True):
            rows = records.features[:n]
            means.append((rows * np.minimum(1.0, CLIP / np.linalg.norm(rows, axis=1))[:, None]).mean(axis=0))
        real = path + told.mixing @ path - step * ((1 + RIDGE) * path - RIDGE * 0.3) + step * np.array(means)
        deviation = told.noise[t][:, None]
        cells = grid(told.noise[t], "gaussian", q)[:, None]
        noise = deviation * np.array([streams.generator(i, t + 1, tag("y")).standard_normal(q) for i in range(m)])
        before = sent[t] - cells * np.rint(noise / cells)
        off = np.linalg.norm(before - real, axis=1) / told.noise[t]
        strayed += float((off[~inside] ** 2).sum())
        path = np.where(inside[:, None], real, before) + noise
    bound = float(rounding(told, (tuple(members),))[0])
    assert 0.15 * bound < math.sqrt(strayed) <= bound


def test_the_bound_by_hand() -> None:
    """Two rounds of two agents that see each other, one coordinate, noise of 1 and of 4."""
    mixing, ones = np.array([[-0.25, 0.25], [0.25, -0.25]]), np.ones(2)
    noise = np.array([[1.0, 4.0], [1.0, 4.0]])
    told = Messages(mixing, ones, np.array([0.0, 0.125]), noise, 1, np.full((2, 2), 2.0**-20), 0.0, 0.0 * ones)
    small, large = 2.0**-16, 2.0**-14
    alone = [large + 2.0**-20, large + 0.625 * large / 2 + 0.25 * (small + small / 2) + 2.0**-20]
    assert rounding(told, ((0,),))[0] == pytest.approx(math.hypot(*alone) / 4.0, rel=1e-6)
    nobody = [small + 2.0**-20, small + 0.625 * small / 2 + 0.25 * large / 2 + 2.0**-20]
    other = [large + 2.0**-20, large + 0.625 * large / 2 + 0.25 * small / 2 + 2.0**-20]
    assert rounding(told, ((),))[0] == pytest.approx(math.hypot(*nobody, *(v / 4 for v in other)), rel=1e-6)


def test_messages_that_outgrow_their_grid_are_not_certified() -> None:
    job = job_of()
    told = of(job)
    assert np.isfinite(rounding(told, ((0,),))).all()
    for changed in (told._replace(start=1e17), told._replace(largest_addition=told.largest_addition * 1e17)):
        assert np.isinf(rounding(changed, ((0,), (1, 2)))).all()


def test_the_certified_number_by_hand() -> None:
    pairs = NetworkBudget(((0,),), np.array([[np.nan, 0.4, 0.001, 3.0]]), np.zeros((1, 4), np.int64), np.ones(4))
    every, n, delta = np.array([9.0, 9.0, 9.0, 2.5]), 1000, 1e-6
    got = certified_epsilon(pairs.mu, np.array([0.01]), np.array([n]), 1, delta, every)[0]
    assert np.isnan(got[0])
    assert got[3] == 2.5
    for k in (1, 2):
        mu = pairs.mu[0, k] + 0.02
        reach = min(every[k], 1.0 + float(gaussian_epsilon(mu, delta)))
        by_share = []
        for share in (2.0**-10, 2.0**-14, 2.0**-18, 2.0**-22, 2.0**-26):
            lost = share * delta * math.exp(-reach)
            tau = float(noise_alone(n, GAUSSIAN.bits(1), lost))
            left = (delta - lost) * math.exp(-tau) - share * delta
            by_share.append(float(gaussian_epsilon(mu, left)) + 2.0 * tau)
        assert got[k] == pytest.approx(min(by_share), rel=1e-12)
        assert got[k] > gaussian_epsilon(mu, delta)
    # If the samplers may use δ, or without a bound, only the ε of all messages is left.
    np.testing.assert_array_equal(
        certified_epsilon(pairs.mu, np.array([0.01]), np.array([10**15]), 1, delta, every)[0, 1:], every[1:]
    )
    np.testing.assert_array_equal(
        certified_epsilon(pairs.mu, np.array([np.inf]), np.array([n]), 1, delta, every)[0, 1:], every[1:]
    )


def test_a_job_counts_every_coordinate_and_every_noise_outside_the_observer() -> None:
    job = job_of()
    view = compute_view(job, [[3], [0, 1]])
    told = of(job)
    seen = job.sampling.averaged_counts(np.arange(job.rounds)[:, None], job.counts["train"])
    step = LAMBDA * (np.arange(job.rounds) + 1.0) ** -0.2
    sensitivity = step[:, None] * 2 * CLIP / seen
    told = told._replace(sum_error=sensitivity * 1.01 * seen * (seen + told.dimension + 8) * 2.0**-53)
    draws = np.array([8, 7]) * job.rounds * job.problem.q
    pairs = pairwise(job.topology.mixing, told.contraction, sensitivity, told.noise, [[3], [0, 1]],
                     np.diff(seen, axis=0, prepend=0) > 0)  # fmt: skip
    nu, every = rounding(told, pairs.observers), job.budget.epsilon
    wanted = certified_epsilon(pairs.mu, nu, draws, job.problem.q, 1e-5, every)
    np.testing.assert_allclose(view.certified, wanted, rtol=1e-9)


def test_more_to_round_is_more_to_pay() -> None:
    mixing, ones = topology.build_topology("ring", 6).mixing.toarray(), np.ones(9)
    noise = np.full((9, 6), 0.3)
    base = Messages(mixing, ones, 0.1 * ones, noise, 4, 0.0 * noise, 0.0, 0.1 * ones)
    nu = float(rounding(base, ((0,),))[0])
    assert rounding(base._replace(dimension=16), ((0,),))[0] == pytest.approx(2.0 * nu, rel=1e-9)
    assert rounding(base._replace(noise=noise * 2, largest_addition=0.2 * ones), ((0,),))[0] == pytest.approx(
        nu, rel=1e-6
    )
    longer = Messages(
        mixing, np.ones(36), np.full(36, 0.1), np.full((36, 6), 0.3), 4, np.zeros((36, 6)), 0.0, np.full(36, 0.1)
    )
    assert rounding(longer, ((0,),))[0] == pytest.approx(2.0 * nu, rel=0.05)
