"""A released mean of features inside hidden states: exact systems of steps that clip features and intercept apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.stats

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.hidden_states import HiddenRounds, add_release, hidden_mu
from decentral_dp.simulation.jobs.published import apart_factor, step_factor


def price(factors: Array, moves: Array, mean: float, noise: float = 1.0) -> float:
    """μ of the average of the models and the released mean, for the first agent."""
    rounds, m = len(moves), len(factors)
    shape, shift = (rounds, m), np.tile(moves[:, None], (1, m))
    numbers = HiddenRounds(
        factors[None], np.zeros(rounds, dtype=np.int64), np.full(shape, noise), np.zeros(shape, dtype=bool),
        np.zeros(shape), np.full(m, 1.0 / m),
    )  # fmt: skip
    return float(add_release(hidden_mu(numbers, [0], shift), np.array([mean]))[0])


def jacobian(draw: np.random.Generator, eta: float, length: float, intercept: float, extreme: bool) -> Array:
    """Jacobian of the step of one record with φ'' = 1/4, with each part clipped, or not, or in between."""
    a = draw.normal(size=2)
    a *= length * (1.0 if extreme else draw.random()) / np.linalg.norm(a)
    kept = [0.0, 1.0] if extreme and draw.random() < 0.5 else [1.0, 0.0] if extreme else draw.random(2).tolist()
    both = np.append(a, intercept)
    slope = 0.25 * (1.0 if extreme else draw.random())
    return np.eye(3) - eta * slope * np.diag([kept[0], kept[0], kept[1]]) @ np.outer(both, both)


@pytest.mark.parametrize(("m", "rounds"), [(1, 2), (1, 4), (2, 2), (3, 3)])
def test_no_exact_linear_system_exceeds_the_price_of_clips_apart(m: int, rounds: int) -> None:
    """Gaussian systems of the steps' Jacobians, with moves along the most expanded direction, or random ones."""
    draw, best, too_much = np.random.default_rng([m, rounds]), 0.0, 0.0
    mixing = np.full((m, m), 1.0 / m) if m < 3 else np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3.0
    for trial in range(150):
        extreme, length, intercept = trial % 2 == 0, draw.uniform(0.2, 2.0), draw.uniform(0.05, 1.0)
        eta, mean = draw.uniform(0.1, 2.0) / (0.25 * (length**2 + intercept**2)), draw.uniform(0.0, 1.5)
        moves = draw.uniform(0.2, 2.0, rounds) * (np.arange(rounds) == 0 if trial % 3 == 0 else 1.0)
        factor = float(apart_factor(1.0, 0.25 * length**2, 0.25 * intercept**2, eta, 0.0))
        one = jacobian(draw, eta, length, intercept, extreme)
        steps = [[one if extreme else jacobian(draw, eta, length, intercept, False) for _ in range(m)]
                 for _ in range(rounds)]  # fmt: skip
        size = 3 * m
        maps = [np.vstack([np.kron(mixing[i], step) for i, step in enumerate(row)]) for row in steps]
        direction = np.linalg.svd(one)[2][0] if extreme else draw.normal(size=3)
        direction /= np.linalg.norm(direction)
        average = np.kron(np.full(m, 1.0 / m), np.eye(3))
        moved, covariance = np.zeros(size), np.zeros((size, size))
        for t in range(rounds):
            moved, covariance = maps[t] @ moved, maps[t] @ covariance @ maps[t].T + np.eye(size)
            moved[:3] += moves[t] * direction
        seen = average @ moved
        exact = np.sqrt(seen @ np.linalg.solve(average @ covariance @ average.T, seen) + mean**2)
        best = max(best, exact / price(factor * mixing, moves, mean))
        too_much = max(too_much, exact / price(mixing, moves, mean))
    assert best <= 1.0 + 1e-9
    assert best > 0.9
    if m == 1:
        # Factors of one clip are not bounds.
        assert too_much > 1.02


def test_the_factor_is_attained_and_at_most_that_of_any_convex_loss() -> None:
    draw, attained = np.random.default_rng(0), 0.0
    for trial in range(4000):
        length, intercept, weight = draw.uniform(0.0, 3.0), draw.uniform(0.0, 2.0), draw.uniform(-0.5, 1.2)
        eta, ridge = draw.uniform(0.0, 4.0), draw.uniform(0.0, 0.3)
        parts = 0.25 * length**2, 0.25 * intercept**2
        bound = float(apart_factor(weight, *parts, eta, ridge))
        step = jacobian(draw, eta, length, intercept, trial % 2 == 0) + (weight - eta * ridge - 1.0) * np.eye(3)
        norm = np.linalg.norm(step, 2)
        assert norm <= bound * (1.0 + 1e-12)
        attained = max(attained, norm / bound)
        assert bound <= step_factor(weight, sum(parts), eta, ridge, scalar=False) * (1.0 + 1e-12)
        assert bound >= step_factor(weight, sum(parts), eta, ridge, scalar=True) * (1.0 - 1e-12)
    assert attained > 1.0 - 1e-9
    # Another computation of the values of an intercept of 0.2 with features of norm 1.
    for scaled, value in ((0.5, 1.041), (1.0, 1.084), (2.0, 1.177)):
        assert apart_factor(1.0, 1.0 / 1.04, 0.04 / 1.04, scaled, 0.0) == pytest.approx(value, abs=6e-4)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """δ(ε) of a Gaussian pair."""
    below, above = scipy.stats.norm.cdf([0.5 * mu - epsilon / mu, -0.5 * mu - epsilon / mu])
    return float(below - np.exp(epsilon) * above)


