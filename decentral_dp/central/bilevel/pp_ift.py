"""Implicit differentiation at a private lower-level point, for any losses.

Round t, with means over all records, each clipped, and R the data-independent regulariser:

    ỹ ≈ argmin_y g(x, y)                                       released by a private solver (`inner`)
    a = mean ∇_x h,  b = mean ∇_y h,  J = mean ∇²_xy l + ∇²_xy R,  H = mean ∇²_yy l + ∇²_yy R          at (x, ỹ)
    x <- P(x − η_t (a − J H⁻¹ b + noise))

h, l → upper and lower loss; η → x; P → domain; the solver → solver, its K steps → inner, its b → smoothness. Defaults
follow from the problem's constants, if they are known: η = 1/(2b) with b the smoothness of the hyperobjective on the
domain (set a larger one if the domain is wide), K by `lower_solvers.choose_steps`, and clipping norms that clip no
record.

The hypergradient is taken at the released ỹ. Its sensitivity does not depend on the accuracy of a solver, a Lipschitz
constant of a second derivative, or a bound on a loss. The clipping norms and the curvature w₀ of R bound it. The cost
is the bias of ỹ, at most C‖ỹ − y_Z(x)‖.

The guarantee holds for every record of every agent. The sensitivity of a solver step is 2C_y/n_t. With K ≥ ‖J‖ and
clipping norms C_x of ∇_x h and ∇²_xy l, C_z of ∇_y h and ∇²_yy l, the sensitivities of the gradient are

    train       2C_x C_z/(w₀ n_t) + K C_z²/(n_t w₀(w₀ + C_z/n_t)),        validation  (2C_x + 2K C_z/w₀)/n_v,

if per-record Hessians are positive semidefinite. Otherwise the eigenvalues of H are raised to w₀, and the middle term
is 2K C_z²/(n_t w₀²). All releases are Gaussian with planned privacy costs; Σμ² is exact.

With a learning rate of 0, x keeps its start and no hypergradient is released. The whole budget is then spent on noisy
descent on the lower level at a public x.

The output is the last x_t at which a lower-level point was released, with that point.

Reference: after A. Lowy and D. Liu, "DP Bilevel Optimization: Efficient Algorithms with Near-Optimal Rates", 2025,
whose hypergradients are at the exact solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel import lower_solvers
from decentral_dp.central.bilevel.dp_bilevel import Defaults
from decentral_dp.central.bilevel.second_order_dp_bilevel import default_step
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.records import regulariser_matrices

# Share of every round's μ² for the lower-level point, which is also the model.
_MODEL_SHARE = 0.5
# Name in the formula → term.
_MEANS = {"a": "upper_grad_x", "b": "upper_grad_y", "jacobian": "lower_jacobian", "hessian": "lower_hessian"}


class PpIftState(NamedTuple):
    """The public state.

    Args:
        x: iterate, (p,).
        y: last released lower-level point, (q,).
        x_of_y: x at which that point was released, (p,).
    """

    x: dp.Array
    y: dp.Array
    x_of_y: dp.Array


@dataclass(frozen=True)
class PpIft(lower_solvers.SolvesLower):
    """Bilevel coordinator with implicit differentiation at a private lower-level solution.

    Args:
        x, inner, smoothness: η, K and b, or None for the defaults.
        solver: lower-level solver, "dp_gd" or "output_perturbation".
    """

    x: dp.StepSize | None = dp.option("η, learning rate of x; default from public constants", default=None)
    inner: int | None = dp.solver_steps("K, ")
    smoothness: float | None = dp.solver_smoothness("smoothness of g")
    solver: Literal["dp_gd", "output_perturbation"] = dp.option(
        'solver of the lower level: "dp_gd" or "output_perturbation"', default="dp_gd"
    )

    @property
    def queries(self) -> tuple[str, ...]:
        means = () if self._keeps_x else tuple(_MEANS.values())
        return means if self.needs_records else ("lower_grad_y", *means)

    @property
    def releases_per_round(self) -> int:
        return self.lower_solver().publishes + (not self._keeps_x)

    @property
    def _keeps_x(self) -> bool:
        """Return whether x keeps its start, so that no hypergradient is required."""
        return self.x is not None and self.x.scale == 0.0

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        p, q = context.problem.p, context.problem.q
        if not self._keeps_x:
            dp.check_message("pp_ift", q * q + p * q, p, q)
        self.check_solver(context)
        algorithm = self
        if self.solver == "dp_gd" and self.inner is None:
            algorithm = replace(algorithm, inner=Defaults.from_context(context, 2, "inner").steps())
        if self.solver == "dp_gd" and self.smoothness is None and context.family is None:
            # Raises: there is no default.
            Defaults.from_context(context, 2, "smoothness")
        if self.x is None:
            # Raises if there is no default.
            Defaults.from_context(context, 2, "x")
            algorithm = replace(algorithm, x=default_step(context))

        def default_clip() -> Clip:
            c = Defaults.from_context(context, 2, "x").box_constants
            return Clip("l2", max(c.l_fx, c.d_hxy), 0.5 * c.d_gy, max(c.l_fy, c.d_hyy))

        return algorithm, context.with_clips(self.queries, default_clip)

    def init(self, context: dp.CoordinatorContext) -> PpIftState:
        x = context.start("x", self.start)
        return PpIftState(x, context.start("y", self.start), x)

    def step(self, t: int, context: dp.CoordinatorContext, s: PpIftState) -> dp.CoordinatorSteps[PpIftState]:
        y = yield from self.lower_solver().solve(context, lower_solvers.LowerObjective("y"), s.x, s.y)
        if self._keeps_x:
            return PpIftState(s.x, y, s.x)
        p, q = context.problem.p, context.problem.q
        queries = {name: dp.ClippedSum(term, s.x, y) for name, term in _MEANS.items() if context.reads(term)}
        answer: Mapping[str, Any] = yield dp.Ask(**queries)
        regulariser = regulariser_matrices(context.problem, s.x[None], y[None], None)
        public = {
            "a": np.zeros((1, p)),
            "b": np.zeros((1, q)),
            "jacobian": regulariser.jacobian.reshape(1, p * q),
            "hessian": regulariser.hessian.reshape(1, q * q),
        }
        means = {name: answer[name] + v if name in answer else v for name, v in public.items()}
        released = yield dp.Release(gx=context.implicit(**means))
        eta = self.x(t) if self.x is not None else 0.0
        return PpIftState(context.domain.project(s.x - eta * released.released.gx[0]), y, s.x)

    def published(self, s: PpIftState) -> dict[str, dp.Array]:
        return {"x": s.x_of_y, "y": s.y}

    def free_channels(self, context: dp.CoordinatorContext) -> dict[str, int]:
        """Return the channel of the lower-level point if that level reads no record."""
        return {} if lower_solvers.LowerObjective("y").kinds(context) else {"y": context.problem.q}

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        releases = self.lower_solver().publishes
        splits = {context.split_of(term) for term in _MEANS.values() if context.reads(term)}
        kinds = [split for split in dp.SPLITS if split in splits]
        per_round, parts = self.releases_per_round, {}
        if level_kinds := lower_solvers.LowerObjective("y").kinds(context):
            indices = dp.round_indices(rounds, per_round, range(releases))
            parts["y"] = dp.Part(indices, context.problem.q, level_kinds, _MODEL_SHARE)
        if not self._keeps_x:
            indices = dp.round_indices(rounds, per_round, (releases,))
            parts["gx"] = dp.Part(indices, context.problem.p, kinds, 1.0 - _MODEL_SHARE)
        return dp.gaussian_charges(parts)


ENTRY = dp.Entry(
    "pp_ift",
    PpIft,
    (dp.Citation("Implicit hypergradients, here at a private point, after", "lowy2025differentially"),),
    proved=True,
)
