"""Reference solution of a bilevel problem or of one-level training, for the y axis of optimisation papers.

If y is trained at a constant x, with x̄ and ȳ the means of the agents' published values and g the train loss with its
regulariser, its mean over agents, or over all records with problem.weights = "records",

    optimality_gap        g(x̄, ȳ) − min_y g(x̄, y)
    distance_to_solution  ‖ȳ − y*‖₂, y* = argmin_y g(x̄, y)
    stationarity          ‖∇_y g(x̄, ȳ)‖₂²

and if x is trained, with F(x) = f(x, y*(x)), y*(x) = argmin_y g(x, y) and f the same mean of validation losses,

    value_function        F(x̄)
    optimality_gap        F(x̄) − F(x*), x* a minimiser of F
    distance_to_solution  ‖x̄ − x*‖₂
    stationarity          ‖∇F(x̄)‖₂²

Heterogeneity of the agents is, at both levels,

    heterogeneity              ζ² = (1/m) Σ_i ‖∇_y g_i − ∇_y g‖₂² at (x̄, ȳ), with g_i times w_i if agents have weights
    heterogeneity_at_solution  the same at the solution: (x̄, y*), or (x*, y*(x*)) of a bilevel problem

Nothing is clipped, and nothing is private: the solution, by L-BFGS from the start, reads all train and validation
records. If the objective is not convex, the solution is a local minimum. The gap may then be negative, and
`stationarity` is the usual measure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from decentral_dp.bounded import Array
from decentral_dp.problems.lower_level import Agents, LowerLevel, Share, mean_term, partial_hypergradient
from decentral_dp.problems.protocol import Problem

REFERENCE_MEASURES = (
    *("optimality_gap", "distance_to_solution", "value_function", "stationarity"),
    *("heterogeneity", "heterogeneity_at_solution"),
)
# Relative tolerance of gradients: ‖∇‖ ≤ TOLERANCE·‖∇ at the start‖.
TOLERANCE = 1e-9
_MOST_STEPS = 5000
_MOST_CACHED = 32
_cache: OrderedDict[str, ReferenceSolution] = OrderedDict()


class ReferenceSolution(NamedTuple):
    """Minimiser (d,) and minimum."""

    point: Array
    value: float


class ReferenceObjective(NamedTuple):
    """Objective function that a problem minimises, without clipping.

    Args:
        problem: bilevel problem, whose model does not correct its log-odds for clipping.
        shares: the agents' joined records.
        one_level: whether y is trained at a fixed x, instead of x with y = y*(x).
        weights: factors of the agents' lower gradients, (m,), which the shares also contain. None (the default) means
            all ones.
    """

    problem: Problem
    shares: Sequence[Share]
    one_level: bool
    weights: Array | None = None

    def lower(self, x: Array, y: Array) -> tuple[float, Array]:
        """Return g(x, y) and ∇_y g(x, y), (q,)."""
        value = float(self.problem.regulariser_value(x[None], y[None])[0])
        for share in self.shares:
            n = len(share.train[0])
            losses = self.problem.losses(x[None], y[None], share.train, np.full(n, 1 / n))[0]
            value += share.weights["train"] * float(losses[0])
        return value, LowerLevel.from_point(self.problem, x, self.shares).gradient(y)

    def upper(self, x: Array, differentiate: bool = True) -> tuple[float, Array]:
        """Return F(x) and ∇F(x), (p,), or NaN if the lower level cannot be solved.

        Args:
            x: upper variable, (p,).
            differentiate: whether ∇F is computed. Otherwise it is empty.
        """
        level = LowerLevel.from_point(self.problem, x, self.shares)
        y = level.minimiser(TOLERANCE)
        value = 0.0
        for share in self.shares:
            n = len(share.validation[0])
            losses = self.problem.losses(x[None], y[None], share.validation, np.full(n, 1 / n))[1]
            value += share.weights["validation"] * float(losses[0])
        if not differentiate:
            return value, np.empty(0)
        z = level.inverse_hvp(y, TOLERANCE)
        return value, partial_hypergradient(self.problem, x, y, z, self.shares)

    def measure(
        self, published: Mapping[str, Array], names: Collection[str], agents: Agents, key: str
    ) -> dict[str, float]:
        """Compute some of `REFERENCE_MEASURES`. `distance_to_solution` also gives its maximum over agents, `…_max`.

        Args:
            published: published values "x" (m, p) and "y" (m, q) of the agents.
            names: names of the measures. Others are ignored.
            agents: train and validation records of each agent.
            key: key of the problem and its records in the cache of solutions, or "" to cache nothing.
        """
        values = published["y" if self.one_level else "x"]
        x, mean, names = published["x"].mean(axis=0), values.mean(axis=0), set(names)
        scores: dict[str, float] = {}
        with np.errstate(all="ignore"):
            if names & {"value_function", "optimality_gap", "stationarity"}:
                differentiate = "stationarity" in names
                value, gradient = self.lower(x, mean) if self.one_level else self.upper(x, differentiate)
            # A bilevel solution may take minutes.
            if names & {"heterogeneity_at_solution", "optimality_gap", "distance_to_solution"}:
                solution = self.solution(x, key)
            if "heterogeneity" in names:
                scores["heterogeneity"] = self.heterogeneity(x, published["y"].mean(axis=0), agents)
            if "heterogeneity_at_solution" in names:
                upper, lower = x, solution.point
                if not self.one_level:
                    upper = solution.point
                    lower = LowerLevel.from_point(self.problem, upper, self.shares).minimiser(TOLERANCE)
                scores["heterogeneity_at_solution"] = self.heterogeneity(upper, lower, agents)
            if "value_function" in names and not self.one_level:
                scores["value_function"] = value
            if "optimality_gap" in names:
                scores["optimality_gap"] = value - solution.value
            if "distance_to_solution" in names:
                scores["distance_to_solution"] = float(np.linalg.norm(mean - solution.point))
                scores["distance_to_solution_max"] = float(np.linalg.norm(values - solution.point, axis=1).max())
            if "stationarity" in names:
                scores["stationarity"] = float(gradient @ gradient)
        return scores

    def heterogeneity(self, x: Array, y: Array, agents: Agents) -> float:
        """Return (1/m) Σ_i ‖∇_y g_i − ∇_y g‖₂² at x (p,) and y (q,), where regularisers cancel."""
        none = np.zeros_like(y)
        gradients = np.stack([mean_term(self.problem, x, y, none, train, "lower_grad_y") for train, _ in agents])
        if self.weights is not None:
            gradients = self.weights[:, None] * gradients
        return float(np.square(gradients - gradients.mean(axis=0)).sum(axis=1).mean())

    def solution(self, x: Array, key: str = "") -> ReferenceSolution:
        """Return the minimiser of y ↦ g(x, y), or of F, which does not read x (`key` as in `measure`).

        L-BFGS stops when ‖∇‖∞ ≤ TOLERANCE·max(1, ‖∇ at the start‖∞), or when no step lowers the value in float64.
        """
        key = f"{key}{x.tobytes().hex() if self.one_level else ''}" if key else ""
        if key in _cache:
            return _cache[key]
        variable, width = ("y", self.problem.q) if self.one_level else ("x", self.problem.p)
        start = np.asarray(getattr(self.problem, "start", {}).get(variable, np.zeros(width)))
        objective = partial(self.lower, x) if self.one_level else self.upper
        scale = max(1.0, float(np.abs(objective(start)[1]).max(initial=0.0)))
        gtol = TOLERANCE * scale
        options = {"gtol": gtol, "ftol": 0.0, "maxiter": _MOST_STEPS, "maxfun": 2 * _MOST_STEPS, "maxcor": 30}
        best = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        minimiser = ReferenceSolution(np.asarray(best.x, dtype=np.float64), float(best.fun))
        if key:
            _cache[key] = minimiser
            while len(_cache) > _MOST_CACHED:
                _cache.popitem(last=False)
        return minimiser
