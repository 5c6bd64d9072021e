"""Sensitivities of minimisers, hypergradients and scores, and rates of bilevel descent, from a problem's constants.

Each bound is for one replaced record. The proofs are numbered in docs/proofs.

    Φ(x) = F(x, y(x)),  y(x) = argmin_y G       L*_λ(x) = [F + λG](x, y^λ(x)) − λ G(x, y(x)),  y^λ(x) = argmin_y F + λG

Smoothness, biases and penalties determine default hyper-parameters only, and no guarantee depends on them. If y^λ is
used, the constants must hold on the wider ball of y^λ (mass = 1 + 1/λ). M replaces the papers' b_gxy/μ and never
exceeds it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from decentral_dp.bounded import Split
from decentral_dp.constants import ProblemConstants, round_up


class Clips(NamedTuple):
    """Bounds on one record's part of the implicit gradient, in l2 and spectral norms.

    Args:
        a: bound on ‖∇_x f‖.
        b: bound on ‖∇_y f‖.
        j: bound on ‖∇²_xy g‖, or 0 if it reads no record.
        h: bound on ‖∇²_yy g‖.
    """

    a: float
    b: float
    j: float
    h: float


def minimiser_sensitivity(
    c: ProblemConstants, n_train: int, n_validation: int, accuracy: float, penalty: float | None = None
) -> dict[Split, float]:
    """Bound the l2 sensitivity of the minimiser of G or, with a penalty λ, of G + F/λ.

    The bounds are D_gy/(μ n_t) + 2a for train records, and D_fy/(λ μ n_v) + 2a (0 without a penalty) for validation
    records. If both levels read the same records, the bounds add up. See docs/proofs/13.

    Proof: at the minimiser of one dataset's objective, the gradient of the other's is the change that the record makes.
    By strong convexity, this gradient bounds the distance. Two minimisers are at most a diameter of the ball apart.

    Args:
        c: constants on the ball of these minimisers, which is wider for G + F/λ: mass = 1 + 1/λ.
        n_train: number of train records.
        n_validation: number of validation records.
        accuracy: bound a ≥ ‖computed − exact minimiser‖ for both datasets.
        penalty: λ, or None for the minimiser of G.

    Returns:
        Map from "train" and "validation" to the bound.

    References:
        Lowy & Liu 2025, proof of Theorem 3.2; Kornowski 2024, Lemma 17.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> c = family_of(MeanEstimation(2), radius=1.0).constants(low=-np.ones(2), high=np.ones(2))
        >>> moved = minimiser_sensitivity(c, n_train=100, n_validation=50, accuracy=0.0)
        >>> round(moved["train"], 6), moved["validation"]
        (0.01, 0.0)
    """

    def sensitivity(swap: float) -> float:
        return round_up(min(swap / c.mu, 2.0 * c.radius) + 2.0 * accuracy)

    return {
        "train": sensitivity(c.d_gy / n_train),
        "validation": 0.0 if penalty is None else sensitivity(c.d_fy / (penalty * n_validation)),
    }


def hypergradient_sensitivity(
    c: ProblemConstants, n_train: int, n_validation: int, self_concordance: float = math.inf
) -> dict[Split, float]:
    """Bound the l2 sensitivity of ∇Φ(x) = ∇_x F − G_xy G_yy⁻¹ ∇_y F, at the exact minimiser.

    With δ = D_gy/(μ n_t), the bounds, both at most 2(L_fx + M L_fy), are

        train       (b_fxy + M b_fyy) δ + (L_fy/μ)[C_gxy δ + D_hxy/n_t + M (C_gyy δ + D_hyy/n_t)]
        validation  (D_fx + M D_fy)/n_v

    If f and g read the same records, the bounds add up. See docs/proofs/14.

    Proof: let y, J, H and y', J', H' belong to the two datasets. The change of J H⁻¹ b is J H⁻¹(b − b') and [(J − J') +
    J H⁻¹(H' − H)] H'⁻¹ b'. J H⁻¹ at a minimiser is at most M, and J − J', H − H' split into the change of y and the
    record. The proof uses no expansion, so the bound holds for every n. With a finite κ, M C_gyy δ/μ may be replaced by
    b_gxy (e^{κδ} − 1)/μ, which is less if μ is small. To prove it, change first the record at y and then y, which keeps
    H⁻¹ within a factor e^{±κδ}.

    Args:
        c: constants that hold at x.
        n_train: number of train records.
        n_validation: number of validation records.
        self_concordance: κ with ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y) for every record and for R; inf (the default) if
            it is unknown.

    Returns:
        Map from "train" and "validation" to the bound.

    References:
        Lowy & Liu 2025, Equation 27, whose K (Equation 12) has b_gxy/μ for M and norms for differences.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> c = family_of(MeanEstimation(2), radius=1.0).constants(low=-np.ones(2), high=np.ones(2))
        >>> {kind: round(bound, 6) for kind, bound in hypergradient_sensitivity(c, 100, 50).items()}
        {'train': 0.005, 'validation': 0.02}
    """
    sensitivity = min(c.d_gy / (c.mu * n_train), 2.0 * c.radius)
    drift = c.m * c.c_gyy * sensitivity
    if self_concordance * sensitivity < 700.0:
        drift = min(drift, c.b_gxy * math.expm1(self_concordance * sensitivity))
    through = c.c_gxy * sensitivity + c.d_hxy / n_train + drift + c.m * c.d_hyy / n_train
    train = (c.b_fxy + c.m * c.b_fyy) * sensitivity + c.l_fy / c.mu * through
    largest = 2.0 * (c.l_fx + c.m * c.l_fy)
    validation = (c.d_fx + c.m * c.d_fy) / n_validation
    return {"train": round_up(min(train, largest)), "validation": round_up(min(validation, largest))}


def hypergradient_lipschitz(c: ProblemConstants) -> float:
    """Bound C, the error of the estimate of ∇Φ(x) at y in the ball divided by a ≥ ‖y − y_Z(x)‖.

        C = b_fxy + M b_fyy + (L_fy/μ)(C_gxy + M C_gyy)

    References:
        Lowy & Liu 2025, Equations 11 and 26, with M instead of b_gxy/μ and J H⁻¹ at the minimiser.
    """
    return round_up(c.b_fxy + c.m * c.b_fyy + c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy))


def estimate_slack(c: ProblemConstants, accuracy: float, solve_error: float) -> float:
    """Bound the contribution of inexact solves to the sensitivity of a released hypergradient: 2(C a + b_gxy τ).

    The norm is l2. See docs/proofs/14.

    Args:
        c: constants of the problem.
        accuracy: bound a ≥ ‖ŷ − y_Z(x)‖, with ŷ in the ball.
        solve_error: bound τ ≥ ‖v − G_yy⁻¹ ∇_y F‖ at ŷ.
    """
    return round_up(2.0 * (hypergradient_lipschitz(c) * accuracy + c.b_gxy * solve_error))


def score_oscillation(
    c: ProblemConstants,
    n_train: int,
    n_validation: int,
    width: float,
    spread: float,
    error: float,
    loss_range: float = math.inf,
) -> dict[Split, float]:
    """Bound sup_x q − inf_x q over the box for q = Φ_Z − Φ_Z', the difference of the scores of neighbouring datasets.

    The bounds are 2 L_fy D_gy/(μ n_t) + 4e for train records, and (2/n_v) min(loss range, L_fx D_x + L_fy D_y) + 4e for
    validation records. If both levels read the same records, the bounds add up. exp(−(ε/s) Φ) with s at least the bound
    is ε-DP without a further factor ½. See docs/proofs/20.

    Args:
        c: constants that hold on the box.
        n_train: number of train records.
        n_validation: number of validation records.
        width: l2 diameter D_x of the box.
        spread: bound D_y on ‖y_Z(x) − y_Z(x')‖ over the box (`solution_spread`).
        error: bound e ≥ |computed − exact score| at every x; L_fy a for a minimiser with accuracy a.
        loss_range: sup over records of max f − min f, over x in the box and y in its ball; inf (the default) if it is
            unknown.

    Returns:
        Map from "train" and "validation" to the bound.

    References:
        Lowy & Liu 2025, Equation 4, whose last term lacks 1/n.
    """
    sensitivity = min(c.d_gy / (c.mu * n_train), 2.0 * c.radius)
    variation = min(loss_range, c.l_fx * width + c.l_fy * spread)
    return {
        "train": round_up(2.0 * c.l_fy * sensitivity + 4.0 * error),
        "validation": round_up(2.0 * variation / n_validation + 4.0 * error),
    }


def implicit_sensitivity(
    clips: Clips,
    floor: float,
    jacobian: float,
    n_train: int,
    n_validation: int,
    through: float = math.inf,
    solve_error: float = 0.0,
    positive: bool = True,
) -> dict[Split, float]:
    """Bound the l2 sensitivity of a − J H⁻¹ b at one public y.

    a and b are means over validation records, J and H over train records. The bounds are attained:

        train       2 C_j C_b/(w₀ n_t) + K C_b C_h/(n_t w₀ (w₀ + C_h/n_t)) + 2 K τ
        validation  (2 C_a + 2 K C_b/w₀)/n_v + 2 K τ

    If f and g read the same records, the bounds add up. See docs/proofs/15.

    Proof: J H⁻¹b − J'H'⁻¹b' splits as in `hypergradient_sensitivity`, at one y. H and H' lie between H₀ ⪰ w₀ and H₀ +
    C_h/n_t, so their inverses differ by at most (C_h/n_t)/(w₀(w₀ + C_h/n_t)), or by 2 C_h/(n_t w₀²) without positivity.

    Args:
        clips: bounds C_a, C_b, C_j and C_h.
        floor: w₀ > 0 with ∇²_yy R ⪰ w₀.
        jacobian: bound K ≥ ‖J‖, regulariser included.
        n_train: number of train records.
        n_validation: number of validation records.
        through: bound on ‖J H⁻¹‖ for either dataset, if it is less than K/w₀.
        solve_error: bound τ ≥ ‖computed − exact H⁻¹b‖, default 0.
        positive: whether per-record Hessians are positive semidefinite and stay so when clipped, default True.
            Otherwise they are symmetrised, clipped in the Frobenius norm, and the eigenvalues of the mean are raised to
            w₀, which is 1-Lipschitz in that norm.

    Returns:
        Map from "train" and "validation" to the bound.

    Example:
        >>> clips = Clips(a=1.0, b=1.0, j=0.0, h=1.0)
        >>> moved = implicit_sensitivity(clips, floor=1.0, jacobian=1.0, n_train=100, n_validation=50)
        >>> {kind: round(bound, 6) for kind, bound in moved.items()}
        {'train': 0.009901, 'validation': 0.08}
    """
    share = clips.h / n_train if positive else 2.0 * clips.h / n_train
    distance = share / (floor * (floor + share if positive else floor))
    solver_bound = min(through, jacobian / floor)
    rotation = min(jacobian * distance, solver_bound * share / floor)
    slack = 2.0 * jacobian * solve_error
    return {
        "train": round_up(2.0 * clips.j / n_train * clips.b / floor + clips.b * rotation + slack),
        "validation": round_up((2.0 * clips.a + 2.0 * solver_bound * clips.b) / n_validation + slack),
    }


def smoothness(c: ProblemConstants) -> float:
    """Bound b_Φ, the Lipschitz constant of ∇Φ in l2.

        b_fxx + 2 M b_fxy + M² b_fyy + (L_fy/μ)[M_gxy + M C_gxy + M (M_gyy + M C_gyy)]

    The decomposition is the same as in `hypergradient_sensitivity`, with a step in x, which changes y by M, instead of
    a record.

    Args:
        c: constants on the box and the ball of minimisers.

    References:
        Lowy & Liu 2025, Equation 28.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> c = family_of(MeanEstimation(2), radius=1.0).constants(low=-np.ones(2), high=np.ones(2))
        >>> round(smoothness(c), 6)
        0.25
    """
    curvature_bound = c.m_gxy + c.m * c.c_gxy + c.m * (c.m_gyy + c.m * c.c_gyy)
    return round_up(c.b_fxx + 2.0 * c.m * c.b_fxy + c.m**2 * c.b_fyy + c.l_fy / c.mu * curvature_bound)


def penalty_bias(c: ProblemConstants) -> float:
    """Bound the bias of the penalty method: D₁ with ‖∇L*_λ − ∇Φ‖ ≤ D₁/λ.

        D₁ = (L_fy/μ)[b_fxy + M b_fyy + (L_fy/(2μ))(C_gxy + M C_gyy)]

    Proof: ∇L*_λ = ∇_x F + λ(∇_x G(y^λ) − ∇_x G(y)). Expand both gradients of G around y, with remainders C/2·‖y^λ −
    y‖².

    Args:
        c: constants on the wider ball of y^λ.

    References:
        Kornowski 2024, Lemma 7 (ii), there up to constants (see docs/proofs/16).
    """
    return round_up(c.l_fy / c.mu * (c.b_fxy + c.m * c.b_fyy + 0.5 * c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy)))


def penalty_smoothness(c: ProblemConstants, lam: float) -> float:
    """Bound b_L, the Lipschitz constant of ∇L*_λ. It tends to b_Φ as λ grows.

        b_fxx + t M_gxy + d (b_fxy + t C_gxy) + (b_gxy/μ_λ)[b_fxy + t C_gxy + M (b_fyy + t C_gyy)]

    with μ_λ the modulus of G + F/λ, t = L_fy/μ, and d = (b_gxy + b_fxy/λ)/μ_λ ≥ ‖dy^λ/dx‖.

    Proof: differentiate ∇L*_λ in x. λ times a difference of derivatives of G between y^λ and y is at most t times its
    Lipschitz constant. dy^λ/dx − dy/dx is 1/(λμ_λ) times the bracket, and ‖∇³_xxy G‖ ≤ M_gxy.

    Args:
        c: constants on the wider ball of y^λ.
        lam: λ > 0.

    References:
        Kornowski 2024, Lemma 7 (iii), there O(ℓκ³) (see docs/proofs/16).
    """
    modulus, ratio = c.mu, c.l_fy / c.mu
    cross_bound = c.b_fxy + ratio * c.c_gxy
    along = (c.b_gxy + c.b_fxy / lam) / modulus
    bracket = cross_bound + c.m * (c.b_fyy + ratio * c.c_gyy)
    return round_up(c.b_fxx + ratio * c.m_gxy + along * cross_bound + c.b_gxy / modulus * bracket)


def default_penalty(c: ProblemConstants, plain: float, penalised: float) -> float:
    """Compute λ that minimises D₁/λ + λ b_gxy (plain + penalised). It is infinite if the solutions are exact.

    Args:
        c: constants of the problem.
        plain: bound on ‖ỹ − y‖.
        penalised: bound on ‖ỹ^λ − y^λ‖.
    """
    noise = c.b_gxy * (plain + penalised)
    return math.sqrt(penalty_bias(c) / noise) if noise > 0.0 else math.inf
