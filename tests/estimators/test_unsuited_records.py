"""Frames and arrays that estimators refuse without a cell of any record."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from decentral_dp import tune
from decentral_dp.central.estimators import PrivateAUCClassifier, PrivateLogisticRegressionCV
from decentral_dp.errors import InputError
from decentral_dp.estimators import DecentralisedClassifier, DecentralisedRegressor

N = 60
X = np.linspace(-0.9, 0.9, 2 * N).reshape(N, 2)
Y = np.arange(N) % 2
ESTIMATORS = {
    "decentralised": lambda: DecentralisedClassifier(classes=(0, 1), agents=3, rounds=2, random_state=0),
    "regression": lambda: DecentralisedRegressor(label_range=(0, 1), agents=3, rounds=2, random_state=0),
    "tuned": lambda: PrivateLogisticRegressionCV(classes=(0, 1), steps=2, random_state=0),
    "auc": lambda: PrivateAUCClassifier(classes=(0, 1), rounds=2, random_state=0),
}


def frame(column: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": X[:, 0], "ward": column})


WORDS = np.where(Y, "icu777", "b777")
UNSUITED: dict[str, tuple[Any, str]] = {
    "category": (frame(pd.Categorical(WORDS)), r"X holds text, expected numbers\. Fix: .*\[problem\.columns\]"),
    "text": (frame(WORDS), "X holds text, expected numbers"),
    "dates": (frame(pd.Timestamp("1777-07-07")), "DateTime64DType"),
    "Int64 with a gap": (
        frame(pd.array([7, None] * (N // 2), dtype="Int64")),
        r"contains NaN\. Fix: use SimpleImputer",
    ),
    "floats with a gap": (frame(np.where(X[:, 1] > 0, np.nan, 777.5)), "contains NaN"),
    "text in an array": (np.column_stack([WORDS, WORDS]), "X holds text, expected numbers"),
    "masked": (np.ma.masked_array(X, mask=X > 2), "masked array"),
    "sparse": (scipy.sparse.csr_matrix(X), r"X is sparse, expected a dense array\. Fix: use X\.toarray\(\)"),
    "one axis": (np.full(N, 777.5), "Expected 2D array, got 1D array"),
    "complex": (X + 777.5j, "Complex data not supported"),
    "NaN": (np.where(X > 0.5, np.nan, 777.5), "contains NaN"),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("name", UNSUITED)
def test_unsuited_features_are_refused_and_no_cell_is_quoted(kind: str, name: str) -> None:
    features, said = UNSUITED[name]
    with pytest.raises((InputError, TypeError, ValueError), match=said) as refused:
        ESTIMATORS[kind]().fit(features, Y)
    # All that Python prints, the errors that this one came from included.
    assert "777" not in "".join(traceback.format_exception(refused.value)).replace(__file__, "")
    assert "HistGradientBoosting" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_records_to_predict_are_checked_alike() -> None:
    for kind, made in ESTIMATORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = made().fit(frame(X[:, 1]), Y)
        for name in ("category", "Int64 with a gap"):
            with pytest.raises(ValueError, match=UNSUITED[name][1]):
                fitted.predict(UNSUITED[name][0])
        assert fitted.predict(frame(pd.Categorical(np.round(X[:, 1])))).shape == (N,), kind


LABELS: dict[str, tuple[Callable[[], Any], str]] = {
    "gap": (lambda: np.where(Y == 1, "a777", None), "y: row 1 has no label"),
    "mixed": (lambda: np.array([777, "a777"] * (N // 2), dtype=object), "y mixes text and numbers"),
    "masked": (lambda: np.ma.masked_array(Y, mask=Y == 1), "masked array"),
}


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("name", LABELS)
def test_unsuited_labels_are_refused_and_not_quoted(kind: str, name: str) -> None:
    labels, said = LABELS[name]
    with pytest.raises(InputError, match=said) as refused:
        ESTIMATORS[kind]().fit(X, labels())
    assert "777" not in str(refused.value)


def test_a_regression_refuses_words_and_a_single_class_is_not_quoted() -> None:
    with pytest.raises(InputError, match="y holds text") as refused:
        ESTIMATORS["regression"]().fit(X, WORDS)
    assert "777" not in str(refused.value)
    with pytest.raises(InputError, match="y has only one class") as refused:
        DecentralisedClassifier(agents=3, rounds=2).fit(X, np.full(N, "a777"))
    assert "777" not in str(refused.value)


def test_tune_refuses_masked_arrays() -> None:
    masked = np.ma.masked_array(X, mask=X > 2)
    with pytest.raises(InputError, match="masked array"):
        tune(train=(masked, Y), validation=(X, Y), epsilon=1.0, delta=1e-5, weight_range=(0.1, 1.0))
