"""Rounding and noise in one compiled pass: the bits that numpy computes, at ordinary numbers and at the ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.privacy.mechanisms import grid_arithmetic
from decentral_dp.privacy.mechanisms.gaussian import gaussian_integers
from decentral_dp.privacy.mechanisms.grid_arithmetic import add_public, columns
from decentral_dp.privacy.mechanisms.laplace import laplace_integers

ENDS = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1e-320, 5e-324, 2.0**51 + 0.5, 2.0**52 + 1, -(2.0**53), 1e308, -1e308]
ENDS += [np.inf, -np.inf, np.nan, np.nextafter(1.0, 0.0), np.nextafter(-1.0, 0.0), np.nextafter(0.5, 1.0)]
ROWS, COLUMNS = 5, 519

pytestmark = pytest.mark.skipif(grid_arithmetic.compiled is None, reason="installed without a C compiler")


def _numbers(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """query, grid, ratio and uniforms; queries of all magnitudes, grids of all numbers, of a row, or of one number."""
    draw = np.random.default_rng(3)
    query = draw.normal(size=(ROWS, COLUMNS)) * 10.0 ** draw.uniform(-12, 12, (ROWS, COLUMNS))
    query[:, : len(ENDS)] = ENDS
    grid, ratio = 2.0 ** draw.integers(-40, 12, query.shape), draw.uniform(2.0**16, 2.0**21, query.shape)
    grid[0, -4:] = 0.0
    if kind != "all":
        columns = slice(None) if kind == "row" else slice(1)
        grid, ratio = grid[1:2, columns], ratio[1:2, columns]
    return query, grid, ratio, draw.random(query.shape)


def _same_bits(compiled: np.ndarray, plain: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(compiled), np.isnan(plain))
    numbers = ~np.isnan(plain)
    np.testing.assert_array_equal(compiled[numbers].view(np.uint64), plain[numbers].view(np.uint64))


@pytest.mark.parametrize("kind", ["all", "row", "one number"])
@pytest.mark.parametrize("law", ["laplace", "gaussian", "wide gaussian"])
def test_integers_have_the_bits_of_numpy(law: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, grid, ratio, uniforms = _numbers(kind)
    draw = np.random.default_rng(4)
    exponentials, normals = draw.exponential(size=(ROWS, 2, COLUMNS)), draw.normal(size=(ROWS, COLUMNS))
    normals[:, :3] = [-1e-9, 1e-9, 0.0]

    def integers() -> np.ndarray:
        # Copies: numpy's way overwrites its variates.
        if law == "laplace":
            return laplace_integers(query, grid, ratio, exponentials.copy().transpose(1, 0, 2), uniforms)
        return gaussian_integers(query, grid, ratio, normals.copy(), None if law == "gaussian" else uniforms)

    with np.errstate(all="ignore"):
        compiled = integers()
        monkeypatch.setattr(grid_arithmetic, "compiled", None)
        _same_bits(compiled, integers())


@pytest.mark.parametrize("kind", ["all", "row", "one number"])
def test_what_leaves_has_the_bits_of_numpy(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, grid, _, noise = _numbers(kind)
    whole, integers = np.zeros((ROWS, COLUMNS + 4)), np.rint(1e6 * noise) - 5e5
    sent, expected = whole[:, 2:-2], query.copy()
    sent[:] = query
    with np.errstate(all="ignore"):
        add_public(integers, grid, sent)
        monkeypatch.setattr(grid_arithmetic, "compiled", None)
        add_public(integers, grid, expected)
    _same_bits(sent, expected)
    assert not whole[:, [0, 1, -2, -1]].any()


@pytest.mark.parametrize("compiled", [True, False])
def test_columns_are_rows_side_by_side(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of arrays whose columns are apart, or that hold one number in all places."""
    if not compiled:
        monkeypatch.setattr(grid_arithmetic, "compiled", None)
    wide = np.random.default_rng(5).normal(size=(7, 9))
    parts, whole = [wide[:, ::3], np.broadcast_to(0.5, (7, 2)), wide[:, :1], np.empty((7, 0))], np.zeros((3, 8))
    out = columns(parts, 2, whole[:, 1:7])
    np.testing.assert_array_equal(out, np.concatenate([part[2:5] for part in parts], axis=1))
    assert out.base is whole
    assert not whole[:, [0, 7]].any()
    for first, some in ((5, parts), (-1, parts), (0, parts[1:]), (0, [*parts, wide])):
        with pytest.raises(ValueError, match=r"wanted|wider|dimension|shape"):
            columns(some, first, whole[:, 1:7])


def test_a_query_whose_columns_are_apart_is_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    query, grid, ratio, uniforms = (v[:, ::2] for v in _numbers("all"))
    normals = np.random.default_rng(4).normal(size=query.shape)
    given = [np.ascontiguousarray(v) for v in (grid, ratio, normals, uniforms)]
    with np.errstate(all="ignore"):
        apart = gaussian_integers(query, *given)
        _same_bits(apart, gaussian_integers(query.copy(), *given))


@pytest.mark.parametrize(
    "shapes",
    [[(5, 6)] * 3 + [(4, 6)], [(5, 6), (2, 6), (5, 6), (5, 6)], [(5, 6), (5, 2), (5, 6), (5, 6)], [(30,)] * 4],
)
def test_arrays_that_do_not_fit_are_refused(shapes: list[tuple[int, ...]]) -> None:
    query, grid, ratio, normals = (np.ones(shape) for shape in shapes)
    module: Any = grid_arithmetic.compiled
    with pytest.raises(ValueError, match="wanted rows"):
        module.gaussian(query, grid, ratio, normals)
    with pytest.raises(TypeError, match="wanted 4 arrays, got 3"):
        module.gaussian(query, grid, ratio)
