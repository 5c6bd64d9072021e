"""Noise mechanisms: the privacy cost of a release, the grid of its values, and its sampler.

Values are rounded to a grid of a power of two before noise is added, and the rounding is part of the cost:

    Laplace     g = 2^(⌊log₂ b⌋ − 20), secret stochastic rounding, difference of two geometrics:
                k = ⌊u/g⌋ + [U < frac(u/g)] + ⌊E₁b/g⌋ − ⌊E₂b/g⌋,   U ~ U(0, 1), E ~ Exp(1)
                ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1), and the release is dominated by one Laplace pair with this ε
    Gaussian    g = 2^(⌊log₂ s⌋ − 16), deterministic rounding, rounded normal noise:
                k = rint(u/g) + rint(N·s/g),  N ~ N(0, 1)
                μ = (Δ₂ + √d·g)/s, exactly a Gaussian pair with this μ: rounded normal noise on an integer is
                post-processing of the Gaussian
      wide      (d > 2¹²) g = 2^(⌊log₂ s⌋ − 18), secret stochastic rounding, since √d·g would be large compared with Δ₂:
                k = ⌊u/g⌋ + [U < frac(u/g)] + rint(N·s/g)
                μ = √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s, a Gaussian pair with this μ except for δ = 2e^{−40} < 1e-17

Laplace: each ⌊Eb/g⌋ is exactly geometric, their difference is exactly discrete Laplace. Stochastic rounding makes the
cost independent of the dimension, except for the d·2⁻⁵² that the 53 bits of its uniform number can add.

Wide Gaussian: both neighbours share the uniform variates. Given these, a coordinate that moves by v_i (in g) is rounded
to one that moves by v_i + ξ_i, one of the integers around v_i, E ξ_i = 0. In ‖v + ξ‖² = ‖v‖² + 2⟨v, ξ⟩ + ‖ξ‖², except
with probability e^{−L} each (Hoeffding),

    ⟨v, ξ⟩ ≤ ‖v‖ √(L/2),   ‖ξ‖² ≤ d/4 + √(dL/2),

and 5 > √20 has room for the 53 bits of the variates. Deterministic rounding may move all coordinates in the same
direction.

Every mechanism is one final frozen class with a name, which ledgers on disk and results use. Ledgers and
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

# "fixed": a batch of fixed size, without replacement. "poisson": each record by its own Bernoulli draw.
Sampling = Literal["fixed", "poisson"]
# Pure ε, or the μ of a Gaussian pair.
CostUnit = Literal["ε", "μ"]
# Arrays that a sampler keeps from one draw to the next.
Workspace = dict[tuple[Any, ...], Any]


class DominatingPair(Enum):
    """Pair of distributions that dominates one release. It determines how the costs of many releases compose.

    Attributes:
        LAPLACE: Laplace pair with this pure ε.
        GAUSSIAN: Gaussian pair with this μ.
        RESPONSE: randomised response with this pure ε, which is the worst case for pure ε.
        RANGED: randomised response that also satisfies zero-concentrated privacy with ρ = ε²/8 (bounded range).
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    RESPONSE = "response"
    RANGED = "ranged"


class NormalVariates(NamedTuple):
    """Normal variates drawn by a float64 sampler. Their errors are bounded jointly with those of all other releases.

    Attributes:
        bits: fineness of the grid: the scale is 2^bits to 2^(bits + 1) cells.
        randomised: whether the variates are added to stochastically rounded values.
    """

    bits: int
    randomised: bool


class Mechanism(ABC):
    """Base class of mechanisms. A mechanism is a way to release a value at a known privacy cost.

    Attributes:
        name: name that ledgers, results and scenarios use.
        description: description for users.
        norm: norm in which the sensitivity is measured, or None if the sensitivity is not the norm of a vector.
        pure: whether a guarantee with δ = 0 is possible.
        unit: unit of the cost, pure "ε" or the "μ" of a Gaussian pair.
        dominating_pair: dominating pair of one release.
        charged: whether releases read records.
        proven: whether a proof bounds the privacy cost of a release.
        amplified_by: sampling schemes for which an amplification rule is known.
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
        """Whether the mechanism adds noise to a value."""
        return isinstance(self, NoiseMechanism)

    @abstractmethod
    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute the privacy cost of one release of `width` coordinates for a replaced record, in `unit`.

        Args:
            sensitivity: sensitivity in `norm`, any shape.
            scale: scale of the noise, broadcastable.
            width: number of coordinates of the release.

        Returns:
            The cost: +inf where the sensitivity is infinite, or positive without any noise, and 0 where the sensitivity
                is 0.
        """

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array] | NormalVariates:
        """Bound the (ε, δ) that a float64 sampler adds to releases with these costs. Exact samplers add nothing."""
        return np.zeros_like(loss), np.zeros_like(loss)


