"""Training at one level: min over y of (1/m) Σ_i mean over agent i's train records of ℓ(φ(y; a), b) + l2/2 ‖y‖².

As a bilevel problem it has no upper level: x has no coordinates (p = 0), no validation record is read, and the only
term is ∇_y ℓ, clipped record by record. ℓ is a loss of the outputs φ of a model with weights y (q,).

The common part of all features uses up the clipping norm. So a linear model may read privately centred features: x
(p = d) is the mean of the features that agents released with noise, φ is evaluated at a − x, and x comes from the term

    feature_mean = (1/N) Σ clip(a, C_x)

For any x, the gradient at a − x is clipped to C_y, so one record moves each release as without a centre
(docs/proofs/02). Centring helps most with few records: Sun et al., "The Importance of Feature Preprocessing for
Differentially Private Linear Optimization", ICLR 2024. With one output the intercept's gradient is then clipped to s C,
and the features' gradient to √(1 − s²) C, together to C. Otherwise the intercept dominates gradients of records near
the mean.

Under a small clip C all gradients have the same norm, and the minority class loses wherever its probability is below
one half. So for two classes and dense layers, with δ = σ(φ) − b and n = ‖∇φ‖, a record's clip is C min(1, 2|δ|): it
contributes F(|δ|) along ±∇φ/n, F(δ) = min(nδ, C, 2Cδ). For a record of the second class with probability p, these
cancel on average at p F(1 − σ(φ)) = (1 − p) F(σ(φ)). The predicted probability is this p, with log-odds

    sign(φ) min(|φ|, log(1 + exp |φ|) + log r),        r = C/n within [1/2, 1].

If the intercept has its own clip, r = s C/γ: its gradients calibrate the probabilities on average.

Losses of a record with outputs φ of the model and the label b, all convex in φ:

    logistic        log(1 + exp(φ)) − b φ, b ∈ {0, 1}                  slope σ(φ) − b                curvature ≤ 1/4
    cross_entropy   log Σ_r exp(φ_r) − φ_b, b ∈ {0, …, c − 1}          slope softmax(φ) − e_b        curvature ≤ 1/2
    squared         ½ (φ − b)²                                         slope φ − b                   curvature 1
    poisson         exp(φ) − (b + 1) φ, φ ≤ log 2                      slope exp(φ) − b − 1          curvature ≤ 2
    huber           ½ u² for |u| ≤ w, else w (|u| − ½ w), u = φ − b    slope min(max(u, −w), w)      curvature ≤ 1

The Poisson loss is for counts b + 1 ∈ [0, 2], in units of half the label range from 0: for a unit u, u exp(φ) −
u (b + 1) φ is the negative log-likelihood of a count u (b + 1) of the rate u exp(φ). Beyond φ = log 2, the end of the
range, it is linear, so that it stays convex. The prediction is the rate, exp(min(φ, log 2)) − 1 in units of b.

The slope is ∂ℓ/∂φ, the curvature the largest eigenvalue of ∂²ℓ/∂φ². `value` takes outputs (…, n, e) and labels (…, n)
to ℓ (…, n), `slopes` to ∂ℓ/∂φ (…, n, e), a new array.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Doc

from decentral_dp.bounded import Array, Norm, Split, shared_zeros
from decentral_dp.errors import InputError, nearest_of, quoted
from decentral_dp.files.tables import NonNegative
from decentral_dp.models.build import Learner, ModelTable, OneByOne
from decentral_dp.models.dense import DenseLayers, rest_of_clip
from decentral_dp.models.envelope import envelope_slopes
from decentral_dp.models.linear_terms import as_features, class_index, divisor_of, tiles
from decentral_dp.models.protocol import norm_sums
from decentral_dp.privacy.clipping import Clip, clip_factors, clipped_row_sums
from decentral_dp.problems.entry import ProblemEntry, ProblemFacts
from decentral_dp.problems.protocol import Regulariser, StackedProblem, StepFacts, Terms
from decentral_dp.problems.records import fit_scores
from decentral_dp.problems.statistics import pack_statistics

if TYPE_CHECKING:
    # At run time torch is imported by models that need it.
    from decentral_dp.models.module import TorchModel


@dataclass(frozen=True)
class Logistic:
    """Logistic loss for two classes and one output. Label 1 is the second class."""

    name = "logistic"
    curvature = 0.25

    def value(self, outputs: Array, labels: Array) -> Array:
        phi = outputs[..., 0]
        return np.asarray(np.logaddexp(0.0, phi) - labels * phi)

    def slopes(self, outputs: Array, labels: Array) -> Array:
        # exp(−φ) = inf gives σ(φ) = 0, rightly.
        return np.asarray((np.reciprocal(1.0 + np.exp(-outputs[..., 0])) - labels)[..., None])


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy for c classes and c outputs."""

    name = "cross_entropy"
    curvature = 0.5

    def value(self, outputs: Array, labels: Array) -> Array:
        phi = outputs - outputs.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(phi, _index(labels, phi), axis=-1)[..., 0]
        return np.asarray(np.log(np.exp(phi).sum(axis=-1)) - chosen)

    def slopes(self, outputs: Array, labels: Array) -> Array:
        share = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        index = _index(labels, share)
        np.put_along_axis(share, index, np.take_along_axis(share, index, axis=-1) - 1.0, axis=-1)
        return np.asarray(share)


