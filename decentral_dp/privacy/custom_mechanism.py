"""Custom mechanisms: the contract for user-defined classes, and their registration.

A class must have `name`, `norm` ("l1" or "l2"), `deviation` (standard deviation of the noise in units of its scale),
`cost(sensitivity, scale, width)` and `sample(generator, query, grid, scale)`. It may have `unit` ("ε", the default, for
pure ε; "μ" for a Gaussian pair), `description`, `grid(scale, width)` and `float_slack(loss, width)`.

Releases are composed as the worst case for their cost: randomised response for a pure ε, or a Gaussian pair for a μ.
The package cannot verify that the sampler has this cost, so results list the mechanism as unverified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError, converting, quoted
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.mechanisms import (
    MECHANISMS,
    CostUnit,
    DominatingPair,
    NoiseMechanism,
    Unnoised,
    broadcast,
    limit_cost,
    power_of_two_grid,
)
from decentral_dp.privacy.randomness import Draws, Streams, seeded_root
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# The scale is 2^bits to 2^(bits + 1) cells of the default grid.
_BITS = 20
_UNITS: Mapping[CostUnit, DominatingPair] = {"ε": DominatingPair.RESPONSE, "μ": DominatingPair.GAUSSIAN}
# Sensitivities, scales and widths at which a cost is tested.
_TESTED_COSTS = (np.array([0.0, 0.5, 1.0, 2.0])[:, None], np.array([0.25, 1.0, 4.0])[None, :], (1, 7))
# Agents, (index, channel) of their keys, and coordinates with which a sampler is tested. A sound sampler has two equal
# rows or columns with probability below 10⁻⁵, if no value of a coordinate has a probability above 0.7.
_TESTED_AGENTS, _TESTED_KEYS, _TESTED_WIDTH = 20, ((1, 0), (2, 0), (1, 1)), 64


@dataclass(frozen=True)
class OutsideMechanism(NoiseMechanism):
    """User-defined mechanism. Create one with `register_outside`.

    Attributes:
        options: fields of the user's object, which distinguish mechanisms of the same name.
        source: digest of the source code of its class, or "".
        definition: the user's object.
    """

    name: str
    description: str
    norm: Norm
    unit: CostUnit
    pure: bool
    dominating_pair: DominatingPair
    deviation: float
    options: str
    source: str = field(default="", compare=False)
    # Not compared: a class that is unpickled in another process is another class.
    definition: Any = field(default=None, compare=False, repr=False)

    charged = proven = True
    amplified_by = ()

    def grid(self, scale: Array | float, width: int) -> Array:
        """Return the user's grid, or by default the grid 2^(⌊log₂ scale⌋ − 20)."""
        if not hasattr(self.definition, "grid"):
            return power_of_two_grid(scale, _BITS)
        return _numbers(self.definition, "grid", np.asarray(scale, dtype=np.float64), width)

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """Compute the user's cost: 0 where the sensitivity is 0, and +inf where it is positive without noise."""
        delta, s = broadcast(sensitivity, scale)
        # The user's formula receives finite sensitivities and positive scales only.
        is_regular = np.isfinite(delta) & (s > 0.0)
        pairs = np.where(is_regular, delta, 0.0), np.where(is_regular, s, 1.0)
        costs = _numbers(self.definition, "cost", *pairs, width)
        _require(self.definition, "cost", costs, delta.shape, "costs of at least 0, one for each sensitivity")
        return limit_cost(costs, delta, s)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        """Return the user's bound on the (ε, δ) that float64 arithmetic adds, which is 0 by default."""
        if not hasattr(self.definition, "float_slack"):
            return np.zeros_like(loss), np.zeros_like(loss)
        slack = _numbers(self.definition, "float_slack", loss, width)
        expected = "an ε and a δ of at least 0 for each cost"
        _require(self.definition, "float_slack", slack, (2, *loss.shape), expected)
        return slack[0], slack[1]

    def sample(self, request: Unnoised) -> Array:
        """Draw noisy values in units of the grid, (b, d), with the user's sampler.

        Raises:
            UserCodeError: the sampler breaks its contract.
        """
        draws, query, grid, scale, widths = request[:5]
        out = np.empty(query.shape)
        grids, ratios = np.broadcast_to(grid, query.shape), np.broadcast_to(scale, query.shape)
        ends = list(accumulate(widths))
        rows = zip(out, query, grids, ratios, draws.generators(), strict=True)
        for row, row_query, g, ratio, generator in rows:
            for end, width in zip(ends, widths, strict=True):
                part = slice(end - width, end)
                step = float(g[part][0])
                try:
                    # Exact: the grid is a power of two.
                    row[part] = self._sample(generator, row_query[part], step, float(ratio[part][0]) * step) / step
                except InputError as error:
                    # Earlier rounds have been released, so this is a failed run, not an input error.
                    raise UserCodeError(str(error)) from error
        return out

    def _sample(self, generator: np.random.Generator, query: Array, grid: float, scale: float) -> Array:
        draws = _numbers(self.definition, "sample", generator, query.copy(), grid, scale)
        fault = ""
        if draws.shape != query.shape or not np.isfinite(draws).all():
            fault = f"returns {_value_text(draws)}, expected {query.size} finite numbers"
        elif (np.rint(draws / grid) != draws / grid).any():
            fault = (
                f"returns values off the grid {grid:g}, whose low bits may leak the query (expected multiples of the "
                "grid)"
            )
        if fault:
            raise _refusal(self.definition, "sample", fault)
        return draws


