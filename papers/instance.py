"""A bilevel problem with closed forms at any size: least squares along coordinates, pulled toward an upper point.

    g = ½(aᵀy − b)² + (μ/2)‖y − Px‖²,     f = ½(aᵀy − b)²,     a = a coordinate vector,     |b| ≤ 1

A data set is seen through its moments only: the share of train records along coordinate j is p_j, the mean of their
labels b_j; likewise p̄_j and b̄_j for validation records. So the number of records is a number, and the lower dimension
may be thousands. P has orthonormal columns, which keeps all constants of the problem with Px for x.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.constants import Family, ProblemConstants, family_of
from decentral_dp.problems.bilevel.linear import Quadratic
from papers.draws import generator


class Instance(NamedTuple):
    """train, validation: (2, q) shares p_j and moments p_j·b_j. lift: P, (q, p). ridge: μ."""

    train: Array
    validation: Array
    lift: Array
    ridge: float

    @property
    def family(self) -> Family:
        return family_of(Quadratic(self.train.shape[1], self.ridge), 1.0, 1.0)

    def constants(self, x: Array, record_mass: float = 1.0) -> ProblemConstants:
        """At a public x, (p,)."""
        point = self.lift @ x
        return self.family.constants(point, point, record_mass)

    def minimiser(self, x: Array) -> Array:
        """Return the minimiser of G, (q,)."""
        shares, moments = self.train
        return np.asarray((moments + self.ridge * (self.lift @ x)) / (shares + self.ridge))

    def penalised(self, x: Array, lam: float) -> Array:
        """Return the minimiser of G + F/λ, (q,)."""
        shares, moments = self.train + self.validation / lam
        return np.asarray((moments + self.ridge * (self.lift @ x)) / (shares + self.ridge))

    def penalty(self, x: Array, y: Array, penalised: Array, lam: float) -> Array:
        """Evaluate the penalty gradient λ(∇_x G(x, y^λ) − ∇_x G(x, y)) at any two points; ∇_x F = 0.

        Args:
            x: (p,), which cancels.
            y: (…, q).
            penalised: y^λ (…, q).
            lam: the penalty λ.

        Returns:
            (…, p) the gradient.
        """
        return np.asarray(lam * self.ridge * ((y - penalised) @ self.lift))

    def implicit(self, y: Array) -> Array:
        """−∇²_xy G (∇²_yy G)⁻¹ ∇_y F at points y, (…, q)."""
        shares, moments = self.validation
        solved = (shares * y - moments) / (self.train[0] + self.ridge)
        return np.asarray(self.ridge * (solved @ self.lift))

    def value(self, x: Array) -> float:
        """Φ(x) up to a constant: the upper loss at the minimiser, record by record in effect."""
        y = self.minimiser(x)
        return float(0.5 * (self.validation[0] * y) @ y - self.validation[1] @ y)

    def hypergradient(self, x: Array) -> Array:
        """∇Φ(x), (p,), by central differences, which are exact for a quadratic up to rounding."""
        step = 0.5
        axes = step * np.eye(x.size)
        return np.array([(self.value(x + e) - self.value(x - e)) / (2.0 * step) for e in axes])


def make(rng: np.random.Generator, p: int, q: int, ridge: float = 1.0) -> Instance:
    """Draw an instance: shares fall like 1/j, and P has equal weights, so that the problem looks the same at every q.

    Args:
        rng: random bits.
        p: upper dimension.
        q: lower dimension.
        ridge: μ, default 1.

    Returns:
        The instance.
    """
    shares = 1.0 / np.arange(1.0, q + 1.0)
    shares /= shares.sum()
    labels = rng.uniform(-1.0, 1.0, size=(2, q))
    lift = np.linalg.qr(np.sqrt(shares)[:, None] * rng.normal(size=(q, p)))[0]
    train, validation = (np.stack([shares, shares * b]) for b in labels)
    return Instance(train, validation, lift, ridge)


def repeated(
    name: str, seed: int, repeats: int, dimensions: Sequence[int], p: int
) -> Iterator[tuple[int, int, np.random.Generator, Instance, Array]]:
    """Draw an instance and a point for each repetition and lower dimension.

    Args:
        name: name of the experiment, which keys the random bits.
        seed: keys them too.
        repeats: how many repetitions.
        dimensions: the lower ones.
        p: upper dimension.

    Returns:
        For each: repetition, lower dimension, random bits, the instance, and a point (p,).
    """
    for repeat in range(repeats):
        for q in dimensions:
            rng = generator(name, seed, repeat, q)
            yield repeat, q, rng, make(rng, p, q), point(rng, p)


def point(rng: np.random.Generator, p: int) -> Array:
    """Draw a point on the unit sphere, (p,).

    Args:
        rng: whose bits are drawn.
        p: coordinates.
    """
    x = rng.normal(size=p)
    return np.asarray(x / np.linalg.norm(x))
