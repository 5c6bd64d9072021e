"""The Python interface: plan, run, audit, check and network view of a job, and wrong uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError

FEW = {"algorithm.rounds": 2, "topology.agents": 5}
TEXT = ["algorithm.rounds=2", "topology.agents=5"]


@pytest.fixture(scope="module")
def job() -> decentral_dp.Job:
    return decentral_dp.build("network_view", set=FEW)


def test_a_job_has_all_functions(job: decentral_dp.Job, tmp_path: Path) -> None:
    assert job.plan().rounds == job.rounds == 2
    run = job.run(out=tmp_path / "run")
    assert (tmp_path / "run" / "result.json").is_file()
    plain = decentral_dp.run(load("network_view", TEXT))
    for channel, value in plain.released.items():
        np.testing.assert_array_equal(run.released[channel], value)
    shown = job.audit(runs=20)
    assert shown.shown <= shown.certified
    assert repr(shown).count("≥") == 1
    assert shown == decentral_dp.audit(job, runs=20)
    np.testing.assert_array_equal(job.network().certified, decentral_dp.network_view(job).certified)
    assert job.check(pairs=2, rounds=1).passed
    assert "\n" not in repr(job)


def test_a_job_and_its_scenario_have_one_plan(job: decentral_dp.Job) -> None:
    assert str(decentral_dp.plan(job)) == str(decentral_dp.plan("network_view", set=FEW)) == str(job.plan())
    assert str(decentral_dp.plan(load("network_view", TEXT))) == str(job.plan())


def test_changed_values_are_converted() -> None:
    changed = {
        "title": 'a "quoted" title\twith a tab',
        "seed": np.int64(3),
        "algorithm.rounds": np.int32(2),
        "privacy.epsilon": np.float64(0.5),
        "topology": {"kind": "ring", "agents": 4},
        "run.measures": ["lower_loss"],
    }
    plan = decentral_dp.build("quadratic", set=changed).scenario
    assert (plan.title, plan.seed, plan.algorithm.rounds) == (changed["title"], 3, 2)
    assert (plan.privacy.epsilon, plan.topology.agents, plan.run.measures) == (0.5, 4, ["lower_loss"])
    unset = decentral_dp.load("quadratic", set={"run.evaluate_every": None, "algorithm.rounds": 2})
    assert unset.run.evaluate_every is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"set": {"algorithm.round": 2}}, "algorithm.round"),
        ({"algorithm": "ldp_dsbo"}, 'set={"algorithm.kind": "ldp_dsbo"}'),
        ({"mechanism": "laplace"}, 'set={"privacy.mechanism": "laplace"}'),
        ({"max_grad_norm": 1.0}, "argument 'max_grad_norm'. Fix: use set={KEY: value} with privacy.clip."),
        ({"colour": 1}, "argument 'colour'. Valid: "),
    ],
)
@pytest.mark.parametrize("function", [decentral_dp.plan, decentral_dp.run, decentral_dp.audit])
def test_wrong_uses_are_refused(function: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((InputError, TypeError)) as refused:
        function("quadratic", **options)
    assert sentence in str(refused.value)
    assert "--set" not in str(refused.value)


@pytest.mark.parametrize("function", [decentral_dp.plan, decentral_dp.run, decentral_dp.audit])
def test_a_planned_job_takes_no_changes(function: Any, job: decentral_dp.Job) -> None:
    with pytest.raises(InputError, match="set cannot change a planned job"):
        function(job, set={"algorithm.rounds": 3})


def test_a_check_of_a_job_with_objects_is_refused() -> None:
    job = decentral_dp.build("quadratic", set={"algorithm.rounds": 2}, topology=nx.cycle_graph(5))
    with pytest.raises(InputError, match=r"not supported for a job with Python objects \(got topology"):
        job.check()


def test_a_job_has_the_attributes_of_its_plan(job: decentral_dp.Job) -> None:
    planned = job.simulation()
    for name in ("scenario", "n_agents", "rounds", "topology", "algorithm", "ledger"):
        assert getattr(job, name) is getattr(planned, name)
    assert not hasattr(job, "shards")
