"""Membership inference against runs, and the ceilings that ε sets in each game."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import decentral_dp
from decentral_dp.auditing.membership import (
    AttackScore,
    attack_run,
    describe_inference,
    infer_membership,
    judge_attacks,
    minimax_scores,
    read_run_folder,
    repetition,
    within_run,
)
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.privacy.releasers import PlannedReleaser
from decentral_dp.problems.class_measures import auc
from decentral_dp.simulation.jobs.build import build_job as build
from papers.membership import class_only, shifted
from tests.support.coordinator_scenarios import GOSSIP_RANKING, ranking
from tests.support.published import as_published
from tests.support.run_folders import rewrite_result
from tests.support.training import changed

RANKING: dict[str, Any] = ranking(**{"algorithm.rounds": 10}) | {"title": "AUC of breast cancer"}
# More features than records, and random labels: the model memorises the records.
BY_HEART: dict[str, Any] = {
    "seed": 1,
    "problem": {
        "kind": "auc_maximisation",
        "data": "synthetic_classification",
        "positive_share": 0.5,
        "normalise": "l2",
        "synthetic": {"dimension": 200, "records": 20, "test_records": 60, "separation": 0.0},
    },
    "topology": {"kind": "star", "agents": 2},
    "algorithm": {"kind": "dp_sgda", "rounds": 100, "x": {"scale": 5.0}, "y": {"scale": 0.5}},
    "privacy": {"guarantee": "none"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certified run on records whose held-out part is drawn at random."""
    out = tmp_path_factory.mktemp("runs") / "ranking"
    decentral_dp.run(RANKING, out=out)
    return out


def left(scenario: dict[str, Any], out: Path) -> Path:
    """A run folder without its figures."""
    with pytest.MonkeyPatch.context() as here:
        here.setattr("decentral_dp.reporting.page.draw_run", lambda *_: None)
        decentral_dp.run(scenario, out=out)
    return out


def command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments), "--membership"])


def refused(*arguments: object) -> str:
    """The sentence of a refusal; `cli.main` makes exit code 2 of it."""
    said = command(*arguments)
    assert isinstance(said.exception, InputError), said.output
    assert said.output == ""
    return str(said.exception)


# Scores ---------------------------------------------------------------------------------------------------------------


def test_the_best_score_of_classes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        members, others = rng.integers(0, 4, 30), rng.integers(0, 5, 20)
        every = max(
            auc(np.array(order)[members].astype(float), np.array(order)[others].astype(float))
            for order in itertools.permutations(range(5))
        )
        assert class_only(members, others) == pytest.approx(every)
    thinned = np.repeat([0, 1], [500, 25_000])
    assert class_only(thinned, np.array([0, 1])) == pytest.approx(0.740, abs=5e-4)
    assert class_only(thinned, np.array([0])) == pytest.approx(0.990, abs=5e-4)
    assert class_only(np.array([0, 0, 1]), np.array([0, 0, 1])) == 0.5


def test_a_constant_model_has_an_auc_of_one_half(folder: Path) -> None:
    """Test a model with values that are not finite, too. Scores do not depend on the position of a record."""
    job = read_run_folder(folder)[0]
    for x in (np.zeros((1, job.problem.p)), np.full((1, job.problem.p), np.nan)):
        assert attack_run(job, {"x": x}).auc == 0.5
    records = job.records["train"][0]
    x = np.random.default_rng(0).normal(size=job.problem.p)
    scores = minimax_scores(job.problem, x, records)
    assert np.allclose(scores, -job.problem.record_losses(x, records), rtol=1e-12)


def test_the_groups_are_train_and_held_out_records(folder: Path) -> None:
    job, published = read_run_folder(folder)
    x = published["x"][0]
    loss = job.problem.record_losses
    members = np.concatenate([-loss(x, records) for records in job.records["train"]])
    found = attack_run(job, published)
    assert (found.members, found.nonmembers) == (455, 114)
    assert found.auc == pytest.approx(auc(members, -loss(x, job.test)), abs=1e-12)


# Intervals and verdicts -----------------------------------------------------------------------------------------------


def test_repetitions_have_other_seeds_and_the_same_graph() -> None:
    graph = {"kind": "random_regular", "agents": 6, "degree": 3}
    base = load({**RANKING, "topology": graph})
    several = [repetition(base, k) for k in range(1, 6)]
    assert len({s.seed for s in several} | {1}) == 6
    assert len({s.problem.seed for s in several} | {1}) == 6
    assert {s.topology.seed for s in several} == {1}
    assert np.array_equal(build(several[0]).topology.mixing.toarray(), build(base).topology.mixing.toarray())
    assert repetition(base, 3) == several[2]
    first, second = (build(s).shards for s in several[:2])
    assert not np.array_equal(first.test, second.test)
    secret = repetition(load({k: v for k, v in RANKING.items() if k != "seed"}), 1)
    assert secret.seed is None
    assert secret.problem.seed is not None


