"""Gaussian noise correlated over rounds (matrix factorisation): n = C⁻¹ n°, with fresh draws n° in every round.

C is lower-triangular, with ones on its diagonal:

    n_t = n°_t + Σ_{j≥1} a_{t,j} n°_{t−j} − Σ_{j≥1} c_j n_{t−j}

Only the last few draws and the last few n_t are kept. Draws are integers on a grid g, and a release is
g·(rint(u/g + n_t − n°_t) + n°_t).

    banded square root    C = first c_j of (1 − x)^(−1/2) = Σ_k binom(2k, k) (x/4)^k      Kalinin & Lampert 2024
    custom                C⁻¹ = any a_{t,j}

The banded square root is a power series of the shift x by a round. C² ≈ the running sums of the gradients balances the
noise of these sums and the sensitivity to one record. If a record may be read in every round, no factor is better than
fresh noise. With cyclic batches, no factor has a smaller error than fresh noise on all records in every round.

The proof is in docs/proofs/40.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError

# The largest relative error of one float64 operation.
_UNIT = 2.0**-53


class TimeFactor(NamedTuple):
    """Correlation of noise over rounds, with the numbers that determine its privacy cost.

    Attributes:
        draw_weights: weights a of each round, (T, p), with the most recent draw first.
        noise_weights: weights c, (q,), equal in all rounds, with the most recent n_t first.
        row_sums: values ρ, (T,). Up to round t, the reads of one record cost at most Σ_{k≤t} ρ_k² rounds of fresh
            noise. If every round reads it, ρ are the row sums of |C|. All rounds have the same sensitivity and scale.
        rounded_sums: row sums of |C| over all rounds, (T,), since every round is rounded.
        growth: largest row sum of |C⁻¹|, rounded up, which is the largest ratio of n_t to a draw.
        error: bound on the float64 error in a coordinate of `carried_noise`, in units of the largest draw.
    """

    draw_weights: Array
    noise_weights: Array
    row_sums: Array
    rounded_sums: Array
    growth: float
    error: float


class Past(NamedTuple):
    """Draws and noise of earlier rounds, in units of the grid.

    Attributes:
        draws: draws n°, (p, …), with the most recent draw first.
        noises: noise n, (q, …), with the most recent n_t first.
        rounds: number of past rounds t.
    """

    draws: Array
    noises: Array
    rounds: int


def empty_past(factor: TimeFactor, shape: tuple[int, ...]) -> Past:
    """Return the history of draws before round 0.

    Args:
        factor: factor of the noise.
        shape: shape of a draw, for example (d,).

    Returns:
        The history, with all entries zero.
    """
    draws, noises = (np.zeros((size, *shape)) for size in (factor.draw_weights.shape[1], factor.noise_weights.size))
    return Past(draws, noises, 0)


def carried_noise(factor: TimeFactor, past: Past) -> Array:
    """Compute n_t − n°_t, the part of the noise that earlier rounds determine.

    Args:
        factor: factor of the noise.
        past: history of draws before round t.

    Returns:
        Noise with the shape of a draw.

    Raises:
        IndexError: t is T or larger.
    """
    noise = np.tensordot(factor.draw_weights[past.rounds], past.draws, 1)
    return np.asarray(noise - np.tensordot(factor.noise_weights, past.noises, 1))


def next_past(factor: TimeFactor, past: Past, draw: Array) -> Past:
    """Return the history of draws for the next round.

    Args:
        factor: factor of the noise.
        past: history of draws before round t.
        draw: draw n°_t, (…), independent of all earlier draws.

    Returns:
        The history of draws before round t + 1.

    Raises:
        IndexError: t is T or larger.
    """
    noise = carried_noise(factor, past) + draw
    return Past(
        np.concatenate([draw[None], past.draws])[: len(past.draws)],
        np.concatenate([noise[None], past.noises])[: len(past.noises)],
        past.rounds + 1,
    )


def charged_sensitivity(
    factor: TimeFactor, index: NDArray[np.int64], sensitivity: Array, grid: Array, width: int
) -> Array:
    """Compute the sensitivity at which releases are charged, beyond the √d g of a release with fresh noise.

    Up to round t, reads contribute at most Δ(Σ_{k≤t} ρ_k²)^{1/2} and rounding γ(Σ_{k≤t} r_k²)^{1/2}, with the row sums
    r_k of |C| and γ = √d g (1 + 2φ), where φ = 2⁻⁹ exceeds the float64 error in a coordinate, in cells of g. Round t is
    charged the growth of the square of their sum.

    Args:
        factor: factor of the noise.
        index: indices of the releases, (R,), starting at 1.
        sensitivity: sensitivity Δ, (R, b), equal in all rounds.
        grid: grid g of the draws, (R, b) or (R, 1).
        width: number of coordinates d.

    Returns:
        Charged sensitivities, (R, b).
    """
    if factor.growth <= 1.0:
        # Noise without correlation is fresh noise.
        return np.asarray(factor.row_sums[index - 1][:, None] * sensitivity)
    reads, rounding = (
        np.sqrt(np.cumsum(np.square(np.append(0.0, sums)))) for sums in (factor.row_sums, factor.rounded_sums)
    )
    cell = np.sqrt(width) * grid
    before, after = (
        np.square(reads[k][:, None] * sensitivity + rounding[k][:, None] * (1.0 + 2.0**-8) * cell)
        for k in (index - 1, index)
    )
    return np.asarray(np.sqrt(after - before) * (1.0 + 2.0**-40) - cell)


def banded_square_root(rounds: int, bands: int, apart: int = 1) -> TimeFactor:
    """Compute the factor C with the first coefficients of (1 − x)^(−1/2).

    Args:
        rounds: number of rounds T.
        bands: number of coefficients, including the leading 1.
        apart: minimum number of rounds between two reads of the same record.

    Returns:
        The factor, with row sums rounded up.

    Example:
        >>> banded_square_root(4, 3).noise_weights.tolist()
        [0.5, 0.375]
        >>> banded_square_root(4, 2).row_sums.round(9).tolist()
        [1.0, 1.5, 1.5, 1.5]
        >>> banded_square_root(4, 2, apart=4).row_sums.round(9).tolist()
        [1.0, 0.5, 0.0, 0.0]
    """
    c = np.cumprod(1.0 - 0.5 / np.arange(1.0, min(bands, rounds)), dtype=np.float64)
    series = np.zeros(rounds)
    series[0] = 1.0
    series[1 : 1 + c.size] = c
    # Reads in rounds 0, b, 2b, … cost most, since coefficients are positive and fall with the lag.
    sums = series.copy()
    for k in range(apart, rounds):
        sums[k] += sums[k - apart]
    # Sums of positive products, one for each coefficient and each earlier round.
    upwards = 1.0 + np.arange(1.0, rounds + 1.0) * (c.size + 8.0) * _UNIT
    # C⁻¹ is Toeplitz as well: its last row is its first column backwards.
    factor = TimeFactor(np.zeros((rounds, 0)), c, sums * upwards, np.cumsum(series) * upwards, 1.0, 0.0)
    past, growth = empty_past(factor, ()), 0.0
    for t in range(rounds if c.size else 1):
        draw = np.array(float(t == 0))
        growth += abs(float(carried_noise(factor, past) + draw))
        past = next_past(factor, past, draw)
    growth *= 1.0 + 1e-6 * (growth > 1.0)
    return factor._replace(growth=growth, error=_error(factor, growth))


def factor_of(inverse: Array, reads: NDArray[np.bool_] | None = None) -> TimeFactor:
    """Compute the factor for a custom matrix C⁻¹.

    Args:
        inverse: matrix C⁻¹, (T, T), lower-triangular with ones on its diagonal.
        reads: whether each round reads a record, (P, T), one row per pattern of reads. None (the default) means that
            every round reads every record.

    Returns:
        The factor, with coefficients for each round and row sums that are rounded up.

    Raises:
        InputError: the matrix is not of this form, or too close to singular for float64.

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
            "privacy.correlation.over_rounds: the inverse of the factor is invalid (got shape "
            f"{inverse.shape}, expected a lower-triangular T by T matrix with ones on its diagonal)."
        )
    # Substitution needs no pivots, and gives the same result on all processors. After an overflow `lost_mass` is
    # infinite or NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        # A slow import, which few runs need.
        from scipy.linalg import solve_triangular

        near = solve_triangular(inverse, np.eye(rounds), lower=True, unit_diagonal=True, check_finite=False)
        # C = Ĉ + E C with E = I − Ĉ C⁻¹, so that row sums of |C| are at most those of |Ĉ| and of |E| times the largest.
        off = np.abs(np.eye(rounds) - near @ inverse) + 2.0 * rounds * _UNIT * (np.abs(near) @ np.abs(inverse))
        sums, lost_mass = np.abs(near).sum(axis=1), off.sum(axis=1)
    if not lost_mass.max() < 0.5:
        raise InputError(
            "privacy.correlation.over_rounds: the inverse of the factor is near singular. Fix: use smaller entries."
        )
    lost_mass *= sums.max() / (1.0 - lost_mass.max())
    upwards = 1.0 + 4.0 * rounds * _UNIT
    bound = (sums + lost_mass) * upwards
    most = np.zeros(rounds)
    for part in () if reads is None else np.array_split(reads, -(-len(reads) // 1024)):
        bounds = (np.abs(near) @ part.T + lost_mass[:, None]) * upwards
        most = np.maximum(most, np.cumsum(np.square(bounds), axis=0).max(axis=1))
    # Differences of floats are rounded once, so that the sum up to a round is too small by at most one unit.
    sensitivity = bound if reads is None else np.sqrt(np.diff(most, prepend=0.0)) * upwards
    lags = np.arange(rounds)[:, None] - np.arange(1, max(rounds, 2))[None, :]
    draw_weights = np.where(lags >= 0, np.take_along_axis(inverse, np.maximum(lags, 0), axis=1), 0.0)
    growth = float(np.abs(inverse).sum(axis=1).max()) * (1.0 + rounds * _UNIT)
    factor = TimeFactor(draw_weights, np.zeros(0), sensitivity, bound, growth, 0.0)
    return factor._replace(error=_error(factor, growth))


def _error(factor: TimeFactor, growth: float) -> float:
    """Bound the float64 error of `carried_noise`: errors of products and sums, which propagate as draws do."""
    a, c = factor.draw_weights, factor.noise_weights
    sizes = np.abs(a).sum(axis=1).max() + growth * (np.abs(c).sum() + 1.0)
    return float(2.0 * growth * _UNIT * (a.shape[1] + c.size + 4.0) * sizes)
