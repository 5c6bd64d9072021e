"""Exact diffusion: a local step, a public correction of the disagreement, and gossip.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|), ỹ the release of
an agent, and all g_i at the agent's mixture c, round t of agent i runs

    c_t = ½ ỹ_t + ½ (a_i ỹ_t + Σ_j w_ij ỹ_{j,t})
    ψ_{t+1} = c_t − λ_t ∇_y g_i(x, c_t)                                               adapt
    y_{t+1} = ψ_{t+1} + c_t − ψ̃_t,     ψ̃_{t+1} = ỹ_{t+1} − (c_t − ψ̃_t),     ψ̃_0 = ỹ_0    correct

λ is learning_rate.
ψ̃ is the released ψ, so the state has no noiseless value: the correction e_{t+1} = c_t − ψ̃_t satisfies
e_{t+1} = e_t + c_t − ỹ_t, e_0 = 0, a function of released values. Its mean over the network is 0, also with noise. The
paper mixes with (I + P)/2, as here, for a matrix without negative eigenvalues. With one step size for all agents and no
non-smooth term this recursion is also NIDS (Li, Shi & Yan, IEEE Transactions on Signal Processing 67(17), 2019) and D².

Noise protects one train record of agent i: y_{t+1} carries one clipped mean, at a public point, so its sensitivity is
λ_t·2C/N_t, as in `dp_dsgd`. No validation record is read, and x is never sent.

Without noise y approaches the common minimiser linearly with a constant step for any g_i; `dp_dsgd` stays O(λ) away
from it. With noise, e accumulates the disagreement that noise causes. The noise of a release then has a larger effect
than in `dp_dsgd`. Exact diffusion helps if the agents' distributions differ strongly. One agent runs gradient descent.

Reference: K. Yuan, B. Ying, X. Zhao, A. H. Sayed, "Exact Diffusion for Distributed Optimization and Learning, Part I:
Algorithm Development", IEEE Transactions on Signal Processing 67(3), 2019, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import CorrectedGossip, CorrectionState


@dataclass(frozen=True)
class ExactDiffusion(CorrectedGossip):
    """Exact diffusion: a local noisy step, corrected for disagreement, then gossip (Yuan et al., 2019)."""

    def step(self, t: int, dataset: dp.LocalDataset, s: CorrectionState) -> dp.GossipSteps[CorrectionState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        change = 0.5 * (neighbour_sum.y - dataset.neighbour_weight * released.y)
        proposal, correction = released.y + change, s.correction + change
        gradient = dataset.batch(t).lower_grad_y(s.x, proposal)
        return CorrectionState(s.x, proposal + correction - self.learning_rate(t) * gradient, correction)


ENTRY = dp.Entry(
    "exact_diffusion", ExactDiffusion, (dp.Citation("Exact diffusion, here with noise", "yuan2019exact"),), proved=True
)
