"""Where the upper variable may be: convex, public, closed sets that are easy to project on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError


@dataclass(frozen=True)
class Domain:
    """A box low ≤ x_s ≤ high, a ball ‖x‖₂ ≤ radius around 0, the simplex {x ≥ 0, Σ x_s = 1}, or all of R^p.

    Args:
        kind: which of them; default R^p.
        low, high: of every coordinate, of a box.
        radius: in l2, of a ball.

    Raises:
        InputError: a box or ball without interior.
    """

    kind: Literal["everywhere", "box", "ball", "simplex"] = "everywhere"
    low: float = -math.inf
    high: float = math.inf
    radius: float = math.inf

    def __post_init__(self) -> None:
        if self.kind == "box" and not -math.inf < self.low < self.high < math.inf:
            raise InputError(
                f"algorithm.domain: a box from {self.low:g} to {self.high:g} has no interior; give low < high."
            )
        if self.kind == "ball" and not 0.0 < self.radius < math.inf:
            raise InputError(f"algorithm.domain: a ball of radius {self.radius:g} has no interior; give one above 0.")

    @property
    def compact(self) -> bool:
        return self.kind != "everywhere"

    def project(self, x: Array) -> Array:
        """The nearest point, (p,): argmin_u ⟨g, u⟩ + ‖u − x‖²/(2η) is the projection of x − ηg."""
        if self.kind == "box":
            return np.asarray(np.clip(x, self.low, self.high))
        if self.kind == "ball":
            norm = float(np.linalg.norm(x))
            return np.asarray(x * min(1.0, self.radius / max(norm, 1e-300)))
        if self.kind == "simplex":
            # Held, Wolfe & Crowder 1974: subtract the threshold that leaves the sum 1.
            ordered = np.sort(x)[::-1]
            thresholds = (np.cumsum(ordered) - 1.0) / np.arange(1, x.size + 1)
            last = int(np.flatnonzero(ordered > thresholds)[-1])
            return np.asarray(np.maximum(x - thresholds[last], 0.0))
        return x

    def corners(self, p: int) -> tuple[Array, Array]:
        """(low, high), (p,) each: the smallest box around it."""
        low, high = {
            "box": (self.low, self.high),
            "ball": (-self.radius, self.radius),
            "simplex": (0.0, 1.0),
            "everywhere": (-math.inf, math.inf),
        }[self.kind]
        return np.full(p, low), np.full(p, high)

    def diameter(self, p: int) -> float:
        """sup ‖x − x'‖₂."""
        if self.kind == "box":
            return (self.high - self.low) * math.sqrt(p)
        return {"ball": 2.0 * self.radius, "simplex": math.sqrt(2.0) * (p > 1)}.get(self.kind, math.inf)
