"""Bounded values: arithmetic that keeps track of the sensitivity to one replaced record.

Adjacency: one record of one agent is replaced. Its agent, its split (train or validation) and its index do not change.
Queries on records return only `Bounded` values, and a participant releases no other data-dependent value. The
sensitivity of sums and multiples follows from the triangle inequality, so algorithms need not state it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Norm: TypeAlias = Literal["l1", "l2"]
Split: TypeAlias = Literal["train", "validation"]

SPLITS: tuple[Split, ...] = ("train", "validation")
CHANNELS = ("x", "y", "z")
# Default δ of scenarios and estimators: below 1/N for fewer than 10⁵ records.
DEFAULT_DELTA = 1e-5


# Values with batches of several rounds have no amplification.
MIXED = -1


class Sensitivity(NamedTuple):
    """Sensitivity of a value to one replaced record of a split.

    Args:
        sensitivity: norm of the largest change, (b,); +inf if no bound is proved.
        rate: sampling rate of the batch, (b,), which is 1 if all records take part.
        batch: round of the fresh batch, None if there is no sampling, or MIXED for several batches.
        sampling: kind of sampling of the batch, as in a ledger, such as "fixed" or "poisson".
        largest: largest norm of the part of the value that reads the split, (b,) or 0 (`split_rounding`).
    """

    sensitivity: Array
    rate: Array
    batch: int | None
    sampling: str = "fixed"
    largest: Array | float = 0.0


_LINEAR = (
    "a Bounded value can be added, subtracted and multiplied by public numbers only; other operations lose its "
    "sensitivity. Fix: normalise, select or compare released values"
)


@dataclass(frozen=True, slots=True, init=False)
class Bounded:
    """Value `public + private` whose dependence on the agent's own records is bounded.

    Args:
        public: part that the adversary can compute, (b, d), from released values, messages and data-independent terms.
        private: part that depends on records, (b, d).
        sensitivities: split → sensitivity of `private` to one replaced record, in `norm`.
        norm: norm of the sensitivities, "l1" or "l2".

    Sensitivity:
        For each split, the sensitivity of a sum is at most the sum of the sensitivities, and that of a multiple is the
        same multiple (triangle inequality). A sum of values from different batches has rate 1. The public part has
        sensitivity 0.

    Limits:
        A factor of 0 gives sensitivity 0, even if the sensitivity was +inf.

    Example:
        >>> moved = {"train": Sensitivity(np.array([2.0]), np.array([1.0]), None)}
        >>> mean = Bounded(np.zeros((1, 4)), np.ones((1, 4)), moved, "l2")
        >>> (5.0 - 3.0 * mean).sensitivities["train"].sensitivity.tolist()
        [6.0]
        >>> (mean + 0.5 * mean).sensitivities["train"].sensitivity.tolist()
        [3.0]
    """

    public: Array
    private: Array
    sensitivities: Mapping[Split, Sensitivity]
    norm: Norm

    def __init__(self, public: Array, private: Array, sensitivities: Mapping[Split, Sensitivity], norm: Norm) -> None:
        # Twice as fast as the method of a frozen dataclass; every sum and multiple calls it.
        _put_public(self, public)
        _put_private(self, private)
        _put_sensitivities(self, sensitivities)
        _put_norm(self, norm)

    # `array - bounded` must call `__rsub__`, not broadcast over this object.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (b, d)."""
        return self.private.shape

    @property
    def value(self) -> Array:
        """Value public + private, (b, d). It is data-dependent, and is sent only through a release."""
        return self.public + self.private

    def __add__(self, other: Array | Bounded) -> Bounded:
        if isinstance(other, Bounded):
            return Bounded(
                self.public + other.public, self.private + other.private, self._sum_sensitivities(other), self.norm
            )
        # For large models even adding zeros is slow.
        public = other if self.public.shape == np.shape(other) and _is_zero(self.public) else self.public + other
        return Bounded(public, self.private, self.sensitivities, self.norm)

    __radd__ = __add__

    def _sum_sensitivities(self, other: Bounded) -> dict[Split, Sensitivity]:
        """Return the sensitivities of the sum, which are also the sensitivities of the difference.

        Different batches have no amplification, so the rate becomes 1.
        """
        if other.norm != self.norm:
            raise ValueError(f"a value bounded in {self.norm} cannot be added to one bounded in {other.norm}")
        if other.private.shape != self.private.shape:
            # Broadcasting over more columns would increase the change beyond the sensitivity.
            raise ValueError(f"values of shapes {self.private.shape} and {other.private.shape} cannot be added")
        union = dict(self.sensitivities)
        for split, s in other.sensitivities.items():
            if split not in union:
                union[split] = s
                continue
            first = union[split]
            total, largest = first.sensitivity + s.sensitivity, first.largest + s.largest
            if first.batch == s.batch:
                union[split] = first._replace(sensitivity=total, largest=largest)
            else:
                union[split] = Sensitivity(total, np.ones_like(total), MIXED, largest=largest)
        if len(union) > 1:
            one, two = self.sensitivities, other.sensitivities
            for split, s in union.items():
                # Only for parts that were not yet in one sum, so that the order of a sum does not matter.
                added = _added_to(split, one, two) + _added_to(split, two, one)
                union[split] = s._replace(sensitivity=s.sensitivity + split_rounding(added))
        return union

    def __mul__(self, factor: float | Array) -> Bounded:
        """Multiply by a public number, or by one public number per agent, (b, 1)."""
        if not isinstance(factor, float):
            shape = np.shape(factor)
            if shape not in ((), (len(self.private), 1)):
                raise ValueError(f"a value of {len(self.private)} agents cannot be scaled by numbers of shape {shape}")
        public = self.public
        if not (isinstance(factor, float) and math.isfinite(factor) and _is_zero(public)):
            public = np.asarray(public * factor)
        return Bounded(public, self.private * factor, _scale_sensitivities(self.sensitivities, factor), self.norm)

    __rmul__ = __mul__

    def __neg__(self) -> Bounded:
        return Bounded(-self.public, -self.private, self.sensitivities, self.norm)

    def __sub__(self, other: Array | Bounded) -> Bounded:
        if isinstance(other, Bounded):
            public = self.public if _is_zero(other.public) else self.public - other.public
            return Bounded(public, self.private - other.private, self._sum_sensitivities(other), self.norm)
        return Bounded(self.public - other, self.private, self.sensitivities, self.norm)

    def __rsub__(self, other: Array) -> Bounded:
        return Bounded(other - self.public, -self.private, self.sensitivities, self.norm)

    def with_public(self, public: Array, factor: float) -> Bounded:
        """Replace the public part and multiply the private part, which gives public + factor · private.

        Args:
            public: new public part, (b, d).
            factor: public number.
        """
        return Bounded(public, self.private * factor, _scale_sensitivities(self.sensitivities, factor), self.norm)

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(_LINEAR)

    __float__ = __getitem__ = _refuse

    def in_l1(self) -> Bounded:
        """Return the same value with its sensitivity bounded in l1, for Laplace noise.

        Sensitivity:
            ‖v‖₁ ≤ √d ‖v‖₂ for d columns.

        Example:
            >>> moved = {"train": Sensitivity(np.array([2.0]), np.array([1.0]), None)}
            >>> mean = Bounded(np.zeros((1, 4)), np.ones((1, 4)), moved, "l2")
            >>> mean.in_l1().sensitivities["train"].sensitivity.round(9).tolist()
            [4.0]
        """
        if self.norm == "l1":
            return self
        # The second factor covers the rounding of the root and of the products.
        factor = math.sqrt(self.private.shape[1]) * (1.0 + 1e-12)
        wider = {k: _scale_sensitivity(s, factor) for k, s in self.sensitivities.items()}
        return Bounded(self.public, self.private, wider, "l1")


