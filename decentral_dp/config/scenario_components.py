"""Records, problem, algorithm, clipping norms and sampling of a job, built from the components of a scenario."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.algorithms.protocol import ONE_LEVEL, AnyAlgorithm, StepSize
from decentral_dp.bounded import CHANNELS, Norm
from decentral_dp.config.components import Components
from decentral_dp.config.loading import refuse_unread, toml_value
from decentral_dp.config.outside import problem_type
from decentral_dp.config.schema import (
    DomainTable,
    ProblemTable,
    Scenario,
    Schedule,
    by_channel,
    csv_of,
)
from decentral_dp.data import SYNTHETIC, Sampling, Shards, make_shards
from decentral_dp.data.agent_shards import AGENT, AgentShards, public_ranges, read_shard_manifest
from decentral_dp.data.synthetic import USUAL_SIZES, require_memory
from decentral_dp.errors import InputError, Refusal, refuse
from decentral_dp.models import devices
from decentral_dp.privacy.clipping import Clip
from decentral_dp.privacy.schedules import schedule_points
from decentral_dp.problems import PROBLEMS, TYPES, ProblemEntry, ProblemFacts
from decentral_dp.problems.protocol import CLIP_OF_TERM, PlannedTraining, Predictor, Problem
from decentral_dp.problems.training import Poisson
from decentral_dp.topology import Topology
from decentral_dp.user_code import convert_failures

# Samplings for which an agent has all records from the start, in no public order.
CENTRED_SAMPLINGS = ("full", "fixed_batch", "poisson")
_UNSCORED = "The records are with their agents (problem.manifest), and scores of them are left out."
_ABSENT = (
    "The agents hold their records (problem.manifest), and metrics on them are left out. With run.agent_scores = true "
    "agents send such metrics without noise."
)
_SCORED_NOTE = (
    "The agents hold their records (problem.manifest), and sent metrics on them (run.agent_scores): a non-private "
    "evaluation, not covered by ε."
)
# Keys of [problem] that do not apply with a manifest.
NOT_BESIDE = ("partition", "parts", "members", "test", "construction", "classes")


_RECORDS: tuple[Refusal[Components], ...] = (
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and c.data.value is not None,
        "problem.manifest",
        "cannot be combined with custom records",
        "remove one of the two",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is None and AGENT in c.scenario.problem.data,
        "problem.manifest",
        "missing. It is a public list of the contents of the agents' files in problem.data",
        "write one as in docs/add_data.md",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and AGENT not in c.scenario.problem.data,
        "problem.data",
        "not the path of each agent's file, as a manifest requires (got {of.scenario.problem.data})",
        f'use for example "shards/agent-{{{AGENT}}}.npz"',
    ),
    Refusal(
        lambda c: (
            c.scenario.problem.manifest is not None
            and next((key for key in NOT_BESIDE if getattr(c.scenario.problem, key) is not None), None)
        ),
        "problem.{it}",
        "not supported with problem.manifest",
        "remove it",
    ),
    Refusal(
        lambda c: c.scenario.problem.manifest is not None and isinstance(c.scenario.problem.validation, float),
        "problem.validation",
        "not supported with problem.manifest",
        "remove it",
    ),
)


def _points_in_papers(c: Components) -> str:
    """Return the key of the first schedule with points if the guarantee is "as_published", otherwise ""."""
    privacy = c.scenario.privacy
    if privacy.guarantee != "as_published":
        return ""
    tables = {f"algorithm.{k}": v for k, v in c.keys.items()} | {f"privacy.{k}": privacy.noise(k) for k in CHANNELS}
    return next((key for key, table in tables.items() if getattr(table, "points", None)), "")


_ALGORITHM: tuple[Refusal[Components], ...] = (
    Refusal(
        lambda c: next((o for o in c.algorithm.keys if o.required and o.key not in c.keys), None),
        "algorithm.{it.key}",
        "missing, and required by {of.algorithm.kind}",
        "set it, for example {it.line}",
    ),
    Refusal(
        lambda c: c.keys.get("centring") and c.scenario.privacy.guarantee == "as_published",
        "algorithm.centring",
        "not part of the published algorithm",
        "remove it",
    ),
    Refusal(
        _points_in_papers,
        "{it}.points",
        "published schedules have scale and decay only",
        "remove points",
    ),
)


def check_sizes(c: Components) -> None:
    """Raise InputError, before a graph is built, if the synthetic records would exceed the memory."""
    agents, table = c.scenario.topology.agents, c.scenario.problem.synthetic
    if c.scenario.problem.data in SYNTHETIC and c.draws_records and agents is not None:
        sizes = {"records": table.records, "test_records": table.test_records, "d": table.dimension}
        require_memory(agents, **USUAL_SIZES | {key: n for key, n in sizes.items() if n is not None})


# Records.


def deal(c: Components, n_agents: int) -> tuple[Shards, AgentShards | None]:
    """Return the partitioned and split records, or only public facts about them together with the agents' files.

    Raises InputError.
    """
    table = c.scenario.problem
    if (elsewhere := agent_shards_of(c, n_agents)) is not None:
        public = elsewhere.public()
        note = _SCORED_NOTE if c.scenario.run.agent_scores else _ABSENT
        note = _UNSCORED if c.algorithm.trusts_coordinator or c.problem_type.make_evaluator else note
        return replace(public, notes=(*public.notes, note)), elsewhere
    parts, members = table.parts or n_agents, table.members
    if members is not None:
        _require_agents("members", len(members), n_agents)
    elif named := getattr(table.partition, "agents", None):
        _require_agents("partition.agents", len(named), n_agents)
    else:
        _require_agents("parts", parts, n_agents)
    partition = c.partition.make()
    dataset = c.data.make(parts, c.strict, c.draws_records)
    is_environment, entry = dataset.trajectory is not None, c.problem_entry
    if entry is not None and entry.trajectories != is_environment:
        raise InputError(
            f"problem.data: {entry.kind} reads {'single records' if is_environment else 'whole trajectories'} "
            f"(got {dataset.source!r}). Fix: use other data. Trajectories are cartpole, and .npz files with "
            "observations, rewards and lengths."
        )
    shards = make_shards(
        dataset,
        parts,
        parts_key="topology.agents" if table.parts is None else "problem.parts",
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
    return shards if members is None else shards.select(members), None


def place_of_shards(s: Scenario) -> str:
    """Return the absolute path of the agents' files, with {agent}, relative to the same folder as the manifest."""
    place = os.path.expanduser(s.problem.data)
    # The files of agents may be on other machines.
    manifest = os.path.expanduser(s.problem.manifest or "")
    return os.path.abspath((s.folder if os.path.exists(s.folder / manifest) else Path.cwd()) / place)


