"""Exponential mechanisms over finitely many candidates, exactly.

A candidate with score q leaves with probability proportional to e^{−λq}, lower scores being better. If one record
moves the scores of all candidates by amounts that lie within s of each other (their *oscillation*, sup − inf), then
λ = ε/s is pure ε: a common shift cancels in the normalisation, so that no factor 1/2 is lost (McSherry & Talwar, FOCS
2007; the bounded range of Dong, Durfee & Rogers, ICML 2020).

Scores are rounded to a public grid r = 2^(⌊log₂ s⌋ − 20) and known up to `inexact` only; both go into the price,

    λ = ε/(s + 2r + 4·inexact),

and then integers alone decide (`exact`). Float64 would not do: numpy's Gumbel variates end at 36.74 and −3.61, so a
candidate whose λq is 40.4 above the best never leaves under one dataset and may under its neighbour: infinite pure ε.

The score must be one fixed function of dataset and candidate: no warm start from the candidate tried before, and what
depends on how a computation is batched belongs in `inexact`.

Exponential mechanisms on a box of up to three dimensions, exactly, for Lipschitz scores.

The candidates are the 2^{40 d} centres x_j of a dyadic grid on a public box: too many to list, and so fine that the law
is the continuous one for every purpose but its exactness. A dyadic cell with centre c and half diagonal w holds only
candidates whose score (rounded to the grid of scores) is

    score(x_j) ≥ score(c) − L·w − 2·inexact − r,

so size·exp(−λ·that bound) is an envelope, constant on the cell. Cells are halved until the envelope is tight where the
mass is; then a cell is drawn by its envelope, a candidate in it uniformly, and accepted with the exact ratio. How cells
were refined depends on the data and changes only how long a draw takes, not its law.

A public lower bound on the acceptance follows from the rule of refinement alone: e^{−τ−1/16} but for a tenth, τ the log
ratio of upper and lower bound in the cells at which refinement ends. It is worth nothing where λ·L·diameter is beyond
about 10^6 in one dimension, 10^3 in two and 10^2 in three. Draws may still be quick there, or never end.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, frexp, isfinite, ldexp
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.integer_samplers import IntArray, Weights, uniform_integer

GRID_BITS = 20
# Float64 itself errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62


def law_at(scores: Array, unit: float, rate: Fraction) -> Weights:
    """Return the law ∝ exp(−rate·score) over scores (n,) rounded to whole units."""
    whole = units(scores, unit)
    return Weights.from_gaps(whole - whole.min(), rate * Fraction(unit))


def score_unit(scale: float) -> float:
    """Return the grid of scores whose differences matter on this scale: a power of two, 2⁻²⁰ of it or a little less.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    positive("oscillation", scale)
    return ldexp(1.0, frexp(scale)[1] - 1 - GRID_BITS)


def units(scores: Array, unit: float) -> IntArray:
    """Round scores to whole units, a power of two: (n,) integers, each within half a unit.

    Raises:
        InputError: no scores, or some that are not finite or too large.

    Example:
        >>> units(np.array([0.0, 0.5, 0.7]), unit=0.25).tolist()
        [0, 2, 3]
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(scores / unit)
    if not scores.size or not bool((np.abs(scaled) < _MOST_UNITS).all()):
        raise InputError(
            f"scores: got {scores.size} of which {int((~np.isfinite(scores)).sum())} are not finite or some exceed "
            f"{unit * _MOST_UNITS:g}, wanted one or more below that; such scores contradict the declared oscillation, "
            "so declare the one that they have."
        )
    return scaled.astype(np.int64)


def positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value > 0.0):
        raise InputError(
            f"{name}: got {value}, wanted a finite number above 0; compute it from the declared constants."
        )


def not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value >= 0.0):
        raise InputError(f"{name}: got {value}, wanted a finite number, 0 or more; 0 if there is none.")


Score = Callable[[Array], Array]

DEPTH = 40
_MOST_CELLS = 2**20
# At each of the 41 depths, cells are left unrefined whose envelopes sum to this part of the mass, or less.
_NEGLIGIBLE = 0.0025
# τ by dimension: cells to be kept go with τ^{−d}, proposals with e^τ.
_TIGHTNESS = (1.0, 2.0, 4.0)
_MOST_UNITS_APART = 2**60


class Box(NamedTuple):
    """A public box.

    Args:
        low: (d,) corner, d ≤ 3 for cells.
        high: (d,) corner, above low.

    Example:
        >>> box = Box(np.array([-1.0]), np.array([1.0]))
        >>> box.diameter, box.centres(np.array([[0], [1]]), depth=1).tolist()
        (2.0, [[-0.5], [0.5]])
    """

    low: Array
    high: Array

    @property
    def sides(self) -> Array:
        return np.asarray(self.high - self.low)

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.sides))

    def centres(self, cells: IntArray, depth: int) -> Array:
        """Return the centres of the cells with these numbers among the 2^depth along each axis, (n, d)."""
        return np.asarray(self.low + self.sides * ((cells + 0.5) * 2.0**-depth))

    def slack(self) -> float:
        """Bound how far a float64 centre may lie from the ideal one."""
        return float(np.linalg.norm(np.abs(self.low) + np.abs(self.high))) * 2.0**-50


class GibbsTarget(NamedTuple):
    """The law ∝ exp(−rate·score) on the grid of a box.

    Args:
        score: (n, d) points → (n,), one fixed function.
        box: public.
        rate: λ, rational.
        unit: grid of scores, a power of two.
        lipschitz: L of the ideal score in the l2 norm.
        inexact: bound on |score − ideal score|.
    """

    score: Score
    box: Box
    rate: Fraction
    unit: float
    lipschitz: float
    inexact: float

    def slack(self, depth: int) -> int:
        """Bound the units by which a candidate's rounded score may be below that of the centre of its cell."""
        # A cell of the last depth is one candidate, at its centre.
        half = 0.5 * self.box.diameter * 2.0**-depth if depth < DEPTH else 0.0
        reach = self.lipschitz * (half + 2.0 * self.box.slack())
        return ceil((reach + 2.0 * self.inexact) / self.unit * (1.0 + 1e-12)) + 1

    def tightness(self) -> float:
        """Return τ: cells are refined until 2·rate·slack is at most this."""
        return _TIGHTNESS[len(self.box.low) - 1] + 4.0 * float(self.rate) * (
            self.inexact + self.unit + self.lipschitz * self.box.slack()
        )


