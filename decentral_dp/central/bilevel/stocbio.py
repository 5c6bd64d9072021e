"""stocBiO by a trusted coordinator: steps of y, and a hypergradient from a Neumann series, each round.

With f and g the means over the records of all agents, round t runs

    y^{k+1} = y^k − β_t ∇_y g(x_t, y^k)                                     k = 0 … K−1,   y^0 = y^K of the round before
    v_0 = ∇_y f,     v_{j+1} = v_j − ∇²_yy g v_j/L                          j = 0 … b−1
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g Σ_{j≤b} v_j/L))

at (x_t, y^K), with α → x, β → y, K → inner, b → inverse, L → smoothness and P → domain. rate < 1: every mean is that of
a fresh Poisson sample, as in the paper.

Without noise (`privacy.guarantee = "none"`) this is stocBiO as published, a non-private baseline. With noise every mean
of clipped terms is one Gaussian release. The guarantee holds for every record of every agent, against an adversary that
observes all published values. The coordinator is trusted and receives clipped sums. The sensitivity of a mean is 2C/n_t
over train records and 2C/n_v over validation records, and both splits have the same Σμ². All points are functions of
released values, and the part of the regulariser is exact.

Reference: K. Ji, J. Yang, Y. Liang, "Bilevel Optimization: Convergence Analysis and Enhanced Design", ICML 2021,
Algorithms 2 and 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from decentral_dp.algorithms.options import lower_steps, neumann_smoothness, neumann_terms
from decentral_dp.central import vocabulary as dp
from decentral_dp.problems.protocol import TERMS


class StocbioState(NamedTuple):
    """Public state: x (p,) and y (q,)."""

    x: dp.Array
    y: dp.Array


@dataclass(frozen=True)
class Stocbio(dp.Coordinated):
    """A trusted coordinator: nested bilevel descent, private or not (stocBiO; Ji, Yang & Liang, 2021)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    inner: int = lower_steps()
    inverse: int = neumann_terms()
    smoothness: float = neumann_smoothness()
    rate: float = dp.sampling_rate()

    queries = TERMS

    @property
    def releases_per_round(self) -> int:
        return self.inner + self.inverse + 2

    def init(self, context: dp.CoordinatorContext) -> StocbioState:
        return StocbioState(context.start("x", self.start), context.start("y", self.start))

    def step(self, t: int, context: dp.CoordinatorContext, s: StocbioState) -> dp.CoordinatorSteps[StocbioState]:
        x, y = s
        for _ in range(self.inner):
            d = yield from dp.release_gradients(t, context, TERMS[:1], x, y, self.rate)
            y = y - self.y(t) * d.lower_grad_y
        upper = yield from dp.release_gradients(t, context, ("upper_grad_y", "upper_grad_x"), x, y, self.rate)
        v = z = upper.upper_grad_y
        for _ in range(self.inverse):
            d = yield from dp.release_gradients(t, context, ("lower_hvp",), x, y, self.rate, v)
            v = v - d.lower_hvp / self.smoothness
            z = z + v
        d = yield from dp.release_gradients(t, context, ("lower_jvp",), x, y, self.rate, z / self.smoothness)
        return StocbioState(context.domain.project(x - self.x(t) * (upper.upper_grad_x - d.lower_jvp)), y)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        """Plan K means of ∇_y g, one of ∇_y f and ∇_x f, b of ∇²_yy g v, and one of ∇²_xy g z."""
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


ENTRY = dp.Entry(
    "stocbio",
    Stocbio,
    (dp.Citation("stocBiO, here with optional noise", "ji2021bilevel"),),
    example={"clip": "clip.y = 1.0\nclip.z = 1.0"},
)
