"""Every place that prints the ε of a run prints what it depends on: certainty, δ, adjacency, adversary, simulation."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import decentral_dp
from decentral_dp.cli.run import write_predictions
from decentral_dp.reporting.privacy import mechanism_text, summary_text
from decentral_dp.reporting.terminal import console, print_items
from tests.support.run_folders import read_page

FEW: dict[str, Any] = {"algorithm.rounds": 2, "run.evaluate_every": 2}
# Changes of `dp_dsgd` → texts that its summary holds, and texts that it does not hold.
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "seeded": ({}, ("certified", "δ = ", "replace one record of one agent", "all messages", "SIMULATION"), ("No s",)),
    "secret": ({"seed": None}, ("certified", "No seed."), ("SIMULATION",)),
    "none": ({"privacy.guarantee": "none"}, ("none", "ε = ∞"), ("certified", "SIMULATION")),
    "server": ({"algorithm.kind": "central"}, ("trusted server publishes",), ("all messages",)),
    "zeroed": ({"privacy.neighbours": "zero_out"}, ("zero out one record",), ("replace",)),
    "group": ({"privacy.unit": 2}, ("replace any 2 records of one agent",), ("one record",)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_summary_states_the_threat_model(case: str) -> None:
    changes, present, absent = CASES[case]
    plan = decentral_dp.plan("classification", set=FEW | changes)
    summary = summary_text(plan.privacy)
    assert not [text for text in present if text not in summary]
    assert not [text for text in absent if text in summary]
    assert summary in " ".join(str(plan).split())


def test_every_output_prints_the_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = decentral_dp.run("classification", set=FEW, out=tmp_path / "run")
    summary = summary_text(run.result.privacy)
    assert summary in repr(decentral_dp.build("classification", set=FEW).plan())
    assert summary in repr(run)
    assert summary in " ".join(read_page(tmp_path / "run" / "report.html").text.split())
    rows = run.simulation().components.data.make(5, True).features[:3]
    pd.DataFrame(rows, columns=list(run.model.features)).to_csv(tmp_path / "new.csv", index=False)
    write_predictions(tmp_path / "run", tmp_path / "new.csv", tmp_path / "predictions.csv")
    assert summary in capsys.readouterr().out
    assert decentral_dp.audit("classification", set=FEW, runs=20).privacy == summary


@pytest.mark.parametrize(
    ("scenario", "text"),
    [("dp_dsgd", "full batch"), ("dptd", "Poisson samples of rate 0.03"), ("soba", "Poisson samples of rate 0.1")],
)
def test_the_headline_states_the_sampling_of_the_planned_releases(scenario: str, text: str) -> None:
    plan = decentral_dp.plan(scenario, set={"algorithm.rate": 0.1} if scenario == "soba" else FEW)
    assert f"{plan.rounds} rounds, {text}\n" in str(plan)
    assert f" per agent, {plan.problem['records']['test']} held out" in " ".join(str(plan).split())


@pytest.mark.parametrize(
    ("scenario", "text"),
    [("tuning_pays", "clipping norm 1, noise"), ("ring_breast_cancer", "clipping norm y 1, z 1, noise")],
)
def test_equal_clipping_norms_of_channels_with_other_names_are_one_number(scenario: str, text: str) -> None:
    assert text in mechanism_text(decentral_dp.plan(scenario).privacy)


@pytest.mark.parametrize("width", range(24, 60))
def test_no_line_ends_between_a_variable_and_its_value(width: int) -> None:
    printed = io.StringIO()
    text = "Gaussian, noise multiplier x 9.12, y 31.7: ε = 4.00 at δ = 1e-5 for 10 agents."
    print_items(console(printed, width), [("Mechanism", text)])
    lines = printed.getvalue().splitlines()
    assert " ".join(line.removeprefix("Mechanism").strip() for line in lines) == text
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if line.endswith((" x", " y", "ε", "δ", "="))]
