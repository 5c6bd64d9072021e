"""Constants of a bilevel problem, and what follows from them for one replaced record.

    F(x, y) = (1/n_v) Σ_validation f(x, y; ξ)        G(x, y) = (1/n_t) Σ_train g(x, y; ξ) + R(x, y)

R is data-independent, G is μ-strongly convex in y, y_Z(x) its minimiser. Every constant holds for all records that the
public projection lets through, for all x of a public box and all y of the ball (or the set) that holds the minimisers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from decentral_dp.bounded import Split
from decentral_dp.errors import InputError


class ProblemConstants(NamedTuple):
    """Bounds on per-record functions and on R, in l2 and spectral norms; Lowy & Liu, Assumption 2.2, and differences.

    radius: of a ball around `centre` that holds every minimiser y_Z(x). mu: strong convexity of G in y.
    l_fx, l_fy: sup |∇_x f|, |∇_y f|. l_gy: sup |∇_y G|.
    d_fx, d_fy, d_gy: sup over two records of the change of ∇_x f, ∇_y f, ∇_y g; what is data-independent cancels.
    b_fxx, b_fxy, b_fyy: sup |∇²_xx f|, |∇²_xy f|, |∇²_yy f|. b_gxy, b_gyy: sup |∇²_xy G|, |∇²_yy G|.
    d_hxy, d_hyy: sup over two records of the change of ∇²_xy g, ∇²_yy g.
    c_gxy, c_gyy: Lipschitz constants in y of ∇²_xy G, ∇²_yy G. m_gxy, m_gyy: the same in x.
    m: sup |∇²_xy G (∇²_yy G)⁻¹| at minimisers, at most b_gxy/mu.
    label: "analytic", where every f is also convex in y, or "declared".
    """

    radius: float
    mu: float
    l_fx: float
    l_fy: float
    l_gy: float
    d_fx: float
    d_fy: float
    d_gy: float
    b_fxx: float
    b_fxy: float
    b_fyy: float
    b_gxy: float
    b_gyy: float
    d_hxy: float
    d_hyy: float
    c_gxy: float
    c_gyy: float
    m_gxy: float
    m_gyy: float
    m: float
    label: str = "analytic"


class Clips(NamedTuple):
    """Bounds on one record's part of the implicit gradient, data part only, in l2 and spectral norms.

    a: ‖∇_x f‖. b: ‖∇_y f‖. j: ‖∇²_xy g‖, 0 where it reads no record. h: ‖∇²_yy g‖.
    """

    a: float
    b: float
    j: float
    h: float


# Room for the float64 arithmetic of the formulas themselves.
_UP = 1.0 + 1e-12


def up(value: float) -> float:
    """A non-negative bound, with room for the rounding of a formula of a few dozen float64 operations.

    +inf for what is no number, such as the 0·∞ that declared constants can lead to.
    """
    return value * _UP if value == value else math.inf


def penalised_modulus(c: ProblemConstants, lam: float) -> float:
    """How strongly convex g + f/λ is in y: μ where f is convex (all analytic families), μ − b_fyy/λ where nobody knows.

    Raises InputError where that is not positive.
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
    """How far the minimiser of G, or with pull = λ that of G + F/λ, moves in l2: {"train", "validation"}.

        train  D_gy/(μ n_t) + 2a      validation  D_fy/(λ μ n_v) + 2a  (0 without a pull)

    accuracy: a ≥ ‖computed − exact minimiser‖, in both worlds. The constants must hold on the ball of *these*
    minimisers, which is wider for G + F/λ: mass = 1 + 1/λ. Same records in both: the sum.
    Proof: the gradient of one world's objective, taken at the other world's minimiser, is what the record changed, and
    strong convexity turns it into a distance; two minimisers are never further apart than the ball is wide.
    Source: Lowy & Liu, proof of Theorem 3.2; Kornowski, Lemma 17.
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
    """How far ∇Φ(x) = ∇_x F − G_xy G_yy⁻¹ ∇_y F, at the exact minimiser, moves in l2 at any x that c covers.

        train       (b_fxy + M b_fyy) δ + (L_fy/μ)[C_gxy δ + D_hxy/n_t + M (C_gyy δ + D_hyy/n_t)],  δ = D_gy/(μ n_t)
        validation  (D_fx + M D_fy)/n_v

    Proof: with y, J, H and y', J', H' of the two worlds, the change of J H⁻¹ b is J H⁻¹(b − b') and
    [(J − J') + J H⁻¹(H' − H)] H'⁻¹ b'; J H⁻¹ at a minimiser is at most M, and J − J', H − H' split into the move of y
    and the record. Nothing is expanded: it holds for every n. relative: κ with ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y)
    for every record and for R; then M C_gyy δ/μ may be replaced by b_gxy (e^{κδ} − 1)/μ, less where μ is small:
    change the record first, at y, and then y, which keeps H⁻¹ within a factor e^{±κδ}.
    Both are at most 2(L_fx + M L_fy). Same records in f and g: the sum.
    Source: Lowy & Liu, Equation 27, whose K (Equation 12) has b_gxy/μ for M and norms for differences.
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
    """C: how far the estimate at y, ‖y − y_Z(x)‖ ≤ a in the ball, is from ∇Φ(x), over a.

        C = b_fxy + M b_fyy + (L_fy/μ)(C_gxy + M C_gyy)

    Source: Lowy & Liu, Equations 11 and 26, with M for b_gxy/μ: the same split, J H⁻¹ taken at the minimiser.
    """
    return up(c.b_fxy + c.m * c.b_fyy + c.l_fy / c.mu * (c.c_gxy + c.m * c.c_gyy))


