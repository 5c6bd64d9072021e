"""The scores at the end of a run: whatever reads records is said to."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import decentral_dp
from decentral_dp.cli import run as printed


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgda"])
def test_the_end_of_a_run_says_what_reads_private_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(printed, "console", lambda: Console(file=said, width=200))
    printed.print_run(decentral_dp.run(name, set={"algorithm.rounds": 2}))
    lines = said.getvalue().splitlines()
    note = lines.index("These numbers read private data, the simulator's view: no ε covers them.")
    private = [k for k, line in enumerate(lines) if line.startswith(("test_a", "Always", "Records that a clip"))]
    assert private
    assert max(private) < note
