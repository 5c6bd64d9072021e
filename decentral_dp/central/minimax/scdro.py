"""SCDRO: KL-DRO in compositional form by moving averages, without privacy. A baseline.

w = (x, λ) with λ = y, h_i = exp((ℓ_i − B)/λ), and Ψ = λ log h̄ + B + λρ (see `kl_dro`). Round t, with one Poisson sample
of rate q and means divided by the public qn; in the first round β = 1:

    s <- (1−β) s + β mean h_i(w)
    z <- (1−β) z + β ((λ/s) mean ∇_x h_i(w), (λ/s) mean ∂_λ h_i(w) + log s + ρ)
    x <- P(x − η_x z_x)          λ <- max{λ_0, λ − η_λ z_λ}

η_x, η_λ → x, y. β → averaging, cut at 1; q → rate.

Whose data: nobody's is protected. It adds no noise and clips nothing, and runs with guarantee = "none" alone.

Limit cases: rate = 1 and β = 1 is gradient descent on Ψ. The output is the last iterate.

Reference: after Qi et al. 2022, whose name it has; the non-private row of Table 3 in Xu et al. 2025, who cite another
paper for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.minimax.steps import compose_gradients

UNPROTECTED_NOTE = (
    "privacy.guarantee: scdro adds no noise and clips nothing, and has no guarantee. Fix: set "
    'guarantee = "none" to run it as a baseline; recursive_spider is private.'
)
# Channel → term.
_TERMS = {"h": "inner", "hx": "inner_x", "hy": "inner_y"}


class ScdroState(NamedTuple):
    """x (p,), y (1,): iterate. s (1,): estimate of h̄. z_x (p,), z_y (1,): averages of ∇_xΨ and −∂_λΨ."""

    x: dp.Array
    y: dp.Array
    s: dp.Array
    z_x: dp.Array
    z_y: dp.Array


@dataclass(frozen=True)
class Scdro(dp.Coordinated):
    """A baseline without privacy: KL-robust learning by moving averages (after Qi et al., 2022).

    Args:
        x, y: η.
        averaging: β.
        rate: q.
    """

    x: dp.StepSize = dp.option("η_x, of x")
    y: dp.StepSize = dp.option("η_y, of the dual variable")
    averaging: dp.StepSize = dp.option("β, weight of the newest estimate in the moving averages")
    rate: float = dp.sampling_rate()

    queries = tuple(_TERMS.values())

    def init(self, context: dp.MinimaxContext) -> ScdroState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return ScdroState(x, y, np.zeros(1), np.zeros_like(x), np.zeros_like(y))

    def step(self, t: int, context: dp.MinimaxContext, s: ScdroState) -> dp.CoordinatorSteps[ScdroState]:
        queries = {channel: context.query(term, s.x, s.y, self.rate) for channel, term in _TERMS.items()}
        mean = (yield dp.Release(**(yield dp.Ask(**queries)))).released
        beta = min(1.0, self.averaging(t)) if t else 1.0
        value = (1.0 - beta) * s.s + beta * mean.h[0]
        by_x, by_y = compose_gradients(context, s.y, value, mean.hx[0], mean.hy[0])
        z_x, z_y = (1.0 - beta) * s.z_x + beta * by_x, (1.0 - beta) * s.z_y + beta * by_y
        x, y = context.problem.project_x(s.x - self.x(t) * z_x), context.problem.project_y(s.y + self.y(t) * z_y)
        return ScdroState(x, y, value, z_x, z_y)

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        parts = {
            c: dp.Part((0,), context.problem.width(term), ("train",), rate=self.rate) for c, term in _TERMS.items()
        }
        return dp.gaussian_charges(rounds, self.releases_per_round, parts)


def check_unprotected(guarantee: str) -> None:
    """Refuse to promise anything. Raises InputError."""
    if guarantee != "none":
        raise dp.InputError(UNPROTECTED_NOTE)


ENTRY = dp.Entry(
    "scdro",
    Scdro,
    (
        dp.Citation("After the algorithm", "qi2022stochastic"),
        dp.Citation("As the baseline that is not private (Table 3)", "xu2025differentially"),
    ),
    example=dp.KL_DRO | {"guarantee": '"none"', "clip": ""},
    check_guarantee=check_unprotected,
)
