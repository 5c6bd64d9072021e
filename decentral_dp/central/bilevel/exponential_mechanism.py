"""Exponential mechanisms over the upper variable: one draw of x.

    exponential_mechanism                   P(x) ∝ exp(−Φ(x)/scale),     Φ(x) = F(x, y_Z(x)),   scale = s/ε
    gradient_norm_exponential_mechanism     P(x) ∝ exp(−‖∇Φ(x)‖/scale)
    regularised_exponential_mechanism       density ∝ exp(−k·(Φ(x) + (μ_r/2)‖x − x₀‖²)),   k = (μ_r + κ)·(μ/S)²

with y_Z(x) = argmin_y G(x, y). The guarantee holds for every record of every agent, against an adversary that observes
x. The coordinator is trusted and has all records; y is not released.

The first two choose among `candidates` points on each axis of `domain` (default 65, 17 or 9 for one, two or three upper
variables). s bounds the variation over the domain of the change that one record makes to the score:

    train record, Φ             2 L_fy D_gy/(μ n_t)          D_gy/(μ n_t) bounds the change of y_Z(x)
    validation record, Φ        (2/n_v) min(range of f, L_fx D_x + L_fy D_y)
    ‖∇Φ‖                        2S, S a bound on the change of ∇Φ on the domain (`hypergradient_sensitivity`)

In addition, s covers the rounding and inexactness of computed scores (2r + 4e). Φ need not be convex. For convex Φ,
E[Φ(x)] − min Φ ≤ p·s/ε. A draw is ε-DP, and composes with other releases as a bounded range with ρ = ε²/8.

The third draws from a box with middle x₀ and has the privacy of a Gaussian pair with the μ of the target (ε, δ). μ_r is
`strength`; the default √(2p)·S/(μR), R the distance from x₀ to a corner, gives E[Φ(x)] − min Φ ≤ √2·S·R√p/μ for convex
Φ. The privacy cost requires Φ + (μ_r/2)‖x‖² to be convex for every dataset. Φ is a convex quadratic for the problems
"quadratic", "mean_estimation" and "mean_lower_bound" (κ = 0). Otherwise −κ is the Lipschitz constant of ∇Φ, and a
certified run requires a larger strength.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Equations
4 and 5, Appendix C.3; S. Gopi, Y. T. Lee and D. Liu, "Private Convex Optimization via Exponential Mechanism", COLT
2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.selection import (
    Box,
    Density,
    FiniteExponential,
    RegularisedSelection,
    SelectionBounds,
    candidates,
    count_per_axis,
)


class DrawState(NamedTuple):
    """The public x, (p,)."""

    x: dp.Array


# For (kind of the algorithm, rounds).
_REFUSED = (
    dp.Refusal[tuple[str, int]](
        lambda c: c[1] != 1,
        "algorithm.rounds",
        "{of[0]} draws x once (got {of[1]} rounds, expected 1)",
        "set rounds = 1",
    ),
)


class SingleDraw(dp.Coordinated):
    """A program whose only release is one draw of x.

    Args:
        name: kind of the algorithm in a scenario.
    """

    name: ClassVar[str]
    needs_constants = needs_records = pure = needs_domain = True

    def init(self, context: dp.CoordinatorContext) -> DrawState:
        return DrawState(context.start("x", self.start))

    def check_once(self, context: dp.CoordinatorContext) -> None:
        """Raise InputError for more than one round or an unbounded domain."""
        dp.refuse((self.name, context.rounds), _REFUSED)
        context.domain.require_compact(self.name)

    def box(self, context: dp.CoordinatorContext) -> Box:
        """Return the domain."""
        return Box(*context.domain.corners(context.problem.p))

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> dp.SelectionMechanism:
        """Return the mechanism. Without a pool of all agents' records it has the sensitivity only."""
        raise NotImplementedError

    def step(self, t: int, context: dp.CoordinatorContext, s: DrawState) -> dp.CoordinatorSteps[DrawState]:
        pool = yield dp.Pool()
        released = yield dp.Release(x=self.law(context, pool))
        return DrawState(released.released.x[0])

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context))


def charge(selection: dp.SelectionMechanism, reason: str = "") -> dict[str, dp.Charge]:
    """Plan one release that uses the whole target for a record of either split."""
    weight = {kind: np.ones(1) for kind in selection.sensitivity}
    return {
        "x": dp.Charge(selection.mechanism, selection.width, np.array([1]), weight, {}, selection.distortion, reason)
    }


