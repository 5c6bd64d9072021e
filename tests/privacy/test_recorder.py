"""Rows of numbers that are kept in little memory are the rows that were given."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.privacy.recorder import Series

NUMBERS = st.sampled_from([0.0, 1.0, 0.1, 1e300, float("inf"), 5e-324])
WIDTH = 3
ARRAYS = st.lists(NUMBERS, min_size=WIDTH, max_size=WIDTH).map(np.array).filter(lambda a: len(set(a)) > 1)


def plain(entries: list[Any]) -> np.ndarray[Any, Any]:
    """The same from a list of all entries."""
    if any(isinstance(e, np.ndarray) for e in entries):
        return np.array([np.broadcast_to(e, WIDTH) for e in entries])
    return np.array(entries, dtype=np.float64)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.one_of(NUMBERS, ARRAYS), st.integers(1, 4)), max_size=8), st.integers(0, 40))
def test_a_series_is_the_list_of_its_entries(runs: list[tuple[Any, int]], n: int) -> None:
    entries = [entry for entry, times in runs for _ in range(times)]
    series = Series(entries)
    assert len(series) == len(entries)
    assert series.single == (not any(isinstance(e, np.ndarray) for e in entries))
    n = min(n, len(entries))
    wanted = plain(entries)[:n]
    again = Series.from_arrays(series.to_arrays(n))
    assert len(again) == n
    for found in (series.dense(n), again.dense()):
        if n and found.ndim < plain(entries[:n]).ndim:
            found = np.broadcast_to(found[:, None], (n, WIDTH))
        np.testing.assert_array_equal(found, plain(entries[:n]) if n else wanted[:0].reshape(found.shape))
    # Both grow on, also after numpy has looked into them.
    for grown, before in ((series, entries), (again, entries[:n])):
        grown.append(7.0)
        grown.append(7.0)
        assert len(grown) == len(before) + 2
        assert grown.dense()[-2:].ravel().tolist() == [7.0] * (2 * int(np.prod(grown.dense().shape[1:])))
