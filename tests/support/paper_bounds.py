"""Bounds of the papers that nothing runs by: what tests compare with."""

from __future__ import annotations

from decentral_dp.constants import ProblemConstants, round_up
from papers.published.bilevel import published_k


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


def printed_hypergradient(c: ProblemConstants, n: int) -> float:
    """Evaluate 4K/n, the printed sensitivity of the hypergradient: valid, and several times too large.

    References:
        Lowy & Liu 2025, Lemma 4.1.
    """
    return 4.0 * published_k(c) / n
