"""FEMNIST, on small files in LEAF's format."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.data import load
from decentral_dp.simulation.jobs.build import build, run_digest


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)


def records(writer: str, n: int) -> dict[str, Any]:
    draw = np.random.default_rng([len(writer), n, ord(writer[-1])])
    return {"x": draw.random((n, 784)).tolist(), "y": draw.integers(0, 62, n).tolist()}


def leaf(**counts: int) -> dict[str, Any]:
    """What one of LEAF's files holds. counts: writer → number of records."""
    data = {name: records(name, n) for name, n in counts.items()}
    return {"users": list(counts), "num_samples": list(counts.values()), "user_data": data}


def written(folder: Path, **files: Any) -> Path:
    """files: "train/NAME" or "test/NAME" → its content."""
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def loaded(folder: Path, n_agents: int = 2, **more: Any) -> Any:
    return load("femnist", n_agents=n_agents, seed=0, files={"folder": str(folder)} | more)


def test_a_writer_is_of_one_agent_and_writers_are_numbered_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first file has the later names.
    files = {"train/a": leaf(f3=2, f4=1), "train/b": leaf(f1=3, f2=4), "test/a": leaf(f3=1, f9=2)}
    folder = written(tmp_path / "femnist", **files)
    found = loaded(folder)
    assert (found.n, found.own_test, found.image, len(found.classes)) == (13, 3, (28, 28, 1), 62)
    # f1, f2, f3, f4 are 0 to 3; f9 has test records alone, and comes after them.
    assert found.agent.tolist() == [0] * 3 + [1] * 4 + [0] * 2 + [1] + [0] + [0] * 2
    of_f2 = files["train/b"]["user_data"]["f2"]
    assert found.features[3:7].tolist() == of_f2["x"]
    assert found.labels[3:7].tolist() == of_f2["y"]
    assert found.features[10].tolist() == files["test/a"]["user_data"]["f3"]["x"][0]
    # The same from the environment, and from files that lie in the folder itself.
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    assert load("femnist", n_agents=2, seed=0).digest == found.digest
    assert loaded(folder / "train").own_test == 0


def test_files_are_verified_where_a_checksum_is_given(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"train/a": leaf(f1=1, f2=1)})
    digest = hashlib.sha256((folder / "train" / "a.json").read_bytes()).hexdigest()
    assert loaded(folder, sha256={"a.json": digest}).n == 2
    with pytest.raises(InputError, match="SHA-256"):
        loaded(folder, sha256={"a.json": "0" * 64})
    with pytest.raises(InputError, match=r"no file here is called 'b\.json'; the nearest is 'a\.json'"):
        loaded(folder, sha256={"b.json": digest})


def _with(**change: Any) -> dict[str, Any]:
    content = leaf(f1=1, f2=2)
    content["user_data"]["f1"] |= change
    return content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "is no JSON object"),
        ("{", "is no JSON object"),
        ("[" * 100_000, "is no JSON object"),
        ({"users": ["f1"], "num_samples": [], "user_data": {}}, "one number for each user"),
        ({"users": ["f1", "f2"], "num_samples": [1, 1], "user_data": {}}, "f1.* does not have the 1 records"),
        ({**leaf(f1=1), "users": ["f1", "f1"], "num_samples": [1, 1]}, "lists the writer .* again"),
        ({**leaf(f1=1), "users": [7]}, "or not by name"),
        ({**leaf(f1=1, f2=2), "num_samples": [1, 3]}, 'f2", does not have the 3 records'),
        (_with(x=[[0.5] * 783]), "784 numbers"),
        (_with(x=[[7.25] * 784]), "from 0 to 1"),
        (_with(x=[[float("nan")] * 784]), "from 0 to 1"),
        (_with(x=[["secret"] * 784]), "784 numbers"),
        (_with(x=[[10**400] * 784]), "784 numbers"),
        (_with(y=[62]), "from 0 to 61"),
        (_with(y=[0.5]), "from 0 to 61"),
        (_with(y=[10**30]), "from 0 to 61"),
        (_with(y=["secret"]), "from 0 to 61"),
    ],
)
def test_files_that_are_not_leafs_are_refused(content: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        loaded(written(tmp_path, **{"train/a": content}))
    assert not any(private in str(refused.value) for private in ("secret", "7.25"))


def test_what_is_missing_or_too_much_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing stands in\. Make them with preprocess\.sh of LEAF"):
        load("femnist", n_agents=2, seed=0)
    with pytest.raises(InputError, match="has no JSON file, nor has its folder train"):
        loaded(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        loaded(tmp_path / "nowhere")
    folder = written(tmp_path, **{"train/a": leaf(f1=1, f2=1)})
    with pytest.raises(InputError, match="got 3, but these files have 2 writers"):
        loaded(folder, n_agents=3)
    with pytest.raises(InputError, match=r"problem\.files\.archive: femnist takes none"):
        loaded(folder, archive="x")
    with pytest.raises(InputError, match=r"problem\.limit: femnist takes none"):
        load("femnist", n_agents=2, seed=0, files={"folder": str(folder)}, limit=1)


def test_writers_are_the_agents_of_a_private_run(tmp_path: Path) -> None:
    written(tmp_path / "mine", **{"train/a": leaf(f1=6, f2=8, f3=4, f4=4), "test/a": leaf(f1=2)})
    scenario = {
        "seed": 1,
        "problem": {
            "kind": "softmax_hyperparameter",
            "data": "femnist",
            "files": {"folder": "mine"},
            "normalise": "l1",
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2} | {c: {"scale": 0.1, "decay": 0.5} for c in "xyz"},
        "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
    }
    run = decentral_dp.run(decentral_dp.load(scenario, folder=tmp_path))
    assert run.result.status == "ok"
    assert [
        len(a) + len(b) for a, b in zip(run.simulation().shards.train, run.simulation().shards.validation, strict=True)
    ] == [
        6,
        8,
        4,
        4,
    ]
    # A record more of one writer is another input.
    other = decentral_dp.run(decentral_dp.load(scenario, folder=tmp_path))
    assert run_digest(other.simulation()) == run_digest(run.simulation())
    written(tmp_path / "mine", **{"train/a": leaf(f1=6, f2=8, f3=4, f4=5)})
    assert run_digest(build(decentral_dp.load(scenario, folder=tmp_path))) != run_digest(run.simulation())