def estimate_slack(c: ProblemConstants, accuracy: float, solve_error: float) -> float:
    """2(C a + b_gxy τ): what inexact solves add to the sensitivity of a released hypergradient.

    accuracy: a ≥ ‖ŷ − y_Z(x)‖ surely, ŷ in the ball. solve_error: τ ≥ ‖v − G_yy⁻¹ ∇_y F‖ surely, both at ŷ.
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
    """Bound on sup_x q − inf_x q for q = Φ_Z − Φ_Z', the difference of two neighbours' scores, over the box c covers.

        train  2 L_fy D_gy/(μ n_t) + 4e      validation  (2/n_v) min(loss range, L_fx D_x + L_fy D_y) + 4e

    width: D_x, the box's l2 diameter. spread: D_y, bound on ‖y_Z(x) − y_Z(x')‖ over the box (`solution_spread`).
    loss_range: sup over records of max f − min f, over x in the box and y in its ball. error: e ≥ |computed − exact
    score| at every x; L_fy a for a minimiser with accuracy a. Same records in both: the sum.
    exp(−(ε/s) Φ) with s at least this is ε-DP without a further factor ½.
    Source: Lowy & Liu, Equation 4, whose last term lacks 1/n.
    """
    sensitivity = min(c.d_gy / (c.mu * n_train), 2.0 * c.radius)
    varied = min(loss_range, c.l_fx * width + c.l_fy * spread)
    return {
        "train": up(2.0 * c.l_fy * sensitivity + 4.0 * error),
        "validation": up(2.0 * varied / n_validation + 4.0 * error),
    }


def solution_spread(c: ProblemConstants, width: float, centred: bool) -> float:
    """D_y: how far apart the minimisers y_Z(x), y_Z(x') can be for two x of the box, whose l2 diameter is `width`.

    M D_x, as ‖dy_Z/dx‖ ≤ M; where all balls have the same centre also 2·radius and L_gy/μ, L_gy being the largest
    over every x and every y of the ball.
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
    """How far a − J H⁻¹ b at one public y moves in l2: a, b are means over validation records, J, H over train records.

        train       2 C_j C_b/(w₀ n_t) + K C_b C_h/(n_t w₀ (w₀ + C_h/n_t)) + 2 K τ
        validation  (2 C_a + 2 K C_b/w₀)/n_v + 2 K τ

    floor: w₀ > 0 with ∇²_yy R ⪰ w₀. jacobian: K ≥ ‖J‖ of the whole, regulariser included. through: bound on ‖J H⁻¹‖
    in either world, where it is known to be less than K/w₀. solve_error: τ ≥ ‖computed − exact H⁻¹b‖ surely.
    positive: per-record Hessians are positive semidefinite, and stay so clipped; otherwise they are symmetrised,
    clipped in the Frobenius norm, and the eigenvalues of the mean raised to w₀, which is 1-Lipschitz in that norm.

    Proof: J H⁻¹b − J'H'⁻¹b' splits as in `hypergradient_sensitivity`, at one y. H and H' lie between H₀ ⪰ w₀ and
    H₀ + C_h/n_t, so their inverses differ by at most (C_h/n_t)/(w₀(w₀ + C_h/n_t)); without positivity by
    2 C_h/(n_t w₀²). Same records in f and g: the sum. Attained.
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


# As printed, for comparison; nothing is priced by these. -----------------------------------------------------------


def printed_k(c: ProblemConstants) -> float:
    """K of Lowy & Liu, Equation 12."""
    kappa, oscillation = c.b_gxy / c.mu, c.l_gy / c.mu
    slope = c.l_fx + c.l_fy * kappa
    curved = c.c_gxy * oscillation + kappa * c.c_gyy * oscillation + kappa * c.b_gyy
    return 2.0 * (c.b_fxy * oscillation + 2.0 * slope + kappa * c.b_fyy * oscillation + c.l_fy / c.mu * curved)


def printed_hypergradient(c: ProblemConstants, n: int) -> float:
    """4K/n, the sensitivity of Lowy & Liu, Lemma 4.1: valid, and several times too large."""
    return 4.0 * printed_k(c) / n


def printed_slope(c: ProblemConstants, n: int) -> float:
    """2G/n of Lowy & Liu, Lemma B.6, said to bound how fast Φ_Z − Φ_Z' varies.

    False: its proof differentiates f(x, y_Z(x)) in x alone. With f = y, g = a y²/2 − b x y, a ∈ [μ, β], one changed
    record moves the slope by b(β − μ)/(n μ²) to first order, and 2G/n = 2b/(μ n) is less where β > 3μ.
    """
    return 2.0 / n * (c.l_fx + c.l_fy * c.b_gxy / c.mu + c.l_gy * c.b_fxy / c.mu)


def printed_score(c: ProblemConstants, n: int, width: float) -> float:
    """s of Lowy & Liu, Equation 4, with D_y = L_gy/μ: its last term lacks 1/n, so noise never shrinks."""
    spread = c.l_gy / c.mu
    return 2.0 / n * (c.l_fx * width + c.l_fy * spread) + 4.0 * c.l_fy * spread
