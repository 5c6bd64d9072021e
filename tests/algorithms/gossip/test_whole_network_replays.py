"""A search over neighbouring records and messages in a whole network, where it matters who sends, or how compressed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp.algorithms.gossip.choco import Choco
from decentral_dp.algorithms.gossip.random_walk import RandomWalk
from tests.support.naive import change_end, made, opposite_labels
from tests.support.replay import network_replay
from tests.support.single_level import base

COMPRESSIONS = ({"kind": "top_k", "share": 0.5}, {"kind": "qsgd", "levels": 4})
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("random_walk", {"kind": "ring", "agents": 4}),
    ("random_walk", {"kind": "star", "agents": 4}),
    *(("choco", {"kind": "ring", "agents": 4, "compression": table}) for table in COMPRESSIONS),
)


def search(name: str, topology: dict[str, Any], program: Any = None, seeds: int = 12) -> float:
    """The largest share of its planned sensitivity by which one record of one agent moves a release.

    Fails where another agent's release moves, or what counts as public, or a release that is not planned.
    """
    largest = 0.0
    for seed in range(seeds):
        rng = np.random.default_rng([9, seed])
        job: Any = made("crossed", base(name, topology=topology))
        if program is not None:
            job = replace(job, algorithm=program(job.algorithm.learning_rate, start=job.algorithm.start))
        m, victim = job.n_agents, int(rng.integers(job.n_agents))
        transcript = [{"x": np.full((m, 2), 0.7), "y": 5.0 * rng.normal(size=(m, 2))} for _ in range(job.rounds + 1)]
        wanted = []
        for data_set in opposite_labels(rng, "train", seed % 2 == 0):
            train = list(job.records["train"])
            train[victim] = job.problem.prepare(*data_set["train"], job.clip.norm)
            script = network_replay(replace(job, records={**job.records, "train": train}), transcript)
            wanted.append(script)
        (planned,) = job.ledger.charged_channels
        # Six records were planned, and three are there.
        allowed = 2.0 * planned.sensitivity["train"][:, planned.group]
        for t in range(job.rounds):
            one, other = (script.wanted[t + 1]["y"] for script in wanted)
            sends = np.ones(m, bool) if wanted[0].sends[t + 1] is None else wanted[0].sends[t + 1]
            np.testing.assert_array_equal(one.public, other.public)
            moved = np.abs(one.private - other.private).sum(axis=1)
            assert not moved[np.arange(m) != victim].any()
            np.testing.assert_array_equal(allowed[t] > 0.0, sends)
            if sends[victim]:
                largest = max(largest, float(moved[victim] / allowed[t, victim]))
    return largest


@pytest.mark.parametrize(("name", "topology"), CASES, ids=str)
def test_no_neighbour_in_a_network_exceeds_the_plan_and_the_worst_reaches_it(
    name: str, topology: dict[str, Any]
) -> None:
    assert 0.99 < search(name, topology) <= 1.0 + 1e-9


class TwoSteps(RandomWalk):
    """The holder takes its step twice."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        after = yield from super().step(t, dataset, s)
        return after._replace(y=after.y - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, after.y.public))


class Unnoised(Choco):
    """Goes on from its value before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        step = super().step(t, dataset, s)
        return change_end(step, lambda after, reply: after._replace(y=after.y + (s.y - reply.released.y)))


@pytest.mark.parametrize(("case", "program"), [(0, TwoSteps), (2, Unnoised)])
def test_the_search_sees_a_program_that_moves_more(case: int, program: type) -> None:
    name, topology = CASES[case]
    assert search(name, topology, program) > 1.2
