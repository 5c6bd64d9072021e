"""A few faults of each kind; `python -m tests.faults` injects any number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Kind → how many times.
FAULTS = {
    "local": 4,
    "actor": 2,
    "machine": 1,
    "nodes": 1,
}


@pytest.mark.parametrize(("kind", "times"), FAULTS.items())
def test_nothing_goes_wrong(kind: str, times: int) -> None:
    command = [sys.executable, "-m", "tests.faults", kind, "--times", str(times)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert f"| {kind} | {times} |" in process.stdout
