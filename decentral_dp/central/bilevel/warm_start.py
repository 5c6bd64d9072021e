"""Second-order private descent from a start that an exponential mechanism chose.

    round 0           x₀ ~ P(x) ∝ exp(−Φ(x)/scale) over `candidates` points along each axis of the domain
    rounds 1 … T − 1  x <- P(x − η_t (∇_x F − ∇²_xy G (∇²_yy G)⁻¹ ∇_y F + noise)), at the exact lower solution y_Z(x)

η → x, by default 1/(2b), b the largest smoothness of Φ over the domain; P → domain; candidates as in
`exponential_mechanism`. The output is the x of the smallest step.

Whose data: every record of every agent, against those who see what the coordinator publishes; the coordinator is
trusted, and holds all records. y_Z is not released. Round 0 costs a pure ε₁, others Gaussian μ_t, by the sensitivity of
the implicit gradient at the public x_t. Together at most ρ = ε₁²/8 + Σμ_t²/2 concentrated (bounded range), or what
privacy-loss distributions find, if that is less. Half of ρ is for the start: ε₁ = 2√(Σμ_t²).

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025,
Algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.exponential_mechanism import ExponentialMechanism
from decentral_dp.central.bilevel.second_order_dp_bilevel import DescentState, SecondOrder
from decentral_dp.central.selection import FiniteExponential, per_axis

# Of ρ, for the start.
START_SHARE = 0.5


@dataclass(frozen=True)
class WarmStart(dp.Coordinated):
    """A trusted coordinator: hypergradient descent from a start drawn privately (Lowy & Liu, 2025, Algorithm 2).

    Args:
        x: η, None: settled by public constants.
        candidates: along each axis.
    """

    x: dp.StepSize | None = dp.option("η, of x after the start; settled by public constants if left out", default=None)
    candidates: int | None = dp.count_option(
        "candidates for the start along each axis; settled by default", "points", "65"
    )

    needs_constants = needs_records = needs_domain = reads_losses = True

    @property
    def _descent(self) -> SecondOrder:
        return SecondOrder(self.x, start=self.start)

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        if context.rounds < 2:
            raise dp.InputError(
                "algorithm.rounds: got 1, but round 0 is the start, and descent takes more; give 2 or more, or take "
                '"exponential_mechanism".'
            )
        context.domain.require_compact("warm_start")
        self.law(context)
        descent, context = self._descent.resolve_defaults(context)
        return replace(self, x=descent.x, candidates=self.candidates or per_axis(context.problem.p)), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> FiniteExponential:
        """Of the start. pool: None where only prices are wanted."""
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
        """ε₁ and μ_t with ε₁²/8 and Σμ_t²/2 in the proportion of the shares."""
        law, after = self.law(context), rounds - 1
        first = {kind: np.array([math.sqrt(8.0 * START_SHARE)]) for kind in law.sensitivity}
        # Its own Σμ² is 1.
        descent = self._descent.planned_releases(context, after)["gx"]
        weight = {kind: math.sqrt(2.0 * (1.0 - START_SHARE)) * w for kind, w in descent.weight.items()}
        return {
            "x0": dp.Charge(law.mechanism, law.width, np.array([1]), first),
            "gx": descent._replace(indices=descent.indices + 1, weight=weight),
        }


ENTRY = dp.Entry(
    "warm_start",
    WarmStart,
    (dp.Citation("Algorithm 2", "lowy2025differentially"),),
)
