"""Hypergradients and their parts from agents' records, as tests ask for them; the package joins the records first."""

from __future__ import annotations

from decentral_dp.bounded import Array
from decentral_dp.problems.lower_level import (
    Agents,
    LowerLevel,
    join_alike,
    partial_hypergradient,
)
from decentral_dp.problems.protocol import Problem


def solve_inverse_hvp(problem: Problem, x: Array, y: Array, agents: Agents) -> Array:
    """z = (∇²_yy g(x, y))⁻¹ ∇_y f(x, y), (q,)."""
    return LowerLevel.from_point(problem, x, join_alike(agents)).inverse_hvp(y)


def hypergradient(problem: Problem, x: Array, y: Array, z: Array, agents: Agents) -> Array:
    """∇_x f(x, y) − ∇²_xy g(x, y)·z, (p,)."""
    return partial_hypergradient(problem, x, y, z, join_alike(agents))


def true_hypergradient(problem: Problem, x: Array, agents: Agents, tolerance: float = 1e-10) -> Array:
    """∇F(x), (p,); NaN where a solve does not converge."""
    shares = join_alike(agents)
    level = LowerLevel.from_point(problem, x, shares)
    y = level.minimiser(tolerance)
    return partial_hypergradient(problem, x, y, level.inverse_hvp(y, tolerance), shares)
