"""First-order private bilevel optimisation with a penalty, full batch or mini-batch.

Round t, with f and g the means over all records (Kornowski, Algorithms 1 and 3):

    ỹ   ≈ argmin_y g(x, y)                    released by a private solver (`inner`)
    ỹ^λ ≈ argmin_y f(x, y) + λ g(x, y)        released by a private solver
    x  <- P(x − η_t (∇_x f(x, ỹ^λ) + λ (∇_x g(x, ỹ^λ) − ∇_x g(x, ỹ)) + noise))

The output is the x_t with the smallest gradient mapping ‖x_{t+1} − x_t‖/η_t (the latest of equal ones) with its ỹ. Both
are functions of released values. The data-independent part of the step of x is exact and has no privacy cost.

λ → penalty, η → x, P → domain, Poisson sampling → rate, solver of the lower level → solver, its steps → inner. The
defaults of x, penalty, inner, smoothness and the clipping norms follow from the problem's constants if they are known
(`Defaults`).

The guarantee holds for every record of every agent, against an adversary that observes all published values. The
coordinator is trusted and receives clipped sums, or all records for "output_perturbation". Sensitivities: 2C_y/n_t and
2C_z/(λ n_v) in the descent of the solvers, D_gy/(μ n_t) + 2a and D_fy/(λ μ n_v) + 2a for a perturbed minimiser with
accuracy a. In the step of x every record's contribution, λ included, is clipped to C_x: 2C_x/n_v and 2C_x/n_t, or λ
D_hxy ‖ỹ^λ − ỹ‖/n_t if constants are known and this bound is smaller. Both splits have the same Σμ², which is exact
although later releases depend on earlier ones.

If rate < 1, dp_gd and the step of x use means over Poisson samples, divided by the expected sample size and accounted
by the Poisson rule. (The paper draws with replacement. A record can then be drawn several times, and Lemma 16 is
false.) Sampling amplifies only if the noise multiplier s·q·n/C is about 1 or more: a total of ε over T rounds requires
batches of about εn/√T records, whereas Theorem 11 allows any size. A mean over b records differs from the full mean by
about C_x/√b, not 1/b.

Reference: G. Kornowski, "Differentially Private Bilevel Optimization", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel import lower_solvers
from decentral_dp.central.sensitivities import default_penalty, penalty_smoothness
from decentral_dp.constants import Family, ProblemConstants, worst_case
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CHANGE

_NO_DEFAULT = (
    dp.Refusal[tuple[dp.CoordinatorContext, str]](
        lambda c: c[0].family is None,
        "algorithm.{of[1]}",
        "missing; a default requires a problem with analytic constants, problem.normalise, and "
        "problem.label_range if labels are numbers",
        "give {of[1]}",
    ),
    dp.Refusal[tuple[dp.CoordinatorContext, str]](
        lambda c: not c[0].domain.compact,
        "algorithm.{of[1]}",
        "missing, and no default holds for every x",
        "set {of[1]}, or bound x with algorithm.domain, for example {{ low = -5.0, high = 0.0 }}",
    ),
    dp.Refusal[tuple[dp.CoordinatorContext, str]](
        lambda c: c[1] in ("penalty", "inner") and math.isinf(c[0].budget),
        "algorithm.{of[1]}",
        "missing, and without noise nothing limits it",
        "set {of[1]}, or privacy.epsilon and privacy.delta",
    ),
)


@dataclass(frozen=True)
class Defaults:
    """Data-independent default options of a penalty method, from constants that hold for every x of the domain.

        λ     the largest over the domain of argmin D₁/λ + λ b_gxy (r + r'), at least 1; D₁/λ bounds the bias of the
              penalty, r the noise that reaches x from the best solver, D_gy/(μ n m) √min(p, q), m its share of the
              budget
        K     of the solver, in the middle of the domain (`lower_solvers`)
        η     1/(2 b_L), b_L the smoothness of min_y f + λ(g − min_y g) in x
        C_y   ½ D_gy and C_z = L_fy: no record's gradient is longer, on the balls of minimisers
        C_x   L_fx + 2 (½ D_hxy) L_fy/μ: at exact minimisers no record's contribution is longer than half of the second
              term; the other half is for noise

    Let c be the standard deviation of a channel's contribution to the step of x at μ = 1:

        solvers  c = λ b_gxy √min(p, q) · gain · (sensitivity of a mean gradient),     the step  c = √p · Δ_x

    For a given Σ μ², Σ c²/μ² is least if μ² is proportional to c. λ multiplies the noise of the solvers, so they get
    most of the budget. Because constants for a whole domain exaggerate, the step gets at least a ninth. Without
    constants all channels get equal shares. Over a wide domain η is far too small, because it must suit the x with the
    flattest lower level. In this case, set it explicitly.

    Args:
        context: public facts of the run.
        family: constants of the problem.
        low: corner of the domain, (p,).
        high: corner of the domain, (p,).
        solves: μ of one solve, with the budget divided evenly.
        penalty_weight: λ, if known.
    """

    context: dp.CoordinatorContext
    family: Family
    low: dp.Array
    high: dp.Array
    solves: float
    penalty_weight: float = math.inf

    @classmethod
    def from_context(
        cls, context: dp.CoordinatorContext, channels: int, key: str, penalty_weight: float = math.inf
    ) -> Self:
        """Return the defaults of a round with this number of channels. Raises InputError that names the missing key."""
        dp.refuse((context, key), _NO_DEFAULT)
        price = context.budget / math.sqrt(channels * context.rounds)
        family = cast(Family, context.family)
        return cls(context, family, *context.domain.corners(context.problem.p), price, penalty_weight)

    def penalty(self) -> float:
        """Compute λ."""
        context, reach = self.context, math.sqrt(min(self.context.problem.p, self.context.problem.q))

        def penalty_at(c: ProblemConstants) -> float:
            noise = c.d_gy / (c.mu * context.counts["train"] * self.solves) * reach
            return default_penalty(c, noise, noise) if noise > 0.0 else 0.0

        return max(1.0, worst_case(self.family, self.low, self.high, penalty_at, 2.0))

    def steps(self) -> int:
        """Compute K of "dp_gd", in the middle of the domain."""
        middle = 0.5 * (self.low + self.high)
        return lower_solvers.choose_steps(self._public_facts(self.family.constants(middle, middle, self.record_mass)))

    def step_size(self) -> float:
        """Compute η."""
        smooth = self._worst_case(lambda c: penalty_smoothness(c, self.penalty_weight))
        return 0.5 / smooth if smooth > 0.0 else 1.0

    def clip(self) -> Clip:
        """Compute C_x, C_y, C_z."""
        c = self.box_constants
        return Clip("l2", c.l_fx + c.d_hxy * c.l_fy / c.mu, 0.5 * c.d_gy, c.l_fy)

    def shares(self, steps: int | None, sensitivity_x: float) -> Mapping[str, float]:
        """Divide a round's μ² among the channels.

        Args:
            steps: number of steps K of "dp_gd", or None for "output_perturbation".
            sensitivity_x: sensitivity of the step of x, or 0 if the step reads no record.

        Returns:
            The share of each channel in a round's μ². Empty if the solvers contribute nothing to x, or a number is not
            finite.
        """
        p, n = self.context.problem.p, self.context.counts["train"]

        def noise_error(c: ProblemConstants) -> float:
            reach = self.penalty_weight * c.b_gxy * math.sqrt(min(p, self.context.problem.q))
            return reach * lower_solvers.noise_gain(self._public_facts(c), steps) * c.d_gy / n

        worst_case = self._worst_case(noise_error)
        direct = math.sqrt(p) * sensitivity_x
        if not (0.0 < worst_case < math.inf and direct < math.inf):
            return {}
        return {"y": worst_case, "pulled": worst_case, "gx": max(direct, 0.25 * worst_case)}

    @cached_property
    def box_constants(self) -> ProblemConstants:
        """Constants for the whole box, on the balls of minimisers of g + f/λ."""
        return self.family.constants(self.low, self.high, self.record_mass)

    @property
    def record_mass(self) -> float:
        """1 + 1/λ, the weight of the records' losses in g + f/λ."""
        return 1.0 + 1.0 / self.penalty_weight

    def _public_facts(self, c: ProblemConstants) -> lower_solvers.PublicFacts:
        lipschitz = max(0.5 * c.d_gy, 1e-300)
        return lower_solvers.PublicFacts(
            c, self.penalty_weight, lipschitz, self.context.counts["train"], self.solves, self.context.problem.q
        )

    def _worst_case(self, bound: Callable[[ProblemConstants], float]) -> float:
        return worst_case(self.family, self.low, self.high, bound, self.record_mass)


class DpBilevelState(NamedTuple):
    """The public state.

    Args:
        x: iterate, (p,).
        y: last release of ỹ, (q,).
        y_penalised: last release of ỹ^λ, (q,).
        best: x with the smallest gradient mapping, (p,).
        best_y: ỹ at that x, (q,).
        step: size of that gradient mapping.
    """

    x: dp.Array
    y: dp.Array
    y_penalised: dp.Array
    best: dp.Array
    best_y: dp.Array
    step: float


_REFUSED = (
    dp.Refusal[tuple[Any, dp.CoordinatorContext]](
        lambda c: (
            c[1].reads("lower_jvp")
            and not hasattr(c[1].problem, "change")
            and getattr(c[1].problem, "name", type(c[1].problem).__name__)
        ),
        "problem.kind",
        "{it} does not provide ∇_x l at two points of one record, which dp_bilevel requires",
        "use another problem, for example hyper_cleaning",
    ),
    dp.Refusal[tuple[Any, dp.CoordinatorContext]](
        lambda c: c[0].rate < 1.0 and c[0].needs_records and not c[0].step_terms(c[1]),
        "algorithm.rate",
        'no effect, since "{of[0].solver}" reads no sample on this problem (got {of[0].rate})',
        'remove it, or set solver = "dp_gd"',
    ),
)


@dataclass(frozen=True)
class DpBilevel(lower_solvers.SolvesLower):
    """Bilevel coordinator with a penalty, private lower-level solvers and first derivatives only (Kornowski, 2024).

    Args:
        x, penalty, inner, smoothness: η, λ, number of solver steps, and b in dp_gd, or None for the defaults.
        rate: sampling rate of the Poisson samples.
        solver: lower-level solver, "dp_gd" or "output_perturbation".
        reads: whether the step of x reads records (computed).
        shares: share of each channel in a round's μ² (computed).
    """

    x: dp.StepSize | None = dp.option("η, learning rate of x; default from public constants", default=None)
    penalty: float | None = dp.option(
        "λ, weight of the penalty; default from public constants", default=None, example="1.0", above=0
    )
    inner: int | None = dp.solver_steps()
    smoothness: float | None = dp.solver_smoothness("b")
    rate: float = dp.sampling_rate()
    solver: Literal["dp_gd", "output_perturbation"] = dp.option(
        'solver of the lower level: "dp_gd" or "output_perturbation"', default="dp_gd"
    )
    reads: bool = dp.internal(True)
    shares: Mapping[str, float] = dp.internal(default_factory=dict)

    @property
    def queries(self) -> tuple[str, ...]:
        solving = () if self.needs_records else ("lower_grad_y", "upper_grad_y")
        return (*solving, "upper_grad_x", CHANGE)

    @property
    def releases_per_round(self) -> int:
        return 2 * self._solver.publishes + self.reads

    @property
    def _solver(self) -> lower_solvers.Solver:
        return self.lower_solver(self.rate)

    @property
    def _penalised_objective(self) -> lower_solvers.LowerObjective:
        return lower_solvers.LowerObjective("pulled", self.penalty or 1.0)

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_solver(context)
        dp.refuse((self, context), _REFUSED)
        algorithm = replace(self, reads=bool(self.step_terms(context)))
        if self.penalty is None:
            algorithm = replace(algorithm, penalty=algorithm._defaults(context, "penalty").penalty())
        if self.inner is None and not self.needs_records:
            algorithm = replace(algorithm, inner=algorithm._defaults(context, "inner").steps())
        if self.solver == "dp_gd" and self.smoothness is None and context.family is None:
            # Raises InputError, since there is no default.
            algorithm._defaults(context, "smoothness")
        if self.x is None:
            algorithm = replace(algorithm, x=dp.StepSize(algorithm._defaults(context, "x").step_size()))
        context = context.with_clips(algorithm.queries, lambda: algorithm._defaults(context, "x").clip())
        if context.family is None or not context.domain.compact or math.isinf(context.budget):
            return algorithm, context
        terms = algorithm.step_terms(context)
        sensitivity = [s for term in terms for s in context.mean_sensitivity(term, 1, self.rate).values()]
        steps = None if self.needs_records else algorithm.inner
        shares = algorithm._defaults(context, "x").shares(steps, max(sensitivity, default=0.0))
        return replace(algorithm, shares=shares), context

    def _defaults(self, context: dp.CoordinatorContext, key: str) -> Defaults:
        return Defaults.from_context(context, 2 + self.reads, key, math.inf if self.penalty is None else self.penalty)

    def step_terms(self, context: dp.CoordinatorContext) -> tuple[str, ...]:
        """Return the terms of the step of x that read records."""
        return tuple(term for term in ("upper_grad_x", CHANGE) if context.reads(term))

    # The program -------------------------------------------------------------------------------------------------

    def init(self, context: dp.CoordinatorContext) -> DpBilevelState:
        x, y = context.start("x", self.start), context.start("y", self.start)
        return DpBilevelState(x, y, y, x, y, math.inf)

    def step(self, t: int, context: dp.CoordinatorContext, s: DpBilevelState) -> dp.CoordinatorSteps[DpBilevelState]:
        lam, eta = self._penalised_objective.penalty, self.x(t) if self.x is not None else 0.0
        y = yield from self._solver.solve(context, lower_solvers.LowerObjective("y"), s.x, s.y)
        penalised = yield from self._solver.solve(context, self._penalised_objective, s.x, s.y_penalised)
        gradient = lam * context.regulariser_change(s.x, penalised, y)
        if self.reads:
            released = yield dp.Release(gx=(yield from self._slope(context, s.x, y, penalised)))
            gradient = gradient + released.released.gx[0]
        x = context.domain.project(s.x - eta * gradient)
        mapping = float(np.linalg.norm(x - s.x)) / eta if eta > 0.0 else 0.0
        best = (s.x, y, mapping) if mapping <= s.step else (s.best, s.best_y, s.step)
        return DpBilevelState(x, y, penalised, *best)

    def _slope(
        self, context: dp.CoordinatorContext, x: dp.Array, y: dp.Array, penalised: dp.Array
    ) -> dp.CoordinatorSteps[dp.Bounded]:
        """Compute the part of the gradient with respect to x that reads records."""
        lam = self._penalised_objective.penalty
        questions = {
            "upper_grad_x": dp.ClippedSum("upper_grad_x", x, penalised, rate=self.rate),
            CHANGE: dp.ClippedSum(CHANGE, x, penalised, y, self.rate, times=lam),
        }
        queries = {term: questions[term] for term in self.step_terms(context)}
        answer = yield dp.Ask(**queries)
        parts: list[dp.Bounded] = [
            context.tighten(answer[term], query, lam) if term == CHANGE else answer[term]
            for term, query in queries.items()
        ]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def published(self, s: DpBilevelState) -> dict[str, dp.Array]:
        return {"x": s.best, "y": s.best_y}

    # The plan ----------------------------------------------------------------------------------------------------

    def free_channels(self, context: dp.CoordinatorContext) -> dict[str, int]:
        """Return the channels of solutions that read no record."""
        return {
            objective.channel: context.problem.q
            for objective in (lower_solvers.LowerObjective("y"), self._penalised_objective)
            if not objective.kinds(context)
        }

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        solver, per_round, p, q = self._solver, self.releases_per_round, context.problem.p, context.problem.q
        parts = {}
        for k, objective in enumerate((lower_solvers.LowerObjective("y"), self._penalised_objective)):
            if kinds := objective.kinds(context):
                positions = range(k * solver.publishes, (k + 1) * solver.publishes)
                indices, share = dp.round_indices(rounds, per_round, positions), self.shares.get(objective.channel, 1.0)
                parts[objective.channel] = dp.Part(indices, q, kinds, share, solver.rate)
        if self.reads:
            indices = dp.round_indices(rounds, per_round, (2 * solver.publishes,))
            kinds = tuple(context.split_of(term) for term in self.step_terms(context))
            parts["gx"] = dp.Part(indices, p, kinds, self.shares.get("gx", 1.0), self.rate)
        return dp.gaussian_charges(parts)


ENTRY = dp.Entry("dp_bilevel", DpBilevel, (dp.Citation("Algorithm", "kornowski2024differentially"),), proved=True)
