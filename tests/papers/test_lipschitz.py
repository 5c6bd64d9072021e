"""Analytic constants against an adversary: nothing exceeds them, and those attained are reached."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Pull,
    SoftmaxHyperparameter,
    Strengths,
)
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from papers.published.lipschitz import lipschitz_constants, penalty_constants

CHANNELS = ("x", "y", "z")
# Wide enough for R·box["y"] ≥ log(2 + √3), where the slope of the curvature is largest.
BOX, RADIUS = {"x": 0.4, "y": 1.5, "z": 0.8}, 1.2
D = 3
LOGISTIC = LogisticHyperparameter(D)
SOFTMAX = SoftmaxHyperparameter(D, (0.0, 1.0, 2.0))
RIDGE = 0.4
MEAN = MeanEstimation(D, RIDGE)
LINEAR = MeanLowerBound(D, ridge=0.7, slope=1.3, stretch=0.6)
LABELS = {LOGISTIC: (-1.0, 1.0), SOFTMAX: (0.0, 1.0, 2.0)}
ids = {LOGISTIC: "logistic", SOFTMAX: "softmax"}.get


def directions(problem, record, point):
    """Per-record parts of (G_x, G_y, G_z) for one train and one validation record, and the regulariser's."""
    x, y, z = point
    terms = problem.terms(x, y, z, record, record, Clip())
    regulariser = problem.regulariser(x[None], y[None], z[None])
    return {
        "train": (np.zeros(problem.p), terms.lower_grad_y, terms.lower_hvp),
        "validation": (np.zeros(problem.p), np.zeros(problem.q), -terms.upper_grad_y),
        "regulariser": (-regulariser.jvp[0], regulariser.grad_y[0], regulariser.hvp[0]),
    }


def draw_record(problem, rng):
    """Records on the boundary ‖a‖₁ = R: random, sparse, and single features."""
    a = rng.normal(size=D) * (rng.random(D) < rng.choice([0.3, 0.7, 1.0]))
    if not a.any():
        a[rng.integers(D)] = rng.choice([-1.0, 1.0])
    return problem.prepare(a[None] / np.abs(a).sum() * RADIUS, np.array([rng.choice(LABELS[problem])]), "l1")


def draw_point(problem, rng):
    x = BOX["x"] - np.where(rng.random(problem.p) < 0.7, 0.0, rng.exponential(size=problem.p))
    y, z = (
        np.where(rng.random(problem.q) < 0.4, rng.choice([-1.0, 1.0], problem.q), rng.uniform(-1, 1, problem.q)) * m
        for m in (BOX["y"], BOX["z"])
    )
    return [x, y * rng.choice([1.0, 0.0, 0.5, 0.9]), z]


def inside(channel, value):
    return np.minimum(value, BOX["x"]) if channel == "x" else np.clip(value, -BOX[channel], BOX[channel])


def largest_ratios(problem, rng, tries):
    """Part → (3, 3) largest ‖ΔG_v‖₁/‖Δu‖₁ found, moving one argument along one coordinate or all at once."""
    largest = {part: np.zeros((3, 3)) for part in ("train", "validation", "regulariser")}
    for _ in range(tries):
        record, point = draw_record(problem, rng), draw_point(problem, rng)
        u = int(rng.integers(3))
        step = rng.normal(size=point[u].size)
        if rng.random() < 0.7:
            step *= np.arange(step.size) == rng.integers(step.size)
        sensitivity = list(point)
        sensitivity[u] = inside(CHANNELS[u], point[u] + 10.0 ** rng.uniform(-4, 1) * step)
        distance = np.abs(sensitivity[u] - point[u]).sum()
        if distance < 1e-7:
            continue
        before, after = directions(problem, record, point), directions(problem, record, sensitivity)
        for part, ratios in largest.items():
            for v in range(3):
                ratio = np.abs(after[part][v] - before[part][v]).sum() / distance
                ratios[v, u] = max(ratios[v, u], ratio)
    return largest


