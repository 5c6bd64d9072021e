"""Runs round by round, metrics and early stopping by functions of released values."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.algorithms import DpDsgd
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import account
from decentral_dp.user_code import UserCodeError

ROUNDS = 12
FEW: dict[str, Any] = {"algorithm.rounds": ROUNDS, "run.evaluate_every": 4}


@pytest.fixture(scope="module")
def job() -> decentral_dp.Job:
    return decentral_dp.build("dp_dsgd", set=FEW)


@pytest.fixture(scope="module")
def whole(job: decentral_dp.Job) -> decentral_dp.Run:
    return job.run()


def norm(released: Mapping[str, Any]) -> float:
    return float(np.linalg.norm(released["y"]))


def same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return all(np.array_equal(a[channel], b[channel]) for channel in (*a, *b))


def test_steps_release_what_a_run_releases(job: decentral_dp.Job, whole: decentral_dp.Run) -> None:
    steps = list(job.steps(every=5))
    assert [step.round for step in steps] == [0, 5, 10, ROUNDS]
    assert same(steps[-1].released, whole.released)
    assert not same(steps[-2].released, whole.released)
    for step in steps:
        with pytest.raises(ValueError, match="read-only"):
            step.released["y"][0] = 0.0


def test_epsilon_and_bits_of_a_step_cover_its_releases(job: decentral_dp.Job, whole: decentral_dp.Run) -> None:
    table = whole.ledger
    sent = job.plan().communication
    for step in job.steps(every=5):
        # The releases of the ledger whose round is complete, one by one.
        made = account(job.ledger.truncate(step.round), job.scenario.privacy.delta)
        least = made.epsilon.max() if step.round else 0.0
        assert least <= step.epsilon <= least * (1.0 + 1e-4)
        assert (step.bits == 0, step.bits == sent.bits) == (step.round == 0, step.round == job.rounds)
        assert len(table[table["round"] <= step.round]) == len(job.ledger.truncate(step.round).to_frame())


def test_released_values_of_a_step_are_those_that_epsilon_covers(tmp_path: Path) -> None:
    job = decentral_dp.build("dp_dsgd", set=FEW | {"run.keep_releases": True})
    steps = {step.round: step for step in job.steps(tmp_path / "run")}
    table = pd.read_parquet(tmp_path / "run" / "releases.parquet")
    for t in (1, 7, ROUNDS):
        rows = table[(table["channel"] == "y") & (table["round"] == t)].sort_values("agent")
        np.testing.assert_array_equal(np.stack(rows["values"].tolist()), steps[t].released["y"])


def test_a_loop_that_ends_early_interrupts_the_run(tmp_path: Path, whole: decentral_dp.Run) -> None:
    folder, threads = tmp_path / "run", threading.active_count()
    for step in decentral_dp.build("dp_dsgd", set=FEW).steps(folder):
        if step.round == 7:
            break
    del step
    assert threading.active_count() == threads
    content = json.loads((folder / "result.json").read_text())
    assert content["status"] == "interrupted"
    assert 7 <= content["rounds"] < ROUNDS
    # The loop may have ended because of released values.
    assert content["privacy"]["epsilon_max"] == whole.result.privacy.epsilon_max
    resumed = decentral_dp.resume(folder)
    assert resumed.result.status == "ok"
    assert same(resumed.released, whole.released)


def test_a_run_with_an_algorithm_object_resumes_with_it_only(tmp_path: Path) -> None:
    algorithm = DpDsgd(learning_rate=0.5)
    for step in decentral_dp.build("dp_dsgd", algorithm=algorithm, set=FEW).steps(tmp_path / "run"):
        if step.round == 7:
            break
    del step
    with pytest.raises(InputError, match="the Python objects"):
        decentral_dp.resume(tmp_path / "run")
    assert decentral_dp.resume(tmp_path / "run", algorithm=algorithm).result.status == "ok"


def test_an_error_of_a_run_is_raised_in_the_loop(job: decentral_dp.Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="already exists"):
        next(job.steps(tmp_path))
    for every in (0, 2.5):
        with pytest.raises(InputError, match=r"^every: out of range"):
            job.steps(every=every)  # type: ignore[arg-type]


def test_metrics_of_released_values_are_recorded(job: decentral_dp.Job, tmp_path: Path) -> None:
    run = job.run(tmp_path / "run", metrics={"norm": norm})
    own = run.metrics[run.metrics["name"] == "norm"]
    assert own["round"].tolist() == [0, 4, 8, ROUNDS]
    assert own["value"].iloc[-1] == norm(run.released) == run.result.metrics["norm"]
    budget = decentral_dp.Budget(10.0, 1e-5, tmp_path / "budget.json")
    unspent = (tmp_path / "budget.json").read_text()
    for name in ("test_accuracy", "epsilon_spent", "consensus_y_max"):
        with pytest.raises(InputError, match=rf"^metrics: '{name}' is a name in \"decentral-dp list measures\""):
            job.run(metrics={name: norm}, budget=budget)
    assert (tmp_path / "budget.json").read_text() == unspent
    with pytest.raises(UserCodeError, match=r"^norm: fails after round 0: KeyError"):
        job.run(metrics={"norm": lambda released: norm({"y": released["z"]})})


def test_a_run_that_custom_code_ends_costs_the_plan(job: decentral_dp.Job, tmp_path: Path) -> None:
    start = [norm(step.released) for step in itertools.islice(job.steps(), 1)]

    def norm_of_start(released: Mapping[str, Any]) -> float:
        if norm(released) not in start:
            raise ValueError("not the start")
        return start[0]

    with pytest.raises(UserCodeError, match=r"^norm: fails after round 4"):
        job.run(tmp_path / "run", metrics={"norm": norm_of_start})
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    assert content["status"] == "failed"
    assert content["rounds"] < ROUNDS
    assert content["privacy"]["epsilon_max"] == job.plan().privacy.epsilon_max


def test_a_stop_ends_the_run_at_the_cost_of_the_plan(tmp_path: Path) -> None:
    job = decentral_dp.build("dp_dsgd", set=FEW | {"run.keep_releases": True})
    run = job.run(tmp_path / "run", stop=lambda released: norm(released) > 0.0)
    assert (run.result.status, run.result.rounds, run.records.rounds) == ("ok", 4, 4)
    assert run.result.privacy.epsilon_max == job.plan().privacy.epsilon_max
    assert pd.read_parquet(tmp_path / "run" / "releases.parquet")["round"].max() == 4
    page = re.sub("<[^>]*>", "", (tmp_path / "run" / "report.html").read_text())
    assert "ended the run after 4 of 12 rounds. ε is that of all 12." in page
    never = job.run(stop=lambda released: False)
    assert never.result.rounds == ROUNDS


def test_rounds_of_published_models_are_fixed() -> None:
    job = decentral_dp.build("dp_dsgd_published", set={"algorithm.rounds": 2})
    with pytest.raises(
        InputError, match=r'^stop: privacy\.adversary = "final_average" requires a fixed number of rounds'
    ):
        job.run(stop=lambda released: True)
    with pytest.raises(InputError, match=r"^steps: privacy\.adversary"):
        next(job.steps())


def test_steps_of_a_coordinator() -> None:
    job = decentral_dp.build("dp_sgda", set={"algorithm.rounds": 3})
    steps = list(job.steps())
    assert [(step.round, step.bits) for step in steps] == [(t, 0) for t in range(4)]
    assert same(steps[-1].released, job.run().released)
    assert steps[-1].epsilon > steps[1].epsilon > 0.0
