"""From the names of a scenario to objects: records, problem, algorithm, clip and stream."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp import annexes
from decentral_dp.algorithms import Options
from decentral_dp.algorithms.entry import rules_of
from decentral_dp.algorithms.protocol import ONE_LEVEL, AnyAlgorithm, StepSize
from decentral_dp.bounded import CHANNELS, Norm
from decentral_dp.config.components import Components
from decentral_dp.config.loading import refuse_unread
from decentral_dp.config.outside import problem_type
from decentral_dp.config.schema import (
    DomainTable,
    ProblemTable,
    Scenario,
    Schedule,
    by_channel,
    csv_of,
)
from decentral_dp.data import SYNTHETIC, Shards, Stream, make_shards
from decentral_dp.data.agent_shards import AGENT, AgentShards, public_ranges, read_shard_manifest
from decentral_dp.data.synthetic import USUAL_SIZES, require_memory
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.models import devices
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.schedules import schedule_points
from decentral_dp.problems import PROBLEMS, ProblemEntry, ProblemFacts
from decentral_dp.problems.protocol import PlannedTraining, Predictor, Problem
from decentral_dp.problems.saddle import Saddle
from decentral_dp.topology import Topology
from decentral_dp.user_code import blame, call

# Streams of records of which an agent has all from the start, in no public order.
CENTRED_STREAMS = ("all", "minibatch", "poisson")
_ABSENT = (
    "The records are with their agents (problem.manifest), and scores of them are left out; run.agent_scores = true "
    "has agents send such scores, which nothing protects."
)
_SCORED_NOTE = (
    "The records are with their agents (problem.manifest). Agents sent scores of them (run.agent_scores), which are "
    "the simulator's view and no part of what the budget covers."
)
# Keys of [problem] that the files of agents or their manifest answer.
NOT_BESIDE = ("partition", "test", "construction", "limit", "classes")


_RECORDS: tuple[Refusal[Components], ...] = (
    Refusal(
        lambda c: c.scenario.problem.manifest is None and AGENT in c.scenario.problem.data,
        "problem.manifest",
        "missing. Every agent has a file of its own in problem.data, and a public manifest lists their contents",
        "write one with simulation.folder.shards.write_shards",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and c.data.is_outside,
        "problem.manifest",
        "records that are handed over are here already",
        "leave one of the two out",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and AGENT not in c.scenario.problem.data,
        "problem.data",
        "a manifest needs the path of every agent's file (got {of.scenario.problem.data})",
        f'give for example "shards/agent-{{{AGENT}}}.npz"',
    ),
    Refusal(
        lambda c: (
            c.scenario.problem.manifest is not None
            and next((key for key in NOT_BESIDE if getattr(c.scenario.problem, key) is not None), None)
        ),
        "problem.{it}",
        "it has no use with problem.manifest",
        "leave it out",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and isinstance(c.scenario.problem.validation, float),
        "problem.validation",
        "it has no use with problem.manifest",
        "leave it out",
    ),
)


def _points_in_papers(c: Components) -> str:
    """The first schedule with points, of which papers have none."""
    privacy = c.scenario.privacy
    if privacy.guarantee != "as_published":
        return ""
    tables = {f"algorithm.{k}": v for k, v in c.keys.items()} | {f"privacy.{k}": privacy.noise(k) for k in CHANNELS}
    return next((key for key, table in tables.items() if getattr(table, "points", None)), "")


_ALGORITHM: tuple[Refusal[Components], ...] = (
    Refusal(
        lambda c: next((o for o in c.algorithm.keys if o.key in c.algorithm.options and o.key not in c.keys), None),
        "algorithm.{it.key}",
        "missing. {of.algorithm.kind} needs it",
        "add for example {it.line}",
    ),
    Refusal(
        _points_in_papers,
        "{it}.points",
        "papers state power laws, scale and decay only",
        "leave points out",
    ),
)


def check_sizes(c: Components) -> None:
    """Refuse synthetic records that need more memory than there is, before a graph is built. Raises InputError."""
    agents, table = c.scenario.topology.agents, c.scenario.problem.synthetic
    if c.scenario.problem.data in SYNTHETIC and c.draws_records and agents is not None:
        sizes = {"records": table.records, "test_records": table.test_records, "d": table.dimension}
        require_memory(agents, **USUAL_SIZES | {key: n for key, n in sizes.items() if n is not None})


# Records.


def deal(c: Components, n_agents: int) -> tuple[Shards, AgentShards | None]:
    """The records, dealt to agents and split; or what everyone knows of them, and where they are with their agents."""
    table = c.scenario.problem
    if (elsewhere := agent_shards_of(c, n_agents)) is not None:
        known = elsewhere.public()
        minimax = rules_of("coordinator_minimax").unscored_note if c.algorithm.solves == "minimax" else ""
        note = c.algorithm.rules.unscored_note or minimax or (_SCORED_NOTE if c.scenario.run.agent_scores else _ABSENT)
        return replace(known, notes=(*known.notes, note)), elsewhere
    partition = c.partition.make()
    dataset = c.data.make(n_agents, c.strict, c.draws_records)
    played, entry = dataset.trajectory is not None, c.problem_entry
    if entry is not None and entry.trajectories != played:
        raise InputError(
            f"problem.data: {entry.kind} reads {'single records' if played else 'whole trajectories'} (got "
            f"{dataset.source!r}). Fix: take other records; cartpole, and .npz files with observations, rewards and "
            "lengths, are trajectories."
        )
    shards = make_shards(
        dataset,
        n_agents,
        seed=c.scenario.records_seed,
        partition_spec=partition,
        validation={"column": table.validation} if isinstance(table.validation, str) else table.validation,
        test=table.test,
        scale_spec=c.scenario.problem.scale,
        normalisation=table.normalise,
        levels=c.levels,
        label_range=table.label_range,
        construction=None if table.construction is None else table.construction.model_dump(exclude_none=True),
    )
    return shards, None


def place_of_shards(s: Scenario) -> str:
    """Where the agents have their files: an absolute path with {agent}, beside the manifest's own start."""
    place = os.path.expanduser(s.problem.data)
    # Files of agents need not be there, so the manifest tells where relative paths start.
    manifest = os.path.expanduser(s.problem.manifest or "")
    return os.path.abspath((s.folder if os.path.exists(s.folder / manifest) else Path.cwd()) / place)


