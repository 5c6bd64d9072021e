"""Sums over records, and clips by one number for each: bits of numpy, of a loop in the stated order, and of one agent.

Small shards are added up in a stated order; larger ones by BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.models import linear_terms
from decentral_dp.models.linear_terms import (
    clipped_row_sums,
    clipped_sums,
    forward,
    logistic_coefficients,
)

# Agents, records, features: small shards, odd ones, the largest that are small, and one more of each.
SHAPES = [(1, 1, 1), (3, 5, 7), (4, 20, 10), (2, 64, 32), (2, 65, 3), (2, 3, 33), (3, 0, 4), (2, 4, 0), (0, 4, 3)]
SMALL = [(g, n, d) for g, n, d in SHAPES if g and 0 < n <= 64 and 0 < d <= 32]
ENDS = [0.0, -0.0, 1.0, -1e-320, 5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, 1e-160, 1e200]


def _numbers(shape: tuple[int, ...], seed: int, ends: bool) -> np.ndarray:
    """Of all magnitudes; with `ends` a third of them zeros, infinities, NaN, and the smallest and largest numbers."""
    draw = np.random.default_rng(seed)
    out = draw.normal(size=shape) * 10.0 ** draw.uniform(-9, 9, shape)
    return np.where(draw.random(shape) < 1 / 3, draw.choice(ENDS, shape), out) if ends else out


def _shards(shape: tuple[int, int, int], ends: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows, vectors that are columns of a larger array, coefficients and norms."""
    g, n, d = shape
    vectors = _numbers((g, 3 * d), 2, ends)[:, d : 2 * d]
    return _numbers(shape, 1, ends), vectors, _numbers((g, n), 3, ends), np.abs(_numbers((g, n), 4, ends))


def _same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[numbers].view(np.uint64), wanted[numbers].view(np.uint64))


def _clipped(c: float, norm: float, bound: float) -> float:
    """By hand, in Python's float64."""
    with np.errstate(all="ignore"):
        factor = float(np.float64(bound) / (np.abs(np.float64(c)) * norm))
        factor = 1.0 if factor > 1.0 else factor
        out = float(np.float64(c) * (0.0 if factor < linear_terms.LEAST_FACTOR else factor))
    return 0.0 if out != out else out


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_shards_are_added_up_in_the_stated_order(shape: tuple[int, int, int], ends: bool) -> None:
    rows, vectors, coefficients, norms = _shards(shape, ends)
    g, n, d = shape
    products, sums = np.empty((g, n)), np.empty((g, d))
    with np.errstate(all="ignore"):
        for agent in range(g):
            c = [_clipped(coefficients[agent, k], norms[agent, k], 0.7) for k in range(n)]
            for k in range(n):
                products[agent, k] = rows[agent, k, 0] * vectors[agent, 0]
                for j in range(1, d):
                    products[agent, k] += rows[agent, k, j] * vectors[agent, j]
            for j in range(d):
                sums[agent, j] = c[0] * rows[agent, 0, j]
                for k in range(1, n):
                    sums[agent, j] += c[k] * rows[agent, k, j]
        _same_bits(*forward(rows, vectors), products)
        _same_bits(*clipped_sums([coefficients.copy()], norms, [0.7], rows), sums)


@pytest.mark.parametrize("shape", [s for s in SHAPES if all(s)], ids=str)
def test_an_agent_alone_has_the_bits_that_it_has_among_others(shape: tuple[int, int, int]) -> None:
    rows, vectors, coefficients, norms = _shards(shape, ends=False)
    together = *forward(rows, vectors), *clipped_sums([coefficients.copy()], norms, [0.7], rows)
    for agent in range(shape[0]):
        one = slice(agent, agent + 1)
        _same_bits(*forward(rows[one], vectors[one]), together[0][one])
        _same_bits(*clipped_sums([coefficients[one].copy()], norms[one], [0.7], rows[one]), together[1][one])


def test_arrays_that_are_views_of_others_are_read_where_they_are() -> None:
    rows, vectors, coefficients, norms = _shards((4, 20, 10), ends=False)
    wide, mirrored = np.zeros((4, 30, 12)), np.ascontiguousarray(vectors[:, ::-1])[:, ::-1]
    wide[:, 5:25, 1:11] = rows
    some = wide[:, 5:25, 1:11]
    _same_bits(*forward(some, mirrored), *forward(rows, vectors))
    apart, together = (clipped_sums([coefficients.copy()], norms, [0.7], some_or_all) for some_or_all in (some, rows))
    _same_bits(*apart, *together)
    one = np.broadcast_to(vectors[:1], (4, 10))
    _same_bits(*forward(rows, one), *forward(rows, one.copy()))


def test_hyperparameters_of_logistic_records_have_the_stated_coefficients() -> None:
    t, along = np.array([[-800.0, -3.0, 0.0, 2.0, 800.0]]), np.array([[1.0, -2.0, 3.0, 4.0, 0.0]])
    with np.errstate(all="ignore"):
        slope, curvature = logistic_coefficients(t.copy(), along)
        sigma = 1.0 / (1.0 + np.exp(t))
    np.testing.assert_allclose(slope, -sigma, rtol=1e-15)
    np.testing.assert_allclose(curvature[:, 1:4], (sigma * (1.0 - sigma) * along)[:, 1:4], rtol=1e-14)
    # inf·0, which a clip turns into 0.
    assert np.isnan(curvature[0, 4])


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("shape", [(g, n, d) for g, n, d in SHAPES if d], ids=str)
def test_rows_are_clipped_one_by_one_and_what_is_not_finite_is_nothing(shape: tuple[int, int, int], norm: Any) -> None:
    """Against a loop over records."""
    g, n, d = shape
    rows = np.random.default_rng(5).normal(size=shape)
    for k, end in enumerate((np.inf, -np.inf, np.nan, 1e200)):
        if g and n > k:
            rows[g - 1, k, d - 1] = end
    wanted = np.zeros((g, d))
    for agent, row in np.ndindex(g, n):
        values = [float(v) for v in rows[agent, row]]
        with np.errstate(over="ignore"):
            length = sum(map(abs, values)) if norm == "l1" else float(np.sqrt(np.sum(np.square(values))))
        if np.isfinite(length):
            wanted[agent] += np.array(values) * min(1.0, 0.3 / length)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(clipped_row_sums(rows, 0.3, norm), wanted, rtol=1e-12, atol=1e-12)


def test_rows_that_share_their_numbers_are_clipped_too() -> None:
    rows = np.broadcast_to(np.array([3.0, 4.0])[:, None, None], (2, 5, 4))
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l2"), np.full((2, 4), 2.5), rtol=1e-15)


def test_rows_of_zeros_and_rows_whose_squares_overflow_are_clipped_without_a_warning() -> None:
    rows = np.array([[[1e200, 0.0], [0.0, 0.0], [3.0, 4.0]]])
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l2"), [[0.6, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l1"), [[10.0 / 7.0, 4.0 / 7.0]], rtol=1e-15)
