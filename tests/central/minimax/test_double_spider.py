"""Double-SPIDER against a loop over raw records; its plan, its thresholds, and its printed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decentral_dp.central.context import MinimaxContext
from tests.support.coordinator_replay import Listening, Scripted, performed, scripted, with_noise
from tests.support.minimax_loop import agree
from tests.support.neighbours import exceeded, widest
from tests.support.spider_loop import DOUBLE, NONE, SpiderLoop, made

PRINTED = {"guarantee": "as_published", "epsilon": 1.0}
PROBLEMS = ("auc_maximisation", "dro")


# The loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [0.01, 100.0])
def test_no_step_is_longer_than_it_may(longest: float) -> None:
    job = made(DOUBLE | {"longest": longest})
    loop = SpiderLoop(job, with_noise)
    agree(job, loop)
    seen = [p["x"][0] for p in scripted(job, Scripted())]
    steps = np.linalg.norm(np.diff(seen, axis=0), axis=1)
    assert (steps <= longest * (1 + 1e-12)).all()
    assert (steps.max() > 0.99 * longest) == (longest == 0.01)


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


# The plan ---------------------------------------------------------------------------------------------------------


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


# Sensitivity ------------------------------------------------------------------------------------------------------


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
def test_as_published_it_is_the_loop_that_clips_means(problem: str, rate: float) -> None:
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


def test_as_published_it_is_worth_nothing() -> None:
    job = made(DOUBLE, privacy=PRINTED)
    assert job.budget.epsilon.max() > 100.0
    outcome = performed(job.coordinator_node(), job.rounds)[0]
    assert outcome.ledger.costs_within(job.ledger)


# Refusals ---------------------------------------------------------------------------------------------------------
