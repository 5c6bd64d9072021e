"""What linear problems share: one loss of y only for both levels, whose per-record terms are products with features.

Y is y as a matrix, a row of weights for every score. Of one score a term is a coefficient times the record's features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.penalties import Intercept, Penalised, Penalty
from decentral_dp.problems.protocol import LOSS_OF_Y, StackedProblem, Terms, matrices_read


@dataclass(frozen=True)
class LinearProblem(StackedProblem, Protocol):
    """A problem whose loss is one of scores Y a in both levels. The first field of its records are their features."""

    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y
    description: ClassVar[str] = "a linear model"

    n_features: int

    @property
    def intercept(self) -> bool: ...

    @property
    def width(self) -> int:
        """Features of a record, with the intercept."""
        return self.n_features + self.intercept

    def record_losses(self, y: Array, records: Any, part: slice) -> Array:
        """(b, n) loss of each record of the part under each row of y. Call it with floating-point warnings off."""
        ...

    def curvature(self, y: Array, records: Any, part: slice) -> Array:
        """M (c, c, n) of the part's records, ∇²_yy l = M ⊗ aaᵀ, at y (q,)."""
        ...

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(weights), max(self.width, y.size // self.width)):
                mean += self.record_losses(y, records, part) @ weights[part]
        return mean, mean.copy()

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """∇²_yy l = M ⊗ aaᵀ, whose norm is ‖M‖·‖a‖². As of `Problem.matrices`."""
        names, norms = matrices_read(wanted, LOSS_OF_Y), linear.norms_of(train, clip)
        return linear.curved_sums(train[0], norms, lambda part: self.curvature(y, train, part), matrix, clip, names)

    def named_weights(self, y: Array) -> dict[str, Array]:
        """ "weight" (e, d), and "bias" (e,) where there is an intercept."""
        return linear.named_rows(y.reshape(-1, self.width), self.intercept)


@dataclass(frozen=True)
class OneScore(Penalised, LinearProblem, Protocol):
    """A linear problem of one score, q = width."""

    @property
    def q(self) -> int:
        return self.width

    def coefficients(self, score: Array, along: Sequence[Array], label: Array) -> Sequence[Array]:
        """∂l/∂score, and where aᵀz is given ∂²l/∂score² aᵀz. All are (g, n); score and along may be overwritten."""
        ...

    def stacked_terms(self, x: Array, y: Array, z: Array, records: Any, clip: Clip, wanted: Collection[str]) -> Terms:
        upper, curved = "upper_grad_y" in wanted, "lower_hvp" in wanted
        chosen = slice(0 if upper or "lower_grad_y" in wanted else 1, 1 + curved)

        def coefficients(y: Array, z: Array, a: Array, label: Array) -> Sequence[Array]:
            score, *along = linear.forward(a, y, z) if curved else linear.forward(a, y)
            return self.coefficients(score, along, label)[chosen]

        names, bounds = ["lower_grad_y", "lower_hvp"][chosen], [clip.z if upper else clip.y, clip.z][chosen]
        norms = linear.norms_of(records, clip)
        means = linear.clipped_means(coefficients, (y, z), records[0], norms, bounds, records.label)
        return Terms(upper_grad_y=means[0]) if upper else Terms(**dict(zip(names, means, strict=True)))


@dataclass(frozen=True)
class LinearClassifier(Penalised, LinearProblem, Protocol):
    """A linear problem of labels that are classes.

    Args:
        n_features: columns of the records.
        classes: the declared labels, in their order.
        intercept: whether a constant feature 1 is appended, regularised like the others; default no.
        penalty_override: the regulariser in the place of its own.
    """

    classes: tuple[float, ...] = (-1.0, 1.0)
    intercept: Intercept = False
    penalty_override: Penalty | None = None
