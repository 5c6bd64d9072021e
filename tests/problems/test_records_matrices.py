"""Full Hessians and Jacobians against loops over records and finite differences, and what one record can do to them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.models import linear_terms
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems import records as in_columns
from decentral_dp.problems.bilevel import losses as loss_problem
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.losses import from_losses
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import MATRICES
from decentral_dp.problems.records import regulariser_matrices

D = 3


def weighted(x, y, features, label):
    """Uses x, so that there is a Jacobian, with p ≠ q and a Hessian of full rank."""
    import torch

    margin = (2 * label - 1) * (features @ y)
    return torch.sigmoid(x[0] + x[1] * features[0]) * torch.nn.functional.softplus(-margin) + (y**4).sum() / 12


def upper(x, y, features, label):
    import torch

    return torch.nn.functional.softplus(-(2 * label - 1) * (features @ y))


def weighted_penalty(x, y):
    return (x.sum().exp() * (y**4).sum() + (y * y).sum()) / 4


PROBLEMS = {
    "logistic": LogisticHyperparameter(D, (0.0, 1.0), intercept=True),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "quadratic": Quadratic(D, ridge=0.7),
    "losses": from_losses(upper, weighted, p=2, q=D, n_features=D, regulariser=weighted_penalty),
}
CLASSES = {"softmax": 3}
CLIPS = [Clip("l1", 0.05, 1.0, 0.3), Clip("l2", 0.05, 1.0, 0.2), Clip("l1", 9e9, 9e9, 9e9), Clip("l2"), Clip("l1")]
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def raw(name, rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.integers(CLASSES.get(name, 2), size=n).astype(float)


def points(problem, rng):
    return rng.normal(size=problem.p), rng.normal(size=problem.q), rng.normal(size=(problem.q, problem.p))


def sigmoid(t):
    return 1.0 / (1.0 + math.exp(-t))


def naive_hessian(name, a, b, x, y):
    """∇²_yy l of one record, entry by entry, in Python floats."""
    q = len(y)
    if name == "losses":
        t = (2 * b - 1) * sum(u * v for u, v in zip(a, y, strict=True))
        factor = sigmoid(x[0] + x[1] * a[0]) * sigmoid(t) * sigmoid(-t)
        return [[factor * a[i] * a[j] + (y[i] ** 2 if i == j else 0.0) for j in range(q)] for i in range(q)]
    if name == "softmax":
        scores = [sum(u * v for u, v in zip(a, y[r * D : r * D + D], strict=True)) for r in range(3)]
        total = sum(math.exp(s) for s in scores)
        s = [math.exp(v) / total for v in scores]
        return [
            [(s[i // D] * (i // D == j // D) - s[i // D] * s[j // D]) * a[i % D] * a[j % D] for j in range(q)]
            for i in range(q)
        ]
    factor = 1.0
    if name == "logistic":
        t = (2 * b - 1) * sum(u * v for u, v in zip(a, y, strict=True))
        factor = sigmoid(t) * sigmoid(-t)
    return [[factor * a[i] * a[j] for j in range(q)] for i in range(q)]


def naive_jacobian(a, b, x, y):
    """∇²_xy l of one record of the weighted loss."""
    sign = 2 * b - 1
    slope = -sign * sigmoid(-sign * sum(u * v for u, v in zip(a, y, strict=True)))
    w = sigmoid(x[0] + x[1] * a[0])
    return [[w * (1 - w) * row * slope * v for v in a] for row in (1.0, a[0])]


def naive_matrix(name, wanted, a, b, x, y, matrix):
    if wanted == "lower_jacobian":
        return naive_jacobian(a, b, x, y)
    hessian = naive_hessian(name, a, b, x, y)
    if wanted == "lower_hessian":
        return hessian
    p, q = len(x), len(y)
    return [[sum(hessian[i][k] * matrix[k][j] for k in range(q)) for j in range(p)] for i in range(q)]


def naive_mean(name, wanted, features, labels, x, y, matrix, clip):
    total, bound = None, clip.x if wanted == "lower_jacobian" else clip.z
    for row, b in zip(features.tolist(), labels.tolist(), strict=True):
        a = [*row, 1.0] if name == "logistic" else row
        one = naive_matrix(name, wanted, a, b, x.tolist(), y.tolist(), matrix.tolist())
        entries = [v for line in one for v in line]
        size = sum(abs(v) for v in entries) if clip.norm == "l1" else math.hypot(*entries)
        factor = min(1.0, bound / size) if size > 0 else 1.0
        rows = [[factor * v for v in line] for line in one]
        total = (
            rows if total is None else [[s + v for s, v in zip(*p, strict=True)] for p in zip(total, rows, strict=True)]
        )
    return np.array(total) / len(features)


def there(name):
    return [m for m in MATRICES if MATRICES[m] in PROBLEMS[name].reads_records]


@pytest.mark.parametrize("clip", CLIPS, ids=repr)
@pytest.mark.parametrize("name", PROBLEMS)
def test_matrices_agree_with_a_loop_over_records(name, clip):
    rng = np.random.default_rng([1, len(name)])
    problem = PROBLEMS[name]
    features, labels = raw(name, rng, 11, 2.0)
    x, y, matrix = points(problem, rng)
    records = problem.prepare(features, labels, clip.norm)
    got = problem.matrices(x, y, matrix, records, clip, set(MATRICES))
    assert set(got) == set(there(name))
    for wanted, value in got.items():
        want = naive_mean(name, wanted, features, labels, x, y, matrix, clip)
        assert value.dtype == np.float64
        assert value.shape == want.shape
        np.testing.assert_allclose(value, want, rtol=1e-11, atol=1e-13, err_msg=wanted)
        alone = problem.matrices(x, y, matrix, records, clip, [wanted])
        assert set(alone) == {wanted}
        np.testing.assert_allclose(alone[wanted], value, rtol=1e-13, atol=1e-15)


def test_only_the_last_problem_has_a_jacobian_that_reads_records():
    assert [name for name in PROBLEMS if "lower_jacobian" in there(name)] == ["losses"]
    problem = PROBLEMS["quadratic"]
    records = problem.prepare(np.ones((2, D)), np.ones(2), "l1")
    assert problem.matrices(np.zeros(D), np.zeros(D), None, records, Clip(), {"lower_jacobian"}) == {}
    assert problem.matrices(np.zeros(D), np.zeros(D), None, records, Clip(), ()) == {}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_product_needs_its_matrix_and_a_wrong_name_is_refused(name):
    problem = PROBLEMS[name]
    records = problem.prepare(*raw(name, np.random.default_rng(2), 3), "l1")
    x, y = np.zeros(problem.p), np.zeros(problem.q)
    with pytest.raises(ValueError, match="needs the matrix"):
        problem.matrices(x, y, None, records, Clip(), {"lower_hessian_product"})
    with pytest.raises(ValueError, match="there are lower_hessian"):
        problem.matrices(x, y, None, records, Clip(), {"hessian"})


@pytest.mark.parametrize("name", PROBLEMS)
def test_matrices_are_derivatives_of_the_unclipped_gradient(name):
    """Sixth-order central differences of ∇_y l: their error is far below 1e-9."""
    rng = np.random.default_rng([3, len(name)])
    problem = PROBLEMS[name]
    records = problem.prepare(*raw(name, rng, 7), "l1")
    x, y, matrix = points(problem, rng)
    got = problem.matrices(x, y, matrix, records, Clip(), set(MATRICES))

    def gradient(x, y):
        return problem.terms(x, y, np.zeros(problem.q), records, records, Clip()).lower_grad_y

    def slopes(f, d, h=2e-3):
        units = h * np.eye(d)
        return np.stack(
            [(45 * (f(u) - f(-u)) - 9 * (f(2 * u) - f(-2 * u)) + (f(3 * u) - f(-3 * u))) / (60 * h) for u in units]
        )

    hessian = slopes(lambda u: gradient(x, y + u), problem.q)
    np.testing.assert_allclose(got["lower_hessian"], hessian, rtol=0, atol=1e-9)
    np.testing.assert_allclose(got["lower_hessian_product"], hessian @ matrix, rtol=0, atol=1e-8)
    jacobian = slopes(lambda u: gradient(x + u, y), problem.p)
    np.testing.assert_allclose(got.get("lower_jacobian", np.zeros_like(jacobian)), jacobian, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_columns_are_the_products(name):
    rng = np.random.default_rng([4, len(name)])
    problem = PROBLEMS[name]
    records = problem.prepare(*raw(name, rng, 7), "l1")
    x, y, _ = points(problem, rng)
    got = problem.matrices(x, y, None, records, Clip(), {"lower_hessian", "lower_jacobian"})
    z = rng.normal(size=problem.q)
    terms = problem.terms(x, y, z, records, records, Clip())
    np.testing.assert_allclose(got["lower_hessian"] @ z, terms.lower_hvp, rtol=1e-10, atol=1e-13)
    if terms.lower_jvp is not None:
        np.testing.assert_allclose(got["lower_jacobian"] @ z, terms.lower_jvp, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", PROBLEMS)
def test_blocks_do_not_change_the_matrices(name, monkeypatch):
    rng = np.random.default_rng([5, len(name)])
    problem = PROBLEMS[name]
    records = problem.prepare(*raw(name, rng, 23), "l1")
    arguments = (*points(problem, rng), records, Clip("l1", 0.1, 1.0, 0.2), set(MATRICES))
    whole = problem.matrices(*arguments)
    monkeypatch.setattr(linear_terms, "BLOCK", 20)
    monkeypatch.setattr(loss_problem, "CELLS", 50)
    for key, value in problem.matrices(*arguments).items():
        np.testing.assert_allclose(value, whole[key], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308, 1e160])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_messages_that_are_not_finite_give_finite_matrices(name, norm, value):
    rng = np.random.default_rng([6, len(name)])
    problem = PROBLEMS[name]
    clip = Clip(norm, 0.1, 1.0, 0.3)
    records = problem.prepare(*raw(name, rng, 5), norm)
    for where in range(3):
        point = points(problem, rng)
        point[where].flat[0] = value
        for key, mean in problem.matrices(*point, records, clip, set(MATRICES)).items():
            assert np.isfinite(mean).all()
            assert LENGTH[norm](mean) <= (clip.x if key == "lower_jacobian" else clip.z) * (1 + 1e-12)


def test_a_record_that_is_not_finite_counts_as_zero_and_is_counted():
    """Its norm overflows; the other record is clipped, and the divisor stays two."""
    problem = Quadratic(D)
    records = problem.prepare(np.array([[1e200, 0.0, 0.0], [2.0, 0.0, 0.0]]), np.zeros(2), "l2")
    got = problem.matrices(np.zeros(D), np.zeros(D), None, records, Clip("l2", z=1.0), ["lower_hessian"])
    np.testing.assert_allclose(got["lower_hessian"], np.diag([0.5, 0.0, 0.0]))


def test_curvature_of_a_record_that_is_surely_classified():
    """1 − s is 4e-18, where s − s² would be 0 and the clip of it anything."""
    problem = SoftmaxHyperparameter(1, (0.0, 1.0))
    records = problem.prepare(np.array([[1.0]]), np.array([0.0]), "l1")
    got = problem.matrices(np.zeros(1), np.array([40.0, 0.0]), None, records, Clip(), ["lower_hessian"])
    small = math.exp(-40.0)
    np.testing.assert_allclose(got["lower_hessian"], [[small, -small], [-small, small]], rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(n, m) for n in PROBLEMS for m in there(n)]),
    st.sampled_from(["l1", "l2"]),
    st.floats(-3, 6),
    st.floats(-2, 300),
)
def test_random_neighbours_never_exceed_the_bound(seed, case, norm, feature_scale, message_scale):
    name, wanted = case
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    problem = PROBLEMS[name]
    clip = Clip(norm, 0.17, 1.0, 0.6)
    x, y, matrix = points(problem, rng)
    matrix *= 10.0**message_scale
    y *= 10.0 ** (message_scale / 3)
    features, labels = raw(name, rng, n, 10.0**feature_scale)
    other, other_labels = features.copy(), labels.copy()
    k = rng.integers(n)
    other[k] = rng.normal(size=D) * 10.0 ** rng.uniform(-3, 6)
    other_labels[k] = rng.integers(CLASSES.get(name, 2))
    a, b = (
        problem.matrices(x, y, matrix, problem.prepare(*r, norm), clip, [wanted])[wanted]
        for r in ((features, labels), (other, other_labels))
    )
    bound = 2 * (clip.x if wanted == "lower_jacobian" else clip.z) / n
    assert LENGTH[norm](a - b) <= (1 + 1e-9) * bound


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize(("name", "wanted"), [(n, m) for n in PROBLEMS for m in there(n)])
def test_adversarial_neighbours_come_near_the_bound(name, wanted, norm):
    """A Hessian cannot change its sign, but two records without a common feature are as far apart in ℓ1 as can be."""
    rng = np.random.default_rng([7, len(name)])
    problem, n = PROBLEMS[name], 5
    clip = Clip(norm, 1e-3, 1.0, 1e-2)
    x, y, matrix = np.zeros(problem.p), np.zeros(problem.q), np.ones((problem.q, problem.p))
    if name == "softmax":
        # Along (1, …, 1) the curvature is zero.
        matrix[D:] = 0.0
    features, labels = raw(name, rng, n)
    other = features.copy()
    features[0], other[0] = (60.0, 0.0, 0.0), (0.0, -60.0, 0.0)
    labels[0] = 0.0
    a, b = (
        problem.matrices(x, y, matrix, problem.prepare(f, labels, norm), clip, [wanted])[wanted]
        for f in (features, other)
    )
    bound = 2 * (clip.x if wanted == "lower_jacobian" else clip.z) / n
    ratio = LENGTH[norm](a - b) / bound
    least = 0.9 if norm == "l1" else 0.68
    assert least <= ratio <= 1 + 1e-9


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["logistic", "softmax", "quadratic"]),
    st.sampled_from(["l1", "l2"]),
    st.floats(-250, 307),
    st.floats(-300, 307),
    st.floats(-5, 307),
)
def test_one_record_never_contributes_more_than_its_clip(seed, name, norm, feature_scale, message_scale, label_scale):
    """Over the whole range of float64, with clips of any size: factors near the end of the range have few digits."""
    rng = np.random.default_rng(seed)
    problem = PROBLEMS[name]
    clip = Clip(norm, 1.0, 1.0, 10.0 ** rng.uniform(-12, 2))
    x, y, matrix = (rng.uniform(0.1, 1.0, size=s) for s in (problem.p, problem.q, (problem.q, problem.p)))
    features = rng.uniform(0.1, 1.0, size=(1, D)) * 10.0**feature_scale
    label = 10.0**label_scale if name == "quadratic" else 1.0
    records = problem.prepare(features, np.array([label]), norm)
    y, z, matrix = y * 10.0 ** (-max(feature_scale, 0.0)), y * 10.0**message_scale, matrix * 10.0**message_scale
    clip = replace(clip, y=clip.z)
    values = list(problem.matrices(x, y, matrix, records, clip, set(MATRICES)).values())
    for value in values + [t for t in problem.terms(x, y, z, records, records, clip) if t is not None]:
        largest = np.abs(value).max()
        assert np.isfinite(largest)
        size = LENGTH[norm](value / largest) * largest if largest > 0 else 0.0
        assert size <= clip.z * (1 + 1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_regulariser_matrices_are_derivatives(name, monkeypatch):
    rng = np.random.default_rng([8, len(name)])
    problem = PROBLEMS[name]
    x, y, matrix = (rng.normal(size=(2, *s)) for s in ((problem.p,), (problem.q,), (problem.q, problem.p)))
    got = regulariser_matrices(problem, x, y, matrix)
    h = 1e-5

    def slope(at_x, at_y):
        return problem.regulariser(at_x, at_y, np.zeros_like(at_y)).grad_y

    for j in range(problem.q):
        step = h * (np.arange(problem.q) == j)
        column = (slope(x, y + step) - slope(x, y - step)) / (2 * h)
        np.testing.assert_allclose(got.hessian[:, :, j], column, rtol=1e-6, atol=1e-8)
    for s in range(problem.p):
        step = h * (np.arange(problem.p) == s)
        row = (slope(x + step, y) - slope(x - step, y)) / (2 * h)
        np.testing.assert_allclose(got.jacobian[:, s, :], row, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(got.product, got.hessian @ matrix, rtol=1e-10, atol=1e-12)
    monkeypatch.setattr(in_columns, "DIRECTIONS", 2 * (problem.p + problem.q))
    for again, whole in zip(regulariser_matrices(problem, x, y, matrix), got, strict=True):
        np.testing.assert_allclose(again, whole, rtol=1e-13)
    assert regulariser_matrices(problem, x, y, None).product is None


def test_a_loss_that_raises_on_a_record_loses_that_record_only():
    import torch

    def lower(x, y, features, label):
        spread = torch.linalg.cholesky(torch.diag(features + 9.0)).diagonal().sum()
        return 0.5 * (1.0 + spread) * (features @ y - label) ** 2

    def quadratic(x, y, features, label):
        return 0.5 * (features @ y - label) ** 2

    problem = from_losses(quadratic, lower, p=1, q=2, n_features=2)
    records = problem.prepare(np.array([[1.0, 0.0], [-19.0, 1.0], [0.0, 2.0]]), np.zeros(3), "l1")
    got = problem.matrices(np.zeros(1), np.zeros(2), None, records, Clip(), ["lower_hessian"])["lower_hessian"]
    first, last = 1.0 + math.sqrt(10) + math.sqrt(9), 4 * (1.0 + math.sqrt(9) + math.sqrt(11))
    np.testing.assert_allclose(got, np.diag([first, last]) / 3, rtol=1e-12)


def test_a_loss_without_forward_derivatives_has_its_matrices_by_reverse_ones():
    import torch

    class Square(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(v):
            return v * v

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, slope):
            (v,) = ctx.saved_tensors
            return 2 * v * slope

    def lower(x, y, features, label):
        return x[0] * Square.apply(features @ y - label)

    def quadratic(x, y, features, label):
        return 0.5 * (features @ y - label) ** 2

    problem = from_losses(quadratic, lower, p=1, q=2, n_features=2)
    assert not problem.forward
    records = problem.prepare(np.array([[1.0, 2.0]]), np.zeros(1), "l1")
    got = problem.matrices(np.full(1, 3.0), np.ones(2), np.eye(2)[:, :1], records, Clip(), set(MATRICES))
    np.testing.assert_allclose(got["lower_hessian"], 6 * np.array([[1.0, 2.0], [2.0, 4.0]]))
    np.testing.assert_allclose(got["lower_jacobian"], 2 * 3 * np.array([[1.0, 2.0]]))
    np.testing.assert_allclose(got["lower_hessian_product"], [[6.0], [12.0]])
