"""MR-MTL: each agent keeps its own model, pulled towards the mean of the released models.

min_{y_1, …, y_m} Σ_i [g_i(x, y_i) + (μ/2) ‖y_i − ȳ‖²] at a constant x, with ȳ the mean of all models. With P the
symmetric mixing matrix (P v = a_i v_i + Σ_j w_ij v_j, a_i = 1 − |w_ii|) and ỹ the release of an agent, round t of agent
i runs

    y_{t+1} = ỹ_t − λ_t ∇_y g_i(x, ỹ_t) − min(1, λ_t μ) (ỹ_t − P ỹ_t)

λ is learning_rate and μ is strength. Every model is released with noise in every round, and the pull is a function of
released values. So a release carries one clipped mean at a public point: its sensitivity to one train record is
λ_t·2C/N_t, as in `dp_dsgd`. No validation record is read, and x is never sent.

If all entries of I + W are 1/m, P ỹ is the mean of all models, as in the paper. On another graph it is the mean of the
neighbours, and the regulariser is (μ/4) Σ_ij w_ij ‖y_i − y_j‖². With μ = 0 each agent trains by itself. With λ_t μ ≥ 1
the update is that of `ldp_single_level`, with one common model. A site uses its own model: scores per site evaluate y_i
on the records of agent i.

Reference: Z. Liu, S. Hu, Z. S. Wu, V. Smith, "On Privacy and Personalization in Cross-Silo Federated Learning", NeurIPS
2022, with one noisy step between two exchanges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import OneLevel, OneLevelState


@dataclass(frozen=True)
class MrMtl(OneLevel):
    """Personal models with noisy local steps, pulled towards their mean (MR-MTL; Liu, Hu, Wu & Smith, 2022)."""

    strength: float = dp.option("μ, pull of an agent's model towards the mean", default=0.1, at_least=0.0)

    # Every agent uses its own model instead of the mean.
    personal: ClassVar[bool] = True

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> dp.GossipSteps[OneLevelState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        apart = dataset.neighbour_weight * released.y - neighbour_sum.y
        gradient = dataset.batch(t).lower_grad_y(s.x, released.y)
        step = self.learning_rate(t)
        return OneLevelState(s.x, released.y - min(1.0, step * self.strength) * apart - step * gradient)


ENTRY = dp.Entry("mr_mtl", MrMtl, (dp.Citation("MR-MTL, here by gossip", "liu2022privacy"),), proved=True)
