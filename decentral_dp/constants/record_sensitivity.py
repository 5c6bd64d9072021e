"""What follows from a problem's constants for one replaced record: bounds on minimisers, hypergradients and scores.

F, G, R and y_Z(x) are those of `problem_constants`. The proofs are in docs/proofs, by their numbers.
"""

from __future__ import annotations

import math

from decentral_dp.bounded import Split
from decentral_dp.constants.problem_constants import Clips, ProblemConstants, up
from decentral_dp.errors import InputError


def penalised_modulus(c: ProblemConstants, lam: float) -> float:
    """Bound the strong convexity of g + f/λ in y from below.

    Args:
        c: constants.
        lam: λ > 0.

    Returns:
        μ where f is convex (all analytic families), μ − b_fyy/λ where nobody knows.

    Raises:
        InputError: that is not positive.
    """
    modulus = c.mu if c.label == "analytic" else c.mu - c.b_fyy / lam
    if not modulus > 0.0:
        raise InputError(
            f"penalty: got {lam:g}, but more than b_fyy/mu = {c.b_fyy / c.mu:g} is wanted with declared constants: "
            "below that f + penalty·g need not be convex, and one record may move its minimiser without bound."
        )
    return modulus


def minimiser_sensitivity(
    c: ProblemConstants, n_train: int, n_validation: int, accuracy: float, penalty: float | None = None
) -> dict[Split, float]:
    """Bound how far one replaced record moves the minimiser of G, or with a penalty λ that of G + F/λ.

    Proof: the gradient of one data set's objective, at the other's minimiser, is what the record changed. Strong
    convexity turns it into a distance; two minimisers are never further apart than the ball is wide.

    Args:
        c: constants on the ball of *these* minimisers, which is wider for G + F/λ: mass = 1 + 1/λ.
        n_train: train records.
        n_validation: validation records.
        accuracy: a ≥ ‖computed − exact minimiser‖, for both data sets.
        penalty: λ; None for the minimiser of G.

    Returns:
        "train" and "validation" → bound, for a record of that kind.

    Raises:
        InputError: g + f/λ need not be convex.

    Sensitivity:
        In l2, one record replaced: train D_gy/(μ n_t) + 2a, validation D_fy/(λ μ n_v) + 2a (0 without a penalty).
        Same records in both levels: the sum. See docs/proofs/13.

    References:
        Lowy & Liu 2025, proof of Theorem 3.2; Kornowski 2024, Lemma 17.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants.families import family_of
        >>> from decentral_dp.problems.bilevel.means import MeanEstimation
        >>> c = family_of(MeanEstimation(2), radius=1.0).constants(low=-np.ones(2), high=np.ones(2))
        >>> moved = minimiser_sensitivity(c, n_train=100, n_validation=50, accuracy=0.0)
        >>> round(moved["train"], 6), moved["validation"]
        (0.01, 0.0)
    """

    def sensitivity(swap: float, modulus: float) -> float:
        return up(min(swap / modulus, 2.0 * c.radius) + 2.0 * accuracy)

    if penalty is None:
        return {"train": sensitivity(c.d_gy / n_train, c.mu), "validation": 0.0}
    modulus = penalised_modulus(c, penalty)
    return {
        "train": sensitivity(c.d_gy / n_train, modulus),
        "validation": sensitivity(c.d_fy / (penalty * n_validation), modulus),
    }


