"""Solutions, implicit gradients and scores of all agents' pooled records, with their sensitivities.

A `Bounded` result carries its sensitivity. A plain array (`scores`, `gradient`, …) is only for a mechanism that draws
x, such as an exponential mechanism. `bounds` has its sensitivity. Every value is a fixed function of the records and of
public arguments: solves start at the public centre of the ball of minimisers.

`PooledBounds` computes the sensitivities from constants and counts only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split
from decentral_dp.central import certified_solver as certified
from decentral_dp.central.sensitivities import (
    Clips,
    estimate_slack,
    hypergradient_sensitivity,
    implicit_sensitivity,
    minimiser_sensitivity,
    score_oscillation,
    smoothness,
)
from decentral_dp.constants import (
    UP,
    ClassLoss,
    Family,
    Linear,
    Mean,
    ProblemConstants,
    Pulled,
    Regularised,
    SquaredLoss,
    Weighed,
    round_up,
    worst_case,
)
from decentral_dp.errors import InputError
from decentral_dp.models.linear_terms import feature_norms
from decentral_dp.problems.bilevel.linear import Quadratic, QuadraticRecords
from decentral_dp.problems.lower_level import mean_losses, mean_term
from decentral_dp.problems.records import concatenate, regulariser_matrices

# The terms of an implicit gradient at the minimiser; at a public y, all except the first.
FED = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")


@dataclass(frozen=True)
class PooledBounds:
    """Public bounds for a family and the public counts of all agents' records.

    Points x and the corners `low` and `high` of a box are public, (p,). All norms are l2, and each bound is rounded up.
    Bounds by split map "train" and "validation" to numbers. Splits that are not read are omitted.

    Φ(x) = F(x, y_Z(x)). Constants at a point hold at that `x`. Constants over a box (`low`, `high`) hold for every x of
    the box, as a mechanism that draws x requires.

    Args:
        family: family of the problem.
        train: number of train records.
        validation: number of validation records.
    """

    family: Family
    train: int
    validation: int

    # At one public x -----------------------------------------------------------------------------------------------

    def minimiser(self, x: Array, penalty: float | None = None) -> dict[Split, float]:
        """Bound the sensitivity of the minimiser of G, or with penalty λ of G + F/λ.

        The bound is D_gy/(μ n_t) + 2a for a train record, and D_fy/(λ μ n_v) + 2a for a validation record.
        """
        c, accuracy = self.constants_at(x, penalty), self.facts(x, penalty).accuracy
        sensitivity = minimiser_sensitivity(c, self.train, self.validation, accuracy, penalty)
        return self.select_read(sensitivity, "lower_grad_y", *(() if penalty is None else ("upper_grad_y",)))

    def hypergradient(self, x: Array) -> dict[Split, float]:
        """Bound the sensitivity of ∇Φ(x), including twice the error of the estimate."""
        return self.select_read(self._slope(self.constants_at(x), self.facts(x)), *FED)

    def constants_at(self, x: Array, penalty: float | None = None) -> ProblemConstants:
        """Return the constants at x, on the ball of the minimisers of G, or with penalty λ of G + F/λ."""
        return self.family.constants(x, x, 1.0 if penalty is None else 1.0 + 1.0 / penalty)

    def at_point(
        self, constants: ProblemConstants, facts: certified.SolveFacts, y: Array
    ) -> tuple[ProblemConstants, certified.SolveFacts]:
        """Return the constants and facts at x on the ball, tightened for one public y (q,) of the ball.

        If both levels share a loss of y only, ‖∇_y f‖ ≤ G(‖y‖) for every record, and G grows with its argument. ∇²_xy R
        is linear in y about the centre, and rounding errors are proportional to ‖y‖.
        """
        if not isinstance(self.family, Regularised):
            return constants, facts
        norm = UP * float(np.linalg.norm(y))
        lipschitz, cross_bound = UP * self.family.loss.gradient(norm), UP * constants.c_gxy * norm
        c = constants._replace(l_fy=min(constants.l_fy, lipschitz), b_gxy=min(constants.b_gxy, cross_bound))
        return c, facts._replace(centre=y, radius=0.0)

    def facts(self, x: Array, penalty: float | None = None) -> certified.SolveFacts:
        """Return the public facts of the objective at x. Raises InputError if float64 allows no certificate."""
        return self._facts(self.constants_at(x, penalty), self.family.centre(x), penalty)

    # Over a box ----------------------------------------------------------------------------------------------------

    def oscillation(self, low: Array, high: Array) -> dict[Split, float]:
        """Bound sup − inf over the box of the change of Φ by one record, without `inexactness`."""
        width = float(np.linalg.norm(high - low))
        spread, losses = self.family.spread(low, high), self.family.loss_range(low, high)

        def sensitivity(split: Split) -> Callable[[ProblemConstants], float]:
            return lambda c: score_oscillation(c, self.train, self.validation, width, spread, 0.0, losses)[split]

        # The change by a train record is bounded for each x, so pieces of the box can be combined.
        bounds: dict[Split, float] = {
            "train": worst_case(self.family, low, high, sensitivity("train")),
            "validation": sensitivity("validation")(self.family.constants(low, high)),
        }
        return self.select_read(bounds, "lower_grad_y", "upper_grad_y", "upper_grad_x")

    def lipschitz(self, low: Array, high: Array) -> float:
        """Bound sup ‖∇Φ‖₂ ≤ L_fx + M L_fy over the box."""
        return worst_case(self.family, low, high, lambda c: round_up(c.l_fx + c.m * c.l_fy))

    def inexactness(self, low: Array, high: Array) -> float:
        """Bound |computed − exact Φ(x)| over the box: L_fy a plus the rounding of a mean of losses."""
        centre, losses = self._farthest(low, high), self.family.loss_range(low, high)
        rounding = 4.0 * certified.mean_rounding((self.validation,), centre.size)

        def error(c: ProblemConstants) -> float:
            f = self._facts(c, centre)
            return round_up(c.l_fy * f.accuracy + rounding * (losses + c.l_fy * f.reach + math.log(centre.size + 1.0)))

        return worst_case(self.family, low, high, error)

    def gradient_sensitivity(self, low: Array, high: Array) -> dict[Split, float]:
        """Bound S, the sensitivity of ∇Φ(x) at any x of the box, without `gradient_error`."""

        def sensitivity(split: Split) -> Callable[[ProblemConstants], float]:
            return lambda c: hypergradient_sensitivity(c, self.train, self.validation, self.family.self_concordance)[
                split
            ]

        kinds: tuple[Split, ...] = ("train", "validation")
        bounds = {split: worst_case(self.family, low, high, sensitivity(split)) for split in kinds}
        return self.select_read(bounds, *FED)

    def gradient_error(self, low: Array, high: Array) -> float:
        """Bound ‖computed − exact ∇Φ(x)‖ over the box: C a + b_gxy τ plus rounding."""
        centre = self._farthest(low, high)
        return worst_case(self.family, low, high, lambda c: self._error(c, self._facts(c, centre)))

    def norm_oscillation(self, low: Array, high: Array) -> dict[Split, float]:
        """Bound 2S, sup − inf over the box of the change of ‖∇Φ‖ by one record, without `gradient_error`.

        See Lowy & Liu, Appendix C.3, where 2G/n, which is not a bound, takes the place of S.
        """
        return {split: 2.0 * s for split, s in self.gradient_sensitivity(low, high).items()}

    def smoothness(self, low: Array, high: Array) -> float:
        """Bound the Lipschitz constant of ∇Φ and of ‖∇Φ‖ on the box: Φ + (smoothness/2)‖x‖² is convex."""
        return worst_case(self.family, low, high, smoothness)

    @property
    def convex(self) -> bool:
        """Return whether Φ is a convex quadratic for every dataset: y_Z(x) affine in x, f convex and quadratic in y."""
        family = self.family
        return isinstance(family, Mean | Linear) or (
            isinstance(family, Pulled) and isinstance(family.problem, Quadratic)
        )

    def quadratic_inexactness(self, low: Array, high: Array) -> float:
        """Bound |½ xᵀHx − bᵀx − (Φ(x) − Φ(0))| over the box for the computed (H, b) of `Pooled.quadratic`.

        Column i of H is the difference of gradients at the unit vector i and at 0. The errors of both are included.
        """
        p = self.family.problem.p
        reach = float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))
        start = self._error(self.constants_at(np.zeros(p)), self.facts(np.zeros(p)))
        columns = [start + self._error(self.constants_at(unit), self.facts(unit)) for unit in np.eye(p)]
        wide = self.family.constants(np.minimum(low, 0.0), np.maximum(high, 0.0))
        size = 0.5 * reach**2 * self.smoothness(low, high) + reach * (wide.l_fx + wide.m * wide.l_fy)
        return round_up(0.5 * reach**2 * math.hypot(*columns) + reach * start + 2.0**-50 * (p + 4) * size)

    # Parts ---------------------------------------------------------------------------------------------------------

    def select_read(self, sensitivity: Mapping[Split, float], *terms: str) -> dict[Split, float]:
        """Keep the splits that at least one of these terms reads."""
        reads_records = self.family.problem.reads_records
        kinds = {reads_records[term] for term in terms if term in reads_records}
        return {split: s for split, s in sensitivity.items() if split in kinds}

    def solve(self, c: ProblemConstants, f: certified.SolveFacts) -> certified.Solve:
        """Return the certificate of the solve ∇²_yy G v = ∇_y F at a point of the ball."""
        rounding = certified.mean_rounding((self.validation,), len(f.centre))
        return certified.solve_certificate(f, c.l_fy, rounding * (c.l_fy + c.b_fyy * f.reach))

    def rounding(self, c: ProblemConstants, f: certified.SolveFacts) -> float:
        """Bound the float64 error of ∇_x F − J v for a given v with ‖v‖ ≤ L_fy/μ."""
        upper = certified.mean_rounding((self.validation,), len(f.centre)) * (c.l_fx + c.b_fxy * f.reach)
        lower = f.rounding * (c.b_gxy + c.d_hxy + c.c_gxy * f.reach) * c.l_fy / c.mu
        return upper + 2.0 * lower

    def _slope(self, c: ProblemConstants, f: certified.SolveFacts) -> dict[Split, float]:
        sensitivity = hypergradient_sensitivity(c, self.train, self.validation, self.family.self_concordance)
        return {split: round_up(s + 2.0 * self._error(c, f)) for split, s in sensitivity.items()}

    def _error(self, c: ProblemConstants, f: certified.SolveFacts) -> float:
        return round_up(0.5 * estimate_slack(c, f.accuracy, self.solve(c, f).error) + self.rounding(c, f))

    def _facts(self, c: ProblemConstants, centre: Array, penalty: float | None = None) -> certified.SolveFacts:
        counts = (self.train,) if penalty is None else (self.train, self.validation)
        self_concordance = self.family.self_concordance
        return certified.facts(c, centre, counts, None if math.isinf(self_concordance) else self_concordance, penalty)

    def _farthest(self, low: Array, high: Array) -> Array:
        """Return a centre farthest from 0 over the box; centres are multiples of x, or fixed."""
        return self.family.centre(np.maximum(np.abs(low), np.abs(high)))


@dataclass(frozen=True, eq=False)
class Pooled:
    """Records of all agents, in the order of the agents, projected onto the bounds of the family.

    Args:
        family: family of the problem.
        train: train records.
        validation: validation records.
    """

    family: Family
    train: Any
    validation: Any

    @classmethod
    def from_agents(cls, family: Family, agents: Sequence[tuple[Any, Any]]) -> Pooled:
        """Pool every agent's (train, validation) records. Raises InputError for a split without records."""
        pools = []
        for k, split in enumerate(("train", "validation")):
            parts = [records[k] for records in agents if len(records[k][0])]
            if not parts:
                raise InputError(
                    f"problem.validation: the agents have no {split} records. Fix: set a share that leaves "
                    "records of both splits."
                )
            pools.append(concatenate(parts))
        return cls(family, *(bound_records(records, family) for records in pools))

    @property
    def counts(self) -> dict[Split, int]:
        return {"train": len(self.train[0]), "validation": len(self.validation[0])}

    @property
    def bounds(self) -> PooledBounds:
        """Bounds on sensitivities at a point, and on scores over a box."""
        return PooledBounds(self.family, *self.counts.values())

    # Releases ------------------------------------------------------------------------------------------------------

    def minimiser(self, x: Array, penalty: float | None = None) -> Bounded:
        """Solve the lower level.

        Args:
            x: public x, (p,).
            penalty: λ of argmin_y G(x, y) + F(x, y)/λ, or None (the default) for argmin_y G(x, y).

        Returns:
            The solution, (1, q), within `bounds.facts(x, penalty).accuracy` of the minimiser.

        Raises:
            InputError: float64 allows no certificate at this x. This depends on public numbers only.
        """
        return _as_bounded(self._solution(x, penalty), self.bounds.minimiser(x, penalty))

    def hypergradient(self, x: Array) -> Bounded:
        """Compute ∇Φ(x) = ∇_x F − ∇²_xy G (∇²_yy G)⁻¹ ∇_y F at the minimiser, (1, p).

        Args:
            x: public x, (p,).

        Raises:
            InputError: float64 allows no certificate at this x.
        """
        return _as_bounded(self.gradient(x), self.bounds.hypergradient(x))

    def implicit(self, x: Array, y: Array, pointwise: bool = False) -> Bounded:
        """Compute the formula of `hypergradient` at a public y, (1, p).

        Args:
            x: public x, (p,).
            y: public y, which is projected onto the ball, (q,).
            pointwise: whether constants hold at the public y instead of on the whole ball, default False.
        """
        bounds, c, f = self.bounds, self.bounds.constants_at(x), self.bounds.facts(x)
        y = certified.project_to_ball(y, f.centre, f.radius)
        if pointwise:
            c, f = bounds.at_point(c, f, y)
        solve = bounds.solve(c, f)
        norm, through = self._jacobian_bounds(x, y, c.b_gxy)
        # The Hessian of a record is positive semidefinite in every family.
        clips = Clips(0.5 * c.d_fx, c.l_fy, 0.5 * c.d_hxy, c.d_hyy)
        counts = bounds.train, bounds.validation
        sensitivity = implicit_sensitivity(clips, c.mu, norm, *counts, through, solve.error, positive=True)
        rounding = 2.0 * bounds.rounding(c, f)
        private = self._implicit(x, y, c, f)
        sensitivities = {split: round_up(s + rounding) for split, s in sensitivity.items()}
        return _as_bounded(private, bounds.select_read(sensitivities, *FED[1:]))

    # For mechanisms that draw x ------------------------------------------------------------------------------------

    def scores(self, xs: Array) -> Array:
        """Compute Φ at the rows of xs (n, p), (n,), without privacy. `bounds.inexactness` bounds the errors."""
        # One at a time, since the rounding of a matrix product depends on its number of rows.
        return np.array([self._score(x, self._solution(x)) for x in np.asarray(xs, dtype=np.float64)])

    def gradient(self, x: Array) -> Array:
        """Compute ∇Φ(x), (p,), without privacy. `bounds.gradient_error` bounds the error."""
        return self._implicit(x, self._solution(x), self.bounds.constants_at(x), self.bounds.facts(x))

    def gradient_norms(self, xs: Array) -> Array:
        """Compute ‖∇Φ‖ at the rows of xs (n, p), (n,), without privacy. `bounds.gradient_error` bounds the errors."""
        return np.array([float(np.linalg.norm(self.gradient(x))) for x in xs])

    def quadratic(self) -> tuple[Array, Array]:
        """Compute (H, b), without privacy, such that Φ(x) = ½ xᵀHx − bᵀx + const if `bounds.convex`.

        H is (p, p) and b is (p,). `bounds.quadratic_inexactness` bounds the errors.
        """
        p = self.family.problem.p
        start = self.gradient(np.zeros(p))
        columns = np.stack([self.gradient(unit) - start for unit in np.eye(p)])
        return np.asarray(0.5 * (columns + columns.T)), -start

    # Parts ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> tuple[certified.Moments, certified.Moments] | None:
        problem = self.family.problem
        if not isinstance(problem, Quadratic) or problem.q > certified.DENSE_LIMIT:
            return None
        return certified.moments(problem, self.train), certified.moments(problem, self.validation)

    def _objective(self, x: Array, penalty: float | None = None) -> certified.PenalisedObjective:
        problem, (lower, upper) = self.family.problem, self._moments or (None, None)
        x = np.asarray(x, dtype=np.float64)
        return certified.PenalisedObjective(
            certified.MeanLoss(problem, x, self.train, "lower", lower),
            certified.MeanLoss(problem, x, self.validation, "upper", upper),
            penalty,
        )

    def _solution(self, x: Array, penalty: float | None = None) -> Array:
        return certified.minimise(self._objective(x, penalty), self.bounds.facts(x, penalty))

    def _score(self, x: Array, y: Array) -> float:
        if self._moments is not None:
            return self._moments[1].level(y)
        return float(mean_losses(self.family.problem, x[None], y[None], self.validation)[0])

    def _implicit(self, x: Array, y: Array, c: ProblemConstants, f: certified.SolveFacts) -> Array:
        """Compute ∇_x F − ∇²_xy G v at y, with v ≈ (∇²_yy G)⁻¹ ∇_y F, (p,), with constants c and facts f there."""
        bounds, problem, objective = self.bounds, self.family.problem, self._objective(x)
        with np.errstate(all="ignore"):
            v = certified.inverse_product(objective, f, y, objective.upper.gradient(y), bounds.solve(c, f))
            direct = mean_term(problem, objective.x, y, v, self.validation, "upper_grad_x")
            through = mean_term(problem, objective.x, y, v, self.train, "lower_jvp")
            return np.asarray(direct - through - problem.regulariser(objective.x[None], y[None], v[None]).jvp[0])

    def _jacobian_bounds(self, x: Array, y: Array, cross_bound: float) -> tuple[float, float]:
        """Bound ‖J‖ and ‖J H⁻¹‖ at a public y, directly from J and ∇²R if J reads no record."""
        problem = self.family.problem
        if "lower_jvp" in problem.reads_records or problem.q > certified.DENSE_LIMIT:
            return cross_bound, math.inf
        exact = regulariser_matrices(problem, x[None], y[None], None)
        norm = round_up(float(np.linalg.norm(exact.jacobian[0], 2)) * (1.0 + 1e-9))
        values, vectors = np.linalg.eigh(exact.hessian[0])
        least = max(float(values[0]), 1e-290)
        root = float(np.linalg.norm(exact.jacobian[0] @ (vectors / np.sqrt(np.maximum(values, least))), 2))
        return norm, root / math.sqrt(least) * (1.0 + 1e-9)


