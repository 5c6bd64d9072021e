"""CelebA: one attribute of the official list beside features of the user's own, on small files in the same formats."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.config.loading import load as load_scenario
from decentral_dp.data import load
from decentral_dp.simulation.jobs import build

ATTRIBUTES = ("5_o_Clock_Shadow", "Male", "Young")
N = 30
LISTS = {"attributes": "list_attr_celeba.txt", "partition": "list_eval_partition.txt"}


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)


def names(n: int = N) -> list[str]:
    return [f"{k:06d}.jpg" for k in range(1, n + 1)]


def signs(n: int = N) -> np.ndarray:
    """(n, 3) of ±1; neither all alike nor sorted."""
    return np.where(np.random.default_rng(3).random((n, 3)) < 0.4, 1, -1)


def attributes(rows: np.ndarray | None = None, head: str | None = None) -> str:
    """As published: numbers padded to two places, a blank after the last attribute."""
    values = signs() if rows is None else rows
    lines = [f"{name} {' '.join(f'{v:2d}' for v in row)}" for name, row in zip(names(len(values)), values, strict=True)]
    return "\n".join([head or str(len(values)), " ".join(ATTRIBUTES) + " ", *lines, ""])


def features(n: int = N) -> np.ndarray:
    return np.random.default_rng([4, n]).normal(size=(n, 5))


def parts(n: int = N, cycle: str = "0012") -> str:
    return "".join(f"{name} {cycle[k % 4]}\n" for k, name in enumerate(names(n)))


def written(folder: Path, partition: bool = True, **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / LISTS["attributes"]).write_text(attributes(), encoding="utf-8")
    if partition:
        (folder / LISTS["partition"]).write_text(parts(), encoding="utf-8")
    np.savez(folder / "features.npz", **{"X": features(), **arrays})
    return folder


def celeba(files: dict[str, Any] | None, label: str | None = "Male", **more: Any) -> Any:
    return load("celeba", n_agents=2, seed=0, label=label, files=files, **more)


def said(files: dict[str, Any] | None, label: str | None = "Male", **more: Any) -> str:
    with pytest.raises(InputError) as caught:
        celeba(files, label, **more)
    words = str(caught.value)
    assert "\n" not in words
    assert words.endswith(".")
    return words


@pytest.mark.parametrize("label", ATTRIBUTES)
def test_what_the_files_hold_is_what_arrives(tmp_path: Path, label: str) -> None:
    data = celeba({"folder": str(written(tmp_path))}, label)
    assert np.array_equal(data.features, features())
    assert data.classes == (-1, 1)
    column = signs()[:, ATTRIBUTES.index(label)]
    assert [data.classes[k] for k in data.labels] == column.tolist()
    assert data.split is not None
    assert data.split.tolist() == [{"0": "train", "1": "validation", "2": "test"}["0012"[k % 4]] for k in range(N)]
    assert data.source == "celeba"


def test_files_are_named_one_by_one_or_found_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "celeba", names=np.array(names()))
    digest = hashlib.sha256((folder / LISTS["attributes"]).read_bytes()).hexdigest()
    one_by_one = {"attributes": "celeba/list_attr_celeba.txt", "features": "celeba/features.npz"}
    given = celeba({**one_by_one, "sha256": {"attributes": digest}}, root=tmp_path)
    assert given.split is None
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    found = celeba(None)
    assert np.array_equal(found.features, given.features)
    assert np.array_equal(found.labels, given.labels)
    assert found.split is not None
    by_name = {"folder": str(folder), "sha256": {"list_attr_celeba.txt": digest}}
    assert np.array_equal(celeba(by_name).labels, given.labels)


def test_a_limit_takes_the_first_images(tmp_path: Path) -> None:
    data = celeba({"folder": str(written(tmp_path))}, limit=7)
    assert np.array_equal(data.features, features()[:7])
    assert data.split is not None
    assert data.split.shape == data.labels.shape == (7,)
    assert celeba({"folder": str(tmp_path)}, limit=10**6).n == N


@pytest.mark.parametrize(
    ("label", "words"),
    [(None, "problem.label: missing"), ("male", "'male' is no attribute"), ("Yuong", "the nearest is 'Young'")],
)
def test_the_label_is_an_attribute(tmp_path: Path, label: str | None, words: str) -> None:
    assert words in said({"folder": str(written(tmp_path))}, label)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not start with"),
        ("many\nA B\n000001.jpg 1 1\n", "does not start with"),
        (attributes(head=str(N + 1)), "says it has 31 images, but has 30"),
        (attributes().replace("000002.jpg -1", "000002.jpg  0").replace("000002.jpg  1", "000002.jpg  0"), ""),
        (attributes() + "000031.jpg 1\n", "but has 31"),
        (attributes().replace("\n000004.jpg", "\n000004.jpg 1"), "image 4 has 4 attributes"),
    ],
)
def test_a_damaged_list_is_refused(tmp_path: Path, text: str, words: str) -> None:
    folder = written(tmp_path)
    (folder / LISTS["attributes"]).write_text(text, encoding="utf-8")
    if words == "":
        assert "image 2 has another value of 5_o_Clock_Shadow" in said({"folder": str(folder)}, "5_o_Clock_Shadow")
        return
    assert words in said({"folder": str(folder)})


def test_other_damage_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / LISTS["attributes"]).write_bytes(b"\xff\xfe\x00")
    assert "no text in UTF-8" in said({"folder": str(folder)})
    written(tmp_path)
    (folder / LISTS["partition"]).write_text(parts().replace("000003.jpg 1", "000003.jpg 3"), encoding="utf-8")
    assert "image 3 has no part, or another than 0, 1 and 2" in said({"folder": str(folder)})
    (folder / LISTS["partition"]).write_text(parts(N - 1), encoding="utf-8")
    assert "different names for image 30, or one ends before it" in said({"folder": str(folder)})
    (folder / LISTS["partition"]).write_text(parts().replace("000009.jpg", "000090.jpg"), encoding="utf-8")
    assert "different names for image 9" in said({"folder": str(folder)})


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": features(N - 1)}, "has 29 rows, but 30 images have attributes"),
        ({"X": features()[:, 0]}, "(records, features) of real numbers is wanted"),
        ({"X": np.where(features() > 9, 0.0, np.nan)}, "holds no finite number"),
        ({"names": np.array([*names()[1:], "x"])}, "different names for image 1"),
    ],
)
def test_features_that_do_not_belong_to_the_list_are_refused(
    tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    assert words in said({"folder": str(written(tmp_path, **arrays))})


def test_features_of_another_format_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path)
    np.savez(folder / "features.npz", Y=features())
    assert "has no array 'X'" in said({"folder": str(folder)})
    (folder / "features.npz").write_bytes(b"no archive")
    assert "cannot be read without unpickling" in said({"folder": str(folder)})


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (None, "nothing stands in"),
        ({}, "got no file, but either folder, or attributes and features is wanted"),
        ({"attributes": "list_attr_celeba.txt"}, "problem.files.features: missing"),
        ({"attributes": "nowhere.txt", "features": "features.npz"}, "nowhere.txt' cannot be read"),
        ({"attributes": "list_attr_celeba.txt", "features": "nowhere.npz"}, "cannot be read"),
        ({"attributes": "list_attr_celeba.txt", "features": "https://x.org/f.npz"}, "a local path"),
        ({"attributes": "https://x.org/a.txt", "features": "features.npz"}, "a URL without a checksum"),
        ({"folder": ".", "features": "features.npz"}, "folder is wanted alone"),
        ({"folder": "nowhere"}, "is no folder"),
        ({"images": "x"}, "celeba takes none, only folder"),
        ({"folder": ".", "sha256": {"list_attr.txt": "0" * 64}}, "the nearest is 'list_attr_celeba.txt'"),
        ({"folder": ".", "sha256": {"list_attr_celeba.txt": "0" * 64}}, "has the SHA-256"),
        ({"folder": ".", "sha256": {"features.npz": "0" * 64}}, "without a checksum"),
    ],
)
def test_declarations_that_cannot_be_meant(tmp_path: Path, files: dict[str, Any] | None, words: str) -> None:
    written(tmp_path)
    placed = files and {k: str(tmp_path / v) if v == "." else v for k, v in files.items()}
    assert words in said(placed, root=tmp_path)


def test_a_folder_without_features_is_refused(tmp_path: Path) -> None:
    (written(tmp_path) / "features.npz").unlink()
    assert "has list_attr_celeba.txt, list_eval_partition.txt, but not features.npz; add it" in said(
        {"folder": str(tmp_path)}
    )


def test_other_data_take_none_of_its_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"problem\.files\.features: mnist takes none"):
        load("mnist", n_agents=1, seed=0, files={"features": "x.npz"})
    assert "has the classes [-1, 1]" in said({"folder": str(written(tmp_path))}, classes=[0, 1])


def content(folder: Path, **problem: Any) -> dict[str, Any]:
    return {
        "seed": 1,
        "problem": {
            "kind": "auc_maximisation",
            "data": "celeba",
            "label": "Male",
            "files": {"folder": str(folder)},
            "normalise": "l2",
            "positive_share": 0.4,
            **problem,
        },
        "topology": {"kind": "star", "agents": 3},
        "algorithm": {"kind": "dp_sgda", "rounds": 2, "rate": 0.5, "x": {"scale": 0.1}, "y": {"scale": 0.1}},
        "privacy": {"epsilon": 2.0, "delta": 1e-4, "clip": {"x": 1.0}},
        "run": {"evaluate_every": 1},
    }


def test_a_run_on_it_and_its_resolved_scenario(tmp_path: Path) -> None:
    run = decentral_dp.run(load_scenario(content(written(tmp_path))))
    assert run.result["status"] == "ok"
    assert run.simulation().context is not None
    # Validation images are train records of a problem of one level; test images are held out.
    assert run.simulation().context.n == sum("0012"[k % 4] != "2" for k in range(N))
    assert "A column says" in run.simulation().shards.why_not_exchangeable
    few = load_scenario(content(written(tmp_path / "b", partition=False), construction={"keep": {"1": 3}}))
    built = build.build(few)
    kept = np.concatenate(built.shards.train)
    assert int((built.shards.labels[kept] == 1).sum()) == 3


def test_which_records_are_held_out_is_part_of_the_input(tmp_path: Path) -> None:
    """With all images for testing moved, features and labels are the same, and no run is resumed on them."""
    first = build.build(load_scenario(content(written(tmp_path))))
    (tmp_path / LISTS["partition"]).write_text(parts(cycle="0021"), encoding="utf-8")
    second = build.build(load_scenario(content(tmp_path)))
    assert np.array_equal(first.shards.features, second.shards.features)
    assert build.run_digest(first) != build.run_digest(second)


# Features of anything else


def test_features_of_ones_own_are_learnt_from(tmp_path: Path) -> None:
    """Transfer learning: a public model's features of private records, in one archive with their labels."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 10, 900)
    centres = rng.normal(size=(10, 16))
    np.savez(tmp_path / "x.npz", X=(centres[labels] + 0.5 * rng.normal(size=(900, 16))).astype(np.float32), y=labels)
    table = content(tmp_path, data=str(tmp_path / "x.npz"), classes=list(range(10)), positive_share=0.2)
    table["problem"] |= {"construction": {"positive": [7, 8, 9], "tail": 0.5}}
    for key in ("label", "files"):
        del table["problem"][key]
    table["algorithm"] |= {"rounds": 60, "rate": 0.3, "x": {"scale": 4.0}, "y": {"scale": 0.5}}
    table["privacy"]["epsilon"] = 20.0
    run = decentral_dp.run(load_scenario(table))
    assert run.simulation().shards.l2 == 1.0
    assert np.linalg.norm(run.simulation().shards.features, axis=1).max() <= 1.0
    assert run.result["metrics"]["test_auc"] > 0.8
    assert run.simulation().budget.epsilon.max() <= 20.0
