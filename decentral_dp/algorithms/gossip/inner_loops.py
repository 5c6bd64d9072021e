"""Inner loops of bilevel algorithms: gossiped gradient steps on y, and inverse-Hessian-vector products.

Double-loop algorithms begin every round, with P v = a_i v_i + Σ_j w_ij v_j, by K steps (`NestedLoops`)

    y^{k+1} = P y^k − β_t ∇_y g_i(x, y^k)     k = 0 … K−1,     y^0 = y^K of the round before

each on a fresh batch. Each result is sent immediately.

The Neumann series (`solve_neumann`) releases one vector after the other:

    v_0 = ∇_y f(x, y),     v_k = v_{k−1} − (1/L) ∇²_yy g(x, y) v_{k−1}   for 0 < k < b,     w = (1/L) Σ_{k<b} v_k

so w = (I − (I − H/L)^b) H⁻¹ ∇_y f for H = ∇²_yy g: H⁻¹∇_y f up to (1 − μ/L)^b where μ I ≤ H ≤ L I. If H has an
eigenvalue above 2L the series diverges.

A Hessian-vector product is accounted as a clipped mean only at a public point. So every v_k is released before the next
one is computed. Given the releases, v_0 depends on validation records through one clipped mean, and v_k on train
records through 1/L times another. Their sensitivities are 2C_z/N and (1/L)·2C_z/N. w is then public.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms import vocabulary as dp


class NestedLoops(dp.Algorithm, Protocol):
    """Algorithm whose rounds send x once, y after each of K inner steps, and messages for N inverse iterations.

    Args:
        y: step size β.
        inner: number of inner steps K.
        inverse: number of inverse iterations N.
    """

    y: dp.StepSize
    inner: int
    inverse: int

    @property
    def releases_per_round(self) -> int:
        return 1 + self.inner + self.inverse

    def first_sum(self, dataset: dp.LocalDataset) -> dp.Array:
        """Return Σ_j w_ij y_j over neighbours, (b, q), before the first message, when all agents have the same y."""
        return dataset.neighbour_weight * dataset.start("y", self.start)

    def descend(
        self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value, y_near: dp.Array
    ) -> dp.GossipSteps[tuple[dp.Value, dp.Array]]:
        """Take K gossiped steps from y.

        Args:
            t: round.
            dataset: records of the agents.
            x: upper variable, (b, p).
            y: the agents' own values, (b, q).
            y_near: sum Σ_j w_ij ỹ_j of the last message, (b, q).

        Returns:
            Tuple of y^K and Σ_j w_ij ỹ_j of the message that sent it.
        """
        a = 1.0 - dataset.neighbour_weight
        for k in range(self.inner):
            y = a * y + y_near - self.y(t) * dataset.batch(t, k, kept=True).lower_grad_y(x, y)
            reply = yield dp.Gossip(y=y)
            y, y_near = self.own_value(reply.released.y, y), reply.neighbour_sum.y
        return y, y_near

    def planned_descent(self, public: dp.Public) -> dp.Planned:
        """Plan exchanges 1 … K, which send y¹ … y^K and each contain β_t times a clipped mean."""
        index, t = dp.grid(public.rounds, self.releases_per_round, range(1, 1 + self.inner))
        return dp.plan_release(public, index, [dp.Use("lower_grad_y", self.y.series(public.rounds)[t], t)], kept=True)


V_TERMS = ("upper_grad_y", "lower_hvp")
# Terms of the hypergradient ∇_x f − ∇²_xy g w.
U_TERMS = ("upper_grad_x", "lower_jvp")


def solve_neumann(batches: Sequence[dp.Batch], x: dp.Value, y: dp.Value, smoothness: float) -> dp.GossipSteps[dp.Value]:
    """Compute w at (x, y) for every agent separately.

    Args:
        batches: list of b batches; v_k is computed from batches[k] and released on channel "v".
        x: upper variable, (agents, p).
        y: lower variable, (agents, q).
        smoothness: smoothness L.

    Returns:
        w, (agents, q).
    """
    step = 1.0 / smoothness
    v = (yield dp.Gossip(v=batches[0].upper_grad_y(x, y))).released.v
    w = step * v
    for batch in batches[1:]:
        v = (yield dp.Gossip(v=v - step * batch.lower_hvp(x, y, v))).released.v
        w = w + step * v
    return w


def planned_series(
    public: dp.Public,
    index: NDArray[np.int64],
    t: NDArray[np.int64],
    k: NDArray[np.int64],
    smoothness: float,
    kept: bool = False,
) -> dp.Planned:
    """Plan the releases of v_k. Those that read no record have no privacy cost.

    Args:
        public: public numbers.
        index: index of each release, (R,).
        t: round of each release, (R,).
        k: position of each release in the series, (R,).
        smoothness: smoothness L.
        kept: whether a batch is used again after its first release.
    """
    reads = [any(dp.reads(public, (term,), split) for split in dp.SPLITS) for term in V_TERMS]
    is_charged = np.where(k == 0, *reads)
    if not is_charged.any():
        return dp.free_release(public, index)
    first = (k == 0)[is_charged]
    uses = [
        dp.Use("upper_grad_y", np.where(first, 1.0, 0.0), t[is_charged]),
        dp.Use("lower_hvp", np.where(first, 0.0, 1.0 / smoothness), t[is_charged]),
    ]
    return dp.plan_release(public, index[is_charged], uses, kept)
