"""stocBiO by a trusted coordinator: steps of y, and a hypergradient from a Neumann series, each round.

With f and g the means over the records of all agents, round t runs

    y^{k+1} = y^k − β_t ∇_y g(x_t, y^k)                                     k = 0 … K−1,   y^0 = y^K of the round before
    v_0 = ∇_y f,     v_{j+1} = v_j − ∇²_yy g v_j/L                          j = 0 … b−1
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g Σ_{j≤b} v_j/L))

at (x_t, y^K), with α → x, β → y, K → inner, b → inverse, L → smoothness and P → domain. If `rate` is below 1,
every mean is over a fresh Poisson sample, as in the paper.

Without noise (`privacy.guarantee = "none"`) this is stocBiO as published, a non-private baseline. With noise every mean
of clipped terms is one Gaussian release, with the guarantee for every record of every agent and the sensitivities 2C/n
of `nested_descent`. The coordinator is trusted and receives clipped sums.

Reference: K. Ji, J. Yang, Y. Liang, "Bilevel Optimization: Convergence Analysis and Enhanced Design", ICML 2021,
Algorithms 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from decentral_dp.algorithms.options import lower_steps, neumann_smoothness, neumann_terms
from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.nested_descent import NestedDescent


@dataclass(frozen=True)
class Stocbio(NestedDescent):
    """Bilevel coordinator with nested loops, private or not (stocBiO; Ji, Yang & Liang, 2021)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    inner: int = lower_steps()
    inverse: int = neumann_terms()
    smoothness: float = neumann_smoothness()
    rate: float = dp.sampling_rate()

    def solve(
        self, t: int, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, target: dp.Array, z: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        v = total = target
        for _ in range(self.inverse):
            d = yield from dp.release_gradients(t, context, ("lower_hvp",), x, y, self.rate, v)
            v = v - d.lower_hvp / self.smoothness
            total = total + v
        return total / self.smoothness


ENTRY = dp.Entry(
    "stocbio",
    Stocbio,
    (dp.Citation("stocBiO, here with optional noise", "ji2021bilevel"),),
    example={"clip": "clip.y = 1.0\nclip.z = 1.0"},
    proved=True,
)