def agent_shards_of(c: Components, n_agents: int) -> AgentShards | None:
    """Read the manifest, and return the files of the agents, or None if the scenario has no manifest.

    Raises:
        InputError: a key does not apply with a manifest, or the manifest has a different number of agents.
    """
    table = c.scenario.problem
    refuse(c, _RECORDS)
    if table.manifest is None:
        return None
    manifest = read_shard_manifest(c.files.get(("problem", "manifest"), Path(table.manifest)))
    _require_agents("manifest", len(manifest.agents), n_agents)
    limits = table.label_range
    return AgentShards(
        place_of_shards(c.scenario),
        manifest,
        table.label,
        table.validation if isinstance(table.validation, str) else None,
        public_ranges(manifest, table.scale, table.columns),
        table.normalise,
        None if limits is None else (limits[0], limits[1]),
        c.levels,
        table.columns,
        csv_of(table),
    )


def _require_agents(key: str, count: int, n_agents: int) -> None:
    """Raise InputError unless the number of agents is that of the graph."""
    if count != n_agents:
        problem = f"number of agents differs from topology.agents (got {count}, expected {n_agents})"
        raise InputError(f"problem.{key}: {problem}. Fix: set topology.agents = {count}.")


def sampling_of(s: Scenario) -> Sampling:
    """Return the sampling of records."""
    spec = s.problem.sampling
    return Sampling() if isinstance(spec, str) else Sampling(spec.kind, spec.batch_size, spec.warm_start, spec.rate)


# The algorithm.


def algorithm_of(c: Components) -> AnyAlgorithm:
    """Build the algorithm. Raises InputError for a missing or unusable key."""
    table, entry, privacy = c.scenario.algorithm, c.algorithm, c.scenario.privacy
    refuse(c, _ALGORITHM)
    values = {k: _value(v) for k, v in c.keys.items() if not isinstance(v, DomainTable)}
    start = by_channel(table.init)
    if entry.proved:
        return entry.build(values, start, privacy.guarantee)
    with convert_failures(f"algorithm.kind: {table.kind}", "correct its code, or change its keys"):
        return entry.build(values, start, privacy.guarantee)


def _value(value: Any) -> Any:
    """Return the value of a key, converted to the type of the algorithm's field."""
    if isinstance(value, Schedule):
        return StepSize(value.scale, value.decay, schedule_points(value.points))
    return tuple(value) if isinstance(value, list) else value


