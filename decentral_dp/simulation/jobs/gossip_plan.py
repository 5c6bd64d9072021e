"""From a gossip scenario to a job: its noise, its ledger and its price before it is run, of public numbers only."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms.protocol import Algorithm, Counts, Planned, Public
from decentral_dp.bounded import SPLITS, Array
from decentral_dp.config.components import Components
from decentral_dp.config.schema import NoiseTable, by_channel
from decentral_dp.data import Stream
from decentral_dp.errors import InputError
from decentral_dp.exchange import senders_of
from decentral_dp.participants.agents import Network
from decentral_dp.privacy.accounting.accountants import calibrate, price, rounds_within
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, NO_MECHANISM, NO_NOISE, Mechanism, noise_of
from decentral_dp.privacy.mechanisms.gaussian import BITS
from decentral_dp.privacy.mechanisms.releasers import FREE, NoiseSchedule
from decentral_dp.privacy.mechanisms.time_factors import TimeFactor, charged_sensitivity
from decentral_dp.privacy.pair_noise import PairNoise
from decentral_dp.privacy.schedules import schedule_points
from decentral_dp.privacy.unit import RECORD, Unit
from decentral_dp.problems.protocol import Problem
from decentral_dp.simulation.jobs.gossip_setup import (
    IN_TIME,
    Resolved,
    averaged_noises,
    resolve_gossip,
)
from decentral_dp.simulation.jobs.job import LARGEST_PLAN, GossipJob, records_of, test_records
from decentral_dp.simulation.jobs.settings import curvature_of, settings_text, stability_text
from decentral_dp.user_code import blame, call

# Integers of the grid stay exact in float64 below this.
_LARGEST_INTEGER = 2.0**52
# Noise that was calibrated once is at most so many times larger when it is calibrated again.
_LARGEST_NOISE_RATIO = 1.25
# The largest exponential variate that float64 samplers can give is below 45 means.
_LARGEST_VARIATE = 45.0


class PlannedNoise(NamedTuple):
    """The noise of a plan.

    Args:
        mechanism: of the charged releases.
        schedules: channel → schedule of all agents; a channel that is charged must be in it unless `mechanism` adds
            none.
        pairs: noise that neighbours share; by default none.
        factor: of noise that goes on from that of earlier rounds; by default it is fresh.
        is_final: whether it will be drawn so, the default, or has yet to be calibrated.
    """

    mechanism: Mechanism
    schedules: Mapping[str, NoiseSchedule]
    pairs: PairNoise | None = None
    factor: TimeFactor | None = None
    is_final: bool = True


def plan_releases(
    algorithm: Algorithm,
    problem: Problem,
    counts: Counts,
    stream: Stream,
    neighbour_weight: Array,
    clip: Clip,
    rounds: int,
    noise: PlannedNoise,
    network: Network | None = None,
    unit: Unit = RECORD,
) -> Ledger:
    """Plan all releases of so many rounds.

    Agents with equal counts, self-weight and noise share a column from the start, so that 10⁵ of them are planned as
    one. Where the algorithm says who sends, every agent is planned, and those with equal releases
    share a column afterwards.

    Args:
        algorithm: the gossip program.
        problem: of the agents.
        counts: kind of records → (m,) how many each agent has.
        stream: which records a round reads.
        neighbour_weight: (m,) weight of all neighbours together.
        clip: bounds on every record's contribution.
        rounds: T.
        noise: of the charged releases.
        network: what everybody knows of it; by default nobody has a neighbour.
        unit: what two data sets differ in; by default one replaced record.

    Returns:
        The ledger.

    Raises:
        InputError: more releases than can be priced, or noise that cannot be added exactly in float64.
    """
    m = neighbour_weight.size
    network = network or Network(sp.csr_array((m, m)))
    senders = senders_of(algorithm, network)
    pairs, changes = noise.pairs, network.over_time is not None
    by_agent = bool(pairs and changes) or senders is not None
    representative = group = np.arange(m)
    if not by_agent:
        facts = [counts[k].astype(np.float64) for k in SPLITS] + [neighbour_weight]
        facts += [part for s in noise.schedules.values() for part in (s.scale, s.decay)]
        facts += [] if pairs is None else pairs.facts()
        _, representative, group = np.unique(np.stack(facts), axis=1, return_index=True, return_inverse=True)
        group = group.reshape(-1)
    if rounds * algorithm.releases_per_round * representative.size > LARGEST_PLAN:
        why = "are planned one by one" if by_agent else "differ in records, weights or noise"
        raise InputError(
            f"algorithm.rounds: {rounds} rounds for {representative.size} agents that {why} are more than the "
            f"{LARGEST_PLAN:.0e} releases of a channel that can be priced. Fix: use fewer rounds."
        )
    # Of a problem of one level nobody has validation records.
    sizes = {k: n[representative] for k, n in counts.items() if n.any()}
    # One row that is repeated where rounds do not differ.
    when: Any = np.arange(rounds)[:, None] if stream.kind == "accumulate" else 0
    public = Public(
        rounds,
        {k: np.broadcast_to(stream.averaged_counts(when, n) * 1.0, (rounds, n.size)) for k, n in sizes.items()},
        {k: stream.rate(0, n) for k, n in sizes.items()},
        neighbour_weight[representative],
        problem.reads_records,
        clip,
        problem.p,
        problem.q,
        network,
        unit,
        "poisson" if stream.kind == "poisson" else "fixed",
    )
    # A sensitivity that overflows is infinite, and priced or refused as that.
    with np.errstate(over="ignore"):
        planned = algorithm.planned_releases(public)
    widths, per_round = algorithm.releases(problem.p, problem.q), algorithm.releases_per_round
    channels = [_channel(c, planned[c], widths[c].width, per_round, group, representative, noise) for c in planned]
    if senders is not None:
        author = type(getattr(algorithm, "program", algorithm))
        sent = call(
            lambda: np.stack([senders.mask_of_round(t) for t in range(rounds + 1)]),
            {},
            lambda error: f"algorithm.kind: senders of {author.__name__} fails with {blame(error)}. Mend it.",
        )
        channels = [c.keep_sent(sent[c.rounds // per_round]) if c.mechanism.charged else c for c in channels]
    if by_agent:
        channels = [_by_equal_releases(c) for c in channels]
    return Ledger(m, tuple(channels), per_round)


def _by_equal_releases(c: ChannelLedger) -> ChannelLedger:
    """The same lines, in one column for all agents whose lines are the same."""
    parts = [c.scale, *c.sensitivity.values(), *c.rate.values(), *c.shared.values()]
    columns_of = (np.concatenate([part[:, k] for part in parts]) for k in range(c.scale.shape[1]))
    digests = [hashlib.blake2b(numbers.tobytes(), digest_size=16).digest() for numbers in columns_of]
    first = {digest: k for k, digest in reversed(list(enumerate(digests)))}
    columns = sorted(first.values())
    column = {digests[k]: place for place, k in enumerate(columns)}
    group = np.array([column[digest] for digest in digests], dtype=np.int64)[c.group]
    return c.columns(np.array(columns), group)


def _channel(
    channel: str,
    planned: Planned,
    dimension: int,
    releases_per_round: int,
    group: IntArray,
    representative: IntArray,
    noise: PlannedNoise,
) -> ChannelLedger:
    index, sensitivity = planned.indices, planned.sensitivity
    mechanism, pairs, factor = noise.mechanism, noise.pairs, noise.factor
    shared: Mapping[str, Array] = {}
    if not planned.sensitivity:
        none = np.zeros((index.size, 1))
        return ChannelLedger(channel, NO_MECHANISM, dimension, np.zeros_like(group), index, none, {}, {}, reason=FREE)
    if not mechanism.adds_noise:
        scale = np.zeros((index.size, representative.size))
    else:
        with np.errstate(over="ignore"):
            scale = noise.schedules[channel].select(representative).scales(index // releases_per_round, mechanism)
        largest, reach = planned.largest if noise.is_final else np.zeros_like(scale), _LARGEST_VARIATE
        if pairs is not None:
            reach *= pairs.reach()
        if factor is not None:
            _check_in_time(channel, planned, scale, dimension, factor, reach)
            # What goes on is added to the query in float64, to 2⁻¹⁰ of a cell.
            reach, largest = reach * factor.growth, largest * 2.0**10
            # What is calibrated to a price is a little larger than what it was priced at.
            grid = noise_of(mechanism, channel).grid(
                scale if noise.is_final else _LARGEST_NOISE_RATIO * scale, dimension
            )
            sensitivity = {k: charged_sensitivity(factor, index, s, grid, dimension) for k, s in sensitivity.items()}
        _check_noise(channel, largest, scale, mechanism, dimension, reach)
        if pairs is not None:
            scale, shared = pairs.charged_scales(scale, index // releases_per_round, representative)
    facts = (channel, mechanism, dimension, group, index, scale, sensitivity, planned.rate)
    return ChannelLedger(*facts, sampling=planned.sampling, shared=shared)


def _check_in_time(
    channel: str, planned: Planned, scale: Array, dimension: int, factor: TimeFactor, drawn: float
) -> None:
    """Refuse channels that proof 40 does not cover in noise that is correlated over rounds. Raises InputError."""

    def changes(sizes: Array) -> bool:
        return bool((sizes != sizes[:1]).any())

    index, rounds = planned.indices, factor.row_sums.size
    sums_are_exact = factor.error * drawn * 2.0 ** (BITS + 1) <= 2.0**-10
    size_changes = changes(scale) or any(map(changes, planned.sensitivity.values()))
    is_each_round = np.array_equal(index, np.arange(1, index.size + 1)) and index.size <= rounds
    rules = (
        (not is_each_round, "is not released once in every round", 'take "dp_dsgd"'),
        (size_changes, "has noise or a sensitivity that changes with the rounds", "keep its step and noise constant"),
        (GAUSSIAN.rounds_at_random(dimension), f"has {dimension:,} coordinates, rounded at random", "take fewer"),
        (not sums_are_exact, "has noise of earlier rounds, too long a sum for float64", "take fewer bands"),
    )
    for applies, problem, fix in rules:
        if applies:
            raise InputError(f"{IN_TIME}: {channel} {problem}. Fix: leave it out, or {fix}.")


def _check_noise(
    channel: str, largest: Array, scale: Array, mechanism: Mechanism, dimension: int, drawn: float
) -> None:
    """Refuse noise near the ends of float64, or too small beside the query for the grid's integers to be exact."""
    usable = bool(((scale > 2.0**-900) & (scale < 2.0**900)).all())
    if usable:
        reach = np.where(np.isfinite(largest), largest, 0.0) + drawn * scale
        with np.errstate(over="ignore"):
            usable = bool((reach / noise_of(mechanism, channel).grid(scale, dimension) < _LARGEST_INTEGER).all())
    if not usable:
        scales = " to ".join(dict.fromkeys(f"{s:.3g}" for s in (scale.min(), scale.max())))
        size = f" to a query of size {largest.max():.3g}" if largest.any() else ""
        raise InputError(
            f"privacy.{channel}: noise of scale {scales} cannot be added exactly in float64{size}. Fix: bring the "
            "clip, the step sizes and the noise (its scale and decay, or the target epsilon) nearer to 1."
        )


