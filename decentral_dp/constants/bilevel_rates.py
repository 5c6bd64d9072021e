"""Step sizes, numbers of steps and biases of private bilevel descent, from public constants alone.

    Φ(x) = F(x, y(x)),  y(x) = argmin_y G       L*_λ(x) = [F + λG](x, y^λ(x)) − λ G(x, y(x)),  y^λ(x) = argmin_y F + λG

None of this enters a guarantee: it sets what is run, and what to expect of it. Where y^λ is read, the constants must
hold on the wider ball of y^λ (mass = 1 + 1/λ). M stands for the papers' b_gxy/μ, which it never exceeds.
"""

from __future__ import annotations

import math

from decentral_dp.constants.problem_constants import ProblemConstants, up
from decentral_dp.constants.record_sensitivity import penalised_modulus


def smoothness(c: ProblemConstants) -> float:
    """Bound how fast ∇Φ varies: b_Φ.

        b_fxx + 2 M b_fxy + M² b_fyy + (L_fy/μ)[M_gxy + M C_gxy + M (M_gyy + M C_gyy)]

    It is the split of `hypergradient_sensitivity`, with a step in x, which moves y by M, in place of a record.

    Args:
        c: constants on the box and the ball of minimisers.

    Returns:
        The Lipschitz constant of ∇Φ in l2, rounded up.

    References:
        Lowy & Liu 2025, Equation 28.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants.families import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> c = family_of(MeanEstimation(2), radius=1.0).constants(low=-np.ones(2), high=np.ones(2))
        >>> round(smoothness(c), 6)
        0.25
    """
    turned = c.m_gxy + c.m * c.c_gxy + c.m * (c.m_gyy + c.m * c.c_gyy)
    return up(c.b_fxx + 2.0 * c.m * c.b_fxy + c.m**2 * c.b_fyy + c.l_fy / c.mu * turned)


def penalty_bias(c: ProblemConstants) -> float:
    """Bound the bias of the penalty method: D₁ with ‖∇L*_λ − ∇Φ‖ ≤ D₁/λ.

        D₁ = (L_fy/μ)[b_fxy + M b_fyy + (L_fy/(2μ))(C_gxy + M C_gyy)]

    Proof: ∇L*_λ = ∇_x F + λ(∇_x G(y^λ) − ∇_x G(y)); expand both gradients of G around y, remainders C/2·‖y^λ − y‖².

    Args:
        c: constants, which hold on the wider ball of y^λ.

    References:
        Kornowski 2024, Lemma 7 (ii), there up to constants; see docs/proofs/16.
    """
    return up(c.l_fy / c.mu * (c.b_fxy + c.m * c.b_fyy + 0.5 * c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy)))


def penalty_smoothness(c: ProblemConstants, lam: float) -> float:
    """Bound how fast ∇L*_λ varies: b_L.

        b_fxx + t M_gxy + d (b_fxy + t C_gxy) + (b_gxy/μ_λ)[b_fxy + t C_gxy + M (b_fyy + t C_gyy)]

    with μ_λ the modulus of G + F/λ, t = L_fy/μ, and d = (b_gxy + b_fxy/λ)/μ_λ ≥ ‖dy^λ/dx‖.

    Proof: differentiate ∇L*_λ in x. λ times a difference of derivatives of G between y^λ and y is at most t times its
    Lipschitz constant. dy^λ/dx − dy/dx is 1/(λμ_λ) times the bracket; ‖∇³_xxy G‖ ≤ M_gxy.

    Args:
        c: constants, which hold on the wider ball of y^λ.
        lam: λ > 0.

    Raises:
        InputError: μ_λ ≤ 0.

    Limits:
        It tends to b_Φ as λ grows.

    References:
        Kornowski 2024, Lemma 7 (iii), there O(ℓκ³); see docs/proofs/16.
    """
    modulus, turned = penalised_modulus(c, lam), c.l_fy / c.mu
    mixed = c.b_fxy + turned * c.c_gxy
    along = (c.b_gxy + c.b_fxy / lam) / modulus
    bracket = mixed + c.m * (c.b_fyy + turned * c.c_gyy)
    return up(c.b_fxx + turned * c.m_gxy + along * mixed + c.b_gxy / modulus * bracket)


def estimator_bias(c: ProblemConstants, lam: float, plain: float, penalised: float) -> float:
    """Bound how far ∇_x F + λ(∇_x G(ỹ^λ) − ∇_x G(ỹ)) is from ∇L*_λ: β.

        (b_fxy + λ b_gxy)·penalised + λ b_gxy·plain

    Args:
        c: constants, which hold on the wider ball of y^λ.
        lam: λ > 0.
        plain: bound on ‖ỹ − y‖.
        penalised: bound on ‖ỹ^λ − y^λ‖.

    References:
        Kornowski 2024, Lemma 20.
    """
    return up((c.b_fxy + lam * c.b_gxy) * penalised + lam * c.b_gxy * plain)


def default_penalty(c: ProblemConstants, plain: float, penalised: float) -> float:
    """Choose λ such that D₁/λ + λ b_gxy (plain + penalised) is least, and with declared constants at least 2 b_fyy/μ.

    Args:
        c: constants.
        plain: bound on ‖ỹ − y‖.
        penalised: bound on ‖ỹ^λ − y^λ‖.

    Limits:
        Infinite where solutions are exact: the larger the better.
    """
    noise = c.b_gxy * (plain + penalised)
    best = math.sqrt(penalty_bias(c) / noise) if noise > 0.0 else math.inf
    return best if c.label == "analytic" else max(best, 2.0 * c.b_fyy / c.mu)


def descent_steps(smooth: float, gap: float, target: float) -> int:
    """Count the steps of size 1/(2b) after which the best gradient mapping is at most `target`.

        T = ⌈(64/3) b gap/α²⌉

    Args:
        smooth: b.
        gap: bound on the value at the start minus its infimum, from public facts.
        target: α.

    Limits:
        The bias may be α/8, and the noise of each step `noise_quantile` up to α/8.

    References:
        Kornowski 2024, Proposition 10.

    Example:
        >>> descent_steps(smooth=2.0, gap=1.0, target=0.5)
        171
    """
    return max(1, math.ceil(64.0 / 3.0 * smooth * gap / target**2))


def noise_quantile(scale: float, dimension: int, steps: int, failure: float) -> float:
    """Bound the length of all `steps` draws of N(0, scale² I) with probability 1 − failure.

        scale (√d + √(2 log(T/γ))): Gaussian norms concentrate around √d (Borell)

    Args:
        scale: standard deviation of a coordinate.
        dimension: d.
        steps: T.
        failure: γ.

    Example:
        >>> round(noise_quantile(1.0, dimension=4, steps=100, failure=0.01), 3)
        6.292
    """
    return scale * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(steps / failure)))
