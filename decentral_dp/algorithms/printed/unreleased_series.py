"""Inverse-Hessian-vector products of the printed forms: the Neumann series of `algorithms.neumann`, kept by the agent.

    v_0 = ∇_y f(x, y),     v_k = v_{k−1} − (1/L) ∇²_yy g(x, y) v_{k−1}   for 0 < k < b,     w = (1/L) Σ_{k<b} v_k

No v_k is released before the next is computed from it, so that products are at private points and nothing bounds what
one record moves them by.
"""

from __future__ import annotations

from collections.abc import Sequence

from decentral_dp.exchange import Value
from decentral_dp.participants.batch import Batch


def solve_unreleased(batches: Sequence[Batch], x: Value, y: Value, smoothness: float) -> Value:
    """Compute w at (x, y).

    Args:
        batches: b of them; v_k is computed from batches[k].
        x: (agents, p).
        y: (agents, q).
        smoothness: L.

    Returns:
        w, (agents, q).

    Sensitivity:
        None is proven, as products are at private points.
    """
    step = 1.0 / smoothness
    v = batches[0].upper_grad_y(x, y)
    w = step * v
    for batch in batches[1:]:
        v = v - step * batch.lower_hvp(x, y, v)
        w = w + step * v
    return w
