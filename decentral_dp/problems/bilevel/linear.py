"""Bilevel problems of linear models: one loss of y in both levels, and a public regulariser in x and y.

    problem                  loss                  R(x, y)                                  x
    logistic_hyperparameter  logistic              ½ Σ_s exp(x_s) y_s²                      a strength per feature
    softmax_hyperparameter   cross-entropy         Σ_r Σ_s exp(x_s) Y_rs² / (c p)           a strength per feature
    quadratic                least squares         ½ ridge ‖y − x‖²                         the point to stay near
    biased_regularisation    logistic or softmax   ½ ridge ‖y − x‖²                         the point to stay near
    ridge_hyperparameter     least squares         ½ Σ_s exp(x_s) y_s²                      a strength per feature
    logistic_regularisation  logistic              ½ exp(x) ‖y‖²                            one strength, p = 1
    ridge_regularisation     least squares         ½ exp(x) ‖y‖²                            one strength, p = 1

Y is y as a matrix with a row of weights for each score. Per-record terms are products with features. No lower loss uses
x, so no release of x depends on a record, and its channel has no privacy cost. Regularisers are data-independent,
exact, and never clipped.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.files.tables import Positive
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.protocol import LOSS_OF_Y, Regulariser, StackedProblem, Terms, matrices_read
from decentral_dp.problems.records import fit_scores

Ridge = Annotated[Positive, Doc("Strength of a quadratic regulariser, above 0; the default is the problem's own.")]
Intercept = Annotated[bool, Doc("Whether a constant feature 1 is appended.")]


class Penalised(Protocol):
    """Problem with a regulariser in `penalty`."""

    @property
    def penalty(self) -> Penalty: ...

    @property
    def q(self) -> int: ...

    @property
    def p(self) -> int:
        return self.penalty.uppers(self.q)

    def largest_x(self, curvature: float) -> float:
        """Return the largest x at which no eigenvalue of ∇²_yy R is above the curvature."""
        return self.penalty.largest_x(curvature)

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return self.penalty.terms(x, y, z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        return self.penalty.value(x, y)


class Strengths(NamedTuple):
    """R(x, y) = ½ scale Σ_r Σ_s exp(x_s) Y_rs², with Y = y as a (copies, p) matrix.

    Args:
        copies: number of lower variables per strength: 1 (the default) for a strength per variable, q for p = 1.
        scale: factor of R.
    """

    copies: int = 1
    scale: float = 1.0

    def uppers(self, q: int) -> int:
        return q // self.copies

    def largest_x(self, curvature: float) -> float:
        return math.log(curvature / self.scale)

    @np.errstate(over="ignore", invalid="ignore")
    def terms(self, x: Array, y: Array, z: Array) -> Regulariser:
        if self.copies == 1 and x.shape[1] > 1:
            # This evaluates the formulas below with few calls.
            strengths = np.exp(x) if self.scale == 1.0 else self.scale * np.exp(x)
            # These are columns of a message: numpy is three times slower on short strided rows.
            y, z = np.ascontiguousarray(y), np.ascontiguousarray(z)
            by_y = strengths * y
            return Regulariser(by_y, strengths * z, by_y * z + 0.0)
        strength, along = self.scale * np.exp(x)[:, None, :], self._by_strength(z)
        grad_y = strength * self._by_strength(y)
        jvp = (grad_y * along).sum(axis=1)
        if x.shape[1] == 1:
            # Both are equal up to rounding, on which seeded runs depend.
            jvp = strength[:, 0] * (y * z).sum(axis=1, keepdims=True)
        return Regulariser(grad_y.reshape(y.shape), (strength * along).reshape(y.shape), jvp)

    @np.errstate(over="ignore", invalid="ignore")
    def value(self, x: Array, y: Array) -> Array:
        squares = np.square(self._by_strength(y)).sum(axis=1)
        return np.asarray(0.5 * self.scale * (np.exp(x) * squares).sum(axis=1))

    def _by_strength(self, y: Array) -> Array:
        """Reshape (b, q) to (b, copies, p)."""
        return y.reshape(len(y), self.copies, -1)


class Pull(NamedTuple):
    """R(x, y) = ½ ridge ‖y − x‖² with ridge > 0, which pulls y toward x."""

    ridge: float

    def uppers(self, q: int) -> int:
        return q

    def largest_x(self, curvature: float) -> float:
        """Return infinity, since x moves the minimum, not the curvature."""
        return math.inf

    @np.errstate(over="ignore", invalid="ignore")
    def terms(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Regulariser(self.ridge * (y - x), self.ridge * z, -self.ridge * z)

    @np.errstate(over="ignore", invalid="ignore")
    def value(self, x: Array, y: Array) -> Array:
        return np.asarray(0.5 * self.ridge * np.square(y - x).sum(axis=1))


Penalty: TypeAlias = Strengths | Pull


class Ridged(Protocol):
    """Problem with R(x, y) = ½ ridge ‖y‖²."""

    @property
    def ridge(self) -> float: ...

    @np.errstate(over="ignore", invalid="ignore")
    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Regulariser(self.ridge * y, self.ridge * z, np.zeros_like(x))

    @np.errstate(over="ignore", invalid="ignore")
    def regulariser_value(self, x: Array, y: Array) -> Array:
        return np.asarray(0.5 * self.ridge * np.square(y).sum(axis=1))


@dataclass(frozen=True)
class LinearProblem(StackedProblem, Protocol):
    """Problem with the same loss of the scores Y a at both levels. The first field of its records has the features."""

    reads_records: ClassVar[Mapping[str, Split]] = LOSS_OF_Y
    description: ClassVar[str] = "a linear model"

    n_features: int

    @property
    def intercept(self) -> bool: ...

    @property
    def width(self) -> int:
        """Number of features of a record, including the intercept."""
        return self.n_features + self.intercept

    def record_losses(self, y: Array, records: Any, part: slice) -> Array:
        """Return the loss of each record in `part` for each row of y, (b, n), without floating-point warnings."""
        ...

    def curvature(self, y: Array, records: Any, part: slice) -> Array:
        """Return M (c, c, n) for the records in `part` at y (q,), where ∇²_yy l = M ⊗ aaᵀ."""
        ...

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        mean = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(weights), max(self.width, y.size // self.width)):
                mean += self.record_losses(y, records, part) @ weights[part]
        return mean, mean.copy()

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, matrix_names: Collection[str]
    ) -> dict[str, Array]:
        """Average ∇²_yy l = M ⊗ aaᵀ, whose norm is ‖M‖·‖a‖². See `Problem.matrices`."""
        names, norms = matrices_read(matrix_names, LOSS_OF_Y), linear.norms_of(train, clip)
        return linear.curved_sums(train[0], norms, lambda part: self.curvature(y, train, part), matrix, clip, names)

    def named_weights(self, y: Array) -> dict[str, Array]:
        """Return "weight" (e, d) and, with an intercept, "bias" (e,)."""
        return linear.named_rows(y.reshape(-1, self.width), self.intercept)


@dataclass(frozen=True)
class OneScore(Penalised, LinearProblem, Protocol):
    """Linear problem with one score per record, so that q = width."""

    @property
    def q(self) -> int:
        return self.width

    @property
    def joins_agents(self) -> bool:
        """Whether the terms accept joined records. They may not if a subclass overrides them."""
        return type(self).stacked_terms is OneScore.stacked_terms

    def coefficients(self, score: Array, along: Sequence[Array], label: Array) -> Sequence[Array]:
        """Return ∂l/∂score, and ∂²l/∂score² aᵀz if aᵀz is given, (g, n). This may overwrite `score` and `along`."""
        ...

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: Any, clip: Clip, term_names: Collection[str]
    ) -> Terms:
        upper, reads_hvp = "upper_grad_y" in term_names, "lower_hvp" in term_names
        chosen = slice(0 if upper or "lower_grad_y" in term_names else 1, 1 + reads_hvp)

        def coefficients(y: Array, z: Array, a: Array, label: Array) -> Sequence[Array]:
            score, *along = linear.forward(a, y, z) if reads_hvp else linear.forward(a, y)
            return self.coefficients(score, along, label)[chosen]

        names, bounds = ["lower_grad_y", "lower_hvp"][chosen], [clip.z if upper else clip.y, clip.z][chosen]
        norms = linear.norms_of(records, clip)
        means = linear.clipped_means(coefficients, (y, z), records[0], norms, bounds, records.label)
        return Terms(upper_grad_y=means[0]) if upper else Terms(**dict(zip(names, means, strict=True)))


@dataclass(frozen=True)
class LinearClassifier(Penalised, LinearProblem, Protocol):
    """Linear problem with classes.

    Args:
        n_features: number of columns of the records.
        classes: declared labels in their order.
        intercept: whether a constant feature 1 is appended, regularised like the others.
        penalty_override: regulariser that replaces the default one.
    """

    classes: tuple[float, ...] = (-1.0, 1.0)
    intercept: Intercept = False
    penalty_override: Penalty | None = None


_STRENGTHS = Strengths()


class LogisticRecords(NamedTuple):
    """Records: label-signed features `signed` (N, d), norms `l1` and `l2` (N,), and class indices `label` (N,)."""

    signed: Array
    l1: Array
    l2: Array
    label: NDArray[np.int64]


@dataclass(frozen=True)
class LogisticHyperparameter(LinearClassifier, OneScore):
    """Lower level: logistic loss on train records, regularised by feature; upper level: loss on validation records.

        l(y; a, b) = h(y; a, b) = log(1 + exp(−b aᵀy)),     R(x, y) = ½ Σ_s exp(x_s) y_s²,     b ∈ {−1, +1}

    with t = b aᵀy and σ(t) = 1/(1 + exp(−t)):

        ∇_y l = −σ(−t) b a,     ∇²_yy l·z = σ(t)σ(−t) (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0.

    R and all terms of the upper variable x read no record, so the channel of x has no privacy cost.

    The dimensions are p = q = n_features (+ 1).

    Args:
        n_features: number of columns of the records.
        classes: the label that counts as −1 and the label that counts as +1.
        intercept: whether a constant feature 1 is appended, regularised like the others.

    Reference: Chen & Wang, ICML 2024, Section 5.1 (losses as means instead of sums over the records).
    """

    name: str = "logistic_hyperparameter"

    @property
    def penalty(self) -> Penalty:
        return _STRENGTHS if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> LogisticRecords:
        """Prepare signed features and both norms. Raises InputError.

        See `Problem.prepare` for the arguments.
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        label = linear.class_index(labels, self.classes)
        return LogisticRecords(rows * (2.0 * label - 1.0)[:, None], *linear.feature_norms(rows), label)

    def coefficients(self, score: Array, along: Sequence[Array], label: Array) -> Sequence[Array]:
        return linear.logistic_coefficients(score, *along)

    def curvature(self, y: Array, records: LogisticRecords, part: slice) -> Array:
        """Return σ(t)σ(−t), which is even in t, so that exp never overflows."""
        small = np.exp(-np.abs(records.signed[part] @ y))
        return np.asarray(small / np.square(1.0 + small))[None, None]

    def record_losses(self, y: Array, records: LogisticRecords, part: slice) -> Array:
        margins = y @ records.signed[part].T
        # log(1 + e^{−t}) = max(−t, 0) + log(1 + e^{−|t|}) in four vectorised passes.
        losses: Array = np.abs(margins)
        np.log1p(np.exp(np.negative(losses, out=losses), out=losses), out=losses)
        losses -= np.minimum(margins, 0.0, out=margins)
        return losses

    def accuracy(self, x: Array, y: Array, records: LogisticRecords) -> Array:
        """Return the share of correctly classified records. A record on the boundary counts half.

        See `Problem.accuracy` for the arguments.
        """
        right = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(records.l1), max(self.q, len(y))):
                margins = y @ records.signed[part].T
                right += (margins > 0.0).sum(axis=1) + 0.5 * (margins == 0.0).sum(axis=1)
        return right / len(records.l1)

    def predict(self, y: Array, features: Array) -> Array:
        """Return σ(−aᵀy) and σ(aᵀy), (b, N, 2)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return _shares(y @ linear.with_intercept(features, self.intercept).T)

    def probabilities(self, x: Array, y: Array, records: LogisticRecords) -> list[tuple[Array, NDArray[np.int64]]]:
        with np.errstate(over="ignore", invalid="ignore"):
            return [(_shares((2.0 * records.label - 1.0) * (records.signed @ y)), records.label)]


def _shares(score: Array) -> Array:
    """Return σ(−s) and σ(s), (…, 2)."""
    return np.stack([np.reciprocal(1.0 + np.exp(s)) for s in (score, -score)], axis=-1)


class SoftmaxRecords(NamedTuple):
    """Records: `features` (N, p), class indices `label` (N,) from 0 to c − 1, and norms `l1` and `l2` (N,)."""

    features: Array
    label: NDArray[np.int64]
    l1: Array
    l2: Array


@dataclass(frozen=True)
class SoftmaxProblem(LinearProblem, Protocol):
    """Linear problem with cross-entropy. Y (c, width) has a row for each declared class."""

    classes: tuple[float, ...]

    @property
    def q(self) -> int:
        return len(self.classes) * self.width

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: Any, clip: Clip, term_names: Collection[str]
    ) -> Terms:
        c, n, g = len(self.classes), max(records.label.shape[1], 1), len(y)
        upper, reads_hvp = "upper_grad_y" in term_names, "lower_hvp" in term_names
        reads_slopes = upper or "lower_grad_y" in term_names
        along = np.concatenate([y, z], axis=1) if reads_hvp else y
        along = along.reshape(g, -1, self.width)
        norms, grad, hvp = linear.norms_of(records, clip), np.zeros((g, c, self.width)), np.zeros((g, c, self.width))
        with np.errstate(all="ignore"):
            for agents, part in linear.tiles(*records.features.shape):
                a, size = records.features[agents, part], norms[agents, part]
                products = np.matmul(along[agents], a.swapaxes(1, 2))
                share = class_shares(products[:, :c])
                if reads_slopes:
                    residual = class_residual(share, records.label[agents, part])
                    grad[agents] += np.matmul(
                        linear.clip_columns(residual, size, clip.norm, clip.z if upper else clip.y), a
                    )
                if reads_hvp:
                    slope = products[:, c:] * share
                    slope -= share * slope.sum(axis=1, keepdims=True)
                    hvp[agents] += np.matmul(linear.clip_columns(slope, size, clip.norm, clip.z), a)
        first, second = grad.reshape(g, -1) / n, hvp.reshape(g, -1) / n
        if upper:
            return Terms(upper_grad_y=first)
        return Terms(lower_grad_y=first if reads_slopes else None, lower_hvp=second if reads_hvp else None)

    def curvature(self, y: Array, records: Any, part: slice) -> Array:
        """Return diag(s) − ssᵀ of each record."""
        return class_curvature(class_shares(y.reshape(-1, self.width) @ records.features[part].T))

    def record_losses(self, y: Array, records: Any, part: slice) -> Array:
        scores = self._scores(y, records.features[part])
        scores -= scores.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(scores).sum(axis=1)) - _select_labels(scores, records.label[part]))

    def accuracy(self, x: Array, y: Array, records: Any) -> Array:
        """Return the share of records whose class has the largest score. With k tied classes, each counts 1/k.

        See `Problem.accuracy` for the arguments.
        """
        right = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(records.label), max(self.width, y.size // self.width)):
                scores = self._scores(y, records.features[part])
                best = scores == scores.max(axis=1, keepdims=True)
                # A record with NaN scores has no best class; the 1 avoids 0/0.
                right += (_select_labels(best, records.label[part]) / np.maximum(best.sum(axis=1), 1)).sum(axis=1)
        return right / len(records.label)

    def predict(self, y: Array, features: Array) -> Array:
        """Return softmax(Ya), (b, N, c)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return class_shares(self._scores(y, linear.with_intercept(features, self.intercept))).swapaxes(1, 2)

    def probabilities(self, x: Array, y: Array, records: Any) -> list[tuple[Array, NDArray[np.int64]]]:
        with np.errstate(over="ignore", invalid="ignore"):
            return [(class_shares(self._scores(y[None], records.features))[0].T, records.label)]

    def _scores(self, y: Array, features: Array) -> Array:
        """Return the scores of n records for each row of y, (b, c, n), by one product."""
        scores = y.reshape(-1, self.width) @ features.T
        return np.asarray(scores.reshape(len(y), len(self.classes), len(features)))


