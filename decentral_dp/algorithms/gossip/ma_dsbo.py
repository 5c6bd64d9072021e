"""MA-DSBO (also DSBO-HIGP): nested loops, with gradient tracking for the inverse-Hessian-vector product.

With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|) and P v = a_i v_i + Σ_j w_ij v_j, round t of agent i runs

    y^{k+1} = P y^k − β_t ∇_y g_i(x_t, y^k)                      k = 0 … K−1,   y^0 = y^K of the round before
    d^0 = s^0 = −b^0,  z^0 = 0,  b = ∇_y f_i(x_t, y^K),  H = ∇²_yy g_i(x_t, y^K)
    z^{k+1} = P z^k − γ_t d^k                                    k = 0 … N−1
    s^{k+1} = H z^{k+1} − b,     d^{k+1} = P d^k + s^{k+1} − s^k
    u_t = ∇_x f_i(x_t, y^K) − ∇²_xy g_i(x_t, y^K) z^N
    x_{t+1} = P x_t − α_t r_t,   r_{t+1} = (1 − α_t) r_t + α_t u_t

α → x, β → y, γ → z, K → inner, N → inverse. d tracks the mean of the residuals H_i z − b_i.

`released` (certified)
    Every own value on a right-hand side, and every point of a gradient, is the agent's *released* one. Then one record
    changes y by β_t·2C_y/N. z is a function of released d: it needs no noise, and z^{k+1} − z^k is public. Over one
    batch b cancels, and the increment reads the records through one clipped mean, along that public direction:

        d^0 = −b,     d^{k+1} = P d^k + H (z^{k+1} − z^k)

    A train record changes d^1, d^2, … by 2C_z/N each, and a validation record changes only d^0, by 2C_z/N_v. (As
    differences of clipped means the increments would have sensitivity 4C_z/N to a train record, except 2C_z/N for the
    first, and 4C_z/N_v to a validation record.) If no clip binds, this is the recursion of the paper, over one batch
    per inverse loop. The clipped part of an increment is missing until the round ends. r is never sent and accumulates
    u: one record changes it by D_{t+1} = (1 − α_t) D_t + α_t·2C_x/N per term, and x by α_t D_t.

With a minibatch stream every mean of a round uses a fresh sample, as in the paper, except the inverse loop of
`released`. It uses one sample for all k, so no amplification is claimed.

Without noise the algorithm converges to the optimum for decaying α and β. With a constant step the error of y grows
with the differences of the g_i, since only d is tracked. With one agent, this is double-loop bilevel descent.

References: X. Chen, M. Huang, S. Ma, K. Balasubramanian, "Decentralized Stochastic Bilevel Optimization with Improved
per-Iteration Complexity", ICML 2023; noisy in Chen & Wang, ICML 2024, Algorithm 3, where z and d share one schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.inner_loops import U_TERMS, NestedLoops

D_TERMS = ("upper_grad_y", "lower_hvp")


class MaDsboState(NamedTuple):
    """State of the agents, which is noiseless until it is sent and then replaced by the agent's own value.

    Args:
        x: upper variable, (b, p).
        y, z: lower variable and inverse-Hessian-vector product, (b, q).
        r: average of hypergradient estimates, (b, p).
        y_near: sum Σ_j w_ij ỹ_j of the last message, (b, q).
    """

    x: dp.Value
    y: dp.Value
    z: dp.Value
    r: dp.Value
    y_near: dp.Array


@dataclass(frozen=True)
class MaDsbo(NestedLoops):
    """Nested loops with gradient tracking for the inverse Hessian (Chen et al., ICML 2023; DSBO-HIGP).

    Args:
        x, y, z: step sizes α, β, γ.
        inner, inverse: numbers of iterations K, N.
    """

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    z: dp.StepSize = dp.option("γ, of z, the product of inverse Hessian and gradient")
    inner: int = dp.lower_steps()
    inverse: int = dp.inverse_iterations()

    channels = ("x", "y", "z")

    def init(self, dataset: dp.LocalDataset) -> MaDsboState:
        x, y = self.starts(dataset)
        z, r = dataset.public(0.0, dataset.q), dataset.public(0.0, dataset.p)
        return MaDsboState(
            x, y, z, r if not dataset.reads_records("x") else dataset.constant_state(r), self.first_sum(dataset)
        )

    def step(self, t: int, dataset: dp.LocalDataset, s: MaDsboState) -> dp.GossipSteps[MaDsboState]:
        a = 1.0 - dataset.neighbour_weight
        released, x_near = yield dp.Gossip(x=s.x)
        x = self.own_value(released.x, s.x)
        y, y_near = yield from self.descend(t, dataset, x, s.y, s.y_near)
        z = yield from self.tracked_inverse(t, dataset, x, y)
        batch = dataset.batch(t, self.inner + self.inverse, kept=True)
        u = batch.upper_grad_x(x, y) - batch.lower_jvp(x, y, z)
        alpha = self.x(t)
        return MaDsboState(
            x=a * x + x_near.x - alpha * s.r,
            y=y,
            z=z,
            r=(1.0 - alpha) * dataset.remembered_state(t, s.r) + alpha * u,
            y_near=y_near,
        )

    def tracked_inverse(self, t: int, dataset: dp.LocalDataset, x: dp.Value, y: dp.Value) -> dp.GossipSteps[dp.Value]:
        """Compute z^N, (b, q), from x (b, p) and y (b, q)."""
        a, batch = 1.0 - dataset.neighbour_weight, dataset.batch(t, self.inner, kept=True)
        z: dp.Value = dataset.public(0.0, dataset.q)
        d = -batch.upper_grad_y(x, y)
        for k in range(self.inverse):
            released, neighbour_sum = yield dp.Gossip(z=z, d=d)
            z = a * released.z + neighbour_sum.z - self.z(t) * released.d
            if k < self.inverse - 1:
                d = a * released.d + neighbour_sum.d + batch.lower_hvp(x, y, z - released.z)
        return z

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        # d^1 is the first d that contains a Hessian. With N = 1 it is not computed.
        tracked_terms = D_TERMS[: self.inverse]
        terms: dict[str, tuple[str, ...]] = {"x": U_TERMS, "y": ("lower_grad_y",), "d": tracked_terms, "z": ()}
        families = {"x": "x", "y": "y", "d": "z", "z": "z"}
        return {c: dp.Channel(families[c], p if c == "x" else q, terms[c]) for c in terms}

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0 of x, exchanges 1 … K of y¹ … y^K, and N exchanges of z and d for k = 0 … N−1.

        x_{t+1} contains α_t r_t, and r contains every earlier u.
        """
        rounds, e, inner = public.rounds, self.releases_per_round, self.inner
        t, steps = np.arange(rounds), self.x.series(rounds)
        alpha = steps[:, None]
        u = dp.plan_release(public, (t + 1) * e, [dp.Use(term, steps, t) for term in U_TERMS], kept=True)

        def sensitivity_of_sum(change: dp.Array, growth: dp.Array | float = 1.0) -> dp.Array:
            return alpha * dp.lag(dp.fading(change, 1.0 - alpha, growth))

        sensitivity = {
            k: sensitivity_of_sum(change, dp.memory_slack(public.stored_counts(k)))
            for k, change in u.sensitivity.items()
        }
        z_index, _ = dp.grid(rounds, e, range(1 + inner, e))
        return {
            "x": u._replace(sensitivity=sensitivity, largest=sensitivity_of_sum(u.largest)),
            "y": self.planned_descent(public),
            "z": dp.free_release(public, z_index),
            "d": dp.plan_tracker(public, e, 1 + inner, *D_TERMS),
        }


ENTRY = dp.Entry(
    "ma_dsbo",
    MaDsbo,
    (dp.Citation("Algorithm", "chen2023decentralized"), dp.NOISED),
    display_name="MA-DSBO",
    proved=True,
)
