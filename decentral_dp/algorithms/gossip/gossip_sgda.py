"""Minimax without a coordinator: min_x max_{y ∈ Y} (1/m) Σ_i f_i(x, y), by gossip, local descent on x and ascent on y.

With ṽ the release of an agent, a_i = 1 − |w_ii| and P the projections on the sets of x and y,

    u_{i,t} = P_X[a_i x̃_{i,t} + Σ_j w_ij x̃_{j,t}],     v_{i,t} = P_Y[a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t}],
    x_{i,t+1} = u_{i,t} − λ_{x,t} (mean clip(∂_x f(u_{i,t}, v_{i,t}; ξ), C_x) + ∂_x r(u_{i,t}, v_{i,t})),
    y_{i,t+1} = v_{i,t} + λ_{y,t} (mean clip(∂_y f(u_{i,t}, v_{i,t}; ξ), C_y) + ∂_y r(u_{i,t}, v_{i,t})),

where r reads no record; if y minimises (DRO), its step has the opposite sign. Both are released with noise before the
projections: u and v are functions of released values.

Noise protects one train record of agent i: it changes x_{i,t+1} by at most λ_x·2C_x/N_i and y_{i,t+1} by λ_y·2C_y/N_i,
on any graph. All other terms on the right are public. Statistics of all records that an objective needs, such as the
share of positives, are public numbers.

Without noise and clips this is decentralised stochastic gradient descent ascent. On a complete graph with equal weights
it is gradient descent ascent on the mean of the f_i. Gradients are not tracked: with a constant step, agents with
different records differ by O(λ) in the limit.

Reference: H. Gao, "Decentralized Stochastic Gradient Descent Ascent for Finite-Sum Minimax Problems", 2022
(arXiv 2212.02724), here with noise on every message and without its tables of gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from decentral_dp.algorithms import vocabulary as dp


class GossipSgdaState(NamedTuple):
    """State of the agents: x (b, p) and y (b, q), before noise is added."""

    x: dp.Value
    y: dp.Value


@dataclass(frozen=True)
class GossipSgda(dp.Derived):
    """Minimax by gossip: local noisy descent on x and ascent on y, without a coordinator.

    Args:
        x, y: step sizes λ.
    """

    x: dp.StepSize = dp.option("λ_x, of x, downwards")
    y: dp.StepSize = dp.option("λ_y, of y, upwards")

    solves: ClassVar[str] = "minimax"
    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {
        "x": {"upper_grad_x": "x"},
        "y": {"lower_grad_y": "y"},
    }

    memoryless = True

    def init(self, dataset: dp.LocalDataset) -> GossipSgdaState:
        return GossipSgdaState(*self.starts(dataset))

    def step(self, t: int, dataset: dp.LocalDataset, s: GossipSgdaState) -> dp.GossipSteps[GossipSgdaState]:
        own_values, near = yield dp.Gossip(x=s.x, y=s.y)
        own_weight = 1.0 - dataset.neighbour_weight
        x, y = dataset.project(own_weight * own_values.x + near.x, own_weight * own_values.y + near.y)
        batch = dataset.batch(t)
        return GossipSgdaState(x - self.x(t) * batch.upper_grad_x(x, y), y - self.y(t) * batch.lower_grad_y(x, y))


ENTRY = dp.Entry(
    "gossip_sgda",
    GossipSgda,
    (dp.Citation("Decentralised SGDA, here with noise and without its tables of gradients", "gao2022decentralized"),),
    example=dp.AUC | {"clip": "clip.x = 1.0\nclip.y = 1.0"},
    display_name="gossip SGDA",
    proved=True,
)
