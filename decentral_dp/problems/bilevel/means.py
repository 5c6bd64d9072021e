"""Two problems of means: a mean pulled toward the upper variable, and a mean through the lower level."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import Ridge
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.protocol import TERMS, Problem, Regulariser, Terms


class MeanRecords(NamedTuple):
    """Records: `features` (N, d) and norms `l1` and `l2` (N,)."""

    features: Array
    l1: Array
    l2: Array


@dataclass(frozen=True)
class MeanProblem(Problem, Protocol):
    """Problem of vectors without labels, in which no second derivative of l reads a record.

    Each column of the records has one lower and one upper variable.

    Args:
        n_features: number of columns of the records, p = q.
        ridge: strength of the regulariser.
    """

    n_features: int
    ridge: Ridge = 1.0

    @property
    def p(self) -> int:
        return self.n_features

    @property
    def q(self) -> int:
        return self.n_features

    def prepare(self, features: Array, labels: Array, norm: Norm) -> MeanRecords:
        """Prepare features and both norms. Raises InputError.

        See `Problem.prepare` for the arguments.
        """
        rows = linear.as_features(features, labels, self.n_features, intercept=False)
        return MeanRecords(rows, *linear.feature_norms(rows))

    def scaled_mean(self, records: MeanRecords, scale: float, clip: Clip, bound: float) -> Array:
        """Average scale·a over records, (q,), clipped per record to the bound."""
        total, norms = np.zeros(self.q), linear.norms_of(records, clip)
        with np.errstate(all="ignore"):
            for part in linear.blocks(*records.features.shape):
                factors = linear.clip_coefficients(np.full(norms[part].size, scale), norms[part], bound)
                total += factors.dot(records.features[part])
        return np.asarray(total / len(records.features))


@dataclass(frozen=True)
class MeanEstimation(MeanProblem):
    """Lower level: mean of the train records, pulled toward x; upper level: mean of the validation records.

        l(y; a) = −aᵀy,     h(y; a) = ½‖y − a‖²,     R(x, y) = ½‖y‖² + ½ ridge ‖y − x‖²
        ∇_y l = −a,     ∇²_yy l = 0,     ∇²_xy l = 0,     ∇_x h = 0
        ∇_y R = y + ridge (y − x),     ∇²_yy R·z = (1 + ridge) z,     ∇²_xy R·z = −ridge z

    With c the mean over agents of the means of their train records, c̄ the same over validation records:

        y*(x) = (c + ridge x)/(1 + ridge)     z*(x) = (y*(x) − c̄)/(1 + ridge)     ∇F(x) = ridge z*(x)

    F is minimal at x* = ((1 + ridge) c̄ − c)/ridge, where y* = c̄. The contribution of a train record to the gradient
    is −a at every state: gossip on the lower level is a linear system, whose leakage about a record
    `auditing.network_gossip` computes exactly. R reads no record, so neither do terms of x and second derivatives.

    Labels are not read.

    Args:
        n_features: number of columns of the records, p = q.
        ridge: strength of the pull, above 0.
    """

    name: ClassVar[str] = "mean_estimation"
    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType(
        {"lower_grad_y": "train", "upper_grad_y": "validation"}
    )

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        grad = self.scaled_mean(train, -1.0, clip, clip.y) if "lower_grad_y" in term_names else None
        if "upper_grad_y" not in term_names:
            return Terms(grad)
        total = np.zeros(self.q)
        with np.errstate(all="ignore"):
            for part in linear.blocks(*validation.features.shape):
                away = y[:, None] - validation.features[part].T
                total += linear.clip_columns(away, 1.0, clip.norm, clip.z).sum(axis=1)
        return Terms(grad, upper_grad_y=total / len(validation.features))

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        with np.errstate(over="ignore", invalid="ignore"):
            return Regulariser(y + self.ridge * (y - x), z + self.ridge * z, -self.ridge * z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(0.5 * (np.square(y).sum(axis=1) + self.ridge * np.square(y - x).sum(axis=1)))

    def losses(self, x: Array, y: Array, records: MeanRecords, weights: Array) -> tuple[Array, Array]:
        lower, upper = np.zeros(len(y)), np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            lower -= y @ (weights @ records.features)
            for row, point in enumerate(y):
                for part in linear.blocks(*records.features.shape):
                    upper[row] += 0.5 * np.square(point - records.features[part]).sum(axis=1) @ weights[part]
        return lower, upper


@dataclass(frozen=True)
class MeanLowerBound(MeanProblem):
    """Lower level: scaled upper variable for any records; upper level: linear function of the validation records.

        l = 0,     h(y; a) = −slope ⟨y, a⟩,     R(x, y) = ½ ridge ‖y − stretch·x‖²
        ∇_y h = −slope a,     ∇_y R = ridge (y − stretch·x),     ∇²_yy R·z = ridge z,     ∇²_xy R·z = −ridge stretch z

    With c̄ the mean over agents of the means of their validation records:

        y*(x) = stretch·x     z*(x) = −slope c̄/ridge     F(x) = −slope·stretch ⟨x, c̄⟩     ∇F(x) = −slope·stretch c̄

    F is linear: over a ball of radius r it is smallest at r c̄/‖c̄‖, at −slope·stretch·r‖c̄‖, and private optimisation is
    as hard as estimating a mean. Only validation records are read. Terms of x and of the lower level have no privacy
    cost. Upper gradients are at most slope·‖a‖, and the lower level changes y by stretch·‖x − x'‖.

    Labels are not read.

    Args:
        n_features: number of columns of the records, p = q.
        ridge: curvature of the lower level, above 0.
        slope: L_fy per unit of ‖a‖, above 0.
        stretch: ratio D_y/D_x, above 0.

    Reference: Lowy & Liu, DP Bilevel Optimization, proof of Theorem 3.10.
    """

    name: ClassVar[str] = "mean_lower_bound"
    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType({"upper_grad_y": "validation"})

    slope: float = 1.0
    stretch: float = 1.0

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        if "upper_grad_y" not in term_names:
            return Terms()
        return Terms(upper_grad_y=self.scaled_mean(validation, -self.slope, clip, clip.z))

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        with np.errstate(over="ignore", invalid="ignore"):
            away = y - self.stretch * x
            return Regulariser(self.ridge * away, self.ridge * z, -self.ridge * self.stretch * z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(0.5 * self.ridge * np.square(y - self.stretch * x).sum(axis=1))

    def losses(self, x: Array, y: Array, records: MeanRecords, weights: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.zeros(len(y)), -self.slope * (y @ (weights @ records.features))


ENTRIES = (
    ProblemEntry(
        "mean_estimation",
        MeanEstimation,
        "the mean of all records, pulled toward the upper variable: gradients do not depend on the state",
        task="estimated a mean",
        lower_task="estimated a mean",
        defaults={"ridge": 0.1},
    ),
    ProblemEntry(
        "mean_lower_bound",
        MeanLowerBound,
        "the mean of validation records through the lower level: the instance of the lower bounds",
        task="estimated a mean through a lower level",
    ),
)
