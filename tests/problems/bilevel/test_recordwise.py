"""A formula that gives no number for any made-up record is refused: it ran, and learnt nothing."""

from __future__ import annotations

import numpy as np
import pytest

from decentral_dp.errors import InputError
from decentral_dp.models.row_locality import trials
from decentral_dp.problems.bilevel.recordwise import try_rows


def _all(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.full(len(labels), np.nan)


def _ones(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.ones(len(labels))


@pytest.mark.parametrize("term", ["loss", "lower_grad_y"])
def test_rows_that_are_all_nan_are_refused(term: str) -> None:
    with pytest.raises(InputError, match=f"Mine: {term} gives no finite number"):
        try_rows(_all, (), f"Mine: {term}", tuple(trials([7], 3, 2)))


def test_rows_of_numbers_pass() -> None:
    try_rows(_ones, (), "Mine: loss", tuple(trials([7], 3, 2)))
