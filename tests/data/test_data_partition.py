"""Who holds which record: nothing lost, nothing held twice, and by public rules only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from decentral_dp.data import Dataset, held_out, load, make_shards, partition, split
from decentral_dp.errors import InputError


def records(
    labels: np.ndarray, agent: np.ndarray | None = None, words: np.ndarray | None = None, classes: int = 3
) -> Dataset:
    n = labels.size
    features = np.random.default_rng(7).normal(size=(n, 2))
    return Dataset(features, labels, tuple(range(classes)), ("a", "b"), "test", agent, words)


label_arrays = st.lists(st.integers(0, 2), min_size=8, max_size=90).map(lambda v: np.array(v, dtype=np.int64))
specs = st.one_of(
    st.just("iid"),
    st.floats(0, 1).map(lambda s: {"kind": "by_class", "share": s}),
    st.floats(0.01, 100).map(lambda a: {"kind": "dirichlet", "alpha": a}),
    st.just({"kind": "column", "name": "agent"}),
)
seeds = st.integers(0, 2**40)


@settings(max_examples=150, deadline=None)
@given(label_arrays, st.integers(1, 8), specs, seeds, st.floats(0, 0.6), st.data())
def test_every_record_is_tested_or_held_exactly_once(
    labels: np.ndarray, m: int, spec: Any, seed: int, test: float, data: st.DataObject
) -> None:
    agent = np.array(data.draw(st.lists(st.integers(0, m - 1), min_size=labels.size, max_size=labels.size)))
    dataset = records(labels, agent)
    aside = held_out(dataset, validation=0.5, test=test, seed=seed)
    assert aside.size == int(test * labels.size + 0.5)
    assert np.all(np.diff(aside) > 0)
    rest = np.setdiff1d(np.arange(labels.size), aside)
    assume(rest.size >= m)
    shards = partition(dataset, m, spec, seed, among=rest)
    assert len(shards) == m
    assert np.array_equal(np.sort(np.concatenate([aside, *shards])), np.arange(labels.size))
    assert all(np.all(np.diff(s) > 0) for s in shards)
    if spec == "iid":
        sizes = [s.size for s in shards]
        assert max(sizes) - min(sizes) <= 1
    if isinstance(spec, dict) and spec["kind"] == "column":
        assert all((agent[s] == i).all() for i, s in enumerate(shards))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(2, 60), st.floats(0.05, 0.95), seeds)
def test_train_and_validation_are_disjoint_in_file_order_and_have_the_share(
    m: int, per: int, share: float, seed: int
) -> None:
    size = int(share * per + 0.5)
    assume(0 < size < per)
    dataset = records(np.zeros(m * per, dtype=np.int64))
    shards = partition(dataset, m, "iid", seed)
    parts = split(dataset, shards, validation=share, test=0.0, seed=seed)
    for shard, train, validation in zip(shards, parts.train, parts.validation, strict=True):
        assert validation.size == size
        assert not set(train) & set(validation)
        assert np.array_equal(np.sort(np.concatenate([train, validation])), shard)
        assert np.all(np.diff(train) > 0)
        assert np.all(np.diff(validation) > 0)


@settings(max_examples=50, deadline=None)
@given(label_arrays, specs.filter(lambda s: not isinstance(s, dict) or s["kind"] != "column"), seeds)
def test_the_same_seed_deals_the_same_shards_whatever_the_features(labels: np.ndarray, spec: Any, seed: int) -> None:
    one = records(labels)
    two = Dataset(one.features * -9 + 3, labels, one.classes, one.feature_names, "elsewhere")
    for a, b in zip(partition(one, 3, spec, seed), partition(two, 3, spec, seed), strict=True):
        assert np.array_equal(a, b)
    first = held_out(one, validation=0.5, test=0.3, seed=seed)
    assert np.array_equal(first, held_out(two, validation=0.5, test=0.3, seed=seed))


def test_iid_and_the_splits_read_no_label() -> None:
    """Replacing labels moves nobody under iid; it does under by_class, hence "within the given shards"."""
    here, there = records(np.arange(30) % 3), records(np.arange(30) // 10)
    dealt = [partition(d, 4, "iid", 5) for d in (here, there)]
    assert all(np.array_equal(a, b) for a, b in zip(*dealt, strict=True))
    parts = [split(d, dealt[0], validation=0.4, test=0.0, seed=5) for d in (here, there)]
    assert all(np.array_equal(a, b) for a, b in zip(parts[0].validation, parts[1].validation, strict=True))
    by_class = [partition(d, 4, "by_class", 5) for d in (here, there)]
    assert not all(np.array_equal(a, b) for a, b in zip(*by_class, strict=True))


def test_seeds_differ() -> None:
    dataset = records(np.zeros(40, dtype=np.int64))
    assert not np.array_equal(partition(dataset, 2, "iid", 1)[0], partition(dataset, 2, "iid", 2)[0])
    # The same seed serves several purposes: their draws must not coincide.
    test = held_out(dataset, validation=0.5, test=0.5, seed=1)
    assert not np.array_equal(test, partition(dataset, 2, "iid", 1)[0])


def test_by_class_gives_the_share_to_the_home_and_the_rest_to_all_others() -> None:
    """The paper's MNIST setting: half of class i on agent i, the other half spread over the other nine."""
    labels = np.repeat(np.arange(10), 90)
    shards = partition(records(labels, classes=10), 10, {"kind": "by_class", "share": 0.5}, 0)
    counts = np.array([np.bincount(labels[s], minlength=10) for s in shards])
    assert np.array_equal(counts, np.full((10, 10), 5) + 40 * np.eye(10, dtype=int))


