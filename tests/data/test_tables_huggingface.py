"""Records of the Hugging Face hub: `datasets` itself reads folders that stand for what the hub offers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.data.tables import load_huggingface
from decentral_dp.errors import InputError

datasets = pytest.importorskip("datasets", reason='pip install "decentral_dp[huggingface]"')

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = f"huggingface:somebody/records@{COMMIT}"
TRAIN = pd.DataFrame({"a": [1.0, 2.0, 3.0], "pair": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0], "who": list("bab")})


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of a data set of the hub."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path / "cache"))
    datasets.disable_progress_bars()
    load_dataset = datasets.load_dataset

    def offered(name: str, configuration: str | None, *, revision: str, cache_dir: str) -> Any:
        assert (name, configuration, revision) == ("somebody/records", None, COMMIT)
        return load_dataset(str(folder), cache_dir=cache_dir)

    monkeypatch.setattr(datasets, "load_dataset", offered)
    return folder


def loaded(label: str | None = None, classes: Any = (0, 1), agent: str | None = "who") -> Any:
    return load_huggingface(NAME, label, classes, agent, certified=True)


def test_numbers_lists_and_owners(hub: Path) -> None:
    TRAIN.to_parquet(hub / "train.parquet")
    TRAIN[:1].to_parquet(hub / "test.parquet")
    found = loaded()
    assert found.feature_names == ("a", "pair_0", "pair_1")
    assert found.features.tolist() == [[1, 1, 2], [2, 3, 4], [3, 5, 6], [1, 1, 2]]
    assert (found.labels.tolist(), found.own_test, found.split) == ([0, 1, 0, 0], 1, None)
    assert found.agent is not None
    assert found.agent.tolist() == [1, 0, 1, 1]
    assert found.source == NAME


def test_all_three_splits_are_kept(hub: Path) -> None:
    for name, rows in (("train", 2), ("validation", 3), ("test", 1)):
        TRAIN[:rows].to_parquet(hub / f"{name}.parquet")
    found = loaded()
    assert found.split is not None
    assert found.split.tolist() == ["train"] * 2 + ["validation"] * 3 + ["test"]
    assert found.own_test == 0


def test_pictures_are_pixels_and_published_classes_are_declared(hub: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes", "perhaps"])})
    rows = {"image": [datasets.Image().encode_example(p) for p in pixels], "label": [0, 1, 1, 0]}
    datasets.Dataset.from_dict(rows, features=kinds).to_parquet(str(hub / "train.parquet"))
    found = loaded(classes=None, agent=None)
    assert (found.image, found.bounds, found.classes) == ((5, 6, 3), (0.0, 1.0), (0, 1, 2))
    np.testing.assert_array_equal(found.features[0].reshape(3, 5, 6), pixels[0].transpose(2, 0, 1) / 255.0)


@pytest.mark.parametrize(
    ("change", "asked", "sentence"),
    [
        ({}, {"label": "lable"}, 'has no column "lable"; the nearest is .label'),
        ({}, {"agent": "whom"}, r'problem\.partition: .* has no column "whom"'),
        ({}, {"agent": None}, 'column "who" of .* holds words'),
        ({}, {"classes": None}, r"problem\.classes: .* does not say which labels exist"),
        ({"pair": [[1], [2, 3], [4]]}, {}, 'column "pair" of .* several sizes'),
        ({"a": [1.0, float("nan"), 2.0]}, {}, "row 2, column 'a' holds no finite number"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused(
    hub: Path, change: dict[str, Any], asked: dict[str, Any], sentence: str
) -> None:
    TRAIN.assign(**change).to_parquet(hub / "train.parquet")
    with pytest.raises(InputError, match=sentence):
        loaded(**asked)


@pytest.mark.parametrize("name", ["huggingface:somebody/records", "huggingface:x@main", f"huggingface:x@{COMMIT}"])
def test_one_version_is_wanted(name: str) -> None:
    with pytest.raises(InputError, match="one version of a data set is wanted"):
        load_huggingface(name, None, None, None, certified=True)


def test_a_set_that_cannot_be_fetched_has_no_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InputError, match=r"could not be fetched \(no route\).*nothing stands in"):
        loaded()


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r'pip install "decentral_dp\[huggingface\]"'):
        loaded()


def test_a_run_on_such_records(hub: Path) -> None:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame(draw.uniform(-1, 1, (60, 4)), columns=list("abcd"))
    frame["label"], frame["writer"] = (frame.sum(axis=1) > 0).astype(int), [f"w{k % 3}" for k in range(60)]
    frame.to_parquet(hub / "train.parquet")
    content = decentral_dp.load("ring_breast_cancer").model_dump(exclude_unset=True)
    content["problem"] |= {"data": NAME, "classes": [0, 1], "scale": "none"}
    content["problem"]["partition"] = {"kind": "column", "name": "writer"}
    content["topology"]["agents"], content["algorithm"]["rounds"] = 3, 2
    run = decentral_dp.run(content)
    assert run.result.status == "ok"
    assert run.simulation().shards.n_agents == 3