class Envelope(NamedTuple):
    """Cells with an envelope of the law.

    Args:
        cells: (n, d) numbers at their depths.
        depths: (n,).
        law: of the cells.
        floor: score in units at gap 0.
    """

    cells: IntArray
    depths: IntArray
    law: Weights
    floor: int


def draw(generator: np.random.Generator, target: GibbsTarget) -> Array:
    """Draw one point of a target, (d,).

    Args:
        generator: of random bits.
        target: the law, on a box of up to three dimensions.

    Raises:
        InputError: what is no box of up to three dimensions, or a negative Lipschitz constant.
    """
    check_box(target.box)
    if len(target.box.low) > 3:
        raise InputError(f"box: got {len(target.box.low)} dimensions; cells take up to 3. Use `draw_regularised`.")
    not_negative("lipschitz", target.lipschitz)
    return sample(generator, target, refine(target))


def refine(target: GibbsTarget) -> Envelope:
    """Cover the box with cells, fine where the mass is."""
    dimension, c = len(target.box.low), float(target.rate) * target.unit
    corners = np.stack(np.meshgrid(*[[0, 1]] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    active = np.zeros((1, dimension), dtype=np.int64)
    cells, depths, floors = [], [], []
    reference, n_cells = 0, 0
    for depth in range(DEPTH + 1):
        whole = units(target.score(target.box.centres(active, depth)), target.unit)
        if depth == 0:
            reference = int(whole[0])
        slack = target.slack(depth)
        heights = np.asarray(-c * (whole - reference), dtype=np.float64)
        order = np.argsort(heights)
        if depth == DEPTH or 2.0 * c * slack <= target.tightness():
            refined = order[:0]
        else:
            refined = order[_negligible(heights[order], 2.0 * c * slack) :]
            refined = refined[-max(1, (_MOST_CELLS - n_cells - len(active)) // len(corners)) :]
        done = np.ones(len(active), dtype=np.bool_)
        done[refined] = False
        cells.append(active[done])
        depths.append(np.full(len(cells[-1]), depth))
        floors.append(whole[done] - slack)
        n_cells += len(cells[-1])
        if done.all():
            break
        active = (2 * active[~done][:, None, :] + corners).reshape(-1, dimension)
    depth_of, lowest = np.concatenate(depths), np.concatenate(floors)
    floor = int(lowest.min())
    gaps = np.minimum(lowest - floor, _MOST_UNITS_APART)
    law = Weights.from_gaps(gaps, target.rate * Fraction(target.unit), dimension * (DEPTH - depth_of))
    return Envelope(np.concatenate(cells), depth_of, law, floor)


def _negligible(heights: Array, gap: float) -> int:
    """How many of these cells, whose log-envelopes (n,) ascend, hold a negligible part of what all hold at least.

    gap: the log-envelope minus the lower bound on the log of the mass.
    """
    with np.errstate(over="ignore"):
        most = np.cumsum(np.exp(heights - heights[-1] + gap))
    return int(np.searchsorted(most, _NEGLIGIBLE * float(np.exp(heights - heights[-1]).sum()), side="right"))


def sample(generator: np.random.Generator, target: GibbsTarget, envelope: Envelope) -> Array:
    """Draw proposals from an envelope until one is accepted.

    Args:
        generator: of random bits.
        target: the law.
        envelope: its cells, as `refine` makes them.

    Returns:
        A point (d,).
    """
    while True:
        cell, bound = envelope.law.propose(generator)
        finer = DEPTH - int(envelope.depths[cell])
        numbers = [(int(n) << finer) + uniform_integer(generator, 1 << finer) for n in envelope.cells[cell]]
        point = target.box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        gap = int(units(target.score(point), target.unit)[0]) - envelope.floor
        # Below 0 only if a declared constant is wrong.
        if envelope.law.accept(generator, max(gap, 0), bound):
            return np.asarray(point[0])


def check_box(box: Box) -> None:
    """Refuse what is no box.

    Raises:
        InputError: corners that are not finite, not ordered, or of different shapes.
    """
    low, high = np.asarray(box.low), np.asarray(box.high)
    good = low.ndim == 1 and low.shape == high.shape and low.size > 0
    if not good or not bool((np.isfinite(low) & np.isfinite(high) & (low < high)).all()):
        raise InputError(f"box: got {low} to {high}, wanted two finite corners (d,) with low < high; declare them.")
    positive("box", float(np.linalg.norm(high - low)))
