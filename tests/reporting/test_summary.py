"""Every place that prints the ε of a run prints what it depends on: certainty, δ, adjacency, adversary, simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import decentral_dp
from decentral_dp.cli.run import write_predictions
from tests.support.run_folders import read_page

FEW: dict[str, Any] = {"algorithm.rounds": 2, "run.evaluate_every": 2}
# Changes of `dp_dsgd` → texts that its summary holds, and texts that it does not hold.
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "seeded": ({}, ("certified", "δ = ", "replace one record of one agent", "all messages", "SIMULATION"), ("secret",)),
    "secret": ({"seed": None}, ("certified", "Noise: secret"), ("SIMULATION",)),
    "none": ({"privacy.guarantee": "none"}, ("none", "ε = ∞"), ("certified", "SIMULATION")),
    "server": ({"algorithm.kind": "central"}, ("trusted server publishes",), ("all messages",)),
    "zeroed": ({"privacy.neighbours": "zero_out"}, ("zero out one record",), ("replace",)),
    "group": ({"privacy.unit": 2}, ("replace any 2 records of one agent",), ("one record",)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_summary_states_the_threat_model_on_every_output(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, present, absent = CASES[case]
    run = decentral_dp.run("classification", set=FEW | changes, out=tmp_path / "run")
    summary = run.result.privacy.summary
    assert not [text for text in present if text not in summary]
    assert not [text for text in absent if text in summary]
    assert decentral_dp.build("classification", set=FEW | changes).plan().privacy.summary == summary
    assert summary in repr(run.result)
    assert summary in " ".join(str(decentral_dp.plan("classification", set=FEW | changes)).split())
    assert summary in " ".join(read_page(tmp_path / "run" / "report.html").text.split())


@pytest.mark.parametrize("case", ["seeded", "secret", "none"])
def test_predictions_never_claim_more_than_the_run(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = decentral_dp.run("classification", set=FEW | CASES[case][0], out=tmp_path / "run")
    rows = run.simulation().components.data.make(5, True).features[:3]
    pd.DataFrame(rows, columns=list(run.model.features)).to_csv(tmp_path / "new.csv", index=False)
    write_predictions(tmp_path / "run", tmp_path / "new.csv", tmp_path / "predictions.csv")
    assert run.result.privacy.summary in capsys.readouterr().out


def test_audits_and_attacks_state_the_guarantee(tmp_path: Path) -> None:
    run = decentral_dp.run("classification", set=FEW, out=tmp_path / "run")
    audit = decentral_dp.audit("classification", set=FEW, runs=20)
    assert audit.privacy == run.result.privacy.summary
