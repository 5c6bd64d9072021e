"""Results leak no record, noise key or noiseless value by pickle, copy, text or attribute."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import decentral_dp
from decentral_dp.auditing.membership import infer_membership
from decentral_dp.central.estimators import PrivateAUCClassifier, PrivateLogisticRegressionCV
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.estimators import DecentralisedClassifier
from decentral_dp.privacy.randomness import SecretRoot, root_bytes

GOSSIP: dict[str, Any] = {
    "problem": {"kind": "logistic_hyperparameter", "test": 0.2, "scale": "none", "normalise": "l2", "classes": [0, 1]},
    "topology": {"kind": "ring", "agents": 4},
    "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.2}, "y": {"scale": 1.0}, "z": {"scale": 0.5}},
    "privacy": {"epsilon": 4.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
}
CENTRAL: dict[str, Any] = {
    "problem": {"kind": "auc_maximisation", "test": 0.2, "scale": "none", "positive_share": 0.5, "classes": [0, 1]},
    "topology": {"kind": "complete", "agents": 2},
    "algorithm": {"kind": "dp_sgda", "rounds": 2, "solver": "closed_form", "x": {"scale": 0.5}},
    "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": {"x": 1.0}},
}
BILEVEL: dict[str, Any] = {
    "problem": {"kind": "logistic_regularisation", "test": 0.2, "normalise": "l2", "classes": [0, 1]},
    "topology": {"kind": "complete", "agents": 2},
    "algorithm": {"kind": "pp_ift", "rounds": 2, "domain": {"low": -4.0, "high": 0.0}},
    "privacy": {"epsilon": 4.0, "delta": 1e-5},
}


def records() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(11)
    features = draw.normal(size=(60, 3))
    return features, (features @ np.ones(3) + 0.3 * draw.normal(size=60) > 0.0).astype(np.int64)


@dataclasses.dataclass
class Leak:
    """An object that leaks."""

    held: Any


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """The arrays of a test's own records, however they are held."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from arrays_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays_in(part)


class Private:
    """Private values: numbers as the eight bytes of a float64 and as text, and noise keys."""

    def __init__(self, *values: Any, roots: tuple[bytes, ...] = ()) -> None:
        numbers = np.unique(np.concatenate([a.ravel() for v in values for a in arrays_in(v) if a.dtype == np.float64]))
        # Labels, and features of ones, are in any object.
        numbers = [float(n) for n in numbers if n != round(n) and np.isfinite(n)]
        assert len(numbers) >= 3
        self.bytes = {struct.pack(order, n) for n in numbers for order in ("<d", ">d")} | set(roots)
        self.text = {repr(n) for n in numbers} | {repr(root) for root in roots} | {root.hex() for root in roots}

    def found_in(self, value: Any) -> list[str]:
        """The ways by which something private is reached."""
        out = []
        for way, look in WAYS.items():
            for given in look(value):
                within = self.bytes if isinstance(given, bytes) else self.text
                if any(one in given for one in within):
                    out.append(way)
                    break
        return out


