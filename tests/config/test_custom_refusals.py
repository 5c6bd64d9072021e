"""Custom problems, objectives, graphs, records and partitions: each fault is refused in one sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.user_code import UserCodeError
from tests.support.pages import code_blocks, write_files

# Python file of a page → the scenario that names it.
SCENARIOS = {
    "my_problem.py": "huber.toml",
    "my_objective.py": "worse_class.toml",
    "my_graph.py": "caveman.toml",
    "my_data.py": "clouds.toml",
    "my_split.py": "clouds.toml",
}
OWN = "raise type('Own', (Exception,), {})('own')"
RECORDS = "return features, labels"

Change = tuple[str, str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the pages."""
    return write_files(tmp_path, code_blocks("add_a_problem", "add_a_topology", "add_data"))


# (file, text, its replacement) → part of the refusal.
REFUSED: dict[Change, str] = {
    # Scenarios.
    ("huber.toml", "threshold", "treshold"): 'problem.treshold: unknown key; did you mean "threshold"',
    ("huber.toml", "threshold = 1.0", ""): "problem.threshold: missing",
    ("huber.toml", "threshold = 1.0", 'threshold = "a"'): 'problem.threshold: got "a", expected a number',
    ("huber.toml", "threshold = 1.0", "threshold = -1.0"): "threshold and ridge are numbers above 0",
    ("huber.toml", "HuberPull", "Hubert"): "my_problem defines no Hubert",
    ("huber.toml", "my_problem:", "mine:"): "no module mine",
    ("huber.toml", "my_problem:HuberPull", "my_graph:caveman"): "my_graph:caveman",
    ("caveman.toml", "size", "sise"): 'topology.sise: unknown key; did you mean "size"',
    ("caveman.toml", "my_graph:caveman", "star"): "topology.size: unknown key",
    ("caveman.toml", "agents = 6", "agents = 7"): "got 7, expected 6",
    ("clouds.toml", "classes = [0, 1]", ""): "problem.classes",
    ("clouds.toml", '"my_split:deal"', '"even"'): "problem.partition: got",
    ("clouds.toml", "classes", 'label = "y"\nclasses'): "problem.label",
    # Problems.
    ("my_problem.py", "import numpy as np", "import numpy as np\n\nraise RuntimeError('not today')"): "not today",
    ("my_problem.py", "return n_features, n_features", OWN): "does not give p and q: Own: own",
    ("my_problem.py", "error[:, None] * features", "error[:, None] * (features - features.mean(0))"): "mixes records",
    ("my_problem.py", "error[:, None] * features", "error[:, None] * features + np.random.rand()"): "two results",
    ("my_problem.py", "return error[:, None] * features", OWN): "Own: own",
    ("my_problem.py", "return error[:, None] * features", "return error"): "returns shape (7,)",
    ("my_problem.py", "def lower_grad_y(self, x, ", "def lower_grad_y(self, "): "takes 4 positional arguments",
    ("my_problem.py", "return np.where(error", "return 1j * np.where(error"): "dtype('complex128')",
    ("my_problem.py", "return (features @ y > 0.5).astype(float)", 'return ["a"] * len(features)'): (
        "Cannot cast array data"
    ),
    ("my_problem.py", "return self.ridge * (y - x),", "return np.nan * (y - x),"): "is not finite",
    ("my_problem.py", "self.ridge * z, -self.ridge * z", "self.ridge * z"): "regulariser returns shapes [(30,), (30,)]",
    ("my_problem.py", "ridge: float = 0.1", 'ridge: float = 0.1\n    data: str = ""'): "is a key of every problem",
    ("my_problem.py", "ridge: float", 'ridge: "Missing"'): "are invalid: NameError",
    ("my_problem.py", "@dataclass(frozen=True)\n", ""): "problem.threshold: unknown key",
    ("my_problem.py", "    def sizes", "    def for_data(self, facts): return 3\n\n    def sizes"): "nor slopes",
    ("my_problem.py", "    def sizes", "    def for_data(self, facts): return 1 / 0\n\n    def sizes"): (
        "fails: ZeroDivisionError"
    ),
    (
        "my_problem.py",
        "    def sizes",
        "    def terms(self): ...\n\n    def sizes",
    ): "lacks p, q, reads_records",
    ("my_problem.py", "    upper_grad_y =", "    del lower_grad_y  #"): "nor slopes",
    # Objectives.
    ("my_objective.py", "return 1, 1", OWN): "does not give outputs and q: Own: own",
    ("my_objective.py", "def slopes", "def slope"): "nor slopes",
    ("my_objective.py", "return self.cap", "return np.inf"): "radius_y out of range (got inf",
    ("my_objective.py", "return by_output[:, None],", "return None\n        return 0,"): "is not subscriptable",
    # Graphs.
    ("my_graph.py", "return nx.conn", f"{OWN}\n    return nx.conn"): "fails: Own: own",
    (
        "my_graph.py",
        "return nx.connected_caveman_graph(agents // size, size)",
        "return None",
    ): "gives no graph (got NoneType",
    ("my_graph.py", "agents // size, size", "agents // size, 1"): "NetworkXError: The size of cliques",
    ("my_graph.py", "return nx.conn", "return nx.empty_graph(agents)\n    return nx.conn"): "6 components",
    ("my_graph.py", "def caveman", "caveman = [(0, 1)]\n\n\ndef other"): "my_graph:caveman is an object",
    ("my_graph.py", "size: int = 3", 'size: "Missing" = 3'): "are invalid: NameError",
    # Records and partitions.
    ("my_data.py", RECORDS, OWN): "fails: Own: own",
    ("my_data.py", RECORDS, "return None"): "my_data:load does not return records",
    ("my_data.py", RECORDS, "features[3] = np.nan; return features, labels"): "row 4, column 'feature_0'",
    ("my_data.py", RECORDS, "return 1j * features, labels"): "not numeric",
    ("my_data.py", RECORDS, "return dict(features=features, labels=labels, classes=2)"): "has classes as int",
    ("my_data.py", RECORDS, "return dict(features=features, labels=labels, classes=[1, 0])"): "has the classes [1, 0]",
    ("my_split.py", "return owner", OWN): "fails: Own: own",
    ("my_split.py", "return owner", "raise SystemExit(0)"): "fails: SystemExit: 0",
}


