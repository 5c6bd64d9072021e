"""MA-DSBO as printed: noise on every received vector, own values and all gradients at un-noised points.

The recursion is that of `ma_dsbo` as its paper has it, with S^{k+1} − S^k from a fresh batch for every k:

    z^{k+1} = P z^k − γ_t d^k,     s^{k+1} = H z^{k+1} − b,     d^{k+1} = P d^k + s^{k+1} − s^k

where P v = a_i v_i + Σ_j w_ij ṽ_j mixes the agent's own un-noised value with what it received. Nothing is proven of any
release that has met a record.

Reference: Chen & Wang, ICML 2024, Algorithm 3, where z and d share one schedule; after X. Chen, M. Huang, S. Ma,
K. Balasubramanian, ICML 2023.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.ma_dsbo import D_TERMS, U_TERMS, MaDsbo, State
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.printed.unreleased_tracking import track_unreleased
from decentral_dp.algorithms.protocol import Channel, Planned, Public
from decentral_dp.algorithms.sensitivity_rules import grid, nothing_proven
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset

_MET = (*U_TERMS, "lower_grad_y", *D_TERMS)


@final
class PrintedMaDsbo(PrintedGossip, MaDsbo):
    """The fields of `MaDsbo`, with own values that are never noised."""

    def init(self, dataset: LocalDataset) -> State:
        return super().init(dataset)._replace(r=dataset.untouched(dataset.public(0.0, dataset.p)))

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        a = 1.0 - dataset.neighbour_weight
        _, x_near = yield Gossip(x=s.x)
        y, y_near = yield from self.descend(t, dataset, s.x, s.y, s.y_near)

        at = dataset.batch(t, self.inner, kept=True)
        first = -at.upper_grad_y(s.x, y)

        def residual(k: int, z: Value) -> Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hvp(s.x, y, z) - at.upper_grad_y(s.x, y)

        start = dataset.public(0.0, dataset.q)
        z = yield from track_unreleased(("z", "d"), a, self.z(t), self.inverse, start, first, residual)

        at = dataset.batch(t, self.inner + self.inverse, kept=True)
        u = at.upper_grad_x(s.x, y) - at.lower_jvp(s.x, y, z)
        alpha = self.x(t)
        return State(
            x=a * s.x + x_near.x - alpha * s.r,
            y=y,
            z=z,
            r=(1.0 - alpha) * dataset.remembered(t, s.r) + alpha * u,
            y_near=y_near,
        )

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        families = {"x": "x", "y": "y", "d": "z", "z": "z"}
        return {c: Channel(family, p if c == "x" else q, _MET) for c, family in families.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite once a record was met, by a step that is not zero; x_1 has met none, z⁰ = 0 is always public.

        Exchange 0 sends x, 1 … K send y¹ … y^K, the last N send z and d of k = 0 … N−1. What is published at the end is
        noised once more, y and z included.
        """
        rounds, e, inner = public.rounds, self.releases_per_round, self.inner
        x_index = np.arange(1, rounds + 1) * e
        y_index, _ = grid(rounds, e, range(1, 1 + inner))
        d_index, _ = grid(rounds, e, range(1 + inner, e))
        last, alpha = x_index[-1:], self.x.scale > 0.0
        z_index = d_index.reshape(rounds, self.inverse)[:, 1:].reshape(-1)
        return {
            "x": nothing_proven(public, x_index, (np.arange(rounds) > 0) & alpha),
            "y": nothing_proven(public, np.concatenate([y_index, last]), self.y.scale > 0.0),
            "z": nothing_proven(public, np.concatenate([z_index, last]), self.z.scale > 0.0),
            "d": nothing_proven(public, d_index),
        }
