"""SPDB as printed: noise on what is received only, so that the multipliers add to zero no longer, and drift.

The steps are those of `spdb`, at the agent's own un-noised x and y, with the Neumann series kept by the agent
(`unreleased_series`). y is published, and read by nobody. Nothing is proven.

Reference: after S. Lu et al., "Decentralized Bilevel Optimization for Personalized Client Learning", ICASSP 2022
(SPDB); see `spdb` on what is known of it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.neumann import V_TERMS
from decentral_dp.algorithms.gossip.spdb import U_TERMS, Spdb, State
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.printed.unreleased_series import solve_unreleased
from decentral_dp.algorithms.protocol import Channel, Planned, Public
from decentral_dp.algorithms.sensitivity_rules import nothing_proven
from decentral_dp.exchange import Gossip, Reply
from decentral_dp.participants.agents import LocalDataset

_MET = (*U_TERMS, "lower_grad_y", *V_TERMS)


@final
class PrintedSpdb(PrintedGossip, Spdb):
    """The fields of `Spdb`, with own values and series that are never noised."""

    releases_per_round = 1

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y)
        distance = dataset.neighbour_weight * s.x - neighbour_sum.x
        multiplier = s.multiplier + self.dual(t) * distance

        batches = [dataset.batch(t, k) for k in range(self.inverse + 1)]
        w = solve_unreleased(batches[:-1], s.x, s.y, self.smoothness)
        at = batches[-1]
        u = at.upper_grad_x(s.x, s.y) - at.lower_jvp(s.x, s.y, w)
        return State(
            x=s.x - self.x(t) * (u + multiplier + self.penalty * distance),
            y=s.y - self.y(t) * at.lower_grad_y(s.x, s.y),
            multiplier=multiplier,
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return {"x": Channel("x", p, _MET), "y": Channel("y", q, _MET)}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """One exchange sends x and y; nothing is proven of either once its step has met a record."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        return {c: nothing_proven(public, ends, step.scale > 0.0) for c, step in (("x", self.x), ("y", self.y))}
