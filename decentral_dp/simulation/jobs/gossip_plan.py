"""Plan of a gossip job from public numbers only: its noise, ledger and ε."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from decentral_dp.algorithms.protocol import Algorithm, Counts, Planned, Public
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.config.components import Components
from decentral_dp.config.schema import NoiseTable, by_channel
from decentral_dp.data import Sampling
from decentral_dp.errors import InputError
from decentral_dp.exchange import senders_of
from decentral_dp.formatting import epsilon_text
from decentral_dp.participants import Network
from decentral_dp.privacy.accounting.accountants import AgentCosts, account, calibrate
from decentral_dp.privacy.clipping import RECORD, Clip, Unit, sampled_unit
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, GAUSSIAN_BITS, NO_MECHANISM, NO_NOISE, Mechanism, noise_of
from decentral_dp.privacy.pair_noise import PairNoise
from decentral_dp.privacy.releasers import FREE, NoiseSchedule
from decentral_dp.privacy.schedules import schedule_points
from decentral_dp.privacy.time_factors import TimeFactor, charged_sensitivity
from decentral_dp.problems.protocol import Problem
from decentral_dp.simulation.jobs.gossip_setup import (
    OVER_ROUNDS,
    Resolved,
    averaged_noises,
    resolve_gossip,
    unweighted_reason,
)
from decentral_dp.simulation.jobs.hyperparameters import (
    curvature_of,
    hyperparameters_text,
    largest_weight,
    mixing_text,
    stability_text,
)
from decentral_dp.simulation.jobs.job import LARGEST_PLAN, GossipJob, records_of, test_records
from decentral_dp.simulation.jobs.published import account_published, refuse_hidden

# Integers of the grid stay exact in float64 below this.
_LARGEST_INTEGER = 2.0**52
# Largest ratio of the noise of a second calibration to that of the first.
_LARGEST_NOISE_RATIO = 1.25
# Ratio of the agents' numbers of records above which weights of records are advised.
_UNEQUAL = 1.5
# Exponential variates of float64 samplers are below 45 means.
_LARGEST_VARIATE = 45.0


class PlannedNoise(NamedTuple):
    """Noise of a plan.

    Args:
        mechanism: mechanism of the charged releases.
        schedules: channel → schedule of all agents, for each charged channel; empty without noise.
        pairs: pairwise correlated noise of neighbours, default none.
        factor: factor of noise that is correlated over rounds; None (the default) means fresh noise in each round.
        is_final: whether the noise is calibrated, default True.
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
    sampling: Sampling,
    neighbour_weight: Array,
    clip: Clip,
    rounds: int,
    noise: PlannedNoise,
    network: Network | None = None,
    unit: Unit = RECORD,
    weights: Mapping[Split, Array] = MappingProxyType({}),
) -> Ledger:
    """Plan all releases of T rounds.

    Agents with equal counts, self-weight and noise share a column from the start, so that 10⁵ agents are planned as
    one. If the algorithm decides which agents send, each agent is planned separately, and agents with equal releases
    are then merged into one column.

    Args:
        algorithm: the gossip program.
        problem: problem of the agents.
        counts: split → numbers of records, (m,).
        stream: rule for the records that a round reads.
        neighbour_weight: total weight of the neighbours, (m,).
        clip: bounds on every record's contribution.
        rounds: number of rounds T.
        noise: noise of the charged releases.
        network: public network; None (the default) means agents without neighbours.
        unit: difference of neighbouring data sets, default one replaced record.
        weights: split → public factors of the means, functions of the counts, (m,); by default agents count equally.

    Returns:
        The ledger.

    Raises:
        InputError: there are too many releases to account, or noise cannot be added exactly in float64.
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
        reason = "are planned one by one" if by_agent else "differ in records, weights or noise"
        raise InputError(
            f"algorithm.rounds: {rounds} rounds for {representative.size} agents that {reason} exceed the "
            f"{LARGEST_PLAN:.0e} releases per channel that can be accounted. Fix: use fewer rounds."
        )
    # One-level problems have no validation records.
    sizes = {k: n[representative] for k, n in counts.items() if n.any()}
    # One row that is repeated where rounds do not differ.
    read_rounds: Any = np.arange(rounds)[:, None] if sampling.kind == "streaming" else 0
    public = Public(
        rounds,
        {
            k: np.broadcast_to(sampling.averaged_counts(read_rounds, n) * 1.0, (rounds, n.size))
            for k, n in sizes.items()
        },
        {k: sampling.rate(0, n) for k, n in sizes.items()},
        neighbour_weight[representative],
        problem.reads_records,
        clip,
        problem.p,
        problem.q,
        network,
        unit,
        "poisson" if sampling.kind == "poisson" else "fixed",
        {k: w[representative] for k, w in weights.items()},
    )
    # A sensitivity that overflows is infinite, and accounted or refused as such.
    with np.errstate(over="ignore"):
        plans = algorithm.planned_releases(public)
    widths, per_round = algorithm.releases(problem.p, problem.q), algorithm.releases_per_round
    channels = [_channel(c, plans[c], widths[c].width, per_round, group, representative, noise) for c in plans]
    if senders is not None:
        sends = np.stack([senders.mask_of_round(t) for t in range(rounds + 1)])
        channels = [c.keep_sent(sends[c.rounds // per_round]) if c.mechanism.charged else c for c in channels]
    if by_agent:
        channels = [_by_equal_releases(c) for c in channels]
    return Ledger(m, tuple(channels), per_round)


def _by_equal_releases(c: ChannelLedger) -> ChannelLedger:
    """Merge columns of agents with equal releases."""
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
    plan: Planned,
    dimension: int,
    releases_per_round: int,
    group: IntArray,
    representative: IntArray,
    noise: PlannedNoise,
) -> ChannelLedger:
    index, sensitivity = plan.indices, plan.sensitivity
    mechanism, pairs, factor = noise.mechanism, noise.pairs, noise.factor
    shared_scales: Mapping[str, Array] = {}
    if not plan.sensitivity:
        none = np.zeros((index.size, 1))
        return ChannelLedger(channel, NO_MECHANISM, dimension, np.zeros_like(group), index, none, {}, {}, reason=FREE)
    if not mechanism.adds_noise:
        scale = np.zeros((index.size, representative.size))
    else:
        with np.errstate(over="ignore"):
            scale = noise.schedules[channel].select(representative).scales(index // releases_per_round, mechanism)
        largest, reach = plan.largest if noise.is_final else np.zeros_like(scale), _LARGEST_VARIATE
        if pairs is not None:
            reach *= pairs.reach()
        if factor is not None:
            _check_in_time(channel, plan, scale, dimension, factor, reach)
            # Noise of earlier rounds is added to the query in float64, to 2⁻¹⁰ of a cell.
            reach, largest = reach * factor.growth, largest * 2.0**10
            # Calibrated noise is slightly larger than the noise that was accounted.
            grid = noise_of(mechanism, channel).grid(
                scale if noise.is_final else _LARGEST_NOISE_RATIO * scale, dimension
            )
            sensitivity = {k: charged_sensitivity(factor, index, s, grid, dimension) for k, s in sensitivity.items()}
        _check_noise(channel, largest, scale, mechanism, dimension, reach)
        if pairs is not None:
            scale, shared_scales = pairs.charged_scales(scale, index // releases_per_round, representative)
    facts = (channel, mechanism, dimension, group, index, scale, sensitivity, plan.rate)
    return ChannelLedger(*facts, sampling=plan.sampling, shared=shared_scales)


def _check_in_time(channel: str, plan: Planned, scale: Array, dimension: int, factor: TimeFactor, reach: float) -> None:
    """Refuse channels with noise correlated over rounds that proof 40 does not cover. Raises InputError."""

    def changes(sizes: Array) -> bool:
        return bool((sizes != sizes[:1]).any())

    index, rounds = plan.indices, factor.row_sums.size
    sums_are_exact = factor.error * reach * 2.0 ** (GAUSSIAN_BITS + 1) <= 2.0**-10
    size_changes = changes(scale) or any(map(changes, plan.sensitivity.values()))
    is_each_round = np.array_equal(index, np.arange(1, index.size + 1)) and index.size <= rounds
    rules = (
        (not is_each_round, "is not released once in every round", 'use "dp_dsgd"'),
        (size_changes, "has noise or a sensitivity that changes by round", "keep its step and noise constant"),
        (GAUSSIAN.rounds_at_random(dimension), f"has {dimension:,} coordinates, rounded at random", "use fewer"),
        (not sums_are_exact, "has noise of earlier rounds, too long a sum for float64", "use fewer bands"),
    )
    for applies, problem, fix in rules:
        if applies:
            raise InputError(f"{OVER_ROUNDS}: {channel} {problem}. Fix: remove it, or {fix}.")


def _check_noise(
    channel: str, largest: Array, scale: Array, mechanism: Mechanism, dimension: int, variate: float
) -> None:
    """Refuse noise near the limits of float64, or so small for a query that its grid integers would not be exact."""
    usable = bool(((scale > 2.0**-900) & (scale < 2.0**900)).all())
    if usable:
        reach = np.where(np.isfinite(largest), largest, 0.0) + variate * scale
        with np.errstate(over="ignore"):
            usable = bool((reach / noise_of(mechanism, channel).grid(scale, dimension) < _LARGEST_INTEGER).all())
    if not usable:
        scales = " to ".join(dict.fromkeys(f"{s:.3g}" for s in (scale.min(), scale.max())))
        size = f" to a query of size {largest.max():.3g}" if largest.any() else ""
        raise InputError(
            f"privacy.{channel}: noise of scale {scales} cannot be added exactly in float64{size}. Fix: use a "
            "clipping norm, step sizes and noise closer to 1."
        )


def schedules(r: Resolved) -> dict[str, NoiseSchedule]:
    """Return channel → noise schedule of the charged channels, with scale 1 if it is calibrated to a target ε."""
    m = r.topology.n_agents

    def schedule_of(table: NoiseTable) -> NoiseSchedule:
        scale = np.broadcast_to(np.asarray(1.0 if table.scale is None else table.scale, dtype=np.float64), (m,))
        decay = np.broadcast_to(np.asarray(table.decay, dtype=np.float64), (m,))
        with np.errstate(over="ignore"):
            decay = decay + table.decay_per_agent * np.arange(1, m + 1)
        return NoiseSchedule(scale.copy(), decay, schedule_points(table.points))

    return {channel: schedule_of(r.privacy.noise(family) or NoiseTable()) for channel, family in r.charged.items()}


def calibrated_schedules(r: Resolved, noise: Mapping[str, NoiseSchedule], ledger: Ledger) -> dict[str, NoiseSchedule]:
    """Scale the schedules so that every agent spends the target ε.

    The channels of a family split its share evenly.

    Args:
        r: scenario, with epsilon, delta and share in its [privacy] table.
        noise: channel → schedule to scale.
        ledger: ledger of the releases planned with this noise.

    Returns:
        Channel → schedule. Schedules of channels that are not charged are unchanged.

    Raises:
        InputError: a family has no share, no release reads a record, or no noise meets the target.
    """
    # In few rounds, some channels are never sent.
    charges = {c.channel: r.charged[c.channel] for c in ledger.charged_channels}
    if charges and not any(c.rounds.size for c in ledger.charged_channels):
        raise InputError(
            f"algorithm.rounds: too few, since no release of {r.kind} reads records yet (got "
            f"{r.s.algorithm.rounds}). Fix: increase it."
        )
    privacy, families = r.privacy, list(charges.values())
    missing = [c for c in families if privacy.share and c not in privacy.share]
    if missing:
        raise InputError(
            f"privacy.share.{missing[0]}: missing. Fix: set a share for each of "
            f"{', '.join(dict.fromkeys(families))}, or remove share."
        )
    declared_shares = by_channel(privacy.share)
    shares = {c: declared_shares.get(family, 1.0) / families.count(family) for c, family in charges.items()}
    total = sum(shares.values())
    equal = any(c.shared for c in ledger.charged_channels)
    factors = calibrate(ledger, privacy.epsilon or 0.0, privacy.delta, {c: v / total for c, v in shares.items()}, equal)
    return {c: replace(v, scale=v.scale * factors[c]) if c in factors else v for c, v in noise.items()}


def multiplied_schedules(r: Resolved, noise: Mapping[str, NoiseSchedule], ledger: Ledger) -> dict[str, NoiseSchedule]:
    """Scale the schedules so that every release has the noise multiplier privacy.noise_multiplier.

    Pairwise correlated noise has one scale, at which the least noise multiplier of any agent has this value.

    Args:
        r: scenario.
        noise: channel → schedule to scale.
        ledger: ledger of the releases planned with this noise.

    Returns:
        Channel → schedule.

    Raises:
        InputError: the contribution of a record changes over the rounds, so no constant noise has this multiplier.
    """
    scaled_noise = dict(noise)
    batch = r.sampling.batch if r.sampling.kind == "fixed_batch" else None
    for c in ledger.charged_channels:
        contribution = largest_contribution(c, r.counts, r.unit, batch)
        # Correlated noise has an independent part of each agent.
        own_scale = c.shared.get("own_scale", c.scale)
        scale = contribution / (own_scale * noise_of(c.mechanism, c.channel).deviation)
        if scale.size and not np.allclose(scale, scale[:1], rtol=1e-9, atol=0.0):
            raise InputError(
                f"privacy.noise_multiplier: the contribution of a record to {c.channel} changes over the "
                "rounds. Fix: use a constant learning rate and clip, or set noise scales instead."
            )
        # Both agents of a pair draw its noise on one grid at one scale, so that it cancels.
        multiple = scale[0].max() if c.shared else scale[0][c.group]
        factor = (r.privacy.noise_multiplier or 0.0) * multiple
        scaled_noise[c.channel] = replace(noise[c.channel], scale=noise[c.channel].scale * factor)
    return scaled_noise


def largest_contribution(
    c: ChannelLedger, counts: Counts, unit: Unit = RECORD, batch: int | None = None, is_central: bool = False
) -> Array:
    """Compute the largest contribution of one record to each release of a channel, (R, g).

    Args:
        c: releases of the channel.
        counts: split → number of records of each agent, (m,).
        unit: privacy unit of the sensitivities.
        batch: size of a fixed batch, if batches are drawn.
        is_central: whether a coordinator releases one value for all agents.
    """
    first, largest = np.unique(c.group, return_index=True)[1], np.zeros_like(c.scale)
    for split, sensitivity in c.sensitivity.items():
        n = counts[split].sum() if is_central else counts[split][first]
        largest = np.maximum(largest, sensitivity / clips_of_record(c, n, unit, batch))
    return largest


def clips_of_record(c: ChannelLedger, n: Any, unit: Unit, batch: int | None) -> Any:
    """Return the number of contributions of one record in the sensitivity of a release."""
    sampled = sampled_unit(c.sampling)
    if sampled is not None or unit == RECORD:
        return 2 if sampled is None else sampled.steps
    return unit.clips(n if batch is None else np.minimum(n, batch))


def _weights_text(r: Resolved, budget: AgentCosts) -> str:
    """Advise weights of records if agents with few records add more noise, or set the shared noise; "" otherwise."""
    target, counts = r.privacy.epsilon, r.shards.train_counts
    if not r.is_private or target is None or r.weights or unweighted_reason(r):
        return ""
    if r.pairs is None:
        text = 'Small agents add more noise. Fix: set problem.weights = "records".'
        return text if counts.max() > _UNEQUAL * counts.min() else ""
    epsilon = budget.epsilon
    most, least = int(epsilon.argmax()), int(epsilon.argmin())
    if not (epsilon[least] < 0.5 * target and counts[most] == counts.min() <= 0.5 * counts[least]):
        return ""
    return (
        f"Agent {r.topology.labels[most]} has the fewest records, {counts[most]:,}, and sets the noise of all agents. "
        f"Agent {r.topology.labels[least]} spends only ε = {epsilon_text(float(epsilon[least]))} of {target:g}. Fix: "
        'set problem.weights to "records", so that agents spend about the same ε.'
    )


def gossip_job(c: Components) -> GossipJob:
    """Plan a job of agents that trust no server, without a noise key. Raises InputError."""
    r = resolve_gossip(c)
    privacy, rounds, factor, m = r.privacy, r.s.algorithm.rounds, r.factor, r.topology.n_agents

    def plan_ledger(noise: PlannedNoise, rounds: int, weight: Array = r.topology.neighbour_weight) -> Ledger:
        facts = (r.counts, r.sampling, weight, r.clip)
        return plan_releases(r.algorithm, r.problem, *facts, rounds, noise, r.network, r.unit, r.weights)

    noise = PlannedNoise(r.mechanism, {}, r.pairs, factor, is_final=False)
    if r.mechanism != NO_NOISE:
        noise = noise._replace(schedules=schedules(r))
        if privacy.epsilon is not None:
            # Correlated noise is charged for its grid, which follows from a first calibration.
            for _ in range(1 if factor is None else 2):
                target = plan_ledger(noise, rounds)
                noise = noise._replace(schedules=calibrated_schedules(r, noise.schedules, target))
        elif privacy.noise_multiplier is not None:
            noise = noise._replace(schedules=multiplied_schedules(r, noise.schedules, plan_ledger(noise, rounds)))
        if r.topology.over_time is not None:
            low, high = (plan_ledger(noise, min(rounds, 3), np.full(m, weight)) for weight in (0.25, 0.75))
            if not low.same_releases(high):
                raise InputError(
                    f"topology: releases of {r.kind} depend on the weight of an agent's neighbours, and are accounted "
                    "on a constant network only. Fix: use an algorithm that sends steps from released values, such as "
                    "dp_dsgd; or remove over_time, drop, offline and delay."
                )

    # A calibration plans the same job at several noise scales.
    records = records_of(r.problem, r.shards, r.elsewhere, r.clip.norm)
    test = test_records(r.problem, r.shards, r.clip.norm)

    def planned(noise: PlannedNoise) -> GossipJob:
        """Return the job with this noise."""
        noise = noise._replace(is_final=True)
        ledger = plan_ledger(noise, rounds)
        budget, text = account(ledger, privacy.delta), ""
        # The text is true of fresh noise only.
        if factor is None:
            averaged = averaged_noises(r.topology)
            text = hyperparameters_text(r.problem, r.algorithm, averaged, r.clip, rounds, noise.schedules, r.pairs)
        return GossipJob(
            components=r.components,
            topology=r.topology,
            shards=r.shards,
            records=records,
            test=test,
            sampling=r.sampling,
            clip=r.clip,
            mechanism=r.mechanism,
            rounds=rounds,
            ledger=ledger,
            budget=budget,
            problem=r.problem,
            algorithm=r.algorithm,
            noise=noise.schedules,
            pairs=r.pairs,
            factor=factor,
            pools_records=r.pools,
            weights=r.weights,
            hyperparameters_text=text,
            setting_warnings=tuple(filter(None, (*warnings, _weights_text(r, budget)))),
        )

    curvature = curvature_of(r.problem, r.shards.l2, by_channel(r.s.algorithm.init))
    if not r.algorithm.has_server:
        curvature *= largest_weight(r.weights.get("train"))
    not_centred = f"Features are not centred: {r.not_centred}." if r.not_centred else ""
    mixing = mixing_text(r.topology, rounds) if privacy.adversary != "all_messages" else ""
    average, averaged = r.s.run.average, ""
    if isinstance(average, float) and r.s.tail_length == 1:
        averaged = f"run.average = {average:g} of {rounds} rounds is one released value, and nothing is averaged."
    warnings = (stability_text(r.kind, r.algorithm, r.topology, curvature, rounds), not_centred, mixing, averaged)
    job = planned(noise)
    if privacy.adversary == "all_messages":
        return job
    refuse_hidden(job)
    base = noise.schedules

    def with_noise(factor: float) -> GossipJob:
        scaled = {c: replace(v, scale=v.scale * factor) if c != "x" else v for c, v in base.items()}
        return planned(noise._replace(schedules=scaled))

    return account_published(job, with_noise, privacy.adversary)