# Attribute of a class, check of its value (None if it is missing), and description.
_ATTRIBUTES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "name",
        lambda value: isinstance(value, str) and value.isidentifier() and value not in MECHANISMS,
        'a name such as "staircase", none of the package\'s own',
    ),
    ("norm", lambda value: value in ("l1", "l2"), 'norm = "l1" or "l2", in which its sensitivity is measured'),
    ("unit", lambda value: value in (None, *_UNITS), 'unit = "ε" (pure) or "μ" (a Gaussian pair)'),
    (
        "deviation",
        lambda value: not isinstance(value, bool) and isinstance(value, (int, float)) and 0.0 < value < math.inf,
        "deviation, the standard deviation of its noise at scale 1, a number above 0",
    ),
    ("cost", callable, "a method cost"),
    ("sample", callable, "a method sample"),
    ("grid", lambda value: value is None or callable(value), "a method grid, or none of this name"),
    ("float_slack", lambda value: value is None or callable(value), "a method float_slack, or none of this name"),
)


def register_outside(author: Any) -> OutsideMechanism:
    """Register an object of a user-defined class as a mechanism.

    Raises:
        InputError: a member is missing or invalid, or the cost function or the sampler fails its tests.
    """
    for attribute, is_valid, description in _ATTRIBUTES:
        if not is_valid(getattr(author, attribute, None)):
            got = f", got {quoted(str(getattr(author, attribute)))}" if hasattr(author, attribute) else ""
            raise InputError(
                f"privacy.mechanism: {type(author).__name__} lacks {description}{got}. Fix: add it to the class."
            )
    unit: CostUnit = getattr(author, "unit", None) or "ε"
    options = [f"{f.name}={getattr(author, f.name)!r}" for f in fields(author)] if is_dataclass(author) else []
    mechanism = OutsideMechanism(
        author.name,
        str(getattr(author, "description", f"{author.name} noise")),
        author.norm,
        unit,
        unit == "ε",
        _UNITS[unit],
        float(author.deviation),
        ", ".join(options),
        digest_of(author),
        author,
    )
    for faults in (_cost_faults, _noise_faults):
        for method, fault in faults(mechanism):
            raise _refusal(author, method, fault)
    return mechanism


def mechanism_options(mechanism: OutsideMechanism) -> dict[str, Any]:
    """Return those fields of the user's object that can be written in a scenario."""
    author = mechanism.definition
    options = {f.name: getattr(author, f.name) for f in fields(author)} if is_dataclass(author) else {}
    return {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str))}


