"""ε(δ) of privacy-loss distributions, against closed forms, simulations and densities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import laplace, norm

from decentral_dp.auditing.bounds import bound_by_likelihoods, counting_limit
from decentral_dp.auditing.losses import (
    Movement,
    Shifts,
    _coordinate,
    _line,
    drawn_noise,
    laplace_epsilon,
    mixture_epsilon,
)
from decentral_dp.simulation.statistics import bound_by_counts
from tests.support.audits import audit

NOTHING = np.zeros(0)


def test_one_laplace_release_by_its_closed_form() -> None:
    """δ(ε) = 1 − e^{(ε − a)/2} for a shift of a scales."""
    for a, delta in ((1.0, 0.05), (3.0, 1e-3), (0.2, 1e-5)):
        exact = a + 2.0 * np.log1p(-delta)
        assert exact - 1e-3 * a <= laplace_epsilon(np.array([a]), delta) <= exact
    assert laplace_epsilon(np.array([0.5, 0.25]), 0.0) == 0.75


def test_many_laplace_releases_compose_as_in_a_simulation() -> None:
    moves = np.full(400, 0.05)
    found = laplace_epsilon(moves, 1e-5)
    rng = np.random.default_rng(1)
    noise = rng.laplace(size=(20_000, 400))
    losses = (np.abs(noise + 0.05) - np.abs(noise)).sum(axis=1)
    # By simulation at a larger δ.
    coarse = laplace_epsilon(moves, 0.05)
    assert float(np.maximum(-np.expm1(np.minimum(coarse - losses, 0.0)), 0.0).mean()) == pytest.approx(0.05, rel=0.05)
    assert coarse < found < 20.0


def test_a_gaussian_movement_has_its_known_epsilon() -> None:
    found = Movement(np.array([0.6, 0.8]), NOTHING, False).epsilon(1e-5)
    delta = norm.cdf(0.5 - found) - np.exp(found) * norm.cdf(-0.5 - found)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert Movement(NOTHING, NOTHING, False).epsilon(1e-5) == 0.0
    assert Movement(NOTHING, NOTHING, True).epsilon(1e-5) == np.inf


@pytest.mark.parametrize("mu", [0.3, 1.0, 3.0])
def test_bounds_hold_at_their_confidence(mu: float) -> None:
    """Gaussian pairs of 100 runs each, 300 times: at most one in ten is above the truth at risk 0.1."""
    rng, delta = np.random.default_rng(5), 1e-5
    truth = Movement(np.array([mu]), NOTHING, False).epsilon(delta)
    found = {"counted": [], "likelihood": []}
    for _ in range(300):
        first, second = (mu * (sign * 0.5 * mu + rng.normal(size=100)) for sign in (1, -1))
        found["counted"].append(bound_by_counts(first, second, delta, 0.1))
        found["likelihood"].append(bound_by_likelihoods(first, second, delta, 0.1))
    for values in found.values():
        assert np.mean(np.array(values) > truth) <= 0.1
    assert np.median(found["likelihood"]) > 0.6 * truth


def test_counting_attains_its_limit() -> None:
    most = counting_limit(200, 1e-5, 0.05)
    assert bound_by_counts(np.ones(200), np.zeros(200), 1e-5, 0.05) == most
    # A score that points the other way is not an attack.
    assert bound_by_counts(np.zeros(200), np.ones(200), 1e-5, 0.05) == 0.0
    assert 3.0 < most < 3.5
    assert counting_limit(20, 1e-5, 0.05) < most


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.3])
def test_noise_of_another_size_is_measured(factor: float) -> None:
    rng = np.random.default_rng(3)
    low, high = drawn_noise(
        [
            ("gaussian", 4000, float(((factor * rng.normal(size=4000)) ** 2).sum())),
            ("laplace", 4000, float(np.abs(factor * rng.laplace(size=4000)).sum())),
        ]
    )
    assert low <= factor <= high
    assert high - low < 0.2


ONE = ["algorithm.rounds=1", "run.average=1"]
FEW_OF_MANY = [*ONE, 'problem.sampling={kind="fixed_batch",batch_size=5}']


def exact(first: Any, second: Any, cell: float, delta: float) -> float:
    """ε at δ of two densities on a grid."""

    def beyond(epsilon: float) -> float:
        return float(np.maximum(first - np.exp(epsilon) * second, 0.0).sum() * cell) - delta

    return 0.0 if beyond(0.0) <= 0.0 else float(brentq(beyond, 0.0, 60.0, xtol=1e-9))


@pytest.mark.parametrize("law", [norm, laplace], ids=["gaussian", "laplace"])
@pytest.mark.parametrize(
    ("up", "down", "rate"), [(1.3, 1.3, 0.2), (2.0, 0.0, 0.05), (0.0, 2.0, 0.3), (3.0, 0.5, 0.01), (2.5, 1.0, 1.0)]
)
def test_the_loss_of_one_release_is_that_of_its_densities(law: Any, up: float, down: float, rate: float) -> None:
    at, cell = np.linspace(-40.0, 40.0, 1_000_001, retstep=True)
    first, second = ((1.0 - rate) * law.pdf(at) + rate * law.pdf(at - move) for move in (up, -down))
    kind = np.array([law is laplace])
    for delta in (1e-2, 1e-5):
        truth = exact(first, second, float(cell), delta)
        below = mixture_epsilon(np.array([[up, down]]), np.array([rate]), delta, kind)
        assert 0.995 * truth - 1e-3 <= below <= truth + 1e-6


def test_mixed_releases_cost_at_most_their_sum() -> None:
    moves, rates = np.array([[1.0, 1.0], [2.0, 0.0], [1.0, 1.0]]), np.array([0.1, 0.2, 0.1])
    kinds = np.array([False, True, True])
    alone = [mixture_epsilon(moves[k : k + 1], rates[k : k + 1], 1e-6, kinds[k : k + 1]) for k in range(3)]
    together = mixture_epsilon(moves, rates, 1e-5, kinds)
    assert max(alone) * 0.9 <= together <= sum(alone)


@pytest.mark.parametrize("seed", range(6))
def test_a_projection_shows_no_more_than_all_coordinates(seed: int) -> None:
    """In two dimensions, by sums over a grid, including records that move partly in one direction."""
    rng, rate, delta = np.random.default_rng(seed), 0.2, 1e-3
    u, v = rng.normal(size=2) * 1.5, rng.normal(size=2)
    if seed % 2:
        # Both in one direction, the second the shorter: then only what one has across the other is seen.
        v = 0.5 * u + 0.1 * v
    at, cell = np.linspace(-9.0, 9.0, 1201, retstep=True)

    def density(law: Any, move: Any) -> Any:
        shifted = np.multiply.outer(law.pdf(at - move[0]), law.pdf(at - move[1]))
        return (1.0 - rate) * np.multiply.outer(law.pdf(at), law.pdf(at)) + rate * shifted

    for law, seen in ((norm, _line), (laplace, _coordinate)):
        both = density(law, u), density(law, v)
        truth = max(exact(*pair, float(cell) ** 2, delta) for pair in (both, both[::-1]))
        moves = Shifts(np.array([seen(u, v)]), np.array([rate]), np.array([law is laplace]))
        assert min(moves.shifts[0]) >= 0.0
        assert moves.epsilon(delta) <= truth + 2e-3
    away = Shifts(np.array([_line(u, -u)]), np.array([rate]), np.array([False]))
    assert away.shifts == pytest.approx(np.full((1, 2), np.linalg.norm(u)))


@pytest.mark.parametrize(("rate", "u", "v"), [(0.3, 3.0, 1.0), (0.3, 3.0, 2.9), (0.9, -1.0, -2.0), (1.0, 3.0, 2.9)])
@pytest.mark.parametrize(("law", "seen"), [(norm, _line), (laplace, _coordinate)], ids=["gaussian", "laplace"])
def test_shifts_in_one_direction_are_not_overstated(law: Any, seen: Any, rate: float, u: float, v: float) -> None:
    """In one dimension nothing is across: the shorter move must not be taken for none."""
    at, cell = np.linspace(-30.0, 30.0, 60_001, retstep=True)
    first, second = ((1.0 - rate) * law.pdf(at) + rate * law.pdf(at - move) for move in (u, v))
    truth = max(exact(*pair, float(cell), 1e-5) for pair in ((first, second), (second, first)))
    moves = Shifts(np.array([seen(np.array([u]), np.array([v]))]), np.array([rate]), np.array([law is laplace]))
    assert moves.epsilon(1e-5) <= truth + 2e-3


def test_the_larger_of_two_directions_counts() -> None:
    """Mirror a change by only the first data set's record to one by only the second's."""
    one_way = Shifts(np.array([[2.0, 0.0]]), np.array([0.05]), np.array([False]))
    other_way = one_way._replace(shifts=np.array([[0.0, 2.0]]))
    assert one_way.epsilon(1e-5) == other_way.epsilon(1e-5) == pytest.approx(5.517, abs=5e-3)


def test_contradicting_noise_sizes_give_the_smallest_bound() -> None:
    """Gaussian noise as stated, and Laplace noise of twice its scale: the size is that of Laplace."""
    n = 100_000
    low, high = drawn_noise([("gaussian", n, 1.0 * n), ("laplace", n, 2.0 * n)])
    assert not low <= 1.0 <= high
    assert 2.0 < high < 2.1


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        # A Poisson sample of a fifth.
        ("dp_sgd_dual", ONE),
        # A noisy batch of five of 342.
        ("ldp_single_level", FEW_OF_MANY),
        # As much of the budget for y as can be; its gradients reach a clip of 0.4.
        (
            "minibatch_torus",
            [*ONE, "topology.rows=3", "topology.columns=3", "privacy.clip.y=0.4", "privacy.share={y=1000.0,z=1.0}"],
        ),
    ],
    ids=["poisson", "fixed", "fixed-laplace"],
)
def test_one_sampled_release_attains_the_certified_epsilon(name: str, overrides: list[str]) -> None:
    found = audit(name, overrides=overrides, runs=20)
    assert found.method == "exact"
    assert 0.95 * found.certified <= found.shown <= found.certified
    assert (found.status, found.null_shown) == ("ok", 0.0)
