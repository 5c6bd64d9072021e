"""D-SOBA: decentralised stochastic one-loop bilevel optimisation, with a moving average of hypergradients.

With P the mixing matrix (P v = a_i v_i + Σ_j w_ij v_j, a_i = 1 − |w_ii|), ṽ the release of an agent, and f_{i,t} and
g_{i,t} the means over the records that agent i reads, round t of agent i runs

    x̄ = P x̃_t,     ȳ = P ỹ_t,     z̄ = P z̃_t                                            combine
    h_t = (1 − θ) h̃_{t−1} + θ (∇_x f_{i,t} − ∇²_xy g_{i,t} z̄),     h̃_{t−1} = (P x̃_{t−1} − x̃_t)/α_{t−1}
    x_{t+1} = x̄ − α_t h_t
    y_{t+1} = ȳ − β_t ∇_y g_{i,t}
    z_{t+1} = z̄ − γ_t (∇²_yy g_{i,t} z̄ − ∇_y f_{i,t})                                  adapt

at (x̄, ȳ), with α → x, β → y, γ → z, θ → theta and h̃_{−1} = 0. h̃ is the released h, so a release of x carries θ α_t
times fresh means, and its noise is θ times that of `ldp_dsbo` at equal ε. The moving average also damps this noise. The
paper's h has no noise. All points are functions of released values: the sensitivity to one record is
θ α_t·2C_x/N per term of x, β_t·2C_y/N for y and γ_t·2C_z/N per term of z. A channel that reads no record is sent
without noise.

Without noise the fixed points are those of `ldp_dsbo`. One agent runs SOBA with a moving average.

References: B. Kong, S. Zhu, S. Lu, X. Huang, K. Yuan, "Decentralized Bilevel Optimization: A Perspective from Transient
Iteration Complexity", arXiv:2402.03167, 2024; M. Dagréou, P. Ablin, S. Vaiter, T. Moreau, "A Framework for Bilevel
Optimization that Enables Stochastic and Global Variance Reduction Algorithms", NeurIPS 2022 (SOBA).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from decentral_dp.algorithms import vocabulary as dp


class DsobaState(NamedTuple):
    """State of the agents: x (b, p), y and z (b, q) before noise, and the public P x̃ (b, p) of the previous round."""

    x: dp.Value
    y: dp.Value
    z: dp.Value
    mixed: dp.Array


@dataclass(frozen=True)
class Dsoba(dp.Derived):
    """Single-loop bilevel gossip with a moving average of hypergradients (Kong, Zhu, Lu, Huang & Yuan, 2024)."""

    x: dp.StepSize = dp.option("α, of x along the averaged hypergradient")
    y: dp.StepSize = dp.option("β, of y along the lower gradient")
    z: dp.StepSize = dp.option("γ, of z, the product of inverse Hessian and gradient")
    theta: float = dp.option("θ, weight of the newest hypergradient", default=0.5, above=0.0, at_most=1.0)

    channels = dp.CHANNELS
    memoryless: ClassVar[bool] = True
    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {
        "x": {"upper_grad_x": "newest", "lower_jvp": "newest"},
        "y": {"lower_grad_y": "y"},
        "z": {"lower_hvp": "z", "upper_grad_y": "z"},
    }

    def newest(self, t: int) -> float:
        """Return the factor θ α_t of the new means in round t."""
        return self.theta * self.x(t)

    def init(self, dataset: dp.LocalDataset) -> DsobaState:
        x, y, z = (dataset.start(c, self.start) for c in dp.CHANNELS)
        return DsobaState(x, y, z, x)

    def step(self, t: int, dataset: dp.LocalDataset, s: DsobaState) -> dp.GossipSteps[DsobaState]:
        released, neighbour_sum = yield dp.Gossip(x=s.x, y=s.y, z=s.z)
        x, y, z = ((1.0 - dataset.neighbour_weight) * released[c] + neighbour_sum[c] for c in dp.CHANNELS)
        d = dataset.oracle(t, x, y, z)
        # At the start both points are equal, as after a step of size 0.
        momentum = (s.mixed - released.x) / (self.x(max(0, t - 1)) or 1.0)
        ahead = x - (1.0 - self.theta) * self.x(t) * momentum - self.newest(t) * (d.upper_grad_x - d.lower_jvp)
        return DsobaState(
            x=dataset.within_steps(ahead, max(self.y(t), self.z(t))),
            y=y - self.y(t) * d.lower_grad_y,
            z=z - self.z(t) * (d.lower_hvp - d.upper_grad_y),
            mixed=x,
        )


ENTRY = dp.Entry(
    "dsoba",
    Dsoba,
    (dp.Citation("D-SOBA, here with noise", "kong2024decentralized"),),
    display_name="D-SOBA",
    proved=True,
)
