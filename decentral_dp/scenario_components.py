"""What a scenario names, built: topology, records, problem, algorithm, stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp import topology as topologies
from decentral_dp.algorithms import ALGORITHMS, OPTIONS, Entry, Options
from decentral_dp.algorithms.central.protocol import Coordinated
from decentral_dp.algorithms.protocol import Algorithm, StepSize
from decentral_dp.config import outside, outside_functions
from decentral_dp.data import Dataset, Shards, Stream, make_shards, nearest
from decentral_dp.data import load as load_data
from decentral_dp.errors import InputError, quoted
from decentral_dp.problems import PROBLEMS, Facts
from decentral_dp.problems.minimax import MINIMAX, MinimaxFacts, model_of
from decentral_dp.problems.minimax.protocol import Minimax
from decentral_dp.problems.protocol import Problem
from decentral_dp.schema import (
    AlgorithmTable,
    Column,
    DomainTable,
    ModelTable,
    Partition,
    ProblemTable,
    Scenario,
    Step,
    by_channel,
)
from decentral_dp.topology import Topology

# Numbers of the [algorithm] table as an example gives them; its other keys are step sizes.
_NUMBERS: Mapping[str, int | float] = {
    "inner": 5,
    "inverse": 5,
    "smoothness": 2.0,
    "momentum": 0.5,
    "penalty": 1.0,
    "rate": 0.1,
    "candidates": 65,
    "strength": 1.0,
    "period": 4,
    "longest": 1.0,
}
# Options of the [problem] table that minimax problems may read.
MINIMAX_OPTIONS = (
    "model",
    "positive_share",
    "group_shares",
    "generator",
    "divergence",
    "order",
    "level",
    "strength",
    "loss",
    "cap",
    "radius",
    "discount",
    "latent",
    "penalty",
    "ridge",
    "groups",
)
# Those that only bilevel problems have a use for.
_BILEVEL_OPTIONS = ("validation", "intercept", "corrupt", "losses", "tasks", "ways", "width")
_WORDS: Mapping[str, str] = {
    "domain": '{ kind = "box", low = -5.0, high = 0.0 }',
    "solver": '"dp_gd"',
    "method": '"ppift"',
}


def topology_of(s: Scenario) -> Topology:
    """The graph and its weights."""
    table = s.topology
    seed = table.seed if table.seed is not None else _public_seed(s)
    found = outside.component(s, "topology")
    if found is not None:
        return outside_functions.build_topology(s, found, seed)
    if table.file is not None:
        if table.model_extra:
            key = next(iter(table.model_extra))
            mend = topologies.of_a_rule(key) or "leave it out"
            raise InputError(f"topology.{key}: a topology from a file takes no such key; {mend}.")
        path = s.files().get(("topology", "file"), Path(table.file))
        return topologies.from_file(path, table.weights, table.agents)
    if table.kind is None or table.agents is None:
        raise InputError("topology: give kind and agents, or file.")
    return topologies.build(table.kind, table.agents, table.model_extra or {}, table.weights or "metropolis", seed)


def _public_seed(s: Scenario) -> int:
    """Partition, split and random graphs are public; without a seed they must not hang on a secret one."""
    return s.seed if s.seed is not None else 0


def _dataset(s: Scenario, n_agents: int, seed: int, certified: bool) -> Dataset:
    """The records that the scenario names, or was given."""
    found = outside.component(s, "data")
    if found is not None:
        return outside_functions.build_dataset(s, found, n_agents, seed, certified)
    table, partition, validation = s.problem, s.problem.partition, s.problem.validation
    synthetic = table.synthetic.model_dump(exclude_none=True)
    return load_data(
        str(s.files().get(("problem", "data"), table.data)),
        n_agents=n_agents,
        seed=seed,
        label=table.label,
        classes=table.classes,
        agent=partition.name if isinstance(partition, Partition) else None,
        split=validation.column if isinstance(validation, Column) else None,
        root=s.folder,
        certified=certified,
        files=s.image_files(),
        limit=table.limit,
        d=synthetic.pop("dimension", None),
        **synthetic,
    )


def shards_of(s: Scenario, n_agents: int) -> Shards:
    """The records, dealt to agents and split."""
    table = s.problem
    # What a paper's noise is worth is stated for a trusted coordinator, too, so nothing may leak around it.
    certified = s.privacy.guarantee == "certified" or (s.privacy.guarantee == "as_printed" and is_coordinated(s))
    seed = table.seed if table.seed is not None else _public_seed(s)
    validation = table.validation.model_dump() if isinstance(table.validation, Column) else table.validation
    partition: Any = (
        table.partition.model_dump(exclude_none=True) if isinstance(table.partition, Partition) else table.partition
    )
    if (deal := outside.component(s, "partition")) is not None:
        partition = outside_functions.dealer(s, deal)
    scale = s.files().get(("problem", "scale"))
    dataset = _dataset(s, n_agents, seed, certified)
    minimax = is_minimax(s)
    found = outside.component(s, "problem")
    if found is None or dataset.trajectory is None:
        _check_trajectories(s, dataset, found is None and minimax and MINIMAX[table.kind].trajectories)
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
        levels=1 if minimax else 2,
        construction=None if table.construction is None else table.construction.model_dump(exclude_none=True),
    )


def is_minimax(s: Scenario) -> bool:
    """Whether the problem is a minimax one. Raises InputError where there is none, or the algorithm is not for it."""
    kind, found = s.problem.kind, outside.component(s, "problem")
    if found is not None:
        name = outside.name_of(s, "problem")
        return _check_posed(s, name, outside.poses(found, name))
    if kind not in PROBLEMS and kind not in MINIMAX:
        known = [*PROBLEMS, *MINIMAX]
        raise InputError(f"problem.kind: no problem {kind!r}; {nearest(kind, known)}.")
    return _check_posed(s, kind, "minimax" if kind in MINIMAX else "bilevel")


def _check_posed(s: Scenario, kind: str, posed: str) -> bool:
    """Whether the problem is a minimax one. Raises InputError where the algorithm is for the others."""
    solves = _entry(s).solves
    if solves != posed:
        fit = ", ".join(sorted(MINIMAX if solves == "minimax" else PROBLEMS))
        raise InputError(f"problem.kind: {s.algorithm.kind} is for {solves} problems, and {kind} is none. Take {fit}.")
    return posed == "minimax"


def minimax_options(s: Scenario) -> dict[str, Any]:
    """What a scenario says of its minimax problem, by key of the [problem] table. Reads no record.

    Raises InputError for what the problem would leave unread, or lacks.
    """
    table = s.problem
    if (found := outside.component(s, "problem")) is not None:
        return dict(vars(outside.instance(s, found, outside.table_options(table)))) if isinstance(found, type) else {}
    entry = MINIMAX[table.kind]
    for key in _BILEVEL_OPTIONS:
        if getattr(table, key):
            raise InputError(f"problem.{key}: a minimax problem takes none. Leave it out.")
    given = {k: v for k in MINIMAX_OPTIONS if (v := getattr(table, k)) is not None}
    for key in given:
        if key not in entry.options:
            raise InputError(f"problem.{key}: {table.kind} takes none. Leave it out.")
    if "positive_share" in entry.options and table.construction is not None and table.construction.share is not None:
        # The construction declares it.
        given.setdefault("positive_share", table.construction.share)
    for key in entry.needed:
        if key not in given:
            raise InputError(f"problem.{key}: missing. {table.kind} needs it.")
    return {k: v.model_dump(exclude_none=True) if isinstance(v, ModelTable) else v for k, v in given.items()}


def minimax_of(s: Scenario, shards: Shards) -> Minimax:
    """The minimax problem, from public facts of the data."""
    if (found := outside.component(s, "problem")) is not None:
        return _minimax_from_outside(s, shards, found)
    entry, options = MINIMAX[s.problem.kind], minimax_options(s)
    if entry.every_class:
        _check_present(s, shards)
    if (loss := s.files().get(("problem", "loss"))) is not None:
        options["loss"] = str(loss)
    if isinstance(options.get("positive_share"), str):
        options["positive_share"] = _positive_share(s, shards)
    return entry.build(_minimax_facts(s, shards, options))


def _minimax_facts(s: Scenario, shards: Shards, options: Mapping[str, Any]) -> MinimaxFacts:
    return MinimaxFacts(
        shards.features.shape[1],
        len(shards.classes),
        options,
        shards.image,
        s.problem.seed if s.problem.seed is not None else _public_seed(s),
        s.run.device,
        s.folder,
        shards.l2,
        shards.trajectory,
        {} if s.privacy.guarantee == "none" else by_channel(s.privacy.clip),
    )


def _minimax_from_outside(s: Scenario, shards: Shards, found: Any) -> Minimax:
    """The minimax problem of an author's class or object: an objective on a model's outputs, or the whole."""
    table, name = s.problem, outside.name_of(s, "problem")
    author = outside.instance(s, found, outside.table_options(table))
    options = {} if table.model is None else {"model": table.model.model_dump(exclude_none=True)}
    facts = _minimax_facts(s, shards, options)
    author = author.for_data(facts) if hasattr(author, "for_data") else author
    if hasattr(author, "sums"):
        whole: Minimax = author
        return whole
    from decentral_dp.problems.minimax.composite import Composite
    from decentral_dp.problems.minimax.recordwise_objective import recordwise_objective

    objective = author if hasattr(author, "statistics") else recordwise_objective(author, len(shards.classes), name)
    outputs = objective.outputs if hasattr(objective, "outputs") else max(1, len(shards.classes))
    return Composite(model_of(facts, outputs), objective)


def _check_trajectories(s: Scenario, dataset: Dataset, wanted: bool) -> None:
    """Refuse trajectories where records are wanted, and the reverse. Raises InputError."""
    played = dataset.trajectory is not None
    if played == wanted:
        return
    which = "whole trajectories" if played else "no trajectories"
    mend = (
        f"Only {', '.join(name for name, entry in MINIMAX.items() if entry.trajectories)} reads them."
        if played
        else "Take cartpole, acrobot or pong, or a .npz file with observations, rewards and lengths."
    )
    raise InputError(
        f"problem.data: the records of {dataset.source!r} are {which}, and {s.problem.kind} cannot use them. {mend}"
    )


def _positive_share(s: Scenario, shards: Shards) -> float:
    """A stand-in for what is released before it is used; or the counted share, which nothing certifies."""
    if s.problem.positive_share == "released":
        return 0.5
    return float(np.mean(shards.labels[np.concatenate(shards.train)] == 1))


def _check_present(s: Scenario, shards: Shards) -> None:
    """Refuse a declared class without a train record, where the problem says nothing of the others without it.

    Which classes have records is private. Like a malformed record it is told to whoever holds the file, when it is
    loaded, and nothing is released. Raises InputError.
    """
    if not shards.classes:
        return
    counts = np.bincount(shards.labels[np.concatenate(shards.train)], minlength=len(shards.classes))
    if (counts == 0).any():
        label = shards.classes[int(np.argmin(counts))]
        raise InputError(
            f"problem.data: no train record of {shards.source!r} has the class {label!r}, and {s.problem.kind} needs "
            "records of every class. Give other records, or other classes."
        )


def problem_of(s: Scenario, shards: Shards) -> Problem:
    """The problem, from public facts of the data."""
    table, found = s.problem, outside.component(s, "problem")
    if found is None:
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
    if found is None:
        return PROBLEMS[table.kind].build(facts)
    author = outside.instance(s, found, outside.table_options(table))
    author = author.for_data(facts) if hasattr(author, "for_data") else author
    if hasattr(author, "terms"):
        whole: Problem = author
        return whole
    from decentral_dp.problems.recordwise import recordwise

    return recordwise(author, facts.n_features, facts.n_classes, outside.name_of(s, "problem"))


def _check_options(table: ProblemTable) -> None:
    """Refuse what the problem would silently leave unread."""
    taken = PROBLEMS[table.kind].options
    own = ("ridge", "groups", "corrupt", "tasks", "ways", "width", "losses")
    options = {k: getattr(table, k) for k in (*own, *MINIMAX_OPTIONS)}
    given = {"intercept": table.intercept or None, **options}
    for key in (k for k, value in given.items() if value is not None and k not in taken):
        options_of = {k: e.options for k, e in PROBLEMS.items()} | {k: e.options for k, e in MINIMAX.items()}
        takers = ", ".join(name for name, options in options_of.items() if key in options)
        raise InputError(f"problem.{key}: {table.kind} takes none, only {takers}. Leave it out.")


def example(key: str) -> str:
    """A key of the [algorithm] table as a scenario could give it: a number, or a step size."""
    if key in _WORDS:
        return f"{key} = {_WORDS[key]}"
    return f"{key} = {_NUMBERS[key]}" if key in _NUMBERS else f"{key} = {{ scale = 0.1, decay = 0.5 }}"


def _entry(s: Scenario) -> Entry:
    kind = s.algorithm.kind
    if kind not in ALGORITHMS:
        raise InputError(f"algorithm.kind: no algorithm {kind!r}; {nearest(kind, ALGORITHMS)}.")
    return ALGORITHMS[kind]


def is_coordinated(s: Scenario) -> bool:
    """Whether the algorithm is the program of a trusted coordinator."""
    return _entry(s).trusted


def algorithm_of(s: Scenario) -> Algorithm | Coordinated:
    """The algorithm, with every key that it needs and none that it would leave unread."""
    table, entry = s.algorithm, _entry(s)
    if table.protocol == "private" and not entry.private:
        raise InputError(f'algorithm.protocol: {table.kind} knows no "private" protocol. Leave it out.')
    given = {key: value for key in OPTIONS if (value := getattr(table, key)) is not None}
    for key in given:
        if key not in (*entry.options, *entry.optional):
            takers = [name for name, e in ALGORITHMS.items() if key in (*e.options, *e.optional)]
            raise InputError(f"algorithm.{key}: {table.kind} takes none, only {', '.join(takers)}. Leave it out.")
    _check_sampler(table, entry)
    for key in entry.options:
        if key not in given:
            raise InputError(f"algorithm.{key}: missing. {table.kind} needs it; add for example {example(key)}.")
    steps = {k: StepSize(v.scale, v.decay) for k, v in given.items() if isinstance(v, Step)}
    numbers = {k: v for k, v in given.items() if not isinstance(v, Step | DomainTable)}
    options = Options(steps, numbers, by_channel(table.init), table.protocol)
    return entry.build(options, s.privacy.guarantee)


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


def stream_of(s: Scenario) -> Stream:
    """Which records a round reads."""
    spec = s.problem.stream
    return Stream.from_spec(spec if isinstance(spec, str) else spec.model_dump(exclude_none=True))
