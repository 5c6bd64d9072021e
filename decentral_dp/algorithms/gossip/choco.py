"""CHOCO-SGD: gossip on replicas ŷ_i, updated by compressed differences.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With ỹ the released value, round t of agent i runs

    q_i = Q(ỹ_{i,t} − ŷ_i) is sent,     ŷ_i ← ŷ_i + q_i
    c_{i,t} = ỹ_{i,t} + γ Σ_j w_ij (ŷ_j − ŷ_i),     y_{i,t+1} = c_{i,t} − λ_t ∇_y g_i(x, c_{i,t})

with Q the quantiser and γ the consensus step of `topology.compression`. The first line and c are the exchange itself:
with compressed messages every algorithm mixes to this c. Noise comes before compression, so q, ŷ and c are
post-processing, without privacy cost. Without noise it converges like decentralised SGD if γ is small enough for Q.
With noise the differences are mostly noise. Part of it is sent in later rounds.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release has sensitivity λ_t·2C/N_t. No validation record is read, and x is never sent.

Reference: A. Koloskova, S. Stich, M. Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication", ICML 2019, Algorithm 2.
"""

from __future__ import annotations

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel, OneLevelState


class Choco(OneLevel):
    """Decentralised SGD on compressed differences with error feedback (CHOCO-SGD; Koloskova, Stich & Jaggi, 2019)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        average = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return OneLevelState(s.x, average - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, average))


ENTRY = dp.Entry(
    "choco",
    Choco,
    (dp.Citation("CHOCO-SGD, here with noise", "koloskova2019decentralized"),),
    display_name="CHOCO-SGD",
    proved=True,
)
