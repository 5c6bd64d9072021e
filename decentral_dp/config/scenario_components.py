"""What a scenario names, built: topology, records, problem, algorithm, stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, create_model

from decentral_dp import topology as topologies
from decentral_dp.algorithms import ALGORITHMS, Entry, Options
from decentral_dp.algorithms.coordinator_protocol import Coordinated
from decentral_dp.algorithms.entry import example_of
from decentral_dp.algorithms.outside_algorithms import entry_of_class
from decentral_dp.algorithms.protocol import Algorithm, StepSize
from decentral_dp.config import outside_components as outside
from decentral_dp.config import outside_functions
from decentral_dp.config.algorithm_fields import own_fields
from decentral_dp.config.loading import explain
from decentral_dp.config.schema import (
    ALGORITHM_TABLES,
    AlgorithmTable,
    Column,
    DomainTable,
    MechanismTable,
    ModelTable,
    OutsideAlgorithmTable,
    Partition,
    ProblemTable,
    Scenario,
    Step,
    by_channel,
)
from decentral_dp.data import Dataset, Shards, Stream, make_shards, nearest
from decentral_dp.data import load as load_data
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.mechanisms import MECHANISMS, Mechanism, mechanism_of
from decentral_dp.privacy.mechanisms.outside_mechanism import options_of
from decentral_dp.privacy.mechanisms.outside_mechanism import outside as outside_mechanism
from decentral_dp.problems import PROBLEMS, Facts
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.problems.minimax.facts import MinimaxFacts, model_of
from decentral_dp.problems.minimax.protocol import Minimax
from decentral_dp.problems.protocol import Problem
from decentral_dp.topology import Topology
from decentral_dp.user_code import USER_ERRORS, find_outside, in_file, reason

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


def mechanism_of_scenario(s: Scenario) -> Mechanism:
    """The mechanism that the scenario names: a registered one, or one from outside. Raises InputError."""
    table, kind = s.privacy.mechanism, s.privacy.mechanism_kind
    if kind in MECHANISMS:
        return mechanism_of(kind)
    found = find_outside("mechanism", kind, s.folder, "privacy.mechanism")
    if found is None:
        raise InputError(f"privacy.mechanism: got {quoted(kind)}, which is not installed here. Install its package.")
    return outside_mechanism(found, {} if isinstance(table, str) else table.model_extra or {})


def with_mechanism(s: Scenario, given: Any) -> tuple[Scenario, Mechanism]:
    """The scenario with an object from outside for its mechanism, and the mechanism."""
    made = outside_mechanism(given, {})
    table = MechanismTable.model_construct(kind=made.name, **options_of(made))
    return s.model_copy(update={"privacy": s.privacy.model_copy(update={"mechanism": table})}), made


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
    solves = entry_of(s).solves
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
    if entry.every_class and s.privacy.guarantee != "certified":
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

    Which classes have records is private, so that a certified run goes on: its normalisers are public, the number of
    records and the declared shares, and an empty class adds 0 to every sum. Raises InputError.
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
    from decentral_dp.problems.bilevel.recordwise import recordwise

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


def entry_of(s: Scenario) -> Entry:
    """What is known of the algorithm; one from outside is found once. Raises InputError where there is none."""
    kind = s.algorithm.kind
    if s._outside is not None and s._outside[0] == kind:
        entry: Entry = s._outside[1]
        return entry
    if kind in ALGORITHMS:
        return ALGORITHMS[kind]
    found = find_outside("algorithm", kind, s.folder, "algorithm.kind")
    if found is None:
        raise InputError(f"algorithm.kind: no algorithm {kind!r}; {nearest(kind, ALGORITHMS)}.")
    entry = outside_entry(found, kind)
    s._outside = (kind, entry)
    return entry


def outside_source(s: Scenario) -> str:
    """What an algorithm from outside does, where no file that the scenario names says it; else nothing."""
    try:
        return entry_of(s).source if isinstance(s.algorithm, OutsideAlgorithmTable) else ""
    except InputError:
        # Refused where it is built.
        return ""


def outside_entry(found: Any, kind: str) -> Entry:
    """The entry of a class that a file or an installed package has. Raises InputError for what is no algorithm."""
    place = in_file(kind)
    if place is not None:
        # The file itself is hashed, wherever it is.
        return entry_of_class(found, kind, place.file)
    return entry_of_class(found, kind, "an installed package", digest_of(found))


def with_algorithm(s: Scenario, algorithm: Any) -> Scenario:
    """The scenario with an algorithm that is given as a Python object: a dataclass with its fields filled in.

    Raises InputError for what is no algorithm.
    """
    made = type(algorithm)
    ours = next((entry for entry in ALGORITHMS.values() if entry.algorithm is made), None)
    entry = ours or entry_of_class(made, made.__name__, "a Python object", digest_of(made))
    values = {o.key: getattr(algorithm, o.key) for o in entry.keys if o.key != "domain"}
    # Fields that are no keys are in no scenario.
    hidden = {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.name not in values}
    steps = {k: {"scale": v.scale, "decay": v.decay} for k, v in values.items() if isinstance(v, StepSize)}
    lists = {k: list(v) for k, v in values.items() if isinstance(v, tuple)}
    given = {k: v for k, v in (values | steps | lists).items() if v is not None}
    if "domain" in s.algorithm.own_keys() and "domain" in (*entry.options, *entry.optional):
        given["domain"] = s.algorithm.own_keys()["domain"]
    common = {"kind": entry.kind, "rounds": s.algorithm.rounds, "init": s.algorithm.init}
    made_scenario = s.model_copy(update={"algorithm": OutsideAlgorithmTable.model_validate(common | given)})
    source = f"{entry.source} {digest_of(dict(sorted(hidden.items())))}"
    made_scenario._outside = (entry.kind, entry._replace(instance=algorithm, source=source))
    return made_scenario


def is_coordinated(s: Scenario) -> bool:
    """Whether the algorithm is the program of a trusted coordinator."""
    return entry_of(s).trusted


def own_keys(s: Scenario) -> dict[str, Any]:
    """What the scenario says of the algorithm's own keys. Raises InputError for values that they cannot have."""
    if not isinstance(s.algorithm, OutsideAlgorithmTable):
        return s.algorithm.own_keys()
    made: Any = own_fields(entry_of(s).keys, ALGORITHM_TABLES)
    table = create_model("AlgorithmKeys", __base__=AlgorithmTable, **made)
    root = create_model("Scenario", algorithm=(table, ...))
    try:
        checked: Any = root.model_validate({"algorithm": s.algorithm.model_dump(exclude_unset=True)})
    except ValidationError as error:
        raise InputError(explain(error, root)) from None
    keys: dict[str, Any] = checked.algorithm.own_keys()
    return keys


