"""Double-SPIDER against a loop over raw records; its plan, its thresholds, and its printed form."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.models import linear_model
from decentral_dp.participants.minimax_context import MinimaxContext
from decentral_dp.problems.minimax import composite
from tests.support.coordinator_replay import Listening, Scripted, keyed, performed, scripted, with_noise, without
from tests.support.minimax_loop import agree
from tests.support.neighbours import exceeded, widest
from tests.support.spider_loop import SpiderLoop, made

DOUBLE: dict[str, Any] = {
    "kind": "double_spider",
    "x": {"scale": 0.8, "decay": 0.2},
    "y": {"scale": 0.3},
    "period": 3,
    "smoothness": 1.5,
}
NONE = {"guarantee": "none", "clip": {}, "epsilon": None}
PRINTED = {"guarantee": "as_printed", "epsilon": 1.0}
PROBLEMS = ("auc_maximisation", "dro")


# The loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4, 0.03])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_it_is_the_loop_over_raw_records(problem: str, rate: float) -> None:
    """At the smallest rate samples are empty, and released all the same."""
    job = made(DOUBLE | {"rate": rate}, problem)
    agree(job, SpiderLoop(job, with_noise))


def test_a_clip_of_the_scenario_takes_the_place_of_a_larger_ball() -> None:
    job = made(DOUBLE, privacy={"clip": {"x": 0.2, "y": 0.1}})
    agree(job, SpiderLoop(job, with_noise))


@pytest.mark.parametrize("longest", [0.01, 100.0])
def test_no_step_is_longer_than_it_may(longest: float) -> None:
    job = made(DOUBLE | {"longest": longest})
    loop = SpiderLoop(job, with_noise)
    agree(job, loop)
    seen = [p["x"][0] for p in scripted(job, Scripted())]
    steps = np.linalg.norm(np.diff(seen, axis=0), axis=1)
    assert (steps <= longest * (1 + 1e-12)).all()
    assert (steps.max() > 0.99 * longest) == (longest == 0.01)


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_without_noise_it_is_the_loop_without_clips(problem: str, rate: float) -> None:
    job = made(DOUBLE | {"rate": rate}, problem, privacy=NONE)
    agree(job, SpiderLoop(job, without), Listening(job))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_without_noise_on_all_records_it_is_gradient_descent_in_turns(problem: str) -> None:
    ends = []
    for period in (1, 3, 7):
        smooth = {} if period == 1 else {"smoothness": 1.5}
        algorithm = {k: v for k, v in DOUBLE.items() if k != "smoothness"} | {"period": period, "rate": 1.0} | smooth
        job = made(algorithm, problem, privacy=NONE)
        ends.append(performed(job.coordinator_node(), job.rounds)[1][-1])
    for end in ends[1:]:
        for name in ("x", "y"):
            np.testing.assert_allclose(end[name], ends[0][name], atol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_with_its_own_noise_it_is_the_loop_with_the_keyed_streams(problem: str) -> None:
    """Scales by hand: what one record moves a release by, over the planned price."""
    job = made(DOUBLE, problem)
    loop = SpiderLoop(job, with_noise)
    prices = {c.channel: c.sensitivity["train"][0, 0] for c in job.ledger.channels}

    def scale(index: int, channel: str) -> float:
        return 2.0 * loop.bounds[index, channel] / (loop.rate * loop.n) / prices[channel]

    loop.say = keyed(job, scale)
    agree(job, loop, Listening(job), atol=1e-7)


# The plan ---------------------------------------------------------------------------------------------------------


def test_no_release_costs_more_than_planned() -> None:
    job = made(DOUBLE)
    outcome = performed(job.coordinator_node(), job.rounds)[0]
    assert outcome.ledger.costs_within(job.ledger)
    dearer = replace(job.ledger, channels=tuple(replace(c, scale=1.01 * c.scale) for c in job.ledger.channels))
    assert not outcome.ledger.costs_within(dearer)
    assert 0.995 * 6.0 <= job.budget.epsilon.max() <= 6.0


def test_half_is_for_either_variable_and_of_that_half_for_anchors() -> None:
    job = made(DOUBLE)
    lines = {c.channel: c for c in job.ledger.channels}
    assert lines["gy"].rounds.tolist() == [1, 7, 13]
    assert lines["dy"].rounds.tolist() == [3, 5, 9, 11]
    assert lines["gx"].rounds.tolist() == [2, 8, 14]
    assert lines["dx"].rounds.tolist() == [4, 6, 10, 12]
    squares = {name: float((c.sensitivity["train"] ** 2).sum()) for name, c in lines.items()}
    assert squares == pytest.approx(dict.fromkeys(lines, squares["gx"]))
    assert {c.sampling for c in lines.values()} == {"poisson"}
    assert all((c.rate["train"] == 0.4).all() for c in lines.values())


def test_with_one_round_a_period_there_are_no_differences() -> None:
    algorithm = {k: v for k, v in DOUBLE.items() if k != "smoothness"} | {"period": 1}
    job = made(algorithm)
    assert {c.channel for c in job.ledger.channels} == {"gx", "gy"}
    agree(job, SpiderLoop(job, with_noise))


@pytest.mark.parametrize("blocks", [2, 3])
def test_the_cut_into_blocks_changes_nothing(blocks: int) -> None:
    ends = []
    for cut in (1, blocks):
        job = made(DOUBLE, run={"blocks": cut})
        outcome, seen = performed(job.coordinator_node(), job.rounds)
        ends.append((outcome.ledger, seen[-1]))
    assert ends[0][0].same_releases(ends[1][0])
    for name in ("x", "y"):
        np.testing.assert_allclose(ends[1][1][name], ends[0][1][name], atol=1e-12)


# Sensitivity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_neighbour_exceeds_a_sensitivity_and_some_come_close(problem: str) -> None:
    job = made(DOUBLE | {"rate": 1.0}, problem, problem={"normalise": "none"})
    found = widest(job)
    assert set(found) == {"gx", "dx", "gy", "dy"}
    assert not exceeded(found)
    assert found["gx"] > 0.8
    assert found["dx"] > 0.5


def test_a_forgotten_clip_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (linear_model, composite):
        monkeypatch.setattr(module, "clip_factors", lambda norms, bound: np.isfinite(norms) * 1.0)
    assert exceeded(widest(made(DOUBLE | {"rate": 1.0}, problem={"normalise": "none"})))


def test_the_clip_of_a_mean_is_charged_with_twice_the_clip_and_as_a_share_of_it_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As printed, n plays no part in what one record moves."""
    job = made(DOUBLE | {"rate": 1.0}, problem={"normalise": "none"}, privacy=PRINTED)
    found = widest(job)
    assert not exceeded(found)
    assert max(found.values()) > 0.5
    monkeypatch.setattr(MinimaxContext, "cut_sensitivity", lambda context, width: 2.0 / context.n)
    job = made(DOUBLE | {"rate": 1.0}, problem={"normalise": "none"}, privacy=PRINTED)
    assert exceeded(widest(job))


