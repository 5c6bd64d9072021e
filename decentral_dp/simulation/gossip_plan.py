"""The ledger of a scenario before it is run: public numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import Algorithm, Counts, Planned, Public
from decentral_dp.bounded import SPLITS, Array, LipschitzConstants
from decentral_dp.data import Stream
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import NO_MECHANISM, Mechanism, noise_of
from decentral_dp.privacy.mechanisms.scheduled_releaser import FREE, NoiseSchedule
from decentral_dp.problems.protocol import Problem

# Rounds times columns: each takes some 200 bytes while it is priced.
LARGEST_PLAN = 3e7
# Integers of the grid stay exact in float64 below this.
_LARGEST_INTEGER = 2.0**52
# The largest exponential variate that float64 samplers can give is below 45 means.
_LARGEST_VARIATE = 45.0


def plan(
    algorithm: Algorithm,
    problem: Problem,
    counts: Counts,
    stream: Stream,
    neighbour_weight: Array,
    clip: Clip,
    constants: LipschitzConstants | None,
    rounds: int,
    mechanism: Mechanism,
    noise: Mapping[str, NoiseSchedule],
    final: bool = True,
) -> Ledger:
    """Plan all releases of so many rounds.

    Agents with equal counts, self-weight and noise share a column.

    Args:
        algorithm: the gossip program.
        problem: the bilevel problem.
        counts: kind of records → (m,) how many each agent has.
        stream: which records a round reads.
        neighbour_weight: (m,) weight of all neighbours together.
        clip: bounds on every record's contribution.
        constants: analytic Lipschitz constants of a run as printed, or None.
        rounds: T.
        mechanism: of the charged releases.
        noise: channel → schedule of all agents; a channel that is charged must be in it unless `mechanism` adds none.
        final: whether the noise is what will be drawn, the default, or has yet to be calibrated.

    Returns:
        The ledger.

    Raises:
        InputError: more releases than can be priced, or noise that cannot be added exactly in float64.
    """
    facts = [counts[k].astype(np.float64) for k in SPLITS] + [neighbour_weight]
    facts += [part for s in noise.values() for part in (s.scale, s.decay)]
    _, representative, group = np.unique(np.stack(facts), axis=1, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    if rounds * algorithm.releases_per_round * representative.size > LARGEST_PLAN:
        raise InputError(
            f"algorithm.rounds: {rounds} rounds for {representative.size} agents that differ in records, weights or "
            f"noise are more than the {LARGEST_PLAN:.0e} releases of a channel that can be priced. Use fewer rounds."
        )
    public = Public(
        rounds,
        {k: _averaged(stream, rounds, counts[k][representative]) for k in SPLITS},
        {k: stream.rate(0, counts[k][representative]) for k in SPLITS},
        neighbour_weight[representative],
        problem.reads_records,
        clip,
        constants,
        problem.p,
        problem.q,
    )
    # A sensitivity that overflows is infinite, and priced or refused as that.
    with np.errstate(over="ignore"):
        planned = algorithm.planned_releases(public)
    widths, per_round = algorithm.releases(problem.p, problem.q), algorithm.releases_per_round
    channels = [
        _channel(c, planned[c], widths[c].width, per_round, group, representative, mechanism, noise, final)
        for c in planned
    ]
    return Ledger(neighbour_weight.size, _once(channels), per_round)


def _averaged(stream: Stream, rounds: int, counts: IntArray) -> Array:
    """(T, g) records that each round averages; one row that is repeated where rounds do not differ."""
    if stream.kind == "accumulate":
        return stream.averaged(np.arange(rounds)[:, None], counts).astype(np.float64)
    return np.broadcast_to(stream.averaged(0, counts).astype(np.float64), (rounds, counts.size))


def _once(channels: Sequence[ChannelLedger]) -> tuple[ChannelLedger, ...]:
    """The same plan in less memory, for as long as the run lasts: equal columns are one array, equal rows one row."""
    kept: list[NDArray[Any]] = []

    def once(column: NDArray[Any]) -> Any:
        same = next((k for k in kept if k.dtype == column.dtype and np.array_equal(k, column)), None)
        if same is None:
            alike = len(column) > 0 and bool((column == column[:1]).all())
            same = np.broadcast_to(column[0].copy(), column.shape) if alike else column
            kept.append(same)
        return same

    return tuple(
        replace(
            c,
            rounds=once(c.rounds),
            scale=once(c.scale),
            sensitivity={k: once(s) for k, s in c.sensitivity.items()},
            rate={k: once(r) for k, r in c.rate.items()},
        )
        for c in channels
    )


def _channel(
    channel: str,
    planned: Planned,
    dimension: int,
    releases_per_round: int,
    group: IntArray,
    representative: IntArray,
    mechanism: Mechanism,
    noise: Mapping[str, NoiseSchedule],
    final: bool,
) -> ChannelLedger:
    index = planned.indices
    if not planned.sensitivity:
        none = np.zeros((index.size, 1))
        return ChannelLedger(channel, NO_MECHANISM, dimension, np.zeros_like(group), index, none, {}, {}, reason=FREE)
    if not mechanism.adds_noise:
        scale = np.zeros((index.size, representative.size))
    else:
        with np.errstate(over="ignore"):
            scale = noise[channel].of(representative).at(index // releases_per_round, mechanism)
        largest = planned.largest if final else np.zeros_like(scale)
        _check_noise(channel, largest, scale, mechanism, dimension)
    return ChannelLedger(channel, mechanism, dimension, group, index, scale, planned.sensitivity, planned.rate)


def _check_noise(channel: str, largest: Array, scale: Array, mechanism: Mechanism, dimension: int) -> None:
    """Refuse noise near the ends of float64, or too small beside the query for the grid's integers to be exact."""
    usable = bool(((scale > 2.0**-900) & (scale < 2.0**900)).all())
    if usable:
        reach = np.where(np.isfinite(largest), largest, 0.0) + _LARGEST_VARIATE * scale
        with np.errstate(over="ignore"):
            usable = bool((reach / noise_of(mechanism, channel).grid(scale, dimension) < _LARGEST_INTEGER).all())
    if not usable:
        scales = " to ".join(dict.fromkeys(f"{s:.3g}" for s in (scale.min(), scale.max())))
        size = f" to a query of size {largest.max():.3g}" if largest.any() else ""
        raise InputError(
            f"privacy.{channel}: noise of scale {scales} cannot be added exactly in float64{size}. Bring the clip, the "
            "step sizes and the noise (its scale and decay, or the target epsilon) nearer to 1."
        )
