"""Measures of a study's cells: of classes, of the network, of messages, and rounds to a level."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import decentral_dp

FEW: dict[str, Any] = {"algorithm.rounds": 4, "run.evaluate_every": 2}
NAMED = ["test_auc", "test_brier_min", "rounds_to_test_f1_0.01", "upper_loss"]


def measured(**changed: Any) -> dict[str, float]:
    study = {"scenario": "ring_breast_cancer", "seeds": [5], "set": FEW | changed, "measure": NAMED}
    found = decentral_dp.study(study, workers=1).results
    return dict(found[found["last"]].set_index("name")["value"])


def test_a_study_adds_its_measures() -> None:
    few, asked = FEW | {"seed": 5}, {"run.measures": ["test_auc", "test_brier"]}
    plain = decentral_dp.run("ring_breast_cancer", set=few).result.metrics
    wanted = decentral_dp.run("ring_breast_cancer", set=few | asked).result.metrics
    found = measured()
    assert found.pop("rounds_to_test_f1_0.01") in (2.0, 4.0)
    assert found == {
        "test_auc": wanted["test_auc"],
        "test_brier_min": wanted["test_brier_min"],
        "upper_loss": plain["upper_loss"],
    }


def test_measures_of_the_scenario_are_kept() -> None:
    found = measured(**{"run.measures": ["test_auc"]})
    assert found.keys() == {"test_auc"}
    assert math.isfinite(found["test_auc"])


GRAPHS = [{"kind": "ring", "agents": 6}, {"kind": "star", "agents": 6}]


def _network_study(**keys: Any) -> dict[str, Any]:
    measured = ["network_epsilon_max", "network_epsilon_mean", "network_epsilon_distance_2"]
    measured += ["network_epsilon_distance_3"]
    return {"scenario": "network_view", "kind": "plan", "measure": measured, "set": {"algorithm.rounds": 5}} | keys


@pytest.mark.parametrize("kind", ["plan", "run"])
def test_measures_are_those_of_the_view(kind: str, tmp_path: Path) -> None:
    found = decentral_dp.study(_network_study(kind=kind, grid={"topology": GRAPHS}), workers=1, out=tmp_path / "study")
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


def test_an_unsupported_cell_has_its_reason() -> None:
    found = decentral_dp.study(_network_study(scenario="quadratic", grid={"algorithm.rounds": [1]}, set={}), workers=1)
    assert found.cells["status"].tolist() == ["refused"]
    assert found.cells["reason"].iloc[0].startswith("measure: network_epsilon ")


ROUNDS, WIDTH = 6, 31
RING = {"kind": "ring", "agents": 6}
SET = {"algorithm.rounds": ROUNDS, "algorithm.momentum": 0.0, "run.evaluate_every": 2, "topology": RING}
# Nothing is sent but weights.
SET |= {"privacy.share": {"y": 1.0}}


def _study(**keys: Any) -> dict[str, Any]:
    return {"scenario": "classification", "set": SET, "rounds": "all"} | keys


@pytest.mark.parametrize("kind", ["run", "plan"])
def test_bits_of_a_ring_are_two_messages_a_round(kind: str) -> None:
    found = decentral_dp.study(_study(kind=kind, measure=["bits", "messages"]), workers=1).results
    curve = found[(found["name"] == "bits") & ~found["last"]].set_index("round")["value"].to_dict()
    assert curve
    assert all(bits == 2 * WIDTH * 64 * t for t, bits in curve.items())
    assert set(found[found["last"]].set_index("name")["value"].items()) == {
        ("bits", 2 * WIDTH * 64.0 * ROUNDS),
        ("messages", 2.0 * ROUNDS),
    }


def test_levels_are_those_of_the_runs_own_curve(tmp_path: Path) -> None:
    names = ["rounds_to_test_loss_0.6", "rounds_to_test_loss_0.0"]
    found = decentral_dp.study(_study(measure=names, seeds=2), workers=1).results
    for seed in (1, 2):
        metrics = decentral_dp.run("classification", set=SET | {"seed": seed}).metrics
        means = metrics[metrics["agent"] == "mean"].pivot(index="round", columns="name", values="value")
        at = int(means.index[means["test_loss"] <= 0.6][0])
        assert at > 0
        mine = found[(found["seed"] == seed)].set_index("name")["value"].to_dict()
        assert mine == {"rounds_to_test_loss_0.6": at}
