"""Published noise of algorithms for a trusted coordinator: for comparison, without a certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.vocabulary import Calibration

# Channel → its published noise.
Noise = dict[str, Calibration]


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Compute σ = S √(2 log(5/(4δ)))/ε of the Gaussian mechanism of Dwork & Roth (Kornowski, Lemma 15)."""
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def budget_per_release(epsilon: float, delta: float, releases: int) -> tuple[float, float]:
    """Compute (ε₀, δ₀) of each of k releases whose advanced composition has (ε, δ).

    ε = √(2k log(1/δ₀)) ε₀ + 2k ε₀² and δ = (k + 1) δ₀ (Kornowski, Lemma 14). One release needs no composition.
    """
    if releases == 1:
        return epsilon, delta
    each = delta / (releases + 1.0)
    root = math.sqrt(2.0 * releases * math.log(1.0 / each))
    # This form of the positive root of 2k ε₀² + root·ε₀ = ε has no cancellation.
    return 2.0 * epsilon / (root + math.sqrt(root * root + 8.0 * releases * epsilon)), each


def published_noise(
    context: dp.CoordinatorContext,
    factors: Mapping[str, float],
    width: int,
    rate: float,
    rounds: int,
    releases: int,
    target: tuple[float, float],
) -> Calibration:
    """Compute the published noise of a channel and the proved sensitivities of its releases.

    Args:
        context: context of the coordinator.
        factors: term → its factor in a release.
        width: number of coordinates of a release.
        rate: rate of Poisson samples, which the published noise ignores.
        rounds: number of rounds.
        releases: number of releases in a round.
        target: (ε, δ) of all releases of a round.

    Returns:
        Scale and sensitivities, (rounds·releases,) each.
    """
    full_batch: dict[dp.Split, float] = {}
    sensitivity: dict[dp.Split, dp.Array] = {}
    for term in (t for t in factors if context.reads(t)):
        for split, s in context.mean_sensitivity(term, width).items():
            full_batch[split] = full_batch.get(split, 0.0) + factors[term] * s
        for split, s in context.mean_sensitivity(term, width, rate).items():
            sensitivity[split] = sensitivity.get(split, 0.0) + np.full(rounds * releases, factors[term] * s)
    scale = gaussian_scale(max(full_batch.values()), *budget_per_release(*target, releases))
    return Calibration(np.full(rounds * releases, scale), sensitivity)


def constant_noise(charges: Mapping[str, dp.Charge], noise: Mapping[str, tuple[float, float]]) -> Noise:
    """Return noise that is equal in all releases of a channel. noise: channel → scale and proved sensitivity."""
    out = {}
    for channel, charge in charges.items():
        scale, sensitivity = (np.full(charge.indices.size, number) for number in noise[channel])
        out[channel] = Calibration(scale, {"train": sensitivity})
    return out


def in_units(value: dp.Bounded, unit: float) -> dp.Bounded:
    """Divide a value by a public unit, so that noise can be planned in this unit. A unit of 0 gives 0."""
    return value * (1.0 / unit if unit > 0.0 else 0.0)


def root_log(delta: float) -> float:
    """Compute √log(1/δ)."""
    return math.sqrt(math.log(1.0 / delta))


def one_draw(selection: dp.SelectionMechanism, scale: float) -> Noise:
    """Return the published scale and the proved sensitivity of a single draw of x."""
    sensitivity: Mapping[dp.Split, float] = selection.sensitivity
    return {"x": Calibration(np.array([scale]), {split: np.array([s]) for split, s in sensitivity.items()})}


def smaller_count(context: dp.CoordinatorContext) -> int:
    """Return n of a published formula without splits, the smaller number of records, which gives more noise."""
    return min(context.counts.values())


def check_ascent(solver: str, reason: str) -> None:
    """Raise InputError if the solver for y is not that of the paper."""
    if solver != "ascent":
        raise dp.InputError(f'algorithm.solver: {reason}; take "ascent", and a step size y.')