@pytest.mark.parametrize("problem", [LOGISTIC, SOFTMAX], ids=ids)
def test_lipschitz_constants_hold_and_are_nearly_reached(problem):
    constants = lipschitz_constants(problem, BOX, RADIUS)
    largest = largest_ratios(problem, np.random.default_rng(11), 3_000)
    for part, ratios in largest.items():
        bound = constants.regulariser if part == "regulariser" else constants.data[part]
        assert (ratios <= bound * (1 + 1e-6) + 1e-9).all(), (part, ratios, bound)
        assert (ratios[bound > 0] >= 0.8 * bound[bound > 0]).all(), (part, ratios / np.maximum(bound, 1e-12))


@pytest.mark.parametrize("problem", [LOGISTIC, SOFTMAX], ids=ids)
def test_swaps_hold_over_two_points(problem):
    rng = np.random.default_rng(12)
    constants = lipschitz_constants(problem, BOX, RADIUS)
    assert constants.two_point
    largest = {"train": np.zeros(3), "validation": np.zeros(3)}
    for _ in range(1000):
        here, there = (directions(problem, draw_record(problem, rng), draw_point(problem, rng)) for _ in range(2))
        for kind, swaps in largest.items():
            np.maximum(swaps, [np.abs(a - b).sum() for a, b in zip(here[kind], there[kind], strict=True)], out=swaps)
    for kind, swaps in largest.items():
        assert (swaps <= constants.swap[kind] * (1 + 1e-9)).all()
        assert (swaps[constants.swap[kind] > 0] >= 0.5 * constants.swap[kind][constants.swap[kind] > 0]).all()


def test_logistic_constants_of_the_unit_box():
    """The kinds together: the matrix and swaps that are used for agents whose records come in pairs."""
    constants = lipschitz_constants(LOGISTIC, {"x": 0.0, "y": 1.0, "z": 1.0}, 1.0)
    total = constants.data["train"] + constants.data["validation"] + constants.regulariser
    third = 1 / (6 * math.sqrt(3)) + 0.25
    np.testing.assert_allclose(total, [[1, 1, 1], [1, 1.25, 0], [1, third, 1.25]], rtol=1e-12)
    np.testing.assert_allclose(constants.swap["train"] + constants.swap["validation"], [0, 2, 2.5], rtol=1e-12)


@pytest.mark.parametrize("problem", [LOGISTIC, SOFTMAX], ids=ids)
def test_no_constants_without_every_bound(problem):
    assert lipschitz_constants(problem, BOX, None) is None
    assert lipschitz_constants(problem, BOX, np.inf) is None
    for channel in CHANNELS:
        assert lipschitz_constants(problem, {k: v for k, v in BOX.items() if k != channel}, RADIUS) is None
        assert lipschitz_constants(problem, BOX | {channel: np.inf}, RADIUS) is None
    assert lipschitz_constants(problem, BOX | {"x": 1e4}, RADIUS) is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([Pull(RIDGE), Strengths(), Strengths(D)]))
def test_penalty_constants_hold(seed, rule):
    rng = np.random.default_rng(seed)
    box = {"x": 0.6, "y": 0.8, "z": 1.1}
    bound = penalty_constants(rule, box)
    widths = {"x": 1 if rule == Strengths(D) else D, "y": D, "z": D}
    for argument, channel in enumerate(box):
        a = [rng.uniform(-limit, limit, size=(1, widths[c])) for c, limit in box.items()]
        b = [v.copy() for v in a]
        b[argument] = rng.uniform(-box[channel], box[channel], size=a[argument].shape)
        far = np.abs(a[argument] - b[argument]).sum()
        first, second = rule.terms(*a), rule.terms(*b)
        for row, term in enumerate(("jvp", "grad_y", "hvp")):
            sensitivity = np.abs(getattr(first, term) - getattr(second, term)).sum()
            assert sensitivity <= bound[row, argument] * far * (1 + 1e-12) + 1e-15


