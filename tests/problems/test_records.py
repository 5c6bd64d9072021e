"""Records of many agents that are kept as one, beside the same records as a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decentral_dp.problems.bilevel.means import MeanRecords
from decentral_dp.problems.lower_level import join_alike
from decentral_dp.problems.records import ByAgent, RecordPairs, concatenate, count_records, stacked_by_count

DRAW = np.random.default_rng(3)
WHOLE = MeanRecords(DRAW.normal(size=(12, 2)), DRAW.normal(size=12), DRAW.normal(size=12))


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 4, 2), (5,)])
def test_records_kept_as_one_are_those_of_each_agent(sizes: tuple[int, ...]) -> None:
    shards = np.split(DRAW.permutation(12), np.cumsum(sizes))[: len(sizes)]
    listed = [MeanRecords(*(a[shard] for a in WHOLE)) for shard in shards]
    kept = ByAgent.from_shards(WHOLE, shards)
    assert len(kept) == len(sizes)
    for of in (kept, [kept[k] for k in range(len(kept))]):
        for own, expected in zip(of, listed, strict=True):
            same(own, expected)
    same(kept[-1], listed[-1])
    assert count_records(kept).tolist() == count_records(listed).tolist() == list(sizes)
    same(concatenate(kept), concatenate(listed))
    for some in (slice(1, None), slice(0, 2)):
        assert len(kept[some]) == len(listed[some])
        for own, expected in zip(kept[some], listed[some], strict=True):
            same(own, expected)
    for (rows, stack), (members, expected) in zip(
        stacked_by_count(kept, np.array(sizes)), stacked_by_count(listed, np.array(sizes)), strict=True
    ):
        np.testing.assert_array_equal(np.arange(len(sizes))[rows], np.arange(len(sizes))[members])
        same(stack, expected)
    pairs = list(zip(listed, listed[::-1], strict=True))
    for one, other in zip(join_alike(RecordPairs(kept, [*kept][::-1])), join_alike(pairs), strict=True):
        assert one.weight == other.weight
        same(one.train, other.train)
        same(one.validation, other.validation)
