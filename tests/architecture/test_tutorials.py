"""The tutorials run completely, as notebooks if Jupyter is installed, else as scripts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Runs a notebook in a kernel of this interpreter.
KERNEL = """
import sys, nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
nbformat.validate(notebook)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
"""
# A script shows no objects, so that their views are called.
SHOWN = """
for shown in list(globals().values()):
    view = getattr(type(shown), "_repr_html_", None)
    if type(shown).__module__.startswith("decentral_dp") and callable(view):
        assert view(shown).startswith("<div>")
"""


def cells(path: Path, kind: str) -> list[str]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def test_each_notebook_is_listed() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    assert all(f"({path.name})" in listed for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_explains_itself_and_keeps_no_outputs(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert cells(path, "markdown")[0].startswith("# ")
    assert all(cell["outputs"] == [] for cell in content["cells"] if cell["cell_type"] == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    scripted = "\n\n".join([*cells(path, "code"), SHOWN])
    as_notebook = all(importlib.util.find_spec(name) for name in ("nbclient", "nbformat", "ipykernel"))
    done = subprocess.run(
        [sys.executable, "-c", KERNEL, str(path)] if as_notebook else [sys.executable, "-c", scripted],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_code_of_the_page_on_arrays_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (FOLDER / "python_arrays.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert len(names["table"]) == 12
    assert names["accuracy"](names["loaded"].released) > 0.9
    assert names["run"].result.rounds < 300
