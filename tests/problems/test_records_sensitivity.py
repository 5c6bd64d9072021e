"""Sensitivity of clipped means: at most 2C/N for one record, and nearly attained by an adversary."""

import numpy as np
import pytest

from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.models.linear_terms import clip_coefficients, clip_columns, feature_norms
from decentral_dp.privacy.clipping import SMALLEST_CLIP, Clip
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Quadratic, SoftmaxHyperparameter
from decentral_dp.simulation.jobs.build import build_job as build

D = 3
PROBLEMS = {
    "logistic": LogisticHyperparameter(D),
    "softmax": SoftmaxHyperparameter(D, (0.0, 1.0, 2.0)),
    "quadratic": Quadratic(D),
}
LABELS = {"logistic": [-1.0, 1.0], "softmax": [0.0, 1.0, 2.0], "quadratic": [-2.0, 1.0, 5.0]}
BOUND = {"lower_grad_y": 0.6, "lower_hvp": 0.25, "upper_grad_y": 0.25}
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}
ALL = [(name, term, norm) for name in PROBLEMS for term in BOUND for norm in LENGTH]


def mean(name, term, norm, features, labels, y, z):
    problem = PROBLEMS[name]
    records = problem.prepare(features, labels, norm)
    clip = Clip(norm, 1.0, BOUND["lower_grad_y"], BOUND["lower_hvp"])
    return getattr(problem.terms(np.zeros(problem.p), y, z, records, records, clip), term)


@pytest.mark.parametrize("n", [1, 7, 300])
@pytest.mark.parametrize(("name", "term", "norm"), ALL)
def test_adversarial_neighbours_come_near_the_bound_and_not_over_it(name, term, norm, n):
    rng = np.random.default_rng([n, len(name), len(term)])
    problem = PROBLEMS[name]
    y, z = np.zeros(problem.q), np.zeros(problem.q)
    z[1] = 1.0
    features, labels = 3 * rng.normal(size=(n, D)), rng.choice(LABELS[name], size=n)
    other = features.copy()
    # Opposite features turn a gradient around. In (aᵀz)a the sign cancels, unless almost all of a is orthogonal to z.
    features[0], other[0] = (1e3, 1.0, 0.0), (-1e3, 1.0, 0.0)
    difference = mean(name, term, norm, features, labels, y, z) - mean(name, term, norm, other, labels, y, z)
    ratio = LENGTH[norm](difference) / (2 * BOUND[term] / n)
    assert 0.95 <= ratio <= 1 + 1e-9


def test_a_record_with_tiny_features_and_a_huge_label_is_clipped():
    """Its squared features underflow to zero, so a norm computed the plain way would let 1e130 through."""
    contribution = mean(
        "quadratic", "lower_grad_y", "l2", np.full((1, D), 1e-170), np.array([1e300]), *np.zeros((2, D))
    )
    assert np.linalg.norm(contribution) == pytest.approx(BOUND["lower_grad_y"], rel=1e-12)


def _weights(bound, coefficients, features, norm):
    """Largest norm of a clipped contribution over its bound, of outer products with one and with three columns."""
    norms = feature_norms(features)[0 if norm == "l1" else 1]
    with np.errstate(all="ignore"):
        single = clip_coefficients(coefficients.copy(), norms, bound)
        triple = clip_columns(np.stack([coefficients, 0.3 * coefficients, -coefficients]), norms, norm, bound)
    largest = np.abs(features).max(axis=1)
    shape = np.array([LENGTH[norm](row) for row in features / largest[:, None]])
    width = np.array([LENGTH[norm](column) for column in (triple * 1e200).T])
    return (
        float((np.abs(single) * largest * shape).max() / bound),
        float((width * (largest * 1e-200) * shape).max() / bound),
    )


@pytest.mark.parametrize("norm", LENGTH)
def test_features_too_large_for_float64_count_as_nothing(norm):
    """1e-8/1.5e308 is a denormal number: rounded, a record exceeded its clip by 8e-9."""
    rng = np.random.default_rng(4)
    features = rng.uniform(0.1, 1.0, size=(2000, D)) * 10.0 ** rng.uniform(305.0, 307.5, size=(2000, 1))
    coefficients = 10.0 ** rng.uniform(-45.0, -30.0, size=2000)
    assert max(_weights(1e-8, coefficients, features, norm)) <= 1.0 + 1e-12
    for size in (1e306, 1e307):
        contribution = mean(
            "quadratic", "lower_grad_y", norm, np.full((1, D), size), np.array([1e-30]), *np.zeros((2, D))
        )
        np.testing.assert_array_equal(contribution, 0.0)


@pytest.mark.parametrize("norm", LENGTH)
def test_the_smallest_clip_holds(norm):
    """Test features up to the largest supported ones, also under divided clips; beyond them, contributions are zero."""
    rng = np.random.default_rng(4)
    features = rng.uniform(0.1, 1.0, size=(4000, D)) * 10.0 ** rng.uniform(200.0, 249.5, size=(4000, 1))
    coefficients = 10.0 ** rng.uniform(-250.0, -10.0, size=4000)
    weights = _weights(SMALLEST_CLIP, coefficients, features, norm)
    assert all(1.0 - 1e-9 <= w <= 1.0 + 1e-12 for w in weights)
    for bound in (0.99 * SMALLEST_CLIP, 1e-73, 1e-300):
        assert _weights(bound, coefficients, features, norm) == (0.0, 0.0)


def test_clips_near_the_smallest_floats_are_refused():
    for channel in ("x", "y", "z"):
        for value in (0.99 * SMALLEST_CLIP, 1e-60, 1e-320, -1.0, np.nan):
            with pytest.raises(InputError, match=rf"privacy\.clip\.{channel}.*1e-40"):
                Clip("l1", **{channel: value})
        assert Clip("l1", **{channel: SMALLEST_CLIP}).bound(channel) == SMALLEST_CLIP
        # Nothing is let through, of nothing.
        assert Clip("l2", **{channel: 0.0}).bound(channel) == 0.0


def test_a_scenario_with_such_a_clip_is_refused():
    for name, channel in (("ldp_dsbo", "y"), ("ldp_dsbo", "z"), ("dp_bilevel", "x"), ("dp_sgda", "y")):
        with pytest.raises(InputError, match=rf"privacy\.clip\.{channel}: too small for float64"):
            build(load(name, [f"privacy.clip.{channel}=1e-57"]))


def test_the_norm_of_the_clip_decides_and_not_the_one_given_to_prepare():
    rng = np.random.default_rng(5)
    for name, problem in PROBLEMS.items():
        features, labels = 5 * rng.normal(size=(6, D)), rng.choice(LABELS[name], size=6)
        point = rng.normal(size=(2, problem.q))
        for norm in ("l1", "l2"):
            clip = Clip(norm, 1.0, 0.3, 0.2)
            got = [
                problem.terms(np.zeros(problem.p), *point, records, records, clip)
                for records in (problem.prepare(features, labels, n) for n in ("l1", "l2"))
            ]
            for a, b in zip(*got, strict=True):
                if a is not None:
                    np.testing.assert_array_equal(a, b)
