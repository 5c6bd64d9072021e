"""GBDSBO as printed: own values un-noised, noise on every received vector and matrix.

The recursion is that of `gbdsbo`, with P v = a_i v_i + Σ_j w_ij ṽ_j of the agent's own un-noised value and what it
received, and all gradients at un-noised points. Nothing is proven of any release that has met a record; x_1 has met
none.

Reference: S. Yang, X. Zhang, M. Wang, "Decentralized Gossip-Based Stochastic Bilevel Optimization over Communication
Networks", NeurIPS 2022; noised on every message as in Chen & Wang, ICML 2024, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.gbdsbo import Gbdsbo, State, correction
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.protocol import Channel, Planned, Public
from decentral_dp.algorithms.sensitivity_rules import before, fading
from decentral_dp.bounded import SPLITS, Array
from decentral_dp.constants.bounded_matrices import unproven
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset


@final
class PrintedGbdsbo(PrintedGossip, Gbdsbo):
    """The fields of `Gbdsbo`, with own values that are never noised."""

    def init(self, dataset: LocalDataset) -> State:
        x, y = self.starts(dataset)
        widths = {c: channel.width for c, channel in self.releases(dataset.p, dataset.q).items() if c in self.terms}
        return State(x, y, {c: dataset.untouched(dataset.public(0.0, width)) for c, width in widths.items()})

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y, **s.estimates)
        own: dict[str, Value] = {"x": s.x, "y": s.y, **s.estimates}
        a, beta = 1.0 - dataset.neighbour_weight, self.averaging(t)
        mixed = {c: a * v + neighbour_sum[c] for c, v in own.items()}

        batch = dataset.batch(t, kept=True)
        seen = {
            "s": batch.upper_grad_x(s.x, s.y),
            "h": batch.upper_grad_y(s.x, s.y),
            "u": batch.lower_jacobian(s.x, s.y),
        }
        hessians = [f"v{j}" for j in range(1, self.inverse + 1)]
        for j, c in enumerate(hessians):
            seen[c] = dataset.batch(t, 1 + j, kept=True).lower_hessian(s.x, s.y)

        def product(u: Array, h: Array, *v: Array) -> Array:
            return correction(self.smoothness, u, h, *v)

        by_y = unproven(product, own["u"], own["h"], *(own[c] for c in hessians))
        return State(
            x=mixed["x"] - self.x(t) * (own["s"] - by_y),
            y=mixed["y"] - self.y(t) * batch.lower_grad_y(s.x, s.y),
            estimates={c: (1.0 - beta) * mixed[c] + beta * seen[c] for c in self.terms},
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        sent = super().releases(p, q)
        met = tuple(dict.fromkeys(t for channel in sent.values() for t in channel.terms))
        return {c: channel._replace(terms=met) for c, channel in sent.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite as soon as a record was met; a step of zero meets none.

        x and y are released with the indices 1 … T, the estimates are sent for the last time with T − 1.
        """
        index = np.arange(1, public.rounds + 1)
        shape = (public.rounds, public.neighbour_weight.size)
        own = np.broadcast_to(1.0 - public.neighbour_weight, shape)
        x, y, beta = (
            np.broadcast_to(s.series(public.rounds)[:, None], shape) for s in (self.x, self.y, self.averaging)
        )

        def accumulated(step: Array, keep: Array) -> Array:
            return fading(np.where(step > 0.0, np.inf, 0.0), keep)

        estimates = accumulated(beta, own * (1.0 - beta))
        sensitivity = {"x": accumulated(x * np.minimum(before(estimates), 1.0), own), "y": accumulated(y, own)}
        if public.rounds > 1:
            sensitivity |= dict.fromkeys(self.terms, estimates[:-1])
        return {
            c: Planned(dict.fromkeys(SPLITS, d), dict.fromkeys(SPLITS, np.ones_like(d)), d + np.inf, index[: len(d)])
            for c, d in sensitivity.items()
        }
