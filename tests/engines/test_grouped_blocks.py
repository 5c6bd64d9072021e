"""Blocks of agents that are near in the graph: the same bits as of all agents in one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl, Saved, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build

Make = Callable[..., dict[str, Any]]
GEOMETRIC = {"kind": "geometric", "radius": 0.45, "agents": 12, "seed": 3}
CHANGED: dict[str, dict[str, Any]] = {
    "stays": {},
    "matching": {"over_time": {"kind": "matching"}},
    "late": {"delay": 2},
    "compressed": {"compression": {"kind": "top_k", "share": 0.3}},
}


def given(make: Make, network: str, run: dict[str, Any]) -> Any:
    content = make(topology=GEOMETRIC | CHANGED[network], algorithm={"rounds": 6}, problem={"partition": "iid"})
    content["run"] = run
    return build(content)


@pytest.mark.parametrize("network", CHANGED)
def test_blocks_of_near_agents_keep_bits_and_go_on(scenario: Make, network: str) -> None:
    job = given(scenario, network, {"engine": "ray", "agents_per_actor": 4, "keep_releases": True})
    assert any((np.diff(node.agents) > 1).any() for node in job.nodes())
    seen: list[Snapshot] = []
    saved: list[Saved] = []

    def look(s: Snapshot) -> None:
        seen.append(s)
        if s.round == 3:
            saved.append(s.save())

    outcome = job.start(LocalEngine(), RunControl(range(7), look))
    whole = given(scenario, network, {"keep_releases": True})
    here: list[Snapshot] = []
    alone = whole.start(LocalEngine(), RunControl(range(7), here.append))
    assert outcome.ledger.same_releases(alone.ledger)
    for one, other in zip(seen, here, strict=True):
        for part in ("released", "published", "state"):
            for channel, value in getattr(other, part).items():
                np.testing.assert_array_equal(getattr(one, part)[channel], value)
    again = job.start(LocalEngine(), RunControl([6], saved=saved[0]))
    for channel, value in alone.last.released.items():
        np.testing.assert_array_equal(again.last.released[channel], value)
    # Of consecutive agents, as an earlier version hosted them.
    with pytest.raises(InputError, match="resume: agents were hosted in other blocks"):
        given(scenario, network, {"blocks": 3}).start(LocalEngine(), RunControl([6], saved=saved[0]))


def test_agents_with_machines_of_their_own_stay_by_their_numbers(scenario: Make) -> None:
    job = given(scenario, "stays", {"engine": "ray", "agents_per_actor": 4, "place": "site-{agent}"})
    assert [node.agents.tolist() for node in job.nodes()] == np.arange(12).reshape(3, 4).tolist()


def test_on_ray_the_bits_are_those_of_this_process(scenario: Make, ray_cluster: None) -> None:
    content = scenario(topology=GEOMETRIC, algorithm={"rounds": 6})
    here = decentral_dp.run(content)
    there = decentral_dp.run(content, set={"run.engine": "ray", "run.agents_per_actor": 6})
    assert there.records.same_releases(here.records)
    for channel, value in here.released.items():
        np.testing.assert_allclose(there.released[channel], value, atol=1e-12, rtol=0)
