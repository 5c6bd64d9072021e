"""Compare hyper-cleaning with loops over records and finite differences; test its groups, draws and results."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import NO_GROUP, HyperCleaning
from decentral_dp.simulation.jobs.build import build_job as build

D, CLASSES, AGENTS, GROUPS = 3, 3, 2, 2
PROBLEM = HyperCleaning(D, (0.0, 1.0, 2.0), AGENTS, groups=GROUPS, ridge=0.3)
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def raw(rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.integers(CLASSES, size=n).astype(float)


def placed(features, labels, agent=0, problem=PROBLEM, norm="l1"):
    return problem.place_records(problem.prepare(features, labels, norm), agent)


def group_of(k, n, agent):
    """Return the segment of n equal segments that contains position k, by definition."""
    return agent * GROUPS + next(g for g in range(GROUPS) if g * n <= k * GROUPS < (g + 1) * n)


def bound_of(name, clip):
    return {"lower_grad_y": clip.y, "lower_jvp": clip.x, "lower_jacobian": clip.x}.get(name, clip.z)


def test_losses_and_accuracy_agree_with_loops():
    rng = np.random.default_rng(5)
    features, labels = raw(rng, 8)
    records, held = placed(features, labels, 1), PROBLEM.prepare(features, labels, "l1")
    x, y = rng.normal(size=(4, PROBLEM.p)), rng.normal(size=(4, PROBLEM.q))
    weights = rng.dirichlet(np.ones(8))
    lower, upper = PROBLEM.losses(x, y, records, weights)
    unplaced = PROBLEM.losses(x, y, held, weights)
    np.testing.assert_allclose(unplaced[0], unplaced[1])
    for row in range(4):
        clean = heard = hits = 0.0
        for k, (a, b) in enumerate(zip(features.tolist(), labels.tolist(), strict=True)):
            scores = [sum(u * v for u, v in zip(a, y[row, r * D : r * D + D], strict=True)) for r in range(CLASSES)]
            loss = math.log(sum(math.exp(s) for s in scores)) - scores[int(b)]
            clean += weights[k] * loss
            heard += weights[k] * loss / (1 + math.exp(-x[row, group_of(k, 8, 1)]))
            hits += scores[int(b)] == max(scores)
        assert (lower[row], upper[row]) == pytest.approx((heard, clean), rel=1e-12)
        assert PROBLEM.accuracy(x, y, records)[row] == pytest.approx(hits / 8)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("name", ["lower_grad_y", "lower_jvp", "lower_jacobian", "upper_grad_y"])
def test_adversarial_neighbours_come_near_the_bound(name, norm):
    rng = np.random.default_rng(8)
    clip, n = Clip(norm, 1e-3, 1e-2, 1e-2), 5
    features, labels = raw(rng, n)
    other = features.copy()
    features[0], other[0] = (50.0, 0.0, 0.0), (-50.0, 0.0, 0.0)
    x, y, z = np.zeros(PROBLEM.p), np.zeros(PROBLEM.q), np.eye(PROBLEM.q)[0]

    def mean(rows):
        terms = PROBLEM.terms(x, y, z, placed(rows, labels), PROBLEM.prepare(rows, labels, norm), clip)._asdict()
        return (terms | PROBLEM.matrices(x, y, None, placed(rows, labels), clip, {"lower_jacobian"}))[name]

    ratio = LENGTH[norm](mean(features) - mean(other)) / (2 * bound_of(name, clip) / n)
    assert 0.95 <= ratio <= 1 + 1e-9


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3))
def test_groups_are_stretches_of_nearly_equal_length(n, groups, agent):
    problem = HyperCleaning(1, (0.0, 1.0), 4, groups=groups)
    group = problem.place_records(problem.prepare(np.ones((n, 1)), np.zeros(n), "l1"), agent).group
    assert (np.diff(group) >= 0).all()
    assert agent * groups <= group.min() <= group.max() < (agent + 1) * groups
    sizes = np.bincount(group - agent * groups, minlength=groups)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.3, 4), (0.05, 1), (0.04, 0), (1.0, 12)])
def test_so_many_groups_are_corrupted_and_no_other_label_changes(share, count):
    problem = HyperCleaning(1, tuple(range(5)), 6, groups=2, corrupt=share, seed=4)
    assert problem.corrupted_groups.sum() == count
    labels = np.full(400, 2.0)
    for agent in range(6):
        records = problem.place_records(problem.prepare(np.ones((400, 1)), labels, "l1"), agent)
        bad = problem.corrupted_groups[records.group]
        assert (records.label[~bad] == 2).all()
        if bad.any():
            shares = np.bincount(records.label[bad], minlength=5) / bad.sum()
            assert np.abs(shares - 0.2).max() < 0.1


def test_coins_follow_from_the_seed_alone():
    """Draw independently of the records: a neighbouring record gets the same draws."""
    make = [HyperCleaning(D, (0.0, 1.0, 2.0), 3, groups=2, corrupt=1.0, seed=s) for s in (1, 1, 2)]
    rng = np.random.default_rng(10)
    a, b = (raw(rng, 50) for _ in range(2))
    first, again, other = (p.place_records(p.prepare(*a, "l1"), 1).label for p in make)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(first, placed(*b, 1, make[0]).label)
    assert (first != make[0].place_records(make[0].prepare(*a, "l1"), 2).label).any()


def test_shifted_labels_are_the_next_class_in_corrupted_groups_alone():
    problem = HyperCleaning(D, (0.0, 1.0, 2.0), 4, groups=2, corrupt=0.5, corruption="shifted", seed=3)
    features, labels = raw(np.random.default_rng(12), 60)
    for agent in range(4):
        before = problem.prepare(features, labels, "l1")
        after = problem.place_records(before, agent)
        bad = problem.corrupted_groups[after.group]
        np.testing.assert_array_equal(after.label, np.where(bad, (before.label + 1) % 3, before.label))
    assert 0 < problem.corrupted_groups.sum() < problem.p


SMALL = {
    "problem": {"kind": "hyper_cleaning", "data": "wine", "groups": 2, "corrupt": 0.4, "validation": 0.4, "seed": 2},
    "topology": {"agents": 4},
}


def test_a_job_places_train_records_and_no_others(scenario):
    job = build(load(scenario(**SMALL)))
    problem = job.problem
    assert isinstance(problem, HyperCleaning)
    assert hasattr(problem, "place_records")
    assert hasattr(problem, "scores")
    assert (problem.p, problem.agents, problem.seed) == (8, 4, 2)
    for agent, (train, validation) in enumerate(zip(job.records["train"], job.records["validation"], strict=True)):
        assert set(train.group) == {2 * agent, 2 * agent + 1}
        assert set(validation.group) == {NO_GROUP}
        own = job.shards.labels[job.shards.train[agent]]
        assert (train.label == own)[~problem.corrupted_groups[train.group]].all()
        np.testing.assert_array_equal(validation.label, job.shards.labels[job.shards.validation[agent]])
    assert set(job.test.group) == {NO_GROUP}
