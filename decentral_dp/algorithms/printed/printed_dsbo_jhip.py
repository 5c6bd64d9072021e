"""DSBO-JHIP as printed: own values un-noised, noise on every received vector and matrix; h is not sent.

The recursion is that of `dsbo_jhip` as its paper has it, with S^{k+1} − S^k from a fresh batch for every k:

    Z^{k+1} = P Z^k − γ_t D^k,     S^{k+1} = H_i Z^{k+1} − J_iᵀ,     D^{k+1} = P D^k + S^{k+1} − S^k

where P V = a_i V_i + Σ_j w_ij Ṽ_j mixes the agent's own un-noised value with what it received, and ∇_y f_i multiplies
(Z^N)ᵀ as it is. Nothing is proven of any release that has met a record.

Reference: X. Chen, M. Huang, S. Ma, "Decentralized Bilevel Optimization", arXiv:2206.05670, 2022; noised on every
message as in Chen & Wang, ICML 2024, Algorithm 3.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.dsbo_jhip import DsboJhip, State, transposed_times
from decentral_dp.algorithms.printed.protocol import PrintedGossip
from decentral_dp.algorithms.printed.unreleased_tracking import track_unreleased
from decentral_dp.algorithms.protocol import Channel, Planned, Public
from decentral_dp.algorithms.sensitivity_rules import fading, free_release, grid
from decentral_dp.bounded import SPLITS, Array
from decentral_dp.constants.bounded_matrices import transposed, unproven
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset


@final
class PrintedDsboJhip(PrintedGossip, DsboJhip):
    """The fields of `DsboJhip`, with own values that are never noised."""

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        a, p, q = 1.0 - dataset.neighbour_weight, dataset.p, dataset.q
        _, x_near = yield Gossip(x=s.x)
        y, y_near = yield from self.descend(t, dataset, s.x, s.y, s.y_near)

        at = dataset.batch(t, self.inner, kept=True)
        upper = at.upper_grad_y(s.x, y)
        first = -transposed(at.lower_jacobian(s.x, y), p, q)

        def residual(k: int, z: Value) -> Value:
            at = dataset.batch(t, self.inner + k, kept=True)
            return at.lower_hessian_product(s.x, y, z) - transposed(at.lower_jacobian(s.x, y), p, q)

        start = dataset.public(0.0, q * p)
        z = yield from track_unreleased(("Z", "D"), a, self.z(t), self.inverse, start, first, residual)

        at = dataset.batch(t, self.inner + self.inverse, kept=True)
        direction = at.upper_grad_x(s.x, y) - unproven(transposed_times, z, upper)
        return State(x=a * s.x + x_near.x - self.x(t) * direction, y=y, y_near=y_near)

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        tracked = ("lower_jacobian",) if self.inverse == 1 else ("lower_jacobian", "lower_hessian_product")
        met = ("upper_grad_x", "lower_grad_y", *tracked, "upper_grad_y")
        sizes = {"x": ("x", p), "y": ("y", q), "Z": ("z", q * p), "D": ("z", q * p)}
        return {c: Channel(family, width, met) for c, (family, width) in sizes.items()}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Infinite as soon as a record was met; a step of zero meets none, and Z⁰ = 0 is public in every round.

        Exchange 0 sends x, 1 … K send y¹ … y^K, the last N send Z and D of k = 0 … N−1. What is published at the end is
        noised once more, y included.
        """
        rounds, e = public.rounds, self.releases_per_round
        keep = 1.0 - public.neighbour_weight

        def met(step: Array) -> Array:
            return np.where(np.broadcast_to(step[:, None], (step.size, keep.size)) > 0.0, np.inf, 0.0)

        y_index, y_t = grid(rounds, e, range(1, 1 + self.inner))
        y = fading(met(self.y.series(rounds)[y_t]), np.broadcast_to(keep, (y_t.size, keep.size)))
        x = fading(met(self.x.series(rounds)), np.broadcast_to(keep, (rounds, keep.size)))
        z_index, z_t = grid(rounds, e, range(2 + self.inner, e))
        d_index, d_t = grid(rounds, e, range(1 + self.inner, e))
        x_index = np.arange(1, rounds + 1) * e
        return {
            "x": _private(x, x_index),
            "y": _private(np.concatenate([y, y[-1:]]), np.concatenate([y_index, x_index[-1:]])),
            "Z": _private(met(self.z.series(rounds)[z_t]), z_index) if z_index.size else free_release(public, d_index),
            "D": _private(np.full((d_t.size, keep.size), np.inf), d_index),
        }


def _private(sensitivity: Array, index: NDArray[np.int64]) -> Planned:
    """Releases of a private state, of which nothing else is known."""
    return Planned(
        dict.fromkeys(SPLITS, sensitivity),
        dict.fromkeys(SPLITS, np.ones_like(sensitivity)),
        sensitivity + np.inf,
        index,
    )
