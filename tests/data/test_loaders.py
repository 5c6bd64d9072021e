"""Loading of records: values of every source, and errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import sklearn.datasets

from decentral_dp.data import Dataset, load_dataset
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.tables import csv_format
from decentral_dp.errors import InputError


def csv(folder: Path, text: str) -> str:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def load_csv(folder: Path, text: str, **options: object) -> Dataset:
    return load_dataset(csv(folder, text), **({"label": "y", "classes": [0, 1], "n_agents": 2, "seed": 0} | options))


GOOD = "a,b,y\n1,2,0\n3,-4.5,1\n"


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "digits"])
def test_bundled_data_are_what_scikit_learn_loads(name: str) -> None:
    data, bunch = load_dataset(name, n_agents=1, seed=0), getattr(sklearn.datasets, f"load_{name}")()
    np.testing.assert_array_equal(data.features, bunch.data, strict=True)
    np.testing.assert_array_equal(data.labels, bunch.target)
    assert data.feature_names == tuple(map(str, bunch.feature_names))
    assert list(map(str, data.classes)) == list(map(str, bunch.target_names))


def test_csv_reads_numbers_declared_labels_and_optional_columns(tmp_path: Path) -> None:
    text = "\ufeffage, agent,y ,split,size\n\n1,1, no,train,2e-3\n4,0,yes , test,-5\n"
    data = load_csv(tmp_path, text, classes=["yes", "no"])
    assert data.feature_names == ("age", "size")
    assert np.array_equal(data.features, [[1, 0.002], [4, -5]])
    assert np.array_equal(data.labels, [1, 0])
    assert data.classes == ("yes", "no")
    assert data.agent is not None
    assert data.split is not None
    assert np.array_equal(data.agent, [1, 0])
    assert data.split.tolist() == ["train", "test"]


def test_classes_are_discovered_only_without_a_certificate(tmp_path: Path) -> None:
    text = "a,y\n1,10\n2,9\n3,10\n"
    data = load_csv(tmp_path, text, classes=None, certified=False)
    assert data.classes == (9, 10)
    assert np.array_equal(data.labels, [1, 0, 1])
    with pytest.raises(InputError, match=r"must not read them from the records"):
        load_csv(tmp_path, text, classes=None)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,y\n1,2,0\n1,abc,1\n", {}, r"row 2, column 'b' does not hold a finite number"),
        (
            "a,b,c,y\n1,u,,0\n,v,3,\n",
            {},
            r"row 1, column 2 .* number; row 1, column 'c' .* value; .*fill\.c",
        ),
        ("a,b,y\n1,2,1\n3,4,1\n", {"certified": False}, r"all records have the same label"),
        ("a,b,y\n1,2,0\n1,,1\n", {}, r"row 2, column 'b' does not hold a value\. .*fill\.b"),
        ("a,b,y\n1,1e999,0\n", {}, r"row 1, column 2 does not hold a finite number"),
        ("a,b,y\n1,2,0\n\n1,2\n", {}, r"row 2, column 'y' does not hold a value"),
        ("a,b,y\n1,2,0\n1,2,0,9\n", {}, r"do not fit its header: Expected 3 fields in line 3, saw 4"),
        ('a,b,y\n1,"2,0\n1,2,0\n', {}, r"do not fit its header: EOF inside string"),
        ("a,b,y\n", {}, r"no records"),
        ("a,target\n1,0\n", {"label": "traget"}, r"problem\.label: .* no column 'traget'; column 2 has a similar name"),
        ("a;b;y\n1;2;0\n", {}, r"no header with the separator .*keys separator"),
        ("a,,y\n1,2,0\n", {}, r"column 2 of the first line"),
        (GOOD, {"classes": [1, 2]}, r"row 1 has a label that is not one of the declared classes \[1, 2\]"),
        ("a,y\n1,0.5\n2,big\n", {"classes": []}, r"row 2 has a label that is not a finite number"),
        ("a,agent,y\n1,0,0\n1,1.5,0\n", {}, r"column 'agent', row 2 has an agent that is not an integer"),
        ("a,split,y\n1,train,0\n1,valid,0\n", {}, r"column 'split', row 2 has a split that is none of train"),
        (GOOD, {"agent": "owner"}, r"problem\.partition: .* has no column 'owner'"),
    ],
)
def test_csv_refusals(tmp_path: Path, text: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_csv(tmp_path, text, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("brest_cancer", {}, r"'brest_cancer' is no bundled data set or path.*did you mean .breast_cancer"),
        ("wine", {"classes": [0, 1, 2]}, r"has the classes \['class_0', 'class_1', 'class_2'\] \(got \[0, 1, 2\]"),
        ("wine", {"d": 3}, r"problem\.synthetic\.dimension: not supported by 'wine'"),
        ("wine", {"label": "y"}, r"problem\.label: not supported by 'wine'"),
        ("d.npz", {"rules": ColumnRules(drop=["a"])}, r"problem\.columns: not supported by 'd.npz'"),
        ("d.parquet", {"csv": csv_format(";", None, None)}, r"problem\.separator, .*: not supported by 'd.parquet'"),
        ("synthetic_classification", {"d": 3, "relevant": 4}, r"problem\.synthetic\.relevant: out of range \(got 4"),
    ],
)
def test_refused_names_and_options(data: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_dataset(data, **({"n_agents": 2, "seed": 0} | options))


def test_npz_round_trip(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.int32).reshape(3, 2)
    np.savez(
        tmp_path / "d.npz",
        X=x,
        y=np.array(["b", "a", "b"]),
        agent=[0, 1, 0],
        split=np.array([b"train", b"test", b"train"]),
    )
    data = load_dataset("d.npz", n_agents=2, seed=0, classes=["a", "b"], root=tmp_path)
    assert np.array_equal(data.features, x)
    assert data.labels.tolist() == [1, 0, 1]
    assert data.agent is not None
    assert data.split is not None
    assert data.agent.tolist() == [0, 1, 0]
    assert data.split.tolist() == ["train", "test", "train"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((2, 2))}, r'has no array "y"\. Valid: "X"'),
        ({"X": np.array([[1, "a"], [2, 3]], dtype=object), "y": np.ones(2)}, r"no archive of plain arrays"),
        ({"X": np.ones(2), "y": np.ones(2)}, r"array 'X' has the wrong shape or type \(got float64 of shape \(2,\)"),
        ({"X": np.ones((2, 2), dtype=complex), "y": np.ones(2)}, r"got complex128"),
        (
            {"X": np.ones((2, 2)), "y": np.ones(3)},
            r"array 'y' has the wrong shape or type \(got float64 of shape \(3,\)",
        ),
        ({"X": np.array([[1.0, 2], [3, np.nan]]), "y": np.ones(2)}, r"row 2, column 'x1' holds no finite number"),
        (
            {"X": np.ones((2, 2)), "y": np.ones(2), "agent": np.array([0, -3])},
            r"array 'agent', row 2 has an agent that is not an integer from 0",
        ),
    ],
)
def test_npz_refusals(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_dataset("d.npz", n_agents=2, seed=0, classes=[0, 1], root=tmp_path)


def test_a_dataset_built_by_hand_is_checked() -> None:
    good = {
        "features": np.ones((2, 1)),
        "labels": np.array([0, 1]),
        "classes": (0, 1),
        "feature_names": ("a",),
        "source": "hand",
    }
    Dataset(**good)
    for change, message in (
        ({"labels": np.array([0, 2])}, r"labels outside 0\.\.1"),
        ({"labels": np.array([0])}, r"columns of shape \(1,\)"),
        ({"features": np.ones(2)}, r"features of shape \(2,\)"),
        ({"image": (8, 8, 3)}, r"image = \(8, 8, 3\)"),
        ({"own_test": -1}, r"own_test = -1"),
        ({"own_test": 2}, r"own_test = 2"),
        ({"features": np.full((2, 1), np.inf)}, r"row 1, column 'a' holds no finite number"),
        ({"feature_names": ("a", "b")}, r"2 names of them"),
        ({"split": np.array(["train", "later"])}, r"a split that is none of train"),
    ):
        with pytest.raises(InputError, match=message):
            Dataset(**(good | change))


def moments(name: str, agent: int) -> tuple[float, float]:
    data = load_dataset(name, n_agents=4, seed=3, d=50, records=400, test_records=0)
    values = data.features[data.agent == agent]
    return float(values.mean()), float(values.var())


@pytest.mark.parametrize(
    ("name", "agent", "mean", "variance"),
    # N(0, i²) has mean 0 and variance i²; χ²(i) has mean i and variance 2i; i = agent + 1.
    [
        ("synthetic_normal", 0, 0, 1),
        ("synthetic_normal", 3, 0, 16),
        ("synthetic_chi2", 0, 1, 2),
        ("synthetic_chi2", 3, 4, 8),
        ("synthetic_mixed", 0, 1, 2),
        ("synthetic_mixed", 1, 0, 4),
        ("synthetic_mixed", 2, 3, 6),
        ("synthetic_mixed", 3, 0, 16),
    ],
)
def test_synthetic_families_have_the_papers_distributions(name: str, agent: int, mean: float, variance: float) -> None:
    got_mean, got_variance = moments(name, agent)
    # 20 000 values: five standard errors of the mean; kurtosis of χ²(1) is 15, hence the wider relative variance.
    assert abs(got_mean - mean) < 5 * math.sqrt(variance / 20_000)
    assert got_variance == pytest.approx(variance, rel=0.15)


@pytest.mark.parametrize("kind", ["synthetic_classification", "synthetic_normal", "synthetic_census"])
@pytest.mark.parametrize(("key", "number"), [("records", 10**9), ("test_records", 10**10), ("d", 10**9)])
def test_records_that_no_machine_holds_are_refused_before_they_are_drawn(kind: str, key: str, number: int) -> None:
    """Drawing them ends the process, without a word: the kernel kills what takes all memory."""
    sizes = {"d": 10, "records": 20, "test_records": 10, key: number}
    with pytest.raises(
        InputError, match=r"^problem\.synthetic: .* and this machine has .* GB\. Fix: use fewer records"
    ):
        load_dataset(kind, n_agents=10, seed=0, **sizes)
