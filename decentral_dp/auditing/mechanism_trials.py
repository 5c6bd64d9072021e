"""Trials of a mechanism from outside: whether its sampler has the deviation and the price that it states.

Every draw has a key of its own, as those of agents, rounds and channels have in a run. Three things are tried, at two
scales, on one coordinate and on several:

keys        one key gives one noise, and no two keys the same
deviation   the mean square of the noise is that of `deviation`
price       two queries that are as far apart as a sensitivity, along one coordinate, along all, and along all with
            signs in turn: no event is likelier under one than the price allows under the other

Failures by chance: a sound mechanism fails with probability below 10⁻³ in all.

- Two noises of 64 coordinates that agree by chance: below 10⁻⁵ wherever no value of a coordinate has a probability
  above 0.7, for 0.7⁶⁴ = 2·10⁻¹⁰ for each of some 50 000 pairs.
- Deviation: the median of 80 means of 256 squares each. By Chebyshev a mean is off by more than the room that is left,
  2·sqrt((κ − 1)/256) of σ², with probability 1/4 at most, κ being the kurtosis; by Hoeffding more than half of 80 are
  with probability e^(−80/8) = 5·10⁻⁵ at most, for each of two scales. κ is taken as 10, and as twice that of other
  draws where that is more: of a law with tails so heavy that draws do not show them, nothing is shown.
- Price: the event is chosen on one half of the draws and counted on the other, by intervals of Clopper and Pearson that
  fail together with probability 7·10⁻⁴ at most, over all that is tried. Nothing is assumed of the law.

Power: half the price, half the noise, a price in the other norm, one noise for all coordinates, and a scale that is not
read are found; see tests/auditing/test_mechanism_trials.py. An error of a few per cent is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.mechanisms.protocol import Unnoised
from decentral_dp.privacy.randomness import Draws, Streams, seeded_root
from decentral_dp.simulation.statistics import bound_by_counts

# No powers of two, and neither is the scale 1 at which a class is made.
SCALES = (0.3, 12.0)
WIDTHS = (1, 16)
# Prices for whose sensitivities events are sought: a halved one of either shows.
_PRICES = (1.0, 2.5)
# Draws of either query, and the shares of them that an event may have.
_DRAWS, _SHARES = 2000, np.linspace(0.01, 0.99, 99)
_BLOCKS, _BLOCK = 80, 256
_KURTOSIS = 10.0
# In all events that are tried.
_RISK = 7e-4
_KEYED, _KEYED_WIDTH = 300, 64


class Shift(NamedTuple):
    """Two queries, `length` apart in the mechanism's norm. direction: (width,) from the first to the second."""

    scale: float
    length: float
    direction: Array
    description: str


def complaint(m: OutsideMechanism) -> str:
    """Say what of a mechanism is not as it states; "" where nothing was found.

    Args:
        m: the mechanism.

    Raises:
        InputError, UserCodeError: where its methods fail.
    """
    if fault := _of_keys(m):
        return fault
    for at in zip(SCALES, WIDTHS, strict=True):
        if fault := _of_deviation(m, *at):
            return fault
    shifts = {at: list(_shifts(m, *at)) for at in product(SCALES, WIDTHS)}
    risk = _RISK / sum(map(len, shifts.values()))
    for (scale, width), some in shifts.items():
        here = _release(m, _keys(f"price here {width}", _DRAWS), np.zeros((_DRAWS, width)), scale)
        for shift in some:
            if fault := _of_price(m, here, shift, risk):
                return fault
    return ""


def _release(m: OutsideMechanism, draws: Draws, query: Array, scale: float) -> Array:
    """(n, d) releases of queries (n, d), each by a key of its own."""
    grid = np.full((1, 1), float(m.grid(scale, query.shape[1])))
    integers = m.sample(Unnoised(draws, query, np.broadcast_to(grid, query.shape), scale / grid, query.shape[1:], {}))
    return np.asarray(grid * integers)


def _keys(purpose: str, number: int) -> Draws:
    return Draws(Streams(seeded_root(0, b"mechanism trials"), purpose, range(number)), 1, 0)


