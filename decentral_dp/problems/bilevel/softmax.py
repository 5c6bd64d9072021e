"""Tuning the regularisation of a multi-class linear classifier, one strength per feature."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.models import linear_terms as linear
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import LinearClassifier, LinearProblem
from decentral_dp.problems.bilevel.penalties import Penalty, Strengths
from decentral_dp.problems.entry import ProblemEntry
from decentral_dp.problems.protocol import Terms


class SoftmaxRecords(NamedTuple):
    """features: (N, p). label: (N,) class index 0..c−1. l1, l2: (N,) norms of the features."""

    features: Array
    label: NDArray[np.int64]
    l1: Array
    l2: Array


@dataclass(frozen=True)
class SoftmaxProblem(LinearProblem, Protocol):
    """A linear problem of the cross-entropy, Y (c, width) with a row for each of the declared classes."""

    classes: tuple[float, ...]

    @property
    def q(self) -> int:
        return len(self.classes) * self.width

    def stacked_terms(self, x: Array, y: Array, z: Array, records: Any, clip: Clip, wanted: Collection[str]) -> Terms:
        c, n, g = len(self.classes), max(records.label.shape[1], 1), len(y)
        upper, curved = "upper_grad_y" in wanted, "lower_hvp" in wanted
        sloped = upper or "lower_grad_y" in wanted
        along = np.concatenate([y, z], axis=1) if curved else y
        along = along.reshape(g, -1, self.width)
        norms, grad, hvp = linear.norms_of(records, clip), np.zeros((g, c, self.width)), np.zeros((g, c, self.width))
        with np.errstate(all="ignore"):
            for agents, part in linear.tiles(*records.features.shape):
                a, size = records.features[agents, part], norms[agents, part]
                products = np.matmul(along[agents], a.swapaxes(1, 2))
                share = class_shares(products[:, :c])
                if sloped:
                    residual = class_residual(share, records.label[agents, part])
                    grad[agents] += np.matmul(
                        linear.clip_columns(residual, size, clip.norm, clip.z if upper else clip.y), a
                    )
                if curved:
                    slope = products[:, c:] * share
                    slope -= share * slope.sum(axis=1, keepdims=True)
                    hvp[agents] += np.matmul(linear.clip_columns(slope, size, clip.norm, clip.z), a)
        first, second = grad.reshape(g, -1) / n, hvp.reshape(g, -1) / n
        if upper:
            return Terms(upper_grad_y=first)
        return Terms(lower_grad_y=first if sloped else None, lower_hvp=second if curved else None)

    def curvature(self, y: Array, records: Any, part: slice) -> Array:
        """diag(s) − ssᵀ."""
        return class_curvature(class_shares(y.reshape(-1, self.width) @ records.features[part].T))

    def record_losses(self, y: Array, records: Any, part: slice) -> Array:
        scores = self._scores(y, records.features[part])
        scores -= scores.max(axis=1, keepdims=True)
        return np.asarray(np.log(np.exp(scores).sum(axis=1)) - _of_label(scores, records.label[part]))

    def accuracy(self, x: Array, y: Array, records: Any) -> Array:
        """Share of records whose class has the largest score; where k classes tie, each counts 1/k.

        As of `Problem.accuracy`: x (b, p), y (b, q) → (b,).
        """
        right = np.zeros(len(y))
        with np.errstate(over="ignore", invalid="ignore"):
            for part in linear.blocks(len(records.label), max(self.width, y.size // self.width)):
                scores = self._scores(y, records.features[part])
                best = scores == scores.max(axis=1, keepdims=True)
                # A record whose scores are not numbers has no best class; the 1 keeps its 0/0 out.
                right += (_of_label(best, records.label[part]) / np.maximum(best.sum(axis=1), 1)).sum(axis=1)
        return right / len(records.label)

    def predict(self, y: Array, features: Array) -> Array:
        """softmax(Ya), (b, N, c)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return class_shares(self._scores(y, linear.with_intercept(features, self.intercept))).swapaxes(1, 2)

    def probabilities(self, x: Array, y: Array, records: Any) -> list[tuple[Array, NDArray[np.int64]]]:
        with np.errstate(over="ignore", invalid="ignore"):
            return [(class_shares(self._scores(y[None], records.features))[0].T, records.label)]

    def _scores(self, y: Array, features: Array) -> Array:
        """(b, c, n) scores of n records under each row of y, by one product."""
        stacked = y.reshape(-1, self.width) @ features.T
        return np.asarray(stacked.reshape(len(y), len(self.classes), len(features)))