# The command ----------------------------------------------------------------------------------------------------------


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_a_certified_run_is_within_its_ceiling(folder: Path, tmp_path: Path) -> None:
    before, out = fingerprint(folder), tmp_path / "attack.json"
    said = command(folder, "--runs", 4, "--out", out)
    assert said.exit_code == 0, said.output
    assert fingerprint(folder) == before
    told = json.loads(out.read_text(encoding="utf-8"))
    assert told["status"] == "ok"
    assert (told["runs"], told["members"], told["others"]) == (4, 455, 114)
    assert told["ceiling"] == pytest.approx(within_run(told["epsilon"], 1e-4))
    assert 1.9 < told["epsilon"] <= 2.0
    assert len(told["each"]) == 4
    assert len(set(told["each"])) == 4
    assert told["low"] < told["auc"] < told["high"] < told["ceiling"]
    assert 0.4 < told["auc"] < 0.6
    assert told["each"][0] == attack_run(*read_run_folder(folder)).auc
    assert "--out" in refused(folder, "--out", out)
    assert "--out" in refused(folder, "--out", tmp_path / "absent" / "attack.json")


# A leak is seen -------------------------------------------------------------------------------------------------------


CERTIFIED = changed(BY_HEART, privacy={"guarantee": "certified", "epsilon": 0.5, "delta": 1e-5, "clip": {"x": 1.0}})


def test_forgotten_noise_breaks_the_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same certified scenario with its noise is within, and without it above."""
    left(CERTIFIED, tmp_path / "right")
    assert command(tmp_path / "right", "--runs", 3).exit_code == 0
    monkeypatch.setattr(PlannedReleaser, "_add_noise", lambda _self, _index, _channel, value, _scale: value.value)
    left(CERTIFIED, tmp_path / "wrong")
    said = command(tmp_path / "wrong", "--runs", 4, "--out", tmp_path / "attack.json")
    assert said.exit_code == 1, said.output
    told = json.loads((tmp_path / "attack.json").read_text(encoding="utf-8"))
    assert told["status"] == "refuted"
    assert told["low"] > told["ceiling"] == pytest.approx(within_run(0.5, 1e-5), abs=1e-3)


class Diary:
    """A model that knows its members by their inputs."""

    def __init__(self, members: np.ndarray) -> None:
        self.p, self._known = 1, {row.tobytes() for row in members}

    def record_losses(self, x: np.ndarray, records: Any) -> np.ndarray:
        return np.array([float(row.tobytes() not in self._known) for row in records[0]])


def test_a_loss_that_is_membership_has_an_auc_of_one(folder: Path) -> None:
    job = read_run_folder(folder)[0]
    known = np.concatenate([records[0] for records in job.records["train"]])
    found = attack_run(replace(job, problem=Diary(known)), {"x": np.zeros((1, 1))})
    assert found.auc == 1.0
    assert judge_attacks(job, [found] * 30).status == "refuted"
    assert judge_attacks(job, [found]).status == "ok"


def test_a_claim_is_refuted_without_the_certificate(tmp_path: Path) -> None:
    """Run the published form, with a certified and a claimed ε."""
    scenario = as_published(changed(RANKING, privacy={"guarantee": "as_published", "clip": {"x": 1.0, "y": 1.0}}))
    left(scenario, tmp_path / "run")
    said = command(tmp_path / "run", "--runs", 2)
    assert said.exit_code == 0
    job = read_run_folder(tmp_path / "run")[0]
    unproven = replace(job, budget=replace(job.budget, epsilon=np.full(5, np.inf)))
    leak = [AttackScore(10, 10, value) for value in (0.95, 0.96, 0.97)]
    found = judge_attacks(unproven, leak)
    assert found.claimed is not None
    assert found.claimed[2] == within_run(2.0, 1e-4)
    assert found.auc.low > found.claimed[2]
    assert found.status == "ok"
    assert any("Refuted: the claim" in sentence for sentence in describe_inference(found))
    assert judge_attacks(job, leak).status == "refuted"


# Refusals -------------------------------------------------------------------------------------------------------------


def test_bilevel_runs_are_scored_by_their_lower_loss(scenario: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    left(scenario(), tmp_path / "ring")
    found = infer_membership(tmp_path / "ring", 2)
    assert found.auc.value == pytest.approx(np.mean([run.auc for run in found.scores]))
    job, x, y = (
        read_run_folder(tmp_path / "ring")[0],
        *(read_run_folder(tmp_path / "ring")[1][c].mean(axis=0) for c in "xy"),
    )
    train = np.concatenate(job.shards.train)
    assert found.scores[0].members == train.size
    labels = 2.0 * job.shards.labels - 1.0
    loss = np.logaddexp(0.0, -labels * (job.shards.features @ y))
    assert found.scores[0].auc == pytest.approx(auc(-loss[train], -loss[job.shards.test]), abs=1e-9)
    assert found.epsilon == job.budget.epsilon.max()
    assert x.shape == y.shape


def test_gossip_is_attacked_at_the_published_x() -> None:
    """The model of a minimax problem is x, as with a coordinator."""
    problem = GOSSIP_RANKING["problem"] | {"test": 0.3, "partition": "iid"}
    job = build(load({**GOSSIP_RANKING, "problem": problem}))
    found = attack_run(job, {"x": np.zeros((5, job.problem.p))})
    assert found.members == int(job.counts["train"].sum())
    assert found.auc == 0.5


def test_a_lower_level_that_is_not_published_gives_no_model() -> None:
    job = build(load("dp_bilevel_breast_cancer"))
    with pytest.raises(InputError, match="published y has the wrong shape \\(got none"):
        attack_run(job, {"x": np.zeros((1, job.problem.p))})


def test_other_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "result.json" in refused(tmp_path)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    np.savez(tmp_path / "state.npz", published_x=np.zeros((1, 7)))
    rewrite_result(tmp_path)
    assert "wrong shape (got (1, 7)" in refused(tmp_path)


EPSILONS = (0.0, 0.1, 1.0, 3.0, 8.0)
DELTAS = (0.0, 1e-5, 0.05, 0.3)


def beats(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """1 where the first is larger, ½ where equal."""
    return np.where(first > second, 1.0, np.where(first == second, 0.5, 0.0))


def reveal_or_respond(epsilon: float, delta: float) -> np.ndarray:
    """(2 inputs, 4 outputs): the input with probability δ, else randomised response."""
    right = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    told = (1.0 - delta) * np.array([[right, 1.0 - right], [1.0 - right, right]])
    return np.hstack([delta * np.eye(2), told])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def game_within(laws: np.ndarray, first: np.ndarray, second: np.ndarray, scores: np.ndarray) -> float:
    """Compute the AUC if M reads only the member: z ~ first, z' ~ second; laws and scores (records, outputs)."""
    total = 0.0
    for z, other in itertools.product(range(len(first)), range(len(second))):
        total += first[z] * second[other] * float(laws[z] @ beats(scores[z], scores[other]))
    return total


