"""Private hypergradient descent with second derivatives, with a rate independent of the dimension of the lower level.

Round t, Φ(x) = F(x, y_Z(x)) with F and G the means over all records (Lowy & Liu, Algorithm 1):

    y ≈ argmin_y G(x, y),  ‖y − y_Z(x)‖ ≤ a     v ≈ (∇²_yy G)⁻¹ ∇_y F at y, error at most τ
    x <- P(x − η_t (∇_x F − ∇²_xy G v + noise))

`warm_start` (Algorithm 2) draws x₀ ~ P(x) ∝ exp(−Φ(x)/scale) among `candidates` points on each axis of the domain in
round 0 (`exponential_mechanism`), and descends from there.

The output is the x_t with the smallest step, a function of released values. y and v are not private. They remain with
the coordinator, which has the records. For a private model, train one at the published x.

η → x, P → domain. Default: η = 1/(2b), b the smoothness of Φ on the domain.

The guarantee holds for every record of every agent, against an adversary that observes all published values. One record
changes the estimate by at most S(x) + 2(Ca + bτ), where S follows from the constants of the problem at the public x:
the solutions of neighbouring datasets differ by at most D_gy/(μn), and the resolvent identity bounds the change of H⁻¹.
This holds for any n. The accuracies a and τ are fixed before a record is read. Each round is one Gaussian release with
parameter μ_t, and Σμ_t² is exact. A warm start costs a pure ε₁ = 2√(Σμ_t²), half of ρ = ε₁²/8 + Σμ_t²/2 (bounded
range).

Reference: A. Lowy and D. Liu, "Differentially Private Bilevel Optimization: Efficient Algorithms with Near-Optimal
Rates", 2025: Algorithms 1 and 2, Theorem 4.3; sensitivities as above instead of Lemma 4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.exponential_mechanism import ExponentialMechanism
from decentral_dp.central.selection import FiniteExponential, count_per_axis


class DescentState(NamedTuple):
    """The public state.

    Args:
        x: iterate, (p,).
        best: x with the smallest step, (p,).
        step: size of that step.
    """

    x: dp.Array
    best: dp.Array
    step: float


@dataclass(frozen=True)
class SecondOrder(dp.Coordinated):
    """Bilevel coordinator with noisy exact hypergradients of pooled records (Lowy & Liu, 2025, Algorithm 1).

    Args:
        x: η, or None for 1/(2b).
    """

    x: dp.StepSize | None = dp.option("η, learning rate of x; default 1/(2b) of the hyper-objective", default=None)

    needs_constants = needs_records = True

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        bounds = context.pooled_bounds
        # Raises InputError if float64 certifies nothing, by public numbers, at the start and on a compact domain.
        bounds.hypergradient(context.start("x", self.start))
        if not context.domain.compact:
            if self.x is None:
                context.domain.require_compact("a default of algorithm.x")
            return self, context
        low, high = context.domain.corners(context.problem.p)
        bounds.gradient_error(low, high)
        return replace(self, x=self.x if self.x is not None else default_step(context)), context

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
        return dp.gaussian_charges({"gx": dp.Part(dp.round_indices(rounds, 1), context.problem.p, kinds)})


def default_step(context: dp.CoordinatorContext) -> dp.StepSize:
    """Return 1/(2b), where b is the smoothness of Φ on a compact domain, or 1 if Φ is linear."""
    smooth = context.pooled_bounds.smoothness(*context.domain.corners(context.problem.p))
    return dp.StepSize(0.5 / smooth if smooth > 0.0 else 1.0)


# Share of ρ for the start.
_START_SHARE = 0.5
_REFUSED = (
    dp.Refusal[dp.CoordinatorContext](
        lambda context: context.rounds < 2,
        "algorithm.rounds",
        "too few for descent, since round 0 draws the start (got 1, expected at least 2)",
        'increase it, or use "exponential_mechanism"',
    ),
)


@dataclass(frozen=True)
class WarmStart(dp.Coordinated):
    """Bilevel coordinator with hypergradient descent from a privately sampled point (Lowy & Liu, 2025, Algorithm 2).

    Args:
        x: η, or None for the default.
        candidates: number of points on each axis.
    """

    x: dp.StepSize | None = dp.option(
        "η, learning rate of x after the start; default from public constants", default=None
    )
    candidates: int | None = dp.count_option(
        "candidates for the start on each axis; default 65, 17 or 9 for 1, 2 or 3 axes", "points", "65"
    )

    needs_constants = needs_records = needs_domain = True

    @property
    def _descent(self) -> SecondOrder:
        return SecondOrder(self.x, start=self.start)

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        dp.refuse(context, _REFUSED)
        context.domain.require_compact("warm_start")
        self.law(context)
        descent, context = self._descent.resolve_defaults(context)
        return replace(self, x=descent.x, candidates=self.candidates or count_per_axis(context.problem.p)), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> FiniteExponential:
        """Return the mechanism of the start. Without a pool of all agents' records it has the sensitivity only."""
        return ExponentialMechanism(self.candidates).law(context, pool)

    def init(self, context: dp.CoordinatorContext) -> DescentState:
        return self._descent.init(context)

    def step(self, t: int, context: dp.CoordinatorContext, s: DescentState) -> dp.CoordinatorSteps[DescentState]:
        if t > 0:
            return (yield from self._descent.step(t - 1, context, s))
        pool = yield dp.Pool()
        released = yield dp.Release(x0=self.law(context, pool))
        start: dp.Array = released.released.x0[0]
        return DescentState(start, start, np.inf)

    def published(self, s: DescentState) -> dict[str, dp.Array]:
        return self._descent.published(s)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        """Plan ε₁ and μ_t with ε₁²/8 and Σμ_t²/2 in the ratio of the shares."""
        law, descents = self.law(context), rounds - 1
        first = {kind: np.array([math.sqrt(8.0 * _START_SHARE)]) for kind in law.sensitivity}
        # Only the descent has Σμ² = 1.
        descent = self._descent.planned_releases(context, descents)["gx"]
        weight = {kind: math.sqrt(2.0 * (1.0 - _START_SHARE)) * w for kind, w in descent.weight.items()}
        return {
            "x0": dp.Charge(law.mechanism, law.width, np.array([1]), first),
            "gx": descent._replace(indices=descent.indices + 1, weight=weight),
        }


ENTRIES = (
    dp.Entry(
        "second_order_dp_bilevel", SecondOrder, (dp.Citation("Algorithm", "lowy2025differentially"),), proved=True
    ),
    dp.Entry("warm_start", WarmStart, (dp.Citation("Algorithm 2", "lowy2025differentially"),), proved=True),
)
