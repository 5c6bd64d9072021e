"""Bounded values: arithmetic that carries the sensitivity to one replaced record.

Adjacency: one record of one agent is replaced; it keeps its agent, its kind (train or validation) and its place.
A `Bounded` is the only thing that a query over records returns, and the only data-dependent thing that a participant
may release. Sums and multiples of `Bounded` values carry their sensitivities by the triangle inequality, so no
algorithm states one by hand.
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


# Batches of several rounds live on in one value: nothing is amplified.
MIXED = -1


class Sensitivity(NamedTuple):
    """What one replaced record of one kind can do to a value.

    Args:
        sensitivity: (b,) norm of the largest change; +inf where nothing is proven.
        rate: (b,) share of the pool that was drawn afresh for this value; 1 where every record takes part.
        batch: the round whose fresh batch fed the value; None without sampling; MIXED where several batches did.
        sampling: how that batch was drawn: as in a ledger, such as "fixed" or "poisson".
    """

    sensitivity: Array
    rate: Array
    batch: int | None
    sampling: str = "fixed"


# What a value that one record moves a known distance keeps its bound under.
_LINEAR = (
    "a Bounded value can be added, subtracted and multiplied by public numbers, and nothing else, for its sensitivity "
    "would be lost; normalise, select or compare what was released"
)


@dataclass(frozen=True, slots=True, init=False)
class Bounded:
    """A value `public + private` whose dependence on the agent's own records is bounded.

    Args:
        public: (b, d) part that the adversary can compute: released values, messages, data-independent terms.
        private: (b, d) part that depends on records.
        sensitivities: record kind → what one replaced record of that kind can do to `private`, in `norm`.
        norm: "l1" or "l2".

    Sensitivity:
        Of a sum at most the sum, of a multiple exactly the multiple (triangle inequality), kind by kind. A sum of
        values that different batches fed has rate 1. What is public adds nothing.

    Limits:
        A factor of 0 gives sensitivity 0, also where +inf stood.

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
        # Half as long as what a frozen dataclass does by itself, and every sum and multiple is made here.
        _put_public(self, public)
        _put_private(self, private)
        _put_sensitivities(self, sensitivities)
        _put_norm(self, norm)

    # numpy must not broadcast over this object: `array - bounded` has to reach `__rsub__`.
    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, ...]:
        """(b, d)."""
        return self.private.shape

    @property
    def value(self) -> Array:
        """(b, d) public + private. Data-dependent: nothing of it may leave the agent except through a release."""
        return self.public + self.private

    def __add__(self, other: Array | Bounded) -> Bounded:
        if isinstance(other, Bounded):
            return Bounded(
                self.public + other.public, self.private + other.private, self._sum_sensitivities(other), self.norm
            )
        # Of a large model even an array that is added to zeros takes long.
        public = other if self.public.shape == np.shape(other) and _is_zero(self.public) else self.public + other
        return Bounded(public, self.private, self.sensitivities, self.norm)

    __radd__ = __add__

    def _sum_sensitivities(self, other: Bounded) -> dict[Split, Sensitivity]:
        """The sensitivities of the sum, and of the difference."""
        if other.norm != self.norm:
            raise ValueError(f"a value bounded in {self.norm} cannot be added to one bounded in {other.norm}")
        if other.private.shape != self.private.shape:
            # What numpy spreads over more columns moves further than its sensitivity says.
            raise ValueError(f"values of shapes {self.private.shape} and {other.private.shape} cannot be added")
        return _merge(self.sensitivities, other.sensitivities)

    def __mul__(self, factor: float | Array) -> Bounded:
        """Scale by a public number, or by one public number per agent, shape (b, 1)."""
        if not isinstance(factor, float):
            shape = np.shape(factor)
            if shape not in ((), (len(self.private), 1)):
                raise ValueError(f"a value of {len(self.private)} agents cannot be scaled by numbers of shape {shape}")
        public = self.public
        if isinstance(factor, float) and public.size and not any(public.strides):
            # A single number in all places stays one.
            public = np.broadcast_to(public[:1, :1] * factor, public.shape)
        else:
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
        """Compute public + factor · private: a multiple of what depends on records, beside another public part.

        Args:
            public: (b, d).
            factor: a public number.
        """
        return Bounded(public, self.private * factor, _scale_sensitivities(self.sensitivities, factor), self.norm)

    def __float__(self) -> NoReturn:
        raise TypeError(_LINEAR)

    def __getitem__(self, index: Any) -> NoReturn:
        raise TypeError(_LINEAR)

    def in_l1(self) -> Bounded:
        """Bound the same value in l1, which Laplace noise needs.

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
        # The second factor is more than the rounding of the root and of the products.
        factor = math.sqrt(self.private.shape[1]) * (1.0 + 1e-12)
        wider = {k: s._replace(sensitivity=factor * s.sensitivity) for k, s in self.sensitivities.items()}
        return Bounded(self.public, self.private, wider, "l1")


_put_public, _put_private, _put_sensitivities, _put_norm = (vars(Bounded)[f.name].__set__ for f in fields(Bounded))


@lru_cache(maxsize=64)
def shared_zeros(shape: tuple[int, ...]) -> Array:
    """Return zeros of this shape, the public part of what has none; always the same array, not to be written to."""
    return np.broadcast_to(0.0, shape)


def _is_zero(public: Array) -> bool:
    """Whether it is a single 0 in all places."""
    return public is shared_zeros(public.shape) or bool(
        public.size and not any(public.strides) and public.flat[0] == 0.0
    )


class ScaledSensitivities(Mapping[Split, Sensitivity]):
    """Sensitivities times a public factor, multiplied once somebody asks: who writes them down multiplies many at once.

    Args:
        sensitivities: split → what is multiplied, as `base`.
        factor: not 0.

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
    # `isinstance` of a mapping takes as long as all else here.
    if isinstance(factor, float) and factor != 0.0 and type(base) is not ScaledSensitivities:
        return ScaledSensitivities(base, factor)
    return {k: _scale_sensitivity(s, factor) for k, s in base.items()}


