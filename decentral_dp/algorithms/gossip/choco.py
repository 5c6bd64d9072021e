"""CHOCO-SGD: local steps, and gossip on replicas that compressed differences move.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With W the mixing matrix, Q the quantiser and γ the consensus step of
`topology.compression`, ỹ what an agent released, and ŷ_i the replica of agent i that it and all its neighbours keep,
round t of agent i runs

    q_i = Q(ỹ_{i,t} − ŷ_i) is sent,     ŷ_i ← ŷ_i + q_i
    c_{i,t} = ỹ_{i,t} + γ Σ_j w_ij (ŷ_j − ŷ_i)
    y_{i,t+1} = c_{i,t} − λ_t ∇_y g_i(x, c_{i,t})

λ → y. The first two lines are the exchange itself, so that c is what any algorithm of this package mixes to where
messages are compressed; without compression γ = 1, ŷ = ỹ, and this is decentralised SGD.

Noise comes first, then compression. It protects one train record of agent i: y_{t+1} carries one clipped mean, at a
point that follows from released values, and moves by λ_t·2C/N_t; q, ŷ and c are functions of what was released, and
cost nothing. No validation record is read, and x is never sent.

Without noise it converges as decentralised SGD does, for γ small enough for Q: what is not sent stays in ỹ − ŷ, and the
mean over the network moves by gradients alone. With noise the differences are mostly noise, which no quantiser
compresses well: each keeps a part 1 − δ of it for later rounds. One agent runs gradient descent.

References: A. Koloskova, S. Stich, M. Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication", ICML 2019, Algorithm 2. Noised and clipped, with tracked gradients, in PORTER
(arXiv:2305.09896): here `gradient_tracking` with a compression.
"""

from __future__ import annotations

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import OneLevel, State


class Choco(OneLevel):
    """Decentralised SGD on compressed differences with error feedback (CHOCO-SGD; Koloskova, Stich & Jaggi, 2019)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: State) -> dp.GossipSteps[State]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return State(s.x, combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))


ENTRY = dp.Entry(
    "choco",
    Choco,
    (dp.Citation("CHOCO-SGD, here with noise", "koloskova2019decentralized"),),
    message=dp.ONE_STEP,
)
