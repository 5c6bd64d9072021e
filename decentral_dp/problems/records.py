"""Prepared records, NamedTuples of arrays whose first axis is the records: parts of them, those of many agents, joins.

Beside them the second derivatives of a regulariser as matrices, from its products with directions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.problems.protocol import Problem, Regulariser


def select_split(wanted: Collection[str], train: Any, validation: Any) -> tuple[Any, Any]:
    """The records of both kinds, none of a kind that no wanted term reads."""
    lower = any(term.startswith("lower_") for term in wanted)
    upper = any(term.startswith("upper_") for term in wanted)
    return (train if lower else take(train, slice(0))), (validation if upper else take(validation, slice(0)))


def take(records: Any, index: slice | NDArray[np.int64]) -> Any:
    """The chosen records of a NamedTuple of (n, …) arrays, by a slice, which costs no copy, or (k,) numbers."""
    return type(records)(*(a[index] for a in records))


@dataclass(frozen=True, eq=False)
class ByAgent(Sequence[Any]):
    """The records of each of many agents, kept as one: a million agents are a few arrays, not millions.

    Args:
        records: a NamedTuple of arrays (n, …), agent by agent.
        offsets: (m + 1,) agent k has the records offsets[k] up to, but without, offsets[k + 1].
    """

    records: Any
    offsets: NDArray[np.int64]

    @classmethod
    def from_shards(cls, records: Any, shards: Sequence[NDArray[np.int64]]) -> ByAgent:
        """Choose the records of each agent. shards: of each agent, the (n_i,) numbers of its records among all."""
        return cls(take(records, np.concatenate(shards)), np.cumsum([0, *map(len, shards)]))

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, agent: int | slice) -> Any:
        if isinstance(agent, slice):
            first, after, _ = agent.indices(len(self))
            ends = self.offsets[first : after + 1]
            return ByAgent(take(self.records, slice(ends[0], ends[-1])), ends - ends[0])
        k = range(len(self))[agent]
        return take(self.records, slice(self.offsets[k], self.offsets[k + 1]))


@dataclass(frozen=True, eq=False)
class RecordPairs(Sequence[tuple[Any, Any]]):
    """The train and the validation records of each of m agents, as a sequence of m pairs."""

    train: Sequence[Any]
    validation: Sequence[Any]

    @classmethod
    def from_pairs(cls, agents: Sequence[tuple[Any, Any]]) -> RecordPairs:
        """The same of a list of pairs."""
        return agents if isinstance(agents, RecordPairs) else cls(*map(list, zip(*agents, strict=True)))

    def __len__(self) -> int:
        return len(self.train)

    def __getitem__(self, agent: int | slice) -> Any:
        pair = self.train[agent], self.validation[agent]
        return RecordPairs(*pair) if isinstance(agent, slice) else pair


def count_records(records: Sequence[Any]) -> NDArray[np.int64]:
    """(m,) how many records each agent has."""
    if isinstance(records, ByAgent):
        return np.diff(records.offsets)
    return np.array([len(own[0]) for own in records], dtype=np.int64)


def concatenate(parts: Sequence[Any]) -> Any:
    """Join the records of several parts, one part after the other.

    Args:
        parts: NamedTuples of arrays, at least one and all of one class.

    Returns:
        One such NamedTuple.

    Example:
        >>> from decentral_dp.problems.bilevel.means import MeanRecords
        >>> part = MeanRecords(np.ones((1, 2)), np.ones(1), np.ones(1))
        >>> concatenate([part, part])[0].shape
        (2, 2)
    """
    if isinstance(parts, ByAgent):
        return parts.records
    return type(parts[0])(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def fit_scores(squares: Array, labels: Array) -> dict[str, Array]:
    """ "rmse" and "r2" of mean squared errors (b,); labels that are all equal leave rounding, and no variance."""
    rmse = {"rmse": np.sqrt(squares)}
    return rmse | {"r2": 1.0 - squares / np.var(labels)} if np.ptp(labels) > 0.0 else rmse


def stacked_by_count(records: Sequence[Any], counts: NDArray[np.int64]) -> list[tuple[NDArray[np.int64] | slice, Any]]:
    """Stack the records of agents that have equally many.

    Args:
        records: of each of b agents, NamedTuples of arrays (n_i, …).
        counts: (b,) n_i.

    Returns:
        For each number n: which g agents have so many, and their records as a NamedTuple of arrays (g, n, …).
    """
    if isinstance(records, ByAgent) and counts.size and (counts == counts[0]).all():
        shape = (counts.size, int(counts[0]))
        return [(slice(None), type(records.records)(*(a.reshape(*shape, *a.shape[1:]) for a in records.records)))]
    out: list[tuple[NDArray[np.int64] | slice, Any]] = []
    for count in np.unique(counts):
        members = np.flatnonzero(counts == count)
        some = [records[int(row)] for row in members]
        stack = type(some[0])(*(np.stack(arrays) for arrays in zip(*some, strict=True)))
        out.append((slice(None) if members.size == counts.size else members, stack))
    return out


class RegulariserMatrices(NamedTuple):
    """Second derivatives of a regulariser R, data-independent, one for each of b points.

    Args:
        hessian: ∇²_yy R, (b, q, q).
        jacobian: ∇²_xy R, (b, p, q).
        product: ∇²_yy R·Z, (b, q, p); None where no Z was given.
    """

    hessian: Array
    jacobian: Array
    product: Array | None


def regulariser_matrices(problem: Problem, x: Array, y: Array, matrix: Array | None) -> RegulariserMatrices:
    """Form the second derivatives of R, column by column from `problem.regulariser`; exact, and never clipped.

    Args:
        problem: with the regulariser.
        x: (b, p).
        y: (b, q).
        matrix: Z (b, q, p), or None where no product is wanted.

    Returns:
        The matrices of every row.
    """
    b, q, units = len(y), problem.q, np.eye(problem.q)
    hessian, jacobian = np.empty((b, q, q)), np.empty((b, problem.p, q))
    product = None if matrix is None else np.empty((b, q, problem.p))
    for row in range(b):
        along = _regulariser_along(problem, x[row], y[row], units)
        hessian[row], jacobian[row] = along.hvp.T, along.jvp.T
        if matrix is not None and product is not None:
            product[row] = _regulariser_along(problem, x[row], y[row], matrix[row].T).hvp.T
    return RegulariserMatrices(hessian, jacobian, product)


def _regulariser_along(problem: Problem, x: Array, y: Array, directions: Array) -> Regulariser:
    """The regulariser's terms at one point along many directions (n, q)."""
    n = len(directions)
    return problem.regulariser(np.tile(x, (n, 1)), np.tile(y, (n, 1)), directions)
