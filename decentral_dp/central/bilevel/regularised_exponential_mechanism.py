"""The regularised exponential mechanism: one draw of x from a log-concave density, a Gaussian pair.

    density ∝ exp(−k·(Φ(x) + (μ_r/2)‖x − x₀‖²)),     k = (μ_r + κ)·(μ/S)²

for x of a box with the middle x₀. μ_r → strength, by default √(2p)·S/(μR) with R the distance of a corner from x₀,
which leaves E[Φ(x)] − min Φ ≤ √2·S·R√p/μ where Φ is convex. μ is what the target (ε, δ) allows one Gaussian pair.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records. S
is the most that one record moves ∇Φ, over the whole box, for the dearer kind of record (`hypergradient_sensitivity`).

The price needs Φ + (μ_r/2)‖x‖² to be convex *for every data set*. It is where Φ is a convex quadratic ("quadratic",
"mean_estimation", "mean_lower_bound": κ = 0); elsewhere ∇Φ has a Lipschitz constant −κ, and a strength above that one
is needed, without which a certified run is refused. Convexity that the records at hand show does not count.

A draw is by rejection from a Gaussian below the density.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025,
Equation 5; S. Gopi, Y. T. Lee and D. Liu, "Private Convex Optimization via Exponential Mechanism", COLT 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.exponential_mechanism import SingleDraw
from decentral_dp.central.selection import Density, RegularisedSelection

# By how much the plan's μ may be above the μ of the target: the tolerance of root finding, with room.
_ROOM = 1.0 + 1e-6


@dataclass(frozen=True)
class RegularisedExponentialMechanism(SingleDraw):
    """A trusted coordinator: one draw of x from a log-concave density (Lowy & Liu, 2025, Equation 5).

    Args:
        strength: μ_r, None: settled by public constants.
    """

    name = "regularised_exponential_mechanism"
    pure, reads_losses = False, True

    strength: float | None = dp.option(
        "μ_r, of the quadratic regulariser; settled by public constants if left out",
        default=None,
        example="1.0",
        above=0,
    )

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        if context.noisy and math.isinf(context.budget):
            raise dp.InputError(
                f"privacy.delta: a Gaussian pair has no pure guarantee, and {self.name} draws from one; give a delta "
                "above 0, for example 1e-6."
            )
        strength = self.strength
        if strength is None:
            radius = 0.5 * self.box(context).diameter
            strength = math.sqrt(2.0 * context.problem.p) * self._sensitivity(context) / (context.budget * radius)
        resolved = replace(self, strength=strength)
        if context.noisy:
            resolved.density(context).check()
        return resolved, context

    def _sensitivity(self, context: dp.CoordinatorContext) -> float:
        """S, of the larger kind."""
        return max(context.pooled_bounds.gradient_sensitivity(*context.domain.corners(context.problem.p)).values())

    def finest(self, context: dp.CoordinatorContext) -> float:
        """The smallest scale of any run with this target: S/μ."""
        return self._sensitivity(context) / (context.budget * _ROOM) if context.noisy else 0.0

    def density(self, context: dp.CoordinatorContext) -> Density:
        """What is public of the density."""
        box = self.box(context)
        return Density.from_bounds(context.pooled_bounds, box.low, box.high, self.strength or 0.0, self.finest(context))

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> RegularisedSelection:
        facts = self.density(context)
        if pool is None:
            unknown: Any = None
            return RegularisedSelection(facts, unknown, unknown)
        return RegularisedSelection(facts, pool.scores, pool.gradient, pool.quadratic() if facts.convex else None)


ENTRY = dp.Entry(
    RegularisedExponentialMechanism.name,
    RegularisedExponentialMechanism,
    (dp.Citation("Mechanism (Equation 5, its calibration corrected)", "lowy2025differentially"),),
    example={"problem": '"quadratic"', "rounds": "1"},
)