def walked(value: Any, seen: dict[int, Any]) -> Iterator[bytes | str]:
    """Yield everything that is reached by `vars`, keys, items and fields, as bytes or text."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, bytes | str):
        yield value
    elif isinstance(value, float | np.floating):
        yield repr(float(value))
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from walked(key, seen)
            yield from walked(part, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from walked(part, seen)
    elif hasattr(value, "to_parquet") and hasattr(value, "columns"):
        yield from (walked_text for name in value.columns for walked_text in map(repr, value[name].tolist()))
    for part in [*getattr(value, "__dict__", {}).values()] if not isinstance(value, type) else []:
        if not callable(part) or dataclasses.is_dataclass(part):
            yield from walked(part, seen)


def _as_dict(value: Any) -> Iterator[bytes | str]:
    if dataclasses.is_dataclass(value):
        yield from walked(dataclasses.asdict(value), {})


WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: [pickle.dumps(value)],
    "pickle of __dict__": lambda value: [pickle.dumps(vars(value))] if hasattr(value, "__dict__") else [],
    "copy": lambda value: [pickle.dumps(copy.copy(value)), *walked(copy.copy(value), {})],
    "deepcopy": lambda value: [pickle.dumps(copy.deepcopy(value)), *walked(copy.deepcopy(value), {})],
    "text": lambda value: [repr(value), str(value), repr(getattr(value, "__dict__", ""))],
    "page": lambda value: [value._repr_html_()] if hasattr(value, "_repr_html_") else [],
    "vars": lambda value: walked(value, {}),
    "asdict": _as_dict,
}


def private_of(job: Any) -> Private:
    return Private(
        records()[0],
        job.shards.features,
        [np.asarray(part) for agent in job.records["train"] for part in agent],
        [np.asarray(part) for part in job.test],
        roots=(root_bytes(job.root),),
    )


@pytest.mark.parametrize("content", [GOSSIP, CENTRAL, BILEVEL], ids=["gossip", "minimax", "bilevel"])
def test_no_record_and_no_root_leave_with_a_run_or_a_plan(content: dict[str, Any]) -> None:
    run = decentral_dp.run(content, data=records())
    private = private_of(run.simulation())
    assert private.found_in(run) == []
    assert private.found_in(run.result) == []
    assert private.found_in(run.scenario) == []
    assert private.found_in(decentral_dp.plan(content, data=records())) == []
    state = {name: value for name, value in run.state.items() if not np.array_equal(value, run.released.get(name))}
    assert not state or Private(state).found_in(run) == []
    there = pickle.loads(pickle.dumps(run))  # noqa: S301 - our own bytes
    np.testing.assert_array_equal(there.published["x"], run.published["x"])
    for reach in (there.simulation, lambda: there.state):
        with pytest.raises(decentral_dp.InputError, match="copies and pickles omit it"):
            reach()


def test_the_search_finds_what_it_looks_for() -> None:
    features, labels = records()
    run = decentral_dp.run(GOSSIP, data=(features, labels))
    job, private = run.simulation(), private_of(run.simulation())
    for held in (features[7], features[:, 1], root_bytes(job.root), {"rows": [tuple(features[3].tolist())]}, job.test):
        found = private.found_in(Leak(held))
        assert {"pickle", "pickle of __dict__", "copy", "deepcopy", "vars", "asdict"} <= set(found), held


@pytest.mark.parametrize("kind", [PrivateAUCClassifier, PrivateLogisticRegressionCV, DecentralisedClassifier])
def test_no_record_leaves_with_an_estimator(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[bytes] = []

    def secret() -> SecretRoot:
        drawn.append(os.urandom(32))
        return SecretRoot(drawn[-1])

    for module in ("simulation.jobs.build", "central.tuner"):
        monkeypatch.setattr(f"decentral_dp.{module}.secret_root", secret)
    # Fits of the other kinds on these records raise no warning.
    monkeypatch.setattr("decentral_dp.estimators._FITS", [])
    features, labels = records()
    model = kind(classes=(0, 1)).fit(features, labels)
    private = Private(features, features / np.linalg.norm(features, axis=1)[:, None], roots=tuple(drawn))
    assert len(drawn) == 1
    assert private.found_in(model) == []
    assert private.found_in(model.ledger_) == []


def test_no_record_leaves_with_tuned_weights() -> None:
    features, labels = records()
    pair = features, np.where(labels > 0, 1.0, -1.0)
    tuned = decentral_dp.tune(train=pair, validation=pair, epsilon=1.0, delta=1e-6, weight_range=(0.1, 1.0), steps=2)
    assert Private(features, features / np.linalg.norm(features, axis=1)[:, None]).found_in(tuned) == []


@pytest.fixture
def named(tmp_path: Path) -> dict[str, Any]:
    """The scenario of a file of records."""
    features, labels = records()
    lines = [",".join([*map(repr, row.tolist()), str(label)]) for row, label in zip(features, labels, strict=True)]
    (tmp_path / "private.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    data = {"data": str(tmp_path / "private.csv"), "label": "label", "partition": "iid"}
    return GOSSIP | {"problem": GOSSIP["problem"] | data}


@pytest.mark.usefixtures("undrawn")
def test_no_record_leaves_with_what_is_found_of_runs(named: dict[str, Any], tmp_path: Path) -> None:
    run = decentral_dp.run(named, out=tmp_path / "run")
    private = private_of(run.simulation())
    shutil.copytree(tmp_path / "run", tmp_path / "copied")
    (tmp_path / "named.toml").write_text(tomli_w.dumps(named))
    found = {
        "audit": decentral_dp.audit(named, runs=20),
        "attack": infer_membership(tmp_path / "run", runs=2),
        "comparison": decentral_dp.compare(tmp_path / "run", tmp_path / "copied"),
        "study": decentral_dp.study(
            {
                "scenario": str(tmp_path / "named.toml"),
                "kind": "plan",
                "measure": ["epsilon_max"],
                "grid": {"algorithm.rounds": [1, 2]},
            },
            workers=1,
        ),
    }
    assert {what: private.found_in(result) for what, result in found.items()} == {what: [] for what in found}


def test_no_record_leaves_with_a_network_view() -> None:
    job = decentral_dp.build(load("network_view", ["algorithm.rounds=3"]))
    view = decentral_dp.network_view("network_view", coalitions=[[0]], set={"algorithm.rounds": 3})
    rows = [np.asarray(part) for agent in job.simulation().records["train"] for part in agent]
    assert Private(rows, roots=(root_bytes(job.simulation().root),)).found_in(view) == []


def test_a_job_shows_nothing_and_is_not_passed_on() -> None:
    job = decentral_dp.build(GOSSIP, data=records())
    private = private_of(job.simulation())
    assert not any(text in repr(job) for text in private.text)
    with pytest.raises(TypeError):
        vars(job)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(decentral_dp.InputError, match="send its scenario"):
            way(job)
    assert private.found_in(job.scenario) == []
    assert "_planned" not in dir(job)