_put_public, _put_private, _put_sensitivities, _put_norm = (vars(Bounded)[f.name].__set__ for f in fields(Bounded))


@lru_cache(maxsize=64)
def shared_zeros(shape: tuple[int, ...]) -> Array:
    """Return zeros of this shape for a missing public part, always as the same read-only array."""
    return np.broadcast_to(0.0, shape)


def _is_zero(public: Array) -> bool:
    """Return whether an array is a broadcast 0."""
    return public is shared_zeros(public.shape) or bool(
        public.size and not any(public.strides) and public.flat[0] == 0.0
    )


class ScaledSensitivities(Mapping[Split, Sensitivity]):
    """Sensitivities multiplied by a public factor. Products are computed on access, as ledgers multiply many at once.

    Args:
        sensitivities: split → sensitivity, available as `base`.
        factor: public factor, not 0.

    Example:
        >>> moved = {"train": Sensitivity(np.array([2.0]), np.ones(1), None)}
        >>> ScaledSensitivities(moved, -3.0)["train"].sensitivity.tolist()
        [6.0]
    """

    __slots__ = ("_made", "base", "factor")

    def __init__(self, sensitivities: Mapping[Split, Sensitivity], factor: float) -> None:
        self.base, self.factor = sensitivities, factor
        self._made: dict[Split, Sensitivity] = {}

    def __getitem__(self, split: Split) -> Sensitivity:
        if split not in self._made:
            self._made[split] = _scale_sensitivity(self.base[split], self.factor)
        return self._made[split]

    def __iter__(self) -> Iterator[Split]:
        return iter(self.base)

    def __len__(self) -> int:
        return len(self.base)


