"""Subtle ways to lose privacy: each is reproduced, and compared with the package.

Elsewhere: one-point swaps and radial clips (test_private_state), amplification by channel and a record of both kinds
(test_accountants), scaling fitted on the data (test_scaling), a batch that lives on (test_single_loops).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.plans import fading
from decentral_dp.bounded import Bounded, Sensitivity, memory_slack, summation_slack
from decentral_dp.privacy.clipping import Clip, clip_factors
from decentral_dp.privacy.mechanisms import LAPLACE
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Quadratic, SoftmaxHyperparameter
from tests.support.release_cost_oracle import grid

Make = Callable[..., dict[str, Any]]


# Rounding -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 7, 64])
def test_no_exact_log_ratio_exceeds_the_cost(dimension: int) -> None:
    """sup over outputs of the log-ratio, coordinate by coordinate, for shifts far below and above a cell."""
    rng = np.random.default_rng(dimension)
    best = 0.0
    for trial in range(60):
        scale = float(10.0 ** rng.uniform(-3, 3))
        g = float(grid(scale, "laplace", 1))
        u = rng.normal(size=dimension) * scale
        shift = rng.dirichlet(np.full(dimension, 0.5)) * rng.choice([-1, 1], dimension) * g * 10.0 ** rng.uniform(-4, 7)
        v = u + shift
        if trial % 3 == 0:
            u, v = np.round(u / g) * g, np.round(u / g) * g + shift
        exact = sum(exact_ratio(a, b, g, scale) for a, b in zip(u, v, strict=True))
        charged = float(LAPLACE.cost(np.abs(v - u).sum(), scale, dimension))
        assert exact <= charged * (1 + 1e-9)
        best = max(best, exact / charged)
    assert best > 0.999


def exact_ratio(u: float, v: float, g: float, scale: float) -> float:
    """sup_k |log P_k(u) − log P_k(v)|, P_k(u) = (1 − f)p(k − n) + f p(k − n − 1), in Python's own floats.

    The ratio is constant left and right of both, and monotone between the cells of u and v, so that the cells around
    them settle it.
    """

    def log_law(k: int, at: float) -> float:
        n = math.floor(at / g)
        f = at / g - n
        a, b = abs(k - n), abs(k - n - 1)
        return -a * g / scale + math.log1p(f * math.expm1((a - b) * g / scale))

    low, high = math.floor(min(u, v) / g), math.floor(max(u, v) / g) + 1
    return max(abs(log_law(k, u) - log_law(k, v)) for k in (low - 2, low - 1, low, low + 1, high - 1, high, high + 1))


# Sums ---------------------------------------------------------------------------------------------------------------


def binade_records(first: float) -> np.ndarray:
    """12 288 values of at most 1: the sum stays at the edge of 2¹², where its two neighbours round differently."""
    step = 2.0**-12 * (1 + 2.0**-10)
    return np.concatenate([[first], np.ones(4095), np.full(8192, step)])


def test_a_float32_sum_moves_by_more_than_its_sensitivity_and_ours_does_not() -> None:
    data_sets = [binade_records(s) for s in (1.0, -1.0)]
    n = data_sets[0].size
    in_order = [np.stack([w, w], axis=1).astype(np.float32).sum(axis=0)[0] for w in data_sets]
    assert abs(float(in_order[0]) - float(in_order[1])) == 4.0
    # The same records as targets of y = 0: the gradient of a record is minus its target.
    problem, clip = Quadratic(1), Clip("l1", y=1.0, z=1.0)
    zero = np.zeros(1)
    means = []
    for w in data_sets:
        records = problem.prepare(np.ones((n, 1)), w, "l1")
        grad = problem.terms(zero, zero, zero, records, records, clip).lower_grad_y
        assert grad is not None
        means.append(Fraction(float(grad[0])))
    sensitivity, bound = abs(means[0] - means[1]), Fraction(2, n)
    assert sensitivity <= bound * Fraction(float(summation_slack(n, 1)))
    assert float(sensitivity / bound) == pytest.approx(1.0, rel=1e-8)


def test_sums_in_float64_need_their_slack_too() -> None:
    """Repeat the construction at float64's spacing: the change exceeds 2C/N, but not 2C/N with its slack."""
    first = binade_records(1.0)[1:4096]
    step = 2.0**-41 * (1 + 2.0**-10)
    sums = []
    for value in (1.0, -1.0):
        total = value
        for v in (*first, *[step] * 2000):
            total += v
        sums.append(Fraction(total))
    n = 1 + first.size + 2000
    sensitivity = abs(sums[0] - sums[1])
    assert Fraction(2) < sensitivity <= 2 * Fraction(float(summation_slack(n, 1)))


