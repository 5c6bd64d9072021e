"""Unclipped means over pooled records, and the objective that a coordinator solves with them.

Means run over chunks, so that what float64 loses in them is known beforehand and hardly grows with the number of
records. Nothing is clipped: the constants of a family bound every record that the public projection lets through.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.regularised_losses import Regularised
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import CLIP_OF_TERM, Problem, stacked
from decentral_dp.problems.records import take
from decentral_dp.problems.regulariser_matrices import regulariser_matrices

CHUNK = 2048
UNCLIPPED = Clip("l2")


class Moments(NamedTuple):
    """A mean loss that is a polynomial of degree 2 in y: value + gradientᵀy + ½ yᵀ hessian y."""

    value: float
    gradient: Array
    hessian: Array

    def slope(self, y: Array) -> Array:
        return np.asarray(self.hessian @ y + self.gradient)

    def level(self, y: Array) -> float:
        return self.value + float(self.gradient @ y) + 0.5 * float(y @ self.hessian @ y)


class Objective(NamedTuple):
    """h(y) = G(x, y) + F(x, y)/pull at one public x, (p,); without a pull h = G.

    lower, upper: moments of the losses on train and validation records, where they have any.
    """

    problem: Problem
    x: Array
    train: Any
    validation: Any
    penalty: float | None = None
    lower: Moments | None = None
    upper: Moments | None = None

    def gradient(self, y: Array) -> Array:
        """∇h, (q,)."""
        none = np.zeros_like(y)
        out: Array = self.problem.regulariser(self.x[None], y[None], none[None]).grad_y[0]
        if self.lower is None:
            out = out + mean_term(self.problem, self.x, y, none, self.train, "lower_grad_y")
        else:
            out = out + self.lower.slope(y)
        return out if self.penalty is None else out + self.upper_gradient(y) / self.penalty

    def upper_gradient(self, y: Array) -> Array:
        """∇_y F, (q,)."""
        if self.upper is not None:
            return self.upper.slope(y)
        return mean_term(self.problem, self.x, y, np.zeros_like(y), self.validation, "upper_grad_y")

    def product(self, y: Array, v: Array) -> Array:
        """∇²h v, (q,)."""
        out: Array = self.problem.regulariser(self.x[None], y[None], v[None]).hvp[0]
        if self.lower is None:
            out = out + mean_term(self.problem, self.x, y, v, self.train, "lower_hvp")
        else:
            out = out + self.lower.hessian @ v
        if self.penalty is None:
            return out
        if self.upper is not None:
            return out + self.upper.hessian @ v / self.penalty
        return out + _upper_product(self.problem, self.x, y, v, self.validation) / self.penalty

    def hessian(self, y: Array) -> Array:
        """∇²h, (q, q)."""
        out: Array = regulariser_matrices(self.problem, self.x[None], y[None], None).hessian[0]
        if self.lower is None:
            out = out + mean_hessian(self.problem, self.x, y, self.train)
        else:
            out = out + self.lower.hessian
        if self.penalty is None:
            return out
        if self.upper is not None:
            return out + self.upper.hessian / self.penalty
        return out + _upper_hessian(self.problem, self.x, y, self.validation) / self.penalty


def mean_rounding(counts: tuple[int, ...], dimension: int) -> float:
    """Relative error of a mean over chunks of terms of inner products, in any order: Higham 2002, Section 4.2, γ_k."""
    longest = max(min(n, CHUNK) + -(-n // CHUNK) for n in counts)
    return 1.01 * (longest + dimension + 64) * 2.0**-53


def mean_term(problem: Problem, x: Array, y: Array, z: Array, records: Any, term: str) -> Array:
    """Compute the mean of one term over records of the split that it reads.

    Args:
        problem: the bilevel problem.
        x: (p,).
        y: (q,).
        z: (q,), direction of lower_hvp and lower_jvp.
        records: n of them, not clipped.
        term: of the problem.

    Returns:
        (q,) or (p,); 0 where it reads none.
    """
    total = np.zeros(problem.p if CLIP_OF_TERM[term] == "x" else problem.q)
    if term not in problem.reads_records:
        return total
    n, at_once = len(records[0]), stacked(problem)
    whole = 0 if at_once is None else n // CHUNK
    if at_once is not None and whole:
        # Full chunks stand in the stack that otherwise agents with equally many records stand in.
        chunks = type(records)(*(a[: whole * CHUNK].reshape(whole, CHUNK, *a.shape[1:]) for a in records))
        xs, ys, zs = (np.broadcast_to(v, (whole, v.size)) for v in (x, y, z))
        values = getattr(at_once.stacked_terms(xs, ys, zs, chunks, UNCLIPPED, (term,)), term)
        total += (values * (CHUNK / n)).sum(axis=0)
    for first in range(whole * CHUNK, n, CHUNK):
        chunk = take(records, slice(first, first + CHUNK))
        # In the place of the other kind, of which nothing is wanted, the same.
        value = getattr(problem.terms(x, y, z, chunk, chunk, UNCLIPPED, (term,)), term)
        total += value * (len(chunk[0]) / n)
    return total


def mean_hessian(problem: Problem, x: Array, y: Array, records: Any) -> Array:
    """Compute the mean of the records' ∇²_yy l.

    Args:
        problem: the bilevel problem.
        x: (p,).
        y: (q,).
        records: n of them, not clipped.

    Returns:
        (q, q); 0 where it reads none.
    """
    total = np.zeros((problem.q, problem.q))
    if "lower_hvp" in problem.reads_records:
        n = len(records[0])
        for first in range(0, n, CHUNK):
            chunk = take(records, slice(first, first + CHUNK))
            part = problem.matrices(x, y, None, chunk, UNCLIPPED, ("lower_hessian",))["lower_hessian"]
            total += part * (len(chunk[0]) / n)
    return total


def mean_losses(problem: Problem, xs: Array, ys: Array, records: Any) -> Array:
    """Compute mean upper losses at several points.

    Args:
        problem: the bilevel problem.
        xs: (b, p).
        ys: (b, q).
        records: n of them.

    Returns:
        (b,), for the rows of xs and ys.
    """
    total, n = np.zeros(len(ys)), len(records[0])
    for first in range(0, n, CHUNK):
        chunk = take(records, slice(first, first + CHUNK))
        size = len(chunk[0])
        total += problem.losses(xs, ys, chunk, np.full(size, 1.0 / size))[1] * (size / n)
    return total


def moments(problem: Problem, records: Any) -> Moments:
    """Of the squared loss, which reads no x and is the same at both levels."""
    x, y = np.zeros(problem.p), np.zeros(problem.q)
    return Moments(
        float(mean_losses(problem, x[None], y[None], records)[0]),
        mean_term(problem, x, y, y, records, "upper_grad_y"),
        mean_hessian(problem, x, y, records),
    )


def squared(problem: Problem) -> bool:
    """Whether both losses are the squared loss."""
    return isinstance(problem.model if isinstance(problem, Regularised) else problem, Quadratic)


def alike(problem: Problem) -> bool:
    """Whether the upper loss of a validation record has the Hessian in y that the lower loss has of it."""
    model = problem.model if isinstance(problem, Regularised) else problem
    return isinstance(model, LogisticHyperparameter | SoftmaxHyperparameter | Quadratic | HyperCleaning)


def _upper_product(problem: Problem, x: Array, y: Array, v: Array, records: Any) -> Array:
    """∇²_yy F v, (q,): exact, or by central differences of ∇_y F, which are exact enough for a direction."""
    if alike(problem):
        return mean_term(problem, x, y, v, records, "lower_hvp")
    length = float(np.linalg.norm(v))
    if not length > 0.0:
        return np.zeros_like(v)
    step = 2.0**-17 * (1.0 + float(np.linalg.norm(y))) / length
    there, back = (mean_term(problem, x, y + s * v, v, records, "upper_grad_y") for s in (step, -step))
    return np.asarray((there - back) / (2.0 * step))


def _upper_hessian(problem: Problem, x: Array, y: Array, records: Any) -> Array:
    if alike(problem):
        return mean_hessian(problem, x, y, records)
    columns = np.stack([_upper_product(problem, x, y, unit, records) for unit in np.eye(problem.q)])
    return np.asarray(0.5 * (columns + columns.T))
