"""The unit of privacy: a record, a group of records, or all records of an agent.

Each of these records is replaced by any other ("replace"), or contributes nothing instead ("zero_out"); its place
stays, and so do all public counts. A mean over N contributions clipped to C moves by at most min(k, N)·2Cκ/N, or by
min(k, N)·C(2κ − 1)/N, κ the summation slack (docs/proofs/36).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, summation_slack


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
