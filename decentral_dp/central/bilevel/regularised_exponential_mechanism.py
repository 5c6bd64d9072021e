"""The regularised exponential mechanism: one draw of x from a log-concave density, a Gaussian pair.

    density ∝ exp(−k·(Φ(x) + (μ_r/2)‖x − x₀‖²)),     k = (μ_r + κ)·(μ/S)²

for x of a box with the middle x₀. μ_r → strength, by default √(2p)·S/(μR) with R the distance of a corner from x₀,
which leaves E[Φ(x)] − min Φ ≤ √2·S·R√p/μ where Φ is convex. μ is what the target (ε, δ) allows one Gaussian pair.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records. S
is the most that one record moves ∇Φ, over the whole box, for the dearer kind of record (`hypergradient_sensitivity`).

The price needs Φ + (μ_r/2)‖x‖² to be convex *for every data set*. It is where Φ is a convex quadratic ("quadratic",
"mean_estimation", "mean_lower_bound": κ = 0); elsewhere ∇Φ has a Lipschitz constant −κ, and a strength above that one
is needed, without which a certified run is refused. Convexity that the records at hand show does not count.

method = "tangent" draws by rejection from a Gaussian below the density; "cells", up to three upper variables, needs no
convexity to draw from the right law.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025,
Equation 5; S. Gopi, Y. T. Lee and D. Liu, "Private Convex Optimization via Exponential Mechanism", COLT 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.second_order_dp_bilevel import bounds_of
from decentral_dp.central.bilevel.single_draw import SingleDraw, State, charge, no_score, release_draw
from decentral_dp.central.selection import NOT_CONVEX, Density, RegularisedSelection

METHODS = ("tangent", "cells")
# By how much the plan's μ may be above the μ of the target: the tolerance of root finding, with room.
_ROOM = 1.0 + 1e-6


@dataclass(frozen=True)
class RegularisedExponentialMechanism(SingleDraw):
    """A trusted coordinator: one draw of x from a log-concave density (Lowy & Liu, 2025, Equation 5).

    Args:
        strength: μ_r, None: settled by public constants.
        method: "tangent" or "cells"; None: what fits.
    """

    name = "regularised_exponential_mechanism"
    pure, reads_losses = False, True

    strength: float | None = dp.option(
        "μ_r, of the quadratic regulariser; settled by public constants if left out",
        default=None,
        example="1.0",
        above=0,
    )
    method: str | None = dp.option(
        '"tangent" or "cells"; what fits the problem if left out', default=None, example='"tangent"'
    )

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self._check_setting(context)
        strength = self._usual_strength(context) if self.strength is None else self.strength
        facts = replace(self, strength=strength).density(context)
        self._check_convex(context, facts)
        method = self.method or ("tangent" if facts.is_certified else "cells")
        if context.noisy:
            facts.check(method)
        return replace(self, strength=strength, method=method), context

    def _check_setting(self, context: dp.CoordinatorContext) -> None:
        """Refuse more than one round, a domain that is no box, an unknown method and δ = 0."""
        self.check_once(context)
        self.box(context)
        if self.method not in (None, *METHODS):
            methods = ", ".join(METHODS)
            raise dp.InputError(f"algorithm.method: no method {self.method!r} of {self.name}; there are {methods}.")
        if context.noisy and math.isinf(context.budget):
            raise dp.InputError(
                f"privacy.delta: a Gaussian pair has no pure guarantee, and {self.name} draws from one; give a delta "
                "above 0, for example 1e-6."
            )

    def _usual_strength(self, context: dp.CoordinatorContext) -> float:
        """√(2p)·S/(μR)."""
        radius = 0.5 * self.box(context).diameter
        return math.sqrt(2.0 * context.problem.p) * self._sensitivity(context) / (context.budget * radius)

    def _check_convex(self, context: dp.CoordinatorContext, facts: Density) -> None:
        if context.noisy and not facts.is_certified:
            whose = "the default of " if self.strength is None else ""
            raise dp.InputError(
                f"algorithm.strength: {whose}{facts.strength:.4g} does not make the regularised upper level convex for "
                "every data set on this box, and without that nothing is proven; give more than "
                f"{facts.smooth:.4g}, which does, or narrow the box."
            )

    def _sensitivity(self, context: dp.CoordinatorContext) -> float:
        """S, of the larger kind."""
        return max(bounds_of(context).gradient_sensitivity(*context.domain.corners(context.problem.p)).values())

    def finest(self, context: dp.CoordinatorContext) -> float:
        """The smallest scale of any run with this target: S/μ."""
        return self._sensitivity(context) / (context.budget * _ROOM) if context.noisy else 0.0

    def density(self, context: dp.CoordinatorContext) -> Density:
        """What is public of the density."""
        box = self.box(context)
        return Density.from_bounds(bounds_of(context), box.low, box.high, self.strength or 0.0, self.finest(context))

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> RegularisedSelection:
        """The draw. pool: None where only prices are wanted."""
        facts, way = self.density(context), self.method or "tangent"
        if pool is None:
            return RegularisedSelection(facts, no_score, no_score, None, way)
        return RegularisedSelection(facts, pool.scores, pool.gradient, pool.quadratic() if facts.convex else None, way)

    def step(self, t: int, context: dp.CoordinatorContext, s: State) -> dp.CoordinatorSteps[State]:
        pool = yield dp.Pool()
        return (yield from release_draw(self.law(context, pool)))

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        law = self.law(context)
        return charge(law, "" if law.facts.is_certified else NOT_CONVEX)


ENTRY = dp.Entry(
    RegularisedExponentialMechanism.name,
    RegularisedExponentialMechanism,
    (dp.Citation("Mechanism (Equation 5, its calibration corrected)", "lowy2025differentially"),),
    example={"problem": '"quadratic"', "rounds": "1", "method": '"tangent"'},
)
