"""From a scenario to a job: data, problem, topology, algorithm and noise, with the ledger planned and priced.

Whatever leaks around the ledger is refused here under `certified`: scaling fitted on the data, classes discovered from
labels, missing clips.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp import topology as topologies
from decentral_dp.algorithms import ALGORITHMS, NUMBERS, OPTIONS, Options
from decentral_dp.algorithms.messages import Checked
from decentral_dp.algorithms.protocol import Algorithm, Counts, StepSize
from decentral_dp.data import COLLECTIONS, Shards, Stream, make_shards, nearest
from decentral_dp.data import load as load_data
from decentral_dp.engines.protocol import Node, blocks, server_blocks
from decentral_dp.errors import InputError
from decentral_dp.noise import calibrated_schedules, capped, charged_channels, clips, schedules
from decentral_dp.planning import plan
from decentral_dp.privacy.accountants import Budget, price
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.keys import Streams, secret_root, seeded_root
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism, NoiseSchedule
from decentral_dp.privacy.sensitivity import Array, Constants, Kind
from decentral_dp.problems import PROBLEMS, Facts
from decentral_dp.problems.protocol import Placed, Problem, take
from decentral_dp.problems.shard import Shard
from decentral_dp.schema import Column, Partition, ProblemTable, Scenario, Step, by_channel
from decentral_dp.topology import Topology


@dataclass(frozen=True)
class Job:
    """A scenario ready to run: everything public is settled, every release is planned and priced.

    records: kind → per-agent records. rounds: how many will be run (fewer than asked if a cap comes first; then status
    and reason say so). noise: channel → schedule of all agents. ledger: planned. budget: its price at privacy.delta.
    """

    scenario: Scenario
    problem: Problem
    algorithm: Algorithm
    topology: Topology
    shards: Shards
    records: Mapping[Kind, tuple[Any, ...]]
    test: Any | None
    stream: Stream
    clip: Clip
    constants: Constants | None
    mechanism: str
    noise: Mapping[str, NoiseSchedule]
    rounds: int
    ledger: Ledger
    budget: Budget
    status: str = "ok"
    reason: str | None = None
    _root: bytes = field(default=b"", repr=False)

    @property
    def n_agents(self) -> int:
        return self.topology.n_agents

    @property
    def counts(self) -> Counts:
        return {"train": self.shards.train_counts, "validation": self.shards.validation_counts}

    def nodes(self) -> list[Node]:
        """The job cut into blocks of agents, as the scenario's [run] table says."""
        sizes = self._sizes()
        cut = server_blocks(sizes) if self.algorithm.central else blocks(self.topology.mixing, sizes)
        return [self._node(*block) for block in cut]

    def _sizes(self) -> list[int]:
        table, m = self.scenario.run, self.n_agents
        if table.engine == "ray":
            full, rest = divmod(m, table.agents_per_actor)
            return [table.agents_per_actor] * full + ([rest] if rest else [])
        parts = np.array_split(np.arange(m), min(table.blocks, m))
        return [p.size for p in parts]

    def _node(self, agents: np.ndarray[Any, Any], near: tuple[int, ...], mixing: Any) -> Node:
        shard = Shard(
            agents,
            self.problem,
            {k: [r[a] for a in agents] for k, r in self.records.items()},
            self.topology.self_weight[agents],
            self.stream,
            self.clip,
            Streams(self._root, "batch", agents),
            by_channel(self.scenario.privacy.box),
            self.constants,
        )
        schedules = {c: s.of(agents) for c, s in self.noise.items()}
        streams = Streams(self._root, "noise", agents)
        make = partial(Mechanism, self.mechanism, schedules, streams, self.algorithm.exchanges)
        return Node(agents, self.algorithm, shard, make, near, mixing, self.scenario.run.average)


def build(scenario: Scenario, problem: Problem | None = None) -> Job:
    """Build everything a scenario names. Raises InputError with one sentence for whatever does not fit."""
    _check_guarantee(scenario)
    topology = _topology(scenario)
    shards = _shards(scenario, topology.n_agents)
    problem = problem or _problem(scenario, shards)
    privacy, guarantee = scenario.privacy, scenario.privacy.guarantee
    algorithm = _algorithm(scenario)
    if isinstance(algorithm, Checked):
        algorithm.check(problem.p, problem.q)
    channels = algorithm.releases(problem.p, problem.q)
    clip = clips(scenario, channels, problem)
    constants = problem.constants(by_channel(privacy.box), shards.l1) if guarantee == "as_printed" else None
    stream = Stream.from_spec(_stream_spec(scenario))
    counts: Counts = {"train": shards.train_counts, "validation": shards.validation_counts}
    mechanism = "none" if guarantee == "none" else privacy.mechanism

    def planned(noise: Mapping[str, NoiseSchedule], rounds: int, final: bool = True) -> Ledger:
        weight = topology.self_weight
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


def _check_guarantee(s: Scenario) -> None:
    privacy, guarantee = s.privacy, s.privacy.guarantee
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


def _topology(s: Scenario) -> Topology:
    table = s.topology
    seed = table.seed if table.seed is not None else _public_seed(s)
    if table.file is not None:
        if table.model_extra:
            raise InputError(f"topology.{next(iter(table.model_extra))}: a topology from a file takes no such key.")
        path = s.files().get(("topology", "file"), Path(table.file))
        return topologies.from_file(path, table.weights, table.agents)
    if table.kind is None or table.agents is None:
        raise InputError("topology: give kind and agents, or file.")
    return topologies.build(table.kind, table.agents, table.model_extra or {}, table.weights or "metropolis", seed)


