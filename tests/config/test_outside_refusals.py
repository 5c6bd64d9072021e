"""Custom problems, objectives, graphs, records and partitions: what is wrong with one is said."""

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

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("add_a_problem", "add_a_topology", "add_data")
# File of a page → the scenario that names it, and what the file defines.
OF_FILE = {
    "my_problem.py": ("huber.toml", "HuberPull"),
    "my_objective.py": ("worse_class.toml", "WorseClass"),
    "my_graph.py": ("caveman.toml", "caveman"),
    "my_data.py": ("clouds.toml", "load"),
    "my_split.py": ("clouds.toml", "deal"),
}
OWN = "raise type('Own', (Exception,), {})('own')"

Change = tuple[str, str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the pages."""
    for page in PAGES:
        for name, text in BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8")):
            (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def refusal(folder: Path, file: str, old: str, new: str) -> str:
    """What is said when `new` stands in the place of `old`."""
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) >= 1, old
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        build(decentral_dp.load(folder / OF_FILE[file][0]))
    said = str(refused.value)
    assert "\n" not in said
    return said


# (file, what is replaced, by what) → what is said.
REFUSED: dict[Change, str] = {
    # Every class of error.
    ("my_problem.py", "return n_features, n_features", OWN): "does not give p and q: Own: own",
    ("my_problem.py", "return error[:, None] * features", OWN): "synthetic records: Own: own",
    ("my_objective.py", "return 1, 1", OWN): "does not give outputs and q: Own: own",
    ("my_objective.py", "return by_output[:, None],", f"{OWN}\n        return 0,"): "Own: own",
    ("my_graph.py", "return nx.conn", f"{OWN}\n    return nx.conn"): "does not run: Own: own",
    ("my_data.py", "return features, labels", OWN): "does not run: Own: own",
    ("my_split.py", "return owner", OWN): "does not run: Own: own",
    ("my_split.py", "return owner", "raise SystemExit(0)"): "does not run: SystemExit: 0",
    # Problems.
    ("my_problem.py", "def lower_grad_y(self, x, ", "def lower_grad_y(self, "): (
        "takes 4 positional arguments but 5 were given"
    ),
    ("my_problem.py", "return np.where(error", "return 1j * np.where(error"): (
        "TypeError: complex numbers, where real ones are wanted"
    ),
    ("my_problem.py", "return (features @ y > 0.5).astype(float)", 'return ["a"] * len(features)'): (
        "could not convert string to float: np.str_('a')"
    ),
    ("my_problem.py", "return self.ridge * (y - x),", "return np.nan * (y - x),"): (
        "regulariser, or its value, is not finite"
    ),
    ("my_problem.py", "self.ridge * z, -self.ridge * z", "self.ridge * z"): (
        "regulariser gives shapes [(30,), (30,)]"
    ),
    ("my_problem.py", "return self.ridge * (y - x),", "return np.sum(y),"): (
        "regulariser gives shapes [(), (30,), (30,)]"
    ),
    ("my_problem.py", "-self.ridge * z", "-self.ridge * z, 0.0"): (
        "regulariser gives shapes [(30,), (30,), (30,), ()]"
    ),
    ("my_problem.py", "ridge: float = 0.1", 'ridge: float = 0.1\n    data: str = ""'): (
        "has a field data, which is a key of every problem"
    ),
    ("my_problem.py", "ridge: float", 'ridge: "Missing"'): (
        "has no usable type: NameError: name 'Missing' is not defined"
    ),
    ("my_problem.py", "    def sizes", "    def for_data(self, facts): return 3\n\n    def sizes"): (
        "makes int"
    ),
    ("my_problem.py", "    def sizes", "    def for_data(self, facts): return 1 / 0\n\n    def sizes"): (
        "fails: ZeroDivisionError: division by zero"
    ),
    ("my_problem.py", "    def sizes", "    def terms(self): ...\n\n    def sizes"): (
        "lacks p, q, reads_records, prepare, losses, accuracy, which a whole problem that clips by itself "
        "has"
    ),
    ("my_problem.py", "    upper_grad_y =", "    del lower_grad_y  #"): "which has slopes",
    # Objectives.
    ("my_objective.py", "def slopes", "def slope"): "which has slopes",
    ("my_objective.py", "return self.cap", "return -1.0"): (
        "radius_y gives -1, wanted a finite number above 0"
    ),
    ("my_objective.py", "return self.cap", "return np.inf"): "radius_y gives inf, wanted a finite",
    ("my_objective.py", "return by_output[:, None],", "return None\n        return 0,"): (
        "TypeError: 'NoneType' object is not subscriptable"
    ),
    # Graphs.
    ("my_graph.py", "return nx.connected_caveman_graph(agents // size, size)", "return None"): (
        "my_graph:caveman gives NoneType"
    ),
    ("my_graph.py", "agents // size, size", "agents // size, 1"): "NetworkXError: The size of cliques in a connected",
    ("my_graph.py", "return nx.conn", "g = nx.cycle_graph(agents); g.add_edge(0, 0); return g\n    return nx.conn"): (
        'my_graph:caveman: edge 0 – 0: a self loop at "0". Fix: remove it'
    ),
    ("my_graph.py", "return nx.conn", "return nx.empty_graph(agents)\n    return nx.conn"): (
        "this graph has 6 components"
    ),
    ("my_graph.py", "def caveman", "caveman = [(0, 1)]\n\n\ndef other"): (
        "topology.size: my_graph:caveman is an object"
    ),
    ("my_graph.py", "size: int = 3", 'size: "Missing" = 3'): (
        "what my_graph:caveman takes cannot be told: NameError"
    ),
    # Records.
    ("my_data.py", "return features, labels", "return None"): "my_data:load gives no records",
    ("my_data.py", "return features, labels", "features[3] = np.nan; return features, labels"): (
        "row 4, column 'feature_0' holds no finite number"
    ),
    ("my_data.py", "return features, labels", "return 1j * features, labels"): "that are no table of numbers",
    ("my_data.py", "return features, labels", 'return {"features": features, "labels": labels, "classes": 2}'): (
        "'my_data:load' gives classes as int; wanted a list"
    ),
    ("my_data.py", "return features, labels", 'return {"features": features, "labels": labels, "image": 2}'): (
        "gives image as int; wanted a list"
    ),
    ("my_data.py", "return features, labels", 'return {"features": features, "labels": labels, "feature_names": 2}'): (
        "gives feature_names as int; wanted a list"
    ),
    ("my_data.py", "return features, labels", 'return dict(features=features, labels=labels, classes=[1, 0])'): (
        "problem.classes: my_data:load has the classes [1, 0], got [0, 1]. Leave it out."
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED, ids=[f"{file}: {new}" for file, _, new in REFUSED])
def test_what_is_wrong_is_refused(folder: Path, change: Change) -> None:
    assert REFUSED[change] in refusal(folder, *change)


LATER: dict[Change, str] = {
    ("my_problem.py", "return self.ridge * (y - x), ", "1 / 0"): "ZeroDivisionError: division by zero",
    ("my_problem.py", "return self.ridge * (y - x), ", "return y[:2], z, z"): (
        "my_problem:HuberPull: regulariser gives shapes [(2,), (30,), (30,)]"
    ),
    ("my_objective.py", "return np.clip(y, 0.0, 1.0)", "1 / 0"): (
        "my_objective:WorseClass: project_y does not run: ZeroDivisionError: division by zero"
    ),
    ("my_objective.py", "return np.clip(y, 0.0, 1.0)", "return np.zeros(3)"): (
        "my_objective:WorseClass: project_y gives shape (3,)"
    ),
}


@pytest.mark.parametrize("change", LATER, ids=[f"{file}: {new}" for file, _, new in LATER])
@pytest.mark.usefixtures("undrawn")
def test_what_is_wrong_in_a_later_round_ends_the_run(folder: Path, change: Change) -> None:
    """Something was released: the run has failed, and the scenario is sound."""
    file, old, new = change
    path, flag = folder / file, folder / "later"
    later = f"if Path({str(flag)!r}).exists():\n            {new}\n        {old}"
    text = path.read_text(encoding="utf-8").replace("import numpy", "from pathlib import Path\n\nimport numpy", 1)
    path.write_text(text.replace(old, later, 1), encoding="utf-8")

    def reached(at: Progress) -> None:
        if at.done == 3:
            flag.touch()

    scenario = load(folder / OF_FILE[file][0], ["run.evaluate_every=1"])
    with pytest.raises(UserCodeError) as ended:
        decentral_dp.run(scenario, out=folder / "out", callbacks=[reached])
    said = str(ended.value)
    assert re.match(r"round [45]: ", said)
    assert "may have been released, and is on record in" in said
    assert LATER[change] in said
    assert json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["status"] == "failed"


@pytest.mark.parametrize(("table", "own"), [("problem", "threshold"), ("algorithm", "y")])
@pytest.mark.parametrize("kind", ["nobody", "folder:Name", "my_data.py", "my_data.py:load"])
def test_a_kind_that_nobody_has_is_refused_before_the_keys_beside_it(
    folder: Path, table: str, own: str, kind: str
) -> None:
    content: dict[str, Any] = decentral_dp.load(folder / "huber.toml").model_dump(exclude_unset=True)
    content[table] |= {"kind": kind, own: 1.0 if own == "threshold" else {"scale": 1.0}, "speed": 2.0}
    with pytest.raises(InputError, match=rf"^{table}\.kind: "):
        build(decentral_dp.load(content, folder=folder))
