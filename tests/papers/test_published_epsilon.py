"""Published ε of decentralised papers, compared with other accountants, brute force and simulation."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from decentral_dp.bounded import Array
from decentral_dp.topology import build_topology
from papers import published_epsilon as published
from papers.published_epsilon import (
    BATCH,
    GRAPHS,
    PASSES,
    SHARD,
    certified_mu,
    constant_noise_mu,
    decor_mnist,
    decor_user_level,
    exposure,
    gaussian,
    laplacian,
    one_step_renyi,
    pn_f_dp,
    sampled,
    zcdp_rho,
)

RATE, ROUNDS = BATCH / SHARD, published.STEPS + 1
# Neighbours of an agent and itself, over which the scripts' weights are equal.
AROUND = {"complete": 16, "grid": 5, "ring": 3}


def zeroed_out(multiplier: float) -> float:
    """Compute ε of Poisson samples for add-or-remove adjacency by another accountant."""
    import dp_accounting
    from dp_accounting import pld

    accountant = pld.PLDAccountant(value_discretization_interval=2e-3)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(multiplier)), ROUNDS)
    return float(accountant.get_epsilon(published.DELTA))


@pytest.mark.parametrize(
    ("claim", "multiplier", "zeroed", "passes", "passes_replaced"),
    [(1.0, 0.708, 7.52, 41.0, 117.0), (0.1, 0.877, 4.35, 30.4, 83.5), (0.01, 1.185, 2.39, 20.2, 53.1),
     (0.001, 2.54, 0.831, 7.75, 18.5)],
)  # fmt: skip
def test_one_step_is_accounted_instead_of_a_thousand(
    claim: float, multiplier: float, zeroed: float, passes: float, passes_replaced: float
) -> None:
    """Compare DECOR's formula at example level with ε of 1001 steps with its noise, for each kind of batches."""
    assert one_step_renyi(multiplier, RATE) == pytest.approx(claim, rel=0.01)
    assert zeroed_out(multiplier) == pytest.approx(zeroed, rel=0.007)
    # The package's pair for records taken away is the same in both directions, which costs up to a fifth.
    assert zeroed < sampled(1.0 / multiplier, RATE, ROUNDS, poisson=False) < 1.25 * zeroed
    # For replaced records, as in the formula, even Poisson samples cost more.
    assert sampled(2.0 / multiplier, RATE, ROUNDS, poisson=True) > zeroed
    assert gaussian(math.sqrt(PASSES) / multiplier) == pytest.approx(passes, rel=0.01)
    assert gaussian(2.0 * math.sqrt(PASSES) / multiplier) == pytest.approx(passes_replaced, rel=0.01)


MNIST = {
    # (claimed ε, graph) → σ, accounted noise over the clip of a batch, and the same with pairwise noise scaled by W.
    (1.0, "complete"): (0.222, 0.705, 0.232),
    (1.0, "ring"): (0.191, 0.706, 0.514),
    (0.1, "complete"): (0.222, 0.861, 0.295),
    (0.1, "ring"): (0.222, 0.849, 0.668),
    (0.01, "complete"): (0.317, 1.04, 0.334),
    (0.01, "ring"): (0.317, 1.16, 0.823),
    (0.001, "complete"): (0.666, 2.48, 0.771),
    (0.001, "ring"): (0.729, 2.12, 1.286),
}


@pytest.mark.parametrize("case", MNIST)
def test_the_noise_of_decors_scripts(case: tuple[float, str]) -> None:
    claim, name = case
    graph = laplacian(GRAPHS[name])
    own, pair = decor_mnist(claim, graph)
    computed = [own, exposure(own, pair, graph) ** -0.5, exposure(own, pair / AROUND[name], graph) ** -0.5]
    assert computed == pytest.approx(list(MNIST[case]), rel=5e-3)
    assert claim <= one_step_renyi(computed[1], RATE) < claim + 0.05


