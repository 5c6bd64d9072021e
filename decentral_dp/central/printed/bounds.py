"""Bounds as papers print them, for comparison: nothing is priced by these."""

from __future__ import annotations

from decentral_dp.constants.problem_constants import ProblemConstants


def printed_k(c: ProblemConstants) -> float:
    """Evaluate K as printed.

    References:
        Lowy & Liu 2025, Equation 12.
    """
    kappa, oscillation = c.b_gxy / c.mu, c.l_gy / c.mu
    lipschitz = c.l_fx + c.l_fy * kappa
    curved = c.c_gxy * oscillation + kappa * c.c_gyy * oscillation + kappa * c.b_gyy
    return 2.0 * (c.b_fxy * oscillation + 2.0 * lipschitz + kappa * c.b_fyy * oscillation + c.l_fy / c.mu * curved)


def printed_lipschitz(c: ProblemConstants, n: int) -> float:
    """Evaluate 2G/n, which is said to bound how fast Φ_Z − Φ_Z' varies.

    Limits:
        False: its proof differentiates f(x, y_Z(x)) in x alone. Take f = y, g = a y²/2 − b x y, a ∈ [μ, β]. One changed
        record moves the slope by b(β − μ)/(n μ²) to first order, and 2G/n = 2b/(μ n) is less where β > 3μ.
        See docs/proofs/32.

    References:
        Lowy & Liu 2025, Lemma B.6.
    """
    return 2.0 / n * (c.l_fx + c.l_fy * c.b_gxy / c.mu + c.l_gy * c.b_fxy / c.mu)


def printed_score(c: ProblemConstants, n: int, width: float) -> float:
    """Evaluate s as printed, with D_y = L_gy/μ.

    Args:
        c: constants of the whole domain.
        n: records.
        width: D_x.

    Limits:
        Its last term lacks 1/n, so noise never shrinks. See docs/proofs/32.

    References:
        Lowy & Liu 2025, Equation 4.
    """
    spread = c.l_gy / c.mu
    return 2.0 / n * (c.l_fx * width + c.l_fy * spread) + 4.0 * c.l_fy * spread
