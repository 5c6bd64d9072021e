"""One level as printed: everything un-noised except what is received.

`ldp_single_level`     y_{i,t+1} = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, y_{i,t})
`dp_dsgd`              y_{i,t+1} = c − λ_t ∇_y g_i(x, c),     c = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t}

Nothing can be proven without Lipschitz constants.

References: Chen & Wang, ICML 2024, Appendix G.3; X. Lian et al., NeurIPS 2017 (decentralised SGD).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel, State
from decentral_dp.algorithms.protocol import Planned, Public
from decentral_dp.algorithms.sensitivity_rules import free_release, nothing_proven
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset


def _begin(program: LdpSingleLevel | DpDsgd, dataset: LocalDataset) -> State:
    return State(dataset.start("x", program.start), dataset.untouched(dataset.start("y", program.start)))


def _mixed(dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, Value]:
    """a_i y_i + Σ_j w_ij ỹ_j, with the agent's own un-noised value."""
    _, neighbour_sum = yield Gossip(y=s.y)
    mixed: Value = (1.0 - dataset.neighbour_weight) * s.y + neighbour_sum.y
    return mixed


def _planned(program: LdpSingleLevel | DpDsgd, public: Public) -> dict[str, Planned]:
    """x is published as it is; of y nothing is proven once a step has met a record."""
    indices = np.arange(1, public.rounds + 1)
    return {"x": free_release(public, indices[-1:]), "y": nothing_proven(public, indices, program.y.scale > 0.0)}


@final
class PrintedLdpSingleLevel(LdpSingleLevel):
    """The fields of `LdpSingleLevel`, with an own y that is never noised."""

    protocol = "printed"

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        mixed = yield from _mixed(dataset, s)
        return s._replace(y=mixed - self.y(t) * dataset.batch(t).lower_grad_y(s.x, s.y))

    init, planned_releases = _begin, _planned


@final
class PrintedDpDsgd(DpDsgd):
    """The fields of `DpDsgd`, with an own y that is never noised."""

    protocol = "printed"

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        combined = yield from _mixed(dataset, s)
        return s._replace(y=combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))

    init, planned_releases = _begin, _planned
