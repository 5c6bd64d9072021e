"""VRDSBO as printed: x, y, Z^F and Z^G are sent, with noise on what is received, and own values and series without.

The recursion is that of `vrdsbo`, with P v = a_i v_i + Σ_j w_ij ṽ_j of the agent's own un-noised value and what it
received; the Neumann series stays with the agent (`unreleased_series`). Nothing is proven.

Reference: H. Gao, B. Gu, M. T. Thai, AISTATS 2023 (VRDBO); noised as compared with in Chen & Wang, ICML 2024,
Appendix A.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.neumann import V_TERMS
from decentral_dp.algorithms.gossip.vrdsbo import U_TERMS, Vrdsbo
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.printed.unreleased_series import solve_unreleased
from decentral_dp.algorithms.protocol import Channel, Planned, Public
from decentral_dp.algorithms.sensitivity_rules import nothing_proven
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.participants.batch import Batch

_MET = (*U_TERMS, "lower_grad_y", *V_TERMS)


@final
class PrintedVrdsbo(PrintedGossip, Vrdsbo):
    """The fields of `Vrdsbo`, with own values and series that are never noised."""

    releases_per_round = 2

    def _series(self, at: Batch, x: Value, y: Value) -> Generator[Gossip, Reply, Value]:
        yield from ()  # Nothing of it is sent.
        return solve_unreleased([at] * self.inverse, x, y, self.smoothness)

    def _no_series(self, dataset: LocalDataset) -> Generator[Gossip, Reply, None]:
        yield from ()

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        sizes = {"x": ("x", p), "y": ("y", q), "zf": ("x", p), "zg": ("y", q)}
        return {c: Channel(family, width, _MET) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Exchange 0 sends x and y, the last Z; nothing is proven of either once a step has met a record."""
        ends = np.arange(1, public.rounds + 1) * self.releases_per_round
        met = {c: size.scale > 0.0 and self.averaging.scale > 0.0 for c, size in (("x", self.x), ("y", self.y))}
        trackers = nothing_proven(public, ends - 1)
        return {**{c: nothing_proven(public, ends, m) for c, m in met.items()}, "zf": trackers, "zg": trackers}
