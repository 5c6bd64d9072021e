"""What a family of problems offers: constants that hold for all its records, and the ball of its minimisers."""

from __future__ import annotations

import math
from typing import Protocol, TypedDict

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.boxes import UP, box_width
from decentral_dp.constants.loss_bounds import LossBounds
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.constants.record_sensitivity import solution_spread
from decentral_dp.problems.protocol import Problem


class _UpperInX(TypedDict):
    """Constants of the derivatives of f in x."""

    l_fx: float
    d_fx: float
    b_fxx: float
    b_fxy: float


class _CurvatureChanges(TypedDict):
    """Constants of what changes the second derivatives of g: the record, y and x."""

    d_hxy: float
    d_hyy: float
    c_gxy: float
    c_gyy: float
    m_gxy: float
    m_gyy: float


# Of an f of y alone.
UPPER_OF_Y_ALONE: _UpperInX = {"l_fx": 0.0, "d_fx": 0.0, "b_fxx": 0.0, "b_fxy": 0.0}
# Of a g whose second derivatives are the same at every point and for every record.
CONSTANT_CURVATURE: _CurvatureChanges = {
    "d_hxy": 0.0,
    "d_hyy": 0.0,
    "c_gxy": 0.0,
    "c_gyy": 0.0,
    "m_gxy": 0.0,
    "m_gyy": 0.0,
}


class Family(Protocol):
    """A problem with constants that hold for all its records, and what scores need besides.

    Example:
        >>> from decentral_dp.constants.families import family_of
        >>> from decentral_dp.problems.bilevel.mean_estimation import MeanEstimation
        >>> family = family_of(MeanEstimation(2), radius=1.0)
        >>> family.centre(np.ones(2)).tolist()
        [0.5, 0.5]
        >>> round(family.constants(-np.ones(2), np.ones(2)).mu, 6)
        2.0
    """

    problem: Problem

    @property
    def self_concordance(self) -> float:
        """κ with ∇²_yy g(y + v) ⪯ e^{κ‖v‖} ∇²_yy g(y) for every record and for R; inf where nothing is known."""
        return math.inf

    def constants(self, low: Array, high: Array, record_mass: float = 1.0) -> ProblemConstants:
        """Bound the derivatives for all x of a box and y in the ball of minimisers.

        Args:
            low: (p,) of x.
            high: (p,) of x.
            record_mass: 1 for minimisers of g, 1 + 1/λ for those of g + f/λ; default 1.

        Raises:
            InputError: the box is not finite.
        """
        ...

    def centre(self, x: Array) -> Array:
        """Return the (q,) centre of the ball of minimisers at a public x: data-independent, 0 by default."""
        return np.zeros(self.problem.q)

    def spread(self, low: Array, high: Array) -> float:
        """Bound ‖y_Z(x) − y_Z(x')‖ for all x, x' of the box: D_y. Of a ball that does not move with x, by default."""
        return solution_spread(self.constants(low, high), box_width(low, high), centred=True)

    def loss_range(self, low: Array, high: Array) -> float:
        """Bound max f − min f over x of the box and y in its ball, for every record."""
        return math.inf


class LossFamily(Family, Protocol):
    """A family with one loss of y in both levels, and a ball of minimisers around 0.

    Args:
        loss: bounds of the loss; a field of the family.
    """

    loss: LossBounds

    @property
    def self_concordance(self) -> float:
        return self.loss.self_concordance

    def loss_range(self, low: Array, high: Array) -> float:
        return UP * self.loss.loss_range(self.constants(low, high).radius)


class MovingFamily(Family, Protocol):
    """A family whose ball of minimisers moves with x."""

    def spread(self, low: Array, high: Array) -> float:
        return solution_spread(self.constants(low, high), box_width(low, high), centred=False)


class QuadraticFamily(MovingFamily, Protocol):
    """A family of one problem whose lower level is quadratic in y, and whose ball moves with x."""

    @property
    def self_concordance(self) -> float:
        return 0.0
