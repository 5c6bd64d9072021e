"""Components of a scenario: registered ones, custom ones from modules, or Python objects. Each name is resolved once.

`resolve` is the first step of `build`. All later steps use `Components`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from pydantic import ValidationError, create_model

from decentral_dp import topology as topologies
from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.algorithms.options import NO_FIELDS, check_options
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import Source, explain, load_scenario, our_algorithm, refuse_unread
from decentral_dp.config.outside import (
    KEYS,
    Component,
    build_dataset,
    callable_with,
    dealer,
    instance,
    mechanism_with,
    problem_type,
    topology_with,
)
from decentral_dp.config.schema import (
    OBJECTS,
    AlgorithmTable,
    CustomKindTable,
    Files,
    Partition,
    Scenario,
    common_table,
    csv_of,
    declared_columns,
    own_types,
    table_of,
)
from decentral_dp.data import DATASETS, SYNTHETIC, Dataset, load_dataset
from decentral_dp.errors import InputError, converting, nearest_of, printable, quoted
from decentral_dp.files import trust
from decentral_dp.models.build import MODELS, ModelTable
from decentral_dp.privacy.custom_mechanism import OutsideMechanism, mechanism_options, register_outside
from decentral_dp.privacy.fingerprint import digest_of, digest_of_file, imports_of_folder
from decentral_dp.privacy.mechanisms import GAUSSIAN, MECHANISMS, Mechanism, mechanism_of
from decentral_dp.privacy.secret import Secret
from decentral_dp.problems import PROBLEMS, SOLVED, TYPES, ProblemEntry, ProblemType
from decentral_dp.topology import GENERATORS, Topology
from decentral_dp.topology.byzantine import AGGREGATIONS, STRENGTHS
from decentral_dp.topology.compression import KINDS as COMPRESSORS
from decentral_dp.user_code import component, in_module

# Component → registered components.
_REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "problem": PROBLEMS,
    "topology": GENERATORS,
    "data": DATASETS,
    "partition": {"iid": None},
    "model": dict.fromkeys(MODELS),
    "compression": dict.fromkeys(COMPRESSORS),
    "attack": STRENGTHS,
    "aggregation": dict.fromkeys(AGGREGATIONS),
}


class Objects(TypedDict, total=False):
    """Python objects that replace the components named in a scenario.

    Args:
        problem: result of `from_losses`, or an instance of a class (docs/add_a_problem.md).
        algorithm: an instance of its dataclass.
        mechanism: an instance of a class (docs/add_a_mechanism.md).
        topology: a `networkx.Graph`, a `Topology`, pairs of agents, a matrix, a list of these, or a function.
        data: (features, labels) as arrays or as lists with one array for each agent, a dict of columns, a pandas
            `DataFrame` with the column problem.label, or a `Dataset`.
        partition: a function of labels and agents.
    """

    problem: Any
    algorithm: Any
    mechanism: Any
    topology: Any
    data: Any
    partition: Any


@dataclass(frozen=True)
class Components:
    """Components of a scenario.

    Args:
        scenario: scenario of the components.
        files: (table, …, key) → absolute path of every data file.
        algorithm: entry of the algorithm, with the object if one was passed.
        keys: keys of the algorithm that are set in the scenario.
        mechanism: noise mechanism.
        problem: problem component.
        model: custom model of the problem.
        problem_entry: entry of a registered problem; None for a custom one.
        problem_type: type of the problem, which the algorithm must solve.
        topology: graph component.
        data: component of the records.
        partition: partition of the records over the agents.
        compression: compressor of messages.
        attack: attack of Byzantine agents.
        aggregation: robust aggregation of messages.
        draws_records: whether synthetic data are drawn. Some plans need only the numbers of records.
    """

    scenario: Scenario
    files: Files
    algorithm: Entry
    keys: Mapping[str, Any] = field(repr=False)
    mechanism: Mechanism
    problem: Component
    model: Component
    problem_entry: ProblemEntry | None
    problem_type: ProblemType
    topology: Component
    data: Component
    partition: Component
    compression: Component
    attack: Component
    aggregation: Component
    draws_records: bool = True

    @property
    def one_level(self) -> bool:
        """Whether the problem is registered and has no upper level, and therefore no validation records."""
        return self.problem_entry is not None and self.problem_entry.one_level

    @property
    def levels(self) -> int:
        """Number of levels: 2 if records are split for the lower and the upper level, otherwise 1."""
        return 1 if self.one_level else self.problem_type.levels

    @property
    def strict(self) -> bool:
        """Whether every access to records must have a ledger entry."""
        guarantee = self.scenario.privacy.guarantee
        # ε of published noise is also stated for a trusted coordinator.
        return guarantee == "certified" or (guarantee == "as_published" and self.algorithm.trusts_coordinator)

    @cached_property
    def _custom(self) -> tuple[Component, ...]:
        parts = (self.problem, self.model, self.data, self.partition, self.topology)
        return tuple(part for part in parts if part.value is not None)

    @property
    def objects(self) -> dict[str, str]:
        """Names of the Python objects, by component."""
        return dict(self.scenario._object_names)

    @property
    def has_proved_plan(self) -> bool:
        """Whether algorithm and problem belong to this package, whose planned releases are proved."""
        return self.algorithm.proved and self.problem_entry is not None

    @property
    def unverified(self) -> dict[str, str]:
        """Custom components with unchecked assumptions, with their names."""
        # Arrays and tables contain no code.
        parts = {
            part.role: part.name
            for part in self._custom
            if part.role != "data" or not part.is_object or callable(part.value)
        }
        parts |= {} if self.algorithm.proved else {"algorithm": self.algorithm.kind}
        is_custom_noise = isinstance(self.mechanism, OutsideMechanism) and self.scenario.privacy.guarantee != "none"
        return parts | ({"mechanism": self.mechanism.name} if is_custom_noise else {})

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the source, the imports and the values of each custom component."""
        # These read released values only, so ε does not depend on them.
        parts = (self.compression, self.attack, self.aggregation)
        of_messages = (part for part in parts if part.value is not None)
        return {part.role: digest_of(part.value) for part in (*self._custom, *of_messages)}

    def without_records(self) -> Components:
        """Return components for a plan that draws no synthetic data, if the numbers of records suffice.

        Records are needed if custom code reads them, if labels or features decide the partition or the scaling, or if a
        coordinator's problem reads labels.
        """
        table = self.scenario.problem
        counts = (
            not self.algorithm.trusts_coordinator
            and self.algorithm.proved
            and all(part.role == "topology" for part in self._custom)
            and table.data in SYNTHETIC
            and table.partition in (None, "iid")
            and table.construction is None
            and table.scale == "none"
        )
        return replace(self, draws_records=False) if counts else self


