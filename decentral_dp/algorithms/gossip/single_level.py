"""Training at one level: min_y (1/m) Σ_i g_i(x, y) at a constant x, by gossip and local gradient steps.

With ỹ the released value, and a_i = 1 − |w_ii|:

`ldp_single_level` (combine, then adapt: Algorithm 2 of Chen & Wang without its upper level, their Appendix G.3)
    y_{i,t+1} = a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, ỹ_{i,t})
`dp_dsgd` (adapt, then combine: decentralised SGD, with noise on each local step before it is sent)
    y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) − λ_t ∇_y g_i(x, c_{i,t}),
    c_{i,t+1} = a_i ỹ_{i,t+1} + Σ_j w_ij ỹ_{j,t+1},      c_{i,−1} = c_{i,0}
    β (`momentum`) multiplies a difference of released values, without privacy cost. It lengthens steps by the factor
    1/(1 − β). With K `local_steps`, if all records of an agent are protected (privacy.unit = "agent"), K steps without
    noise lead from c to y_K, and y_{i,t+1} = c_{i,t} + β (c_{i,t} − c_{i,t−1}) + clip(y_K − c_{i,t}), as in DP-FedAvg.
`choco` (CHOCO-SGD: gossip on replicas ŷ_i, updated by compressed differences)
    q_i = Q(ỹ_{i,t} − ŷ_i) is sent,     ŷ_i ← ŷ_i + q_i
    c_{i,t} = ỹ_{i,t} + γ Σ_j w_ij (ŷ_j − ŷ_i),     y_{i,t+1} = c_{i,t} − λ_t ∇_y g_i(x, c_{i,t})
    with Q the quantiser and γ the consensus step of `topology.compression`. The first line and c are the exchange
    itself: with compressed messages every algorithm mixes to this c. Noise comes before compression, so q, ŷ and c are
    post-processing, without privacy cost. Without noise it converges like decentralised SGD if γ is small enough for Q.
    With noise the differences are mostly noise. Part of it is sent in later rounds.
`alone`, `central` (DP-SGD without a network, as baselines)
    `alone` is `dp_dsgd` of agents without edges, and `central` of one trusted server with all records. A release of
    `central` has sensitivity λ_t·2C/N_t, with N_t the records of all agents. Both account every step.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release has sensitivity λ_t·2C/N_t. No validation record is read, and x is never sent.

Without noise `ldp_single_level` and `dp_dsgd` converge to the common minimiser if λ_t → 0. With a constant step they
converge to within O(λ) of it if the g_i differ. One agent runs gradient descent.

References: Chen & Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed
Convergence Accuracy", ICML 2024, Appendix G.3; X. Lian et al., "Can Decentralized Algorithms Outperform Centralized
Algorithms?", NeurIPS 2017 (decentralised SGD); A. Koloskova, S. Stich, M. Jaggi, "Decentralized Stochastic Optimization
and Gossip Algorithms with Compressed Communication", ICML 2019, Algorithm 2; M. Abadi et al., "Deep Learning with
Differential Privacy", CCS 2016 (DP-SGD).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from decentral_dp.algorithms import vocabulary as dp


class OneLevelState(NamedTuple):
    """State of agents: x (b, p), constant and public, and y (b, q), before noise."""

    x: dp.Array
    y: dp.Value


@dataclass(frozen=True)
class OneLevel(dp.Derived, Protocol):
    """Gossip on y only, at a constant public x, with learning rate λ."""

    learning_rate: dp.StepSize = dp.option("λ, of the model along the gradient")

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "learning_rate"}}

    memoryless: ClassVar[bool] = True
    one_mean: ClassVar[bool] = True

    def init(self, dataset: dp.LocalDataset) -> Any:
        return OneLevelState(*self.starts(dataset))


class CorrectionState(NamedTuple):
    """State of agents: constant x (b, p), y (b, q) before noise, and the public correction (b, q)."""

    x: dp.Array
    y: dp.Value
    correction: dp.Array


class CorrectedGossip(OneLevel, Protocol):
    """Gossip on y with a public correction for disagreement, which starts at 0."""

    def init(self, dataset: dp.LocalDataset) -> CorrectionState:
        return CorrectionState(*self.starts(dataset), dataset.public(0.0, dataset.q))


class LdpSingleLevel(OneLevel):
    """Lower level only: gossip first, then a local step (Chen & Wang, Appendix G.3)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        y = self.own_value(released.y, s.y)
        average = (1.0 - dataset.neighbour_weight) * y + neighbour_sum.y
        return s._replace(y=average - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, y))


class Choco(OneLevel):
    """Decentralised SGD on compressed differences with error feedback (CHOCO-SGD; Koloskova, Stich & Jaggi, 2019)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        average = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return OneLevelState(s.x, average - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, average))


class DpDsgdState(NamedTuple):
    """State of agents.

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
        "ldp_single_level",
        LdpSingleLevel,
        (dp.Citation("Algorithm (its lower level alone, Appendix G.3)", "chen2024locally"),),
        proved=True,
    ),
    dp.Entry("choco", Choco, (dp.Citation("CHOCO-SGD, here with noise", "koloskova2019decentralized"),), proved=True),
    dp.Entry("dp_dsgd", DpDsgd, (dp.Citation("Decentralised SGD, here with noise", "lian2017can"),), proved=True),
    dp.Entry("alone", Alone, _DP_SGD, network="isolated", proved=True),
    dp.Entry("central", Central, _DP_SGD, network="pooled", proved=True),
)
