"""Ridge regression toward a point that the upper level chooses: everything has a closed form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.errors import InputError
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.penalties import Intercept, Penalised, Penalty, Pull, Ridge, check_ridge
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.protocol import LOSS_OF_Y, StackedProblem, Terms, matrices_read
from decentral_dp.problems.records import fit_scores


class QuadraticRecords(NamedTuple):
    """features: (N, d). target: (N,). l1, l2: (N,) norms of the features."""

    features: Array
    target: Array
    l1: Array
    l2: Array


@dataclass(frozen=True)
class Quadratic(Penalised, StackedProblem):
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

    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y

    n_features: int
    ridge: Ridge = 1.0
    intercept: Intercept = False
    penalty_override: Penalty | None = None
    name: str = "quadratic"

    def __post_init__(self) -> None:
        linear.check_n_features(self.n_features)
        check_ridge(self.ridge)

    @property
    def q(self) -> int:
        return self.n_features + self.intercept

    @property
    def penalty(self) -> Penalty:
        return Pull(self.ridge) if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> QuadraticRecords:
        """Features, targets and both norms; the clip of a run decides which norm is read. Raises InputError.

        As of `Problem.prepare`: features (n, d), labels (n,).
        """
        rows = linear.checked_features(features, labels, self.n_features, self.intercept)
        target = np.array(labels, dtype=np.float64)
        if not np.isfinite(target).all():
            row = int(np.argmin(np.isfinite(target)))
            raise InputError(f"problem: record {row} has a label that is not a finite number; remove or mend it.")
        return QuadraticRecords(rows, target, *linear.feature_norms(rows))

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: QuadraticRecords, clip: Clip, wanted: Collection[str]
    ) -> Terms:
        upper, curved = "upper_grad_y" in wanted, "lower_hvp" in wanted

        def coefficients(y: Array, z: Array, a: Array, target: Array) -> list[Array]:
            margins, *along = linear.forward(a, y, z) if curved else linear.forward(a, y)
            return [margins - target, *along]

        bounds = (clip.z if upper else clip.y, clip.z)[: 1 + curved]
        norms = linear.norms_of(records, clip)
        means = linear.clipped_means(coefficients, (y, z), records.features, norms, bounds, records.target)
        return Terms(upper_grad_y=means[0]) if upper else Terms(*means)

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: QuadraticRecords, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """∇²_yy l = aaᵀ, whose norm is ‖a‖². As of `Problem.matrices`."""
        return linear.curved_sums(
            train.features,
            linear.norms_of(train, clip),
            lambda part: np.ones((1, 1, len(train.target[part]))),
            matrix,
            clip,
            matrices_read(wanted, LOSS_OF_Y),
        )

    def losses(self, x: Array, y: Array, records: QuadraticRecords, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(weights), max(self.q, len(y))):
                errors = y @ records.features[part].T - records.target[part]
                mean += 0.5 * np.square(errors, out=errors) @ weights[part]
        return mean, mean.copy()

    def regression_scores(self, x: Array, y: Array, records: QuadraticRecords) -> Mapping[str, Array]:
        n = len(records.target)
        return fit_scores(2.0 * self.losses(x, y, records, np.full(n, 1.0 / n))[1], records.target)

    description: ClassVar[str] = "a linear model"

    def predict(self, y: Array, features: Array) -> Array:
        """aᵀy, (b, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(y @ linear.with_intercept(features, self.intercept).T)

    def named_weights(self, y: Array) -> dict[str, Array]:
        """ "weight" (1, d), and "bias" (1,) where there is an intercept."""
        return linear.named_rows(y[None], self.intercept)

    # No constants: the gradient grows with the label, and no bound on labels is declared.


ENTRY = Entry(
    "quadratic",
    Quadratic,
    "ridge regression toward the upper variable: every solution in closed form",
    task="solved a quadratic bilevel problem",
    lower_task="minimised a quadratic loss",
    labels="numbers",
    defaults={"ridge": 0.1},
)
