"""A problem of the package is one file: nothing else names it, and a scenario runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "decentral_dp"
TOY = '''"""A mean that is pulled toward the upper variable, and scaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from typing_extensions import Doc
from decentral_dp.files.tables import Positive
from decentral_dp.problems.bilevel.means import MeanEstimation
from decentral_dp.problems.bilevel.linear import Ridge
from decentral_dp.problems.entry import ProblemEntry, ProblemFacts


@dataclass(frozen=True)
class Stretched(MeanEstimation):
    """The mean of records that are stretched by a public factor."""

    ridge: Ridge = 0.1
    stretch: Annotated[Positive, Doc("Public factor of every record.")] = 1.0

    def prepare(self, features, labels, norm):
        return MeanEstimation.prepare(self, self.stretch * features, labels, norm)


ENTRY = ProblemEntry(
    "stretched", Stretched, "the mean of stretched records", task="stretched and averaged", labels="classes"
)
'''
SCENARIO = {
    "seed": 1,
    "problem": {"kind": "stretched", "stretch": 0.5, "data": "breast_cancer", "scale": "public_ranges"},
    "topology": {"kind": "ring", "agents": 4},
    "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": {"scale": 0.1}, "y": {"scale": 0.1}, "z": {"scale": 0.1}},
    "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 1.0, "z": 1.0}},
}
ASKED = """
import json, sys
import decentral_dp
from decentral_dp.cli.describe import describe, registries
from decentral_dp.errors import InputError

content = json.loads(sys.argv[1])

def refused(**problem):
    try:
        decentral_dp.plan(content | {"problem": content["problem"] | problem})
    except InputError as error:
        return str(error)

run = decentral_dp.run(content)
result = run.result
print(json.dumps({
    "line": registries(titles=False)["problems"]["stretched"],
    "keys": [key.name for key in describe("problems", "stretched").keys],
    "epsilon": result.privacy.epsilon_max,
    "lead": " ".join(run._repr_html_().split()),
    "bound": refused(stretch=-1.0),
    "unread": refused(kind="mean_estimation"),
}))
"""


def test_one_file_is_a_problem(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("*.pyc")
    shutil.copytree(PACKAGE, tmp_path / "decentral_dp", copy_function=os.symlink, ignore=left_out)
    (tmp_path / "scenarios").symlink_to(PACKAGE.parent / "scenarios")
    (tmp_path / "decentral_dp" / "problems" / "bilevel" / "stretched.py").write_text(TOY, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASKED, json.dumps(SCENARIO)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["line"] == "the mean of stretched records"
    assert found["keys"] == ["ridge", "stretch"]
    assert 0.0 < found["epsilon"] <= 4.0
    assert "stretched and averaged" in found["lead"]
    assert found["bound"] == "problem.stretch: got -1.0, wanted a number above 0."
    assert found["unread"] == "problem.stretch: mean_estimation takes none, only stretched. Leave it out."
