"""The exact lower solution, z* and hypergradient of any problem: what the metric `hypergradient_norm` compares with.

    y*(x) = argmin_y g(x, y),     z*(x) = (∇²_yy g)⁻¹ ∇_y f,     ∇F(x) = ∇_x f − ∇²_xy g·z*,

with f and g the means over agents, all at y*(x). Reads every agent's records, unclipped: it belongs to the
simulator's view, never to a release.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from decentral_dp.bounded import Array
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import Problem, stacked
from decentral_dp.problems.records import take

Agents: TypeAlias = Sequence[tuple[Any, Any]]

NEWTON_STEPS = 60
HALVINGS = 30
CG_STEPS_PER_DIMENSION = 10
# Where more are needed, as at an x that has run away, nothing is reported.
MOST_CG_STEPS = 1000
# Up to this dimension one Hessian in closed form costs less than the products of conjugate gradients.
MOST_FORMED = 128


# One product with a Hessian that has no closed form makes a row for each record, and a solve takes up to thousands of
# products: above so many numbers in the rows together it takes minutes.
MOST_NUMBERS = 10**6


class Share(NamedTuple):
    """Records of agents with equal counts, joined: the mean over them is the mean of the agents' means.

    weight: how many of all agents, as a share. train, validation: joined records.
    """

    weight: float
    train: Any
    validation: Any


def solved_quickly(problem: Problem, records: int) -> bool:
    """Whether an exact lower solution takes seconds at most, by public counts alone. records: of all agents' train."""
    return stacked(problem) is not None or problem.q * records <= MOST_NUMBERS


def join_alike(agents: Agents) -> list[Share]:
    """Agents' (train, validation) records, joined where the counts are equal, so that few oracle calls cover all."""
    groups: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
    for train, validation in agents:
        groups.setdefault((len(train[0]), len(validation[0])), []).append((train, validation))
    return [
        Share(len(group) / len(agents), _joined([t for t, _ in group]), _joined([v for _, v in group]))
        for group in groups.values()
    ]


def solve_lower(problem: Problem, x: Array, agents: Agents, tolerance: float = 1e-10) -> Array:
    """Solve the lower level by Newton's method from 0, its systems by conjugate gradients.

    Args:
        problem: any bilevel problem.
        x: (p,).
        agents: (train, validation) records of each, not clipped.
        tolerance: steps are halved until ‖∇_y g‖ ≤ tolerance·‖∇_y g(x, 0)‖; default 1e-10.

    Returns:
        y*(x), (q,); NaN where that is not reached, which for a strongly convex g means overflow.
    """
    return _lower(problem, x, _at(problem, x, join_alike(agents)), tolerance)


def solve_inverse_hvp(problem: Problem, x: Array, y: Array, agents: Agents, tolerance: float = 1e-10) -> Array:
    """Compute z = (∇²_yy g(x, y))⁻¹ ∇_y f(x, y) by conjugate gradients.

    Args:
        problem: any bilevel problem.
        x: (p,).
        y: (q,).
        agents: (train, validation) records of each, not clipped.
        tolerance: of the solve; default 1e-10.

    Returns:
        (q,); NaN where they do not converge.
    """
    return _inverse_hvp(problem, x, y, _at(problem, x, join_alike(agents)), tolerance)


def hypergradient(problem: Problem, x: Array, y: Array, z: Array, agents: Agents) -> Array:
    """Compute ∇_x f(x, y) − ∇²_xy g(x, y)·z: the gradient of F where y = y*(x) and z = z*(x).

    Args:
        problem: any bilevel problem.
        x: (p,).
        y: (q,).
        z: (q,).
        agents: (train, validation) records of each, not clipped.

    Returns:
        (p,).
    """
    return _hypergradient(problem, x, y, z, join_alike(agents))


def true_hypergradient(problem: Problem, x: Array, agents: Agents, tolerance: float = 1e-10) -> Array:
    """Compute ∇F(x): the lower solution, the inverse Hessian, and the gradient of both.

    Args:
        problem: any bilevel problem.
        x: (p,).
        agents: (train, validation) records of each, not clipped.
        tolerance: of both solves; default 1e-10.

    Returns:
        (p,); NaN where a solve does not converge.
    """
    return hypergradient_of_joined(problem, x, join_alike(agents), tolerance)


def hypergradient_of_joined(problem: Problem, x: Array, shares: Sequence[Share], tolerance: float = 1e-10) -> Array:
    """As `true_hypergradient`, of records that `join_alike` has joined."""
    below = _at(problem, x, shares)
    y = _lower(problem, x, below, tolerance)
    z = _inverse_hvp(problem, x, y, below, tolerance)
    return _hypergradient(problem, x, y, z, shares)


def _at(problem: Problem, x: Array, shares: Sequence[Share]) -> list[Share]:
    """The records as the lower level sees them at this x: where x embeds them, once and not in every product."""
    embed = getattr(problem, "embed", None)
    if embed is None:
        return list(shares)
    return [Share(s.weight, embed(x, s.train), embed(x, s.validation)) for s in shares]


def _joined(records: Sequence[Any]) -> Any:
    first = records[0]
    return (
        first if len(records) == 1 else type(first)(*(np.concatenate(column) for column in zip(*records, strict=True)))
    )