class Unnoised(NamedTuple):
    """Noiseless queries of some agents, with all channels side by side, as input to a sampler.

    Attributes:
        draws: random draws of the agents, in order.
        query: private parts, (b, Σ widths).
        grid: grid of every coordinate, (b or 1, Σ widths).
        scale: scale of the noise in units of the grid, (b or 1, Σ widths).
        widths: number of coordinates of each channel. `query` may be a part of a single channel.
        workspace: arrays that are reused between calls.
    """

    draws: Draws
    query: Array
    grid: Array
    scale: Array
    widths: tuple[int, ...]
    workspace: Workspace


class NoiseMechanism(Mechanism):
    """Base class of mechanisms that round a value to a power-of-two grid and add noise on that grid.

    Attributes:
        deviation: standard deviation of the noise, in units of its scale.
        columns_at_a_time: number of coordinates of one wide release that are drawn at once; None means all.
    """

    deviation: float
    columns_at_a_time: int | None = None

    @abstractmethod
    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the grid for a release of `width` coordinates at each scale, or 0 where the scale is 0."""

    def rounds_at_random(self, width: int) -> bool:
        """Return whether a release of this width is rounded stochastically."""
        return False

    @abstractmethod
    def sample(self, request: Unnoised) -> Array:
        """Round the queries of some agents and add noise, with all channels side by side.

        Returns:
            The noisy queries in units of the grid, (b, Σ widths), as float64 integers.
        """


def noise_of(mechanism: Mechanism, channel: str) -> NoiseMechanism:
    """Return the mechanism of a channel as a `NoiseMechanism`.

    Raises:
        ValueError: the mechanism adds no noise.
    """
    if not isinstance(mechanism, NoiseMechanism):
        raise ValueError(f"{channel}: mechanism {mechanism.name!r} adds no noise")
    return mechanism


def power_of_two_grid(scale: Array | float, bits: int) -> Array:
    """Return the grid 2^(⌊log₂ scale⌋ − bits) for each scale, or 0 where the scale is 0.

    Example:
        >>> power_of_two_grid(np.array([3.0, 0.0]), bits=4).tolist()
        [0.125, 0.0]
    """
    size = np.asarray(scale, dtype=np.float64)
    exponent = np.frexp(size)[1]
    return np.where(size > 0.0, np.ldexp(1.0, exponent - 1 - bits), 0.0)


def add_public(integers: Array, grid: Array, public: Array) -> None:
    """Compute g·(rint(public/g) + integers) in the array of the public part of a release.

    The sum is exact unless the public part is 2^33 times as large as the noise.

    Args:
        integers: noisy private part, (b, d), in units of the grid.
        grid: powers of two, broadcastable.
        public: public part, (b, d), overwritten.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        public *= 1.0 / grid
        np.rint(public, out=public)
        public += integers
        public *= grid


def broadcast(sensitivity: Array | float, scale: Array | float) -> tuple[Array, Array]:
    """Return both arguments as float64 arrays of the same shape."""
    wide = np.broadcast_arrays(np.asarray(sensitivity, dtype=np.float64), np.asarray(scale, dtype=np.float64))
    return wide[0], wide[1]


def limit_cost(cost: Array, sensitivity: Array, scale: Array) -> Array:
    """Return the cost, with 0 where the sensitivity is 0 and +inf where it is positive but there is no noise.

    Args:
        cost: costs of releases, any shape.
        sensitivity: sensitivities, of the same shape.
        scale: scale of the noise, of the same shape.
    """
    if sensitivity.size and sensitivity.min() > 0.0 and sensitivity.max() < np.inf and scale.min() > 0.0:
        return np.asarray(cost)
    is_unbounded = np.isinf(sensitivity) | ((sensitivity > 0.0) & (scale == 0.0))
    return np.where(sensitivity == 0.0, 0.0, np.where(is_unbounded, np.inf, cost))


