"""Intervals of means over cells: the one that fits the quantity, and none outside [0, 1] for a share."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from decentral_dp.studies.intervals import cell_mean, interval, share_interval, wilson

CONFIDENCE = st.floats(0.5, 0.999)


@given(st.integers(1, 60), st.data(), CONFIDENCE)
def test_counts_have_wilsons_interval(trials: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, trials))
    known = scipy.stats.binomtest(hits, trials).proportion_ci(confidence, method="wilson")
    share, low, high = wilson(hits, trials, confidence)
    assert share == hits / trials
    assert (low, high) == pytest.approx((known.low, known.high), abs=1e-12)
    assert 0.0 <= low <= share <= high <= 1.0


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), CONFIDENCE)
def test_the_interval_of_a_share_stays_in_its_range(values: list[float], confidence: float) -> None:
    mean, low, high = share_interval(values, confidence)
    if not math.isnan(low):
        assert 0.0 <= low <= mean + 1e-12
        assert mean - 1e-12 <= high <= 1.0


def test_the_interval_of_a_share_is_students_where_shares_are_near_a_half() -> None:
    values = 0.5 + 1e-3 * np.array([-1.0, 0.0, 2.0, -1.0])
    assert share_interval(values, 0.95) == pytest.approx(interval(values, 0.95), abs=1e-6)


def test_the_interval_of_a_share_covers_what_it_should() -> None:
    """Of 4000 studies of 6 seeds about 95 % cover the mean; with Student's quantile halved far fewer would."""
    rng = np.random.default_rng(0)
    shares = rng.beta(18.0, 2.0, size=(4000, 6))
    covered = np.mean([low <= 0.9 <= high for _, low, high in (share_interval(row, 0.95) for row in shares)])
    assert 0.93 < covered < 0.97


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("ok", [1.0, 0.0], "wilson"),
        ("ok", [1.0], "wilson"),
        ("diverged", [0.0, 0.0], "wilson"),
        ("test_accuracy_last_min", [0.9, 0.8], "logit"),
        ("test_auc", [0.9, 0.8], "logit"),
        ("weight_corrupted", [0.2, 0.1], "logit"),
        # In every cell the same end of the range, or one cell: nothing to go by.
        ("test_accuracy", [1.0, 1.0], "none"),
        ("test_accuracy", [0.7], "none"),
        # No share after all.
        ("test_accuracy", [0.9, 1.2], "student"),
        ("test_loss", [0.9, 0.8], "student"),
        ("epsilon_max", [math.inf, math.inf], "none"),
    ],
)
def test_a_quantity_has_the_interval_that_fits_it(name: str, values: list[float], kind: str) -> None:
    found = cell_mean(name, values, 0.95)
    assert found.kind == kind
    assert math.isnan(found.low) == (kind == "none")


def test_values_whose_squares_overflow_have_an_interval() -> None:
    values = np.array([1.0, 2.0, 4.0, 3.5])
    plain = interval(values, 0.95)
    assert interval(values * 1e200, 0.95) == pytest.approx([1e200 * v for v in plain], rel=1e-12)
    mean, low, high = interval([1.7e308, 1.6e308, 1.5e308], 0.95)
    assert mean == pytest.approx(1.6e308)
    assert low < mean < high
