"""What a problem offers: per-record terms, data-independent terms, and values to evaluate.

The problem is  min_x F(x) = (1/m) Σ_i f_i(x, y*(x)),  y*(x) = argmin_y (1/m) Σ_i g_i(x, y), where f_i is the mean of
the upper per-record loss h over agent i's validation records and g_i is the mean of the lower per-record loss l over
its train records plus a data-independent regulariser R(x, y). Per record the algorithms need five directions:

    lower_grad_y = ∇_y l (q)      lower_hvp = ∇²_yy l · z (q)     lower_jvp = ∇²_xy l · z (p)      train records
    upper_grad_y = ∇_y h (q)      upper_grad_x = ∇_x h (p)                                          validation records

and of the regulariser  ∇_y R,  ∇²_yy R · z,  ∇²_xy R · z, which are exact and never clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.sensitivity import Array, Constants, Kind, Norm

TERMS = ("lower_grad_y", "lower_hvp", "lower_jvp", "upper_grad_y", "upper_grad_x")


class Terms(NamedTuple):
    """Clipped per-record means of one agent; None where the term touches no record (it is identically zero)."""

    lower_grad_y: Array | None = None
    lower_hvp: Array | None = None
    lower_jvp: Array | None = None
    upper_grad_y: Array | None = None
    upper_grad_x: Array | None = None


class Regulariser(NamedTuple):
    """Data-independent terms, row-wise: ∇_y R (b, q), ∇²_yy R·z (b, q), ∇²_xy R·z (b, p)."""

    grad_y: Array
    hvp: Array
    jvp: Array


class Problem(Protocol):
    """A bilevel problem.

    p, q: dimensions of x and y. `touches` names, for every term that reads records, the kind it reads; a term that is
    not listed touches no data and is free. `records` below is whatever `prepare` returned: a NamedTuple of arrays
    whose first axis is the records, so that a prefix or a sample of it is again such a tuple.
    """

    @property
    def p(self) -> int: ...

    @property
    def q(self) -> int: ...

    @property
    def touches(self) -> Mapping[str, Kind]: ...

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """Records in the form the oracle reads, with whatever per-record norms it needs to clip in one pass."""
        ...

    def terms(self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip) -> Terms:
        """Means over the given records of the clipped per-record terms, for one agent.

        x: (p,), y: (q,), z: (q,). Every per-record term has norm at most its clip; a non-finite contribution counts
        as zero; the divisor is the number of records given.
        """
        ...

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """Exact data-independent terms; x: (b, p), y and z: (b, q)."""
        ...

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> tuple[Array, Array]:
        """Weighted means over records of (l, h) at each row of x (b, p) and y (b, q): two (b,) arrays.

        weights: (N,) non-negative, summing to one. The regulariser value is not included.
        """
        ...

    def regulariser_value(self, x: Array, y: Array) -> Array:
        """R(x, y) per row, (b,)."""
        ...

    def accuracy(self, y: Array, records: Any) -> Array | None:
        """Share of records classified rightly by each row of y, (b,); None where the problem classifies nothing."""
        ...

    def constants(self, box: Mapping[str, float], radius: float | None) -> Constants | None:
        """Analytic l1 constants for arguments boxed at ±box (x capped above by box["x"]) and ‖record‖₁ ≤ radius.

        None where there are none: missing boxes, unbounded records, or a family without analytic constants.
        """
        ...


def take(records: Any, index: slice | NDArray[np.int64]) -> Any:
    """The chosen records of a NamedTuple of arrays. A slice costs no copy."""
    return type(records)(*(a[index] for a in records))