@dataclass(frozen=True)
class SoftmaxHyperparameter(SoftmaxProblem, LinearClassifier):
    """Lower level: cross-entropy on train records, regularised feature by feature; upper level: on validation.

        l(y; a, b) = h(y; a, b) = log Σ_r exp(Y_r a) − Y_b a,     R(x, y) = Σ_r Σ_s exp(x_s) Y_rs² / (c p)

    Y is y as a (c, p) matrix, row after row. With s = softmax(Ya) and the unit vector e_b:

        ∇_y l = (s − e_b) aᵀ,     ∇²_yy l·z = (diag(s) − ssᵀ)(Za) aᵀ,     ∇_x h = 0,     ∇²_xy l = 0.

    R touches no record, so neither does anything of the upper variable x: its channel is free. The norm of an outer
    product r aᵀ is ‖r‖·‖a‖, in ℓ1 and in ℓ2.

    n_features → columns of the records; classes → the declared labels, in the order of the rows of Y;
    intercept → append a constant feature 1, regularised like the others. p = n_features (+ 1), q = c·p.

    Reference: Chen & Wang, ICML 2024, Section 5.2, where the regulariser is printed without the square: that one is
    not bounded below.
    """

    name: str = "softmax_hyperparameter"

    @property
    def penalty(self) -> Penalty:
        return Strengths(len(self.classes), 2.0 / self.q) if self.penalty_override is None else self.penalty_override

    def prepare(self, features: Array, labels: Array, norm: Norm) -> SoftmaxRecords:
        """Class indices and both norms, so that the clip of a run decides which one is read. Raises InputError.

        As of `Problem.prepare`: features (n, d), labels (n,).
        """
        rows = linear.as_features(features, labels, self.n_features, self.intercept)
        return SoftmaxRecords(rows, linear.class_index(labels, self.classes), *linear.feature_norms(rows))


def class_shares(scores: Array) -> Array:
    """Shares of the classes, (…, c, n) → (…, c, n). The largest score is taken off first: exp never overflows."""
    shares: Array = scores - scores.max(axis=-2, keepdims=True)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=-2, keepdims=True)
    return shares


def class_residual(shares: Array, label: NDArray[np.int64]) -> Array:
    """s − e_b. shares: (…, c, n), label: (…, n)."""
    own = label[..., None, :]
    residual = shares.copy()
    np.put_along_axis(residual, own, np.take_along_axis(residual, own, axis=-2) - 1.0, axis=-2)
    return residual


def class_curvature(shares: Array) -> Array:
    """diag(s) − ssᵀ per record, (c, n) → (c, c, n).

    The diagonal is what makes rows sum to zero: s − s² would cancel near 1.
    """
    curvature = np.negative(shares[:, None] * shares)
    diagonal = np.arange(len(shares))
    curvature[diagonal, diagonal] = 0.0
    curvature[diagonal, diagonal] = -curvature.sum(axis=1)
    return curvature


def _of_label(values: NDArray[Any], label: NDArray[np.int64]) -> NDArray[Any]:
    """(b, c, n) → (b, n): the entry of each record's own class."""
    return values[:, label, np.arange(len(label))]


ENTRY = ProblemEntry(
    "softmax_hyperparameter",
    SoftmaxHyperparameter,
    "one regularisation strength per feature of a softmax regression",
    task="tuned the regularisation of a softmax classifier",
    lower_task="trained a softmax classifier",
    labels="classes",
)
