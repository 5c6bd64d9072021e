"""What a minimax problem may offer a trusted coordinator besides, and how its sums are taken part by part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.exchange import ClippedQuery
from decentral_dp.problems.saddle import Minimax


@runtime_checkable
class Pooling(Protocol):
    """A problem that sums over records which are evaluated apart, and adds them up at once."""

    def sums_over(
        self, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
    ) -> list[Array]:
        """What `sums` gives for each (records, drawn), added up."""
        ...


@runtime_checkable
class Dual(Protocol):
    """A problem with the best y in closed form. "dual" is among its terms."""

    def dual(self, statistic: Array) -> Array:
        """The best y at x, from the mean of the term "dual" over all records, (q,)."""
        ...


@runtime_checkable
class Compositional(Protocol):
    """A problem whose gradients follow from three means: of "inner" (1), of "inner_x" (p), ∇_x of it, and of "inner_y"
    (q), ∂_y of it. It has no grad_x and no grad_y.
    """

    def outer(self, y: Array, inner: Array, inner_x: Array, inner_y: Array) -> tuple[Array, Array]:
        """Form the gradients from the three means, or from estimates of them.

        Args:
            y: (q,).
            inner: (1,) mean of "inner".
            inner_x: (p,) mean of "inner_x".
            inner_y: (q,) mean of "inner_y".

        Returns:
            ∇_x F (p,) and the direction in which y improves (q,).

        Limits:
            An estimate that lies where no mean can is taken for the nearest that can be.
        """
        ...


def sum_over_parts(
    problem: Minimax, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
) -> list[Array]:
    """Sum over records that are evaluated apart.

    A class that overrides `sums` and inherits `sums_over` has changed its mathematics in one of two places: what it
    inherits is not used.

    Args:
        problem: of the records.
        parts: (records, which of them count) of each evaluation.
        queries: what is summed.

    Returns:
        (width,) for each query.
    """
    order = type(problem).__mro__
    single, over = (next((k for k, c in enumerate(order) if n in vars(c)), len(order)) for n in ("sums", "sums_over"))
    if isinstance(problem, Pooling) and over <= single:
        return problem.sums_over(parts, queries)
    totals = [np.zeros(problem.width(q.term)) for q in queries]
    for records, drawn in parts:
        for total, part_sum in zip(totals, problem.sums(records, queries, drawn), strict=True):
            total += part_sum
    return totals
