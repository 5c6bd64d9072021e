"""Parquet files: equality with the CSV file of the same table, and errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from decentral_dp import InputError
from decentral_dp.data import load_dataset
from decentral_dp.files.regular import RAISED_BY

GOOD: dict[str, Any] = {
    "a": [0.1, 0.2, 1e300],
    "b": [1, 2, 3],
    "label": ["no", "yes", "no"],
    "agent": [0, 1, 1],
    "split": ["train", "validation", "test"],
}


def written(folder: Path, table: dict[str, Any]) -> Path:
    path = folder / "mine.parquet"
    pd.DataFrame(table).to_parquet(path, index=False)
    return path


def read(path: Path, **more: Any) -> Any:
    return load_dataset(str(path), n_agents=2, seed=0, **{"label": "label", "classes": ["no", "yes"]} | more)


@pytest.mark.parametrize("category", [False, True])
def test_it_is_read_as_the_csv_file_of_the_same_table(tmp_path: Path, category: bool) -> None:
    table = GOOD | ({"label": pd.Categorical(GOOD["label"])} if category else {})
    pd.DataFrame(GOOD).to_csv(tmp_path / "mine.csv", index=False)
    one, other = read(written(tmp_path, table)), read(tmp_path / "mine.csv")
    for part in ("features", "labels", "agent", "split"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part), strict=part != "split")
    assert (one.feature_names, one.classes) == (("a", "b"), ("no", "yes"))


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path, GOOD).read_bytes()
    for k, content in enumerate([b"", b"PAR1", whole[:-20], whole[:40] + bytes(40) + whole[80:]]):
        path = tmp_path / f"{k}.parquet"
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"problem\.data: "):
            read(path)


def test_what_unpacks_to_too_much_and_what_is_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, {"a": np.zeros(100_000), "label": np.zeros(100_000)})
    assert path.stat().st_size < 50_000
    monkeypatch.setenv(RAISED_BY, "100000")
    with pytest.raises(InputError, match="unpacks to 1600000 bytes, more than the limit of 100000"):
        read(path)
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(InputError, match="is a pipe"):
        read(tmp_path / "pipe.parquet")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read(tmp_path / "none.parquet")
