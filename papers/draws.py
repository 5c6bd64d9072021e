"""Reproducible randomness of experiments, and the budget that they are held to."""

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
    """The random bits of one part of one experiment; equal places get equal bits.

    Args:
        name: alias of the experiment.
        seed: public.
        place: further numbers that distinguish parts.
    """
    return Streams(seeded_root(seed, f"{name} {place}".encode()), "experiment", [0]).generator(0, 0, 0)


@cache
def mu_of(epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """The largest μ of Gaussian pairs that are (ε, δ)-private, from below.

    Args:
        epsilon: ε; default `EPSILON`.
        delta: δ; default `DELTA`.
    """
    return largest_mu(epsilon, delta)


def noised(rng: np.random.Generator, values: Array, scale: float) -> Array:
    """Add the package's float-safe Gaussian noise, as values are released.

    Args:
        rng: whose bits are drawn.
        values: (b, d).
        scale: standard deviation of every coordinate.

    Returns:
        (b, d).
    """
    d = values.shape[1]
    g = GAUSSIAN.grid(scale, d).reshape(1, 1)
    normals = rng.standard_normal(values.shape)
    uniforms = rng.random(values.shape) if GAUSSIAN.rounds_at_random(d) else None
    return np.asarray(g * gaussian_integers(values, g, scale / g, normals, uniforms))


def pure_rate(epsilon: float, oscillation: float, inexact: float) -> Fraction:
    """Compute λ = ε/(s + 2r + 4·inexact), without rounding.

    Example:
        >>> round(float(pure_rate(epsilon=1.0, oscillation=0.5, inexact=0.125)), 4)
        1.0
    """
    unit = score_unit(oscillation)
    return Fraction(epsilon) / (Fraction(oscillation) + 2 * Fraction(unit) + 4 * Fraction(inexact))


def rate_for(mu: float, sensitivity: float, strength: float, curvature: float = 0.0) -> float:
    """Compute k = (μ_r + curvature)·μ²/S², which makes a draw a Gaussian pair with this μ.

    Args:
        mu: μ.
        sensitivity: S, the largest change of ∇Φ on the box.
        strength: μ_r.
        curvature: Φ of every dataset is convex up to it; default 0.
    """
    return (strength + curvature) * mu**2 / sensitivity**2
