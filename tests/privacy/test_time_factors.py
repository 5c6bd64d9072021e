"""Noise correlated in time: the factors by brute force, their published numbers, and what a record shows of itself."""

from __future__ import annotations

from itertools import combinations, product
from math import comb
from typing import Any

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.privacy.time_factors import (
    TimeFactor,
    banded_square_root,
    carried_noise,
    charged_sensitivity,
    empty_past,
    factor_of,
    next_past,
)

T = 24


def inverse_of(factor: TimeFactor, rounds: int) -> Any:
    """C⁻¹, by its recursion from unit draws."""
    past, rows = empty_past(factor, (rounds,)), []
    for draw in np.eye(rounds):
        rows.append(carried_noise(factor, past) + draw)
        past = next_past(factor, past, draw)
    return np.array(rows)


def test_square_roots_have_their_published_coefficients() -> None:
    """Kalinin & Lampert 2024: binom(2k, k)/4^k; two of them are the running sums."""
    coefficients = np.array([comb(2 * k, k) / 4.0**k for k in range(T)])
    full = banded_square_root(T, T)
    assert np.concatenate([[1.0], full.noise_weights]) == pytest.approx(coefficients, rel=1e-14)
    matrix = np.linalg.inv(inverse_of(full, T))
    assert matrix @ matrix == pytest.approx(np.tril(np.ones((T, T))), abs=1e-12)
    assert banded_square_root(T, 3).noise_weights == pytest.approx(coefficients[1:3])


@pytest.mark.parametrize("apart", [1, 2, 3, 5, 12])
def test_no_pattern_of_reads_and_signs_shows_more(apart: int) -> None:
    """Every set of rounds that are far enough apart, at every end of the run; and one that shows all of it."""
    rounds = 12
    factor = banded_square_root(rounds, 6, apart=apart)
    matrix = np.abs(np.linalg.inv(inverse_of(factor, rounds)))
    priced = np.cumsum(np.square(factor.row_sums))
    largest = np.zeros(rounds)
    for count in range(1, rounds + 1):
        for reads in combinations(range(rounds), count):
            if min(np.diff(reads), default=rounds) >= apart:
                largest = np.maximum(largest, np.cumsum(np.square(matrix[:, list(reads)].sum(axis=1))))
    assert (largest <= priced * (1.0 + 1e-12)).all()
    assert largest == pytest.approx(priced, rel=1e-9)


def test_a_factor_of_ones_own() -> None:
    rng = np.random.default_rng(3)
    inverse = np.tril(rng.uniform(-0.6, 0.6, (9, 9)), -1) + np.eye(9)
    factor = factor_of(inverse)
    assert inverse_of(factor, 9) == pytest.approx(inverse, abs=1e-15)
    exact = np.abs(np.linalg.inv(inverse)).sum(axis=1)
    signs = np.array(list(product((-1.0, 1.0), repeat=9)))
    assert exact == pytest.approx((signs @ np.linalg.inv(inverse).T).max(axis=0), rel=1e-12)
    assert factor.row_sums == pytest.approx(exact, rel=1e-12)
    assert (factor.row_sums >= exact * (1.0 - 1e-14)).all()
    assert factor_of(inverse, np.ones((1, 9), dtype=bool)).row_sums == pytest.approx(exact, rel=1e-12)
    assert factor_of(np.eye(1)).row_sums == pytest.approx([1.0])


READS = np.array([[1, 0, 0, 1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 0, 0, 1], [0, 0, 1, 0, 0, 1, 0, 0, 0]], dtype=bool)


@pytest.mark.parametrize("fine", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("signed", [False, True])
def test_rounds_that_are_known_are_charged_what_their_reads_show(signed: bool, fine: float) -> None:
    """Up to any round: of every record its reads, and rounding in every round from its first read on."""
    rng, rounds = np.random.default_rng(8), READS.shape[1]
    for _ in range(20):
        matrix = np.eye(rounds) + np.tril(rng.uniform(-1.0 if signed else 0.0, 1.0, (rounds, rounds)), -1)
        inverse = np.tril(np.linalg.inv(matrix), -1) + np.eye(rounds)
        factor, one = factor_of(inverse, READS), np.ones((rounds, 1))
        cost = charged_sensitivity(factor, np.arange(1, rounds + 1), one, fine * one, 1)[:, 0] + fine
        spent, largest = np.cumsum(np.square(cost)), np.zeros(rounds)
        for reads in READS:
            shown = np.abs(matrix) @ reads + fine * np.abs(matrix[:, int(reads.argmax()) :]).sum(axis=1)
            largest = np.maximum(largest, np.cumsum(np.square(shown)))
        assert (largest <= spent * (1.0 + 1e-12)).all()
        if not fine:
            assert largest == pytest.approx(spent, rel=1e-9)


@pytest.mark.parametrize("inverse", [np.ones((2, 3)), np.ones((2, 2)), 2.0 * np.eye(2)])
def test_inverses_that_are_not_causal_are_refused(inverse: Any) -> None:
    with pytest.raises(InputError, match="ones on its diagonal"):
        factor_of(inverse)


def test_an_inverse_that_float64_cannot_invert_is_refused() -> None:
    with pytest.raises(InputError, match="near singular"):
        factor_of(np.eye(40) + 1e9 * np.eye(40, k=-1) - 3e9 * np.eye(40, k=-2))
