"""Very many releases and very small δ: composition under a tilt, against a quadrature that shares nothing with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting import loss_distributions, tilted_composition
from decentral_dp.privacy.accounting.accountants import epsilon_at, gaussian_epsilon
from decentral_dp.privacy.accounting.loss_distributions import (
    Releases,
    amplify,
    epsilons,
    gaussian_profile,
    group_profile,
    laplace_profile,
    poisson_profile,
    response_profile,
)
from decentral_dp.privacy.accounting.tilted_composition import ReleaseProfile, tilted_epsilon
from tests.support.poisson_reference import (
    poisson_outcomes,
    reference_epsilon,
    renyi_epsilon,
)

# Every rate, every noise, every number of rounds and every δ; pairs of them in turn.
CASES = [
    (rate, sigma, (10**3, 10**4, 10**5, 10**6)[(i + 2 * j + k) % 4], (1e-5, 1e-7, 1e-9, 1e-12)[(2 * i + j + 3 * k) % 4])
    for (i, rate), (j, sigma), k in itertools.product(
        enumerate((1e-4, 1e-3, 1e-2)), enumerate((0.6, 1.0, 2.0)), range(2)
    )
]


def sampled(sigma: float, rate: float, rounds: int) -> Releases:
    return Releases(poisson=np.tile([[2.0 / sigma], [rate]], (1, rounds)))


@pytest.mark.parametrize(("rate", "sigma", "rounds", "delta"), CASES)
def test_never_below_the_composition_and_within_a_hundredth(
    rate: float, sigma: float, rounds: int, delta: float
) -> None:
    law = [poisson_outcomes(sigma, rate, rounds)]
    wanted = reference_epsilon(law, delta)
    found = epsilon_at(sampled(sigma, rate, rounds), delta)
    assert wanted <= found * (1.0 + 1e-7)
    assert found <= 1.01 * wanted
    assert found <= renyi_epsilon(law, delta)
    # The tilted composition by itself, where others are tried first.
    [alone] = epsilons([sampled(sigma, rate, rounds)], delta, tilted=True)
    assert wanted <= alone * (1.0 + 1e-7)
    assert alone <= 1.01 * wanted


@pytest.mark.parametrize(
    ("rate", "sigma", "rounds", "delta", "wanted"),
    [(1e-3, 0.6, 50_000, 1e-7, 7.31), (1e-4, 1.0, 20_000, 1e-7, 0.129), (1e-3, 1.0, 10**6, 1e-12, 17.13)],
)
def test_amplification_is_not_given_up(rate: float, sigma: float, rounds: int, delta: float, wanted: float) -> None:
    assert epsilon_at(sampled(sigma, rate, rounds), delta) == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("delta", [1e-6, 1e-12, 1e-30])
def test_gaussian_releases_against_the_closed_form(delta: float) -> None:
    """Test ε far below the resolution of float64 near 1, too."""
    for mu, count in ((0.01, 10_000), (1.5, 40), (3.0, 1)):
        reach = 0.5 * mu * mu + mu * 14.0
        exact = float(gaussian_epsilon(mu * math.sqrt(count), delta))
        found = tilted_epsilon([ReleaseProfile(gaussian_profile(mu, 1.0), reach, count)], 0.02 * mu, delta)
        assert exact * (1.0 - 1e-9) <= found <= 1.002 * exact


@pytest.mark.parametrize("term", ["_PROFILE", "_BUTTERFLY", "_U"])
def test_the_errors_are_charged(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million times larger, every error term shows in ε: none is left out."""
    pairs = [ReleaseProfile(poisson_profile(2.0, 1e-3), 3.0, 100_000)]
    plain = tilted_epsilon(pairs, 2e-4, 1e-9)
    monkeypatch.setattr(tilted_composition, term, 1e6 * getattr(tilted_composition, term))
    assert tilted_epsilon(pairs, 2e-4, 1e-9) > plain * (1.0 + 1e-6)


def test_losses_beyond_the_reach_are_charged_as_infinite() -> None:
    profile = poisson_profile(2.0, 1e-2)
    far, near = (tilted_epsilon([ReleaseProfile(profile, reach, 1000)], 2e-3, 1e-9) for reach in (4.5, 2.0))
    assert near > 1.001 * far
    assert tilted_epsilon([ReleaseProfile(profile, 1.0, 1000)], 2e-3, 1e-9) == math.inf


def test_the_transform_errs_by_less_than_is_charged() -> None:
    """Masses of one law composed in float64, against the same law composed in steps of long double."""
    rng = np.random.default_rng(3)
    masses = rng.random(41)
    masses /= masses.sum()
    losses = tilted_composition._Losses(masses, 0.0, 300)
    tilted = tilted_composition._Tilted(masses, 0.0, 0.0)
    length, first = 2**14, -(2**13)
    found, error = tilted_composition._compose([losses], [tilted], length, first, 300)
    exact = np.ones(1, dtype=np.longdouble)
    for _ in range(300):
        exact = np.convolve(exact, masses.astype(np.longdouble))
    wide = np.zeros(length, dtype=np.longdouble)
    wide[-first - 20 * 300 : -first + 20 * 300 + 1] = exact
    worst = float(np.abs(found - wide).max())
    assert 0.0 < worst < 0.2 * error
    assert error < 1e-9 * float(wide.max())


