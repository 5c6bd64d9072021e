"""Transcripts of runs, and the queries of another data set on the same transcript.

`observe` runs a job and records every message. `replay` runs the releasing participant again on other records, with its
releases prescribed: it returns the queries of that data set for the same messages. In gossip, that participant is the
victim, since all others react only to its messages. Otherwise it is the coordinator. For a random choice, `replay`
returns its distribution. With sampling, `Membership` prescribes whether the victim's record is in the samples.

A certificate with amplification holds against an adversary that knows the draws of the other records, since a
divergence of mixtures is at most the mixture of their divergences. Given these draws, a release is a mixture of two
distributions:

    Poisson       each record is in the sample with probability q, independently of all others
    fixed size    the record is in a sample of b of n with probability q = b/n; otherwise another record replaces it

For fixed size, the adversary knows the b − 1 other records and the record that replaces the victim's. Both are drawn in
the same way in either case, so they leak nothing about the record.

With noise that is correlated over rounds, a replay adds the noise of earlier rounds to its queries, since this noise is
known given the data set. With noise that agents share, the adversary knows the noise of all other agents, and the draws
that colluders share. The rest of the victim's noise is Gaussian around its conditional mean, at its effective scale.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.central.selection import FiniteExponential, RegularisedSelection, even_points
from decentral_dp.data.streams import Draw, draw_batch
from decentral_dp.engines.host import Host
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode, CoordinatorNode
from decentral_dp.exchange import Bundle, Released
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, NO_NOISE, Mechanism, NoiseMechanism, noise_of
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.privacy.randomness import Root, Streams, tag
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.privacy.time_factors import carried_noise, empty_past, next_past
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.jobs.joined import join_runs, most_joined


@dataclass(frozen=True)
class Membership:
    """Membership of the first record of a split: in all samples, in none, or in each with probability ½."""

    split: Split
    inclusion: Literal["in", "out", "by coin"]

    def draw(self, generator: np.random.Generator) -> bool:
        """Return whether the record is in the sample for which `generator` is keyed."""
        return self.inclusion == "in" if self.inclusion != "by coin" else bool(generator.random() < 0.5)


def prescribe_agent(node: AgentNode, membership: Membership) -> AgentNode:
    """Prescribe whether the minibatches of one agent contain its first record.

    Args:
        node: node of a block with this agent only.
        membership: membership of the record in the minibatches.

    Returns:
        The node; all other records are drawn as before.
    """

    def draw(split: Split, n: int, batch: int, generator: np.random.Generator) -> Draw:
        sample = draw_batch(n, batch, generator)
        if split != membership.split or batch >= n:
            return sample
        members = sample.index
        is_in = 0 in members
        # The record that replaces the first one, or that the first one replaces.
        partner = generator.choice(np.setdiff1d(np.arange(1, n), members)) if is_in else generator.choice(members)
        if membership.draw(generator) == is_in:
            return sample
        return replace(sample, index=np.where(members == 0, partner, np.where(members == partner, 0, members)))

    return node._replace(dataset=node.dataset.with_sampler(draw))


def prescribe_coordinator(node: CoordinatorNode, victim: int, membership: Membership) -> CoordinatorNode:
    """Prescribe whether a coordinator's Poisson samples contain the first record of one agent.

    Args:
        node: node of the coordinator.
        victim: index of the agent.
        membership: membership of the record in the samples.

    Returns:
        The node; all other records are drawn as before.
    """
    blocks = []
    for block in node.client_blocks:
        places = np.flatnonzero(block.agents == victim)
        coins = _prescribe_coins(block.coins, int(places[0]), membership) if places.size else block.coins
        blocks.append(replace(block, coins=coins))
    return node._replace(client_blocks=tuple(blocks))


def _prescribe_coins(real: Streams, victim_row: int, membership: Membership) -> Any:
    """Return streams of draws in which the draw of one record is prescribed."""

    def generator(row: int, index: int, name: int) -> Any:
        original = real.generator(row, index, name)
        if row != victim_row or name != tag(membership.split):
            return original

        def random(n: int) -> Array:
            coins = original.random(n)
            # Below every rate, or above.
            coins[0] = 0.0 if membership.draw(original) else 1.0
            return coins

        return SimpleNamespace(random=random)

    return SimpleNamespace(generator=generator)


# Number of rounds of a time-varying network that decide which agents collude.
_ROUNDS = 8

Key = tuple[int, str]


# Cells along each axis of a box, by its dimension.
_BOX_CELLS = (4096, 128, 24)


class ChoiceDistribution(NamedTuple):
    """Points of a distribution, (n, p), or for a box the centres of equal cells, and their log-probabilities, (n,)."""

    points: Array
    logs: Array

    def log_at(self, value: Array) -> float:
        """Return the log-probability of the nearest point to a value (d,)."""
        return float(self.logs[int(np.argmin(((self.points - value) ** 2).sum(axis=1)))])

    def place_of(self, value: Array, toss: float) -> float:
        """Return the randomised quantile of a value (d,), uniform on [0, 1] if drawn from it, for `toss` in [0, 1)."""
        nearest = int(np.argmin(((self.points - value) ** 2).sum(axis=1)))
        weights = np.exp(self.logs)
        return float(weights[:nearest].sum() + toss * weights[nearest])


def compute_choice(choice: Any, scale: float) -> ChoiceDistribution | None:
    """Compute the distribution of a random choice.

    Args:
        choice: selection mechanism with its score.
        scale: scale of the mechanism.

    Returns:
        The distribution, or None if the choice is not random or its distribution is unknown (a walk that stops early).

    Limits:
        The density in a cell of a box is taken to be the density at its centre.
    """
    if not scale > 0.0:
        return None
    if isinstance(choice, FiniteExponential):
        scores = choice.score(choice.points)
        unit = choice.facts.unit
        return _normalise(choice.points, -np.rint((scores - scores.min()) / unit) * unit / scale)
    if isinstance(choice, RegularisedSelection) and choice.width <= len(_BOX_CELLS):
        clipping = choice.facts.regularise(scale)
        low, high, cells = clipping.box.low, clipping.box.high, _BOX_CELLS[choice.width - 1]
        half = 0.5 * (high - low) / cells
        points = even_points(low + half, high - half, cells)
        return _normalise(points, -clipping.rate * clipping.regularise(choice.scores)(points))
    return None


def _normalise(points: Array, logs: Array) -> ChoiceDistribution:
    top = logs - logs.max()
    return ChoiceDistribution(points, top - np.log(np.exp(top).sum()))


class Query(NamedTuple):
    """Value before noise: its public and its private part, (d,) each. For a plain array, private is None."""

    public: Array
    private: Array | None


# A value before noise, or the distribution of a random choice.
Made = Query | ChoiceDistribution


class Noise(NamedTuple):
    """Noise of a release: its mechanism, its scale, and the number of coordinates."""

    mechanism: NoiseMechanism
    scale: float
    width: int


@lru_cache(maxsize=2**14)
def grid_of(noise: Noise) -> float:
    """Return the grid of a noise. Every run of an audit has the same noise."""
    return float(noise.mechanism.grid(noise.scale, noise.width))


class Transcript(NamedTuple):
    """Transcript of one run, as observed by an adversary that observes all messages.

    A key is an index and a channel. Only the first four fields are visible.

    Args:
        releases: key → release of the releasing participant, (d,).
        noise: key → noise of the release, or None without noise and for a random choice.
        messages: messages of gossip, for each exchange and block.
        published: all values published at the end, (k,).
        queries: key → value before noise.
        residuals: name of a mechanism → noise of all participants, divided by its scale.
        choices: key → public scale of a random choice.
        root: noise key of the run.
        replies: index → reply to the releasing participant.
        noise_means: key → mean of the noise given the noise of all other agents, (d,).
    """

    releases: Mapping[Key, Array]
    noise: Mapping[Key, Noise | None]
    messages: tuple[tuple[Array, ...], ...]
    published: Array
    queries: Mapping[Key, Query]
    residuals: Mapping[str, Array]
    choices: Mapping[Key, float]
    root: Root
    replies: Mapping[int, Any]
    noise_means: Mapping[Key, Array] = MappingProxyType({})

    @property
    def is_replayable(self) -> bool:
        """Whether a replay determines all queries and the distribution of all noise is known."""
        is_known = all(n is None or n.mechanism in (GAUSSIAN, LAPLACE) for n in self.noise.values())
        return is_known and self.releases.keys() == self.queries.keys() | self.choices.keys()


class _Listening:
    """Releaser of a participant that records queries, releases and noise."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.replies: dict[int, Any] = {}
        self.releases: dict[Key, Array] = {}
        self.noise: dict[Key, Noise | None] = {}
        self.queries: dict[Key, Query] = {}
        self.residuals: list[tuple[str, Array]] = []
        self.choices: dict[Key, float] = {}
        # Index → width of each channel, the added noise (b, Σ widths), and the agents that send.
        self.added: dict[int, tuple[dict[str, int], Array, NDArray[np.bool_] | None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def release(self, index: int, values: Mapping[str, Any], sends: NDArray[np.bool_] | None = None) -> Any:
        out = self._real.release(index, values) if sends is None else self._real.release(index, values, sends)
        self.replies[index] = out
        senders = slice(None) if sends is None else sends
        if sends is not None and not sends.any():
            return out
        bundle = out.released if isinstance(out, Released) else out
        bounded_values = {c: v for c, v in values.items() if isinstance(v, Bounded)}
        # The noise of earlier rounds is subtracted.
        before: Mapping[str, Any] = getattr(self._real, "past_noise", {})
        if bounded_values and getattr(self._real, "pairs", None) is not None:
            noise_sum = np.concatenate(
                [bundle[c] - v.value - before.get(c, 0.0) for c, v in bounded_values.items()], axis=1
            )
            self.added[index] = {c: v.value.shape[1] for c, v in bounded_values.items()}, noise_sum, sends
        for channel, value in values.items():
            key = (index, channel)
            # The victim is the only agent of its block.
            self.releases[key], self.noise[key] = np.array(bundle[channel][0]), None
            query = _make_query(value)
            if query is not None:
                self.queries[key] = query
            elif isinstance(out, Released):
                self.choices[key] = float(out.scale.get(channel, 0.0))
            law = _find_noise(self._real, index, channel, value, out) if isinstance(value, Bounded) else None
            if law is not None:
                mechanism, scales = law
                self.noise[key] = Noise(noise_of(mechanism, channel), float(scales[0]), bundle[channel].shape[1])
                with np.errstate(all="ignore"):
                    noise = ((bundle[channel] - value.value - before.get(channel, 0.0)) / scales[:, None])[senders]
                self.residuals.append((mechanism.name, noise.ravel()))
        return out


def _find_noise(releaser: Any, index: int, channel: str, value: Bounded, out: Any) -> tuple[Mechanism, Array] | None:
    """Return the mechanism and the scales of a value's noise; None without noise."""
    if not isinstance(out, Released):
        if not releaser.mechanism.adds_noise:
            return None
        return releaser.mechanism, releaser.schedules[channel].scales(
            index // releaser.releases_per_round, releaser.mechanism
        )
    mechanism = next((c.mechanism for c in releaser.plan.channels if c.channel == channel), NO_NOISE)
    scale, moves = out.scale.get(channel, 0.0), any(s.sensitivity.any() for s in value.sensitivities.values())
    return (mechanism, np.array([scale])) if mechanism.adds_noise and moves and scale > 0.0 else None


class _Scripted:
    """Releaser that repeats a transcript and records the queries."""

    def __init__(self, transcript: Transcript) -> None:
        self.recorder = Recorder(1)
        self.queries: dict[Key, Made] = {}
        self._transcript = transcript

    def release(self, index: int, values: Mapping[str, Any], *sends: NDArray[np.bool_]) -> Any:
        for channel, value in values.items() if all(senders.any() for senders in sends) else ():
            query = _make_query(value) or compute_choice(value, self._transcript.choices.get((index, channel), 0.0))
            if query is not None:
                self.queries[index, channel] = query
        return self._transcript.replies[index]

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        return Ledger(1, (), releases_per_round)


@singledispatch
def observe(job: Any, victim: int) -> Transcript:
    """Run a job with its noise, and record all messages and the releases of `victim`."""
    node = job.coordinator_node()
    releaser = _Listening(node.make_releaser())
    last = LocalEngine().coordinate(node._replace(make_releaser=lambda: releaser), job.rounds).last_snapshot
    return _make_transcript(job, releaser, [releaser], (), [last.published])


def replay(job: Any, victim: int, transcript: Transcript, membership: Membership | None = None) -> Mapping[Key, Made]:
    """Compute the queries of a job's releasing participant on a transcript.

    Args:
        job: job with the records of the data set. All other records are drawn as in the transcript.
        victim: index of the releasing agent in gossip.
        transcript: transcript of another run.
        membership: whether the victim's record is in the samples. By default, samples are as drawn.

    Returns:
        (index, channel) → value before noise, or distribution of a random choice.
    """
    return _replay(job.with_root(transcript.root), victim, transcript, membership)


def _isolate_victim(job: GossipJob, victim: int) -> tuple[list[Any], int]:
    """Return the job's nodes with a block for the victim only, and the number of that block."""
    before, after = victim, job.n_agents - victim - 1
    return job.nodes([size for size in (before, 1, after) if size]), int(before > 0)


@observe.register
def _(job: GossipJob, victim: int) -> Transcript:
    nodes, block = _isolate_victim(job, victim)
    listening: list[_Listening] = []

    def make(node: Any) -> _Listening:
        listening.append(_Listening(node.make_releaser()))
        return listening[-1]

    hosts = [Host(n._replace(make_releaser=lambda n=n: make(n)), job.rounds) for n in nodes]
    messages = [tuple(h.advance() for h in hosts)]
    for _ in range(job.rounds * job.algorithm.releases_per_round):
        last = messages[-1]
        messages.append(tuple(h.advance(*(last[j] for j in n.neighbours)) for h, n in zip(hosts, nodes, strict=True)))
    views = [h.view().published for h in hosts]
    transcript = _make_transcript(job, listening[block], listening, messages, views)
    if job.pairs is None:
        return transcript
    return _condition_on_shared_noise(job, job.pairs, victim, listening, transcript)


def _condition_on_shared_noise(
    job: GossipJob, pairs: PairNoise, victim: int, listening: Sequence[_Listening], transcript: Transcript
) -> Transcript:
    """Replace the victim's shared noise by its conditional distribution given the noise of all other agents.

    Colluders disclose the draws that they share. Given the residuals r (h, d) of the h honest agents that send, with
    covariance Σ (h, h), the victim's noise has mean r_v − (Σ⁻¹r)_v/(Σ⁻¹)_vv and variance 1/(Σ⁻¹)_vv.
    """
    everybody = np.arange(job.n_agents)
    colluders = worst_colluders(pairs, victim, range(job.rounds + 1) if job.topology.over_time is not None else (0,))
    disclosed_draws = PairDraws(pairs, job.root, everybody, colluders)
    noise_means, noise, residuals = dict(transcript.noise_means), dict(transcript.noise), []
    per_round = job.algorithm.releases_per_round
    whole: Any = job.nodes([job.n_agents])[0].make_releaser()
    for index in sorted(set().union(*(block.added for block in listening))):
        widths = next(block.added[index][0] for block in listening if index in block.added)
        # A block without senders has no noise.
        total_noise, sends = np.zeros((job.n_agents, sum(widths.values()))), np.zeros(job.n_agents, dtype=np.bool_)
        # Agents of each block, as in `_isolate_victim`.
        parts = np.split(everybody, [victim, victim + 1])
        for block, agents in zip(listening, (part for part in parts if part.size), strict=True):
            if index in block.added:
                _, total_noise[agents], is_sender = block.added[index]
                sends[agents] = True if is_sender is None else is_sender
        honest = np.setdiff1d(np.flatnonzero(sends), colluders)
        disclosed_noise = whole.pair_noise_sum(index, widths, disclosed_draws)
        residual_noise, covariance = (
            (total_noise - disclosed_noise)[honest],
            pairs.covariance(index // per_round, honest),
        )
        scales = np.repeat([_scale(whole, index, c) for c in widths], list(widths.values()))
        residuals.append((np.linalg.solve(np.linalg.cholesky(covariance), residual_noise) / scales).ravel())
        if not sends[victim]:
            continue
        place = int(np.searchsorted(honest, victim))
        row = np.linalg.inv(covariance)[place]
        mean = disclosed_noise[victim] + residual_noise[place] - row @ residual_noise / row[place]
        for channel, part in zip(widths, np.split(mean, np.cumsum(list(widths.values()))[:-1]), strict=True):
            key = (index, channel)
            noise_means[key] = part
            noise[key] = Noise(GAUSSIAN, _scale(whole, index, channel) * float(row[place]) ** -0.5, part.size)
    return transcript._replace(
        noise_means=noise_means, noise=noise, residuals={GAUSSIAN.name: np.concatenate(residuals)}
    )


def worst_colluders(pairs: PairNoise, victim: int, rounds: Iterable[int]) -> NDArray[np.int64]:
    """Choose colluding agents, (q,), in ascending order, greedily so as to minimise the victim's remaining noise."""
    few = list(dict.fromkeys(rounds))[:_ROUNDS]
    colluders: list[int] = []

    def conductance(more: int) -> float:
        among = np.setdiff1d(np.arange(pairs.network.n_agents), [*colluders, more])
        inverse = (np.linalg.inv(pairs.covariance(t, among)) for t in few)
        return sum(float(block[np.searchsorted(among, victim)][np.searchsorted(among, victim)]) for block in inverse)

    agents = set(range(pairs.network.n_agents)) - {victim}
    for _ in range(min(pairs.colluders, len(agents))):
        colluders.append(max(sorted(agents - set(colluders)), key=conductance))
    return np.array(sorted(colluders), dtype=np.int64)


def _scale(releaser: ScheduledReleaser, index: int, channel: str) -> float:
    """Return the standard deviation σ of the noise of a release."""
    return float(releaser.schedules[channel].scales(index // releaser.releases_per_round, GAUSSIAN)[0])


@singledispatch
def _replay(job: Any, victim: int, transcript: Transcript, membership: Membership | None) -> Mapping[Key, Made]:
    releaser = _Scripted(transcript)
    node = job.coordinator_node()._replace(make_releaser=lambda: releaser)
    if membership is not None:
        node = prescribe_coordinator(node, victim, membership)
    LocalEngine().coordinate(node, job.rounds)
    return releaser.queries


@_replay.register
def _(job: GossipJob, victim: int, transcript: Transcript, membership: Membership | None) -> Mapping[Key, Made]:
    nodes, block = _isolate_victim(job, victim)
    node, script = nodes[block], _Scripted(transcript)
    if membership is not None:
        node = prescribe_agent(node, membership)
    host = Host(node._replace(make_releaser=lambda: script), job.rounds)
    host.advance()
    for last in transcript.messages[:-1]:
        host.advance(*(last[j] for j in node.neighbours))
    if job.factor is None:
        return script.queries
    # The noise of earlier rounds is known given the data set.
    shifted_queries = dict(script.queries)
    for channel, schedule in job.noise.items():
        past = None
        for key in sorted(key for key in script.queries if key[0] > 0 and key[1] == channel):
            query, released = script.queries[key], transcript.releases[key]
            if not isinstance(query, Query) or query.private is None:
                continue
            g = float(GAUSSIAN.grid(schedule.scale[victim], released.size))
            past = empty_past(job.factor, released.shape) if past is None else past
            private = query.private + g * carried_noise(job.factor, past)
            shifted_queries[key] = query._replace(private=private)
            past = next_past(job.factor, past, np.rint((released - query.public) / g) - np.rint(private / g))
    return shifted_queries


def _make_transcript(
    job: Any,
    listener: _Listening,
    all_of_them: Sequence[_Listening],
    messages: Sequence[tuple[Array, ...]],
    views: Sequence[Mapping[str, Array]],
) -> Transcript:
    """Collect the releases of one participant, and the messages, noise and published values of all."""
    published = np.concatenate([view[c].ravel() for c in sorted(views[0]) for view in views])
    draws: dict[str, list[Array]] = {}
    for name, residual in (listened_block for block in all_of_them for listened_block in block.residuals):
        draws.setdefault(name, []).append(residual)
    noises = {name: np.concatenate(residuals) for name, residuals in draws.items()}
    return Transcript(
        listener.releases,
        listener.noise,
        tuple(messages),
        published,
        listener.queries,
        noises,
        listener.choices,
        job.root,
        listener.replies,
    )


def _make_query(value: Any) -> Query | None:
    """Return a value before noise; None for a random choice."""
    if isinstance(value, Bounded):
        return Query(np.array(value.public[0]), np.array(value.private[0]))
    return Query(np.array(value[0]), None) if isinstance(value, np.ndarray) else None


# Largest number of floats of releases of runs in memory at once.
_MOST_NUMBERS = 2**22
# Channel → (K, d) public and private part of the victim's value in each run; the private part is None for an array.
_Values = dict[str, tuple[Array, Array | None]]


def runs_at_once(job: PlannedJob) -> int:
    """Return the number of runs of a job that are computed together, or 1 if they run one by one.

    Transcripts and replays are bitwise equal to those of single runs.
    """
    numbers = job.n_agents * sum(c.dimension * c.rounds.size for c in job.ledger.channels)
    return max(1, min(most_joined(job), _MOST_NUMBERS // max(numbers, 1)))


def _rows_of_values(values: Mapping[str, Any], rows: slice) -> _Values:
    return {
        c: (v.public[rows].copy(), v.private[rows].copy()) if isinstance(v, Bounded) else (v[rows].copy(), None)
        for c, v in values.items()
    }


def _queries(values: Mapping[int, _Values], k: int) -> dict[Key, Query]:
    """Return the values of one run by key."""
    return {
        (t, c): Query(public[k], None if private is None else private[k])
        for t, channels in values.items()
        for c, (public, private) in channels.items()
    }


class _RunListener:
    """Releaser of all agents of some runs that records the victim's values, releases and noise, and all residuals."""

    def __init__(self, real: Any, runs: int, victim: int) -> None:
        self._real, self._shape = real, (runs, real.recorder.agents // runs, -1)
        self._victims = slice(victim, None, self._shape[1])
        self.values: dict[int, _Values] = {}
        self.replies: dict[int, dict[str, Array]] = {}
        self.noise: dict[Key, Noise | None] = {}
        self.residuals: list[tuple[str, Array]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def release(self, index: int, values: Mapping[str, Any]) -> Bundle:
        out: Bundle = self._real.release(index, values)
        self.values[index] = _rows_of_values(values, self._victims)
        self.replies[index] = {c: out[c][self._victims].copy() for c in values}
        for channel, value in values.items():
            self.noise[index, channel] = None
            law = _find_noise(self._real, index, channel, value, out) if isinstance(value, Bounded) else None
            if law is not None:
                mechanism, scales = noise_of(law[0], channel), law[1]
                self.noise[index, channel] = Noise(mechanism, float(scales[self._victims.start]), out[channel].shape[1])
                with np.errstate(all="ignore"):
                    noise = (out[channel] - value.value) / scales[:, None]
                self.residuals.append((mechanism.name, noise.reshape(self._shape)))
        return out


class _RunScript:
    """Releaser of the victim in some runs that repeats their releases and records the values."""

    def __init__(self, transcripts: Sequence[Transcript]) -> None:
        self.recorder, self._transcripts = Recorder(len(transcripts)), transcripts
        self.values: dict[int, _Values] = {}

    def release(self, index: int, values: Mapping[str, Any]) -> Bundle:
        self.values[index] = _rows_of_values(values, slice(None))
        return Bundle({c: np.concatenate([t.replies[index][c] for t in self._transcripts]) for c in values})


def observe_runs(job: PlannedJob, victim: int, roots: Sequence[Root]) -> list[Transcript]:
    """Run a job once for each noise key, as by `observe`.

    Args:
        job: job to run.
        victim: agent whose releases are recorded.
        roots: noise keys of the runs, at most `runs_at_once`.
    """
    if not isinstance(job, GossipJob) or runs_at_once(job) == 1:
        return [observe(job.with_root(root), victim) for root in roots]
    m, node = job.n_agents, join_runs([job.with_root(root) for root in roots], np.arange(job.n_agents))
    listener: Any = _RunListener(node.make_releaser(), len(roots), victim)
    host = Host(node._replace(make_releaser=lambda: listener), job.rounds)
    messages = [host.advance()]
    for _ in range(job.rounds * job.algorithm.releases_per_round):
        messages.append(host.advance(messages[-1]))
    published, out = host.view().published, []
    # Agents of each block, as in `_isolate_victim`.
    blocks = [part for part in np.split(np.arange(m), [victim, victim + 1]) if part.size]
    for k, root in enumerate(roots):
        rows = [slice(k * m + part[0], k * m + part[-1] + 1) for part in blocks]
        draws: dict[str, list[Array]] = {}
        for part, (name, noise) in itertools.product(blocks, listener.residuals):
            draws.setdefault(name, []).append(noise[k, part[0] : part[-1] + 1].ravel())
        replies = {t: Bundle({c: v[k : k + 1] for c, v in reply.items()}) for t, reply in listener.replies.items()}
        run = Transcript(
            {(t, c): v[0] for t, reply in replies.items() for c, v in reply.items()},
            listener.noise,
            tuple(tuple(message[part] for part in rows) for message in messages),
            np.concatenate([published[c][part].ravel() for c in sorted(published) for part in rows]),
            _queries(listener.values, k),
            {name: np.concatenate(parts) for name, parts in draws.items()},
            {},
            root,
            replies,
        )
        out.append(run)
    return out


def replay_runs(job: PlannedJob, victim: int, transcripts: Sequence[Transcript]) -> list[Mapping[Key, Made]]:
    """Compute the queries of a job's releasing participant on each transcript, as by `replay`."""
    if not isinstance(job, GossipJob) or runs_at_once(job) == 1:
        return [replay(job, victim, transcript) for transcript in transcripts]
    script: Any = _RunScript(transcripts)
    node = join_runs([job.with_root(t.root) for t in transcripts], np.array([victim]))
    host = Host(node._replace(make_releaser=lambda: script), job.rounds)
    host.advance()
    for blocks in zip(*(t.messages[:-1] for t in transcripts), strict=True):
        host.advance(np.concatenate([message for run in blocks for message in run]))
    return [_queries(script.values, k) for k in range(len(transcripts))]


class Neighbours(NamedTuple):
    """Two neighbouring data sets.

    Args:
        first, second: jobs that differ in one record.
        victim: agent with that record.
        split: split of that record.
        copies: whether the agent's other records in the split are copies of the second data set's.
    """

    first: PlannedJob
    second: PlannedJob
    victim: int
    split: Split
    copies: bool = False

    def observe(self, job: PlannedJob, root: bytes) -> Transcript:
        """Run one of the jobs with the noise key `root`, and record its messages."""
        return observe(job.with_root(root), self.victim)
