"""Linear terms: clipped coefficients and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.models import linear_terms
from decentral_dp.models.linear_terms import (
    Joined,
    clip_coefficients,
    clipped_sums,
    forward,
    forward_and_sizes,
    logistic_coefficients,
    weighted_sums,
)

# Agents, records, features.
SHAPES = [(1, 1, 1), (3, 5, 7), (4, 20, 10), (2, 64, 32), (2, 65, 3), (2, 3, 33), (3, 0, 4), (2, 4, 0), (0, 4, 3)]
ENDS = [0.0, -0.0, 1.0, -1e-320, 5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, 1e-160, 1e200]


def _numbers(shape: tuple[int, ...], seed: int, ends: bool) -> np.ndarray:
    """Draw all magnitudes; with `ends` a third of them zeros, infinities, NaN, and the smallest and largest numbers."""
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
    """Compute the terms in Python's float64."""
    with np.errstate(all="ignore"):
        factor = float(np.float64(bound) / (np.abs(np.float64(c)) * norm))
        factor = 1.0 if factor > 1.0 else factor
        out = float(np.float64(c) * (0.0 if factor < linear_terms.LEAST_FACTOR else factor))
    return 0.0 if out != out else out


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
def test_coefficients_are_clipped_one_by_one(ends: bool) -> None:
    _, _, coefficients, norms = _shards((4, 20, 10), ends)
    wanted = np.array(
        [
            [_clipped(c, norm, 0.7) for c, norm in zip(*some, strict=True)]
            for some in zip(coefficients, norms, strict=True)
        ]
    )
    with np.errstate(all="ignore"):
        _same_bits(clip_coefficients(coefficients.copy(), norms, 0.7), wanted)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_are_those_of_a_loop_over_clipped_coefficients(shape: tuple[int, int, int]) -> None:
    rows, vectors, coefficients, norms = _shards(shape, False)
    g, n, d = shape
    products, sums, sizes = np.zeros((g, n)), np.zeros((g, d)), np.zeros((g, d))
    for agent, k in np.ndindex(g, n):
        products[agent, k] = sum(a * v for a, v in zip(rows[agent, k], vectors[agent], strict=True))
        part = _clipped(coefficients[agent, k], norms[agent, k], 0.7) * rows[agent, k]
        sums[agent] += part / 7.0
        sizes[agent] += np.abs(part)
    by_size = np.matmul(np.abs(rows), np.abs(vectors)[:, :, None])[:, :, 0]
    assert (np.abs(forward(rows, vectors)[0] - products) <= 1e-13 * by_size).all()
    (found,) = clipped_sums([coefficients.copy()], norms, [0.7], rows, 7.0)
    assert (np.abs(found - sums) <= 1e-13 * sizes).all()


@pytest.mark.parametrize("shape", [s for s in SHAPES if all(s)], ids=str)
def test_an_agent_alone_has_the_bits_that_it_has_among_others(shape: tuple[int, int, int]) -> None:
    rows, vectors, coefficients, norms = _shards(shape, ends=False)
    together = *forward(rows, vectors), *clipped_sums([coefficients.copy()], norms, [0.7], rows)
    for agent in range(shape[0]):
        one = slice(agent, agent + 1)
        _same_bits(*forward(rows[one], vectors[one]), together[0][one])
        _same_bits(*clipped_sums([coefficients[one].copy()], norms[one], [0.7], rows[one]), together[1][one])


@pytest.mark.parametrize("norm", [None, "l1", "l2"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compiled_products_and_sums_have_the_bits_of_numpy(
    shape: tuple[int, int, int], norm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if linear_terms._linear is None:
        pytest.skip("built without a C compiler")
    rows, vectors, coefficients, _ = _shards(shape, ends=True)
    g, n, d = shape
    # The same records with unequal counts, among them 0 where possible.
    counts = np.bincount(np.random.default_rng(6).integers(g, size=g * n) if g else [], minlength=g).astype(np.int64)
    joined = Joined(rows.reshape(1, g * n, d), counts)
    with np.errstate(all="ignore"):
        compiled = [
            *(forward_and_sizes(r, vectors, norm) for r in (rows, joined)),
            weighted_sums(coefficients, rows),
            weighted_sums(coefficients.reshape(1, -1), joined),
        ]
        monkeypatch.setattr(linear_terms, "_linear", None)
        by_numpy = [
            *(forward_and_sizes(r, vectors, norm) for r in (rows, joined)),
            weighted_sums(coefficients, rows),
            weighted_sums(coefficients.reshape(1, -1), joined),
        ]
    for one, other in zip(compiled, by_numpy, strict=True):
        for a, b in zip(one, other, strict=True):
            _same_bits(a, b)


def test_sizes_are_norms_of_the_rows() -> None:
    rows, vectors, _, _ = _shards((4, 20, 11), ends=False)
    for norm, wanted in (("l1", np.abs(rows).sum(axis=2)), ("l2", np.square(rows).sum(axis=2))):
        np.testing.assert_allclose(forward_and_sizes(rows, vectors, norm)[1], wanted, rtol=1e-14)


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "numpy"])
def test_records_with_coefficient_0_may_be_infinite(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_compiled:
        monkeypatch.setattr(linear_terms, "_linear", None)
    rows = np.array([[[np.inf, np.nan], [1.0, 2.0]]])
    sums, totals = weighted_sums(np.array([[0.0, 3.0]]), rows)
    assert (sums.tolist(), totals.tolist()) == ([[3.0, 6.0]], [3.0])


def test_the_compiled_module_refuses_wrong_arrays() -> None:
    if linear_terms._linear is None:
        pytest.skip("built without a C compiler")
    rows, counts, vectors = np.ones((4, 3)), np.array([3, 1]), np.ones((2, 3))
    for wrong in (
        (rows[:, ::2], counts, vectors[:, :2], 0),
        (rows, np.array([3, 2]), vectors, 0),
        (rows, np.array([5, -1]), vectors, 0),
        (rows, counts, vectors[:1], 0),
        (rows, counts, vectors, 3),
        (rows.astype(np.float32), counts, vectors, 0),
        (rows, counts.astype(np.int32), vectors, 0),
    ):
        with pytest.raises(ValueError, match="expected contiguous float64 rows"):
            linear_terms._linear.forward(*wrong)
    with pytest.raises(ValueError, match="expected contiguous float64 rows"):
        linear_terms._linear.weighted_sums(np.ones(3), rows, counts)


def test_hyperparameters_of_logistic_records_have_the_stated_coefficients() -> None:
    t, along = np.array([[-800.0, -3.0, 0.0, 2.0, 800.0]]), np.array([[1.0, -2.0, 3.0, 4.0, 0.0]])
    with np.errstate(all="ignore"):
        slope, curvature = logistic_coefficients(t.copy(), along)
        sigma = 1.0 / (1.0 + np.exp(t))
    np.testing.assert_allclose(slope, -sigma, rtol=1e-15)
    np.testing.assert_allclose(curvature[:, 1:4], (sigma * (1.0 - sigma) * along)[:, 1:4], rtol=1e-14)
    # inf·0, which a clip turns into 0.
    assert np.isnan(curvature[0, 4])