@dataclass(frozen=True)
class SoftmaxHyperparameter(SoftmaxProblem, LinearClassifier):
    """Lower level: cross-entropy on train records, regularised by feature; upper level: loss on validation records.

        l(y; a, b) = h(y; a, b) = log Σ_r exp(Y_r a) − Y_b a,     R(x, y) = Σ_r Σ_s exp(x_s) Y_rs² / (c p)

    Y is y as a (c, p) matrix, row after row. With s = softmax(Ya) and the unit vector e_b:

        ∇_y l = (s − e_b) aᵀ,     ∇²_yy l·z = (diag(s) − ssᵀ)(Za) aᵀ,     ∇_x h = 0,     ∇²_xy l = 0.

    R and all terms of the upper variable x read no record, so the channel of x has no privacy cost. The norm of an
    outer product r aᵀ is ‖r‖·‖a‖, in ℓ1 and in ℓ2.

    The dimensions are p = n_features (+ 1) and q = c·p.

    Args:
        n_features: number of columns of the records.
        classes: declared labels in the order of the rows of Y.
        intercept: whether a constant feature 1 is appended, regularised like the others.

    Reference: Chen & Wang, ICML 2024, Section 5.2, where the regulariser is printed without the square and is not
        bounded below.
    """

    name: str = "softmax_hyperparameter"

    @property
    def penalty(self) -> Penalty:
        return Strengths(len(self.classes), 2.0 / self.q) if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> SoftmaxRecords:
        """Prepare features, class indices and both norms. Raises InputError.

        See `Problem.prepare` for the arguments.
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        return SoftmaxRecords(rows, linear.class_index(labels, self.classes), *linear.feature_norms(rows))


def class_shares(scores: Array) -> Array:
    """Return the softmax over classes, (…, c, n), without overflow."""
    shares: Array = scores - scores.max(axis=-2, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=-2, keepdims=True)
    return shares


def class_residual(shares: Array, label: NDArray[np.int64]) -> Array:
    """Return s − e_b from shares (…, c, n) and labels (…, n)."""
    own_score = label[..., None, :]
    residual = shares.copy()
    np.put_along_axis(residual, own_score, np.take_along_axis(residual, own_score, axis=-2) - 1.0, axis=-2)
    return residual


def class_curvature(shares: Array) -> Array:
    """Return diag(s) − ssᵀ of each record, (c, c, n), from s (c, n).

    The diagonal is computed so that rows sum to zero, because s − s² suffers from cancellation near s = 1.
    """
    curvature = np.negative(shares[:, None] * shares)
    diagonal = np.arange(len(shares))
    curvature[diagonal, diagonal] = 0.0
    curvature[diagonal, diagonal] = -curvature.sum(axis=1)
    return curvature


def _select_labels(values: NDArray[Any], label: NDArray[np.int64]) -> NDArray[Any]:
    """Select the entry of each record's class, (b, c, n) → (b, n)."""
    return values[:, label, np.arange(len(label))]


