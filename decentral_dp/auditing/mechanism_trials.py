"""Statistical tests of a custom mechanism: of its keys, its standard deviation and its privacy cost.

Every draw has its own key, as every agent, round and channel has in a run. The tests use two scales, with one and with
several coordinates:

keys        one key determines the noise, and two keys have different noise
deviation   the mean square of the noise equals the square of `deviation`
cost        no event is more likely under one of two queries than the cost allows; the queries differ by a sensitivity
            along one coordinate, along all, or along all with alternating signs

A sound mechanism fails with probability below 10⁻³:

- Keys: two noise vectors of 64 coordinates agree by chance with probability below 10⁻⁵ if no value of a coordinate has
  a probability above 0.7, since 0.7⁶⁴ = 2·10⁻¹⁰ for each of some 50 000 pairs.
- Deviation: the test uses the median of 80 means of 256 squares each. By Chebyshev, a mean is off by more than the
  tolerance 2·sqrt((κ − 1)/256) of σ² with probability at most 1/4, where κ is the kurtosis. By Hoeffding, more than
  half of the 80 means are off with probability at most e^(−80/8) = 5·10⁻⁵, for each of two scales. κ is 10, or twice
  the kurtosis of the draws if that is larger. Tails that are too rare to occur in the draws are not tested.
- Cost: the event is chosen on one half of the draws and counted on the other. Clopper–Pearson intervals fail together
  with probability at most 7·10⁻⁴ over all events. The test makes no assumption on the distribution.

Power: the tests detect half the cost, half the noise, a cost in the other norm, one noise for all coordinates, and an
unused scale (tests/auditing/test_mechanism_trials.py). An error of a few per cent is not detected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.privacy.custom_mechanism import OutsideMechanism
from decentral_dp.privacy.mechanisms import Unnoised
from decentral_dp.privacy.randomness import Draws, Streams, seeded_root
from decentral_dp.simulation.statistics import bound_by_counts

# A class may be correct only at powers of two, or only at scale 1.
SCALES = (0.3, 12.0)
WIDTHS = (1, 16)
# Costs of the queries. The test detects half of either cost.
_COSTS = (1.0, 2.5)
# Number of draws of each query, and probabilities of events.
_DRAWS, _SHARES = 2000, np.linspace(0.01, 0.99, 99)
_BLOCKS, _BLOCK = 80, 256
_KURTOSIS = 10.0
# Risk of all events together.
_RISK = 7e-4
_KEYS, _KEYS_WIDTH = 300, 64
_ROOT = seeded_root(0, b"mechanism trials")


def find_fault(m: OutsideMechanism) -> str:
    """Return a description of the first test that a mechanism fails, or "" if it passes all tests.

    Raises:
        InputError, UserCodeError: a method of the mechanism fails.
    """
    if fault := _check_keys(m):
        return fault
    for scale, width in zip(SCALES, WIDTHS, strict=True):
        if fault := _check_deviation(m, scale, width):
            return fault
    shifts = {pair: list(_list_shifts(m, *pair)) for pair in product(SCALES, WIDTHS)}
    risk = _RISK / sum(map(len, shifts.values()))
    for (scale, width), some in shifts.items():
        base = _release(m, _draws(f"cost, query 0 {width}", _DRAWS), np.zeros((_DRAWS, width)), scale)
        for direction, length, words in some:
            if fault := _check_cost(m, base, direction, length, scale, words, risk):
                return fault
    return ""


def _release(m: OutsideMechanism, draws: Draws, query: Array, scale: float) -> Array:
    """Return the releases (n, d) of queries (n, d), each with its own key."""
    grid = np.full((1, 1), float(m.grid(scale, query.shape[1])))
    integers = m.sample(Unnoised(draws, query, np.broadcast_to(grid, query.shape), scale / grid, query.shape[1:], {}))
    return np.asarray(grid * integers)


def _draws(purpose: str, number: int) -> Draws:
    return Draws(Streams(_ROOT, purpose, range(number)), 1, 0)


def _check_keys(m: OutsideMechanism) -> str:
    scale, everyone = SCALES[0], slice(_KEYS)
    query = np.broadcast_to(np.linspace(-0.3, 0.7, _KEYS_WIDTH), (_KEYS, _KEYS_WIDTH))
    streams = Streams(_ROOT, "keys", range(_KEYS))
    noises: dict[bytes, str] = {}
    # All agents at one index of one channel, then three at others.
    for index, channel, some in ((1, 0, everyone), (1, 1, slice(3)), (2, 0, slice(3)), (3, 1, slice(3))):
        first, again = (_release(m, Draws(streams, index, channel, some), query[some], scale) for _ in range(2))
        if not np.array_equal(first, again):
            return (
                f"{m.name}: sample returns different noise for one state of its generator, so a run cannot be "
                "repeated. Fix: draw only from the generator argument."
            )
        for agent, row in enumerate(first):
            place = f"agent {agent}, index {index} and channel {'yz'[channel]}"
            if (before := noises.setdefault(row.tobytes(), place)) != place:
                return (
                    f"{m.name}: sample returns the same noise for {before} as for {place}, and subtracting one release "
                    "from the other removes it. Fix: draw from the generator argument."
                )
    return ""


def _check_deviation(m: OutsideMechanism, scale: float, width: int) -> str:
    number = _BLOCKS * _BLOCK
    query = np.broadcast_to(np.linspace(0.3, 0.6, width), (number, width))
    squares = np.square(_release(m, _draws(f"deviation {width}", number), query, scale) - query).mean(axis=1)
    variance = (m.deviation * scale) ** 2
    ratio = float(np.median(squares.reshape(_BLOCKS, _BLOCK).mean(axis=1))) / variance
    kurtosis = float(np.square(squares).mean() / max(squares.mean() ** 2, 1e-300))
    if abs(ratio - 1.0) <= 2.0 * math.sqrt((max(_KURTOSIS, 2.0 * kurtosis) - 1.0) / _BLOCK):
        return ""
    return (
        f"{m.name}: its noise has a standard deviation of {math.sqrt(ratio * variance):.3g} at scale {scale:g} (got "
        f"{number} draws, expected {m.deviation * scale:.3g}). Fix: correct deviation, or sample."
    )


def _list_shifts(m: OutsideMechanism, scale: float, width: int) -> Iterator[tuple[Array, float, str]]:
    """Yield differences (width,) of two queries, their lengths in the norm of the mechanism, and their names."""
    directions = {"one coordinate": np.eye(width)[0]}
    if width > 1:
        alternating = np.where(np.arange(width) % 2, -1.0, 1.0)
        directions |= {"all coordinates": np.ones(width), "all coordinates with alternating signs": alternating}
    for cost in _COSTS:
        # The largest sensitivity of at most this cost, by bisection.
        low, high = 1e-6 * scale, 1e6 * scale
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if float(m.cost(middle, scale, width)) <= cost else (low, middle)
        for words, direction in directions.items():
            size = np.abs(direction).sum() if m.norm == "l1" else np.sqrt(direction @ direction)
            yield direction / size * low, low, words


def _check_cost(
    m: OutsideMechanism, base: Array, direction: Array, length: float, scale: float, words: str, risk: float
) -> str:
    """Check that no event distinguishes two queries better than their cost allows; `base` are releases of query 0."""
    width = direction.size
    draws = _draws(f"cost, query {words} {length} {width}", len(base))
    shifted_release = _release(m, draws, np.broadcast_to(direction, base.shape), scale)
    cost = float(m.cost(length, scale, width))
    slack = float(m.float_slack(np.array([cost]), width)[1][0])
    scores = zip(
        _compute_scores(shifted_release, direction, length), _compute_scores(base, direction, length), strict=True
    )
    bound = max(bound_by_counts(*pair, slack, 0.5 * risk, _SHARES, m.unit) for pair in scores)
    if bound <= cost:
        return ""
    return (
        f"{m.name}: its cost is too low for two queries at distance {length:.3g} in {m.norm}, along {words} (got "
        f"{m.unit} = {cost:.3g} at scale {scale:g}, expected at least {bound:.3g} with confidence 99.9 %). Fix: "
        "correct cost, norm or sample."
    )


def _compute_scores(releases: Array, direction: Array, length: float) -> tuple[Array, Array]:
    """Return projections on the shift, and numbers of coordinates beyond half of it, (n,) each."""
    moving = direction != 0.0
    beyond = ((releases - 0.5 * direction) * np.sign(direction) > 0.0)[:, moving]
    return releases @ (direction / length), beyond.sum(axis=1).astype(np.float64)
