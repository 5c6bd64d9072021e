"""The constants and solutions that tuning one strength rests on, against neighbours that try to break them."""

from __future__ import annotations

import math
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.central.pooled import Pooled, PooledBounds
from decentral_dp.central.tuner import project
from decentral_dp.constants import family_of
from decentral_dp.problems.bilevel.linear import logistic_regularisation, ridge_regularisation

LOSSES = ("logistic", "squared")
ROLES = ("train", "validation")


class Records(NamedTuple):
    """features (n, d), labels (n,): within their bounds."""

    features: np.ndarray
    labels: np.ndarray


def records(loss: str, a: np.ndarray, b: np.ndarray, radius: float = 1.0, bound: float = 1.0) -> Records:
    return Records(*project(np.atleast_2d(a).astype(float), np.atleast_1d(b).astype(float), loss, radius, bound))  # type: ignore[arg-type] # parametrised over both


def pooled(loss: str, train: Records, validation: Records, radius: float = 1.0, bound: float = 1.0) -> Pooled:
    d = train.features.shape[1]
    problem = ridge_regularisation(d) if loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    return Pooled(family_of(problem, radius, bound), *(problem.prepare(*r, "l2") for r in (train, validation)))


def bounds(loss: str, n: dict[str, int], radius: float = 1.0, bound: float = 1.0, d: int = 3) -> PooledBounds:
    problem = ridge_regularisation(d) if loss == "squared" else logistic_regularisation(d, (-1.0, 1.0))
    return PooledBounds(family_of(problem, radius, bound), n["train"], n["validation"])


def at(w: float) -> np.ndarray:
    return np.array([math.log(w)])


# Neighbours ----------------------------------------------------------------------------------------------------------


def swapped(r: Records, loss: str, a: np.ndarray, b: float, radius: float, bound: float) -> Records:
    features, labels = r.features.copy(), r.labels.copy()
    features[0], labels[0] = a, b
    return records(loss, features, labels, radius, bound)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("role", ROLES)
def test_the_slope_bound_is_attained(loss: str, role: str) -> None:
    """Near the origin: opposite validation gradients along θ, or one train record of full curvature along θ."""
    w, theta = 0.05, np.array([1e-4, 0.0])
    n = {"train": 3, "validation": 4}
    none = {r: records(loss, np.zeros((k, 2)), np.zeros(k)) for r, k in n.items()}
    one = {r: swapped(none[r], loss, np.array([1.0, 0.0]), 1.0, 1.0, 1.0) for r in ROLES}
    opposite = swapped(none["validation"], loss, np.array([-1.0, 0.0]), 1.0, 1.0, 1.0)
    single = records(loss, [[1.0, 0.0]], [1.0])
    data_sets = (
        [(none["train"], v) for v in (one["validation"], opposite)]
        if role == "validation"
        else [(t, single) for t in (none["train"], one["train"])]
    )
    found = [pooled(loss, *data_set).implicit(at(w), theta, pointwise=True) for data_set in data_sets]
    allowed = float(found[0].sensitivities[role].sensitivity[0])  # type: ignore[index] # one of the roles
    assert 0.999 < abs(float((found[0].value - found[1].value)[0, 0])) / allowed <= 1.0 + 1e-9


# Records -------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.floats(width=64), min_size=3, max_size=3), min_size=1, max_size=8),
    st.floats(width=64),
    st.sampled_from(LOSSES),
    st.floats(0.01, 100.0),
)
def test_any_record_is_brought_into_its_bounds(rows: list[list[float]], label: float, loss: str, radius: float) -> None:
    labels = np.append(np.ones(len(rows) - 1), label)
    r = records(loss, np.array(rows), labels, radius, 2.0)
    for row in r.features.tolist():
        assert sum(mpmath.mpf(x) ** 2 for x in row) <= mpmath.mpf(radius) ** 2
    assert np.isfinite(r.labels).all()
    assert (np.abs(r.labels) <= 2.0).all()
    if loss == "logistic":
        assert set(r.labels.tolist()) <= {-1.0, 1.0}
    theta = pooled(loss, r, r, radius, 2.0).minimiser(at(0.1 * radius**2)).value
    assert np.isfinite(theta).all()
