"""Scaling and normalisation: bounds that hold exactly, one record at a time."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from decentral_dp.data import Dataset, Ranges, apply_ranges, declared_ranges, load_dataset, normalise, scale
from decentral_dp.errors import InputError

finite = st.floats(allow_nan=False, allow_infinity=False)
matrices = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite)


def dataset(features: np.ndarray) -> Dataset:
    names = tuple(f"x{k}" for k in range(features.shape[1]))
    return Dataset(features, np.arange(features.shape[0]) % 2, (0, 1), names, "test")


@settings(max_examples=200, deadline=None)
@given(matrices, st.floats(1e-3, 1e3))
def test_norms_never_pass_the_radius_in_exact_arithmetic(features: np.ndarray, radius: float) -> None:
    for kind in ("l1", "l2", "box"):
        result = normalise(features, kind, radius)
        for row, original in zip(result.features, features, strict=True):
            exact = [Fraction(float(v)) for v in row]
            assert result.l1 is not None
            assert result.l2 is not None
            l1, l2_squared = sum(abs(v) for v in exact), sum(v * v for v in exact)
            # √d·radius is itself rounded; radius is not.
            slack = 1 if kind == "l1" or len(row) == 1 else 1 + Fraction(1, 2**50)
            assert l1 <= Fraction(result.l1) * slack
            assert l2_squared <= (Fraction(result.l2) * (1 if kind != "box" else slack)) ** 2
            if kind != "box" and np.abs(original).max() > 0:
                assert float(l1 if kind == "l1" else l2_squared) == pytest.approx(radius if kind == "l1" else radius**2)
            if np.abs(original).max() == 0:
                assert not row.any()


def test_normalising_keeps_the_direction() -> None:
    rows = np.array([[3.0, -4.0], [3e-320, 0.0], [1e308, 1e308], [0.0, 0.0]])
    l2 = normalise(rows, "l2", 2.0).features
    assert np.allclose(l2, [[1.2, -1.6], [2, 0], [math.sqrt(2), math.sqrt(2)], [0, 0]], rtol=1e-14)
    l1 = normalise(rows, "l1").features
    assert np.allclose(l1, [[3 / 7, -4 / 7], [1, 0], [0.5, 0.5], [0, 0]], rtol=1e-14)
    assert np.array_equal(normalise(rows, "box").features, [[1, -1], [3e-320, 0], [1, 1], [0, 0]])
    untouched = normalise(rows, "none")
    assert np.array_equal(untouched.features, rows)
    assert (untouched.l1, untouched.l2) == (None, None)


@pytest.mark.parametrize(("kind", "l1", "l2"), [("l1", 3.0, 3.0), ("l2", 6.0, 3.0), ("box", 12.0, 6.0)])
def test_bounds_are_attained(kind: Any, l1: float, l2: float) -> None:
    result = normalise(np.array([[9.0, 0, 0, 0], [9.0, 9, 9, 9]]), kind, 3.0)
    assert (result.l1, result.l2) == (l1, l2)
    assert np.abs(result.features).sum(axis=1).max() == pytest.approx(l1)
    assert np.linalg.norm(result.features, axis=1).max() == pytest.approx(l2)


@settings(max_examples=100, deadline=None)
@given(matrices, st.data())
def test_ranges_map_into_the_box_and_keep_the_order(features: np.ndarray, data: st.DataObject) -> None:
    d = features.shape[1]
    low = np.array(data.draw(st.lists(st.floats(1e-6, 1e3), min_size=d, max_size=d)))
    high = low * np.array(data.draw(st.lists(st.floats(1.001, 1e6), min_size=d, max_size=d)))
    log = np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d)))
    mapped = apply_ranges(features, Ranges(low, high, log))
    assert np.abs(mapped).max() <= 1
    for k in range(d):
        order = np.argsort(features[:, k])
        assert np.all(np.diff(mapped[order, k]) >= 0)
        assert np.all(mapped[features[:, k] <= low[k], k] == -1)
        assert np.all(mapped[features[:, k] >= high[k], k] == 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(0, 29), finite, st.sampled_from(["l1", "l2", "box"]), st.booleans())
def test_a_replaced_record_changes_no_other_record(n: int, at: int, value: float, kind: Any, log: bool) -> None:
    rng = np.random.default_rng(n)
    here = rng.lognormal(size=(n, 3))
    there = here.copy()
    there[at % n] = value
    table = {"*": {"low": 0.01, "high": 10.0, "log": log}}
    results = [normalise(scale(dataset(x), table).features, kind).features for x in (here, there)]
    others = np.arange(n) != at % n
    assert np.array_equal(results[0][others], results[1][others])


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits"])
def test_declared_ranges_name_every_feature_and_hold_for_nearly_all_values(name: str) -> None:
    """Half of the records only: the ranges were declared without the data and must not be tuned to them."""
    data = load_dataset(name, n_agents=1, seed=0)
    ranges = declared_ranges(data, "public_ranges")
    half = data.features[::2]
    outside = (half < ranges.low) | (half > ranges.high)
    assert outside.mean() < 0.01
    assert outside.mean(axis=0).max() < 0.1
    assert np.abs(scale(data, "public_ranges").features).max() <= 1


def test_a_table_has_linear_and_logarithmic_ranges() -> None:
    data = dataset(np.array([[1.0, 5.0], [2.0, 50.0]]))
    mine = scale(data, {"x1": {"low": 1, "high": 100, "log": True}, "*": [0, 4]}).features
    assert np.allclose(mine[:, 0], [-0.5, 0])
    assert np.allclose(mine[:, 1], [math.log10(5) - 1, math.log10(50) - 1])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("public_range", r"problem\.scale: got 'public_range'"),
        ("standard", r"problem\.scale: got 'standard' .*none is fitted on the records"),
        ("public_ranges", r"for breast_cancer, digits, wine and images"),
        ({"x0": [0, 1]}, r"no range for feature 2 of 2, in the order of the data\. Fix: add it, or \"\*\""),
        ({"*": [1, 1]}, r"the range of '\*': expected low < high"),
        ({"*": [-1e308, 1e308]}, r"finite difference"),
        ({"*": {"low": 0, "high": 1, "log": True}}, r"low > 0 for a log scale"),
        ({"*": {"low": 1, "high": 2, "log": "perhaps"}}, r"log: "),
    ],
)
def test_refused_scales(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        scale(dataset(np.ones((2, 2))), spec)