def _as_bounded(private: Array, sensitivity: Mapping[Split, float]) -> Bounded:
    sensitivities = {split: Sensitivity(np.array([s]), np.ones(1), None) for split, s in sensitivity.items()}
    return Bounded(np.zeros((1, private.size)), private[None], sensitivities, "l2")


def bound_records(records: Any, family: Family) -> Any:
    """Project every record onto the bounds ‖a‖₂ ≤ R and |b| ≤ B of the family. A non-finite record becomes zeros.

    Each record is projected separately, and no value causes an error. Records without features are unchanged.
    """
    loss: Any = getattr(family, "loss", None)
    radius, label_bound = math.inf, math.inf
    if isinstance(family, Mean | Linear):
        radius = family.record_radius
    elif isinstance(family, Regularised | Pulled | Weighed) and isinstance(loss, SquaredLoss | ClassLoss):
        radius, label_bound = loss.radius, getattr(loss, "label_bound", math.inf)
    fields = records._fields
    name = next((n for n in ("signed", "features") if n in fields), None)
    if name is None or "l2" not in fields or math.isinf(radius):
        return records
    rows = getattr(records, name)
    good = np.isfinite(rows).all(axis=1)
    if isinstance(records, QuadraticRecords):
        good &= np.isfinite(records.label)
        label = np.where(good, records.label, 0.0)
        records = records._replace(label=np.clip(label, -label_bound, label_bound))
    rows = np.where(good[:, None], rows, 0.0)
    _, norms = feature_norms(rows)
    rows = rows * np.where(norms > radius, radius / np.where(norms > 0.0, norms, 1.0), 1.0)[:, None]
    l1, l2 = feature_norms(rows)
    return records._replace(**{name: rows, "l1": l1, "l2": l2})
