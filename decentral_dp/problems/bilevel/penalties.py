"""Regularisers that several problems share, data-independent, exact, and never clipped; and keys on linear models.

Each has these methods:

    uppers(q)              p: how many upper variables there are for q lower ones
    largest_x(curvature)   the largest coordinate of x at which no eigenvalue of ∇²_yy R is above `curvature`
    terms(x, y, z)         ∇_y R (b, q), ∇²_yy R·z (b, q) and ∇²_xy R·z (b, p), row by row
    value(x, y)            R per row, (b,)
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, Protocol, TypeAlias

import numpy as np
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.files.tables import Positive
from decentral_dp.problems.protocol import Regulariser

Ridge = Annotated[Positive, Doc("Strength of a quadratic regulariser, above 0; the default is the problem's own.")]
Intercept = Annotated[bool, Doc("Whether a constant feature 1 is appended.")]


class Penalised(Protocol):
    """A problem with such a regulariser."""

    @property
    def penalty(self) -> Penalty: ...

    @property
    def q(self) -> int: ...

    @property
    def p(self) -> int:
        return self.penalty.uppers(self.q)

    def largest_x(self, curvature: float) -> float:
        """As of `Steepening`."""
        return self.penalty.largest_x(curvature)

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return self.penalty.terms(x, y, z)

    def regulariser_value(self, x: Array, y: Array) -> Array:
        return self.penalty.value(x, y)


class Strengths(NamedTuple):
    """R(x, y) = ½ scale Σ_r Σ_s exp(x_s) Y_rs², Y being y as a (copies, p) matrix: each strength has so many variables.

    copies: lower variables of one strength; one by default, of a strength for every variable, and q for p = 1.
    """

    copies: int = 1
    scale: float = 1.0

    def uppers(self, q: int) -> int:
        return q // self.copies

    def largest_x(self, curvature: float) -> float:
        return math.log(curvature / self.scale)

    @np.errstate(over="ignore", invalid="ignore")
    def terms(self, x: Array, y: Array, z: Array) -> Regulariser:
        if self.copies == 1 and x.shape[1] > 1:
            # What follows, in few calls.
            each = np.exp(x) if self.scale == 1.0 else self.scale * np.exp(x)
            # Columns of a message: numpy takes three times as long for each product of short rows that lie apart.
            y, z = np.ascontiguousarray(y), np.ascontiguousarray(z)
            by_y = each * y
            return Regulariser(by_y, each * z, by_y * z + 0.0)
        strength, along = self.scale * np.exp(x)[:, None, :], self._by_strength(z)
        grad_y = strength * self._by_strength(y)
        jvp = (grad_y * along).sum(axis=1)
        if x.shape[1] == 1:
            # The same but for rounding, which seeded runs have had.
            jvp = strength[:, 0] * (y * z).sum(axis=1, keepdims=True)
        return Regulariser(grad_y.reshape(y.shape), (strength * along).reshape(y.shape), jvp)

    @np.errstate(over="ignore", invalid="ignore")
    def value(self, x: Array, y: Array) -> Array:
        squares = np.square(self._by_strength(y)).sum(axis=1)
        return np.asarray(0.5 * self.scale * (np.exp(x) * squares).sum(axis=1))

    def _by_strength(self, y: Array) -> Array:
        """(b, q) → (b, copies, p)."""
        return y.reshape(len(y), self.copies, -1)


class Pull(NamedTuple):
    """R(x, y) = ½ ridge ‖y − x‖²: the lower variable is pulled toward the upper one. ridge > 0."""

    ridge: float

    def uppers(self, q: int) -> int:
        return q

    def largest_x(self, curvature: float) -> float:
        """None is too large: x moves the minimum, and leaves the curvature."""
        return math.inf

    @np.errstate(over="ignore", invalid="ignore")
    def terms(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Regulariser(self.ridge * (y - x), self.ridge * z, -self.ridge * z)

    @np.errstate(over="ignore", invalid="ignore")
    def value(self, x: Array, y: Array) -> Array:
        return np.asarray(0.5 * self.ridge * np.square(y - x).sum(axis=1))


Penalty: TypeAlias = Strengths | Pull


class Ridged(Protocol):
    """A problem with R(x, y) = ½ ridge ‖y‖²."""

    @property
    def ridge(self) -> float: ...

    @np.errstate(over="ignore", invalid="ignore")
    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        return Regulariser(self.ridge * y, self.ridge * z, np.zeros_like(x))

    @np.errstate(over="ignore", invalid="ignore")
    def regulariser_value(self, x: Array, y: Array) -> Array:
        return np.asarray(0.5 * self.ridge * np.square(y).sum(axis=1))
