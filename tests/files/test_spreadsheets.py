"""CSV files of commands have no cells that a spreadsheet would run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.cli.run import write_predictions
from decentral_dp.files.exports import escape_formulas

FORMULAS = ["=cmd|'/c calc'!A0", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("kind", [object, "category", "str"])
def test_text_that_is_a_formula_gets_an_apostrophe(formula: str, kind: object) -> None:
    frame = pd.DataFrame(
        {"name": pd.Series([formula, "no", "-1", "+2.5e3"], dtype=kind), formula: [-1.0, 2.0, 3.0, 4.0]}
    )
    safe = escape_formulas(frame)
    assert safe["name"].tolist() == [f"'{formula}", "no", "-1", "+2.5e3"]
    assert list(safe.columns) == ["name", f"'{formula}"]
    assert safe.iloc[:, 1].tolist() == [-1.0, 2.0, 3.0, 4.0]
    assert frame["name"].tolist()[0] == formula


def test_predictions_and_messages_hold_no_formula(tmp_path: Path) -> None:
    classes, agents = ["=1+1", "@no"], ["=a", "+b", "c"]
    frame = pd.DataFrame({"age": np.linspace(0, 1, 30), "out": classes * 15, "who": agents * 10})
    frame.to_csv(tmp_path / "mine.csv", index=False)
    problem = {
        "kind": "classification",
        "data": "mine.csv",
        "label": "out",
        "classes": classes,
        "scale": {"age": [0, 1]},
    }
    content = {
        "seed": 1,
        "problem": problem | {"partition": {"kind": "column", "name": "who", "agents": agents}},
        "topology": {"kind": "ring", "agents": 3},
        "algorithm": {"rounds": 2},
        "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
    }
    from decentral_dp.config.loading import load_scenario as load

    scenario = load(content, folder=tmp_path)
    decentral_dp.run(scenario, out=tmp_path / "run")
    write_predictions(tmp_path / "run", tmp_path / "mine.csv", tmp_path / "predictions.csv")
    cells = [cell for line in (tmp_path / "predictions.csv").read_text().splitlines() for cell in line.split(",")]
    assert [cell for cell in cells if cell.startswith(("=", "+", "@"))] == []
    assert "'=1+1" in (tmp_path / "predictions.csv").read_text()
