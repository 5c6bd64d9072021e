"""Robust problems by other means: plain loops and general solvers, sharing no code with the problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import pdist

from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.problems.composite import Labelled
from decentral_dp.central.problems.dro import DIVERGENCES, PsiDivergence
from decentral_dp.central.problems.saddle import Minimax
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import Clip

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A divergence: its name, ψ of one number, and how steep w is at most."""

    name: str
    psi: Callable[[float], float]
    smoothness: float = math.inf

    def made(self) -> PsiDivergence:
        return DIVERGENCES[self.name]

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("chi2", lambda t: (t - 1) ** 2 / 2, smoothness=1.0),
    Case("kl", lambda t: t * math.log(t) - t + 1 if t > 0 else 1.0),
]


def conjugate(case: Case, s: float, most: float = 1e5) -> float:
    """sup_t ts − ψ(t) over a fine grid, then by golden section around the best."""
    grid = np.unique(np.concatenate([np.linspace(0.0, most, 4001), np.geomspace(1e-10, most, 2001)]))
    values = [t * s - case.psi(float(t)) for t in grid]
    k = int(np.argmax(values))
    ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    near = minimize_scalar(
        lambda t: case.psi(float(t)) - t * s, bounds=ends, method="bounded", options={"xatol": 1e-13}
    )
    return max(values[k], -float(near.fun))


def penalised(case: Case, losses: Array, strength: float) -> float:
    """max_p Σ p ℓ − λ D(p, 1/n) over the simplex, by SLSQP."""
    n = len(losses)

    def value(p: Array) -> float:
        return -(p @ losses - strength * sum(case.psi(float(t)) for t in np.clip(p * n, 1e-13, None)) / n)

    found = minimize(
        value,
        np.full(n, 1.0 / n),
        bounds=[(1e-13 / n, 1.0)] * n,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return -float(found.fun)


def in_ball(losses: Array, radius: float) -> float:
    """max_p Σ p ℓ over KL(p, 1/n) ≤ ρ, by SLSQP."""
    n = len(losses)

    def divergence_from_uniform(p: Array) -> float:
        q = np.clip(p, 1e-300, None)
        return radius - float(np.sum(q * np.log(n * q)))

    found = minimize(
        lambda p: -p @ losses,
        np.full(n, 1.0 / n) + 1e-3 * (losses - losses.mean()) / (1.0 + np.ptp(losses)) / n,
        jac=lambda p: -losses,
        bounds=[(1e-13, 1.0)] * n,
        constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1.0}, {"type": "ineq", "fun": divergence_from_uniform}],
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    return -float(found.fun)


# Losses of one record, by the names of the scenario: outputs as a list, and a label.
LOSSES: dict[str, Callable[[Array, float], float]] = {
    "cross_entropy": lambda o, b: math.log(sum(math.exp(v) for v in o)) - o[int(b)],
    "logistic": lambda o, b: math.log1p(math.exp(-o[0] if b == 1 else o[0])),
    "squared": lambda o, b: (o[0] - b) ** 2,
}


def linear_losses(name: str, cap: float, outputs: int, x: Array, records: Labelled) -> Array:
    """Losses of a linear model, cut to [0, cap], record by record."""
    out = []
    for row, label in zip(records.inputs, records.labels, strict=True):
        o = x.reshape(outputs, -1) @ np.append(row, 1.0)
        out.append(min(max(LOSSES[name](o, float(label)), 0.0), cap))
    return np.array(out)


def slope(f: Callable[[Array], float], x: Array, h: float = 1e-6) -> Array:
    """Central differences, (p,)."""
    steps = np.eye(x.size) * h
    return np.array([(f(x + e) - f(x - e)) / (2 * h) for e in steps])


def context_of(problem: Minimax, n: int, clip: float = 1.0, agents: int = 1) -> MinimaxContext:
    return MinimaxContext(problem, {"train": n, "validation": 0}, agents, Clip("l2", x=clip))


def released(context: MinimaxContext, asked: ClippedQuery, records: Any) -> Array:
    """The mean before noise, as the context reads the agents' answer; of all records that are given."""
    (total,) = context.problem.sums(records, [asked])
    centre = 0.0 if asked.centre is None else asked.centre
    return np.asarray(total / (asked.rate * context.n) + centre)


def furthest(context: MinimaxContext, asked: ClippedQuery, data_sets: list[Any]) -> float:
    """The longest way between the means of any two neighbouring data sets: all differ in one record."""
    return float(pdist(np.array([released(context, asked, w) for w in data_sets])).max())