def load_components(scenario: Source, overrides: Sequence[str] = (), **objects: Unpack[Objects]) -> Components:
    """Load a scenario and resolve its components.

    Args:
        scenario: see `load`. Records and a graph passed as objects need no entry.
        overrides: "table.key=value" with a TOML value.
        **objects: Python objects instead of components.

    Raises:
        InputError: as in `load`, `with_objects` and `resolve`.
    """
    roles = [role for role, value in objects.items() if value is not None]
    return resolve(with_objects(load_scenario(scenario, overrides, objects=roles), **objects))


def resolve(s: Scenario) -> Components:
    """Resolve every name in a scenario to a component.

    Args:
        s: scenario, with Python objects instead of components.

    Raises:
        InputError: a name is unknown, a module does not contain the component, the algorithm does not solve the
            problem, or a Python object of an earlier run is missing.
    """
    missing = next(iter(s.objects), None)
    if missing is not None:
        raise InputError(
            f"objects.{missing}: the {missing} of this run was a Python object ({printable(s.objects[missing])}). Fix: "
            f"pass it again, decentral_dp.run(scenario, {missing}=…), or name a {missing} in the scenario and remove "
            "this line."
        )
    files, entry = trusted_files(s), algorithm_entry(s)
    named = (named_component(s, role) for role in KEYS)
    problem, model, topology, data, partition, compression, attack, aggregation = named
    registered = None if problem.value is not None else PROBLEMS.get(s.problem.kind)
    _check_solved(s, problem, registered, entry)
    root = create_model("Scenario", algorithm=(table_of(entry), ...))
    with converting(ValidationError, lambda error: explain(error, root)):
        tables: Any = root.model_validate({"algorithm": s.algorithm.model_dump(exclude_unset=True)})
    refuse_unread("algorithm", s.algorithm.kind, tables.algorithm.model_extra or {}, own_types(entry), root)
    return Components(
        scenario=s,
        files=files,
        algorithm=entry,
        keys=common_table(tables.algorithm).own_keys(),
        mechanism=_mechanism(s, entry.trusts_coordinator),
        problem=replace(problem, make=partial(instance, problem, s.problem.model_extra or {})),
        model=model,
        problem_entry=registered,
        problem_type=TYPES[entry.solves],
        topology=replace(topology, make=partial(_graph, topology, s, files)),
        data=replace(data, make=partial(_records, data, s, files), label=_label(s, data, files)),
        partition=replace(partition, make=partial(_partition, partition, s)),
        compression=_message_part(compression, getattr(s.topology.compression, "model_extra", {})),
        attack=_message_part(attack, {} if s.attack is None else s.attack.options),
        aggregation=_message_part(aggregation, getattr(s.topology.aggregation, "model_extra", {})),
    )


