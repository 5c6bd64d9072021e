"""The exponential mechanism over the upper variable: one draw of x, at pure ε.

    P(x) ∝ exp(−Φ(x)/scale),     Φ(x) = F(x, y_Z(x)),     y_Z(x) = argmin_y G(x, y),     scale = s/ε

for x of `domain`: one of `candidates` points along each axis (65, 17 or 9 where they are left out, for one, two or
three upper variables), even in every coordinate: a log strength for the problems with regularisation.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records. y
is not released. s bounds how much the change that one record makes to Φ varies over the domain:

    a train record       2 L_fy D_gy/(μ n_t)                     D_gy/(μ n_t) is how far it moves y_Z(x)
    a validation record  (2/n_v) min(range of f, L_fx D_x + L_fy D_y)

and what the scores are computed and rounded to (2r + 4e). The law does not need Φ to be convex, and its ε is spent in
full: E[Φ(x)] − min Φ ≤ p·s/ε for convex Φ. A price of pure ε, and as a bounded range ρ = ε²/8 beside other releases.

`gradient_norm_exponential_mechanism` draws an x that is nearly stationary: ‖∇Φ(x)‖ in the place of Φ(x), at the exact
lower solution. One record moves ∇Φ by at most S anywhere on the domain (`hypergradient_sensitivity`), so ‖∇Φ‖ by
something between −S and S: s = 2S, and what the scores are computed and rounded to (2r + 4e). A stationary point has to
lie in the domain for ‖∇Φ‖ to be small anywhere.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Equation 4
and Appendix C.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.exponential_samplers import Box
from decentral_dp.central.selection import FiniteExponential, SelectionBounds, candidates, per_axis


class DrawState(NamedTuple):
    """x: (p,) what is public."""

    x: dp.Array


class SingleDraw(dp.Coordinated):
    """A program whose only release is one draw of x, by records that the coordinator holds.

    Args:
        name: its kind, as messages call it.
    """

    name: ClassVar[str]
    needs_constants = needs_records = pure = needs_domain = True

    def init(self, context: dp.CoordinatorContext) -> DrawState:
        return DrawState(context.start("x", self.start))

    def check_once(self, context: dp.CoordinatorContext) -> None:
        """Refuse more rounds than one, and a domain that is not compact. Raises InputError."""
        if context.rounds != 1:
            raise dp.InputError(
                f"algorithm.rounds: got {context.rounds}, but {self.name} is one draw of x, and a second would have to "
                "share its budget; set rounds = 1."
            )
        context.domain.require_compact(self.name)

    def box(self, context: dp.CoordinatorContext) -> Box:
        """The domain."""
        return Box(*context.domain.corners(context.problem.p))

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> dp.SelectionMechanism:
        """The draw. pool: all agents' records; None where only prices are wanted."""
        raise NotImplementedError

    def step(self, t: int, context: dp.CoordinatorContext, s: DrawState) -> dp.CoordinatorSteps[DrawState]:
        pool = yield dp.Pool()
        released = yield dp.Release(x=self.law(context, pool))
        return DrawState(released.released.x[0])

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context))


def charge(selection: dp.SelectionMechanism, reason: str = "") -> dict[str, dp.Charge]:
    """One release. Every kind of records may cost the whole target: each is compared with its own neighbours."""
    weight = {kind: np.ones(1) for kind in selection.sensitivity}
    return {
        "x": dp.Charge(selection.mechanism, selection.width, np.array([1]), weight, {}, selection.distortion, reason)
    }


@dataclass(frozen=True)
class ExponentialMechanism(SingleDraw):
    """A trusted coordinator: one draw of x by an exponential mechanism, pure ε (Lowy & Liu, 2025, Equation 4).

    Args:
        candidates: along each axis.
    """

    name = "exponential_mechanism"
    reads_losses = True
    # What is public of the score on a box, and the method of the pool that computes it.
    facts: ClassVar[Callable[..., SelectionBounds]] = staticmethod(SelectionBounds.of_value)
    scored_by: ClassVar[str] = "scores"

    candidates: int | None = dp.count_option("candidates along each axis; settled by default", "points", "65")

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        self.law(context)
        return replace(self, candidates=self.candidates or per_axis(context.problem.p)), context

    def law(self, context: dp.CoordinatorContext, pool: Any = None) -> FiniteExponential:
        """The exponential mechanism. Raises InputError for candidates that do not fit the domain."""
        facts = self.facts(context.pooled_bounds, *context.domain.corners(context.problem.p))
        points = candidates(context.domain, context.problem.p, self.candidates)
        score: Any = getattr(pool, self.scored_by, None)
        return FiniteExponential(facts, points, score)


class GradientNormMechanism(ExponentialMechanism):
    """A trusted coordinator: one draw of an x that is nearly stationary, pure ε (Lowy & Liu, 2025, Appendix C.3)."""

    name = "gradient_norm_exponential_mechanism"
    reads_losses = False
    facts = staticmethod(SelectionBounds.of_norm)
    scored_by = "gradient_norms"


ENTRIES = tuple(
    dp.Entry(
        algorithm.name,
        algorithm,
        (dp.Citation(f"Mechanism ({place}, its scale corrected)", "lowy2025differentially"),),
        example={"rounds": "1", "candidates": "65"},
    )
    for algorithm, place in ((ExponentialMechanism, "Equation 4"), (GradientNormMechanism, "Appendix C.3"))
)
