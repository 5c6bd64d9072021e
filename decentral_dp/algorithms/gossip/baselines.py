"""What collaboration and trust are worth is told by two programs without a network, both DP-SGD at one level.

`alone`: every agent by itself, on its own records; nobody sends anything.
    y_{i,t+1} = ỹ_{i,t} + β (ỹ_{i,t} − ỹ_{i,t−1}) − λ_t ∇_y g_i(x, ỹ_{i,t})
`central`: one server, whom all agents trust with their records. With g the mean over all records of all agents,
    y_{t+1} = ỹ_t + β (ỹ_t − ỹ_{t−1}) − λ_t ∇_y g(x, ỹ_t)

Both are `dp_dsgd` on another network than the scenario's: agents without links, or one agent that holds what was dealt
to all. ỹ is y with noise. One train record moves a release by λ_t·2C/N_t, with N_t the records of agent i for `alone`,
and those of all agents together for `central`, whose noise is added once to their pooled sum.

Both price every step, as if all of them were published. Without noise they are gradient descent, on g_i or on g.

Reference: M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016 (DP-SGD).
"""

from __future__ import annotations

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import DpDsgd


class Alone(DpDsgd):
    """Every agent by itself, without messages: DP-SGD on its own records."""


class Central(DpDsgd):
    """A server that all agents trust with their records: DP-SGD on the pooled records, noise once."""


_CITATIONS = (dp.Citation("DP-SGD", "abadi2016deep"),)
ENTRIES = (
    dp.Entry("alone", Alone, _CITATIONS, message=dp.ONE_STEP, network="isolated"),
    dp.Entry("central", Central, _CITATIONS, message=dp.ONE_STEP, network="pooled"),
)