def schedules(r: Resolved) -> dict[str, NoiseSchedule]:
    """Return channel → noise schedule of the charged channels as declared, of scale 1 if a target will calibrate it."""
    m = r.topology.n_agents

    def schedule_of(table: NoiseTable) -> NoiseSchedule:
        scale = np.broadcast_to(np.asarray(1.0 if table.scale is None else table.scale, dtype=np.float64), (m,))
        decay = np.broadcast_to(np.asarray(table.decay, dtype=np.float64), (m,))
        with np.errstate(over="ignore"):
            decay = decay + table.decay_per_agent * np.arange(1, m + 1)
        return NoiseSchedule(scale.copy(), decay, schedule_points(table.points))

    return {channel: schedule_of(r.privacy.noise(family) or NoiseTable()) for channel, family in r.charged.items()}


def calibrated_schedules(r: Resolved, noise: Mapping[str, NoiseSchedule], ledger: Ledger) -> dict[str, NoiseSchedule]:
    """Scale the schedules so that every agent spends the target.

    The channels of a family split its share evenly.

    Args:
        r: epsilon, delta and share of its [privacy] table are read.
        noise: channel → schedule to start from.
        ledger: the releases planned with that noise.

    Returns:
        Channel → schedule; one that the ledger does not charge stays as it is.

    Raises:
        InputError: a family without its share, no release that reads a record, or a target that no noise meets.
    """
    # Some channels are never sent in so few rounds.
    charged = {c.channel: r.charged[c.channel] for c in ledger.charged_channels}
    if charged and not any(c.rounds.size for c in ledger.charged_channels):
        raise InputError(
            f"algorithm.rounds: no release of {r.kind} reads a record so early, and there is no noise to calibrate "
            f"(got {r.s.algorithm.rounds}). Fix: take more rounds."
        )
    privacy, families = r.privacy, list(charged.values())
    missing = [c for c in families if privacy.share and c not in privacy.share]
    if missing:
        raise InputError(
            f"privacy.share.{missing[0]}: missing. Fix: give a share for each of "
            f"{', '.join(dict.fromkeys(families))}, or none."
        )
    declared = by_channel(privacy.share)
    shares = {c: declared.get(family, 1.0) / families.count(family) for c, family in charged.items()}
    total = sum(shares.values())
    alike = any(c.shared for c in ledger.charged_channels)
    factors = calibrate(ledger, privacy.epsilon or 0.0, privacy.delta, {c: v / total for c, v in shares.items()}, alike)
    return {c: replace(v, scale=v.scale * factors[c]) if c in factors else v for c, v in noise.items()}


