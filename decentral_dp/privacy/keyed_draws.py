"""One draw of each of several agents: standard variates from their keyed streams, one stream after another.

`_variates.c` makes them in one call for all agents, where this package was built with a C compiler. Without it numpy
makes the same numbers, to the bit, in one call for each agent; and where the numpy at hand draws otherwise than the
one that was built with.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from types import ModuleType
from typing import Literal

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.randomness import Philox, Streams

try:
    from decentral_dp.privacy import _variates
except ImportError:
    _variates = None  # type: ignore[assignment]  # it is optional

# U(0, 1) on multiples of 2⁻⁵³; Exp(1); N(0, 1).
Law = Literal["uniform", "exponential", "normal"]


class Draws:
    """The generators of some agents, each positioned at one draw of its own.

    They go on from where they stopped, so that a draw may be made in parts. Without the compiled module only that of a
    single agent may.

    Args:
        streams: of the agents.
        index: of the release.
        tag: of its channels.
        rows: of the agents among the streams; all by default.

    Example:
        >>> streams, noise = Streams(b"root", "noise", agents=[0, 1]), np.empty((2, 3))
        >>> Draws(streams, index=1, tag=7).fill(("normal", noise))
        >>> bool((noise[1] == streams.at(1, index=1, tag=7).standard_normal(3)).all())
        True
    """

    def __init__(self, streams: Streams, index: int, tag: int, rows: slice = slice(None)) -> None:
        self._streams, self._index, self._tag = streams, index, tag
        self._rows = range(*rows.indices(len(streams)))
        source = streams.source
        self._keys = source.keys[rows] if isinstance(source, Philox) else source.ciphers(tag)[rows]
        self._used = np.zeros((len(self._rows), 1), dtype=np.uint64)
        self._generators: Iterator[np.random.Generator] | None = None

    def fill(self, *asked: tuple[Law, Array]) -> None:
        """Fill arrays with standard variates, each agent's rows in the order of the arrays.

        Args:
            asked: laws and arrays, (b, …) for b agents, overwritten; all but the first axis of an array of more than
                two axes are contiguous.
        """
        module = _compiled
        if module is None:
            self._fill_by_numpy(asked)
            return
        for law, array in asked:
            kind = getattr(module, law.upper())
            rows = array if array.ndim == 2 else array.reshape(len(array), -1)
            if isinstance(self._keys, list):
                module.fill_secret(self._keys, self._used, self._index, kind, rows)
            else:
                module.fill(self._keys, self._used, self._index, self._tag, kind, rows)

    def _fill_by_numpy(self, asked: tuple[tuple[Law, Array], ...]) -> None:
        if self._generators is None:
            alone = len(self._rows) == 1
            self._generators = repeat(next(self.generators())) if alone else self.generators()
        for row in range(len(self._rows)):
            generator = next(self._generators, None)
            if generator is None:
                raise ValueError("a draw of several agents was asked for in parts")
            for law, array in asked:
                if law == "uniform":
                    generator.random(out=array[row])
                elif law == "exponential":
                    generator.standard_exponential(out=array[row])
                else:
                    generator.standard_normal(out=array[row])

    def generators(self) -> Iterator[np.random.Generator]:
        """Give numpy's generator of each agent in turn, at the beginning of its draw, valid until the next."""
        return (self._streams.at(row, self._index, self._tag) for row in self._rows)


def _as_numpy_draws(module: ModuleType) -> bool:
    """Whether the compiled module and the numpy at hand make the same numbers, thousands of each law."""
    streams, ours, numpys = Streams(b"", "comparison", [0, 1]), np.empty((2, 2048)), np.empty((2, 2048))
    asked: tuple[Law, ...] = ("exponential", "uniform", "normal")
    keys = Draws(streams, 1, 0)._keys
    for tag, law in enumerate(asked):
        used = np.zeros((2, 1), dtype=np.uint64)
        module.fill(keys, used, 1, tag, getattr(module, law.upper()), ours)
        Draws(streams, 1, tag)._fill_by_numpy(((law, numpys),))
        if not np.array_equal(ours, numpys):
            return False
    return True


_compiled: ModuleType | None = _variates if _variates is not None and _as_numpy_draws(_variates) else None
