"""Constants of a bilevel problem, and what follows from them for one replaced record.

    F(x, y) = (1/n_v) Σ_validation f(x, y; ξ)        G(x, y) = (1/n_t) Σ_train g(x, y; ξ) + R(x, y)

R is data-independent, G is μ-strongly convex in y, y_Z(x) its minimiser. Every constant holds for all records that the
public projection lets through, for all x of a public box and all y of the ball (or the set) that holds the minimisers.
"""

from __future__ import annotations

from typing import NamedTuple


class Granular(NamedTuple):
    """Bounds on per-record functions and on R, in l2 and spectral norms; Lowy & Liu, Assumption 2.2, and differences.

    radius: of a ball around `centre` that holds every minimiser y_Z(x). mu: strong convexity of G in y.
    l_fx, l_fy: sup |∇_x f|, |∇_y f|. l_gy: sup |∇_y G|.
    d_fx, d_fy, d_gy: sup over two records of the change of ∇_x f, ∇_y f, ∇_y g; what is data-independent cancels.
    b_fxx, b_fxy, b_fyy: sup |∇²_xx f|, |∇²_xy f|, |∇²_yy f|. b_gxy, b_gyy: sup |∇²_xy G|, |∇²_yy G|.
    d_hxy, d_hyy: sup over two records of the change of ∇²_xy g, ∇²_yy g.
    c_gxy, c_gyy: Lipschitz constants in y of ∇²_xy G, ∇²_yy G. m_gxy, m_gyy: the same in x.
    m: sup |∇²_xy G (∇²_yy G)⁻¹| at minimisers, at most b_gxy/mu.
    label: "analytic" or "declared".
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