def _of_keys(m: OutsideMechanism) -> str:
    """Whether agents, rounds and channels have noises of their own, and each of them one."""
    scale, many = SCALES[0], slice(_KEYED)
    query = np.broadcast_to(np.linspace(-0.3, 0.7, _KEYED_WIDTH), (_KEYED, _KEYED_WIDTH))
    streams = Streams(seeded_root(0, b"mechanism trials"), "keys", range(_KEYED))
    draws: dict[bytes, str] = {}
    # All agents at one index of one channel; then a few at others.
    for index, channel, some in ((1, 0, many), (1, 1, slice(3)), (2, 0, slice(3)), (3, 1, slice(3))):
        one, again = (_release(m, Draws(streams, index, channel, some), query[some], scale) for _ in range(2))
        if not np.array_equal(one, again):
            return (
                f"{m.name}: sample gives two noises for one state of its generator, so that no run can be repeated. "
                "Draw from the generator that it is given, and from nothing else."
            )
        for agent, row in enumerate(one):
            where = f"agent {agent}, index {index} and channel {'yz'[channel]}"
            if (before := draws.setdefault(row.tobytes(), where)) != where:
                return (
                    f"{m.name}: sample gives the same noise for {before} as for {where}, and whoever subtracts one "
                    "release from the other sees what it hid. Draw from the generator that it is given."
                )
    return ""


def _of_deviation(m: OutsideMechanism, scale: float, width: int) -> str:
    many = _BLOCKS * _BLOCK
    query = np.broadcast_to(np.linspace(0.3, 0.6, width), (many, width))
    squares = np.square(_release(m, _keys(f"deviation {width}", many), query, scale) - query).mean(axis=1)
    wanted = (m.deviation * scale) ** 2
    ratio = float(np.median(squares.reshape(_BLOCKS, _BLOCK).mean(axis=1))) / wanted
    kurtosis = float(np.square(squares).mean() / max(squares.mean() ** 2, 1e-300))
    room = 2.0 * math.sqrt((max(_KURTOSIS, 2.0 * kurtosis) - 1.0) / _BLOCK)
    if abs(ratio - 1.0) <= room:
        return ""
    return (
        f"{m.name}: its noise has a standard deviation of {math.sqrt(ratio * wanted):.3g} at scale {scale:g}, and "
        f"{m.deviation * scale:.3g} is stated ({many} draws). Mend deviation, or sample."
    )


def _shifts(m: OutsideMechanism, scale: float, width: int) -> Iterator[Shift]:
    one = np.zeros(width)
    one[0] = 1.0
    signs = np.where(np.arange(width) % 2, -1.0, 1.0)
    directions = {"one coordinate": one}
    if width > 1:
        directions |= {"all coordinates alike": np.ones(width), "all coordinates, their signs in turn": signs}
    for price in _PRICES:
        length = _length_of(m, price, scale, width)
        for words, direction in directions.items():
            size = np.abs(direction).sum() if m.norm == "l1" else np.sqrt(direction @ direction)
            yield Shift(scale, length, direction / size * length, words)


def _length_of(m: OutsideMechanism, price: float, scale: float, width: int) -> float:
    """The largest sensitivity of at most this price, by bisection; the price grows with it."""
    low, high = 1e-6 * scale, 1e6 * scale
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float(m.cost(middle, scale, width)) <= price else (low, middle)
    return low


def _of_price(m: OutsideMechanism, here: Array, shift: Shift, risk: float) -> str:
    """Whether an event shows more than the price of the shift. here: releases of the query 0."""
    width = shift.direction.size
    query = np.broadcast_to(shift.direction, here.shape)
    keys = _keys(f"price there {shift.description} {shift.length} {width}", len(here))
    there = _release(m, keys, query, shift.scale)
    price = float(m.cost(shift.length, shift.scale, width))
    slack = float(m.float_slack(np.array([price]), width)[1][0])
    scores = zip(_scores(there, shift), _scores(here, shift), strict=True)
    shown = max(bound_by_counts(*pair, slack, 0.5 * risk, _SHARES, m.unit) for pair in scores)
    if shown <= price:
        return ""
    return (
        f"{m.name}: two queries {shift.length:.3g} apart in {m.norm}, along {shift.description}, are told apart more "
        f"often than its price allows: {m.unit} is at least {shown:.3g} (confidence 99.9 %), and "
        f"{m.unit} = {price:.3g} is stated at scale {shift.scale:g}. Mend cost, norm or sample."
    )


def _scores(noised: Array, shift: Shift) -> tuple[Array, ...]:
    """(n,) each, larger under the shift: along it, and by how many coordinates are past its middle."""
    moving = shift.direction != 0.0
    past = ((noised - 0.5 * shift.direction) * np.sign(shift.direction) > 0.0)[:, moving]
    return noised @ (shift.direction / shift.length), past.sum(axis=1).astype(np.float64)