def _message_part(part: Component, options: Mapping[str, Any]) -> Component:
    """Return the custom component of messages, or None."""
    return part if part.value is None else replace(part, make=partial(callable_with, part, options))


def _label(s: Scenario, data: Component, files: Files) -> str:
    """Return the name of the data for display; "" for an object. The folders of a file name its owner."""
    is_file = data.value is None and (("problem", "data") in files or s.problem.manifest is not None)
    return "" if data.is_object else Path(s.problem.data).name if is_file else s.problem.data


def trusted_files(s: Scenario) -> Files:
    """Return the data files of a scenario, after checking that its code may be run.

    Raises:
        InputError: the scenario of a run folder names code that has not run on this machine before.
    """
    if trust.needs_trust(s.folder):
        code = s.code_files()
        for path in sorted({*code.values()}):
            for file in (path, *imports_of_folder(path)):
                trust.require_trust(file, file.read_bytes())
        for place, kind in s.modules().items():
            if place not in code:
                # A scenario can call any function of an installed module with its keys.
                trust.require_trust(Path(kind), kind.encode())
    return s.files()


def with_objects(s: Scenario, **objects: Unpack[Objects]) -> Scenario:
    """Return the scenario with Python objects instead of components. Raises InputError for an unusable object."""
    values: dict[str, Any] = {role: value for role, value in objects.items() if value is not None}
    if not values:
        return s
    updates: dict[str, Any] = {"objects": {role: kind for role, kind in s.objects.items() if role not in values}}
    names = {role: _name_of_object(role, values[role]) for role in sorted(KEYS) if role in values}
    replaced_tables = set(s._replaced_tables)
    if "algorithm" in values:
        entry = _entry_of_object(values["algorithm"])
        updates["algorithm"], values["algorithm"] = _algorithm_table(s, entry), entry
        replaced_tables |= {"algorithm"} if entry.kind != s.algorithm.kind else set()
        names |= {} if entry.proved else {"algorithm": entry.kind}
    if "mechanism" in values:
        names["mechanism"] = type(values["mechanism"]).__name__
        mechanism = values["mechanism"] = register_outside(mechanism_with(values["mechanism"], {}))
        table = {"kind": mechanism.name, **mechanism_options(mechanism)}
        updates["privacy"] = s.privacy.model_copy(update={"mechanism": table})
    chosen = s.model_copy(update=updates)
    chosen._objects, chosen._object_names, chosen._replaced_tables = (
        Secret(OBJECTS, values),
        names,
        frozenset(replaced_tables),
    )
    return chosen


def _object(s: Scenario, role: str) -> Any | None:
    """Return the Python object of a component, or None. Raises InputError if a copied scenario lacks it."""
    return s._objects().get(role) if s._objects or role in s._object_names else None


def algorithm_entry(s: Scenario) -> Entry:
    """Return the entry of the algorithm. Raises InputError if it does not exist."""
    kind = s.algorithm.kind
    entry: Entry | None = _object(s, "algorithm")
    if entry is not None:
        return entry
    if kind in ALGORITHMS:
        return ALGORITHMS[kind]
    definition = component(kind, s.code_paths, "algorithm.kind")
    if definition is None:
        near = nearest_of(our_algorithm(kind), ALGORITHMS)
        raise InputError(f"algorithm.kind: unknown algorithm {quoted(kind)}{near}")
    return entry_of_class(definition, kind, digest_of(definition))


