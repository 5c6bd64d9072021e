"""D-SGD with differential privacy: a local step with noise, then gossip.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With ỹ the released value, c the average of an agent and its neighbours, and
a_i = 1 − |w_ii|, round t of agent i runs (adapt, then combine)

    c_{i,t} = a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t}
    y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) − λ_t ∇_y g_i(x, c_{i,t}),      c_{i,−1} = y_{i,0}

and sends y_{i,t+1} with noise.

β (`momentum`) multiplies a difference of released values, without privacy cost. It lengthens steps by the factor
1/(1 − β). With K `local_steps`, if all records of an agent are protected (privacy.unit = "agent"), K steps without
noise lead from c to y_K, and y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) + clip(y_K − c_{i,t}), as in DP-FedAvg.

Two baselines run the same steps. `alone` is `dp_dsgd` of agents without edges, and `central` (DP-SGD) of one trusted
server with all records. A release of `central` has sensitivity λ_t·2C/N_t, with N_t the records of all agents. Both
account every step.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release has sensitivity λ_t·2C/N_t. No validation record is read, and x is never sent.

Without noise the agents converge to the common minimiser if λ_t → 0. With a constant step they converge to within O(λ)
of it if the g_i differ. One agent runs gradient descent.

References: X. Lian et al., "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017 (D-SGD); M.
Abadi et al., "Deep Learning with Differential Privacy", CCS 2016 (DP-SGD).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel


class DpDsgdState(NamedTuple):
    """State of the agents.

    Args:
        x: constant public upper variable, (b, p).
        y: model before noise, (b, q).
        last_mixed: public c of the previous round, (b, q).
    """

    x: dp.Array
    y: dp.Value
    last_mixed: dp.Array


@dataclass(frozen=True)
class DpDsgd(OneLevel):
    """Decentralised DP-SGD: a local step with noise, then gossip."""

    momentum: float = dp.option("β, momentum on released values", default=0.0, at_least=0.0, below=1.0)
    local_steps: int | None = dp.option(
        'K, steps without noise between two exchanges, whose sum is clipped and released; with privacy.unit = "agent"',
        default=None,
        unit="steps",
        example="5",
        at_least=1,
    )

    def init(self, dataset: dp.LocalDataset) -> DpDsgdState:
        x, y = self.starts(dataset)
        return DpDsgdState(x, y, y)

    def step(self, t: int, dataset: dp.LocalDataset, s: DpDsgdState) -> dp.GossipSteps[DpDsgdState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        # This works in place, since a new array of all agents' weights takes as long as a product.
        average = (1.0 - dataset.neighbour_weight) * released.y
        average += neighbour_sum.y
        ahead = average + self.momentum * (average - s.last_mixed) if self.momentum else average
        return DpDsgdState(s.x, ahead + self.change(t, dataset, s.x, average), average)

    def change(self, t: int, dataset: dp.LocalDataset, x: dp.Array, y: dp.Array) -> dp.Value:
        """Return the gradient step from (x, y), or the clipped sum of K local steps."""
        if self.local_steps is not None:
            return dataset.local_steps(t, x, y, self.local_steps, self.learning_rate(t))
        return -self.learning_rate(t) * dataset.batch(t).lower_grad_y(x, y)

    def planned_releases(self, public: dp.Public) -> dict[str, dp.Planned]:
        plans = super().planned_releases(public)
        if self.local_steps is not None:
            plans["y"] = dp.plan_block(public, np.arange(1, public.rounds + 1), "lower_grad_y")
        return plans


class Alone(DpDsgd):
    """Local DP-SGD: every agent trains on its own records, without messages."""


class Central(DpDsgd):
    """Central DP-SGD: a trusted server trains on the pooled records and adds noise once."""


_DP_SGD = (dp.Citation("DP-SGD", "abadi2016deep"),)
ENTRIES = (
    dp.Entry(
        "dp_dsgd",
        DpDsgd,
        (dp.Citation("Decentralised SGD, here with noise", "lian2017can"),),
        display_name="D-SGD",
        proved=True,
    ),
    dp.Entry("alone", Alone, _DP_SGD, network="isolated", display_name="DP-SGD of each agent by itself", proved=True),
    dp.Entry("central", Central, _DP_SGD, network="pooled", display_name="DP-SGD on the records of all", proved=True),
)
