"""Exact exponential mechanisms with Lipschitz scores on a box of up to three dimensions (proof 21).

The candidates are the 2^{40 d} centres x_j of a dyadic grid on a public box. They are too many to enumerate, and the
grid is so fine that the distribution is practically continuous. In a dyadic cell with centre c and half diagonal w, the
score of every candidate, rounded to the grid of scores, satisfies

    score(x_j) ≥ score(c) − L·w − 2·inexact − r,

so the cell size times exp(−λ·bound) is an envelope that is constant on the cell. Cells are halved until the envelope is
tight on most of the mass. A draw selects a cell by its envelope and a uniform candidate in the cell, and accepts it
with the exact ratio. The refinement depends on the data, but affects only the running time and not the distribution.

The refinement rule gives a public lower bound on the acceptance probability: about 0.9 e^{−τ−1/16}, with τ the log
ratio of upper and lower bound in the final cells. The bound is void if λ·L·diameter exceeds about 10^6 in one
dimension, 10^3 in two and 10^2 in three. A draw can still be fast in that case, or never terminate.
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
# At each of the 41 depths, cells whose envelopes sum to at most this fraction of the mass are not refined.
_NEGLIGIBLE = 0.0025
# τ by dimension. The number of cells is proportional to τ^{−d}, and the number of proposals to e^τ.
_TIGHTNESS = (1.0, 2.0, 4.0)
_MOST_UNITS_APART = 2**60


class GibbsTarget(NamedTuple):
    """The distribution ∝ exp(−rate·score) on the grid of a box.

    Args:
        score: deterministic function of points (n, d) → scores (n,).
        box: public box.
        rate: λ, rational.
        unit: spacing of the grid of scores, a power of two.
        lipschitz: Lipschitz constant L of the ideal score in the l2 norm.
        inexact: bound on |score − ideal score|.
    """

    score: Score
    box: Box
    rate: Fraction
    unit: float
    lipschitz: float
    inexact: float

    def slack(self, depth: int) -> int:
        """Bound the difference between the rounded scores of a cell's centre and a candidate in it, in units."""
        # A cell of the last depth has one candidate, its centre.
        half = 0.5 * self.box.diameter * 2.0**-depth if depth < DEPTH else 0.0
        reach = self.lipschitz * (half + 2.0 * self.box.slack())
        return ceil((reach + 2.0 * self.inexact) / self.unit * (1.0 + 1e-12)) + 1

    def tightness(self) -> float:
        """Return τ. Cells are refined until 2·rate·slack ≤ τ."""
        return _TIGHTNESS[len(self.box.low) - 1] + 4.0 * float(self.rate) * (
            self.inexact + self.unit + self.lipschitz * self.box.slack()
        )


class Envelope(NamedTuple):
    """Cells with an envelope of the distribution.

    Args:
        cells: indices of the cells at their depths, (n, d).
        depths: depths of the cells, (n,).
        weights: distribution of the cells.
        floor: score of gap 0, in units.
    """

    cells: IntArray
    depths: IntArray
    weights: Weights
    floor: int


def refine(target: GibbsTarget) -> Envelope:
    """Partition the box into cells that are fine on most of the mass."""
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
    weights = Weights.from_gaps(gaps, target.rate * Fraction(target.unit), dimension * (DEPTH - depth_of))
    return Envelope(np.concatenate(cells), depth_of, weights, floor)


def _negligible(heights: Array, gap: float) -> int:
    """Return the number of first cells, with ascending log-envelopes (n,), whose total mass is negligible.

    gap: log-envelope minus the lower bound on the logarithm of the mass.
    """
    with np.errstate(over="ignore"):
        most = np.cumsum(np.exp(heights - heights[-1] + gap))
    return int(np.searchsorted(most, _NEGLIGIBLE * float(np.exp(heights - heights[-1]).sum()), side="right"))


def sample(generator: np.random.Generator, target: GibbsTarget, envelope: Envelope) -> Array:
    """Draw proposals from an envelope until one is accepted.

    Args:
        generator: generator of random bits.
        target: target distribution.
        envelope: result of `refine`.

    Returns:
        Point (d,).
    """
    while True:
        cell, bound = envelope.weights.propose(generator)
        finer = DEPTH - int(envelope.depths[cell])
        numbers = [(int(n) << finer) + uniform_integer(generator, 1 << finer) for n in envelope.cells[cell]]
        point = target.box.centres(np.array([numbers], dtype=np.int64), DEPTH)
        gap = int(units(target.score(point), target.unit)[0]) - envelope.floor
        # The gap is negative only if a declared constant is wrong.
        if envelope.weights.accept(generator, max(gap, 0), bound):
            return np.asarray(point[0])
