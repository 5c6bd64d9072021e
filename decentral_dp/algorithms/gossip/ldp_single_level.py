"""Combine, then adapt: decentralised SGD in which agents gossip first and then take a local step.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With ỹ the released value, and a_i = 1 − |w_ii|, round t of agent i runs

    y_{i,t+1} = a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, ỹ_{i,t})

This is Algorithm 2 of Chen & Wang without its upper level (their Appendix G.3). `dp_dsgd` adapts first and then
combines.

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release has sensitivity λ_t·2C/N_t. No validation record is read, and x is never sent.

Without noise the agents converge to the common minimiser if λ_t → 0. With a constant step they converge to within O(λ)
of it if the g_i differ. One agent runs gradient descent.

Reference: Chen & Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed
Convergence Accuracy", ICML 2024, Appendix G.3.
"""

from __future__ import annotations

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel, OneLevelState


class LdpSingleLevel(OneLevel):
    """Lower level only: gossip first, then a local step (Chen & Wang, Appendix G.3)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        y = self.own_value(released.y, s.y)
        average = (1.0 - dataset.neighbour_weight) * y + neighbour_sum.y
        return s._replace(y=average - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, y))


ENTRY = dp.Entry(
    "ldp_single_level",
    LdpSingleLevel,
    (dp.Citation("Algorithm (its lower level alone, Appendix G.3)", "chen2024locally"),),
    display_name="D-SGD, combine then adapt",
    proved=True,
)