def _scale_sensitivity(s: Sensitivity, factor: float | Array) -> Sensitivity:
    """The sensitivity of a multiple: by a public number, or by one per agent, (b, 1)."""
    if isinstance(factor, float) and factor != 0.0:
        return Sensitivity(s.sensitivity * abs(factor), s.rate, s.batch, s.sampling)
    size = np.abs(np.asarray(factor, dtype=np.float64)).reshape(-1)
    with np.errstate(invalid="ignore"):
        # Nothing moves what is multiplied by zero, however far it might have moved.
        return s._replace(sensitivity=np.where(size == 0.0, 0.0, s.sensitivity * size))


def _merge(a: Mapping[Split, Sensitivity], b: Mapping[Split, Sensitivity]) -> dict[Split, Sensitivity]:
    """Add sensitivities kind by kind. Values fed by different batches keep no amplification: their rate becomes 1."""
    merged = dict(a)
    for split, s in b.items():
        if split not in merged:
            merged[split] = s
            continue
        first = merged[split]
        total = first.sensitivity + s.sensitivity
        if first.batch == s.batch:
            merged[split] = first._replace(sensitivity=total)
        else:
            merged[split] = Sensitivity(total, np.ones_like(total), MIXED)
    return merged


def summation_slack(records: NDArray[np.int64] | Array | int, dimension: int) -> Array:
    """Bound what float64 summation and clipping can add to 2C/N, for any order and any FMA.

    One replaced record changes every rounding of the sum, so the exact bound 2C/N is false in floating point.

    Args:
        records: N, any shape.
        dimension: d, coordinates of one contribution.

    Returns:
        κ = 1 + 1.01·N·(N + d + 8)·2⁻⁵³, of the shape of `records`.

    Example:
        >>> f"{summation_slack(1000, 10) - 1.0:.2e}"
        '1.14e-10'
    """
    n = np.asarray(records, dtype=np.float64)
    return np.asarray(1.0 + 1.01 * n * (n + dimension + 8) * 2.0**-53)


