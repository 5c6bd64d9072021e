"""What a penalty method sets by itself where it was left out, from constants that hold for every x of the domain.

    λ    the largest over the domain of argmin D₁/λ + λ b_gxy (r + r'), at least 1; D₁/λ bounds the bias of the penalty,
         r the noise that reaches x from the best solver, D_gy/(μ n m) √min(p, q), m its share of the budget
    K    of the solver, in the middle of the domain: see `inner` and `inner_localised`
    η    1/(2 b_L), b_L the smoothness of min_y f + λ(g − min_y g) in x
    C_y  ½ D_gy and C_z  L_fy: no record's gradient is longer, on the balls of minimisers
    C_x  L_fx + 2 (½ D_hxy) L_fy/μ: at exact minimisers no record's share of the step is longer than half of the second
         term; the other half is for noise

and how a round's μ² is divided. With c the deviation that a channel brings to the step of x at μ = 1,

    solvers  c = λ b_gxy √min(p, q) · gain · (what one record moves a mean gradient by),     the step  c = √p · Δ_x

Σ c²/μ² is smallest, for a given Σ μ², where μ² stands in proportion to c: λ multiplies the solvers' noise, and they
take most. As constants for a whole domain exaggerate that, the step gets a ninth at least. Where no constants are known
all channels get the same.

Over a wide domain η is far too careful, for it has to be right at the x where the lower level is flattest: give one.

Nothing here reads a record, and none of it enters the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from decentral_dp.algorithms.coordinator_bilevel.localised_lower_solver import stages_of, steps_of_stage
from decentral_dp.algorithms.coordinator_bilevel.lower_solvers import Known, best_steps, noise_gain
from decentral_dp.bounded import Array
from decentral_dp.constants.bilevel_rates import default_penalty, penalty_smoothness
from decentral_dp.constants.families import Family, worst
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.errors import InputError
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.privacy.clipping import Clip


@dataclass(frozen=True)
class Defaults:
    """For x of the box [low, high]. solves: μ of one solve, by the budget in equal parts. pull: λ, once it is known."""

    context: CoordinatorContext
    family: Family
    low: Array
    high: Array
    solves: float
    penalty_weight: float = math.inf

    @classmethod
    def of(cls, context: CoordinatorContext, channels: int, wanted: str) -> Self:
        """channels: that a round's budget is divided among. Raises InputError, naming the key that is wanted."""
        if context.family is None:
            raise InputError(
                f"algorithm.{wanted}: missing, and no default follows, as the problem's constants are not known (that "
                "takes a problem with analytic ones, records of bounded length by problem.normalise, and, where labels "
                f"are numbers, problem.label_bound); give {wanted}."
            )
        if not context.domain.compact:
            raise InputError(
                f"algorithm.{wanted}: missing, and no default holds for every x; give {wanted}, or bound x by "
                'algorithm.domain, for example { kind = "box", low = -5.0, high = 0.0 }.'
            )
        price = context.budget / math.sqrt(channels * context.rounds)
        return cls(context, context.family, *context.domain.corners(context.problem.p), price)

    def with_penalty(self, penalty: float) -> Self:
        return replace(self, penalty_weight=penalty)

    def penalty(self) -> float:
        """λ. Raises InputError without noise to weigh it against."""
        if math.isinf(self.context.budget):
            raise InputError(
                "algorithm.penalty: missing, and without noise the larger the better; give one, for example 100.0, or "
                "give the privacy.epsilon and delta that it is to be balanced for."
            )
        context, reach = self.context, math.sqrt(min(self.context.problem.p, self.context.problem.q))

        def best(c: ProblemConstants) -> float:
            noise = c.d_gy / (c.mu * context.counts["train"] * self.solves) * reach
            return default_penalty(c, noise, noise) if noise > 0.0 else 0.0

        return max(1.0, self._worst(best, 2.0))

    def steps(self, solver: str, stages: int) -> int:
        """K, or T of every stage. Raises InputError without noise that would end it."""
        if math.isinf(self.context.budget):
            raise InputError(
                "algorithm.inner: missing, and without noise the more steps the better; give their number, for example "
                "50, or give the privacy.epsilon and delta that they are to be balanced for."
            )
        if solver == "dp_gd":
            middle = 0.5 * (self.low + self.high)
            return best_steps(self._known(self.family.constants(middle, middle, 1.0 + 1.0 / self.penalty_weight)))
        return steps_of_stage(self.context.counts["train"], self.solves, stages, self.context.problem.q)

    def stages(self) -> int:
        return int(self._worst(self._stages, 1.0 + 1.0 / self.penalty_weight))

    def step_size(self) -> float:
        """η."""
        smooth = self._worst(lambda c: penalty_smoothness(c, self.penalty_weight), 1.0 + 1.0 / self.penalty_weight)
        return 0.5 / smooth if smooth > 0.0 else 1.0

    def clip(self) -> Clip:
        """C_x, C_y, C_z."""
        c = self.whole
        return Clip("l2", c.l_fx + c.d_hxy * c.l_fy / c.mu, 0.5 * c.d_gy, c.l_fy)

    def shares(self, solver: str, steps: int, stages: int, sensitivity_x: float) -> Mapping[str, float]:
        """Divide a round's μ² among the channels.

        Args:
            solver: a key of `SOLVERS`.
            steps: K of "dp_gd".
            stages: M of the localised solvers.
            sensitivity_x: how far one record moves the step of x, 0 where it is free.

        Returns:
            Channel → share of a round's μ²; empty where what a solve brings to x is 0, or a number is not finite.
        """
        p, n = self.context.problem.p, self.context.counts["train"]

        def carried(c: ProblemConstants) -> float:
            reach = self.penalty_weight * c.b_gxy * math.sqrt(min(p, self.context.problem.q))
            return reach * noise_gain(solver, self._known(c), steps, stages) * c.d_gy / n

        solved = self._worst(carried, 1.0 + 1.0 / self.penalty_weight)
        direct = math.sqrt(p) * sensitivity_x
        if not (0.0 < solved < math.inf and direct < math.inf):
            return {}
        return {"y": solved, "pulled": solved, "gx": max(direct, 0.25 * solved)}

    @cached_property
    def whole(self) -> ProblemConstants:
        """Constants for the whole box, on the balls of minimisers of g + f/λ."""
        return self.family.constants(self.low, self.high, 1.0 + 1.0 / self.penalty_weight)

    def _stages(self, c: ProblemConstants) -> float:
        return stages_of(c.mu, max(c.l_gy, 1e-300), self.context.counts["train"])

    def _known(self, c: ProblemConstants) -> Known:
        lipschitz = max(0.5 * c.d_gy, 1e-300)
        return Known(
            c, self.penalty_weight, lipschitz, self.context.counts["train"], self.solves, self.context.problem.q
        )

    def _worst(self, bound: Callable[[ProblemConstants], float], record_mass: float) -> float:
        return worst(self.family, self.low, self.high, bound, record_mass)


def check_penalty(context: CoordinatorContext, penalty: float) -> None:
    """Refuse a λ below 2 b_fyy/μ where f need not be convex, by declared constants. Raises InputError.

    There f + λg is λμ/2-strongly convex from that λ on; where f is convex, it is λμ-strongly convex for every λ.
    """
    if context.family is None or not context.domain.compact:
        return
    c = context.family.constants(*context.domain.corners(context.problem.p), 1.0 + 1.0 / penalty)
    least = 2.0 * c.b_fyy / c.mu
    if c.label != "analytic" and penalty < least:
        raise InputError(
            f"algorithm.penalty: got {penalty:g}, but with these declared constants f + penalty·g is known to be "
            f"strongly convex from 2·b_fyy/mu = {least:g} on; take at least that."
        )
