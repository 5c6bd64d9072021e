"""Tuning the regularisation of a logistic regression, one strength per feature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.models import linear_terms as linear
from decentral_dp.problems.bilevel.linear import LinearClassifier, OneScore
from decentral_dp.problems.bilevel.penalties import Penalty, Strengths
from decentral_dp.problems.entry import ProblemEntry

_STRENGTHS = Strengths()


class LogisticRecords(NamedTuple):
    """signed: (N, d) b·a, features with the sign of the class. l1, l2: (N,) their norms. label: (N,) class index."""

    signed: Array
    l1: Array
    l2: Array
    label: NDArray[np.int64]


@dataclass(frozen=True)
class LogisticHyperparameter(LinearClassifier, OneScore):
    """Lower level: logistic loss on train records, regularised feature by feature; upper level: loss on validation.

        l(y; a, b) = h(y; a, b) = log(1 + exp(−b aᵀy)),     R(x, y) = ½ Σ_s exp(x_s) y_s²,     b ∈ {−1, +1}

    with t = b aᵀy and σ(t) = 1/(1 + exp(−t)):

        ∇_y l = −σ(−t) b a,     ∇²_yy l·z = σ(t)σ(−t) (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0.

    R touches no record, so neither does anything of the upper variable x: its channel is free.

    n_features → columns of the records; classes → (the label that counts as −1, the one that counts as +1);
    intercept → append a constant feature 1, regularised like the others. p = q = n_features (+ 1).

    Reference: Chen & Wang, ICML 2024, Section 5.1 (losses as means instead of sums over the records).
    """

    name: str = "logistic_hyperparameter"

    @property
    def penalty(self) -> Penalty:
        return _STRENGTHS if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LogisticRecords:
        """Signed features and both norms, so that the clip of a run decides which one is read. Raises InputError.

        As of `Problem.prepare`: features (n, d), labels (n,).
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        label = linear.class_index(labels, self.classes)
        return LogisticRecords(rows * (2.0 * label - 1.0)[:, None], *linear.feature_norms(rows), label)

    def coefficients(self, score: Array, along: Sequence[Array], label: Array) -> Sequence[Array]:
        return linear.logistic_coefficients(score, *along)

    def curvature(self, y: Array, records: LogisticRecords, part: slice) -> Array:
        """σ(t)σ(−t): even in t, so that exp never overflows."""
        small = np.exp(-np.abs(records.signed[part] @ y))
        return np.asarray(small / np.square(1.0 + small))[None, None]

    def record_losses(self, y: Array, records: LogisticRecords, part: slice) -> Array:
        margins = y @ records.signed[part].T
        # log(1 + e^{−t}) = max(−t, 0) + log(1 + e^{−|t|}): four passes of numpy that are vectorised.
        losses: Array = np.abs(margins)
        np.log1p(np.exp(np.negative(losses, out=losses), out=losses), out=losses)
        losses -= np.minimum(margins, 0.0, out=margins)
        return losses

    def accuracy(self, x: Array, y: Array, records: LogisticRecords) -> Array:
        """Share of records on the right side of the boundary; a record exactly on it counts half.

        As of `Problem.accuracy`: x (b, p), y (b, q) → (b,).
        """
        right = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(records.l1), max(self.q, len(y))):
                margins = y @ records.signed[part].T
                right += (margins > 0.0).sum(axis=1) + 0.5 * (margins == 0.0).sum(axis=1)
        return right / len(records.l1)

    def predict(self, y: Array, features: Array) -> Array:
        """σ(−aᵀy) and σ(aᵀy), (b, N, 2)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _shares(y @ linear.with_intercept(features, self.intercept).T)

    def probabilities(self, x: Array, y: Array, records: LogisticRecords) -> list[tuple[Array, NDArray[np.int64]]]:
        with np.errstate(over="ignore", invalid="ignore"):
            return [(_shares((2.0 * records.label - 1.0) * (records.signed @ y)), records.label)]


def _shares(score: Array) -> Array:
    """σ(−s) and σ(s), (…, 2)."""
    return np.stack([np.reciprocal(1.0 + np.exp(s)) for s in (score, -score)], axis=-1)


ENTRY = ProblemEntry(
    "logistic_hyperparameter",
    LogisticHyperparameter,
    "one regularisation strength per feature of a logistic regression",
    task="tuned the regularisation of a logistic regression",
    lower_task="trained a logistic regression",
    labels="two",
)
