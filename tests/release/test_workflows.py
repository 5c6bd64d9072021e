"""Workflows, hooks and forms that others run: what they call is here, and they are well formed."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Installed by a step of the workflow itself.
INSTALLED = {"pip", "build", "cibuildwheel"}


def steps(path: Path) -> list[dict[str, Any]]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    assert {"name", True, "permissions", "jobs"} <= set(content)
    assert all(job["timeout-minutes"] <= 90 for job in content["jobs"].values())
    return [step for job in content["jobs"].values() for step in job["steps"]]


def test_there_are_tests_wheels_and_the_site() -> None:
    assert [path.stem for path in WORKFLOWS] == ["docs", "tests", "wheels"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_of_a_workflow_is_there(path: Path) -> None:
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    for command in commands:
        first, *rest = command.split()
        if first == "python":
            assert rest[0] == "-m"
            name = rest[1]
            assert name in INSTALLED or importlib.util.find_spec(name) is not None, command
        else:
            assert (ROOT / first).stat().st_mode & 0o100, command


def test_the_versions_tried_are_those_of_the_package() -> None:
    texts = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stated = set(re.findall(r"Programming Language :: Python :: (3\.\d+)", project))
    assert stated <= set(re.findall(r"3\.\d+", texts))


def test_hooks_call_what_the_gate_calls() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert {hook["entry"].split()[0] for hook in hooks} == {"ruff", "mypy", "python"}
    assert all(hook["language"] == "system" for hook in hooks)
    for hook in hooks:
        for word in hook["entry"].split():
            assert not word.startswith("tests/") or (ROOT / word).is_file(), word
    assert shutil.which("ruff") or importlib.util.find_spec("ruff")
