"""Constants of a bilevel problem, and boxes low ≤ x ≤ high of upper variables over which they hold.

    F(x, y) = (1/n_v) Σ_validation f(x, y; ξ)        G(x, y) = (1/n_t) Σ_train g(x, y; ξ) + R(x, y)

R is data-independent, G is μ-strongly convex in y, y_Z(x) its minimiser. Every constant holds for all records that the
public projection lets through, and for all x of a public box. It holds for all y of the ball (or the set) that holds
the minimisers.

The proofs are in docs/proofs, by their numbers.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError


class ProblemConstants(NamedTuple):
    """Bounds on per-record functions and on R, in l2 and spectral norms.

    Args:
        radius: of a ball around `centre` that holds every minimiser y_Z(x).
        mu: strong convexity of G in y.
        l_fx: sup |∇_x f|.
        l_fy: sup |∇_y f|.
        l_gy: sup |∇_y G|.
        d_fx: sup over two records of the change of ∇_x f; what is data-independent cancels.
        d_fy: the same of ∇_y f.
        d_gy: the same of ∇_y g.
        b_fxx: sup |∇²_xx f|.
        b_fxy: sup |∇²_xy f|.
        b_fyy: sup |∇²_yy f|.
        b_gxy: sup |∇²_xy G|.
        b_gyy: sup |∇²_yy G|.
        d_hxy: sup over two records of the change of ∇²_xy g.
        d_hyy: the same of ∇²_yy g.
        c_gxy: Lipschitz constant in y of ∇²_xy G.
        c_gyy: Lipschitz constant in y of ∇²_yy G.
        m_gxy: Lipschitz constant in x of ∇²_xy G.
        m_gyy: Lipschitz constant in x of ∇²_yy G.
        m: sup |∇²_xy G (∇²_yy G)⁻¹| at minimisers, at most b_gxy/mu.

    References:
        Lowy & Liu 2025, Assumption 2.2, and differences of two records.
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


# Room for the float64 arithmetic of the formulas and constants themselves.
UP = 1.0 + 1e-12


def round_up(value: float) -> float:
    """Round a non-negative bound up: room for the rounding of a formula of a few dozen float64 operations.

    Limits:
        +inf for what is no number, such as the 0·∞ that declared constants can lead to.

    Example:
        >>> 1.0 < round_up(1.0) < 1.0 + 1e-11, round_up(math.nan)
        (True, inf)
    """
    return value * UP if value == value else math.inf


# exp of more is no float64.
_LARGEST_LOG = 700.0


def box_norm(low: Array, high: Array) -> float:
    """Bound ‖x‖₂ over the box, which is checked.

    Args:
        low: (p,).
        high: (p,).

    Returns:
        sup ‖x‖₂ over the box.

    Raises:
        InputError: a bound that is not finite, or low > high.

    Example:
        >>> box_norm(np.array([-3.0, 0.0]), np.array([1.0, 4.0]))
        5.0
    """
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(
            f"algorithm.domain: x ranges from {np.min(low):g} to {np.max(high):g}, but constants need finite bounds, "
            "low ≤ high; give the run a box."
        )
    with np.errstate(over="ignore"):
        return float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))


def box_strengths(low: Array, high: Array) -> tuple[float, float]:
    """Return the smallest and the largest e^{x_s} over the box [low, high].

    Args:
        low (p,), high (p,): as of `box_norm`.

    Raises:
        InputError: as `box_norm`, and where exp of a bound is no number.
    """
    box_norm(low, high)
    least, most = float(low.min()), float(high.max())
    if max(-least, most) > _LARGEST_LOG:
        raise InputError(
            f"algorithm.domain: logarithms of strengths range from {least:g} to {most:g}, but exp of more than "
            f"{_LARGEST_LOG:g} is no number; give the run a box nearer to 0."
        )
    return math.exp(least), math.exp(most)


def box_weights(low: Array, high: Array) -> tuple[float, float]:
    """Return sup σ(x_g) and sup σ'(x_g) over the box; σ' is even, and decreases away from 0.

    Example:
        >>> [round(v, 4) for v in box_weights(-np.ones(2), np.ones(2))]
        [0.7311, 0.25]
    """
    nearest = math.exp(-float(np.maximum(np.maximum(low, -high), 0.0).min()))
    return 1.0 / (1.0 + math.exp(min(-float(high.max()), _LARGEST_LOG))), nearest / (1.0 + nearest) ** 2


def box_width(low: Array, high: Array) -> float:
    """Return D_x = ‖high − low‖₂, the diameter of the box [low, high], each (p,).

    Example:
        >>> box_width(np.zeros(2), np.array([3.0, 4.0]))
        5.0
    """
    return float(np.linalg.norm(high - low))


def round_up_constants(c: ProblemConstants) -> ProblemConstants:
    """Round every bound up, and μ down: room for the float64 arithmetic that led to them."""
    sensitivity = ProblemConstants._make(UP * float(v) for v in c)
    return sensitivity._replace(mu=c.mu * (2.0 - UP))


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
    return round_up(min(along, 2.0 * c.radius, c.l_gy / c.mu) if centred else along)
