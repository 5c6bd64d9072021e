"""Jobs: planned scenarios with the records of their agents, in this process or in those that host the agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, NoReturn, Protocol, Self, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.protocol import Algorithm, AnyAlgorithm, Counts, tunes_x
from decentral_dp.bounded import SPLITS, Array, Norm, Split
from decentral_dp.config.components import Components
from decentral_dp.config.schema import Scenario
from decentral_dp.data import Sampling, Shards
from decentral_dp.data.agent_shards import AgentShards
from decentral_dp.engines.protocol import (
    UNATTENDED,
    AgentNode,
    Block,
    Engine,
    Hosted,
    Outcome,
    Receipts,
    RunControl,
    agent_blocks,
    block_sizes,
    release_scale,
    server_blocks,
)
from decentral_dp.errors import InputError
from decentral_dp.participants import LocalDataset, Network
from decentral_dp.privacy.accounting.accountants import AgentCosts
from decentral_dp.privacy.clipping import Clip, Unit, unit_of
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.pair_noise import PairDraws, PairNoise
from decentral_dp.privacy.randomness import Root, Streams
from decentral_dp.privacy.releasers import CheckedReleaser, NoiseSchedule, ScheduledReleaser
from decentral_dp.privacy.time_factors import TimeFactor
from decentral_dp.problems.protocol import Predictor, Problem
from decentral_dp.problems.records import ByAgent, RecordPairs
from decentral_dp.simulation.folder.states import STATES, AgentStates, module_of
from decentral_dp.simulation.metrics import (
    AgentEvaluator,
    AgentScorer,
    EvaluatedOn,
    Evaluator,
    Scorer,
)
from decentral_dp.simulation.sites import SITE_MEASURES, Sites
from decentral_dp.topology import Topology
from decentral_dp.topology.byzantine import STRENGTHS, Aggregation, Attack
from decentral_dp.topology.compression import Compression


@dataclass(frozen=True)
class RecordsElsewhere(Mapping[Split, Sequence[Any]]):
    """Records that agents hold, which this process must not read.

    Args:
        shards: place of the records.
    """

    shards: AgentShards

    def __getitem__(self, split: Split) -> Sequence[Any]:
        raise InputError(
            "problem.manifest: not supported here, since only the agents hold the records. Fix: set "
            "problem.data to all records, and remove the manifest."
        )

    def __iter__(self) -> Iterator[Split]:
        return iter(SPLITS)

    def __len__(self) -> int:
        return len(SPLITS)


def require_records(records: Mapping[Split, Any], command: str) -> None:
    """Refuse a command that reads the records of all agents in one process, if agents hold their records.

    Args:
        records: records of a job.
        command: name of the command.

    Raises:
        InputError: agents hold their records.
    """
    if isinstance(records, RecordsElsewhere):
        raise InputError(
            f"{command}: not supported with problem.manifest, since it replaces or scores single records. "
            "Fix: set problem.data to public or synthetic records, and remove the manifest."
        )


def records_in(problem: Any, shards: Shards, norm: Norm, first: int = 0) -> dict[Split, Sequence[Any]]:
    """Prepare records for a problem.

    Args:
        problem: problem of the job.
        shards: shards of the agents `first`, `first` + 1, ….
        norm: norm of the clips.
        first: number of the first agent of the shards, default 0.

    Returns:
        Split → records of each agent.
    """
    records = problem.prepare(shards.features, np.asarray(shards.labels, dtype=np.float64), norm)
    train = ByAgent.from_shards(records, shards.train)
    return {
        "train": tuple(problem.place_records(r, first + i) for i, r in enumerate(train))
        if hasattr(problem, "place_records")
        else train,
        "validation": ByAgent.from_shards(records, shards.validation),
    }


def records_of(
    problem: Any, shards: Shards, agent_shards: AgentShards | None, norm: Norm
) -> Mapping[Split, Sequence[Any]]:
    """Return the records of a job: prepared in this process, held by their agents, or empty if none were drawn."""
    if agent_shards is not None:
        return RecordsElsewhere(agent_shards)
    return records_in(problem, shards, norm) if shards.has_records else {}


def test_records(problem: Any, shards: Shards, norm: Norm) -> Any | None:
    """Prepare the test records for a problem; None if there are none."""
    if not shards.test.size or not shards.has_records:
        return None
    labels = np.asarray(shards.labels[shards.test], dtype=np.float64)
    return problem.prepare(shards.features[shards.test], labels, norm)


def read_shards(
    agents: NDArray[np.int64],
    shards: AgentShards,
    problem: Any,
    norm: Norm,
    with_tests: bool = False,
) -> tuple[dict[Split, list[Any]], list[Any | None]]:
    """Read the files of agents.

    Args:
        agents: agent numbers, (b,).
        shards: place of the agents' files.
        problem: problem of the job.
        norm: norm of the clips.
        with_tests: whether to return test records, default False.

    Returns:
        Split → prepared records of each agent, and the test records of each agent or None.

    Raises:
        InputError: a file differs from the manifest.
    """
    records: dict[Split, list[Any]] = {split: [] for split in SPLITS}
    tests: list[Any | None] = []
    for agent in agents:
        shard = shards.read_agent(int(agent))
        for split, split_records in records_in(problem, shard, norm, int(agent)).items():
            records[split] += split_records
        tests.append(test_records(problem, shard, norm) if with_tests else None)
    return records, tests


@dataclass(frozen=True)
class ShardReader:
    """Reader of the records of a block of agents, in the process that hosts the block.

    Args:
        agents: agent numbers, (b,).
        shards: place of the agents' files.
        problem: problem of the job.
        program: program of the agents.
        dataset_of: function records → data set, with the clip and the streams of minibatches.
        scored: whether the agents send scores of their records, without protection.
        is_secret: whether noise is secret. Secret noise also depends on secrets in the files of the records, so that
            the noise key does not suffice to draw it.
    """

    agents: NDArray[np.int64]
    shards: AgentShards
    problem: Any
    program: Any
    dataset_of: partial[LocalDataset]
    scored: bool
    is_secret: bool

    def read(self) -> Hosted:
        """Read the records. Raises InputError if a file cannot be read or differs from the manifest."""
        bound = self.dataset_of.keywords
        records, tests = read_shards(self.agents, self.shards, self.problem, bound["clip"].norm, with_tests=self.scored)
        dataset = self.dataset_of(records=records, batches=self._with_secrets(bound["batches"]))
        if not self.scored:
            return Hosted(dataset, states=self._states)
        records_of_agents = list(zip(records["train"], records["validation"], tests, strict=True))
        return Hosted(
            dataset, AgentScorer(self.problem, records_of_agents, not self.shards.manifest.classes), self._states
        )

    def make_releaser(
        self, mechanism: Mechanism, schedules: Any, streams: Streams, *arguments: Any
    ) -> ScheduledReleaser:
        """Make the releaser of the block. The arguments are those of `ScheduledReleaser`."""
        return ScheduledReleaser(mechanism, schedules, self._with_secrets(streams), *arguments)

    def _with_secrets(self, streams: Streams) -> Streams:
        if not self.is_secret:
            return streams
        return streams.with_agent_secrets([self.shards.secret(int(agent)) for agent in self.agents])

    def _states(self, run: str, receipts: Receipts) -> AgentStates:
        first = int(self.agents[0])
        folder = self.shards.path(first).parent / STATES
        return AgentStates(folder, f"{run}-{first}", module_of(self.program), receipts)


# Largest number of releases times columns of a plan. The accounting takes about 200 bytes for each.
LARGEST_PLAN = 3e7


@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class PlannedJob(Protocol):
    """Scenario that is ready to run: every release is planned, and its ε is computed.

    A job holds records and the noise key. Therefore it cannot be pickled, copied or inspected with `vars`.

    Attributes:
        components: components of the scenario.
        problem: problem of the agents.
        algorithm: algorithm of the agents or the coordinator.
        topology: topology of the agents.
        shards: public facts of the records.
        records: split → records of each agent.
        test: test records; None if there are none.
        stream: rule for the records that a round reads.
        clip: bounds on every record's contribution.
        mechanism: mechanism of the charged releases.
        rounds: number of rounds.
        ledger: ledger of the planned releases.
        budget: ε at privacy.delta.
        hyperparameters_text: hyper-parameters of training, in a sentence.
        setting_warnings: warnings of learning rates that may be unstable on this graph, and of features that are not
            centred.
        requested: requested metrics of probabilities and of the reference solution.
        root: noise key, which is secret without a seed.

    Example:
        >>> import decentral_dp
        >>> job = decentral_dp.build("quadratic").simulation()
        >>> job.solves, job.rounds, job.n_agents
        ('bilevel', 3000, 8)
    """

    setting: ClassVar[str]
    # True if one participant, a trusted coordinator, releases for all.
    plans_ahead: ClassVar[bool] = True
    # True if agents send clipped steps.
    sends_steps: ClassVar[bool] = False
    # True if sensitivities follow from constants, and so from the norms of the records. Clips hold for all records.
    needs_norms: ClassVar[bool] = False

    components: Components
    problem: Any
    algorithm: AnyAlgorithm
    topology: Topology
    shards: Shards
    records: Mapping[Split, Sequence[Any]]
    test: Any | None
    sampling: Sampling
    clip: Clip
    mechanism: Mechanism
    rounds: int
    ledger: Ledger
    budget: AgentCosts
    hyperparameters_text: str = ""
    setting_warnings: tuple[str, ...] = ()
    requested: tuple[str, ...] = ()
    root: Root = field(default=b"", repr=False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.scenario.title!r}: {self.n_agents} agents, {self.rounds} rounds>"

    def __reduce__(self) -> NoReturn:
        raise InputError(
            "job: cannot be pickled or copied, since it holds records and the noise key. Fix: send its "
            "scenario, and build the job there."
        )

    @property
    def scenario(self) -> Scenario:
        return self.components.scenario

    @property
    def solves(self) -> str:
        """Type of the problem."""
        return self.components.algorithm.solves

    @property
    def tunes_x(self) -> bool:
        """Whether x depends on records; if not, only the lower level is solved."""
        return True

    @property
    def reference_key(self) -> str:
        """Key of the reference solution, from the problem and the agents' records; "" for a custom problem."""
        c, s = self.components, self.scenario
        if c.problem_entry is None:
            return ""
        # The seed draws the split and synthetic records.
        parts = (s.problem.model_dump_json(), s.seed, self.n_agents, s.attack, c.digests, self.shards.digest.hex())
        return f"{self.setting} {parts}"

    @property
    def posed_problem(self) -> Any:
        """Problem of the scenario, whose metrics are computed and whose weights predict."""
        return self.problem

    @property
    def honest(self) -> NDArray[np.int64] | None:
        """Numbers of the honest agents, which are evaluated; None if no agent is Byzantine."""
        return None

    @property
    def n_agents(self) -> int:
        return self.topology.n_agents

    @property
    def unit(self) -> Unit:
        """Difference of neighbouring data sets."""
        return unit_of(self.scenario.privacy.unit, self.scenario.privacy.neighbours)

    @property
    def counts(self) -> Counts:
        return {"train": self.shards.train_counts, "validation": self.shards.validation_counts}

    @property
    def holds_records(self) -> bool:
        """Whether this process has the records, rather than the agents' processes."""
        return not isinstance(self.records, RecordsElsewhere)

    def first_release(self, after: int) -> int:
        """Return the index of the first release of a run that resumes after a round.

        Agents repeat the last release of that round.
        """
        return after * self.ledger.releases_per_round + int(self.plans_ahead)

    @property
    def has_server(self) -> bool: ...  # whether agents answer a server, and send no messages to neighbours

    def with_root(self, root: Root) -> Self:
        """Return the job with a different key of noise, batches and Bernoulli draws."""
        return replace(self, root=root)

    def with_record(self, split: Split, agent: int, record: Any, times: int = 1) -> Self:
        """Return the job with the first records of an agent replaced.

        Args:
            split: split of the records.
            agent: agent number.
            record: record that `problem.prepare` returned.
            times: number of records that it replaces, default 1.
        """
        before = self.records[split][agent]
        fields = zip(record, before, strict=True)
        after = type(before)(*(np.concatenate([np.repeat(new, times, axis=0), old[times:]]) for new, old in fields))
        records = tuple(after if k == agent else r for k, r in enumerate(self.records[split]))
        return replace(self, records={**self.records, split: records})

    def start(self, engine: Engine, control: RunControl = UNATTENDED, strict: bool = True) -> Outcome:
        """Run all rounds.

        Args:
            engine: engine that hosts the agents.
            control: observer, and the state from which to resume.
            strict: whether an unplanned release of a custom algorithm ends the run, default True.
        """
        ...

    def evaluator(self) -> Scorer | None:
        """Return the evaluator of released values; None if agents hold their records and send no scores."""
        ...

    @property
    def sites(self) -> Sites | None:
        """Held-out records of each agent; None if no record has an owner or the problem does not predict."""
        return None

    @property
    def scored_sites(self) -> Sites | None:
        """Sites, if the records have owners or a measure of sites is requested."""
        by_column = getattr(self.scenario.problem.partition, "kind", None) == "column" or self.shards.by_owner
        return self.sites if by_column or set(SITE_MEASURES) & set(self.requested) else None

    @property
    def evaluated_on(self) -> EvaluatedOn:
        """Name of the values that are evaluated."""
        ...

    def covers(self, ledger: Ledger) -> bool:
        """Return whether the planned ε holds for a recorded ledger."""
        ...

    def sizes(self) -> list[int]:
        """Return the number of agents of each block, by the [run] table."""
        return block_sizes(self.n_agents, self.scenario.run.blocks or 1, self.scenario.run.agents_per_block)

    def _records_of(self, agents: NDArray[np.int64]) -> dict[Split, Sequence[Any]]:
        if not self.holds_records:
            return {k: [] for k in self.records}
        first, last = int(agents[0]), int(agents[-1]) + 1
        if last - first == agents.size:
            # Slices keep the records of a million agents in a few arrays.
            return {k: self.records[k][first:last] for k in self.records}
        return {k: [self.records[k][a] for a in agents.tolist()] for k in self.records}


