"""Losses of one record, from the outputs φ of a model and the label b.

    logistic        log(1 + exp(φ)) − b φ, b ∈ {0, 1}                  slope σ(φ) − b                curvature ≤ 1/4
    cross_entropy   log Σ_r exp(φ_r) − φ_b, b ∈ {0, …, c − 1}          slope softmax(φ) − e_b        curvature ≤ 1/2
    squared         ½ (φ − b)²                                         slope φ − b                   curvature 1
    huber           ½ u² for |u| ≤ w, else w (|u| − ½ w), u = φ − b    slope min(max(u, −w), w)      curvature ≤ 1

The slope is ∂ℓ/∂φ, the curvature the largest eigenvalue of ∂²ℓ/∂φ². All are convex in φ. `value` takes outputs
(…, n, e) and labels (…, n) to ℓ (…, n), `slopes` to ∂ℓ/∂φ (…, n, e), a new array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array


@dataclass(frozen=True)
class Logistic:
    """Of two classes and one output; the label 1 is the second class."""

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
    """Of c classes and as many outputs."""

    name = "cross_entropy"
    curvature = 0.5

    def value(self, outputs: Array, labels: Array) -> Array:
        phi = outputs - outputs.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(phi, _index(labels, phi), axis=-1)[..., 0]
        return np.asarray(np.log(np.exp(phi).sum(axis=-1)) - chosen)

    def slopes(self, outputs: Array, labels: Array) -> Array:
        share = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        share /= share.sum(axis=-1, keepdims=True)
        at = _index(labels, share)
        np.put_along_axis(share, at, np.take_along_axis(share, at, axis=-1) - 1.0, axis=-1)
        return np.asarray(share)


@dataclass(frozen=True)
class Squared:
    """Of labels that are numbers."""

    name = "squared"
    curvature = 1.0

    def value(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(0.5 * np.square(outputs[..., 0] - labels))

    def slopes(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(outputs - labels[..., None])


@dataclass(frozen=True)
class Huber:
    """Of labels that are numbers, linear beyond a residual of `width`, in the unit of the prepared labels."""

    width: float = 0.1
    name = "huber"
    curvature = 1.0

    def value(self, outputs: Array, labels: Array) -> Array:
        u = np.abs(outputs[..., 0] - labels)
        near = np.minimum(u, self.width)
        return np.asarray(near * (u - 0.5 * near))

    def slopes(self, outputs: Array, labels: Array) -> Array:
        return np.asarray(np.clip(outputs - labels[..., None], -self.width, self.width))


TrainingLoss: TypeAlias = Logistic | CrossEntropy | Squared | Huber


def _index(labels: Array, outputs: Array) -> NDArray[np.int64]:
    """(…, n, 1), as wide as the outputs before their last axis."""
    return np.broadcast_to(labels, outputs.shape[:-1])[..., None].astype(np.int64)