@pytest.mark.parametrize(
    ("classes", "m", "share", "expected"),
    [
        (2, 4, 1.0, [[10, 0], [0, 10], [10, 0], [0, 10]]),  # more agents than classes: homes are shared
        (4, 2, 1.0, [[20, 0, 20, 0], [0, 20, 0, 20]]),  # fewer: an agent is home to several
        (2, 1, 0.3, [[20, 20]]),  # nobody else to give the rest to
        (2, 2, 0.0, [[0, 20], [20, 0]]),
    ],
)
def test_by_class_homes(classes: int, m: int, share: float, expected: list[list[int]]) -> None:
    labels = np.repeat(np.arange(classes), 20)
    shards = partition(records(labels, classes=classes), m, {"kind": "by_class", "share": share}, 3)
    assert [np.bincount(labels[s], minlength=classes).tolist() for s in shards] == expected


def test_rounding_favours_nobody() -> None:
    """Thirds of ten records are 3, 4 and 3: over nine classes the extra ones must go round."""
    labels = np.repeat(np.arange(9), 10)
    shards = partition(records(labels, classes=9), 3, {"kind": "by_class", "share": 1 / 3}, 0)
    assert [s.size for s in shards] == [30, 30, 30]


def test_dirichlet_spreads_more_for_small_alpha() -> None:
    labels = np.arange(3000) % 3

    def spread(alpha: float) -> float:
        shards = partition(records(labels), 5, {"kind": "dirichlet", "alpha": alpha}, 0)
        counts = np.array([np.bincount(labels[s], minlength=3) for s in shards])
        return float(counts.std())

    # Standard deviation of one agent's share of a class: √((1/5)(4/5)/(5α+1)), times 1000 records.
    assert spread(1e6) < 1
    assert spread(0.05) > 250
    assert 70 < spread(1.0) < 260


def test_columns_say_who_holds_what() -> None:
    words = np.array(["train", "test", "validation", "train", "validation", "test"])
    dataset = records(np.zeros(6, dtype=np.int64), np.array([1, 1, 1, 0, 0, 0]), words)
    for validation in ({"column": "split"}, None):
        test = held_out(dataset, validation=validation, seed=0)
        assert test.tolist() == [1, 5]
        shards = partition(dataset, 2, None, 0, among=np.array([0, 2, 3, 4]))
        parts = split(dataset, shards, validation=validation, seed=0)
        assert [t.tolist() for t in parts.train] == [[3], [0]]
        assert [v.tolist() for v in parts.validation] == [[4], [2]]


