"""Constructions of records by labels: exact counts, privacy-relevant changes, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import Dataset, load_dataset, make_shards
from decentral_dp.data.synthetic import construct

TEN = tuple(range(10))


def dataset(labels: Any, classes: tuple[Any, ...] = TEN, **more: Any) -> Dataset:
    numbers = np.asarray(labels)
    features = np.random.default_rng(numbers.size).normal(size=(numbers.size, 2))
    return Dataset(features, numbers, classes, ("a", "b"), "made up", **more)


def many(n: int, seed: int = 0, classes: int = 10) -> np.ndarray:
    return np.random.default_rng([seed, n]).integers(0, classes, n)


def counts(data: Dataset, index: np.ndarray) -> list[int]:
    return np.bincount(data.labels[index], minlength=len(data.classes)).tolist()


def refusal(data: Dataset, table: dict[str, Any], train: np.ndarray | None = None) -> str:
    with pytest.raises(InputError) as caught:
        construct(data, table, np.arange(data.n) if train is None else train, seed=0)
    said = str(caught.value)
    assert said.startswith("problem.construction")
    assert "\n" not in said
    assert said.endswith(".")
    return said


def test_the_imbalanced_mnist_of_the_paper_has_its_33995_records() -> None:
    """30596 digits from 0 to 4, and 29404 from 5 to 9, of which 3399 are a tenth of all that is left."""
    data = dataset(np.random.default_rng(0).permutation(np.repeat([0, 7], [30596, 29404])))
    derived, kept = construct(data, {"positive": [5, 6, 7, 8, 9], "share": 0.1}, np.arange(60000), seed=0)
    assert counts(derived, kept) == [30596, 3399]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 99), st.integers(0, 5))
def test_a_share_keeps_all_negative_records_and_the_positive_ones_it_takes(
    negatives: int, positives: int, percent: int, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat([0, 1], [negatives, positives]))
    data = dataset(labels, ("no", "yes"))
    # The largest count whose share of all is at most the one wanted.
    wanted = max(k for k in range(40000) if 100 * k <= percent * (negatives + k))
    table = {"share": percent / 100}
    if not 1 <= wanted <= positives:
        assert "too few train records" in refusal(data, table)
        return
    _, kept = construct(data, table, np.arange(data.n), seed=seed)
    assert counts(data, kept) == [negatives, wanted]
    assert set(np.flatnonzero(labels == 0)) <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)


def test_keep_takes_the_last_records_of_the_named_classes_and_all_of_the_others() -> None:
    data = dataset(many(500))
    train = np.sort(np.random.default_rng(1).permutation(500)[:400])
    table = {"keep": {str(k): 7 for k in range(5)}}
    derived, kept = construct(data, table, train, seed=0)
    wanted: list[int] = []
    for k in range(10):
        mine = [i for i in train.tolist() if data.labels[i] == k]
        wanted += mine[-7:] if k < 5 else mine
    assert kept.tolist() == sorted(wanted)
    assert np.array_equal(derived.labels, data.labels)
    assert derived.classes == TEN
    # The seed has no part in it.
    assert np.array_equal(construct(data, table, train, seed=9)[1], kept)


def test_a_tail_falls_exponentially_from_the_first_class_to_the_last() -> None:
    data = dataset(np.random.default_rng(2).permutation(np.repeat(np.arange(10), 500)))
    _, kept = construct(data, {"tail": 0.01}, np.arange(5000), seed=0)
    assert counts(data, kept) == [500, 299, 179, 107, 64, 38, 23, 13, 8, 5]
    assert np.all(np.diff(kept) > 0)
    # Both ends are exact, and the first class is whole.
    assert set(np.flatnonzero(data.labels == 0)) <= set(kept.tolist())
    two, kept_of_two = construct(dataset([0] * 10 + [1] * 10, (0, 1)), {"tail": 0.3}, np.arange(20), seed=0)
    assert counts(two, kept_of_two) == [10, 3]


def test_classes_are_counted_before_they_are_joined() -> None:
    data = dataset(np.repeat(np.arange(10), 20))
    derived, kept = construct(data, {"positive": [8, 9], "keep": {"9": 1, "0": 2}}, np.arange(200), seed=0)
    assert counts(derived, kept) == [7 * 20 + 2, 21]
    tailed, kept_of_tail = construct(data, {"positive": [9], "tail": 0.1}, np.arange(200), seed=0)
    assert counts(tailed, kept_of_tail)[1] == 2


# Refusals


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"positive": list(range(10))}, "expected some of"),
        ({"positive": [1, 11]}, "got [1, 11], expected some of"),
        ({"positive": [1, "1.0"]}, "expected some of"),
        ({"keep": {"1": 2, "1.0": 2}}, "expected some of"),
        ({"keep": {"3": 10**6}}, "too few train records"),
        ({"share": 0.1}, "has 10 classes"),
        ({"share": 0.9, "positive": [0]}, "too few train records"),
        ({"tail": 1e-9}, "too few train records"),
    ],
)
def test_a_construction_that_does_not_fit_is_refused(table: dict[str, Any], words: str) -> None:
    assert words in refusal(dataset(many(300)), table)


@pytest.mark.parametrize(
    "table", [{}, {"share": 0.1, "tail": 0.1}, {"keep": {"1": 1}, "share": 0.1}, {"positive": []}, {"keep": {}}]
)
def test_a_table_says_one_construction(table: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"problem\.construction"):
        load(content(construction=table))


def test_refusals_print_no_count_of_records() -> None:
    """Five of the class exist, and one of them is held out."""
    data = dataset([0, 0, 0, 0, 0, 1, 1, 1], (0, 1))
    assert "4" not in refusal(data, {"keep": {"0": 5}}, np.arange(1, 8))
    for labels in (many(300), np.zeros(300, dtype=np.int64)):
        assert "300" not in refusal(dataset(labels), {"positive": [1], "share": 0.99})


# With the rest of the shards


def test_test_records_are_held_out_first_and_keep_their_classes() -> None:
    data = load_dataset("digits", n_agents=3, seed=4)
    plain = make_shards(data, 3, seed=4, levels=1)
    table = {"positive": [5, 6, 7, 8, 9], "share": 0.1}
    made = make_shards(data, 3, seed=4, levels=1, construction=table)
    assert np.array_equal(made.test, plain.test)
    assert made.classes == (0, 1)
    kept = np.concatenate(made.train)
    assert set(kept) < set(np.concatenate(plain.train))
    assert made.labels[kept].mean() == pytest.approx(0.1, abs=1 / kept.size)
    assert np.array_equal(made.labels[made.test], (data.labels[plain.test] >= 5).astype(int))
    assert 0.4 < made.labels[made.test].mean() < 0.6
    assert int(made.train_counts.sum()) == kept.size
    assert max(made.train_counts) - min(made.train_counts) <= 1


def test_who_is_exchangeable() -> None:
    digits = load_dataset("digits", n_agents=2, seed=0)
    share = {"positive": [1], "share": 0.05}
    split = np.resize(np.array(["train", "test"]), 40)
    own = dataset(many(40), own_test=10)
    column = dataset(many(40), split=split)
    drawn = load_dataset("synthetic_classification", n_agents=2, seed=0, d=2, records=10, test_records=10)
    made_up = load_dataset("synthetic_normal", n_agents=2, seed=0, d=2, records=10, test_records=10)
    cases: list[tuple[Dataset, dict[str, Any], str]] = [
        (digits, {}, ""),
        (digits, {"construction": {"positive": [1]}}, ""),
        (drawn, {}, ""),
        (column, {"test": 0.5}, ""),
        (digits, {"construction": share}, "thins the classes"),
        (drawn, {"construction": {"keep": {"1": 1}}}, "thins the classes"),
        (digits, {"test": 0.0}, "No record is held out"),
        (own, {}, "test set of the data"),
        (column, {}, "A column selects"),
        (made_up, {}, "A column selects"),
    ]
    for data, more, words in cases:
        made = make_shards(data, 2, seed=0, levels=1, **more)
        assert made.exchangeable == (words == "")
        assert words in made.why_not_exchangeable
        assert made.why_not_exchangeable == "" or made.why_not_exchangeable.endswith(".")


# Whole scenarios


def content(**problem: Any) -> dict[str, Any]:
    return {
        "problem": {
            "kind": "auc_maximisation",
            "data": "digits",
            "positive_share": 0.1,
            "normalise": "l2",
            "construction": {"positive": [5, 6, 7, 8, 9], "share": 0.1},
            **problem,
        },
        "topology": {"kind": "star", "agents": 4},
        "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.5, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
        "privacy": {"epsilon": 2.0, "delta": 1e-5, "clip": {"x": 1.0}},
    }


# Changes by one replaced record


@pytest.mark.parametrize(
    ("table", "most"),
    [
        ({"positive": [1, 2]}, 0),
        ({"keep": {"1": 20, "2": 20}}, 2),
        ({"tail": 0.3}, 2),
        ({"positive": [2], "share": 0.2}, 2),
        ({"positive": [0, 1], "share": 0.55}, 3),
    ],
)
def test_one_replaced_label_changes_no_role_and_what_is_kept_of_few_others(table: dict[str, Any], most: int) -> None:
    n, seen = 240, 0
    for seed in range(3):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 3, n)
        before = make_shards(dataset(labels, (0, 1, 2)), 3, seed=seed, construction=table)
        for row in draw.permutation(n)[:40]:
            changed = labels.copy()
            changed[row] = (labels[row] + draw.integers(1, 3)) % 3
            after = make_shards(dataset(changed, (0, 1, 2)), 3, seed=seed, construction=table)
            assert np.array_equal(before.test, after.test)
            roles = []
            for made in (before, after):
                role = np.zeros(n, dtype=int)
                role[np.concatenate(made.train)], role[np.concatenate(made.validation)] = 1, 2
                role[row] = 0
                roles.append(role)
            here, there = roles
            both = (here > 0) & (there > 0)
            assert np.array_equal(here[both], there[both])
            other = int(((here > 0) != (there > 0)).sum())
            assert other <= most
            seen = max(seen, other)
    assert seen == most or most == 3