def _mean(problem: Problem, x: Array, y: Array, z: Array, shares: Sequence[Share], term: str, dimension: int) -> Array:
    """Mean over agents of one unclipped term; zero where the term touches no record."""
    total = np.zeros(dimension)
    # The oracle reads both kinds; a single record of the kind that the term does not need costs nothing.
    few = slice(0, 1)
    for share in shares:
        train = share.train if term.startswith("lower") else take(share.train, few)
        validation = share.validation if term.startswith("upper") else take(share.validation, few)
        value = getattr(problem.terms(x, y, z, train, validation, Clip(), (term,)), term)
        if value is not None:
            total += share.weight * value
    return total


def _lower_gradient(problem: Problem, x: Array, y: Array, shares: Sequence[Share]) -> Array:
    rows = x[None], y[None], np.zeros_like(y)[None]
    records = _mean(problem, x, y, np.zeros_like(y), shares, "lower_grad_y", problem.q)
    return np.asarray(records + problem.regulariser(*rows).grad_y[0])


def _hessian(problem: Problem, x: Array, y: Array, shares: Sequence[Share]) -> Callable[[Array], Array]:
    def product(z: Array) -> Array:
        direction = np.asarray(z, dtype=np.float64).reshape(-1)
        records = _mean(problem, x, y, direction, shares, "lower_hvp", problem.q)
        return np.asarray(records + problem.regulariser(x[None], y[None], direction[None]).hvp[0])

    return product


def _formed_hessian(problem: Problem, x: Array, y: Array, shares: Sequence[Share]) -> Array:
    """∇²_yy g(x, y), (q, q)."""
    q = problem.q
    alike = np.broadcast_to(x, (q, x.size)), np.broadcast_to(y, (q, q))
    total = np.array(problem.regulariser(*alike, np.eye(q)).hvp)
    for share in shares:
        found = problem.matrices(x, y, None, share.train, Clip(), ("lower_hessian",))
        if "lower_hessian" in found:
            total += share.weight * found["lower_hessian"]
    return total


def _solve(problem: Problem, x: Array, y: Array, shares: Sequence[Share], target: Array, tolerance: float) -> Array:
    """(∇²_yy g)⁻¹ target: by Cholesky's method where the Hessian is small and has a closed form, else by gradients.

    These are preconditioned by what the regulariser puts on the diagonal: exp(x) spans many decades.
    """
    q = problem.q
    if not np.isfinite(target).all():
        return np.full(q, np.nan)
    if q <= MOST_FORMED and stacked(problem) is not None:
        try:
            return np.asarray(cho_solve(cho_factor(_formed_hessian(problem, x, y, shares)), target))
        except (LinAlgError, ValueError):
            # Singular to the last digit, or not finite: products may still do.
            pass
    product = _hessian(problem, x, y, shares)
    ones = np.ones(q)
    diagonal = problem.regulariser(x[None], y[None], ones[None]).hvp[0]
    size = float(target @ target)
    records = _mean(problem, x, y, target, shares, "lower_hvp", q)
    diagonal = diagonal + (float(target @ records) / size if size > 0 else 0.0)
    usable = bool(np.isfinite(diagonal).all() and (diagonal > 0).all())
    preconditioner = LinearOperator((q, q), matvec=lambda v: v.reshape(-1) / diagonal) if usable else None
    solution, failed = cg(
        LinearOperator((q, q), matvec=product, dtype=np.float64),
        target,
        rtol=tolerance,
        atol=0.0,
        maxiter=min(CG_STEPS_PER_DIMENSION * q, MOST_CG_STEPS),
        M=preconditioner,
    )
    return np.full(q, np.nan) if failed else np.asarray(solution)


def _lower(problem: Problem, x: Array, shares: Sequence[Share], tolerance: float) -> Array:
    nowhere = np.full(problem.q, np.nan)
    y = np.zeros(problem.q)
    gradient = _lower_gradient(problem, x, y, shares)
    size = start = float(np.linalg.norm(gradient))
    for _ in range(NEWTON_STEPS):
        if not np.isfinite(size):
            return nowhere
        if size <= tolerance * start:
            return y
        # A rough direction far from the solution, an accurate one near it, where Newton converges quadratically.
        step = _solve(problem, x, y, shares, gradient, tolerance=max(1e-8, min(0.1, size / start)))
        for halving in range(HALVINGS):
            candidate = y - 0.5**halving * step
            gradient = _lower_gradient(problem, x, candidate, shares)
            smaller = float(np.linalg.norm(gradient))
            if smaller < size:
                break
        else:
            return nowhere
        y, size = candidate, smaller
    return nowhere


def _inverse_hvp(problem: Problem, x: Array, y: Array, shares: Sequence[Share], tolerance: float) -> Array:
    return _solve(
        problem, x, y, shares, _mean(problem, x, y, np.zeros(problem.q), shares, "upper_grad_y", problem.q), tolerance
    )


def _hypergradient(problem: Problem, x: Array, y: Array, z: Array, shares: Sequence[Share]) -> Array:
    direct = _mean(problem, x, y, z, shares, "upper_grad_x", problem.p)
    through = _mean(problem, x, y, z, shares, "lower_jvp", problem.p)
    return np.asarray(direct - through - problem.regulariser(x[None], y[None], z[None]).jvp[0])
