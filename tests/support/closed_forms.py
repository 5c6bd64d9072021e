"""Closed forms of the quadratic problem over all records of all agents: the limits of runs.

Every agent weighs 1/m, and each of its records 1/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.problems.bilevel.linear import Quadratic, QuadraticRecords

Agents = Sequence[tuple[Any, Any]]


class Optimum(NamedTuple):
    """x*: (p,), y*(x*): (q,), F(x*)."""

    x: Array
    y: Array
    value: float


@dataclass(frozen=True)
class QuadraticSolution:
    """Evaluate the closed forms of `Quadratic`, derived in its docstring."""

    problem: Quadratic

    def lower_solution(self, x: Array, agents: Agents) -> Array:
        """y*(x), (q,)."""
        curvature, linear = _moments([train for train, _ in agents])
        ridge = self.problem.ridge
        return np.asarray(np.linalg.solve(curvature + ridge * np.eye(self.problem.q), linear + ridge * x))

    def z_star(self, x: Array, agents: Agents) -> Array:
        """z*(x) = (∇²_yy g)⁻¹ ∇_y f at y*(x), (q,)."""
        curvature, _ = _moments([train for train, _ in agents])
        upper_curvature, upper_linear = _moments([validation for _, validation in agents])
        upper_grad = upper_curvature @ self.lower_solution(x, agents) - upper_linear
        return np.asarray(np.linalg.solve(curvature + self.problem.ridge * np.eye(self.problem.q), upper_grad))

    def hypergradient(self, x: Array, agents: Agents) -> Array:
        """∇F(x), (p,)."""
        return self.problem.ridge * self.z_star(x, agents)

    def upper_value(self, x: Array, agents: Agents) -> float:
        """F(x)."""
        y = self.lower_solution(x, agents)
        return float(np.mean([0.5 * np.mean(np.square(v.features @ y - v.label)) for _, v in agents]))


def optimum_of(job: Any) -> Optimum:
    """Return a minimiser of F: the one whose y*(x) is shortest, where Ā is singular and there are many."""
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    curvature, linear = _moments([train for train, _ in agents])
    upper_curvature, upper_linear = _moments([validation for _, validation in agents])
    y: Array = np.asarray(np.linalg.lstsq(upper_curvature, upper_linear)[0])
    x = y + (curvature @ y - linear) / job.problem.ridge
    return Optimum(x, y, QuadraticSolution(job.problem).upper_value(x, agents))


def _moments(shards: Sequence[QuadraticRecords]) -> tuple[Array, Array]:
    """(1/m) Σ_i mean_i a aᵀ and (1/m) Σ_i mean_i a b."""
    second = [s.features.T @ s.features / len(s.label) for s in shards]
    cross = [s.features.T @ s.label / len(s.label) for s in shards]
    return np.asarray(np.mean(second, axis=0)), np.asarray(np.mean(cross, axis=0))
