"""Mechanisms of a user's own: what such a class must have, and how it stands among the others.

Required of a class: `name`, `norm` ("l1" or "l2"), `deviation` (standard deviation of the noise in units of its scale),
`cost(sensitivity, scale, width)` and `sample(generator, query, grid, scale)`. It may have `unit` ("ε", which is the
default, for pure ε; "μ" for a Gaussian pair), `description`, `grid(scale, width)` and `float_slack(loss, width)`.

Its releases compose as the worst that its price allows: randomised response of a pure ε, a Gaussian pair of a μ. No
ledger can verify that the sampler has this cost, so results list it as unverified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.mechanisms import (
    MECHANISMS,
    CostUnit,
    DominatingPair,
    NoiseMechanism,
    Unnoised,
    broadcast,
    power_of_two_grid,
    price_limits,
)
from decentral_dp.privacy.randomness import Draws, Streams, seeded_root
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# The scale is 2^bits to 2^(bits + 1) cells of the grid, where a class has no grid of its own.
_BITS = 20
_UNITS: Mapping[CostUnit, DominatingPair] = {"ε": DominatingPair.RESPONSE, "μ": DominatingPair.GAUSSIAN}
# Where a price is tried: sensitivities, scales and widths.
_TRIED_PRICES = (np.array([0.0, 0.5, 1.0, 2.0])[:, None], np.array([0.25, 1.0, 4.0])[None, :], (1, 7))
# Where noise is tried: agents, (index, channel) of their keys, and coordinates. A sound sampler has two equal rows or
# columns with probability below 10⁻⁵, wherever no value of a coordinate has a probability above 0.7.
_TRIED_AGENTS, _TRIED_KEYS, _TRIED_WIDTH = 20, ((1, 0), (2, 0), (1, 1)), 64


@dataclass(frozen=True)
class OutsideMechanism(NoiseMechanism):
    """A user's mechanism among the others. Make one by `register_outside`.

    definition: the user's object. options: its fields, which tell two of the same name apart. source: a digest of the
    text of its class, as far as there is one.
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
    # Not compared: a class that came back from another process is another class.
    definition: Any = field(default=None, compare=False, repr=False)

    charged = proven = True
    amplified_by = ()

    def grid(self, scale: Array | float, width: int) -> Array:
        if not hasattr(self.definition, "grid"):
            return power_of_two_grid(scale, _BITS)
        return _numbers(self.definition, "grid", np.asarray(scale, dtype=np.float64), width)

    def cost(self, sensitivity: Array | float, scale: Array | float, width: int) -> Array:
        """The author's price; the ends are the package's: 0 where nothing moves, +inf where nothing hides it.

        Any shapes that broadcast, as of `Mechanism.cost`.
        """
        delta, s = broadcast(sensitivity, scale)
        priced = np.isfinite(delta) & (s > 0.0)
        # Where there is no price the author's formula is not asked.
        costs = _numbers(self.definition, "cost", np.where(priced, delta, 0.0), np.where(priced, s, 1.0), width)
        if costs.shape != delta.shape or not (costs >= 0.0).all():
            wanted = "prices of at least 0, one for each sensitivity"
            raise _refusal(self.definition, "cost", f"gave {_value_text(costs)}, wanted {wanted}")
        return price_limits(costs, delta, s)

    def float_slack(self, loss: Array, width: int) -> tuple[Array, Array]:
        if not hasattr(self.definition, "float_slack"):
            return np.zeros_like(loss), np.zeros_like(loss)
        slack = _numbers(self.definition, "float_slack", loss, width)
        # Written so that what is not a number fails, too.
        if slack.shape != (2, *loss.shape) or not (slack >= 0.0).all():
            wanted = "an ε and a δ of at least 0 for each price"
            raise _refusal(self.definition, "float_slack", f"gave {_value_text(slack)}, wanted {wanted}")
        return slack[0], slack[1]

    def sample(self, request: Unnoised) -> Array:
        """Draw noised values in units of the grid, (b, d).

        Raises:
            UserCodeError: the sampler is not as it was tried.
        """
        draws, query, grid, scale, widths = request[:5]
        out = np.empty(query.shape)
        grids, ratios = np.broadcast_to(grid, query.shape), np.broadcast_to(scale, query.shape)
        ends = list(accumulate(widths))
        each = zip(out, query, grids, ratios, draws.generators(), strict=True)
        for row, one, g, ratio, generator in each:
            for end, width in zip(ends, widths, strict=True):
                part = slice(end - width, end)
                step = float(g[part][0])
                try:
                    # Exact: the grid is a power of two.
                    row[part] = self._sample(generator, one[part], step, float(ratio[part][0]) * step) / step
                except InputError as error:
                    # Rounds before this one have been released: the run has failed.
                    raise UserCodeError(str(error)) from error
        return out

    def _sample(self, generator: np.random.Generator, query: Array, grid: float, scale: float) -> Array:
        draws = _numbers(self.definition, "sample", generator, query.copy(), grid, scale)
        if draws.shape != query.shape or not np.isfinite(draws).all():
            raise _refusal(self.definition, "sample", f"gave {_value_text(draws)}, wanted {query.size} finite numbers")
        if (np.rint(draws / grid) != draws / grid).any():
            raise _refusal(
                self.definition,
                "sample",
                f"gave numbers off the grid {grid:g}, whose low bits may show the query; round it before noise is "
                "added, and return multiples of the grid",
            )
        return draws