class QuadraticRecords(NamedTuple):
    """Records: `features` (N, d), numeric `label` (N,), and norms `l1` and `l2` (N,)."""

    features: Array
    label: Array
    l1: Array
    l2: Array


@dataclass(frozen=True)
class Quadratic(OneScore):
    """Lower level: least squares on train records, pulled toward x; upper level: least squares on validation records.

        l(y; a, b) = h(y; a, b) = ½(aᵀy − b)²,     R(x, y) = ½ ridge ‖y − x‖²
        ∇_y l = (aᵀy − b) a,     ∇²_yy l·z = (aᵀz) a,     ∇_x h = 0,     ∇²_xy l = 0,     ∇²_xy R·z = −ridge z

    With A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b over train records, Ā and c̄ over validation records:

        y*(x) = (A + ridge I)⁻¹(c + ridge x)     z*(x) = (A + ridge I)⁻¹(Ā y*(x) − c̄)     ∇F(x) = ridge z*(x)

    F(x) = ½ y*ᵀ Ā y* − c̄ᵀ y* + const is a convex quadratic, minimised where Ā y*(x) = c̄. R and all terms of x read no
    record, so the channel of x has no privacy cost.

    Labels are numbers, and the dimensions are p = q = n_features (+ 1).

    Args:
        n_features: number of columns of the records.
        ridge: strength of the pull, above 0.
        intercept: whether a constant feature 1 is appended, pulled like the others.
        penalty_override: regulariser instead of the pull.
    """

    ridge: Ridge = 1.0
    intercept: Intercept = False
    penalty_override: Penalty | None = None
    name: str = "quadratic"

    @property
    def penalty(self) -> Penalty:
        return Pull(self.ridge) if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> QuadraticRecords:
        """Prepare features, labels and both norms. Raises InputError.

        See `Problem.prepare` for the arguments.
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
        """Return aᵀy, (b, N)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(y @ linear.with_intercept(features, self.intercept).T)


