"""Privacy-loss distributions on a grid, against `dp_accounting` and against sums in extended precision."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaln

from decentral_dp.privacy.accounting import loss_distributions
from decentral_dp.privacy.accounting.loss_distributions import (
    LossMasses,
    compose,
    discretise,
    epsilon_of_masses,
    gaussian_profile,
    gaussian_reach,
    laplace_profile,
    poisson_profile,
    poisson_reach,
    powers,
    response_profile,
)

TAIL = 1e-13
PAIRS = {
    "laplace": (laplace_profile(0.7, 1.0), 0.7),
    "a batch": (laplace_profile(0.9, 0.2), 0.26),
    "response": (response_profile(0.31), 0.31),
    "gaussian": (gaussian_profile(0.8, 1.0), gaussian_reach(0.8, 1.0, TAIL)),
    "poisson": (poisson_profile(1.5, 0.1), poisson_reach(1.5, 0.1, TAIL)),
    "below the step": (laplace_profile(0.001, 1.0), 0.001),
}
STEPS = (0.003, 0.0411)


def hockey_stick(ours: LossMasses, epsilon: np.ndarray) -> np.ndarray:
    losses = (ours.lowest + np.arange(ours.masses.size)) * ours.step
    kept = -np.expm1(np.minimum(0.0, epsilon[:, None] - losses))
    return (kept * ours.masses).sum(axis=1) + ours.infinite


@pytest.mark.parametrize("step", [*STEPS, 1e-5])
@pytest.mark.parametrize("name", [name for name in PAIRS if name not in ("gaussian", "poisson")])
def test_the_arithmetic_of_masses_errs_by_less_than_is_charged(name: str, step: float) -> None:
    """Against the same formula in fifty digits, at values of the profile that do not round up to convex ones."""
    profile, reach = PAIRS[name][0], min(PAIRS[name][1], 400 * step)
    ours = discretise([(profile, reach)], step)[0]
    n = ours.masses.size // 2
    e = np.arange(n + 1) * step
    upper = np.clip(profile(e), 0.0, 1.0)
    with mp.workdps(50):
        h = mp.mpf(step)
        deltas = [
            mp.mpf(float(v)) for v in np.concatenate([(-np.expm1(-e) + np.exp(-e) * upper)[:0:-1], upper]).tolist()
        ]
        drops = [b - a for a, b in itertools.pairwise(deltas)]
        exact = [1 - deltas[0] + drops[0] / mp.expm1(h)]
        exact += [(b - a * mp.exp(h)) / mp.expm1(h) for a, b in itertools.pairwise(drops)]
        exact.append(drops[-1] / mp.expm1(-h))
        wrong = sum(abs(mp.mpf(m) - max(mp.mpf(0), x)) for m, x in zip(ours.masses.tolist(), exact, strict=True))
    assert 0.0 < wrong <= ours.error - loss_distributions._PROFILE * (4.5 + reach) * 2.0**-52


@pytest.mark.parametrize("step", STEPS)
def test_the_masses_are_never_below_the_profile_and_meet_it_on_the_grid(step: float) -> None:
    together = discretise(list(PAIRS.values()), step)
    for (profile, reach), ours in zip(PAIRS.values(), together, strict=True):
        between = np.linspace(0.0, reach, 41)
        assert (hockey_stick(ours, between) >= profile(between) - 1e-14).all()
        dots = np.arange(max(1, math.floor(reach / step))) * step
        np.testing.assert_allclose(hockey_stick(ours, dots), profile(dots), rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("counts", [(1, 1), (37, 20), (64, 5), (2000, 611)])
def test_powers_squared_together_are_never_below_exact_sums(counts: tuple[int, int]) -> None:
    """Randomised response at one and two steps of the grid: two binomial laws, in the logarithms of gamma functions."""
    step = 0.0411
    pairs = [(response_profile(k * step), k * step) for k in (1, 2)]
    ours = powers(discretise(pairs, step), counts, TAIL)
    masses = np.ones(1)
    for k, n in zip((1, 2), counts, strict=True):
        up, ways = np.arange(n + 1), np.zeros(2 * k * n + 1)
        ways[:: 2 * k] = np.exp(
            gammaln(n + 1)
            - gammaln(up + 1)
            - gammaln(n - up + 1)
            - up * np.log1p(math.exp(-k * step))
            - (n - up) * np.log1p(math.exp(k * step))
        )
        masses = np.convolve(masses, ways)
    exact = LossMasses(step, -(counts[0] + 2 * counts[1]), masses, 0.0, 0.0)
    apart = compose([powers([p], [n], TAIL) for p, n in zip(discretise(pairs, step), counts, strict=True)], TAIL)
    for delta in (1e-2, 1e-6):
        known = epsilon_of_masses(exact, delta)
        assert known * (1.0 - 1e-10) <= epsilon_of_masses(ours, delta - ours.error) <= known * (1.0 + 5e-6)
        assert epsilon_of_masses(ours, delta) == pytest.approx(epsilon_of_masses(apart, delta), rel=1e-6)


def test_tiny_losses_are_merged_into_fewer_of_no_lower_price() -> None:
    """The sums, exact ones, are at least those of the parts, and add little to the sum of squares."""
    rng = np.random.default_rng(7)
    for size in (1, 1700, 1731, 20_001):
        losses = rng.permutation(0.2 * np.arange(1.0, size + 1.0) ** -1.5)
        merged = loss_distributions._merge_tiny(losses)
        left, parts = merged[~np.isin(merged, losses)], losses[~np.isin(losses, merged)]
        assert merged.size == size - parts.size + math.ceil(parts.size / 32)
        assert math.fsum(parts) <= math.fsum(left) <= math.fsum(parts) * (1.0 + 1e-13)
        assert math.fsum(merged**2) <= 1.001 * math.fsum(losses**2)
    assert merged.size < size / 2


def test_errors_are_below_their_bound_and_no_mass_is_lost() -> None:
    """Against sums of products in long double, what was cut counted as an infinite loss, or as the least one."""
    parts = discretise(list(PAIRS.values()), 0.01)
    ours = compose(parts, TAIL)
    exact, first = np.ones(1, dtype=np.longdouble), 0
    for part in parts:
        exact, first = np.convolve(exact, part.masses.astype(np.longdouble)), first + part.lowest
    low = ours.lowest - first
    kept = exact[low : low + ours.masses.size].copy()
    kept[0] += exact[:low].sum()
    infinite = 1.0 - math.prod(1.0 - part.infinite for part in parts) + float(exact[low + ours.masses.size :].sum())
    assert low > 0
    assert low + ours.masses.size < exact.size
    assert float(np.abs(kept - ours.masses).sum()) + abs(infinite - ours.infinite) <= ours.error
    assert ours.infinite <= sum(part.infinite for part in parts) + len(parts) * TAIL


def test_epsilon_has_the_asked_delta() -> None:
    ours = powers(discretise([PAIRS["laplace"]], 0.01), [20], TAIL)
    for delta in (0.3, 1e-3, 1e-8):
        assert hockey_stick(ours, np.array([epsilon_of_masses(ours, delta)]))[0] == pytest.approx(delta, rel=1e-9)


def test_epsilon_at_its_ends() -> None:
    masses = np.array([0.25, 0.5, 0.2])
    assert epsilon_of_masses(LossMasses(0.1, -1, masses, 0.05, 0.0), 0.01) == math.inf
    assert epsilon_of_masses(LossMasses(0.1, -1, masses, 0.05, 0.0), 0.5) == 0.0
    # e^{−800} is no number: the loss itself bounds ε.
    assert epsilon_of_masses(LossMasses(400.0, 1, np.array([0.5, 0.5]), 0.0, 0.0), 0.4) == pytest.approx(800.0)
