"""SABA by a trusted coordinator: SOBA along directions with the variance reduction of SAGA.

Every agent numbers its records, and block k has the records with index k modulo K of all agents. Round t draws a block
i of the train records and a block j of the validation records, uniformly, by public draws that depend on t only. Let n
be the number of records of the split, D_k the sum over block k of a term's contributions at (x_t, y_t, z_t), divided by
n, and M_k the last D_k that was computed, 0 at first. The round replaces every mean of

    y_{t+1} = y_t − β_t ∇_y g
    z_{t+1} = z_t − γ_t (∇²_yy g z_t − ∇_y f)
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g z_t))

by K (D_i − M_i) + Σ_k M_k for terms of train records, and by the same expression with j for terms of validation
records. The regulariser's part is exact. α → x, β → y, γ → z, K → blocks and P → domain.

Without noise (`privacy.guarantee = "none"`) this is SABA with minibatches, a non-private baseline. With noise every D_i
is one Gaussian release, so a direction has about 2K times the noise of SOBA. The guarantee holds for every record of
every agent, against an adversary that observes all published values. The coordinator is trusted and receives clipped
sums. D_i has the sensitivity 2C/n of a mean over all records of its split, since a record is in one block, and both
splits have the same Σμ². All points are functions of released values.

Reference: M. Dagréou, P. Ablin, S. Vaiter, T. Moreau, "A Framework for Bilevel Optimization that Enables Stochastic and
Global Variance Reduction Algorithms", NeurIPS 2022, Algorithm 1 with the directions of SABA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.problems.protocol import TERMS


class SabaState(NamedTuple):
    """Public state: x (p,), y and z (q,), and M (K, width) of each term that reads records."""

    x: dp.Array
    y: dp.Array
    z: dp.Array
    memory: Mapping[str, dp.Array]


@dataclass(frozen=True)
class Saba:
    """Bilevel coordinator with a single loop and variance reduction (SABA; Dagréou et al., 2022)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y along the lower gradient")
    z: dp.StepSize = dp.option("γ, of z, the product of inverse Hessian and gradient")
    blocks: int = dp.option("K, blocks of the records, of which each round reads one", unit="blocks", at_least=1)

    QUERIES: ClassVar[tuple[str, ...]] = TERMS

    def init(self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array) -> SabaState:
        memory = {term: np.zeros((self.blocks, context.width(term))) for term in TERMS if context.reads(term)}
        return SabaState(x, y, np.zeros_like(y), memory)

    def step(self, t: int, context: dp.CoordinatorContext, s: SabaState) -> dp.CoordinatorSteps[SabaState]:
        train, validation = np.random.default_rng(t).integers(self.blocks, size=2).tolist()
        block = {term: train if context.split_of(term) == "train" else validation for term in s.memory}
        questions = {term: context.question(term, s.x, s.y, s.z, 1.0) for term in s.memory}
        blocks = {term: q._replace(block=(block[term], self.blocks)) for term, q in questions.items()}
        released = (yield dp.Release(**(yield dp.Ask(**blocks)))).released
        d = {term: context.public(term, s.x, s.y, s.z, t) for term in TERMS}
        memory = {}
        for term, table in s.memory.items():
            new = released[term][0]
            d[term] = d[term] + self.blocks * (new - table[block[term]]) + table.sum(axis=0)
            memory[term] = table.copy()
            memory[term][block[term]] = new
        return SabaState(
            x=context.domain.project(s.x - self.x(t) * (d["upper_grad_x"] - d["lower_jvp"])),
            y=s.y - self.y(t) * d["lower_grad_y"],
            z=s.z - self.z(t) * (d["lower_hvp"] - d["upper_grad_y"]),
            memory=memory,
        )


ENTRY = dp.Entry(
    "saba",
    Saba,
    (dp.Citation("SABA, here with optional noise", "dagreou2022framework"),),
    example={"clip": "clip.y = 1.0\nclip.z = 1.0"},
    display_name="SABA",
    proved=True,
)
