"""VRDSBO (also VRDBO): variance-reduced estimates of local hypergradients, and gradient tracking of both levels.

With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|), P v = a_i v_i + Σ_j w_ij v_j, G_i(x, y; B) agent i's own
hypergradient ∇_x f_i − ∇²_xy g_i w with w its Neumann series (`algorithms.gossip.inner_loops`) of b terms, and
κ_t = max(0, 1 − α η_t²), κ_0 = 0, round t of agent i runs, with one fresh batch B_t for all terms,

    U_t = κ_t (U_{t−1} − G_i(x_{t−1}, y_{t−1}; B_t)) + G_i(x_t, y_t; B_t)              U_{−1} = 0
    V_t = κ_t (V_{t−1} − ∇_y g_i(x_{t−1}, y_{t−1}; B_t)) + ∇_y g_i(x_t, y_t; B_t)      V_{−1} = 0
    Z^F_t = P Z^F_{t−1} + U_t − U_{t−1},     Z^G_t = P Z^G_{t−1} + V_t − V_{t−1}        Z_{−1} = 0
    x_{t+1} = x_t + η_t (P x_t − β_{1,t} Z^F_t − x_t),     y_{t+1} = y_t + η_t (P y_t − β_{2,t} Z^G_t − y_t)

η → averaging, α → recursive_momentum (one for both levels), β_1 → x, β_2 → y, L → smoothness, b → inverse.

`released` (certified)
    Every own value on a right-hand side is the released one, except U and V, which are only accumulated. The privacy
    cost covers the vectors of both series (channel v, 2b a round; without the old point where κ_t = 0) and Z^F, Z^G
    (channels zf, zg). x and y are functions of released Z, without privacy cost. One record of N changes G_i(new) − κ_t
    G_i(old) by at most (1 + κ_t)·2C_x/N per term (∇_x f_i: validation, ∇²_xy g_i w: train), hence

        U_t by D_t = κ_t D_{t−1} + (1 + κ_t)·2C_x/N,     U_t − U_{t−1} by (1 − κ_t) D_{t−1} + (1 + κ_t)·2C_x/N

    for U_t − U_{t−1} = −(1 − κ_t) U_{t−1} + G_i(new) − κ_t G_i(old), and V with C_y. The two series at one point differ
    by their noise, so the bound for Z^F is attained. V telescopes if every round reads all records; its bound is then
    up to twice too large. U and V keep each batch, so sampling gives no amplification.

Bias: every agent inverts its own Hessian, as if all g_i were equal. Without noise the limit solves
Σ_i G_i(x, y) = 0, Σ_i ∇_y g_i(x, y) = 0, which differs from ∇F = 0 if the g_i differ, and b adds its truncation.
With noise, the network averages of Z^F and Z^G are random walks. One agent runs single-loop bilevel descent.

References: H. Gao, B. Gu, M. T. Thai, "On the Convergence of Distributed Stochastic Bilevel Optimization Algorithms
over a Network", AISTATS 2023 (VRDBO); perturbed in Chen & Wang, ICML 2024, Appendix A, whose α η² exceeds 1 in the
first rounds; κ_t ≥ 0 prevents this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.inner_loops import U_TERMS, V_TERMS, planned_series, solve_neumann


class VrdsboState(NamedTuple):
    """State of the agents.

    Args:
        x, y: next messages, (b, p) and (b, q).
        last_x, last_y: messages of the previous round.
        u, v: noiseless U (b, p) and V (b, q).
        zf, zg: own Z^F and Z^G, (b, p) and (b, q).
        zf_near, zg_near: sums Σ_j w_ij Z_j of the received Z^F and Z^G.
    """

    x: dp.Value
    y: dp.Value
    last_x: dp.Value
    last_y: dp.Value
    u: dp.Value
    v: dp.Value
    zf: dp.Value
    zg: dp.Value
    zf_near: dp.Array
    zg_near: dp.Array


@dataclass(frozen=True)
class Vrdsbo(dp.Algorithm):
    """Variance-reduced local hypergradients with gradient tracking (Gao, Gu & Thai, AISTATS 2023; VRDBO).

    Args:
        x, y: step sizes β.
        averaging, recursive_momentum: weights η, α.
        smoothness: smoothness L.
        inverse: number b of terms.
    """

    x: dp.StepSize = dp.option("β of x")
    y: dp.StepSize = dp.option("β of y")
    averaging: dp.StepSize = dp.option("η, of the interpolation between old and new points")
    recursive_momentum: float = dp.option(
        "α of κ_t = max(0, 1 − α η_t²), the weight of the past in both estimates", example="0.5", at_least=0
    )
    smoothness: float = dp.neumann_smoothness()
    inverse: int = dp.neumann_terms()

    # Each agent inverts the Hessian of its lower level.
    inverts_alone: ClassVar[bool] = True

    @property
    def releases_per_round(self) -> int:
        return 2 + 2 * self.inverse

    def kept_share(self, t: int) -> float:
        """Return κ_t, the weight of the past in both estimates of round t."""
        return 0.0 if t == 0 else max(0.0, 1.0 - self.recursive_momentum * self.averaging(t) ** 2)

    def init(self, dataset: dp.LocalDataset) -> VrdsboState:
        x, y = self.starts(dataset)
        upper_zero, lower_zero = dataset.public(0.0, dataset.p), dataset.public(0.0, dataset.q)
        return VrdsboState(x, y, x, y, upper_zero, lower_zero, upper_zero, lower_zero, upper_zero, lower_zero)

    def step(self, t: int, dataset: dp.LocalDataset, s: VrdsboState) -> dp.GossipSteps[VrdsboState]:
        a, share = 1.0 - dataset.neighbour_weight, self.kept_share(t)
        _, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y)

        batch = dataset.batch(t, kept=True)
        u, v = yield from self._directions(batch, s.x, s.y)
        if share > 0.0:
            old_u, old_v = yield from self._directions(batch, s.last_x, s.last_y)
            u, v = u - share * old_u, v - share * old_v
        else:
            yield from self._skip_series(dataset)

        last_u, last_v = dataset.remembered_state(t, s.u), dataset.remembered_state(t, s.v)
        zf = a * s.zf + s.zf_near + (u - (1.0 - share) * last_u)
        zg = a * s.zg + s.zg_near + (v - (1.0 - share) * last_v)
        released, z_near = yield dp.Gossip(zf=zf, zg=zg)
        zf, zg = self.own_value(released.zf, zf), self.own_value(released.zg, zg)

        eta = self.averaging(t)
        return VrdsboState(
            x=s.x + eta * (a * s.x + neighbour_sum.x - self.x(t) * zf - s.x),
            y=s.y + eta * (a * s.y + neighbour_sum.y - self.y(t) * zg - s.y),
            last_x=s.x,
            last_y=s.y,
            u=share * last_u + u,
            v=share * last_v + v,
            zf=zf,
            zg=zg,
            zf_near=z_near.zf,
            zg_near=z_near.zg,
        )

    def _directions(self, batch: dp.Batch, x: dp.Value, y: dp.Value) -> dp.GossipSteps[tuple[dp.Value, dp.Value]]:
        """Compute G_i and ∇_y g_i at one point."""
        w = yield from self._series([batch] * self.inverse, x, y)
        return batch.upper_grad_x(x, y) - batch.lower_jvp(x, y, w), batch.lower_grad_y(x, y)

    def _series(self, batches: Sequence[dp.Batch], x: dp.Value, y: dp.Value) -> dp.GossipSteps[dp.Value]:
        """Compute w at one point with b releases."""
        return (yield from solve_neumann(batches, x, y, self.smoothness))

    def _skip_series(self, dataset: dp.LocalDataset) -> dp.GossipSteps[None]:
        """Send b empty messages, to keep the number of exchanges per round constant."""
        for _ in range(self.inverse):
            yield dp.Gossip(v=dataset.public(0.0, dataset.q))

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {
            "x": dp.Channel("x", p, ()),
            "y": dp.Channel("y", q, ()),
            "v": dp.Channel("z", q, V_TERMS),
            "zf": dp.Channel("x", p, U_TERMS),
            "zg": dp.Channel("y", q, ("lower_grad_y",)),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0 of x and y, b exchanges of the series at the new point, b at the old point, and one of Z."""
        rounds, e = public.rounds, self.releases_per_round
        ends = np.arange(1, rounds + 1) * e
        share = np.fromiter((self.kept_share(t) for t in range(rounds)), np.float64, rounds)
        index, t = dp.grid(rounds, e, range(1, 1 + 2 * self.inverse))
        place = np.tile(np.arange(2 * self.inverse), rounds)
        is_sent = (place < self.inverse) | (share[t] > 0.0)
        k = place % self.inverse
        return {
            "x": dp.free_release(public, ends),
            "y": dp.free_release(public, ends),
            "v": planned_series(public, index[is_sent], t[is_sent], k[is_sent], self.smoothness, kept=True),
            "zf": _plan_increments(public, ends - 1, U_TERMS, share),
            "zg": _plan_increments(public, ends - 1, ("lower_grad_y",), share),
        }