def public_network(topology: Topology, seed: int) -> Network:
    """Return the public part of a network."""
    over_time = topology.over_time
    return Network(topology.mixing if over_time is None else over_time.links, seed, over_time)


# Agents with so large models are hosted in blocks of at most this number of weights: 4 MiB fit into the cache, and the
# allocator reuses them, while larger arrays are new pages of the system each time.
_LARGE, _CACHED = 2**14, 2**19


@final
@dataclass(frozen=True, kw_only=True, repr=False, slots=True)
class GossipJob(PlannedJob):
    """Job of agents that trust no coordinator.

    Attributes:
        noise: channel → schedule of all agents.
        pairs: pairwise correlated noise; None if noise is independent between agents.
        factor: factor of noise that is correlated over rounds; None if noise is fresh in each round.
        pools_records: whether a trusted server has the records of all agents.
        weights: split → factors m·N_i/N of the agents' means, (m,); empty unless problem.weights is "records".
        published: ε against an adversary that receives only the models of privacy.adversary, (m,); None if it observes
            all messages.
    """

    setting: ClassVar[str] = "gossip"
    plans_ahead: ClassVar[bool] = False
    sends_steps: ClassVar[bool] = True

    problem: Problem
    algorithm: Algorithm
    noise: Mapping[str, NoiseSchedule]
    pairs: PairNoise | None = None
    factor: TimeFactor | None = None
    pools_records: bool = False
    weights: Mapping[Split, Array] = field(default_factory=dict)
    published: Array | None = None

    @property
    def has_server(self) -> bool:
        return self.algorithm.has_server

    @property
    def publishes_average(self) -> bool:
        """Whether the adversary receives only the average of the final models."""
        return self.published is not None and self.scenario.privacy.adversary == "final_average"

    @property
    def tunes_x(self) -> bool:
        return tunes_x(self.algorithm, self.problem.p, self.problem.q)

    @property
    def posed_problem(self) -> Any:
        return getattr(self.problem, "posed", self.problem)

    def sizes(self) -> list[int]:
        run, weights = self.scenario.run, self.problem.q
        if self.scenario.is_byzantine:
            # Attackers and rules read the messages of all agents at once.
            return [self.n_agents]
        if run.engine == "local" and run.blocks is None and not self.has_server and weights >= _LARGE:
            return block_sizes(self.n_agents, 1, max(1, _CACHED // weights))
        return PlannedJob.sizes(self)

    @property
    def public_network(self) -> Network:
        """Public part of the network."""
        return public_network(self.topology, self.scenario.public_seed)

    @property
    def attack(self) -> Attack | None:
        """Byzantine agents; None if all agents are honest."""
        table = self.scenario.attack
        if table is None:
            return None
        agents, strength = tuple(sorted(set(table.agents))), table.strength or STRENGTHS.get(table.kind, 1.0)
        return Attack(agents, table.kind, strength, self.scenario.public_seed, self.components.attack.make())

    @property
    def honest(self) -> NDArray[np.int64] | None:
        return None if self.attack is None else np.setdiff1d(np.arange(self.n_agents), self.attack.agents)

    @property
    def aggregation(self) -> Aggregation | None:
        """Robust aggregation of messages; None for weighted sums."""
        table = self.scenario.topology.aggregation
        if table is None:
            return None
        keys = table.model_dump(include={"kind", "radius", "trim"}, exclude_none=True)
        return Aggregation(**keys, custom=self.components.aggregation.make())

    @property
    def compression(self) -> Compression | None:
        """Compression of messages; None if messages are not compressed."""
        table = self.scenario.topology.compression
        if table is None:
            return None
        keys = table.model_dump(include={"kind", "share", "levels"}, exclude_none=True)
        quantiser = self.components.compression.make()
        compression = Compression(**keys, seed=self.scenario.public_seed, quantiser=quantiser)
        widths = [c.width for c in self.algorithm.releases(self.problem.p, self.problem.q).values()]
        return replace(compression, consensus=compression.contraction(max(widths)))

    @property
    def public_scale(self) -> float:
        """Compute the norm that released values can reach by all noise and all clipped steps, from public numbers.

        With channels c, their widths d_c, noise σ_c,t and sensitivities Δ_c,t, it is

            S = 1 + Σ_c Σ_t (σ_c,t √d_c g + N Δ_c,t)/(1 − β),

        with N the largest number of records of an agent, β the momentum, and g the growth of correlated noise. A
        release without a clip counts 1. With the margin `MOST_OF_SCALE` the scale is a threshold for divergence, not a
        bound.
        """
        growth = max(1.0, 1.0 if self.pairs is None else self.pairs.reach())
        growth *= max(1.0, 1.0 if self.factor is None else self.factor.growth)
        most_records = float(max(counts.max(initial=1) for counts in self.counts.values()))
        scale = 0.0
        for c in self.ledger.channels:
            if c.sensitivity:
                moves = [s.max(axis=1, initial=0.0) for s in c.sensitivity.values()]
                scale += release_scale(c.scale.max(axis=1, initial=0.0), moves, c.dimension, most_records, growth)
        return 1.0 + scale / (1.0 - float(getattr(strip_centring(self.algorithm), "momentum", 0.0)))

    def nodes(
        self, sizes: Sequence[int] | None = None, members: Sequence[NDArray[np.int64]] | None = None
    ) -> list[AgentNode]:
        """Divide the job into blocks of agents.

        Args:
            sizes: number of agents of each block, default from the [run] table.
            members: numbers of the agents of each block, ascending, default consecutive agents.
        """
        mixing = self.public_network.mixing
        if sizes is None:
            sizes = self.sizes() if members is None else [block.size for block in members]
        blocks = server_blocks(sizes) if self.has_server else agent_blocks(mixing, sizes, members)
        compression, over_time = self.compression, self.topology.over_time
        scale = self.public_scale
        nodes = [
            self._agent_node(block)._replace(
                compression=compression, public_scale=scale, attack=self.attack, aggregation=self.aggregation
            )
            for block in blocks
        ]
        if over_time is None:
            return nodes
        columns = [np.concatenate([nodes[b].agents for b in node.neighbours]) for node in nodes]
        return [
            node._replace(over_time=over_time, columns=numbers) for node, numbers in zip(nodes, columns, strict=True)
        ]

    def block_of(self, agents: NDArray[np.int64]) -> AgentNode:
        """Return one block of selected agents, ascending, which reads the messages of all agents."""
        ((_, _, mixing),) = agent_blocks(self.public_network.mixing, [self.n_agents])
        return self._agent_node((agents, (0,), mixing[agents]))

    def start(self, engine: Engine, control: RunControl = UNATTENDED, strict: bool = True) -> Outcome:
        parts = () if control.saved_state is None else control.saved_state.parts
        # A resumed run keeps its blocks.
        nodes = self.nodes(members=[part["agents"] for part in parts if "agents" in part] or None)
        if strict and not self.components.has_proved_plan:
            # An unplanned round is refused.
            e = self.components.algorithm
            nodes = [
                n._replace(
                    make_releaser=partial(CheckedReleaser, n.make_releaser, self.ledger.select(n.agents), e.algorithm)
                )
                for n in nodes
            ]
        return engine.run(nodes, self.rounds, control)

    @property
    def sites(self) -> Sites | None:
        shards, entry, members = self.shards, self.components.problem_entry, self.scenario.problem.members
        agents = np.arange(self.n_agents) if self.honest is None else self.honest
        owned = [np.searchsorted(shards.test, shards.test_parts[k]) for k in agents if shards.test_parts]
        # Least squares may read classes as numbers.
        reads_numbers = bool(shards.classes and entry and entry.labels == "numbers")
        is_scored = shards.has_records and (self.n_agents > 1 or members) and any(part.size for part in owned)
        if not is_scored or reads_numbers or not isinstance(self.posed_problem, Predictor):
            return None
        records = shards.features[shards.test], shards.labels[shards.test]
        # Agents without edges have no common model.
        has_common_model = bool(self.topology.edges.size) or self.has_server
        personal = getattr(strip_centring(self.algorithm), "personal", not has_common_model)
        return Sites(self.posed_problem, *records, owned, agents, shards.label_unit, personal)

    def evaluator(self) -> Scorer | None:
        if (make := self.components.problem_type.make_evaluator) is not None:
            evaluator: Scorer | None = make(self)
            return evaluator
        if not self.holds_records:
            return AgentEvaluator(self.problem, self.n_agents, self.shards.label_unit)
        records = self.records if self.honest is None else self._records_of(self.honest)
        return Evaluator(
            self.problem,
            RecordPairs(records["train"], records["validation"]),
            self.test,
            numbers=self.honest,
            label_unit=self.shards.label_unit,
            measures=self.scenario.run.measures,
            requested=self.requested,
            one_level=self.components.one_level or not self.tunes_x,
            key=self.reference_key,
            averages=self.publishes_average,
            weights=self.weights,
            sites=self.scored_sites,
        )

    @property
    def evaluated_on(self) -> EvaluatedOn:
        # Agents that hold their records score their own models.
        return "final_average" if self.publishes_average and self.holds_records else "released_values"

    def covers(self, ledger: Ledger) -> bool:
        return ledger.same_releases(self.ledger.truncate(ledger.rounds))

    def _agent_node(self, block: Block) -> AgentNode:
        (agents, neighbours, mixing), members = block, self.scenario.problem.members
        streams_of = partial(Streams, self.root, agents=np.array(members)[agents] if members else agents)
        dataset_of = partial(
            LocalDataset,
            agents,
            self.problem,
            neighbour_weight=self.topology.neighbour_weight[agents],
            kept_weight=self.topology.kept_weight[agents],
            sampling=self.sampling,
            clip=self.clip,
            batches=streams_of("batch"),
            network=self.public_network,
            unit=self.unit,
            weights={k: w[agents] for k, w in self.weights.items()},
        )
        schedules, streams = {c: s.select(agents) for c, s in self.noise.items()}, streams_of("noise")
        pairs = None if self.pairs is None else PairDraws(self.pairs, self.root, agents)
        noise = (self.mechanism, schedules, streams, self.algorithm.releases_per_round, pairs, self.factor)
        node = AgentNode(
            agents,
            self.algorithm,
            None,
            partial(ScheduledReleaser, *noise),
            neighbours,
            mixing,
            self.scenario.tail_length,
            self.scenario.privacy.domain,
        )
        if not isinstance(self.records, RecordsElsewhere):
            return node._replace(dataset=dataset_of(records=self._records_of(agents)))
        sends_scores, secret = self.scenario.run.agent_scores, self.scenario.seed is None
        reader = ShardReader(
            agents, self.records.shards, self.problem, self.algorithm, dataset_of, sends_scores, secret
        )
        return node._replace(make_releaser=partial(reader.make_releaser, *noise), read_dataset=reader.read)
