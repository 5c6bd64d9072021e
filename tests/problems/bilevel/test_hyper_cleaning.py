"""Hyper-cleaning against loops over records and finite differences; its groups, its coins, and what it learns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp import InputError, run
from decentral_dp.config.loading import load
from decentral_dp.models import linear_terms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import NO_GROUP, HyperCleaning
from decentral_dp.problems.lower_level import solve_lower
from decentral_dp.problems.protocol import MATRICES, Placed, Scored
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.metrics import final
from tests.support.hypergradients import true_hypergradient

D, CLASSES, AGENTS, GROUPS = 3, 3, 2, 2
PROBLEM = HyperCleaning(D, (0.0, 1.0, 2.0), AGENTS, groups=GROUPS, ridge=0.3)
TRAIN_TERMS = ("lower_grad_y", "lower_hvp", "lower_jvp")
ALL = (*TRAIN_TERMS, "upper_grad_y", *MATRICES)
CLIPS = [Clip("l1", 0.02, 0.3, 0.1), Clip("l2", 0.02, 0.3, 0.1), Clip("l1", 9e9, 9e9, 9e9), Clip("l2"), Clip("l1")]
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def raw(rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.integers(CLASSES, size=n).astype(float)


def placed(features, labels, agent=0, problem=PROBLEM, norm="l1"):
    return problem.place_records(problem.prepare(features, labels, norm), agent)


def points(rng, problem=PROBLEM):
    return rng.normal(size=problem.p), rng.normal(size=problem.q), rng.normal(size=problem.q)


def group_of(k, n, agent):
    """By its definition: which of the equal stretches of n places holds place k."""
    return agent * GROUPS + next(g for g in range(GROUPS) if g * n <= k * GROUPS < (g + 1) * n)


def naive(name, a, b, g, x, y, z, matrix):
    """One record's term as a nested list, in Python floats; g is None for a validation record."""
    scores = [sum(u * v for u, v in zip(a, y[r * D : r * D + D], strict=True)) for r in range(CLASSES)]
    total = sum(math.exp(s) for s in scores)
    s = [math.exp(v) / total for v in scores]
    gradient = [(s[i // D] - (i // D == b)) * a[i % D] for i in range(CLASSES * D)]
    if name == "upper_grad_y":
        return [gradient]
    w = 1 / (1 + math.exp(-x[g]))
    q = len(y)
    if name == "lower_grad_y":
        return [[w * v for v in gradient]]
    if name in ("lower_jvp", "lower_jacobian"):
        row = [w * (1 - w) * v for v in gradient]
        if name == "lower_jacobian":
            return [row if k == g else [0.0] * q for k in range(len(x))]
        through = sum(u * v for u, v in zip(row, z, strict=True))
        return [[through if k == g else 0.0 for k in range(len(x))]]
    hessian = [
        [w * (s[i // D] * (i // D == j // D) - s[i // D] * s[j // D]) * a[i % D] * a[j % D] for j in range(q)]
        for i in range(q)
    ]
    if name == "lower_hvp":
        return [[sum(u * v for u, v in zip(row, z, strict=True)) for row in hessian]]
    if name == "lower_hessian":
        return hessian
    return [[sum(row[k] * matrix[k][j] for k in range(q)) for j in range(len(x))] for row in hessian]


def bound_of(name, clip):
    return {"lower_grad_y": clip.y, "lower_jvp": clip.x, "lower_jacobian": clip.x}.get(name, clip.z)


def naive_mean(name, features, labels, agent, x, y, z, matrix, clip):
    total, n = 0.0, len(labels)
    for k, (a, b) in enumerate(zip(features.tolist(), labels.tolist(), strict=True)):
        arguments = (group_of(k, n, agent), x.tolist(), y.tolist(), z.tolist(), matrix.tolist())
        one = np.array(naive(name, a, int(b), *arguments))
        size = sum(abs(v) for v in one.ravel()) if clip.norm == "l1" else math.hypot(*one.ravel())
        total = total + one * (min(1.0, bound_of(name, clip) / size) if size > 0 else 1.0)
    mean = total / n
    return mean[0] if len(mean) == 1 else mean


@pytest.mark.parametrize("agent", range(AGENTS))
@pytest.mark.parametrize("clip", CLIPS, ids=repr)
def test_terms_and_matrices_agree_with_a_loop_over_records(clip, agent):
    rng = np.random.default_rng([1, agent])
    x, y, z = points(rng)
    matrix = rng.normal(size=(PROBLEM.q, PROBLEM.p))
    train, validation = raw(rng, 7, 2.0), raw(rng, 5, 2.0)
    records = placed(*train, agent)
    held = PROBLEM.prepare(*validation, clip.norm)
    terms = PROBLEM.terms(x, y, z, records, held, clip)
    assert terms.upper_grad_x is None
    got = terms._asdict() | PROBLEM.matrices(x, y, matrix, records, clip, set(MATRICES))
    for name in ALL:
        rows = validation if name == "upper_grad_y" else train
        want = naive_mean(name, *rows, agent, x, y, z, matrix, clip)
        assert got[name].shape == want.shape
        np.testing.assert_allclose(got[name], want, rtol=1e-11, atol=1e-15, err_msg=name)


def test_touches_and_what_is_wanted():
    rng = np.random.default_rng(2)
    assert dict(PROBLEM.reads_records) == dict.fromkeys(TRAIN_TERMS, "train") | {"upper_grad_y": "validation"}
    records, held = placed(*raw(rng, 6)), PROBLEM.prepare(*raw(rng, 4), "l1")
    point = points(rng)
    whole = PROBLEM.terms(*point, records, held, Clip())
    for term in (*TRAIN_TERMS, "upper_grad_y"):
        np.testing.assert_array_equal(
            getattr(PROBLEM.terms(*point, records, held, Clip(), (term,)), term), getattr(whole, term)
        )


def test_terms_are_derivatives_of_the_losses():
    """Losses with many rows at once; sixth-order differences in y and in x."""
    rng = np.random.default_rng(3)
    records, held = placed(*raw(rng, 9), 1), PROBLEM.prepare(*raw(rng, 5), "l1")
    x, y, z = points(rng)
    got = PROBLEM.terms(x, y, z, records, held, Clip())
    h, steps, weights = 3e-3, np.array([1, -1, 2, -2, 3, -3]), np.array([45, -45, -9, 9, 1, -1]) / 60

    def slope(rows, by_x, by_y, which):
        at_x, at_y = x + h * steps[:, None] * by_x, y + h * steps[:, None] * by_y
        n = len(rows.label)
        return weights @ PROBLEM.losses(at_x, at_y, rows, np.full(n, 1 / n))[which] / h

    def gradient(at_x, at_y):
        return PROBLEM.terms(at_x, at_y, z, records, held, Clip()).lower_grad_y

    still_x, still_y = np.zeros(PROBLEM.p), np.zeros(PROBLEM.q)
    for unit in np.eye(PROBLEM.q):
        assert got.lower_grad_y @ unit == pytest.approx(slope(records, still_x, unit, 0), abs=1e-9)
        assert got.upper_grad_y @ unit == pytest.approx(slope(held, still_x, unit, 1), abs=1e-9)
    hvp = sum(w * gradient(x, y + h * s * z) for w, s in zip(weights, steps, strict=True)) / h
    np.testing.assert_allclose(got.lower_hvp, hvp, atol=1e-8)
    for g, unit in enumerate(np.eye(PROBLEM.p)):
        along = sum(w * gradient(x + h * s * unit, y) for w, s in zip(weights, steps, strict=True)) / h
        assert got.lower_jvp[g] == pytest.approx(along @ z, abs=1e-9)
        assert slope(held, unit, still_y, 1) == pytest.approx(0.0, abs=1e-12)


def test_the_regulariser_ignores_x():
    rng = np.random.default_rng(4)
    x, y, z = rng.normal(size=(3, PROBLEM.p)), *rng.normal(size=(2, 3, PROBLEM.q))
    got = PROBLEM.regulariser(x, y, z)
    np.testing.assert_allclose(got.grad_y, 0.3 * y)
    np.testing.assert_allclose(got.hvp, 0.3 * z)
    np.testing.assert_array_equal(got.jvp, np.zeros((3, PROBLEM.p)))
    np.testing.assert_allclose(PROBLEM.regulariser_value(x, y), [0.15 * sum(v * v for v in row) for row in y])


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


def test_blocks_do_not_change_the_result(monkeypatch):
    rng = np.random.default_rng(6)
    records, held = placed(*raw(rng, 23)), PROBLEM.prepare(*raw(rng, 17), "l1")
    x, y, z = points(rng)
    matrix = rng.normal(size=(PROBLEM.q, PROBLEM.p))
    clip, weights = Clip("l1", 0.05, 0.3, 0.1), rng.dirichlet(np.ones(23))

    def everything():
        terms = PROBLEM.terms(x, y, z, records, held, clip)
        matrices = PROBLEM.matrices(x, y, matrix, records, clip, set(MATRICES))
        losses = PROBLEM.losses(x[None], y[None], records, weights)
        return [*(t for t in terms if t is not None), *matrices.values(), *losses]

    whole = everything()
    monkeypatch.setattr(linear_terms, "BLOCK", 4 * D)
    for a, b in zip(everything(), whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308, -1e160])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_messages_that_are_not_finite_give_finite_terms(norm, value):
    rng = np.random.default_rng(7)
    clip = Clip(norm, 0.05, 0.3, 0.1)
    records, held = placed(*raw(rng, 6), norm=norm), PROBLEM.prepare(*raw(rng, 5), norm)
    for where in range(4):
        x, y, z = points(rng)
        matrix = rng.normal(size=(PROBLEM.q, PROBLEM.p))
        (x, y, z, matrix)[where].flat[1] = value
        got = PROBLEM.terms(x, y, z, records, held, clip)._asdict()
        got |= PROBLEM.matrices(x, y, matrix, records, clip, set(MATRICES))
        for name in ALL:
            assert np.isfinite(got[name]).all()
            assert LENGTH[norm](got[name]) <= bound_of(name, clip) * (1 + 1e-12)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(ALL),
    st.sampled_from(["l1", "l2"]),
    st.sampled_from([0.0, 0.5]),
    st.floats(-3, 6),
    st.floats(-2, 300),
)
def test_random_neighbours_never_exceed_the_bound(seed, name, norm, corrupt, feature_scale, message_scale):
    """A neighbour keeps the agent and the place; the coins for that place stay as they are."""
    rng = np.random.default_rng(seed)
    problem = HyperCleaning(D, (0.0, 1.0, 2.0), AGENTS, groups=GROUPS, corrupt=corrupt, seed=seed % 100)
    clip, n = Clip(norm, 0.07, 0.6, 0.25), int(rng.integers(1, 12))
    x, y, z = points(rng)
    y, z = y * 10.0 ** (message_scale / 10), z * 10.0**message_scale
    matrix = rng.normal(size=(problem.q, problem.p)) * 10.0**message_scale
    features, labels = raw(rng, n, 10.0**feature_scale)
    other, other_labels = features.copy(), labels.copy()
    k = rng.integers(n)
    other[k] = rng.normal(size=D) * 10.0 ** rng.uniform(-3, 6)
    other_labels[k] = rng.integers(CLASSES)

    def mean(rows):
        train, held = placed(*rows, 1, problem, norm), problem.prepare(*rows, norm)
        terms = problem.terms(x, y, z, train, held, clip)._asdict()
        return (terms | problem.matrices(x, y, matrix, train, clip, set(MATRICES)))[name]

    difference = mean((features, labels)) - mean((other, other_labels))
    assert LENGTH[norm](difference) <= (1 + 1e-9) * 2 * bound_of(name, clip) / n


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


def test_prepared_records_are_in_no_group():
    records = PROBLEM.prepare(np.ones((3, D)), np.zeros(3), "l1")
    assert records.group.tolist() == [NO_GROUP] * 3
    terms = PROBLEM.terms(*points(np.random.default_rng(9)), records, records, Clip())
    np.testing.assert_array_equal(terms.lower_jvp, np.zeros(PROBLEM.p))


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
    """Not from what is in the records: a neighbouring record gets the same coins."""
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


def test_the_hypergradient_is_the_slope_of_f():
    problem = HyperCleaning(D, (0.0, 1.0, 2.0), AGENTS, groups=GROUPS, ridge=0.1)
    rng = np.random.default_rng(11)
    agents = [(placed(*raw(rng, n), i, problem), problem.prepare(*raw(rng, 6), "l1")) for i, n in enumerate((9, 7))]
    x, direction = rng.normal(size=(2, problem.p))

    def f(at):
        y = solve_lower(problem, at, agents)[None]
        return np.mean([problem.losses(at[None], y, v, np.full(6, 1 / 6))[1][0] for _, v in agents])

    h = 1e-4
    slope = (f(x + h * direction) - f(x - h * direction)) / (2 * h)
    assert true_hypergradient(problem, x, agents) @ direction == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"groups": 0}, "problem.groups"),
        ({"agents": 0}, "problem.groups"),
        ({"corrupt": 1.5}, "problem.corrupt"),
        ({"corruption": "sorted"}, "problem.corruption"),
        ({"ridge": 0.0}, "problem.ridge"),
        ({"classes": (1.0,)}, "problem.classes"),
    ],
)
def test_impossible_options_are_refused(options, sentence):
    arguments = {"n_features": 2, "classes": (0.0, 1.0), "agents": 2, **options}
    with pytest.raises(InputError, match=sentence):
        HyperCleaning(**arguments)