@pytest.mark.parametrize(("keep", "rounds"), [(0.99, 2000), (0.999, 5000)])
def test_a_remembered_state_rounds_more_than_its_queries(keep: float, rounds: int) -> None:
    """p ← a p + λC in float64, one record, against exact arithmetic: rounding adds up in a state that is kept.

    A bound without `memory_slack` is passed, for one step size or another; with it, never.
    """
    without = with_slack = 0.0
    kappa = float(summation_slack(1, 1))
    for step in np.random.default_rng(7).uniform(0.01, 0.02, 30):
        a, q = np.float64(keep), np.float64(step)
        state = np.float64(0.0)
        exact = np.longdouble(0.0)
        for _ in range(rounds):
            state = a * state + q
            exact = np.longdouble(a) * exact + np.longdouble(q)
        sensitivity = np.longdouble(2.0) * np.longdouble(state)
        weight = np.array([1.0 - float(a)])
        change = np.full((rounds, 1), 2.0 * float(q) * kappa)
        bound = fading(change, 1.0 - weight, memory_slack(np.ones((rounds, 1))))[-1, 0]
        without = max(without, float(sensitivity / (2 * exact * np.longdouble(kappa)) - 1))
        with_slack = max(with_slack, float(sensitivity / np.longdouble(bound) - 1))
    assert without > 0.0
    assert with_slack <= 0.0


# Clipping -----------------------------------------------------------------------------------------------------------

RECORDS = np.array([[0.5, -0.2], [3.0, 1.0], [1e200, -1e200], [0.0, 0.0], [1e-200, 1.0]])
PROBLEMS = [LogisticHyperparameter(2), SoftmaxHyperparameter(2, (-1.0, 1.0)), Quadratic(2)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -1e200, 1e-308])
def test_no_message_gets_a_record_through_the_clip(problem: Any, norm: Any, value: float) -> None:
    """Malicious neighbours can send anything; a mean over N records still moves by 2C/N, and is finite."""
    clip = Clip(norm, x=0.3, y=0.3, z=0.1)
    labels = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    rng = np.random.default_rng(1)
    for trial in range(4):
        x, y, z = (rng.normal(size=d) for d in (problem.p, problem.q, problem.q))
        target = (y, z, z, y)[trial]
        target[: 1 if trial < 2 else None] = value
        means = []
        for replaced in (RECORDS[0], np.array([-1e300, 7.0]), np.array([np.pi, 0.0])):
            features = RECORDS.copy()
            features[0] = replaced
            records = problem.prepare(features, labels, norm)
            means.append(problem.terms(x, y, z, records, records, clip))
        for term, bound in (("lower_grad_y", 0.3), ("lower_hvp", 0.1), ("upper_grad_y", 0.1)):
            values = [getattr(m, term) for m in means]
            assert all(np.isfinite(v).all() for v in values)
            for a, b in itertools.combinations(values, 2):
                size = np.abs(a - b).sum() if norm == "l1" else np.linalg.norm(a - b)
                assert size <= 2 * bound / len(RECORDS) * (1 + 1e-9)


def test_the_obvious_clip_lets_nan_through() -> None:
    """Handle `min(1, C/nan)`, which is 1 in Python: a NaN release would separate the data sets."""
    assert min(1.0, 0.1 / math.nan) == 1.0
    np.testing.assert_array_equal(clip_factors(np.array([math.nan, math.inf, 0.0, 2.0]), 1.0), [0.0, 0.0, 1.0, 0.5])