# The numbers ----------------------------------------------------------------------------------------------------------


def test_which_reported_values_are_impossible() -> None:
    """Xu et al. 2025, Table 2, at others drawn as members: Double up to ε = 3, Recursive up to 1, and no further."""
    claimed = (0.1, 1.0, 3.0, 5.0, 8.0, 10.0)
    double = (0.9719, 0.9723, 0.9717, 0.9723, 0.9724, 0.9715)
    recursive = (0.8234, 0.7932, 0.7958, 0.8014, 0.8001, 0.7825)
    delta = 25_500.0**-1.1
    assert [a > within_run(e, delta) for e, a in zip(claimed, double, strict=True)] == [True] * 3 + [False] * 3
    assert [a > within_run(e, delta) for e, a in zip(claimed, recursive, strict=True)] == [True] * 2 + [False] * 4
    for reported in (double, recursive):
        assert all(a < shifted(e, delta, 0.990) for e, a in zip(claimed, reported, strict=True))


# Attained -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_reveal_or_respond_attains_the_ceiling(epsilon: float, delta: float) -> None:
    """Attain the bound for two records in random order."""
    laws = reveal_or_respond(epsilon, delta)
    assert hockey_stick(laws[0], laws[1], epsilon) == pytest.approx(delta, abs=1e-12)
    one, other = laws[0] @ beats(laws[0], laws[1]), laws[1] @ beats(laws[1], laws[0])
    assert 0.5 * (one + other) == pytest.approx(within_run(epsilon, delta), abs=1e-12)


# Never exceeded -------------------------------------------------------------------------------------------------------

budgets = st.floats(0.0, 4.0)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), epsilon=budgets, peaked=st.floats(0.05, 3.0))
def test_no_mechanism_exceeds_the_ceiling_of_its_game(seed: int, epsilon: float, peaked: float) -> None:
    """Mechanisms drawn at random, δ computed from what they are; scored by likelihood and at random."""
    rng = np.random.default_rng(seed)
    records, outputs = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    laws = rng.dirichlet(np.full(outputs, peaked), size=records)
    empty = rng.dirichlet(np.full(outputs, peaked))
    first, second = rng.dirichlet(np.ones(records)), rng.dirichlet(np.ones(records))
    replaced = max(hockey_stick(p, q, epsilon) for p, q in itertools.permutations(laws, 2))
    removed = max(max(hockey_stick(p, empty, epsilon), hockey_stick(empty, p, epsilon)) for p in laws)
    rank = np.argsort(-first / second)
    # The best order of records for every mechanism: the sum over pairs, by hand.
    apart = sum(
        first[a] * second[b] * (1.0 if i < j else 0.5 if i == j else 0.0)
        for i, a in enumerate(rank)
        for j, b in enumerate(rank)
    )
    for scores in (laws, laws / np.maximum(first @ laws, 1e-300), rng.random(laws.shape), np.zeros(laws.shape)):
        alike = game_within(laws, first, first, scores)
        assert alike <= within_run(epsilon, replaced) + 1e-12
        differing = game_within(laws, first, second, scores)
        assert differing <= shifted(epsilon, replaced, apart) + 1e-12
        assert differing <= shifted(epsilon, min(1.0, removed), apart) + 1e-12
