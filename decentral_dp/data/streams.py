"""Record streams: the records that a round reads and the batch that it draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from decentral_dp.data.dataset import FloatArray, IntArray

SamplingKind = Literal["streaming", "full", "fixed_batch", "poisson", "cyclic"]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """Batch with its sampling rate.

    Args:
        index: indices into the pool, (B,), in a random order.
        rate: rate B/n, the fraction of the pool that is drawn without replacement.
    """

    index: IntArray
    rate: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """Records, among an agent's n records of one split, over which the agent averages in round t = 0, 1, ….

    Every kind depends only on public counts.

    Args:
        kind: kind of sampling. "full" reads all records, N_t = n. "streaming" reads the first N_t = min(n, warm_start +
            (t+1)·batch) records in file order (the paper's f_{i,t} and g_{i,t}). "fixed_batch" draws min(batch, n)
            records without replacement in every round. "poisson" draws every record with probability `share`. "cyclic"
            reads the next min(batch, n) records in a public cyclic order.
        batch: number of records per round, or None for "full" and "poisson".
        warm_start: number of records available before round 0.
        share: sampling probability q of "poisson".

    Limits:
        `SamplingTable` validates the options of each kind.

    Example:
        >>> arriving = Sampling("streaming", batch=2, warm_start=1)
        >>> arriving.pool_sizes(np.arange(4), 6).tolist()
        [3, 5, 6, 6]
        >>> drawn = Sampling("fixed_batch", batch=5)
        >>> int(drawn.pool_sizes(0, 20)), int(drawn.averaged_counts(0, 20)), float(drawn.rate(0, 20))
        (20, 5, 0.25)
    """

    kind: SamplingKind = "full"
    batch: int | None = None
    warm_start: int = 0
    share: float | None = None

    def pool_sizes(self, t: int | IntArray, n: int | IntArray) -> IntArray:
        """Count the records N_t that a round may read, which include the whole pool of a minibatch.

        Args:
            t: round, from 0; a number, or an array that broadcasts with n.
            n: number of records of the agent, or of each agent, at least 1.

        Returns:
            Counts in the broadcast shape of t and n.
        """
        pool = np.asarray(n, dtype=np.int64)
        rounds = np.asarray(t, dtype=np.int64)
        if self.kind != "streaming":
            return pool + np.zeros_like(rounds)
        # The cap at n avoids overflow and does not change the minimum.
        step = np.minimum(self._batch, pool)
        pool_end = np.minimum(self.warm_start, pool) + (np.minimum(rounds, pool) + 1) * step
        return np.asarray(np.minimum(pool, pool_end), dtype=np.int64)

    def averaged_counts(self, t: int | IntArray, n: int | IntArray) -> IntArray:
        """Count the records in the average of round t: N_t, or min(batch, n) for "fixed_batch" and "cyclic".

        For "poisson" it is the size of the pool, of which a fraction `share` is drawn in expectation.
        """
        pool = self.pool_sizes(t, n)
        return np.minimum(self._batch, pool) if self.picks else pool

    def least_gap(self, n: int | IntArray) -> int:
        """Return a lower bound on the number of rounds between two reads of the same record.

        "cyclic" with batches of B records reads record j in the rounds ⌊(j + kn)/B⌋, k = 0, 1, …, at least ⌊n/B⌋ apart.
        Every other kind may read a record in every round, so the bound is 1.

        Args:
            n: number of records of one agent, or of each agent.

        Example:
            >>> Sampling("cyclic", batch=3).least_gap(np.array([10, 12])), Sampling("cyclic", batch=8).least_gap(10)
            (3, 1)
        """
        pool = np.asarray(n, dtype=np.int64)
        return int((pool // np.minimum(self._batch, pool)).min()) if self.kind == "cyclic" else 1

    def reads(self, n: int, rounds: int) -> NDArray[np.bool_]:
        """Return whether "cyclic" reads a record in each round, (n/gcd(B, n), rounds), by class of equal indices.

        Example:
            >>> Sampling("cyclic", batch=2).reads(4, 3).astype(int).tolist()
            [[1, 0, 1], [0, 1, 0]]
        """
        size = min(self.batch or n, n)
        place = np.arange(0, n, math.gcd(size, n))[:, None]
        return np.asarray((place - size * np.arange(rounds)) % n < size)

    def rate(self, t: int | IntArray, n: int | IntArray) -> FloatArray:
        """Return the sampling rate of round t, shaped as in `pool_sizes`. It is 1 if all records take part."""
        if self.kind == "poisson":
            return np.full(self.pool_sizes(t, n).shape, self.share)
        if self.kind != "fixed_batch":
            return np.ones(self.pool_sizes(t, n).shape)
        return np.asarray(self.averaged_counts(t, n) / self.pool_sizes(t, n), dtype=np.float64)

    @property
    def picks(self) -> bool:
        """Whether a round reads `batch` of all records, either drawn at random or in a public order."""
        return self.kind in ("fixed_batch", "cyclic")

    @property
    def _batch(self) -> int:
        return self.batch or 0


def draw_batch(n: int, batch: int, generator: np.random.Generator) -> Draw:
    """Draw min(batch, n) of n records, so that every subset in every order has equal probability.

    Rounding depends on the index of a record in the batch. In a random order, all other records keep their indices if
    one record is exchanged (docs/proofs/10).

    Args:
        n: number of records of the pool, at least 1.
        batch: number of records to draw, at least 1.
        generator: generator of this agent, split and round.

    Returns:
        The indices, which must stay secret, and the sampling rate. If batch ≥ n, all records are returned in file
        order, with rate 1.

    Example:
        >>> batch = draw_batch(10, 3, np.random.default_rng(0))
        >>> batch.index.size, batch.rate
        (3, 0.3)
    """
    if batch >= n:
        return Draw(np.arange(n), 1.0)
    return Draw(generator.permutation(generator.choice(n, batch, replace=False, shuffle=False)), batch / n)
