"""The last released values of a block, and their mean, which runs publish and evaluate."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from decentral_dp.bounded import Array


class RecentValues:
    """The last K values, channel → (b, d), numbered from 0 in the order of their rounds.

    The mean at an evaluation adds up sums of √K consecutive values, each formed once: about 3 √K arrays in place of K.
    These sums begin at multiples of √K, so that a block that goes on from its state adds up in the same order.

    Args:
        length: K.

    Example:
        >>> recent = RecentValues(4)
        >>> for value in range(10):
        ...     recent.append({"y": np.full((1, 1), float(value))})
        >>> recent.mean(9)["y"], recent.values[0]["y"]
        (array([[7.5]]), array([[6.]]))
    """

    def __init__(self, length: int) -> None:
        self.values: deque[Mapping[str, Array]] = deque(maxlen=length)
        self._step = max(1, math.isqrt(length))
        # k → the sum of the values k √K, …, (k + 1) √K − 1.
        self._sums: dict[int, dict[str, Array]] = {}

    def append(self, value: Mapping[str, Array]) -> None:
        """Take the value of the next round; the oldest one goes."""
        self.values.append(value)

    def mean(self, newest: int) -> dict[str, Array]:
        """The mean of what is kept; the start, value 0, counts only where there is nothing else.

        Args:
            newest: number of the newest value.
        """
        values, step = list(self.values), self._step
        # Number of the oldest value kept, and of the first that counts.
        oldest = newest + 1 - len(values)
        first = min(max(1, oldest), newest)
        whole = range(-(-first // step), (newest + 1) // step)
        self._sums = {
            k: self._sums[k] if k in self._sums else _sums(values[k * step - oldest : (k + 1) * step - oldest])
            for k in whole
        }
        if not whole:
            return _divide(_sums(values[first - oldest :]), newest + 1 - first)
        before, after = values[first - oldest : whole.start * step - oldest], values[whole.stop * step - oldest :]
        return _divide(_sums([*before, *self._sums.values(), *after]), newest + 1 - first)


def _sums(values: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    sums = {channel: np.array(value) for channel, value in values[0].items()}
    for other in values[1:]:
        for channel, total in sums.items():
            total += other[channel]
    return sums


def _divide(sums: Mapping[str, Array], count: int) -> dict[str, Array]:
    return {channel: total / count for channel, total in sums.items()}
