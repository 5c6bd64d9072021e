"""Recursive estimates of gradients, of which nothing is kept that was not released (STORM).

A release ỹ_{t+1} = b_t − λ_t d_t + noise has a public base b_t, so that d̃_t = (b_t − ỹ_{t+1})/λ_t is d_t as it was
released, and

    d_t = g(c_t; ξ_t) + (1 − a) (d̃_{t−1} − g(c_{t−1}; ξ_t)),     d_0 = g(c_0; ξ_0),

with one batch ξ_t at both public points, is a function of released values and of this batch alone. A record's part in
it is one vector of norm (2 − a) C at most, so that a release moves by (2 − a) λ_t·2C/N_t, at the rate of its batch.

a = 1 is a gradient by itself. Without noise, and with all records in every round, d_t = g(c_t) for every a. With small
batches it averages over rounds; noise it averages as well, but adds up to 1/a times what one release has.

Reference: A. Cutkosky, F. Orabona, "Momentum-Based Variance Reduction in Non-Convex SGD", NeurIPS 2019, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms import vocabulary as dp


class Recursion(NamedTuple):
    """d by rounds. step: λ. fresh: a."""

    step: dp.StepSize
    fresh: float

    def past_weight(self, t: int) -> float:
        """1 − a; 0 where nothing of an estimate was released before."""
        return 1.0 - self.fresh if t and self.step(t - 1) > 0.0 else 0.0

    def series(self, rounds: int) -> dp.Array:
        """(T,) by how much clipped means enter a release: λ_t, and (2 − a) λ_t after the first."""
        return self.step.series(rounds) * (1.0 + np.array([self.past_weight(t) for t in range(rounds)]))

    def __call__(
        self, t: int, now: dp.Value, before: Callable[[], dp.Value], base: dp.Array, released: dp.Array
    ) -> dp.Value:
        """Return d_t.

        Args:
            t: the round.
            now: g(c_t).
            before: gives g(c_{t−1}), of the same batch.
            base: b_{t−1}.
            released: ỹ_t.
        """
        past = self.past_weight(t)
        return now + past * ((base - released) / self.step(t - 1) - before()) if past else now