def check_terms(c: Components, terms: Collection[str]) -> None:
    """Check that the problem and the form of privacy.clip suit the terms that the algorithm releases.

    Args:
        c: components of the scenario.
        terms: terms that the algorithm releases.

    Raises:
        InputError: the problem has one level but the releases read more than the gradient of the lower loss, several
            gradients share one clipping norm, or a single gradient has a table of norms.
    """
    clip, kind = c.scenario.privacy.clip, c.scenario.algorithm.kind
    is_bilevel = c.algorithm.trusts_coordinator or not set(terms) <= set(ONE_LEVEL)
    if is_bilevel and c.one_level:
        problem = f"algorithm.kind: {kind} requires a bilevel problem (got {c.scenario.problem.kind})"
        fix = 'use "dp_dsgd" or "ldp_single_level"'
    elif is_bilevel and terms and not isinstance(clip, dict):
        families = sorted({CLIP_OF_TERM.get(term, "x") for term in terms})
        names = " and ".join(filter(None, (", ".join(families[:-1]), families[-1])))
        problem = f"privacy.clip: one number for an algorithm that clips {names} (got {_clip_text(clip)}, "
        problem += "expected a table)"
        fix = f"clip = {{ {', '.join(f'{family} = 1.0' for family in families)} }}"
    elif not is_bilevel and isinstance(clip, dict) and clip and not ("x" in clip and c.keys.get("centring")):
        problem = (
            f"privacy.clip: a table for {kind}, which clips one gradient (got {_clip_text(clip)}, expected one norm)"
        )
        fix = f"clip = {_clip_text(clip.get('y', 1.0))}"
    else:
        return
    raise InputError(f"{problem}. Fix: {fix}.")


def _clip_text(clip: Any) -> str:
    """Write a value of privacy.clip as TOML."""
    if isinstance(clip, dict):
        return f"{{ {', '.join(f'{channel} = {_clip_text(norm)}' for channel, norm in clip.items())} }}"
    return toml_value(clip.model_dump(exclude_unset=True) if isinstance(clip, Schedule) else clip)


def link_keys(s: Scenario, topology: Topology) -> str:
    """Return the first key of messages along edges, which agents of a server do not send; "" if there are none."""
    if topology.over_time is not None:
        return "topology.over_time, drop, offline, delay"
    if s.topology.compression is not None:
        return "topology.compression"
    return next((f"privacy.box.{channel}" for channel in s.privacy.domain), "")


def check_server(s: Scenario, topology: Topology) -> None:
    """Raise InputError for keys about messages along edges if the agents answer a server."""
    if key := link_keys(s, topology):
        raise InputError(f"{key}: the agents of {s.algorithm.kind} send messages to a server only. Fix: remove it.")


def problem_options(c: Components) -> dict[str, Any]:
    """Return the options of the problem, by their key in [problem], without reading records.

    Raises InputError for a missing key, or one that the problem does not support.
    """
    table, entry = c.scenario.problem, c.problem_entry
    if entry is None:
        problem = c.problem.make()
        if isinstance(problem, partial):
            return dict(problem.keywords)
        return dict(vars(problem)) if isinstance(c.problem.value, type) else {}
    if c.levels == 1 and table.validation is not None:
        problem_noun = table.kind if c.one_level else f"a {entry.solves} problem"
        raise InputError(f"problem.validation: not supported by {problem_noun}. Fix: remove it.")
    return _declared_options(table, entry)


def _declared_options(table: ProblemTable, entry: ProblemEntry) -> dict[str, Any]:
    """Return the options of a registered problem. Raises InputError."""
    options = {key: value for key, value in table.own_keys().items() if value is not False}
    if table.model is not None:
        options["model"] = table.model
    refuse_unread("problem", table.kind, options, entry.options)
    for key, share in entry.construction_of.items():
        if (value := getattr(table.construction, share, None)) is not None:
            options.setdefault(key, value)
    for key in entry.required_keys:
        if key not in options:
            raise InputError(f"problem.{key}: missing, and required by {table.kind}. Fix: set it.")
    return options


def _build_registered(entry: ProblemEntry, options: Mapping[str, Any], facts: ProblemFacts) -> Any:
    # The released share replaces 0.5 before use. Predictions do not depend on it.
    released = {"positive_share": 0.5} if isinstance(options.get("positive_share"), str) else {}
    return entry.build({**options, **released}, facts)


def predictor_of(s: Scenario, facts: ProblemFacts) -> Predictor | None:
    """Return the registered problem for predictions, or None if the problem is custom or cannot predict.

    Args:
        s: scenario with the problem.
        facts: public facts about its data.
    """
    entry = PROBLEMS.get(s.problem.kind)
    if entry is None:
        return None
    predictor = _build_registered(entry, _declared_options(s.problem, entry), facts)
    predictor = with_clip(predictor, s, clip_of(s, "l1" if s.privacy.mechanism == "laplace" else "l2"))
    return predictor if isinstance(predictor, Predictor) else None


