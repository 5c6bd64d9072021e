"""A deterministic minimiser with an accuracy that is fixed before the data are seen, and reached for every data set.

    minimise h(θ) = Σ_k share_k · mean l(θ; records_k) + (w/2)‖θ‖²

h is w-strongly convex, so ‖∇h(θ)‖ ≤ w·a certifies ‖θ − θ*‖ ≤ a. Newton's direction p with decrement
ν² = pᵀ∇²h p; a full step where Rν/√w ≤ 0.1 or where it decreases h by ν²/4, otherwise a step of ln(1 + δ)/δ with
δ = R‖p‖, which decreases h by at least ν²/(2 + δ): the third derivative of the logistic loss is at most R‖v‖ times its
second (Sun & Tran-Dinh, Math. Programming 2019, with ν = 2). Each step before the last, quadratic phase therefore gains
at least w/(400 R²) of the bounded h(start) − h(θ*), which bounds the number of steps for every data set. The squared
loss is quadratic: full steps only.

The achieved gradient, the number of steps and the time depend on the data and are not released; nothing is priced by
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from decentral_dp.privacy.bounded import Array
from decentral_dp.tuning.constants import Family
from decentral_dp.tuning.records import Records, blocks, summation_error

# The certificate asks for so many times the rounding error of a gradient, so that Newton's method can always reach it.
_MARGIN = 100.0
# Of the curvature: below this share, float64 cannot solve Newton's system reliably.
SMALLEST_SHARE = 1e-8


class Certificate(NamedTuple):
    """gradient: what the computed ‖∇h‖ must not exceed. accuracy: a ≥ ‖θ − θ*‖ then. norm: ‖θ‖ must not exceed it."""

    gradient: float
    accuracy: float
    norm: float


class Part(NamedTuple):
    """Records and the weight of their mean loss."""

    records: Records
    share: float


class Moments(NamedTuple):
    """Mean loss of some records at a point, its gradient (d,) and Hessian (d, d)."""

    value: float
    gradient: Array
    hessian: Array


def certificate(family: Family, weight: float, counts: tuple[int, ...], d: int, mass: float = 1.0) -> Certificate:
    """What is certified for every data set with so many records; mass: the sum of the parts' shares.

    The rounding error of a computed gradient is at most
    e·c·(G + link″·R²‖θ‖) + 2⁻⁵⁰·w‖θ‖, with e from `summation_error` and ‖θ‖ up to twice the solutions' ball.
    """
    norm = 2.0 * family.solution_radius(weight, mass)
    error = summation_error(counts, d)
    floor = 2.0 * error * mass * (family.gradient_bound(norm) + family.curvature_bound * norm)
    floor += 2.0**-50 * weight * norm
    return Certificate(_MARGIN * floor, (_MARGIN + 1.0) * floor / weight, norm)


def minimise(family: Family, parts: Sequence[Part], weight: float, start: Array | None = None) -> Array:
    """θ with ‖θ − θ*‖ ≤ certificate(…).accuracy, (d,). start: any fixed or released point; default 0."""
    mass = sum(p.share for p in parts)
    counts = tuple(len(p.records.labels) for p in parts)
    d = parts[0].records.features.shape[1]
    goal = certificate(family, weight, counts, d, mass)
    theta = np.zeros(d) if start is None else _inside(start, 0.5 * goal.norm)
    here = _objective(family, parts, weight, theta)
    for _ in range(_most_steps(family, weight, mass, goal.norm)):
        if np.linalg.norm(here.gradient) <= goal.gradient and np.linalg.norm(theta) <= goal.norm:
            break
        step = -_solve(here.hessian, here.gradient)
        decrement = math.sqrt(max(0.0, -float(step @ here.gradient)))
        curved = family.radius if family.loss == "logistic" else 0.0
        there = _objective(family, parts, weight, theta + step)
        near = curved * decrement <= 0.1 * math.sqrt(weight)
        if not near and there.value > here.value - 0.25 * decrement**2:
            size = curved * float(np.linalg.norm(step))
            step = step * (math.log1p(size) / size)
            there = _objective(family, parts, weight, theta + step)
        theta, here = theta + step, there
    return theta


def moments(family: Family, records: Records, theta: Array) -> Moments:
    """Mean loss, gradient and Hessian over the records at θ."""
    if records.gram is not None:
        matrix, moment, square = records.gram
        product = matrix @ theta
        value = 0.5 * float(theta @ product) - float(moment @ theta) + 0.5 * square
        return Moments(value, product - moment, matrix)
    n, d = records.features.shape
    value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
    for part in blocks(n):
        a, b = records.features[part], records.labels[part]
        margin = b * (a @ theta)
        wrong = expit(-margin)
        value += float(np.logaddexp(0.0, -margin).sum())
        gradient -= (wrong * b) @ a
        root = a * np.sqrt(wrong * expit(margin))[:, None]
        hessian += root.T @ root
    return Moments(value / n, gradient / n, hessian / n)


def inverse_product(family: Family, records: Records, weight: float, theta: Array, target: Array) -> Array:
    """(mean ∇²l(θ) + wI)⁻¹ target, (d,)."""
    hessian = moments(family, records, theta).hessian
    return _solve(hessian + weight * np.eye(theta.size), target)


def solve_error(family: Family, weight: float, norm: float, counts: tuple[int, ...], d: int) -> float:
    """τ: how far a computed H⁻¹b can be from the exact one, where b = mean ∇l and ‖θ‖ ≤ norm.

    The Hessian's own rounding and Cholesky's backward error (Higham 2002, Theorem 10.4: below (3d + 1)d·2⁻⁵³‖H‖) act
    through ‖H⁻¹‖ ≤ 1/w, twice over for what is neglected.
    """
    gradient, error = family.gradient_bound(norm), summation_error(counts, d)
    curvature = family.curvature_bound
    sum_error = error * (1.0 + family.radius * norm)
    relative = (sum_error + 2.0 * d * (3 * d + 1) * 2.0**-53) * (curvature + weight) / weight
    return 2.0 * (gradient / weight) * (relative + sum_error * (1.0 + curvature * norm / gradient))


def _objective(family: Family, parts: Sequence[Part], weight: float, theta: Array) -> Moments:
    value, gradient = 0.5 * weight * float(theta @ theta), weight * theta
    hessian = weight * np.eye(theta.size)
    for records, share in parts:
        m = moments(family, records, theta)
        value += share * m.value
        gradient = gradient + share * m.gradient
        hessian += share * m.hessian
    return Moments(value, gradient, hessian)


def _solve(matrix: Array, target: Array) -> Array:
    return np.asarray(cho_solve(cho_factor(matrix, check_finite=False), target, check_finite=False))


def _inside(point: Array, radius: float) -> Array:
    """The point, shortened to the radius: from there the objective has only so much to lose."""
    return point * min(1.0, radius / max(float(np.linalg.norm(point)), 1e-300))


def _most_steps(family: Family, weight: float, mass: float, norm: float) -> int:
    if family.loss == "squared":
        return 100
    # From a start inside the ball h is at most its value at 0 plus c·R‖θ‖ + (w/2)‖θ‖².
    gap = mass * (math.log(2.0) + family.radius * norm) + 0.5 * weight * norm**2
    return 100 + math.ceil(400.0 * gap * family.radius**2 / weight)