def _scale_sensitivities(base: Mapping[Split, Sensitivity], factor: float | Array) -> Mapping[Split, Sensitivity]:
    # `isinstance` with a mapping is slow.
    if isinstance(factor, float) and factor != 0.0 and type(base) is not ScaledSensitivities:
        return ScaledSensitivities(base, factor)
    return {k: _scale_sensitivity(s, factor) for k, s in base.items()}


def _scale_sensitivity(s: Sensitivity, factor: float | Array) -> Sensitivity:
    """Multiply a sensitivity by a public number or by one number per agent, (b, 1)."""
    if isinstance(factor, float) and factor != 0.0:
        return Sensitivity(s.sensitivity * abs(factor), s.rate, s.batch, s.sampling, s.largest * abs(factor))
    size = np.abs(np.asarray(factor, dtype=np.float64)).reshape(-1)
    with np.errstate(invalid="ignore"):
        # A factor of 0 gives 0, also for an infinite sensitivity.
        sensitivity, largest = (np.where(size == 0.0, 0.0, bound * size) for bound in (s.sensitivity, s.largest))
    return s._replace(sensitivity=sensitivity, largest=largest)


def _added_to(split: Split, one: Mapping[Split, Sensitivity], other: Mapping[Split, Sensitivity]) -> Array | float:
    """Return the largest norm of the other splits of a summand, (b,), if only the first summand reads `split`."""
    if split not in one:
        return 0.0
    is_new = one[split].sensitivity > 0.0
    if split in other:
        is_new &= other[split].sensitivity == 0.0
    return np.where(is_new, sum(s.largest for k, s in other.items() if k != split), 0.0)


def split_rounding(largest: Array | float) -> Array | float:
    """Bound how much the part of a sum that reads the other split can change the sum's float64 rounding.

    The other part is equal in neighbouring data sets, but a sum is rounded in proportion to both parts.

    Args:
        largest: largest norm L of the other part, any shape.

    Returns:
        16.16·2⁻⁵³·L, for eight operations on the sum in each of two data sets (docs/proofs/01).
    """
    return 16.16 * 2.0**-53 * largest


def summation_slack(records: NDArray[np.int64] | Array | int, dimension: int) -> Array:
    """Bound the rounding error of float64 summation and clipping relative to 2C/N, for any order and any FMA.

    One replaced record changes the rounding errors of a sum, so the exact bound 2C/N is false in floating point.

    Args:
        records: number of records N, any shape.
        dimension: number of coordinates d of one contribution.

    Returns:
        κ = 1 + 1.01·N·(N + d + 8)·2⁻⁵³, of the shape of `records`.

    Example:
        >>> f"{summation_slack(1000, 10) - 1.0:.2e}"
        '1.14e-10'
    """
    n = np.asarray(records, dtype=np.float64)
    return np.asarray(1.0 + 1.01 * n * (n + dimension + 8) * 2.0**-53)


