"""LDP-DSBO as printed: noise on what is received, and everything that is an agent's own without.

With W the mixing matrix, a_i = 1 − |w_ii|, ṽ what an agent released, and all gradients at the agent's un-noised point:

    v_{i,t+1} = a_i v_{i,t} + Σ_j w_ij ṽ_{j,t} − λ_{v,t} · (the step of v in `ldp_dsbo`)            v = x, y, z

One record moves a private state by what a recursion in the Lipschitz constants of all terms says
(`privacy.private_state`). It is infinite unless those exist, which for hyper-parameter problems needs z and y boxed and
x capped.

Reference: Z. Chen and Y. Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with
Guaranteed Convergence Accuracy", ICML 2024, PMLR 235, Algorithms 1 and 2.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import final

import numpy as np

from decentral_dp.algorithms.gossip.ldp_dsbo import State, step_along
from decentral_dp.algorithms.protocol import Algorithm, Channel, Planned, Public, StepSize
from decentral_dp.bounded import CHANNELS, SPLITS, Array, Split
from decentral_dp.errors import InputError
from decentral_dp.exchange import Gossip, Reply
from decentral_dp.participants.agents import LocalDataset
from decentral_dp.privacy.accounting.private_state import private_state
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS


@final
@dataclass(frozen=True)
class PrintedLdpDsbo(Algorithm):
    """x, y, z: step sizes λ. start: constants, 0 where absent."""

    x: StepSize
    y: StepSize
    z: StepSize

    protocol = "printed"
    channels = CHANNELS

    def init(self, dataset: LocalDataset) -> State:
        # A private state remembers every batch it met, so it is bounded from the start.
        return State(*(dataset.untouched(dataset.start(c, self.start)) for c in CHANNELS))

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        _, neighbour_sum = yield Gossip(x=s.x, y=s.y, z=s.z)
        d = dataset.oracle(t, s.x, s.y, s.z)
        return step_along((self.x(t), self.y(t), self.z(t)), 1.0 - dataset.neighbour_weight, s, neighbour_sum, d)

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        return {c: Channel(c, p if c == "x" else q, tuple(TERMS)) for c in CHANNELS}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """The recursion of the private state, or infinite from the first record on where no constants are known."""
        shares = (public.rounds, public.neighbour_weight.size)
        steps = {c: getattr(self, c) for c in CHANNELS}
        still = [c for c in CHANNELS if steps[c].scale == 0.0]
        if public.constants is None and still:
            # What one record reaches, and when, would be another recursion for every set of variables that rest.
            raise InputError(
                f"algorithm.{still[0]}.scale: got 0, but without problem constants the printed form is priced for "
                "steps above 0 only. Give a step size above 0."
            )
        out: dict[str, dict[Split, Array]] = {c: {} for c in CHANNELS}
        for split in SPLITS:
            if public.constants is None:
                # After one round only the channels that read such records have met one; then it is in everything.
                met = {
                    c: any(k == split and CLIP_OF_TERM[t] == c for t, k in public.reads_records.items())
                    for c in CHANNELS
                }
                for c in CHANNELS:
                    out[c][split] = np.full(shares, np.inf if any(met.values()) else 0.0)
                    out[c][split][0] = np.inf if met[c] else 0.0
                continue
            change = private_state(
                public.constants, steps, public.neighbour_weight, public.averaged, public.rounds, split
            )
            for v, c in enumerate(CHANNELS):
                out[c][split] = change[1:, :, v]
        ones, unbounded = np.ones(shares), np.full(shares, np.inf)
        index = np.arange(1, public.rounds + 1)
        return {c: Planned(out[c], dict.fromkeys(SPLITS, ones), unbounded, index) for c in CHANNELS}
