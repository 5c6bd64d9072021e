"""The sensitivities and plans of the tuner that `decentral_dp.tune` had before it became a coordinator's job.

The formulas are independent upper bounds on the shared constants, for one strength w and records with ‖a‖ ≤ R and
|b| ≤ B. With l the loss, g = mean_train l + (w/2)‖θ‖² and f = mean_validation l, minimisers of g + f/λ have
c = 1 + 1/λ:

    logistic   ‖θ‖ ≤ min(Rc/(2w), √(cW/w)),   W = max_m m/(1 + e^m)
    squared    ‖θ‖ ≤ B√c · max_{0≤s≤R√c} s/(s² + w)

Source: Kornowski 2024, Section 7; Lowy & Liu 2025, Equation 4; proofs 13, 15, 20 and 24.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from decentral_dp.central.selection import score_unit
from decentral_dp.privacy.accounting.accountants import epsilon_of
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.mechanisms import mechanism_of

# max over m of m/(1 + e^m), rounded up.
MARGIN_GAIN = 0.2784645427611
UP = 1.0 + 1e-12
MARGIN = 100.0
BLOCK = 4096
MODEL_SHARE = 0.25


@dataclass(frozen=True)
class Family:
    """A loss with the public bounds of its records."""

    loss: str
    radius: float = 1.0
    label_bound: float = 1.0

    def solution_radius(self, weight: float, mass: float = 1.0) -> float:
        r, w = self.radius, weight
        if self.loss == "logistic":
            return UP * min(0.5 * r * mass / w, math.sqrt(mass * MARGIN_GAIN / w))
        s = min(r * math.sqrt(mass), math.sqrt(w))
        return UP * self.label_bound * math.sqrt(mass) * s / (s * s + w)

    def gradient_bound(self, norm: float) -> float:
        reach = self.radius * norm
        if self.loss == "logistic":
            return UP * self.radius / (1.0 + math.exp(-reach))
        return UP * self.radius * (reach + self.label_bound)

    @property
    def curvature_bound(self) -> float:
        return (0.25 if self.loss == "logistic" else 1.0) * self.radius**2

    def loss_range(self, norm: float) -> float:
        reach = self.radius * norm
        return UP * (reach if self.loss == "logistic" else 0.5 * (reach + self.label_bound) ** 2)


def summation_error(counts: tuple[int, ...], d: int) -> float:
    return (max(min(n, BLOCK) + -(-n // BLOCK) for n in counts) + d + 40) * 2.0**-52


def accuracy(family: Family, weight: float, counts: tuple[int, ...], d: int, mass: float = 1.0) -> float:
    """Compute the solver's certified accuracy of a minimiser."""
    norm = 2.0 * family.solution_radius(weight, mass)
    floor = 2.0 * summation_error(counts, d) * mass * (family.gradient_bound(norm) + family.curvature_bound * norm)
    floor += 2.0**-50 * weight * norm
    return (MARGIN + 1.0) * floor / weight


def solve_error(family: Family, weight: float, norm: float, counts: tuple[int, ...], d: int) -> float:
    gradient, error = family.gradient_bound(norm), summation_error(counts, d)
    curvature = family.curvature_bound
    sum_error = error * (1.0 + family.radius * norm)
    relative = (sum_error + 2.0 * d * (3 * d + 1) * 2.0**-53) * (curvature + weight) / weight
    return 2.0 * (gradient / weight) * (relative + sum_error * (1.0 + curvature * norm / gradient))


def minimiser(
    family: Family, weight: float, train: int, accuracy: float, penalty: tuple[float, int] | None = None
) -> dict[str, float]:
    """penalty: (λ, n_v)."""
    radius = family.solution_radius(weight, 1.0 if penalty is None else 1.0 + 1.0 / penalty[0])
    swap = 2.0 * family.gradient_bound(radius)

    def sensitivity(per_record: float) -> float:
        return UP * (min(swap * per_record / weight, 2.0 * radius) + 2.0 * accuracy)

    if penalty is None:
        return {"train": sensitivity(1.0 / train)}
    return {"train": sensitivity(1.0 / train), "validation": sensitivity(1.0 / (penalty[0] * penalty[1]))}


def slope(
    family: Family, weight: float, norm: float, train: int, validation: int, solve_error: float
) -> dict[str, float]:
    gradient, share = family.gradient_bound(norm), family.curvature_bound / train
    slack = 2.0 * weight * norm * solve_error
    return {
        "train": UP * (norm * gradient * share / (weight + share) + slack),
        "validation": UP * (2.0 * norm * gradient / validation + slack),
    }


def score_error(family: Family, smallest: float, counts: tuple[int, int], d: int) -> float:
    norm = 2.0 * family.solution_radius(smallest)
    rounding = summation_error(counts, d) * 4.0 * (1.0 + family.radius * norm + family.label_bound) ** 2
    return family.gradient_bound(norm) * accuracy(family, smallest, counts[:1], d) + rounding


def score(family: Family, smallest: float, train: int, validation: int, error: float) -> dict[str, float]:
    """Add the error of rounding scores to a grid."""
    radius = family.solution_radius(smallest)
    gradient = family.gradient_bound(radius)
    sensitivity = min(2.0 * gradient / (smallest * train), 2.0 * radius)
    found = {
        "train": UP * (2.0 * gradient * sensitivity + 4.0 * error),
        "validation": UP * (2.0 * family.loss_range(radius) / validation + 4.0 * error),
    }
    room = 2.0 * score_unit(max(found.values()))
    return {split: s + room for split, s in found.items()}


# Plans: what a release may cost, in the order of channel and release ------------------------------------------------


def gaussian_plan(second: str, width: int, steps: int, d: int, epsilon: float, delta: float) -> Ledger:
    """Rounds 1 … steps release a minimiser and what moves the weight; one more the model."""
    each = math.sqrt(0.5 * (1.0 - MODEL_SHARE) / steps)
    model = np.append(np.full(steps, each), math.sqrt(MODEL_SHARE))
    moves = {"train": np.full(steps, each), "validation": np.full(steps, math.sqrt(1.0 / steps))}

    def at(mu: float) -> Ledger:
        first = _channel("model", "gaussian", d, {"train": mu * model})
        return Ledger(1, (first, _channel(second, "gaussian", width, {k: mu * s for k, s in moves.items()})))

    low, high = 0.0, max(4.0 * epsilon, 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        spent = float(epsilon_of(at(middle), delta)[0])
        low, high = (middle, high) if spent <= epsilon else (low, middle)
        if (1.0 - 1e-4) * epsilon <= spent <= epsilon:
            break
    return at(low)


def pure_plan(d: int, epsilon: float) -> Ledger:
    """Select the weight once, then release a model with Laplace noise."""
    half = np.array([0.5 * (epsilon * (1.0 - 2.0**-19) - 4e-15 * d)])
    choice = _channel("x", "exponential", 1, {"train": half, "validation": 2.0 * half})
    return Ledger(1, (choice, _channel("model", "laplace", d, {"train": half})))


def _channel(name: str, mechanism: str, d: int, prices: dict[str, np.ndarray]) -> ChannelLedger:
    n = len(next(iter(prices.values())))
    return ChannelLedger(
        name,
        mechanism_of(mechanism),
        d,
        np.zeros(1, dtype=np.int64),
        np.arange(1, n + 1),
        np.ones((n, 1)),
        {k: s[:, None] for k, s in prices.items()},  # type: ignore[misc] # the two kinds
        {k: np.ones((n, 1)) for k in prices},  # type: ignore[misc] # as above
    )