def mean_sensitivity_bound(diameter: float, records: int, agents: int, width: int, rate: float = 1.0) -> float:
    """Bound the sensitivity of a mean over a share `rate` of all records.

    Args:
        diameter: largest distance D between two contributions; 2C with clipping norm C.
        records: number of records N of all agents.
        agents: number of agents, each of which sums its records first.
        width: number of coordinates of the mean.
        rate: sampling rate q.

    Returns:
        D/(qN), times the slack of the sum.

    Sensitivity:
        The norm is the norm of the diameter. One record of one agent is replaced.

    Example:
        >>> round(mean_sensitivity_bound(2.0, records=100, agents=4, width=5), 9)
        0.02
        >>> round(mean_sensitivity_bound(2.0, records=100, agents=4, width=5, rate=0.1), 9)
        0.2
    """
    slack = float(summation_slack(records + agents + 2, width))
    if rate < 1.0:
        # Half of the slack is for the distance to a sample without the record.
        slack = 2.0 * slack - 1.0
    return diameter / (rate * records) * slack


def memory_slack(records: Array | NDArray[np.int64]) -> Array:
    """Bound the float64 error per round of a stored state v ← a v − λ G.

    Args:
        records: number of records N_t, any shape, which must not decrease over rounds.

    Returns:
        γ = 1 + 4.04·(N + 4)·2⁻⁵³, of the shape of `records`; see docs/proofs/01.

    Limits:
        G is at most two clipped means (one per split, with the channel's clipping norm) over N_t records. So |v| is at
        most N_t times its sensitivity. Scaling and adding round v by less than 2⁻⁵³(2|a v| + |λ G|) in each of two data
        sets, and `summation_slack` covers |λ G|. The 4 covers the rounding of the bound.
    """
    return np.asarray(1.0 + 4.04 * (np.asarray(records, dtype=np.float64) + 4.0) * 2.0**-53)


def transpose(value: Array | Bounded, rows: int, columns: int) -> Array | Bounded:
    """Transpose flattened matrices, from (b, rows·columns) to (b, columns·rows).

    Args:
        value: array or bounded value, (b, rows·columns).
        rows: number of rows of the given matrices.
        columns: number of columns of the given matrices.

    Sensitivity:
        Unchanged, since entrywise norms are invariant.

    Example:
        >>> transpose(np.arange(6.0)[None], rows=2, columns=3).tolist()
        [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]
    """
    if isinstance(value, Bounded):
        public, private = (_transpose(part, rows, columns) for part in (value.public, value.private))
        return replace(value, public=public, private=private)
    return _transpose(value, rows, columns)


def unproven(function: Callable[..., Array], *values: Array | Bounded) -> Array | Bounded:
    """Apply a function without a proven sensitivity to each row. This is intended for private states.

    Args:
        function: function of arrays, independent for each row.
        values: arrays or bounded values, each (b, …) with one row per agent.

    Returns:
        An array if all values are arrays, otherwise a bounded value.

    Sensitivity:
        It is infinite for every split on which a value depends, and zero for the others.
    """
    bounded_values = [v for v in values if isinstance(v, Bounded)]
    result = function(*(v.value if isinstance(v, Bounded) else v for v in values))
    if not bounded_values:
        return result
    sensitivities = {}
    for split in SPLITS:
        moves = np.zeros(len(result), dtype=bool)
        for v in bounded_values:
            moves |= v.sensitivities[split].sensitivity > 0.0 if split in v.sensitivities else False
        sensitivities[split] = Sensitivity(np.where(moves, np.inf, 0.0), np.ones(len(result)), None)
    return Bounded(np.zeros_like(result), result, sensitivities, bounded_values[0].norm)


def _transpose(flat: Array, rows: int, columns: int) -> Array:
    return flat.reshape(-1, rows, columns).transpose(0, 2, 1).reshape(len(flat), rows * columns)
