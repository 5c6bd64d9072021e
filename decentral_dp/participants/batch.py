"""One mean over records at a time: bounded queries at points of the algorithm's choosing.

A `Batch` is what an agent's gradients of one moment are means over: all records seen so far, or a fresh minibatch. At
public points every query comes back as a `Bounded` whose sensitivity is 2Cκ/N, or as a plain array where it reads no
record. At a private point (a `Bounded` argument) nothing is proven: its sensitivity is infinite.

With `times`, a public number or one for each agent, (b, 1), a query is that of the problem times this: every record's
contribution is multiplied before it is clipped to C, so that it moves by 2Cκ/N as without. κ has room for two more
roundings of a contribution, those of C/times and of the product. To clip gradients to a size that follows what was
released, ask for `times = C/size`, and multiply what was released by size/C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import MIXED, SPLITS, Array, Bounded, Sensitivity, Split, summation_slack
from decentral_dp.exchange import Value
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, Problem
from decentral_dp.problems.records import regulariser_matrices


class Group(NamedTuple):
    """Agents with equally many records. rows: which of the block. records: arrays (g, n, …). rates: (g,), as drawn."""

    rows: NDArray[np.int64] | slice
    records: Any
    rates: Array


class Batch:
    """Records per row and kind, and what drew them.

    draw: (kind, row) → records and the share of the pool that was drawn afresh for them, as the sampler states it.
    used: kind → (b,) how many are averaged. drawn: what identifies a fresh batch, None without sampling, MIXED if it
    lives on in a state, where sampling amplifies nothing. groups: kind → all rows, in groups of equally many records,
    for a problem that is `Stacked`.
    """

    def __init__(
        self,
        problem: Problem,
        clip: Clip,
        draw: Callable[[Split, int], tuple[Any, float]],
        used: Mapping[Split, NDArray[np.int64]],
        drawn: int | None,
        groups: Callable[[Split], list[Group]] | None = None,
    ) -> None:
        self._problem = problem
        self._clip = clip
        self._draw = draw
        self._used = used
        self._drawn = drawn
        self._seen: dict[Split, list[tuple[Any, float]]] = {}
        self._rows = len(used["train"])
        self._make_groups = groups
        self._stacks: dict[Split, list[Group]] = {}

    def lower_grad_y(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_y g, (b, q)."""
        return self._term("lower_grad_y", x, y, None, times)

    def lower_hvp(self, x: Value, y: Value, along: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g · along, (b, q)."""
        return self._term("lower_hvp", x, y, along, times)

    def lower_jvp(self, x: Value, y: Value, along: Value, times: float | Array = 1.0) -> Value:
        """∇²_xy g · along, (b, p)."""
        return self._term("lower_jvp", x, y, along, times)

    def upper_grad_y(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_y f, (b, q)."""
        return self._term("upper_grad_y", x, y, None, times)

    def upper_grad_x(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇_x f, (b, p)."""
        return self._term("upper_grad_x", x, y, None, times)

    def lower_hessian(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g, (b, q·q), row by row."""
        return self._matrix("lower_hessian", x, y, None, times)

    def lower_jacobian(self, x: Value, y: Value, times: float | Array = 1.0) -> Value:
        """∇²_xy g, (b, p·q), row by row."""
        return self._matrix("lower_jacobian", x, y, None, times)

    def lower_hessian_product(self, x: Value, y: Value, matrix: Value, times: float | Array = 1.0) -> Value:
        """∇²_yy g · Z for Z of shape (b, q·p), row by row."""
        return self._matrix("lower_hessian_product", x, y, matrix, times)

    def _term(self, term: str, x: Value, y: Value, along: Value | None, times: float | Array) -> Value:
        problem: Any = self._problem
        if not isinstance(times, float):
            self._check_times(times)
        split: Split | None = problem.reads_records.get(term)
        hidden = any(isinstance(v, Bounded) for v in (x, y, along))
        at = [_opened(v) for v in (x, y)]
        z = np.zeros_like(at[1]) if along is None else _opened(along)
        base = np.zeros_like(at[0] if CLIP_OF_TERM[term] == "x" else at[1])
        if term.startswith("lower_"):
            base = getattr(problem.regulariser(at[0], at[1], z), term.removeprefix("lower_"))
        mean = np.zeros_like(base)
        if split is not None and self._make_groups is not None:
            for rows, stack, clip in self._equally_clipped(split, times):
                some = problem.stacked_terms(at[0][rows], at[1][rows], z[rows], stack, clip, (term,))
                mean[rows] = getattr(some, term)
        elif split is not None:
            for row, (records, _) in enumerate(self._records(split)):
                # In the place of the other kind, of which nothing is wanted, the same.
                clip = self._clip.divided(_of_row(times, row))
                terms = problem.terms(at[0][row], at[1][row], z[row], records, records, clip, (term,))
                mean[row] = getattr(terms, term)
        return self._bounded(term, split, base, mean, hidden, times)

    def _equally_clipped(self, split: Split, times: float | Array) -> list[tuple[NDArray[np.int64] | slice, Any, Clip]]:
        """Groups of agents with equally many records, and with one factor: rows, records and their clip."""
        if isinstance(times, float):
            clip = self._clip if times == 1.0 else self._clip.divided(times)
            return [(rows, stack, clip) for rows, stack, _ in self._groups(split)]
        out: list[tuple[NDArray[np.int64] | slice, Any, Clip]] = []
        for rows, stack, _ in self._groups(split):
            each = np.broadcast_to(np.asarray(times, dtype=np.float64).reshape(-1), (self._rows,))[rows]
            numbers = np.arange(self._rows)[rows]
            for factor in np.unique(each):
                chosen = np.flatnonzero(each == factor)
                some = type(stack)(*(column[chosen] for column in stack))
                out.append((numbers[chosen], some, self._clip.divided(float(factor))))
        return out

    def _matrix(self, name: str, x: Value, y: Value, matrix: Value | None, times: float | Array) -> Value:
        if not isinstance(times, float):
            self._check_times(times)
        problem, split = self._problem, self._problem.reads_records.get(MATRICES[name])
        hidden = any(isinstance(v, Bounded) for v in (x, y, matrix))
        at = [_opened(v) for v in (x, y)]
        z = None if matrix is None else _opened(matrix).reshape(self._rows, problem.q, problem.p)
        exact = getattr(
            regulariser_matrices(problem, at[0], at[1], z), name.removeprefix("lower_hessian_").removeprefix("lower_")
        )
        mean = np.zeros_like(exact)
        if split is not None:
            for row, (records, _) in enumerate(self._records(split)):
                along = None if z is None else z[row]
                clip = self._clip.divided(_of_row(times, row))
                mean[row] = problem.matrices(at[0][row], at[1][row], along, records, clip, (name,))[name]
        flat = (self._rows, -1)
        return self._bounded(name, split, exact.reshape(flat), mean.reshape(flat), hidden, times)

    def _bounded(
        self, term: str, split: Split | None, base: Array, mean: Array, hidden: bool, times: float | Array
    ) -> Value:
        if not isinstance(times, float) or times != 1.0:
            base, mean = times * base, times * mean
        if hidden:
            nothing_proven = Sensitivity(np.full(self._rows, np.inf), np.ones(self._rows), None)
            private = base + mean
            return Bounded(np.zeros_like(private), private, dict.fromkeys(SPLITS, nothing_proven), self._clip.norm)
        if split is None:
            return base
        rates = np.ones(self._rows)
        if self._drawn is not None and self._drawn != MIXED:
            rates = self._rates(split)
        sensitivity = mean_sensitivity(
            self._clip.bound(CLIP_OF_TERM[term]), self._used[split], base.shape[1], rates, self._drawn
        )
        return Bounded(base, mean, {split: sensitivity}, self._clip.norm)

    def _check_times(self, times: Any) -> None:
        """Refuse a factor that is not public, or not one for each agent."""
        if isinstance(times, Bounded):
            raise TypeError("times depends on records; a factor of every contribution is public")
        if np.shape(times) not in ((), (self._rows, 1)):
            raise ValueError(f"times has the shape {np.shape(times)}, wanted one number or one each, ({self._rows}, 1)")

    def _rates(self, split: Split) -> Array:
        """(b,) what drew the records states."""
        if self._make_groups is None:
            return np.array([rate for _, rate in self._records(split)])
        rates = np.ones(self._rows)
        for rows, _, some in self._groups(split):
            rates[rows] = some
        return rates

    def _groups(self, split: Split) -> list[Group]:
        """All rows, drawn once."""
        if split not in self._stacks and self._make_groups is not None:
            self._stacks[split] = self._make_groups(split)
        return self._stacks[split]

    def _records(self, split: Split) -> list[tuple[Any, float]]:
        """Per row, drawn once."""
        if split not in self._seen:
            self._seen[split] = [self._draw(split, row) for row in range(self._rows)]
        return self._seen[split]


def mean_sensitivity(bound: float, used: NDArray[np.int64], width: int, rates: Array, drawn: int | None) -> Sensitivity:
    """Bound what one replaced record does to a mean of clipped contributions: 2Cκ/N.

    Args:
        bound: C, the clip of a contribution.
        used: (b,) N, records averaged.
        width: coordinates of the mean.
        rates: (b,) sampling rates.
        drawn: number of the batch, or `MIXED`; None where no minibatch is drawn.
    """
    return Sensitivity(2.0 * bound / used * summation_slack(used, width), rates, drawn)


def _of_row(times: float | Array, row: int) -> float:
    return times if isinstance(times, float) else float(np.asarray(times).reshape(-1)[row if np.size(times) > 1 else 0])


def _opened(value: Value) -> Array:
    return value.value if isinstance(value, Bounded) else value
