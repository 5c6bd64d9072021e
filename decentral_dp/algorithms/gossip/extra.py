"""EXTRA: gossip and a local step, corrected by the sum of all earlier disagreements.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With P the symmetric mixing matrix (P v = a_i v_i + Σ_j w_ij v_j,
a_i = 1 − |w_ii|) and ỹ the release of an agent, round t of agent i runs

    y_{t+1} = P ỹ_t + e_t − λ ∇_y g_i(x, ỹ_t)
    e_{t+1} = e_t + ½ (P ỹ_t − ỹ_t),     e_0 = 0

λ is learning_rate. This is the paper's recursion y_{t+2} = (I + P) y_{t+1} − ½ (I + P) y_t − λ (∇g(y_{t+1}) − ∇g(y_t)),
summed over rounds: e is a function of released values, and a release carries one gradient instead of a difference of
two. Its sensitivity to one train record is λ·2C/N_t, as in `ldp_single_level`. No validation record is read, and x is
never sent.

Without noise y approaches the common minimiser linearly with a constant step λ < 2 λ_min(½ (I + P))/L, for any g_i.
With noise, e accumulates the disagreement that noise causes. One agent runs gradient descent.

Reference: W. Shi, Q. Ling, G. Wu, W. Yin, "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus
Optimization", SIAM Journal on Optimization 25(2), 2015, (2.13) with W̃ = (I + W)/2.
"""

from __future__ import annotations

from dataclasses import dataclass

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import CorrectedGossip, CorrectionState


@dataclass(frozen=True)
class Extra(CorrectedGossip):
    """Gossip and a noisy local step, corrected by past disagreement (EXTRA; Shi, Ling, Wu & Yin, 2015)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: CorrectionState) -> dp.GossipSteps[CorrectionState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        average = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        gradient = dataset.batch(t).lower_grad_y(s.x, released.y)
        y = average + s.correction - self.learning_rate(t) * gradient
        return CorrectionState(s.x, y, s.correction + 0.5 * (average - released.y))


ENTRY = dp.Entry("extra", Extra, (dp.Citation("EXTRA, here with noise", "shi2015extra"),), proved=True)
