"""Records of many agents in one array, compared with the same records as a list."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Quadratic, SoftmaxHyperparameter
from decentral_dp.problems.bilevel.losses import from_losses
from decentral_dp.problems.bilevel.means import MeanRecords
from decentral_dp.problems.lower_level import join_alike
from decentral_dp.problems.protocol import MATRICES
from decentral_dp.problems.records import ByAgent, RecordPairs, concatenate, count_records, stacked_by_count

DRAW = np.random.default_rng(3)
WHOLE = MeanRecords(DRAW.normal(size=(12, 2)), DRAW.normal(size=12), DRAW.normal(size=12))


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("sizes", [(3, 3, 3), (1, 4, 2), (5,)])
def test_records_kept_as_one_are_those_of_each_agent(sizes: tuple[int, ...]) -> None:
    shards = np.split(DRAW.permutation(12), np.cumsum(sizes))[: len(sizes)]
    listed = [MeanRecords(*(a[shard] for a in WHOLE)) for shard in shards]
    kept = ByAgent.from_shards(WHOLE, shards)
    assert len(kept) == len(sizes)
    for of in (kept, [kept[k] for k in range(len(kept))]):
        for own, expected in zip(of, listed, strict=True):
            same(own, expected)
    same(kept[-1], listed[-1])
    assert count_records(kept).tolist() == count_records(listed).tolist() == list(sizes)
    same(concatenate(kept), concatenate(listed))
    for some in (slice(1, None), slice(0, 2)):
        assert len(kept[some]) == len(listed[some])
        for own, expected in zip(kept[some], listed[some], strict=True):
            same(own, expected)
    for (rows, stack), (members, expected) in zip(
        stacked_by_count(kept, np.array(sizes)), stacked_by_count(listed, np.array(sizes)), strict=True
    ):
        np.testing.assert_array_equal(np.arange(len(sizes))[rows], np.arange(len(sizes))[members])
        same(stack, expected)
    pairs = list(zip(listed, listed[::-1], strict=True))
    for one, other in zip(join_alike(RecordPairs(kept, [*kept][::-1])), join_alike(pairs), strict=True):
        assert one.weights == other.weights
        same(one.train, other.train)
        same(one.validation, other.validation)


# Full Hessians and Jacobians against loops over records and finite differences, and what one record can do to them

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
LENGTH = {"l1": lambda v: float(np.abs(v).sum()), "l2": lambda v: float(np.sqrt((v * v).sum()))}


def raw(name, rng, n, scale=1.0):
    return scale * rng.normal(size=(n, D)), rng.integers(CLASSES.get(name, 2), size=n).astype(float)


def sigmoid(t):
    return 1.0 / (1.0 + math.exp(-t))


def there(name):
    return [m for m in MATRICES if MATRICES[m] in PROBLEMS[name].reads_records]


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