def biased_regularisation(
    n_features: int, classes: tuple[float, ...], ridge: Ridge = 0.1, intercept: Intercept = False
) -> LogisticHyperparameter | SoftmaxHyperparameter:
    """Build a problem that learns, on validation records, the point x toward which the lower solution is pulled.

        y*(x) = argmin_y (1/m) Σ_i mean_i loss(y; a, b) + ½ ridge ‖y − x‖²

    with the logistic loss for two classes (q = n_features (+ 1)) and the softmax loss for more (q = classes ×
    features).
    """
    model = LogisticHyperparameter if len(classes) == 2 else SoftmaxHyperparameter
    return model(n_features, classes, intercept, Pull(ridge), "biased_regularisation")


def ridge_hyperparameter(n_features: int, intercept: Intercept = False) -> Quadratic:
    """Build least squares with one regularisation strength per feature, tuned on validation records.

    y*(x) = (A + diag exp(x))⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    The option `intercept` appends a constant feature 1, regularised like the others.
    """
    return Quadratic(n_features, intercept=intercept, penalty_override=Strengths(), name="ridge_hyperparameter")


def logistic_regularisation(
    n_features: int, classes: tuple[float, ...], intercept: Intercept = False
) -> LogisticHyperparameter:
    """Build a logistic regression with one regularisation strength, tuned on validation records (p = 1).

    y*(x) = argmin_y (1/m) Σ_i mean_i log(1 + exp(−b aᵀy)) + ½ exp(x) ‖y‖²

    The option `intercept` appends a constant feature 1, regularised like the others.
    """
    strengths = Strengths(n_features + intercept)
    return LogisticHyperparameter(n_features, classes, intercept, strengths, "logistic_regularisation")


