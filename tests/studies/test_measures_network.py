"""What agents learn of each other as a measure of studies: beside the view itself, and only where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.studies import runs
from decentral_dp.studies.measures import NETWORK, named_measures
from decentral_dp.studies.schema import load_study

GRAPHS = [{"kind": "ring", "agents": 6}, {"kind": "star", "agents": 6}]


def _study(**keys: Any) -> dict[str, Any]:
    measured = ["network_epsilon_max", "network_epsilon_mean", "network_epsilon_distance_2"]
    measured += ["network_epsilon_distance_3"]
    return {"scenario": "network_view", "kind": "plan", "measure": measured, "set": {"algorithm.rounds": 5}} | keys


@pytest.mark.parametrize("kind", ["plan", "run"])
def test_measures_are_those_of_the_view(kind: str, tmp_path: Path) -> None:
    found = decentral_dp.study(_study(kind=kind, grid={"topology": GRAPHS}), workers=1, out=tmp_path / "study")
    last = found.results[found.results["last"]]
    for graph in GRAPHS:
        frame = decentral_dp.network_view(
            "network_view", set={"algorithm.rounds": 5, "topology": {"kind": graph["kind"], "agents": 6}}
        ).to_frame()
        pairs = frame["certified"]
        wanted = {
            "network_epsilon_max": pairs.max(),
            "network_epsilon_mean": pairs.mean(),
            "network_epsilon_distance_2": pairs[frame["distance"] == 2].max(),
        }
        mine = last[last["topology"] == graph["kind"]].set_index("name")["value"]
        for name, value in wanted.items():
            assert mine[name] == pytest.approx(value, rel=1e-12), name
    assert found.failed.empty
    ring, star = (last[(last["topology"] == g["kind"])]["name"].tolist() for g in GRAPHS)
    assert "network_epsilon_distance_3" in ring
    assert "network_epsilon_distance_3" not in star


def test_pairs_are_priced_only_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(job: Any) -> Any:
        raise AssertionError("nobody asked for pairs")

    monkeypatch.setattr(runs, "annex", refuse)
    found = decentral_dp.study(_study(measure=["epsilon_max"]), workers=1)
    assert found.failed.empty
    side = {"measure": "network_epsilon_max"}
    for keys in (
        {"measure": ["network_epsilon_distance_7"]},
        {"plots": [{"name": "a", "x": "agents", "y": "network_epsilon_mean"}]},
        {"plots": [{"name": "a", "x": "network_epsilon_mean", "y": "epsilon_max"}]},
        {"claims": [{"statement": "a", "left": side, "is": "less", "right": 3.0}]},
    ):
        names = named_measures(load_study(_study(**({"measure": ["epsilon_max"]} | keys))))
        assert any(name.startswith(NETWORK) for name in names), keys


def test_cells_with_pairs_have_files_of_their_own() -> None:
    scenario = load("network_view", ["algorithm.rounds=5"])
    with_pairs, without = (runs.key_of(scenario, "last", network, b"salt") for network in (True, False))
    assert with_pairs != without


def test_what_cannot_be_priced_is_refused_with_its_reason() -> None:
    found = decentral_dp.study(_study(scenario="quadratic", grid={"algorithm.rounds": [1]}, set={}), workers=1)
    assert found.cells["status"].tolist() == ["refused"]
    assert found.cells["reason"].iloc[0].startswith("measure: network_epsilon ")
