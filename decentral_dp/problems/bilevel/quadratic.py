"""Ridge regression toward a point that the upper level chooses: everything has a closed form."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.errors import InputError
from decentral_dp.models.linear_terms import (
    backward,
    blocks,
    checked_features,
    clip_coefficients,
    curved_sums,
    feature_norms,
    forward,
    named_rows,
    tiles,
    with_intercept,
)
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.means import Optimum, VectorProblem
from decentral_dp.problems.bilevel.penalties import Intercept, Pull
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.protocol import LOSS_OF_Y, Regulariser, StackedProblem, Terms, asked


class QuadraticRecords(NamedTuple):
    """features: (N, d). target: (N,). l1, l2: (N,) norms of the features."""

    features: Array
    target: Array
    l1: Array
    l2: Array


Agents = Sequence[tuple[QuadraticRecords, QuadraticRecords]]


@dataclass(frozen=True)
class Quadratic(VectorProblem, StackedProblem):
    """Lower level: squares on train records, pulled toward x; upper level: squares on validation records.

        l(y; a, b) = h(y; a, b) = ½(aᵀy − b)²,     R(x, y) = ½ ridge ‖y − x‖²
        ∇_y l = (aᵀy − b) a,     ∇²_yy l·z = (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0,     ∇²_xy R·z = −ridge z

    With A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b over train records, Ā and c̄ over validation records:

        y*(x) = (A + ridge I)⁻¹(c + ridge x)     z*(x) = (A + ridge I)⁻¹(Ā y*(x) − c̄)     ∇F(x) = ridge z*(x)

    F(x) = ½ y*ᵀ Ā y* − c̄ᵀ y* + const is a convex quadratic, minimised where Ā y*(x) = c̄. R touches no record, so
    neither does anything of x: its channel is free.

    n_features → columns of the records; ridge > 0 → strength of the pull; intercept → append a constant feature 1,
    pulled like the others. p = q = n_features (+ 1). Labels are numbers.
    """

    intercept: Intercept = False
    name: ClassVar[str] = "quadratic"
    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y

    @property
    def p(self) -> int:
        return self.n_features + self.intercept

    @property
    def q(self) -> int:
        return self.p

    def prepare(self, features: Array, labels: Array, norm: Norm) -> QuadraticRecords:
        """Features, targets and both norms; the clip of a run decides which norm is read. Raises InputError."""
        rows = checked_features(features, labels, self.n_features, self.intercept)
        target = np.array(labels, dtype=np.float64)
        if not np.isfinite(target).all():
            row = int(np.argmin(np.isfinite(target)))
            raise InputError(f"problem: record {row} has a label that is not a finite number; remove or mend it.")
        return QuadraticRecords(rows, target, *feature_norms(rows))

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: QuadraticRecords, clip: Clip, wanted: Collection[str]
    ) -> Terms:
        norms, n = _norms(records, clip), max(records.target.shape[1], 1)
        grad, hvp = np.zeros(y.shape), np.zeros(y.shape)
        upper, curved = "upper_grad_y" in wanted, "lower_hvp" in wanted
        with np.errstate(all="ignore"):
            for agents, part in tiles(*records.features.shape):
                a, size = records.features[agents, part], norms[agents, part]
                residual = forward(a, y[agents]) - records.target[agents, part]
                grad[agents] += backward(clip_coefficients(residual, size, clip.z if upper else clip.y), a)
                if curved:
                    hvp[agents] += backward(clip_coefficients(forward(a, z[agents]), size, clip.z), a)
        if upper:
            return Terms(upper_grad_y=grad / n)
        return Terms(lower_grad_y=grad / n, lower_hvp=hvp / n if curved else None)

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: QuadraticRecords, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """∇²_yy l = aaᵀ, whose norm is ‖a‖²."""
        return curved_sums(
            train.features,
            _norms(train, clip),
            lambda part: np.ones((1, 1, len(train.target[part]))),
            matrix,
            clip,
            asked(wanted, LOSS_OF_Y),
        )

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Pull(self.ridge).terms(x, y, z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        return Pull(self.ridge).value(x, y)

    def losses(self, x: Array, y: Array, records: QuadraticRecords, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in blocks(len(weights), max(self.q, len(y))):
                errors = y @ records.features[part].T - records.target[part]
                mean += 0.5 * np.square(errors, out=errors) @ weights[part]
        return mean, mean.copy()

    def regression_scores(self, x: Array, y: Array, records: QuadraticRecords) -> Mapping[str, Array]:
        n = len(records.target)
        squared = 2.0 * self.losses(x, y, records, np.full(n, 1.0 / n))[1]
        # Equal labels leave rounding, and no variance.
        if not np.ptp(records.target) > 0.0:
            return {"rmse": np.sqrt(squared)}
        return {"rmse": np.sqrt(squared), "r2": 1.0 - squared / np.var(records.target)}

    @property
    def words(self) -> str:
        return "a linear model"

    def predict(self, y: Array, features: Array) -> Array:
        """aᵀy, (b, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(y @ with_intercept(features, self.intercept).T)

    def named(self, y: Array) -> dict[str, Array]:
        """ "weight" (1, d), and "bias" (1,) where there is an intercept."""
        return named_rows(y[None], self.intercept)

    # No constants: the gradient grows with the label, and no bound on labels is declared.

    # Ground truth, over all agents' (train, validation) records: weight 1/m for each agent, 1/n for each record.

    def lower_solution(self, x: Array, agents: Agents) -> Array:
        """y*(x), (q,)."""
        curvature, linear = _moments([train for train, _ in agents])
        return np.asarray(np.linalg.solve(curvature + self.ridge * np.eye(self.q), linear + self.ridge * x))

    def z_star(self, x: Array, agents: Agents) -> Array:
        """z*(x) = (∇²_yy g)⁻¹ ∇_y f at y*(x), (q,)."""
        curvature, _ = _moments([train for train, _ in agents])
        upper_curvature, upper_linear = _moments([validation for _, validation in agents])
        upper_grad = upper_curvature @ self.lower_solution(x, agents) - upper_linear
        return np.asarray(np.linalg.solve(curvature + self.ridge * np.eye(self.q), upper_grad))

    def hypergradient(self, x: Array, agents: Agents) -> Array:
        """∇F(x), (p,)."""
        return self.ridge * self.z_star(x, agents)

    def upper_value(self, x: Array, agents: Agents) -> float:
        """F(x)."""
        y = self.lower_solution(x, agents)
        return float(np.mean([0.5 * np.mean(np.square(v.features @ y - v.target)) for _, v in agents]))

    def optimum(self, agents: Agents) -> Optimum:
        """A minimiser of F: the one whose y*(x) is shortest, where Ā is singular and there are many."""
        curvature, linear = _moments([train for train, _ in agents])
        upper_curvature, upper_linear = _moments([validation for _, validation in agents])
        y: Array = np.asarray(np.linalg.lstsq(upper_curvature, upper_linear)[0])
        x = y + (curvature @ y - linear) / self.ridge
        return Optimum(x, y, self.upper_value(x, agents))


def _norms(records: QuadraticRecords, clip: Clip) -> Array:
    return records.l1 if clip.norm == "l1" else records.l2


def _moments(shards: Sequence[QuadraticRecords]) -> tuple[Array, Array]:
    """(1/m) Σ_i mean_i a aᵀ and (1/m) Σ_i mean_i a b."""
    second = [s.features.T @ s.features / len(s.target) for s in shards]
    cross = [s.features.T @ s.target / len(s.target) for s in shards]
    return np.asarray(np.mean(second, axis=0)), np.asarray(np.mean(cross, axis=0))


ENTRY = Entry(
    "quadratic",
    Quadratic,
    "ridge regression toward the upper variable: every solution in closed form",
    task="solved a quadratic bilevel problem",
    lower_task="minimised a quadratic loss",
    labels="numbers",
    usual={"ridge": 0.1},
)