def test_penalty_constants_by_hand():
    np.testing.assert_allclose(penalty_constants(Pull(3.0), {}), [[0, 0, 3], [3, 3, 0], [0, 0, 3]])
    twice = penalty_constants(Strengths(), {"x": np.log(2.0), "y": 3.0, "z": 5.0})
    np.testing.assert_allclose(twice, [[30, 10, 6], [6, 2, 0], [10, 0, 2]])
    assert penalty_constants(Strengths(), {"y": 1.0, "z": 1.0}) is None
    assert penalty_constants(Strengths(), {"x": 701.0, "y": 1.0, "z": 1.0}) is None


def length(vector):
    return np.abs(vector).sum()


def test_the_constants_of_a_mean_hold_and_are_reached():
    radius, rng = 1.3, np.random.default_rng(14)
    constants = lipschitz_constants(MEAN, {}, radius)
    assert constants is not None
    assert not constants.two_point

    def of_mean(a, x, y, z):
        part = MEAN.prepare(a[None], np.zeros(1), "l1")
        terms, zero = MEAN.terms(x, y, z, part, part, Clip()), np.zeros(D)
        exact = MEAN.regulariser(x[None], y[None], z[None])
        return {
            "train": [zero, terms.lower_grad_y, zero],
            "validation": [zero, zero, -terms.upper_grad_y],
            "regulariser": [-exact.jvp[0], exact.grad_y[0], exact.hvp[0]],
        }

    bounds = {**constants.data, "regulariser": constants.regulariser}
    for u in range(3):
        point = rng.normal(size=(3, D))
        sensitivity = point.copy()
        sensitivity[u] += rng.normal(size=D)
        before, after = of_mean(np.ones(D), *point), of_mean(np.ones(D), *sensitivity)
        for part, bound in bounds.items():
            for v in range(3):
                ratio = length(after[part][v] - before[part][v]) / length(sensitivity[u] - point[u])
                assert ratio == pytest.approx(bound[v, u], abs=1e-12)
    one = np.array([radius, 0.0, 0.0])
    here, there = (of_mean(a, *point) for a in (one, -one))
    for kind, swap in constants.swap.items():
        np.testing.assert_allclose([length(a - b) for a, b in zip(here[kind], there[kind], strict=True)], swap)
    assert lipschitz_constants(MEAN, {}, None) is None
    assert lipschitz_constants(MEAN, {}, np.inf) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_the_constants_of_the_lower_bound_instance_hold(seed):
    """The l1 constants of the private-state recursion."""
    rng = np.random.default_rng(seed)
    constants = lipschitz_constants(LINEAR, {}, 1.5)
    assert constants is not None
    assert lipschitz_constants(LINEAR, {}, None) is None
    a = rng.normal(size=(2, D))
    a *= 1.5 / np.abs(a).sum(axis=1, keepdims=True)
    one, other = (LINEAR.prepare(row[None], np.zeros(1), "l1") for row in a)
    zero = np.zeros(D)
    grads = [LINEAR.terms(zero, zero, zero, r, r, Clip()).upper_grad_y for r in (one, other)]
    assert grads[0] is not None
    assert grads[1] is not None
    assert np.abs(grads[0] - grads[1]).sum() <= constants.swap["validation"][2] * (1 + 1e-12)
    assert not constants.swap["train"].any()
    x, y, z, dx, dy, dz = rng.normal(size=(6, D))
    before, after = (LINEAR.regulariser(*(v[None] for v in p)) for p in ((x, y, z), (x + dx, y + dy, z + dz)))
    sensitivity = [
        np.abs(v[0] - u[0]).sum()
        for u, v in ((before.jvp, after.jvp), (before.grad_y, after.grad_y), (before.hvp, after.hvp))
    ]
    steps = np.array([np.abs(d).sum() for d in (dx, dy, dz)])
    assert (np.array(sensitivity) <= constants.regulariser @ steps * (1 + 1e-12)).all()
