"""Noise mechanisms: the privacy cost of a release, the grid of its values, and its sampler.

Values are rounded to a grid of a power of two before noise is added, and the rounding is part of the cost:

    Laplace     g = 2^(⌊log₂ b⌋ − 20), secret stochastic rounding, difference of two geometrics:
                k = ⌊u/g⌋ + [U < frac(u/g)] + ⌊E₁b/g⌋ − ⌊E₂b/g⌋,   U ~ U(0, 1), E ~ Exp(1)
                ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1), and the release is dominated by one Laplace pair with this ε
    Gaussian    g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:
                k = rint(u/g) + rint(N·s/g),  N ~ N(0, 1)
                μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ: rounded normal noise on an integer is
                post-processing of the Gaussian
      wide      (d > 2¹²) g = 2^(⌊log₂ s⌋ − 18), secret stochastic rounding, where √d·g would be much compared with Δ₂:
                k = ⌊u/g⌋ + [U < frac(u/g)] + rint(N·s/g)
                μ = √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s, a Gaussian pair with this μ except for δ = 2e^{−40} < 1e-17

Laplace: each ⌊Eb/g⌋ is exactly geometric, their difference is exactly discrete Laplace. Stochastic rounding makes the
cost independent of the dimension, except for the d·2⁻⁵² that the 53 bits of its uniform number can add.

Wide Gaussian: both neighbours share the uniform variates. Given these, a coordinate that moves by v_i (in g) is rounded
to one that moves by v_i + ξ_i, one of the integers around v_i, E ξ_i = 0. In ‖v + ξ‖² = ‖v‖² + 2⟨v, ξ⟩ + ‖ξ‖², except
for e^{−L} each (Hoeffding)

    ⟨v, ξ⟩ ≤ ‖v‖ √(L/2),   ‖ξ‖² ≤ d/4 + √(dL/2),

and 5 > √20 has room for the 53 bits of the variates. All coordinates of a deterministic rounding may go the same way.

Every mechanism is one final frozen class with a name, by which ledgers on disk and results call it. Ledgers and
accountants need `Mechanism`, releasers need `NoiseMechanism`. A custom mechanism is registered by `register_outside`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.privacy.randomness import Draws

# How a fresh batch is drawn: so many records of the pool, or every record by its own coin.
Sampling = Literal["fixed", "poisson"]
# Of a price: pure ε, or the μ of a Gaussian pair.
CostUnit = Literal["ε", "μ"]
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


class Mechanism(ABC):
    """A way of releasing a value, and its privacy cost.

    Attributes:
        name: in ledgers, results and scenarios.
        description: for people.
        norm: in which the sensitivity is measured; None if it is none of a vector.
        pure: whether δ = 0 may be stated.
        unit: of the cost, pure "ε" or the "μ" of a Gaussian pair.
        dominating_pair: of one release.
        charged: False if releases read no record.
        proven: False if nothing bounds what a release shows.
        amplified_by: samplings for which an amplification rule is known.
    """

    name: str
    description: str
    norm: Norm | None
    pure: bool
    unit: CostUnit
    dominating_pair: DominatingPair
    charged: bool
    proven: bool
    amplified_by: tuple[Sampling, ...]

    @property
    def adds_noise(self) -> bool:
        """Whether it adds noise to a value."""
        return isinstance(self, NoiseMechanism)

    @abstractmethod
    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute the cost of one release of `width` coordinates to a replaced record, in `unit`.

        Args:
            sensitivity: in `norm`, any shape.
            scale: of the noise, broadcastable.
            width: coordinates of the release.

        Returns:
            The cost; +inf where the sensitivity is infinite, or positive without noise; 0 where it is 0.
        """

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array] | NormalVariates:
        """Bound what a float64 sampler adds to releases of these costs: (ε, δ) each; exact samplers add nothing."""
        return np.zeros_like(loss), np.zeros_like(loss)


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