def hypergradient_sensitivity(
    c: ProblemConstants, n_train: int, n_validation: int, self_concordance: float = math.inf
) -> dict[Split, float]:
    """Bound how far one replaced record moves ∇Φ(x) = ∇_x F − G_xy G_yy⁻¹ ∇_y F, at the exact minimiser.

    Proof: let y, J, H and y', J', H' be those of the two data sets. The change of J H⁻¹ b is J H⁻¹(b − b') and
    [(J − J') + J H⁻¹(H' − H)] H'⁻¹ b'. J H⁻¹ at a minimiser is at most M, and J − J', H − H' split into the move of y
    and the record. Nothing is expanded: it holds for every n. With a finite κ, M C_gyy δ/μ may be replaced by
    b_gxy (e^{κδ} − 1)/μ, less where μ is small. Change the record first, at y, and then y, which keeps H⁻¹ within a
    factor e^{±κδ}.

    Args:
        c: constants that cover x.
        n_train: train records.
        n_validation: validation records.
        self_concordance: κ with ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y) for every record and for R; default none.

    Returns:
        "train" and "validation" → bound, for a record of that kind.

    Sensitivity:
        In l2, one record replaced, with δ = D_gy/(μ n_t); both are at most 2(L_fx + M L_fy):

            train       (b_fxy + M b_fyy) δ + (L_fy/μ)[C_gxy δ + D_hxy/n_t + M (C_gyy δ + D_hyy/n_t)]
            validation  (D_fx + M D_fy)/n_v

        Same records in f and g: the sum. See docs/proofs/14.

    References:
        Lowy & Liu 2025, Equation 27, whose K (Equation 12) has b_gxy/μ for M and norms for differences.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.constants.families import family_of
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
    most = 2.0 * (c.l_fx + c.m * c.l_fy)
    return {
        "train": up(min(train, most)),
        "validation": up(min((c.d_fx + c.m * c.d_fy) / n_validation, most)),
    }


def hypergradient_lipschitz(c: ProblemConstants) -> float:
    """Bound how far the estimate at y, ‖y − y_Z(x)‖ ≤ a in the ball, is from ∇Φ(x), over a: C.

        C = b_fxy + M b_fyy + (L_fy/μ)(C_gxy + M C_gyy)

    References:
        Lowy & Liu 2025, Equations 11 and 26, with M for b_gxy/μ: the same split, J H⁻¹ taken at the minimiser.
    """
    return up(c.b_fxy + c.m * c.b_fyy + c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy))


def estimate_slack(c: ProblemConstants, accuracy: float, solve_error: float) -> float:
    """Bound what inexact solves add to the sensitivity of a released hypergradient: 2(C a + b_gxy τ).

    Args:
        c: constants.
        accuracy: a ≥ ‖ŷ − y_Z(x)‖ surely, ŷ in the ball.
        solve_error: τ ≥ ‖v − G_yy⁻¹ ∇_y F‖ surely, both at ŷ.

    Sensitivity:
        In l2, one record replaced. See docs/proofs/14.
    """
    return up(2.0 * (hypergradient_lipschitz(c) * accuracy + c.b_gxy * solve_error))


def score_oscillation(
    c: ProblemConstants,
    n_train: int,
    n_validation: int,
    width: float,
    spread: float,
    error: float,
    loss_range: float = math.inf,
) -> dict[Split, float]:
    """Bound sup_x q − inf_x q for q = Φ_Z − Φ_Z', the difference of two neighbours' scores, over the box c covers.

    Args:
        c: constants.
        n_train: train records.
        n_validation: validation records.
        width: D_x, the box's l2 diameter.
        spread: D_y, bound on ‖y_Z(x) − y_Z(x')‖ over the box (`solution_spread`).
        error: e ≥ |computed − exact score| at every x; L_fy a for a minimiser with accuracy a.
        loss_range: sup over records of max f − min f, over x in the box and y in its ball; default none.

    Returns:
        "train" and "validation" → bound, for a record of that kind.

    Sensitivity:
        Oscillation of the scores, one record replaced: train 2 L_fy D_gy/(μ n_t) + 4e, validation
        (2/n_v) min(loss range, L_fx D_x + L_fy D_y) + 4e. Same records in both: the sum. exp(−(ε/s) Φ) with s at least
        this is ε-DP without a further factor ½. See docs/proofs/20.

    References:
        Lowy & Liu 2025, Equation 4, whose last term lacks 1/n.
    """
    sensitivity = min(c.d_gy / (c.mu * n_train), 2.0 * c.radius)
    varied = min(loss_range, c.l_fx * width + c.l_fy * spread)
    return {
        "train": up(2.0 * c.l_fy * sensitivity + 4.0 * error),
        "validation": up(2.0 * varied / n_validation + 4.0 * error),
    }


def solution_spread(c: ProblemConstants, width: float, centred: bool) -> float:
    """Bound how far apart the minimisers y_Z(x), y_Z(x') can be for two x of the box: D_y.

    Args:
        c: constants.
        width: D_x, the box's l2 diameter.
        centred: whether all balls have the same centre.

    Returns:
        M D_x, as ‖dy_Z/dx‖ ≤ M. With one centre also at most 2·radius and L_gy/μ, L_gy being the largest over every x
        and every y of the ball.
    """
    along = c.m * width if c.m > 0.0 else 0.0
    return up(min(along, 2.0 * c.radius, c.l_gy / c.mu) if centred else along)


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
    """Bound how far one replaced record moves a − J H⁻¹ b at one public y.

    a, b are means over validation records, J, H over train records.

    Proof: J H⁻¹b − J'H'⁻¹b' splits as in `hypergradient_sensitivity`, at one y. H and H' lie between H₀ ⪰ w₀ and
    H₀ + C_h/n_t, so their inverses differ by at most (C_h/n_t)/(w₀(w₀ + C_h/n_t)); without positivity by
    2 C_h/(n_t w₀²).

    Args:
        clips: C_a, C_b, C_j and C_h, on one record's part.
        floor: w₀ > 0 with ∇²_yy R ⪰ w₀.
        jacobian: K ≥ ‖J‖ of the whole, regulariser included.
        n_train: train records.
        n_validation: validation records.
        through: bound on ‖J H⁻¹‖ for either data set, where it is known to be less than K/w₀.
        solve_error: τ ≥ ‖computed − exact H⁻¹b‖ surely; default 0.
        positive: whether per-record Hessians are positive semidefinite, and stay so clipped; default yes. Otherwise
            they are symmetrised, clipped in the Frobenius norm, and the eigenvalues of the mean raised to w₀, which
            is 1-Lipschitz in that norm.

    Returns:
        "train" and "validation" → bound, for a record of that kind.

    Sensitivity:
        In l2, one record replaced; attained. Same records in f and g: the sum. See docs/proofs/15.

            train       2 C_j C_b/(w₀ n_t) + K C_b C_h/(n_t w₀ (w₀ + C_h/n_t)) + 2 K τ
            validation  (2 C_a + 2 K C_b/w₀)/n_v + 2 K τ

    Example:
        >>> clips = Clips(a=1.0, b=1.0, j=0.0, h=1.0)
        >>> moved = implicit_sensitivity(clips, floor=1.0, jacobian=1.0, n_train=100, n_validation=50)
        >>> {kind: round(bound, 6) for kind, bound in moved.items()}
        {'train': 0.009901, 'validation': 0.08}
    """
    share = clips.h / n_train if positive else 2.0 * clips.h / n_train
    distance = share / (floor * (floor + share if positive else floor))
    solved = min(through, jacobian / floor)
    turned = min(jacobian * distance, solved * share / floor)
    slack = 2.0 * jacobian * solve_error
    return {
        "train": up(2.0 * clips.j / n_train * clips.b / floor + clips.b * turned + slack),
        "validation": up((2.0 * clips.a + 2.0 * solved * clips.b) / n_validation + slack),
    }