def round_at_random(query: Array, grid: Array, uniforms: NDArray[np.float64]) -> Array:
    """Compute ⌊query/g⌋ + [U < frac(query/g)], as float64 integers.

    Args:
        query: private parts, (b, d).
        grid: powers of two, broadcastable.
        uniforms: secret uniform variates in [0, 1), (b, d).
    """
    # 1/g is exact for a power of two, and a product is faster than a quotient.
    cells = query * (1.0 / grid)
    out = np.floor(cells)
    # The sum U + scaled would round the low bits of U away.
    cells -= out
    out += uniforms < cells
    return np.asarray(out)


# The scale is 2^bits to 2^(bits + 1) cells of the grid.
LAPLACE_BITS = 20


@final
@dataclass(frozen=True)
class Laplace(NoiseMechanism):
    """Laplace noise with density ∝ e^{−|n|/b} on every coordinate, where b is the scale.

    Sensitivity:
        The norm is l1. The cost includes rounding to the grid. The module docstring has the formula, and docs/proofs/07
        the proof.

    Limits:
        With scale 0, a positive sensitivity costs +inf.

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
        """Return the grid 2^(⌊log₂ b⌋ − 20) of each scale b."""
        return power_of_two_grid(scale, LAPLACE_BITS)

    def rounds_at_random(self, width: int) -> bool:
        """Return True, since rounding is always stochastic."""
        return True

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute ε = (Δ₁/g + d·2⁻⁵²)(e^{g/b} − 1).

        Args:
            sensitivity: sensitivity Δ₁, a number or an array.
            scale: scale b; broadcasts with Δ₁.
            width: number of coordinates d.
        """
        delta, b = broadcast(sensitivity, scale)
        g = self.grid(b, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = (delta / g + width * 2.0**-52) * np.expm1(g / b)
        return limit_cost(loss, delta, b)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        """Bound the contribution of float64 variates to (ε, δ) by (2e-15·d, 1.3e-16·(2d + e^ε − 1)).

        The module `float_slack` and docs/proofs/09 describe the measurement.
        """
        is_charged = loss > 0.0
        with np.errstate(over="ignore"):
            delta = np.minimum(1.3e-16 * (2.0 * width + np.expm1(loss)), 1.0)
        return np.where(is_charged, 2e-15 * width, 0.0), np.where(is_charged, delta, 0.0)

    def sample(self, request: Unnoised) -> Array:
        """Draw noisy values in units of the grid, (b, Σ widths) float64 integers."""
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
        query: private parts, (b, d).
        g: grid.
        ratio: scale/grid.
        exponentials: exponential variates, (2, b, d), overwritten.
        uniforms: uniform variates in [0, 1), (b, d).

    Example:
        >>> g, ratio, noise = np.ones((1, 1)), np.ones((1, 1)), np.array([[[2.5]], [[0.5]]])
        >>> laplace_integers(np.array([[3.0]]), g, ratio, noise, np.array([[0.5]])).tolist()
        [[5.0]]
    """
    out = round_at_random(query, g, uniforms)
    exponentials *= ratio
    np.floor(exponentials, out=exponentials)
    out += exponentials[0]
    out -= exponentials[1]
    return np.asarray(out)


GAUSSIAN_BITS, RANDOMISED_BITS = 16, 18
# The largest width that is not wide.
_NARROW = 2**12


@final
@dataclass(frozen=True)
class Gaussian(NoiseMechanism):
    """Gaussian noise on every coordinate, with the scale as standard deviation.

    Sensitivity:
        The norm is l2. The cost includes rounding to the grid. The module docstring has the formulas, and
        docs/proofs/08 the proof.

    Limits:
        With scale 0, a positive sensitivity costs +inf.

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
        """Return the grid 2^(⌊log₂ s⌋ − bits) of each scale s."""
        return power_of_two_grid(scale, self.bits(width))

    def bits(self, width: int) -> int:
        """Return the fineness of the grid: the scale is 2^bits to 2^(bits + 1) cells."""
        return RANDOMISED_BITS if self.rounds_at_random(width) else GAUSSIAN_BITS

    def rounds_at_random(self, width: int) -> bool:
        """Return whether a release of this width is wide (d > 2¹²) and is therefore rounded stochastically."""
        return width > _NARROW

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute μ = (Δ₂ + √d·g)/s, or √((Δ₂ + 5g)² + (d/4 + 5√d)g²)/s for wide releases.

        Args:
            sensitivity: sensitivity Δ₂, a number or an array.
            scale: scale s; broadcasts with Δ₂.
            width: number of coordinates d.
        """
        delta, sd = broadcast(sensitivity, scale)
        g = self.grid(sd, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.rounds_at_random(width):
                randomised = np.sqrt(0.25 * width + 5.0 * np.sqrt(width))
                mu = np.hypot((delta + 5.0 * g) / sd, randomised * (g / sd))
            else:
                mu = (delta + np.sqrt(width) * g) / sd
        return limit_cost(mu, delta, sd)

    def float_slack(self, loss: Array, width: int) -> NormalVariates:
        """Return the kind of float64 variates that are drawn. Accountants bound their errors (docs/proofs/09).

        Args:
            loss: costs μ of releases, any shape.
            width: number of coordinates d.
        """
        return NormalVariates(self.bits(width), self.rounds_at_random(width))

    def sample(self, request: Unnoised) -> Array:
        """Draw noisy values in units of the grid, (b, Σ widths) float64 integers."""
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
    """Compute rint(query/g) + rint(N·ratio) as float64 integers, or ⌊query/g⌋ + [U < frac(query/g)] + rint(N·ratio).

    Args:
        query: private parts, (b, d).
        g: grid.
        ratio: scale/grid.
        normals: normal variates, (b, d), overwritten.
        uniforms: uniform variates in [0, 1), (b, d), for stochastic rounding; None rounds to the nearest integer.

    Example:
        >>> one, noise = np.ones((1, 1)), np.array([[1.2]])
        >>> gaussian_integers(np.array([[3.4]]), one, one, noise).tolist()
        [[4.0]]
    """
    if uniforms is None:
        out = query * (1.0 / g)
        np.rint(out, out=out)
    else:
        out = round_at_random(query, g, uniforms)
    normals *= ratio
    out += np.rint(normals, out=normals)
    return np.asarray(out)


LAPLACE, GAUSSIAN = Laplace(), Gaussian()


@final
@dataclass(frozen=True)
class NothingHidden(Mechanism):
    """Releases without noise. A positive sensitivity costs +inf. `Mechanism` describes the attributes."""

    name: str
    description: str
    unit: CostUnit = "ε"
    charged: bool = True
    proven: bool = False
    amplified_by: tuple[Sampling, ...] = ("fixed", "poisson")

    # All composition rules agree on infinite costs.
    dominating_pair = DominatingPair.LAPLACE
    norm = None
    pure = True

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Return +inf where the sensitivity is positive, and 0 elsewhere."""
        return np.where(np.asarray(sensitivity) > 0.0, np.inf, 0.0)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        """Return the slack of Laplace releases, which is 0 at cost 0."""
        return LAPLACE.float_slack(loss, width)


NO_NOISE = NothingHidden("none", "no noise")
# Distributions without a proof. The ledger entry has the reason, and the scale of the ideal distribution.
UNCERTIFIED = NothingHidden("uncertified", "a random choice of which nothing is proven", unit="μ")
# Functions of public and released values.
NO_MECHANISM = NothingHidden("free", "nothing, for it reads no record", charged=False, proven=True, amplified_by=())


@final
@dataclass(frozen=True)
class Pure(Mechanism):
    """Releases with a pure ε whose values are drawn by exact samplers. `Mechanism` describes the attributes."""

    name: str
    description: str
    dominating_pair: DominatingPair

    norm = None
    pure = charged = proven = True
    unit = "ε"
    amplified_by = ()

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute ε = sensitivity/scale."""
        delta, s = broadcast(sensitivity, scale)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            loss = delta / s
        return limit_cost(loss, delta, s)


# A random choice that is released itself (`exchange.SelectionMechanism`). Its sensitivity is the oscillation of scores.
EXPONENTIAL = Pure("exponential", "a random choice by an exponential mechanism", DominatingPair.RANGED)
# Releases of which only the pure ε is known.
PURE = Pure("pure", "a release of pure ε", DominatingPair.RESPONSE)

# Name, as in ledgers on disk → mechanism.
MECHANISMS: Mapping[str, Mechanism] = {
    m.name: m for m in (LAPLACE, GAUSSIAN, PURE, EXPONENTIAL, NO_NOISE, UNCERTIFIED, NO_MECHANISM)
}


def mechanism_of(mechanism: Mechanism | str) -> Mechanism:
    """Return the mechanism with this name. A mechanism is returned unchanged.

    Raises:
        KeyError: no mechanism has this name.
    """
    return MECHANISMS[mechanism] if isinstance(mechanism, str) else mechanism
