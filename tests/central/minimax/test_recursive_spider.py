"""Recursive-SPIDER: agreement with a loop over records, its three releases of a round, and its published form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.coordinator_replay import SCALE, Listening, Scripted, performed, scripted, with_noise, without
from tests.support.minimax_loop import agree
from tests.support.spider_loop import NONE, RECURSIVE, SpiderLoop, made

PRINTED = {"guarantee": "as_published", "epsilon": 1.0}
KL = "kl_dro"


# The loop ---------------------------------------------------------------------------------------------------------


def test_is_gradient_descent_on_psi_without_noise() -> None:
    """For every period and averaging, because changes of means over the same records add up to means."""
    ends = []
    for period, beta in ((1, 1.0), (3, 0.3), (7, 0.0)):
        algorithm = RECURSIVE | {"period": period, "averaging": {"scale": beta}, "rate": 1.0}
        if period == 1:
            algorithm.pop("smoothness")
        job = made(algorithm, KL, privacy=NONE)
        ends.append(performed(job.coordinator_node(), job.rounds)[1])
    for end in ends[1:]:
        for name in ("x", "y"):
            np.testing.assert_allclose(end[-1][name], ends[0][-1][name], atol=1e-12)
    # One step by finite differences of Ψ on all records.
    loop, (x, y) = SpiderLoop(job, without), (ends[0][2]["x"][0], ends[0][2]["y"][0])

    def psi(x: np.ndarray, lam: float) -> float:
        h = [loop.f.inner(x, np.array([lam]), a, b)[0] for mine in loop.records for a, b in mine]
        return lam * math.log(sum(h) / len(h)) + loop.f.cap + lam * loop.f.radius

    e = 1e-5
    by_x = [(psi(x + e * d, y[0]) - psi(x - e * d, y[0])) / (2 * e) for d in np.eye(x.size)]
    by_y = (psi(x, y[0] + e) - psi(x, y[0] - e)) / (2 * e)
    step = 0.5 * 3.0**-0.2
    np.testing.assert_allclose(ends[0][3]["x"][0], x - step * np.array(by_x), atol=1e-8)
    np.testing.assert_allclose(ends[0][3]["y"][0], loop.f.inside_y(y - 0.2 * by_y), atol=1e-8)


# The plan ---------------------------------------------------------------------------------------------------------


def test_three_releases_of_a_round_are_one_event() -> None:
    job = made(RECURSIVE, KL)
    lines = {c.channel: c for c in job.ledger.channels}
    assert lines["gx"].rounds.tolist() == lines["gy"].rounds.tolist() == [1, 4, 7]
    assert lines["dx"].rounds.tolist() == lines["dy"].rounds.tolist() == [2, 3, 5, 6]
    assert lines["s"].rounds.tolist() == [1, 2, 3, 4, 5, 6, 7]
    squares = {name: float((c.sensitivity["train"] ** 2).sum()) for name, c in lines.items()}
    half = squares["gx"]
    assert squares == pytest.approx({"gx": half, "dx": half, "gy": half, "dy": half, "s": 2.0 * half})
    releaser = Listening(job)
    scripted(job, releaser)
    for t in range(1, 8):
        batches = {w.sensitivities["train"].batch for (index, _), w in releaser.wanted.items() if index == t}
        assert batches == {t}


def test_sensitivity_of_s_by_hand() -> None:
    """C_s = β/2·(1 − e^{−B/λ}) + (1−β)τ_s, times 2/(qn) for a replaced record."""
    job = made(RECURSIVE, KL)
    releaser, loop = Scripted(), SpiderLoop(job, with_noise)
    scripted(job, releaser)
    loop.run()
    for t in range(1, 8):
        spread = releaser.wanted[t, "s"].sensitivities["train"]
        assert spread.sensitivity[0] == pytest.approx(2.0 * loop.bounds[t, "s"] / (0.4 * loop.n), rel=1e-9)
        assert spread.rate[0] == 0.4


def test_noise_floor_of_s_follows_from_releases() -> None:
    """If s is far below its noise, the step divides by the noise instead of e^{−B/λ}."""
    job = made(RECURSIVE | {"averaging": {"scale": 0.3}}, KL, problem={"cap": 5.0, "radius": 5.0})
    noise: dict[str, float] = {"s": -3.0}
    releaser = Scripted(lambda index, channel, width: np.full(width, noise.get(channel, 0.0)))
    loop = SpiderLoop(job, lambda index, channel, public, private: public + private + noise.get(channel, 0.0))
    agree(job, loop, releaser)
    assert math.exp(-5.0 / 0.6) < SCALE


# As printed -------------------------------------------------------------------------------------------------------


def test_published_noise_matches_theorem_8() -> None:
    job = made(RECURSIVE | {"rounds": 30}, KL, privacy=PRINTED)
    n, root, clip_y = job.context.n, math.sqrt(math.log(1e4)), 1.0 / (math.e * 0.6)
    change = root * max(1.0 / (0.4 * n), math.sqrt(30.0) / n)
    anchor, mean = root * math.sqrt(30.0) / (3.0 * n), root * math.sqrt(30.0) / n
    expected = {"gx": 0.2 * anchor, "gy": clip_y * anchor, "dx": change, "dy": change, "s": mean}
    for line in job.ledger.channels:
        np.testing.assert_allclose(line.scale, expected[line.channel], err_msg=line.channel)
    lines = {line.channel: line for line in job.ledger.channels}
    assert all(np.isinf(lines[c].sensitivity["train"]).all() for c in ("dx", "dy"))
    assert math.isinf(job.budget.epsilon.max())
    # Samples of one record on average, with weight β in s instead of β/n.
    assert (lines["s"].rate["train"] == 1.0 / n).all()
    betas = np.minimum(1.0, 0.8 * np.arange(1.0, 31.0) ** -0.5)
    width = 1.0 - math.exp(-1.2 / 0.6)
    np.testing.assert_allclose(lines["s"].sensitivity["train"][:, 0], betas * width, rtol=1e-9)


def test_published_minima_are_swapped() -> None:
    """The noise of v is limited by twice the clip of u."""
    noisy = {}
    for clip in (1e-3, 1.0):
        job = made(RECURSIVE | {"smoothness": 100.0}, KL, privacy=PRINTED | {"clip": {"x": 0.2, "y": clip}})
        loop = SpiderLoop(job, with_noise)
        agree(job, loop, atol=1e-7)
        # The smaller the unit, the larger the release in this unit.
        noisy[clip] = np.abs(loop.heard[3, "dx"]).max()
    assert noisy[1e-3] > 20.0 * noisy[1.0]
