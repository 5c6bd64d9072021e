"""Float64 normal variates, and bounds on them for exact distributions and for the worst assumed ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm

import decentral_dp
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting import float_slack
from decentral_dp.privacy.accounting.accountants import account, gaussian_epsilon
from decentral_dp.privacy.accounting.float_slack import (
    SHARES,
    DrawnVariates,
    Slack,
    drawn_variates,
    join_by_grid,
    likely_slack,
    unit,
    worst_case_slack,
)
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, gaussian_integers
from decentral_dp.privacy.releasers import PlannedReleaser
from tests.support import ziggurat
from tests.support.release_cost_oracle import grid

K = 3.7


def height(u: float, x: np.ndarray) -> np.ndarray:
    """The largest error that is assumed of an outcome x standard deviations from 0."""
    return u * np.maximum(10.0, np.exp(K * (np.abs(x) - K)))


def ideal(sigma: float, reach: int) -> np.ndarray:
    """Probabilities of rint(σN) = −reach … reach."""
    k = np.arange(reach + 1)
    half = ndtr(-(k - 0.5) / sigma) - ndtr(-(k + 0.5) / sigma)
    return np.concatenate([half[:0:-1], half])


# The sampler --------------------------------------------------------------------------------------------------------


def test_the_sampler_is_the_one_that_is_measured() -> None:
    """Tables by their recursion are a few units of the last place away from numpy's."""
    raw = np.random.Philox(3).random_raw(120_000)
    ours = ziggurat.draws(iter(raw.tolist()))
    theirs = np.random.Generator(np.random.Philox(3)).standard_normal(100_000)
    assert (np.abs(theirs) > ziggurat.EDGE).sum() > 10
    np.testing.assert_allclose([next(ours) for _ in range(theirs.size)], theirs, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("dimension", [1, 10**6])
def test_single_outcomes_are_as_likely_as_is_assumed(dimension: int) -> None:
    """Count mantissas at full precision: errors are near and below the assumed bounds, in the body and the tail."""
    rng, cells = np.random.default_rng(4), 1.0 / float(grid(1.0, "gaussian", dimension))
    worst = {False: 0.0, True: 0.0}
    for _ in range(500):
        # The scale in cells of its grid: from a power of two to the next.
        ratio = cells * (1.0 + rng.choice([0.0, rng.random(), 1.0 - 1e-16]))
        k = round(rng.uniform(0.01, 10.0) * ratio)
        x = k / ratio
        exact = norm.pdf(x) / ratio * (1.0 + (x * x - 1.0) / (24.0 * ratio * ratio))
        error = abs(ziggurat.atom(k, ratio) / exact - 1.0) / float(height(unit(int(math.log2(cells))), np.array(x)))
        worst[x > 4.4] = max(worst[x > 4.4], error)
    assert 0.2 < worst[False] < 0.9
    assert 0.08 < worst[True] < 0.9


def test_what_is_beyond_ten_deviations_is_as_likely_as_it_should_be() -> None:
    for reach in (5.0, 10.0, 11.0):
        assert ziggurat.beyond(reach) == pytest.approx(2.0 * ndtr(-reach), rel=1e-3)


# The bounds ---------------------------------------------------------------------------------------------------------


def composed(p: np.ndarray, q: np.ndarray, copies: int, epsilon: float, step: float = 2e-4) -> float:
    """Σ (P − e^ε Q)₊ of n independent copies; losses are split between multiples of a step, which keeps means."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(p > 0.0, np.log(p) - np.log(q), 0.0)
    # Losses above 30 are practically infinite, and losses below −30 have no effect.
    inside = (loss <= 30.0) & (p > 0.0)
    size, cells = 2**19, np.maximum(loss[inside], -30.0) / step
    low = np.floor(cells)
    at, part = low.astype(np.int64), p[inside] * (cells - low)
    mass = np.bincount(at % size, p[inside] - part, size) + np.bincount((at + 1) % size, part, size)
    total = np.maximum(np.fft.irfft(np.fft.rfft(mass) ** copies, size), 0.0)
    signed = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
    finite = float((total * -np.expm1(np.minimum(0.0, epsilon - signed)))[signed > epsilon].sum())
    return finite + 1.0 - (1.0 - float(p[~inside].sum())) ** copies


def variates(u: float, coordinates: int, moves: list[float]) -> list[DrawnVariates]:
    """Build one ledger entry: this many coordinates, in releases with these μ."""
    part = drawn_variates(np.array(moves)[:, None], 1, 16, False, np.zeros(1, dtype=np.int64))
    number = np.array([float(coordinates)])
    return [part._replace(unit=u, coordinates=number, weighted_number=number)]


def bounds(parts: list[DrawnVariates], delta: float) -> list[Slack]:
    return [worst_case_slack(parts), *(likely_slack(parts, share * delta, np.zeros(1)) for share in SHARES)]


def test_laws_as_bad_as_is_assumed() -> None:
    """2000 coordinates that each move by one cell, and whose atoms err so that every move shows twice."""
    sigma, copies, delta, u = 64, 2000, 1e-2, 2.0**-14
    reach = 12 * sigma
    k = np.arange(-reach, reach + 1)
    p = ideal(sigma, reach)
    # Antisymmetric, so that nothing is gained or lost; one cell on, it has the other sign.
    error = np.minimum(height(u, k / sigma), 0.999) * np.where(k % 2 == 0, 1.0, -1.0) * np.sign(k)
    real = np.where(np.abs(k) <= 10 * sigma, p * (1.0 + error), 0.0)
    real /= real.sum()
    mu = math.sqrt(copies) / sigma
    found = bounds(variates(u, copies, [mu]), delta)
    stated = []
    for slack in found:
        left = slack.remaining_delta(delta)
        stated.append(float(slack.total(gaussian_epsilon(np.array([mu]), left))[0]))
    exact = float(gaussian_epsilon(mu, delta))
    # The ideal cost is exceeded, the stated one never, and the sharper bound is much sharper.
    assert composed(real[1:], real[:-1], copies, exact) > 1.01 * delta
    for epsilon in stated:
        assert composed(real[1:], real[:-1], copies, epsilon) <= delta
    assert min(stated[1:]) - exact < 0.25 * (stated[0] - exact)
    # For the noise only, the bound is tight up to a factor.
    alone = found[1]
    near = float(alone.ratio[0])
    assert 1e-3 * float(alone.delta[0]) < composed(real, p, copies, near) < 0.35 * float(alone.delta[0])
    assert composed(p, real, copies, float(alone.added_epsilon(0.0)[0]) - near) < 0.65 * float(alone.delta[0])


def test_a_record_that_is_in_the_sample_or_not() -> None:
    """100 rounds of one coordinate, one deviation away or the other, in a twentieth of them: mixtures on both sides."""
    sigma, copies, rate, delta, u = 32, 100, 0.05, 1e-2, 2.0**-20
    reach = 14 * sigma
    k = np.arange(-reach, reach + 1)

    def pair(law: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        there, away = np.roll(law, sigma), np.roll(law, -sigma)
        return (1.0 - rate) * law + rate * there, (1.0 - rate) * law + rate * away

    p = ideal(sigma, reach)
    error = np.minimum(height(u, k / sigma), 0.999) * np.sign(k)
    real = np.where(np.abs(k) <= 10 * sigma, p * (1.0 - error * np.where(np.abs(k) > 6 * sigma, 1.0, -1.0)), 0.0)
    real /= real.sum()
    for slack in bounds(variates(u, copies, [2.0] * copies), delta):
        left, low, high = float(slack.remaining_delta(delta)[0]), 0.0, 30.0
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if composed(*pair(p), copies, middle) <= left else (middle, high)
        stated = float(slack.total(np.array([high]))[0])
        assert composed(*pair(real), copies, stated) <= delta
    assert high < 30.0


@pytest.mark.parametrize("records", [1, 2])
def test_what_is_judged_from_the_far_side_of_a_sample(records: int) -> None:
    """Errors of a release of two coordinates, weighed by who may be in the sample, are as few as from the middle."""
    rng, x = np.random.default_rng(records), np.linspace(-15.0, 15.0, 301)
    step, cut = x[1] - x[0], 7.0
    subsets = [np.array(s, dtype=float) for s in np.ndindex(*[2] * records)]

    def density(away: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * away**2) / math.sqrt(2.0 * math.pi)

    def errors(away: np.ndarray) -> np.ndarray:
        return np.where(np.abs(away) > cut, np.exp(3.7 * (np.abs(away) - 3.7)), 0.0)

    def outside(shift: float) -> float:
        return float((errors(x) * density(x - shift)).sum()) * step

    def law(centre: np.ndarray) -> np.ndarray:
        return np.outer(density(x - centre[0]), density(x - centre[1]))

    largest = 0.0
    for trial in range(40):
        size, rate = rng.uniform(0.7, 4.0) / records, rng.uniform(0.02, 0.5)
        u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) * size for a in rng.normal(size=(2, records, 2)))
        if trial % 2:
            # Near the worst: one coordinate, from side to side, or the same side.
            u, v = (
                np.tile([[size, 0.0]], (records, 1)),
                np.tile([[-size if trial % 4 == 1 else size, 0.0]], (records, 1)),
            )
        share = [float(np.prod(np.where(s > 0.0, rate, 1.0 - rate))) for s in subsets]
        weight = np.array([b * law(s @ v) for b, s in zip(share, subsets, strict=True)])
        weight /= weight.sum(axis=0)
        p = sum(b * law(s @ u) for b, s in zip(share, subsets, strict=True))
        judged = sum(
            float((p * w * (errors(x - c[0])[:, None] + errors(x - c[1]))).sum()) * step**2
            for w, c in zip(weight, [s @ v for s in subsets], strict=True)
        )
        largest = max(largest, judged / (2.0**records * (outside(0.0) + outside(records * size))))
    assert 0.05 < largest <= 1.0


@pytest.mark.parametrize(("mu", "coordinates"), [(0.5, 1), (2.0, 40), (5.0, 7)])
def test_what_is_far_out_under_either_data_set_is_charged(mu: float, coordinates: int) -> None:
    """δ of one release: beyond the cut of 10 u under P, and twice that under Q, where one coordinate moves by μ."""
    bits = GAUSSIAN.bits(coordinates)
    u = unit(bits)
    c = K + math.log(10.0) / K

    def far(shift: float) -> float:
        near, away = math.exp(K * shift) * ndtr(shift + K - c), math.exp(-K * shift) * ndtr(K - c - shift)
        return float(1.1 * (u * math.exp(-0.5 * K * K) * (near + away) + 2.0 * (ndtr(shift - 10) + ndtr(-shift - 10))))

    parts = join_by_grid([drawn_variates(np.full((1, 1), mu), coordinates, bits, False, np.zeros(1, dtype=np.int64))])
    wanted = coordinates * far(0.0) + 2.0 * (coordinates * far(0.0) + far(mu))
    assert worst_case_slack(parts).delta[0] == pytest.approx(wanted, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("cut", [4.33, 6.0, 9.0])
def test_far_outcomes_by_quadrature(cut: float) -> None:
    u = 2.0**-33
    for shift in (0.0, 0.3, 2.0, 6.0):
        tail = sum(
            quad(lambda y, s=s: u * math.exp(K * (y - K)) * norm.pdf(y - s), cut, 60.0, epsabs=0.0)[0]
            for s in (shift, -shift)
        )
        beyond = 2.0 * (ndtr(shift - 10.0) + ndtr(-shift - 10.0))
        got = float(float_slack._mass_outside(u, np.full((1, 1), cut), shift)[0, 0])
        assert got == pytest.approx(1.1 * (tail + beyond), rel=1e-6)
    # Between any two shifts it grows at least with the square: many small ones cost no more than a single large one.
    squares = np.linspace(0.0, 64.0, 3001)
    each = float_slack._mass_outside(u, np.full((1, 1), cut), np.sqrt(squares))[0]
    slope = (each[1:] - each[0]) / squares[1:]
    assert (np.diff(slope) >= 0.0).all()


def test_moments_by_quadrature() -> None:
    """The exponent of the likely bound against the moments themselves, at its own cuts, for errors of either sign."""
    u, copies, delta = 2.0**-33, 10**9, 1e-7
    found = likely_slack(variates(u, copies, [0.01]), delta, np.zeros(1))
    orders = float_slack._ORDERS[:, 0]
    row = int(np.argmin(np.where(np.isfinite(found.exponent[:, 0]), found.exponent[:, 0] / orders, np.inf)))
    order, load = orders[row], float_slack._LOADS[row, 0]
    cut = K + math.log(load / order / u) / K

    def moment(power: float) -> float:
        """log of the mean of (1 ± h)^power up to the cut, and of 1 beyond, half and half."""

        def more(x: float) -> float:
            h = float(height(u, np.array(x)))
            return norm.pdf(x) * (math.expm1(power * math.log1p(h)) + math.expm1(power * math.log1p(-h)))

        knee = K + math.log(10.0) / K
        return quad(more, 0.0, knee, epsabs=0.0)[0] + quad(more, knee, cut, epsabs=0.0, limit=200)[0]

    given = found.exponent[row, 0] + math.log(0.05 * delta) - found.ratio[0]
    tail = order * math.log(order) - (1.0 + order) * math.log1p(order)
    for power in (1.0 + order, -order):
        assert copies * moment(power) + tail < given
        assert given - tail < 2.5 * copies * moment(power)


# Wide releases ------------------------------------------------------------------------------------------------------


def wide_plan(z: float, width: int, rounds: int = 2344, rate: float = 2048 / 60_000) -> Ledger:
    """Two blocks of gradients, clipped to one together, with noise multiplier z on Poisson samples."""
    ones, index = np.ones((rounds, 1)), np.arange(1, rounds + 1)
    sensitivity = {"train": ones * 2.0 / (z * math.sqrt(2.0))}
    blocks = [
        ChannelLedger(c, "gaussian", width, np.zeros(1, dtype=np.int64), index, ones, sensitivity, {"train": ones *
        rate},
                      sampling="poisson")
        for c in "xy"
    ]  # fmt: skip
    return Ledger(1, tuple(blocks))


def test_eleven_million_coordinates_have_a_price() -> None:
    budget = account(wide_plan(24.4, 11_000_000), 60_000**-1.1)
    assert 0.49 < budget.epsilon[0] < 0.54
    assert 0.0 < budget.slack_epsilon < 0.02


def test_tossed_rounding_moves_no_further_than_stated() -> None:
    """Round neighbours half a cell apart by the same draws; rounding to the nearest would move them a cell apart."""
    d, s = 50_000, 1.0
    g, rng = float(grid(s, "gaussian", d)), np.random.default_rng(8)
    query = g * rng.integers(-50, 50, (1, d)) + 0.4999 * g
    other = query + 0.5 * g
    apart, cells = float(np.linalg.norm(other - query)), np.full((1, 1), g)
    stated = float(GAUSSIAN.cost(apart, s, d))
    sensitivity, mean = [], np.zeros(d)
    for _ in range(200):
        tosses, still = rng.random((1, d)), np.zeros((1, d))
        a, b = (gaussian_integers(v, cells, 1.0 / cells, still.copy(), tosses)[0] for v in (query, other))
        sensitivity.append(g * float(np.linalg.norm(b - a)))
        mean += (b - a) / 200
    assert max(sensitivity) <= stated * s < 1.05 * max(sensitivity)
    assert abs(mean.mean() - 0.5) < 0.001
    # To the nearest every coordinate moves by a cell.
    assert np.linalg.norm(np.rint(other / g) - np.rint(query / g)) * g > 1.3 * stated * s
    # Close to none, a release with as good as no sensitivity still pays for √d/2 cells.
    assert float(GAUSSIAN.cost(1e-9, s, d)) == pytest.approx(g * math.sqrt(d / 4), rel=0.1)


def test_a_coordinator_tosses_too_and_spends_what_was_planned() -> None:
    plan = wide_plan(24.4, 60_000, rounds=2)
    query, cut = np.full((1, 60_000), 0.3), {"train": Sensitivity(np.array([0.01]), np.array([0.03]), 1, "poisson")}

    def released(shift: float) -> np.ndarray:
        releaser = PlannedReleaser(plan, bytes(32))
        told = releaser.release(1, {"x": Bounded(np.zeros_like(query), query + shift, cut, "l2")})
        line = replace(plan.channels[0].truncate(1), rate={"train": np.full((1, 1), 0.03)})
        assert releaser.ledger().costs_within(Ledger(1, (line,)))
        return told.released["x"] / float(grid(told.scale["x"], "gaussian", 60_000))

    scale = 0.01 / float(plan.channels[0].sensitivity["train"][0, 0])
    cell = float(grid(scale, "gaussian", 60_000))
    base, sensitivity = released(0.0), released(0.25 * cell)
    assert (np.mod(base, 1.0) == 0.0).all()
    assert abs(float((sensitivity - base).mean()) - 0.25) < 0.01
    assert (base * cell - 0.3).std() == pytest.approx(scale, rel=0.02)


def test_the_least_delta_is_refused_without_a_warning() -> None:
    """Half of it is nothing in float64, whose logarithm is no number that a warning has to be printed for."""
    with pytest.raises(
        InputError,
        match=r"^privacy\.delta: less than the cost of sampling in float64 with any noise \(got 4\.94066e-324\)",
    ):
        decentral_dp.plan("recursive_spider", set={"privacy.delta": 5e-324})
