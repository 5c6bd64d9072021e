"""Numbers by which classifiers and rankings are judged, by scikit-learn."""

from __future__ import annotations

import numpy as np

from decentral_dp.bounded import Array


def ranking(scores: Array, positive: Array) -> dict[str, float]:
    """ "auc": the share of (positive, negative) pairs that the scores rank rightly, ties half; nothing without both."""
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any() or not np.isfinite(scores).all():
        return {}
    return {"auc": float(roc_auc_score(positive, scores))}


def classification(scores: Array, labels: Array) -> dict[str, float]:
    """ "accuracy", and "f1": F1 of the class 1 of two, or its mean over classes of more."""
    from sklearn.metrics import f1_score

    average = "binary" if labels.max(initial=0) <= 1 and scores.max(initial=0) <= 1 else "macro"
    return {
        "accuracy": float(np.mean(scores == labels)),
        "f1": float(f1_score(labels.astype(int), scores.astype(int), average=average, zero_division=0.0)),
    }


def worst_class(scores: Array, labels: Array) -> dict[str, float]:
    """ "worst_class_accuracy": the least share of the records of one class that are classified rightly."""
    return {
        "worst_class_accuracy": min((float(np.mean(scores[labels == k] == k)) for k in np.unique(labels)), default=0)
    }
