"""Robust problems by other means: plain loops and general solvers, sharing no code with the problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize, minimize_scalar
from scipy.spatial.distance import pdist

from decentral_dp.central.context import MinimaxContext
from decentral_dp.central.problems.composite import Labelled
from decentral_dp.central.problems.conjugates import PsiDivergence, divergence_of
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.saddle import Minimax

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A divergence: its name and parameters, ψ of one number, where ψ is finite, and how steep w is at most."""

    name: str
    parameters: dict[str, float]
    psi: Callable[[float], float]
    low: float = 0.0
    high: float = math.inf
    smoothness: float = math.inf

    def psi_anywhere(self, t: float) -> float:
        """ψ, +∞ where there is none."""
        return self.psi(t) if 0.0 <= t <= self.high else math.inf

    def made(self) -> PsiDivergence:
        return divergence_of(self.name, **self.parameters)

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.parameters.values())])


def _entropy(t: float) -> float:
    return t * math.log(t) - t + 1 if t > 0 else 1.0


def _cressie_read(k: float) -> Case:
    def psi(t: float) -> float:
        if t == 0:
            return 1 / k if k > 0 else math.inf
        with np.errstate(over="ignore"):
            return float((np.float64(t) ** k - k * t + k - 1) / (k * (k - 1)))

    return Case("cressie_read", {"order": k}, psi, 0.0 if k > 0 else 1e-12, smoothness=1.0 if k == 2.0 else math.inf)


CASES = [
    Case("chi2", {}, lambda t: (t - 1) ** 2 / 2, smoothness=1.0),
    Case("kl", {}, _entropy),
    Case("kl_cvar", {"level": 0.3}, _entropy, high=1 / 0.3, smoothness=1 / 0.3),
    Case("kl_cvar", {"level": 0.9}, _entropy, high=1 / 0.9, smoothness=1 / 0.9),
    Case("cvar", {"level": 0.4}, lambda t: 0.0, high=1 / 0.4),
    *(_cressie_read(k) for k in (1.5, 2.0, 3.0, 8.0, 0.5, -1.0, -3.0)),
]


def conjugate(case: Case, s: float, most: float = 1e5) -> float:
    """sup_t ts − ψ(t) over a fine grid, then by golden section around the best."""
    high = min(case.high, most)
    grid = np.concatenate([np.linspace(case.low, high, 4001), np.geomspace(1e-10, high, 2001)])
    grid = np.unique(np.clip(grid, case.low, high))
    values = [t * s - case.psi(float(t)) for t in grid]
    k = int(np.argmax(values))
    ends = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    near = minimize_scalar(
        lambda t: case.psi(float(t)) - t * s, bounds=ends, method="bounded", options={"xatol": 1e-13}
    )
    return max(values[k], -float(near.fun))


def penalised(case: Case, losses: Array, strength: float) -> float:
    """max_p Σ p ℓ − λ D(p, 1/n) over the simplex, by a linear program where D is a constraint alone, else by SLSQP."""
    n = len(losses)
    if case.name == "cvar":
        found = linprog(-losses, A_eq=np.ones((1, n)), b_eq=[1.0], bounds=[(0.0, case.high / n)] * n)
        return -float(found.fun)

    def value(p: Array) -> float:
        inside = np.clip(p * n, max(case.low, 1e-13), case.high)
        return -(p @ losses - strength * sum(case.psi(float(t)) for t in inside) / n)

    bounds = [(max(case.low, 1e-13) / n, min(case.high / n, 1.0))] * n
    constraint = {"type": "eq", "fun": lambda p: p.sum() - 1.0}
    options = {"maxiter": 2000, "ftol": 1e-14}
    starts = [np.full(n, 1.0 / n)]
    found = [minimize(value, p, bounds=bounds, constraints=constraint, options=options) for p in starts]
    return max(-float(f.fun) for f in found)


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
    "absolute": lambda o, b: abs(o[0] - b),
    "huber": lambda o, b: (o[0] - b) ** 2 / 2 if abs(o[0] - b) <= 1 else abs(o[0] - b) - 0.5,
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