@dataclass(frozen=True)
class ExponentialMechanism(SingleDraw):
    """Bilevel coordinator that samples x once from an exponential mechanism, pure ε (Lowy & Liu, 2025, Equation 4).

    Args:
        candidates: number of points on each axis.
    """

    name = "exponential_mechanism"
    # Public bounds on the score over a box, and the method of the pool that computes the score.
    facts: ClassVar[Callable[..., SelectionBounds]] = staticmethod(SelectionBounds.from_value)
    scored_by: ClassVar[str] = "scores"

    candidates: int | None = dp.count_option(
        "candidates on each axis; default 65, 17 or 9 for 1, 2 or 3 axes", "points", "65"
    )

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        self.law(context)
        return replace(self, candidates=self.candidates or count_per_axis(context.problem.p)), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> FiniteExponential:
        """Return the mechanism. Raises InputError for too few or too many candidates."""
        facts = self.facts(context.pooled_bounds, *context.domain.corners(context.problem.p))
        points = candidates(context.domain, context.problem.p, self.candidates)
        score: Any = getattr(pool, self.scored_by, None)
        return FiniteExponential(facts, points, score)


class GradientNormMechanism(ExponentialMechanism):
    """Bilevel coordinator that samples a nearly stationary x once, pure ε (Lowy & Liu, 2025, Appendix C.3)."""

    name = "gradient_norm_exponential_mechanism"
    facts = staticmethod(SelectionBounds.from_norm)
    scored_by = "gradient_norms"


# Largest ratio of the plan's μ to that of the target: the tolerance of root finding, with a margin.
_ROOM = 1.0 + 1e-6


@dataclass(frozen=True)
class RegularisedExponentialMechanism(SingleDraw):
    """Bilevel coordinator that samples x once from a log-concave density (Lowy & Liu, 2025, Equation 5).

    Args:
        strength: μ_r, or None for the default.
    """

    name = "regularised_exponential_mechanism"
    pure = False

    strength: float | None = dp.option(
        "μ_r, strength of the quadratic regulariser; default from public constants",
        default=None,
        example="1.0",
        above=0,
    )

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        strength = self.strength
        # Without noise there is nothing to regularise.
        if strength is None and context.noisy:
            radius = 0.5 * self.box(context).diameter
            strength = math.sqrt(2.0 * context.problem.p) * self._sensitivity(context) / (context.budget * radius)
        algorithm = replace(self, strength=strength)
        if context.noisy:
            algorithm.density(context).check()
        return algorithm, context

    def _sensitivity(self, context: dp.CoordinatorContext) -> float:
        """Return S, the larger of the two splits' sensitivities."""
        return max(context.pooled_bounds.gradient_sensitivity(*context.domain.corners(context.problem.p)).values())

    def density(self, context: dp.CoordinatorContext) -> Density:
        """Return the public facts of the density."""
        box = self.box(context)
        # S/μ, the smallest scale of a run with this target.
        finest = self._sensitivity(context) / (context.budget * _ROOM) if context.noisy else 0.0
        return Density.from_bounds(context.pooled_bounds, box.low, box.high, self.strength or 0.0, finest)

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> RegularisedSelection:
        facts, scores, gradient = self.density(context), getattr(pool, "scores", None), getattr(pool, "gradient", None)
        coefficients = pool.quadratic() if facts.convex and pool is not None else None
        return RegularisedSelection(facts, cast(Any, scores), cast(Any, gradient), coefficients)


ENTRIES = (
    *(
        dp.Entry(
            algorithm.name,
            algorithm,
            (dp.Citation(f"Mechanism ({place}, its scale corrected)", "lowy2025differentially"),),
            example={"rounds": "1", "candidates": "65"},
            proved=True,
        )
        for algorithm, place in ((ExponentialMechanism, "Equation 4"), (GradientNormMechanism, "Appendix C.3"))
    ),
    dp.Entry(
        RegularisedExponentialMechanism.name,
        RegularisedExponentialMechanism,
        (dp.Citation("Mechanism (Equation 5, its calibration corrected)", "lowy2025differentially"),),
        example={"problem": '"quadratic"', "rounds": "1"},
        proved=True,
    ),
)
