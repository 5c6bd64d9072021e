"""Mechanisms as accountants and releasers see them: the price of a release, how it is drawn, what is known of its law.

Every mechanism is one final frozen class with a name, by which ledgers on disk and results call it. What only adds up
the prices needs `Mechanism`; what adds noise to values needs `NoiseMechanism`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol, cast

from decentral_dp.bounded import Array, Norm
from decentral_dp.privacy.randomness import Draws

# How a fresh batch is drawn: so many records of the pool, or every record by its own coin.
Sampling = Literal["fixed", "poisson"]
# Of a price: pure ε, or the μ of a Gaussian pair.
Unit = Literal["ε", "μ"]
# Arrays that a sampler may keep from one draw to the next, by whatever tells them apart.
Workspace = dict[tuple[Any, ...], Any]


class DominatingPair(Enum):
    """Pairs of laws that dominate one release, so that prices of many releases compose.

    LAPLACE: a Laplace pair of this pure ε. GAUSSIAN: a Gaussian pair of this μ. RESPONSE: randomised response of this
    pure ε, the worst that pure ε allows. RANGED: randomised response again, and ρ = ε²/8 concentrated (bounded range).
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    RESPONSE = "response"
    RANGED = "ranged"


class NormalVariates(NamedTuple):
    """Normal variates of a float64 sampler, whose errors are bounded together with those of all other releases.

    bits: of the grid. randomised: whether they are added to values that were rounded at random.
    """

    bits: int
    randomised: bool


class Mechanism(Protocol):
    """A way of releasing a value, and its price.

    name: in ledgers, results and scenarios. description: for people. norm: in which the sensitivity is measured,
    None where it is none of a vector. pure: whether δ = 0 may be stated. unit: of the price, pure "ε" or the
    "μ" of a Gaussian pair. dominating_pair: None where nothing is known, which accountants refuse. charged: False where
    releases read no record. adds_noise: whether it is a `NoiseMechanism`. proven: False where nothing bounds what a
    release shows. amplified_by: ways of drawing a batch for which an amplification rule is known.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def norm(self) -> Norm | None: ...
    @property
    def pure(self) -> bool: ...
    @property
    def unit(self) -> Unit: ...
    @property
    def dominating_pair(self) -> DominatingPair | None: ...
    @property
    def charged(self) -> bool: ...
    @property
    def adds_noise(self) -> bool: ...
    @property
    def proven(self) -> bool: ...
    @property
    def amplified_by(self) -> tuple[Sampling, ...]: ...

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Price one release of `width` coordinates to a replaced record, in `unit`.

        Args:
            sensitivity: in `norm`, any shape.
            scale: of the noise, broadcastable.
            width: coordinates of the release.

        Returns:
            The price; +inf where the sensitivity is infinite, or positive without noise; 0 where it is 0.
        """
        ...

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array] | NormalVariates:
        """Bound what a float64 sampler adds to releases of these prices: (ε, δ) each, 0 where the price is 0."""
        ...


class Unnoised(NamedTuple):
    """Queries of some agents, all channels side by side, that are to be rounded and noised.

    draws: of the agents, in order. query: (b, Σ widths), the private parts. grid: (b or 1, Σ widths), of
    every coordinate. scale: of the noise in units of the grid, of the same shape. widths: of the channels as they were
    released; `query` may hold a part of the only one. workspace: arrays that are kept between calls.
    """

    draws: Draws
    query: Array
    grid: Array
    scale: Array
    widths: tuple[int, ...]
    workspace: Workspace


class NoiseMechanism(Mechanism, Protocol):
    """A mechanism that rounds a value to a grid of a power of two and adds noise there.

    deviation: standard deviation of the noise, in units of its scale. columns_at_a_time: how many coordinates a sampler
    of one wide release draws in a row; None for all.
    """

    @property
    def deviation(self) -> float: ...
    @property
    def columns_at_a_time(self) -> int | None: ...

    def scale_of(self, deviation: Array) -> Array:
        """Turn standard deviations into scales, of the same shape."""
        ...

    def grid(self, scale: Array | float, width: int) -> Array:
        """The grid of a release of `width` coordinates, for each scale, in its shape; 0 where the scale is 0."""
        ...

    def rounds_at_random(self, width: int) -> bool:
        """Whether a release of this width has its own uniform variates for rounding; the others do as they do."""
        ...

    def sample(self, request: Unnoised) -> Array:
        """Round and noise the queries of some agents, all channels side by side.

        Returns:
            The noised queries in units of the grid, (b, Σ widths): float64 integers.
        """
        ...


def noise_of(mechanism: Mechanism, channel: str) -> NoiseMechanism:
    """The same mechanism, as one that adds noise. Raises ValueError where it adds none."""
    if not mechanism.adds_noise:
        raise ValueError(f"{channel} is released by {mechanism.name!r}, which adds no noise to a value")
    return cast(NoiseMechanism, mechanism)
