"""Pooled records of a coordinator: values, and the sensitivities of releases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.bounded import MIXED, Bounded, Sensitivity, summation_slack
from decentral_dp.central import pooled
from decentral_dp.central.certified_solver import implicit_mean
from decentral_dp.central.pooled import Pooled
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import Clip
from tests.support.pooled_oracle import DATA, LABEL, RADIUS, Case, D, Exact, cases, dataset, slopes

Array = np.ndarray
CASES = cases(ridge=0.3)
Raw = tuple[Array, Array]


def upper(case: Case) -> Array:
    p = case.problem.p
    return np.linspace(-1.5, 0.5, p) if p > 1 else np.array([-1.0])


def make_pool(case: Case, train: Raw, validation: Raw) -> Pooled:
    records = case.prepared(*train, "train"), case.prepared(*validation, "validation")
    return Pooled.from_agents(case.family, [records])


def replace_first(data: Raw, a: Array, b: float) -> Raw:
    """Replace the first record."""
    features, labels = data[0].copy(), data[1].copy()
    features[0], labels[0] = a, b
    return features, labels


def neighbours(case: Case, kind: str, n: int, seed: int) -> list[tuple[Pooled, Pooled]]:
    """Draw pairs of pools that differ in one record of a split, opposite or random."""
    rng = np.random.default_rng(seed)
    labels = np.array(case.classes) if case.classes else np.array([-LABEL, LABEL])
    out = []
    for name in DATA:
        train, validation = dataset(case, name, n, seed), dataset(case, name, n, seed + 1)
        for _ in range(2):
            first, second = rng.normal(size=(2, D))
            first *= RADIUS / np.linalg.norm(first)
            second = -first if rng.random() < 0.7 else second * RADIUS / np.linalg.norm(second)
            swap = [(first, rng.choice(labels)), (second, rng.choice(labels))]
            sides = []
            for record in swap:
                sides.append(
                    make_pool(case, replace_first(train, *record), validation)
                    if kind == "train"
                    else make_pool(case, train, replace_first(validation, *record))
                )
            out.append((sides[0], sides[1]))
    return out


def distance(first: Bounded, second: Bounded) -> float:
    return float(np.linalg.norm(first.value - second.value))


def carried_sensitivity(value: Bounded, kind: str) -> float:
    spread = value.sensitivities.get(kind)
    return 0.0 if spread is None else float(spread.sensitivity[0])


# Building the pool ---------------------------------------------------------------------------------------------------


def test_records_are_projected_one_by_one() -> None:
    case = CASES["quadratic"]
    a, b = dataset(case, "random", 6)
    wild = case.prepared(a, b, "train")
    features, target = a.copy(), b.copy()
    features[0], features[1], features[2], target[3], target[4] = np.nan, [np.inf, 0, 0], [1e200, 0, 0], np.inf, 1e9
    features[5] *= 3.0
    tame = Pooled.from_agents(case.family, [(wild._replace(features=features, label=target), wild)]).train
    assert np.array_equal(tame.features[[0, 1, 3]], np.zeros((3, 3)))
    assert np.allclose(tame.features[2], [RADIUS, 0, 0])
    assert np.allclose(tame.features[5], a[5], rtol=1e-12)
    assert np.array_equal(tame.label[[0, 1, 3]], np.zeros(3))
    assert tame.label[4] == LABEL
    assert np.array_equal(tame.features[4], a[4])
    assert np.allclose(tame.l2, np.linalg.norm(tame.features, axis=1))
    x = upper(case)
    for wild_value in (np.nan, np.inf, -np.inf, 1e300):
        bad = wild._replace(features=np.where(np.eye(6, 3) > 0, wild_value, a), label=b)
        pool = Pooled.from_agents(case.family, [(bad, bad)])
        for value in (pool.minimiser(x), pool.minimiser(x, 0.1), pool.hypergradient(x), pool.implicit(x, x)):
            assert np.isfinite(value.value).all()


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", CASES)
def test_values_match_formulas(key: str) -> None:
    case = CASES[key]
    train, validation = dataset(case, "random", 4, 3), dataset(case, "random", 3, 4)
    pool, x = make_pool(case, train, validation), upper(case)
    bounds, exact = pool.bounds, Exact(case, x, train, validation)
    y = exact.minimiser()
    for penalty in (None, 0.1):
        away = np.linalg.norm(pool.minimiser(x, penalty).value[0] - exact.minimiser(penalty))
        assert away <= bounds.facts(x, penalty).accuracy

    def score(point: Array) -> Any:
        exact_at_point = Exact(case, point, train, validation)
        return exact_at_point.upper_value(exact_at_point.minimiser())

    gradient = pool.hypergradient(x).value[0]
    error = bounds.gradient_error(x, x)
    assert np.linalg.norm(gradient - exact.implicit(y)) <= error
    assert np.allclose(gradient, slopes(score, x), atol=1e-6)
    assert np.array_equal(gradient, pool.gradient(x))
    assert np.allclose(pool.gradient_norms(x[None]), np.linalg.norm(gradient), rtol=0, atol=1e-15)
    xs = np.stack([x, x + 0.3, x])
    scores = pool.scores(xs)
    inexact = bounds.inexactness(x, x + 0.3)
    assert np.abs(scores - [float(score(point)) for point in xs]).max() <= inexact < 1e-7
    assert abs(scores[0] - scores[2]) <= 2 * inexact
    public = y.astype(float) * 0.9 + 0.01
    f = bounds.facts(x)
    public = f.centre + (public - f.centre) * min(1.0, f.radius / max(np.linalg.norm(public - f.centre), 1e-300))
    implicit = exact.implicit(public).astype(float)
    assert np.allclose(pool.implicit(x, public).value[0], implicit, atol=1e-9)
    far = pool.implicit(x, public + 1e6)
    assert np.isfinite(far.value).all()


# Sensitivities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["train", "validation"])
@pytest.mark.parametrize("key", CASES)
def test_neighbours_stay_within_carried_sensitivity(key: str, kind: str) -> None:
    case = CASES[key]
    x = upper(case)
    worst: dict[str, float] = {}
    for pool, neighbour in neighbours(case, kind, 3, 11):
        y = pool.bounds.family.centre(x) + 0.3
        releases = {
            "minimiser": [p.minimiser(x) for p in (pool, neighbour)],
            "pulled": [p.minimiser(x, 0.3) for p in (pool, neighbour)],
            "hypergradient": [p.hypergradient(x) for p in (pool, neighbour)],
            "implicit": [p.implicit(x, y) for p in (pool, neighbour)],
        }
        for name, (a, b) in releases.items():
            change, bound = distance(a, b), carried_sensitivity(a, kind)
            assert bound == carried_sensitivity(b, kind)
            assert change <= bound, name
            worst[name] = max(worst.get(name, 0.0), change / bound if bound else 0.0)
    if key == "mean":
        assert worst["minimiser" if kind == "train" else "hypergradient"] > 0.999
    if key == "quadratic" and kind == "train":
        assert worst["minimiser"] > 0.3


@pytest.mark.parametrize("key", CASES)
def test_splits_that_are_not_read_are_free(key: str) -> None:
    case = CASES[key]
    pool = make_pool(case, dataset(case, "random", 4), dataset(case, "random", 4, 1))
    x, reads = upper(case), "lower_grad_y" in case.problem.reads_records
    assert set(pool.minimiser(x).sensitivities) == ({"train"} if reads else set())
    assert set(pool.minimiser(x, 1.0).sensitivities) == ({"train", "validation"} if reads else {"validation"})
    assert set(pool.hypergradient(x).sensitivities) == ({"train", "validation"} if reads else {"validation"})
    hessian = "lower_hvp" in case.problem.reads_records
    assert set(pool.implicit(x, x[:1] * np.ones(case.problem.q)).sensitivities) == (
        {"train", "validation"} if hessian else {"validation"}
    )


@pytest.mark.parametrize("key", ["logistic_shared", "ridge_shared", "quadratic", "mean", "cleaning"])
def test_scores_stay_within_stated_ranges(key: str) -> None:
    case = CASES[key]
    p = case.problem.p
    low, high = np.full(p, -2.0), np.full(p, 1.0)
    xs = np.linspace(low, high, 5)
    for kind in ("train", "validation"):
        for pool, neighbour in neighbours(case, kind, 3, 21)[::3]:
            bounds = pool.bounds
            scores, other_scores = pool.scores(xs), neighbour.scores(xs)
            osc = np.ptp(scores - other_scores)
            assert osc <= bounds.oscillation(low, high)[kind] + 4 * bounds.inexactness(low, high)
            steps = np.linalg.norm(np.diff(xs, axis=0), axis=1)
            assert (np.abs(np.diff(scores)) <= bounds.lipschitz(low, high) * steps + 1e-9).all()
            gradients, other_gradients = (np.stack([q.gradient(x) for x in xs]) for q in (pool, neighbour))
            error = bounds.gradient_error(low, high)
            sensitivity = np.linalg.norm(gradients - other_gradients, axis=1).max()
            assert sensitivity <= bounds.gradient_sensitivity(low, high)[kind] + 2 * error
            change = np.linalg.norm(np.diff(gradients, axis=0), axis=1)
            assert (change <= bounds.smoothness(low, high) * steps + 2 * error).all()
            norms = np.linalg.norm(gradients, axis=1) - np.linalg.norm(other_gradients, axis=1)
            assert np.ptp(norms) <= bounds.norm_oscillation(low, high)[kind] + 4 * error


# Errors of solves ---------------------------------------------------------------------------------------------------


class DataSets:
    """Two `mean` pools whose last records are antipodal: closed forms attain S, and solvers have planted errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        self.case, n = CASES["mean"], 4000
        axis = np.array([RADIUS, 0.0, 0.0])
        others = np.zeros((n, D)), np.zeros(n)
        self.pools = []
        for sign in (1.0, -1.0):
            data = replace_first(others, sign * axis, 0.0)
            sides = (data, others) if kind == "train" else (others, data)
            self.pools.append(make_pool(self.case, *sides))
        self.x = np.full(D, 0.2)
        self._patch = monkeypatch
        self.direction = np.array([1.0, 0.0, 0.0])

    def change(self, method: str, kind: str, y_sign: float, v_sign: float) -> tuple[float, float]:
        """Return (distance, sensitivity) with the worst errors a of solutions and τ of inverse products."""
        minimise, inverse_product = pooled.certified.minimise, pooled.certified.inverse_product
        results = []
        for pool, sign in zip(self.pools, (1.0, -1.0), strict=True):

            def shifted_minimise(objective: Any, f: Any, sign: float = sign) -> Array:
                return minimise(objective, f) + sign * y_sign * f.accuracy * self.direction

            def shifted_inverse_product(
                objective: Any, f: Any, y: Array, target: Array, s: Any, sign: float = sign
            ) -> Array:
                return inverse_product(objective, f, y, target, s) + sign * v_sign * s.error * self.direction

            with self._patch.context() as patch:
                patch.setattr(pooled.certified, "minimise", shifted_minimise)
                patch.setattr(pooled.certified, "inverse_product", shifted_inverse_product)
                results.append(getattr(pool, method)(self.x))
        return distance(*results), carried_sensitivity(results[0], kind)


