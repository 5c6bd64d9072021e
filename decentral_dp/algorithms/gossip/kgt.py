"""K-GT: K local steps between two exchanges, corrected by the network's mean change (K-step gradient tracking).

min_y (1/m) Σ_i g_i(x, y) at a constant x. With P the symmetric mixing matrix (P v = a_i v_i + Σ_j w_ij v_j,
a_i = 1 − |w_ii|), ỹ the release of an agent, s the point where its local steps start and c its correction, round t of
agent i runs

    y_{t+1} = ỹ_t − λ_t (∇_y g_i(x, ỹ_t) + c)                                        a local step

and if t > 0 is a multiple of K, agents first exchange ỹ_t and s:

    z = (s − ỹ_t)/Λ,     c ← c + P z − z,     s ← P ỹ_t,     ỹ_t ← s                   an exchange

with Λ the sum of the last K step sizes λ (learning_rate) and c = 0 at the start. Every local step starts at a released
value: the agent releases it to itself, with noise that is in the ledger and in ε, and sends nothing. So a release
carries one clipped mean at a public point: its sensitivity to one train record is λ_t·2C/N_t, and s, c and z are
functions of released values. Only exchanges count as messages. No validation record is read, and x is never sent.

Without noise y approaches the common minimiser linearly with a constant step for any g_i, with K times fewer messages
than `gradient_tracking`. The mean of c is 0, also with noise. One agent runs gradient descent.

Reference: Y. Liu, T. Lin, A. Koloskova, S. U. Stich, "Decentralized Gradient Tracking with Local Steps", Optimization
Methods and Software, 2024, Algorithm 1 with server step 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel


class KgtState(NamedTuple):
    """State of the agents.

    Args:
        x: constant upper variable, (b, p).
        y: model before noise, (b, q).
        start: public start s of the local steps, (b, q).
        correction: public correction c, (b, q).
    """

    x: dp.Array
    y: dp.Value
    start: dp.Array
    correction: dp.Array


@dataclass(frozen=True)
class Kgt(OneLevel):
    """Noisy local steps between exchanges, corrected for heterogeneity (K-GT; Liu, Lin, Koloskova & Stich, 2024)."""

    period: int = dp.option("K, rounds from one exchange to the next", default=5, unit="rounds", at_least=1)

    RELEASES: ClassVar[Mapping[str, Mapping[str, str | float]]] = {"y": {"lower_grad_y": "learning_rate"}, "start": {}}
    WIDTHS: ClassVar[Mapping[str, int | str]] = {"start": "q"}

    @property
    def has_local_rounds(self) -> bool:
        return True

    def sends(self, t: int) -> bool:
        return t > 0 and t % self.period == 0

    def init(self, dataset: dp.LocalDataset) -> KgtState:
        x, y = self.starts(dataset)
        return KgtState(x, y, y, dataset.public(0.0, dataset.q))

    def step(self, t: int, dataset: dp.LocalDataset, s: KgtState) -> dp.GossipSteps[KgtState]:
        released, neighbour_sum = yield dp.Gossip(y=s.y, start=s.start)
        y, start, correction = released.y, s.start, s.correction
        if self.sends(t):
            own_weight = 1.0 - dataset.neighbour_weight
            change, sums = released.start - y, neighbour_sum.start - neighbour_sum.y
            # Steps of size 0 make no change.
            length = sum(map(self.learning_rate, range(t - self.period, t))) or 1.0
            correction = correction + (own_weight * change + sums - change) / length
            start = y = own_weight * y + neighbour_sum.y
        gradient = dataset.batch(t).lower_grad_y(s.x, y)
        step = self.learning_rate(t)
        return KgtState(s.x, y - step * correction - step * gradient, start, correction)


ENTRY = dp.Entry(
    "kgt", Kgt, (dp.Citation("K-GT, here with noise", "liu2024decentralized"),), display_name="K-GT", proved=True
)
