"""Processor time of whole commands, against importing the libraries that they cannot do without."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LIBRARIES = "import numpy, scipy.special, pydantic, typer, rich.table"
PICTURES = f"{LIBRARIES}, pandas, pyarrow.parquet, matplotlib.figure, matplotlib.backends.backend_agg"


def _seconds(arguments: list[str], folder: Path) -> float:
    """Processor time of a process, user and system: the least of five."""
    best = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Bytecode is kept, as it is where nobody forbids it.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


@pytest.mark.parametrize(
    ("command", "libraries", "limit"),
    [
        (["--help"], LIBRARIES, 1.0),
        (["plan", "ring_breast_cancer"], LIBRARIES, 3.0),
        (["run", "ring_breast_cancer"], PICTURES, 4.0),
    ],
    ids=["help", "plan", "run"],
)
def test_a_command_against_its_imports(
    command: list[str], libraries: str, limit: float, benchmark: Any, tmp_path: Path
) -> None:
    ours = _seconds(["-m", "decentral_dp.cli", *command], tmp_path)
    floor = _seconds(["-c", libraries], tmp_path)
    benchmark.extra_info["ratio"] = round(ours / floor, 2)
    print(f"\n{command[0]}: {ours:.2f} s of processor time, {ours / floor:.2f} × its libraries (at most {limit:g})")
    benchmark.pedantic(lambda: None, rounds=1)
    assert ours / floor <= limit
