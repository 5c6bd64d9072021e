"""One level as printed: everything un-noised except what is received.

`ldp_single_level`     y_{i,t+1} = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, y_{i,t})
`dp_dsgd`              y_{i,t+1} = c − λ_t ∇_y g_i(x, c),     c = a_i y_{i,t} + Σ_j w_ij ỹ_{j,t}

Nothing can be proven without Lipschitz constants.

References: Chen & Wang, ICML 2024, Appendix G.3; X. Lian et al., NeurIPS 2017 (decentralised SGD).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.single_level import State, sent_channels
from decentral_dp.algorithms.protocol import Channel, Planned, Public, StepSize
from decentral_dp.algorithms.sensitivity_rules import free_release, nothing_proven
from decentral_dp.exchange import Gossip, Reply
from decentral_dp.participants.agents import LocalDataset


@final
@dataclass(frozen=True)
class PrintedLdpSingleLevel:
    """y: step size λ. start: constants, 0 where absent."""

    y: StepSize
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "printed"
    channels = ("x", "y")
    releases_per_round = 1
    central = False

    def init(self, dataset: LocalDataset) -> State:
        return _begin(dataset, self.start)

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(y=s.y)
        mixed = (1.0 - dataset.neighbour_weight) * s.y + neighbour_sum.y
        return s._replace(y=mixed - self.y(t) * dataset.batch(t).lower_grad_y(s.x, s.y))

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return sent_channels(p, q)

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return _planned(self.y, public)


@final
@dataclass(frozen=True)
class PrintedDpDsgd:
    """y: step size λ. start: constants, 0 where absent."""

    y: StepSize
    start: Mapping[str, float] = field(default_factory=dict)

    protocol = "printed"
    channels = ("x", "y")
    releases_per_round = 1
    central = False

    def init(self, dataset: LocalDataset) -> State:
        return _begin(dataset, self.start)

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * s.y + neighbour_sum.y
        return s._replace(y=combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return sent_channels(p, q)

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return _planned(self.y, public)


def _begin(dataset: LocalDataset, start: Mapping[str, float]) -> State:
    return State(dataset.start("x", start), dataset.untouched(dataset.start("y", start)))


def _planned(step: StepSize, public: Public) -> dict[str, Planned]:
    """x is published as it is; of y nothing is proven once a step has met a record."""
    indices = np.arange(1, public.rounds + 1)
    return {"x": free_release(public, indices[-1:]), "y": nothing_proven(public, indices, step.scale > 0.0)}
