"""Where the upper variable may be: a public box, or everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array


@dataclass(frozen=True)
class Domain:
    """The box low ≤ x_s ≤ high of every coordinate; all of R^p by default."""

    low: float = -math.inf
    high: float = math.inf

    @property
    def compact(self) -> bool:
        return math.isfinite(self.high - self.low)

    def project(self, x: Array) -> Array:
        """The nearest point, (p,): argmin_u ⟨g, u⟩ + ‖u − x‖²/(2η) is the projection of x − ηg."""
        return np.asarray(np.clip(x, self.low, self.high)) if self.compact else x

    def corners(self, p: int) -> tuple[Array, Array]:
        """(low, high), (p,) each."""
        return np.full(p, self.low), np.full(p, self.high)

    def diameter(self, p: int) -> float:
        """sup ‖x − x'‖₂."""
        return (self.high - self.low) * math.sqrt(p)
