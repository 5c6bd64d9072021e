"""Training at one level against finite differences of its losses, record by record."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from decentral_dp.bounded import Array, Norm
from decentral_dp.models.dense import DenseLayers
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.training import (
    CrossEntropy,
    Examples,
    Huber,
    Logistic,
    Poisson,
    Squared,
    Training,
    TrainingLoss,
)

# Records have features times the gain of a model.
D, N, AGENTS, BOUND, GAIN = 5, 9, 4, 0.3, 0.5
CASES = [
    ((D, 1), Logistic(), 2),
    ((D, 3), CrossEntropy(), 3),
    ((D, 1), Squared(), 0),
    ((D, 1), Huber(0.5), 0),
    ((D, 6, 3), CrossEntropy(), 3),
    ((D, 7, 4, 1), Logistic(), 2),
    ((D, 7, 1), Huber(0.5), 0),
    ((D, 1), Poisson(), 0),
]
NORMS: tuple[Norm, ...] = ("l1", "l2")


def _case(widths: tuple[int, ...], loss: TrainingLoss, classes: int, seed: int = 0) -> tuple[Training, Array, Examples]:
    draw = np.random.default_rng([seed, len(widths), classes])
    problem = Training("tried", DenseLayers(widths, gain=GAIN, seed=3), loss, D, classes, l2=0.1)
    labels = draw.integers(classes, size=(AGENTS, N)).astype(float) if classes else draw.normal(size=(AGENTS, N))
    return problem, 0.6 * draw.normal(size=(AGENTS, problem.q)), Examples(draw.normal(size=(AGENTS, N, D)), labels)


def _clipped_mean(
    problem: Training, y: Array, records: Examples, bound: float, norm: Norm, apart: float | None = None
) -> Array:
    """Compute the mean of clipped gradients of one agent, each by central differences of the loss of one record.

    apart: the part of a clip to which the last coordinate is clipped by itself.
    """
    parts = [(slice(None), 1.0)]
    if apart is not None:
        parts = [(slice(-1), 1.0 - apart if norm == "l1" else math.cos(math.asin(apart))), (slice(-1, None), apart)]
    step, total = 1e-6, np.zeros(problem.q)
    for k in range(len(records.label)):
        one = Examples(records.features[k : k + 1], records.label[k : k + 1])
        ends = np.concatenate([y + step * np.eye(problem.q), y - step * np.eye(problem.q)])
        values = problem.losses(np.zeros((len(ends), 0)), ends, one, np.ones(1))[0]
        slope = (values[: problem.q] - values[problem.q :]) / (2 * step)
        # With two classes |∂ℓ/∂φ| is one minus the probability of the label.
        missing = 1.0 - math.exp(-problem.losses(np.zeros((1, 0)), y[None], one, np.ones(1))[0][0])
        own = bound * min(1.0, 2.0 * missing) if isinstance(problem.loss, Logistic) else bound
        for part, share in parts:
            size = np.linalg.norm(slope[part], 1 if norm == "l1" else 2)
            total[part] += slope[part] * min(1.0, share * own / size) / len(records.label)
    return total


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("widths", "loss", "classes"), CASES)
def test_terms_are_means_of_clipped_gradients(
    widths: tuple[int, ...], loss: TrainingLoss, classes: int, norm: Norm
) -> None:
    problem, y, records = _case(widths, loss, classes)
    z = np.zeros_like(y)
    for bound in (BOUND, 1e6):
        terms = problem.stacked_terms(
            np.zeros((AGENTS, 0)), y, z, records, Clip(norm, y=bound), ("lower_grad_y",)
        ).lower_grad_y
        assert terms is not None
        for i in range(AGENTS):
            own = Examples(records.features[i], records.label[i])
            assert np.allclose(terms[i], _clipped_mean(problem, y[i], own, bound, norm), atol=2e-8)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("widths", [(D, 1), (D, 7, 4, 1)])
@pytest.mark.parametrize("bound", [0.05, 0.4, 1.5, 1e6])
def test_clipped_gradients_cancel_at_the_probability_that_weights_say(
    widths: tuple[int, ...], norm: Norm, bound: float
) -> None:
    """p of the gradients by the label 1 and 1 − p of those by the label 0, for weights of any size."""
    problem, y, records = _case(widths, Logistic(), 2)
    clip, x = Clip(norm, y=bound), np.zeros(0)
    trained = replace(problem, clip=clip, l2=0.0)
    for size in (0.1, 1.0, 8.0):
        said = trained.predict(size * y, records.features[0] / GAIN)
        for i in range(AGENTS):
            for k in range(N):
                one = records.features[0, k : k + 1]
                by_label = [
                    trained.terms(x, size * y[i], y[i], Examples(one, np.array([b])), records, clip).lower_grad_y
                    for b in (0.0, 1.0)
                ]
                mean = np.tensordot(said[i, k], np.array(by_label), 1)
                assert np.abs(mean).max() < 1e-9 * np.abs(by_label[0]).max() * np.abs(by_label[1]).max() + 1e-14


@pytest.mark.parametrize(("widths", "loss", "classes"), CASES)
def test_sums_do_not_depend_on_who_is_hosted_together(
    widths: tuple[int, ...], loss: TrainingLoss, classes: int
) -> None:
    problem, y, records = _case(widths, loss, classes)
    clip, x = Clip("l2", y=BOUND), np.zeros((AGENTS, 0))
    together = problem.stacked_terms(x, y, y, records, clip, ("lower_grad_y",)).lower_grad_y
    for i in range(AGENTS):
        own = Examples(records.features[i], records.label[i])
        alone = problem.terms(x[i], y[i], y[i], own, own, clip).lower_grad_y
        assert together is not None
        assert np.array_equal(together[i], alone)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(("widths", "loss", "classes"), CASES)
def test_one_replaced_record_moves_a_mean_by_two_clips_over_n(
    widths: tuple[int, ...], loss: TrainingLoss, classes: int, norm: Norm
) -> None:
    """Searched from records of many sizes, those that overflow included; near the bound where slopes are opposite."""
    problem, y, records = _case(widths, loss, classes, seed=1)
    draw, clip, largest = np.random.default_rng(5), Clip(norm, y=BOUND), 0.0
    own = Examples(records.features[0], records.label[0])
    for size in (1e-3, 1.0, 1e3, 1e160, 1e308):
        ends = []
        for _ in range(30):
            row, label = size * draw.uniform(-1.0, 1.0, size=D), own.label.copy()
            label[2] = draw.integers(classes) if classes else 10.0 * draw.normal()
            features = own.features.copy()
            features[2] = row
            got = problem.terms(np.zeros(0), 3.0 * y[0], y[0], Examples(features, label), own, clip).lower_grad_y
            assert got is not None
            assert np.isfinite(got).all()
            ends.append(got)
        for here in ends:
            for there in ends:
                moved = here - there
                largest = max(largest, float(np.abs(moved).sum() if norm == "l1" else np.linalg.norm(moved)))
    assert 0.5 < largest * N / (2 * BOUND) <= 1.0 + 1e-9


def test_the_ridge_reads_no_record_and_is_exact() -> None:
    problem, y, _ = _case((D, 1), Squared(), 0)
    x, z = np.zeros((AGENTS, 0)), y[::-1]
    terms = problem.regulariser(x, y, z)
    assert np.allclose(terms.grad_y, 0.1 * y)
    assert np.allclose(terms.hvp, 0.1 * z)
    assert terms.jvp.shape == (AGENTS, 0)
    assert np.allclose(problem.regulariser_value(x, y), 0.05 * (y**2).sum(axis=1))


@pytest.mark.parametrize(
    ("loss", "classes"), [(Logistic(), 2), (CrossEntropy(), 4), (Squared(), 0), (Huber(0.3), 0), (Poisson(), 0)]
)
def test_slopes_and_curvatures_of_losses(loss: TrainingLoss, classes: int) -> None:
    draw = np.random.default_rng(2)
    e, n, step = (classes if classes > 2 else 1), 200, 1e-5
    outputs = 3.0 * draw.normal(size=(n, e))
    labels = draw.integers(classes, size=n).astype(float) if classes else draw.normal(size=n)
    slopes = loss.slopes(outputs, labels)
    largest = 0.0
    for k in range(e):
        move = step * np.eye(e)[k]
        up, down = loss.value(outputs + move, labels), loss.value(outputs - move, labels)
        assert np.allclose(slopes[:, k], (up - down) / (2 * step), atol=1e-7)
        direction = draw.normal(size=e)
        direction /= np.linalg.norm(direction)
        change = loss.slopes(outputs + step * direction, labels) - loss.slopes(outputs - step * direction, labels)
        largest = max(largest, float(np.linalg.norm(change, axis=1).max() / (2 * step)))
    assert 0.3 * loss.curvature < largest <= loss.curvature * (1 + 1e-6)


# Features that are read from a centre --------------------------------------------------------------------------------


def _centred(
    loss: TrainingLoss, classes: int, outputs: int, norm: Norm, bound: float
) -> tuple[Training, Array, Array, Examples]:
    """A problem, its centres, weights and records; the last agent's centre lies far outside of all records."""
    problem, y, records = _case((D, outputs), loss, classes)
    x = 0.3 * np.random.default_rng(8).normal(size=(AGENTS, D))
    x[-1] *= 1e3
    return replace(problem, clip=Clip(norm, x=1.0, y=bound)), x, y, records


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("loss", "classes", "outputs"), [(Logistic(), 2, 1), (CrossEntropy(), 3, 3), (Squared(), 0, 1)]
)
def test_a_centre_is_taken_off_before_gradients_are_clipped(
    loss: TrainingLoss, classes: int, outputs: int, norm: Norm
) -> None:
    """Values at a centre are the values of shifted records without a centre.

    With one output the intercept has its own clip, 0.37 of the whole.
    """
    problem, x, y, records = _centred(loss, classes, outputs, norm, BOUND)
    plain = replace(problem, clip=Clip())
    assert (problem.p, plain.p) == (D, 0)
    moved = Examples(records.features - x[:, None], records.label)
    none = np.zeros((AGENTS, 0))
    terms = problem.stacked_terms(x, y, y, records, problem.clip, ("lower_grad_y",))
    assert terms.lower_grad_y is not None
    for i in range(AGENTS - 1):
        own, there = (Examples(r.features[i], r.label[i]) for r in (records, moved))
        expected = _clipped_mean(plain, y[i], there, BOUND, norm, 0.37 if outputs == 1 else None)
        np.testing.assert_allclose(terms.lower_grad_y[i], expected, atol=2e-8)
        at, said = (x[i : i + 1], y[i : i + 1]), problem.predicting(x, y)[i : i + 1]
        rows, unclipped = plain.predict(y[i : i + 1], there.features / GAIN), replace(problem, clip=Clip(x=1.0))
        np.testing.assert_allclose(unclipped.predict(said, own.features / GAIN), rows, rtol=1e-9)
        np.testing.assert_allclose(
            unclipped.losses(*at, own, np.full(N, 1 / N)),
            plain.losses(none[:1], y[i : i + 1], there, np.full(N, 1 / N)),
        )
        named = problem.named_weights(said[0])
        scores = own.features / GAIN @ named["weight"].T + named["bias"]
        np.testing.assert_allclose(scores, plain.model.outputs_of(y[i : i + 1], there.features)[0], rtol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_one_replaced_record_moves_a_mean_of_features_and_a_gradient_at_any_centre_by_two_clips_over_n(
    norm: Norm,
) -> None:
    problem, x, y, records = _centred(Logistic(), 2, 1, norm, BOUND)
    draw, size = np.random.default_rng(5), np.abs if norm == "l1" else np.square
    for term, clip in (("feature_mean", 1.0), ("lower_grad_y", BOUND)):
        largest = 0.0
        # Also where all other records are 0.
        for i, others in product(range(AGENTS), (1.0, 0.0)):
            ends = []
            for length in (1e-3, 1.0, 1e3, 1e160, np.nan):
                for _ in range(12):
                    features, label = others * records.features[i], records.label[i].copy()
                    features[2], label[2] = length * draw.uniform(-1.0, 1.0, size=D), draw.integers(2)
                    own = Examples(features[None], label[None])
                    if term == "feature_mean":
                        ends.append(problem.feature_mean(own, problem.clip)[0])
                        continue
                    got = problem.stacked_terms(x[i : i + 1], y[i : i + 1], y[i : i + 1], own, problem.clip, (term,))
                    ends.append(got.lower_grad_y[0])
            assert np.isfinite(ends).all()
            gaps = size(np.array(ends)[:, None] - np.array(ends)[None]).sum(axis=-1)
            largest = max(largest, float(gaps.max() if norm == "l1" else np.sqrt(gaps.max())))
        assert 0.5 < largest * N / (2.0 * clip) <= 1.0 + 1e-9


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("loss", "labels"),
    [(Logistic(), (0.0, 1.0)), (Squared(), (-1e3, 1e3)), (Huber(2.0), (-9, 9)), (Poisson(), (-9, 9))],
)
def test_parts_that_are_clipped_apart_are_together_as_long_as_the_clip_and_no_longer(
    loss: TrainingLoss, labels: tuple[float, float], norm: Norm
) -> None:
    """Searched where both parts are cut: records whose output is next to 0, of opposite labels."""
    problem, x, y, _ = _centred(loss, 2 if isinstance(loss, Logistic) else 0, 1, norm, 0.02)
    draw, largest = np.random.default_rng(6), 0.0
    for i in range(AGENTS - 1):
        weights = y[i, :D]
        for _ in range(30):
            row = 10.0 ** draw.uniform(0.0, 3.0) * draw.normal(size=D)
            row -= weights * (weights @ row + y[i, D] + 1e-12 * draw.normal()) / (weights @ weights)
            features = np.tile(row + x[i], (N, 1))
            ends = [
                problem.terms(x[i], y[i], y[i], own := Examples(features, np.full(N, b)), own, problem.clip)
                for b in labels
            ]
            moved = ends[1].lower_grad_y - ends[0].lower_grad_y
            largest = max(largest, float(np.linalg.norm(moved, 1 if norm == "l1" else 2)))
    assert 0.999 < largest / (2.0 * 0.02) <= 1.0 + 1e-9


def test_intercepts_that_are_clipped_apart_cancel_at_the_probability_that_weights_say() -> None:
    for bound in (0.05, 1.0, 1e6):
        problem, x, y, records = _centred(Logistic(), 2, 1, "l2", bound)
        problem = replace(problem, l2=0.0)
        said = problem.predict(problem.predicting(x, y), records.features[0] / GAIN)
        for i in range(AGENTS - 1):
            for k in range(N):
                one = records.features[0, k : k + 1]
                by_label = [
                    problem.terms(x[i], y[i], y[i], own := Examples(one, np.array([b])), own, problem.clip)
                    for b in (0.0, 1.0)
                ]
                mean = said[i, k] @ [terms.lower_grad_y[-1] for terms in by_label]
                assert abs(mean) < 1e-9 * min(bound, 1.0)
