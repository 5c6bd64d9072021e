"""A weight drawn by the exponential mechanism from a public grid, its validation loss being the score.

    P(w) ∝ exp(−F̂(w)/scale),     F(w) = mean_validation l(θ_w),     θ_w = argmin g(w, ·)

is of pure ε = (oscillation of the difference of two neighbours' scores)/scale: a common shift cancels, so that no
factor 1/2 is lost (Lowy & Liu, DP Bilevel Optimization, Equation 4, whose last term lacks 1/n and whose exponent has
that factor). Convexity is not needed. F̂ is a fixed function of data and weight: the grid is walked in its public
order, and where one solution starts the search for the next, both are certified alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from decentral_dp.privacy.bounded import Array, Split
from decentral_dp.privacy.finite_sampler import law_at, score_unit
from decentral_dp.tuning.constants import Family, score_sensitivity
from decentral_dp.tuning.records import Records, summation_error
from decentral_dp.tuning.solver import Part, certificate, minimise, moments
from decentral_dp.tuning.tuner_releaser import TunerReleaser

CHANNEL = "weight"
CANDIDATES = 65


def candidates(smallest: float, largest: float) -> Array:
    """The public grid, (65,), even in log w."""
    return np.geomspace(smallest, largest, CANDIDATES)


def score(family: Family, train: Records, validation: Records, weights: Array) -> Array:
    """F̂ at every weight: data-dependent, not private."""
    values = np.empty(weights.size)
    theta = np.zeros(train.features.shape[1])
    # Strong regularisation first: its solutions are easy, and near the next ones.
    for at in range(weights.size - 1, -1, -1):
        weight = float(weights[at])
        theta = minimise(family, [Part(train, 1.0)], weight, theta)
        values[at] = moments(family, validation, theta).value
    return values


def score_error(family: Family, smallest: float, counts: tuple[int, int], d: int) -> float:
    """A bound on |F̂(w) − F(w)| for w ≥ smallest: the solver's accuracy, and the rounding of the mean loss."""
    found = certificate(family, smallest, counts[:1], d)
    reach = family.radius * found.norm + family.label_bound
    rounding = summation_error(counts, d) * 4.0 * (1.0 + reach) ** 2
    return family.gradient_bound(found.norm) * found.accuracy + rounding


def release_weight(
    releaser: TunerReleaser, family: Family, train: Records, validation: Records, smallest: float, largest: float
) -> float:
    """The private weight, one of the grid."""
    counts, d = (len(train.labels), len(validation.labels)), train.features.shape[1]
    error = score_error(family, smallest, counts, d)
    sensitivity = score_sensitivity(family, smallest, *counts, error)
    weights = candidates(smallest, largest)
    return float(
        releaser.draw(1, CHANNEL, Choice(weights, score(family, train, validation, weights), sensitivity)).value[0]
    )


@dataclass(frozen=True)
class Choice:
    """One of the weights (n,), by their scores (n,). oscillation: split → of what one record moves the scores by."""

    weights: Array
    scores: Array
    oscillation: Mapping[Split, float]

    mechanism = "exponential"
    width = 1
    distortion = 0.0

    @property
    def _unit(self) -> float:
        """r: the grid of the scores."""
        return score_unit(max(self.oscillation.values()))

    @property
    def sensitivity(self) -> dict[Split, float]:
        """With the 2r that rounding scores to a grid of r can add to their differences."""
        room = 2.0 * self._unit
        return {split: s + room for split, s in self.oscillation.items()}

    def draw(self, generator: np.random.Generator, scale: float) -> Array:
        law = law_at(self.scores, self._unit, 1 / Fraction(scale))
        return np.asarray(self.weights[law.draw(generator)]).reshape(1)
