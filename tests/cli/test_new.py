"""Templates of scenarios: they load, explain every key, and are blind to the records of a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.new import parse_classes, parse_ranges, write_template
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.loading import toml_value
from decentral_dp.errors import InputError
from decentral_dp.files.package import shipped_folder
from decentral_dp.simulation.jobs.build import build_job as build

SHIPPED = shipped_folder("scenarios")
RECORDS = SHIPPED / "own_records.csv"
RANGES = ["age=18:98", "weight=40:140", "pressure=80:200", "pulse=40:120"]
MINE: dict[str, Any] = {"data": str(RECORDS), "label": "outcome", "classes": "no,yes", "ranges": RANGES, "agents": 4}


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_template_of_every_algorithm_is_planned(kind: str, tmp_path: Path) -> None:
    path = write_template(tmp_path / "new.toml", algorithm=kind)
    scenario = load(path)
    assert (scenario.algorithm.kind, scenario.seed) == (kind, None)
    plan = decentral_dp.plan(path)
    if scenario.privacy.guarantee == "certified" and scenario.privacy.epsilon is not None:
        assert max(plan.epsilon) <= scenario.privacy.epsilon


def test_it_runs_and_explains_every_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["algorithm.rounds=2", "topology.kind=complete", "privacy.delta=1e-6"]
    path = write_template(tmp_path / "new.toml", **MINE, epsilon=2.5, algorithm="ldp_dsbo", changes=changes)
    run = decentral_dp.run(path)
    assert run.result.status == "ok"
    assert run.result.privacy.epsilon_max == pytest.approx(2.5, abs=1e-3)
    assert (run.result.privacy.delta, run.result.rounds, run.result.topology["kind"]) == (1e-6, 2, "complete")
    lines = path.read_text().splitlines()
    keys = [k for k, line in enumerate(lines) if " = " in line and not line.startswith(("#", "title"))]
    ranges = lines.index("[problem.scale]")
    explained = [k for k in keys if lines[k - 1].startswith("# ") or ranges < k <= ranges + len(RANGES)]
    assert explained == keys != []
    assert "PLACEHOLDER" not in path.read_text()
    assert f"decentral-dp plan {path}" in capsys.readouterr().out


def test_weights_are_proposed_if_a_column_names_the_agents(tmp_path: Path) -> None:
    path = write_template(tmp_path / "new.toml", **MINE)
    assert "agent" in RECORDS.read_text().splitlines()[0].split(",")
    lines = path.read_text().splitlines()
    place = lines.index('weights = "sites"')
    assert "1.5" in " ".join(lines[place - 4 : place])
    bilevel = write_template(tmp_path / "bilevel.toml", **MINE, algorithm="ldp_dsbo")
    assert 'weights = "sites"' not in bilevel.read_text()


def test_no_record_changes_the_template(tmp_path: Path) -> None:
    header = RECORDS.read_text().splitlines()[0]
    texts = set()
    for name, record in (("a", "0,train,53,67.8,114,73,no"), ("b", "7,test,999,-1,0,5e9,maybe"), ("c", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.csv").write_text(f"{header}\n{record}\n")
        path = write_template(tmp_path / name / "new.toml", data=str(tmp_path / name / "mine.csv"), label="outcome")
        texts.add(path.read_text())
    (text,) = texts
    with pytest.raises(InputError, match=r'new\.toml" already exists\. Fix: use another name'):
        write_template(tmp_path / "a" / "new.toml")
    table = tomllib.loads(text)["problem"]
    assert list(table["scale"]) == ["age", "weight", "pressure", "pulse"]
    assert all(ends == {"low": 0, "high": 1, "placeholder": True} for ends in table["scale"].values())
    assert (table["classes"], table["data"]) == ([0, 1], "mine.csv")
    assert text.count("# PLACEHOLDER") == 5


def test_placeholders_are_named_by_every_plan_and_run(tmp_path: Path) -> None:
    changes = ["problem.kind=regression", "problem.columns.drop=['outcome']"]
    path = write_template(tmp_path / "new.toml", data=str(RECORDS), label="pulse", agents=4, changes=changes)
    (text,) = decentral_dp.plan(path).problem["warnings"]
    assert "Ranges that are still placeholders, [0, 1]: age, weight, pressure, problem.label_range" in text
    printed = str(decentral_dp.run(path, set={"algorithm.rounds": 2}))
    assert "Warning    Ranges that are still placeholders, [0, 1]: age" in printed


def test_columns_without_numbers_need_a_rule(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "patient,ward,in,dose,died\nMiller,north,2021-03-04,3,0\nMoore,burns,2021-03-09,4,1\n"
    )
    given: dict[str, Any] = {"data": str(tmp_path / "t.csv"), "label": "died", "agents": 2, "ranges": ["dose=0:10"]}
    with pytest.raises(InputError, match=r"no number in columns 1, 2 and 3\. Fix.*--sites") as refused:
        write_template(tmp_path / "new.toml", **given)
    assert not any(cell in str(refused.value) for cell in ("Miller", "north", "2021"))
    rules = ["drop=['patient']", "categories.ward=['north']", "date.in='2020-01-01:2022-01-01'"]
    path = write_template(tmp_path / "new.toml", **given, changes=[f"problem.columns.{rule}" for rule in rules])
    assert build(load(path)).shards.feature_names == ("ward=north", "in", "dose")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"label": "outcom"}, "has no column 'outcom'; column 7 has a similar name"),
        ({"label": None}, "--label: missing"),
        (
            {"ranges": ["agee=0:1"]},
            r'unknown column, or one without a range \(got "agee"\); column 3 has a similar name',
        ),
        ({"ranges": ["age"]}, "--range: got"),
        ({"ranges": ["age=5:2"]}, "--range: got"),
        ({"ranges": ["age=0:nan"]}, "--range: got"),
        ({"sites": "agent"}, "--sites: got"),
        ({"sites": "agents=0,1"}, "has no column 'agents'"),
        ({"algorithm": "ldp_dsb"}, "ldp_dsbo"),
        ({"epsilon": -1.0}, r"privacy\.epsilon"),
        ({"agents": 0}, r"topology\.agents"),
        ({"changes": ["problem.columns.drp=1"]}, r"problem\.columns\.drp"),
        ({"changes": ["problem.kind=quadratik"]}, "quadratic"),
        ({"changes": ["problem.nothing=1"]}, r"problem\.nothing"),
        ({"data": "wein"}, "wein"),
        ({"data": None}, "--data: no file"),
        ({"data": str(SHIPPED)}, "Is a directory"),
    ],
)
def test_invalid_templates_are_refused_and_not_written(options: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        write_template(tmp_path / "new.toml", **{**MINE, **options})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["drop=['id']", "fill={id=1}", "log=['id']"])
def test_cells_of_a_file_without_a_header_are_not_printed(change: str, tmp_path: Path) -> None:
    (tmp_path / "nh.csv").write_text("Miller,Berlin,flu,yes\nMoore,Paris,none,no\n")
    with pytest.raises(InputError) as refused:
        write_template(
            tmp_path / "new.toml",
            data=str(tmp_path / "nh.csv"),
            label="yes",
            changes=[f"problem.columns={{{change}}}"],
        )
    assert not any(cell in str(refused.value) for cell in ("Miller", "Berlin", "flu"))


def test_labels_and_ranges_are_converted_to_numbers() -> None:
    assert parse_classes("0, 1,2.5,no,nan") == [0, 1, 2.5, "no", "nan"]
    assert parse_ranges(["a=b=-1:+2e3"]) == {"a=b": (-1, 2000)}


TOML = st.recursive(
    st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(TOML)
def test_values_are_written_as_they_are_read(value: Any) -> None:
    line = f"v = {toml_value(value)}"
    assert tomllib.loads(line)["v"] == value
