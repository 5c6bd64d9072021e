"""The grid walk, a Markov chain for the exponential mechanism: for comparison, at ε = ∞.

    P(x) ∝ exp(−Φ(x)/scale) on a box, approached by `inner` steps of a lazy walk between cells, `candidates` along each
    axis, and a last step that picks a point of the cell and keeps it with a probability, or starts all over

with the scale 2s/ε' of Equation 4 as published, ε' = ε/2: the other half, by Theorem B.15, pays for the distance from
that law under two data sets. Left out, candidates are 65, 17 or 9, and inner is 8 p times their square.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records.
What is released after so many steps is at an unknown distance from that law. Conductance proves it small after a number
of steps that nobody can afford (10⁹ for one variable and nε = 160, where 10³ do); the published count lacks a factor
p·e^ξ, and the published accuracy is one of the score where it has to be one of the exponent. So nothing is certified
here: "as_published" runs it at ε = ∞, and `exponential_mechanism` draws from the law itself.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Appendix
B.3, after D. Applegate and R. Kannan, STOC 1991.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.second_order_dp_bilevel import bounds_of
from decentral_dp.central.bilevel.single_draw import (
    SingleDraw,
    State,
    charge,
    no_score,
    release_draw,
)
from decentral_dp.central.selection import Function, GridWalkSelection, ScoreBounds, per_axis

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
        cells = self.candidates or per_axis(p)
        steps = self.inner or 8 * p * cells**2
        if cells < 2 or steps > _MOST_STEPS:
            raise dp.InputError(
                f"algorithm.candidates: {cells} cells along each axis and {steps} steps; wanted 2 cells or more, and "
                f"no more than {_MOST_STEPS} steps: give fewer candidates, or inner."
            )
        return replace(self, candidates=cells, inner=steps), context

    def law(self, context: dp.CoordinatorContext, score: Function) -> GridWalkSelection:
        box = self.box(context)
        facts = ScoreBounds.of_value(bounds_of(context), box.low, box.high)
        return GridWalkSelection(facts, box, score, self.candidates or 2, self.inner or 1)

    def step(self, t: int, context: dp.CoordinatorContext, s: State) -> dp.CoordinatorSteps[State]:
        pool = yield dp.Pool()
        return (yield from release_draw(self.law(context, pool.scores)))

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context, no_score), _UNPROVEN)