class NoiseMechanism(Mechanism):
    """A mechanism that rounds a value to a grid of a power of two and adds noise there.

    Attributes:
        deviation: standard deviation of the noise, in units of its scale.
        columns_at_a_time: how many coordinates of one wide release are drawn at once; None for all.
    """

    deviation: float
    columns_at_a_time: int | None = None

    def scale_of(self, deviation: Array) -> Array:
        """Convert standard deviations to scales, of the same shape."""
        return np.asarray(deviation / self.deviation)

    @abstractmethod
    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the grid of a release of `width` coordinates, for each scale, in its shape; 0 if the scale is 0."""

    def rounds_at_random(self, width: int) -> bool:
        """Return whether a release of this width has uniform variates of its own for rounding."""
        return False

    @abstractmethod
    def sample(self, request: Unnoised) -> Array:
        """Round the queries of some agents and add noise, all channels side by side.

        Returns:
            The noised queries in units of the grid, (b, Σ widths): float64 integers.
        """


def noise_of(mechanism: Mechanism, channel: str) -> NoiseMechanism:
    """Return the same mechanism, as one that adds noise.

    Raises:
        ValueError: it adds none.
    """
    if not isinstance(mechanism, NoiseMechanism):
        raise ValueError(f"{channel} is released by {mechanism.name!r}, which adds no noise to a value")
    return mechanism


def power_of_two_grid(scale: Array | float, bits: int) -> Array:
    """Return the grid 2^(⌊log₂ scale⌋ − bits) of each scale, in its shape; 0 where it is 0.

    Example:
        >>> power_of_two_grid(np.array([3.0, 0.0]), bits=4).tolist()
        [0.125, 0.0]
    """
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - bits), 0.0)


def add_public(integers: Array, grid: Array, public: Array) -> None:
    """Make g·(rint(public/g) + integers) of the public part of a release, in place.

    All (b, d), or of a shape that broadcasts to it. Exact, unless the public part is 2^33 times as large as the noise:
    integers, times a power of two.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        public *= 1.0 / grid
        np.rint(public, out=public)
        public += integers
        public *= grid


def broadcast(sensitivity: Array | float, scale: Array | float) -> tuple[Array, Array]:
    """Return both as float64 arrays of one shape."""
    wide = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    return wide[0], wide[1]


def price_limits(price: Array, sensitivity: Array, scale: Array) -> Array:
    """Return the price, but 0 where nothing can move, and +inf where nothing hides what can.

    Args:
        price: of a release, any shape.
        sensitivity: of the same shape.
        scale: of the noise, of the same shape.
    """
    if sensitivity.size and sensitivity.min() > 0.0 and sensitivity.max() < np.inf and scale.min() > 0.0:
        return np.asarray(price)
    unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(unbounded, np.inf, price))


def rounded_at_random(query: Array, grid: Array, uniforms: NDArray[np.float64]) -> Array:
    """Compute ⌊query/g⌋ + [U < frac(query/g)], as float64 integers.

    Args:
        query: (b, d).
        grid: powers of two, broadcastable.
        uniforms: (b, d) in [0, 1), secret.
    """
    # 1/g is exact, g being a power of two, and multiplying is faster than dividing.
    scaled = query * (1.0 / grid)
    out = np.floor(scaled)
    # Compared, not added: U + scaled would round away the low bits of U.
    scaled -= out
    out += uniforms < scaled
    return np.asarray(out)


# The scale is 2^bits to 2^(bits + 1) cells of the grid.
LAPLACE_BITS = 20