def mean_sensitivity_bound(diameter: float, records: int, agents: int, width: int, rate: float = 1.0) -> float:
    """Bound how far one replaced record moves a mean over a share `rate` of all records.

    Args:
        diameter: D, the largest distance between two contributions; 2C where each is clipped to C.
        records: N, of all agents.
        agents: how many of them add up their own records first.
        width: coordinates of the mean.
        rate: q, the share of records that is drawn; default 1.

    Returns:
        D/(qN), times the slack of its sum.

    Sensitivity:
        In the norm of the diameter; one record of one agent is replaced.

    Example:
        >>> round(mean_sensitivity_bound(2.0, records=100, agents=4, width=5), 9)
        0.02
        >>> round(mean_sensitivity_bound(2.0, records=100, agents=4, width=5, rate=0.1), 9)
        0.2
    """
    slack = float(summation_slack(records + agents + 2, width))
    if rate < 1.0:
        # Half of it is the distance to a sample without the record, where both data sets round.
        slack = 2.0 * slack - 1.0
    return diameter / (rate * records) * slack


def memory_slack(records: Array | NDArray[np.int64]) -> Array:
    """Bound what float64 can add each round to a state that is remembered, v ← a v − λ G.

    Args:
        records: N_t, any shape, never falling from round to round.

    Returns:
        γ = 1 + 4.04·(N + 4)·2⁻⁵³, of the shape of `records`; see docs/proofs/01.

    Limits:
        G is at most two clipped means (of either kind of record, with the channel's clip) over N_t records. So |v| is
        at most N_t times what one record may move it. Scaling and adding round v by less than 2⁻⁵³(2|a v| + |λ G|) in
        each of two data sets, and `summation_slack` has room for |λ G|. The 4 covers the rounding of the bound itself.
    """
    return np.asarray(1.0 + 4.04 * (np.asarray(records, dtype=np.float64) + 4.0) * 2.0**-53)


def transpose(value: Array | Bounded, rows: int, columns: int) -> Array | Bounded:
    """Transpose matrices that are laid out flat: (b, rows·columns) → (b, columns·rows).

    Args:
        value: (b, rows·columns), an array or bounded.
        rows: of the matrices as given.
        columns: of the matrices as given.

    Sensitivity:
        The same: entries only change places, so no entrywise norm changes.

    Example:
        >>> transpose(np.arange(6.0)[None], rows=2, columns=3).tolist()
        [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]
    """
    if isinstance(value, Bounded):
        public, private = (_transpose(part, rows, columns) for part in (value.public, value.private))
        return replace(value, public=public, private=private)
    return _transpose(value, rows, columns)


def unproven(function: Callable[..., Array], *values: Array | Bounded) -> Array | Bounded:
    """Apply a function of which nothing is proven, row by row; for private states.

    Args:
        function: of arrays, each row by itself.
        values: arrays or bounded values, each (b, …): a row for each agent.

    Returns:
        An array if all values are arrays, else a bounded value.

    Sensitivity:
        Infinite for every kind of record that can move any of the values, and zero for one that can move none.
    """
    bounded = [v for v in values if isinstance(v, Bounded)]
    result = function(*(v.value if isinstance(v, Bounded) else v for v in values))
    if not bounded:
        return result
    sensitivities = {}
    for split in SPLITS:
        moves = np.zeros(len(result), dtype=bool)
        for v in bounded:
            moves |= v.sensitivities[split].sensitivity > 0.0 if split in v.sensitivities else False
        sensitivities[split] = Sensitivity(np.where(moves, np.inf, 0.0), np.ones(len(result)), None)
    return Bounded(np.zeros_like(result), result, sensitivities, bounded[0].norm)


def _transpose(flat: Array, rows: int, columns: int) -> Array:
    return flat.reshape(-1, rows, columns).transpose(0, 2, 1).reshape(len(flat), rows * columns)
