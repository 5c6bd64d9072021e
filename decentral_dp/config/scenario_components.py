"""What a scenario names, built: topology, records, problem, algorithm, stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from decentral_dp import topology as topologies
from decentral_dp.config import outside as outside
from decentral_dp.config import outside as outside_functions
from decentral_dp.config.algorithm_components import entry_of, is_coordinated
from decentral_dp.config.problem_components import is_minimax, public_seed
from decentral_dp.config.problem_schema import Column, Partition
from decentral_dp.config.schema import MechanismTable, Scenario
from decentral_dp.config.shard_components import agent_shards_of
from decentral_dp.data import SYNTHETIC, Dataset, Shards, Stream, make_shards
from decentral_dp.data import load as load_data
from decentral_dp.data.synthetic import USUAL_SIZES, require_memory
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.mechanisms import MECHANISMS, Mechanism, mechanism_of
from decentral_dp.privacy.mechanisms.outside_mechanism import options_of
from decentral_dp.privacy.mechanisms.outside_mechanism import outside as outside_mechanism
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.topology import Topology
from decentral_dp.user_code import find_outside


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
    chosen = s.model_copy(update={"privacy": s.privacy.model_copy(update={"mechanism": table})})
    chosen._objects = {**s._objects, "mechanism": type(given).__name__}
    return chosen, made


def topology_of(s: Scenario) -> Topology:
    """The graph and its weights."""
    table = s.topology
    seed = table.seed if table.seed is not None else public_seed(s)
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


# More agents than this, and their records are dealt before their graph is built.
_MANY_AGENTS = 100_000


def check_sizes(s: Scenario) -> None:
    """Refuse what many agents cannot share, or made-up records that do not fit here, before their graph is built.

    Raises InputError.
    """
    agents, table = s.topology.agents, s.problem.synthetic
    if agents is None:
        return
    if s.problem.data in SYNTHETIC:
        sizes = {"records": table.records, "test_records": table.test_records, "d": table.dimension}
        if s._drawn:
            require_memory(agents, **USUAL_SIZES | {key: n for key, n in sizes.items() if n is not None})
    elif agents > _MANY_AGENTS and s.topology.kind is not None:
        shards_of(s, agents)


def dataset_of(s: Scenario, n_agents: int, seed: int, certified: bool) -> Dataset:
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
        features=table.features,
        d=synthetic.pop("dimension", None),
        drawn=s._drawn,
        **synthetic,
    )


def shards_of(s: Scenario, n_agents: int) -> Shards:
    """The records, dealt to agents and split; what everyone knows of them where they are with their agents."""
    table = s.problem
    if (elsewhere := agent_shards_of(s, n_agents)) is not None:
        return elsewhere.public()
    # What a paper's noise is worth is stated for a trusted coordinator, too, so nothing may leak around it.
    certified = s.privacy.guarantee == "certified" or (s.privacy.guarantee == "as_printed" and is_coordinated(s))
    seed = table.seed if table.seed is not None else public_seed(s)
    validation = table.validation.model_dump() if isinstance(table.validation, Column) else table.validation
    partition: Any = (
        table.partition.model_dump(exclude_none=True) if isinstance(table.partition, Partition) else table.partition
    )
    if (deal := outside.component(s, "partition")) is not None:
        partition = outside_functions.dealer(s, deal)
    scale = s.files().get(("problem", "scale"))
    dataset = dataset_of(s, n_agents, seed, certified)
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
        label_range=table.label_range,
        construction=None if table.construction is None else table.construction.model_dump(exclude_none=True),
    )


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


def without_records(s: Scenario) -> Scenario:
    """The scenario, for a plan that draws no records where they are made up and their numbers alone count.

    Elsewhere, as it is: where a component from outside is tried on records, where labels or features decide who holds
    what or how it is scaled, and where a coordinator's problem reads labels.
    """
    table = s.problem
    ours = all(outside.component(s, what) is None for what in ("problem", "data", "partition"))
    if (
        not ours
        or table.data not in SYNTHETIC
        or entry_of(s).origin
        or is_coordinated(s)
        or table.partition not in (None, "iid")
        or table.construction is not None
        or table.scale != "none"
    ):
        return s
    chosen = s.model_copy()
    chosen._drawn = False
    return chosen


def stream_of(s: Scenario) -> Stream:
    """Which records a round reads."""
    spec = s.problem.stream
    return Stream.from_spec(spec if isinstance(spec, str) else spec.model_dump(exclude_none=True))
