"""Clipping per record, and how far a unit of privacy moves a clipped sum.

A sum of contributions clipped to C is total and in float64. The unit of privacy is a record, a group of records, or all
records of an agent. Each of these records is replaced by any other ("replace"), or contributes nothing instead
("zero_out"); its place stays, and so do all public counts. A mean over N contributions clipped to C moves by at most
min(k, N)·2Cκ/N, or by min(k, N)·C(2κ − 1)/N, κ the summation slack (docs/proofs/36).
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


class Unit(NamedTuple):
    """The records that neighbouring data sets differ in, of one agent and of one kind.

    Args:
        records: k, how many at most; None for all that the agent holds.
        zeroed: whether they contribute nothing in one of the data sets; else others stand in their places.

    Example:
        >>> bounds = [Unit(k, zeroed).sensitivity(1.0, 100, 10) for k in (1, 5, None) for zeroed in (False, True)]
        >>> [round(float(bound), 6) for bound in bounds]
        [0.02, 0.01, 0.1, 0.05, 2.0, 1.0]
    """

    records: int | None = 1
    zeroed: bool = False

    def clips(self, averaged: Array | NDArray[np.int64] | int) -> Array:
        """Count by how many clips C a sum over so many records moves: 2·min(k, N), or half of that.

        Args:
            averaged: N, any shape.
        """
        n = np.asarray(averaged, dtype=np.float64)
        members = n if self.records is None else np.minimum(float(self.records), n)
        return members if self.zeroed else 2.0 * members

    def sensitivity(self, clip: float | Array, averaged: Array | NDArray[np.int64] | int, width: int) -> Array:
        """Bound how far the unit moves a mean of clipped contributions, float64 included.

        Args:
            clip: C, times the public factor of the mean; broadcasts with N.
            averaged: N, a number or an array of any shape.
            width: coordinates of the mean.

        Returns:
            In the clip's norm, of the shape that C and N have together.
        """
        slack = summation_slack(averaged, width)
        if self.zeroed:
            # Both sums are rounded, and only one of them has the record.
            slack = 2.0 * slack - 1.0
        return np.asarray(self.clips(averaged) * clip / averaged * slack)

    @property
    def steps(self) -> int:
        """By how many times the most that drawing one record adds the unit moves a sum over a Poisson sample."""
        return (self.records or 0) * (1 if self.zeroed else 2)

    def sampled_sensitivity(
        self, clip: float | Array, pool: Array | NDArray[np.int64], width: int, rate: Array
    ) -> Array:
        """Bound how far a unit moves a sum over a Poisson sample, divided by qN; ∞ of an agent.

        It is `steps` times what drawing one record adds (docs/proofs/11), also where N is below k. Both sums are
        rounded (docs/proofs/01).

        Args:
            clip: C, times the public factor of the mean; broadcasts with N.
            pool: N, an array of any shape.
            width: coordinates of the sum.
            rate: q; broadcasts with N.
        """
        if self.records is None:
            return np.full(np.shape(pool), np.inf)
        return np.asarray(self.steps * clip / (rate * pool) * (2.0 * summation_slack(pool, width) - 1.0))

    @property
    def sampling(self) -> str:
        """Name how a Poisson sample draws the unit: "poisson" for one replaced record, else "poisson, 2 zeroed" …"""
        return "poisson" if self == RECORD else f"poisson, {self.records} {'zeroed' if self.zeroed else 'replaced'}"

    def block_sensitivity(self, clip: float, width: int) -> float:
        """Bound how far the unit moves what an agent makes of all its records, clipped as one vector; ∞ of records.

        Args:
            clip: C.
            width: coordinates of the vector.
        """
        return float(self.sensitivity(clip, 1, width)) if self.records is None else np.inf

    def rate(self, rate: Array) -> Array:
        """Bound the probability that a batch of fixed size holds any of the records.

        Args:
            rate: shares of the pool that are drawn afresh, 1 without sampling, in any shape; the bound has the same.
        """
        if self.records is None or self.zeroed:
            return np.ones_like(rate)
        return rate if self.records == 1 else np.minimum(1.0, self.records * rate)

    @property
    def protected(self) -> str:
        """The unit as a noun phrase: "one record of one agent"."""
        if self.records is None:
            return "all records of one agent"
        return "one record of one agent" if self.records == 1 else f"any {self.records} records of one agent"

    @property
    def neighbours(self) -> Literal["replace", "zero_out"]:
        """How neighbouring data sets differ in the unit."""
        return "zero_out" if self.zeroed else "replace"

    @property
    def noun(self) -> str:
        """The unit alone, in words."""
        many = "an agent" if self.records is None else "one record" if self.records == 1 else f"{self.records} records"
        return f"{many} zeroed out" if self.zeroed and self.records == 1 else many


RECORD = Unit()


def sampled_unit(sampling: str) -> Unit | None:
    """Return the unit of a Poisson sample by its name, `Unit.sampling`; None of another sampling.

    Args:
        sampling: as in a ledger.

    Example:
        >>> sampled_unit(Unit(3, True).sampling), sampled_unit("poisson").records, sampled_unit("fixed")
        (Unit(records=3, zeroed=True), 1, None)
    """
    kind, _, drawn = sampling.partition(", ")
    if kind != "poisson":
        return None
    records, _, change = drawn.partition(" ")
    return Unit(int(records), change == "zeroed") if drawn else RECORD


def unit_of(unit: Any, neighbours: str) -> Unit:
    """The unit of the keys privacy.unit and privacy.neighbours of a scenario."""
    records = 1 if unit == "record" else None if unit == "agent" else int(unit)
    return Unit(records, neighbours == "zero_out")
