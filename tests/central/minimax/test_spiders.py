"""DP-SPIDER, DP-SGD on the dual objective, Double-SPIDER and SCDRO: loops over raw records, plans, published forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.central.context import MinimaxContext
from tests.support.coordinator_replay import Listening, Scripted, performed, scripted, with_noise, without
from tests.support.minimax_loop import agree
from tests.support.neighbours import exceeded, widest
from tests.support.spider_loop import DOUBLE, NONE, SGD, SPIDER, SpiderLoop, made

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


SCDRO: dict[str, Any] = {
    "kind": "scdro",
    "x": {"scale": 0.5, "decay": 0.2},
    "y": {"scale": 0.2},
    "averaging": {"scale": 0.8, "decay": 0.5},
}
PRINTED_JOINT = {"guarantee": "as_published", "epsilon": 0.5}
BOTH = pytest.mark.parametrize("algorithm", [SGD, SPIDER], ids=["dp_sgd_dual", "dp_spider"])
BOTH_PROBLEMS = pytest.mark.parametrize("problem", ["auc_maximisation", "dro"])


# The loops --------------------------------------------------------------------------------------------------------


@BOTH
def test_the_dual_variable_may_have_a_step_of_its_own(algorithm: dict[str, Any]) -> None:
    job = made(algorithm | {"y": {"scale": 0.1, "decay": 0.1}})
    agree(job, SpiderLoop(job, with_noise))


@BOTH_PROBLEMS
def test_with_one_round_a_period_dp_spider_is_dp_sgd(problem: str) -> None:
    spider = {k: v for k, v in SPIDER.items() if k != "smoothness"} | {"period": 1}
    ends = [scripted(made(algorithm, problem), Scripted()) for algorithm in (spider, SGD)]
    plans = [made(algorithm, problem).ledger for algorithm in (spider, SGD)]
    # Samples are keyed by the scenario, so that they differ: with all records nothing does.
    assert plans[0].same_releases(plans[1])
    ends = [scripted(made(algorithm | {"rate": 1.0}, problem), Scripted()) for algorithm in (spider, SGD)]
    for one, other in zip(*ends, strict=True):
        for name in ("x", "y"):
            np.testing.assert_allclose(one[name], other[name], atol=1e-13)


@BOTH_PROBLEMS
def test_without_noise_on_all_records_all_of_them_are_gradient_descent_ascent(problem: str) -> None:
    ends = []
    sgda = {"kind": "dp_sgda", "x": SGD["x"], "y": SGD["x"]}
    for algorithm in (SGD, SPIDER, SPIDER | {"period": 7}, sgda):
        job = made(algorithm | {"rate": 1.0}, problem, privacy=NONE)
        ends.append(performed(job.coordinator_node(), job.rounds)[1][-1])
    for end in ends[1:]:
        for name in ("x", "y"):
            np.testing.assert_allclose(end[name], ends[0][name], atol=1e-12)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_scdro_is_the_loop(rate: float) -> None:
    job = made(SCDRO | {"rate": rate}, "kl_dro", privacy=NONE)
    agree(job, SpiderLoop(job, without), Listening(job))


def test_scdro_survives_empty_samples() -> None:
    n = made(SCDRO, "kl_dro", privacy=NONE).context.n  # type: ignore[union-attr]  # a coordinator's job
    job = made(SCDRO | {"rate": 1.001 / n}, "kl_dro", privacy=NONE)
    last = performed(job.coordinator_node(), job.rounds)[1][-1]
    assert all(np.isfinite(v).all() for v in last.values())


# One vector --------------------------------------------------------------------------------------------------------


# Plans ------------------------------------------------------------------------------------------------------------


def test_half_of_dp_spiders_budget_is_for_anchors() -> None:
    lines = {c.channel: c for c in made(SPIDER).ledger.channels}
    assert lines["g"].rounds.tolist() == [1, 4, 7]
    assert lines["d"].rounds.tolist() == [2, 3, 5, 6]
    squares = [float((c.sensitivity["train"] ** 2).sum()) for c in lines.values()]
    assert squares[0] == pytest.approx(squares[1])


# As printed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4])
@BOTH
def test_as_published_joint_estimates_are_the_loop(algorithm: dict[str, Any], rate: float) -> None:
    job = made(algorithm | {"rate": rate}, privacy=PRINTED_JOINT)
    agree(job, SpiderLoop(job, with_noise))
    assert performed(job.coordinator_node(), job.rounds)[0].ledger.costs_within(job.ledger)


def test_printed_noise_of_joint_estimates_by_hand() -> None:
    job = made(SPIDER | {"rounds": 30}, privacy=PRINTED_JOINT)
    n, root = job.context.n, math.sqrt(math.log(1e4))
    lines = {c.channel: c for c in job.ledger.channels}
    anchor, change = (max(1.0 / (0.4 * n), math.sqrt(30.0 / q) / n) for q in (3.0, 1.0))
    np.testing.assert_allclose(lines["g"].scale, 0.2 * root / 0.5 * anchor)
    np.testing.assert_allclose(lines["g"].sensitivity["train"], 2.0 * 0.2 / (0.4 * n))
    np.testing.assert_allclose(lines["d"].scale, root / 0.5 * change)
    np.testing.assert_allclose(lines["d"].sensitivity["train"], 2.0 / (0.4 * n))
    job = made(SGD | {"rounds": 30}, privacy=PRINTED_JOINT)
    (line,) = job.ledger.channels
    np.testing.assert_allclose(line.scale, 0.2 * root / math.sqrt(0.5) * change)
    # √ε instead of ε: half the claim does not cost half as much.
    assert job.budget.epsilon.max() > 0.5


# Refusals ---------------------------------------------------------------------------------------------------------


@BOTH
def test_one_vector_has_one_clip(algorithm: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
        made(algorithm, privacy={"clip": {}})
    with pytest.raises(InputError, match=r"privacy\.clip\.y: .* as one vector"):
        made(algorithm, privacy={"clip": {"x": 0.2, "y": 0.2}})


@pytest.mark.parametrize("guarantee", ["certified", "as_published"])
def test_scdro_is_not_private_and_says_so(guarantee: str) -> None:
    with pytest.raises(InputError, match=r'privacy\.guarantee: scdro adds no noise .* guarantee = "none"') as said:
        made(SCDRO, "kl_dro", privacy={"guarantee": guarantee})
    assert str(said.value).count("\n") == 0
