"""Record streams: which records a round reads, and the batch it draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import FloatArray, IntArray

StreamKind = Literal["accumulate", "all", "minibatch", "poisson", "turns"]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """A batch and the event it is priced as, from one place so that they cannot disagree.

    Args:
        index: (B,) positions in the pool, in an order that is drawn with them.
        rate: B/n, the share of the pool in a batch without replacement.
    """

    index: IntArray
    rate: float


@dataclass(frozen=True, slots=True)
class Stream:
    """What an agent averages over at round t = 0, 1, …, of its n records of one kind (train, or validation).

    All kinds depend on public counts alone, never on what was drawn.

    Args:
        kind: "all", the default: N_t = n. "accumulate": the first N_t = min(n, warm_start + (t+1)·batch), in file order
            (the paper's f_{i,t} and g_{i,t}). "minibatch": min(batch, n) records drawn afresh without replacement.
            "poisson": every record by its own secret coin. "turns": the next min(batch, n) records of a public order,
            round the clock.
        batch: records of a round; None for "all" and "poisson".
        warm_start: records there before round 0, default 0.
        share: q, the probability of a coin of "poisson".

    Limits:
        Which options fit which kind, the scenario's table says (`StreamTable`).

    Example:
        >>> arriving = Stream("accumulate", batch=2, warm_start=1)
        >>> arriving.pool_sizes(np.arange(4), 6).tolist()
        [3, 5, 6, 6]
        >>> drawn = Stream("minibatch", batch=5)
        >>> int(drawn.pool_sizes(0, 20)), int(drawn.averaged_counts(0, 20)), float(drawn.rate(0, 20))
        (20, 5, 0.25)
    """

    kind: StreamKind = "all"
    batch: int | None = None
    warm_start: int = 0
    share: float | None = None

    def pool_sizes(self, t: int | IntArray, n: int | IntArray) -> IntArray:
        """Count the records that a round may read, the pool of a minibatch included: N_t.

        Args:
            t: round, from 0: a number, or of a shape that broadcasts with n.
            n: records of the agent, or of each of several, at least 1.

        Returns:
            Of the shape that t and n broadcast to.
        """
        pool = np.asarray(n, dtype=np.int64)
        rounds = np.asarray(t, dtype=np.int64)
        if self.kind != "accumulate":
            return pool + np.zeros_like(rounds)
        # Each factor is capped at n first, which changes nothing in the minimum and keeps the product from overflowing.
        step = np.minimum(self._batch, pool)
        reached = np.minimum(self.warm_start, pool) + (np.minimum(rounds, pool) + 1) * step
        return np.asarray(np.minimum(pool, reached), dtype=np.int64)

    def averaged_counts(self, t: int | IntArray, n: int | IntArray) -> IntArray:
        """Count the records that the mean of round t is over: N_t, min(batch, n) for a minibatch and for turns.

        Of "poisson" the pool, of which the share is drawn on average.
        """
        pool = self.pool_sizes(t, n)
        return np.minimum(self._batch, pool) if self.picks else pool

    def least_gap(self, n: int | IntArray) -> int:
        """Bound from below how many rounds lie between two reads of one record, of n records or of each of these n.

        Turns of B records read the record at place j in the rounds ⌊(j + kn)/B⌋, k = 0, 1, …, at least ⌊n/B⌋ apart.
        Any other kind may read it in every round: 1.

        Example:
            >>> Stream("turns", batch=3).least_gap(np.array([10, 12])), Stream("turns", batch=8).least_gap(10)
            (3, 1)
        """
        pool = np.asarray(n, dtype=np.int64)
        return int((pool // np.minimum(self._batch, pool)).min()) if self.kind == "turns" else 1

    def reads(self, n: int, rounds: int) -> NDArray[np.bool_]:
        """Which of so many rounds read a record in turn, (n/gcd(B, n), rounds): of places that differ in that.

        Example:
            >>> Stream("turns", batch=2).reads(4, 3).astype(int).tolist()
            [[1, 0, 1], [0, 1, 0]]
        """
        size = min(self.batch or n, n)
        place = np.arange(0, n, math.gcd(size, n))[:, None]
        return np.asarray((place - size * np.arange(rounds)) % n < size)

    def rate(self, t: int | IntArray, n: int | IntArray) -> FloatArray:
        """Return the share of the pool that round t draws afresh, 1 where all take part, shaped as `pool_sizes`."""
        if self.kind == "poisson":
            return np.full(self.pool_sizes(t, n).shape, self.share)
        if self.kind != "minibatch":
            return np.ones(self.pool_sizes(t, n).shape)
        return np.asarray(self.averaged_counts(t, n) / self.pool_sizes(t, n), dtype=np.float64)

    @property
    def picks(self) -> bool:
        """Whether a round reads `batch` of all records: fresh ones, or those whose turn it is."""
        return self.kind in ("minibatch", "turns")

    @property
    def _batch(self) -> int:
        return self.batch or 0


def draw_batch(n: int, batch: int, generator: np.random.Generator) -> Draw:
    """Draw min(batch, n) of n records, every subset of that size in every order equally likely.

    A record is rounded by its place in a batch. In an order of its own, such a batch without one record is the batch
    with it, in whose place another one stands: nobody else moves (docs/proofs/10).

    Args:
        n: records of the pool, at least 1.
        batch: how many to draw, at least 1.
        generator: fresh for every round, keyed for that agent, kind and round.

    Returns:
        The indices, which must stay secret, with the sampling rate they are priced at.

    Limits:
        batch ≥ n draws all records at rate 1, in the order of the file.

    Example:
        >>> batch = draw_batch(10, 3, np.random.default_rng(0))
        >>> batch.index.size, batch.rate
        (3, 0.3)
    """
    if batch >= n:
        return Draw(np.arange(n), 1.0)
    return Draw(generator.permutation(generator.choice(n, batch, replace=False, shuffle=False)), batch / n)