@dataclass(frozen=True)
class Squared:
    """Squared loss for numeric labels."""

    name = "squared"
    curvature = 1.0

    def value(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(0.5 * np.square(outputs[..., 0] - labels))

    def slopes(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(outputs - labels[..., None])


@dataclass(frozen=True)
class Huber:
    """Huber loss for numeric labels, linear beyond a residual of `width` in the unit of the prepared labels."""

    width: float = 0.1
    name = "huber"
    curvature = 1.0

    def value(self, outputs: Array, labels: Array) -> Array:
        u = np.abs(outputs[..., 0] - labels)
        near = np.minimum(u, self.width)
        return np.asarray(near * (u - 0.5 * near))

    def slopes(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(np.clip(outputs - labels[..., None], -self.width, self.width))


@dataclass(frozen=True)
class Poisson:
    """Poisson loss for counts with a log link. Labels are scaled from [0, high] to [−1, 1]."""

    name = "poisson"
    curvature = 2.0

    def value(self, outputs: Array, labels: Array) -> Array:
        phi = outputs[..., 0]
        beyond = np.maximum(phi - _LOG_OF_RANGE, 0.0)
        return np.asarray(np.exp(phi - beyond) + 2.0 * beyond - (labels + 1.0) * phi)

    def slopes(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(self.predictions(outputs) - labels[..., None])

    def predictions(self, outputs: Array) -> Array:
        """Return the predicted labels of outputs φ."""
        return np.asarray(np.exp(np.minimum(outputs, _LOG_OF_RANGE)) - 1.0)


TrainingLoss: TypeAlias = Logistic | CrossEntropy | Squared | Huber | Poisson
# The logarithm of the largest scaled count.
_LOG_OF_RANGE = math.log(2.0)


def _index(labels: Array, outputs: Array) -> NDArray[np.int64]:
    """Broadcast labels to the indices (…, n, 1) of the outputs."""
    return np.broadcast_to(labels, outputs.shape[:-1])[..., None].astype(np.int64)


# γ, for features of norm at most 1, of one output and of several. A small γ leaves a record's clip to its features, but
# an intercept is learnt at a rate of γ². On synthetic tables 0.1 for one output lost up to 0.08 in AUC at ε = 8 with
# rare labels, and 0.6 in R² at ε = 1 with binary columns. With several outputs, noise of intercepts costs more.
_BIAS_OF_ONE, _BIAS_OF_MORE = 0.2, 0.1
# s, for centred features. On 8 synthetic tables at ε = 1, values of 0.3 to 0.5 were the best between 0.1 and 0.7.
# Without centring, separate clips are worse: R² fell from 0.44 to 0.33.
_BIAS_SHARE = 0.37
# |δ| from which a record has the full clip: its value at φ = 0.
_FULL_CLIP_SLOPE = 0.5
# Synthetic records for the curvature of a network.
_CURVATURE_RECORDS = 16
_PLAIN_TERMS: Mapping[str, Split] = MappingProxyType({"lower_grad_y": "train"})
_CENTRED_TERMS: Mapping[str, Split] = MappingProxyType({"lower_grad_y": "train", "feature_mean": "train"})


class Examples(NamedTuple):
    """Records: `features` (N, d), multiplied by the model's gain, and `label` (N,), class indices or numbers."""

    features: Array
    label: Array


@dataclass(frozen=True)
class Training(StackedProblem):
    """Mean loss of a model over train records, with a public ridge.

        lower_grad_y = ∇_y ℓ(φ(y; a), b),     R(y) = l2/2 ‖y‖²

    Args:
        name: name of the problem in scenarios.
        model: model that maps weights y (q,) and records to outputs φ.
        loss: loss ℓ.
        n_features: number of features d.
        n_classes: number of classes c, or 0 if labels are numbers.
        l2: strength of the ridge, which reads no record and is never clipped.
        radius: bound on ‖a‖₂ of every possible record, infinite by default.
        clip: clipping norms of the training gradients, for which predicted probabilities account. None (the default)
            means no clipping. With a clip of x, a linear model reads features centred at x.
    """

    name: str
    model: Learner
    loss: TrainingLoss
    n_features: int
    n_classes: int = 0
    l2: float = 0.0
    radius: float = math.inf
    clip: Clip = field(default_factory=Clip)

    @cached_property
    def reads_records(self) -> Mapping[str, Split]:
        terms = _CENTRED_TERMS if self.p else _PLAIN_TERMS
        return {**terms, "statistics": "train"} if self.has_statistics else terms

    @property
    def has_statistics(self) -> bool:
        """Whether least squares on sufficient statistics solves the problem."""
        return isinstance(self.loss, Squared) and self.length is not None

    @cached_property
    def p(self) -> int:
        """Number of coordinates of x: d with centred features, otherwise 0."""
        return self.n_features if self.length is not None and math.isfinite(self.clip.x) else 0

    @cached_property
    def length(self) -> float | None:
        """Bound on ‖∇φ‖₂ of every possible record of a linear model, or None for a network."""
        lengths = self.centred_lengths(0.0)
        return None if lengths is None else math.hypot(*lengths)

    def centred_lengths(self, centre: float) -> tuple[float, float] | None:
        """Bound the two parts of ∇φ of every possible record of a linear model. Return None for a network.

        Args:
            centre: norm ‖x‖₂ of the centre of features, in their unit.

        Returns:
            Bounds on ‖a − x‖₂ and on the intercept's part γ.
        """
        if not isinstance(self.model, DenseLayers) or len(self.model.widths) > 2:
            return None
        return self.largest_norm + centre, self.model.bias

    @cached_property
    def largest_norm(self) -> float:
        """Bound on ‖a‖₂ of every possible record, times the model's gain."""
        return self.radius * (self.model.gain if isinstance(self.model, DenseLayers) else 1.0)

    @cached_property
    def curvature(self) -> float:
        """Largest eigenvalue L of ∇² of the mean loss and the ridge. It is infinite for unbounded features.

        For a linear model it is a bound for all records. For a network it is an estimate at the start: the curvature of
        the loss times the mean of ‖∇φ‖² over synthetic records, uniform in the cube whose corners have length `radius`.
        """
        if not math.isfinite(self.radius):
            return math.inf
        if self.length is not None:
            return self.loss.curvature * self.length**2 + self.l2
        side = self.radius / math.sqrt(self.n_features)
        rows = np.random.default_rng(0).uniform(-side, side, (_CURVATURE_RECORDS, 1, self.n_features))
        starts = np.tile(self.model.start, (_CURVATURE_RECORDS, 1))
        first = np.eye(1, self.model.outputs)
        sums = self.model.clipped_sums(starts, rows, lambda agents, part, out: first + 0.0 * out, math.inf, "l2")
        square = float(np.square(sums).sum(axis=1).mean())
        return self.loss.curvature * square + self.l2

    @property
    def joins_agents(self) -> bool:
        """Whether the model is linear with one output, and reads features without a centre."""
        return self.length is not None and self.model.outputs == 1 and not self.p

    def step_facts(self) -> StepFacts:
        weights = self.model.start
        start = math.sqrt(float(np.square(weights).sum()) / max(1, int(np.count_nonzero(weights))))
        lengths = self.centred_lengths(self.largest_norm)
        if lengths is None:
            return StepFacts(self.n_classes, self.curvature, start, linear=False)
        centred = self.loss.curvature * math.hypot(*lengths) ** 2 + self.l2
        return StepFacts(self.n_classes, self.curvature, start, True, self.n_features, centred)

    def with_clip(self, clip: Clip) -> Training:
        return replace(self, clip=clip)

    def without_clip(self) -> Training:
        """Return the same model with losses computed from its uncorrected outputs."""
        return replace(self, clip=replace(self.clip, y=math.inf))

    def null_record(self, records: Examples) -> Examples:
        """Return a record of NaN, since non-finite contributions count as 0."""
        return Examples(records.features[:1] * np.nan, records.label[:1])

    @property
    def q(self) -> int:
        return self.model.p

    @property
    def start(self) -> Mapping[str, Array]:
        """Start of y: the model's public weights, (q,)."""
        return {"y": self.model.start}

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Examples:
        """Prepare records with class indices. Raises InputError.

        See `Problem.prepare` for the arguments.
        """
        if norm not in self.model.norms:
            raise InputError(
                "privacy.mechanism: Laplace noise requires gradients clipped in l1, but "
                f'{self.model.description} clips in l2 only. Fix: use mechanism = "gaussian", or model = '
                '"linear".'
            )
        rows = as_features(features, labels, self.n_features, intercept=False)
        classes = [float(c) for c in range(self.n_classes)]
        label = class_index(labels, classes).astype(np.float64) if classes else np.asarray(labels, dtype=np.float64)
        return Examples(self._scale_features(rows), label)

    def stacked_terms(
        self, x: Array, y: Array, z: Array, records: Examples, clip: Clip, term_names: Collection[str]
    ) -> Terms:
        if "lower_grad_y" not in term_names:
            return Terms()

        model, radius = self.model, None
        if clip.envelope and isinstance(self.loss, CrossEntropy) and isinstance(model, DenseLayers):
            with np.errstate(over="ignore", invalid="ignore"):
                features = records.features - x[:, None] if self.p else records.features
                radius = clip.y / np.sqrt(norm_sums(features, "l2") + model.bias**2)

        def cotangents(agents: slice, part: slice | NDArray[Any], outputs: Array) -> Array:
            labels = records.label[agents, part]
            slopes = self.loss.slopes(outputs, labels)
            if radius is None:
                return slopes
            return envelope_slopes(slopes, outputs, labels.astype(np.int64), radius[agents, part])

        if isinstance(model, DenseLayers):
            whole, centre = _FULL_CLIP_SLOPE if self._in_proportion else 0.0, x if self.p else None
            total = model.clipped_sums(
                y, records.features, cotangents, clip.y, clip.norm, whole, centre, self._bias_share
            )
        else:
            total = model.clipped_sums(y, records.features, cotangents, clip.y, clip.norm)
        total /= divisor_of(records.features)
        return Terms(lower_grad_y=total)

    @property
    def parts_of_clip(self) -> list[tuple[slice, float]]:
        """Coordinates of a record's gradient that are clipped separately, and their share of the clipping norm."""
        if not (share := self._bias_share):
            return [(slice(None), 1.0)]
        return [(slice(-1), rest_of_clip(share, self.clip.norm)), (slice(-1, None), share)]

    def feature_mean(self, records: Examples, clip: Clip) -> Array:
        """Average the features (g, n, d), with each record clipped to clip.x, to (g, d)."""
        total: Array = clipped_row_sums(records.features, clip.x, clip.norm)
        total /= max(records.label.shape[1], 1)
        return total

    def statistics(self, records: Examples, clip: Clip, centre: Array | None) -> Array:
        """Average (vech(ã ãᵀ), ã (b − centre)), with ã = (a, γ) = ∇φ, clipped per record to clip.y.

        Args:
            records: records of g agents, (g, n, …).
            clip: clipping norms.
            centre: centre of the labels, (g, 1). None means only the last entry γ b.

        Returns:
            Means (g, width), in the layout of `problems.statistics`. Records that are not finite count as 0.
        """
        labels = records.label if centre is None else records.label - centre
        gamma = getattr(self.model, "bias", 1.0)
        rows = np.concatenate([records.features, np.full((*labels.shape, 1), gamma)], axis=2)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("gnd,gnd->gn", records.features, records.features)
            if centre is None:
                squares = 0.0 * squares
            # Without the entry γ² of ã ãᵀ.
            norms = np.sqrt(squares * (squares + 2.0 * gamma**2) + (squares + gamma**2) * np.square(labels))
        factors = clip_factors(norms, clip.y) / max(labels.shape[1], 1)
        is_read = factors > 0.0
        rows, labels = np.where(is_read[..., None], rows, 0.0), np.where(is_read, labels, 0.0)
        clipped = factors[..., None] * rows
        matrix, vector = clipped.transpose(0, 2, 1) @ rows, np.einsum("gnd,gn->gd", clipped, labels)
        if centre is None:
            matrix, vector[:, :-1] = np.zeros_like(matrix), 0.0
        return pack_statistics(matrix, vector)

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        if not self.l2:
            return Regulariser(shared_zeros(y.shape), shared_zeros(z.shape), shared_zeros((len(y), 0)))
        return Regulariser(self.l2 * y, self.l2 * z, np.zeros((len(y), 0)))

    def regulariser_value(self, x: Array, y: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(0.5 * self.l2 * np.square(y).sum(axis=1))

    def losses(self, x: Array, y: Array, records: Examples, weights: Array) -> tuple[Array, Array]:
        """Return the weighted mean of ℓ for each row of y (b, q), (b,), for both levels."""
        mean = np.zeros(len(y))
        with np.errstate(all="ignore"):
            for rows, part, outputs in self._outputs(self.predicting(x, y), records.features):
                mean[rows] += self.loss.value(outputs, records.label[part]) @ weights[part]
        return mean, mean.copy()

    def accuracy(self, x: Array, y: Array, records: Examples) -> Array | None:
        """Return the share of records whose class has the largest score. With k tied classes, each counts 1/k.

        See `Problem.accuracy` for the arguments.
        """
        if not self.n_classes:
            return None
        right = np.zeros(len(y))
        with np.errstate(all="ignore"):
            for rows, part, outputs in self._outputs(self.predicting(x, y), records.features):
                scores = self.scores_of(outputs)
                best = scores == scores.max(axis=-1, keepdims=True)
                mine = np.take_along_axis(best, records.label[None, part, None].astype(np.int64), axis=-1)[..., 0]
                # Records with NaN scores have no best class; the 1 avoids 0/0.
                right[rows] += (mine / np.maximum(best.sum(axis=-1), 1)).sum(axis=1)
        return right / len(records.label)

    def regression_scores(self, x: Array, y: Array, records: Examples) -> Mapping[str, Array]:
        if self.n_classes:
            return {}
        squares = np.zeros(len(y))
        with np.errstate(all="ignore"):
            for rows, part, outputs in self._outputs(self.predicting(x, y), records.features):
                squares[rows] += np.square(self._labels_of(outputs) - records.label[part]).sum(axis=1)
        return fit_scores(squares / len(records.label), records.label)

    def probabilities(self, x: Array, y: Array, records: Examples) -> list[tuple[Array, NDArray[np.int64]]]:
        if not self.n_classes:
            return []
        weights = self.predicting(x[None], y[None])
        return [(self._predictions(weights, records.features)[0], records.label.astype(np.int64))]

    def scores_of(self, outputs: Array) -> Array:
        """Return a score per class, (…, c). For two classes and one output these are 0 and the output."""
        is_single = self.n_classes == 2 and outputs.shape[-1] == 1
        return np.concatenate([np.zeros_like(outputs), outputs], axis=-1) if is_single else outputs

    def predict(self, y: Array, features: Array) -> Array:
        """Predict class probabilities or numbers.

        Args:
            y: centres and weights, (b, p + q), from `predicting`.
            features: features, (N, d), as in `prepare`.

        Returns:
            Probabilities (b, N, c) with sum 1, or numbers (b, N) in the unit of the prepared labels.
        """
        return self._predictions(y, self._scale_features(features))

    def _predictions(self, y: Array, features: Array) -> Array:
        """Predict from features of `Examples`."""
        out = np.empty((len(y), len(features), max(self.n_classes, 1)))
        for rows, part, outputs in self._outputs(y, features):
            if self.n_classes:
                scores = self.scores_of(outputs)
                share = np.exp(scores - scores.max(axis=-1, keepdims=True))
                out[rows, part] = share / share.sum(axis=-1, keepdims=True)
            else:
                out[rows, part] = self._labels_of(outputs)[..., None]
        return out if self.n_classes else out[..., 0]

    def _labels_of(self, outputs: Array) -> Array:
        """Return the predicted numbers (…) of outputs (…, 1)."""
        return (self.loss.predictions(outputs) if isinstance(self.loss, Poisson) else outputs)[..., 0]

    @property
    def description(self) -> str:
        return self.model.description

    def named_weights(self, y: Array) -> dict[str, Array]:
        """Return the weights by name, shaped as in a torch `state_dict`, from y (p + q,) of `predicting`."""
        return self.model.named_weights(y[self.p :])

    def predicting(self, x: Array, y: Array) -> Array:
        """Return the centre and equivalent weights for features that are not centred, (b, p + q).

        Args:
            x: upper variables, (b, p).
            y: lower variables, (b, q).
        """
        if not self.p:
            return y
        wide = self.q - self.model.outputs
        shift = np.einsum("boi,bi->bo", y[:, :wide].reshape(len(y), -1, self.p), x)
        # Only a linear model has a centre.
        bias = y[:, wide:] - shift / getattr(self.model, "bias", 1.0)
        return np.concatenate([x, y[:, :wide], bias], axis=1)

    @property
    def _in_proportion(self) -> DenseLayers | None:
        """Model whose clip is proportional to a record's slope, or None."""
        return self.model if isinstance(self.loss, Logistic) and isinstance(self.model, DenseLayers) else None

    @property
    def _bias_share(self) -> float:
        """Share s of the intercept, or 0 if the intercept and features share one clip."""
        return _BIAS_SHARE if self.p and self.model.outputs == 1 else 0.0

    def _scale_features(self, features: Array) -> Array:
        """Return features times the model's gain."""
        gain = self.model.gain if isinstance(self.model, DenseLayers) else 1.0
        return features if gain == 1.0 else gain * features

    def _outputs(self, weights: Array, features: Array) -> Iterator[tuple[slice, slice, Array]]:
        """Yield a few rows of weights, records and their outputs (rows, records, e) at a time.

        For weights trained on clipped gradients the outputs are the corrected log-odds of the module docstring.
        """
        model = self._in_proportion if math.isfinite(self.clip.y) else None
        y = weights[:, self.p :]
        for rows, part in tiles(len(y), len(features), self.model.cells):
            outputs = self.model.outputs_of(y[rows], features[part])
            if model is not None:
                share: Array | float = self._bias_share * self.clip.y / model.bias
                if not share:
                    share = self.clip.y / model.unit_norms(y[rows], features[part], self.clip.norm)[..., None]
                far = np.logaddexp(0.0, np.abs(outputs)) + np.log(np.clip(share, _FULL_CLIP_SLOPE, 1.0))
                outputs = np.sign(outputs) * np.minimum(np.abs(outputs), far)
            yield rows, part, outputs


ModelKey = Annotated[ModelTable, Doc("The model whose weights are y; linear if left out.")]
ClassLoss = Annotated[str, Doc('The loss of one record: "logistic" of two classes, or "cross_entropy".')]
NumberLoss = Annotated[str, Doc('The loss of one record: "squared", "huber" or "poisson".')]
Penalty = Annotated[NonNegative, Doc("Strength of l2/2 ‖y‖², which reads no record; 0 if left out.")]


def classification(
    facts: ProblemFacts,
    model: ModelKey | None = None,
    loss: ClassLoss | None = None,
    l2: Penalty = 0.0,
) -> Training:
    """Build a classification problem. The default loss is logistic for two classes and cross-entropy for more.

    Raises:
        InputError: the loss is not for classes, or the model does not fit.
    """
    losses: dict[str, TrainingLoss] = {"logistic": Logistic()} if facts.n_classes == 2 else {}
    losses |= {"cross_entropy": CrossEntropy()}
    return _training("classification", facts, model, loss, losses, facts.n_classes, l2)


def regression(
    facts: ProblemFacts, model: ModelKey | None = None, loss: NumberLoss | None = None, l2: Penalty = 0.0
) -> Training:
    """Build a regression problem with half the squared error, the "huber" loss, or the "poisson" loss for counts.

    The Huber loss is linear beyond a tenth of half the label range. The Poisson loss has a log link.

    Raises:
        InputError: the labels are classes, the loss is not for numbers, or the model does not fit.
    """
    losses: dict[str, TrainingLoss] = {"squared": Squared(), "huber": Huber(), "poisson": Poisson()}
    return _training("regression", facts, model, loss, losses, 0, l2)


def _training(
    name: str,
    facts: ProblemFacts,
    table: ModelTable | None,
    loss: str | None,
    losses: Mapping[str, TrainingLoss],
    n_classes: int,
    l2: float,
) -> Training:
    """Make the problem from a model and the named loss, by default the first. Raises InputError."""
    training_loss = losses.get(loss or next(iter(losses)))
    if training_loss is None:
        raise InputError(f"problem.loss: unknown loss {quoted(loss)}{nearest_of(loss or '', losses)}")
    outputs = n_classes if isinstance(training_loss, CrossEntropy) else 1
    kind = "linear" if table is None else table.kind
    learner: Learner
    if table is not None and kind == "mlp":
        learner = DenseLayers((facts.n_features, *(table.hidden or ()), outputs), seed=facts.seed)
    elif kind == "linear":
        # Scaled features lie in [−1, 1], so every record has norm at most 1.
        bias = _BIAS_OF_ONE if outputs == 1 else _BIAS_OF_MORE
        learner = DenseLayers((facts.n_features, outputs), 1.0 / math.sqrt(facts.n_features), bias)
    else:
        model = cast("TorchModel", facts.model(outputs, table))
        if facts.module is not None and n_classes:
            from decentral_dp.models.module import refuse_probabilities

            refuse_probabilities(model)
        learner = OneByOne(model, f'model = "{kind}"')
    radius = math.inf if facts.l2 is None else facts.l2
    return Training(name, learner, training_loss, facts.n_features, n_classes, l2, radius)


ENTRIES = (
    ProblemEntry(
        "classification",
        classification,
        "a classifier: one level, nothing is tuned",
        lower_task="trained a classifier",
        labels="classes",
        one_level=True,
    ),
    ProblemEntry(
        "regression",
        regression,
        "a regression model: one level, nothing is tuned",
        lower_task="trained a model that predicts numbers",
        labels="numbers",
        one_level=True,
    ),
)
