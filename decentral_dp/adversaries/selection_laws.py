"""Laws of random choices, as probabilities of finitely many points: what an observer who knows all records computes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from decentral_dp.adversaries.loss_laws import least_epsilon
from decentral_dp.bounded import Array
from decentral_dp.participants.regularised_selection import RegularisedSelection
from decentral_dp.participants.selection import BoxExponential, FiniteExponential, grid

# Cells along each axis of a box, by the number of its axes.
_CELLS = (4096, 128, 24)


class Law(NamedTuple):
    """points: (n, p), of a box the middles of equal cells. logs: (n,) the logarithms of their probabilities."""

    points: Array
    logs: Array

    def log_at(self, value: Array) -> float:
        """Of the point that is nearest."""
        return float(self.logs[int(np.argmin(((self.points - value) ** 2).sum(axis=1)))])

    def place_of(self, value: Array, toss: float) -> float:
        """Where the value lies in the law's order, uniform on [0, 1] if it was drawn from it; toss: within its step."""
        at = int(np.argmin(((self.points - value) ** 2).sum(axis=1)))
        weights = np.exp(self.logs)
        return float(weights[:at].sum() + toss * weights[at])


def law_of_choice(choice: Any, scale: float) -> Law | None:
    """Compute the law of a random choice, on points.

    Args:
        choice: a selection mechanism with its score.
        scale: of the score.

    Returns:
        The law; None where nothing is chosen at random, or no law is known, as of a walk that stops early.

    Limits:
        Of a box the density is taken at the middle of each cell.
    """
    if not scale > 0.0:
        return None
    if isinstance(choice, FiniteExponential):
        scores = choice.score(choice.points)
        unit = choice.facts.unit
        return _law(choice.points, -np.rint((scores - scores.min()) / unit) * unit / scale)
    if isinstance(choice, BoxExponential) and len(choice.box.low) <= len(_CELLS):
        points = _middles(choice.box.low, choice.box.high)
        return _law(points, -choice.score(points) / scale)
    if isinstance(choice, RegularisedSelection) and choice.width <= len(_CELLS):
        declared = choice.facts.declared(scale)
        points = _middles(declared.box.low, declared.box.high)
        return _law(points, -declared.rate * declared.whole(choice.scores)(points))
    return None


def _middles(low: Array, high: Array) -> Array:
    cells = _CELLS[len(low) - 1]
    half = 0.5 * (high - low) / cells
    return grid(low + half, high - half, cells)


def _law(points: Array, logs: Array) -> Law:
    top = logs - logs.max()
    return Law(points, top - np.log(np.exp(top).sum()))


def choice_epsilon(first: Array, second: Array, delta: float) -> float:
    """Compute the least ε for which two laws are (ε, δ) apart in both directions.

    Args:
        first: (n,) log-probabilities.
        second: (n,) the same of the other law.
        delta: δ ≥ 0.

    Returns:
        ε ≥ 0.
    """
    return max(_one_way(first, second, delta), _one_way(second, first, delta))


def _one_way(first: Array, second: Array, delta: float) -> float:
    loss = first - second
    return max(0.0, float(loss.max())) if delta == 0.0 else least_epsilon(np.exp(first), loss, delta)
