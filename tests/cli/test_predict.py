"""`decentral-dp predict` writes the predictions of new records, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.errors import InputError

BREAST = {"algorithm.rounds": 5}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    run = decentral_dp.run("classification", set=BREAST, out=folder / "run")
    rows = run.simulation().components.data.make(5, True).features[:40]
    pd.DataFrame(rows, columns=list(run.model.features)).assign(label="benign").to_csv(folder / "new.csv", index=False)
    return folder / "run"


def _command(*words: object) -> str:
    said = CliRunner().invoke(app, [str(word) for word in words])
    if said.exception is not None:
        raise said.exception
    return " ".join(said.output.split())


def test_predictions_are_those_of_the_model(run: Path, tmp_path: Path) -> None:
    new, model = run.parent / "new.csv", decentral_dp.load_model(run)
    for options, chosen in (((), model), (("--agent", 2), model.of_agent(2))):
        out = tmp_path / f"said{len(options)}.csv"
        said = _command("predict", run, new, "--out", out, *options)
        assert "40 predictions by " in said
        assert "certified: ε = 4.00 at δ = " in said
        written = pd.read_csv(out)
        assert list(written.columns) == ["prediction", "probability_malignant", "probability_benign"]
        assert written["prediction"].tolist() == chosen.predict(new).tolist()
        np.testing.assert_allclose(written.iloc[:, 1:].to_numpy(), chosen.predict_proba(new), rtol=1e-12)


def test_predictions_are_never_overwritten_or_partial(run: Path, tmp_path: Path) -> None:
    out, new = tmp_path / "said.csv", run.parent / "new.csv"
    out.write_text("mine")
    with pytest.raises(decentral_dp.InputError, match="already exists"):
        _command("predict", run, new, "--out", out)
    assert out.read_text() == "mine"
    frame = pd.read_csv(new).astype({"mean area": object})
    frame.loc[39, "mean area"] = "big"
    frame.to_csv(tmp_path / "wrong.csv", index=False)
    with pytest.raises(decentral_dp.InputError, match="row 40, column 'mean area'"):
        _command("predict", run, tmp_path / "wrong.csv", "--out", tmp_path / "other.csv")
    with pytest.raises(decentral_dp.InputError, match=r"--out: there is no folder .*none"):
        _command("predict", run, new, "--out", tmp_path / "none" / "other.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"said.csv", "wrong.csv"}


def test_values_outside_the_declared_ranges_are_one_warning(run: Path, tmp_path: Path) -> None:
    frame, model = pd.read_csv(run.parent / "new.csv"), decentral_dp.load_model(run)
    other = frame.assign(**{"mean radius": 1e6, "mean texture": np.where(np.arange(40) < 30, -5.0, 20.0)})
    other.to_csv(tmp_path / "other.csv", index=False)
    said = _command("predict", run, tmp_path / "other.csv", "--out", tmp_path / "said.csv")
    assert said.count("Warning") == 1
    assert "mean radius 100%, mean texture 75%" in said
    with pytest.warns(UserWarning, match="mean radius 100%, mean texture 75%") as warned:
        model.predict(other)
    assert len(warned) == 1
    # By parts of a file as well.
    with pytest.warns(UserWarning, match="mean radius 100%, mean texture 75%"):
        model.predictions(tmp_path / "other.csv")
    assert "Warning" not in _command("predict", run, run.parent / "new.csv", "--out", tmp_path / "again.csv")


@pytest.mark.parametrize("text", ["A;B\n1;2\n", "größe,B\n1,2\n", 'A,B\n1,"2\n', "A,B\n1,2,3\n", "A,B\nx,2\n"])
def test_refusals_of_new_records_name_no_scenario_key(text: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"A": [1.0, 2.0] * 10, "B": [2.0, 3.0] * 10, "y": [0, 1] * 10})
    problem = {"kind": "classification", "data": "x.csv", "label": "y", "classes": [0, 1], "scale": {"*": [0, 4]}}
    content = {"seed": 1, "problem": problem, "topology": {"kind": "ring", "agents": 3}, "algorithm": {"rounds": 2}}
    content["privacy"] = {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5}
    model = decentral_dp.run(content, data=frame).model
    path = tmp_path / "new.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as refused:
        model.predict(path)
    said = str(refused.value)
    assert said.startswith("predict: ")
    assert "problem." not in said
    assert "--" not in said
