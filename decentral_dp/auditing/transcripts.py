"""Transcripts: what a run lets out, what was released before noise, and what another data set would have released.

`observe` runs a job and keeps every message. `replay` runs the releasing participant once more, on other records, and
prescribes what it says: its queries are what it would have released in that data set, had the public seen the same. In
gossip that participant is one agent, the victim, since all others only react to what it says; else the coordinator.
Of a random choice, what is replayed is the law that it is drawn from. Where samples are drawn, a replay may prescribe
whether the victim's record is in them (`Membership`): what the hidden coin of that record leads to.

A certificate with amplification holds against an observer who knows how the other records were drawn, since a
divergence of mixtures is at most the mixture of their divergences. Given that, a release is a mixture of two laws:

    Poisson       every record by its own coin: in with probability q, else left out, all others being as they are
    fixed size    b of n: with probability q = b/n the record is in, else another one has its place

Where noise goes on from that of earlier rounds, a replay adds what does to its queries: given the data set, it is
known.

Where agents share noise, the observer has the noise of all other agents, whose queries it knows, and the draws of those
pairs that colluders can tell. What is left of the victim's is normal around what they explain, at its effective scale.

Of fixed size, the observer is told the b − 1 others and who takes the place if the record does not. Both are drawn
alike whether it is in or not, so that they tell nothing of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
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
from decentral_dp.exchange import Released
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import GAUSSIAN, LAPLACE, NO_NOISE, Mechanism, NoiseMechanism, noise_of
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.privacy.randomness import Root, Streams, tag
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.privacy.time_factors import TimeFactor, carried_noise, empty_past, next_past
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob


@dataclass(frozen=True)
class Membership:
    """Whether the first record of a kind is in the samples: in all, in none, or in each by a coin of its own."""

    split: Split
    inclusion: Literal["in", "out", "by coin"]

    def draw(self, generator: np.random.Generator) -> bool:
        """generator: keyed for the sample, so that all who ask of one sample get one answer."""
        return self.inclusion == "in" if self.inclusion != "by coin" else bool(generator.random() < 0.5)


def prescribed_agent(node: AgentNode, membership: Membership) -> AgentNode:
    """Prescribe whether the minibatches of one agent hold its first record.

    Args:
        node: of an agent alone in its block.
        membership: what is prescribed.

    Returns:
        The same node; all other records are drawn as before.
    """

    def draw(split: Split, n: int, batch: int, generator: np.random.Generator) -> Draw:
        sample = draw_batch(n, batch, generator)
        if split != membership.split or batch >= n:
            return sample
        members = sample.index
        there = 0 in members
        # Who stands in the record's place where it is out, and in whose place it stands where it is in.
        partner = generator.choice(np.setdiff1d(np.arange(1, n), members)) if there else generator.choice(members)
        if membership.draw(generator) == there:
            return sample
        return replace(sample, index=np.where(members == 0, partner, np.where(members == partner, 0, members)))

    return node._replace(dataset=node.dataset.with_sampler(draw))


def prescribed_coordinator(node: CoordinatorNode, victim: int, membership: Membership) -> CoordinatorNode:
    """Prescribe whether a coordinator's Poisson samples hold the first record of one agent.

    Args:
        node: of the coordinator.
        victim: number of the agent.
        membership: what is prescribed.

    Returns:
        The same node; all other records are drawn as before.
    """
    blocks = []
    for block in node.client_blocks:
        at = np.flatnonzero(block.agents == victim)
        coins = _prescribed_coins(block.coins, int(at[0]), membership) if at.size else block.coins
        blocks.append(replace(block, coins=coins))
    return node._replace(client_blocks=tuple(blocks))


def _prescribed_coins(real: Streams, victim_row: int, membership: Membership) -> Any:
    """Streams of coins in which that of one record is prescribed."""

    def generator(row: int, index: int, name: int) -> Any:
        drawn = real.generator(row, index, name)
        if row != victim_row or name != tag(membership.split):
            return drawn

        def random(n: int) -> Array:
            coins = drawn.random(n)
            # Below any rate, or at none.
            coins[0] = 0.0 if membership.draw(drawn) else 1.0
            return coins

        return SimpleNamespace(random=random)

    return SimpleNamespace(generator=generator)


# Of a network that changes, rounds by which colluders are chosen.
_ROUNDS = 8

Key = tuple[int, str]


# Cells along each axis of a box, by the number of its axes.
_BOX_CELLS = (4096, 128, 24)


class Law(NamedTuple):
    """points: (n, p), of a box the middles of equal cells. logs: (n,) the logarithms of their probabilities."""

    points: Array
    logs: Array

    def log_at(self, value: Array) -> float:
        """The log-probability of the point that is nearest to a value (d,)."""
        return float(self.logs[int(np.argmin(((self.points - value) ** 2).sum(axis=1)))])

    def place_of(self, value: Array, toss: float) -> float:
        """Where the value (d,) lies in the law's order: uniform on [0, 1] if drawn from it. toss: in its step."""
        at = int(np.argmin(((self.points - value) ** 2).sum(axis=1)))
        weights = np.exp(self.logs)
        return float(weights[:at].sum() + toss * weights[at])


