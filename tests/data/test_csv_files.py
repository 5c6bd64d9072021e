"""CSV files and frames: formats, missing headers and values, indices and damage. No error prints a cell."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.cli.new import write_template
from decentral_dp.config.loading import load_scenario
from decentral_dp.data import Dataset, load_dataset
from decentral_dp.data.columns import ColumnRules
from decentral_dp.data.tables import csv_format
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job as build

SCENARIO: dict[str, Any] = {
    "problem": {"kind": "classification", "label": "out", "classes": ["no", "yes"], "scale": {"*": [18, 90]}},
    "topology": {"kind": "ring", "agents": 3},
    "algorithm": {"rounds": 3},
    "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5},
}


def read(path: Path, **options: Any) -> Dataset:
    return load_dataset(str(path), **({"label": "out", "classes": ["no", "yes"], "n_agents": 2, "seed": 0} | options))


def written(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "mine.csv"
    path.write_bytes(text.encode(encoding))
    return path


def refusal(call: Callable[[], Any]) -> str:
    """The message; errors that it came from, which Python prints as well, quote no cell of these tests."""
    with pytest.raises(InputError) as refused:
        call()
    whole = "".join(traceback.format_exception(refused.value))
    assert [line for line in whole.splitlines() if "Error: " in line and any(cell in line for cell in CELLS)] == []
    return str(refused.value)


# Formats

TABLE = pd.DataFrame({"größe": [1.5, -2.25, 1e-3], "ward": ["süd", "nord, ost", "süd"], "bmi": ["27,5", "", "31"]})


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_file_in_another_format_holds_the_same_records(separator: str, encoding: str, tmp_path: Path) -> None:
    frame = TABLE.assign(out=["no", "yes", "no"])
    path = tmp_path / "mine.CSV"
    frame.to_csv(path, index=False, sep=separator, decimal=",", encoding=encoding)
    rules = ColumnRules(categories={"ward": ["süd", "nord, ost"]}, fill={"bmi": 30})
    found = read(path, rules=rules, csv=csv_format(separator, ",", encoding))
    assert found.features.tolist() == [[1.5, 1, 0, 27.5], [-2.25, 0, 1, 30], [1e-3, 1, 0, 31]]
    assert found.labels.tolist() == [0, 1, 0]
    with pytest.raises(InputError, match=r"keys separator, decimal and encoding"):
        read(path, rules=rules)


def test_a_point_is_no_decimal_mark_where_a_comma_is(tmp_path: Path) -> None:
    """Read as 1.08, a number of thousands would be another one."""
    path = written(tmp_path, "a;b;out\n1,5;1.080;no\n2,5;3;yes\n")
    said = refusal(lambda: read(path, csv=csv_format(";", ",", None)))
    assert "row 1, column 'b' does not hold a finite number" in said
    numbers = written(tmp_path, "a;out\n1;0,5\n2;-1,25\n")
    assert read(numbers, classes=[], csv=csv_format(";", ",", None)).labels.tolist() == [0.5, -1.25]


def test_a_model_reads_new_records_in_the_format_of_the_scenario(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    age = draw.uniform(18, 90, 90).round(1)
    frame = pd.DataFrame({"age": age, "out": np.where(age > 50, "yes", "no")})
    frame.to_csv(tmp_path / "mine.csv", index=False, sep=";", decimal=",", encoding="latin-1")
    problem = SCENARIO["problem"] | {"data": "mine.csv", "separator": ";", "decimal": ",", "encoding": "latin-1"}
    content = {"seed": 1} | SCENARIO | {"problem": problem}
    run = decentral_dp.run(load_scenario(content, folder=tmp_path))
    assert run.model.predict(tmp_path / "mine.csv").tolist() == run.model.predict(frame).tolist()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"separator": ";;"}, r"problem\.separator: got .* expected one character"),
        ({"decimal": "5"}, r"problem\.decimal: got"),
        ({"encoding": "latin-99"}, r"problem\.encoding: got .* expected a text encoding"),
    ],
)
def test_formats_that_no_file_has_are_refused(keys: dict[str, str], said: str, tmp_path: Path) -> None:
    written(tmp_path, "age,out\n20,no\n30,yes\n")
    problem = SCENARIO["problem"] | {"data": "mine.csv"} | keys
    with pytest.raises(InputError, match=said):
        decentral_dp.build(load_scenario(SCENARIO | {"problem": problem}, folder=tmp_path))


# No message quotes a cell

RECORDS = {
    "numbers": "777.123,0.5,no\n18,3.5,yes\n",
    "one number": "secret_a,secret_b,777,no\nc,d,8,yes\n",
    "a date": "secret_a,secret_b,2020-01-17,no\nc,d,2020-01-18,yes\n",
    "a gap": "secret_a,secret_b,,no\nc,d,e,yes\n",
    "equal cells": "secret_a,secret_a,secret_b,no\nc,d,e,yes\n",
    "semicolons": "777.123;secret_a;secret_b;no\n1;c;d;yes\n",
    "words": "secret_a,secret_b,secret_c,no\nc,d,e,yes\n",
    "similar words": "outs,secret_b,secret_c,no\nc,d,e,yes\n",
}
CELLS = ("777", "secret", "2020-01-17", "77%", "crimson", "outs")


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("label", ["out", None])
def test_a_file_without_a_header_has_its_first_record_in_no_message(
    kind: str, label: str | None, tmp_path: Path
) -> None:
    path = written(tmp_path, RECORDS[kind])
    content = SCENARIO | {"problem": SCENARIO["problem"] | {"data": "mine.csv", "label": label}}
    if label is None:
        del content["problem"]["label"]
    frame = pd.read_csv(path)
    texts = [
        refusal(lambda: read(path, label=label)),
        refusal(lambda: decentral_dp.build(load_scenario(content, folder=tmp_path))),
        refusal(lambda: write_template(tmp_path / "new.toml", data=str(path), label=label, classes="no,yes")),
        refusal(lambda: decentral_dp.build({**content, "problem": {**content["problem"], "data": "x"}}, data=frame)),
    ]
    assert [(text, cell) for text in texts for cell in CELLS if cell in text] == []
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.parametrize("kind", sorted(set(RECORDS) - {"semicolons"}))
def test_a_record_is_no_header_though_a_cell_is_called_like_the_label(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, RECORDS[kind])
    texts = [
        refusal(lambda: read(path, label="no")),
        refusal(lambda: write_template(tmp_path / "new.toml", data=str(path), label="no", classes="no,yes")),
    ]
    assert [(text, cell) for text in texts for cell in CELLS if cell in text] == []
    assert not (tmp_path / "new.toml").exists()


@pytest.mark.parametrize("scale", [{"ward": [0, 1]}, {"*": [1, 0]}, {"age": [0, 1]}, {"*": [0, 1], "crimsom": [0, 1]}])
def test_ranges_of_a_file_without_a_header_print_no_cell_that_they_do_not_name(
    scale: dict[str, list[int]], tmp_path: Path
) -> None:
    written(tmp_path, "ward,crimson,no\n" + "1,2,yes\n3,4,no\n" * 20)
    problem = SCENARIO["problem"] | {"data": "mine.csv", "label": "no", "scale": scale, "classes": ["no", "yes"]}
    said = refusal(lambda: build(load_scenario(SCENARIO | {"problem": problem}, folder=tmp_path)))
    assert "problem.scale" in said
    assert "crimson" not in said


def test_new_records_without_a_header_have_none_in_the_message(tmp_path: Path) -> None:
    model = decentral_dp.run("classification", set={"algorithm.rounds": 2}).model
    for text in RECORDS.values():
        said = refusal(lambda text=text: model.predict(written(tmp_path, text)))
        assert [cell for cell in CELLS if cell in said] == []


@pytest.mark.parametrize("cell", ["1,080.5", "12%", "$5", "1 080", "0,5", "secret", "777,5"])
def test_a_number_written_otherwise_is_refused_without_its_cell(cell: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'weight,out\n"{cell}",no\n70,yes\n')
    said = refusal(lambda: read(path))
    assert "row 1, column 'weight' does not hold a finite number. Fix: write numbers as 1080.5" in said
    assert cell not in said.replace("1080.5", "")


def test_a_label_that_is_alone_is_not_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, "a,out\n1,secret\n2,secret\n")
    assert "secret" not in refusal(lambda: read(path, classes=None, certified=False))


# Gaps

GAPS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "None": lambda f: f.out.where(f.index != 5, None),
    "NaN in objects": lambda f: f.out.astype(object).where(f.index != 5, np.nan),
    "category": lambda f: f.out.where(f.index != 5).astype("category"),
    "boolean": lambda f: pd.array([None if k == 5 else bool(k % 2) for k in range(len(f))], dtype="boolean"),
    "Int64": lambda f: pd.array([None if k == 5 else k % 2 for k in range(len(f))], dtype="Int64"),
    "floats": lambda f: np.where(f.index == 5, np.nan, f.index % 2),
    "dates": lambda f: pd.Series(pd.Timestamp("2020-01-01"), f.index).where(f.index != 5),
}


@pytest.mark.parametrize("kind", GAPS)
@pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
def test_a_gap_in_a_label_is_refused_by_one_sentence(kind: str, form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": np.linspace(18, 90, 40), "out": np.where(np.arange(40) % 2, "yes", "no")})
    frame = frame.assign(out=GAPS[kind](frame))
    if form == "frame":
        said = refusal(lambda: decentral_dp.build(SCENARIO, data=frame))
    else:
        path = tmp_path / f"mine.{form}"
        getattr(frame, f"to_{form}")(path, index=False)
        said = refusal(lambda: read(path))
    assert ", row 6, column 'out' does not hold a value" in said


@pytest.mark.parametrize("masked", ["features", "labels", "agent"])
def test_masked_arrays_are_refused(masked: str) -> None:
    arrays: dict[str, Any] = {"features": np.ones((6, 2)), "labels": np.arange(6) % 2, "agent": np.arange(6) % 3}
    arrays[masked] = np.ma.masked_array(arrays[masked], mask=np.zeros(arrays[masked].shape, dtype=bool))
    content = SCENARIO | {"problem": {"kind": "classification", "classes": [0, 1], "scale": {"*": [0, 2]}}}
    with pytest.raises(InputError, match="masked array"):
        decentral_dp.build(content, data=arrays)


# The index that pandas writes


@pytest.mark.parametrize("form", ["csv", "unnamed", "parquet"])
def test_a_row_number_is_no_feature(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [20.0, 30.0, 40.0, 50.0], "out": ["no", "yes", "no", "yes"]}, index=[4, 7, 8, 9])
    path, name = tmp_path / "mine.csv", ""
    frame.to_csv(path)
    if form == "unnamed":
        name = "Unnamed: 0"
        pd.read_csv(path).to_csv(path, index=False)
    elif form == "parquet":
        path, name = tmp_path / "mine.parquet", "__index_level_0__"
        frame.to_parquet(path)
    with pytest.raises(InputError, match=r"Fix: set problem\.columns\.drop = "):
        read(path)
    assert read(path, rules=ColumnRules(drop=[name])).feature_names == ("age",)
    given = {"data": str(path), "label": "out", "classes": "no,yes", "agents": 3}
    write_template(tmp_path / "new.toml", **given, changes=[f"problem.columns.drop={json.dumps([name])}"])
    scenario = load_scenario(tmp_path / "new.toml")
    assert scenario.problem.columns is not None
    assert scenario.problem.columns.drop == [name]
    assert build(load_scenario(scenario, ["problem.test=0.0"])).shards.feature_names == ("age",)


# Other files


# Damage


def test_odd_frames_are_read_or_refused() -> None:
    draw, outcomes = np.random.default_rng(13), set()
    cells = [None, np.nan, pd.NA, pd.NaT, "", " ", "x", 1, -2.5, True, 1 + 2j, b"x", [1], {}, 10**400, np.inf]
    cells += [dt.date(2020, 1, 1), pd.Timestamp("2020-01-01"), decimal.Decimal("1.5"), np.float32(2), object()]
    for _ in range(60):
        columns: list[list[Any]] = [np.linspace(18, 90, 12).tolist(), ["no", "yes"] * 6]
        for _ in range(int(draw.integers(0, 4))):
            columns[int(draw.integers(2))][int(draw.integers(12))] = cells[int(draw.integers(len(cells)))]
        frame = pd.DataFrame({k: pd.Series(c, dtype=object) for k, c in zip(("age", "out"), columns, strict=True)})
        data = frame if draw.random() < 0.5 else (frame[["age"]], frame["out"].to_numpy())
        problem = (
            SCENARIO["problem"] if data is frame else {k: v for k, v in SCENARIO["problem"].items() if k != "label"}
        )
        try:
            decentral_dp.build(SCENARIO | {"problem": problem}, data=data)
        except InputError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert outcomes == {"read", "refused"}
