"""The grid walk as it can be run: an exponential mechanism after so many steps of a chain, of unknown distance.

Cells of side γ on a cube, F = e^{−Φ̂/scale}: stay with probability ½, else go to a neighbour along ±e_i (1/(4p) each)
with probability min(1, F'/F); then a uniform θ of the cell, accepted with F(θ)/(e^{αγ/2 + 2ζ} F(centre)), or all
restarts. α is the Lipschitz constant of Φ/scale in the infinity norm, ζ the error of the exponent: e would do for
αγ/2 + 2ζ ≤ 1, as printed; with what it is the last step is a probability in any case.

How close the chain is to its law after a number of steps is proven only for numbers that nobody can afford
(`privacy.grid_walk_sampler.certified_steps`), so this release is listed as uncertified, at ε = ∞.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.participants.selection import BoxSelection
from decentral_dp.privacy.mechanisms.grid_walk_sampler import acceptance

# Where fewer of the last steps are accepted, restarts go on and on.
_LEAST_ACCEPTANCE = 1e-4


@dataclass(frozen=True)
class GridWalkSelection(BoxSelection):
    """cells: along each axis. steps: of the walk, every time it starts."""

    cells: int
    steps: int

    mechanism = "uncertified"

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """Nothing is proven."""
        return dict.fromkeys(self.facts.sensitivity, math.inf)

    def sampled(self, generator: np.random.Generator, scale: float) -> Array:
        law = _Exponent(self, scale)
        while True:
            cell = self._walked(generator, law)
            point = self.box.low + self.box.sides * ((np.array(cell) + generator.random(self.width)) / self.cells)
            height = float(self.score(point[None])[0]) / scale
            if generator.random() < math.exp(law.at(cell) - height) * law.least:
                return np.asarray(point)

    def _walked(self, generator: np.random.Generator, law: _Exponent) -> tuple[int, ...]:
        """From the middle."""
        cell = (self.cells // 2,) * self.width
        moves = generator.integers(4 * self.width, size=self.steps)
        for move, coin in zip(moves.tolist(), generator.random(self.steps).tolist(), strict=True):
            axis, sign = divmod(move, 4)
            # Two of four stay.
            if sign < 2:
                there = cell[axis] + 2 * sign - 1
                if 0 <= there < self.cells:
                    other = (*cell[:axis], there, *cell[axis + 1 :])
                    if coin < math.exp(min(0.0, law.at(cell) - law.at(other))):
                        cell = other
        return cell

    def alpha(self, scale: float) -> float:
        """α."""
        return self.facts.lipschitz * math.sqrt(self.width) / scale

    def check(self, scale: float) -> None:
        """Raises InputError where cells are so wide that hardly a point is accepted."""
        gamma, zeta = float(self.box.sides.max()) / self.cells, self.facts.inexact / scale
        # Twice: F(θ) may be as far below as it is above.
        if acceptance(2.0 * self.alpha(scale), gamma, 2.0 * zeta) * math.e > 1.0 / _LEAST_ACCEPTANCE:
            wanted = math.ceil(self.alpha(scale) * float(self.box.sides.max()))
            raise InputError(
                f"algorithm.candidates: {self.cells} cells along each axis are so wide that hardly any point is kept; "
                f"take about {wanted}, or a smaller epsilon."
            )


class _Exponent:
    """Φ̂/scale at the centres of cells, each computed once: one fixed function."""

    def __init__(self, walk: GridWalkSelection, scale: float) -> None:
        self._walk = walk
        self._scale = scale
        self._known: dict[tuple[int, ...], float] = {}
        gamma = float(walk.box.sides.max()) / walk.cells
        # e^{−αγ/2 − 2ζ}, or 1/e where that is more.
        most = acceptance(walk.alpha(scale), gamma, walk.facts.inexact / scale)
        self.least = 1.0 / (math.e * max(1.0, most))

    def at(self, cell: tuple[int, ...]) -> float:
        if cell not in self._known:
            centre = self._walk.box.low + self._walk.box.sides * ((np.array(cell) + 0.5) / self._walk.cells)
            self._known[cell] = float(self._walk.score(centre[None])[0]) / self._scale
        return self._known[cell]