@pytest.mark.parametrize(
    ("claim", "fresh", "alone", "scaled"),
    [(3.0, 2.5, 11.4, 3.8), (10.0, 8.9, 49.6, 14.2), (20.0, 18.4, 120.0, 30.6), (40.0, 36.8, 289.0, 57.0)],
)
def test_user_level_composes_and_falls_to_independent_noise(
    claim: float, fresh: float, alone: float, scaled: float
) -> None:
    steps = published.LIBSVM_STEPS
    for name in GRAPHS:
        graph = laplacian(GRAPHS[name])
        own, pair = decor_user_level(claim, graph, steps)
        assert gaussian(certified_mu(own, pair, graph, steps)) == pytest.approx(fresh, rel=0.025)
        assert fresh < claim
        assert gaussian(2.0 * math.sqrt(steps) / own) == pytest.approx(alone, rel=0.005)
    assert gaussian(2.0 * math.sqrt(steps * exposure(own, pair / 5.0, graph))) < alone
    ring = laplacian("ring")
    own, pair = decor_user_level(claim, ring, steps)
    assert gaussian(2.0 * math.sqrt(steps * exposure(own, pair / 3.0, ring))) == pytest.approx(scaled, rel=0.01)


@pytest.mark.parametrize(
    ("claim", "exact"),
    [(3.0, 2.4), (5.0, 4.12), (7.0, 5.88), (10.0, 8.56), (15.0, 13.1), (20.0, 17.7), (30.0, 27.0), (40.0, 36.4)],
)
def test_corn_composes_at_record_level(claim: float, exact: float) -> None:
    mu = math.sqrt(2.0 * zcdp_rho(claim))
    assert gaussian(mu) == pytest.approx(exact, rel=5e-3)
    assert gaussian(mu) < claim < gaussian(128.0 * mu)
    # 128 records of 1628, drawn afresh: less than a tenth.
    assert sampled(mu / math.sqrt(1000), 128 / 1628, 1000, poisson=False) < 0.1 * claim


@pytest.mark.parametrize(
    ("claim", "grid", "ring"), [(1.0, 3.3, 6.1), (3.0, 10.7, 20.6), (10.0, 44.0, 90.0), (40.0, 214.0, 529.0)]
)
def test_a_deviation_for_a_variance(claim: float, grid: float, ring: float) -> None:
    for name, clip, expected in (("grid", 5.0, grid), ("ring", 1.5, ring)):
        graph = laplacian(GRAPHS[name])
        assert gaussian(certified_mu(*pn_f_dp(claim, graph, clip), graph, ROUNDS)) == pytest.approx(expected, rel=0.02)
    if claim == 3.0:
        own, _ = pn_f_dp(claim, graph, clip)
        assert clip * own == pytest.approx(6.7, rel=0.01)
        assert gaussian(2.0 * math.sqrt(ROUNDS) / own) == pytest.approx(158.0, rel=0.005)


@pytest.mark.parametrize("alternating", [False, True])
def test_noise_drawn_once_by_its_whole_covariance(alternating: bool) -> None:
    """Use the covariance (T·m, T·m) of equal pairwise noise in every round, and a record in four of six rounds."""
    agents, rounds, own, pair = 5, 6, 0.7, 1.9
    graph = laplacian("ring", agents)
    covariance = own**2 * np.eye(rounds * agents) + np.kron(np.ones((rounds, rounds)), pair**2 * graph)
    moved = np.zeros((rounds, agents))
    moved[[0, 2, 3, 5], 2] = [1.0, -1.0, 1.0, -1.0] if alternating else 1.0
    exact = math.sqrt(moved.ravel() @ np.linalg.solve(covariance, moved.ravel()))
    assert constant_noise_mu(own, pair, graph, 4, rounds, alternating) == pytest.approx(exact, rel=1e-12)


def test_the_largest_release_without_constants() -> None:
    """The event of `maximum_lower_bound` has its probability for any constant draw."""
    rng, reads, rounds, mu, runs = np.random.default_rng(5), 3, 40, 4.0, 20_000
    for sign, cut in ((1.0, 2.0), (-1.0, 2.0), (1.0, 1.5)):
        noise = rng.standard_normal((runs, rounds)) + 50.0 * rng.standard_normal((runs, 1))
        reads_at = rng.random((runs, rounds)).argsort(axis=1) < reads
        observed = noise + sign * 0.5 * mu * reads_at
        observed = observed - observed.mean(axis=1, keepdims=True) + rng.standard_normal((runs, 1)) / math.sqrt(rounds)
        often = float((observed.max(axis=1) <= cut).mean())
        lost = 0.5 * mu * reads / rounds
        law = norm.cdf(cut - sign * (0.5 * mu - lost)) ** reads * norm.cdf(cut + sign * lost) ** (rounds - reads)
        assert often == pytest.approx(law, abs=4.0 * math.sqrt(law * (1.0 - law) / runs) + 1e-4)
    assert published.maximum_lower_bound(mu, reads, rounds) > 0.0


