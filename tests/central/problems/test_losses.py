"""Losses of records: values, derivatives, and the cap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decentral_dp.central.problems.losses import Capped, capped_loss
from tests.support.robust_oracle import LOSSES, slope

# Loss → number of classes, 0 for numbers.
CLASSES = {"cross_entropy": 3, "logistic": 2, "squared": 0}


@pytest.mark.parametrize("loss", CLASSES)
@given(seed=st.integers(0, 10_000))
def test_losses_and_their_slopes(loss: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    found = capped_loss(loss, 3.0, CLASSES[loss])
    outputs = draw.normal(size=(4, found.loss.outputs)) * 2
    labels = draw.integers(CLASSES[loss], size=4).astype(np.float64) if CLASSES[loss] else draw.normal(size=4)
    plain, slopes = found.loss.slopes(outputs, labels)
    np.testing.assert_allclose(plain, [LOSSES[loss](o, b) for o, b in zip(outputs, labels, strict=True)], atol=1e-12)
    for k in range(4):

        def one(o: np.ndarray, k: int = k) -> float:
            return LOSSES[loss](o, labels[k])

        np.testing.assert_allclose(slopes[k], slope(one, outputs[k]), atol=1e-6)


def test_losses_far_out() -> None:
    """Neither overflow nor a lost digit where a loss is nearly 0."""
    ce, logistic = (capped_loss(n, 5.0, 2) for n in ("cross_entropy", "logistic"))
    values, slopes = ce.slopes(np.array([[1e4, 0.0], [-1e308, 1e308], [40.0, 0.0]]), np.array([1.0, 0.0, 0.0]))
    np.testing.assert_allclose(values, [5.0, 5.0, math.exp(-40)], atol=1e-15)
    np.testing.assert_array_equal(slopes[:2], 0.0)
    values, slopes = logistic.slopes(np.array([[-1e4], [800.0]]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(values, [5.0, 0.0])
    np.testing.assert_allclose(slopes, 0.0, atol=1e-300)


def test_a_cut_loss_has_no_slope_on_either_side() -> None:
    found = Capped(capped_loss(None, 1.0, 0).loss._replace(slopes=lambda o, b: (o[:, 0] - b, o * 0 + 7.0)), 1.0)
    outputs = np.array([[-3.0], [0.5], [2.0], [np.nan], [np.inf], [-np.inf]])
    values, slopes = found.slopes(outputs, np.zeros(6))
    np.testing.assert_array_equal(values, [0.0, 0.5, 1.0, 1.0, 1.0, 0.0])
    np.testing.assert_array_equal(slopes[:, 0], [0.0, 7.0, 0.0, 0.0, 0.0, 0.0])
