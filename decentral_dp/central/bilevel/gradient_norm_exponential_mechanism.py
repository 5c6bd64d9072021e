"""An exponential mechanism by the norm of the hypergradient: one draw of an x that is nearly stationary, at pure ε.

    P(x) ∝ exp(−‖∇Φ(x)‖/scale),     scale = s/ε

for x of `domain`; candidates as in `exponential_mechanism`. ∇Φ(x) is computed at the exact lower solution.

Whose data: every record of every agent, against those who see x; the coordinator is trusted, and holds all records.
One record moves ∇Φ by at most S anywhere on the domain (`hypergradient_sensitivity`), so ‖∇Φ‖ by something between −S
and S: s = 2S, and what the scores are computed and rounded to (2r + 4e). Φ need not be convex. A stationary point has
to lie in the domain for ‖∇Φ‖ to be small anywhere.

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025, Appendix
C.3.
"""

from __future__ import annotations

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.single_draw import DrawState, ScoredDraw, pure_draw_entry, release_draw
from decentral_dp.central.selection import SelectionBounds


class GradientNormMechanism(ScoredDraw):
    """A trusted coordinator: one draw of an x that is nearly stationary, pure ε (Lowy & Liu, 2025, Appendix C.3)."""

    name = "gradient_norm_exponential_mechanism"
    facts = staticmethod(SelectionBounds.of_norm)

    def step(self, t: int, context: dp.CoordinatorContext, s: DrawState) -> dp.CoordinatorSteps[DrawState]:
        pool = yield dp.Pool()
        return (yield from release_draw(self.law(context, pool.gradient_norms)))


ENTRY = pure_draw_entry(GradientNormMechanism, "Mechanism (Appendix C.3, its scale corrected)", {"candidates": "65"})