def rounds_within_cap(ledger: Ledger, cap: float, delta: float, rounds: int) -> tuple[int, str, str | None]:
    """Stop before the cap would be passed.

    Args:
        ledger: all planned releases.
        cap: the largest ε at δ that any agent may spend.
        delta: δ.
        rounds: T, as planned.

    Returns:
        The rounds that are run, the status, and the reason where they are fewer; None where all are run.

    Raises:
        InputError: the first round alone passes it.
    """
    allowed = rounds_within(ledger, cap, delta)
    if allowed >= rounds:
        return rounds, "ok", None
    if allowed == 0:
        raise InputError(f"privacy.cap: the first round alone costs more than {cap}. Fix: raise the cap, or add noise.")
    reason = f"stopped after round {allowed} of {rounds}: round {allowed + 1} would pass the declared cap ε = {cap}"
    return allowed, "budget_reached", reason


def gossip_job(c: Components) -> GossipJob:
    """Return a job of agents that trust nobody, planned and priced, without a noise key. Raises InputError."""
    r = resolve_gossip(c)
    privacy, rounds, factor, m = r.privacy, r.s.algorithm.rounds, r.factor, r.topology.n_agents

    def plan_ledger(noise: PlannedNoise, rounds: int, weight: Array = r.topology.neighbour_weight) -> Ledger:
        facts = (r.counts, r.stream, weight, r.clip)
        return plan_releases(r.algorithm, r.problem, *facts, rounds, noise, r.network, r.unit)

    noise = PlannedNoise(r.mechanism, {}, r.pairs, factor, is_final=False)
    if r.mechanism != NO_NOISE:
        noise = noise._replace(schedules=schedules(r))
        if privacy.epsilon is not None:
            # Correlated noise is charged for its grid, which is known once it is calibrated.
            for _ in range(1 if factor is None else 2):
                target = plan_ledger(noise, rounds)
                noise = noise._replace(schedules=calibrated_schedules(r, noise.schedules, target))
        if r.topology.over_time is not None:
            few, other = (plan_ledger(noise, min(rounds, 3), np.full(m, weight)) for weight in (0.25, 0.75))
            if not few.same_releases(other):
                raise InputError(
                    f"topology: releases of {r.kind} depend on the weight of an agent's neighbours, and are priced on "
                    "a network that stays. Fix: take an algorithm that only sends steps from released values, such as "
                    "dp_dsgd; or leave out over_time, drop, offline and delay."
                )
    noise = noise._replace(is_final=True)
    ledger = plan_ledger(noise, rounds)
    text = ""
    # The text is about the sum of fresh noise.
    if factor is None:
        averaged = averaged_noises(r.topology)
        text = settings_text(r.problem, r.algorithm, averaged, r.clip, rounds, noise.schedules, r.pairs)
    text += f" Features are not centred: {r.not_centred}." if r.not_centred else ""
    curvature = curvature_of(r.problem, r.shards.l2, by_channel(r.s.algorithm.init))
    status, reason = "ok", None
    if privacy.cap is not None:
        rounds, status, reason = rounds_within_cap(ledger, privacy.cap, privacy.delta, rounds)
        ledger = plan_ledger(noise, rounds)
    return GossipJob(
        components=r.components,
        topology=r.topology,
        shards=r.shards,
        records=records_of(r.problem, r.shards, r.elsewhere, r.clip.norm),
        test=test_records(r.problem, r.shards, r.clip.norm),
        stream=r.stream,
        clip=r.clip,
        mechanism=r.mechanism,
        rounds=rounds,
        ledger=ledger,
        budget=price(ledger, privacy.delta),
        status=status,
        reason=reason,
        problem=r.problem,
        algorithm=r.algorithm,
        noise=noise.schedules,
        pairs=r.pairs,
        factor=factor,
        pools_records=r.pools,
        settings_text=text,
        stability_text=stability_text(r.kind, r.algorithm, r.topology, curvature, rounds),
    )