SMALL = {
    "problem": {"kind": "hyper_cleaning", "data": "wine", "groups": 2, "corrupt": 0.4, "validation": 0.4, "seed": 2},
    "topology": {"agents": 4},
}


def test_a_job_places_train_records_and_no_others(scenario):
    job = build(load(scenario(**SMALL)))
    problem = job.problem
    assert isinstance(problem, HyperCleaning)
    assert isinstance(problem, Placed)
    assert isinstance(problem, Scored)
    assert (problem.p, problem.agents, problem.seed) == (8, 4, 2)
    for agent, (train, validation) in enumerate(zip(job.records["train"], job.records["validation"], strict=True)):
        assert set(train.group) == {2 * agent, 2 * agent + 1}
        assert set(validation.group) == {NO_GROUP}
        own = job.shards.labels[job.shards.train[agent]]
        assert (train.label == own)[~problem.corrupted_groups[train.group]].all()
        np.testing.assert_array_equal(validation.label, job.shards.labels[job.shards.validation[agent]])
    assert set(job.test.group) == {NO_GROUP}


def test_without_noise_corrupted_groups_lose_their_weight(scenario):
    content = scenario(**SMALL)
    content["algorithm"] = {
        "kind": "ldp_dsbo",
        "rounds": 150,
        "x": {"scale": 60.0},
        "y": {"scale": 3.0},
        "z": {"scale": 3.0},
    }
    content["privacy"] = {"guarantee": "none"}
    scores = final(run(load(content)).metrics)
    assert scores["weight_corrupted"] < 0.4 < 0.7 < scores["weight_clean"]


def test_no_scores_where_nothing_is_corrupted():
    assert PROBLEM.scores(np.zeros((2, PROBLEM.p)), np.zeros((2, PROBLEM.q))) == {}
