"""Constants of a bilevel problem.

    F(x, y) = (1/n_v) Σ_validation f(x, y; ξ)        G(x, y) = (1/n_t) Σ_train g(x, y; ξ) + R(x, y)

R is data-independent, G is μ-strongly convex in y, y_Z(x) its minimiser. Every constant holds for all records that the
public projection lets through, and for all x of a public box. It holds for all y of the ball (or the set) that holds
the minimisers.
"""

from __future__ import annotations

import math
from typing import NamedTuple


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
        label: "analytic", where every f is also convex in y, or "declared".

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
    label: str = "analytic"


class Clips(NamedTuple):
    """Bounds on one record's part of the implicit gradient, data part only, in l2 and spectral norms.

    Args:
        a: ‖∇_x f‖.
        b: ‖∇_y f‖.
        j: ‖∇²_xy g‖, 0 where it reads no record.
        h: ‖∇²_yy g‖.
    """

    a: float
    b: float
    j: float
    h: float


# Room for the float64 arithmetic of the formulas themselves.
_UP = 1.0 + 1e-12


def up(value: float) -> float:
    """Round a non-negative bound up: room for the rounding of a formula of a few dozen float64 operations.

    Limits:
        +inf for what is no number, such as the 0·∞ that declared constants can lead to.

    Example:
        >>> 1.0 < up(1.0) < 1.0 + 1e-11, up(math.nan)
        (True, inf)
    """
    return value * _UP if value == value else math.inf
