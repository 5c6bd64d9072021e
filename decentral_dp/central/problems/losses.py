"""Per-record losses of a model's outputs φ (e numbers) and a label, clipped to [0, B] by a public cap B.

    name           ℓ                                                labels           e
    cross_entropy  log Σ_k exp(φ_k) − φ_label                        classes          one per class
    logistic       log(1 + exp(−φ)) for 1, log(1 + exp(φ)) for 0     two classes      1
    squared        (φ − label)²                                     numbers          1

Outside [0, B] a record's derivative is exactly 0. A NaN loss counts as B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np
import scipy
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Objective, class_scores
from decentral_dp.errors import InputError
from decentral_dp.files.tables import Positive


class RecordLoss(NamedTuple):
    """Loss before clipping.

    Args:
        outputs: number e of outputs.
        classes: number of classes, or 0 if labels are numbers.
        slopes: function that maps (outputs, labels) to losses (n,) and their derivatives with respect to the outputs
            (n, e).
        probabilities: function that maps outputs to probabilities (n, classes), if any.
    """

    outputs: int
    classes: int
    slopes: Callable[[Array, Array], tuple[Array, Array]]
    probabilities: Callable[[Array], Array] | None = None

    def predicted_classes(self, outputs: Array) -> Array | None:
        """Return the predicted classes, (n,), or None if labels are numbers."""
        if self.classes >= 2 and self.outputs == self.classes:
            return np.asarray(np.argmax(outputs, axis=1), dtype=np.float64)
        return (outputs[:, 0] > 0.0).astype(np.float64) if self.classes == 2 and self.outputs == 1 else None


@dataclass(frozen=True)
class Capped:
    """Loss clipped to [0, cap]."""

    loss: RecordLoss
    cap: float

    def slopes(self, outputs: Array, labels: Array) -> tuple[Array, Array]:
        """Compute losses (n,) in [0, cap] and their derivatives (n, e), 0 where the loss is clipped."""
        with np.errstate(over="ignore", invalid="ignore"):
            values, slopes = self.loss.slopes(outputs, labels)
        inside = (values >= 0.0) & (values <= self.cap)
        return self.apply_cap(values), np.where(inside[:, None], slopes, 0.0)

    def apply_cap(self, values: Array) -> Array:
        return np.where(np.isnan(values), self.cap, np.clip(values, 0.0, self.cap))

    def values(self, outputs: Array, labels: Array) -> Array:
        return self.apply_cap(self.plain(outputs, labels))

    def plain(self, outputs: Array, labels: Array) -> Array:
        """Compute the losses (n,) before clipping."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.loss.slopes(outputs, labels)[0]


@dataclass(frozen=True, eq=False)
class CappedObjective(Objective, Protocol):
    """Objective of losses with a cap.

    Args:
        loss: loss ℓ, capped at B.
    """

    loss: Capped

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        """Compute the mean "loss" and, for classes, "accuracy", "f1" and "worst_class_accuracy".

        Args:
            outputs: outputs of the model, (n, e).
            labels: labels, (n,).
        """
        out = {"loss": float(np.mean(self.loss.values(outputs, labels)))}
        predictions = self.loss.loss.predicted_classes(outputs)
        if predictions is None:
            return out
        shares = [float(np.mean(predictions[labels == k] == k)) for k in np.unique(labels)]
        return out | class_scores(predictions, labels) | {"worst_class_accuracy": min(shares, default=0.0)}

    def losses(self, outputs: Array, labels: Array) -> Array:
        return self.loss.plain(outputs, labels)

    def probabilities(self, outputs: Array) -> Array | None:
        return None if self.loss.loss.probabilities is None else self.loss.loss.probabilities(outputs)

    def predictions(self, outputs: Array) -> Array:
        if (share := self.probabilities(outputs)) is not None:
            return share
        loss = self.loss.loss
        classes = loss.predicted_classes(outputs)
        return outputs[:, 0] if classes is None else np.eye(loss.classes)[classes.astype(np.int64)]


def bisect(is_low: Callable[[float], bool], low: float, high: float) -> float:
    """Find where `is_low` turns from true to false between two numbers, as the upper end after 80 bisections."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return float(high)


Loss = Annotated[Literal["cross_entropy", "logistic", "squared"], Doc("Loss of one record.")]
Cap = Annotated[Positive, Doc("Bound at which losses are clipped.")]
Strength = Annotated[Positive, Doc("Strength λ of the divergence from the distribution of the records.")]


def capped_loss(loss: Loss | None, cap: float, classes: int) -> Capped:
    """Return the loss `problem.loss`, whose default follows from the labels, with its cap. Raises InputError."""
    name = loss or ("cross_entropy" if classes else "squared")
    # Loss → required labels, whether these labels satisfy it, and the loss before clipping.
    losses = {
        "cross_entropy": (
            "2 or more classes",
            classes >= 2,
            RecordLoss(classes, classes, _cross_entropy, partial(scipy.special.softmax, axis=1)),
        ),
        "logistic": ("exactly 2 classes", classes == 2, RecordLoss(1, classes, _logistic, _two_class_probabilities)),
        "squared": ("numbers to predict", classes == 0, RecordLoss(1, classes, _squared_loss)),
    }
    requirement, fits, record_loss = losses[name]
    if not fits:
        has = f"{classes} class{'es' * (classes != 1)}" if classes else "numbers to predict"
        raise InputError(f"problem.loss: {name} requires {requirement} (the data have {has}). Fix: use another loss.")
    return Capped(record_loss, cap)


def _cross_entropy(outputs: Array, labels: Array) -> tuple[Array, Array]:
    own_class = np.arange(len(labels)), labels.astype(np.int64)
    slopes = scipy.special.softmax(outputs, axis=1)
    slopes[own_class] -= 1.0
    return np.asarray(scipy.special.logsumexp(outputs - outputs[own_class][:, None], axis=1)), slopes


def _logistic(outputs: Array, labels: Array) -> tuple[Array, Array]:
    sign = np.where(labels == 1.0, -1.0, 1.0)
    u = sign * outputs[:, 0]
    return np.logaddexp(0.0, u), (sign * scipy.special.expit(u))[:, None]


def _squared_loss(outputs: Array, labels: Array) -> tuple[Array, Array]:
    gap = outputs[:, 0] - labels
    return gap**2, 2.0 * gap[:, None]


def _two_class_probabilities(outputs: Array) -> Array:
    h = scipy.special.expit(outputs[:, :1])
    return np.concatenate([1.0 - h, h], axis=1)
