"""Record streams: counts, sampling rates and batches."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.data import Sampling, draw_batch


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 60), st.integers(0, 70))
def test_accumulating_counts_match_counting_one_by_one(n: int, batch: int, warm: int, t: int) -> None:
    arrived = min(n, warm)
    for _ in range(t + 1):
        arrived = min(n, arrived + batch)
    sampling = Sampling("streaming", batch, warm)
    assert sampling.pool_sizes(t, n) == arrived
    assert sampling.averaged_counts(t, n) == arrived
    assert sampling.rate(t, n) == 1


def test_counts_broadcast_and_do_not_overflow() -> None:
    sampling = Sampling("streaming", 5, 3)
    assert sampling.pool_sizes(np.arange(4)[:, None], np.array([10, 100])).tolist() == [
        [8, 8],
        [10, 13],
        [10, 18],
        [10, 23],
    ]
    huge = Sampling("streaming", 2**62, 2**62)
    assert huge.pool_sizes(2**62, 10**9) == 10**9
    assert Sampling("streaming", 1).pool_sizes(2**62, 10**9) == 10**9


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**32))
def test_a_batch_has_the_size_and_the_rate_it_is_priced_at(n: int, batch: int, seed: int) -> None:
    draw = draw_batch(n, batch, np.random.default_rng(seed))
    assert draw.index.size == min(n, batch)
    assert np.unique(draw.index).size == draw.index.size
    assert draw.index.min() >= 0
    assert draw.index.max() < n
    assert draw.rate == draw.index.size / n
    assert draw.rate == Sampling("fixed_batch", batch).rate(0, n)


def test_every_subset_in_every_order_is_equally_likely() -> None:
    """Amplification exchanges one record of a batch, and leaves the others in their places."""
    rng = np.random.default_rng(11)
    rounds = 6000
    counts = dict.fromkeys(permutations(range(5), 2), 0)
    for _ in range(rounds):
        counts[tuple(draw_batch(5, 2, rng).index.tolist())] += 1
    expected = rounds / 20
    # χ² with 19 degrees of freedom passes 50.8 once in 10 000 seeds.
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 50.8


@pytest.mark.parametrize("batch", [1, 3, 5, 8])
def test_no_record_of_any_agent_is_read_again_before_the_least_gap(batch: int) -> None:
    """Reads of each record, counted: agents with few records read theirs most often."""
    counts, sampling = np.array([17, 6, 24]), Sampling("cyclic", batch=batch)
    gaps = [
        int(np.diff(np.flatnonzero(row)).min())
        for n in counts
        for row in (np.arange(n)[:, None] - min(batch, n) * np.arange(200)) % n < min(batch, n)
    ]
    assert sampling.least_gap(counts) == min(gaps)
    assert sampling.least_gap(counts) == min(sampling.least_gap(int(n)) for n in counts)
