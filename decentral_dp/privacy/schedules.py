"""Public schedules over rounds: a power law multiplied by an interpolated factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array

# (round, factor), rounds ascending.
Points = tuple[tuple[float, float], ...]


def factor_at(points: Points, t: Any) -> Any:
    """Interpolate factors linearly between points. They are constant before the first and after the last point.

    Args:
        points: pairs (round, factor) with ascending rounds. Without points the factor is 1.
        t: rounds, a number or an array.

    Returns:
        Factors with the shape of t.

    Example:
        >>> factor_at(((0, 0.0), (10, 1.0), (20, 0.5)), np.array([0, 5, 10, 15, 99])).tolist()
        [0.0, 0.5, 1.0, 0.75, 0.5]
    """
    return np.interp(t, *np.transpose(points)) if points else 1.0


@dataclass(frozen=True)
class StepSize:
    """Learning rate λ_t = scale/(t+1)^decay · f(t) of rounds t = 0, 1, ….

    Args:
        scale: value λ_0 without points, at least 0.
        decay: exponent, at least 0; 0 (the default) gives a constant.
        points: points (round, factor) of f, as in `factor_at`; by default f = 1.

    Example:
        >>> step = StepSize(0.5, decay=1.0)
        >>> step(0), step(4), step.series(3).round(4).tolist()
        (0.5, 0.1, [0.5, 0.25, 0.1667])
        >>> StepSize(0.5, points=((0, 0.2), (2, 1.0))).series(4).round(4).tolist()
        [0.1, 0.3, 0.5, 0.5]
    """

    scale: float
    decay: float = 0.0
    points: Points = ()

    def __call__(self, t: int) -> float:
        return float(self.scale * float(t + 1) ** -self.decay * factor_at(self.points, t))

    def at(self, rounds: NDArray[np.int64]) -> Array:
        """Return λ_t in these rounds, with the shape of the argument."""
        return np.asarray(self.scale * (rounds + 1.0) ** -self.decay * factor_at(self.points, rounds))

    def series(self, rounds: int) -> Array:
        """Return λ_0, …, λ_{rounds−1}, (rounds,)."""
        return self.at(np.arange(rounds))

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule as a table of a scenario."""
        table: dict[str, Any] = {"scale": self.scale, "decay": self.decay}
        return table | ({"points": [list(point) for point in self.points]} if self.points else {})


def schedule_points(table: Sequence[Sequence[float]] | None) -> Points:
    """Convert the schedule points of a scenario's table."""
    return tuple((t, factor) for t, factor in table or ())