# Attribute of a class, whether a value of it is one (None if there is none), and what it is.
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
    """Put an object of a user's class among the mechanisms.

    Raises InputError: for what the class lacks, and for a price that cannot be one.
    """
    for attribute, is_one, what in _ATTRIBUTES:
        if not is_one(getattr(author, attribute, None)):
            got = f", got {quoted(str(getattr(author, attribute)))}" if hasattr(author, attribute) else ""
            raise InputError(f"privacy.mechanism: {type(author).__name__} lacks {what}{got}. Add it to the class.")
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
    for faults in (_price_faults, _noise_faults):
        for method, fault in faults(mechanism):
            raise _refusal(author, method, fault)
    return mechanism


def mechanism_options(mechanism: OutsideMechanism) -> dict[str, Any]:
    """The fields of the user's object that a scenario can hold."""
    author = mechanism.definition
    every = {f.name: getattr(author, f.name) for f in fields(author)} if is_dataclass(author) else {}
    return {name: value for name, value in every.items() if isinstance(value, (bool, int, float, str))}


def _price_faults(mechanism: OutsideMechanism) -> Iterator[tuple[str, str]]:
    """Yield the fault of a price that falls with the sensitivity, grows with the noise, or is no number."""
    deltas, scales, widths = _TRIED_PRICES
    for width in widths:
        price = mechanism.cost(deltas, scales, width)
        if not np.isfinite(price).all() or (np.diff(price, axis=0) < 0.0).any() or (np.diff(price, axis=1) > 0.0).any():
            yield (
                "cost",
                "must be finite, grow with the sensitivity and fall with the scale, and for sensitivities 0, 0.5, "
                f"1, 2 at scale 1 it is {_value_text(price[:, 1])}",
            )
        if not (price[1:] > 0.0).all():
            yield "cost", "is 0 for a sensitivity above 0, as if noise hid everything"
        grid = mechanism.grid(scales, width)
        if grid.shape != scales.shape or not (grid > 0.0).all() or (np.frexp(grid)[0] != 0.5).any():
            yield "grid", f"gave {_value_text(grid)}, wanted powers of two, one for each scale"


def _noise_faults(mechanism: OutsideMechanism) -> Iterator[tuple[str, str]]:
    """Yield the fault of a sampler without noise, or with equal noise under two keys or in two coordinates.

    The query is equal in all rows and coordinates. Only the keys of the generators differ.

    Raises:
        InputError: the sampler raises, or gives another number of values, or some off the grid.
    """
    for width in _TRIED_PRICES[2]:
        mechanism.float_slack(np.array([0.0, 1.0]), width)
        # Made up: no key of a run, and no query of one.
        generator, tried = np.random.Generator(np.random.Philox(key=width)), np.linspace(-0.3, 0.7, width)
        mechanism._sample(generator, tried, float(mechanism.grid(np.ones(1), width)[0]), 1.0)
    grid = float(mechanism.grid(np.ones(1), _TRIED_WIDTH)[0])
    # Public keys of no run.
    streams = Streams(seeded_root(0, b"mechanism trial"), "noise", range(_TRIED_AGENTS))

    def draw(index: int, channel: int) -> list[Array]:
        query, generators = np.full(_TRIED_WIDTH, 0.3), Draws(streams, index, channel).generators()
        return [mechanism._sample(generator, query, grid, 1.0) for generator in generators]

    noised = np.array([row for key in _TRIED_KEYS for row in draw(*key)])
    if (constant := (noised == noised[0]).all(axis=0)).any():
        where = f"coordinate {np.argmax(constant)} one value under {len(noised)} keys"
        yield "sample", f"gives {where}; it adds no noise there, or noise that depends on no key"
    if len(np.unique(noised, axis=0)) < len(noised):
        yield "sample", "gives equal noise under two keys; draw from the generator, and nothing else"
    if len(np.unique(noised, axis=1).T) < _TRIED_WIDTH:
        yield "sample", "gives two coordinates of a release the same noise; draw one for each"
    if not np.array_equal(noised[:_TRIED_AGENTS], draw(*_TRIED_KEYS[0])):
        wanted = "draw from the generator, and keep nothing"
        yield "sample", f"gives two noises under one key, so that a resumed run differs; {wanted}"


def _numbers(author: Any, method: str, *args: Any) -> Array:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(author, method)(*args)).astype(np.float64, casting="same_kind")
    except InputError:
        raise
    except USER_ERRORS as error:
        raise _refusal(author, method, f"fails with {blame(error)}") from error


def _refusal(author: Any, method: str, what: str) -> InputError:
    """A refusal of what a method of the class gives."""
    return InputError(f"privacy.mechanism: {author.name}: {method} {what}. Mend the class.")


def _value_text(values: Array) -> str:
    listed = ", ".join(f"{v:g}" for v in values.reshape(-1)[:4])
    return f"[{listed}{', …' if values.size > 4 else ''}]"
