"""An exponential mechanism by the norm of the hypergradient: one draw of an x that is nearly stationary, at pure ε.

    P(x) ∝ exp(−‖∇Φ(x)‖/scale),     scale = s/ε

for x of `domain`; method and candidates as in `exponential_mechanism`. ∇Φ(x) is computed at the exact lower solution.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records.
One record moves ∇Φ by at most S anywhere on the domain (`hypergradient_sensitivity`), so ‖∇Φ‖ by something between −S
and S: s = 2S, and what the scores are computed and rounded to (2r + 4e). Φ need not be convex. A stationary point has
to lie in the domain for ‖∇Φ‖ to be small anywhere.

`printed` is Appendix C.3: probabilities ∝ exp(−(ε/2G)‖∇Φ‖), G = L_fx + L_fy b_gxy/μ + L_gy b_fxy/μ. It rests on 2G/n
as a bound on what one record moves ∇Φ by (Lemma B.6), which fails where the Hessians of records differ much; but then
drops the n, and so is too flat by far.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Appendix
C.3.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from decentral_dp.algorithms.common_options import count_option, drawing_method
from decentral_dp.algorithms.coordinator_bilevel.second_order_dp_bilevel import bounds_of
from decentral_dp.algorithms.coordinator_protocol import no_free_channels
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.references import LOWY_LIU, Citation
from decentral_dp.algorithms.selection.single_draw import (
    State,
    begin,
    check_once,
    drawn,
    law_of,
    no_score,
    price_of_draw,
    publish_draw,
    resolve_candidates,
)
from decentral_dp.exchange import Pool, Request, Response, SelectionMechanism
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.participants.selection import Function, Score

NAME = "gradient_norm_exponential_mechanism"


@dataclass(frozen=True)
class GradientNormMechanism:
    """method: "grid" or "cells". candidates: along each axis of a grid."""

    method: str = drawing_method()
    candidates: int | None = count_option("candidates along each axis of the grid; settled by default", "points", "65")
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "released"
    releases_per_round = 1
    needs_constants = needs_records = True
    queries = ()

    def resolve_defaults(self, context: CoordinatorContext) -> tuple[Self, CoordinatorContext]:
        check_once(context, NAME)
        self.law(context, no_score)
        return replace(self, candidates=resolve_candidates(context, self.method, self.candidates)), context

    def law(self, context: CoordinatorContext, score: Function) -> SelectionMechanism:
        facts = Score.of_norm(bounds_of(context), *context.domain.corners(context.problem.p))
        return law_of(context, NAME, facts, score, self.method, self.candidates)

    def step(self, t: int, context: CoordinatorContext, s: State) -> Generator[Request, Response, State]:
        pool = yield Pool()
        return (yield from drawn(self.law(context, pool.gradient_norms)))

    init, published, free_channels, planned_releases = begin, publish_draw, no_free_channels, price_of_draw


ENTRY = Entry(
    "gradient_norm_exponential_mechanism",
    GradientNormMechanism,
    "a trusted coordinator: one draw of an x that is nearly stationary, pure ε (Lowy & Liu, 2025, Appendix C.3)",
    (Citation("Mechanism (Appendix C.3, its scale corrected)", LOWY_LIU),),
    trusted=True,
    pure=True,
    claim="Appendix C.3 of Lowy & Liu (2025), as printed",
    example={"rounds": "1", "method": '"grid"'},
    domain="required",
)
