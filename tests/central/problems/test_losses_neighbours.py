"""Robust losses without a lower cap exceed the charged sensitivity."""

from __future__ import annotations

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


def largest_ratio(capped: Capped) -> float:
    """Return the largest change of the means of group DRO by one replaced record, over the charged sensitivity."""
    problem = Composite(LinearModel(2, CLASSES), GroupDroObjective(capped, 0.7, SHARES))
    context, draw, worst = context_of(problem, 6, clip=0.5), np.random.default_rng(4), 0.0
    for _ in range(25):
        features, labels = draw.normal(size=(6, 2)), draw.integers(CLASSES, size=6).astype(np.float64)
        data_sets = []
        for row in WILD:
            for label in range(CLASSES):
                data_set = Labelled(features.copy(), labels.copy())
                data_set.inputs[0], data_set.labels[0] = row, label
                data_sets.append(data_set)
        query = context.query("dual", draw.normal(size=problem.p), draw.dirichlet(np.ones(CLASSES)), 1.0)
        with np.errstate(all="ignore"):
            worst = max(worst, furthest(context, query, data_sets) / context.sensitivity_of(query))
    return worst


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
    assert (largest_ratio(kind(negative, CAP)) <= 1.0) is holds