def ridge_regularisation(n_features: int, intercept: Intercept = False) -> Quadratic:
    """Build least squares with one regularisation strength, tuned on validation records (p = 1, numeric labels).

    y*(x) = (A + exp(x) I)⁻¹ c     with A = (1/m) Σ_i mean_i a aᵀ and c = (1/m) Σ_i mean_i a b

    The option `intercept` appends a constant feature 1, regularised like the others.
    """
    strengths = Strengths(n_features + intercept)
    return Quadratic(n_features, intercept=intercept, penalty_override=strengths, name="ridge_regularisation")


ENTRIES = (
    ProblemEntry(
        "logistic_hyperparameter",
        LogisticHyperparameter,
        "one regularisation strength per feature of a logistic regression",
        task="tuned the regularisation of a logistic regression",
        lower_task="trained a logistic regression",
        labels="two",
    ),
    ProblemEntry(
        "softmax_hyperparameter",
        SoftmaxHyperparameter,
        "one regularisation strength per feature of a softmax regression",
        task="tuned the regularisation of a softmax classifier",
        lower_task="trained a softmax classifier",
        labels="classes",
    ),
    ProblemEntry(
        "quadratic",
        Quadratic,
        "ridge regression toward the upper variable: every solution in closed form",
        task="solved a quadratic bilevel problem",
        lower_task="minimised a quadratic loss",
        labels="numbers",
        defaults={"ridge": 0.1},
    ),
    ProblemEntry(
        "biased_regularisation",
        biased_regularisation,
        "the point toward which a logistic or softmax regression is pulled",
        task="tuned the point that a classifier is drawn to",
        lower_task="trained a classifier that is drawn to a given point",
        labels="classes",
    ),
    ProblemEntry(
        "logistic_regularisation",
        logistic_regularisation,
        "one regularisation strength for all features of a logistic regression: x is one number",
        task="tuned the regularisation of a logistic regression",
        labels="two",
    ),
    ProblemEntry(
        "ridge_hyperparameter",
        ridge_hyperparameter,
        "one regularisation strength per feature of a least-squares regression",
        task="tuned the regularisation of a least-squares fit",
        lower_task="fitted least squares",
        labels="numbers",
    ),
    ProblemEntry(
        "ridge_regularisation",
        ridge_regularisation,
        "one regularisation strength for all features of a least-squares regression: x is one number",
        task="tuned the regularisation of a least-squares fit",
        labels="numbers",
    ),
)
