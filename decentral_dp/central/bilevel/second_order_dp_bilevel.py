"""Private hypergradient descent with second derivatives, its rate free of the lower level's dimension.

Round t, Φ(x) = F(x, y_Z(x)) with F and G the means over all records (Lowy & Liu, Algorithm 1):

    y ≈ argmin_y G(x, y),  ‖y − y_Z(x)‖ ≤ a     v ≈ (∇²_yy G)⁻¹ ∇_y F,  to within τ     both at y, surely
    x <- P(x − η_t (∇_x F − ∇²_xy G v + noise))

The output is the x_t whose step was the smallest: a function of released values. y and v are not private and stay with
the coordinator, which holds the records; for a model of one's own, train one at the published x.

η → x, P → domain; left out, η = 1/(2b) with b the smoothness of Φ on the domain.

Whose data: every record of every agent. One record moves the estimate by at most S(x) + 2(Ca + bτ), S from the
constants of the problem at the public x: with y' the neighbour's solution, ‖y − y'‖ ≤ D_gy/(μn), and the resolvent
identity for H⁻¹. No Taylor expansion, any n; the accuracies a and τ are fixed before a record is seen. Each round is
one Gaussian release of price μ, and Σμ² is exact.

Reference: A. Lowy and D. Liu, "Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal
Rates", 2025: Algorithm 1, Theorem 4.3; sensitivities as above instead of Lemma 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp


class DescentState(NamedTuple):
    """x: (p,) the iterate. best: the one with the smallest step so far, and the size of that step."""

    x: dp.Array
    best: dp.Array
    step: float


@dataclass(frozen=True)
class SecondOrder(dp.Coordinated):
    """A trusted coordinator: exact hypergradients of pooled records, with noise (Lowy & Liu, 2025, Algorithm 1).

    Args:
        x: η, or None for 1/(2b).
    """

    x: dp.StepSize | None = dp.option("η, of x; 1/(2b) of the hyper-objective if left out", default=None)

    needs_constants = needs_records = True

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        bounds = context.pooled_bounds
        # Whether float64 certifies anything is known from public numbers: at the start, and on a compact domain.
        bounds.hypergradient(context.start("x", self.start))
        if not context.domain.compact:
            if self.x is None:
                context.domain.require_compact("a default of algorithm.x")
            return self, context
        low, high = context.domain.corners(context.problem.p)
        bounds.gradient_error(low, high)
        return replace(self, x=self.x if self.x is not None else usual_step(context)), context

    def init(self, context: dp.CoordinatorContext) -> DescentState:
        x = context.start("x", self.start)
        return DescentState(x, x, np.inf)

    def step(self, t: int, context: dp.CoordinatorContext, s: DescentState) -> dp.CoordinatorSteps[DescentState]:
        pool = yield dp.Pool()
        released = yield dp.Release(gx=pool.hypergradient(s.x))
        eta = self.x(t) if self.x is not None else 0.0
        x = context.domain.project(s.x - eta * released.released.gx[0])
        step = float(np.linalg.norm(x - s.x))
        return DescentState(x, s.x, step) if step < s.step else DescentState(x, s.best, s.step)

    def published(self, s: DescentState) -> dict[str, dp.Array]:
        return {"x": s.best}

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        kinds = tuple(context.pooled_bounds.hypergradient(context.start("x", self.start)))
        return dp.gaussian_charges(rounds, 1, {"gx": dp.Part((0,), context.problem.p, kinds)})


def usual_step(context: dp.CoordinatorContext) -> dp.StepSize:
    """1/(2b), b the smoothness of Φ on a compact domain; 1 where Φ is linear."""
    smooth = context.pooled_bounds.smoothness(*context.domain.corners(context.problem.p))
    return dp.StepSize(0.5 / smooth if smooth > 0.0 else 1.0)


ENTRY = dp.Entry("second_order_dp_bilevel", SecondOrder, (dp.Citation("Algorithm", "lowy2025differentially"),))
