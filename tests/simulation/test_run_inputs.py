"""Run folders that are sent to others: they run there to the same bits, and name no home folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.simulation.folder import journal
from decentral_dp.simulation.run import Run
from tests.support.interruptions import interrupt

ALGORITHM = '''
from dataclasses import dataclass
from typing import Any, NamedTuple

from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.exchange import Gossip


class State(NamedTuple):
    x: Any
    y: Any


@dataclass(frozen=True)
class Averaged:
    """Gossip, and a step."""

    rate: StepSize
    channels = ("x", "y")
    RELEASES = {"y": {"lower_grad_y": "rate"}}

    def init(self, dataset, x, y):
        return State(x, y)

    def step(self, t, dataset, s):
        own, near = yield Gossip(y=s.y)
        mixed = (1.0 - dataset.neighbour_weight) * own.y + near.y
        return s._replace(y=mixed - self.rate(t) * dataset.batch(t).lower_grad_y(s.x, own.y))
'''
RECORDS = """
import numpy as np


def load():
    features = np.random.default_rng(0).normal(size=(120, 3))
    return features, (features[:, 0] > 0).astype(int)


def deal(labels, agents):
    return np.arange(len(labels)) % agents
"""
GRAPHS = "import networkx as nx\n\n\ndef barbell(agents: int):\n    return nx.barbell_graph(agents // 2, 0)\n"

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder with a project, where the files of a scenario are."""
    folder = tmp_path / "ann"
    (folder / "project").mkdir(parents=True)
    for name, text in (("gossip.py", ALGORITHM), ("records.py", RECORDS), ("graphs.py", GRAPHS)):
        (folder / "project" / name).write_text(text)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def _scenario(project: Path) -> dict[str, Any]:
    return {
        "title": "Mine",
        "seed": 3,
        "code_folders": [str(project)],
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "records:load",
            "partition": "records:deal",
            "classes": [0, 1],
            "normalise": "l2",
            "test": 0.2,
        },
        "topology": {"kind": "graphs:barbell", "agents": 6},
        "algorithm": {"kind": "gossip:Averaged", "rounds": 4, "rate": {"scale": 0.5}},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "clip": 1.0},
    }


def _texts(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*"):
        if path.suffix in (".toml", ".json", ".html", ".graphml", ".jsonl"):
            yield path, path.read_text(encoding="utf-8")


def _same(one: Run, other: Run) -> bool:
    return all(np.array_equal(one.released[c], other.released[c]) for c in one.released)


def test_a_folder_that_was_sent_runs_elsewhere_to_the_same_bits(home: Path, tmp_path: Path) -> None:
    first = decentral_dp.run(_scenario(home / "project"), out=home / "project" / "run")
    shutil.copytree(home / "project" / "run", tmp_path / "bob")
    home.rename(tmp_path / "gone")
    again = decentral_dp.run(tmp_path / "bob" / "scenario.toml", out=tmp_path / "again")
    assert _same(first, again)
    assert again.result.privacy.epsilon_max == first.result.privacy.epsilon_max


def test_no_file_of_a_folder_names_the_home_folder(home: Path) -> None:
    folder = home / "project" / "run"
    decentral_dp.run(_scenario(home / "project"), out=folder)
    found = {path.name for path, text in _texts(folder) if str(home) in text}
    assert not found
    assert {path.name for path in (folder / "code").iterdir()} == {"gossip.py", "records.py", "graphs.py"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "gossip:Averaged" in page
    assert "on a barbell" in page


def test_records_stay_where_they_are_and_are_found(
    home: Path, tmp_path: Path, scenario: Callable[..., dict[str, Any]]
) -> None:
    project = home / "project"
    rows = "\n".join(f"{k % 7},{k % 5},{k % 2}" for k in range(120))
    (project / "mine.csv").write_text(f"a,b,label\n{rows}\n")
    problem = {"data": f"{project}/mine.csv", "label": "label", "classes": [0, 1], "scale": {"a": [0, 6], "b": [0, 4]}}
    wanted = scenario(problem=problem)
    inside = decentral_dp.run(wanted, out=project / "run")
    outside = decentral_dp.run(wanted, out=tmp_path / "run")
    assert 'data = "../mine.csv"' in (project / "run" / "scenario.toml").read_text()
    assert 'data = "~/project/mine.csv"' in (tmp_path / "run" / "scenario.toml").read_text()
    for folder, run in ((project / "run", inside), (tmp_path / "run", outside)):
        assert not list(folder.rglob("mine.csv"))
        assert _same(run, decentral_dp.run(folder / "scenario.toml"))


def test_a_run_that_was_cut_off_goes_on_with_the_code_of_its_beginning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = home / "project"
    whole = decentral_dp.run(_scenario(project))
    monkeypatch.setattr(journal, "_LEASE", 0.0)

    interrupt({**_scenario(project), "run": {"evaluate_every": 2}}, project / "run", 1)
    (project / "gossip.py").write_text("raise SystemExit")
    assert _same(whole, decentral_dp.resume(project / "run"))


def test_nothing_stays_of_a_run_that_released_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = home / "project" / "run"

    def fails(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("decentral_dp.simulation.run._perform", fails)
    with pytest.raises(KeyboardInterrupt):
        decentral_dp.run(_scenario(home / "project"), topology=nx.path_graph(6), out=folder)
    assert not folder.exists()
