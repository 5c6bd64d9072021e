"""SOBA by a trusted coordinator: one step of x, y and z a round, each along a mean over all records.

With f and g the means over the records of all agents, round t runs

    y_{t+1} = y_t − β_t ∇_y g
    z_{t+1} = z_t − γ_t (∇²_yy g z_t − ∇_y f)
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g z_t))

at (x_t, y_t, z_t), with α → x, β → y, γ → z and P → domain. If `rate` is below 1, the means are over Poisson samples.

Without noise (`privacy.guarantee = "none"`) this is SOBA as published, a non-private baseline. With noise every mean of
clipped terms is one Gaussian release. The guarantee holds for every record of every agent, against an adversary that
observes all published values. The coordinator is trusted and receives clipped sums. The sensitivity of a mean is 2C/n_t
over train records and 2C/n_v over validation records, and both splits have the same Σμ². All points are functions of
released values, and the regulariser's part is exact.

Reference: M. Dagréou, P. Ablin, S. Vaiter, T. Moreau, "A Framework for Bilevel Optimization that Enables Stochastic and
Global Variance Reduction Algorithms", NeurIPS 2022, Algorithm 1 with plain stochastic directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.nested_descent import BilevelState
from decentral_dp.problems.protocol import TERMS


@dataclass(frozen=True)
class Soba:
    """Bilevel coordinator with a single loop, private or not (SOBA; Dagréou et al., 2022)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y along the lower gradient")
    z: dp.StepSize = dp.option("γ, of z, the product of inverse Hessian and gradient")
    rate: float = dp.sampling_rate()

    QUERIES: ClassVar[tuple[str, ...]] = TERMS

    def init(self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array) -> BilevelState:
        return BilevelState(x, y, np.zeros_like(y))

    def step(self, t: int, context: dp.CoordinatorContext, s: BilevelState) -> dp.CoordinatorSteps[BilevelState]:
        d = yield from dp.release_gradients(t, context, TERMS, s.x, s.y, self.rate, s.z)
        return BilevelState(
            x=context.domain.project(s.x - self.x(t) * (d.upper_grad_x - d.lower_jvp)),
            y=s.y - self.y(t) * d.lower_grad_y,
            z=s.z - self.z(t) * (d.lower_hvp - d.upper_grad_y),
        )


ENTRY = dp.Entry(
    "soba",
    Soba,
    (dp.Citation("SOBA, here with optional noise", "dagreou2022framework"),),
    example={"clip": "clip.y = 1.0\nclip.z = 1.0"},
    display_name="SOBA",
    proved=True,
)
