"""Lipschitz constants of a problem's directions in l1, for the recursion of a private state.

The directions are G_x, G_y and G_z of `ldp_dsbo`, and the arguments are x, y and z. See docs/proofs/35.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from decentral_dp.algorithms.protocol import Counts
from decentral_dp.bounded import CHANNELS, SPLITS, Array, Bounded, Sensitivity, Split
from decentral_dp.participants import Directions
from decentral_dp.problems.bilevel.linear import LogisticHyperparameter, Penalty, Pull, SoftmaxHyperparameter
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS


@dataclass(frozen=True, eq=False)
class LipschitzConstants:
    """Constants of the private-state recursion, in l1, for the directions (G_x, G_y, G_z) in the arguments (x, y, z).

    Args:
        data: split → Lipschitz constants (l1 → l1) of the mean per-record terms of that split, (3, 3).
        regulariser: Lipschitz constants of the data-independent terms, (3, 3).
        swap: split → supremum of ‖G_v(s; ξ) − G_v(s'; ξ')‖₁ over records, (3,).
        two_point: whether the supremum is over two points s and s' or over one point s = s'.
    """

    data: Mapping[Split, Array]
    regulariser: Array
    swap: Mapping[Split, Array]
    two_point: bool


class ScoreBounds(NamedTuple):
    """Bounds on the terms of a record in l1, relative to powers of R ≥ ‖a‖₁ and M_z ≥ |z_s|, as ‖a aᵀ‖_{1→1} ≤ R².

    Args:
        slope: ‖∇_y l‖ ≤ slope·R.
        curvature: ‖∇²_yy l‖ ≤ curvature·R².
        curvature_along: ‖∇²_yy l·z‖ ≤ curvature_along·R² M_z.
        third: the Jacobian of ∇²_yy l·z in y is at most R³ M_z/third.
    """

    slope: float
    curvature: float
    curvature_along: float
    third: float


# Logistic: max σ' = 1/4 and max|σ''| = 1/(6√3), attained if R·box["y"] ≥ log(2 + √3).
# The constants hold for exactly these classes, because a subclass can have other losses.
_BOUNDS: Mapping[type, ScoreBounds] = {
    LogisticHyperparameter: ScoreBounds(1.0, 0.25, 0.25, 6 * math.sqrt(3)),
    SoftmaxHyperparameter: ScoreBounds(2.0, 0.5, 1.0, 1.5 * math.sqrt(3)),
}


def lipschitz_constants(problem: Any, box: Mapping[str, float], radius: float | None) -> LipschitzConstants | None:
    """Return the constants for arguments in a box, x_s ≤ box["x"], |y_s| ≤ box["y"] and |z_s| ≤ box["z"].

    Args:
        problem: problem of the agents.
        box: variable → bound; a variable without one is unbounded.
        radius: R ≥ ‖a‖₁ of every record; None if records are unbounded.

    Returns:
        The constants. None for other problems, or if a required bound is missing.
    """
    if radius is None or not math.isfinite(radius):
        return None
    if type(problem) is MeanEstimation:
        return _mean_estimation(problem, radius)
    if type(problem) is MeanLowerBound:
        return _mean_lower_bound(problem, radius)
    if type(problem) in _BOUNDS:
        return _linear_classifier(problem, _BOUNDS[type(problem)], box, radius + problem.intercept)
    return None


def _linear_classifier(
    problem: Any, bounds: ScoreBounds, box: Mapping[str, float], r: float
) -> LipschitzConstants | None:
    """Return the constants of a linear classifier. Swaps hold over two points, because they bound each term."""
    regulariser, m_z = penalty_constants(problem.penalty, box), box.get("z", math.inf)
    if regulariser is None or not np.isfinite([m_z, box.get("y", math.inf)]).all():
        return None
    train, validation = np.zeros((2, 3, 3))
    train[1, 1] = train[2, 2] = validation[2, 1] = bounds.curvature * r**2
    train[2, 1] = r**3 * m_z / bounds.third
    return LipschitzConstants(
        data={"train": train, "validation": validation},
        regulariser=regulariser,
        swap={
            "train": np.array([0.0, 2 * bounds.slope * r, 2 * bounds.curvature_along * r**2 * m_z]),
            "validation": np.array([0.0, 0.0, 2 * bounds.slope * r]),
        },
        two_point=True,
    )


def _mean_estimation(problem: MeanEstimation, radius: float) -> LipschitzConstants:
    """Return the constants of G_y = −a + (1 + ridge) y − ridge x, G_z = (1 + ridge) z − (y − a), G_x = ridge z."""
    data, regulariser = np.zeros((3, 3)), np.diag([0.0, 1.0 + problem.ridge, 1.0 + problem.ridge])
    data[2, 1] = 1.0
    regulariser[0, 2] = regulariser[1, 0] = problem.ridge
    swap: dict[Split, Array] = {"train": np.array([0, 2.0 * radius, 0]), "validation": np.array([0, 0, 2.0 * radius])}
    return LipschitzConstants({"train": np.zeros((3, 3)), "validation": data}, regulariser, swap, two_point=False)


def _mean_lower_bound(problem: MeanLowerBound, radius: float) -> LipschitzConstants:
    """Return the constants of G_y = ridge (y − stretch x), G_z = ridge z + slope a, G_x = ridge stretch z."""
    regulariser = np.diag([0.0, problem.ridge, problem.ridge])
    regulariser[0, 2] = regulariser[1, 0] = problem.ridge * problem.stretch
    data: dict[Split, Array] = dict.fromkeys(SPLITS, np.zeros((3, 3)))
    swap: dict[Split, Array] = {"train": np.zeros(3), "validation": np.array([0.0, 0.0, 2.0 * problem.slope * radius])}
    return LipschitzConstants(data, regulariser, swap, two_point=False)


def penalty_constants(penalty: Penalty, box: Mapping[str, float]) -> Array | None:
    """Return the Lipschitz constants of (∇²_xy R·z, ∇_y R, ∇²_yy R·z) in (x, y, z), (3, 3), or None.

    Args:
        penalty: R.
        box: variable → bound, see `lipschitz_constants`.
    """
    if isinstance(penalty, Pull):
        # The terms are linear, so no box is needed.
        return penalty.ridge * np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    x, y, z = (box.get(channel, math.inf) for channel in CHANNELS)
    # The exponential of a larger number overflows float64.
    if x > 700.0 or not all(map(math.isfinite, (x, y, z))):
        return None
    # A coordinate of x changes all variables of its strength. The constants are attained at the corner of the box.
    c = penalty.copies
    return penalty.scale * math.exp(x) * np.array([[c * y * z, z, y], [c * y, 1.0, 0.0], [c * z, 0.0, 1.0]])


def clip_to_box(state: Bounded, channel: str, box: Mapping[str, float]) -> Bounded:
    """Clip the coordinates of a private state to its box, which does not increase distances."""
    high = box.get(channel, math.inf)
    inside = np.clip(state.value, -math.inf if channel == "x" else -high, high)
    return Bounded(np.zeros_like(inside), inside, state.sensitivities, state.norm)


def bound_directions(
    constants: LipschitzConstants, counts: Counts, state: Mapping[str, Bounded], directions: Directions
) -> Directions:
    """Bound the change ΣK·D + S/N of each term if one record is replaced and the state changes, in exact arithmetic.

    Args:
        constants: K and S.
        counts: split → number N of records that each agent averages, (b,).
        state: variable → x, y or z at which the terms are evaluated, with sensitivities D.
        directions: terms.

    Returns:
        The terms with these sensitivities.
    """
    bounded, values = [], cast(Sequence[Bounded], directions)
    for term, value in zip(TERMS, values, strict=True):
        v, lower = CHANNELS.index(CLIP_OF_TERM[term]), term.startswith("lower")
        read: Split = "train" if lower else "validation"
        sensitivities = {}
        for split in SPLITS:
            change, n = np.stack([state[c].sensitivities[split].sensitivity for c in CHANNELS]), counts[split]
            share = (n - 1.0) / n if read == split and constants.two_point else np.ones(n.size)
            total = share * (constants.data[read][v] @ change)
            if read == split:
                total = total + constants.swap[split][v] / n
            if lower:
                total = total + constants.regulariser[v] @ change
            sensitivities[split] = Sensitivity(total, np.ones(n.size), None)
        bounded.append(Bounded(np.zeros_like(value.value), value.value, sensitivities, value.norm))
    return Directions(*bounded)
