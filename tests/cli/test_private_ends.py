"""The end of a certified run reveals no record: status, reason, exit code and result of neighbouring data sets are
equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

from decentral_dp.cli.main import app
from decentral_dp.errors import InputError

# Unbounded losses, so that one record makes the objective overflow.
OBJECTIVE = """
import numpy as np


class Squares:
    def sizes(self, n_classes):
        return 1, 1

    def loss(self, outputs, y, labels):
        return y[0] * (outputs[:, 0] - labels) ** 2

    def slopes(self, outputs, y, labels):
        gap = outputs[:, 0] - labels
        return 2.0 * (y[0] * gap)[:, None], (gap**2)[:, None]

    def project_y(self, y):
        return np.clip(y, 0.0, 1.0)

    def radius_y(self):
        return 1.0

    def best_y(self, outputs, labels):
        BODY
        return np.ones(1)
"""
RAISES = """if not np.isfinite(self.loss(outputs, np.ones(1), labels)).all():
            raise FloatingPointError("overflow")"""


class DataSet(NamedTuple):
    """Rows of a CSV file. features: (n, d); labels: n texts; split: n words."""

    features: np.ndarray
    labels: list[str]
    split: list[str]

    def write(self, path: Path) -> None:
        names = [f"a{k}" for k in range(self.features.shape[1])]
        rows = [",".join(["split", *names, "t"])]
        for word, row, label in zip(self.split, self.features.tolist(), self.labels, strict=True):
            rows.append(",".join([word, *map(repr, row), label]))
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")

    def replaced(self, role: str, label: str | None = None, feature: float | None = None) -> DataSet:
        """Replace one record of that split by another label and by that number in every feature."""
        row = self.split.index(role)
        features, labels = self.features.copy(), list(self.labels)
        if feature is not None:
            features[row] = feature
        if label is not None:
            labels[row] = label
        return DataSet(features, labels, self.split)


class Ended(NamedTuple):
    """Store the exit code, standard error (said) and result.json without metrics, digests and times."""

    code: int
    said: str
    result: Mapping[str, Any]
    metrics: Mapping[str, Any]
    released: Mapping[str, np.ndarray]


def data_set(labels: Callable[[np.ndarray], list[str]]) -> DataSet:
    draw = np.random.default_rng(0)
    features = draw.normal(size=(48, 3))
    return DataSet(
        features, labels(features[:, 0]), ["train", "validation", "test", "train", "validation", "train"] * 8
    )


def numbers() -> DataSet:
    return data_set(lambda a: [repr(v) for v in a.tolist()])


def classes() -> DataSet:
    return data_set(lambda a: ["yes" if v > 0 else "no" for v in a])


def ended(folder: Path, here: DataSet, content: Mapping[str, Any]) -> Ended:
    folder.mkdir()
    here.write(folder / "d.csv")
    (folder / "own.py").write_text(content.get("own", ""), encoding="utf-8")
    (folder / "s.toml").write_text(tomli_w.dumps({k: v for k, v in content.items() if k != "own"}), encoding="utf-8")
    run = CliRunner().invoke(app, ["run", str(folder / "s.toml"), "--out", str(folder / "out"), "--quiet"])
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    result = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))
    metrics = result.pop("metrics")
    result.pop("diagnostics")
    result.pop("seconds")
    # Digests are of files that hold metrics and states.
    result.pop("files", None)
    result.pop("digest")
    # A digest over random bits of the run.
    result.pop("run", None)
    result["problem"].pop("data")
    with np.load(folder / "out" / "state.npz") as arrays:
        released = {k: arrays[k] for k in arrays.files if k.startswith(("released", "published"))}
    return Ended(run.exit_code, run.output, result, metrics, released)


def scenario(kind: str, algorithm: Mapping[str, Any], agents: int = 2, **more: Any) -> dict[str, Any]:
    problem = {"kind": kind, "data": "d.csv", "label": "t", "classes": [], **more.pop("problem", {})}
    privacy = {"epsilon": 5.0, "delta": 1e-5, **more.pop("privacy", {})}
    return {
        "seed": 3,
        "problem": problem,
        "topology": {"kind": "complete" if algorithm["kind"] == "ldp_dsbo" else "star", "agents": agents},
        "algorithm": {"rounds": 2, **algorithm},
        "privacy": privacy,
        "run": {"evaluate_every": 1},
        **more,
    }


def gossip() -> dict[str, Any]:
    steps = {"x": {"scale": 0.1}, "y": {"scale": 0.1}, "z": {"scale": 0.1}}
    privacy = {"mechanism": "gaussian", "clip": {"x": 1.0, "y": 1.0, "z": 1.0}}
    return scenario("quadratic", {"kind": "ldp_dsbo", **steps}, privacy=privacy)


def own_objective(body: str) -> dict[str, Any]:
    steps = {"x": {"scale": 0.1}, "y": {"scale": 0.1}}
    made = scenario("own:Squares", {"kind": "dp_sgda", "rate": 0.5, **steps}, privacy={"clip": {"x": 1.0}})
    return {**made, "own": OBJECTIVE.replace("BODY", body)}


def auc(share: Any) -> dict[str, Any]:
    steps = {"x": {"scale": 1.0}, "y": {"scale": 0.5}}
    table = {"classes": ["no", "yes"], "normalise": "l2", "positive_share": share}
    return scenario(
        "auc_maximisation", {"kind": "dp_sgda", "rate": 0.5, **steps}, problem=table, privacy={"clip": {"x": 1.0}}
    )


def check_alike(one: Ended, other: Ended) -> None:
    for end in (one, other):
        assert all(np.isfinite(value).all() for value in end.released.values())
    assert (one.code, one.said, one.result) == (other.code, other.said, other.result)
    assert (one.code, one.result["status"], one.result["reason"]) == (0, "ok", None)


# A record whose losses overflow


@pytest.mark.parametrize("role", ["train", "validation", "test"])
def test_one_huge_label_does_not_change_the_end_of_a_gossip_run(tmp_path: Path, role: str) -> None:
    plain = ended(tmp_path / "plain", numbers(), gossip())
    far = ended(tmp_path / "far", numbers().replaced(role, "1e200"), gossip())
    check_alike(plain, far)
    # The simulator's view does show it.
    assert "inf" in far.metrics.values()
    assert "inf" not in plain.metrics.values()


@pytest.mark.parametrize("body", ["pass", RAISES])
@pytest.mark.parametrize("role", ["train", "validation"])
def test_one_huge_label_does_not_change_the_end_of_a_coordinator_run(tmp_path: Path, body: str, role: str) -> None:
    made = own_objective(body)
    plain = ended(tmp_path / "plain", numbers(), made)
    far = ended(tmp_path / "far", numbers().replaced(role, "1e200"), made)
    check_alike(plain, far)
    assert np.isfinite(plain.metrics["primal"])
    assert far.metrics.get("primal") == ("inf" if body == "pass" else None)


def test_without_a_guarantee_the_objective_ends_a_run(tmp_path: Path) -> None:
    made = {**own_objective("pass"), "privacy": {"guarantee": "none"}}
    far = ended(tmp_path / "far", numbers().replaced("train", "1e200"), made)
    assert (far.code, far.result["status"]) == (1, "diverged")
    with pytest.raises(AssertionError, match="overflow"):
        ended(tmp_path / "raised", numbers().replaced("train", "1e200"), {**made, "own": own_objective(RAISES)["own"]})


# A class without a record


@pytest.mark.parametrize("share", [0.4, "released"])
@pytest.mark.parametrize("left", ["no", "yes"])
def test_an_empty_class_does_not_change_the_end_of_a_run(tmp_path: Path, share: Any, left: str) -> None:
    here = classes()
    other = {"no": "yes", "yes": "no"}[left]
    none = here._replace(labels=[left] * len(here.labels))
    one = none.replaced("train", other)
    ends = [ended(tmp_path / name, w, auc(share)) for name, w in (("all", here), ("one", one), ("none", none))]
    for end in ends[1:]:
        check_alike(ends[0], end)
    assert "auc" in ends[1].metrics
    assert "auc" not in ends[2].metrics
    assert np.isfinite(ends[2].metrics["primal"])


# Refusals at loading


@pytest.mark.parametrize("column", ["split", "a1", "t"])
@pytest.mark.parametrize("cell", ["SECRET", "7e999", "12_34", "\x00SECRET"])
def test_a_refusal_names_the_place_of_a_cell_and_not_its_value(tmp_path: Path, column: str, cell: str) -> None:
    classes().write(tmp_path / "d.csv")
    lines = (tmp_path / "d.csv").read_text(encoding="utf-8").splitlines()
    cells = lines[5].split(",")
    cells[lines[0].split(",").index(column)] = cell
    lines[5] = ",".join(cells)
    (tmp_path / "d.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "s.toml").write_text(tomli_w.dumps(auc(0.5)), encoding="utf-8")
    run = CliRunner().invoke(app, ["run", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")])
    assert isinstance(run.exception, InputError)
    said = str(run.exception)
    assert cell not in said
    assert "SECRET" not in said
    assert "row 5" in said
    assert not (tmp_path / "out").exists()
