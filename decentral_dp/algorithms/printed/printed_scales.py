"""Noise of trusted coordinators as their papers print it: for comparison, never a certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from decentral_dp.algorithms.central.protocol import Calibration
from decentral_dp.privacy.bounded import Array, Split
from decentral_dp.problems.coordinator_context import CoordinatorContext


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """σ = S √(2 log(5/(4δ)))/ε, the Gaussian mechanism of Dwork & Roth (Kornowski, Lemma 15)."""
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def within(epsilon: float, delta: float, releases: int) -> tuple[float, float]:
    """(ε₀, δ₀) of each of k releases that advanced composition brings to (ε, δ) together.

    ε = √(2k log(1/δ₀)) ε₀ + 2k ε₀², δ = (k + 1) δ₀ (Kornowski, Lemma 14); one release needs no composition.
    """
    if releases == 1:
        return epsilon, delta
    each = delta / (releases + 1.0)
    root = math.sqrt(2.0 * releases * math.log(1.0 / each))
    # The positive root of 2k ε₀² + root·ε₀ = ε, without cancellation.
    return 2.0 * epsilon / (root + math.sqrt(root * root + 8.0 * releases * epsilon)), each


def calibrated(
    context: CoordinatorContext,
    factors: Mapping[str, float],
    width: int,
    rate: float,
    rounds: int,
    releases: int,
    target: tuple[float, float],
) -> Calibration:
    """Noise of so many releases a round, together at the target (ε, δ), and what one record really moves each by.

    factors: term → its factor in a release. rate: of the Poisson sample that is read, which the noise ignores.
    """
    whole: dict[Split, float] = {}
    sensitivity: dict[Split, Array] = {}
    for term in (t for t in factors if context.reads(t)):
        for split, s in context.mean_sensitivity(term, width).items():
            whole[split] = whole.get(split, 0.0) + factors[term] * s
        for split, s in context.mean_sensitivity(term, width, rate).items():
            sensitivity[split] = sensitivity.get(split, 0.0) + np.full(rounds * releases, factors[term] * s)
    scale = gaussian_scale(max(whole.values()), *within(*target, releases))
    return Calibration(np.full(rounds * releases, scale), sensitivity)
