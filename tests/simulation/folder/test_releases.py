"""`run.keep_releases`: every released value, in one file that does not depend on interruptions or on the engine."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.folder import releases as kept_releases
from tests.support.interruptions import interrupt, save_states_often

Make = Callable[..., dict[str, Any]]
ROUNDS = 12


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    save_states_often(monkeypatch)
    # Parts and row groups of a few releases.
    monkeypatch.setattr(kept_releases, "_HELD", 9000)
    monkeypatch.setattr(kept_releases, "_GROUP", 200)


def _keeping(scenario: Make, **run: Any) -> dict[str, Any]:
    return scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 5, "keep_releases": True, **run})


def test_the_file_has_exactly_the_released_values(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: dict[tuple[int, str, int], list[float]] = {}
    release = ScheduledReleaser.release

    def watched(self: ScheduledReleaser, index: int, values: Any) -> Bundle:
        out = release(self, index, values)
        for channel, value in out.items():
            messages.update({(index, channel, agent): row.tolist() for agent, row in enumerate(value)})
        return out

    monkeypatch.setattr(ScheduledReleaser, "release", watched)
    done = decentral_dp.run(_keeping(scenario), out=tmp_path / "run")
    table = pd.read_parquet(tmp_path / "run" / kept_releases.NAME)
    assert list(table.columns) == ["agent", "channel", "round", "release", "values"]
    rows = {
        (r.release, r.channel, r.agent): list(r.values_)
        for r in table.rename(columns={"values": "values_"}).itertuples()
    }
    assert rows == messages
    assert (table["round"] == table["release"]).all()
    last = table[table["release"] == ROUNDS]
    for channel, value in done.released.items():
        np.testing.assert_array_equal(np.stack(last[last["channel"] == channel]["values"].to_list()), value)


@pytest.mark.parametrize("t", [1, 5, ROUNDS])
@pytest.mark.parametrize("blocks", [1, 3])
def test_an_interrupted_run_has_the_same_file(scenario: Make, tmp_path: Path, t: int, blocks: int) -> None:
    loaded = _keeping(scenario, blocks=blocks)
    decentral_dp.run(loaded, out=tmp_path / "whole")
    interrupt(loaded, tmp_path / "run", t)
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
    assert pq.read_metadata(tmp_path / "run" / kept_releases.NAME).num_row_groups > 2


@pytest.mark.parametrize("kind", ["flipped bit", "link to a folder", "folder", "pipe", "none"])
def test_a_part_that_the_run_did_not_write_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    expected = _cut_off_once(tmp_path)
    folder, (part, *_) = _copied(tmp_path, "copy")
    part.rename(tmp_path / "part")
    if kind == "flipped bit":
        shutil.copy(tmp_path / "part", part)
        _flipped(part, random.Random(12))
    elif kind == "link to a folder":
        (tmp_path / "other").mkdir()
        part.symlink_to(tmp_path / "other")
    elif kind == "folder":
        part.mkdir()
    elif kind == "pipe":
        os.mkfifo(part)
    with pytest.raises(InputError, match=part.name):
        decentral_dp.resume(folder)
    assert os.path.lexists(part) == (kind != "none")
    if kind != "none":
        part.rename(tmp_path / "elsewhere")
    (tmp_path / "part").rename(part)
    decentral_dp.resume(folder)
    assert _bytes(folder) == expected


@pytest.mark.parametrize("name", ["vrdsbo", "dp_bilevel", "dp_spider"])
def test_several_releases_a_round_and_coordinators(name: str, tmp_path: Path) -> None:
    loaded = load(name, ["algorithm.rounds=6", "run.evaluate_every=1", "run.keep_releases=true"])
    expected = decentral_dp.run(loaded, out=tmp_path / "whole")
    interrupt(loaded, tmp_path / "run", 4)
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
    table = pd.read_parquet(tmp_path / "whole" / kept_releases.NAME)
    ledger = expected.ledger
    charged = ledger[ledger["scale"] > 0.0]
    listed = set(zip(charged["channel"].astype(str), charged["release"], strict=True))
    assert listed <= set(zip(table["channel"], table["release"], strict=True))
    assert table["agent"].isna().all() == (expected.simulation().setting != "gossip")


def _bytes(folder: Path) -> bytes:
    return (folder / kept_releases.NAME).read_bytes()


# --- damage -----------------------------------------------------------------------------------------------------------


def _quick() -> Any:
    """A run without records, which nothing has to be tried out for."""
    return load("quadratic", [f"algorithm.rounds={ROUNDS}", "run.evaluate_every=5", "run.keep_releases=true", "seed=3"])


def _cut_off_once(folder: Path) -> bytes:
    """Interrupt a run after round 10, and return the file of an uninterrupted run."""
    loaded = _quick()
    decentral_dp.run(loaded, out=folder / "whole")
    interrupt(loaded, folder / "run", 10)
    return _bytes(folder / "whole")


def _copied(folder: Path, name: str) -> tuple[Path, list[Path]]:
    copy = folder / name
    shutil.copytree(folder / "run", copy)
    return copy, sorted((copy / "in_progress").glob("releases-*.parquet"))


def _flipped(part: Path, draw: random.Random) -> None:
    content = bytearray(part.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    part.write_bytes(content)


def test_a_full_disk_when_parts_are_joined_loses_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _quick()
    decentral_dp.run(loaded, out=tmp_path / "whole")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as here:
        here.setattr(kept_releases, "join", full)
        with pytest.raises(OSError, match="No space left"):
            decentral_dp.run(loaded, out=tmp_path / "run")
    try:
        decentral_dp.resume(tmp_path / "run")
    except RuntimeError as error:
        pytest.fail(str(error))
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")


# --- rows are counted against the ledger ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_missing_part_is_an_error(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, join = _quick(), kept_releases.join
    decentral_dp.run(loaded, out=tmp_path / "whole")

    def without_one(folder: Path, job: Any, ledger: Any, digests: Any, path: Path) -> None:
        parts = sorted(digests)
        assert len(parts) > 3
        del parts[place]
        join(folder, job, ledger, {part: digests[part] for part in parts}, path)

    with monkeypatch.context() as here:
        here.setattr(kept_releases, "join", without_one)
        with pytest.raises(RuntimeError, match=r"released values of release \d+ are not complete\. Fix: "):
            decentral_dp.run(loaded, out=tmp_path / "run")
    decentral_dp.resume(tmp_path / "run")
    assert _bytes(tmp_path / "run") == _bytes(tmp_path / "whole")