def test_what_is_noised_is_the_difference_and_not_the_estimate() -> None:
    """A large estimate with a small noise on it would betray low bits of the difference."""
    job = made(DOUBLE)
    releaser = Listening(job)
    scripted(job, releaser)
    changes = [w for (_, channel), w in releaser.wanted.items() if channel in ("dx", "dy")]
    assert len(changes) == 8
    assert all((w.public == 0.0).all() for w in changes)


def test_where_nothing_moved_a_difference_is_nothing_and_told_as_it_is() -> None:
    job = made(DOUBLE | {"x": {"scale": 0.0}, "y": {"scale": 0.0}})
    releaser = Listening(job)
    scripted(job, releaser)
    for (_, channel), wanted in releaser.wanted.items():
        if channel in ("dx", "dy"):
            assert (wanted.value == 0.0).all()
            assert wanted.sensitivities["train"].sensitivity[0] == 0.0


# As printed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_as_printed_it_is_the_loop_that_clips_means(problem: str, rate: float) -> None:
    job = made(DOUBLE | {"rate": rate}, problem, privacy=PRINTED)
    agree(job, SpiderLoop(job, with_noise))


def test_printed_noise_is_that_of_theorem_6() -> None:
    job = made(DOUBLE | {"rounds": 30}, privacy=PRINTED)
    n, size, root = job.context.n, 0.4 * job.context.n, math.sqrt(math.log(1e4))
    often = math.sqrt(30.0) / (n * math.sqrt(3.0))
    wanted = {
        "gy": root * math.sqrt(30.0) / (n * math.sqrt(3.0 * 1.0)),
        "dy": root / size,
        "gx": root * max(1.0 / size, often),
        "dx": root * max(1.0 / size, often),
    }
    for line in job.ledger.channels:
        np.testing.assert_allclose(line.scale, wanted[line.channel])
        np.testing.assert_allclose(line.sensitivity["train"], 2.0, rtol=1e-12)
        assert (line.rate["train"] == 1.0).all()


def test_as_printed_it_is_worth_nothing() -> None:
    job = made(DOUBLE, privacy=PRINTED)
    assert job.budget.epsilon.max() > 100.0
    outcome = performed(job.coordinator_node(), job.rounds)[0]
    assert outcome.ledger.costs_within(job.ledger)


# Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem", "words"),
    [
        ({"smoothness": None}, "dro", "algorithm.smoothness: missing"),
        ({"period": 1}, "dro", "algorithm.smoothness: with period = 1"),
        ({"longest": -1.0}, "dro", "longest"),
        ({}, "kl_dro", "needs grad_x"),
    ],
)
def test_refusals(changes: dict[str, Any], problem: str, words: str) -> None:
    algorithm = {k: v for k, v in (DOUBLE | changes).items() if v is not None}
    with pytest.raises(InputError, match=words):
        made(algorithm, problem)


def test_without_a_clip_it_is_refused() -> None:
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
        made(DOUBLE, privacy={"clip": {}})
