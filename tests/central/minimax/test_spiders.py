"""DP-SPIDER, DP-SGD on the dual objective, Double-SPIDER and SCDRO: loops over records, plans and published forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from decentral_dp import InputError
from tests.support.coordinator_replay import Listening, Scripted, performed, scripted, with_noise, without
from tests.support.minimax_loop import agree
from tests.support.neighbours import exceeded, widest
from tests.support.spider_loop import DOUBLE, NONE, RECURSIVE, SGD, SPIDER, SpiderLoop, made

PRINTED = {"guarantee": "as_published", "epsilon": 1.0}
PRINTED_JOINT = {"guarantee": "as_published", "epsilon": 0.5}
PUBLISHED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "double_spider, auc": (DOUBLE, "auc_maximisation", PRINTED),
    "double_spider, dro": (DOUBLE, "dro", PRINTED),
    "dp_sgd_dual": (SGD, "dro", PRINTED_JOINT),
    "dp_spider": (SPIDER, "dro", PRINTED_JOINT),
    "recursive_spider": (RECURSIVE, "kl_dro", PRINTED),
}


# The loop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("longest", [0.01, 100.0])
def test_steps_are_limited(longest: float) -> None:
    job = made(DOUBLE | {"longest": longest})
    loop = SpiderLoop(job, with_noise)
    agree(job, loop)
    path = [p["x"][0] for p in scripted(job, Scripted())]
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert (steps <= longest * (1 + 1e-12)).all()
    assert (steps.max() > 0.99 * longest) == (longest == 0.01)


# The plan ---------------------------------------------------------------------------------------------------------


def test_double_spider_budget_split() -> None:
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


def test_clipped_mean_has_sensitivity_of_twice_the_clip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sensitivity does not depend on n, as published."""
    job = made(DOUBLE | {"rate": 1.0}, problem={"normalise": "none"}, privacy=PRINTED)
    ratios = widest(job)
    assert not exceeded(ratios)
    assert max(ratios.values()) > 0.5
    monkeypatch.setattr("papers.published.minimax.clipped_sensitivity", lambda width: 2.0 / job.context.n)
    job = made(DOUBLE | {"rate": 1.0}, problem={"normalise": "none"}, privacy=PRINTED)
    assert exceeded(widest(job))


def test_difference_between_equal_points_is_zero() -> None:
    job = made(DOUBLE | {"x": {"scale": 0.0}, "y": {"scale": 0.0}})
    releaser = Listening(job)
    scripted(job, releaser)
    for (_, channel), value in releaser.wanted.items():
        if channel in ("dx", "dy"):
            assert (value.value == 0.0).all()
            assert value.sensitivities["train"].sensitivity[0] == 0.0


# As printed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_form_agrees_with_loop(kind: str, rate: float) -> None:
    algorithm, problem, privacy = PUBLISHED[kind]
    job = made(algorithm | {"rate": rate}, problem, privacy=privacy)
    agree(job, SpiderLoop(job, with_noise), atol=1e-8)
    assert performed(job.coordinator_node(), job.rounds)[0].ledger.costs_within(job.ledger)


def test_published_noise_matches_theorem_6() -> None:
    job = made(DOUBLE | {"rounds": 30}, privacy=PRINTED)
    n, size, root = job.context.n, 0.4 * job.context.n, math.sqrt(math.log(1e4))
    often = math.sqrt(30.0) / (n * math.sqrt(3.0))
    expected = {
        "gy": root * math.sqrt(30.0) / (n * math.sqrt(3.0 * 1.0)),
        "dy": root / size,
        "gx": root * max(1.0 / size, often),
        "dx": root * max(1.0 / size, often),
    }
    for line in job.ledger.channels:
        np.testing.assert_allclose(line.scale, expected[line.channel])
        np.testing.assert_allclose(line.sensitivity["train"], 2.0, rtol=1e-12)
        assert (line.rate["train"] == 1.0).all()


def test_published_double_spider_exceeds_its_claim() -> None:
    job = made(DOUBLE, privacy=PRINTED)
    assert job.budget.epsilon.max() > 100.0


# Refusals ---------------------------------------------------------------------------------------------------------


SCDRO: dict[str, Any] = {
    "kind": "scdro",
    "x": {"scale": 0.5, "decay": 0.2},
    "y": {"scale": 0.2},
    "averaging": {"scale": 0.8, "decay": 0.5},
}
BOTH = pytest.mark.parametrize("algorithm", [SGD, SPIDER], ids=["dp_sgd_dual", "dp_spider"])


# The loops --------------------------------------------------------------------------------------------------------


@BOTH
def test_dual_variable_has_a_separate_step(algorithm: dict[str, Any]) -> None:
    job = made(algorithm | {"y": {"scale": 0.1, "decay": 0.1}})
    agree(job, SpiderLoop(job, with_noise))


@pytest.mark.parametrize("problem", ["auc_maximisation", "dro"])
def test_dp_spider_with_period_one_is_dp_sgd(problem: str) -> None:
    spider = {k: v for k, v in SPIDER.items() if k != "smoothness"} | {"period": 1}
    ends = [scripted(made(algorithm, problem), Scripted()) for algorithm in (spider, SGD)]
    plans = [made(algorithm, problem).ledger for algorithm in (spider, SGD)]
    # Samples depend on the scenario, so that runs agree only with all records.
    assert plans[0].same_releases(plans[1])
    ends = [scripted(made(algorithm | {"rate": 1.0}, problem), Scripted()) for algorithm in (spider, SGD)]
    for first, second in zip(*ends, strict=True):
        for name in ("x", "y"):
            np.testing.assert_allclose(first[name], second[name], atol=1e-13)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_scdro_agrees_with_loop(rate: float) -> None:
    job = made(SCDRO | {"rate": rate}, "kl_dro", privacy=NONE)
    agree(job, SpiderLoop(job, without), Listening(job))


def test_scdro_allows_empty_samples() -> None:
    n = made(SCDRO, "kl_dro", privacy=NONE).context.n  # type: ignore[union-attr]  # a coordinator's job
    job = made(SCDRO | {"rate": 1.001 / n}, "kl_dro", privacy=NONE)
    last = performed(job.coordinator_node(), job.rounds)[1][-1]
    assert all(np.isfinite(v).all() for v in last.values())


# Plans ------------------------------------------------------------------------------------------------------------


def test_dp_spider_budget_split() -> None:
    lines = {c.channel: c for c in made(SPIDER).ledger.channels}
    assert lines["g"].rounds.tolist() == [1, 4, 7]
    assert lines["d"].rounds.tolist() == [2, 3, 5, 6]
    squares = [float((c.sensitivity["train"] ** 2).sum()) for c in lines.values()]
    assert squares[0] == pytest.approx(squares[1])


def test_published_noise_of_joint_estimates_by_hand() -> None:
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
    # The noise has √ε instead of ε, so that half the claim costs more than half.
    assert job.budget.epsilon.max() > 0.5


# Refusals ---------------------------------------------------------------------------------------------------------


def test_a_joint_gradient_requires_a_clip() -> None:
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing.* to joint is unbounded"):
        made(SGD, privacy={"epsilon": 1.0, "delta": 1e-5, "clip": {}})


@pytest.mark.parametrize("guarantee", ["certified", "as_published"])
def test_scdro_is_not_private(guarantee: str) -> None:
    with pytest.raises(
        InputError, match=r'privacy\.guarantee: scdro adds no noise .* expected "none".* guarantee = "none"'
    ) as error:
        made(SCDRO, "kl_dro", privacy={"guarantee": guarantee})
    assert str(error.value).count("\n") == 0
