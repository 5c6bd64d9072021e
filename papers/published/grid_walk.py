"""The grid walk, a Markov chain for the exponential mechanism: for comparison, at ε = ∞.

The target is P(x) ∝ exp(−Φ(x)/scale) on a box. `inner` steps of a lazy walk between cells, `candidates` along each
axis, select a cell. The last step draws a point in the cell and accepts it with a probability, or restarts the walk.
The scale is 2s/ε' of Equation 4 as published with ε' = ε/2. By Theorem B.15, the other half of ε covers the distance
from P. By default, candidates is 65, 17 or 9, and inner is 8 p times its square.

The coordinator is trusted and holds all records. The adversary observes x. The distance of the distribution of x from P
is unknown. The conductance bound proves a small distance after an infeasible number of steps (10⁹ for one variable and
nε = 160, although 10³ suffice). The published number of steps lacks a factor p·e^ξ, and the published accuracy is that
of the score instead of the exponent. The walk therefore has no certificate: "as_published" runs it at ε = ∞, and
`exponential_mechanism` draws from P exactly.

The cells have side γ on a cube, and F = e^{−Φ̂/scale}. A step stays with probability ½, or proposes a neighbour along
±e_i (1/(4p) each) and accepts it with probability min(1, F'/F). The last step accepts a uniform θ of the cell with
probability F(θ)/(e^{αγ/2 + 2ζ} F(centre)). α is the Lipschitz constant of Φ/scale in the infinity norm, and ζ is the
error of the exponent. The paper has e instead of e^{αγ/2 + 2ζ}, which suffices only if αγ/2 + 2ζ ≤ 1.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Appendix
B.3, after D. Applegate and R. Kannan, STOC 1991.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.exponential_mechanism import SingleDraw, charge
from decentral_dp.central.selection import Box, Score, SelectionBounds, best_point, count_per_axis
from decentral_dp.errors import InputError
from decentral_dp.exchange import SelectionMechanism

# Below this acceptance probability, a walk restarts too often.
_LEAST_ACCEPTANCE = 1e-4


@dataclass(frozen=True)
class GridWalkSelection(SelectionMechanism):
    """Selection of a point by a grid walk.

    Args:
        facts: bounds of the score.
        box: public box.
        score: scores of points.
        cells: number of cells along each axis.
        steps: number of steps of each walk.
    """

    facts: SelectionBounds
    box: Box
    score: Score
    cells: int
    steps: int

    mechanism = "uncertified"
    distortion = 0.0

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """No sensitivity is proved."""
        return dict.fromkeys(self.facts.sensitivity, math.inf)

    @property
    def width(self) -> int:
        return len(self.box.low)

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """Draw a point at a scale, (width,). Return the best point at scale 0."""
        if scale == 0.0:
            return best_point(self.score, self.box)

        @cache
        def exponent(cell: tuple[int, ...]) -> float:
            """Compute Φ̂/scale at the centre of a cell."""
            return self._height(np.array(cell) + 0.5) / scale

        gamma = float(self.box.sides.max()) / self.cells
        # The smaller of e^{−αγ/2 − 2ζ} and 1/e.
        least = 1.0 / (math.e * max(1.0, acceptance(self.alpha(scale), gamma, self.facts.inexact / scale)))
        while True:
            cell = self._walk(generator, exponent)
            place = np.array(cell) + generator.random(self.width)
            if generator.random() < math.exp(exponent(cell) - self._height(place) / scale) * least:
                return np.asarray(self.box.low + self.box.sides * (place / self.cells))

    def _height(self, place: Array) -> float:
        """Compute Φ̂ at a point in units of a cell."""
        return float(self.score((self.box.low + self.box.sides * (place / self.cells))[None])[0])

    def _walk(self, generator: np.random.Generator, exponent: Callable[[tuple[int, ...]], float]) -> tuple[int, ...]:
        """Walk from the middle of the box, and return the final cell."""
        cell = (self.cells // 2,) * self.width
        moves = generator.integers(4 * self.width, size=self.steps)
        for move, uniform in zip(moves.tolist(), generator.random(self.steps).tolist(), strict=True):
            axis, sign = divmod(move, 4)
            # Two of four moves stay.
            if sign < 2:
                index = cell[axis] + 2 * sign - 1
                if 0 <= index < self.cells:
                    proposal = (*cell[:axis], index, *cell[axis + 1 :])
                    if uniform < math.exp(min(0.0, exponent(cell) - exponent(proposal))):
                        cell = proposal
        return cell

    def alpha(self, scale: float) -> float:
        """Compute α."""
        return self.facts.lipschitz * math.sqrt(self.width) / scale

    def check(self, scale: float) -> None:
        """Raise InputError if the cells are so wide that the acceptance probability is too small."""
        gamma, zeta = float(self.box.sides.max()) / self.cells, self.facts.inexact / scale
        # Twice the bounds, because F(θ) can be as far below F(centre) as above it.
        if acceptance(2.0 * self.alpha(scale), gamma, 2.0 * zeta) * math.e > 1.0 / _LEAST_ACCEPTANCE:
            enough = math.ceil(self.alpha(scale) * float(self.box.sides.max()))
            raise InputError(
                f"algorithm.candidates: the cells are too wide, and hardly any point is accepted (got {self.cells} "
                f"along each axis, expected about {enough}). Fix: give more candidates, or a smaller epsilon."
            )


def acceptance(alpha: float, gamma: float, zeta: float = 0.0) -> float:
    """Compute e^{αγ/2 + 2ζ − 1}, the largest value of the published acceptance probability F(θ)/(e·F(x)).

    Args:
        alpha: α, Lipschitz constant of the exponent in the infinity norm.
        gamma: γ, side of a cell.
        zeta: ζ, error of the exponent.
    """
    return math.exp(alpha * gamma / 2.0 + 2.0 * zeta - 1.0)


_UNPROVEN = "The distance of a walk from its target distribution is unknown after any feasible number of steps."
_MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class GridWalk(SingleDraw):
    """Markov chain for the exponential mechanism of a trusted coordinator, at ε = ∞ (Lowy & Liu, 2025, B.3).

    Args:
        candidates: number of cells along each axis.
        inner: number of steps of the walk.
    """

    name = "grid_walk"

    candidates: int | None = dp.count_option("cells along each axis; default 65, 17 or 9", "points", "65")
    inner: int | None = dp.count_option("steps of the walk; default 8 p times the square of candidates", "steps", "5")

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        self.box(context)
        p = context.problem.p
        cells = self.candidates or count_per_axis(p)
        steps = self.inner or 8 * p * cells**2
        if cells < 2 or steps > _MOST_STEPS:
            raise dp.InputError(
                f"algorithm.candidates: not a feasible walk (got {cells} cells along each axis and {steps} steps, "
                f"expected at least 2 cells and at most {_MOST_STEPS} steps). Fix: give fewer candidates, or inner."
            )
        return replace(self, candidates=cells, inner=steps), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> GridWalkSelection:
        box = self.box(context)
        facts = SelectionBounds.from_value(context.pooled_bounds, box.low, box.high)
        score: Any = getattr(pool, "scores", None)
        return GridWalkSelection(facts, box, score, self.candidates or 2, self.inner or 1)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context), _UNPROVEN)
