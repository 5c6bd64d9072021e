"""What a scenario names, built: records, dealt or with their agents; algorithm, stream."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from decentral_dp.algorithms import ALGORITHMS, Entry, Options
from decentral_dp.algorithms.entry import example_of
from decentral_dp.algorithms.protocol import Algorithm, Coordinated, StepSize
from decentral_dp.config.algorithm_schema import AlgorithmTable, DomainTable, Step
from decentral_dp.config.components import Components
from decentral_dp.config.problem_schema import Column
from decentral_dp.config.schema import Scenario, by_channel
from decentral_dp.data import SYNTHETIC, Dataset, Shards, Stream, make_shards
from decentral_dp.data.agent_shards import AGENT, AgentShards, public_ranges, read_manifest
from decentral_dp.data.synthetic import USUAL_SIZES, require_memory
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.regular import is_there
from decentral_dp.problems import PROBLEMS
from decentral_dp.user_code import blamed, call

# More agents than this, and their records are dealt before their graph is built.
_MANY_AGENTS = 100_000
_ABSENT = (
    "The records are with their agents (problem.manifest), and scores of them are left out; run.agent_scores = true "
    "has agents send such scores, which nothing protects."
)
_SCORED = (
    "The records are with their agents (problem.manifest). Agents sent scores of them (run.agent_scores), which are "
    "the simulator's view and no part of what the budget covers."
)
# Keys of the [problem] table that say how the records of all are dealt, or read what the manifest tells.
NOT_BESIDE = {
    "partition": "every agent's file says who holds what",
    "test": "the files say which records are for testing",
    "construction": "nobody has all records",
    "limit": "nobody counts the records of all",
    "files": "every agent has one file",
    "features": "the manifest says how many",
    "classes": "the manifest lists them",
}


def check_sizes(c: Components) -> None:
    """Refuse what many agents cannot share, or made-up records that do not fit here, before their graph is built.

    Raises InputError.
    """
    s = c.scenario
    agents, table = s.topology.agents, s.problem.synthetic
    if agents is None:
        return
    if s.problem.data in SYNTHETIC:
        sizes = {"records": table.records, "test_records": table.test_records, "d": table.dimension}
        if c.drawn:
            require_memory(agents, **USUAL_SIZES | {key: n for key, n in sizes.items() if n is not None})
    elif agents > _MANY_AGENTS and s.topology.kind is not None:
        deal(c, agents)


# Records.


def deal(c: Components, n_agents: int) -> tuple[Shards, AgentShards | None]:
    """The records, dealt to agents and split; or what everyone knows of them, and where they are with their agents."""
    table = c.scenario.problem
    if (elsewhere := agent_shards_of(c, n_agents)) is not None:
        known = elsewhere.public()
        note = c.rules.unscored or (_SCORED if c.scenario.run.agent_scores else _ABSENT)
        return replace(known, notes=(*known.notes, note)), elsewhere
    partition = c.partition.make()
    validation = table.validation.model_dump() if isinstance(table.validation, Column) else table.validation
    dataset = c.data.make(n_agents, c.strict, c.drawn)
    _check_trajectories(c, dataset)
    shards = make_shards(
        dataset,
        n_agents,
        seed=c.scenario.records_seed,
        partition_spec=partition,
        validation=validation,
        test=table.test,
        scale_spec=scale_of(c),
        normalisation=table.normalise,
        certified=c.strict,
        root=c.scenario.folder,
        levels=c.levels,
        label_range=table.label_range,
        construction=None if table.construction is None else table.construction.model_dump(exclude_none=True),
    )
    return shards, None


def scale_of(c: Components) -> Any:
    """How features are scaled, a file by its path."""
    path = c.files.get(("problem", "scale"))
    return c.scenario.problem.scale if path is None else str(path)


def _check_trajectories(c: Components, dataset: Dataset) -> None:
    """Refuse trajectories where records are wanted, and the reverse. Raises InputError."""
    played, kind = dataset.trajectory is not None, c.scenario.problem.kind
    wanted = played if c.problem.is_outside else PROBLEMS[kind].trajectories
    if played == wanted:
        return
    which = "whole trajectories" if played else "no trajectories"
    mend = (
        f"Only {', '.join(name for name, entry in PROBLEMS.items() if entry.trajectories)} reads them."
        if played
        else "Take cartpole, acrobot or pong, or a .npz file with observations, rewards and lengths."
    )
    raise InputError(f"problem.data: the records of {dataset.source!r} are {which}, and {kind} cannot use them. {mend}")


def place_of(s: Scenario) -> str:
    """Where the agents have their files: an absolute path with {agent}, beside the manifest's own start."""
    place = os.path.expanduser(s.problem.data)
    # Files of agents need not be there, so the manifest tells where relative paths start.
    manifest = os.path.expanduser(s.problem.manifest or "")
    return os.path.abspath((s.folder if is_there(s.folder / manifest) else Path.cwd()) / place)


def agent_shards_of(c: Components, n_agents: int) -> AgentShards | None:
    """Where the records are, if they are with their agents; opens the manifest alone.

    Raises:
        InputError: keys that such records do not go with, or a manifest that does not fit.
    """
    table = c.scenario.problem
    if table.manifest is None:
        if AGENT in table.data:
            raise InputError(
                f"problem.manifest: missing. Every agent has a file of its own in problem.data = {quoted(table.data)}, "
                'and a public manifest says what they hold. "decentral-dp shards" writes one.'
            )
        return None
    _check_elsewhere(c)
    manifest = read_manifest(c.files.get(("problem", "manifest"), Path(table.manifest)))
    if len(manifest.agents) != n_agents:
        raise InputError(
            f"problem.manifest: it lists {len(manifest.agents)} agents, and the topology has {n_agents}. Make them "
            "equally many."
        )
    given = table.label_range
    return AgentShards(
        place_of(c.scenario),
        manifest,
        table.label,
        table.validation.column if isinstance(table.validation, Column) else None,
        public_ranges(manifest, scale_of(c), c.scenario.folder, table.columns),
        table.normalise,
        None if given is None else (given[0], given[1]),
        c.levels,
        table.columns,
    )


