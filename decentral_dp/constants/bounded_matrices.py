"""Values as matrices, laid out flat and row by row: what algorithms that send second derivatives do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Bounded, Sensitivity


def transposed(value: Array | Bounded, rows: int, columns: int) -> Array | Bounded:
    """(b, rows·columns) → (b, columns·rows). Entries only change places, so no entrywise norm changes."""
    if isinstance(value, Bounded):
        public, private = (_transpose(part, rows, columns) for part in (value.public, value.private))
        return replace(value, public=public, private=private)
    return _transpose(value, rows, columns)


def unproven(function: Callable[..., Array], *values: Array | Bounded) -> Array | Bounded:
    """function(*values), where it works row by row; for private states of which nothing is proven.

    An array if all values are arrays. Else its sensitivity is infinite for every kind of record that can move any of
    the values, and zero for one that can move none.
    """
    bounded = [v for v in values if isinstance(v, Bounded)]
    result = function(*(v.value if isinstance(v, Bounded) else v for v in values))
    if not bounded:
        return result
    sensitivities = {}
    for split in SPLITS:
        moves = np.zeros(len(result), dtype=bool)
        for v in bounded:
            moves |= v.sensitivities[split].sensitivity > 0.0 if split in v.sensitivities else False
        sensitivities[split] = Sensitivity(np.where(moves, np.inf, 0.0), np.ones(len(result)), None)
    return Bounded(np.zeros_like(result), result, sensitivities, bounded[0].norm)


def _transpose(flat: Array, rows: int, columns: int) -> Array:
    return flat.reshape(-1, rows, columns).transpose(0, 2, 1).reshape(len(flat), rows * columns)
