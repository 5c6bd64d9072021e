"""Exponential mechanisms on a box of up to three dimensions, exactly, for Lipschitz scores (proof 21).

The candidates are the 2^{40 d} centres x_j of a dyadic grid on a public box: too many to list, and so fine that the law
is the continuous one for every purpose but its exactness. A dyadic cell with centre c and half diagonal w holds only
candidates whose score (rounded to the grid of scores) is

    score(x_j) ≥ score(c) − L·w − 2·inexact − r,

so size·exp(−λ·that bound) is an envelope, constant on the cell. Cells are halved until the envelope is tight where the
mass is; then a cell is drawn by its envelope, a candidate in it uniformly, and accepted with the exact ratio. How cells
were refined depends on the data and changes only how long a draw takes, not its law.

A public lower bound on the acceptance follows only from the rule of refinement: e^{−τ−1/16} up to a tenth, τ the log
ratio of upper and lower bound in the cells at which refinement ends. It is worth nothing where λ·L·diameter is beyond
about 10^6 in one dimension, 10^3 in two and 10^2 in three. Draws may still be quick there, or never end.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.integer_samplers import IntArray, Weights, uniform_integer
from decentral_dp.central.selection import DEPTH, Box, Score, units

_MOST_CELLS = 2**20
# At each of the 41 depths, cells are left unrefined whose envelopes sum to this part of the mass, or less.
_NEGLIGIBLE = 0.0025
# τ by dimension: cells to be kept go with τ^{−d}, proposals with e^τ.
_TIGHTNESS = (1.0, 2.0, 4.0)
_MOST_UNITS_APART = 2**60


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
        law: distribution of the cells.
        floor: score in units at gap 0.
    """

    cells: IntArray
    depths: IntArray
    law: Weights
    floor: int


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
        generator: generator of random bits.
        target: the law.
        envelope: cells of the envelope, from `refine`.

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