# Profiles against fifty digits --------------------------------------------------------------------------------------


def _base(e: Any, rate: Any) -> Any:
    return mp.log(1 + (mp.exp(e) - 1) / rate)


def _below(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _gaussian(mu: Any, rate: Any) -> Callable[[Any], Any]:
    def exact(e: Any) -> Any:
        b = _base(e, rate)
        return rate * (_below(mu / 2 - b / mu) - mp.exp(b) * _below(-mu / 2 - b / mu))

    return exact


def _poisson(mu: Any, rate: Any) -> Callable[[Any], Any]:
    m = mu / 2

    def exact(e: Any) -> Any:
        t = (e / 2 + mp.asinh((1 - rate) * mp.sinh(e / 2) * mp.exp(m * m / 2) / rate)) / m
        first = (1 - rate) * _below(-t) + rate * _below(m - t)
        return first - mp.exp(e) * ((1 - rate) * _below(-t) + rate * _below(-m - t))

    return exact


def _group(m: Any, rate: Any, records: int, zeroed: bool) -> Callable[[Any], Any]:
    """The order with the drawn record in the first distribution; outcomes by bisection."""
    share = [mp.binomial(records, j) * rate**j * (1 - rate) ** (records - j) for j in range(records + 1)]

    def rises(x: Any) -> Any:
        return mp.log(sum(b * mp.exp(j * m * x - (j * m) ** 2 / 2) for j, b in enumerate(share)))

    def exact(e: Any) -> Any:
        low, high = mp.mpf(-50), mp.mpf(100)
        for _ in range(190):
            x = (low + high) / 2
            low, high = (x, high) if rises(x) - (0 if zeroed else rises(-x)) < e else (low, x)
        first = sum(b * _below(j * m - x) for j, b in enumerate(share))
        second = _below(-x) if zeroed else sum(b * _below(-j * m - x) for j, b in enumerate(share))
        return first - mp.exp(e) * second

    return exact


def _laplace(loss: Any, rate: Any) -> Callable[[Any], Any]:
    return lambda e: rate * max(mp.mpf(0), 1 - mp.exp((_base(e, rate) - loss) / 2))


def _response(loss: Any) -> Callable[[Any], Any]:
    return lambda e: max(mp.mpf(0), 1 - mp.exp(e - loss)) / (1 + mp.exp(-loss))


def _laws() -> list[tuple[Callable[[Array], Array], Callable[[Any], Any], float]]:
    found: list[tuple[Callable[[Array], Array], Callable[[Any], Any], float]] = []
    for mu, rate in itertools.product((0.01, 0.2, 1.0, 3.3, 8.0), (1e-4, 1e-2, 0.3, 1.0)):
        m, q = mp.mpf(mu), mp.mpf(rate)
        reach = loss_distributions.gaussian_reach(mu, rate, 1e-24)
        found.append((gaussian_profile(mu, rate), _gaussian(m, q), reach))
        if rate < 1.0:
            reach = loss_distributions.poisson_reach(mu, rate, 1e-24)
            found.append((poisson_profile(mu, rate), _poisson(m, q), reach))
    for each, rate, records, zeroed in itertools.product((0.01, 0.7, 2.5), (1e-3, 0.3), (2, 5), (False, True)):
        unit = each * records * (1 if zeroed else 2), rate, records, zeroed
        law = _group(mp.mpf(each), mp.mpf(rate), records, zeroed)
        found.append((group_profile(*unit), law, loss_distributions.group_reach(*unit, 1e-24)))
    for loss, rate in itertools.product((1e-4, 0.1, 1.0, 10.0, 50.0), (1e-4, 1e-2, 1.0)):
        law = _laplace(mp.mpf(loss), mp.mpf(rate))
        found.append((laplace_profile(loss, rate), law, float(amplify(loss, rate))))
    return found + [(response_profile(v), _response(mp.mpf(v)), v) for v in (1e-4, 0.1, 1.0, 10.0, 50.0)]


def test_profiles_are_wrong_by_less_than_is_charged() -> None:
    """In units of 2⁻⁵³·(4 + reach + |log S|)·S: 3.9 at most, where 32 are charged."""
    worst = 0.0
    with mp.workdps(50):
        for profile, exact, reach in _laws():
            e = np.linspace(0.0, reach, 9)[1:-1]
            for at, value in zip(e, profile(e), strict=True):
                x = mp.mpf(float(at))
                wanted = exact(x)
                more = wanted - mp.diff(exact, x, h=mp.mpf(10) ** -18)
                unit = more * mp.mpf(2) ** -53 * (4 + reach + abs(mp.log(more)))
                worst = max(worst, float(abs(mp.mpf(float(value)) - wanted) / unit))
    # Units of 2⁻⁵³ here, and of 2⁻⁵² there.
    assert 0.0 < worst < min(tilted_composition._PROFILE / 4.0, 2.0 * loss_distributions._PROFILE)
