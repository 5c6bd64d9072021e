"""Audits of published models: the adversary receives the final models or their average, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from decentral_dp import load
from decentral_dp.auditing.audit import choose_score, plan_audit, play_game, visible_numbers
from decentral_dp.auditing.neighbours import find_neighbours
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import GossipJob


def make_job(view: str, epsilon: float, rounds: int = 4) -> GossipJob:
    keys = {"problem.data": "breast_cancer", "topology.kind": "ring", "topology.agents": 4}
    keys |= {"privacy.adversary": view, "privacy.epsilon": epsilon, "algorithm.rounds": rounds}
    job = build_job(load("dp_dsgd_published", set=keys))
    assert isinstance(job, GossipJob)
    return job


@pytest.mark.parametrize(("view", "runs"), [("final_models", 150), ("final_average", 150), ("final_average", 10_000)])
def test_published_models_show_no_more_than_certified(view: str, runs: int) -> None:
    job = make_job(view, 8.0)
    found = play_game(plan_audit(job, runs, view))
    assert found.status == "ok"
    assert job.published is not None
    assert found.certified in job.published
    assert found.certified < job.budget.epsilon.max()
    # A record shows: the adversary is not blind.
    assert found.shown > 0.3


def test_the_adversary_receives_exactly_the_published_values() -> None:
    job = make_job("final_average", 8.0)
    plan = plan_audit(job, 20, "final_average")
    neighbours = find_neighbours(job, plan.root("search", 0))
    transcript = neighbours.observe(neighbours.first, plan.root("first", 0))
    models = transcript.published.reshape(job.n_agents, -1)
    assert np.array_equal(visible_numbers("final_models", transcript, neighbours), models.ravel())
    assert np.array_equal(visible_numbers("final_average", transcript, neighbours), models.mean(axis=0))
    # No likelihood of messages that the adversary does not receive.
    assert not choose_score("final_average", neighbours, lambda k: plan.root("learn", k), True)[1]


@pytest.mark.parametrize("view", ["final_models", "final_average"])
def test_epsilon_of_published_models_does_not_hold_for_all_messages(view: str) -> None:
    job = make_job(view, 2.0, rounds=20)
    assert job.published is not None
    claim = replace(job, budget=replace(job.budget, epsilon=job.published))
    found = play_game(plan_audit(claim, 40, "all_messages"))
    assert found.status == "refuted"


def test_a_job_has_the_view_of_its_adversary_only() -> None:
    with pytest.raises(InputError, match=r"adversary: not of this job \(got 'final_models'"):
        plan_audit(make_job("final_average", 8.0), 20, "final_models")
    with pytest.raises(InputError, match=r"adversary: not of this job \(got 'final_average'"):
        plan_audit("dp_dsgd", 20, "final_average")
