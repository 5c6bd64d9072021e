"""The change of ∇_x l between two public points, as agents answer it: against losses, and clipped with its factor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from decentral_dp.exchange import Ask, ClippedSum
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import NO_GROUP, HyperCleaning
from decentral_dp.problems.protocol import CHANGE, Changed
from tests.support.penalty_jobs import client_blocks, made
from tests.support.penalty_loop import cut


@pytest.mark.parametrize("bound", [math.inf, 0.05])
def test_the_change_of_hyper_cleaning_is_that_of_its_losses(bound: float) -> None:
    """Record by record from `losses` at a weight of 1, with differences in x; what is in no group changes nothing."""
    problem = HyperCleaning(3, (0.0, 1.0, 2.0), 2, groups=2)
    assert isinstance(problem, Changed)
    rng = np.random.default_rng(6)
    records = problem.place_records(
        problem.prepare(3.0 * rng.normal(size=(7, 3)), rng.integers(3, size=7) * 1.0, "l2"), 1
    )
    x, y, other = rng.normal(size=4), rng.normal(size=9), rng.normal(size=9)
    got = problem.change(x, y, other, records, Clip("l2", x=bound))
    wanted, h = np.zeros(4), 1e-5
    for k in range(7):
        one = type(records)(*(a[k : k + 1] for a in records))
        slopes = []
        for at in (y, other):
            steps = x + h * np.concatenate([np.eye(4), -np.eye(4)])
            values = problem.losses(steps, np.tile(at, (8, 1)), one, np.ones(1))[0]
            slopes.append((values[:4] - values[4:]) / (2.0 * h))
        wanted += cut(slopes[0] - slopes[1], bound) / 7
    np.testing.assert_allclose(got, wanted, atol=1e-8)
    assert (got[:2] == 0.0).all()
    assert (np.abs(got[2:]) > 1e-3).any()
    free = records._replace(group=np.full(7, NO_GROUP))
    assert (problem.change(x, y, other, free, Clip("l2")) == 0.0).all()
    broken = records._replace(features=np.where(np.arange(7)[:, None] == 2, np.nan, records.features))
    assert np.isfinite(problem.change(x, y, other, broken, Clip("l2", x=bound))).all()


def test_a_factor_is_clipped_with_the_contribution() -> None:
    """times·v clipped to C, for a term of every kind of shape; and only factors that clips go with."""
    job = made("hyper_cleaning")
    (client_block,) = client_blocks(job, {k: list(r) for k, r in job.records.items()})
    (wide,) = client_blocks(job, {k: list(r) for k, r in job.records.items()}, Clip("l2"))
    x, y, other = np.zeros(6), np.full(6, 0.5), np.full(6, -0.5)
    for term, along in ((CHANGE, other), ("lower_grad_y", None), ("lower_jacobian", None)):
        loud = client_block.answer(1, {"a": ClippedSum(term, x, y, along, times=1e6)})["a"]
        bound = {CHANGE: 0.03, "lower_grad_y": 0.4, "lower_jacobian": 0.03}[term]
        for agent, total in enumerate(loud):
            assert np.linalg.norm(total) <= bound * len(job.shards.train[agent]) * (1.0 + 1e-12)
        # Where nothing is clipped it is a factor.
        plain, twice = (wide.answer(1, {"a": ClippedSum(term, x, y, along, times=t)})["a"] for t in (1.0, 2.0))
        np.testing.assert_allclose(twice, 2.0 * plain)
    for times in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="no clip bounds that"):
            Ask(a=ClippedSum(CHANGE, x, y, other, times=times))
