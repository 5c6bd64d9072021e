"""SPDB: a stochastic primal-dual method for a shared upper and a personal lower variable.

    min_x (1/m) Σ_i f_i(x, y_i*(x)),     y_i*(x) = argmin_y g_i(x, y)

Weighted multipliers λ enforce equal copies of x. With W the mixing matrix (w_ij ≥ 0 between
neighbours), w_i the Neumann series of b terms for (∇²_yy g_i)⁻¹ ∇_y f_i at (x_i, y_i) (`gossip.inner_loops`),
round t of agent i runs

    λ_i <- λ_i + ρ'_t Σ_j w_ij (x_i − x_j)                                             λ_i = 0 at the start
    u_i = ∇_x f_i(x_i, y_i) − ∇²_xy g_i(x_i, y_i) w_i
    x_i <- x_i − α_t (u_i + λ_i + ρ Σ_j w_ij (x_i − x_j))
    y_i <- y_i − β_t ∇_y g_i(x_i, y_i)

with all right-hand sides of x and y at the points of the last message. λ_i = Σ_j w_ij (λ_ij − λ_ji) for multipliers
λ_ij of the constraints x_i = x_j. α → x, β → y, ρ → penalty, ρ' → dual, L → smoothness, b → inverse. With a minibatch
stream every v_k, and the step, has its own fresh batch.

`released` (certified)
    Every right-hand side, and every point of a gradient, is the agent's *released* value: y gets noise before it is
    used although it is not mixed. Per round the sensitivities are 2C_z/N for v_0, (1/L)·2C_z/N for v_k, α_t·2C_x/N per
    term for x, and β_t·2C_y/N for y. λ is a function of released x, so it is public. It sums to zero over the agents.

Without noise Σ_i u_i = 0 in the limit, also for constant steps. This is the optimum up to the truncation of the series,
(1 − μ/L)^b. The disagreement vanishes for about α (h + 2ρ + ρ') < 2, where h is the curvature of the agents' upper
objectives. One agent runs alternating descent.

Reference: S. Lu et al., "Decentralized Bilevel Optimization for Personalized Client Learning", ICASSP 2022 (SPDB).
Only its abstract was available. It describes a stochastic primal-dual method for personal lower variables and a shared
upper one. The published listing may differ from the steps above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.inner_loops import U_TERMS, V_TERMS, planned_series, solve_neumann


class SpdbState(NamedTuple):
    """State of the agents.

    Args:
        x: upper variable before noise, (b, p).
        y: lower variable before noise, (b, q).
        multiplier: multiplier λ, (b, p).
    """

    x: dp.Value
    y: dp.Value
    multiplier: dp.Value


@dataclass(frozen=True)
class Spdb(dp.Algorithm):
    """Personal lower variables, consensus on x by multipliers (after Lu et al., ICASSP 2022).

    Args:
        x, y: step sizes α, β.
        penalty, dual: penalty ρ and dual step size ρ'.
        smoothness: smoothness L.
        inverse: number b of terms.
    """

    x: dp.StepSize = dp.option("α, of x")
    y: dp.StepSize = dp.option("β, of the personal y")
    penalty: float = dp.option("ρ, weight of disagreement on x", example="1.0", at_least=0)
    dual: dp.StepSize = dp.option("ρ', of the multipliers")
    smoothness: float = dp.neumann_smoothness()
    inverse: int = dp.neumann_terms()

    @property
    def releases_per_round(self) -> int:
        return 1 + self.inverse

    memoryless = True
    # Each agent inverts the Hessian of its lower level.
    inverts_alone: ClassVar[bool] = True

    def init(self, dataset: dp.LocalDataset) -> SpdbState:
        x, y = self.starts(dataset)
        return SpdbState(x, y, dataset.public(0.0, dataset.p))

    def step(self, t: int, dataset: dp.LocalDataset, s: SpdbState) -> dp.GossipSteps[SpdbState]:
        released, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y)
        x, y = self.own_value(released.x, s.x), self.own_value(released.y, s.y)
        distance = dataset.neighbour_weight * x - neighbour_sum.x
        multiplier = s.multiplier + self.dual(t) * distance

        batches = [dataset.batch(t, k) for k in range(self.inverse + 1)]
        w = yield from self._series(batches[:-1], x, y)
        batch = batches[-1]
        u = batch.upper_grad_x(x, y) - batch.lower_jvp(x, y, w)
        return SpdbState(
            x=x - self.x(t) * (u + multiplier + self.penalty * distance),
            y=y - self.y(t) * batch.lower_grad_y(x, y),
            multiplier=multiplier,
        )

    def _series(self, batches: Sequence[dp.Batch], x: dp.Value, y: dp.Value) -> dp.GossipSteps[dp.Value]:
        """Compute w at (x, y) with b releases."""
        return (yield from solve_neumann(batches, x, y, self.smoothness))

    def releases(self, p: int, q: int) -> dict[str, dp.Channel]:
        return {
            "x": dp.Channel("x", p, U_TERMS),
            "y": dp.Channel("y", q, ("lower_grad_y",)),
            "v": dp.Channel("z", q, V_TERMS),
        }

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        """Plan exchange 0 of x and y, and the other exchanges of v_0 … v_{b−1}."""
        rounds = np.arange(public.rounds)
        ends = (rounds + 1) * self.releases_per_round
        alpha, beta = self.x.series(public.rounds), self.y.series(public.rounds)
        index, t = dp.grid(public.rounds, self.releases_per_round, range(1, self.releases_per_round))
        k = np.tile(np.arange(self.inverse), public.rounds)
        return {
            "x": dp.plan_release(public, ends, [dp.Use(term, alpha, rounds) for term in U_TERMS]),
            "y": dp.plan_release(public, ends, [dp.Use("lower_grad_y", beta, rounds)]),
            "v": planned_series(public, index, t, k, self.smoothness),
        }


ENTRY = dp.Entry(
    "spdb", Spdb, (dp.Citation("A primal-dual method after", "lu2022decentralized"),), display_name="SPDB", proved=True
)
