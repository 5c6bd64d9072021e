"""What a model offers: outputs of records, and sums of their clipped gradients.

A model has weights x (p,) and maps records (n, d) to outputs φ (n, e). No operation may mix two records. `forward`
keeps on a tape what the sums need: given cotangents c (n, e), a record's gradient is ∇_x ⟨φ_k, c_k⟩ (p,). `extra`
(n, k) are further coordinates of the same gradient, outside the model: they count in its norm, and are scaled with it.

What a record contributes may depend, in its last bits, on its place and on how many records there are, as products of
matrices have it; the callers give every record the same place always (`central.clients`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from decentral_dp.bounded import Array, Norm

# (height, width, channels) of a record that is a picture.
Image = tuple[int, int, int]


class Slope(NamedTuple):
    """Where per-record gradients are taken. tape: of a forward pass; cotangents: (n, e)."""

    tape: Any
    cotangents: Array


class Weighted(Protocol):
    """What has weights. p: their number. cells: float64 numbers a record takes, on the tape and in its gradient."""

    @property
    def p(self) -> int: ...

    @property
    def cells(self) -> int: ...


class Model(Weighted, Protocol):
    """A model as a minimax problem reads it. outputs: e."""

    @property
    def outputs(self) -> int: ...

    @property
    def start(self) -> Array:
        """Public weights to start from, (p,)."""
        ...

    def forward(self, x: Array, inputs: Array, keep: bool = True) -> tuple[Array, Any]:
        """φ (n, e), and the tape if `keep`."""
        ...

    def clipped_sum(self, at: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Array, Array]:
        """Sum clipped gradients, or clipped differences of the gradients at two points.

        Args:
            at: the point.
            extra: (n, k) further coordinates, or their difference.
            bound: the largest norm of a record's gradient, or difference.
            since: another point, whose gradients are subtracted, on the same records in the same order; default none.

        Returns:
            Σ_k s_k ∇_x ⟨φ_k, c_k⟩ (p,), and s (n,) with s_k = min(1, bound/norm), and 0 where the norm is not finite.
            The norm is at least that of the record's whole gradient, or difference, `extra` included.
        """
        ...


@runtime_checkable
class Named(Protocol):
    """A model whose weights have names."""

    def named_weights(self, x: Array) -> dict[str, Array]:
        """Name → weights in their shape, of x (p,)."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A model that adds up the records of many evaluations at once: `clipped` is `sum_parts` of `clipped_parts`."""

    def clipped_parts(self, at: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Any, Array]:
        """What the records that count contribute, in whatever form, and s (n,), both as of `clipped`."""
        ...

    def sum_parts(self, parts: Sequence[Any]) -> Array:
        """The sum of all that was kept, (p,), in any order of summation."""
        ...


# Squares of numbers below 1e-154 are lost: their root is at most this much too small, in 10⁸ coordinates.
UNDERFLOW = 1e-150


def sizes(rows: Array, norm: Norm) -> Array:
    """(g, n) sums of squares, or of absolute values in l1, of rows (g, n, i)."""
    return np.asarray(np.abs(rows).sum(axis=2) if norm == "l1" else np.einsum("gni,gni->gn", rows, rows))


def squares(extra: Array) -> Array:
    """Σ of squares per row, (n,)."""
    return np.asarray(np.einsum("ij,ij->i", extra, extra))
