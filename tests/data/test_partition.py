"""Partition of records: complete and disjoint parts, public rules, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from decentral_dp.data import Dataset, make_shards, partition, select_test, split_shards
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
    aside = select_test(dataset, validation=0.5, test=test, seed=seed)
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
    parts = split_shards(dataset, shards, validation=share, test=0.0, seed=seed)
    for shard, train, validation in zip(shards, *parts, strict=True):
        assert validation.size == size
        assert not set(train) & set(validation)
        assert np.array_equal(np.sort(np.concatenate([train, validation])), shard)
        assert np.all(np.diff(train) > 0)
        assert np.all(np.diff(validation) > 0)


def test_iid_and_the_splits_read_no_label() -> None:
    """Replaced labels move no record with "iid", but do with "by_class"."""
    here, there = records(np.arange(30) % 3), records(np.arange(30) // 10)
    dealt = [partition(d, 4, "iid", 5) for d in (here, there)]
    assert all(np.array_equal(a, b) for a, b in zip(*dealt, strict=True))
    parts = [split_shards(d, dealt[0], validation=0.4, test=0.0, seed=5) for d in (here, there)]
    assert all(np.array_equal(a, b) for a, b in zip(parts[0][1], parts[1][1], strict=True))
    by_class = [partition(d, 4, BY_LABEL["by_class"], 5) for d in (here, there)]
    assert not all(np.array_equal(a, b) for a, b in zip(*by_class, strict=True))


@pytest.mark.parametrize(
    ("classes", "m", "share", "expected"),
    [
        (2, 4, 1.0, [[10, 0], [0, 10], [10, 0], [0, 10]]),  # more agents than classes: homes are shared
        (4, 2, 1.0, [[20, 0, 20, 0], [0, 20, 0, 20]]),  # fewer: an agent is home to several
        (2, 1, 0.3, [[20, 20]]),  # no other agent for the rest
        (2, 2, 0.0, [[0, 20], [20, 0]]),
    ],
)
def test_by_class_homes(classes: int, m: int, share: float, expected: list[list[int]]) -> None:
    labels = np.repeat(np.arange(classes), 20)
    shards = partition(records(labels, classes=classes), m, {"kind": "by_class", "share": share}, 3)
    assert [np.bincount(labels[s], minlength=classes).tolist() for s in shards] == expected


def test_columns_say_who_holds_what() -> None:
    words = np.array(["train", "test", "validation", "train", "validation", "test"])
    dataset = records(np.zeros(6, dtype=np.int64), np.array([1, 1, 1, 0, 0, 0]), words)
    for validation in ({"column": "split"}, None):
        test = select_test(dataset, validation=validation, seed=0)
        assert test.tolist() == [1, 5]
        shards = partition(dataset, 2, None, 0, among=np.array([0, 2, 3, 4]))
        parts = split_shards(dataset, shards, validation=validation, seed=0)
        assert [t.tolist() for t in parts[0]] == [[3], [0]]
        assert [v.tolist() for v in parts[1]] == [[4], [2]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: partition(d, 2, {"kind": "column", "name": "agent"}, 0), r"'test' has no agent column"),
        (lambda d: select_test(d, validation={"column": "split"}, seed=0), r"'test' has no split column"),
        (
            lambda d: split_shards(d, [np.arange(5), np.array([5])], validation=0.5, seed=0),
            r"agent 1 has 0 train and 1 validation records",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(records(np.arange(6) % 3))


def test_refused_columns() -> None:
    words = np.array(["train", "test", "train", "test"])
    for owner in (5, 31_337):
        dataset = records(np.zeros(4, dtype=np.int64), np.array([0, 1, 0, owner]), words)
        with pytest.raises(InputError, match="row 4 has an invalid agent number") as refused:
            partition(dataset, 2, {"kind": "column", "name": "agent"}, 0)
        # Row and agents are public; the value may be that of any column.
        assert str(owner) not in str(refused.value)
    with pytest.raises(InputError, match=r"the split column selects the test records"):
        select_test(dataset, validation={"column": "split"}, test=0.2, seed=0)
    with pytest.raises(InputError, match=r"agent 0 has 2 train and 0 validation"):
        split_shards(dataset, [np.array([0, 2])], validation={"column": "split"}, seed=0)


def test_numbers_to_predict_cannot_be_dealt_by_class() -> None:
    dataset = Dataset(np.ones((4, 1)), np.linspace(0, 1, 4), (), ("a",), "numbers")
    with pytest.raises(InputError, match=r"by_class requires classes"):
        partition(dataset, 2, BY_LABEL["by_class"], 0)


# Partition by label: changes by one replaced record


def sorted_deal(labels: np.ndarray, agents: int, seed: int) -> np.ndarray:
    """Label after label: one changed label moves the place of all records in between."""
    order = np.argsort(labels + 0.5 * np.random.default_rng(seed).random(len(labels)), kind="stable")
    owner = np.empty(len(labels), dtype=int)
    owner[order] = np.arange(len(labels)) * agents // len(labels)
    return owner


def deal_of_mine(labels: np.ndarray, classes: int, agents: int, seed: int) -> np.ndarray:
    return sorted_deal(labels, agents, seed)


BY_LABEL: dict[str, Any] = {
    "by_class": {"kind": "by_class", "share": 0.6},
    "dirichlet": {"kind": "dirichlet", "alpha": 3.0},
    "function": deal_of_mine,
}


def roles_and_owners(shards: Any) -> tuple[np.ndarray, np.ndarray]:
    """(n,) role of every place: 0 train, 1 validation, 2 test; and (n,) its agent, −1 for test records."""
    n = len(shards.labels)
    roles, owners = np.full(n, 9), np.full(n, -1)
    roles[shards.test] = 2
    for agent, (train, validation) in enumerate(zip(shards.train, shards.validation, strict=True)):
        roles[train], roles[validation] = 0, 1
        owners[train] = owners[validation] = agent
    return roles, owners


def replaced(dataset: Dataset, row: int, label: int) -> Dataset:
    features, labels = dataset.features.copy(), dataset.labels.copy()
    features[row], labels[row] = -7.0, label
    return Dataset(features, labels, dataset.classes, dataset.feature_names, dataset.source, None, dataset.split)


@pytest.mark.parametrize("rule", BY_LABEL)
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("column", [False, True])
def test_one_replaced_record_changes_no_role_and_few_owners(rule: str, levels: int, column: bool) -> None:
    agents, n, classes = 4, 120, 3
    words = np.array(["train", "validation", "test", "train", "validation"] * (n // 5)) if column else None
    for seed in range(4):
        draw = np.random.default_rng(seed)
        here = records(draw.integers(0, classes, n), words=words)
        asked = {"seed": seed, "partition_spec": BY_LABEL[rule], "levels": levels}
        asked |= {"validation": {"column": "split"} if column else 0.4}
        before = make_shards(here, agents, **asked)
        roles, owners = roles_and_owners(before)
        assert not (roles == 9).any()
        for row in draw.permutation(n)[:30]:
            label = (int(here.labels[row]) + int(draw.integers(1, classes))) % classes
            after = make_shards(replaced(here, int(row), label), agents, **asked)
            roles_after, owners_after = roles_and_owners(after)
            assert np.array_equal(roles, roles_after)
            for one, other in ((before.train_counts, after.train_counts), (before.test, after.test)):
                assert one.sum() == other.sum()
            assert before.validation_counts.sum() == after.validation_counts.sum()
            others = np.arange(n) != row
            moved = (owners != owners_after) & others
            assert not moved[roles == 2].any()
            if rule != "function":
                assert not moved[roles != roles[row]].any()
                assert moved.sum() <= 2 * (agents - 1)
            # The partition does not depend on features.
            same = make_shards(replaced(here, int(row), int(here.labels[row])), agents, **asked)
            assert np.array_equal(roles_and_owners(same)[1], owners)


def test_every_record_that_is_dealt_by_label_has_one_role_and_both_roles_have_the_same_shares() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1], 400))
    for rule in ("by_class", "dirichlet"):
        made = make_shards(records(labels, classes=2), 4, seed=3, partition_spec=BY_LABEL[rule], validation=0.25)
        roles, owners = roles_and_owners(made)
        assert np.bincount(roles, minlength=3).tolist() == [480, 160, 160]
        for k in (0, 1):
            held = [np.bincount(owners[(roles == role) & (labels == k)], minlength=4) for role in (0, 1)]
            shares = [counts / counts.sum() for counts in held]
            assert np.abs(shares[0] - shares[1]).max() < 0.02


def test_a_function_is_asked_once_for_all_records_that_are_dealt() -> None:
    asked = []

    def owner(labels: np.ndarray, classes: int, agents: int, seed: int) -> np.ndarray:
        asked.append(labels)
        return np.arange(len(labels)) % agents

    data = records(np.random.default_rng(1).integers(0, 3, 50))
    made = make_shards(data, 2, seed=1, partition_spec=owner, validation=0.3)
    (labels,) = asked
    dealt = np.sort(np.concatenate([*made.train, *made.validation]))
    assert np.array_equal(labels, data.labels[dealt])
    assert made.validation_counts.sum() == 12
    owners = roles_and_owners(made)[1][dealt]
    assert np.array_equal(owners, np.arange(40) % 2)


def test_a_deal_by_label_says_so_and_others_say_nothing() -> None:
    data = records(np.arange(60) % 3, np.arange(60) % 2)
    for spec in BY_LABEL.values():
        made = make_shards(data, 2, seed=0, partition_spec=spec, validation=0.5)
        assert ("may read labels" if callable(spec) else "reads labels") in made.deal_assumption
        assert "ε assumes the same partition" in made.deal_assumption
        assert made.all_notes == (made.deal_assumption,)
    for spec in ("iid", {"kind": "column", "name": "agent"}, None):
        assert make_shards(data, 2, seed=0, partition_spec=spec, validation=0.5).all_notes == ()


def test_empty_parts_of_a_deal_by_label_are_refused() -> None:
    data = records(np.arange(6) % 3)
    spec = {"kind": "by_class", "share": 1.0}
    with pytest.raises(InputError, match=r"agent \d has \d train and \d validation records"):
        make_shards(data, 3, seed=0, partition_spec=spec, validation=0.2, test=0.0)
    with pytest.raises(InputError, match=r"too large for 6 records \(got 7\)"):
        make_shards(data, 7, seed=0, partition_spec=spec, test=0.0)
    with pytest.raises(InputError, match="agent 1 has 0 train records"):
        make_shards(records(np.zeros(6, int)), 3, seed=0, partition_spec=spec, test=0.0, levels=1)


@pytest.mark.parametrize("dealt", [[[0], [1, 2]], [0, [1]], None, "abc", [0.5] * 120, [object()] * 120])
def test_what_a_function_gives_that_is_no_agent_of_each_record_is_refused(dealt: Any) -> None:
    data = records(np.arange(120) % 3)
    with pytest.raises(InputError, match=r"^problem\.partition: "):
        make_shards(data, 3, seed=0, partition_spec=lambda **_: dealt)
