"""The coordinator's door to all agents' records: solutions, implicit gradients and scores, each with its price.

What leaves as `Bounded` carries its sensitivity. What leaves as a plain array (`scores`, `gradient`, …) is for a
mechanism that draws x itself, such as an exponential one, and must not be released otherwise; its prices are those of
`bounds`. Every value is a fixed function of the records and of public arguments: solves start at the public centre of
the ball of minimisers, or along a public path, never where the records led before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Bounded, Sensitivity, Split, summation_slack
from decentral_dp.constants.families import Pulled, Separate, Shared
from decentral_dp.constants.family import Family
from decentral_dp.constants.loss_bounds import ClassLoss, SquaredLoss
from decentral_dp.constants.problem_constants import Clips, ProblemConstants, up
from decentral_dp.constants.record_sensitivity import implicit_sensitivity
from decentral_dp.constants.special_families import Linear, Mean, Weighed
from decentral_dp.errors import InputError
from decentral_dp.models.linear_terms import feature_norms
from decentral_dp.participants.certified_solver import DENSE_LIMIT, Facts, inside, inverse_product, minimise
from decentral_dp.participants.implicit_gradient import implicit_mean
from decentral_dp.participants.pooled_bounds import FED, PooledBounds
from decentral_dp.participants.pooled_means import Moments, Objective, mean_losses, mean_term, moments, squared
from decentral_dp.participants.solution_path import solutions_along
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import MATRICES
from decentral_dp.problems.records import concatenated
from decentral_dp.problems.regulariser_matrices import regulariser_matrices

# So many points of a path share a pass of the losses over the validation records.
_SCORED_TOGETHER = 64


@dataclass(frozen=True, eq=False)
class Pooled:
    """train, validation: all agents' records in the order of the agents, within the family's bounds."""

    family: Family
    train: Any
    validation: Any

    @classmethod
    def of(cls, family: Family, agents: Sequence[tuple[Any, Any]]) -> Pooled:
        """From every agent's (train, validation) records. Raises InputError where there are none of a kind."""
        joined = []
        for at, split in enumerate(("train", "validation")):
            parts = [records[at] for records in agents if len(records[at][0])]
            if not parts:
                raise InputError(f"problem: the agents have no {split} records; change problem.validation.")
            joined.append(concatenated(parts))
        radius, label_bound = record_bounds(family)
        return cls(family, *(bounded(records, radius, label_bound) for records in joined))

    @property
    def counts(self) -> dict[Split, int]:
        return {"train": len(self.train[0]), "validation": len(self.validation[0])}

    @property
    def bounds(self) -> PooledBounds:
        """All public numbers: sensitivities at a point, and what scores over a box need."""
        return PooledBounds(self.family, *self.counts.values())

    # Releases ------------------------------------------------------------------------------------------------------

    def minimiser(self, x: Array, penalty: float | None = None) -> Bounded:
        """argmin_y G(x, y), or with pull = λ of G + F/λ, (1, q). x: (p,), public."""
        return _carried(self._solution(x, penalty), self.bounds.minimiser(x, penalty))

    def hypergradient(self, x: Array) -> Bounded:
        """∇Φ(x) = ∇_x F − ∇²_xy G (∇²_yy G)⁻¹ ∇_y F at the minimiser, (1, p). x: (p,), public."""
        return _carried(self.gradient(x), self.bounds.hypergradient(x))

    def implicit(self, x: Array, y: Array, clip: Clip | None = None, pointwise: bool = False) -> Bounded:
        """Compute the formula of `hypergradient` at a public y.

        Args:
            x: (p,), public.
            y: (q,), public; put into the ball first.
            clip: of each record's ∇_y f and ∇²_yy g (z), and ∇_x f and ∇²_xy g (x), in l2; without it the family's
                constants bound them.
            pointwise: whether to take constants at y itself, which is public, and not on the whole ball; default False.

        Returns:
            (1, p).

        Raises:
            InputError: clips with more than DENSE_LIMIT lower variables, where no matrix is formed.
        """
        bounds, c, f = self.bounds, self.bounds.at(x), self.bounds.facts(x)
        y = inside(y, f.centre, f.radius)
        if pointwise:
            c, f = bounds.at_point(c, f, y)
        if clip is not None:
            return self._clipped(x, y, clip)
        solve = bounds.solve(c, f)
        positive = c.label == "analytic"
        norm, through = self._jacobian_bounds(x, y, c.b_gxy)
        # The second rests on records' Hessians that are positive semidefinite.
        through = through if positive else math.inf
        clips = Clips(0.5 * c.d_fx, c.l_fy, 0.5 * c.d_hxy, c.d_hyy if positive else 0.5 * c.d_hyy)
        counts = bounds.train, bounds.validation
        sensitivity = implicit_sensitivity(clips, c.mu, norm, *counts, through, solve.error, positive)
        lost = 2.0 * bounds.rounding(c, f)
        private = self._implicit(x, y, c, f)
        found = {split: up(s + lost) for split, s in sensitivity.items()}
        return _carried(private, bounds.read(found, *FED[1:]))

    # For mechanisms that draw x ------------------------------------------------------------------------------------

    def scores(self, xs: Array) -> Array:
        """Φ at the rows of xs (n, p), (n,): data-dependent. Errors: `bounds.inexactness`."""
        # One by one: a matrix product's rounding depends on how many rows it has.
        return np.array([self._score(x, self._solution(x)) for x in np.asarray(xs, dtype=np.float64)])

    def scores_along(self, path: Array) -> Array:
        """`scores` at the rows of one public path (n, p), each solve starting from those before it: quicker.

        A fixed function of path and records; not for points that are tried as the records have it.
        """
        path = np.asarray(path, dtype=np.float64)
        ys = solutions_along(path, lambda x: (self._objective(x), self.bounds.facts(x)))
        if self._moments is not None:
            return np.array([self._moments[1].level(y) for y in ys])
        together = (slice(first, first + _SCORED_TOGETHER) for first in range(0, len(path), _SCORED_TOGETHER))
        return np.concatenate([mean_losses(self.family.problem, path[k], ys[k], self.validation) for k in together])

    def gradient(self, x: Array) -> Array:
        """∇Φ(x), (p,): data-dependent. Errors: `bounds.gradient_error`."""
        return self._implicit(x, self._solution(x), self.bounds.at(x), self.bounds.facts(x))

    def gradient_norms(self, xs: Array) -> Array:
        """‖∇Φ‖ at the rows of xs (n, p), (n,): data-dependent. Errors: `bounds.gradient_error`."""
        return np.array([float(np.linalg.norm(self.gradient(x))) for x in xs])

    def quadratic(self) -> tuple[Array, Array]:
        """(H, b), (p, p) and (p,), with Φ(x) = ½ xᵀHx − bᵀx + const: data-dependent. `bounds.quadratic_inexactness`.

        Raises InputError where Φ is no quadratic: y_Z(x) has to be affine in x, and f quadratic in y.
        """
        family = self.family
        if not self.bounds.convex:
            raise InputError(
                'problem.kind: this upper level is no quadratic in x, which the mechanism needs; choose "quadratic", '
                "or another mechanism."
            )
        start = self.gradient(np.zeros(family.problem.p))
        columns = np.stack([self.gradient(unit) - start for unit in np.eye(family.problem.p)])
        return np.asarray(0.5 * (columns + columns.T)), -start

    # Parts ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _moments(self) -> tuple[Moments, Moments] | None:
        problem = self.family.problem
        if not squared(problem) or problem.q > DENSE_LIMIT:
            return None
        return moments(problem, self.train), moments(problem, self.validation)

    def _objective(self, x: Array, penalty: float | None = None) -> Objective:
        lower, upper = self._moments or (None, None)
        x = np.asarray(x, dtype=np.float64)
        return Objective(self.family.problem, x, self.train, self.validation, penalty, lower, upper)

    def _solution(self, x: Array, penalty: float | None = None) -> Array:
        return minimise(self._objective(x, penalty), self.bounds.facts(x, penalty))

    def _score(self, x: Array, y: Array) -> float:
        if self._moments is not None:
            return self._moments[1].level(y)
        return float(mean_losses(self.family.problem, x[None], y[None], self.validation)[0])

    def _implicit(self, x: Array, y: Array, c: ProblemConstants, f: Facts) -> Array:
        """∇_x F − ∇²_xy G v at y, with v ≈ (∇²_yy G)⁻¹ ∇_y F, (p,). c, f: what holds there."""
        bounds, problem, objective = self.bounds, self.family.problem, self._objective(x)
        with np.errstate(all="ignore"):
            v = inverse_product(objective, f, y, objective.upper_gradient(y), bounds.solve(c, f))
            direct = mean_term(problem, objective.x, y, v, self.validation, "upper_grad_x")
            through = mean_term(problem, objective.x, y, v, self.train, "lower_jvp")
            return np.asarray(direct - through - problem.regulariser(objective.x[None], y[None], v[None]).jvp[0])

    def _jacobian_bounds(self, x: Array, y: Array, mixed: float) -> tuple[float, float]:
        """Bounds on ‖J‖ and on ‖J H⁻¹‖ at a public y: where no record is in J, from J and ∇²R themselves."""
        problem = self.family.problem
        if "lower_jvp" in problem.reads_records or problem.q > DENSE_LIMIT:
            return mixed, math.inf
        exact = regulariser_matrices(problem, x[None], y[None], None)
        norm = up(float(np.linalg.norm(exact.jacobian[0], 2)) * (1.0 + 1e-9))
        values, vectors = np.linalg.eigh(exact.hessian[0])
        least = max(float(values[0]), 1e-290)
        root = float(np.linalg.norm(exact.jacobian[0] @ (vectors / np.sqrt(np.maximum(values, least))), 2))
        return norm, root / math.sqrt(least) * (1.0 + 1e-9)

    def _clipped(self, x: Array, y: Array, clip: Clip) -> Bounded:
        """From clipped means at (x, y)."""
        problem = self.family.problem
        if problem.q > DENSE_LIMIT:
            raise InputError(
                f"privacy.clip: the lower level has {problem.q} variables, and Hessians are clipped where there are at "
                f"most {DENSE_LIMIT}; leave the clips out, and the family's constants bound every record."
            )
        at, reads_records = (x[None], y[None]), problem.reads_records
        exact, none = regulariser_matrices(problem, *at, None), np.zeros_like(y)
        records: dict[Split, Any] = {"train": self.train, "validation": self.validation}

        def mean(term: str, public: Array, bound: float) -> Array | Bounded:
            reader = MATRICES.get(term, term)
            if reader not in reads_records:
                return public
            split = reads_records[reader]
            if term in MATRICES:
                private = problem.matrices(x, y, None, records[split], clip, (term,))[term]
            else:
                few = records[split]
                private = getattr(problem.terms(x, y, none, few, few, clip, (term,)), term)
            n = self.counts[split]
            sensitivity = float(2.0 * bound / n * summation_slack(n, private.size))
            return _carried(private.reshape(-1), {split: sensitivity}) + public

        return implicit_mean(
            mean("upper_grad_x", np.zeros((1, problem.p)), clip.x),
            mean("upper_grad_y", np.zeros((1, problem.q)), clip.z),
            mean("lower_jacobian", exact.jacobian.reshape(1, -1), clip.x),
            mean("lower_hessian", exact.hessian.reshape(1, -1), clip.z),
            clip,
            positive=self.bounds.at(x).label == "analytic",
        )


