"""DLM: the decentralised linearised method of multipliers, an ADMM with one gradient step a round.

min_y (1/m) Σ_i g_i(x, y) at a constant x, with multipliers φ for agreement along edges. With P the symmetric mixing
matrix (P v = a_i v_i + Σ_j w_ij v_j, a_i = 1 − |w_ii|) and ỹ the release of an agent, round t of agent i runs

    φ_t = φ_{t−1} + c (ỹ_t − P ỹ_t),     φ_{−1} = 0
    y_{t+1} = ỹ_t − α (∇_y g_i(x, ỹ_t) + φ_t + c (ỹ_t − P ỹ_t)),     α = 1/(1/λ + 2c)

c is `penalty`, 1/λ is the paper's ρ and λ is learning_rate. I − P is the graph's Laplacian with the mixing weights, in
which the degree of an agent is at most 1. φ is a function of released values, so a release carries one clipped mean at
a public point: its sensitivity to one train record is α·2C/N_t. No validation record is read, and x is never sent.

Without noise y approaches the common minimiser linearly with a constant λ < 2/L, for any strongly convex g_i.
With noise, φ accumulates the disagreement that noise causes. One agent runs gradient descent.

Reference: Q. Ling, W. Shi, G. Wu, A. Ribeiro, "DLM: Decentralized Linearized Alternating Direction Method of
Multipliers", IEEE Transactions on Signal Processing 63(15), 2015, (9) and (10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import CorrectedGossip, CorrectionState


@dataclass(frozen=True)
class Dlm(CorrectedGossip):
    """Linearised ADMM on a graph, with a noisy gradient step (DLM; Ling, Shi, Wu & Ribeiro, 2015)."""

    penalty: float = dp.option("c, weight of disagreement", default=0.1, above=0.0)

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "step_size"}}

    def step_size(self, t: int) -> float:
        """Return the step size α of round t."""
        rate = self.learning_rate(t)
        return 1.0 / (1.0 / rate + 2.0 * self.penalty) if rate else 0.0

    def step(self, t: int, dataset: dp.LocalDataset, s: CorrectionState) -> dp.GossipSteps[CorrectionState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y)
        pull = self.penalty * (dataset.neighbour_weight * released.y - neighbour_sum.y)
        multiplier = s.correction + pull
        step = self.step_size(t)
        gradient = dataset.batch(t).lower_grad_y(s.x, released.y)
        return CorrectionState(s.x, released.y - step * (multiplier + pull) - step * gradient, multiplier)


ENTRY = dp.Entry("dlm", Dlm, (dp.Citation("DLM, here with noise", "ling2015dlm"),), display_name="DLM", proved=True)
