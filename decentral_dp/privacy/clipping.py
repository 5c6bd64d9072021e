"""Per-record clipping, total and in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import CHANNELS, Array, Norm
from decentral_dp.errors import InputError
from decentral_dp.privacy.schedules import StepSize

# A record may contribute a coefficient times features, whose norm goes up to 1e250 (`models.linear_terms`); clipped,
# the coefficient is C/‖a‖. Below 2⁻¹⁰²² float64 rounds to multiples of 2⁻¹⁰⁷⁴, so that k coefficients may add
# k·2⁻¹⁰⁷⁵·1e250 to the norm: less than 2⁻⁵³·C only for C above k·2.3e-58. This leaves room for a billion coefficients,
# and for a clip that is divided by 10⁸ because its term is asked for several times.
SMALLEST_CLIP = 1e-40
# Sums of so large contributions of a billion records are finite.
LARGEST_CLIP = 1e250


@dataclass(frozen=True)
class Clip:
    """Bounds on the norm of one record's contribution to each channel. `inf` means no clipping (and no certificate).

    A record's ∇_y l and ∇_x terms are clipped at the channel they feed: `lower_grad_y` at y; `lower_hvp` and
    `upper_grad_y`, separately, at z; `upper_grad_x` and `lower_jvp`, separately, at x.

    shares: (channel, C_t/C by round) of bounds that change; those of a round are `at(t)`.

    Raises InputError for a bound that is not 0 and below `SMALLEST_CLIP`, or no number.
    """

    norm: Norm = "l1"
    x: float = np.inf
    y: float = np.inf
    z: float = np.inf
    shares: tuple[tuple[str, StepSize], ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for channel in CHANNELS:
            value = self.bound(channel)
            if value != 0.0 and not value >= SMALLEST_CLIP:
                raise InputError(
                    f"privacy.clip.{channel}: got {value:g}, wanted at least {SMALLEST_CLIP:g}: contributions "
                    "clipped to less come near the smallest numbers of float64, where rounding takes them over their "
                    "clip. Scale the records, or the loss, up."
                )

    def bound(self, channel: str) -> float:
        return float(getattr(self, channel))

    def bounds(self, channel: str, rounds: NDArray[np.int64]) -> Array:
        """C_t of a channel at these rounds, (T,)."""
        share = dict(self.shares).get(channel)
        return self.bound(channel) * (np.ones(rounds.size) if share is None else share.at(rounds))

    def at(self, t: int) -> Clip:
        """The bounds of round t."""
        if not self.shares:
            return self
        shares = dict(self.shares)
        return Clip(self.norm, *(self.bound(c) * (shares[c](t) if c in shares else 1.0) for c in CHANNELS))

    def divide(self, times: float) -> Clip:
        """Return the clip C/times: times · (v clipped to C/times) is times · v, clipped to C.

        Args:
            times: a public factor above 0.

        Raises:
            ValueError: no finite number above 0, or one that makes a finite clip so large that sums of contributions
                could overflow.
            InputError: a clip below `SMALLEST_CLIP`.

        Example:
            >>> Clip("l2", y=1.0).divide(4.0).y
            0.25
        """
        if times == 1.0:
            return self
        bounds = {c: self.bound(c) / times if 0.0 < times < np.inf else np.nan for c in CHANNELS}
        # Written so that what is not a number fails, too.
        if not all(bounds[c] <= LARGEST_CLIP or self.bound(c) == np.inf for c in bounds):
            raise ValueError(f"a clip of contributions that are multiplied by {times:g} first bounds nothing")
        return Clip(self.norm, *bounds.values())


_LEAST_FACTOR = 1e-290
# Squares of numbers a little smaller than this lose digits, and then vanish.
_LEAST_BOUND = 1e-140


def clip_factors(norms: Array, bound: float) -> Array:
    """min(1, C/‖v‖) per record, and 0 where the norm is not finite: `min(1, C/nan)` would let the record through.

    norms: (N,) norms of the per-record contributions. A bound of 0, or one so small that squares below it vanish in
    float64, lets nothing through.
    """
    if bound < _LEAST_BOUND:
        return np.zeros_like(norms)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = np.minimum(1.0, bound / norms)
    # A quotient near the smallest floats has lost its digits, and rounded up it lets a record exceed the clip. Written
    # so that NaN, which no norm but one that is not finite leads to, becomes 0.
    return np.where(factor >= _LEAST_FACTOR, factor, 0.0)


def row_norms(rows: Array, norm: Norm) -> Array:
    """(N,) norms of the rows of an (N, d) array."""
    if norm == "l1":
        return np.asarray(np.abs(rows).sum(axis=1))
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def clipped_sum(rows: Array, bound: float, norm: Norm) -> Array:
    """Σ_k rows_k·min(1, C/‖rows_k‖), (d,); a row that is not finite counts as zero. rows: (N, d)."""
    return np.asarray(clipped_row_sums(rows[None], bound, norm)[0])


def clipped_row_sums(rows: Array, bound: float, norm: Norm) -> Array:
    """`clipped_sum` of every agent, (g, d), one agent at a time. rows: (g, N, d)."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(rows.reshape(-1, rows.shape[2]), norm).reshape(rows.shape[:2])
        factors = clip_factors(norms, bound)
        # Zero times infinity is NaN: such rows have to go before the product.
        rows = rows if factors.all() else np.where(np.isfinite(norms)[:, :, None], rows, 0.0)
        return np.asarray(np.matmul(factors[:, None, :], rows)[:, 0])