def _entry_of_object(algorithm: Any) -> Entry:
    """Return the entry of an instance of an algorithm's dataclass. Raises InputError for a class."""
    if isinstance(algorithm, type):
        raise InputError(
            f"algorithm: got the class {algorithm.__name__}, expected an instance. Fix: pass {algorithm.__name__}(…)."
        )
    algorithm_type = type(algorithm)
    ours = next((entry for entry in ALGORITHMS.values() if entry.algorithm is algorithm_type), None)
    entry = ours or entry_of_class(algorithm_type, algorithm_type.__name__, digest_of(algorithm_type))
    # A custom class may have no base class that checks them.
    check_options(algorithm)
    # A scenario does not have the fields that are not keys.
    keys = {o.key for o in entry.keys if o.key not in NO_FIELDS}
    internal = {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.name not in keys}
    source = f"{entry.source} {digest_of(dict(sorted(internal.items())))}"
    return entry._replace(instance=algorithm, source=source)


def _algorithm_table(s: Scenario, entry: Entry) -> AlgorithmTable:
    """Return the table [algorithm] with the fields of an instance."""
    values = {o.key: getattr(entry.instance, o.key) for o in entry.keys if o.key not in NO_FIELDS}
    steps = {k: v.to_dict() for k, v in values.items() if isinstance(v, StepSize)}
    lists = {k: list(v) for k, v in values.items() if isinstance(v, tuple)}
    keys = {k: v for k, v in (values | steps | lists).items() if v is not None}
    around = {o.key for o in entry.keys} & set(NO_FIELDS)
    keys |= {k: v for k, v in s.algorithm.own_keys().items() if k in around}
    common = {"kind": entry.kind, "rounds": s.algorithm.rounds, "init": s.algorithm.init}
    return AlgorithmTable.model_validate(common | keys)


def _mechanism(s: Scenario, trusts_coordinator: bool) -> Mechanism:
    """Return the noise mechanism. Raises InputError if it does not exist."""
    kind = s.privacy.mechanism_kind
    mechanism: Any = _object(s, "mechanism")
    if mechanism is not None:
        return cast(Mechanism, mechanism)
    if kind in MECHANISMS:
        return mechanism_of(kind)
    if trusts_coordinator:
        # The coordinator's plan supports no other mechanism.
        return GAUSSIAN
    mechanism = component(kind, s.code_paths, "privacy.mechanism")
    return register_outside(mechanism_with(mechanism, s.privacy.mechanism_options))


def named_component(s: Scenario, role: str) -> Component:
    """Return a component of a scenario without the function that creates it. Raises InputError."""
    value = _object(s, role)
    if value is not None:
        return Component(role, s._object_names[role], value, is_object=True)
    table, key = KEYS[role]
    name = getattr(getattr(s, table), key, None)
    if isinstance(name, ModelTable | CustomKindTable):
        name = name.kind
    if not isinstance(name, str) or name in _REGISTRIES[role]:
        return Component(role, str(name))
    return Component(role, name, component(name, s.code_paths, f"{table}.{key}"))


def _graph(part: Component, s: Scenario, files: Files) -> Topology:
    """Build the graph, its mixing weights and its changes over time. Raises InputError."""
    table, extra = s.topology, s.topology.model_extra or {}
    seed = table.seed if table.seed is not None else s.public_seed
    kind, agents, directed = "isolated" if table.pooled else str(table.kind), table.agents, bool(table.directed)

    def generate(seed: int) -> Topology:
        return topologies.build_topology(kind, int(agents or 0), extra, table.weights, seed, directed)

    if part.value is not None:
        base = topology_with(part, table, seed, s.algorithm.rounds)
    elif table.file is not None:
        base = topologies.from_file(
            files.get(("topology", "file"), Path(table.file)), table.weights, agents, directed=directed
        )
    else:
        base = generate(seed)
    losses: dict[str, Any] = {
        key: value for key in ("drop", "offline", "delay") if (value := getattr(table, key)) is not None
    }
    if base.over_time is not None and table.over_time is not None:
        raise InputError(
            f"topology.over_time: {base.name} already changes over the rounds ({base.over_time.kind}). Fix: "
            "remove over_time."
        )
    if base.over_time is None and (table.over_time is not None or any(losses.values())):
        draw = generate if kind in GENERATORS and GENERATORS[kind].random else None
        base = topologies.time_varying(base, table.over_time or "fixed", seed, draw=draw)
    return base if base.over_time is None else replace(base, over_time=replace(base.over_time, **losses))


