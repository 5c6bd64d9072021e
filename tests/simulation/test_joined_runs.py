"""Runs of one shape that are computed together, as seeds of a study are: bitwise those of single runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.jobs import joined
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.run import Run, run_job, run_jobs, run_joined

# A server, agents that send in turns, changing graphs, compressed messages, and noise that agents share.
ONE_BY_ONE = {"bsa", "choco", "federated", "push_sum", "random_walk"}
GOSSIP = [name for name, entry in ALGORITHMS.items() if entry.setting == "gossip"]
# Other problems, models, mechanisms and samplings.
FURTHER = ["biased_regularisation", "minibatch_torus", "quadratic", "ring_breast_cancer", "stream_laplace"]


def seeds(name: str, *changes: str, rounds: int = 3) -> list[PlannedJob]:
    """Plan a scenario for three seeds, which differ in the split of the records, too."""
    return [build(load(name, [f"algorithm.rounds={rounds}", f"seed={k}", *changes])) for k in (1, 2, 3)]


def content(run: Run) -> dict[str, Any]:
    """Return all of a run but its time."""
    arrays = {"released": run.released, "published": run.published, "state": run.state, "metrics": run.measured}
    values = {part: {c: (v.shape, v.tolist()) for c, v in each.items()} for part, each in arrays.items()}
    text = json.dumps({**run.result.content, "seconds": 0}, default=str)
    return {"values": repr(values), "result": text, "ledger": run.ledger.to_csv()}


@pytest.fixture
def no_single_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_perform", lambda *a: pytest.fail("ran by itself"))


@pytest.mark.parametrize("name", GOSSIP + FURTHER)
def test_joined_runs_have_the_bits_of_single_runs(name: str) -> None:
    jobs = seeds(name)
    runs = run_joined(jobs)
    assert [run is None for run in runs] == [name in ONE_BY_ONE] * 3
    for job, run in zip(jobs, runs, strict=True):
        assert run is None or content(run) == content(run_job(job))


@pytest.mark.parametrize(
    "changes",
    [
        ["algorithm.learning_rate=0.3"],
        ["privacy.clip=0.5"],
        ["algorithm.rounds=4"],
        ["topology.agents=8"],
        ["run.average=2"],
        ['privacy.unit="agent"'],
        ['problem.sampling={kind="fixed_batch",batch_size=8}'],
        ['problem.model={kind="mlp",hidden=[4]}'],
    ],
)
def test_runs_that_differ_in_more_than_records_and_noise_are_not_joined(changes: list[str]) -> None:
    settings = ["seed=1", "algorithm.rounds=3", "algorithm.learning_rate=0.2", "run.average=1"]
    one, other = build(load("dp_dsgd", settings)), build(load("dp_dsgd", [*settings, *changes]))
    assert joined.group_jobs([one, build(load("dp_dsgd", [*settings, "seed=2"]))]) == [[0, 1]]
    assert joined.group_jobs([one, other]) == []


def test_bilevel_runs_with_other_clips_are_not_joined() -> None:
    """Clips do not determine the hyper-parameters here."""
    one, *others = [
        build(load("ldp_dsbo", ["algorithm.rounds=3", f"privacy.clip={{x={clip},y=1.0,z=1.0}}"]))
        for clip in (1, 1, 0.5)
    ]
    assert joined.group_jobs([one, *others]) == [[0, 1]]


def test_graphs_are_those_of_each_seed() -> None:
    jobs = seeds("digits_softmax", "run.average=1")
    assert len({tuple(job.topology.edges.ravel().tolist()) for job in jobs}) == 3
    for job, run in zip(jobs, run_joined(jobs), strict=True):
        assert run is not None
        assert content(run) == content(run_job(job))


def test_problems_are_those_of_each_seed() -> None:
    """Labels are flipped at random."""
    assert run_joined(seeds("hyper_cleaning")) == [None] * 3
    jobs = seeds("hyper_cleaning", "problem.seed=1")
    for job, run in zip(jobs, run_joined(jobs), strict=True):
        assert run is not None
        assert content(run) == content(run_job(job))


@pytest.mark.parametrize("name", ["dp_dsgd", "stream_laplace"])
def test_secret_noise_is_that_of_each_run(name: str) -> None:
    scenario = load(name, ["algorithm.rounds=3", "problem.seed=1", "topology.seed=1"])
    jobs = [build(scenario.model_copy(update={"seed": None})) for _ in range(3)]
    runs = run_joined(jobs)
    for job, run in zip(jobs, runs, strict=True):
        assert run is not None
        assert content(run) == content(run_job(job))
    assert len({repr(run and run.released["y"].tolist()) for run in runs}) == 3


def test_unequal_counts_are_those_of_each_seed() -> None:
    changes = ['problem.partition={kind="dirichlet",alpha=0.5}', 'problem.weights="records"']
    jobs = seeds("ring_breast_cancer", *changes)
    assert len({tuple(job.shards.train_counts.tolist()) for job in jobs}) == 3
    for job, run in zip(jobs, run_joined(jobs), strict=True):
        assert run is not None
        assert content(run) == content(run_job(job))


def test_cyclic_batches_are_not_joined() -> None:
    """Their public order depends on the seed and on the number of the agent."""
    changes = ['problem.sampling={kind="cyclic",batch_size=8}', 'privacy={guarantee="none"}']
    assert run_joined(seeds("classification", *changes)) == [None] * 3


def test_after_a_divergence_every_run_is_repeated_by_itself() -> None:
    jobs = seeds("quadratic", "algorithm.x={scale=1e3}", 'privacy={guarantee="none"}', rounds=60)
    assert joined.group_jobs(jobs) == [[0, 1, 2]]
    assert run_joined(jobs) == [None] * 3
    runs = list(run_jobs(jobs))
    assert {run.result.status for run in runs} == {"diverged"}
    assert [content(run) for run in runs] == [content(run_job(job)) for job in jobs]


def test_an_error_of_a_joined_run_is_left_to_its_single_run(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = seeds("quadratic")
    single = [content(run_job(job)) for job in jobs]
    finish = runner._finish

    def fails(job: PlannedJob, *arguments: Any) -> Run:
        if job is jobs[1] and len(arguments) == 3:
            raise MemoryError("no memory")
        return finish(job, *arguments)

    monkeypatch.setattr(runner, "_finish", fails)
    runs = run_joined(jobs)
    assert [run is None for run in runs] == [False, True, True]
    assert [content(run) for run in run_jobs(jobs)] == single


def test_seeds_and_their_baselines_are_joined(no_single_run: None, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"algorithm.rounds": 3}
    run = decentral_dp.run("classification", set=settings, baselines=True, seeds=2)
    monkeypatch.undo()
    watched = decentral_dp.run(
        "classification", set=settings, baselines=True, seeds=2, metrics={"zero": lambda released: 0.0}
    )
    for one, other in zip([run, *run.repeats], [watched, *watched.repeats], strict=True):
        assert list(one.baselines) == list(other.baselines) == ["alone", "central", "none"]
        for name, baseline in one.baselines.items():
            assert content(baseline) == content(other.baselines[name])
        np.testing.assert_array_equal(one.released["y"], other.released["y"])


def test_groups_fit_into_memory() -> None:
    """A tail average keeps the models of many rounds, and large models gain nothing."""
    tail = ["run.average=0.5", "algorithm.rounds=9000"]
    large = ["run.average=1", 'problem.model={kind="mlp",hidden=[400]}']
    jobs = [build(load("classification", changes)) for changes in (["run.average=1"], tail, large)]
    assert [joined.most_joined(job) for job in jobs] == [32, 1, 1]
