"""From a scenario to a job: data, problem, topology, algorithm and noise, with the ledger planned and priced.

Whatever leaks around the ledger is refused here under `certified`: scaling fitted on the data, classes discovered from
labels, missing clips.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.algorithms.central.protocol import Coordinated
from decentral_dp.algorithms.messages import Checked
from decentral_dp.algorithms.protocol import Algorithm, Counts
from decentral_dp.config import outside
from decentral_dp.coordinator_plan import bounded_labels, check_coordinated, context_of, minimax_context, plan_of
from decentral_dp.data import COLLECTIONS, Shards, Stream
from decentral_dp.engines.protocol import AgentNode, CoordinatorNode, blocks, server_blocks
from decentral_dp.errors import InputError
from decentral_dp.gossip_noise import calibrated_schedules, capped, charged_channels, clips, schedules
from decentral_dp.gossip_plan import plan
from decentral_dp.privacy.accountants import Budget, price
from decentral_dp.privacy.bounded import Array, LipschitzConstants, Split
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.planned_releaser import PlannedReleaser
from decentral_dp.privacy.randomness import Streams, secret_root, seeded_root
from decentral_dp.privacy.scheduled_releaser import NoiseSchedule, ScheduledReleaser
from decentral_dp.problems.agents import LocalDataset
from decentral_dp.problems.clients import ClientBlock
from decentral_dp.problems.coordinator_context import CoordinatorContext
from decentral_dp.problems.minimax.minimax_clients import MinimaxClientBlock
from decentral_dp.problems.minimax.minimax_context import MinimaxContext
from decentral_dp.problems.protocol import Placed, Problem, take
from decentral_dp.scenario_components import (
    algorithm_of,
    is_coordinated,
    is_minimax,
    minimax_of,
    problem_of,
    shards_of,
    stream_of,
    topology_of,
)
from decentral_dp.schema import Scenario, by_channel, put
from decentral_dp.topology import Topology


@dataclass(frozen=True)
class Job:
    """A scenario ready to run: everything public is settled, every release is planned and priced.

    problem: a `problems.protocol.Problem`, or a `problems.minimax.protocol.Minimax` where context is that of one.
    records: kind → per-agent records. rounds: how many will be run (fewer than asked if a cap comes first; then status
    and reason say so). noise: channel → schedule of all agents. ledger: planned. budget: its price at privacy.delta.
    context: of a trusted coordinator, where the algorithm is one's program; then there is no noise schedule.
    """

    scenario: Scenario
    problem: Any
    algorithm: Algorithm | Coordinated
    topology: Topology
    shards: Shards
    records: Mapping[Split, tuple[Any, ...]]
    test: Any | None
    stream: Stream
    clip: Clip
    constants: LipschitzConstants | None
    mechanism: str
    noise: Mapping[str, NoiseSchedule]
    rounds: int
    ledger: Ledger
    budget: Budget
    status: str = "ok"
    reason: str | None = None
    _root: bytes = field(default=b"", repr=False)
    context: CoordinatorContext | MinimaxContext | None = None

    @property
    def n_agents(self) -> int:
        return self.topology.n_agents

    @property
    def counts(self) -> Counts:
        return {"train": self.shards.train_counts, "validation": self.shards.validation_counts}

    @property
    def program(self) -> Algorithm:
        """The algorithm of agents that trust nobody. Raises ValueError where it is a coordinator's."""
        if self.context is not None:
            raise ValueError("this job is a trusted coordinator's")
        return cast(Algorithm, self.algorithm)

    def nodes(self) -> list[AgentNode]:
        """The job cut into blocks of agents, as the scenario's [run] table says."""
        sizes = self._sizes()
        cut = server_blocks(sizes) if self.program.central else blocks(self.topology.mixing, sizes)
        return [self._agent_node(*block) for block in cut]

    def coordinator_node(self) -> CoordinatorNode:
        """The coordinator with its agents in blocks. Raises ValueError where nobody is trusted."""
        if self.context is None:
            raise ValueError("these agents trust nobody, so there is no coordinator")
        ends = np.cumsum(self._sizes())
        cut = [np.arange(end - size, end) for end, size in zip(ends, self._sizes(), strict=True)]
        client_blocks = tuple(self._client_block(agents) for agents in cut)
        make = partial(PlannedReleaser, self.ledger, self._root, self.scenario.privacy.guarantee == "as_printed")
        return CoordinatorNode(cast(Coordinated, self.algorithm), self.context, make, client_blocks, self.n_agents)

    def _client_block(self, agents: NDArray[np.int64]) -> ClientBlock | MinimaxClientBlock:
        records = {k: [r[a] for a in agents] for k, r in self.records.items()}
        coins = Streams(self._root, "coins", agents)
        if isinstance(self.context, MinimaxContext):
            return MinimaxClientBlock(agents, self.problem, records["train"], coins)
        return ClientBlock(agents, self.problem, records, self.clip, coins)

    def _sizes(self) -> list[int]:
        table, m = self.scenario.run, self.n_agents
        if table.engine == "ray":
            full, rest = divmod(m, table.agents_per_actor)
            return [table.agents_per_actor] * full + ([rest] if rest else [])
        parts = np.array_split(np.arange(m), min(table.blocks, m))
        return [p.size for p in parts]

    def _agent_node(self, agents: np.ndarray[Any, Any], neighbours: tuple[int, ...], mixing: Any) -> AgentNode:
        dataset = LocalDataset(
            agents,
            self.problem,
            {k: [r[a] for a in agents] for k, r in self.records.items()},
            self.topology.neighbour_weight[agents],
            self.stream,
            self.clip,
            Streams(self._root, "batch", agents),
            by_channel(self.scenario.privacy.box),
            self.constants,
        )
        schedules = {c: s.of(agents) for c, s in self.noise.items()}
        streams = Streams(self._root, "noise", agents)
        make = partial(ScheduledReleaser, self.mechanism, schedules, streams, self.program.releases_per_round)
        return AgentNode(agents, self.program, dataset, make, neighbours, mixing, self.scenario.run.average)


