"""F²SA with gossip: fully first-order bilevel optimisation with a penalty.

With P the mixing matrix (P v = a_i v_i + Σ_j w_ij v_j, a_i = 1 − |w_ii|), ṽ the release of an agent, and f_{i,t} and
g_{i,t} the means over the records that agent i reads, round t of agent i runs

    x̄ = P x̃_t,     ȳ = P ỹ_t,     z̄ = P z̃_t                                            combine
    z_{t+1} = z̄ − γ_t ∇_y g_{i,t}(x̄, z̄)
    y_{t+1} = ȳ − β_t (∇_y g_{i,t}(x̄, ȳ) + ∇_y f_{i,t}(x̄, ȳ)/λ)
    x_{t+1} = x̄ − α_t (∇_x f_{i,t}(x̄, ȳ) + λ (∇_x g_{i,t}(x̄, ȳ) − ∇_x g_{i,t}(x̄, z̄)))   adapt

with α → x, β → y, γ → z and λ → penalty. z tracks argmin_y g, and y tracks argmin_y f/λ + g. No second derivative is
computed. The paper has one agent, no noise, a growing λ and several steps of y and z a round.

All points are functions of released values. Each record's part of λ (∇_x g(x̄, ȳ) − ∇_x g(x̄, z̄)) is clipped to C_x.
The sensitivity of x, y and z to one train record is α_t·2C_x/N, β_t·2C_y/N and γ_t·2C_y/N. To one validation record it
is α_t·2C_x/N for x and β_t·2C_z/(λN) for y. The regulariser's part in x is exact, and a channel that reads no record is
sent without noise. The published y estimates argmin_y f/λ + g.

Without noise the fixed points are stationary points of f + λ (g − min_y g), at a distance of O(1/λ) from those of the
bilevel problem. λ multiplies the noise of y and z in the step of x.

Reference: J. Kwon, D. Kwon, S. Wright, R. Nowak, "A Fully First-Order Method for Stochastic Bilevel Optimization",
ICML 2023, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.problems.protocol import CHANGE


class F2saState(NamedTuple):
    """State of the agents before noise is added: x (b, p), y (b, q) and z (b, q)."""

    x: dp.Value
    y: dp.Value
    z: dp.Value


@dataclass(frozen=True)
class F2sa(dp.Derived):
    """Single-loop bilevel gossip with a penalty and first derivatives only (Kwon, Kwon, Wright & Nowak, 2023)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y along the gradient of the penalised objective")
    z: dp.StepSize = dp.option("γ, of z along the lower gradient")
    penalty: float = dp.option("λ, weight of the lower level", default=10.0, above=0.0)

    channels = dp.CHANNELS
    memoryless: ClassVar[bool] = True
    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {
        "x": {"upper_grad_x": "x", CHANGE: "x"},
        "y": {"lower_grad_y": "y", "upper_grad_y": "upper_step"},
        "z": {"lower_grad_y": "z"},
    }

    def upper_step(self, t: int) -> float:
        """Return the step size β_t/λ of the upper gradient in round t."""
        return self.y(t) / self.penalty

    def init(self, dataset: dp.LocalDataset) -> F2saState:
        return F2saState(*(dataset.start(c, self.start) for c in dp.CHANNELS))

    def step(self, t: int, dataset: dp.LocalDataset, s: F2saState) -> dp.GossipSteps[F2saState]:
        released, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y, z=s.z)
        x, y, z = ((1.0 - dataset.neighbour_weight) * released[c] + neighbour_sum[c] for c in dp.CHANNELS)
        batch = dataset.batch(t)
        by_x = batch.upper_grad_x(x, y) + batch.lower_grad_x_change(x, y, z, self.penalty)
        ahead = y - self.y(t) * batch.lower_grad_y(x, y) - self.upper_step(t) * batch.upper_grad_y(x, y)
        return F2saState(
            x=dataset.within_steps(x - self.x(t) * by_x, max(self.y(t), self.z(t))),
            y=ahead,
            z=z - self.z(t) * batch.lower_grad_y(x, z),
        )


ENTRY = dp.Entry(
    "f2sa", F2sa, (dp.Citation("F²SA, here with gossip and noise", "kwon2023fully"),), display_name="F²SA", proved=True
)
