"""Sensitivities of robust problems: changes by a replaced record stay within the bound, and attain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pytest

from decentral_dp.central.problems.composite import Composite, Labelled
from decentral_dp.central.problems.dro import DIVERGENCES, DroObjective
from decentral_dp.central.problems.group_dro import GroupDroObjective
from decentral_dp.central.problems.kl_dro import kl_robust
from decentral_dp.central.problems.losses import Capped, capped_loss
from decentral_dp.central.problems.saddle import Minimax
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import LinearModel
from tests.support.robust_oracle import Array, context_of, furthest

CAP, CLASSES = 2.0, 3
SHARES = np.array([0.5, 0.2, 0.3])


class Subject(NamedTuple):
    """A robust problem, a distribution of its dual variable, the clip, and term → attained share of the sensitivity."""

    problem: Minimax
    classes: int
    dual: Callable[[np.random.Generator], Array]
    clip: float
    met: Mapping[str, tuple[float, float]]


def dro(name: str) -> Subject:
    capped = capped_loss("squared", CAP, 0)
    problem = Composite(LinearModel(2, 1), DroObjective(capped, DIVERGENCES[name], 0.8))
    # Tight: the clipped gradients of two records may be opposite, and two losses may be 0 and the cap.
    met = {"grad_x": (0.95, 0.95), "grad_y": (0.95, 0.95)}
    return Subject(problem, 0, lambda draw: draw.uniform(0, CAP, size=1), 0.5, met)


def kl_dro() -> Subject:
    capped = capped_loss("squared", CAP, 0)
    met = dict.fromkeys(("inner", "inner_x", "inner_y"), (0.9, 0.9))
    problem = kl_robust(LinearModel(2, 1), capped, 0.25, 0.4)
    return Subject(problem, 0, lambda draw: draw.uniform(0.25, 3.0, size=1), 0.1, met)


def group_dro(capped: Capped | None = None) -> Subject:
    """Make the problem; a mean over all records is charged the diameter, which two classes at the cap attain.

    A sample is charged twice the radius, because its size is not known.
    """
    capped = capped or capped_loss(None, CAP, CLASSES)
    problem = Composite(LinearModel(2, CLASSES), GroupDroObjective(capped, 0.7, SHARES))
    met = {"grad_x": (0.95, 0.95), "grad_y": (0.95, 0.7), "dual": (0.95, 0.7)}
    return Subject(problem, CLASSES, lambda draw: draw.dirichlet(np.ones(CLASSES)), 0.5, met)


SUBJECTS = {**{name: dro(name) for name in DIVERGENCES}, "kl_dro": kl_dro(), "group_dro": group_dro()}

# Large values, NaN and infinities.
WILD = [
    [1e9, -1e9],
    [0.0, 0.0],
    [np.inf, 1.0],
    [np.nan, 0.0],
    [-3.0, 4.0],
    [-30.0, 40.0],
    [30.0, -40.0],
    [1e300, 1e300],
]


def records(classes: int, n: int, seed: int) -> Labelled:
    draw = np.random.default_rng(seed)
    labels = draw.integers(classes, size=n).astype(np.float64) if classes else draw.normal(size=n)
    return Labelled(draw.normal(size=(n, 2)), labels)


def largest_ratio(subject: Subject, term: str, rate: float) -> float:
    """Compute the largest ratio of a change by one replaced record to the charged sensitivity."""
    problem, n, draw, worst = subject.problem, 6, np.random.default_rng(4), 0.0
    context = context_of(problem, n, clip=subject.clip)
    for trial in range(25):
        data = records(subject.classes, n, trial)
        x, y = draw.normal(size=problem.p), subject.dual(draw)
        labels = [float(b) for b in range(subject.classes)] or [0.0, 3.0]
        more = records(subject.classes, 20, trial + 99)
        data_sets = []
        for row, label in [*((w, b) for w in WILD for b in labels), *zip(*more, strict=True)]:
            data_set = Labelled(data.inputs.copy(), data.labels.copy())
            data_set.inputs[0], data_set.labels[0] = row, label
            data_sets.append(data_set)
        query = context.query(term, x, y, rate)
        with np.errstate(all="ignore"):
            worst = max(worst, furthest(context, query, data_sets) / context.sensitivity_of(query))
    return worst


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize(("name", "term"), [(name, term) for name, s in SUBJECTS.items() for term in s.met])
def test_neighbours_stay_within_charged_sensitivity(name: str, term: str, rate: float) -> None:
    worst = largest_ratio(SUBJECTS[name], term, rate)
    assert worst <= 1.0
    assert worst > SUBJECTS[name].met[term][rate < 1.0]


class OneSidedCap(Capped):
    """A planted error: losses have an upper cap, but no lower one."""

    def apply_cap(self, values: Array) -> Array:
        return np.minimum(values, self.cap)


@pytest.mark.parametrize(("kind", "holds"), [(Capped, True), (OneSidedCap, False)])
@pytest.mark.parametrize("name", ["dro", "kl_dro"])
def test_one_sided_cap_leaves_the_known_ball(name: str, kind: type[Capped], holds: bool) -> None:
    """A negative loss lies outside the ball; in KL-DRO h falls below e^{−B/λ}, the floor of a noisy mean."""
    negative = capped_loss(None, CAP, 0).loss._replace(slopes=lambda o, b: (o[:, 0] - b, np.ones_like(o)))
    capped = kind(negative, CAP)
    problem: Minimax
    if name == "dro":
        problem, term, y = Composite(LinearModel(1, 1), DroObjective(capped, DIVERGENCES["chi2"], 3.0)), "grad_y", 0.5
    else:
        problem, term, y = kl_robust(LinearModel(1, 1), capped, 0.25, 0.4), "inner", 1.0
    query = ClippedQuery(term, np.array([1.0, 0.0]), np.array([y]), np.inf)
    ball = problem.public_ball(term, query.x, query.y)
    assert ball is not None
    (row,) = problem.sums(Labelled(np.array([[-2.0]]), np.zeros(1)), [query])
    assert bool(abs(row - ball.centre)[0] <= ball.radius + 1e-12) is holds


@pytest.mark.parametrize(("kind", "holds"), [(Capped, True), (OneSidedCap, False)])
def test_one_sided_cap_exceeds_group_sensitivity(kind: type[Capped], holds: bool) -> None:
    """Negative losses lie outside the segments, and a mean over all records exceeds the charged sensitivity."""
    negative = capped_loss(None, CAP, 3).loss._replace(slopes=lambda o, b: (o[:, 0], np.ones_like(o)))
    assert (largest_ratio(group_dro(kind(negative, CAP)), "dual", 1.0) <= 1.0) is holds
