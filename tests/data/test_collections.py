"""Data that people compare on: LibSVM files, OpenML, and what publishers of images offer. Nothing is fetched here."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.data import COLLECTIONS, collections, fetch, load, scale
from decentral_dp.data.collections import COLLECTED, PUBLISHED
from decentral_dp.errors import InputError

LINES = "+1 1:0.5 3:-2\n-1 2:1e-3\n+1 3:7\n"


def loaded(data: str | Path, **options: Any) -> Any:
    return load(str(data), **({"n_agents": 2, "seed": 0} | options))


# LibSVM.


def test_a_libsvm_file_is_filled_up_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "mine.libsvm"
    path.write_text(LINES)
    found = loaded(path, classes=[-1, 1], features=4)
    assert found.features.tolist() == [[0.5, 0.0, -2.0, 0.0], [0.0, 1e-3, 0.0, 0.0], [0.0, 0.0, 7.0, 0.0]]
    assert (found.labels.tolist(), found.classes) == ([1, 0, 1], (-1, 1))
    assert found.feature_names == ("1", "2", "3", "4")
    assert loaded(path, classes=[-1, 1], features=4, limit=2).n == 2
    # Only where nothing is certified may the records say how wide they are.
    assert loaded(path, certified=False).features.shape == (3, 3)


@pytest.mark.parametrize(
    ("text", "options", "sentence"),
    [
        (LINES, {}, r"problem\.features: .* does not say how many"),
        (LINES, {"features": 2}, "no index above 2"),
        (LINES, {"features": 3, "classes": None}, r"problem\.classes"),
        ("+1 1:secret\n", {"features": 3}, "is no LibSVM file"),
        ("", {"features": 3}, "holds no records"),
        (LINES, {"features": 10**9}, "too many for a full table"),
    ],
)
def test_libsvm_files_that_cannot_be_used_are_refused(
    text: str, options: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.svm"
    path.write_text(text)
    with pytest.raises(InputError, match=sentence) as refused:
        loaded(path, **{"classes": [-1, 1], **options})
    assert "secret" not in str(refused.value)


def test_the_number_of_features_is_a_libsvm_files_alone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"problem\.features: 'wine' says how many"):
        loaded("wine", features=3)
    with pytest.raises(InputError, match="cannot be read"):
        loaded(tmp_path / "nowhere.libsvm", features=3, classes=[-1, 1])


@pytest.mark.parametrize("name", COLLECTED)
def test_a_collected_set_has_its_own_held_out_records(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = COLLECTED[name]
    folder = tmp_path / name
    folder.mkdir()
    d = len(own.names)
    # Labels that are prices are above the mean or not.
    high, low = ("+1", "-1") if not own.above else ("206855.82", "206855.81")
    (folder / own.train).write_text(f"{high} 1:1\n{low} {d}:1\n{low} 2:1\n")
    if own.test is None:
        found = loaded(name, files={"folder": str(folder)}, limit=2)
        assert (found.labels.tolist(), found.own_test, found.features.shape[1]) == ([1, 0], 0, d)
        return
    (folder / own.test).write_text("+1 2:1\n-1 3:1\n")
    found = loaded(name, files={"folder": str(folder)})
    assert (found.n, found.own_test, found.features.shape[1]) == (5, 2, d)
    assert found.labels.tolist() == [1, 0, 0, 1, 0]
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    assert loaded(name, limit=1).labels.tolist() == [1, 1]
    (folder / own.test).unlink()
    assert loaded(name).own_test == 0


@pytest.mark.parametrize("name", COLLECTED)
def test_without_its_files_a_sentence_says_what_to_put_where(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)
    files = " and ".join(filter(None, COLLECTED[name][:2]))
    sentence = rf"Get {re.escape(files)} from https://.* name it in problem\.files; nothing stands in"
    with pytest.raises(InputError, match=sentence):
        loaded(name)
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    with pytest.raises(InputError, match="nothing stands in") as refused:
        loaded(name)
    assert str(tmp_path / name) in str(refused.value)
    with pytest.raises(InputError, match=r"problem\.files\.archive: .* takes none, only folder"):
        loaded(name, files={"archive": "x"})


def test_houses_are_scaled_by_ranges_that_are_public_and_trained_on(tmp_path: Path) -> None:
    draw, lines = np.random.default_rng(0), []
    for _ in range(60):
        income, row = (
            draw.uniform(0.5, 9.0),
            draw.uniform([1, 300, 60, 200, 50, 33, -124], [52, 3e3, 600, 2e3, 500, 41, -115]),
        )
        numbers = " ".join(f"{k}:{v:.4f}" for k, v in enumerate([income, *row], start=1))
        lines.append(f"{40000.0 * income + 5000.0:.1f} {numbers}")
    (tmp_path / "cadata").write_text("\n".join(lines) + "\n")
    data = scale(loaded("houses", files={"folder": str(tmp_path)}), "public_ranges")
    assert data.bounds == (-1.0, 1.0)
    assert (np.abs(data.features) < 1.0).all()
    assert data.feature_names[0] == "income"
    job = {"kind": "classification", "data": "houses", "files": {"folder": str(tmp_path)}, "scale": "public_ranges"}
    run = decentral_dp.run("classification", set={"problem": job, "topology.agents": 3, "algorithm.rounds": 2})
    assert run.result.status == "ok"


def test_a_libsvm_file_is_run_as_others_are(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    rows = draw.uniform(-1, 1, (60, 4))
    lines = [
        " ".join(["+1" if row.sum() > 0 else "-1", *(f"{k}:{v!r}" for k, v in enumerate(row.tolist(), start=1))])
        for row in rows
    ]
    (tmp_path / "mine.libsvm").write_text("\n".join(lines) + "\n")
    content = decentral_dp.load("ring_breast_cancer").model_dump(exclude_unset=True)
    content["problem"] |= {"data": "mine.libsvm", "features": 4, "classes": [-1, 1], "scale": "none"}
    content["topology"]["agents"], content["algorithm"]["rounds"] = 3, 2
    run = decentral_dp.run(decentral_dp.load(content, folder=tmp_path))
    assert run.result.status == "ok"
    np.testing.assert_allclose(
        run.simulation().shards.features * np.linalg.norm(rows, axis=1)[:, None], rows, rtol=1e-12
    )


# OpenML.


@pytest.fixture
def openml(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "frame": pd.DataFrame({"a": [1.0, 2.0], "b": [True, False], "kind": ["x", "y"]}),
        "target_names": ["kind"],
    }

    def fetch_openml(**given: Any) -> Any:
        asked["given"] = given
        if "error" in asked:
            raise asked["error"]
        return SimpleNamespace(frame=asked["frame"], target_names=asked["target_names"])

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    return asked


def test_records_of_openml(openml: dict[str, Any]) -> None:
    found = loaded("openml:61", classes=["x", "y"])
    assert openml["given"]["data_id"] == 61
    assert (found.features.tolist(), found.labels.tolist()) == ([[1.0, 1.0], [2.0, 0.0]], [0, 1])
    assert (found.feature_names, found.source) == (("a", "b"), "openml:61")
    assert loaded("openml:61", classes=["x", "y"], limit=1).n == 1


@pytest.mark.parametrize(
    ("data", "change", "options", "sentence"),
    [
        ("openml:iris", {}, {}, "the number of a data set is wanted"),
        ("openml:61", {}, {"classes": None}, r"problem\.classes"),
        ("openml:61", {}, {"label": "knd"}, "the nearest is 'kind'"),
        (
            "openml:61",
            {},
            {"label": "a", "classes": [1, 2]},
            "row 1, column 'kind' does not hold a finite number",
        ),
        ("openml:61", {"target_names": []}, {}, "names 0 label columns; name one"),
        ("openml:61", {"error": OSError("no route")}, {}, r"could not be fetched \(no route\).*nothing stands in"),
        ("openml:61", {"error": ValueError("no such")}, {}, r"could not be fetched \(no such\)"),
    ],
)
def test_sets_of_openml_that_cannot_be_used_are_refused(
    data: str, change: dict[str, Any], options: dict[str, Any], sentence: str, openml: dict[str, Any]
) -> None:
    openml |= change
    with pytest.raises(InputError, match=sentence):
        loaded(data, **{"classes": ["x", "y"], **options})


# Published images.


def idx(content: np.ndarray) -> bytes:
    magic = struct.pack(">HBB", 0, 8, content.ndim)
    return gzip.compress(magic + struct.pack(f">{content.ndim}I", *content.shape) + content.tobytes())


def test_published_files_are_verified_and_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path / "cache"))
    draw = np.random.default_rng(0)
    pixels, labels = draw.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.arange(3, dtype=np.uint8)
    offered = {
        "images": idx(pixels),
        "labels": idx(labels),
        "test_images": idx(pixels[:1]),
        "test_labels": idx(labels[:1]),
    }
    table = {key: (f"{key}.gz", hashlib.sha256(content).hexdigest()) for key, content in offered.items()}
    monkeypatch.setitem(collections.PUBLISHED, "mnist", ("https://example.org/", table))  # type: ignore[arg-type]
    asked: list[str] = []

    def download(declared: Any) -> bytes:
        asked.append(declared.place)
        return offered[declared.key.rpartition(".")[2]]

    monkeypatch.setattr(fetch, "_download", download)
    found = loaded("mnist", files={"published": True})
    assert (found.n, found.own_test, found.source) == (4, 1, "mnist")
    np.testing.assert_array_equal(found.features[:3], pixels.reshape(3, -1) / 255.0)
    assert sorted(asked) == sorted(f"https://example.org/{key}.gz" for key in offered)
    # They are kept.
    loaded("mnist", files={"published": True})
    assert len(asked) == 4
    offered["images"] = idx(pixels[::-1])
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path / "other"))
    with pytest.raises(InputError, match="SHA-256"):
        loaded("mnist", files={"published": True})


@pytest.mark.parametrize("name", COLLECTIONS)
def test_without_a_network_a_sentence_says_what_to_put_where(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path))

    def unreachable(declared: Any) -> bytes:
        raise InputError(f"{declared.place} could not be fetched (no route).")

    monkeypatch.setattr(fetch, "_download", unreachable)
    with pytest.raises(InputError, match=rf"no route.*put .* into the folder {name} of .*nothing stands in") as refused:
        loaded(name, files={"published": True})
    address, files = PUBLISHED[name]
    assert all(file in str(refused.value) for file, _ in files.values())
    assert address in str(refused.value)
    assert all(len(sha) == 64 for _, sha in files.values())


def test_published_is_said_alone_and_of_images_alone() -> None:
    with pytest.raises(InputError, match="published names the files already"):
        loaded("mnist", files={"published": True, "folder": "x"})
    with pytest.raises(InputError, match="published"):
        loaded("celeba", label="Smiling", files={"published": True})
    with pytest.raises(InputError, match="published"):
        loaded("a9a", files={"published": True})
