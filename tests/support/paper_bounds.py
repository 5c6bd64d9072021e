"""Bounds of the papers that nothing runs by: what tests compare with."""

from __future__ import annotations

from decentral_dp.constants import ProblemConstants, round_up


def penalty_distance(c: ProblemConstants, lam: float) -> float:
    """Bound how far the minimiser of G + F/λ is from that of G: L_fy/(λμ) ≥ ‖y^λ − y‖.

    Proof: ∇_y G(y^λ) = −∇_y F(y^λ)/λ.

    Args:
        c: constants, which hold on the wider ball of y^λ.
        lam: λ > 0.

    References:
        Kornowski 2024, Lemma 22.
    """
    return round_up(c.l_fy / (lam * c.mu))