def law_of_choice(choice: Any, scale: float) -> Law | None:
    """Compute the law of a random choice, on points.

    Args:
        choice: a selection mechanism with its score.
        scale: of the score.

    Returns:
        The law; None where nothing is chosen at random, or no law is known, as of a walk that stops early.

    Limits:
        Of a box the density is taken at the middle of each cell.
    """
    if not scale > 0.0:
        return None
    if isinstance(choice, FiniteExponential):
        scores = choice.score(choice.points)
        unit = choice.facts.unit
        return _normalise(choice.points, -np.rint((scores - scores.min()) / unit) * unit / scale)
    if isinstance(choice, RegularisedSelection) and choice.width <= len(_BOX_CELLS):
        declared = choice.facts.regularise(scale)
        low, high, cells = declared.box.low, declared.box.high, _BOX_CELLS[choice.width - 1]
        half = 0.5 * (high - low) / cells
        points = even_points(low + half, high - half, cells)
        return _normalise(points, -declared.rate * declared.regularise(choice.scores)(points))
    return None


def _normalise(points: Array, logs: Array) -> Law:
    top = logs - logs.max()
    return Law(points, top - np.log(np.exp(top).sum()))


class Query(NamedTuple):
    """What was to be released. public, private: (d,), its parts; of a plain array, private is None."""

    public: Array
    private: Array | None


# What a release was made of: a value, or the law of a random choice.
Made = Query | Law


class Noise(NamedTuple):
    """How a release was noised: by a mechanism at a scale, of a release of so many coordinates."""

    mechanism: NoiseMechanism
    scale: float
    width: int

    @property
    def grid(self) -> float:
        return float(self.mechanism.grid(self.scale, self.width))


