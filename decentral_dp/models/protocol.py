"""Interfaces of models: outputs of records, and sums of their clipped gradients.

A model has weights x (p,) and maps records (n, d) to outputs φ (n, e). No operation may mix two records. `forward`
keeps the values that the sums need on a tape. For cotangents c (n, e), the gradient of a record is ∇_x ⟨φ_k, c_k⟩ (p,).
`extra` (n, k) are further coordinates of the same gradient, outside the model. They count in its norm and are scaled
with it.

`clipped_sum` sums clipped gradients, or clipped differences of the gradients at two points:

    clipped_sum(at, extra, bound, since)  Σ_k s_k ∇_x ⟨φ_k, c_k⟩ (p,), and s (n,) with s_k = min(1, bound/norm), and 0
                                          if the norm is not finite

The norm is an upper bound on the norm of the whole gradient or difference, including `extra`. `since` is another point
on the same records in the same order, whose gradients are subtracted. `cells` is the number of floats per record on the
tape and in its gradient. `start` is public.

The last bits of a contribution may depend on the index of the record and on the number of records, as in products of
matrices. Callers always give a record the same index (`central.clients`).

Training uses a learner, which evaluates many agents at once. No operation of a learner mixes two records or two agents:

    outputs_of(weights, inputs)    φ (g, n, e) of records (g, n, d), or of (n, d) common to all weights (g, p)
    clipped_sums(weights, inputs, cotangents, bound, norm)
                                   (g, p) Σ_k min(1, bound/‖∇ℓ_k‖) ∇ℓ_k, with bits that do not depend on other agents;
                                   a record with an infinite or NaN gradient counts as zero
    named_weights(weights)         weights (p,) of one agent by the names of the same layers in torch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from decentral_dp.bounded import Array, Norm

# (height, width, channels) of an image record.
Image = tuple[int, int, int]


class Slope(NamedTuple):
    """Point at which per-example gradients are taken.

    Args:
        tape: tape of a forward pass.
        cotangents: cotangents, (n, e).
    """

    tape: Any
    cotangents: Array


@runtime_checkable
class Gathering(Protocol):
    """Model that sums the records of many evaluations at once: `clipped_sum` is `sum_parts` of `clipped_parts`."""

    def clipped_parts(self, slope: Slope, extra: Array, bound: float, since: Slope | None = None) -> tuple[Any, Array]:
        """Return the contributions of the records, in any form, and s (n,), as in `clipped_sum`."""
        ...

    def sum_parts(self, parts: Sequence[Any]) -> Array:
        """Return the sum of all contributions, (p,), in any order of summation."""
        ...


# Squares of numbers below 1e-154 underflow. This bounds the error of their root, for up to 10⁸ coordinates.
UNDERFLOW = 1e-150


def norm_sums(rows: Array, norm: Norm) -> Array:
    """Return the sums of squares (in l1, of absolute values) of rows (g, n, i), (g, n)."""
    return np.asarray(np.abs(rows).sum(axis=2) if norm == "l1" else np.einsum("gni,gni->gn", rows, rows))


def squares(extra: Array) -> Array:
    """Return the sum of squares of each row, (n,)."""
    return np.asarray(np.einsum("ij,ij->i", extra, extra))


Cotangents = Callable[[slice, slice, Array], Array]
"""Function of agents, records and outputs (g, n, e) that returns ∂ℓ/∂outputs (g, n, e)."""
