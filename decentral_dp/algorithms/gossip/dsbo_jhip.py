"""DSBO-JHIP: nested loops, with gradient tracking for the whole product of Jacobian and inverse Hessian.

With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|) and P v = a_i v_i + Σ_j w_ij v_j, round t of agent i runs

    y^{k+1} = P y^k − β_t ∇_y g_i(x_t, y^k)                      k = 0 … K−1,   y^0 = y^K of the round before
    D^0 = S^0 = −J_iᵀ,  Z^0 = 0,  J_i = ∇²_xy g_i(x_t, y^K) (p, q),  H_i = ∇²_yy g_i(x_t, y^K) (q, q)
    Z^{k+1} = P Z^k − γ_t D^k                                    k = 0 … N−1,   Z, D, S: (q, p)
    S^{k+1} = H_i Z^{k+1} − J_iᵀ,     D^{k+1} = P D^k + S^{k+1} − S^k
    x_{t+1} = P x_t − η_t (∇_x f_i(x_t, y^K) − (Z^N)ᵀ ∇_y f_i(x_t, y^K))

η → x, β → y, γ → z, K → inner, N → inverse. D tracks the mean of the residuals S_i, so that every Z approaches
(Σ_i H_i)⁻¹ Σ_i J_iᵀ, and each agent multiplies it by its own ∇_y f_i.

A message has at most 2pq + q numbers; a message of more than 64 MiB raises InputError before anything is allocated.

`released` (certified)
    Every own value on a right-hand side, and every point of a gradient, is the agent's *released* one. Then Z is a
    function of released D: it needs no noise, and Z^{k+1} − Z^k is public. Over a single batch J_i cancels, and the
    increment reads the records through one clipped mean, along that public direction:

        D^0 = −J_iᵀ,     D^{k+1} = P D^k + H_i (Z^{k+1} − Z^k)

    Zᵀ ∇_y f_i would multiply a record-dependent value by a matrix, so ∇_y f_i is released with D^0, on the channel h,
    and its released value is used. One replaced train record changes y^k by β_t·2C_y/N,     D^0 by 2C_x/N,     D^1,
    D^2, … by 2C_z/N each,

    and a validation record h by 2C_z/N and x by η_t·2C_x/N. (As differences of clipped means the increments would be
    accounted with sensitivity (2C_z + 4C_x)/N, then (4C_z + 4C_x)/N.) H_i (Z^{k+1} − Z^k) and J_i are clipped as
    wholes, at C_z and C_x, in the entrywise ℓ1 norm or the Frobenius norm. If no clip binds, this is the recursion of
    the paper, over one batch per inverse loop. The clipped part of an increment is missing until the round ends. D and
    h use the noise schedule of z.

With a minibatch stream every mean of a round uses a fresh sample, as in the paper, except the inverse loop of
`released`. It uses one sample for all k, so no amplification is claimed.

Without noise, and with N large, the algorithm converges to the optimum for decaying η and β. With a constant β the
error of y grows with the differences of the g_i, since y is not tracked. With one agent, this is double-loop bilevel
descent, stable for γ_t H < 2. Several agents need a far smaller γ, or D diverges within the round.

Noise: the mean of the D_i equals the mean of the S_i plus the sum of all noise since the round began, a random walk of
N steps. Z integrates it once more, and mixing does not remove it. It restarts in every round.

The published analysis assumes: doubly stochastic mixing, g_i strongly convex in y, gradients and second derivatives
that are Lipschitz, bounded ∇_y f_i, unbiased samples of bounded variance, γ below a bound from the spectral gap and the
condition number of the Hessian, and K and N that grow with the logarithm of the accuracy. The analysis covers neither
noise on messages nor clipping bias.

Reference: X. Chen, M. Huang, S. Ma, "Decentralized Bilevel Optimization", arXiv:2206.05670, 2022, and Optimization
Letters; with noise on every message as in Chen & Wang, ICML 2024, Algorithm 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.inner_loops import NestedLoops
from decentral_dp.bounded import transpose, unproven


class DsboJhipState(NamedTuple):
    """State of the agents, which is noiseless until it is sent and then replaced by the agent's own value.

    Args:
        x: upper variable, (b, p).
        y: lower variable, (b, q).
        y_near: sum Σ_j w_ij ỹ_j of the last message, (b, q).
    """

    x: dp.Value
    y: dp.Value
    y_near: dp.Array


@dataclass(frozen=True)
class DsboJhip(NestedLoops):
    """Nested loops with gradient tracking for Jacobian times inverse Hessian (Chen, Huang & Ma, 2022).

    Args:
        x, y, z: step sizes η, β, γ.
        inner, inverse: numbers of iterations K, N.
    """

    x: dp.StepSize = dp.option("η, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    z: dp.StepSize = dp.option("γ, of the tracked matrix")
    inner: int = dp.lower_steps()
    inverse: int = dp.inverse_iterations()

    memoryless = True

    def init(self, dataset: dp.LocalDataset) -> DsboJhipState:
        return DsboJhipState(*self.starts(dataset), self.first_sum(dataset))

    def step(self, t: int, dataset: dp.LocalDataset, s: DsboJhipState) -> dp.GossipSteps[DsboJhipState]:
        released, x_near = yield dp.Gossip(x=s.x)
        x = self.own_value(released.x, s.x)
        y, y_near = yield from self.descend(t, dataset, x, s.y, s.y_near)
        z, upper = yield from self.tracked_inverse(t, dataset, x, y)
        batch = dataset.batch(t, self.inner + self.inverse, kept=True)
        direction = batch.upper_grad_x(x, y) - unproven(transposed_times, z, upper)
        x = (1.0 - dataset.neighbour_weight) * x + x_near.x - self.x(t) * direction
        return DsboJhipState(x=x, y=y, y_near=y_near)

    def tracked_inverse(
        self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value
    ) -> dp.GossipSteps[tuple[dp.Value, dp.Value]]:
        """Compute Z^N, (b, q·p), and the released h, (b, q), from x (b, p) and y (b, q)."""
        a, p, q = 1.0 - dataset.neighbour_weight, dataset.p, dataset.q
        batch = dataset.batch(t, self.inner, kept=True)
        upper = batch.upper_grad_y(x, y)
        z: dp.Value = dataset.public(0.0, q * p)
        d = -transpose(batch.lower_jacobian(x, y), p, q)
        for k in range(self.inverse):
            if k == 0:
                released, neighbour_sum = yield dp.Gossip(Z=z, D=d, h=upper)
                upper = released.h
            else:
                released, neighbour_sum = yield dp.Gossip(Z=z, D=d)
            z = a * released.Z + neighbour_sum.Z - self.z(t) * released.D
            if k < self.inverse - 1:
                d = a * released.D + neighbour_sum.D + batch.lower_hessian_product(x, y, z - released.Z)
        return z, upper

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        # D^1 is the first D that contains a Hessian. With N = 1 it is not computed.
        tracked_terms = ("lower_jacobian",) if self.inverse == 1 else ("lower_jacobian", "lower_hessian_product")
        return {
            "x": dp.Channel("x", p, ("upper_grad_x",)),
            "y": dp.Channel("y", q, ("lower_grad_y",)),
            "Z": dp.Channel("z", q * p, ()),
            "D": dp.Channel("z", q * p, tracked_terms),
            "h": dp.Channel("z", q, ("upper_grad_y",)),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0 of x, exchanges 1 … K of y¹ … y^K, and N of Z and D for k = 0 … N−1, the first with h."""
        rounds, e, inner = public.rounds, self.releases_per_round, self.inner
        x_t = np.arange(rounds)
        h_index, h_t = dp.grid(rounds, e, [1 + inner])
        return {
            "x": dp.plan_release(
                public, (x_t + 1) * e, [dp.Use("upper_grad_x", self.x.series(rounds), x_t)], kept=True
            ),
            "y": self.planned_descent(public),
            "Z": dp.free_release(public, h_index),
            "D": dp.plan_tracker(public, e, 1 + inner, "lower_jacobian", "lower_hessian_product"),
            "h": dp.plan_release(public, h_index, [dp.Use("upper_grad_y", np.ones(rounds), h_t)], kept=True),
        }


def transposed_times(z: dp.Array, vectors: dp.Array) -> dp.Array:
    """Compute Zᵀ v row by row from the flat Z (b, q·p) and v (b, q)."""
    rows, q = vectors.shape
    return np.asarray((vectors[:, None, :] @ z.reshape(rows, q, -1))[:, 0, :])


ENTRY = dp.Entry(
    "dsbo_jhip",
    DsboJhip,
    (dp.Citation("Algorithm", "chen2022decentralized"), dp.NOISED),
    display_name="DSBO-JHIP",
    proved=True,
)