def test_a_stated_share_overrides_the_split_column() -> None:
    words = np.array(["train", "validation"] * 10)
    dataset = records(np.zeros(20, dtype=np.int64), words=words)
    assert held_out(dataset, validation=0.5, test=0.25, seed=0).size == 5
    parts = split(dataset, [np.arange(20)], validation=0.3, test=None, seed=0)
    assert parts.validation[0].size == 6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: partition(d, 7, "iid", 0), r"7 agents cannot share 6 records"),
        (lambda d: partition(d, 0, "iid", 0), r"topology\.agents: got 0"),
        (
            lambda d: partition(d, 2, "dirichlett", 0),
            r"problem\.partition: got 'dirichlett', but the nearest is 'dirichlet'",
        ),
        (lambda d: partition(d, 2, {"alpha": 1}, 0), r"problem\.partition: got 'None'"),
        (lambda d: partition(d, 2, {"kind": "dirichlet", "alfa": 1}, 0), r"no option 'alfa'; the nearest is 'alpha'"),
        (lambda d: partition(d, 2, {"kind": "dirichlet", "alpha": 0.0}, 0), r"alpha is 0\.0, but a number from 1e-6"),
        (lambda d: partition(d, 2, {"kind": "dirichlet", "alpha": float("nan")}, 0), r"alpha is nan"),
        (lambda d: partition(d, 2, {"kind": "by_class", "share": 1.5}, 0), r"share is 1\.5, but a share from 0 to 1"),
        (lambda d: partition(d, 2, {"kind": "by_class", "share": "half"}, 0), r"share is 'half'"),
        (lambda d: partition(d, 2, {"kind": "column", "name": "agent"}, 0), r"'test' has no agent column"),
        (lambda d: held_out(d, validation={"column": "split"}, seed=0), r"'test' has no split column; give a share"),
        (
            lambda d: held_out(d, validation=0.5, test=1.0, seed=0),
            r"problem\.test: got 1\.0, but a share of at least 0",
        ),
        (lambda d: held_out(d, validation=0.5, test=-0.1, seed=0), r"problem\.test: got -0\.1"),
        (lambda d: held_out(d, validation=0.5, test=float("nan"), seed=0), r"problem\.test: got nan"),
        (lambda d: held_out(d, seed=-3), r"seed: got -3"),
        (
            lambda d: split(d, [np.arange(6)], validation=0.0, seed=0),
            r"problem\.validation: got 0\.0, but a share above 0",
        ),
        (lambda d: split(d, [np.arange(6)], validation=1.0, seed=0), r"problem\.validation: got 1\.0"),
        (
            lambda d: split(d, [np.arange(5), np.array([5])], validation=0.5, seed=0),
            r"agent 1 has 0 train and 1 validation records, but needs at least one of each; use fewer agents",
        ),
        (
            lambda d: split(d, [np.arange(6), np.array([], dtype=np.int64)], validation=0.5, seed=0),
            r"agent 1 has 0 train and 0",
        ),
        (lambda d: split(d, [np.arange(6)], validation=0.05, seed=0), r"agent 0 has 6 train and 0 validation records"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(records(np.arange(6) % 3))


def test_refused_columns() -> None:
    words = np.array(["train", "test", "train", "test"])
    dataset = records(np.zeros(4, dtype=np.int64), np.array([0, 1, 0, 5]), words)
    with pytest.raises(
        InputError, match=r"row 4 of 'test' belongs to agent 5, but the topology has agents 0\.\.1; .* = 6"
    ):
        partition(dataset, 2, {"kind": "column", "name": "agent"}, 0)
    with pytest.raises(InputError, match=r"the split column says which records are for testing; leave `test` out"):
        held_out(dataset, validation={"column": "split"}, test=0.2, seed=0)
    with pytest.raises(InputError, match=r"agent 0 has 2 train and 0 validation"):
        split(dataset, [np.array([0, 2])], validation={"column": "split"}, seed=0)


def test_numbers_to_predict_cannot_be_dealt_by_class() -> None:
    dataset = Dataset(np.ones((4, 1)), np.linspace(0, 1, 4), (), ("a",), "numbers")
    with pytest.raises(InputError, match=r"by_class needs classes"):
        partition(dataset, 2, "by_class", 0)


def test_make_shards_holds_out_deals_and_scales() -> None:
    dataset = load("breast_cancer", n_agents=10, seed=0)
    shards = make_shards(dataset, 10, seed=0, validation=0.5, test=0.2, scale_spec="public_ranges", normalisation="l2")
    assert shards.n_agents == 10
    assert shards.test.size == 114
    everyone = np.concatenate([shards.test, *shards.train, *shards.validation])
    assert np.array_equal(np.sort(everyone), np.arange(569))
    # 455 records over ten agents: 45 or 46 each, halved.
    assert set(shards.train_counts + shards.validation_counts) == {45, 46}
    assert set(shards.validation_counts) == {23}
    assert shards.l2 == 1.0
    assert np.all(np.linalg.norm(shards.features, axis=1) <= 1.0)
    unscaled = make_shards(dataset, 10, seed=0, validation=0.5, test=0.2)
    assert all(np.array_equal(a, b) for a, b in zip(shards.train, unscaled.train, strict=True))
    assert unscaled.l1 is None
    ranged = make_shards(dataset, 10, seed=0, scale_spec="public_ranges")
    assert (ranged.l1, ranged.l2) == (30.0, np.sqrt(30))
    assert np.abs(ranged.features).max() <= 1


def test_make_shards_takes_the_columns_of_synthetic_data() -> None:
    dataset = load("synthetic_mixed", n_agents=3, seed=1, d=4, records=6, test_records=5)
    shards = make_shards(dataset, 3, seed=1)
    assert shards.train_counts.tolist() == [3, 3, 3]
    assert shards.validation_counts.tolist() == [3, 3, 3]
    assert shards.test.tolist() == list(range(18, 23))
    assert shards.l1 is None


def test_standard_is_fitted_without_the_test_records() -> None:
    dataset = load("wine", n_agents=2, seed=0)
    shards = make_shards(dataset, 2, seed=0, test=0.3, validation=0.5, scale_spec="standard", certified=False)
    dealt = np.concatenate([*shards.train, *shards.validation])
    assert np.allclose(shards.features[dealt].mean(axis=0), 0, atol=1e-9)
    assert np.allclose(shards.features[dealt].std(axis=0), 1)
    assert np.abs(shards.features.mean(axis=0)).max() > 1e-3
