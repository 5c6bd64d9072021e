"""Noise of trusted coordinators as their papers print it: for comparison, never a certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.vocabulary import Calibration

# Channel → its published noise.
Noise = dict[str, Calibration]


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """σ = S √(2 log(5/(4δ)))/ε, the Gaussian mechanism of Dwork & Roth (Kornowski, Lemma 15)."""
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def budget_per_release(epsilon: float, delta: float, releases: int) -> tuple[float, float]:
    """(ε₀, δ₀) of each of k releases that advanced composition brings to (ε, δ) together.

    ε = √(2k log(1/δ₀)) ε₀ + 2k ε₀², δ = (k + 1) δ₀ (Kornowski, Lemma 14); one release needs no composition.
    """
    if releases == 1:
        return epsilon, delta
    each = delta / (releases + 1.0)
    root = math.sqrt(2.0 * releases * math.log(1.0 / each))
    # The positive root of 2k ε₀² + root·ε₀ = ε, without cancellation.
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
    """Compute the published noise of a channel, and what one record really moves its releases by.

    Args:
        context: what the coordinator knows.
        factors: term → its factor in a release.
        width: coordinates of a release.
        rate: rate of the Poisson sample that is read, which the noise ignores.
        rounds: number of rounds of the run.
        releases: how many a round.
        target: (ε, δ) of a round's releases together.

    Returns:
        Scale and sensitivities, (rounds·releases,) each.
    """
    whole: dict[dp.Split, float] = {}
    sensitivity: dict[dp.Split, dp.Array] = {}
    for term in (t for t in factors if context.reads(t)):
        for split, s in context.mean_sensitivity(term, width).items():
            whole[split] = whole.get(split, 0.0) + factors[term] * s
        for split, s in context.mean_sensitivity(term, width, rate).items():
            sensitivity[split] = sensitivity.get(split, 0.0) + np.full(rounds * releases, factors[term] * s)
    scale = gaussian_scale(max(whole.values()), *budget_per_release(*target, releases))
    return Calibration(np.full(rounds * releases, scale), sensitivity)


def constant_noise(charges: Mapping[str, dp.Charge], noise: Mapping[str, tuple[float, float]]) -> Noise:
    """A published noise, the same in all releases of a channel. noise: channel → its scale, and what it hides."""
    out = {}
    for channel, charge in charges.items():
        scale, sensitivity = (np.full(charge.indices.size, number) for number in noise[channel])
        out[channel] = Calibration(scale, {"train": sensitivity})
    return out


def in_units(value: dp.Bounded, unit: float) -> dp.Bounded:
    """A value in units of a public number, so that noise planned in units is right for every value of the number.

    Values clipped to 0 are 0.
    """
    return value * (1.0 / unit if unit > 0.0 else 0.0)


def root_log(delta: float) -> float:
    """√log(1/δ)."""
    return math.sqrt(math.log(1.0 / delta))


def one_draw(selection: dp.SelectionMechanism, scale: float) -> Noise:
    """A published scale of a single draw of x, and what it really meets."""
    sensitivity: Mapping[dp.Split, float] = selection.sensitivity
    return {"x": Calibration(np.array([scale]), {kind: np.array([s]) for kind, s in sensitivity.items()})}


def smaller_count(context: dp.CoordinatorContext) -> int:
    """n of a published formula, which knows one set of records: the smaller count, by which it adds more noise."""
    return min(context.counts.values())


def check_ascent(solver: str, why: str) -> None:
    """Refuse another way to find y than the paper's. Raises InputError."""
    if solver != "ascent":
        raise dp.InputError(f'algorithm.solver: {why}; take "ascent", and a step size y.')
