"""Exponential mechanisms over finitely many candidates, exactly; and the grid of a public box.

A candidate with score q leaves with probability proportional to e^{−λq}, lower scores being better. If one record
moves the scores of all candidates by amounts that lie within s of each other (their *oscillation*, sup − inf), then
λ = ε/s is pure ε: a common shift cancels in the normalisation, so that no factor 1/2 is lost (McSherry & Talwar, FOCS
2007; the bounded range of Dong, Durfee & Rogers, ICML 2020).

Scores are rounded to a public grid r = 2^(⌊log₂ s⌋ − 20) and known up to `inexact` only; both go into the price,

    λ = ε/(s + 2r + 4·inexact),

and then integers alone decide. Float64 would not do: numpy's Gumbel variates end at 36.74 and −3.61, so a candidate
whose λq is 40.4 above the best never leaves under one dataset and may under its neighbour: infinite pure ε.

The score must be one fixed function of dataset and candidate: no warm start from the candidate tried before, and what
depends on how a computation is batched belongs in `inexact`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import frexp, isfinite, ldexp
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.integer_samplers import IntArray, Weights
from decentral_dp.errors import InputError

GRID_BITS = 20
# Positions along each axis of a box: 2 to this power.
DEPTH = 40
# Float64 itself errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62

Score = Callable[[Array], Array]


def law_at(scores: Array, unit: float, rate: Fraction) -> Weights:
    """Return the law ∝ exp(−rate·score) over scores (n,) rounded to whole units."""
    whole = units(scores, unit)
    return Weights.from_gaps(whole - whole.min(), rate * Fraction(unit))


def score_unit(scale: float) -> float:
    """Return the grid of scores whose differences matter on this scale: a power of two, 2⁻²⁰ of it or a little less.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    if not (isfinite(scale) and scale > 0.0):
        raise InputError(f"oscillation: got {scale}, wanted a finite number above 0; compute it from constants.")
    return ldexp(1.0, frexp(scale)[1] - 1 - GRID_BITS)


def units(scores: Array, unit: float) -> IntArray:
    """Round scores to whole units, a power of two: (n,) integers, each within half a unit.

    Raises:
        InputError: no scores, or some that are not finite or too large.

    Example:
        >>> units(np.array([0.0, 0.5, 0.7]), unit=0.25).tolist()
        [0, 2, 3]
    """
    with np.errstate(over="ignore"):
        scaled = np.rint(scores / unit)
    if not scores.size or not bool((np.abs(scaled) < _MOST_UNITS).all()):
        raise InputError(
            f"scores: got {scores.size} of which {int((~np.isfinite(scores)).sum())} are not finite or some exceed "
            f"{unit * _MOST_UNITS:g}, wanted one or more below that; such scores contradict the declared oscillation, "
            "so declare the one that they have."
        )
    return scaled.astype(np.int64)


class Box(NamedTuple):
    """A public box.

    Args:
        low: (d,) corner.
        high: (d,) corner, above low.

    Example:
        >>> box = Box(np.array([-1.0]), np.array([1.0]))
        >>> box.diameter, box.centres(np.array([[0], [1]]), depth=1).tolist()
        (2.0, [[-0.5], [0.5]])
    """

    low: Array
    high: Array

    @property
    def sides(self) -> Array:
        return np.asarray(self.high - self.low)

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.sides))

    def centres(self, cells: IntArray, depth: int) -> Array:
        """Return the centres of the cells with these numbers among the 2^depth along each axis, (n, d)."""
        return np.asarray(self.low + self.sides * ((cells + 0.5) * 2.0**-depth))

    def slack(self) -> float:
        """Bound how far a float64 centre may lie from the ideal one."""
        return float(np.linalg.norm(np.abs(self.low) + np.abs(self.high))) * 2.0**-50
