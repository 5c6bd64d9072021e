"""Certified solutions along a public path of upper variables: few passes over the records for each.

    start     the polynomial through the last solutions, taken further along the path
    steps     the chord method: Newton's corrections with the records' Hessian of an earlier point of the path
    certify   `certified_solver.minimise`, which ends at once where ‖∇h‖ is at its goal already

A solution that leaves has the certificate of `minimise`: where it started and which steps led there do not enter.
Solutions are smooth in the logarithm of a strength, so that a start is often certified as it is.

Chord steps end: each of them divides ‖∇h‖ by 10 or more, or is the last one. They stay in the ball that holds every
minimiser, so that `minimise` ends after them as it does from any start there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.participants.certified_solver import (
    DENSE_LIMIT,
    Facts,
    Objective,
    Product,
    factored,
    inside,
    minimise,
)
from decentral_dp.problems.records import regulariser_matrices

# So many solutions a start is extrapolated from, at most: weights grow as 2 to this power, and with them rounding.
MOST_POINTS = 12
# What is left of a gradient after a chord step that is worth another one; else the Hessian is formed anew.
CONTRACTION = 0.1


def solutions_along(path: Array, at: Callable[[Array], tuple[Objective, Facts]]) -> Array:
    """Solve one objective after the other.

    Args:
        path: (n, p) public points.
        at: point → its objective, of fixed dimension q, and what is public of it.

    Returns:
        (n, q), each within `Facts.accuracy` of the minimiser: a fixed function of the path and the records.
    """
    lengths = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    found: list[Array] = []
    # Solutions with a last correction, which the certificate is not about: a better ground to extrapolate from.
    sharp: list[Array] = []
    records: Array | None = None
    points = 1
    for k, x in enumerate(path):
        objective, f = at(x)
        if len(f.centre) > DENSE_LIMIT:
            found.append(minimise(objective, f, found[-1] if found else None))
            continue
        before = slice(max(0, k - MOST_POINTS), k)
        guesses = extrapolated(lengths[before], sharp[before], float(lengths[k]))
        start = guesses[min(points, len(guesses)) - 1] if guesses else f.centre
        y, records, last = _solution(objective, f, start, records)
        found.append(y)
        sharp.append(inside(last, f.centre, f.radius))
        points = _best(guesses, sharp[-1])
    return np.array(found)


def extrapolated(lengths: Array, values: list[Array], at: float) -> list[Array]:
    """Extrapolate by the polynomials through the last 1, 2, … of some values: Neville's scheme.

    Args:
        lengths: (n,) where the values are.
        values: n arrays of one shape.
        at: where they are wanted.

    Returns:
        n arrays; not finite where two places coincide.

    Example:
        >>> extrapolated(np.array([0.0, 1.0, 2.0]), [np.array([t**2]) for t in (0.0, 1.0, 2.0)], 3.0)
        [array([4.]), array([7.]), array([9.])]
    """
    if not values:
        return []
    row = np.array(values)
    away = (at - lengths).reshape(-1, *[1] * (row.ndim - 1))
    found = [row[-1]]
    with np.errstate(all="ignore"):
        for degree in range(1, len(values)):
            first, last = away[:-degree], away[degree:]
            row = (first * row[1:] - last * row[:-1]) / (first - last)
            found.append(row[-1])
    return found


def _best(guesses: list[Array], truth: Array) -> int:
    """How many solutions the next start is to be extrapolated from: as many as would have been best for this one."""
    if not guesses:
        return 1
    with np.errstate(all="ignore"):
        errors = np.linalg.norm(np.array(guesses) - truth, axis=1)
    best = int(np.argmin(np.where(np.isfinite(errors), errors, np.inf))) + 1
    # More of them than there were are worth a try where the most were best.
    return best + (best == len(guesses))


def _solution(objective: Objective, f: Facts, start: Array, records: Array | None) -> tuple[Array, Array, Array]:
    """The certified solution, the records' Hessian that led to it, and the solution after one more correction."""
    y = inside(start, f.centre, f.radius)
    with np.errstate(all="ignore"):
        gradient = objective.gradient(y)
        if records is not None:
            correction = factored(records + _penalty_hessian(objective, y))
            y, gradient = _chord_steps(objective, f, y, gradient, correction)
        if records is None or float(np.linalg.norm(gradient)) > f.goal:
            hessian = objective.hessian(y)
            records, correction = hessian - _penalty_hessian(objective, y), factored(hessian)
            y, gradient = _chord_steps(objective, f, y, gradient, correction)
        found = minimise(objective, f, y, gradient)
        return found, records, found - correction(gradient) if found is y else found


def _chord_steps(objective: Objective, f: Facts, y: Array, gradient: Array, correction: Product) -> tuple[Array, Array]:
    """The last point of the ball that a chord step led to and was worth it, and ∇h there."""
    size = float(np.linalg.norm(gradient))
    while size > f.goal:
        there = y - correction(gradient)
        if not float(np.linalg.norm(there - f.centre)) <= f.radius:
            break
        new = objective.gradient(there)
        smaller = float(np.linalg.norm(new))
        if smaller < size:
            y, gradient = there, new
        if not smaller <= CONTRACTION * size:
            break
        size = smaller
    return y, gradient


def _penalty_hessian(objective: Objective, y: Array) -> Array:
    """∇²R at y, (q, q)."""
    return np.asarray(regulariser_matrices(objective.problem, objective.x[None], y[None], None).hessian[0])
