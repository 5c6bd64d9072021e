"""Algorithms are registered by being there, and nothing of a registered one is missing."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import decentral_dp.algorithms as algorithms
from decentral_dp.algorithms import ALGORITHMS
from tests import new_algorithm

FILE = '''"""Nothing yet."""

from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.entry import Citation


class Mine(LdpDsbo):
    """Mine, all mine."""


ENTRY = Entry("mine", Mine, (Citation("Of", "nobody1900nothing"),), proved=True)
'''


@pytest.mark.parametrize("setting", algorithms._FOLDERS)
def test_every_file_of_a_setting_that_states_an_entry_is_registered(setting: str) -> None:
    stated = {
        path.stem
        for path in Path(import_module(algorithms._FOLDERS[setting]).__path__[0]).glob("*.py")
        if any(line.startswith(("ENTRY = ", "ENTRIES = ")) for line in path.read_text(encoding="utf-8").splitlines())
    }
    registered = [entry for entry in ALGORITHMS.values() if entry.setting == setting]
    assert {entry.algorithm.__module__ for entry in registered} == {
        f"{algorithms._FOLDERS[setting]}.{stem}" for stem in stated
    }


def test_a_file_that_is_put_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = import_module("decentral_dp.algorithms.gossip")
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    found = {entry.kind: entry for entry in algorithms._entries("gossip")}
    assert set(found) == {"mine", *(name for name, entry in ALGORITHMS.items() if entry.setting == "gossip")}
    monkeypatch.setitem(ALGORITHMS.entries, "mine", found["mine"])
    said = list(new_algorithm.missing("mine"))
    assert [line.split(":")[0] for line in said] == [
        "decentral_dp.algorithms.gossip.mine",
        "works.toml has no [nobody1900nothing], which ENTRY of mine cites",
        "scenarios/mine.toml is not there; start from `decentral-dp new --algorithm mine`.",
    ]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_is_missing_of_what_is_shipped(name: str) -> None:
    assert list(new_algorithm.missing(name)) == []