def build(
    scenario: Scenario,
    problem: Problem | None = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
) -> Job:
    """Build everything a scenario names, with objects in place of what it names where some are given.

    Args:
        scenario: a loaded scenario.
        problem, topology, data, partition: as `config.outside.Given` describes them.

    Raises:
        InputError: one sentence for whatever does not fit.
    """
    scenario = outside.with_given(scenario, outside.Given(problem, topology, data, partition))
    if scenario.run.device != "cpu" and not is_minimax(scenario):
        raise InputError(
            f"run.device: {scenario.problem.kind} computes in numpy, on the CPU; only models of minimax problems can "
            'use "cuda". Leave it out.'
        )
    program = check_coordinated(scenario) if is_coordinated(scenario) else None
    if program is None:
        _check_guarantee(scenario)
    topology = topology_of(scenario)
    shards = shards_of(scenario, topology.n_agents)
    if program is not None and is_minimax(scenario):
        minimax = minimax_of(scenario, shards)
        return _coordinated(
            scenario, topology, shards, minimax, program, minimax_context(scenario, shards, minimax, program)
        )
    problem = problem_of(scenario, shards)
    if program is not None:
        return _coordinated(
            scenario, topology, shards, problem, program, context_of(scenario, shards, problem, program)
        )
    privacy, guarantee = scenario.privacy, scenario.privacy.guarantee
    algorithm = cast(Algorithm, algorithm_of(scenario))
    if isinstance(algorithm, Checked):
        algorithm.check(problem.p, problem.q)
    channels = algorithm.releases(problem.p, problem.q)
    clip = clips(scenario, channels, problem)
    constants = problem.constants(by_channel(privacy.box), shards.l1) if guarantee == "as_printed" else None
    stream = stream_of(scenario)
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    mechanism = "none" if guarantee == "none" else privacy.mechanism

    def planned(noise: Mapping[str, NoiseSchedule], rounds: int, final: bool = True) -> Ledger:
        weight = topology.neighbour_weight
        return plan(algorithm, problem, counts, stream, weight, clip, constants, rounds, mechanism, noise, final)

    rounds = scenario.algorithm.rounds
    charged = charged_channels(channels, problem)
    noise = {} if mechanism == "none" else schedules(scenario, charged, topology.n_agents)
    if privacy.epsilon is not None and mechanism != "none":
        noise = calibrated_schedules(scenario, charged, noise, planned(noise, rounds, final=False))
    ledger = planned(noise, rounds)
    status, reason = "ok", None
    if privacy.cap is not None:
        rounds, status, reason = capped(ledger, privacy.cap, privacy.delta, rounds)
        ledger = planned(noise, rounds)
    records = _records(problem, shards, clip)
    test = (
        problem.prepare(shards.features[shards.test], _numbers(shards.labels[shards.test]), clip.norm)
        if shards.test.size
        else None
    )
    return Job(
        scenario, problem, algorithm, topology, shards, records, test, stream, clip, constants, mechanism, noise,
        rounds, ledger, price(ledger, privacy.delta), status, reason, _root(scenario, shards),
    )  # fmt: skip


