"""Reproducible random draws of experiments, and their privacy budget."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.selection import score_unit
from decentral_dp.privacy.accounting.accountants import largest_mu
from decentral_dp.privacy.mechanisms import GAUSSIAN, gaussian_integers
from decentral_dp.privacy.randomness import Streams, seeded_root

EPSILON, DELTA = 1.0, 1e-6


def generator(name: str, seed: int, *place: int) -> np.random.Generator:
    """Return the random generator of one part of an experiment.

    Args:
        name: alias of the experiment.
        seed: public seed.
        place: further numbers that identify the part.
    """
    return Streams(seeded_root(seed, f"{name} {place}".encode()), "experiment", [0]).generator(0, 0, 0)


@cache
def mu_of(epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """Return the largest μ of an (ε, δ)-private Gaussian mechanism, rounded down.

    Args:
        epsilon: ε.
        delta: δ.
    """
    return largest_mu(epsilon, delta)


def noised(rng: np.random.Generator, values: Array, scale: float) -> Array:
    """Add the float-safe Gaussian noise of the package.

    Args:
        rng: random bits.
        values: exact values (b, d).
        scale: standard deviation of every coordinate.

    Returns:
        Noisy values (b, d).
    """
    d = values.shape[1]
    g = GAUSSIAN.grid(scale, d).reshape(1, 1)
    normals = rng.standard_normal(values.shape)
    uniforms = rng.random(values.shape) if GAUSSIAN.rounds_at_random(d) else None
    return np.asarray(g * gaussian_integers(values, g, scale / g, normals, uniforms))


def pure_rate(epsilon: float, oscillation: float, inexact: float) -> Fraction:
    """Compute λ = ε/(s + 2r + 4·inexact) exactly.

    Example:
        >>> round(float(pure_rate(epsilon=1.0, oscillation=0.5, inexact=0.125)), 4)
        1.0
    """
    unit = score_unit(oscillation)
    return Fraction(epsilon) / (Fraction(oscillation) + 2 * Fraction(unit) + 4 * Fraction(inexact))


def rate_for(mu: float, sensitivity: float, strength: float, curvature: float = 0.0) -> float:
    """Compute k = (μ_r + curvature)·μ²/S², at which a draw is μ-Gaussian differentially private.

    Args:
        mu: μ.
        sensitivity: S, the largest change of ∇Φ on the box.
        strength: μ_r.
        curvature: lower bound on the strong convexity of Φ for every data set.
    """
    return (strength + curvature) * mu**2 / sensitivity**2