def clip_of(s: Scenario, norm: Norm) -> Clip:
    """Return the clipping norms of privacy.clip, with their schedules."""
    shares = {c: replace(_value(v), scale=1.0) for c, v in s.privacy.clips.items() if isinstance(v, Schedule)}
    bounds = by_channel(s.privacy.clips)
    envelope = s.privacy.adversary != "all_messages"
    return Clip(norm, *(bounds.get(c, np.inf) for c in CHANNELS), shares=tuple(shares.items()), envelope=envelope)


def with_clip(problem: Any, s: Scenario, clip: Clip) -> Any:
    """Return a planned problem with the clipping norms of the last round.

    The problem is returned unchanged if local steps are clipped jointly. The clipping norm of x applies to privately
    centred features.
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
        {} if s.privacy.guarantee == "none" else by_channel(s.privacy.clips),
    )


def make_problem(c: Components, shards: Shards) -> Any:
    """Build a registered problem, or a custom one, either whole or from per-record formulas. Raises InputError."""
    if c.problem_entry is not None:
        problem = _build_registered(c.problem_entry, problem_options(c), _facts(c, shards))
        limits = shards.label_range
        if isinstance(getattr(problem, "loss", None), Poisson) and (limits is None or limits[0] != 0.0):
            # The range may be inferred from labels, and is not quoted.
            raise InputError(
                "problem.label_range: the Poisson loss is that of counts (expected a range from 0). Fix: set "
                "label_range = [0, high], or another problem.loss."
            )
        return problem
    facts, name, kind = _facts(c, shards), c.problem.name, c.problem_type
    author = _for_data(c.problem.make(), facts, name, kind.name)
    if hasattr(author, kind.members[0]):
        members = (*kind.members, *(() if c.problem.is_object else kind.evaluation_members))
        if missing := [member for member in members if not hasattr(author, member)]:
            raise InputError(
                f"problem.kind: {name} lacks {', '.join(missing)} of a problem with its own clipping. Fix: "
                "define them, or write the formulas of one record."
            )
        return author
    return kind.make_custom(author, facts, name, c.scenario.problem.model)


def check_run_device(c: Components) -> None:
    """Raise InputError for a device that is missing or that the problem does not use, without reading records."""
    s, entry, device = c.scenario, c.problem_entry, c.scenario.run.device
    if device != "cpu" and entry is not None and not c.problem_type.uses_devices:
        raise InputError(_on_processor(entry.kind))
    devices.check_device(device, "run.device")
    devices_used = {device, "cpu" if isinstance(c.problem.value, type) else getattr(c.problem.value, "device", "cpu")}
    if s.run.engine == "ray" and devices_used != {"cpu"}:
        raise InputError(
            'run.device: Ray actors have no GPU (got "cuda"). Fix: set run.engine = "local", or run.device = "cpu".'
        )


def _on_processor(kind: str) -> str:
    models = "".join(f" and models of {t.name} problems" for t in TYPES.values() if t.uses_devices)
    return (
        f"run.device: {kind} computes in numpy, on the CPU. Only custom problems in torch{models} can use "
        '"cuda". Fix: remove it.'
    )


def _for_data(problem: Any, facts: ProblemFacts, name: str, solves: str) -> Any:
    """Return the result of a custom function, or of `for_data`, with public facts; other objects are unchanged.

    Raises:
        InputError: the call raises, or does not return a problem.
    """
    if isinstance(problem, partial):
        make, values = problem, facts.named_in(problem.func, problem.keywords)
    elif hasattr(problem, "for_data"):
        make, values = problem.for_data, {"facts": facts}
    else:
        return problem
    with convert_failures(f"problem.kind: {name}"):
        problem_made = make(**values)
    if problem_type(problem_made, name) != solves:
        raise InputError(
            f"problem.kind: {name} returns {type(problem_made).__name__}, expected a {solves} problem. Fix: return one."
        )
    return problem_made


def problem_of(c: Components, shards: Shards) -> Problem:
    """Build the problem on its device. Raises InputError."""
    problem: Problem = make_problem(c, shards)
    device = c.scenario.run.device
    if device == "cpu" or c.problem_type.uses_devices:
        # An object stays on its device.
        return problem
    from decentral_dp.problems.bilevel.losses import LossProblem, on_device

    if isinstance(problem, LossProblem):
        return on_device(problem, device)
    if getattr(problem, "device", "cpu") != device:
        raise InputError(_on_processor(c.problem.name))
    return problem