def _coordinated(
    s: Scenario,
    topology: Topology,
    shards: Shards,
    problem: Any,
    program: Coordinated,
    known: CoordinatorContext | MinimaxContext,
) -> Job:
    """The job of a trusted coordinator, and what it knows beforehand."""
    algorithm, context = program.resolve_defaults(known)
    ledger = plan_of(s, algorithm, context)
    shards = replace(shards, labels=bounded_labels(s, shards.labels))
    records = _records(problem, shards, context.clip)
    held_out = shards.features[shards.test], _numbers(shards.labels[shards.test])
    test = problem.prepare(*held_out, "l2") if shards.test.size else None
    mechanism = "none" if s.privacy.guarantee == "none" else "gaussian"
    return Job(
        s, problem, algorithm, topology, shards, records, test, stream_of(s), context.clip, None, mechanism, {},
        s.algorithm.rounds, ledger, price(ledger, s.privacy.delta), "ok", None, _root(s, shards), context,
    )  # fmt: skip


def _check_guarantee(s: Scenario) -> None:
    privacy, guarantee = s.privacy, s.privacy.guarantee
    if s.problem.label_bound is not None:
        raise InputError(
            f"problem.label_bound: {s.algorithm.kind} clips contributions and cuts no labels. Leave it out."
        )
    if privacy.constants is not None:
        raise InputError(
            f"privacy.constants: {s.algorithm.kind} clips contributions and takes no constants. Leave them out."
        )
    if guarantee == "as_printed":
        if privacy.mechanism != "laplace":
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
    elif privacy.box:
        raise InputError(
            'privacy.box: boxes belong to guarantee = "as_printed"; the certified protocols clip per record.'
        )


def _records(problem: Any, shards: Shards, clip: Clip) -> dict[Split, tuple[Any, ...]]:
    whole = problem.prepare(shards.features, _numbers(shards.labels), clip.norm)
    train = tuple(take(whole, index) for index in shards.train)
    return {
        "train": tuple(problem.placed(r, i) for i, r in enumerate(train)) if isinstance(problem, Placed) else train,
        "validation": tuple(take(whole, index) for index in shards.validation),
    }


def _numbers(labels: Any) -> Array:
    return np.asarray(labels, dtype=np.float64)


def _root(s: Scenario, shards: Shards) -> bytes:
    """Noise depends on everything that decides what is released, records included, so that no two jobs share a root.

    The same noise on other records or other scales would cancel in a difference.
    """
    if s.seed is None:
        return secret_root()
    content = s.model_dump(mode="json", exclude={"run", "title", "description", "versions"}, exclude_none=True)
    if s.run.device != "cpu":
        # Another device rounds otherwise.
        content["device"] = s.run.device
    # The same file is the same scenario, from wherever it is named.
    for place, path in s.files().items():
        put(content, place, blake2b(path.read_bytes()).hexdigest())
    if told := outside.fingerprints(s):
        content["given"] = told
    # Images are told by their contents and by which of them are for testing, wherever their files are.
    content["problem"].pop("files", None)
    filed = s.problem.data in (*COLLECTIONS, "celeba")
    held = (shards.features, shards.labels, *((shards.test,) if filed else ()))
    records = [blake2b(a.tobytes()).digest() for a in held]
    return seeded_root(s.seed, json.dumps(content, sort_keys=True).encode() + b"".join(records))
