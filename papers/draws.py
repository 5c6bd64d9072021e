"""Reproducible randomness of experiments, and the budget that they are held to."""

from __future__ import annotations

from functools import cache

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.accounting.calibration import largest_mu
from decentral_dp.privacy.mechanisms import GAUSSIAN
from decentral_dp.privacy.mechanisms.gaussian import gaussian_integers
from decentral_dp.privacy.randomness import Streams, seeded_root

EPSILON, DELTA = 1.0, 1e-6


def generator(name: str, seed: int, *place: int) -> np.random.Generator:
    """The random bits of one part of one experiment; equal places get equal bits."""
    return Streams(seeded_root(seed, f"{name} {place}".encode()), "experiment", [0]).at(0, 0, 0)


@cache
def mu_of(epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """The largest μ of Gaussian pairs that are (ε, δ)-private, from below."""
    return largest_mu(epsilon, delta)


def noised(rng: np.random.Generator, values: Array, scale: float) -> Array:
    """values (b, d) with the package's float-safe Gaussian noise, as they are released."""
    d = values.shape[1]
    g = GAUSSIAN.grid(scale, d).reshape(1, 1)
    normals = rng.standard_normal(values.shape)
    uniforms = rng.random(values.shape) if GAUSSIAN.rounds_at_random(d) else None
    return np.asarray(g * gaussian_integers(values, g, scale / g, normals, uniforms))
