"""The clip of cross-entropy by its envelope, against the envelope's definition, and its two bounds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize

from decentral_dp.bounded import Array
from decentral_dp.models import envelope
from decentral_dp.models.dense import DenseLayers
from decentral_dp.models.envelope import SLOPE_ERROR, envelope_slopes
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.training import CrossEntropy, Examples, Training

RADII = (1e-6, 0.03, 0.3, 0.7, 1.0)
SIZES = (0.3, 3.0, 30.0, 1e3)
LOSS = CrossEntropy()


def _slopes(z: Array, labels: Array, radius: float) -> Array:
    with np.errstate(all="ignore"):
        scaled = LOSS.slopes(z, labels)
        return envelope_slopes(scaled, z, labels.astype(np.int64), np.full(labels.shape, radius))


def _records(classes: int, size: float, count: int = 200) -> tuple[Array, Array]:
    draw = np.random.default_rng([classes, int(10 * size)])
    return size * draw.normal(size=(count, classes)), draw.integers(classes, size=count).astype(float)


def _problem(features: int, classes: int, gain: float = 1.0) -> Training:
    return Training("tried", DenseLayers((features, classes), gain, 0.1), LOSS, features, classes)


def _gradient(problem: Training, y: Array, records: Examples, clip: Clip) -> Array:
    x = np.zeros((len(y), 0))
    total = problem.stacked_terms(x, y, y, records, clip, ("lower_grad_y",)).lower_grad_y
    assert total is not None
    return total


@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("bound", [0.05, 0.3, 0.6])
def test_a_gradient_is_that_of_the_envelope(classes: int, bound: float) -> None:
    """∇f at the minimiser of f(y) + C ‖x − y‖, or C (x − y)/‖x − y‖ where the clip binds."""
    draw, problem = np.random.default_rng(classes), _problem(2, classes)
    clip, free, clipped = Clip("l2", y=bound, envelope=True), Clip("l2"), 0
    for _ in range(10):
        record = Examples(draw.uniform(-1.0, 1.0, size=(1, 1, 2)), draw.integers(classes, size=(1, 1)).astype(float))
        one = Examples(record.features[0], record.label[0])
        x = 3.0 * draw.normal(size=problem.q)
        got = _gradient(problem, x[None], record, clip)[0]
        plain = _gradient(problem, x[None], record, free)[0]
        # The radius of a short record is 1.
        cost = min(bound, float(np.linalg.norm([*one.features[0], 0.1])))
        if np.linalg.norm(plain) <= cost:
            assert np.array_equal(got, plain)
            continue
        clipped += 1

        def objective(y: Array, x: Array = x, one: Examples = one, cost: float = cost) -> float:
            loss = problem.losses(np.zeros((1, 0)), y[None], one, np.ones(1))[0][0]
            return float(loss + cost * np.linalg.norm(x - y))

        starts = [x - s * plain for s in (0.1, 1.0, 10.0)]
        best = min((minimize(objective, s, method="BFGS", options={"gtol": 1e-9}) for s in starts), key=lambda r: r.fun)
        expected = cost * (x - best.x) / np.linalg.norm(x - best.x)
        assert np.allclose(got, expected, atol=2e-5 * bound)
    assert clipped >= 3


@pytest.mark.parametrize("classes", [3, 10])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("radius", RADII)
def test_slopes_solve_their_equations(classes: int, size: float, radius: float) -> None:
    """log p_k + θ (p_k − 1[k = b]) − z_k is constant, and bisection finds the same p."""
    z, labels = _records(classes, size)
    plain, got = LOSS.slopes(z, labels), _slopes(z, labels, radius)
    outside = np.linalg.norm(plain, axis=1) > radius
    assert np.array_equal(got[~outside], plain[~outside])
    if not outside.any():
        return
    chosen = np.eye(classes)[labels.astype(int)]
    assert np.linalg.norm(got[outside], axis=1) == pytest.approx(radius, rel=1e-9, abs=1e-12)
    assert np.abs(got.sum(axis=1)).max() < 1e-15
    few = np.flatnonzero(outside)[:10]
    margins = z[few].T - z[few, labels[few].astype(int)]
    bisected = envelope._bisect(margins, chosen[few].T, np.full(few.size, radius)).T - chosen[few]
    assert np.linalg.norm(got[few] - bisected, axis=1).max() < 1e-3 * SLOPE_ERROR
    if 1e-3 < radius < 1.0 and size < 100.0:
        p = got[outside] + chosen[outside]
        # θ by least squares in the metric of p, where the equation is well-conditioned.
        w, s = p, got[outside]
        left = np.log(np.maximum(p, 1e-300)) - z[outside]
        centred_left = left - (w * left).sum(axis=1, keepdims=True)
        centred_s = s - (w * s).sum(axis=1, keepdims=True)
        theta = -(w * centred_left * centred_s).sum(axis=1) / (w * centred_s * centred_s).sum(axis=1)
        assert (theta > 0.0).all()
        errors = np.sqrt(w) * (centred_left + theta[:, None] * centred_s) / (1.0 + theta[:, None])
        assert np.abs(errors).max() < 1e-7


def test_records_without_a_root_by_newton_are_bisected(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = _records(5, 3.0)
    by_newton = _slopes(z, labels, 0.2)
    monkeypatch.setattr(envelope, "_NEWTON_STEPS", 0)
    assert np.linalg.norm(_slopes(z, labels, 0.2) - by_newton, axis=1).max() < 1e-3 * SLOPE_ERROR


@pytest.mark.parametrize("radius", RADII)
def test_jacobians_are_symmetric_within_the_curvature(radius: float) -> None:
    classes, step = 4, 1e-5
    z, labels = _records(classes, 2.0, 50)
    ends = [(_slopes(z + step * e, labels, radius) - _slopes(z - step * e, labels, radius)) for e in np.eye(classes)]
    jacobians = np.stack(ends, axis=2) / (2.0 * step)
    # Differences across the sphere, where the Jacobian jumps, are means of both sides.
    assert np.abs(jacobians - jacobians.swapaxes(1, 2)).max() < 1e-5
    values = np.linalg.eigvalsh(0.5 * (jacobians + jacobians.swapaxes(1, 2)))
    assert values.min() > -1e-5
    assert values.max() < LOSS.curvature + 1e-5


def _largest_growth(clip: Clip) -> float:
    """Return the largest ratio of distances after and before a step, of a random search that climbs."""
    draw, largest = np.random.default_rng(4), 0.0
    for classes, features, n in ((3, 1, 1), (4, 3, 2), (10, 3, 1)):
        problem = _problem(features, classes, 1.0 / np.sqrt(features))
        pairs = 400
        records = Examples(
            draw.uniform(-1.0, 1.0, size=(pairs, n, features)) / np.sqrt(features),
            draw.integers(classes, size=(pairs, n)).astype(float),
        )
        curvature = LOSS.curvature * (1.0 + 0.1**2)
        here = draw.normal(size=(pairs, problem.q)) * 10.0 ** draw.uniform(-1.0, 1.5, size=(pairs, 1))
        apart = draw.normal(size=here.shape)
        best = np.zeros(pairs)
        for turn in range(40):
            width = 10.0 ** draw.uniform(-3.0, 0.5, size=(pairs, 1)) * (turn > 0)
            point = here + width * draw.normal(size=here.shape)
            direction = apart + width * draw.normal(size=apart.shape)
            direction *= 0.01 / np.linalg.norm(direction, axis=1, keepdims=True)
            for eta in (1.0 / curvature, 2.0 / curvature):
                moved = direction - eta * (
                    _gradient(problem, point + direction, records, clip) - _gradient(problem, point, records, clip)
                )
                growth = np.linalg.norm(moved, axis=1) / 0.01
                better = growth > best
                best = np.where(better, growth, best)
                here, apart = np.where(better[:, None], point, here), np.where(better[:, None], direction, apart)
        largest = max(largest, float(best.max()))
    return largest


@pytest.mark.parametrize("bound", [0.05, 0.3])
def test_no_step_moves_models_apart_and_scaled_gradients_do(bound: float) -> None:
    assert _largest_growth(Clip("l2", y=bound, envelope=True)) < 1.0 + 1e-9
    assert _largest_growth(Clip("l2", y=bound)) > 1.0002


@pytest.mark.parametrize("bound", [1e-5, 0.05, 0.25, 1.0])
def test_every_record_contributes_at_most_the_clip(bound: float) -> None:
    """In rational arithmetic, for records and weights of all sizes; opposite records are two clips apart."""
    draw, problem, clip, opposite = np.random.default_rng(8), _problem(3, 4), Clip("l2", y=bound, envelope=True), 0.0
    sizes = [(s, t) for s in (1e-3, 0.5, 1.0, 1e160, 1e308) for t in (0.0, 1.0, 30.0, 1e4, 1e200)]
    for size, weight in sizes:
        one = size * draw.uniform(-1.0, 1.0, size=(40, 1, 3))
        y = weight * draw.normal(size=(40, problem.q))
        ends = [_gradient(problem, y, Examples(one, np.full((40, 1), b)), clip) for b in (0.0, 1.0)]
        for gradient in np.concatenate(ends):
            assert np.isfinite(gradient).all()
            square = sum(Fraction(value) ** 2 for value in gradient.tolist())
            assert square <= Fraction(bound * (1.0 + 2.0**-49)) ** 2
        opposite = max(opposite, float(np.linalg.norm(ends[0] - ends[1], axis=1).max()))
    assert 0.8 < opposite / (2.0 * min(bound, 1.0)) <= 1.0 + 1e-12


def test_bits_of_a_record_do_not_depend_on_others() -> None:
    z, labels = _records(12, 3.0)
    together = _slopes(z, labels, 0.2)
    for k in range(50):
        assert np.array_equal(_slopes(z[k : k + 1], labels[k : k + 1], 0.2)[0], together[k])