def _check_elsewhere(c: Components) -> None:
    """Refuse keys that records with their agents do not go with. Raises InputError."""
    table = c.scenario.problem
    if c.data.is_outside:
        raise InputError("problem.manifest: records that are handed over are here already. Leave one of the two out.")
    if AGENT not in table.data:
        raise InputError(
            f"problem.data: got {quoted(table.data)} beside a manifest, wanted the place of every agent's file, such "
            f'as "shards/agent-{AGENT}.npz".'
        )
    for key, why in NOT_BESIDE.items():
        if getattr(table, key) is not None:
            raise InputError(f"problem.{key}: beside problem.manifest it has no use, for {why}. Leave it out.")
    if isinstance(table.validation, float):
        raise InputError(
            "problem.validation: beside problem.manifest every agent's file says which records are for validation. "
            "Leave it out, or name that column."
        )


def stream_of(s: Scenario) -> Stream:
    """Which records a round reads."""
    spec = s.problem.stream
    return Stream.from_spec(spec if isinstance(spec, str) else spec.model_dump(exclude_none=True))


# The algorithm.


def algorithm_of(c: Components) -> Algorithm | Coordinated:
    """The algorithm, with every key that it needs and none that it would leave unread."""
    table, entry, privacy = c.scenario.algorithm, c.algorithm, c.scenario.privacy
    if table.protocol == "private" and not entry.private:
        raise InputError(f'algorithm.protocol: {table.kind} knows no "private" protocol. Leave it out.')
    taken = {o.key: o for o in entry.keys}
    _check_taken(table.kind, [key for key in c.keys if key not in taken])
    _check_sampler(table, entry)
    for key in entry.options:
        if key not in c.keys:
            add = example_of(taken[key])
            raise InputError(f"algorithm.{key}: missing. {table.kind} needs it; add for example {add}.")
    if privacy.constants is not None and privacy.guarantee in entry.loss_range:
        raise InputError(
            f"privacy.constants: {table.kind} draws by losses, and how far losses of records differ no declared "
            'constant says, so that nothing bounds what one record moves. Take "second_order_dp_bilevel", or a problem '
            "with analytic constants."
        )
    values = {k: _value(v) for k, v in c.keys.items() if not isinstance(v, DomainTable)}
    options = Options(values, by_channel(table.init), table.protocol)
    if not entry.origin:
        return entry.build(options, privacy.guarantee)
    if privacy.guarantee == "as_printed" and entry.complete is not None:
        raise InputError(f'privacy.guarantee: {table.kind} states no noise of a paper. Use "certified", or "none".')
    made: Algorithm | Coordinated = call(
        entry.build,
        {"options": options, "guarantee": privacy.guarantee},
        lambda e: f"algorithm.kind: {table.kind} cannot be made: {blamed(e)}. Mend it, or its keys.",
    )
    return made


def _check_taken(kind: str, unread: Sequence[str]) -> None:
    """Refuse keys that the algorithm would leave unread, all at once. Raises InputError."""
    if not unread:
        return
    refused = f"{', '.join(f'algorithm.{key}' for key in unread)}: {kind} takes none of these. Leave them out"
    if len(unread) == 1:
        takers = [name for name, e in ALGORITHMS.items() if unread[0] in (*e.options, *e.optional)]
        refused = f"algorithm.{unread[0]}: {kind} takes none, only {', '.join(takers)}. Leave it out"
    options = " ".join(f"--unset algorithm.{key}" for key in unread)
    raise InputError(f"{refused}.", command=f"{refused} ({options}).")


def _value(given: Any) -> Any:
    """The value of a field."""
    if isinstance(given, Step):
        return StepSize(given.scale, given.decay)
    return tuple(given) if isinstance(given, list) else given


def _check_sampler(table: AlgorithmTable, entry: Entry) -> None:
    """Refuse samples that are no Poisson samples, and a sampler where nothing is sampled. Raises InputError."""
    if table.sampler is None:
        return
    if entry.solves != "minimax" or "rate" not in (*entry.options, *entry.optional):
        raise InputError(f"algorithm.sampler: {table.kind} takes none. Leave it out.")
    if table.sampler != "poisson":
        raise InputError(
            f"algorithm.sampler: {quoted(table.sampler)} samples cannot be priced, only Poisson samples can: batches "
            "with fixed counts per class are none, and how many records a class has is private. Leave it out, or set "
            '"poisson".'
        )


def check_levels(c: Components, terms: Collection[str]) -> None:
    """Refuse an algorithm of two levels where nothing is tuned.

    Args:
        c: what the scenario names.
        terms: that its releases are made of.

    Raises:
        InputError: the problem has one level, and they read more than the gradient of the lower loss.
    """
    if c.one_level and not set(terms) <= {"lower_grad_y"}:
        s = c.scenario
        raise InputError(
            f"algorithm.kind: {s.algorithm.kind} solves a bilevel problem, and {s.problem.kind} has nothing to tune. "
            'Take "dp_dsgd" or "ldp_single_level".'
        )
