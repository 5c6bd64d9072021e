"""Sums over records, and clips by one number for each: bits of numpy, of a loop in the stated order, and of one agent.

Small shards are added up in a stated order, by the compiled part or by numpy; larger ones by BLAS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from decentral_dp.models import linear_terms
from decentral_dp.models.linear_terms import (
    clip_coefficients,
    clipped_row_sums,
    clipped_sums,
    extrapolate,
    forward,
    logistic_coefficients,
    step,
    strength_products,
)

# Agents, records, features: small shards, odd ones, the largest that are small, and one more of each.
SHAPES = [(1, 1, 1), (3, 5, 7), (4, 20, 10), (2, 64, 32), (2, 65, 3), (2, 3, 33), (3, 0, 4), (2, 4, 0), (0, 4, 3)]
SMALL = [(g, n, d) for g, n, d in SHAPES if g and 0 < n <= 64 and 0 < d <= 32]
NORMS: tuple[Any, ...] = ("l1", "l2")
ENDS = [0.0, -0.0, 1.0, -1e-320, 5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, 1e-160, 1e200]


@pytest.fixture(params=["compiled", "numpy"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(linear_terms, "_compiled", None)
    elif linear_terms._compiled is None:
        pytest.skip("installed without a C compiler")
    return str(request.param)


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
def test_small_shards_are_added_up_in_the_stated_order(shape: tuple[int, int, int], ends: bool, way: str) -> None:
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


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
@pytest.mark.parametrize("bound", [0.7, 1e-300, 0.0, np.inf])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_compiled_part_makes_the_bits_of_numpy(
    shape: tuple[int, int, int], bound: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if linear_terms._compiled is None:
        pytest.skip("installed without a C compiler")
    rows, vectors, coefficients, norms = _shards(shape, ends)

    def found() -> list[np.ndarray]:
        exponents = np.clip(coefficients, -800.0, 800.0)
        return [
            *forward(rows, vectors, vectors[::-1]),
            *clipped_sums([coefficients.copy(), 2.0 * coefficients], norms, [bound, 0.3], rows, 7.0),
            *(clipped_row_sums(rows, bound, norm, 7.0) for norm in NORMS if shape[2]),
            clip_coefficients(coefficients.copy(), norms, bound),
            logistic_coefficients(exponents.copy())[0],
            *logistic_coefficients(exponents.copy(), norms),
            *strength_products(vectors.copy(), vectors, vectors[::-1]),
        ]

    with np.errstate(all="ignore"):
        compiled = found()
        monkeypatch.setattr(linear_terms, "_compiled", None)
        for one, other in zip(compiled, found(), strict=True):
            _same_bits(one, other)


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
@pytest.mark.parametrize("size", [0.3, 0.0, -2.0])
def test_a_step_is_rounded_after_each_operation_from_the_left(size: float, ends: bool, way: str) -> None:
    """Of columns of larger arrays, as channels are, and of one direction for all agents."""
    kept, whole, direction = _numbers((5, 1), 1, ends), _numbers((5, 9), 2, ends), _numbers((5, 3), 3, ends)
    own, near = whole[:, :3], whole[:, 6:]
    for along in (direction, np.broadcast_to(direction[:1, :1], (5, 3)), np.broadcast_to(direction[:1], (5, 3))):
        with np.errstate(all="ignore"):
            found = step(kept, own, near, size, along)
            wanted = [
                [float(kept[i, 0] * own[i, j] + near[i, j]) - float(size * along[i, j]) for j in range(3)]
                for i in range(5)
            ]
        _same_bits(found, np.array(wanted))


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
def test_what_lies_ahead_is_rounded_after_each_operation(ends: bool, way: str) -> None:
    now, before = _numbers((5, 9), 1, ends)[:, 3:], _numbers((5, 6), 2, ends)
    with np.errstate(all="ignore"):
        wanted = [[float((now[i, j] - before[i, j]) * 0.7) + now[i, j] for j in range(6)] for i in range(5)]
        _same_bits(extrapolate(now, before, 0.7), np.array(wanted))


@pytest.mark.parametrize("shape", [s for s in SHAPES if all(s)], ids=str)
def test_an_agent_alone_has_the_bits_that_it_has_among_others(shape: tuple[int, int, int], way: str) -> None:
    rows, vectors, coefficients, norms = _shards(shape, ends=False)
    together = *forward(rows, vectors), *clipped_sums([coefficients.copy()], norms, [0.7], rows)
    for agent in range(shape[0]):
        one = slice(agent, agent + 1)
        _same_bits(*forward(rows[one], vectors[one]), together[0][one])
        _same_bits(*clipped_sums([coefficients[one].copy()], norms[one], [0.7], rows[one]), together[1][one])


def test_arrays_that_are_views_of_others_are_read_where_they_are(way: str) -> None:
    rows, vectors, coefficients, norms = _shards((4, 20, 10), ends=False)
    wide, mirrored = np.zeros((4, 30, 12)), np.ascontiguousarray(vectors[:, ::-1])[:, ::-1]
    wide[:, 5:25, 1:11] = rows
    some = wide[:, 5:25, 1:11]
    _same_bits(*forward(some, mirrored), *forward(rows, vectors))
    apart, together = (clipped_sums([coefficients.copy()], norms, [0.7], some_or_all) for some_or_all in (some, rows))
    _same_bits(*apart, *together)
    one = np.broadcast_to(vectors[:1], (4, 10))
    _same_bits(*forward(rows, one), *forward(rows, one.copy()))
    for found, wanted in zip(
        strength_products(mirrored, one, mirrored), strength_products(vectors, one.copy(), vectors), strict=True
    ):
        _same_bits(found, wanted)


@pytest.mark.parametrize("ends", [False, True], ids=["numbers", "ends"])
@pytest.mark.parametrize("width", [1, 3, 30, 5000])
def test_messages_are_mixed_as_by_scipy(width: int, ends: bool) -> None:
    """Rows that hear nobody, somebody twice, and columns in any order; of several messages the first comes first."""
    module: Any = linear_terms._compiled
    if module is None:
        pytest.skip("installed without a C compiler")
    counts, columns = np.array([0, 0, 3, 5, 6]), np.array([3, 0, 2, 1, 1, 4])
    weights, messages = _numbers((6,), 2, ends=False), _numbers((5, 2 * width), 1, ends)[:, :width]
    found = np.full((4, width), np.nan)
    module.mix(found, counts, columns, weights, messages)
    whole = sp.csr_array((weights, columns, counts), shape=(4, 5))
    _same_bits(found, whole @ np.ascontiguousarray(messages))
    whole.sort_indices()
    parts = [sp.csr_array(whole[:, :2]), sp.csr_array(whole[:, 2:])]
    by_message = [(w.indptr.astype(np.int64), w.indices.astype(np.int64), w.data) for w in parts]
    module.mix(found, *by_message[0], messages[:2], *by_message[1], messages[2:])
    _same_bits(found, whole @ np.ascontiguousarray(messages))


def test_hyperparameters_of_logistic_records_have_the_stated_coefficients(way: str) -> None:
    t, along = np.array([[-800.0, -3.0, 0.0, 2.0, 800.0]]), np.array([[1.0, -2.0, 3.0, 4.0, 0.0]])
    with np.errstate(all="ignore"):
        slope, curvature = logistic_coefficients(t.copy(), along)
        sigma = 1.0 / (1.0 + np.exp(t))
    np.testing.assert_allclose(slope, -sigma, rtol=1e-15)
    np.testing.assert_allclose(curvature[:, 1:4], (sigma * (1.0 - sigma) * along)[:, 1:4], rtol=1e-14)
    # inf·0, which a clip turns into 0.
    assert np.isnan(curvature[0, 4])


def test_arrays_that_do_not_fit_are_refused() -> None:
    module: Any = linear_terms._compiled
    if module is None:
        pytest.skip("installed without a C compiler")
    rows, c, sums = np.ones((3, 5, 4)), np.ones((3, 5)), module.clipped_sums
    bad = [
        lambda: module.clip(c.copy(), np.ones((3, 4)), 1.0, 0.0),
        lambda: module.clip(c.copy(), np.ones(15), 1.0, 0.0),
        lambda: module.clip(c.tolist(), c, 1.0, 0.0),
        lambda: module.forward(rows, np.ones((3, 5))),
        lambda: module.forward(rows, np.ones((2, 4))),
        lambda: module.forward(rows, np.ones((3, 8))[:, ::2]),
        lambda: module.forward(rows.astype(np.float32), np.ones((3, 4))),
        lambda: module.forward(rows.astype(">f8"), np.ones((3, 4))),
        lambda: module.forward(rows, np.ones((3, 4), np.int64)),
        lambda: module.forward(np.ones((3, 0, 4)), np.ones((3, 4))),
        lambda: sums(rows, c, [1.0], 0.0, 0.0, 1.0, np.ones((3, 4))),
        lambda: sums(rows, np.ones((3, 4)), [1.0], 0.0, 0.0, 1.0, c.copy()),
        lambda: sums(rows, c, [1.0, 1.0], 0.0, 0.0, 1.0, c.copy(), np.ones((2, 5))),
        lambda: sums(np.ones((3, 5, 0)), c, [1.0], 0.0, 0.0, 1.0, c.copy()),
        lambda: module.clipped_row_sums(np.ones((3, 5, 0)), True, 1.0, 0.0, 1.0),
        lambda: module.clipped_row_sums(rows[:, :, ::2], True, 1.0, 0.0, 1.0),
        lambda: module.logistic(c.copy(), np.ones((3, 4))),
        lambda: module.strengths(c, c, np.ones((3, 4))),
        lambda: module.step(np.ones((3, 2)), c, c, 0.1, c),
        lambda: module.step(np.ones((3, 1)), c, c, 0.1, np.ones((3, 4))),
        lambda: module.mix(np.ones((1, 3)), np.array([0.0, 1.0]), np.array([1]), np.ones(1), np.ones((2, 3))),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 1]), np.array([2]), np.ones(1), np.ones((2, 3))),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 1]), np.array([-1]), np.ones(1), np.ones((2, 3))),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 2]), np.array([1]), np.ones(1), np.ones((2, 3))),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 1]), np.array([1]), np.ones(2), np.ones((2, 3))),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 1]), np.array([1]), np.ones(1), np.ones((2, 4))),
        lambda: module.mix(np.ones((1, 3)), np.array([1, 1]), np.array([1]), np.ones(1), np.ones((2, 3))),
        lambda: module.mix(np.ones((2, 3)), np.array([0, 2, 1]), np.array([1]), np.ones(1), np.ones((2, 3))),
        lambda: module.extrapolate(c, np.ones((3, 4)), 0.1),
        lambda: module.mix(np.ones((1, 3)), np.array([0, 1, 1]), np.array([1]), np.ones(1), np.ones((2, 3))),
    ]
    for call in bad:
        with pytest.raises(ValueError, match="wanted float64 arrays"):
            call()
    for call in (
        lambda: sums(rows, c, [1.0, 2.0], 0.0, 0.0, 1.0, c.copy()),
        lambda: sums(rows, c, [1.0] * 5, 0.0, 0.0, 1.0, *[c.copy() for _ in range(5)]),
        lambda: module.step(c, c),
        lambda: module.clipped_row_sums(rows, True),
    ):
        with pytest.raises(TypeError, match="wanted"):
            call()
    frozen = c.copy()
    frozen.flags.writeable = False
    for call in (
        lambda: module.clip(frozen, c, 1.0, 0.0),
        lambda: sums(rows, c, [1.0], 0.0, 0.0, 1.0, frozen),
        lambda: module.logistic(frozen, None),
    ):
        with pytest.raises(ValueError, match="read-only"):
            call()


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("shape", [(g, n, d) for g, n, d in SHAPES if d], ids=str)
def test_rows_are_clipped_one_by_one_and_what_is_not_finite_is_nothing(
    shape: tuple[int, int, int], norm: Any, way: str
) -> None:
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


def test_rows_that_share_their_numbers_are_clipped_too(way: str) -> None:
    rows = np.broadcast_to(np.array([3.0, 4.0])[:, None, None], (2, 5, 4))
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l2"), np.full((2, 4), 2.5), rtol=1e-15)


def test_rows_of_zeros_and_rows_whose_squares_overflow_are_clipped_without_a_warning(way: str) -> None:
    rows = np.array([[[1e200, 0.0], [0.0, 0.0], [3.0, 4.0]]])
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l2"), [[0.6, 0.8]], rtol=1e-15)
    np.testing.assert_allclose(clipped_row_sums(rows, 1.0, "l1"), [[10.0 / 7.0, 4.0 / 7.0]], rtol=1e-15)