def agent_shards_of(c: Components, n_agents: int) -> AgentShards | None:
    """Where the records are, if they are with their agents; opens the manifest alone.

    Raises:
        InputError: keys that such records do not go with, or a manifest that does not fit.
    """
    table = c.scenario.problem
    refuse(c, _RECORDS)
    if table.manifest is None:
        return None
    manifest = read_shard_manifest(c.files.get(("problem", "manifest"), Path(table.manifest)))
    if len(manifest.agents) != n_agents:
        raise InputError(
            f"problem.manifest: it lists {len(manifest.agents)} agents, and the topology has {n_agents}. Fix: make "
            "them equally many."
        )
    given = table.label_range
    return AgentShards(
        place_of_shards(c.scenario),
        manifest,
        table.label,
        table.validation if isinstance(table.validation, str) else None,
        public_ranges(manifest, table.scale, table.columns),
        table.normalise,
        None if given is None else (given[0], given[1]),
        c.levels,
        table.columns,
        csv_of(table),
    )


def stream_of(s: Scenario) -> Stream:
    """Which records a round reads."""
    spec = s.problem.stream
    return Stream() if isinstance(spec, str) else Stream(spec.kind, spec.batch, spec.warm_start, spec.rate)


# The algorithm.


def algorithm_of(c: Components) -> AnyAlgorithm:
    """The algorithm, with every key that it needs and none that it would leave unread. Raises InputError."""
    table, entry, privacy = c.scenario.algorithm, c.algorithm, c.scenario.privacy
    refuse(c, _ALGORITHM)
    values = {k: _value(v) for k, v in c.keys.items() if not isinstance(v, DomainTable)}
    options = Options(values, by_channel(table.init))
    if not entry.custom:
        return entry.build(options, privacy.guarantee)
    made: AnyAlgorithm = call(
        entry.build,
        {"options": options, "guarantee": privacy.guarantee},
        lambda e: f"algorithm.kind: {table.kind} cannot be made: {blame(e)}. Mend it, or its keys.",
    )
    return made


def _value(value: Any) -> Any:
    """The value of a field."""
    if isinstance(value, Schedule):
        return StepSize(value.scale, value.decay, schedule_points(value.points))
    return tuple(value) if isinstance(value, list) else value


