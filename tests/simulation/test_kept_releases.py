"""`run.keep_releases`: every released value, in one file that does not depend on interruptions or on the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import decentral_dp
from decentral_dp.errors import Stopped
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.mechanisms.scheduled_releaser import ScheduledReleaser
from decentral_dp.simulation import kept_releases, run_in_progress, runner

Make = Callable[..., dict[str, Any]]
ROUNDS = 12


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_in_progress, "_INTERVAL", 0.0)
    monkeypatch.setattr(run_in_progress, "_SHARE", 1e9)
    monkeypatch.setattr(runner, "_draw", lambda folder: None)
    # Parts and row groups of a few releases.
    monkeypatch.setattr(kept_releases, "_HELD", 9000)
    monkeypatch.setattr(kept_releases, "_GROUP", 200)


def _given(scenario: Make, **run: Any) -> dict[str, Any]:
    return scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 5, "keep_releases": True, **run})


def _cut_off(given: Any, folder: Path, t: int, start: Callable[..., Any] = decentral_dp.run) -> None:
    def progress(done: int, rounds: int, loss: float, epsilon: float) -> None:
        if done >= t:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        start(given, out=folder, progress=progress)


def test_the_file_has_what_left_and_nothing_else(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[tuple[int, str, int], list[float]] = {}
    release = ScheduledReleaser.release

    def watched(self: ScheduledReleaser, index: int, values: Any) -> Bundle:
        out = release(self, index, values)
        for channel, value in out.items():
            sent.update({(index, channel, agent): row.tolist() for agent, row in enumerate(value)})
        return out

    monkeypatch.setattr(ScheduledReleaser, "release", watched)
    done = decentral_dp.run(_given(scenario), out=tmp_path / "run")
    table = pd.read_parquet(tmp_path / "run" / kept_releases.NAME)
    assert list(table.columns) == ["agent", "channel", "round", "release", "values"]
    found = {
        (r.release, r.channel, r.agent): list(r.values_)
        for r in table.rename(columns={"values": "values_"}).itertuples()
    }
    assert found == sent
    assert (table["round"] == table["release"]).all()
    last = table[table["release"] == ROUNDS]
    for channel, value in done.released.items():
        np.testing.assert_array_equal(np.stack(last[last["channel"] == channel]["values"].to_list()), value)


@pytest.mark.parametrize("t", [1, 5, ROUNDS])
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_run_that_was_cut_off_leaves_the_same_file(scenario: Make, tmp_path: Path, t: int, blocks: int) -> None:
    given = _given(scenario, blocks=blocks)
    decentral_dp.run(given, out=tmp_path / "whole")
    _cut_off(given, tmp_path / "run", t)
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
    assert pq.read_metadata(tmp_path / "run" / kept_releases.NAME).num_row_groups > 2


@pytest.mark.parametrize("damage", ["cut short", "removed"])
def test_values_that_are_lost_are_made_again(scenario: Make, tmp_path: Path, damage: str) -> None:
    given = _given(scenario)
    decentral_dp.run(given, out=tmp_path / "whole")
    _cut_off(given, tmp_path / "run", 10)
    first = min((tmp_path / "run" / "in_progress").glob("releases-0-*.parquet"))
    if damage == "removed":
        first.unlink()
    else:
        first.write_bytes(first.read_bytes()[:-20])
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")


@pytest.mark.parametrize("name", ["vrdsbo", "dp_bilevel", "dp_spider"])
def test_several_releases_a_round_and_coordinators(name: str, tmp_path: Path) -> None:
    given = decentral_dp.load(name, ["algorithm.rounds=6", "run.evaluate_every=1", "run.keep_releases=true"])
    whole = decentral_dp.run(given, out=tmp_path / "whole")
    _cut_off(given, tmp_path / "run", 4)
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
    table = pd.read_parquet(tmp_path / "whole" / kept_releases.NAME)
    ledger = whole.ledger
    charged = ledger[ledger["scale"] > 0.0]
    listed = set(zip(charged["channel"].astype(str), charged["release"], strict=True))
    assert listed <= set(zip(table["channel"], table["release"], strict=True))
    assert table["agent"].isna().all() == (whole.simulation().setting != "gossip")


def test_a_run_that_diverged_has_what_it_released(scenario: Make, tmp_path: Path) -> None:
    steps = [f"algorithm.{c}.scale=1e60" for c in "xyz"]
    given = decentral_dp.load("quadratic", ["algorithm.rounds=40", "run.keep_releases=true", *steps])
    done = decentral_dp.run(given, out=tmp_path / "run")
    assert done.result.has_diverged
    table = pd.read_parquet(tmp_path / "run" / kept_releases.NAME)
    assert not np.isfinite(np.concatenate(table["values"].to_list())).all()
    assert int(table["release"].max()) == done.records.rounds


def test_without_being_asked_nothing_is_kept(scenario: Make, tmp_path: Path) -> None:
    decentral_dp.run(_given(scenario, keep_releases=False), out=tmp_path / "run")
    assert not (tmp_path / "run" / kept_releases.NAME).exists()


def _bytes(folder: Path) -> bytes:
    return (folder / kept_releases.NAME).read_bytes()