class Network(NamedTuple):
    """One agent with one record in a round of logistic regression on one feature and an intercept."""

    clip: float
    share: float
    intercept: float
    eta: float
    noise: float
    mean_noise: float
    start: Array


def gradient(net: Network, y: Array, a: float, label: float, centre: float) -> Array:
    """(n, 2) clipped gradients at y (n, 2)."""
    slope = 1.0 / (1.0 + np.exp(-(y[:, 0] * (a - centre) + y[:, 1] * net.intercept))) - label
    first, second = slope * (a - centre), slope * net.intercept
    most = np.sqrt(1.0 - net.share**2) * net.clip, net.share * net.clip
    return np.stack([np.clip(first, -most[0], most[0]), np.clip(second, -most[1], most[1])], axis=1)


def density(net: Network, records: list[tuple[float, float]], x: Array, last: tuple[Array, Array]) -> Array:
    """Density (X, n, n) of the released mean of the first record, and of the model after two rounds."""
    (a, label), (other, other_label) = records
    ends = np.linspace(-6.0, 6.0, 49)
    normal = np.exp(-0.5 * ends**2) / np.exp(-0.5 * ends**2).sum()
    inner = np.stack(np.meshgrid(ends, ends, indexing="ij"), -1).reshape(-1, 2)
    weight = np.outer(normal, normal).ravel()
    middle = net.start - net.eta * gradient(net, net.start[None], a, label, 0.0) + net.noise * inner
    out = []
    for value in x:
        # Its value has unbounded noise. The centre is in the ball of the features.
        moved = middle - net.eta * gradient(net, middle, other, other_label, float(np.clip(value, -1.0, 1.0)))
        parts = [scipy.stats.norm.pdf(last[k][:, None], moved[:, k], net.noise) for k in range(2)]
        out.append((parts[0] * weight) @ parts[1].T)
    return scipy.stats.norm.pdf(x, a, net.mean_noise)[:, None, None] * np.array(out)


@pytest.mark.parametrize("seed", range(6))
def test_no_small_logistic_network_shows_more_by_quadrature(seed: int) -> None:
    """The record is read in round 0, or in both. The adversary receives the noisy feature and the last model."""
    draw, again = np.random.default_rng(seed), seed % 2 == 1
    clip, share, intercept = draw.uniform(0.2, 1.0), draw.uniform(0.3, 0.7), draw.uniform(0.3, 1.0)
    curvature = 0.25 * 4.0, 0.25 * intercept**2
    eta = draw.uniform(0.5, 2.0) / sum(curvature)
    moved = 2.0 * eta * clip
    net = Network(clip, share, intercept, eta, moved / 1.2, 2.0 / draw.uniform(0.5, 1.2), draw.normal(size=2))
    x, reach = np.linspace(-1.0, 1.0, 41) * (1.0 + 6.0 * net.mean_noise), 6.5 * net.noise + 2.0 * moved
    last = tuple(net.start[k] + np.linspace(-reach, reach, 81) for k in range(2))
    cell = (x[1] - x[0]) * float(np.prod([axis[1] - axis[0] for axis in last]))
    sides = []
    for record in ((1.0, 0.0), (-1.0, 1.0)):
        other = record if again else (0.7, 1.0)
        sides.append(density(net, [record, other], x, (last[0], last[1])))
        assert sides[-1].sum() * cell == pytest.approx(1.0, abs=1e-4)
    factor = float(apart_factor(1.0, *curvature, eta, 0.0))
    moves, mean = np.array([moved, moved if again else 0.0]), 2.0 / net.mean_noise
    bound = price(np.full((1, 1), factor), moves, mean, net.noise)
    shown = 0.0
    for epsilon in np.linspace(0.0, 0.5 * bound**2 + 1.5 * bound, 6):
        allowed = gaussian_delta(bound, epsilon)
        for one, two in (sides, sides[::-1]):
            delta = float(np.maximum(one - np.exp(epsilon) * two, 0.0).sum() * cell)
            assert delta <= allowed * (1.0 + 2e-3) + 1e-6
            shown = max(shown, delta / gaussian_delta(mean, epsilon))
    # The model shows more than the mean does.
    assert shown > 1.05
