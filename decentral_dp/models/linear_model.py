"""A linear model: φ = A·(a, 1), one row of weights and a bias for each output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.models.convolution import with_one
from decentral_dp.models.protocol import Slope, squares
from decentral_dp.privacy.clipping import clip_factors

_LEAST_SLOPE = 1e-150


@dataclass(frozen=True)
class Linear:
    """A record's gradient is the outer product c·(a, 1)ᵀ: its norm is a product of two norms, also of a difference."""

    n_features: int
    outputs: int

    @property
    def p(self) -> int:
        return self.outputs * (self.n_features + 1)

    @property
    def cells(self) -> int:
        return self.n_features + 1 + 2 * self.outputs

    @property
    def start(self) -> Array:
        return np.zeros(self.p)

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, Array]:
        rows = with_one(inputs)
        return rows @ x.reshape(self.outputs, -1).T, rows

    def clipped(self, at: Slope, extra: Array, bound: float) -> tuple[Array, Array]:
        return self._summed(at.tape, at.cotangents, extra, bound)

    def clipped_change(self, at: Slope, before: Slope, extra: Array, bound: float) -> tuple[Array, Array]:
        # The records are the same, so the difference is an outer product as well: nothing cancels.
        return self._summed(at.tape, at.cotangents - before.cotangents, extra, bound)

    def _summed(self, rows: Array, cotangents: Array, extra: Array, bound: float) -> tuple[Array, Array]:
        # Of slopes that vanish when they are squared the norm is taken as that of somewhat larger ones.
        slopes = np.sqrt(squares(cotangents)) + _LEAST_SLOPE
        norms = np.hypot(slopes * np.sqrt(squares(rows)), np.sqrt(squares(extra)))
        factors = clip_factors(norms, bound)
        # Zero times infinity is NaN: what is not finite has to go before the product.
        kept = np.where(np.isfinite(norms)[:, None], factors[:, None] * cotangents, 0.0)
        safe = np.where(np.isfinite(norms)[:, None], rows, 0.0)
        return (kept.T @ safe).reshape(-1), factors