def _cost_faults(mechanism: OutsideMechanism) -> Iterator[tuple[str, str]]:
    """Yield faults of a cost that decreases with the sensitivity, increases with the noise, or is not finite."""
    deltas, scales, widths = _TESTED_COSTS
    for width in widths:
        cost = mechanism.cost(deltas, scales, width)
        if not np.isfinite(cost).all() or (np.diff(cost, axis=0) < 0.0).any() or (np.diff(cost, axis=1) > 0.0).any():
            yield (
                "cost",
                "must be finite, grow with the sensitivity and fall with the scale, and for sensitivities 0, 0.5, "
                f"1, 2 at scale 1 it is {_value_text(cost[:, 1])}",
            )
        if not (cost[1:] > 0.0).all():
            yield "cost", "is 0 for a sensitivity above 0"
        grid = mechanism.grid(scales, width)
        if grid.shape != scales.shape or not (grid > 0.0).all() or (np.frexp(grid)[0] != 0.5).any():
            yield "grid", f"returns {_value_text(grid)}, expected powers of two, one for each scale"


def _noise_faults(mechanism: OutsideMechanism) -> Iterator[tuple[str, str]]:
    """Yield faults of a sampler without noise, or with equal noise under two keys or in two coordinates.

    The query is equal in all rows and coordinates. Only the keys of the generators differ.

    Raises:
        InputError: the sampler fails, or returns a wrong number of values or values off the grid.
    """
    for width in _TESTED_COSTS[2]:
        mechanism.float_slack(np.array([0.0, 1.0]), width)
        # No run uses this key or this query.
        generator, query = np.random.Generator(np.random.Philox(key=width)), np.linspace(-0.3, 0.7, width)
        mechanism._sample(generator, query, float(mechanism.grid(np.ones(1), width)[0]), 1.0)
    grid = float(mechanism.grid(np.ones(1), _TESTED_WIDTH)[0])
    # Public keys, which no run has.
    streams = Streams(seeded_root(0, b"mechanism trial"), "noise", range(_TESTED_AGENTS))

    def draw(index: int, channel: int) -> list[Array]:
        query, generators = np.full(_TESTED_WIDTH, 0.3), Draws(streams, index, channel).generators()
        return [mechanism._sample(generator, query, grid, 1.0) for generator in generators]

    samples = np.array([row for key in _TESTED_KEYS for row in draw(*key)])
    if (constant := (samples == samples[0]).all(axis=0)).any():
        place = f"coordinate {np.argmax(constant)}"
        yield "sample", f"returns one value in {place} under {len(samples)} keys: there is no noise, or no keyed noise"
    if len(np.unique(samples, axis=0)) < len(samples):
        yield "sample", "adds equal noise under two keys; draw from the generator only"
    if len(np.unique(samples, axis=1).T) < _TESTED_WIDTH:
        yield "sample", "adds equal noise to two coordinates of a release; draw noise for each"
    if not np.array_equal(samples[:_TESTED_AGENTS], draw(*_TESTED_KEYS[0])):
        yield "sample", "adds different noise under one key; draw from the generator, and keep no state"


def _numbers(author: Any, method: str, *args: Any) -> Array:
    fails = converting(USER_ERRORS, lambda error: str(_refusal(author, method, f"fails with {blame(error)}")))
    with fails, np.errstate(all="ignore"):
        return np.asarray(getattr(author, method)(*args)).astype(np.float64, casting="same_kind")


def _require(author: Any, method: str, values: Array, shape: tuple[int, ...], expected: str) -> None:
    """Raise InputError for a wrong shape, or for numbers that are not at least 0."""
    # NaN fails this comparison, too.
    if values.shape != shape or not (values >= 0.0).all():
        raise _refusal(author, method, f"returns {_value_text(values)}, expected {expected}")


def _refusal(author: Any, method: str, problem: str) -> InputError:
    return InputError(f"privacy.mechanism: {author.name}: {method} {problem}. Fix: change the class.")


def _value_text(values: Array) -> str:
    numbers = ", ".join(f"{v:g}" for v in values.reshape(-1)[:4])
    return f"[{numbers}{', …' if values.size > 4 else ''}]"
