"""Exponential mechanisms over finitely many candidates, exactly.

A candidate with score q leaves with probability proportional to e^{−λq}, lower scores being better. If one record
moves the scores of all candidates by amounts that lie within s of each other (their *oscillation*, sup − inf), then
λ = ε/s is pure ε: a common shift cancels in the normalisation, so that no factor 1/2 is lost (McSherry & Talwar, FOCS
2007; the bounded range of Dong, Durfee & Rogers, ICML 2020).

Scores are rounded to a public grid r = 2^(⌊log₂ s⌋ − 20) and known up to `inexact` only; both go into the price,

    λ = ε/(s + 2r + 4·inexact),

and then integers alone decide (`exact`). Float64 would not do: numpy's Gumbel variates end at 36.74 and −3.61, so a
candidate whose λq is 40.4 above the best never leaves under one dataset and may under its neighbour: infinite pure ε.

The score must be one fixed function of dataset and candidate: no warm start from the candidate tried before, and what
depends on how a computation is batched belongs in `inexact`.
"""

from __future__ import annotations

from fractions import Fraction
from math import frexp, isfinite, ldexp

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.integer_samplers import IntArray, Weights

GRID_BITS = 20
# Float64 itself errs by more than 2^-11 of the oscillation on scores beyond this many grid units.
_MOST_UNITS = 2.0**62


def law_at(scores: Array, unit: float, rate: Fraction) -> Weights:
    """Return the law ∝ exp(−rate·score) over scores (n,) rounded to whole units."""
    whole = units(scores, unit)
    return Weights.of(whole - whole.min(), rate * Fraction(unit))


def score_unit(scale: float) -> float:
    """Return the grid of scores whose differences matter on this scale: a power of two, 2⁻²⁰ of it or a little less.

    Example:
        >>> score_unit(1.0) == 2.0**-20, score_unit(1.9) == 2.0**-20
        (True, True)
    """
    positive("oscillation", scale)
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


def positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value > 0.0):
        raise InputError(
            f"{name}: got {value}, wanted a finite number above 0; compute it from the declared constants."
        )


def not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0.

    Raises:
        InputError: it is none.
    """
    if not (isfinite(value) and value >= 0.0):
        raise InputError(f"{name}: got {value}, wanted a finite number, 0 or more; 0 if there is none.")
