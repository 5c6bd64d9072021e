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
from decentral_dp.models.linear_terms import blocks


def auc(first: Array, second: Array) -> float:
    """Return the share of pairs in which the first score is higher. Ties count half, and NaN is lowest.

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
_UNDEFINED = np.array(math.nan)


@dataclass(frozen=True, eq=False)
class _Predictions:
    """Class probabilities of models, and true labels. Measures are arrays (b,), NaN where they are not defined.

    Args:
        share: probabilities, (b, N, c), c ≥ 2.
        label: classes, (N,).
    """

    share: Array
    label: NDArray[np.int64]

    @property
    def is_of_two(self) -> bool:
        return len(self.true[0]) == 2

    @cached_property
    def true(self) -> NDArray[np.bool_]:
        """Whether a record belongs to a class, (N, c)."""
        return np.asarray(self.label[:, None] == np.arange(self.share.shape[2]))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Numbers of records, predictions, and correct predictions per model and class, (3, b, c)."""
        answer = self.share.argmax(axis=2)[..., None] == np.arange(self.share.shape[2])
        parts = np.broadcast_to(self.true, answer.shape), answer, answer & self.true
        return np.stack([part.sum(axis=1) for part in parts])

    @property
    def present(self) -> NDArray[np.int64]:
        """Classes that have records."""
        return np.flatnonzero(self.true.any(axis=0))

    @property
    def judged(self) -> NDArray[np.int64]:
        """The second of two classes, or all classes with records."""
        return np.ones(1, dtype=np.int64) if self.is_of_two else self.present

    def auc(self) -> Array:
        if len(self.present) < 2:
            return _UNDEFINED
        classes = [(self.share[:, :, k], self.true[:, k]) for k in self.judged]
        values = [[auc(row[positive], row[~positive]) for row in share] for share, positive in classes]
        return np.asarray(np.mean(values, axis=0))

    def balanced_accuracy(self) -> Array:
        present, _, right = self.counts[..., self.present]
        return np.asarray((right / present).mean(axis=1))

    def f1(self) -> Array:
        present, n_answered, right = self.counts[..., self.judged]
        return np.asarray((2.0 * right / np.maximum(1, n_answered + present)).mean(axis=1))

    def brier(self) -> Array:
        squares = np.square(self.share - self.true).sum(axis=2).mean(axis=1)
        return np.asarray(0.5 * squares if self.is_of_two else squares)

    def calibration(self) -> Array:
        confidence, right = self.share.max(axis=2), self.share.argmax(axis=2) == self.label
        bins = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
        bins += _BINS * np.arange(len(bins))[:, None]
        gaps = np.bincount(bins.ravel(), (confidence - right).ravel(), _BINS * len(bins)).reshape(-1, _BINS)
        return np.asarray(np.abs(gaps).sum(axis=1) / len(self.label))

    def recall(self) -> Array:
        return self._right_share(0)

    def precision(self) -> Array:
        return self._right_share(1)

    def _right_share(self, row: int) -> Array:
        """Divide correct predictions by a row of `counts`, for the second of two classes; 0/0 is 0."""
        shares = self.counts[2, :, 1] / np.maximum(1, self.counts[row, :, 1])
        return shares if self.is_of_two else _UNDEFINED


CLASS_MEASURES: Mapping[str, Callable[[_Predictions], Array]] = MappingProxyType(
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
"""Name → the measure of each model.

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
        names: keys of `CLASS_MEASURES`. Others are ignored.

    Returns:
        The measures by name, (b,) each, averaged over tasks. Classes without records are ignored. "auc" needs records
        of two classes, and "recall" and "precision" need a problem of two classes. The result is empty for a problem
        without probabilities.
    """
    out: dict[str, Array] = {}
    names = [name for name in names if name in CLASS_MEASURES]
    if not names or not hasattr(problem, "probabilities"):
        return out
    for rows in blocks(len(y), len(records[0])):
        models = [problem.probabilities(*row, records) for row in zip(x[rows], y[rows], strict=True)]
        tasks = [
            _Predictions(np.stack([np.nan_to_num(share, nan=1.0 / share.shape[1]) for share, _ in task]), task[0][1])
            for task in zip(*models, strict=True)
            if len(task[0][1])
        ]
        for name in names:
            values = [value for task in tasks if not np.isnan(value := CLASS_MEASURES[name](task)).any()]
            if values:
                out.setdefault(name, np.empty(len(y)))[rows] = np.mean(values, axis=0)
    return out
