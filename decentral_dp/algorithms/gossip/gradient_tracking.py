"""Gradient tracking: every agent follows the network's mean gradient, not its own.

min_y (1/m) Σ_i g_i(x, y) at a constant x. With W the mixing matrix (zero row sums, a_i = 1 − |w_ii|),
P v = a_i v_i + Σ_j w_ij v_j, s̃ the release of the tracker s, and g̃_0 = s_0 = 0, round t of agent i runs

    y_{t+1} = P (y_t − λ_t s̃_t)
    s_{t+1} = P s̃_t + ∇_y g_i(x, y_{t+1}) − g̃_t,     g̃_{t+1} = s̃_{t+1} − P s̃_t + g̃_t

λ is learning_rate.
g̃ is the released gradient, so the state has no noiseless value: s_{t+1} = r_{t+1} + ∇_y g_i(x, y_{t+1})
with r_{t+1} = r_t + P s̃_t − s̃_t, r_0 = 0, a function of released values. y is also such a function and is sent
without noise. Without noise this is the recursion in its adapt-then-combine form; round 0 only reads the first
gradient.

Noise protects one train record of agent i: s_{t+1} carries one clipped mean, at a public point, so its sensitivity is
2C/N_t. A difference of two noiseless means would have sensitivity 4C/N_t, and its noise would accumulate. Here the
network's mean of s̃_t equals the mean of the g̃_t, without earlier noise. No validation record is read, x is never
sent, and the gradient at the last y is not released.

Without noise, and on a fixed graph, y approaches the common minimiser linearly with a constant step for any g_i. If
messages are lost, the mean of s̃ differs from that of the g̃. One agent runs gradient descent.

References: A. Nedić, A. Olshevsky, W. Shi, "Achieving Geometric Convergence for Distributed Optimization over
Time-Varying Graphs", SIAM Journal on Optimization 27(4), 2017 (DIGing); arXiv:2501.06793 (noise on y and s, another
schedule, directed graphs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel


class GradientTrackingState(NamedTuple):
    """State of the agents.

    Args:
        x: constant upper variable, (b, p).
        y: public iterate, (b, q).
        s: tracker before noise, (b, q).
        reference: public part r of s, (b, q).
    """

    x: dp.Array
    y: dp.Array
    s: dp.Value
    reference: dp.Array


@dataclass(frozen=True)
class GradientTracking(OneLevel):
    """Gradient tracking: agents whose records differ descend along the mean gradient (Nedić, Olshevsky & Shi, 2017)."""

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {}, "s": {"lower_grad_y": 1.0}}

    def init(self, dataset: dp.LocalDataset) -> GradientTrackingState:
        zero = dataset.public(0.0, dataset.q)
        return GradientTrackingState(*self.starts(dataset), zero, zero)

    def step(self, t: int, dataset: dp.LocalDataset, s: GradientTrackingState) -> dp.GossipSteps[GradientTrackingState]:
        a = 1.0 - dataset.neighbour_weight
        released, neighbour_sum = yield dp.Gossip(y=s.y, s=s.s)
        average = a * released.s + neighbour_sum.s
        y = a * released.y + neighbour_sum.y - self.learning_rate(t) * average
        reference = s.reference + average - released.s
        return GradientTrackingState(s.x, y, reference + dataset.batch(t).lower_grad_y(s.x, y), reference)


ENTRY = dp.Entry(
    "gradient_tracking",
    GradientTracking,
    (dp.Citation("Gradient tracking, here with noise", "nedic2017achieving"),),
    display_name="gradient tracking",
    proved=True,
)