@pytest.mark.parametrize("change", REFUSED, ids=[f"{file}: {new}" for file, _, new in REFUSED])
def test_faults_are_refused(folder: Path, change: Change) -> None:
    file, old, new = change
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        build(decentral_dp.load(folder / SCENARIOS.get(file, file)))
    assert REFUSED[change] in str(refused.value)
    assert "\n" not in str(refused.value)


LATER: dict[Change, str] = {
    ("my_problem.py", "return self.ridge * (y - x), ", "1 / 0"): "ZeroDivisionError: division by zero",
    ("my_problem.py", "return self.ridge * (y - x), ", "return y[:2], z, z"): "regulariser returns shapes [(2,)",
    ("my_objective.py", "return np.clip(y, 0.0, 1.0)", "1 / 0"): "ZeroDivisionError: division by zero",
    (
        "my_objective.py",
        "return np.clip(y, 0.0, 1.0)",
        "return np.zeros(3)",
    ): "project_y returns an array of the wrong shape",
}


@pytest.mark.parametrize("change", LATER, ids=[f"{file}: {new}" for file, _, new in LATER])
@pytest.mark.usefixtures("undrawn")
def test_faults_in_a_later_round_end_the_run(folder: Path, change: Change) -> None:
    """Values may have been released: the run has failed, and the scenario is sound."""
    file, old, new = change
    path, flag = folder / file, folder / "later"
    later = f"if Path({str(flag)!r}).exists():\n            {new}\n        {old}"
    text = path.read_text(encoding="utf-8").replace("import numpy", "from pathlib import Path\n\nimport numpy", 1)
    path.write_text(text.replace(old, later, 1), encoding="utf-8")

    def set_flag(progress: Progress) -> None:
        if progress.done == 3:
            flag.touch()

    scenario = load(folder / SCENARIOS[file], ["run.evaluate_every=1"])
    with pytest.raises(UserCodeError) as ended:
        decentral_dp.run(scenario, out=folder / "out", callbacks=[set_flag])
    assert re.match(r"round [45]: ", str(ended.value))
    assert LATER[change] in str(ended.value)
    assert json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["status"] == "failed"


@pytest.mark.parametrize(("table", "key"), [("problem", "threshold"), ("algorithm", "y")])
@pytest.mark.parametrize("kind", ["nobody", "folder:Name", "my_data.py:load"])
def test_an_unknown_kind_is_refused_before_its_keys(folder: Path, table: str, key: str, kind: str) -> None:
    content: dict[str, Any] = decentral_dp.load(folder / "huber.toml").model_dump(exclude_unset=True)
    content[table] |= {"kind": kind, key: 1.0 if key == "threshold" else {"scale": 1.0}, "speed": 2.0}
    with pytest.raises(InputError, match=rf"^{table}\.kind: "):
        build(decentral_dp.load(content, folder=folder))
