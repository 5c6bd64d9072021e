"""AmIGO by a trusted coordinator: warm-started steps of y and z, then one step of x.

With f and g the means over the records of all agents, round t runs

    y^{k+1} = y^k − β_t ∇_y g(x_t, y^k)                                     k = 0 … K−1,   y^0 = y^K of the round before
    z^{j+1} = z^j − γ_t (∇²_yy g z^j − ∇_y f)                               j = 0 … N−1,   z^0 = z^N of the round before
    x_{t+1} = P(x_t − α_t (∇_x f − ∇²_xy g z^N))

at (x_t, y^K), with α → x, β → y, γ → z, K → inner, N → inverse and P → domain. ∇_y f is the same for all j. If `rate`
is below 1, every mean is over a fresh Poisson sample.

Without noise (`privacy.guarantee = "none"`) this is AmIGO as published, a non-private baseline. With noise every mean
of clipped terms is one Gaussian release, with the guarantee for every record of every agent and the sensitivities 2C/n
of `nested_descent`. The coordinator is trusted and receives clipped sums.

Reference: M. Arbel, J. Mairal, "Amortized Implicit Differentiation for Stochastic Bilevel Optimization", ICLR 2022,
Algorithm 1 with gradient descent in both inner loops; z has the opposite sign there.
"""

from __future__ import annotations

from dataclasses import dataclass

from decentral_dp.algorithms.options import inverse_iterations, lower_steps
from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.nested_descent import NestedDescent


@dataclass(frozen=True)
class Amigo(NestedDescent):
    """Bilevel coordinator with nested loops that start at the last solutions (AmIGO; Arbel & Mairal, 2022)."""

    x: dp.StepSize = dp.option("α, of x along the hypergradient")
    y: dp.StepSize = dp.option("β, of y in every inner iteration")
    z: dp.StepSize = dp.option("γ, of z in every iteration on the inverse")
    inner: int = lower_steps()
    inverse: int = inverse_iterations()
    rate: float = dp.sampling_rate()

    def solve(
        self, t: int, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, target: dp.Array, z: dp.Array
    ) -> dp.CoordinatorSteps[dp.Array]:
        for _ in range(self.inverse):
            d = yield from dp.release_gradients(t, context, ("lower_hvp",), x, y, self.rate, z)
            z = z - self.z(t) * (d.lower_hvp - target)
        return z


ENTRY = dp.Entry(
    "amigo",
    Amigo,
    (dp.Citation("AmIGO, here with optional noise", "arbel2022amortized"),),
    example={"clip": "clip.y = 1.0\nclip.z = 1.0"},
    proved=True,
)
