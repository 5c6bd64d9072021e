"""The ledger of a scenario before it is run: public numbers only.

The [privacy] table as clips and noise schedules: declared, or calibrated to a target, and cut at a cap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.algorithms.protocol import Algorithm, Channel, Checked, Counts, Planned, Public
from decentral_dp.bounded import SPLITS, Array, LipschitzConstants, Norm
from decentral_dp.config.component_tables import Partition
from decentral_dp.config.components import Components
from decentral_dp.config.scenario_components import (
    algorithm_of,
    check_levels,
    check_server,
    clip_of,
    deal,
    local_problem_of,
    stream_of,
    with_clip,
)
from decentral_dp.config.schema import Noise, Scenario, by_channel
from decentral_dp.data import Shards, Stream
from decentral_dp.data.synthetic import machine_memory
from decentral_dp.errors import InputError
from decentral_dp.exchange import senders_of
from decentral_dp.formatting import agent_names
from decentral_dp.participants.agents import Network
from decentral_dp.privacy.accounting.accountants import calibrate, price, rounds_within
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, NO_MECHANISM, NO_NOISE, Mechanism, noise_of
from decentral_dp.privacy.mechanisms.gaussian import BITS
from decentral_dp.privacy.mechanisms.releasers import FREE, NoiseSchedule
from decentral_dp.privacy.mechanisms.time_factors import TimeFactor, charged_sensitivity
from decentral_dp.privacy.pair_noise import PairNoise
from decentral_dp.privacy.schedules import schedule_points
from decentral_dp.privacy.unit import RECORD, Unit, unit_of
from decentral_dp.problems.protocol import CLIP_OF_TERM, MATRICES, Problem
from decentral_dp.problems.protocol import Planned as PlannedSteps
from decentral_dp.simulation.jobs.agent_records import records_of, test_records
from decentral_dp.simulation.jobs.correlated_noise import (
    IN_TIME,
    check_correlation,
    follows_from_releases,
    kinds_with,
    pair_noise_of,
    refusal_of_correlation,
    time_factor_of,
)
from decentral_dp.simulation.jobs.job import LARGEST_PLAN, GossipJob, public_network
from decentral_dp.simulation.jobs.settings import settings_text, with_centring, with_settings
from decentral_dp.simulation.jobs.stability import curvature_of, stability_text
from decentral_dp.topology import Topology
from decentral_dp.topology import build as build_graph
from decentral_dp.topology.over_time import OverTime
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


def plan(
    algorithm: Algorithm,
    problem: Problem,
    counts: Counts,
    stream: Stream,
    neighbour_weight: Array,
    clip: Clip,
    constants: LipschitzConstants | None,
    rounds: int,
    noise: PlannedNoise,
    network: Network | None = None,
    unit: Unit = RECORD,
) -> Ledger:
    """Plan all releases of so many rounds.

    Agents with equal counts, self-weight and noise share a column from the start, so that 10⁵ of them are planned as
    one. Where the algorithm plans by agent, or says who sends, every agent is planned, and those with equal releases
    share a column afterwards.

    Args:
        algorithm: the gossip program.
        problem: the bilevel problem.
        counts: kind of records → (m,) how many each agent has.
        stream: which records a round reads.
        neighbour_weight: (m,) weight of all neighbours together.
        clip: bounds on every record's contribution.
        constants: analytic Lipschitz constants of a run as printed, or None.
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
    by_agent = bool(pairs and changes) or senders is not None or getattr(algorithm, "plans_by_agent", False)
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
            f"{LARGEST_PLAN:.0e} releases of a channel that can be priced. Use fewer rounds."
        )
    # Of a problem of one level nobody has validation records.
    sizes = {k: n[representative] for k, n in counts.items() if n.any()}
    public = Public(
        rounds,
        {k: _averaged_counts(stream, rounds, n) for k, n in sizes.items()},
        {k: stream.rate(0, n) for k, n in sizes.items()},
        neighbour_weight[representative],
        problem.reads_records,
        clip,
        constants,
        problem.p,
        problem.q,
        representative,
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
    return Ledger(m, _share_memory(channels), per_round)


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


def _averaged_counts(stream: Stream, rounds: int, counts: IntArray) -> Array:
    """(T, g) records that each round averages; one row that is repeated where rounds do not differ."""
    if stream.kind == "accumulate":
        return stream.averaged_counts(np.arange(rounds)[:, None], counts).astype(np.float64)
    return np.broadcast_to(stream.averaged_counts(0, counts).astype(np.float64), (rounds, counts.size))


def _share_memory(channels: Sequence[ChannelLedger]) -> tuple[ChannelLedger, ...]:
    """The same plan in less memory, for as long as the run lasts: equal columns are one array, equal rows one row."""
    arrays: list[NDArray[Any]] = []

    def shared_column(column: NDArray[Any]) -> Any:
        same = next((k for k in arrays if k.dtype == column.dtype and np.array_equal(k, column)), None)
        if same is None:
            is_constant = len(column) > 0 and bool((column == column[:1]).all())
            same = np.broadcast_to(column[0].copy(), column.shape) if is_constant else column
            arrays.append(same)
        return same

    return tuple(
        replace(
            c,
            rounds=shared_column(c.rounds),
            scale=shared_column(c.scale),
            sensitivity={k: shared_column(s) for k, s in c.sensitivity.items()},
            rate={k: shared_column(r) for k, r in c.rate.items()},
            shared={k: shared_column(v) for k, v in c.shared.items()},
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
    """Refuse channels that proof 40 does not cover in noise that is correlated in time. Raises InputError."""
    rounds = factor.row_sums.size
    if not np.array_equal(planned.indices, np.arange(1, planned.indices.size + 1)) or planned.indices.size > rounds:
        raise refusal_of_correlation(f"{channel} is not released once in every round.", 'take "dp_dsgd"', IN_TIME)
    for what, sizes in (("noise", [scale]), ("what a record moves", planned.sensitivity.values())):
        if any((part != part[:1]).any() for part in sizes):
            why = f"{what} on {channel} changes with the rounds, and the price is that of one size in all."
            raise refusal_of_correlation(why, f"give {channel} a step and noise that do not decay", IN_TIME)
    if GAUSSIAN.rounds_at_random(dimension):
        why = f"{channel} has {dimension:,} coordinates, which are rounded at random."
        raise refusal_of_correlation(why, "take fewer", IN_TIME)
    if not factor.error * drawn * 2.0 ** (BITS + 1) <= 2.0**-10:
        why = "float64 does not add up what goes on as finely as noise is drawn."
        raise refusal_of_correlation(why, "take fewer bands", IN_TIME)


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
            f"privacy.{channel}: noise of scale {scales} cannot be added exactly in float64{size}. Bring the clip, the "
            "step sizes and the noise (its scale and decay, or the target epsilon) nearer to 1."
        )


def check_guarantee(s: Scenario) -> None:
    """Refuse keys that no gossip job takes, or none as printed. Raises InputError."""
    privacy, guarantee = s.privacy, s.privacy.guarantee
    for key, value in (("problem.label_bound", s.problem.label_bound), ("privacy.constants", privacy.constants)):
        if value is not None:
            raise InputError(f"{key}: {s.algorithm.kind} clips contributions, and needs none. Leave it out.")
    if guarantee == "as_printed":
        if privacy.mechanism_kind != LAPLACE.name:
            raise InputError(
                'privacy.mechanism: the paper\'s protocol uses Laplace noise; "as_printed" takes "laplace" only.'
            )
        if privacy.epsilon is not None:
            raise InputError(
                'privacy.epsilon: "as_printed" cannot be calibrated, its certified budget is infinite in general. '
                'Give scales (privacy.x, y and z), or use guarantee = "certified".'
            )
        if privacy.clip:
            raise InputError('privacy.clip: the paper\'s protocol does not clip. Use guarantee = "certified" to clip.')
        if s.algorithm.protocol == "private":
            raise InputError('algorithm.protocol: "private" is a certified protocol; leave it out for "as_printed".')


def checked_unit(c: Components, algorithm: Algorithm, problem: Problem, stream: Stream) -> Unit:
    """The unit of a scenario of agents that trust nobody.

    Raises:
        InputError: nothing is derived for it (docs/proofs/36).
    """
    s, kind = c.scenario, c.scenario.algorithm.kind
    privacy, unit = s.privacy, unit_of(s.privacy.unit, s.privacy.neighbours)
    key = "privacy.neighbours" if unit.records == 1 else "privacy.unit"
    if unit == RECORD or privacy.guarantee == "none":
        return unit
    if privacy.guarantee == "as_printed":
        raise InputError(
            f'{key}: "as_printed" prices the protocol of the paper for one replaced record, and takes no other. '
            "Leave it out."
        )
    if not follows_from_releases(c, algorithm):
        raise InputError(
            f"{key}: how far {unit.noun} moves what {kind} releases is not derived, only for algorithms of this "
            f"package that keep nothing un-noised ({kinds_with('memoryless')}) and for one's own. Leave it out, or "
            "take one of these."
        )
    if unit.zeroed and c.algorithm.custom:
        raise InputError(
            f'privacy.neighbours: "zero_out" is derived for algorithms of this package, not for {kind}. Fix: take '
            '"replace".'
        )
    if c.problem.is_outside:
        raise InputError(f"{key}: a custom problem is accounted for one replaced record only. Fix: leave it out.")
    if getattr(c.mechanism, "privacy_unit", ""):
        raise InputError(
            f"{key}: the mechanism states its price for {getattr(c.mechanism, 'privacy_unit', '')}. Leave it out."
        )
    read = {
        problem.reads_records[MATRICES.get(t, t)]
        for ch in algorithm.releases(problem.p, problem.q).values()
        for t in _queries(ch, problem)
    }
    if unit.records != 1 and len(read) > 1:
        raise InputError(
            f"privacy.unit: releases of {kind} read train and validation records, of which {unit.noun} may hold both, "
            'and that is not derived. Take unit = "record", or a problem of one level.'
        )
    if unit.zeroed and unit.records is not None and stream.kind == "minibatch":
        raise InputError(
            "privacy.neighbours: in a batch of fixed size another record has the place of one that is not drawn, so "
            'that "zero_out" gains nothing there. Take "replace", or another stream.'
        )
    return unit


def check_coins(c: Components, algorithm: Algorithm, unit: Unit, stream: Stream) -> None:
    """Refuse Poisson samples where no price of theirs is derived. Raises InputError."""
    s, kind = c.scenario, c.scenario.algorithm.kind
    if stream.kind != "poisson":
        return
    if c.algorithm.custom or not algorithm.one_mean or algorithm.protocol != "released":
        raise InputError(
            f"problem.stream: what {kind} releases of Poisson samples has no price here, only what "
            f"{kinds_with('one_mean')} do. "
            'Take one of these, or "minibatch".'
        )
    if s.privacy.guarantee != "none" and c.mechanism != GAUSSIAN:
        raise InputError(
            "problem.stream: Poisson samples are priced under Gaussian noise alone. Set privacy.mechanism = "
            '"gaussian", or take "minibatch".'
        )
    if s.privacy.guarantee != "none" and unit.records is None:
        raise InputError(
            f"problem.stream: Poisson samples are priced for records and groups of them, not for {unit.noun}. Take "
            '"all", or leave privacy.unit out.'
        )


def charged_channels(channels: Mapping[str, Channel], problem: Problem) -> dict[str, str]:
    """Channel → family, of those that need noise: whose releases depend on records of this problem."""
    return {name: c.family for name, c in channels.items() if _queries(c, problem)}


def _queries(channel: Channel, problem: Problem) -> list[str]:
    """The terms of this channel that read records."""
    return [t for t in channel.terms if MATRICES.get(t, t) in problem.reads_records]


def clipped_families(channels: Mapping[str, Channel], problem: Problem) -> list[str]:
    """The families whose clip bounds what a record of this problem contributes."""
    return list(dict.fromkeys(CLIP_OF_TERM[t] for c in channels.values() for t in _queries(c, problem)))


def clips(s: Scenario, channels: Mapping[str, Channel], problem: Problem, mechanism: Mechanism) -> Clip:
    """Bound every record's contribution, in the norm of the mechanism.

    Args:
        s: the scenario; its guarantee and privacy.clip are read.
        channels: channel → what is released on it.
        problem: whose records contribute.
        mechanism: of the scenario; one without a norm has ℓ2.

    Returns:
        The clips as declared for a certified run; none for any other.

    Raises:
        InputError: a certified run lacks the clip of a family that reads records.
    """
    if s.privacy.guarantee == "none":
        # The norm is that of noise, and there is none.
        return Clip("l2")
    norm: Norm = mechanism.norm or "l2"
    if s.privacy.guarantee != "certified":
        return Clip(norm)
    for family in clipped_families(channels, problem):
        if family not in s.privacy.clip:
            raise InputError(
                f"privacy.clip.{family}: missing. A certified run bounds every record's contribution to {family}; "
                f"add for example clip.{family} = 1.0."
            )
    clip = clip_of(s, norm)
    for t in {int(np.argmin(share.series(s.algorithm.rounds))) for _, share in clip.shares}:
        # Refuses bounds so small that float64 does not keep them.
        clip.at(t)
    return clip


def check_domain(s: Scenario, channels: Mapping[str, Channel]) -> None:
    """Refuse a domain of releases that are not there, or that is empty.

    Args:
        s: the scenario; its privacy.box is read.
        channels: channel → what is released on it.

    Raises:
        InputError: the algorithm does not release the variable, or the domain is empty.
    """
    for channel, (low, high) in s.privacy.domain.items():
        key = f"privacy.box.{channel}"
        if channel not in channels:
            raise InputError(
                f"{key}: {s.algorithm.kind} releases no {channel}, but {', '.join(channels)}. Leave it out."
            )
        if not low < high:
            raise InputError(f"{key}: got {high:g}, wanted a bound above 0 on the size of every coordinate.")


def schedules(s: Scenario, charged: Mapping[str, str], m: int) -> dict[str, NoiseSchedule]:
    """Schedules as declared; scale 1 for what the target epsilon will calibrate. charged: channel → family.

    Raises InputError: both a target and a scale, neither, or another number of values than agents.
    """
    calibrated = s.privacy.epsilon is not None
    declared = {}
    for channel in dict.fromkeys(charged.values()):
        table = s.privacy.noise(channel)
        if calibrated and table is not None and table.scale is not None:
            raise InputError(
                f"privacy.{channel}.scale: epsilon = {s.privacy.epsilon} already settles the noise. "
                "Give one of the two."
            )
        if not calibrated and (table is None or table.scale is None):
            raise InputError(
                f"privacy.{channel}.scale: missing. Give privacy.epsilon, or a noise scale for every channel that "
                "touches data."
            )
        declared[channel] = _schedule(channel, table or Noise(), m)
    return {channel: declared[family] for channel, family in charged.items()}


def _schedule(channel: str, table: Noise, m: int) -> NoiseSchedule:
    def per_agent(key: str, value: float | list[float]) -> Array:
        values = np.asarray(value, dtype=np.float64)
        if values.ndim and values.size != m:
            raise InputError(f"privacy.{channel}.{key}: got {values.size} values, wanted one for each of {m} agents.")
        return np.broadcast_to(values, (m,)).astype(np.float64)

    with np.errstate(over="ignore"):
        decay = per_agent("decay", table.decay) + table.decay_per_agent * np.arange(1, m + 1)
    scale = per_agent("scale", 1.0 if table.scale is None else table.scale)
    return NoiseSchedule(scale, decay, schedule_points(table.points))


def calibrated_schedules(
    s: Scenario, charged: Mapping[str, str], noise: Mapping[str, NoiseSchedule], ledger: Ledger, mechanism: Mechanism
) -> dict[str, NoiseSchedule]:
    """Scale the schedules so that every agent spends the target.

    The channels of a family split its share evenly.

    Args:
        s: the scenario; epsilon, delta and share of its [privacy] are read.
        charged: channel → family.
        noise: channel → schedule to start from.
        ledger: the releases planned with that noise.
        mechanism: of the noise.

    Returns:
        Channel → schedule; one that the ledger does not charge stays as it is.

    Raises:
        InputError: a family without its share, a delta of 0 for a mechanism without a pure guarantee, or a target that
            no noise meets.
    """
    # Some channels are never sent in so few rounds.
    charged = {c.channel: charged[c.channel] for c in ledger.charged_channels}
    if charged and not any(c.rounds.size for c in ledger.charged_channels):
        raise InputError(
            f"algorithm.rounds: got {s.algorithm.rounds}, and what {s.algorithm.kind} sends by then reads no record: "
            "there is no noise to calibrate. Take more rounds."
        )
    privacy, families = s.privacy, list(charged.values())
    missing = [c for c in families if privacy.share and c not in privacy.share]
    if missing:
        raise InputError(
            f"privacy.share.{missing[0]}: missing. "
            f"Give a share for each of {', '.join(dict.fromkeys(families))}, or none."
        )
    if not mechanism.pure and privacy.delta == 0.0:
        raise InputError(
            f"privacy.delta: {mechanism.description} gives no pure guarantee. "
            'Take a delta above 0, for example 1e-5, or mechanism = "laplace".'
        )
    declared = by_channel(privacy.share)
    shares = {c: declared.get(family, 1.0) / families.count(family) for c, family in charged.items()}
    total = sum(shares.values())
    epsilon = privacy.epsilon if privacy.epsilon is not None else 0.0
    alike = any(c.shared for c in ledger.charged_channels)
    factors = calibrate(ledger, epsilon, privacy.delta, {c: v / total for c, v in shares.items()}, alike)
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
        raise InputError(f"privacy.cap: the first round alone costs more than {cap}. Raise the cap, or add noise.")
    reason = f"stopped after round {allowed} of {rounds}: round {allowed + 1} would pass the declared cap ε = {cap}"
    return allowed, "budget_reached", reason


def check_links(s: Scenario, algorithm: Algorithm, topology: Topology) -> None:
    """Refuse a network that this algorithm of neighbours does not average on. Raises InputError."""
    kind, changes, mass = s.algorithm.kind, topology.over_time, algorithm.conserves_mass
    if mass and s.privacy.domain:
        raise InputError(
            f"privacy.box: {kind} sends numerators, which a box for their ratios does not hold. Leave the box out."
        )
    if topology.directed and not mass:
        raise InputError(
            f"topology: {topology.name} is directed, and {kind} averages with weights that are the same both ways. "
            'Take algorithm.kind = "push_sum", or a graph whose links go both ways.'
        )
    if changes is not None:
        _check_over_time(s, changes)
    if s.topology.compression is None:
        return
    if mass:
        raise InputError(
            f"topology.compression: {kind} adds up what it hears, and differences to replicas are no shares of a mass. "
            "Leave it out."
        )
    if changes is not None or senders_of(algorithm, public_network(topology, s)) is not None:
        raise InputError(
            "topology.compression: replicas of what an agent sent go apart where some miss a message. Leave out "
            "over_time, drop, offline and delay, and take an algorithm in which everybody sends; or leave out "
            "compression."
        )
    if s.privacy.guarantee == "as_printed":
        raise InputError(
            "topology.compression: papers state their noise for whole messages. Leave it out, or take guarantee = "
            '"certified".'
        )


def _check_over_time(s: Scenario, changes: OverTime) -> None:
    if s.privacy.guarantee == "as_printed":
        raise InputError(
            "topology: papers state their noise for a network that stays. Leave out over_time, drop, offline and "
            'delay, or take guarantee = "certified".'
        )
    if changes.delay >= s.algorithm.rounds:
        raise InputError(
            f"topology.delay: messages are {changes.delay} rounds late, and there are {s.algorithm.rounds} rounds. "
            "Use a delay below algorithm.rounds."
        )


# Arrays of all agents' values that a round has beside those that are averaged.
_ARRAYS_OF_A_ROUND = 10


def _check_memory(s: Scenario, n_agents: int, problem: Problem) -> None:
    """Refuse a run whose values do not fit into this machine. Raises InputError."""
    average, width, memory = min(s.tail_length, s.algorithm.rounds), problem.p + problem.q, machine_memory()
    wanted = 8.0 * n_agents * width * (average + _ARRAYS_OF_A_ROUND)
    if s.run.engine == "local" and wanted > memory:
        fitting = int(memory / (8.0 * n_agents * width)) - _ARRAYS_OF_A_ROUND
        mend = f"Take run.average = {fitting}, or" if fitting > 0 else "Take"
        raise InputError(
            f"run.average: {average} released values of {n_agents} agents with {width:,} numbers each, and what a "
            f"round needs beside them, take {wanted / 1e9:.3g} GB, and this machine has {memory / 1e9:.3g} GB. {mend} "
            "fewer agents or a smaller model."
        )


def without_network(c: Components, topology: Topology, shards: Shards) -> tuple[Topology, Shards]:
    """Cut all links, or give one server all records, as the algorithm is for or topology.pooled says.

    Raises:
        InputError: the network changes, or records that one server is to have are with their agents, or are all that
            one protected unit holds.
    """
    kind, table = c.scenario.algorithm.kind, c.scenario.topology
    if c.algorithm.network == "graph" and not table.pooled:
        return topology, shards
    if topology.over_time is not None:
        raise InputError(
            f"topology: {'with topology.pooled agents' if table.pooled else f'agents of {kind}'} send nothing, and no "
            "message is lost or late. Leave out over_time, drop, offline and delay."
        )
    if c.algorithm.network == "isolated" and not table.pooled:
        return build_graph("isolated", topology.n_agents, {}), shards
    key = "topology.pooled" if table.pooled else "algorithm.kind"
    if shards.is_elsewhere:
        raise InputError(
            f"{key}: one server is to have all records, and they are with their agents (problem.manifest). "
            + ("Leave it out." if table.pooled else 'Take "alone" or "federated".')
        )
    if c.scenario.privacy.unit == "agent":
        raise InputError(
            f"privacy.unit: by {key} one server has the records of all; as a unit it would be all of them. Take unit = "
            '"record" or { records = k }.'
        )
    note = f"One server, whom all {topology.n_agents} agents trust with their records, has all of them."
    merged = shards.pool()
    return build_graph("complete", 1, {}), replace(merged, notes=(*merged.notes, note))


def _with_names(topology: Topology, partition: Partition | str | None) -> Topology:
    """The graph with its agents called as the records call them, unless it has names of its own."""
    names = agent_names(partition.agents) if isinstance(partition, Partition) else ()
    if len(names) != topology.n_agents or agent_names(topology.labels):
        return topology
    return replace(topology, labels=names)


def gossip_job(c: Components) -> GossipJob:
    """A job of agents that trust nobody, planned and priced, whose noise has no root yet. Raises InputError."""
    s, privacy, guarantee = c.scenario, c.scenario.privacy, c.scenario.privacy.guarantee
    check_guarantee(s)
    topology = c.topology.make()
    if not privacy.colluders < topology.n_agents:
        raise InputError(
            f"privacy.observer: got {privacy.colluders} colluders of {topology.n_agents} agents, and ε is of the "
            f"records of the others, of whom none is left. Give at most {topology.n_agents - 1}."
        )
    shards, elsewhere = deal(c, topology.n_agents)
    topology, shards = without_network(c, topology, shards)
    topology = _with_names(topology, s.problem.partition)
    problem = local_problem_of(c, shards)
    # Settings are planned by made-up records at the first weights, which have to fit as well.
    _check_memory(s, topology.n_agents, problem)
    # What agents average is planned as one noise; who has no neighbour has that of its own alone.
    averaged = topology.n_agents if topology.edges.size else 1
    network = public_network(topology, s)
    pairs = pair_noise_of(s, network)
    averaged_noises = averaged if pairs is None else averaged * pairs.gain_of_average()
    c, not_centred = with_settings(c, problem, shards, topology, averaged_noises)
    s, privacy = c.scenario, c.scenario.privacy
    problem = with_clip(problem, s, clip_of(s, c.mechanism.norm or "l2"))
    algorithm = cast(Algorithm, algorithm_of(c))
    if isinstance(problem, PlannedSteps) and problem.p:
        algorithm = with_centring(
            s, algorithm, problem, shards, topology, averaged_noises, 1.0 if pairs is None else pairs.reach()
        )
    if isinstance(algorithm, Checked):
        algorithm.check(problem.p, problem.q)
    if algorithm.central:
        check_server(s, topology)
        if topology.n_agents > 1 and not topology.edges.size:
            raise InputError(
                f'topology.kind: "isolated" has agents learn alone, and those of {s.algorithm.kind} answer a server. '
                'Take a connected kind, or an algorithm of neighbours such as "dp_dsgd".'
            )
    else:
        check_links(s, algorithm, topology)
    stream = stream_of(s)
    unit = checked_unit(c, algorithm, problem, stream)
    check_coins(c, algorithm, unit, stream)
    if unit != RECORD:
        algorithm = algorithm.for_unit(unit)
    channels = algorithm.releases(problem.p, problem.q)
    check_levels(c, [term for channel in channels.values() for term in channel.terms])
    check_domain(s, channels)
    clip = clips(s, channels, problem, c.mechanism)
    constants = problem.constants(by_channel(privacy.box), shards.l1) if guarantee == "as_printed" else None
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    mechanism = NO_NOISE if guarantee == "none" else c.mechanism

    correlated = check_correlation(c, algorithm, network, stream)
    numbers = topology.n_agents * sum(channel.width for channel in channels.values())
    factor = time_factor_of(s, stream, unit, counts, numbers) if correlated else None

    def plan_ledger(noise: PlannedNoise, rounds: int, weight: Array = topology.neighbour_weight) -> Ledger:
        facts = (counts, stream, weight, clip, constants)
        return plan(algorithm, problem, *facts, rounds, noise, network, unit)

    rounds = s.algorithm.rounds
    charged = charged_channels(channels, problem)
    declared = {} if mechanism == NO_NOISE else schedules(s, charged, topology.n_agents)
    noise = PlannedNoise(mechanism, declared, pairs, factor, is_final=False)
    if privacy.epsilon is not None and mechanism != NO_NOISE:
        # Noise that goes on is charged for its grid, which is known once it is calibrated.
        for _ in range(1 if factor is None else 2):
            target = plan_ledger(noise, rounds)
            noise = noise._replace(schedules=calibrated_schedules(s, charged, noise.schedules, target, mechanism))
    if topology.over_time is not None and mechanism != NO_NOISE:
        weights = (np.full(topology.n_agents, share) for share in (0.25, 0.75))
        few, other = (plan_ledger(noise, min(rounds, 3), share) for share in weights)
        if not few.same_releases(other):
            raise InputError(
                f"topology: what {s.algorithm.kind} sends depends on how much weight its neighbours have, and it is "
                "priced on a network that stays. Take an algorithm that only sends steps from released values, such as "
                "dp_dsgd; or leave out over_time, drop, offline and delay."
            )
    noise = noise._replace(is_final=True)
    ledger = plan_ledger(noise, rounds)
    text = ""
    # What is said of all noise together is of fresh noise.
    if factor is None:
        own_square = 1.0 if pairs is None else pairs.own_square()
        text = settings_text(problem, algorithm, averaged, clip, rounds, noise.schedules, unit, own_square)
    text += f" Features are not centred: {not_centred}." if not_centred else ""
    curvature = curvature_of(problem, shards.l2, by_channel(s.algorithm.init))
    status, reason = "ok", None
    if privacy.cap is not None:
        rounds, status, reason = rounds_within_cap(ledger, privacy.cap, privacy.delta, rounds)
        ledger = plan_ledger(noise, rounds)
    return GossipJob(
        components=c,
        topology=topology,
        shards=shards,
        records=records_of(problem, shards, elsewhere, clip.norm),
        test=test_records(problem, shards, clip.norm),
        stream=stream,
        clip=clip,
        mechanism=mechanism,
        rounds=rounds,
        ledger=ledger,
        budget=price(ledger, privacy.delta),
        status=status,
        reason=reason,
        problem=problem,
        algorithm=algorithm,
        constants=constants,
        noise=noise.schedules,
        pairs=pairs,
        factor=factor,
        pools_records=c.algorithm.network == "pooled" or bool(s.topology.pooled),
        settings_text=text,
        stability_text=stability_text(s.algorithm.kind, algorithm, topology, curvature, rounds),
    )
