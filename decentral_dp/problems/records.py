"""Prepared records, NamedTuples of arrays whose first axis is the records: selection, records of many agents, joins.

`regulariser_matrices` forms the second derivatives of a regulariser from its products with directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.models.linear_terms import Joined
from decentral_dp.problems.protocol import Problem, Regulariser


def take(records: Any, index: slice | NDArray[np.int64]) -> Any:
    """Select records of a NamedTuple of (n, …) arrays, by a slice (without a copy) or by indices (k,)."""
    return type(records)(*(a[index] for a in records))


@dataclass(frozen=True, eq=False)
class ByAgent(Sequence[Any]):
    """Records of many agents in a few arrays.

    Args:
        records: NamedTuple of arrays (n, …), agent by agent.
        offsets: bounds of the agents' records, (m + 1,). Agent k has the records offsets[k] to offsets[k + 1] − 1.
    """

    records: Any
    offsets: NDArray[np.int64]

    @classmethod
    def from_shards(cls, records: Any, shards: Sequence[NDArray[np.int64]]) -> ByAgent:
        """Select the records of each agent, whose indices (n_i,) are given in `shards`."""
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
    """Train and validation records of m agents, as a sequence of m pairs."""

    train: Sequence[Any]
    validation: Sequence[Any]

    @classmethod
    def from_pairs(cls, agents: Sequence[tuple[Any, Any]]) -> RecordPairs:
        """Build the sequence from a list of pairs."""
        return agents if isinstance(agents, RecordPairs) else cls(*map(list, zip(*agents, strict=True)))

    def __len__(self) -> int:
        return len(self.train)

    def __getitem__(self, agent: int | slice) -> Any:
        pair = self.train[agent], self.validation[agent]
        return RecordPairs(*pair) if isinstance(agent, slice) else pair


def join_blocks(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Join the records of the agents of several blocks, one block after the other."""
    if not all(isinstance(part, ByAgent) for part in parts):
        return [records for part in parts for records in part]
    counts = np.concatenate([count_records(part) for part in parts])
    return ByAgent(concatenate([concatenate(part) for part in parts]), np.cumsum([0, *counts]))


def count_records(records: Sequence[Any]) -> NDArray[np.int64]:
    """Return the number of records of each agent, (m,)."""
    if isinstance(records, ByAgent):
        return np.diff(records.offsets)
    return np.array([len(part[0]) for part in records], dtype=np.int64)


def concatenate(parts: Sequence[Any]) -> Any:
    """Join the records of several parts, one part after the other.

    Args:
        parts: NamedTuples of arrays, at least one and all of one class.

    Returns:
        NamedTuple of the same class.

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
    """Return "rmse", and "r2" unless all labels are equal, from mean squared errors (b,)."""
    rmse = {"rmse": np.sqrt(squares)}
    return rmse | {"r2": 1.0 - squares / np.var(labels)} if np.ptp(labels) > 0.0 else rmse


def stacked_by_count(records: Sequence[Any], counts: NDArray[np.int64]) -> list[tuple[NDArray[np.int64] | slice, Any]]:
    """Stack the records of agents with the same number of records.

    Args:
        records: NamedTuples of arrays (n_i, …), one for each of b agents.
        counts: numbers of records n_i, (b,).

    Returns:
        For each number n, the g agents with n records and a NamedTuple of arrays (g, n, …).
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


def join_records(records: Any, counts: NDArray[np.int64]) -> Any:
    """Return records as arrays (1, N, …) with `Joined` rows as first field.

    Args:
        records: NamedTuple of arrays (N, …), agent by agent.
        counts: number of records of every agent, (b,).
    """
    first, *others = (a[None] for a in records)
    return type(records)(Joined(first, counts), *others)


class RegulariserMatrices(NamedTuple):
    """Second derivatives of a regulariser R at b points, data-independent.

    Args:
        hessian: Hessians ∇²_yy R, (b, q, q).
        jacobian: Jacobians ∇²_xy R, (b, p, q).
        product: products ∇²_yy R·Z, (b, q, p), or None without Z.
    """

    hessian: Array
    jacobian: Array
    product: Array | None


def regulariser_matrices(problem: Problem, x: Array, y: Array, matrix: Array | None) -> RegulariserMatrices:
    """Form the exact second derivatives of R, column by column, from `problem.regulariser`.

    Args:
        problem: problem with the regulariser.
        x: upper variables, (b, p).
        y: lower variables, (b, q).
        matrix: matrices Z, (b, q, p), or None for no product.

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
    """Return the regulariser's terms at one point along many directions (n, q)."""
    n = len(directions)
    return problem.regulariser(np.tile(x, (n, 1)), np.tile(y, (n, 1)), directions)
