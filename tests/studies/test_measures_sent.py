"""What is sent, and when a metric reaches a level, as measures of studies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.simulation.communication import count_sent
from decentral_dp.studies.measures import first_reaching

ROUNDS, WIDTH = 6, 31
RING = {"kind": "ring", "agents": 6}
SET = {"algorithm.rounds": ROUNDS, "algorithm.heavy_ball": 0.0, "run.evaluate_every": 2, "topology": RING}
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


@pytest.mark.parametrize("over_time", ["matching", "resample"])
def test_bits_of_a_network_that_changes_end_at_what_a_run_says(over_time: Any) -> None:
    changed = SET | {"topology": {"kind": "random_regular", "degree": 3, "agents": 6, "over_time": over_time}}
    job = decentral_dp.build("classification", set=changed)
    sent, known = count_sent(job.simulation(), [0, 1, ROUNDS]), job.plan().communication
    assert known is not None
    assert sent["bits"][-1] * 6 == pytest.approx(known.bits, rel=1e-12)
    assert sent["messages"][-1] * 6 == pytest.approx(known.messages, rel=1e-12)
    assert sent["bits"][0] == 0.0
    assert 0.0 < sent["bits"][1] < known.bits / 6


def test_a_trusted_coordinator_sends_nothing_that_is_counted() -> None:
    assert count_sent(decentral_dp.build("dp_bilevel").simulation(), [1]) == {}


def test_when_a_level_is_reached() -> None:
    curves = {
        "test_accuracy": [[0, 2, 4], [0.5, 0.7, 0.9]],
        "test_loss": [[0, 2, 4], [2.0, 1.0, math.nan]],
    }
    assert first_reaching("rounds_to_test_accuracy_0.7", curves) == 2.0
    assert first_reaching("rounds_to_test_loss_1.5", curves) == 2.0
    assert math.isnan(first_reaching("rounds_to_test_loss_0.5", curves))
    assert math.isnan(first_reaching("rounds_to_test_auc_0.5", curves))


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
