"""Clipping per record, and the sensitivity of clipped sums to a unit of privacy.

The unit of privacy is a record, a group of k records, or all records of an agent. Each record of the unit is replaced
by any other record ("replace"), or contributes nothing ("zero_out"). Public counts do not change. A mean over N
contributions clipped to C changes by at most min(k, N)·2Cκ/N, or by min(k, N)·C(2κ − 1)/N, with the summation slack κ
(docs/proofs/36).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import CHANNELS, Array, Norm, summation_slack
from decentral_dp.errors import InputError
from decentral_dp.privacy.schedules import StepSize

# A record may contribute a coefficient times features, whose norm goes up to 1e250 (`models.linear_terms`); clipped,
# the coefficient is C/‖a‖. Below 2⁻¹⁰²² float64 rounds to multiples of 2⁻¹⁰⁷⁴, so that k coefficients may add
# k·2⁻¹⁰⁷⁵·1e250 to the norm: less than 2⁻⁵³·C only for C above k·2.3e-58. This leaves room for a billion coefficients,
# and for a clip that is divided by 10⁸ because its term is asked for several times.
SMALLEST_CLIP = 1e-40
# Sums over a billion contributions of this size are finite.
LARGEST_CLIP = 1e250


@dataclass(frozen=True)
class Clip:
    """Clipping norms for a record's contribution to each channel. `inf` disables clipping, and with it the certificate.

    Every term is clipped to the clipping norm of its channel: `lower_grad_y` to that of y, `lower_hvp` and
        `upper_grad_y` each to that of z, and `upper_grad_x` and `lower_jvp` each to that of x.

    Args:
        norm: norm in which contributions are clipped, "l1" or "l2".
        x: clipping norm C of channel x.
        y: clipping norm C of channel y.
        z: clipping norm C of channel z.
        shares: pairs (channel, ratios C_t/C of all rounds) for clipping norms that follow a schedule.
        envelope: whether linear models with cross-entropy use envelope gradients (`models.envelope`) instead of scaled
            gradients.

    Raises:
        InputError: a clipping norm is NaN, or positive and below `SMALLEST_CLIP`.
    """

    norm: Norm = "l1"
    x: float = np.inf
    y: float = np.inf
    z: float = np.inf
    shares: tuple[tuple[str, StepSize], ...] = field(default=(), kw_only=True)
    envelope: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for channel in CHANNELS:
            value = self.bound(channel)
            if value != 0.0 and not value >= SMALLEST_CLIP:
                raise InputError(
                    f"privacy.clip.{channel}: too small for float64 rounding (got {value:g}, expected 0 or at "
                    f"least {SMALLEST_CLIP:g}). Fix: scale the records, or the loss, up."
                )

    def bound(self, channel: str) -> float:
        """Return C of a channel."""
        return float(getattr(self, channel))

    def bounds(self, channel: str, rounds: NDArray[np.int64]) -> Array:
        """Return the clipping norms C_t of a channel in T rounds, (T,)."""
        share = dict(self.shares).get(channel)
        return self.bound(channel) * (np.ones(rounds.size) if share is None else share.at(rounds))

    def at(self, t: int) -> Clip:
        """Return the clipping norms of round t."""
        if not self.shares:
            return self
        shares = dict(self.shares)
        bounds = (self.bound(c) * (shares[c](t) if c in shares else 1.0) for c in CHANNELS)
        return Clip(self.norm, *bounds, envelope=self.envelope)

    def divide(self, times: float) -> Clip:
        """Return the clipping norms C/times: clipping v to C/times and then multiplying by times clips times · v to C.

        Args:
            times: public factor above 0.

        Raises:
            ValueError: the factor is not finite and above 0, or a clipping norm exceeds `LARGEST_CLIP`.
            InputError: a clipping norm is below `SMALLEST_CLIP`.

        Example:
            >>> Clip("l2", y=1.0).divide(4.0).y
            0.25
        """
        if times == 1.0:
            return self
        bounds = {c: self.bound(c) / times if 0.0 < times < np.inf else np.nan for c in CHANNELS}
        # NaN fails this comparison, too.
        if not all(bounds[c] <= LARGEST_CLIP or self.bound(c) == np.inf for c in bounds):
            raise ValueError(f"times: the scaled clipping norm is not finite (got {times:g})")
        return Clip(self.norm, *bounds.values(), envelope=self.envelope)


_LEAST_FACTOR = 1e-290
# Squares of smaller numbers lose digits, or vanish.
_LEAST_BOUND = 1e-140


def clip_factors(norms: Array, bound: float) -> Array:
    """Compute the factor min(1, C/‖v‖) for each record, which is 0 if the norm is not finite.

    Args:
        norms: norms of the contributions, (N,).
        bound: clipping norm C. All factors are 0 if C = 0, or if squares of numbers below C underflow in float64.
    """
    if bound < _LEAST_BOUND:
        return np.zeros_like(norms)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        factor = np.minimum(1.0, bound / norms)
    # A quotient near the smallest floats has few digits, and rounded up it would exceed the clip. NaN becomes 0.
    return np.where(factor >= _LEAST_FACTOR, factor, 0.0)


def row_norms(rows: Array, norm: Norm) -> Array:
    """Compute the norms, (N,), of the rows of an (N, d) array."""
    if norm == "l1":
        return np.asarray(np.abs(rows).sum(axis=1))
    with np.errstate(over="ignore"):
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def clipped_sum(rows: Array, bound: float, norm: Norm) -> Array:
    """Compute Σ_k rows_k·min(1, C/‖rows_k‖), (d,), from rows (N, d). A row that is not finite counts as zero."""
    return np.asarray(clipped_row_sums(rows[None], bound, norm)[0])


def clipped_row_sums(rows: Array, bound: float, norm: Norm) -> Array:
    """Compute the `clipped_sum` of each agent, (g, d), from rows (g, N, d)."""
    with np.errstate(over="ignore", invalid="ignore"):
        norms = row_norms(rows.reshape(-1, rows.shape[2]), norm).reshape(rows.shape[:2])
        factors = clip_factors(norms, bound)
        # Zero times infinity is NaN.
        rows = rows if factors.all() else np.where(np.isfinite(norms)[:, :, None], rows, 0.0)
        return np.asarray(np.matmul(factors[:, None, :], rows)[:, 0])


class Unit(NamedTuple):
    """Unit of privacy: the records of one agent, in one split, in which neighbouring data sets may differ.

    Args:
        records: number of records k, or None for all records of an agent.
        zeroed: whether the records contribute nothing in one of the data sets instead of being replaced.

    Example:
        >>> bounds = [Unit(k, zeroed).sensitivity(1.0, 100, 10) for k in (1, 5, None) for zeroed in (False, True)]
        >>> [round(float(bound), 6) for bound in bounds]
        [0.02, 0.01, 0.1, 0.05, 2.0, 1.0]
    """

    records: int | None = 1
    zeroed: bool = False

    def clips(self, counts: Array | NDArray[np.int64] | int) -> Array:
        """Return the sensitivity of a sum over N records in units of C, which is 2·min(k, N) or half of it.

        Args:
            counts: number of records N, any shape.
        """
        n = np.asarray(counts, dtype=np.float64)
        members = n if self.records is None else np.minimum(float(self.records), n)
        return members if self.zeroed else 2.0 * members

    def sensitivity(self, clip: float | Array, counts: Array | NDArray[np.int64] | int, width: int) -> Array:
        """Bound the sensitivity of a mean of clipped contributions, including float64 rounding.

        Args:
            clip: clipping norm C, times the public factor of the mean; broadcasts with N.
            counts: number of records N, any shape.
            width: number of coordinates of the mean.

        Returns:
            The sensitivity in the norm of the clip, with the broadcast shape of C and N.
        """
        slack = summation_slack(counts, width)
        if self.zeroed:
            # Both sums are rounded, and one of them has the record.
            slack = 2.0 * slack - 1.0
        return np.asarray(self.clips(counts) * clip / counts * slack)

    @property
    def steps(self) -> int:
        """Sensitivity of a sum over a Poisson sample, in units of the contribution of one drawn record."""
        return (self.records or 0) * (1 if self.zeroed else 2)

    def sampled_sensitivity(
        self, clip: float | Array, pool: Array | NDArray[np.int64], width: int, rate: Array
    ) -> Array:
        """Bound the sensitivity of a sum over a Poisson sample, divided by qN; ∞ for an agent.

        It is `steps` times the contribution of one drawn record (docs/proofs/11), also for N below k. Both sums are
        rounded (docs/proofs/01).

        Args:
            clip: clipping norm C, times the public factor of the mean; broadcasts with N.
            pool: number of records N, any shape.
            width: number of coordinates of the sum.
            rate: sampling rate q; broadcasts with N.
        """
        if self.records is None:
            return np.full(np.shape(pool), np.inf)
        return np.asarray(self.steps * clip / (rate * pool) * (2.0 * summation_slack(pool, width) - 1.0))

    @property
    def sampling(self) -> str:
        """Name of Poisson sampling with this unit, such as "poisson" for one replaced record or "poisson, 2 zeroed"."""
        return "poisson" if self == RECORD else f"poisson, {self.records} {'zeroed' if self.zeroed else 'replaced'}"

    def block_sensitivity(self, clip: float, width: int) -> float:
        """Bound the sensitivity of one clipped vector that an agent computes from all its records; ∞ for records.

        Args:
            clip: clipping norm C.
            width: number of coordinates of the vector.
        """
        return float(self.sensitivity(clip, 1, width)) if self.records is None else np.inf

    def rate(self, rate: Array) -> Array:
        """Bound the probability that a batch of fixed size contains any record of the unit.

        Args:
            rate: sampling rates of any shape, with value 1 without sampling.
        """
        if self.records is None or self.zeroed:
            return np.ones_like(rate)
        return rate if self.records == 1 else np.minimum(1.0, self.records * rate)

    @property
    def neighbours(self) -> Literal["replace", "zero_out"]:
        """Adjacency of data sets."""
        return "zero_out" if self.zeroed else "replace"

    @property
    def noun(self) -> str:
        """Noun phrase that names the unit."""
        noun = "an agent" if self.records is None else "one record" if self.records == 1 else f"{self.records} records"
        return f"{noun} zeroed out" if self.zeroed and self.records == 1 else noun


RECORD = Unit()


def sampled_unit(sampling: str) -> Unit | None:
    """Return the unit that has this `Unit.sampling`, or None if no unit has it.

    Args:
        sampling: name of the sampling scheme in a ledger.

    Example:
        >>> sampled_unit(Unit(3, True).sampling), sampled_unit("poisson").records, sampled_unit("fixed")
        (Unit(records=3, zeroed=True), 1, None)
    """
    kind, _, unit_text = sampling.partition(", ")
    if kind != "poisson":
        return None
    records, _, change = unit_text.partition(" ")
    return Unit(int(records), change == "zeroed") if unit_text else RECORD


def unit_of(unit: Any, neighbours: str) -> Unit:
    """Return the unit that the keys privacy.unit and privacy.neighbours describe."""
    records = 1 if unit == "record" else None if unit == "agent" else int(unit)
    return Unit(records, neighbours == "zero_out")
