"""The core without torch and ray, which are optional: other parts name the missing package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from decentral_dp.errors import InputError, needing

# Runs commands without torch and ray.
WITHOUT = """
import importlib.metadata, json, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
version = importlib.metadata.version

def known(name):
    if name in ("torch", "ray"):
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.metadata.version = known
from typer.testing import CliRunner
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError

done = []
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(app, command)
    refused = isinstance(result.exception, InputError)
    done.append([2 if refused else result.exit_code, str(result.exception) if refused else result.output])
assert not {"torch", "ray"} & set(sys.modules)
print(json.dumps(done))
"""


def test_the_core_needs_neither_and_other_parts_name_them(tmp_path: Path) -> None:
    few = ["--set", "algorithm.rounds=2"]
    page = (Path(__file__).parents[2] / "docs" / "index.md").read_text(encoding="utf-8")
    first = [["plan", name] for name in re.findall(r"^\|.*`decentral-dp run (\w+)`", page, re.MULTILINE)]
    assert len(first) > 3
    commands = [
        *first,
        ["list"],
        ["list", "auc_digits"],
        ["plan", "ring_breast_cancer"],
        ["run", "ring_breast_cancer", *few, "--out", "gossip"],
        ["run", "dp_sgda", *few, "--out", "minimax"],
        ["network", "network_view"],
        ["plan", "auc_digits"],
        ["run", "own_losses", "--out", "losses"],
        ["run", "ring_breast_cancer", *few, "--set", "run.engine=ray", "--out", "cluster"],
        ["study", "table_1", "--address", "auto", "--out", "cells"],
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT, json.dumps(commands)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [code for code, _ in told] == [0] * (len(first) + 6) + [2] * 4, told
    for (_, output), extra in zip(told[-4:], ("torch", "torch", "ray", "ray"), strict=True):
        assert f'pip install "decentral_dp[{extra}]"' in output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gossip", "minimax"]
    versions = json.loads((tmp_path / "gossip" / "result.json").read_text(encoding="utf-8"))["versions"]
    assert "numpy" in versions
    assert not {"torch", "ray"} & set(versions)


# Dependencies of a run without a folder, and the packages that they import. threadpoolctl fixes the number of BLAS
# threads, and so the last bits. numpy imports charset_normalizer if it is installed.
LIGHT = {
    *("numpy", "scipy", "pydantic", "cryptography", "threadpoolctl", "decentral_dp"),
    *("pydantic_core", "typing_extensions", "typing_inspection", "annotated_types", "cffi", "charset_normalizer"),
}
# Bilevel and one-level gossip, coordinators of each kind, correlated noise, compression.
FOLDERLESS = ("ring_breast_cancer", "classification", "dp_bilevel", "dp_sgda", "pp_ift", "shared_noise", "choco")
RUNS = """
import json, sys

before = set(sys.modules)
import decentral_dp

for name in json.loads(sys.argv[1]):
    # Changed keys in Python pass through tomli_w.
    run = decentral_dp.run(decentral_dp.config.loading.load_scenario(name, ["algorithm.rounds=2"]))
    assert run.result.status == "ok"
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def test_a_run_without_a_folder_loads_light_libraries_only() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNS, json.dumps(FOLDERLESS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    of_name = packages_distributions()
    loaded = {of_name[name][0].replace("-", "_") for name in json.loads(done.stdout) if name in of_name}
    assert {"numpy", "scipy", "pydantic"} <= loaded <= LIGHT


def test_other_missing_modules_are_no_extras() -> None:
    with pytest.raises(ModuleNotFoundError), needing("anything"):
        raise ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere")
    wanted = r'^from_losses: torch is not installed; pip install "decentral_dp\[torch\]" brings it\.$'
    with pytest.raises(InputError, match=wanted), needing("from_losses"):
        raise ModuleNotFoundError("No module named 'torch.func'", name="torch.func")


WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
import numpy as np
from typer.testing import CliRunner
import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.estimators import DecentralisedClassifier

few = {"algorithm.rounds": 2}
assert decentral_dp.run("quadratic", set=few).result.status == "ok"
for command in (["list"], ["plan", "ring_breast_cancer"], ["list", "quadratic"]):
    assert CliRunner().invoke(app, command).exit_code == 0, command
assert len(decentral_dp.study({"scenario": "quadratic", "kind": "plan", "measure": ["rounds"],
                               "grid": {"algorithm.rounds": [1, 2]}}, workers=1).summary) == 2
try:
    decentral_dp.run("quadratic", set=few, out="run")
except decentral_dp.InputError as error:
    print(error)
"""


def test_a_system_without_file_locks_has_no_run_folders(tmp_path: Path) -> None:
    """Windows has no fcntl."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_LOCKS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "run folders need file locks" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert not list(tmp_path.iterdir())
