"""Gradient tracking of the printed forms: an inverse Hessian's product, by iterations whose values agents keep.

    z^{k+1} = a_i z^k + Σ_j w_ij z̃_j^k − γ d^k,    d^{k+1} = a_i d^k + Σ_j w_ij d̃_j^k + r^{k+1} − r^k,    d⁰ = r⁰

with r^k the residual at z^k. Only what comes from neighbours is noised, so that nothing bounds what one record moves.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from decentral_dp.bounded import Array
from decentral_dp.exchange import Gossip, Reply, Value


def track_unreleased(
    channels: tuple[str, str],
    keep: Array,
    step: float,
    iterations: int,
    z: Value,
    first: Value,
    residual: Callable[[int, Value], Value],
) -> Generator[Gossip, Reply, Value]:
    """Iterate on z along a tracker of the mean residual, both sent in every exchange.

    Args:
        channels: of z and of d.
        keep: a_i, the agents' own weights.
        step: γ.
        iterations: N.
        z: z⁰.
        first: r⁰, the residual at z⁰.
        residual: k, z^k → r^k, for 0 < k < N.

    Returns:
        z^N.
    """
    of_z, of_d = channels
    last = d = first
    for k in range(iterations):
        _, neighbour_sum = yield Gossip(**{of_z: z, of_d: d})
        z = keep * z + neighbour_sum[of_z] - step * d
        if k < iterations - 1:
            now = residual(k + 1, z)
            d = keep * d + neighbour_sum[of_d] + (now - last)
            last = now
    return z
