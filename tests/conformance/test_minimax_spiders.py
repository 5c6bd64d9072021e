"""Conformance of programs that estimate gradients by differences, and of the plain one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.coordinator_replay import Listening, keyed, performed, scripted, with_noise, without
from tests.support.minimax_loop import agree
from tests.support.neighbours import exceeded, widest
from tests.support.spider_loop import DOUBLE, NONE, RECURSIVE, SGD, SPIDER, SpiderLoop, made


class Program(NamedTuple):
    """close: channel → the share of its bound that some neighbour passes. changes: channels of differences."""

    algorithm: dict[str, Any]
    problems: tuple[str, ...]
    close: Mapping[str, float]
    changes: tuple[str, ...] = ("dx", "dy")

    def job(self, on: str = "", algorithm: Mapping[str, Any] | None = None, **tables: Any) -> Job:
        return made(self.algorithm | dict(algorithm or {}), on or self.problems[-1], **tables)


BOTH = ("auc_maximisation", "dro")
PROGRAMS = {
    "double_spider": Program(DOUBLE, BOTH, {"gx": 0.8, "dx": 0.5, "gy": 0.0, "dy": 0.0}),
    "dp_sgd_dual": Program(SGD, BOTH, {"g": 0.5}, ()),
    "dp_spider": Program(SPIDER, BOTH, {"g": 0.5, "d": 0.5}, ("d",)),
    "recursive_spider": Program(RECURSIVE, ("kl_dro",), {"gx": 0.7, "dx": 0.7, "s": 0.7, "gy": 0.0, "dy": 0.0}),
}
EACH = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
ON_ITS_PROBLEMS = pytest.mark.parametrize(
    ("program", "problem"),
    [pytest.param(p, problem, id=f"{name}-{problem}") for name, p in PROGRAMS.items() for problem in p.problems],
)


@pytest.mark.parametrize("rate", [1.0, 0.4, 0.03])
@ON_ITS_PROBLEMS
def test_it_is_the_loop_over_raw_records(program: Program, problem: str, rate: float) -> None:
    """At the smallest rate samples are empty, and released all the same."""
    job = program.job(problem, {"rate": rate})
    agree(job, SpiderLoop(job, with_noise))


@pytest.mark.parametrize("rate", [1.0, 0.4])
@ON_ITS_PROBLEMS
def test_without_noise_it_is_the_loop_without_clips(program: Program, problem: str, rate: float) -> None:
    job = program.job(problem, {"rate": rate}, privacy=NONE)
    agree(job, SpiderLoop(job, without, scale=lambda index, channel: 0.0), Listening(job))


@ON_ITS_PROBLEMS
def test_with_its_own_noise_it_is_the_loop_with_the_keyed_streams(program: Program, problem: str) -> None:
    """Scales by hand: the sensitivity of a release over its planned μ."""
    job = program.job(problem)
    loop = SpiderLoop(job, with_noise)
    prices = {
        (line.channel, int(index)): line.sensitivity["train"][k, 0]
        for line in job.ledger.channels
        for k, index in enumerate(line.rounds)
    }

    def scale(index: int, channel: str) -> float:
        return 2.0 * loop.bounds[index, channel] / (loop.rate * loop.n) / prices[channel, index]

    loop.say, loop.scale = keyed(job, scale), scale
    agree(job, loop, Listening(job), atol=1e-7)


@EACH
def test_no_release_costs_more_than_planned(program: Program) -> None:
    job = program.job()
    outcome = performed(job.coordinator_node(), job.rounds)[0]
    assert outcome.ledger.costs_within(job.ledger)
    dearer = replace(job.ledger, channels=tuple(replace(c, scale=1.01 * c.scale) for c in job.ledger.channels))
    assert not outcome.ledger.costs_within(dearer)
    assert 0.995 * 6.0 <= job.budget.epsilon.max() <= 6.0


@EACH
def test_the_cut_into_blocks_changes_nothing(program: Program) -> None:
    ends = []
    for blocks in (1, 2, 3):
        job = program.job(run={"blocks": blocks})
        outcome, seen = performed(job.coordinator_node(), job.rounds)
        ends.append((outcome.ledger, seen[-1]))
    for ledger, end in ends[1:]:
        assert ends[0][0].same_releases(ledger)
        for name in ("x", "y"):
            np.testing.assert_allclose(end[name], ends[0][1][name], atol=1e-12)


@ON_ITS_PROBLEMS
def test_no_neighbour_exceeds_a_sensitivity_and_some_come_close(program: Program, problem: str) -> None:
    found = widest(program.job(problem, {"rate": 1.0}, problem={"normalise": "none"}))
    assert set(found) == set(program.close)
    assert not exceeded(found)
    assert all(found[channel] > share for channel, share in program.close.items() if share)


@EACH
def test_what_is_noised_is_the_difference_and_not_the_estimate(program: Program) -> None:
    """A large estimate with a small noise on it would betray low bits of the difference."""
    job = program.job()
    releaser = Listening(job)
    scripted(job, releaser)
    changes = [w for (_, channel), w in releaser.wanted.items() if channel in program.changes]
    # Two differences in each of the two whole periods of three rounds.
    assert len(changes) == 4 * len(program.changes)
    assert all((w.public == 0.0).all() for w in changes)