def _public_seed(s: Scenario) -> int:
    """Partition, split and random graphs are public; without a seed they must not hang on a secret one."""
    return s.seed if s.seed is not None else 0


def _shards(s: Scenario, n_agents: int) -> Shards:
    table, certified = s.problem, s.privacy.guarantee == "certified"
    seed = table.seed if table.seed is not None else _public_seed(s)
    validation = table.validation.model_dump() if isinstance(table.validation, Column) else table.validation
    partition = (
        table.partition.model_dump(exclude_none=True) if isinstance(table.partition, Partition) else table.partition
    )
    synthetic = table.synthetic.model_dump(exclude_none=True)
    files = s.files()
    scale = files.get(("problem", "scale"))
    dataset = load_data(
        str(files.get(("problem", "data"), table.data)),
        n_agents=n_agents,
        seed=seed,
        label=table.label,
        classes=table.classes,
        agent=partition["name"] if isinstance(partition, dict) and partition["kind"] == "column" else None,
        split=validation["column"] if isinstance(validation, dict) else None,
        root=s.folder,
        certified=certified,
        files=s.image_files(),
        limit=table.limit,
        d=synthetic.pop("dimension", None),
        **synthetic,
    )
    return make_shards(
        dataset,
        n_agents,
        seed=seed,
        partition_spec=partition,
        validation=validation,
        test=table.test,
        scale_spec=table.scale if scale is None else str(scale),
        normalisation=table.normalise,
        certified=certified,
        root=s.folder,
    )


def _problem(s: Scenario, shards: Shards) -> Problem:
    table = s.problem
    if table.kind not in PROBLEMS:
        raise InputError(f"problem.kind: no problem {table.kind!r}; {nearest(table.kind, PROBLEMS)}.")
    _check_options(table)
    facts = Facts(
        shards.features.shape[1],
        len(shards.classes),
        table.intercept,
        table.ridge,
        s.resolve(table.losses) if table.losses is not None else None,
        image=shards.image,
        agents=shards.n_agents,
        groups=table.groups,
        corrupt=table.corrupt,
        tasks=table.tasks,
        ways=table.ways,
        width=table.width,
        seed=table.seed if table.seed is not None else _public_seed(s),
    )
    return PROBLEMS[table.kind].build(facts)


def _check_options(table: ProblemTable) -> None:
    """Refuse what the problem would silently leave unread."""
    taken = PROBLEMS[table.kind].options
    options = {k: getattr(table, k) for k in ("ridge", "groups", "corrupt", "tasks", "ways", "width", "losses")}
    given = {"intercept": table.intercept or None, **options}
    for key in (k for k, value in given.items() if value is not None and k not in taken):
        takers = ", ".join(name for name, entry in PROBLEMS.items() if key in entry.options)
        raise InputError(f"problem.{key}: {table.kind} takes none, only {takers}. Leave it out.")


def _algorithm(s: Scenario) -> Algorithm:
    table = s.algorithm
    if table.kind not in ALGORITHMS:
        raise InputError(f"algorithm.kind: no algorithm {table.kind!r}; {nearest(table.kind, ALGORITHMS)}.")
    entry = ALGORITHMS[table.kind]
    if table.protocol == "private" and not entry.private:
        raise InputError(f'algorithm.protocol: {table.kind} knows no "private" protocol. Leave it out.')
    given = {key: value for key in OPTIONS if (value := getattr(table, key)) is not None}
    for key in given:
        if key not in entry.options:
            takers = [name for name, e in ALGORITHMS.items() if key in e.options]
            raise InputError(f"algorithm.{key}: {table.kind} takes none, only {', '.join(takers)}. Leave it out.")
    for key in entry.options:
        if key not in given:
            example = f"{key} = 5" if key in NUMBERS else f"{key} = {{ scale = 0.1, decay = 0.5 }}"
            raise InputError(f"algorithm.{key}: missing. {table.kind} needs it; add for example {example}.")
    steps = {k: StepSize(v.scale, v.decay) for k, v in given.items() if isinstance(v, Step)}
    numbers = {k: v for k, v in given.items() if not isinstance(v, Step)}
    options = Options(steps, numbers, by_channel(table.init), table.protocol)
    return entry.build(options, s.privacy.guarantee)


def _stream_spec(s: Scenario) -> str | dict[str, Any]:
    stream = s.problem.stream
    if isinstance(stream, str):
        return stream
    return stream.model_dump(exclude_none=True)


def _records(problem: Problem, shards: Shards, clip: Clip) -> dict[Kind, tuple[Any, ...]]:
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
    # The same file is the same scenario, from wherever it is named.
    for (table, key), path in s.files().items():
        content[table][key] = blake2b(path.read_bytes()).hexdigest()
    # Images are told by their contents and by which of them are for testing, wherever their files are.
    content["problem"].pop("files", None)
    told = (shards.features, shards.labels, *((shards.test,) if s.problem.data in COLLECTIONS else ()))
    records = [blake2b(a.tobytes()).digest() for a in told]
    return seeded_root(s.seed, json.dumps(content, sort_keys=True).encode() + b"".join(records))