def algorithm_of(s: Scenario) -> Algorithm | Coordinated:
    """The algorithm, with every key that it needs and none that it would leave unread."""
    table, entry = s.algorithm, entry_of(s)
    if table.protocol == "private" and not entry.private:
        raise InputError(f'algorithm.protocol: {table.kind} knows no "private" protocol. Leave it out.')
    given, taken = own_keys(s), {o.key: o for o in entry.keys}
    for key in given:
        if key not in taken:
            takers = [name for name, e in ALGORITHMS.items() if key in (*e.options, *e.optional)]
            raise InputError(f"algorithm.{key}: {table.kind} takes none, only {', '.join(takers)}. Leave it out.")
    _check_sampler(table, entry)
    for key in entry.options:
        if key not in given:
            add = example_of(taken[key])
            raise InputError(f"algorithm.{key}: missing. {table.kind} needs it; add for example {add}.")
    if s.privacy.constants is not None and s.privacy.guarantee in entry.loss_range:
        raise InputError(
            f"privacy.constants: {table.kind} draws by losses, and how far losses of records differ no declared "
            'constant says, so that nothing bounds what one record moves. Take "second_order_dp_bilevel", or a problem '
            "with analytic constants."
        )
    values = {k: _value(v) for k, v in given.items() if not isinstance(v, DomainTable)}
    options = Options(values, by_channel(table.init), table.protocol)
    if not entry.origin:
        return entry.build(options, s.privacy.guarantee)
    if s.privacy.guarantee == "as_printed" and entry.complete is not None:
        raise InputError(f'privacy.guarantee: {table.kind} states no noise of a paper. Use "certified", or "none".')
    try:
        return entry.build(options, s.privacy.guarantee)
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(
            f"algorithm.kind: {table.kind} cannot be made: {reason(error)}. Mend it, or its keys."
        ) from error


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


def stream_of(s: Scenario) -> Stream:
    """Which records a round reads."""
    spec = s.problem.stream
    return Stream.from_spec(spec if isinstance(spec, str) else spec.model_dump(exclude_none=True))
