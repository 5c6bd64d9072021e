"""Step sizes, numbers of steps and biases of private bilevel descent, from public constants alone.

    Φ(x) = F(x, y(x)),  y(x) = argmin_y G       L*_λ(x) = [F + λG](x, y^λ(x)) − λ G(x, y(x)),  y^λ(x) = argmin_y F + λG

None of this enters a guarantee: it sets what is run, and what to expect of it. Where y^λ is read, the constants must
hold on the wider ball of y^λ (mass = 1 + 1/λ). M stands for the papers' b_gxy/μ, which it never exceeds.
"""

from __future__ import annotations

import math

from decentral_dp.constants.problem_constants import ProblemConstants, penalised_modulus, up


def smoothness(c: ProblemConstants) -> float:
    """b_Φ: how fast ∇Φ varies.

        b_fxx + 2 M b_fxy + M² b_fyy + (L_fy/μ)[M_gxy + M C_gxy + M (M_gyy + M C_gyy)]

    Source: Lowy & Liu, Equation 28: the split of `hypergradient_sensitivity`, with a step in x, which moves y by M, in
    place of a record.
    """
    turned = c.m_gxy + c.m * c.c_gxy + c.m * (c.m_gyy + c.m * c.c_gyy)
    return up(c.b_fxx + 2.0 * c.m * c.b_fxy + c.m**2 * c.b_fyy + c.l_fy / c.mu * turned)


def penalty_distance(c: ProblemConstants, lam: float) -> float:
    """L_fy/(λμ) ≥ ‖y^λ − y‖: ∇_y G(y^λ) = −∇_y F(y^λ)/λ. Source: Kornowski, Lemma 22."""
    return up(c.l_fy / (lam * c.mu))


def penalty_bias(c: ProblemConstants) -> float:
    """D₁ with ‖∇L*_λ − ∇Φ‖ ≤ D₁/λ.

        D₁ = (L_fy/μ)[b_fxy + M b_fyy + (L_fy/(2μ))(C_gxy + M C_gyy)]

    Proof: ∇L*_λ = ∇_x F + λ(∇_x G(y^λ) − ∇_x G(y)); expand both gradients of G around y, remainders C/2·‖y^λ − y‖².
    Source: Kornowski, Lemma 7 (ii), there up to constants.
    """
    return up(c.l_fy / c.mu * (c.b_fxy + c.m * c.b_fyy + 0.5 * c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy)))


def penalty_smoothness(c: ProblemConstants, lam: float) -> float:
    """b_L: how fast ∇L*_λ varies.

        b_fxx + t M_gxy + d (b_fxy + t C_gxy) + (b_gxy/μ_λ)[b_fxy + t C_gxy + M (b_fyy + t C_gyy)]

    with μ_λ the modulus of G + F/λ, t = L_fy/μ, and d = (b_gxy + b_fxy/λ)/μ_λ ≥ ‖dy^λ/dx‖.
    Proof: differentiate ∇L*_λ in x. λ times a difference of derivatives of G between y^λ and y is at most t times its
    Lipschitz constant, and dy^λ/dx − dy/dx is 1/(λμ_λ) times the bracket; ‖∇³_xxy G‖ ≤ M_gxy. It tends to b_Φ as λ
    grows. Source: Kornowski, Lemma 7 (iii), there O(ℓκ³). Raises InputError where μ_λ ≤ 0.
    """
    modulus, turned = penalised_modulus(c, lam), c.l_fy / c.mu
    mixed = c.b_fxy + turned * c.c_gxy
    along = (c.b_gxy + c.b_fxy / lam) / modulus
    bracket = mixed + c.m * (c.b_fyy + turned * c.c_gyy)
    return up(c.b_fxx + turned * c.m_gxy + along * mixed + c.b_gxy / modulus * bracket)


def estimator_bias(c: ProblemConstants, lam: float, plain: float, penalised: float) -> float:
    """β: how far ∇_x F + λ(∇_x G(ỹ^λ) − ∇_x G(ỹ)) is from ∇L*_λ, with ‖ỹ − y‖ ≤ plain and ‖ỹ^λ − y^λ‖ ≤ pulled.

    (b_fxy + λ b_gxy)·pulled + λ b_gxy·plain. Source: Kornowski, Lemma 20.
    """
    return up((c.b_fxy + lam * c.b_gxy) * penalised + lam * c.b_gxy * plain)


def default_penalty(c: ProblemConstants, plain: float, penalised: float) -> float:
    """λ that makes D₁/λ + λ b_gxy (plain + pulled) least, and with declared constants at least 2 b_fyy/μ.

    Infinite where solutions are exact: the larger the better.
    """
    noise = c.b_gxy * (plain + penalised)
    best = math.sqrt(penalty_bias(c) / noise) if noise > 0.0 else math.inf
    return best if c.label == "analytic" else max(best, 2.0 * c.b_fyy / c.mu)


def descent_steps(smooth: float, gap: float, target: float) -> int:
    """T = ⌈(64/3) b gap/α²⌉ steps of size 1/(2b) reach a gradient mapping of α = target at the best of them.

    smooth: b. gap: bound on the value at the start minus its infimum, from public facts. The bias may be α/8, and the
    noise of each step `noise_quantile` up to α/8. Source: Kornowski, Proposition 10.
    """
    return max(1, math.ceil(64.0 / 3.0 * smooth * gap / target**2))


def noise_quantile(scale: float, dimension: int, steps: int, failure: float) -> float:
    """With probability 1 − failure all `steps` draws of N(0, scale² I) are at most this long.

    scale (√d + √(2 log(T/γ))): Gaussian norms concentrate around √d (Borell).
    """
    return scale * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(steps / failure)))
