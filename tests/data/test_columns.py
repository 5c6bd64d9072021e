"""Column rules: features equal to those of pandas, changes of single records, and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.data import Dataset, load_dataset, make_shards
from decentral_dp.data.columns import ColumnRules, cells_of
from decentral_dp.data.shards import features_for_model

RULES: dict[str, Any] = {
    "drop": ["patient_id"],
    "categories": {"ward": ["surgery", "icu"], "sex": ["f"], "smoker": [1]},
    "fill": {"bmi": 27, "admitted": "2020-06-30"},
    "date": {"admitted": "2015-01-01:2025-12-31"},
    "log": ["income"],
}
SCALE: dict[str, Any] = {"age": [0, 120], "bmi": [15, 50], "income": [0, 200000]}
NAMES = ("ward=surgery", "ward=icu", "sex=f", "admitted", "age", "bmi", "income", "smoker=1")


def hospital(n: int = 60, seed: int = 3) -> pd.DataFrame:
    """Synthetic patients, all as text."""
    rng = np.random.default_rng(seed)
    days = pd.to_datetime("2010-01-01") + pd.to_timedelta(rng.integers(0, 7000, n), unit="D")
    frame = pd.DataFrame(
        {
            "patient_id": [f"p{k}" for k in range(n)],
            "hospital": rng.choice(["north", "south"], n),
            "ward": rng.choice(["surgery", "icu", "garden", "", " icu"], n),
            "sex": rng.choice(["m", "f"], n),
            "admitted": np.where(rng.random(n) < 0.1, "", days.strftime("%Y-%m-%d")),
            "age": rng.integers(0, 130, n).astype(str),
            "bmi": np.where(rng.random(n) < 0.3, rng.choice(["", "NA", "?"], n), rng.normal(27, 8, n).round(1)),
            "income": np.exp(rng.normal(10, 2, n)).round().astype(str),
            "smoker": rng.choice(["0", "1"], n),
            "died": rng.choice(["no", "yes"], n),
        }
    )
    return frame.astype(str)


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """The same table with numbers, dates and gaps as pandas has them."""
    out = frame.copy()
    out["admitted"] = pd.to_datetime(out["admitted"], errors="coerce")
    out["bmi"] = pd.to_numeric(out["bmi"], errors="coerce")
    out[["age", "smoker"]] = out[["age", "smoker"]].astype(int)
    out["income"] = out["income"].astype(float)
    out["ward"] = out["ward"].replace("", None)
    return out


def expected(frame: pd.DataFrame) -> pd.DataFrame:
    """Features by pandas: categories stay 0 or 1, all others are scaled to [−1, 1]."""

    def from_range(values: Any, low: float, high: float) -> Any:
        return 2 * (pd.Series(values, dtype=float).clip(low, high) - low) / (high - low) - 1

    ward = frame["ward"].str.strip()
    first, last = pd.Timestamp("2015-01-01"), pd.Timestamp("2025-12-31")
    days = pd.to_datetime(frame["admitted"].replace("", "2020-06-30")).clip(first, last)
    bmi = pd.to_numeric(frame["bmi"], errors="coerce").fillna(27)
    income = np.log1p(frame["income"].astype(float).clip(0, 200000))
    return pd.DataFrame(
        {
            "ward=surgery": (ward == "surgery").astype(float),
            "ward=icu": (ward == "icu").astype(float),
            "sex=f": (frame["sex"] == "f").astype(float),
            "admitted": from_range((days - first) / (last - first), 0, 1),
            "age": from_range(frame["age"].astype(float), 0, 120),
            "bmi": from_range(bmi, 15, 50),
            "income": from_range(income, 0, np.log1p(200000)),
            "smoker=1": frame["smoker"].astype(float),
        }
    )


def read(path: Path, rules: dict[str, Any] | None = None, **more: Any) -> Dataset:
    asked: dict[str, Any] = {"label": "died", "classes": ["no", "yes"], "agent": "hospital"}
    asked |= {"agents": ["south", "north"], "rules": ColumnRules.model_validate(RULES if rules is None else rules)}
    return load_dataset(str(path), n_agents=2, seed=0, **asked | more)


def written(folder: Path, frame: pd.DataFrame, kind: str = "csv") -> Path:
    path = folder / f"hospital.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        typed(frame).to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_features_are_those_that_pandas_makes_by_the_same_rules(tmp_path: Path, kind: str) -> None:
    frame = hospital()
    shards = make_shards(read(written(tmp_path, frame, kind)), 2, seed=0, scale_spec=SCALE, test=0.2)
    assert shards.feature_names == NAMES
    np.testing.assert_allclose(shards.features, expected(frame).to_numpy(), rtol=0, atol=1e-12)
    assert np.abs(shards.features).max() <= 1.0
    owner = np.full(len(frame), -1)
    for agent in range(2):
        owner[np.concatenate([shards.train[agent], shards.validation[agent]])] = agent
    kept = owner >= 0
    np.testing.assert_array_equal(np.array(["south", "north"])[owner[kept]], frame["hospital"][kept])


@pytest.mark.parametrize("change", [lambda frame: frame, typed])
def test_a_frame_is_prepared_for_prediction_as_for_training(tmp_path: Path, change: Any) -> None:
    frame = hospital()
    trained = make_shards(read(written(tmp_path, frame)), 2, seed=0, scale_spec=SCALE, normalisation="l2").features
    # Neither label, owner nor dropped columns are needed, and columns may come in any order.
    raw = change(frame).drop(columns=["died", "hospital", "patient_id"]).iloc[:, ::-1]
    rules = ColumnRules.model_validate(RULES)
    features, _ = features_for_model(cells_of(raw, rules.raw(NAMES)), NAMES, rules, SCALE, "l2")
    np.testing.assert_array_equal(features, trained)


def test_a_changed_record_moves_its_own_features_alone(tmp_path: Path) -> None:
    frame = hospital()
    before = make_shards(read(written(tmp_path, frame)), 2, seed=0, scale_spec=SCALE).features
    extreme = {"ward": "nowhere", "admitted": "1950-01-01", "age": "1e9", "bmi": "NA", "income": "1e12"}
    for row in (0, 17, len(frame) - 1):
        changed = frame.copy()
        changed.loc[row, "smoker"] = "1" if frame["smoker"][row] == "0" else "0"
        for column, cell in extreme.items():
            changed.loc[row, column] = cell
        after = make_shards(read(written(tmp_path, changed)), 2, seed=0, scale_spec=SCALE).features
        moved = np.flatnonzero((before != after).any(axis=1))
        assert moved.tolist() == [row]
        assert np.abs(after).max() <= 1.0


def test_dates_are_cut_where_nothing_is_scaled(tmp_path: Path) -> None:
    frame = hospital()
    frame.loc[:1, "admitted"] = ["1950-01-01", "2090-01-01T10:30"]
    shards = make_shards(read(written(tmp_path, frame)), 2, seed=0)
    assert shards.features[:2, NAMES.index("admitted")].tolist() == [0.0, 1.0]
    assert "admitted" in shards.features_cut


def test_dates_of_a_declared_format_are_those_of_iso(tmp_path: Path) -> None:
    frame = hospital()
    iso = make_shards(read(written(tmp_path, frame)), 2, seed=0, scale_spec=SCALE).features
    frame["admitted"] = [re.sub(r"(\d+)-(\d+)-(\d+)", r"\3/\2/\1 08:30", day) for day in frame["admitted"]]
    rules = RULES | {"date": {"admitted": "2015-01-01:2025-12-31 %d/%m/%Y %H:%M"}}
    again = make_shards(read(written(tmp_path, frame), rules), 2, seed=0, scale_spec=SCALE).features
    np.testing.assert_array_equal(again, iso)
    with pytest.raises(InputError, match=r"row 1, column 'admitted' does not hold a date .*FIRST:LAST %d/%m/%Y"):
        read(written(tmp_path, frame))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"fill": {}}, r"column 'bmi' .*column 'admitted' .*fill\.bmi"),
        (
            {"categories": {"ward": ["icu"]}},
            r"row 1, column 4 does not hold a finite number\. .*categories\.NAME",
        ),
        ({"drop": ["patient"]}, r"problem\.columns\.drop: .* no column \"patient\"; column 1 has a similar name"),
    ],
)
def test_wrong_rules_for_these_columns_are_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises((InputError, ValueError), match=said):
        read(written(tmp_path, hospital()), RULES | changed)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"categories": {"ward": ["icu", "icu"]}}, 'categories.ward lists "icu" twice'),
        ({"categories": {"ward": ["icu", "none"]}}, 'categories.ward lists "none", which is read as a missing value'),
        ({"categories": {"ward": ["icu"]}, "drop": ["ward"]}, '"ward" is listed in categories and drop'),
        ({"fill": {"a": 1}, "drop": ["a"]}, "listed in fill and drop"),
        ({"fill": {"ward": "garden"}, "categories": {"ward": ["icu"]}}, r"fill.ward is \"garden\", expected one of"),
        ({"date": {"day": "2015-01-01:2025-12-31 %d/%M/%Y"}}, "date.day is .* a format with day"),
        ({"fill": {"day": 3}, "date": {"day": "2015-01-01:2025-12-31"}}, "fill.day is 3.*, expected a date"),
        ({"date": {"day": "2025-12-31:2015-01-01"}}, "an earlier and a later date"),
        ({"dorp": ["a"]}, r"problem\.columns\.dorp: unknown key; did you mean .drop"),
    ],
)
def test_rules_that_do_not_fit_together_are_refused_in_a_sentence(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        decentral_dp.load("ring_breast_cancer", set={"problem.columns": columns})


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (SCALE | {"ward": [0, 1]}, "'ward' needs no range"),
        (SCALE | {"smoker": [0, 1]}, "'smoker' needs no range"),
        (SCALE | {"income": [-5, 1]}, r"takes log\(1 \+ v\) of nonnegative values"),
        (SCALE | {"income": {"low": 1, "high": 2, "log": True}}, "on a log scale"),
        ({"age": [0, 120], "bmi": [15, 50]}, r"no range for feature \d of \d+, in the order of the data"),
    ],
)
def test_ranges_beside_rules_are_those_of_the_columns(tmp_path: Path, scale: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        make_shards(read(written(tmp_path, hospital())), 2, seed=0, scale_spec=scale)