def check_levels(c: Components, terms: Collection[str]) -> None:
    """Refuse an algorithm of two levels where nothing is tuned.

    Args:
        c: what the scenario names.
        terms: that its releases are made of.

    Raises:
        InputError: the problem has one level, and they read more than the gradient of the lower loss.
    """
    if c.one_level and not set(terms) <= set(ONE_LEVEL):
        raise InputError(
            f"algorithm.kind: {c.scenario.algorithm.kind} solves a bilevel problem, and {c.scenario.problem.kind} has "
            'nothing to tune. Take "dp_dsgd" or "ldp_single_level".'
        )


# Members of a custom problem that clips by itself; the first one identifies it.
_PROBLEM_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "bilevel": ("terms", "p", "q", "reads_records", "prepare", "regulariser"),
    "minimax": ("sums", *"pq", "start", "terms", "width", "prepare", "public", "public_ball", "project_x", "project_y"),
}
# Those that only evaluations need. An object may be for a plan only.
_EVALUATION_MEMBERS = {"bilevel": ("regulariser_value", "losses", "accuracy"), "minimax": ("scores",)}


def link_keys(s: Scenario, topology: Topology) -> str:
    """The first key of messages along links, which agents that answer a server do not have; "" if there is none."""
    if topology.over_time is not None:
        return "topology.over_time, drop, offline, delay"
    if s.topology.compression is not None:
        return "topology.compression"
    return next((f"privacy.box.{channel}" for channel in s.privacy.domain), "")


def check_server(s: Scenario, topology: Topology) -> None:
    """Refuse keys of messages along links if agents answer a server. Raises InputError."""
    if key := link_keys(s, topology):
        raise InputError(
            f"{key}: the agents of {s.algorithm.kind} answer a server, and no message goes along a link. Fix: leave it "
            "out."
        )


def problem_options(c: Components) -> dict[str, Any]:
    """What a scenario says of its problem, by key of the [problem] table. Reads no record.

    Raises InputError for what the problem would leave unread, or lacks.
    """
    table, entry = c.scenario.problem, c.problem_entry
    if entry is None:
        made = c.problem.make()
        if isinstance(made, partial):
            return dict(made.keywords)
        return dict(vars(made)) if isinstance(c.problem.value, type) else {}
    if c.levels == 1 and table.validation is not None:
        which = "a minimax problem" if entry.solves == "minimax" else table.kind
        raise InputError(f"problem.validation: {which} takes none. Leave it out.")
    return _declared_options(table, entry)


def _declared_options(table: ProblemTable, entry: ProblemEntry) -> dict[str, Any]:
    """The options of a registered problem. Raises InputError for what it would leave unread, or lacks."""
    given = {key: value for key, value in table.own_keys().items() if value is not False}
    if table.model is not None:
        given["model"] = table.model
    refuse_unread("problem", table.kind, given, entry.options)
    for key, share in entry.construction_of.items():
        if (value := getattr(table.construction, share, None)) is not None:
            given.setdefault(key, value)
    for key in entry.required_keys:
        if key not in given:
            raise InputError(f"problem.{key}: missing. {table.kind} needs it.")
    return given


def _build_registered(entry: ProblemEntry, options: Mapping[str, Any], facts: ProblemFacts) -> Any:
    # A share that is released takes the place of 0.5 before it is used. Predictions do not depend on it.
    released = {"positive_share": 0.5} if isinstance(options.get("positive_share"), str) else {}
    return entry.build({**options, **released}, facts)


def predictor_of(s: Scenario, facts: ProblemFacts) -> Predictor | None:
    """The registered problem whose weights predict, from public facts alone; None where it does not predict.

    Args:
        s: the scenario.
        facts: of its data.
    """
    entry = PROBLEMS.get(s.problem.kind)
    if entry is None:
        return None
    made = _build_registered(entry, _declared_options(s.problem, entry), facts)
    made = with_clip(made, s, clip_of(s, "l1" if s.privacy.mechanism == "laplace" else "l2"))
    return made if isinstance(made, Predictor) else None


def clip_of(s: Scenario, norm: Norm) -> Clip:
    """The table privacy.clip: bounds, and the share of each by round where it changes."""
    shares = {c: replace(_value(v), scale=1.0) for c, v in s.privacy.clip.items() if isinstance(v, Schedule)}
    bounds = by_channel(s.privacy.clip)
    return Clip(norm, *(bounds.get(c, np.inf) for c in CHANNELS), shares=tuple(shares.items()))


