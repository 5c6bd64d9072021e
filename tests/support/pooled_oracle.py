"""Bilevel problems written out in extended precision, and records that are hard on solvers; no shared code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.constants import Family, family_of
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.linear import (
    LogisticHyperparameter,
    Quadratic,
    SoftmaxHyperparameter,
    biased_regularisation,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.protocol import Problem

Long = np.longdouble
Array = np.ndarray
D = 3
RADIUS, LABEL = 1.5, 2.0
THREE = (0.0, 1.0, 2.0)


@dataclass(frozen=True)
class Case:
    """A problem, its loss by name, and its regulariser by name."""

    problem: Problem
    loss: str
    penalty: str
    classes: tuple[float, ...] = ()
    ridge: float = 1.0

    @property
    def family(self) -> Family:
        return family_of(self.problem, RADIUS, LABEL)

    def prepared(self, a: Array, b: Array, kind: str) -> Any:
        records = self.problem.prepare(a, b, "l2")
        return self.problem.place_records(records, 0) if self.penalty == "weighed" and kind == "train" else records


def cases(ridge: float = 0.1) -> dict[str, Case]:
    """Every family, at D features."""
    two, none = (-1.0, 1.0), ()
    return {
        "logistic": Case(LogisticHyperparameter(D), "logistic", "strengths", two),
        "logistic_shared": Case(logistic_regularisation(D, two), "logistic", "shared", two),
        "logistic_pull": Case(biased_regularisation(D, two, ridge), "logistic", "pull", two, ridge),
        "softmax": Case(SoftmaxHyperparameter(D, THREE), "softmax", "scaled", THREE),
        "softmax_pull": Case(biased_regularisation(D, THREE, ridge), "softmax", "pull", THREE, ridge),
        "ridge": Case(ridge_hyperparameter(D), "squared", "strengths", none),
        "ridge_shared": Case(ridge_regularisation(D), "squared", "shared", none),
        "quadratic": Case(Quadratic(D, ridge), "squared", "pull", none, ridge),
        "cleaning": Case(HyperCleaning(D, THREE, 1, groups=3, ridge=ridge), "softmax", "weighed", THREE, ridge),
        "mean": Case(MeanEstimation(D, ridge), "mean", "mean", none, ridge),
        "lower_bound": Case(MeanLowerBound(D, ridge, 2.0, 0.5), "linear", "stretched", none, ridge),
    }


DATA = ("random", "equal", "separable", "zeros", "long_and_short", "one_against_all")


def dataset(case: Case, name: str, n: int, seed: int = 0) -> tuple[Array, Array]:
    """n records with ‖a‖ ≤ RADIUS and |b| ≤ LABEL, or one of the declared classes."""
    rng = np.random.default_rng([seed, n])
    a = rng.normal(size=(n, D))
    a *= RADIUS / np.linalg.norm(a, axis=1, keepdims=True)
    labels = np.array(case.classes) if case.classes else np.array([-LABEL, LABEL, 0.3])
    b = rng.choice(labels, size=n)
    if name == "equal":
        a[:], b[:] = a[0], labels[-1]
    elif name == "separable":
        b = labels[np.digitize(a[:, 0], np.linspace(-RADIUS, RADIUS, len(labels) + 1)[1:-1])]
    elif name == "zeros":
        a[:], b[:] = 0.0, labels[0]
    elif name == "long_and_short":
        a *= np.where(np.arange(n) % 2, 1.0, 1e-6)[:, None]
    elif name == "one_against_all":
        a[1:], b[1:] = a[0], labels[-1]
        b[0] = labels[0]
    return a, b


@dataclass(frozen=True)
class Exact:
    """The objectives of one data set at one x, in extended precision."""

    case: Case
    x: Array
    train: tuple[Array, Array]
    validation: tuple[Array, Array]

    def lower_gradient(self, y: Array) -> Array:
        return self._mean(self.train, y, self._weights(), "lower")[0] + self._penalty(y)

    def lower_hessian(self, y: Array) -> Array:
        return self._mean(self.train, y, self._weights(), "lower")[1] + self._penalty_hessian()

    def upper_gradient(self, y: Array) -> Array:
        return self._mean(self.validation, y, 1.0, "upper")[0]

    def upper_hessian(self, y: Array) -> Array:
        return self._mean(self.validation, y, 1.0, "upper")[1]

    def upper_value(self, y: Array) -> Any:
        a, b = self._long(self.validation)
        match self.case.loss:
            case "logistic":
                return np.logaddexp(Long(0), -(a @ y) * b).mean()
            case "softmax":
                scores = a @ y.reshape(3, D).T
                return (np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(b)), b.astype(int)]).mean()
            case "squared":
                return (Long(0.5) * (a @ y - b) ** 2).mean()
            case "mean":
                return (Long(0.5) * ((y - a) ** 2).sum(axis=1)).mean()
        return -Long(2.0) * (a @ y).mean()

    def cross(self, y: Array) -> Array:
        """∇²_xy G, (p, q)."""
        x, y, ridge = self.x.astype(Long), y.astype(Long), Long(self.case.ridge)
        match self.case.penalty:
            case "strengths":
                return np.diag(np.exp(x) * y)
            case "scaled":
                rows = y.reshape(3, D)
                return np.concatenate([np.diag(np.exp(x) * row) for row in rows], axis=1) * Long(2.0) / y.size
            case "shared":
                return np.exp(x)[:, None] * y[None]
            case "pull" | "mean":
                return -ridge * np.eye(y.size, dtype=Long)
            case "stretched":
                return -ridge * Long(0.5) * np.eye(y.size, dtype=Long)
        a, b = self._long(self.train)
        groups, sigma = self._groups(), 1 / (1 + np.exp(-x))
        slope = sigma * (1 - sigma)
        out = np.zeros((x.size, y.size), dtype=Long)
        for k in range(len(b)):
            out[groups[k]] += slope[groups[k]] * self._record(a[k], b[k], y)[0] / len(b)
        return out

    def minimiser(self, penalty: float | None = None) -> Array:
        """Minimise by Newton's method with halved steps, until gradients are at the rounding of extended precision."""

        def gradient(y: Array) -> Array:
            return self.lower_gradient(y) + (0 if penalty is None else self.upper_gradient(y) / Long(penalty))

        y = np.zeros(self.case.problem.q, dtype=Long)
        size = np.linalg.norm(g := gradient(y))
        for _ in range(500):
            hessian = self.lower_hessian(y) + (0 if penalty is None else self.upper_hessian(y) / Long(penalty))
            step = np.linalg.solve(hessian.astype(np.float64), g.astype(np.float64)).astype(Long)
            for halving in range(60):
                there = y - step * Long(0.5) ** halving
                smaller = np.linalg.norm(new := gradient(there))
                if smaller < size:
                    break
            else:
                return y
            y, g, size = there, new, smaller
        return y

    def implicit(self, y: Array) -> Array:
        """−J H⁻¹ b at y."""
        return -self.cross(y) @ solve_long(self.lower_hessian(y), self.upper_gradient(y))

    def _groups(self) -> Array:
        n = len(self.train[1])
        return np.arange(n) * 3 // n

    def _weights(self) -> Any:
        if self.case.penalty != "weighed":
            return 1.0
        return (1 / (1 + np.exp(-self.x.astype(Long))))[self._groups()]

    def _long(self, records: tuple[Array, Array]) -> tuple[Array, Array]:
        return records[0].astype(Long), records[1].astype(Long)

    def _record(self, a: Array, b: Any, y: Array) -> tuple[Array, Array]:
        match self.case.loss:
            case "logistic":
                wrong = 1 / (1 + np.exp(b * (a @ y)))
                return -wrong * b * a, wrong * (1 - wrong) * np.outer(a, a)
            case "squared":
                return (a @ y - b) * a, np.outer(a, a)
        scores = y.reshape(3, D) @ a
        share = np.exp(scores - scores.max())
        share /= share.sum()
        return (
            np.outer(share - np.eye(3)[int(b)], a).ravel(),
            np.kron(np.diag(share) - np.outer(share, share), np.outer(a, a)),
        )

    def _mean(self, records: tuple[Array, Array], y: Array, weights: Any, level: str) -> tuple[Array, Array]:
        a, b = self._long(records)
        y = y.astype(Long)
        q, n = y.size, len(b)
        if self.case.loss == "mean":
            slope = -a.mean(axis=0) + (y if level == "upper" else 0)
            return slope, (np.eye(q, dtype=Long) if level == "upper" else np.zeros((q, q), dtype=Long))
        if self.case.loss == "linear":
            slope = -2 * a.mean(axis=0) if level == "upper" else np.zeros(q, dtype=Long)
            return slope, np.zeros((q, q), dtype=Long)
        weights = np.broadcast_to(weights, n)
        gradient, hessian = np.zeros(q, dtype=Long), np.zeros((q, q), dtype=Long)
        for k in range(n):
            g, h = self._record(a[k], b[k], y)
            gradient += weights[k] * g / n
            hessian += weights[k] * h / n
        return gradient, hessian

    def _penalty(self, y: Array) -> Array:
        y, x, ridge = y.astype(Long), self.x.astype(Long), Long(self.case.ridge)
        match self.case.penalty:
            case "pull":
                return ridge * (y - x)
            case "mean":
                return y + ridge * (y - x)
            case "stretched":
                return ridge * (y - x / 2)
        return self._penalty_hessian() @ y

    def _penalty_hessian(self) -> Array:
        q, x, ridge = self.case.problem.q, self.x.astype(Long), Long(self.case.ridge)
        match self.case.penalty:
            case "strengths":
                return np.diag(np.exp(x))
            case "scaled":
                return np.diag(np.tile(np.exp(x), 3)) * Long(2.0) / q
            case "shared":
                return np.exp(x[0]) * np.eye(q, dtype=Long)
            case "mean":
                return (1 + ridge) * np.eye(q, dtype=Long)
        return ridge * np.eye(q, dtype=Long)


def solve_long(matrix: Array, target: Array) -> Array:
    """matrix⁻¹ target in extended precision, refined."""
    v = np.zeros_like(target)
    inverse = np.linalg.inv(matrix.astype(np.float64))
    for _ in range(40):
        v = v + (inverse @ (target - matrix @ v).astype(np.float64)).astype(Long)
    return v


def slopes(f: Callable[[Array], Any], x: Array, step: float = 1e-4) -> Array:
    """Central differences, (p,)."""
    units = np.eye(x.size) * step
    return np.array([float(f(x + u) - f(x - u)) / (2 * step) for u in units])
