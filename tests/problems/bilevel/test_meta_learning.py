"""Meta-learning: the network, its per-record gradients, the tasks, and what one record can do to a clipped mean."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from decentral_dp import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.meta_learning import MetaLearning, Tasks, draw_tasks
from decentral_dp.problems.protocol import TERMS

SHAPES = {"square": ((8, 8, 1), 64), "odd": ((5, 7, 2), 70), "flat": (None, 6)}
CLASSES = 6
# Class 5 is in no task, classes 1 and 2 are in two of them.
TASKS = ((0, 1, 2), (1, 2, 4), (0, 3, 4))
CLIPS = [Clip("l1", 0.4, 0.9, 0.3), Clip("l2", 0.2, 0.5, 0.1), Clip("l2"), Clip("l1")]
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


def torch_loss(problem, image, x, y, a, label):
    """l of one record in torch: images channels first."""
    if image is None:
        units = len(x) // (len(a) + 1)
        phi = torch.relu(x[:-units].reshape(units, -1) @ a + x[-units:])
    else:
        height, width, c = image
        h, done, o = a.reshape(1, c, height, width), 0, problem.network.module[1].out_channels
        while min(h.shape[2:]) >= 2 and done < len(x):
            sizes = [o * 9 * h.shape[1], o, o, o]
            kernel, bias, scale, shift = torch.split(x[done : done + sum(sizes)], sizes)
            done += sum(sizes)
            h = functional.conv2d(h, kernel.reshape(o, -1, 3, 3), bias, padding=1)
            h = functional.group_norm(h, max(1, o // 4), scale, shift)
            h = functional.max_pool2d(torch.relu(h), 2)
        assert done == len(x)
        phi = h[0].reshape(-1)
    heads = y.reshape(len(TASKS), len(TASKS[0]), -1)
    mine = [(head, task.index(label)) for head, task in zip(heads, TASKS, strict=True) if label in task]
    losses = [functional.cross_entropy(head[:, :-1] @ phi + head[:, -1], torch.tensor(place)) for head, place in mine]
    # Times zero, so that a record in no task still has derivatives.
    return sum(losses) / len(losses) if losses else 0.0 * (x.sum() + y.square().sum() + (phi.sum() * y.sum()))


def torch_terms(problem, image, x, y, z, features, labels, clip):
    """Clipped means by a loop over records, one double backward each."""
    sums = dict.fromkeys(TERMS, 0.0)
    for a, label in zip(features, labels, strict=True):
        u, v = (torch.tensor(w, requires_grad=True) for w in (x, y))
        loss = torch_loss(problem, image, u, v, torch.tensor(a), int(label))
        by_x, by_y = torch.autograd.grad(loss, (u, v), create_graph=True)
        across, hvp = torch.autograd.grad(by_y @ torch.tensor(z), (u, v))
        found = (by_y, hvp, across, by_y, by_x)
        for term, value in zip(TERMS, (t.detach().numpy() for t in found), strict=True):
            length, bound = LENGTH[clip.norm](value), clip.bound(CLIP_OF_TERM[term])
            sums[term] = sums[term] + (value if length <= bound else value * (bound / length))
    return {term: total / len(labels) for term, total in sums.items()}


@pytest.mark.parametrize("clip", CLIPS, ids=lambda c: f"{c.norm}-{c.x}")
@pytest.mark.parametrize("shape", SHAPES)
def test_terms_agree_with_a_loop_of_autograd(shape, clip):
    rng = np.random.default_rng([1, len(shape)])
    problem = make(shape)
    at = point(problem, rng)
    (features, labels), other = raw(shape, rng, 9), raw(shape, rng, 5)
    labels[0] = 5.0
    train, validation = problem.prepare(features, labels, clip.norm), problem.prepare(*other, clip.norm)
    got = problem.terms(*at, train, validation, clip)
    lower = torch_terms(problem, SHAPES[shape][0], *at, features, labels, clip)
    upper = torch_terms(problem, SHAPES[shape][0], *at, *other, clip)
    for term in TERMS:
        wanted = lower[term] if term.startswith("lower") else upper[term]
        np.testing.assert_allclose(getattr(got, term), wanted, rtol=0, atol=1e-9)
        assert np.abs(wanted).max() > 1e-3
    weights = rng.dirichlet(np.ones(9))
    for value in problem.losses(at[0][None], at[1][None], train, weights):
        tensors = (torch.tensor(at[0]), torch.tensor(at[1]))
        wanted = [
            float(torch_loss(problem, SHAPES[shape][0], *tensors, torch.tensor(a), int(label)))
            for a, label in zip(features, labels, strict=True)
        ]
        assert value[0] == pytest.approx(weights @ wanted, abs=1e-9)


def test_where_pixels_tie_the_first_is_pooled():
    """Flat pictures are full of ties: where kernels are zero every window is one, and one pixel gets the slope."""
    rng = np.random.default_rng(12)
    problem = make("square", tasks=TASKS)
    x, y, z = point(problem, rng)
    x = np.where(problem.start["x"] % 1.0 != 0.0, 0.0, np.abs(x))
    features, labels = raw("square", rng, 3)
    records = problem.prepare(features, labels % 5, "l2")
    got = problem.terms(x, y, z, records, records, Clip("l2"))
    wanted = torch_terms(problem, SHAPES["square"][0], x, y, z, features, labels % 5, Clip("l2"))
    for term in TERMS:
        np.testing.assert_allclose(getattr(got, term), wanted[term], rtol=0, atol=1e-9)
    assert np.abs(wanted["upper_grad_x"]).max() > 1e-3


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


def test_adversarial_features_turn_the_curvature_around():
    problem = make("flat", tasks=((0, 1),), width=1)
    x, z = np.zeros(problem.p), np.array([1e6, -1.0, 0.0, 0.0])
    x[0] = 1.0
    clip, features, other = Clip("l2", 1.0, 1.0, 0.01), np.zeros((3, 6)), np.zeros((3, 6))
    # φ = 2e-6 and 0, u = 1e6·φ − 1 = 1 and −1, while φ̃ = (φ, 1) hardly moves.
    features[0, 0] = 2e-6
    means = [
        problem.terms(x, np.zeros(problem.q), z, records, records, clip).lower_hvp
        for records in (problem.prepare(f, np.zeros(3), "l2") for f in (features, other))
    ]
    assert 0.95 <= LENGTH["l2"](means[0] - means[1]) / (2 * 0.01 / 3) <= 1 + 1e-9


def test_the_start_is_public_and_random():
    a, b = make("square"), make("square", seed=6)
    assert set(a.start) == {"x"}
    np.testing.assert_array_equal(a.start["x"], make("square").start["x"])
    assert not np.array_equal(a.start["x"], b.start["x"])
    kernels = MetaLearning.from_dataset(3072, 10, (32, 32, 3), width=32).start["x"][-9280 - 32 : -96]
    assert kernels.std() == pytest.approx(np.sqrt(2 / 288), rel=0.03)
    # From a constant start all channels of a layer stay equal, so random weights are needed.
    rng = np.random.default_rng(9)
    records = a.prepare(*raw("square", rng, 8), "l2")
    same = a.terms(np.full(a.p, 0.1), *rng.normal(size=(2, a.q)), records, records, Clip()).lower_jvp
    kernels = same[:36].reshape(4, 9)
    assert np.abs(kernels - kernels[0]).max() <= 1e-12


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
