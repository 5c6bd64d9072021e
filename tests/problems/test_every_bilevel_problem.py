"""Guarantees of every bilevel problem: per-record clipped derivatives of its losses, finite for any record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from decentral_dp.bounded import Array
from decentral_dp.models import linear_terms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel import losses as loss_problem
from decentral_dp.problems.lower_level import solve_lower
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, TERMS
from decentral_dp.problems.records import regulariser_matrices, take
from tests.support.bilevel_cases import KINDS, point_of, prepared, problem_of, raw_records
from tests.support.hypergradients import true_hypergradient

D = 3
CLIPS = [Clip("l1", 0.05, 0.3, 0.1), Clip("l2", 0.05, 0.3, 0.1), Clip("l2")]
LENGTH: dict[str, Callable[[Array], float]] = {
    "l1": lambda v: float(np.abs(v).sum()),
    "l2": lambda v: float(np.sqrt((v * v).sum())),
}
STRANGE = [np.inf, np.nan, 1e308, 1e160]
# Formulas in numpy are the author's own, and no derivatives of each other here.
DIFFERENTIATED = [kind for kind in KINDS if kind != "recordwise"]


def asked(problem: Any, point: Any, matrix: Any, train: Any, held: Any, clip: Clip) -> dict[str, Array]:
    """All terms and matrices that read records."""
    terms = problem.terms(*point, train, held, clip)._asdict()
    matrices = problem.matrices(*point[:2], matrix, train, clip, tuple(MATRICES))
    return {name: value for name, value in (terms | matrices).items() if value is not None}


def case(kind: str, seed: int = 0, norm: Any = "l2", n: int = 7) -> tuple[Any, ...]:
    """A problem, (x, y, z), a matrix (q, p), train and validation records."""
    rng = np.random.default_rng([seed, len(kind)])
    problem, _ = problem_of(kind, D)
    train = prepared(problem, *raw_records(kind, D, rng, n), norm)
    held = problem.prepare(*raw_records(kind, D, rng, n - 2), norm)
    return problem, point_of(problem, rng), rng.normal(size=(problem.q, problem.p)), train, held


def at_each_record(problem: Any, point: Any, matrix: Any, train: Any, held: Any, clip: Clip) -> dict[str, list[Array]]:
    """All terms and matrices that read records, at one record after another."""
    found: dict[str, list[Array]] = {}
    for split, records in (("train", train), ("validation", held)):
        each = [take(records, slice(k, k + 1)) for k in range(len(records[0]))]
        rows = [asked(problem, point, matrix, one, one, clip) for one in each]
        found |= {n: [row[n] for row in rows] for n in rows[0] if problem.reads_records[MATRICES.get(n, n)] == split}
    return found


def slopes(f: Callable[[Array], Any], at: Array) -> Array:
    """∂f/∂at_i as rows, by sixth-order central differences; kinks are farther than their steps."""
    rows = []
    for unit in 1e-5 * np.eye(at.size):
        near, far, farther = (np.subtract(f(at + k * unit), f(at - k * unit)) for k in (1, 2, 3))
        rows.append((45 * near - 9 * far + farther) / 60e-5)
    return np.array(rows)


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_means_are_of_records_that_are_clipped_one_by_one(kind: str, clip: Clip) -> None:
    problem, point, matrix, train, held = case(kind, 1, clip.norm)
    got = asked(problem, point, matrix, train, held, clip)
    assert set(got) == {name for name in (*TERMS, *MATRICES) if MATRICES.get(name, name) in problem.reads_records}
    for name, values in at_each_record(problem, point, matrix, train, held, Clip()).items():
        bound = clip.bound(CLIP_OF_TERM[name])
        clipped = [value * min(1.0, bound / max(LENGTH[clip.norm](value), 1e-300)) for value in values]
        np.testing.assert_allclose(got[name], np.mean(clipped, axis=0), rtol=1e-10, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("kind", DIFFERENTIATED)
def test_terms_and_matrices_are_derivatives_of_the_losses(kind: str) -> None:
    """Those that read no record are zero at every record."""
    problem, (x, y, z), matrix, train, held = case(kind, 2)
    got = asked(problem, (x, y, z), matrix, train, held, Clip())

    def loss(at_x: Array, at_y: Array, records: Any, level: int) -> float:
        n = len(records[0])
        return float(problem.losses(at_x[None], at_y[None], records, np.full(n, 1.0 / n))[level][0])

    def gradient(at_x: Array, at_y: Array) -> Array:
        found = problem.terms(at_x, at_y, z, train, held, Clip(), ("lower_grad_y",)).lower_grad_y
        return np.zeros(problem.q) if found is None else np.asarray(found)

    def agree(name: str, wanted: Array) -> None:
        value = got.get(name, np.zeros_like(wanted))
        np.testing.assert_allclose(value, wanted, rtol=1e-7, atol=1e-8, err_msg=name)

    agree("lower_grad_y", slopes(lambda v: loss(x, v, train, 0), y))
    # Training at one level has no upper variable.
    if problem.p:
        agree("upper_grad_y", slopes(lambda v: loss(x, v, held, 1), y))
        agree("upper_grad_x", slopes(lambda u: loss(u, y, held, 1), x))
        hessian, jacobian = slopes(lambda v: gradient(x, v), y), slopes(lambda u: gradient(u, y), x)
        for name, wanted in (("lower_hvp", hessian @ z), ("lower_jvp", jacobian @ z)):
            agree(name, wanted)
        for name, wanted in (("hessian", hessian), ("jacobian", jacobian), ("hessian_product", hessian @ matrix)):
            agree(f"lower_{name}", wanted)


@pytest.mark.parametrize("kind", DIFFERENTIATED)
def test_the_regulariser_is_the_derivative_of_its_value(kind: str) -> None:
    problem, (x, y, z), matrix, *_ = case(kind, 3)
    got = problem.regulariser(x[None], y[None], z[None])

    def gradient(at_x: Array, at_y: Array) -> Array:
        return np.asarray(problem.regulariser(at_x[None], at_y[None], z[None]).grad_y[0])

    value = slopes(lambda v: problem.regulariser_value(x[None], v[None])[0], y)
    np.testing.assert_allclose(got.grad_y[0], value, rtol=1e-7, atol=1e-8)
    if not problem.p:
        return
    hessian, jacobian = slopes(lambda v: gradient(x, v), y), slopes(lambda u: gradient(u, y), x)
    np.testing.assert_allclose(got.hvp[0], hessian @ z, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(got.jvp[0], jacobian @ z, rtol=1e-7, atol=1e-8)
    whole = regulariser_matrices(problem, x[None], y[None], matrix[None])
    np.testing.assert_allclose(whole.hessian[0], hessian, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(whole.jacobian[0], jacobian, rtol=1e-7, atol=1e-8)
    assert whole.product is not None
    np.testing.assert_allclose(whole.product[0], hessian @ matrix, rtol=1e-7, atol=1e-8)
    assert regulariser_matrices(problem, x[None], y[None], None).product is None
    # Rows do not read each other.
    two = problem.regulariser(*(np.stack([v, 2.0 * v]) for v in (x, y, z)))
    for row, pair in zip(got, two, strict=True):
        np.testing.assert_allclose(pair[0], row[0], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_batches_and_of_terms_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, point, matrix, train, held = case(kind, 4, n=23)
    weights = np.random.default_rng(5).dirichlet(np.ones(23))
    clip = CLIPS[1]

    def everything() -> dict[str, Array]:
        lower, upper = problem.losses(point[0][None], point[1][None], train, weights)
        return asked(problem, point, matrix, train, held, clip) | {"lower": lower, "upper": upper}

    whole = everything()
    for term in problem.reads_records.keys() & set(TERMS):
        alone = problem.terms(*point, train, held, clip, (term,))
        np.testing.assert_allclose(getattr(alone, term), whole[term], rtol=1e-13, atol=1e-15)
    for term in set(TERMS) - problem.reads_records.keys():
        assert getattr(problem.terms(*point, train, held, clip, (term,)), term) is None
    for name in whole.keys() & MATRICES.keys():
        matrices = problem.matrices(*point[:2], matrix, train, clip, (name,))
        assert set(matrices) == {name}
        np.testing.assert_allclose(matrices[name], whole[name], rtol=1e-13, atol=1e-15)
    monkeypatch.setattr(linear_terms, "BLOCK", 4 * D)
    monkeypatch.setattr(loss_problem, "CELLS", 50)
    for name, value in everything().items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_arrives_terms_are_finite_and_within_their_clip(kind: str, value: float, norm: Any) -> None:
    """No warning either; overflows of a regulariser and of a loss are silent."""
    problem, point, matrix, train, held = case(kind, 6, norm)
    clip = Clip(norm, 0.05, 0.3, 0.1)
    for place in range(4):
        strange = [v.copy() for v in (*point, matrix)]
        if strange[place].size:
            strange[place].flat[0] = value
        x, y, z, matrix_of = strange
        got = asked(problem, (x, y, z), matrix_of, train, held, clip)
        for name, mean in got.items():
            assert np.isfinite(mean).all(), name
            assert LENGTH[norm](mean) <= clip.bound(CLIP_OF_TERM[name]) * (1 + 1e-12)
        # Records that are finite nevertheless are counted. How large numbers cancel is a matter of their order.
        if not np.isfinite(value):
            for name, rows in at_each_record(problem, (x, y, z), matrix_of, train, held, clip).items():
                np.testing.assert_allclose(got[name], np.mean(rows, axis=0), rtol=1e-12, atol=1e-15, err_msg=name)
        problem.regulariser(x[None], y[None], z[None])
        problem.regulariser_value(x[None], y[None])
        problem.losses(x[None], y[None], held, np.full(len(held[0]), 1.0 / len(held[0])))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([kind for kind in KINDS if kind != "recordwise"]),
    st.sampled_from(["l1", "l2"]),
    st.floats(-3, 6),
    st.floats(-2, 300),
)
@example(0, "from_losses", "l1", 6.0, 300.0)
@example(1, "meta_learning of images", "l2", 6.0, 300.0)
def test_random_neighbours_never_exceed_the_bound(
    seed: int, kind: str, norm: Any, feature_scale: float, message_scale: float
) -> None:
    """A neighbour keeps the place."""
    rng = np.random.default_rng(seed)
    problem, n = problem_of(kind, D)[0], int(rng.integers(1, 12))
    clip = Clip(norm, 0.07, 0.6, 0.25)
    x, y, z = point_of(problem, rng)
    point = x, y * 10.0 ** (message_scale / 10), z * 10.0**message_scale
    matrix = rng.normal(size=(problem.q, problem.p)) * 10.0**message_scale
    features, labels = raw_records(kind, D, rng, n)
    other, other_labels = features.copy(), labels.copy()
    new, new_labels = raw_records(kind, D, rng, 1)
    k = rng.integers(n)
    other[k], other_labels[k] = new[0] * 10.0 ** rng.uniform(-3, 6), new_labels[0]
    with np.errstate(all="ignore"):
        one, two = (
            asked(problem, point, matrix, prepared(problem, f, b, norm), problem.prepare(f, b, norm), clip)
            for f, b in ((features * 10.0**feature_scale, labels), (other * 10.0**feature_scale, other_labels))
        )
    for name, mean in one.items():
        assert np.isfinite(mean).all()
        assert LENGTH[norm](mean - two[name]) <= (1 + 1e-9) * 2 * clip.bound(CLIP_OF_TERM[name]) / n


@pytest.mark.parametrize("kind", KINDS)
def test_preparing_writes_nothing_and_takes_records_as_they_come(kind: str) -> None:
    problem, point, *_ = case(kind, 7)
    features, labels = raw_records(kind, D, np.random.default_rng(8), 9)
    wide, before = np.zeros((9, 2 * features.shape[1])), (features.copy(), labels.copy())
    wide[:, ::2] = features
    records = problem.prepare(features, labels, "l2")
    np.testing.assert_array_equal(features, before[0])
    np.testing.assert_array_equal(labels, before[1])
    for again in (np.asfortranarray(features), wide[:, ::2]):
        for one, other in zip(problem.prepare(again, labels, "l2"), records, strict=True):
            np.testing.assert_array_equal(one, other)
    prefix, some = take(records, slice(0, 5)), problem.prepare(features[:5], labels[:5], "l2")
    assert np.shares_memory(prefix[0], records[0])
    for part in (prefix, take(records, np.arange(5))):
        for one, other in zip(
            problem.terms(*point, part, part, CLIPS[0]), problem.terms(*point, some, some, CLIPS[0]), strict=True
        ):
            assert (one is None) == (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    "kind",
    [
        "biased_regularisation",
        "hyper_cleaning",
        "logistic_hyperparameter, intercept",
        "logistic_regularisation",
        "mean_lower_bound",
        "meta_learning",
        "ridge_hyperparameter",
        "ridge_regularisation",
    ],
)
def test_the_hypergradient_is_the_slope_of_the_upper_loss_at_the_lower_solution(kind: str) -> None:
    problem, (x, *_), *_ = case(kind, 9)
    rng = np.random.default_rng(10)
    agents = [
        (
            prepared(problem, *raw_records(kind, D, rng, n), "l2"),
            problem.prepare(*raw_records(kind, D, rng, 8), "l2"),
        )
        for n in (12, 9)
    ]

    def upper(at: Array) -> float:
        y = solve_lower(problem, at, agents, 1e-12)[None]
        return float(np.mean([problem.losses(at[None], y, v, np.full(8, 1 / 8))[1][0] for _, v in agents]))

    direction, h = rng.normal(size=problem.p) / np.sqrt(problem.p), 1e-5
    slope = (upper(x + h * direction) - upper(x - h * direction)) / (2 * h)
    assert true_hypergradient(problem, x, agents, 1e-12) @ direction == pytest.approx(slope, rel=1e-5, abs=1e-7)
