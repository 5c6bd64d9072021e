"""The grid walk, a Markov chain for the exponential mechanism: for comparison, at ε = ∞.

    P(x) ∝ exp(−Φ(x)/scale) on a box, approached by `inner` steps of a lazy walk between cells, `candidates` along each
    axis, and a last step that picks a point of the cell and keeps it with a probability, or starts all over

with the scale 2s/ε' of Equation 4 as published, ε' = ε/2: the other half, by Theorem B.15, pays for the distance from
P under two data sets. Left out, candidates are 65, 17 or 9, and inner is 8 p times their square.

The threat model is an adversary that sees x; the coordinator is trusted, and holds all records of all agents. The
distribution of the released point is at an unknown distance from P. Conductance proves it small after a number
of steps that is not feasible (10⁹ for one variable and nε = 160, where 10³ do); the published count lacks a factor
p·e^ξ, and the published accuracy is one of the score where it has to be one of the exponent. So nothing is certified
here: "as_published" runs it at ε = ∞, and `exponential_mechanism` draws from P itself.

Cells of side γ on a cube, F = e^{−Φ̂/scale}: stay with probability ½, else go to a neighbour along ±e_i (1/(4p) each)
with probability min(1, F'/F); then a uniform θ of the cell, accepted with F(θ)/(e^{αγ/2 + 2ζ} F(centre)), or all
restarts. α is the Lipschitz constant of Φ/scale in the infinity norm, ζ the error of the exponent: e would do for
αγ/2 + 2ζ ≤ 1, as published; with what it is the last step is a probability in any case.

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

# If fewer of the last steps are accepted, restarts do not end.
_LEAST_ACCEPTANCE = 1e-4


@dataclass(frozen=True)
class GridWalkSelection(SelectionMechanism):
    """facts: of the score. box: public. cells: along each axis. steps: of the walk, every time it starts."""

    facts: SelectionBounds
    box: Box
    score: Score
    cells: int
    steps: int

    mechanism = "uncertified"
    distortion = 0.0

    @property
    def sensitivity(self) -> Mapping[Split, float]:
        """Nothing is proven."""
        return dict.fromkeys(self.facts.sensitivity, math.inf)

    @property
    def width(self) -> int:
        return len(self.box.low)

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        """A point at this scale, (width,); the best at scale 0."""
        if scale == 0.0:
            return best_point(self.score, self.box)

        @cache
        def exponent(cell: tuple[int, ...]) -> float:
            """Φ̂/scale at the centre of a cell."""
            return self._height(np.array(cell) + 0.5) / scale

        gamma = float(self.box.sides.max()) / self.cells
        # e^{−αγ/2 − 2ζ}, or 1/e where that is more.
        least = 1.0 / (math.e * max(1.0, acceptance(self.alpha(scale), gamma, self.facts.inexact / scale)))
        while True:
            cell = self._walk(generator, exponent)
            place = np.array(cell) + generator.random(self.width)
            if generator.random() < math.exp(exponent(cell) - self._height(place) / scale) * least:
                return np.asarray(self.box.low + self.box.sides * (place / self.cells))

    def _height(self, place: Array) -> float:
        """Φ̂ at a point, in units of a cell."""
        return float(self.score((self.box.low + self.box.sides * (place / self.cells))[None])[0])

    def _walk(self, generator: np.random.Generator, exponent: Callable[[tuple[int, ...]], float]) -> tuple[int, ...]:
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
                    if coin < math.exp(min(0.0, exponent(cell) - exponent(other))):
                        cell = other
        return cell

    def alpha(self, scale: float) -> float:
        """α."""
        return self.facts.lipschitz * math.sqrt(self.width) / scale

    def check(self, scale: float) -> None:
        """Raises InputError where cells are so wide that hardly a point is accepted."""
        gamma, zeta = float(self.box.sides.max()) / self.cells, self.facts.inexact / scale
        # Twice: F(θ) may be equally far below and above.
        if acceptance(2.0 * self.alpha(scale), gamma, 2.0 * zeta) * math.e > 1.0 / _LEAST_ACCEPTANCE:
            wanted = math.ceil(self.alpha(scale) * float(self.box.sides.max()))
            raise InputError(
                f"algorithm.candidates: {self.cells} cells along each axis are so wide that hardly any point is kept; "
                f"take about {wanted}, or a smaller epsilon."
            )


def acceptance(alpha: float, gamma: float, zeta: float = 0.0) -> float:
    """The largest "probability" F(θ)/(e·F(x)) of the last step: e^{αγ/2 + 2ζ − 1}, no probability where above 1.

    alpha: Lipschitz constant of the exponent in the infinity norm. gamma: side of a cell. zeta: error of the exponent.
    """
    return math.exp(alpha * gamma / 2.0 + 2.0 * zeta - 1.0)


_UNPROVEN = "A walk is at an unknown distance from its law after any number of steps that can be taken."
_MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class GridWalk(SingleDraw):
    """A trusted coordinator: a Markov chain for the exponential mechanism, at ε = ∞ (Lowy & Liu, 2025, B.3).

    Args:
        candidates: cells along each axis.
        inner: steps of the walk.
    """

    name = "grid_walk"

    candidates: int | None = dp.count_option("cells along each axis; settled by default", "points", "65")
    inner: int | None = dp.count_option("steps of the walk; settled by default", "steps", "5")

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        self.box(context)
        p = context.problem.p
        cells = self.candidates or count_per_axis(p)
        steps = self.inner or 8 * p * cells**2
        if cells < 2 or steps > _MOST_STEPS:
            raise dp.InputError(
                f"algorithm.candidates: {cells} cells along each axis and {steps} steps; wanted 2 cells or more, and "
                f"no more than {_MOST_STEPS} steps: give fewer candidates, or inner."
            )
        return replace(self, candidates=cells, inner=steps), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> GridWalkSelection:
        box = self.box(context)
        facts = SelectionBounds.from_value(context.pooled_bounds, box.low, box.high)
        score: Any = getattr(pool, "scores", None)
        return GridWalkSelection(facts, box, score, self.candidates or 2, self.inner or 1)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context), _UNPROVEN)