def test_a_sum_reveals_a_record_that_is_read_in_every_round() -> None:
    assert published.sum_lower_bound(0.2, 1.0 - 1e-12, 400) == pytest.approx(gaussian(4.0), rel=6e-3)
    assert published.sum_lower_bound(1e-3, 0.1, 100) <= sampled(1e-3, 0.1, 100, poisson=True)


def variation(p: Array, q: Array, step: float) -> float:
    return 0.5 * float(np.abs(p - q).sum()) * step


def test_a_step_that_keeps_noise_apart() -> None:
    """The total variation is 0.383, and the lemma allows 0.276. It equals that without the second noise."""
    apart = variation(*published.one_hop(kept=1.0, gain=5.0, threshold=0.5, distance=1.0))
    assert apart == pytest.approx(0.383, abs=5e-4)
    assert apart == pytest.approx(2.0 * norm.cdf(0.5) - 1.0, abs=5e-4)
    assert 2.0 * norm.cdf(0.5 / math.sqrt(2.0)) - 1.0 == pytest.approx(0.276, abs=5e-4)


def test_a_sign_that_is_passed_on() -> None:
    """Compare the densities with frequencies in a simulation of the forwarded sign."""
    before, after, step = published.one_hop(kept=1.0 / 3.0, gain=1.0, threshold=4.5, distance=2.0)
    bound = published.densities_lower_bound(after, before, step)
    assert gaussian(2.0 / math.sqrt(10.0)) < bound < gaussian(2.0)
    assert np.array([before.sum(), after.sum()]) * step == pytest.approx([1.0, 1.0], abs=1e-9)
    rng, grid = np.random.default_rng(3), np.linspace(-16.0, 17.0, before.size)
    for law, moved in ((before, 0.0), (after, 2.0)):
        state = rng.standard_normal(400_000) + moved
        heard = state / 3.0 + np.sign(state - 4.5) + rng.standard_normal(state.size)
        assert np.mean(heard > 1.5) == pytest.approx(law[grid > 1.5].sum() * step, abs=3e-3)


@pytest.mark.parametrize(("graph", "agents", "victim", "rounds"), [("path", 3, 2, 2), ("ring", 16, 8, 8)])
def test_a_neighbour_solves_for_all_noised_values(graph: str, agents: int, victim: int, rounds: int) -> None:
    """Reconstruct the values only from the messages of a gossip average in float64."""
    mixing = np.eye(agents) + build_topology(graph, agents).mixing.toarray()
    rng = np.random.default_rng(7)
    noised = rng.standard_normal(agents)
    near = np.flatnonzero(mixing[0])
    state, power, observed, rows = noised, np.eye(agents), [], []
    for _ in range(rounds):
        observed.append(state[near])
        rows.append(power[near])
        state, power = mixing @ state, mixing @ power
    computed = np.linalg.lstsq(np.vstack(rows), np.concatenate(observed), rcond=None)[0]
    assert computed[victim] == pytest.approx(noised[victim], abs=1e-8)
    assert published.gossip_exact(mixing, victim, 0, rounds) == pytest.approx(1.0, abs=1e-9)
    assert published.gossip_claim(mixing, victim, 0, rounds) < 0.7
    if graph == "ring":
        assert published.gossip_exact(mixing, victim, 0, rounds - 1) == pytest.approx(0.0, abs=1e-9)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return pd.DataFrame(list(published.lines()), columns=list(published.Line._fields))


def test_no_empirical_bound_exceeds_the_certificate(frame: pd.DataFrame) -> None:
    assert (frame["empirical"] <= frame["certified"] * (1.0 + 1e-9)).all()
    high_enough = frame.loc[frame["empirical"] <= frame["claimed"], ["paper", "setting"]]
    assert set(high_enough.itertuples(index=False, name=None)) == {
        ("DECOR, a9a", "complete, as accounted"),
        ("DECOR, a9a", "ring, as accounted"),
        ("CorN-DSGD", "a record in every batch"),
        ("CorN-DSGD", "sampled batches of a9a"),
        ("CorN-DSGD", "sampled batches of MNIST"),
    }
