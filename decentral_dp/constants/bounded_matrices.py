"""Values as matrices, laid out flat and row by row, for algorithms that send second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from decentral_dp.bounded import SPLITS, Array, Bounded, Sensitivity


def transposed(value: Array | Bounded, rows: int, columns: int) -> Array | Bounded:
    """Transpose matrices that are laid out flat: (b, rows·columns) → (b, columns·rows).

    Args:
        value: (b, rows·columns), an array or bounded.
        rows: of the matrices as given.
        columns: of the matrices as given.

    Sensitivity:
        The same: entries only change places, so no entrywise norm changes.

    Example:
        >>> transposed(np.arange(6.0)[None], rows=2, columns=3).tolist()
        [[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]]
    """
    if isinstance(value, Bounded):
        public, private = (_transpose(part, rows, columns) for part in (value.public, value.private))
        return replace(value, public=public, private=private)
    return _transpose(value, rows, columns)


def unproven(function: Callable[..., Array], *values: Array | Bounded) -> Array | Bounded:
    """Apply a function of which nothing is proven, row by row; for private states.

    Args:
        function: of arrays, each row by itself.
        values: arrays or bounded values.

    Returns:
        An array if all values are arrays, else a bounded value.

    Sensitivity:
        Infinite for every kind of record that can move any of the values, and zero for one that can move none.
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
