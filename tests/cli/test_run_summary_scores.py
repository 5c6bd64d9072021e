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


def test_what_was_asked_for_and_could_not_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(printed, "console", lambda: Console(file=said, width=200))
    asked = {"algorithm.rounds": 2, "run.measures": ["test_auc", "test_brier", "consensus_x"]}
    printed.print_run(decentral_dp.run("gossip_sgda", set=asked))
    assert "Not measured, for this run has none: test_brier (run.measures)." in said.getvalue().splitlines()