def _plan_increments(public: dp.Public, index: NDArray[np.int64], terms: Sequence[str], share: dp.Array) -> dp.Planned:
    """Plan increments of U or V with the kept shares κ, (T,)."""
    keep, rounds = share[:, None], np.arange(public.rounds)
    news = dp.plan_release(public, index, [dp.Use(term, 1.0 + share, rounds) for term in terms], kept=True)
    sensitivity = {}
    for kind, change in news.sensitivity.items():
        growth = dp.memory_slack(public.averaged_counts[kind])
        sensitivity[kind] = _scale_or_zero(1.0 - keep, dp.lag(dp.fading(change, keep, growth)) * growth) + change
    largest = _scale_or_zero(1.0 - keep, dp.lag(dp.fading(news.largest, keep))) + news.largest
    return news._replace(sensitivity=sensitivity, largest=largest)


def _scale_or_zero(factor: dp.Array, size: dp.Array) -> dp.Array:
    """Return factor · size, or 0 if the factor is 0, even for an infinite size."""
    with np.errstate(invalid="ignore"):
        return np.where(factor == 0.0, 0.0, factor * size)


ENTRY = dp.Entry(
    "vrdsbo",
    Vrdsbo,
    (
        dp.Citation("Algorithm", "gao2023convergence"),
        dp.Citation("Noise on its messages (Appendix A there)", "chen2024locally"),
    ),
    display_name="VRDSBO",
    proved=True,
)