def _records(
    part: Component, s: Scenario, files: Files, agents: int, certified: bool, draws_records: bool = True
) -> Dataset:
    """Read or generate the records. Raises InputError.

    Args:
        part: data component of the scenario.
        s: scenario with the data.
        files: data files of the scenario.
        agents: number of agents m.
        certified: whether undeclared classes raise InputError.
        draws_records: whether synthetic data are drawn; otherwise only their sizes are returned.
    """
    table = s.problem
    if part.value is not None:
        return build_dataset(part, table, s.records_seed, agents, certified)
    synthetic = table.synthetic.model_dump(exclude_none=True)
    return load_dataset(
        str(files.get(("problem", "data"), table.data)),
        n_agents=agents,
        seed=s.records_seed,
        root=s.folder,
        d=synthetic.pop("dimension", None),
        draws_records=draws_records,
        **declared_columns(table)._asdict() | {"csv": csv_of(table), "certified": certified},
        **synthetic,
    )


def _partition(part: Component, s: Scenario) -> Any:
    """Return the partition in the form of `make_shards`. Raises InputError."""
    spec = s.problem.partition
    if part.value is not None:
        return dealer(part)
    return spec.model_dump(exclude_none=True) if isinstance(spec, Partition) else spec


def _name_of_object(role: str, value: Any) -> str:
    # Graphs of networkx and topologies have names.
    name = getattr(value, "name", None) if hasattr(value, "edges") else None
    if role == "data" and isinstance(value, Mapping | tuple):
        return "arrays"
    return printable(str(name)) if name else str(getattr(value, "__name__", type(value).__name__))


def _check_solved(s: Scenario, problem: Component, registered: ProblemEntry | None, entry: Entry) -> None:
    """Raise InputError for an unknown problem, or one that the algorithm does not solve."""
    if registered is None and problem.value is None:
        raise InputError(f"problem.kind: unknown problem {quoted(problem.name)}{nearest_of(problem.name, PROBLEMS)}")
    kind = problem_type(problem.value, problem.name) if registered is None else registered.solves
    if kind not in (entry.solves, None):
        alternatives = [
            e.kind for e in ALGORITHMS.values() if e.solves == kind and e.trusts_coordinator == entry.trusts_coordinator
        ]
        raise InputError(
            f"problem.kind: {s.algorithm.kind} solves {entry.solves} problems only (got {problem.name}). Fix: "
            f"use {', '.join(SOLVED[entry.solves])}; or set algorithm.kind to "
            f"{' or '.join(map(quoted, alternatives))}."
        )


def inputs_digest(scenario: Scenario, salt: bytes) -> str:
    """Hash the inputs of a scenario: its files, and its custom components.

    Without a salt, an adversary could find a single unknown value of a file by search.

    Args:
        scenario: loaded scenario.
        salt: at most 64 random bytes, which only the owner of the files may read.

    Returns:
        16 hexadecimal digits, which are equal for all scenarios without inputs.

    Raises:
        InputError: a file cannot be read.
    """
    files, code = trusted_files(scenario), scenario.code_files()
    roles = [role for role, place in KEYS.items() if role in scenario._object_names or place not in code]
    parts = [named_component(scenario, role) for role in roles]
    kind, algorithm = scenario.algorithm.kind, ""
    if ("algorithm", "kind") not in code and (in_module(kind) is not None or "algorithm" in scenario._object_names):
        algorithm = algorithm_entry(scenario).source
    inputs = "".join(
        [
            *(digest_of_file(path) for _, path in sorted({**files, **code}.items())),
            *(f"{part.role} {digest_of(part.value)}" for part in parts if part.value is not None),
            algorithm,
        ]
    )
    return blake2b(inputs.encode(), digest_size=8, key=salt if inputs else b"").hexdigest()