def test_solver_errors_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    train, validation = DataSets(monkeypatch, "train"), DataSets(monkeypatch, "validation")
    change, bound = train.change("minimiser", "train", 1.0, 0.0)
    assert 0.999999 * bound < change <= bound
    change, bound = validation.change("hypergradient", "validation", -1.0, -1.0)
    assert 0.999999 * bound < change <= bound


# Means that came through Ask -----------------------------------------------------------------------------------------


def mean(rows: Array, kind: str, bound: float, public: Array | float = 0.0) -> Bounded:
    """Make a clipped mean of rows (n, d) that were clipped to `bound`, as a coordinator receives it."""
    n, width = rows.shape
    spread = Sensitivity(np.array([2.0 * bound / n * float(summation_slack(n, width))]), np.ones(1), None)
    value = rows.mean(axis=0)[None]
    kinds: Any = {kind: spread}
    return Bounded(np.zeros_like(value) + public, value, kinds, "l2")


class MeansByRecord:
    """Clipped a, b, J, H of each record; p = 2, q = 3."""

    C = Clip("l2", x=0.8, z=1.3)

    def __init__(self, n: int, weight: float, positive: bool, public_j: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.n, self.positive = rng, n, positive
        self.ridge = weight * np.diag([1.0, 1.7, 3.0])
        self.j0 = rng.normal(size=(2, 3)) if public_j else None
        axis = rng.normal(size=3)
        self.a = [self.clip_vector(rng.normal(size=2), self.C.x) for _ in range(n)]
        self.b = [self.clip_vector(3 * axis + rng.normal(size=3), self.C.z) for _ in range(n)]
        self.j = [self.clip_vector(3 * np.outer([1, -0.5], axis) + rng.normal(size=(2, 3)), self.C.x) for _ in range(n)]
        self.h = [self.make_hessian(axis if k else None, tiny=bool(k)) for k in range(n)]

    def clip_vector(self, v: Array, bound: float) -> Array:
        return v * min(1.0, bound / np.linalg.norm(v))

    def make_hessian(self, axis: Array | None, tiny: bool = False) -> Array:
        v = self.rng.normal(size=3) if axis is None else axis
        if self.positive:
            return self.clip_vector(np.outer(v, v) * (1e-3 if tiny else 10.0), self.C.z)
        return self.clip_vector(self.rng.normal(size=(3, 3)), self.C.z)

    def release(self) -> Bounded:
        flat = [np.stack([np.ravel(v) for v in part]) for part in (self.a, self.b, self.j, self.h)]
        j = mean(flat[2], "train", self.C.x) if self.j0 is None else self.j0.reshape(1, -1)
        h = mean(flat[3], "train", self.C.z) + self.ridge.reshape(1, -1)
        a, b = mean(flat[0], "validation", self.C.x), mean(flat[1], "validation", self.C.z)
        return implicit_mean(a, b, j, h, self.C, positive=self.positive)

    def exact(self) -> Array:
        h = np.mean(self.h, axis=0) + self.ridge
        h = (h + h.T) / 2
        if not self.positive:
            w, v = np.linalg.eigh(h)
            h = v @ np.diag(np.maximum(w, np.diag(self.ridge).min())) @ v.T
        j = np.mean(self.j, axis=0) if self.j0 is None else self.j0
        return np.asarray(np.mean(self.a, axis=0) - j @ np.linalg.inv(h) @ np.mean(self.b, axis=0))

    def replace(self, kind: str) -> None:
        v = self.rng.normal(size=3)
        if kind == "train":
            self.j[0], self.h[0] = self.clip_vector(-9 * self.j[0], self.C.x), self.make_hessian(v)
        else:
            self.a[0], self.b[0] = (
                self.clip_vector(-9 * self.a[0], self.C.x),
                self.clip_vector(-9 * self.b[0], self.C.z),
            )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from([1, 2, 7]),
    st.sampled_from([0.05, 0.5, 3.0]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_implicit_mean_matches_formula(n: int, weight: float, positive: bool, public: bool, seed: int) -> None:
    data_set = MeansByRecord(n, weight, positive, public, seed)
    value = data_set.release()
    assert np.allclose(value.value[0], data_set.exact(), rtol=1e-9, atol=1e-9)
    for kind in ("train", "validation"):
        before = data_set.release()
        data_set.replace(kind)
        assert distance(before, data_set.release()) <= carried_sensitivity(before, kind)


def test_implicit_sensitivity_is_attained() -> None:
    """Use one record each: b along the largest J H⁻¹ changes its sign; a Hessian along b is added."""
    clip = Clip("l2", x=1.0, z=1.0)
    e = np.array([[1.0, 0.0]])
    ridge, j = 0.25 * np.eye(2).reshape(1, -1), np.eye(2).reshape(1, -1)

    def combine(b: Array, h: Array) -> Bounded:
        hessian = mean(h.reshape(1, -1), "train", 1.0) + ridge
        return implicit_mean(np.zeros((1, 2)), mean(b, "validation", 1.0), j, hessian, clip)

    none, full = np.zeros((2, 2)), np.diag([1.0, 0.0])
    turned = distance(combine(e, none), combine(-e, none)), carried_sensitivity(combine(e, none), "validation")
    changed = distance(combine(e, none), combine(e, full)), carried_sensitivity(combine(e, none), "train")
    assert 0.999999 < turned[0] / turned[1] <= 1.0
    assert 0.999999 < changed[0] / changed[1] <= 1.0


def test_implicit_mean_projects_its_inputs() -> None:
    b, j = np.array([[3.0, 4.0]]), np.array([[6.0, 0.0, 0.0, 8.0]])
    hessian = np.eye(2).reshape(1, -1)
    clip = Clip("l2", x=1.0, z=0.5)
    value = implicit_mean(np.zeros((1, 2)), mean(b, "validation", 9.0), mean(j, "train", 9.0), hessian, clip)
    assert np.allclose(value.value[0], -np.diag([0.6, 0.8]) @ [0.3, 0.4])


def test_implicit_mean_is_not_amplified_by_sampling() -> None:
    data_set = MeansByRecord(5, 1.0, True, False, 2)
    flat = [np.stack([np.ravel(v) for v in part]) for part in (data_set.a, data_set.b, data_set.j, data_set.h)]
    sampled = mean(flat[1], "validation", data_set.C.z)
    (spread,) = sampled.sensitivities.values()
    sensitivities: Any = {"validation": spread._replace(rate=np.array([0.1]), batch=4, sampling="poisson")}
    sampled = Bounded(sampled.public, sampled.private, sensitivities, "l2")
    j, h = mean(flat[2], "train", data_set.C.x), mean(flat[3], "train", data_set.C.z) + data_set.ridge.reshape(1, -1)
    out = implicit_mean(mean(flat[0], "validation", data_set.C.x), sampled, j, h, data_set.C)
    assert out.sensitivities["validation"].batch == MIXED
    assert np.array_equal(out.sensitivities["validation"].rate, [1.0])
    assert out.sensitivities["train"].batch is None
    free = implicit_mean(
        mean(flat[0], "validation", np.inf),
        mean(flat[1], "validation", np.inf),
        mean(flat[2], "train", np.inf),
        mean(flat[3], "train", np.inf) + data_set.ridge.reshape(1, -1),
        Clip("l2"),
    )
    assert np.allclose(free.value[0], data_set.exact(), rtol=1e-9)
    assert all(np.isinf(s.sensitivity).all() for s in free.sensitivities.values())


def test_refuses_unsuited_means() -> None:
    clip = Clip("l2", x=1.0, z=1.0)
    b = mean(np.ones((1, 2)), "validation", 1.0)
    j = np.eye(2).reshape(1, -1)
    with pytest.raises(InputError, match="raise the ridge"):
        implicit_mean(np.zeros((1, 2)), b, j, mean(np.zeros((1, 4)), "train", 1.0), clip)
    with pytest.raises(ValueError, match="in l1"):
        implicit_mean(np.zeros((1, 2)), Bounded(b.public, b.private, b.sensitivities, "l1"), j, j, clip)
