"""Tuning the regularisation of a logistic regression, one strength per feature."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, LipschitzConstants, Norm, Split
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.penalties import Intercept, Penalised, Penalty, Strengths
from decentral_dp.problems.entry import Entry
from decentral_dp.problems.protocol import LOSS_OF_Y, StackedProblem, Terms, matrices_read


class ScoreBounds(NamedTuple):
    """Bounds on a record's terms, as ℓ1 norms over powers of R ≥ ‖a‖₁ and M_z ≥ |z_s|, of norms ‖a aᵀ‖_{1→1} ≤ R².

    slope: ‖∇_y l‖ ≤ slope·R. curvature: ‖∇²_yy l‖ ≤ curvature·R². curvature_along: ‖∇²_yy l·z‖ ≤ curvature_along·R²
    M_z. third: the Jacobian of ∇²_yy l·z in y is at most R³ M_z/third.
    """

    slope: float
    curvature: float
    curvature_along: float
    third: float


@dataclass(frozen=True)
class LinearClassifier(Penalised, StackedProblem, Protocol):
    """A problem whose loss is one of a linear classifier in both levels, and of y alone.

    Args:
        n_features: columns of the records.
        classes: the declared labels, in their order.
        intercept: whether a constant feature 1 is appended, regularised like the others; default no.
        penalty_override: the regulariser in the place of its own.
    """

    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y

    n_features: int
    classes: tuple[float, ...] = (-1.0, 1.0)
    intercept: Intercept = False
    penalty_override: Penalty | None = None

    @classmethod
    def from_dataset(cls, n_features: int, classes: Sequence[float], intercept: bool = False) -> Self:
        """Make it for labels of any numbers."""
        return cls(n_features, tuple(float(c) for c in classes), intercept)

    @property
    def width(self) -> int:
        """Features of a record, with the intercept."""
        return self.n_features + self.intercept

    bounds: ClassVar[ScoreBounds]

    def constants(self, box: Mapping[str, float], radius: float | None) -> LipschitzConstants | None:
        """Constants for x_s ≤ box["x"], |y_s| ≤ box["y"], |z_s| ≤ box["z"] =: M_z and ‖a‖₁ ≤ radius =: R.

        Those of the records are `bounds`. The swaps hold over two points, since they bound each record's term by
        itself.
        """
        known, regulariser = linear.declared_bounds(box, radius), self.penalty.lipschitz(box)
        if known is None or regulariser is None:
            return None
        r, m_z = known.radius + self.intercept, known.z
        slope, curvature, along, third = self.bounds
        train, validation = np.zeros((2, 3, 3))
        train[1, 1] = train[2, 2] = validation[2, 1] = curvature * r**2
        train[2, 1] = r**3 * m_z / third
        return LipschitzConstants(
            data={"train": train, "validation": validation},
            regulariser=regulariser,
            swap={
                "train": np.array([0.0, 2 * slope * r, 2 * along * r**2 * m_z]),
                "validation": np.array([0.0, 0.0, 2 * slope * r]),
            },
            two_point=True,
        )

    description: ClassVar[str] = "a linear model"

    def named_weights(self, y: Array) -> dict[str, Array]:
        """ "weight" (e, d), and "bias" (e,) where there is an intercept."""
        return linear.named_rows(y.reshape(-1, self.width), self.intercept)


_STRENGTHS = Strengths()


class LogisticRecords(NamedTuple):
    """signed: (N, d) b·a, features with the sign of the class. l1, l2: (N,) their norms. label: (N,) class index."""

    signed: Array
    l1: Array
    l2: Array
    label: NDArray[np.int64]


@dataclass(frozen=True)
class LogisticHyperparameter(LinearClassifier):
    """Lower level: logistic loss on train records, regularised feature by feature; upper level: loss on validation.

        l(y; a, b) = h(y; a, b) = log(1 + exp(−b aᵀy)),     R(x, y) = ½ Σ_s exp(x_s) y_s²,     b ∈ {−1, +1}

    with t = b aᵀy and σ(t) = 1/(1 + exp(−t)):

        ∇_y l = −σ(−t) b a,     ∇²_yy l·z = σ(t)σ(−t) (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0.

    R touches no record, so neither does anything of the upper variable x: its channel is free.

    n_features → columns of the records; classes → (the label that counts as −1, the one that counts as +1);
    intercept → append a constant feature 1, regularised like the others. p = q = n_features (+ 1).

    Reference: Chen & Wang, ICML 2024, Section 5.1 (losses as means instead of sums over the records).
    """

    # max σ' = 1/4, and max|σ''| = 1/(6√3). Attained, except that the last needs R·box["y"] ≥ log(2 + √3).
    bounds = ScoreBounds(1.0, 0.25, 0.25, 6 * math.sqrt(3))

    name: str = "logistic_hyperparameter"

    def __post_init__(self) -> None:
        linear.check_n_features(self.n_features)
        linear.check_classes(self.classes, self.name, exactly=2)

    @property
    def q(self) -> int:
        return self.width

    @property
    def penalty(self) -> Penalty:
        return _STRENGTHS if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LogisticRecords:
        """Signed features and both norms, so that the clip of a run decides which one is read. Raises InputError.

        As of `Problem.prepare`: features (n, d), labels (n,).
        """
        rows = linear.checked_features(features, labels, self.n_features, self.intercept)
        label = linear.class_index(labels, self.classes)
        return LogisticRecords(rows * (2.0 * label - 1.0)[:, None], *linear.feature_norms(rows), label)

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: LogisticRecords, clip: Clip, wanted: Collection[str]
    ) -> Terms:
        norms = linear.norms_of(records, clip)
        if "upper_grad_y" in wanted:
            return Terms(upper_grad_y=linear.clipped_means(_slopes, (y,), records.signed, norms, (clip.z,))[0])
        if "lower_hvp" not in wanted:
            return Terms(*linear.clipped_means(_slopes, (y,), records.signed, norms, (clip.y,)))
        if "lower_grad_y" not in wanted:
            return Terms(None, *linear.clipped_means(_curvatures, (y, z), records.signed, norms, (clip.z,)))
        return Terms(*linear.clipped_means(_both, (y, z), records.signed, norms, (clip.y, clip.z)))

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: LogisticRecords, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """∇²_yy l = σ(t)σ(−t) aaᵀ, whose norm is σ(t)σ(−t)·‖a‖². As of `Problem.matrices`."""
        return linear.curved_sums(
            train.signed,
            linear.norms_of(train, clip),
            lambda part: _curvature(train.signed[part] @ y),
            matrix,
            clip,
            matrices_read(wanted, LOSS_OF_Y),
        )

    def losses(self, x: Array, y: Array, records: LogisticRecords, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(weights), max(self.q, len(y))):
                margins = y @ records.signed[part].T
                # log(1 + e^{−t}) = max(−t, 0) + log(1 + e^{−|t|}): four passes of numpy that are vectorised.
                losses = np.abs(margins)
                np.log1p(np.exp(np.negative(losses, out=losses), out=losses), out=losses)
                losses -= np.minimum(margins, 0.0, out=margins)
                mean += losses @ weights[part]
        return mean, mean.copy()

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


def _slopes(y: Array, a: Array) -> tuple[Array, ...]:
    """−σ(−t), (g, n). Here and below y and z are (g, d), a is (g, n, d)."""
    return linear.logistic_coefficients(*linear.forward(a, y))[:1]


def _curvatures(y: Array, z: Array, a: Array) -> tuple[Array, ...]:
    """σ(t)σ(−t) (aᵀz), (g, n)."""
    return _both(y, z, a)[1:]


def _both(y: Array, z: Array, a: Array) -> tuple[Array, ...]:
    """Slopes, and curvatures along z."""
    return linear.logistic_coefficients(*linear.forward(a, y, z))


def _curvature(margins: Array) -> Array:
    """σ(t)σ(−t), (1, 1, n): even in t, so that exp never overflows."""
    small = np.exp(-np.abs(margins))
    return np.asarray(small / np.square(1.0 + small))[None, None]


ENTRY = Entry(
    "logistic_hyperparameter",
    LogisticHyperparameter,
    "one regularisation strength per feature of a logistic regression",
    task="tuned the regularisation of a logistic regression",
    lower_task="trained a logistic regression",
    labels="two",
)
