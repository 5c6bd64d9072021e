"""Exact lower solution, z* and hypergradient of any problem, for its metrics.

    y*(x) = argmin_y g(x, y),     z*(x) = (∇²_yy g)⁻¹ ∇_y f,     ∇F(x) = ∇_x f − ∇²_xy g·z*,

with f and g the means over agents, all at y*(x). This is a non-private evaluation, not covered by ε: it reads every
agent's records without clipping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy

from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CLIP_OF_TERM, Problem, as_stacked
from decentral_dp.problems.records import RecordPairs, concatenate, count_records, regulariser_matrices, take

Agents: TypeAlias = Sequence[tuple[Any, Any]]

NEWTON_STEPS = 60
HALVINGS = 30
CG_STEPS_PER_DIMENSION = 10
# Nothing is reported beyond these limits, for example at a diverged x.
MOST_CG_STEPS = 1000
# Up to this dimension one Hessian costs less than the products of conjugate gradients.
MOST_FORMED = 128
# Records per call of a mean.
CHUNK = 2048
UNCLIPPED = Clip("l2")


def mean_term(problem: Problem, x: Array, y: Array, z: Array, records: Any, term: str) -> Array:
    """Compute the mean of one term over records of the split that it reads.

    Args:
        problem: bilevel problem.
        x: upper variable, (p,).
        y: lower variable, (q,).
        z: direction of lower_hvp and lower_jvp, (q,).
        records: n unclipped records.
        term: term of the problem.

    Returns:
        The mean, (q,) or (p,), or 0 if it reads no record.
    """
    total = np.zeros(problem.p if CLIP_OF_TERM[term] == "x" else problem.q)
    if term not in problem.reads_records:
        return total
    n, at_once = len(records[0]), as_stacked(problem)
    full = 0 if at_once is None else n // CHUNK
    if at_once is not None and full:
        # Full chunks are stacked like agents with equal numbers of records.
        chunks = type(records)(*(a[: full * CHUNK].reshape(full, CHUNK, *a.shape[1:]) for a in records))
        xs, ys, zs = (np.broadcast_to(v, (full, v.size)) for v in (x, y, z))
        with np.errstate(all="ignore"):
            values = getattr(at_once.stacked_terms(xs, ys, zs, chunks, UNCLIPPED, (term,)), term)
        total += (values * (CHUNK / n)).sum(axis=0)
    for chunk, share in _chunks(records, full * CHUNK):
        # No term of the other split is requested, so its records are arbitrary.
        total += getattr(problem.terms(x, y, z, chunk, chunk, UNCLIPPED, (term,)), term) * share
    return total


def _chunks(records: Any, first: int = 0) -> Iterator[tuple[Any, float]]:
    """Yield `CHUNK` records at a time, and their share of all records."""
    n = len(records[0])
    for start in range(first, n, CHUNK):
        chunk = take(records, slice(start, start + CHUNK))
        yield chunk, len(chunk[0]) / n


def mean_hessian(problem: Problem, x: Array, y: Array, records: Any) -> Array:
    """Compute the mean of the records' ∇²_yy l.

    Args:
        problem: bilevel problem.
        x: upper variable, (p,).
        y: lower variable, (q,).
        records: n unclipped records.

    Returns:
        The mean, (q, q), or 0 if it reads no record.
    """
    total = np.zeros((problem.q, problem.q))
    if "lower_hvp" in problem.reads_records:
        for chunk, share in _chunks(records):
            total += problem.matrices(x, y, None, chunk, UNCLIPPED, ("lower_hessian",))["lower_hessian"] * share
    return total


def mean_losses(problem: Problem, xs: Array, ys: Array, records: Any) -> Array:
    """Compute mean upper losses at several points.

    Args:
        problem: bilevel problem.
        xs: upper variables, (b, p).
        ys: lower variables, (b, q).
        records: n records.

    Returns:
        The mean losses (b,), for the rows of xs and ys.
    """
    total = np.zeros(len(ys))
    for chunk, share in _chunks(records):
        size = len(chunk[0])
        total += problem.losses(xs, ys, chunk, np.full(size, 1.0 / size))[1] * share
    return total


class Share(NamedTuple):
    """Joined records of agents with equal counts, so that the mean over them is the mean of the agents' means.

    Args:
        weights: share of these agents in the objective, by split.
        train, validation: joined records.
    """

    weights: Mapping[Split, float]
    train: Any
    validation: Any


def join_alike(agents: Agents, weights: Mapping[Split, Array] = MappingProxyType({})) -> list[Share]:
    """Join the (train, validation) records of agents with equal counts, to reduce the number of oracle calls.

    Args:
        agents: records of each agent.
        weights: factors of the agents in each split, (m,), equal for equal counts. The default is all ones.
    """
    pairs = RecordPairs.from_pairs(agents)
    counts = np.stack([count_records(pairs.train), count_records(pairs.validation)])
    if (counts == counts[:, :1]).all():
        return [Share(dict.fromkeys(SPLITS, 1.0), concatenate(pairs.train), concatenate(pairs.validation))]
    groups: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
    factors_of: dict[tuple[int, int], dict[Split, float]] = {}
    for k, (train, validation) in enumerate(agents):
        sizes = len(train[0]), len(validation[0])
        groups.setdefault(sizes, []).append((train, validation))
        factors_of[sizes] = {split: float(weights[split][k]) if split in weights else 1.0 for split in SPLITS}
    return [
        Share(
            {split: factor * len(group) / len(agents) for split, factor in factors_of[sizes].items()},
            concatenate([t for t, _ in group]),
            concatenate([v for _, v in group]),
        )
        for sizes, group in groups.items()
    ]


class LowerLevel(NamedTuple):
    """Lower level at one x, over agents' joined records, without clipping.

    Args:
        problem: any bilevel problem.
        x: upper variable, (p,).
        shares: joined records, embedded at x if the problem embeds its records.
    """

    problem: Problem
    x: Array
    shares: Sequence[Share]

    @classmethod
    def from_point(cls, problem: Problem, x: Array, shares: Sequence[Share]) -> LowerLevel:
        """Build the lower level at x (p,), with records embedded once instead of in every product."""
        embed = getattr(problem, "embed", None)
        if embed is None:
            return cls(problem, x, shares)
        return cls(problem, x, [Share(s.weights, embed(x, s.train), embed(x, s.validation)) for s in shares])

    def mean(self, y: Array, z: Array, term: str) -> Array:
        """Return the mean over agents of one unclipped term, (q,) or (p,), or 0 if it reads no record."""
        split: Split = "train" if term.startswith("lower") else "validation"
        parts = [s.weights[split] * mean_term(self.problem, self.x, y, z, getattr(s, split), term) for s in self.shares]
        return np.asarray(sum(parts[1:], parts[0]))

    def regulariser(self, y: Array, z: Array) -> Any:
        return self.problem.regulariser(self.x[None], y[None], z[None])

    def gradient(self, y: Array) -> Array:
        """Return ∇_y g(x, y), (q,)."""
        none = np.zeros_like(y)
        return np.asarray(self.mean(y, none, "lower_grad_y") + self.regulariser(y, none).grad_y[0])

    def product(self, y: Array, z: Array) -> Array:
        """Return ∇²_yy g(x, y) z, (q,)."""
        return np.asarray(self.mean(y, z, "lower_hvp") + self.regulariser(y, z).hvp[0])

    def hessian(self, y: Array) -> Array:
        """Return ∇²_yy g(x, y), (q, q)."""
        parts = [s.weights["train"] * mean_hessian(self.problem, self.x, y, s.train) for s in self.shares]
        return sum(parts, regulariser_matrices(self.problem, self.x[None], y[None], None).hessian[0])

    def solve(self, y: Array, target: Array, tolerance: float) -> Array:
        """Return (∇²_yy g)⁻¹ target, (q,), by elimination for a small Hessian, otherwise by conjugate gradients.

        The preconditioner is the diagonal of the regulariser, because exp(x) spans many decades.

        Args:
            y: point of the Hessian, (q,).
            target: right-hand side, (q,).
            tolerance: tolerance of the residual of conjugate gradients, relative to the target.
        """
        q = self.problem.q
        if not np.isfinite(target).all():
            return np.full(q, np.nan)
        if q <= MOST_FORMED and as_stacked(self.problem) is not None:
            hessian = self.hessian(y)
            # Conjugate gradients may still succeed if it is singular or not finite.
            with suppress(np.linalg.LinAlgError):
                if np.isfinite(hessian).all():
                    # Raises unless positive definite; importing scipy's solver takes longer than the systems of a run.
                    np.linalg.cholesky(hessian)
                    return np.asarray(np.linalg.solve(hessian, target), dtype=np.float64)
        diagonal = self.regulariser(y, np.ones(q)).hvp[0]
        size = float(target @ target)
        diagonal = diagonal + (float(target @ self.mean(y, target, "lower_hvp")) / size if size > 0 else 0.0)
        usable = bool(np.isfinite(diagonal).all() and (diagonal > 0).all())
        sparse = scipy.sparse.linalg
        preconditioner = sparse.LinearOperator((q, q), matvec=lambda v: v.reshape(-1) / diagonal) if usable else None
        solution, status = sparse.cg(
            sparse.LinearOperator((q, q), matvec=lambda z: self.product(y, z.reshape(-1)), dtype=np.float64),
            target,
            rtol=tolerance,
            atol=0.0,
            maxiter=min(CG_STEPS_PER_DIMENSION * q, MOST_CG_STEPS),
            M=preconditioner,
        )
        return np.full(q, np.nan) if status else np.asarray(solution)

    def minimiser(self, tolerance: float = 1e-10) -> Array:
        """Return y*(x), (q,), by Newton's method from 0.

        Args:
            tolerance: relative tolerance. Steps are taken until ‖∇_y g‖ ≤ tolerance·‖∇_y g(x, 0)‖.

        Returns:
            The minimiser, or NaN if the method does not converge. For a strongly convex g this means overflow.
        """
        nowhere, y = np.full(self.problem.q, np.nan), np.zeros(self.problem.q)
        gradient = self.gradient(y)
        size = first = float(np.linalg.norm(gradient))
        for _ in range(NEWTON_STEPS):
            if not np.isfinite(size):
                return nowhere
            if size <= tolerance * first:
                return y
            # A rough direction far from the solution, an accurate one near it, where Newton converges quadratically;
            # no more accurate than the solution.
            accuracy = max(1e-8, 0.5 * tolerance * first / size, min(0.1, size / first))
            step = self.solve(y, gradient, accuracy)
            for halving in range(HALVINGS):
                candidate = y - 0.5**halving * step
                gradient = self.gradient(candidate)
                smaller = float(np.linalg.norm(gradient))
                if smaller < size:
                    break
            else:
                return nowhere
            y, size = candidate, smaller
        return nowhere

    def inverse_hvp(self, y: Array, tolerance: float = 1e-10) -> Array:
        """Return z = (∇²_yy g(x, y))⁻¹ ∇_y f(x, y), (q,), or NaN without convergence.

        Args:
            y: lower variable, (q,).
            tolerance: relative tolerance.
        """
        return self.solve(y, self.mean(y, np.zeros(self.problem.q), "upper_grad_y"), tolerance)


def solve_lower(
    problem: Problem,
    x: Array,
    agents: Agents,
    tolerance: float = 1e-10,
    weights: Mapping[Split, Array] = MappingProxyType({}),
) -> Array:
    """Solve the lower level, as `LowerLevel.minimiser` does.

    Args:
        problem: any bilevel problem.
        x: upper variable, (p,).
        agents: unclipped train and validation records of each agent.
        tolerance: relative tolerance of the solve.
        weights: see `join_alike`.
    """
    return LowerLevel.from_point(problem, x, join_alike(agents, weights)).minimiser(tolerance)


def partial_hypergradient(problem: Problem, x: Array, y: Array, z: Array, shares: Sequence[Share]) -> Array:
    """Compute ∇_x f(x, y) − ∇²_xy g(x, y)·z, (p,), which is the gradient of F if y = y*(x) and z = z*(x)."""
    level = LowerLevel(problem, x, shares)
    direct, through = level.mean(y, z, "upper_grad_x"), level.mean(y, z, "lower_jvp")
    return np.asarray(direct - through - level.regulariser(y, z).jvp[0])
