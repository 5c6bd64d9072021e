"""Meta-learning: the network, its per-record gradients, the tasks, and what one record can do to a clipped mean."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.meta_learning import MetaLearning, Tasks, draw_tasks

SHAPES = {"square": ((8, 8, 1), 64), "odd": ((5, 7, 2), 70), "flat": (None, 6)}
CLASSES = 6
# Class 5 is in no task, classes 1 and 2 are in two of them.
TASKS = ((0, 1, 2), (1, 2, 4), (0, 3, 4))
CLIP_OF_TERM = {"lower_grad_y": "y", "lower_hvp": "z", "lower_jvp": "x", "upper_grad_y": "z", "upper_grad_x": "x"}
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def make(shape, width=4, **options):
    image, n_features = SHAPES[shape]
    tasks = Tasks(options.pop("tasks", TASKS), CLASSES)
    return replace(
        MetaLearning.from_dataset(n_features, CLASSES, image, width=width, ridge=0.1, **{"seed": 5, **options}),
        tasks=tasks,
    )


def raw(shape, rng, n):
    return rng.normal(size=(n, SHAPES[shape][1])), rng.integers(CLASSES, size=n).astype(float)


def point(problem, rng):
    """A point away from the start, where biases and shifts are zero."""
    return problem.start["x"] + 0.3 * rng.normal(size=problem.p), *rng.normal(size=(2, problem.q))


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("clip", [Clip("l1", 0.01, 0.1, 0.02), Clip("l2", 0.01, 0.1, 0.02)], ids=["l1", "l2"])
def test_adversarial_neighbours_come_near_the_bound(shape, clip, n):
    """With two classes a task and y = 0, the other label turns every gradient around."""
    rng = np.random.default_rng([11, n])
    problem = make(shape, tasks=((0, 1),))
    x, _, z = point(problem, rng)
    head = np.zeros((2, problem.network.outputs + 1))
    # One row: then y·(probabilities − unit vector) changes sign with the label. Small: then both labels are likely.
    head[0, :-1] = 1e-3 * rng.normal(size=problem.network.outputs)
    features, labels = raw(shape, rng, n)
    labels %= 2
    other = labels.copy()
    other[0] = 1 - labels[0]
    clip = Clip(clip.norm, 1e-6, clip.y, clip.z)
    one, two = (
        problem.terms(x, head.ravel(), z, records, records, clip)
        for records in (problem.prepare(features, b, clip.norm) for b in (labels, other))
    )
    for term in ("lower_grad_y", "upper_grad_y", "upper_grad_x", "lower_jvp"):
        ratio = LENGTH[clip.norm](getattr(one, term) - getattr(two, term)) / (2 * clip.bound(CLIP_OF_TERM[term]) / n)
        assert ratio <= 1 + 1e-9
        assert ratio >= 0.95, term


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 12), st.integers(1, 40), st.integers(2, 12), st.integers(0, 99))
def test_drawn_tasks_are_even(n_classes, count, ways, seed):
    if ways > n_classes:
        with pytest.raises(InputError, match=r"problem\.ways"):
            draw_tasks(count, ways, n_classes, seed)
        return
    tasks = draw_tasks(count, ways, n_classes, seed)
    assert len(tasks.members) == count
    assert tasks == draw_tasks(count, ways, n_classes, seed)
    for task in tasks.members:
        assert list(task) == sorted(set(task))
        assert len(task) == ways
        assert 0 <= task[0] <= task[-1] < n_classes
    often = np.bincount(np.concatenate(tasks.members), minlength=n_classes)
    assert often.max() - often.min() <= 1
    member = (tasks.share > 0).sum(axis=1)
    np.testing.assert_array_equal(member, often)
    np.testing.assert_allclose(tasks.share.sum(axis=1), often > 0)


def test_a_record_in_no_task_has_no_loss():
    rng = np.random.default_rng(10)
    problem = make("square")
    at = point(problem, rng)
    records = problem.prepare(raw("square", rng, 3)[0], np.full(3, 5.0), "l2")
    assert problem.losses(at[0][None], at[1][None], records, np.full(3, 1 / 3))[0][0] == 0.0
    for mean in problem.terms(*at, records, records, Clip("l2", 1.0, 1.0, 1.0)):
        assert not mean.any()
    assert np.isnan(problem.accuracy(at[0][None], at[1][None], records)).all()


def test_accuracy_is_a_mean_over_tasks():
    """φ = the features, which are the scores of both tasks; heads are unit matrices."""
    problem = replace(MetaLearning.from_dataset(3, 4, width=3), tasks=Tasks(((0, 1, 2), (0, 1, 3)), 4))
    x = np.concatenate([np.eye(3).ravel(), np.zeros(3)])[None]
    y = np.tile(np.concatenate([np.eye(3), np.zeros((3, 1))], axis=1), (2, 1)).ravel()[None]
    features = np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
    records = problem.prepare(features, np.array([0.0, 1.0, 2.0, 3.0]), "l1")
    # Task one: right, tied between two, right; task two: right, tied between two, wrong.
    assert problem.accuracy(x, y, records)[0] == pytest.approx((2.5 / 3 + 1.5 / 3) / 2)
    first_three = problem.prepare(features[2:3], np.array([2.0]), "l1")
    assert problem.accuracy(x, y, first_three)[0] == 1.0
    assert problem.accuracy(x, 0 * y, records)[0] == pytest.approx(1 / 3)
    assert problem.accuracy(x, y * np.nan, records)[0] == 0.0
    np.testing.assert_allclose(
        problem.accuracy(np.repeat(x, 2, 0), np.concatenate([y, 0 * y]), records), [2 / 3, 1 / 3]
    )
