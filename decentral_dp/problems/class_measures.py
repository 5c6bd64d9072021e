"""Measures of class probabilities on held-out records: ranking, decisions and calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.problems.protocol import Classifying


def auc(first: Array, second: Array) -> float:
    """Return the share of pairs in which the first score is higher; ties count half, and NaN is lowest.

    This is the area under the receiver operating characteristic (Mann and Whitney).

    Args:
        first: scores of positive records, (n,), n > 0.
        second: scores of negative records, (m,), m > 0.

    Example:
        >>> auc(np.array([0.9, 0.4]), np.array([0.1, 0.4]))
        0.875
    """
    positive, negative = (np.where(np.isnan(part), -np.inf, part) for part in (first, second))
    negative.sort()
    ranks = sum(int(np.searchsorted(negative, positive, side).sum()) for side in ("left", "right"))
    return 0.5 * ranks / (first.size * second.size)


# Bins of equal width for confidences.
_BINS = 10


@dataclass(frozen=True, eq=False)
class _Predictions:
    """Class probabilities of one model, and true labels.

    Args:
        share: probabilities, (N, c), c ≥ 2.
        label: classes, (N,).
    """

    share: Array
    label: NDArray[np.int64]

    @property
    def is_of_two(self) -> bool:
        return len(self.share[0]) == 2

    @cached_property
    def answer(self) -> NDArray[np.int64]:
        """Predicted class of each record, (N,)."""
        return np.asarray(self.share.argmax(axis=1))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Per class: records, predictions, and correct predictions, (3, c)."""
        parts = self.label, self.answer, self.label[self.label == self.answer]
        return np.stack([np.bincount(part, minlength=self.share.shape[1]) for part in parts])

    @property
    def present(self) -> NDArray[np.int64]:
        """Classes that have records."""
        return np.flatnonzero(self.counts[0])

    @property
    def judged(self) -> NDArray[np.int64]:
        """The second of two classes, or all classes with records."""
        return np.ones(1, dtype=np.int64) if self.is_of_two else self.present

    def auc(self) -> float:
        if len(self.present) < 2:
            return math.nan
        classes = [(self.share[:, k], self.label == k) for k in self.judged]
        return float(np.mean([auc(share[positive], share[~positive]) for share, positive in classes]))

    def balanced_accuracy(self) -> float:
        present, _, right = self.counts[:, self.present]
        return float(np.mean(right / present))

    def f1(self) -> float:
        present, n_answered, right = self.counts[:, self.judged]
        return float(np.mean(2.0 * right / np.maximum(1, n_answered + present)))

    def brier(self) -> float:
        squares = np.square(self.share - np.eye(self.share.shape[1])[self.label]).sum(axis=1).mean()
        return float(0.5 * squares if self.is_of_two else squares)

    def calibration(self) -> float:
        confidence, right = self.share.max(axis=1), self.share.argmax(axis=1) == self.label
        bins = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
        gaps = np.bincount(bins, confidence, _BINS) - np.bincount(bins, right, _BINS)
        return float(np.abs(gaps).sum() / len(confidence))

    def recall(self) -> float:
        return self._right_share(0)

    def precision(self) -> float:
        return self._right_share(1)

    def _right_share(self, row: int) -> float:
        """Divide correct predictions by a row of `counts`, for the second of two classes; 0/0 is 0."""
        return self.counts[2, 1] / max(1, self.counts[row, 1]) if self.is_of_two else math.nan


CLASS_MEASURES: Mapping[str, Callable[[_Predictions], float]] = MappingProxyType(
    {
        "auc": _Predictions.auc,
        "balanced_accuracy": _Predictions.balanced_accuracy,
        "f1": _Predictions.f1,
        "brier": _Predictions.brier,
        "calibration": _Predictions.calibration,
        "recall": _Predictions.recall,
        "precision": _Predictions.precision,
    }
)
"""Name → the measure of one model.

auc: the area under the receiver operating characteristic; of more than two classes the mean of each against the rest.
balanced_accuracy: the mean over classes of the share of their records that is found. f1: 2TP/(2TP + FP + FN) of the
second class; of more than two classes the mean. brier: the mean squared difference between the probability of the
second class and what came; of more than two classes summed over them. calibration: Σ over ten intervals of confidence
of (share of records there)·|mean confidence − share that is right|. recall, precision: of the second of two classes.

References:
    M. P. Naeini, G. Cooper, M. Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015.
"""
# Measures of two classes only.
OF_TWO_CLASSES = ("recall", "precision")


def measure_classes(problem: Any, x: Array, y: Array, records: Any, names: Collection[str]) -> dict[str, Array]:
    """Measure the class probabilities of models.

    Args:
        problem: problem with `probabilities`.
        x: upper variables, (b, p).
        y: models, (b, q).
        records: held-out records.
        names: keys of `CLASS_MEASURES`; others are ignored.

    Returns:
        Name → (b,), the mean over tasks. Classes without records are ignored. "auc" needs records of two classes,
        "recall" and "precision" a problem of two classes. Empty for a problem without probabilities.
    """
    out: dict[str, Array] = {}
    names = [name for name in names if name in CLASS_MEASURES]
    for row in range(len(y)) if names and isinstance(problem, Classifying) else ():
        tasks = [
            _Predictions(np.nan_to_num(share, nan=1.0 / share.shape[1]), label)
            for share, label in problem.probabilities(x[row], y[row], records)
            if len(label)
        ]
        for name in names:
            values = [value for task in tasks if not math.isnan(value := CLASS_MEASURES[name](task))]
            if values:
                out.setdefault(name, np.empty(len(y)))[row] = np.mean(values)
    return out
