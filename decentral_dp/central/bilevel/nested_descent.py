"""Nested bilevel descent of a trusted coordinator: the rounds and releases that stocBiO and AmIGO share.

With f and g the means over the records of all agents, round t runs

    y^{k+1} = y^k − β_t ∇_y g(x_t, y^k)                                     k = 0 … K−1,   y^0 = y^K of the round before
    z_t ≈ (∇²_yy g)⁻¹ ∇_y f                                                 by b or N products ∇²_yy g v
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g z_t))

at (x_t, y^K). With noise every mean of clipped terms is one Gaussian release. The guarantee holds for every record of
every agent, against an adversary that observes all published values. The sensitivity of a mean is 2C/n_t over train
records and 2C/n_v over validation records, and both splits have the same Σμ². All points are functions of released
values, and the regulariser's part is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.central import vocabulary as dp
from decentral_dp.problems.protocol import TERMS


class BilevelState(NamedTuple):
    """Public state: x (p,), y and z (q,)."""

    x: dp.Array
    y: dp.Array
    z: dp.Array


class NestedDescent(dp.Coordinated, Protocol):
    """Rounds with `inner` steps of y, `inverse` products for z, and one step of x."""

    x: StepSize
    y: StepSize
    inner: int
    inverse: int
    rate: float

    queries: ClassVar[tuple[str, ...]] = TERMS

    @property
    def releases_per_round(self) -> int:
        return self.inner + self.inverse + 2

    def init(self, context: dp.CoordinatorContext) -> BilevelState:
        y = context.start("y", self.start)
        return BilevelState(context.start("x", self.start), y, np.zeros_like(y))

    def solve(
        self, t: int, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, target: dp.Array, z: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Estimate (∇²_yy g(x, y))⁻¹ target, (q,), by `inverse` releases, from the previous round's z, (q,)."""
        ...

    def step(self, t: int, context: dp.CoordinatorContext, s: BilevelState) -> dp.CoordinatorSteps[BilevelState]:
        x, y, z = s
        for _ in range(self.inner):
            d = yield from dp.release_gradients(t, context, TERMS[:1], x, y, self.rate)
            y = y - self.y(t) * d.lower_grad_y
        upper = yield from dp.release_gradients(t, context, ("upper_grad_y", "upper_grad_x"), x, y, self.rate)
        z = yield from self.solve(t, context, x, y, upper.upper_grad_y, z)
        d = yield from dp.release_gradients(t, context, ("lower_jvp",), x, y, self.rate, z)
        return BilevelState(context.domain.project(x - self.x(t) * (upper.upper_grad_x - d.lower_jvp)), y, z)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        """Plan `inner` means of ∇_y g, one each of ∇_y f, ∇_x f and ∇²_xy g z, and `inverse` means of ∇²_yy g v."""
        first, last = self.inner, self.inner + self.inverse + 1
        positions: dict[str, Sequence[int]] = {
            "lower_grad_y": range(first),
            "upper_grad_y": (first,),
            "upper_grad_x": (first,),
            "lower_hvp": range(first + 1, last),
            "lower_jvp": (last,),
        }
        parts: dict[str, dp.Part] = {}
        for term, places in positions.items():
            indices = dp.round_indices(rounds, self.releases_per_round, places)
            parts |= dp.gradient_parts(context, (term,), indices, {}, self.rate)
        return dp.gaussian_charges(parts)
