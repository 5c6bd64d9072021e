from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array

def clip(coefficients: Array, norms: Array, bound: float, least: float, /) -> None: ...
def forward(rows: Array, /, *vectors: Array) -> tuple[Array, ...]: ...
def clipped_sums(
    rows: Array,
    norms: Array,
    bounds: Sequence[float],
    smallest: float,
    least: float,
    divisor: float,
    /,
    *coefficients: Array,
) -> tuple[Array, ...]: ...
def logistic(exp_t: Array, along: Array | None, /) -> Array: ...
def strengths(e: Array, y: Array, z: Array, /) -> tuple[Array, Array, Array]: ...
def mix(
    ends: NDArray[np.int64], columns: NDArray[np.int64], weights: Array, messages: Array, out: Array, /
) -> None: ...
def step(kept: Array, own: Array, near: Array, size: float, direction: Array, /) -> Array: ...
