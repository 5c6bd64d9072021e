"""Runs of a component on neighbouring data: noiseless values may not differ, nor a partition follow labels."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.auditing.component_runs import (
    ROUNDS,
    WatchedRun,
    check_rows,
    compare_pairs,
    compare_to_plan,
    synthetic_shards,
    trial_partition,
)
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import Shards
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter
from decentral_dp.problems.protocol import TERMS
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from tests.support.pages import write_algorithm


@pytest.fixture(scope="module")
def shards() -> Shards:
    found: Shards = build_job("ldp_dsbo").shards
    return found


def in_turn(labels: Any, agents: int, **rest: Any) -> Any:
    return np.arange(len(labels)) % agents


def sorted_by_label(labels: Any, agents: int, **rest: Any) -> Any:
    owner = np.empty(len(labels), dtype=int)
    owner[np.argsort(labels, kind="stable")] = np.arange(len(labels)) * agents // len(labels)
    return owner


DEALS = {
    "places": (in_turn, False),
    "sorted by label": (sorted_by_label, True),
    "own label": (lambda labels, agents, **rest: labels.astype(int) % agents, True),
}


@pytest.mark.parametrize("deal", DEALS)
def test_a_partition_that_reads_labels_is_detected(shards: Shards, deal: str) -> None:
    assert trial_partition(DEALS[deal][0], shards) == (True, DEALS[deal][1])


def test_a_partition_that_does_not_repeat_is_detected(shards: Shards) -> None:
    calls = itertools.count()
    repeats, _ = trial_partition(lambda labels, agents, **_: (np.arange(len(labels)) + next(calls)) % agents, shards)
    assert not repeats


CLASSES = (0.0, 1.0)
# Replaced text of the page's example → error.
FREE = '{"y": {"lower_grad_y": "learning_rate"}, "u": {}}'
STATED = '{"y": {"lower_grad_y": "learning_rate"}}'
SENT = "yield Gossip(y=s.y)"


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> decentral_dp.Scenario:
    return load(write_algorithm(folder, name, *changes))


def assert_clean(problem: str) -> None:
    if problem:
        raise InputError(problem)


def probe(job: PlannedJob) -> None:
    """Compare the first rounds of a job on few pairs, as `check` does on many."""
    check_rows(job)
    transcript = WatchedRun(replace(job, rounds=min(ROUNDS, job.rounds)))
    recorded = transcript.record(synthetic_shards(job.shards, 0)).ledger
    transcript.repeat()
    assert_clean(compare_to_plan(transcript, recorded))
    for comparison in compare_pairs(transcript):
        assert_clean(comparison.problem)


def said(scenario: Any, **given: Any) -> str:
    job = build_job(scenario, **given)
    with pytest.raises(InputError) as caught:
        probe(job)
    text = str(caught.value)
    assert "\n" not in text
    assert "Fix: " in text
    return text


OPENED = {
    "the value": "s.y.value if t else s.x[:, :1].repeat(s.y.shape[1], 1)",
    "the private part": "s.y.private if t else 0.0 * s.last",
    "one bit of it": "0.0 * s.last + (float(int(abs(s.y.value.sum()) * 1e9) % 2) if t else 0.0)",
    "a record": "0.0 * s.last + dataset._records['train'][0][0].sum()",
    "a label": "0.0 * s.last + dataset._records['train'][0][0][:, 0].max()",
}


@pytest.mark.parametrize("case", OPENED)
def test_a_plain_array_that_reads_records_is_refused(tmp_path: Path, case: str) -> None:
    text = said(changed(tmp_path, "momentum", (STATED, FREE), (SENT, f"yield Gossip(y=s.y, u={OPENED[case]})")))
    assert "sends u in round" in text
    assert "without noise" in text


def test_a_start_from_records_is_refused(tmp_path: Path) -> None:
    start = "State(x, y + dataset._records['train'][0][0].mean(), y)"
    text = said(changed(tmp_path, "momentum", ("return State(x, y, y)", f"return {start}")))
    assert "sends y in round 0 without noise" in text


PRETENDED = {
    "public": ("public=b.value, private=0.0 * b.private", "the public part of y in round 1 without noise"),
    "sensitivity": ("private=100.0 * b.private", "too small a sensitivity for y in round 1"),
    "price": (
        "sensitivities={k: v._replace(sensitivity=v.sensitivity * (1.0 + 1e-10 * abs(b.private[0, 0])))"
        " for k, v in b.sensitivities.items()}",
        "the sensitivity of y in round 1 without noise",
    ),
}


@pytest.mark.parametrize("case", PRETENDED)
def test_a_bounded_value_made_by_hand_is_refused(tmp_path: Path, case: str) -> None:
    parts, told = PRETENDED[case]
    new = f"return State(s.x, (lambda b: replace(b, {parts}))(moved - self.learning_rate(t) * gradient), own.y)"
    text = said(
        changed(
            tmp_path,
            "momentum",
            ("from dataclasses import dataclass", "from dataclasses import dataclass, replace"),
            ("return State(s.x, moved - self.learning_rate(t) * gradient, own.y)", new),
        )
    )
    assert told in text


# Coordinators.

GRADIENTS = "yield from release_gradients(t, context, self.QUERIES, s.x, s.y, self.rate)"
ASKED = "Ask(secret=context.query('grad_y', s.x, s.y, self.rate))"
AVERAGED = {
    "published": f"{GRADIENTS}; s = s._replace(x=s.x + (yield {ASKED}).secret.value.sum())",
    "asked": f"{GRADIENTS}; yield Ask(g=context.query('grad_x', s.x + (yield {ASKED}).secret.value.sum(), s.y))",
    "often": f"{GRADIENTS}; _ = (yield {ASKED}) if (yield {ASKED}).secret.value.sum() * 1e9 % 2 > 1 else None",
}


@pytest.mark.parametrize("case", AVERAGED)
def test_a_coordinator_that_leaks_records_is_refused(tmp_path: Path, case: str) -> None:
    head = "from dataclasses import dataclass\n"
    scenario = changed(
        tmp_path,
        "averaged",
        (head, f"{head}from decentral_dp.exchange import Ask\n"),
        (f"g = {GRADIENTS}", f"g = {AVERAGED[case]}"),
    )
    text = said(scenario)
    told = {"published": "publishes x after round", "asked": "asks for g in round 0", "often": "other exchanges"}[case]
    assert told in text


# Custom problems that clip.


@dataclass(frozen=True)
class Centred(LogisticHyperparameter):
    """`prepare` subtracts the mean of all agents' records, and every term reads it."""

    def prepare(self, features: Any, labels: Any, norm: Any) -> Any:
        return super().prepare(features - features.mean(axis=0), labels, norm)


@dataclass(frozen=True)
class CountsSome(LogisticHyperparameter):
    """A mean over the records that are not 0, which random records do not show."""

    def terms(
        self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Any, wanted: Collection[str] = TERMS
    ) -> Any:
        found = super().terms(x, y, z, train, validation, clip, wanted)
        share = max(1, train.signed.any(axis=1).sum()) / len(train.signed)
        gradient = found.lower_grad_y
        return found if gradient is None else found._replace(lower_grad_y=gradient / share)


def test_a_problem_with_a_mean_over_all_records_is_refused(scenario: Any) -> None:
    """Refused, not labelled: a record of one agent moves the terms of the others, who do not hold it."""
    text = said(scenario(), problem=Centred(30, CLASSES))
    assert text.startswith("problem.kind: Centred states too small a sensitivity")
    assert "who does not hold it" in text


def test_a_problem_that_counts_only_some_records_is_refused(scenario: Any) -> None:
    text = said(scenario(), problem=CountsSome(30, CLASSES))
    assert "CountsSome states too small a sensitivity for y in round" in text
