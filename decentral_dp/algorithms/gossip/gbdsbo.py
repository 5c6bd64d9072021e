"""GBDSBO: gossip-based bilevel optimisation on a single time scale, one exchange a round, with matrices.

With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|), P v = a_i v_i + Σ_j w_ij v_j, and everything on the right at
time t, round t of agent i runs

    x ← P x − α_t (s − u q h)          q = (1/L) q_b,   q_0 = I,   q_j = I + (I − v_j/L) q_{j−1}
    y ← P y − γ_t ∇_y g_i(x, y)
    s ← (1 − β_t) P s + β_t ∇_x f_i(x, y)
    h ← (1 − β_t) P h + β_t ∇_y f_i(x, y)
    u ← (1 − β_t) P u + β_t ∇²_xy g_i(x, y)                     (p, q)
    v_j ← (1 − β_t) P v_j + β_t ∇²_yy g_i(x, y; ξ_j)            (q, q),   j = 1 … b

s, h, u and v_j start at 0 and estimate the network's means. q estimates the inverse of the mean Hessian by b + 1 terms
of its Neumann series. q h is computed from products with vectors. With a minibatch stream each v_j has its own sample
ξ_j.

α → x, γ → y, β → averaging (at most 1), b → inverse, L → smoothness.

A message has 2p + 2q + pq + bq² numbers; a message of more than 64 MiB raises InputError before anything is allocated.

`released` (certified)
    Every own value on a right-hand side, and every point of a gradient, is the agent's *released* one. Then x is a
    function of releases and needs no noise. One replaced train record changes y by γ_t·2C_y/N, u by β_t·2C_x/N and each
    of the b matrices v_j by β_t·2C_z/N; a validation record changes s by β_t·2C_x/N and h by β_t·2C_z/N. A matrix is
    clipped as a whole, in the entrywise ℓ1 norm or the Frobenius norm. s and u use the noise schedule of x, and h and
    v_j use the schedule of z. A round draws several batches, so no amplification by sampling is claimed.

Without noise the limit solves ∇_x f = ∇²_xy g q ∇_y f, not ∇_x f = ∇²_xy g (∇²_yy g)⁻¹ ∇_y f: the series leaves out the
share (I − ∇²_yy g/L)^{b+1} of the inverse, where 0 < ∇²_yy g < 2L. If agents differ, convergence needs α_t, γ_t, β_t →
0. With one agent, P = I.

Noise: no tracked value is a difference, so no network mean is a random walk. With a constant β the variance of the mean
of an estimate is 1/(1 − (1 − β)²) times that of one release. Independent noise on s, h, u and the v_j leaves the
direction of x unbiased. If the noise of a v_j has a spectral norm above L, however, the series expands instead of
contracting, up to b times.

The published analysis assumes: doubly stochastic mixing, g_i strongly convex in y, gradients and second derivatives
that are Lipschitz, independent unbiased samples with bounded second moments (of gradients, Jacobians and
I − ∇²_yy g/L), steps and weights of order K^{−1/2} for K rounds known beforehand, and b of order log K. Noise of a
variance that does not decrease with the step, and clipping bias, are not covered.

Reference: S. Yang, X. Zhang, M. Wang, "Decentralized Gossip-Based Stochastic Bilevel Optimization over Communication
Networks", NeurIPS 2022; with noise on every message as in Chen & Wang, ICML 2024, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.bounded import unproven


class GbdsboState(NamedTuple):
    """State of the agents.

    Args:
        x: upper variable before noise, (b, p).
        y: lower variable before noise, (b, q).
        estimates: estimate of each channel: s (b, p), h (b, q), u (b, p·q), v1 … (b, q·q).
    """

    x: dp.Value
    y: dp.Value
    estimates: Mapping[str, dp.Value]


@dataclass(frozen=True)
class Gbdsbo(dp.Algorithm):
    """Single-time-scale bilevel gossip of gradients, Jacobians and Neumann factors (Yang, Zhang & Wang, NeurIPS 2022).

    Args:
        x, y: step sizes α, γ.
        averaging: weight β.
        inverse: number b of factors.
        smoothness: smoothness L.
    """

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("γ, of y")
    averaging: dp.StepSize = dp.option("β, weight of the newest estimate in the running averages")
    inverse: int = dp.neumann_terms()
    smoothness: float = dp.neumann_smoothness()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.averaging.scale <= 1.0:
            raise dp.InputError(
                f"algorithm.averaging.scale: weight of the newest estimate out of range (got {self.averaging.scale:g}, "
                "expected 0 to 1). Fix: use for example 0.2."
            )

    @property
    def terms(self) -> dict[str, str]:
        """Averaged term of each estimate, by channel."""
        channels = {"s": "upper_grad_x", "h": "upper_grad_y", "u": "lower_jacobian"}
        return channels | {f"v{j}": "lower_hessian" for j in range(1, self.inverse + 1)}

    memoryless = True

    def init(self, dataset: dp.LocalDataset) -> GbdsboState:
        widths = {c: channel.width for c, channel in self.releases(dataset.p, dataset.q).items()}
        values: dict[str, dp.Value] = {
            c: dataset.start(c, self.start) if c in self.channels else dataset.public(0.0, d) for c, d in widths.items()
        }
        return GbdsboState(values.pop("x"), values.pop("y"), values)

    def step(self, t: int, dataset: dp.LocalDataset, s: GbdsboState) -> dp.GossipSteps[GbdsboState]:
        messages: dict[str, dp.Value] = {"x": s.x, "y": s.y, **s.estimates}
        released, neighbour_sum = yield dp.Gossip(**messages)
        own_values = {c: self.own_value(released[c], v) for c, v in messages.items()}
        a = 1.0 - dataset.neighbour_weight
        averages = {c: a * v + neighbour_sum[c] for c, v in own_values.items()}
        x, y, beta = own_values["x"], own_values["y"], self.averaging(t)

        batch = dataset.batch(t, kept=True)
        newest = {"s": batch.upper_grad_x(x, y), "h": batch.upper_grad_y(x, y), "u": batch.lower_jacobian(x, y)}
        hessians = [c for c in self.terms if c not in newest]
        for j, c in enumerate(hessians):
            newest[c] = dataset.batch(t, 1 + j, kept=True).lower_hessian(x, y)

        def product(u: dp.Array, h: dp.Array, *v: dp.Array) -> dp.Array:
            return correction(self.smoothness, u, h, *v)

        by_y = unproven(product, own_values["u"], own_values["h"], *(own_values[c] for c in hessians))
        return GbdsboState(
            x=averages["x"] - self.x(t) * (own_values["s"] - by_y),
            y=averages["y"] - self.y(t) * batch.lower_grad_y(x, y),
            estimates={c: (1.0 - beta) * averages[c] + beta * newest[c] for c in self.terms},
        )

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        """Return x, y and the estimates, each with the term that enters it at public points."""
        widths = {"s": p, "h": q, "u": p * q}
        families = {"s": "x", "u": "x"}
        estimates = {c: dp.Channel(families.get(c, "z"), widths.get(c, q * q), (t,)) for c, t in self.terms.items()}
        return {"x": dp.Channel("x", p, ()), "y": dp.Channel("y", q, ("lower_grad_y",))} | estimates

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan releases 1 … T of x and y, and 1 … T − 1 of the estimates."""
        index = np.arange(1, public.rounds + 1)
        gamma, beta = self.y.series(public.rounds), self.averaging.series(public.rounds)[:-1]
        out = {
            "x": dp.free_release(public, index),
            "y": dp.plan_release(public, index, [dp.Use("lower_grad_y", gamma, index - 1)], kept=True),
        }
        if public.rounds > 1:
            send_index = index[:-1]
            out |= {
                c: dp.plan_release(public, send_index, [dp.Use(t, beta, send_index - 1)], kept=True)
                for c, t in self.terms.items()
            }
        return out


def correction(smoothness: float, u: dp.Array, h: dp.Array, *v: dp.Array) -> dp.Array:
    """Return the product u q h, (b, p), row by row."""
    rows, q = h.shape
    series = h
    for hessian in v:
        series = h + series - _times(hessian.reshape(rows, q, q), series) / smoothness
    return _times(u.reshape(rows, -1, q), series) / smoothness


def _times(matrices: dp.Array, vectors: dp.Array) -> dp.Array:
    """Multiply matrices (b, n, q) by vectors (b, q) row by row."""
    return np.asarray((matrices @ vectors[:, :, None])[:, :, 0])


ENTRY = dp.Entry(
    "gbdsbo", Gbdsbo, (dp.Citation("Algorithm", "yang2022decentralized"), dp.NOISED), display_name="GBDSBO", proved=True
)
