"""Ridge regression toward a point that the upper level chooses: everything has a closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.models import linear_terms as linear
from decentral_dp.problems.bilevel.linear import OneScore
from decentral_dp.problems.bilevel.penalties import Intercept, Penalty, Pull, Ridge
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.records import fit_scores


class QuadraticRecords(NamedTuple):
    """features: (N, d). label: (N,) numbers. l1, l2: (N,) norms of the features."""

    features: Array
    label: Array
    l1: Array
    l2: Array


@dataclass(frozen=True)
class Quadratic(OneScore):
    """Lower level: squares on train records, pulled toward x; upper level: squares on validation records.

        l(y; a, b) = h(y; a, b) = ½(aᵀy − b)²,     R(x, y) = ½ ridge ‖y − x‖²
        ∇_y l = (aᵀy − b) a,     ∇²_yy l·z = (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0,     ∇²_xy R·z = −ridge z

    With A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b over train records, Ā and c̄ over validation records:

        y*(x) = (A + ridge I)⁻¹(c + ridge x)     z*(x) = (A + ridge I)⁻¹(Ā y*(x) − c̄)     ∇F(x) = ridge z*(x)

    F(x) = ½ y*ᵀ Ā y* − c̄ᵀ y* + const is a convex quadratic, minimised where Ā y*(x) = c̄. R touches no record, so
    neither does anything of x: its channel is free.

    n_features → columns of the records; ridge > 0 → strength of the pull; intercept → append a constant feature 1,
    pulled like the others; penalty_override → the regulariser in the place of the pull. p = q = n_features (+ 1).
    Labels are numbers.
    """

    ridge: Ridge = 1.0
    intercept: Intercept = False
    penalty_override: Penalty | None = None
    name: str = "quadratic"

    @property
    def penalty(self) -> Penalty:
        return Pull(self.ridge) if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> QuadraticRecords:
        """Features, targets and both norms; the clip of a run decides which norm is read. Raises InputError.

        As of `Problem.prepare`: features (n, d), labels (n,).
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        return QuadraticRecords(rows, np.array(labels, dtype=np.float64), *linear.feature_norms(rows))

    def coefficients(self, score: Array, along: Sequence[Array], label: Array) -> Sequence[Array]:
        return [score - label, *along]

    def curvature(self, y: Array, records: QuadraticRecords, part: slice) -> Array:
        return np.ones((1, 1, len(records.label[part])))

    def record_losses(self, y: Array, records: QuadraticRecords, part: slice) -> Array:
        errors = y @ records.features[part].T - records.label[part]
        return np.asarray(0.5 * np.square(errors, out=errors))

    def regression_scores(self, x: Array, y: Array, records: QuadraticRecords) -> Mapping[str, Array]:
        n = len(records.label)
        return fit_scores(2.0 * self.losses(x, y, records, np.full(n, 1.0 / n))[1], records.label)

    def predict(self, y: Array, features: Array) -> Array:
        """aᵀy, (b, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(y @ linear.with_intercept(features, self.intercept).T)

    # No constants: the gradient grows with the label, and no bound on labels is declared.


ENTRY = ProblemEntry(
    "quadratic",
    Quadratic,
    "ridge regression toward the upper variable: every solution in closed form",
    task="solved a quadratic bilevel problem",
    lower_task="minimised a quadratic loss",
    labels="numbers",
    defaults={"ridge": 0.1},
)