class Transcript(NamedTuple):
    """One run, as everybody sees it.

    releases: (index, channel) → (d,) what the releasing participant let out. noise: the same → its noise; None where
    the value left as it is, or was drawn by a selection. messages: of gossip, per exchange and block. published: (k,)
    all values that are published at the end. queries: what was released before noise, which nobody sees. residuals:
    mechanism's name → (noise in units of its scale) of all participants, which nobody sees either. choices: the same
    keys → the public scale of a random choice. root: that its coins were drawn from. replies: index → what the program
    of the releasing participant was told of its release. noise_means: the keys of releases → (d,) the mean of the
    noise, given that of all other agents.
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
        """Whether a replay gives all that every release was made of, and every noise has a law that is known."""
        lawful = all(n is None or n.mechanism in (GAUSSIAN, LAPLACE) for n in self.noise.values())
        return lawful and self.releases.keys() == self.queries.keys() | self.choices.keys()


class _Listening:
    """A participant's own releaser; keeps what went in, what came out, and the noise between."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.replies: dict[int, Any] = {}
        self.said: dict[Key, Array] = {}
        self.noise: dict[Key, Noise | None] = {}
        self.queries: dict[Key, Query] = {}
        self.residuals: list[tuple[str, Array]] = []
        self.choices: dict[Key, float] = {}
        # Index → channels and their widths, the noise that was added, (b, Σ widths), and who sends.
        self.added: dict[int, tuple[dict[str, int], Array, NDArray[np.bool_] | None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def release(self, index: int, values: Mapping[str, Any], sends: NDArray[np.bool_] | None = None) -> Any:
        out = self._real.release(index, values) if sends is None else self._real.release(index, values, sends)
        self.replies[index] = out
        heard = slice(None) if sends is None else sends
        if sends is not None and not sends.any():
            return out
        bundle = out.released if isinstance(out, Released) else out
        noised = {c: v for c, v in values.items() if isinstance(v, Bounded)}
        # What is drawn in this round, without what goes on from earlier ones.
        before: Mapping[str, Any] = getattr(self._real, "past_noise", {})
        if noised and getattr(self._real, "pairs", None) is not None:
            added = np.concatenate([bundle[c] - v.value - before.get(c, 0.0) for c, v in noised.items()], axis=1)
            self.added[index] = {c: v.value.shape[1] for c, v in noised.items()}, added, sends
        for channel, value in values.items():
            key = (index, channel)
            # Of the first agent of the block: a victim is alone in its own.
            self.said[key], self.noise[key] = np.array(bundle[channel][0]), None
            query = _query(value)
            if query is not None:
                self.queries[key] = query
            elif isinstance(out, Released):
                self.choices[key] = float(out.scale.get(channel, 0.0))
            law = _law(self._real, index, channel, value, out) if isinstance(value, Bounded) else None
            if law is not None:
                mechanism, scales = law
                self.noise[key] = Noise(noise_of(mechanism, channel), float(scales[0]), bundle[channel].shape[1])
                with np.errstate(all="ignore"):
                    noise = ((bundle[channel] - value.value - before.get(channel, 0.0)) / scales[:, None])[heard]
                self.residuals.append((mechanism.name, noise.ravel()))
        return out


def _law(releaser: Any, index: int, channel: str, value: Bounded, out: Any) -> tuple[Mechanism, Array] | None:
    """The mechanism and the scales of a value's noise; None without noise, as where no record moves it."""
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
    """A releaser that says what it said in the transcript, keeps what was to be released, and charges nothing."""

    def __init__(self, transcript: Transcript) -> None:
        self.recorder = Recorder(1)
        self.queries: dict[Key, Made] = {}
        self._transcript = transcript

    def release(self, index: int, values: Mapping[str, Any], *sends: NDArray[np.bool_]) -> Any:
        for channel, value in values.items() if all(some.any() for some in sends) else ():
            made = _query(value) or law_of_choice(value, self._transcript.choices.get((index, channel), 0.0))
            if made is not None:
                self.queries[index, channel] = made
        return self._transcript.replies[index]

    def ledger(self, releases_per_round: int = 1) -> Ledger:
        return Ledger(1, (), releases_per_round)


@singledispatch
def observe(job: Any, victim: int) -> Transcript:
    """Run a job as it is, with its own noise. victim: the agent whose releases are kept one by one."""
    node = job.coordinator_node()
    releaser = _Listening(node.make_releaser())
    last = LocalEngine().coordinate(node._replace(make_releaser=lambda: releaser), job.rounds).last_snapshot
    return _transcript(job, releaser, [releaser], (), [last.published])


def replay(job: Any, victim: int, transcript: Transcript, membership: Membership | None = None) -> Mapping[Key, Made]:
    """Compute what the releasing participant of this job would have released, had all said what the transcript says.

    Args:
        job: the data set to replay in; all records but the victim's are drawn as they were there.
        victim: number of the agent whose releases are replayed in gossip.
        transcript: what was said.
        membership: whether the victim's record is in the samples; by default as its coins fell.

    Returns:
        (index, channel) → the value before noise, or the law of a random choice.
    """
    return _replay(job.with_root(transcript.root), victim, transcript, membership)


def _isolate_victim(job: GossipJob, victim: int) -> tuple[list[Any], int]:
    """The job's nodes with the victim alone in a block, and the number of that block."""
    before, after = victim, job.n_agents - victim - 1
    return job.nodes([size for size in (before, 1, after) if size]), int(before > 0)


@observe.register
def _(job: GossipJob, victim: int) -> Transcript:
    nodes, own = _isolate_victim(job, victim)
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
    transcript = _transcript(job, listening[own], listening, messages, views)
    if job.pairs is None:
        return transcript
    return _condition_on_shared_noise(job, job.pairs, victim, listening, transcript)


def _condition_on_shared_noise(
    job: GossipJob, pairs: PairNoise, victim: int, listening: Sequence[_Listening], transcript: Transcript
) -> Transcript:
    """The transcript with what is known of the victim's shared noise, and the law of what is left of it.

    Colluders tell the draws that they share. Given the residuals r (h, d) of the h honest agents that send, whose
    covariance is Σ (h, h), the victim's is Gaussian around r_v − (Σ⁻¹r)_v/(Σ⁻¹)_vv, with variance 1/(Σ⁻¹)_vv.
    """
    everybody = np.arange(job.n_agents)
    colluders = worst_colluders(pairs, victim, range(job.rounds + 1) if job.topology.over_time is not None else (0,))
    disclosed = PairDraws(pairs, job.root, everybody, colluders)
    explained, noise, residuals = dict(transcript.noise_means), dict(transcript.noise), []
    per_round = job.algorithm.releases_per_round
    whole: Any = job.nodes([job.n_agents])[0].make_releaser()
    for index in sorted(set().union(*(block.added for block in listening))):
        widths = next(block.added[index][0] for block in listening if index in block.added)
        # Of a block that is away as a whole nothing was kept.
        added, sends = np.zeros((job.n_agents, sum(widths.values()))), np.zeros(job.n_agents, dtype=np.bool_)
        # The numbers of the agents of each block, as `_isolate_victim` has them.
        parts = np.split(everybody, [victim, victim + 1])
        for block, agents in zip(listening, (part for part in parts if part.size), strict=True):
            if index in block.added:
                _, added[agents], sent = block.added[index]
                sends[agents] = True if sent is None else sent
        honest = np.setdiff1d(np.flatnonzero(sends), colluders)
        told = whole.pair_noise_sum(index, widths, disclosed)
        left, covariance = (added - told)[honest], pairs.covariance(index // per_round, honest)
        scales = np.repeat([_scale(whole, index, c) for c in widths], list(widths.values()))
        residuals.append((np.linalg.solve(np.linalg.cholesky(covariance), left) / scales).ravel())
        if not sends[victim]:
            continue
        at = int(np.searchsorted(honest, victim))
        row = np.linalg.inv(covariance)[at]
        mean = told[victim] + left[at] - row @ left / row[at]
        for channel, part in zip(widths, np.split(mean, np.cumsum(list(widths.values()))[:-1]), strict=True):
            key = (index, channel)
            explained[key] = part
            noise[key] = Noise(GAUSSIAN, _scale(whole, index, channel) * float(row[at]) ** -0.5, part.size)
    return transcript._replace(noise_means=explained, noise=noise, residuals={GAUSSIAN.name: np.concatenate(residuals)})


def worst_colluders(pairs: PairNoise, victim: int, rounds: Iterable[int]) -> NDArray[np.int64]:
    """Find colluders that leave a victim little, one after the other: (q,) or all others, ascending."""
    at = list(dict.fromkeys(rounds))[:_ROUNDS]
    colluders: list[int] = []

    def conductance(more: int) -> float:
        among = np.setdiff1d(np.arange(pairs.network.n_agents), [*colluders, more])
        inverse = (np.linalg.inv(pairs.covariance(t, among)) for t in at)
        return sum(float(one[np.searchsorted(among, victim)][np.searchsorted(among, victim)]) for one in inverse)

    others = set(range(pairs.network.n_agents)) - {victim}
    for _ in range(min(pairs.colluders, len(others))):
        colluders.append(max(sorted(others - set(colluders)), key=conductance))
    return np.array(sorted(colluders), dtype=np.int64)


def _scale(releaser: ScheduledReleaser, index: int, channel: str) -> float:
    """σ of a release of all agents."""
    return float(releaser.schedules[channel].scales(index // releaser.releases_per_round, GAUSSIAN)[0])


@singledispatch
def _replay(job: Any, victim: int, transcript: Transcript, membership: Membership | None) -> Mapping[Key, Made]:
    releaser = _Scripted(transcript)
    node = job.coordinator_node()._replace(make_releaser=lambda: releaser)
    if membership is not None:
        node = prescribed_coordinator(node, victim, membership)
    LocalEngine().coordinate(node, job.rounds)
    return releaser.queries


@_replay.register
def _(job: GossipJob, victim: int, transcript: Transcript, membership: Membership | None) -> Mapping[Key, Made]:
    nodes, own = _isolate_victim(job, victim)
    node, script = nodes[own], _Scripted(transcript)
    if membership is not None:
        node = prescribed_agent(node, membership)
    host = Host(node._replace(make_releaser=lambda: script), job.rounds)
    host.advance()
    for last in transcript.messages[:-1]:
        host.advance(*(last[j] for j in node.neighbours))
    return (
        script.queries if job.factor is None else _with_past_noise(job, job.factor, victim, transcript, script.queries)
    )


def _with_past_noise(
    job: GossipJob, factor: TimeFactor, victim: int, transcript: Transcript, queries: Mapping[Key, Made]
) -> Mapping[Key, Made]:
    """The queries with what goes on from the noise of earlier rounds, which is known given the data set."""
    out = dict(queries)
    for channel, schedule in job.noise.items():
        past = None
        for key in sorted(key for key in queries if key[0] > 0 and key[1] == channel):
            made, said = queries[key], transcript.releases[key]
            if not isinstance(made, Query) or made.private is None:
                continue
            g = float(GAUSSIAN.grid(schedule.scale[victim], said.size))
            past = empty_past(factor, said.shape) if past is None else past
            private = made.private + g * carried_noise(factor, past)
            out[key] = made._replace(private=private)
            past = next_past(factor, past, np.rint((said - made.public) / g) - np.rint(private / g))
    return out


def _transcript(
    job: Any,
    own: _Listening,
    all_of_them: Sequence[_Listening],
    messages: Sequence[tuple[Array, ...]],
    views: Sequence[Mapping[str, Array]],
) -> Transcript:
    """What one participant released, and what all of them sent, drew and published."""
    published = np.concatenate([view[c].ravel() for c in sorted(views[0]) for view in views])
    drawn: dict[str, list[Array]] = {}
    for name, residual in (one for block in all_of_them for one in block.residuals):
        drawn.setdefault(name, []).append(residual)
    noises = {name: np.concatenate(residuals) for name, residuals in drawn.items()}
    return Transcript(
        own.said, own.noise, tuple(messages), published, own.queries, noises, own.choices, job.root, own.replies
    )


def _query(value: Any) -> Query | None:
    """None for a random choice, which has no value before it is drawn."""
    if isinstance(value, Bounded):
        return Query(np.array(value.public[0]), np.array(value.private[0]))
    return Query(np.array(value[0]), None) if isinstance(value, np.ndarray) else None


class Neighbours(NamedTuple):
    """first, second: jobs that differ in one record, of this kind and agent.

    copies: whether the agent's other records of this kind are copies of the second data set's.
    """

    first: PlannedJob
    second: PlannedJob
    victim: int
    split: Split
    copies: bool = False

    def observe(self, job: PlannedJob, root: bytes) -> Transcript:
        """What is seen of a run of one of them. root: of its coins."""
        return observe(job.with_root(root), self.victim)