def with_clip(problem: Any, s: Scenario, clip: Clip) -> Any:
    """The problem that knows which clip its weights end on: none where an agent's steps are clipped as one.

    A clip of x, by which features are centred, is read where the algorithm asks for centring.
    """
    whole = s.privacy.unit == "agent" and s.algorithm.own_keys().get("local_steps")
    knows = isinstance(problem, PlannedTraining) and not whole and s.privacy.guarantee != "as_published"
    if not s.algorithm.own_keys().get("centring"):
        clip = replace(clip, x=np.inf)
    return problem.with_clip(clip.at(s.algorithm.rounds - 1)) if knows else problem


def _facts(c: Components, shards: Shards) -> ProblemFacts:
    s = c.scenario
    return ProblemFacts(
        shards.features.shape[1],
        len(shards.classes),
        shards.image,
        shards.n_agents,
        s.records_seed,
        s.run.device,
        c.model.value,
        shards.l2,
        shards.trajectory,
        {} if s.privacy.guarantee == "none" else by_channel(s.privacy.clip),
    )


def local_problem_of(c: Components, shards: Shards) -> Problem:
    """The problem as agents ask their own records about it, who trust nobody. Raises InputError."""
    if c.algorithm.solves == "bilevel":
        return problem_of(c, shards)
    return Saddle(make_problem(c, shards))


def make_problem(c: Components, shards: Shards) -> Any:
    """The problem: a registered one, or that of an author's class or object, whole or by formulas of single records."""
    if c.problem_entry is not None:
        return _build_registered(c.problem_entry, problem_options(c), _facts(c, shards))
    facts, name, solves = _facts(c, shards), c.problem.name, c.algorithm.solves
    author = _for_data(c.problem.make(), facts, name, solves)
    if hasattr(author, _PROBLEM_MEMBERS[solves][0]):
        wanted = (*_PROBLEM_MEMBERS[solves], *(() if c.problem.is_object else _EVALUATION_MEMBERS[solves]))
        if missing := [part for part in wanted if not hasattr(author, part)]:
            raise InputError(
                f"problem.kind: {name} lacks {', '.join(missing)}, which a whole problem that clips by itself has. "
                "Define it, or give formulas of single records."
            )
        return author
    if solves in annexes.AUTHORED:
        return annexes.import_place(annexes.AUTHORED[solves])(author, facts, name, c.scenario.problem.model)
    from decentral_dp.problems.bilevel.recordwise import recordwise

    return recordwise(author, facts.n_features, facts.n_classes, name)


def check_run_device(c: Components) -> None:
    """Refuse a device that is not there, or that the problem would not compute on. Reads no record.

    Raises InputError.
    """
    s, entry, device = c.scenario, c.problem_entry, c.scenario.run.device
    if device != "cpu" and entry is not None and entry.solves == "bilevel":
        raise InputError(_on_processor(entry.kind))
    devices.check_device(device, "run.device")
    wanted = {device, getattr(c.problem.value, "device", "cpu") if c.problem.is_object else "cpu"}
    if s.run.engine == "ray" and wanted != {"cpu"}:
        raise InputError(
            'run.device: Ray starts actors without a GPU. Take run.engine = "local", or compute on the "cpu".'
        )


def _on_processor(kind: str) -> str:
    return (
        f"run.device: {kind} computes in numpy, on the CPU; only custom problems in torch and models of "
        'minimax problems can use "cuda". Leave it out.'
    )


def _for_data(problem: Any, facts: ProblemFacts, name: str, solves: str) -> Any:
    """What an author's function or `for_data` makes of these public facts; without one, the object itself.

    Raises:
        InputError: it raises, or gives no problem.
    """
    if isinstance(problem, partial):
        make, given = problem, facts.named_in(problem.func, problem.keywords)
    elif hasattr(problem, "for_data"):
        make, given = problem.for_data, {"facts": facts}
    else:
        return problem
    made = call(make, given, lambda e: f"problem.kind: {name} fails: {blame(e)}. Fix it there.")
    if problem_type(made, name) != solves:
        raise InputError(
            f"problem.kind: {name} makes {type(made).__name__}, expected a {solves} problem. Fix it there."
        )
    return made


def problem_of(c: Components, shards: Shards) -> Problem:
    """The problem, from public facts of the data, on its device. Raises InputError."""
    problem: Problem = make_problem(c, shards)
    device = c.scenario.run.device
    if device == "cpu":
        # What is handed over as an object is where its maker put it.
        return problem
    from decentral_dp.problems.bilevel.losses import LossProblem, on_device

    if isinstance(problem, LossProblem):
        return on_device(problem, device)
    if getattr(problem, "device", "cpu") != device:
        raise InputError(_on_processor(c.problem.name))
    return problem
