"""A bilevel problem in closed form at any size: least squares along coordinates, regularised towards an upper point.

    g = ½(aᵀy − b)² + (μ/2)‖y − Px‖²,     f = ½(aᵀy − b)²,     a = a coordinate vector,     |b| ≤ 1

The losses depend on a data set only through its moments: the share p_j of train records along coordinate j and the
mean b_j of their labels, and p̄_j and b̄_j for validation records. The computing time is therefore independent of the
number of records, and the lower dimension can be in the thousands. P has orthonormal columns, so the problem has the
same constants as with x instead of Px.
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
    """A problem instance.

    Attributes:
        train: shares p_j and moments p_j·b_j, (2, q).
        validation: shares p̄_j and moments p̄_j·b̄_j, (2, q).
        lift: P, (q, p).
        ridge: μ.
    """

    train: Array
    validation: Array
    lift: Array
    ridge: float

    @property
    def family(self) -> Family:
        return family_of(Quadratic(self.train.shape[1], self.ridge), 1.0, 1.0)

    def constants(self, x: Array, record_mass: float = 1.0) -> ProblemConstants:
        """Return the constants of the problem at a public x, (p,)."""
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
            x: upper point (p,), which cancels.
            y: lower point (…, q).
            penalised: y^λ (…, q).
            lam: penalty λ.

        Returns:
            Gradient (…, p).
        """
        return np.asarray(lam * self.ridge * ((y - penalised) @ self.lift))

    def implicit(self, y: Array) -> Array:
        """Compute −∇²_xy G (∇²_yy G)⁻¹ ∇_y F at points y, (…, q)."""
        shares, moments = self.validation
        solved = (shares * y - moments) / (self.train[0] + self.ridge)
        return np.asarray(self.ridge * (solved @ self.lift))

    def value(self, x: Array) -> float:
        """Compute Φ(x), the upper loss at the minimiser, up to a constant."""
        y = self.minimiser(x)
        return float(0.5 * (self.validation[0] * y) @ y - self.validation[1] @ y)

    def hypergradient(self, x: Array) -> Array:
        """Compute ∇Φ(x), (p,), by central differences, which are exact for a quadratic up to rounding."""
        step = 0.5
        axes = step * np.eye(x.size)
        return np.array([(self.value(x + e) - self.value(x - e)) / (2.0 * step) for e in axes])


def make(rng: np.random.Generator, p: int, q: int, ridge: float = 1.0) -> Instance:
    """Draw an instance whose difficulty does not depend on q: p_j ∝ 1/j, and the rows of P have norms ~ √p_j.

    Args:
        rng: random bits.
        p: upper dimension.
        q: lower dimension.
        ridge: μ.

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
        name: alias of the experiment.
        seed: public seed of all random bits.
        repeats: number of repetitions.
        dimensions: lower dimensions.
        p: upper dimension.

    Yields:
        Repetition, lower dimension, random bits, instance, and a point (p,).
    """
    for repeat in range(repeats):
        for q in dimensions:
            rng = generator(name, seed, repeat, q)
            yield repeat, q, rng, make(rng, p, q), point(rng, p)


def point(rng: np.random.Generator, p: int) -> Array:
    """Draw a point on the unit sphere, (p,).

    Args:
        rng: random bits.
        p: dimension.
    """
    x = rng.normal(size=p)
    return np.asarray(x / np.linalg.norm(x))