@final
@dataclass(frozen=True)
class Laplace(NoiseMechanism):
    """Laplace noise: density ∝ e^{−|n|/b} on every coordinate, b the scale.

    Sensitivity:
        In l1. Rounding to the grid is in the price; formula at the top of this module, see docs/proofs/07.

    Limits:
        Scale 0 costs +inf where a record can move the value, and nothing where none can.

    Example:
        >>> mechanism = Laplace()
        >>> round(float(mechanism.cost(sensitivity=1.0, scale=2.0, width=10)), 5)
        0.5
        >>> float(mechanism.cost(1.0, 0.0, 10)), float(mechanism.cost(0.0, 0.0, 10))
        (inf, 0.0)
        >>> float(mechanism.grid(1.0, width=10)) == 2.0**-20
        True
    """

    name = "laplace"
    description = "Laplace noise"
    norm = "l1"
    pure = True
    unit = "ε"
    dominating_pair = DominatingPair.LAPLACE
    charged = proven = True
    amplified_by = ("fixed",)
    deviation = np.sqrt(2.0)

    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the power of two that released values are multiples of, for each scale, in its shape."""
        return power_of_two_grid(scale, LAPLACE_BITS)

    def rounds_at_random(self, width: int) -> bool:
        """Say whether a release of this width is rounded at random: always."""
        return True

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Price a release: ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1).

        Args:
            sensitivity: Δ₁, a number or an array.
            scale: b; broadcasts with Δ₁.
            width: d.
        """
        delta, b = broadcast(sensitivity, scale)
        g = self.grid(b, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = (delta / g + width * 2.0**-52) * np.expm1(g / b)
        return price_limits(loss, delta, b)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        """Bound what float64 variates add to (ε, δ): (2e-15·d, 1.3e-16·(2d + e^ε − 1)).

        How that was measured is in `float_slack`; see docs/proofs/09.
        """
        is_charged = loss > 0.0
        with np.errstate(over="ignore"):
            delta = np.minimum(1.3e-16 * (2.0 * width + np.expm1(loss)), 1.0)
        return np.where(is_charged, 2e-15 * width, 0.0), np.where(is_charged, delta, 0.0)

    def sample(self, request: Unnoised) -> Array:
        """Draw noised values in units of the grid, (b, Σ widths) float64 integers."""
        draws, query, grid, scale, _, workspace = request[:6]
        if query.shape not in workspace:
            rows, columns = query.shape
            workspace[query.shape] = np.empty((rows, 2, columns)), np.empty((rows, columns))
        variates, uniforms = workspace[query.shape]
        draws.fill(("exponential", variates), ("uniform", uniforms))
        return laplace_integers(query, grid, scale, variates.transpose(1, 0, 2), uniforms)


def laplace_integers(query: Array, g: Array, ratio: Array, exponentials: Array, uniforms: Array) -> Array:
    """Compute ⌊query/g⌋ + [U < frac(query/g)] + ⌊E₁·ratio⌋ − ⌊E₂·ratio⌋, as float64 integers.

    Args:
        query: (b, d).
        g: grid.
        ratio: scale/grid.
        exponentials: (2, b, d), overwritten.
        uniforms: (b, d) in [0, 1).

    Example:
        >>> g, ratio, noise = np.ones((1, 1)), np.ones((1, 1)), np.array([[[2.5]], [[0.5]]])
        >>> laplace_integers(np.array([[3.0]]), g, ratio, noise, np.array([[0.5]])).tolist()
        [[5.0]]
    """
    out = rounded_at_random(query, g, uniforms)
    exponentials *= ratio
    np.floor(exponentials, out=exponentials)
    out += exponentials[0]
    out -= exponentials[1]
    return np.asarray(out)


GAUSSIAN_BITS, RANDOMISED_BITS = 16, 18
# Above it a release is wide.
_NARROW = 2**12


@final
@dataclass(frozen=True)
class Gaussian(NoiseMechanism):
    """Gaussian noise on every coordinate, its standard deviation the scale.

    Sensitivity:
        In l2. Rounding to the grid is in the price; formulas at the top of this module, see docs/proofs/08.

    Limits:
        Scale 0 costs +inf where a record can move the value, and nothing where none can.

    Example:
        >>> mechanism = Gaussian()
        >>> round(float(mechanism.cost(sensitivity=1.0, scale=2.0, width=10)), 3)
        0.5
        >>> float(mechanism.cost(1.0, 0.0, 10)), float(mechanism.cost(0.0, 0.0, 10))
        (inf, 0.0)
        >>> mechanism.rounds_at_random(width=10), mechanism.rounds_at_random(width=10_000)
        (False, True)
    """

    name = "gaussian"
    description = "Gaussian noise"
    norm = "l2"
    pure = False
    unit = "μ"
    dominating_pair = DominatingPair.GAUSSIAN
    charged = proven = True
    amplified_by = ("fixed", "poisson")
    deviation = 1.0
    columns_at_a_time = 2**14

    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the power of two that released values are multiples of, for each scale, in its shape."""
        return power_of_two_grid(scale, self.bits(width))

    def bits(self, width: int) -> int:
        """Return how fine the grid is: the scale is 2^bits to 2^(bits + 1) cells of it."""
        return RANDOMISED_BITS if self.rounds_at_random(width) else GAUSSIAN_BITS

    def rounds_at_random(self, width: int) -> bool:
        """Say whether a release of this width is rounded at random: where it is wide, d > 2¹²."""
        return width > _NARROW

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Price a release: μ = (Δ₂ + √d·g)/s; of a wide release √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s.

        Args:
            sensitivity: Δ₂, a number or an array.
            scale: s; broadcasts with Δ₂.
            width: d.
        """
        delta, sd = broadcast(sensitivity, scale)
        g = self.grid(sd, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rounds_at_random(width):
                randomised = np.sqrt(0.25 * width + 5.0 * np.sqrt(width))
                mu = np.hypot((delta + 5.0 * g) / sd, randomised * (g / sd))
            else:
                mu = (delta + np.sqrt(width) * g) / sd
        return price_limits(mu, delta, sd)

    def float_slack(self, loss: Array, width: int) -> NormalVariates:
        """Return the law of the float64 variates, from which accountants bound what they add; see docs/proofs/09.

        loss: μ of releases, of any shape.
        """
        return NormalVariates(self.bits(width), self.rounds_at_random(width))

    def sample(self, request: Unnoised) -> Array:
        """Draw noised values in units of the grid, (b, Σ widths) float64 integers."""
        draws, query, grid, scale, widths, workspace = request[:6]
        (rows, columns), ends = query.shape, accumulate(widths)
        wide = [slice(end - w, end) for end, w in zip(ends, widths, strict=True) if self.rounds_at_random(w)]
        key = (rows, columns, *(c.stop for c in wide))
        if key not in workspace:
            # Half everywhere rounds to the nearest.
            workspace[key] = np.empty((rows, columns)), np.full((rows, columns if wide else 0), 0.5)
        normals, uniforms = workspace[key]
        draws.fill(("normal", normals), *[("uniform", uniforms[:, part]) for part in wide])
        return gaussian_integers(query, grid, scale, normals, uniforms if wide else None)


def gaussian_integers(query: Array, g: Array, ratio: Array, normals: Array, uniforms: Array | None = None) -> Array:
    """Compute rint(query/g), or with uniforms ⌊query/g⌋ + [U < frac(query/g)], + rint(N·ratio), as float64 integers.

    Args:
        query: (b, d).
        g: grid.
        ratio: scale/grid.
        normals: (b, d), overwritten.
        uniforms: (b, d) in [0, 1); None rounds to the nearest.

    Example:
        >>> one, noise = np.ones((1, 1)), np.array([[1.2]])
        >>> gaussian_integers(np.array([[3.4]]), one, one, noise).tolist()
        [[4.0]]
    """
    if uniforms is None:
        out = query * (1.0 / g)
        np.rint(out, out=out)
    else:
        out = rounded_at_random(query, g, uniforms)
    normals *= ratio
    out += np.rint(normals, out=normals)
    return np.asarray(out)


LAPLACE, GAUSSIAN = Laplace(), Gaussian()


@final
@dataclass(frozen=True)
class NothingHidden(Mechanism):
    """No noise on a value: whatever a record can move costs infinitely much. Fields as of `Mechanism`."""

    name: str
    description: str
    unit: CostUnit = "ε"
    # Where nothing is hidden all rules agree, so that these releases may pass for Laplace ones.
    dominating_pair: DominatingPair = DominatingPair.LAPLACE
    charged: bool = True
    proven: bool = False
    amplified_by: tuple[Sampling, ...] = ("fixed", "poisson")

    norm = None
    pure = True

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """+inf wherever a record can move the release. Any shapes that broadcast, as of `Mechanism.cost`."""
        return np.where(np.asarray(sensitivity) > 0.0, np.inf, 0.0)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        return LAPLACE.float_slack(loss, width)


NO_NOISE = NothingHidden("none", "no noise")
# A law for which nothing is proven; the ledger's line says why, and its scale is of the law that it stands for.
UNCERTIFIED = NothingHidden("uncertified", "a random choice of which nothing is proven", unit="μ")
# Functions of public and released values.
NO_MECHANISM = NothingHidden("free", "nothing, for it reads no record", charged=False, proven=True, amplified_by=())


@final
@dataclass(frozen=True)
class Pure(Mechanism):
    """A release that is drawn by its value's own law, of pure ε. Fields as of `Mechanism`."""

    name: str
    description: str
    dominating_pair: DominatingPair

    norm = None
    pure = charged = proven = True
    unit = "ε"
    amplified_by = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """ε = sensitivity/scale. Any shapes that broadcast, as of `Mechanism.cost`."""
        delta, s = broadcast(sensitivity, scale)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = delta / s
        return price_limits(loss, delta, s)


# A random choice that is itself the release (`exchange.SelectionMechanism`); its sensitivity is the oscillation of the
# scores.
EXPONENTIAL = Pure("exponential", "a random choice by an exponential mechanism", DominatingPair.RANGED)
# Of whose law nothing else is known.
PURE = Pure("pure", "a release of pure ε", DominatingPair.RESPONSE)

# Name, as in ledgers on disk → mechanism.
MECHANISMS: Mapping[str, Mechanism] = {
    m.name: m for m in (LAPLACE, GAUSSIAN, PURE, EXPONENTIAL, NO_NOISE, UNCERTIFIED, NO_MECHANISM)
}


def mechanism_of(named: Mechanism | str) -> Mechanism:
    """Return the mechanism of that name, or the mechanism itself.

    Raises:
        KeyError: no mechanism has this name.
    """
    if not isinstance(named, str):
        return named
    return MECHANISMS[named]
