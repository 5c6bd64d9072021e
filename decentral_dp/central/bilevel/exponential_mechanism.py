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

Reference: A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025,
Equation 4.
"""

from __future__ import annotations

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.single_draw import DrawState, ScoredDraw, pure_draw_entry, release_draw
from decentral_dp.central.selection import SelectionBounds


class ExponentialMechanism(ScoredDraw):
    """A trusted coordinator: one draw of x by an exponential mechanism, pure ε (Lowy & Liu, 2025, Equation 4)."""

    name = "exponential_mechanism"
    reads_losses = True
    facts = staticmethod(SelectionBounds.of_value)

    def step(self, t: int, context: dp.CoordinatorContext, s: DrawState) -> dp.CoordinatorSteps[DrawState]:
        pool = yield dp.Pool()
        return (yield from release_draw(self.law(context, pool.scores)))


ENTRY = pure_draw_entry(ExponentialMechanism, "Mechanism (Equation 4, its scale corrected)", {"candidates": "65"})
