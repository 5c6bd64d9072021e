"""One level: min_y (1/m) Σ_i g_i(x, y) at a constant x, by gossip and local gradient steps.

With ỹ what an agent released, a_i = 1 − |w_ii|, and gradients at the agent's own released point:

`ldp_single_level` (combine, then adapt: Algorithm 2 of Chen & Wang without its upper level, their Appendix G.3)
    y_{i,t+1} = a_i ỹ_{i,t} + Σ_j w_ij ỹ_{j,t} − λ_t ∇_y g_i(x, ỹ_{i,t})
`dp_dsgd` (adapt, then combine: decentralised SGD, each local step noised before it is sent)
    y_{i,t+1} = c_{i,t} − λ_t ∇_y g_i(x, c_{i,t}),      c_{i,t+1} = a_i ỹ_{i,t+1} + Σ_j w_ij ỹ_{j,t+1}

Noise protects one train record of agent i: given all messages only the clipped mean gradient depends on it, at a public
point, so a release moves by λ_t·2C/N_t. No validation record is read, and x is never sent.

Without noise both converge to the common minimiser if λ_t → 0; with a constant step to within O(λ) of it where the g_i
differ. One agent runs gradient descent.

References: Chen & Wang, "Locally Differentially Private Decentralized Stochastic Bilevel Optimization with Guaranteed
Convergence Accuracy", ICML 2024, Appendix G.3; X. Lian et al., "Can Decentralized Algorithms Outperform Centralized
Algorithms?", NeurIPS 2017 (decentralised SGD).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import option
from decentral_dp.algorithms.protocol import Algorithm, Channel, Planned, Public, StepSize
from decentral_dp.algorithms.references import CHEN_WANG, ONE_STEP, Citation, Work
from decentral_dp.algorithms.sensitivity_rules import Use, free_release, released
from decentral_dp.bounded import Array
from decentral_dp.exchange import Gossip, Reply, Value
from decentral_dp.participants.agents import LocalDataset


class State(NamedTuple):
    """x: (b, p), constant and public. y: (b, q): before noise."""

    x: Array
    y: Value


@dataclass(frozen=True)
class OneLevel(Algorithm, Protocol):
    """Gossip on y alone, at an x that is published as it is. y: step size λ."""

    y: StepSize = option("λ, of y along the lower gradient")

    def init(self, dataset: LocalDataset) -> State:
        return State(dataset.start("x", self.start), dataset.start("y", self.start))

    def releases(self, p: int, q: int) -> dict[str, Channel]:
        """x is published as it is, y is sent."""
        return {"x": Channel("x", p, ()), "y": Channel("y", q, ("lower_grad_y",))}

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        """Release t + 1 of y is λ_t times a clipped mean; x is published as it is."""
        indices = np.arange(1, public.rounds + 1)
        use = Use("lower_grad_y", self.y.series(public.rounds), indices - 1)
        return {"x": free_release(public, indices[-1:]), "y": released(public, indices, [use])}


class LdpSingleLevel(OneLevel):
    """The lower level alone: gossip first, then a local step (Chen & Wang, Appendix G.3)."""

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        released, neighbour_sum = yield Gossip(y=s.y)
        mixed = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return s._replace(y=mixed - self.y(t) * dataset.batch(t).lower_grad_y(s.x, released.y))


class DpDsgd(OneLevel):
    """Decentralised DP-SGD on the lower level: a local noised step first, then gossip."""

    def step(self, t: int, dataset: LocalDataset, s: State) -> Generator[Gossip, Reply, State]:
        released, neighbour_sum = yield Gossip(y=s.y)
        combined = (1.0 - dataset.neighbour_weight) * released.y + neighbour_sum.y
        return s._replace(y=combined - self.y(t) * dataset.batch(t).lower_grad_y(s.x, combined))


DSGD = Work(
    "lian2017can",
    "Lian, Xiangru and others",
    "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for Decentralized Parallel "
    "Stochastic Gradient Descent",
    2017,
    "NeurIPS 2017",
    "Advances in Neural Information Processing Systems",
    {"volume": "30"},
)
ENTRIES = (
    Entry(
        "ldp_single_level",
        LdpSingleLevel,
        (Citation("Algorithm (its lower level alone, Appendix G.3)", CHEN_WANG),),
        message=ONE_STEP,
    ),
    Entry(
        "dp_dsgd",
        DpDsgd,
        (Citation("Decentralised SGD, here with noise", DSGD),),
        message=ONE_STEP,
    ),
)
