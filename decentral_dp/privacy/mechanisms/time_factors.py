"""Gaussian noise correlated in time: n = C⁻¹ n°, n° fresh in every round, C lower-triangular with ones on its diagonal.

    n_t = n°_t + Σ_{j≥1} a_j n°_{t−j} − Σ_{j≥1} c_j n_{t−j} − Σ_i ω_i S_{i,t},      S_{i,t+1} = λ_i S_{i,t} + n_t

A few draws, noises and sums of the past are enough. Draws are integers of a grid g, and a release is
g·(rint(u/g + n_t − n°_t) + n°_t).

    banded square root    C = first c_j of (1 − x)^(−1/2) = Σ_k binom(2k, k) (x/4)^k      Kalinin & Lampert 2024
    banded inverse        C⁻¹ = first a_j of (1 − x)^(1/2)                                Kalinin et al. 2025
    buffered Toeplitz     C = 1 + Σ_k Σ_i ω_i λ_i^(k−1) x^k, close to (1 − x)^(−1/2)      McMahan et al. 2024
    AntiPGD               C⁻¹ = 1 − x                                                    Orvieto et al. 2022

Toeplitz matrices are written as power series of the shift x. C² ≈ the running sums of the gradients balances what the
noise adds to these sums and what a record shows of itself. Of records that may be read in every round no factor
shows less than fresh noise, and if batches take turns none errs less than fresh noise of all records in every round.

Proof in docs/proofs/40.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

# Of float64, the largest relative error of one operation.
_UNIT = 2.0**-53
_NONE: Array = np.zeros(0)


class TimeFactor(NamedTuple):
    """How noise goes on from that of earlier rounds, and what it costs.

    Args:
        draw_weights: a, (1, p) of all rounds or (T, p) of each; the last draw first.
        noise_weights: c, (q,), the last noise first.
        weights, decays: ω and λ, (r,).
        row_sums: ρ, (T,): up to any round t, the reads of no record show more than Σ_{k≤t} ρ_k², in the unit of a round
            of fresh noise. Of reads in every round the row sums of |C|. Every round has the same sensitivity and scale.
        rounded_sums: (T,), of |C| over all rounds, whether they read a record or not: all of them round.
        growth: the largest row sum of |C⁻¹|, rounded up: how many times as large as a draw noise can be.
        error: bound on what float64 errs in a coordinate of `carried_noise`, in the unit of the largest draw.
    """

    draw_weights: Array
    noise_weights: Array
    weights: Array
    decays: Array
    row_sums: Array
    rounded_sums: Array
    growth: float
    error: float


class Past(NamedTuple):
    """What later rounds need, in the unit of the draws.

    Args:
        draws: n°, (p, …), the last first.
        noises: n, (q, …), the last first.
        sums: S, (r, …).
        rounds: t, how many rounds are over.
    """

    draws: Array
    noises: Array
    sums: Array
    rounds: int


def empty_past(factor: TimeFactor, shape: tuple[int, ...]) -> Past:
    """Return the past before round 0.

    Args:
        factor: whose past it is.
        shape: of a draw, for example (d,).

    Returns:
        Zeros throughout.
    """
    sizes = factor.draw_weights.shape[1], factor.noise_weights.size, factor.weights.size
    draws, noises, sums = (np.zeros((size, *shape)) for size in sizes)
    return Past(draws, noises, sums, 0)


def carried_noise(factor: TimeFactor, past: Past) -> Array:
    """Return n_t − n°_t: what earlier rounds add to the noise of this one.

    Args:
        factor: as of all rounds.
        past: before round t.

    Returns:
        (…), with the shape and in the unit of a draw.

    Raises:
        IndexError: of a factor with other coefficients in each round, a round from T on.
    """
    row = factor.draw_weights[past.rounds if len(factor.draw_weights) > 1 else 0]
    return np.asarray(
        np.tensordot(row, past.draws, 1)
        - np.tensordot(factor.noise_weights, past.noises, 1)
        - np.tensordot(factor.weights, past.sums, 1)
    )


def next_past(factor: TimeFactor, past: Past, draw: Array) -> Past:
    """Return the past of the next round.

    Args:
        factor: as of all rounds.
        past: before round t.
        draw: n°_t, (…) as a release, independent of all draws before.

    Returns:
        The past before round t + 1.

    Raises:
        IndexError: as `carried_noise`.
    """
    noise = carried_noise(factor, past) + draw
    decays = factor.decays.reshape(-1, *[1] * draw.ndim)
    return Past(
        np.concatenate([draw[None], past.draws])[: len(past.draws)],
        np.concatenate([noise[None], past.noises])[: len(past.noises)],
        decays * past.sums + noise,
        past.rounds + 1,
    )


def charged_sensitivity(
    factor: TimeFactor, index: NDArray[np.int64], sensitivity: Array, grid: Array, width: int
) -> Array:
    """Compute the sensitivity that releases are charged at, beside the √d g of a release in fresh noise.

    Rounds up to t show at most Δ(Σ_{k≤t} ρ_k²)^{1/2} of the reads, and γ(Σ_{k≤t} r_k²)^{1/2} of rounding, r_k the row
    sums of |C|, γ = √d g (1 + 2φ), φ = 2⁻⁹ more than float64 makes wrong in a coordinate, in cells of g. Round t is
    charged what the square of their sum grows by.

    Args:
        factor: as of all rounds.
        index: (R,) of the releases; the first one has the number 1.
        sensitivity: Δ, (R, b), the same in all rounds.
        grid: g, (R, b) or (R, 1), of the draws.
        width: d.

    Returns:
        (R, b).
    """
    if factor.growth <= 1.0:
        # Where nothing goes on, a release is that of fresh noise.
        return np.asarray(factor.row_sums[index - 1][:, None] * sensitivity)
    shown, rounded = (
        np.sqrt(np.cumsum(np.square(np.append(0.0, sums)))) for sums in (factor.row_sums, factor.rounded_sums)
    )
    cell = np.sqrt(width) * grid
    before, after = (
        np.square(shown[k][:, None] * sensitivity + rounded[k][:, None] * (1.0 + 2.0**-8) * cell)
        for k in (index - 1, index)
    )
    return np.asarray(np.sqrt(after - before) * (1.0 + 2.0**-40) - cell)


def time_factor(kind: str, rounds: int, band: int, apart: int = 1) -> TimeFactor:
    """Compute a factor of one of the kinds that are named above.

    Args:
        kind: "banded_square_root", "banded_inverse", "buffered_toeplitz" or "anti_pgd".
        rounds: T.
        band: how many coefficients, the leading 1 included; of buffered Toeplitz, how many sums, from 2 on.
        apart: two rounds that read one record are at least so far apart; default 1.

    Returns:
        The factor, its row sums rounded up.

    Raises:
        InputError: another kind, or numbers out of range.

    Example:
        >>> time_factor("banded_square_root", 4, 3).noise_weights.tolist()
        [0.5, 0.375]
        >>> time_factor("banded_inverse", 4, 3).draw_weights.tolist()
        [[-0.5, -0.125]]
        >>> time_factor("anti_pgd", 4, 2).row_sums.round(9).tolist()
        [1.0, 2.0, 3.0, 4.0]
        >>> time_factor("anti_pgd", 4, 2, apart=4).row_sums.round(9).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """
    least = 2 if kind == "buffered_toeplitz" else 1
    if rounds < 1 or band < least or apart < 1:
        raise InputError(
            f"noise: got {rounds} rounds, a band of {band} and reads {apart} rounds apart; wanted a round or more, a "
            f"band from {least} on, and reads at least 1 apart."
        )
    order: Array = np.arange(1.0, min(band, rounds))
    match kind:
        case "banded_square_root":
            return _toeplitz(rounds, apart, c=np.cumprod(1.0 - 0.5 / order, dtype=np.float64))
        case "banded_inverse":
            return _toeplitz(rounds, apart, a=np.cumprod(1.0 - 1.5 / order, dtype=np.float64))
        case "anti_pgd":
            return _toeplitz(rounds, apart, a=np.full(1, -1.0))
        case "buffered_toeplitz":
            return _toeplitz(rounds, apart, _NONE, _NONE, *_buffers(rounds, band, apart))
    raise InputError(
        f"noise: got a factor {kind!r}; wanted banded_square_root, banded_inverse, buffered_toeplitz or anti_pgd."
    )


def factor_of(inverse: Array, reads: NDArray[np.bool_] | None = None) -> TimeFactor:
    """Take a C⁻¹ of one's own.

    Args:
        inverse: C⁻¹, (T, T), lower-triangular with ones on its diagonal.
        reads: (P, T) which rounds read a record, of every record that differs in that; by default all rounds read all.

    Returns:
        The factor, with coefficients of each round, and its row sums rounded up.

    Raises:
        InputError: it is not, or too close to singular to be inverted in float64.

    Example:
        >>> inverse = np.array([[1.0, 0.0], [-0.5, 1.0]])
        >>> factor_of(inverse).row_sums.round(9).tolist()
        [1.0, 1.5]
        >>> factor_of(inverse, np.eye(2, dtype=bool)).row_sums.round(9).tolist()
        [1.0, 0.5]
    """
    rounds = len(inverse)
    if inverse.shape != (rounds, rounds) or np.triu(inverse, 1).any() or (inverse.diagonal() != 1.0).any():
        raise InputError(
            f"privacy.correlation.in_time: got the inverse of a factor with the shape {inverse.shape}; wanted a "
            "lower-triangular matrix, T by T, with ones on its diagonal."
        )
    # Substitution needs no pivots, so that no processor fails at a matrix which another one inverts. An overflow leaves
    # `lost` infinite or NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        # The import takes longer than a short run, which seldom needs it.
        from scipy.linalg import solve_triangular

        near = solve_triangular(inverse, np.eye(rounds), lower=True, unit_diagonal=True, check_finite=False)
        # C = Ĉ + E C with E = I − Ĉ C⁻¹, so that row sums of |C| are at most those of |Ĉ| and of |E| times the largest.
        off = np.abs(np.eye(rounds) - near @ inverse) + 2.0 * rounds * _UNIT * (np.abs(near) @ np.abs(inverse))
        sums, lost = np.abs(near).sum(axis=1), off.sum(axis=1)
    if not lost.max() < 0.5:
        raise InputError(
            "privacy.correlation.in_time: the inverse of the factor is close to singular. Take smaller coefficients."
        )
    lost *= sums.max() / (1.0 - lost.max())
    upwards = 1.0 + 4.0 * rounds * _UNIT
    rounded = (sums + lost) * upwards
    most = np.zeros(rounds)
    for part in () if reads is None else np.array_split(reads, -(-len(reads) // 1024)):
        each = (np.abs(near) @ part.T + lost[:, None]) * upwards
        most = np.maximum(most, np.cumsum(np.square(each), axis=0).max(axis=1))
    # Differences of floats are rounded once, so that what is charged up to a round falls short by one unit at most.
    shown = rounded if reads is None else np.sqrt(np.diff(most, prepend=0.0)) * upwards
    lags = np.arange(rounds)[:, None] - np.arange(1, max(rounds, 2))[None, :]
    drawn = np.where(lags >= 0, np.take_along_axis(inverse, np.maximum(lags, 0), axis=1), 0.0)
    growth = float(np.abs(inverse).sum(axis=1).max()) * (1.0 + rounds * _UNIT)
    return TimeFactor(
        drawn, _NONE, _NONE, _NONE, shown, rounded, growth, _error(drawn, _NONE, _NONE, _NONE, growth, rounds)
    )


def _toeplitz(
    rounds: int,
    apart: int,
    a: Array = _NONE,
    c: Array = _NONE,
    weights: Array = _NONE,
    decays: Array = _NONE,
) -> TimeFactor:
    """A factor that is the same in all rounds, with the row sums of |C|. a, c, weights, decays: a, c, ω and λ."""
    series = np.zeros(rounds)
    series[0] = 1.0
    if a.size:
        for k in range(1, rounds):
            near = series[max(k - a.size, 0) : k][::-1]
            series[k] = -a[: near.size] @ near
    else:
        series[1 : 1 + c.size] = c
        series[1:] += weights @ decays[:, None] ** np.arange(rounds - 1)
    # Reads in the fixed rhythm 0, b, 2b, … show most if |C| does not grow with the lag; it counts as if it did not.
    size = np.abs(series) if apart == 1 else np.maximum.accumulate(np.abs(series)[::-1])[::-1]
    sums = size.copy()
    for k in range(apart, rounds):
        sums[k] += sums[k - apart]
    # Every term is positive in all kinds: a sum of products, one for each coefficient and each round before. What a
    # round costs does not depend on how many follow.
    upwards = 1.0 + np.arange(1.0, rounds + 1.0) * (a.size + c.size + weights.size + 8.0) * _UNIT
    # C⁻¹ is Toeplitz as well: its last row is its first column backwards.
    rounded = np.cumsum(np.abs(series)) * upwards
    factor = TimeFactor(a[None], c, weights, decays, sums * upwards, rounded, 1.0, 0.0)
    past, growth = empty_past(factor, ()), 0.0
    for t in range(rounds if a.any() or c.any() or weights.any() else 1):
        draw = np.array(float(t == 0))
        growth += abs(float(carried_noise(factor, past) + draw))
        past = next_past(factor, past, draw)
    growth *= 1.0 + 1e-6 * (growth > 1.0)
    return factor._replace(growth=growth, error=_error(a[None], c, weights, decays, growth, rounds))


def _error(a: Array, c: Array, weights: Array, decays: Array, growth: float, rounds: int) -> float:
    """What float64 errs in `carried_noise`: local errors of products and sums, each carried on as a draw is."""
    long = (1.0 - decays**rounds) / (1.0 - decays)
    terms = a.shape[-1] + c.size + 3.0 * weights.size + 4.0
    sizes = np.abs(a).sum(axis=1).max(initial=0.0) + growth * (np.abs(c).sum() + np.abs(weights) @ long + 1.0)
    # A sum errs by two operations a round, each of which fades as it does.
    sums = 2.0 * growth * float(np.abs(weights) @ long**2)
    return float(2.0 * growth * _UNIT * (terms * sizes + sums))


def _buffers(rounds: int, number: int, apart: int) -> tuple[Array, Array]:
    """ω and λ. (1 − x)^(−1/2) = (1/π) ∫ sech(s)/(1 − λx) ds, λ = 1/(1 + e^(2s)), at equal steps of s.

    Of a few hundred ends of the interval, those that leave least: root mean square error of the sums times sensitivity.
    """
    low = -0.5 * np.log(4.0 * rounds) + np.linspace(-2.0, 1.0, 13)
    start, end = (part.ravel() for part in np.meshgrid(low, np.linspace(0.2, 3.0, 15)))
    step = (end - start) / (number - 1)
    at = start + step * np.arange(number)[:, None]
    decays = 1.0 / (1.0 + np.exp(2.0 * at))
    weights = step / np.pi / np.cosh(at) * decays
    noise, series, power = np.ones(start.size), np.ones(start.size), weights.copy()
    state, total, spread = np.ones_like(weights), np.ones(start.size), np.ones(start.size)
    added, shown = np.ones(start.size), np.ones(start.size)
    sums = [series]
    for _ in range(1, rounds):
        noise = -(weights * state).sum(axis=0)
        state = decays * state + noise
        total = total + noise
        spread = spread + np.square(total)
        added = added + spread
        sums.append(power.sum(axis=0) + (sums[-apart] if len(sums) >= apart else 0.0))
        shown = shown + np.square(sums[-1])
        power = power * decays
    best = int(np.argmin(added * shown))
    return weights[:, best], decays[:, best]
