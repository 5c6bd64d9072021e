"""The regularised exponential mechanism of Equation 5 as printed: the law of another S.

It is calibrated by its own Lemma B.6, S = 2G/n with G = L_fx + L_fy b_gxy/μ_g + L_gy b_fxy/μ_g, and by the exact curve
of Theorem B.4 where it says "k = O(·)". The lemma differentiates f(x, y_Z(x)) in x alone and is false: the ledger
prices that law by the S that holds, at more than it claims where Hessians of records differ much. A strength that
leaves Φ unproven to be convex runs, at ε = ∞.

Reference: A. Lowy and D. Liu, 2025, Equation 5 and Lemma B.6.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.algorithms.printed.printed_scales import one_draw, smaller_count
from decentral_dp.algorithms.printed.protocol import Calibration
from decentral_dp.algorithms.selection.regularised_exponential_mechanism import (
    check_setting,
    default_strength,
    density_of,
    law_of_density,
    method_of,
)
from decentral_dp.algorithms.selection.single_draw import State, charge, constants_of, drawn
from decentral_dp.bounded import Array
from decentral_dp.constants.problem_constants import printed_slope
from decentral_dp.exchange import Pool, Request, Response
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.participants.regularised_selection import NOT_CONVEX, RegularisedSelection


@final
@dataclass(frozen=True)
class PrintedRegularisedExponentialMechanism:
    """strength: μ_r, None: settled by public constants. method: "tangent" or "cells"; None: what fits."""

    strength: float | None = None
    method: str | None = None
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "printed"
    releases_per_round = 1
    needs_constants = True
    needs_records = True
    queries = ()

    def resolve_defaults(self, context: CoordinatorContext) -> tuple[Self, CoordinatorContext]:
        check_setting(context, self.method)
        slope = _slope(context)
        strength = default_strength(context, slope) if self.strength is None else self.strength
        method = method_of(context, density_of(context, strength, slope), self.method)
        return replace(self, strength=strength, method=method), context

    def law(self, context: CoordinatorContext, pool: Any = None) -> RegularisedSelection:
        """pool: None where only prices are wanted."""
        return law_of_density(density_of(context, self.strength, _slope(context)), self.method, pool)

    def init(self, context: CoordinatorContext) -> State:
        return State(context.start("x", self.start))

    def step(self, t: int, context: CoordinatorContext, s: State) -> Generator[Request, Response, State]:
        pool = yield Pool()
        return (yield from drawn(self.law(context, pool)))

    def published(self, s: State) -> dict[str, Array]:
        return {"x": s.x}

    def free_channels(self, context: CoordinatorContext) -> dict[str, int]:
        return {}

    def planned_releases(self, context: CoordinatorContext, rounds: int) -> dict[str, Charge]:
        law = self.law(context)
        return charge(law, "" if law.facts.certified else NOT_CONVEX)

    def printed_calibration(
        self, context: CoordinatorContext, rounds: int, epsilon: float, delta: float
    ) -> dict[str, Calibration]:
        return one_draw(self.law(context), _slope(context) / context.budget)


def _slope(context: CoordinatorContext) -> float:
    """S of Lemma B.6."""
    return printed_slope(constants_of(context), smaller_count(context))
