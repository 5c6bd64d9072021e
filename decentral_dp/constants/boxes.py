"""Boxes low ≤ x ≤ high of upper variables, and the rounding of constants."""

from __future__ import annotations

import math

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.errors import InputError

# Room for the float64 arithmetic of the constants themselves.
UP = 1.0 + 1e-12
# exp of more is no float64.
_LARGEST_LOG = 700.0


def box_norm(p: int, low: Array, high: Array, mass: float) -> float:
    """Bound ‖x‖₂ over the box, which is checked.

    Args:
        p: coordinates of x.
        low: (p,).
        high: (p,).
        mass: 1 for minimisers of g, 1 + 1/λ for those of g + f/λ.

    Returns:
        sup ‖x‖₂ over the box.

    Raises:
        InputError: a bound that is not finite, or low > high.
        ValueError: wrong shapes, or a mass below 1.

    Example:
        >>> box_norm(2, np.array([-3.0, 0.0]), np.array([1.0, 4.0]), mass=1.0)
        5.0
    """
    if not 1.0 <= mass < math.inf:
        raise ValueError(f"mass is {mass}: 1 for minimisers of g, 1 + 1/λ for those of g + f/λ")
    if np.shape(low) != (p,) or np.shape(high) != (p,):
        raise ValueError(f"a box of shapes {np.shape(low)} and {np.shape(high)} where x has {p} coordinates")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise InputError(
            f"algorithm.domain: x ranges from {np.min(low):g} to {np.max(high):g}, but constants need finite bounds, "
            "low ≤ high; give the run a box."
        )
    return float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high))))


def box_strengths(p: int, low: Array, high: Array, mass: float) -> tuple[float, float]:
    """Return the smallest and the largest e^{x_s} over the box.

    Args:
        p, low, high, mass: as of `box_norm`.

    Raises:
        InputError: as `box_norm`, and where exp of a bound is no number.
        ValueError: as `box_norm`.
    """
    box_norm(p, low, high, mass)
    least, most = float(low.min()), float(high.max())
    if max(-least, most) > _LARGEST_LOG:
        raise InputError(
            f"algorithm.domain: logarithms of strengths range from {least:g} to {most:g}, but exp of more than "
            f"{_LARGEST_LOG:g} is no number; give the run a box nearer to 0."
        )
    return math.exp(least), math.exp(most)


def box_weights(low: Array, high: Array) -> tuple[float, float]:
    """Return sup σ(x_g) and sup σ'(x_g) over the box; σ' is even, and decreases away from 0.

    Example:
        >>> [round(v, 4) for v in box_weights(-np.ones(2), np.ones(2))]
        [0.7311, 0.25]
    """
    nearest = math.exp(-float(np.maximum(np.maximum(low, -high), 0.0).min()))
    return 1.0 / (1.0 + math.exp(min(-float(high.max()), _LARGEST_LOG))), nearest / (1.0 + nearest) ** 2


def box_width(low: Array, high: Array) -> float:
    """Return D_x, the l2 diameter of the box.

    Example:
        >>> box_width(np.zeros(2), np.array([3.0, 4.0]))
        5.0
    """
    return float(np.linalg.norm(high - low))


def rounded(c: ProblemConstants) -> ProblemConstants:
    """Round every bound up, and μ down: room for the float64 arithmetic that led to them."""
    sensitivity = ProblemConstants._make([*(UP * float(v) for v in c[:-1]), c.label])
    return sensitivity._replace(mu=c.mu * (2.0 - UP))