def query(size: int, sensitivity: float = 1.0) -> Bounded:
    private = np.random.default_rng(2).normal(size=(1, size))
    return Bounded(
        np.zeros((1, size)), private, {"train": Sensitivity(np.full(1, sensitivity), np.ones(1), None)}, "l1"
    )


# Ledger entries -------------------------------------------------------------------------------------


def test_a_start_from_data_is_not_free() -> None:
    recorder = Recorder(1)
    recorder.charge(0, "y", "laplace", np.ones(1), query(2, sensitivity=0.0))
    with pytest.raises(ValueError, match="release 0 reads records but is not in the ledger"):
        recorder.charge(0, "y", "laplace", np.ones(1), query(2))


@pytest.mark.parametrize("public_at", [1, 2])
def test_public_values_hide_no_charge(public_at: int) -> None:
    """A channel that now and then carries an array keeps every charge, at its own index."""
    recorder, charged_at = Recorder(1), 3 - public_at
    for index in (1, 2):
        if index == public_at:
            recorder.free(index, "y", 2, "touches no data")
        else:
            recorder.charge(index, "y", "laplace", np.ones(1), query(2))
    (y,) = assemble([(np.array([0]), recorder)], 1).channels
    assert y.mechanism.name == "laplace"
    assert y.rounds.tolist() == [charged_at]


def test_a_split_is_charged_from_its_first_release() -> None:
    recorder, value = Recorder(1), query(2)
    recorder.charge(1, "y", "laplace", np.ones(1), value)
    both = Bounded(
        value.public, value.private, dict.fromkeys(("train", "validation"), value.sensitivities["train"]), "l1"
    )
    recorder.charge(2, "y", "laplace", np.ones(1), both)
    recorder.charge(3, "y", "laplace", np.ones(1), value)
    (y,) = assemble([(np.array([0]), recorder)], 1).channels
    sensitivity = float(value.sensitivities["train"].sensitivity[0])
    assert y.sensitivity["train"].ravel().tolist() == [sensitivity] * 3
    assert y.sensitivity["validation"].ravel().tolist() == [0.0, sensitivity, 0.0]


def test_a_remembered_batch_and_an_amplified_one_do_not_mix() -> None:
    """Whichever is released first."""
    recorder = Recorder(1)
    rate = np.full(1, 0.1)
    fresh = [
        Bounded(np.zeros((1, 1)), np.zeros((1, 1)), {"train": Sensitivity(np.ones(1), rate, b)}, "l1") for b in (0, 1)
    ]
    recorder.charge(1, "z", "laplace", np.ones(1), fresh[0] + fresh[1])
    with pytest.raises(ValueError, match="may remember"):
        recorder.charge(1, "y", "laplace", np.ones(1), fresh[1])


def test_numpy_broadcasts_no_bounded_value() -> None:
    """Each would exceed the sensitivity of the value; numpy broadcasts agents and columns equally."""
    spread = {"train": Sensitivity(np.ones(2), np.ones(2), None)}
    wide, narrow = (Bounded(np.zeros((2, d)), np.ones((2, d)), spread, "l1") for d in (2, 1))
    for factor in (np.array([0.0, 1.0]), np.ones((1, 2)), np.ones((2, 2)), np.ones((1, 1))):
        with pytest.raises(ValueError, match="cannot be scaled"):
            factor * wide
    with pytest.raises(ValueError, match="cannot be added"):
        narrow + wide
    assert (np.array([[0.0], [-2.0]]) * wide).sensitivities["train"].sensitivity.tolist() == [0.0, 2.0]


def test_a_plan_that_forgets_a_channel_stops_the_run(scenario: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget that is printed is the plan's: a run that released anything else is not reported."""
    planned = LdpDsbo.planned_releases

    def forgetful(self: LdpDsbo, public: Any) -> Any:
        out = dict(planned(self, public))
        shrunk = {k: 0.5 * s for k, s in out["z"].sensitivity.items()}
        return {**out, "z": out["z"]._replace(sensitivity=shrunk)}

    monkeypatch.setattr(LdpDsbo, "planned_releases", forgetful)
    with pytest.raises(RuntimeError, match="not those of the plan"):
        decentral_dp.run(scenario())