def _carried(private: Array, sensitivity: Mapping[Split, float]) -> Bounded:
    sensitivities = {split: Sensitivity(np.array([s]), np.ones(1), None) for split, s in sensitivity.items()}
    return Bounded(np.zeros((1, private.size)), private[None], sensitivities, "l2")


def record_bounds(family: Family) -> tuple[float, float]:
    """(R, B): ‖a‖₂ ≤ R and |b| ≤ B for every record that the family's constants are about; inf where it has none."""
    if isinstance(family, Mean | Linear):
        return family.record_radius, math.inf
    if isinstance(family, Shared | Separate | Pulled | Weighed):
        loss = family.loss
        if isinstance(loss, SquaredLoss):
            return loss.radius, loss.label_bound
        if isinstance(loss, ClassLoss):
            return loss.radius, math.inf
    return math.inf, math.inf


def bounded(records: Any, radius: float, label_bound: float) -> Any:
    """Every record by itself into ‖a‖₂ ≤ R and |b| ≤ B; one with a number that is not finite becomes zeros.

    Nothing reads two records together, or fails on a value. Records without features are left as they are.
    """
    fields = records._fields
    name = next((n for n in ("signed", "features") if n in fields), None)
    if name is None or "l2" not in fields or math.isinf(radius):
        return records
    rows = getattr(records, name)
    good = np.isfinite(rows).all(axis=1)
    if "target" in fields:
        good &= np.isfinite(records.target)
        target = np.where(good, records.target, 0.0)
        records = records._replace(target=np.clip(target, -label_bound, label_bound))
    rows = np.where(good[:, None], rows, 0.0)
    _, norms = feature_norms(rows)
    rows = rows * np.where(norms > radius, radius / np.where(norms > 0.0, norms, 1.0), 1.0)[:, None]
    l1, l2 = feature_norms(rows)
    return records._replace(**{name: rows, "l1": l1, "l2": l2})
