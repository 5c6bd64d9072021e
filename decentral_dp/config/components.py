"""What a scenario names, looked up once: in the package, in a module of the user's, or a Python object.

`resolve` is the first step of `build`. All later steps get `Components`, and need not ask where a component
comes from, which file holds it, or who trusts whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import ValidationError, create_model

from decentral_dp import topology as topologies
from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config.loading import ALGORITHM_KINDS, GRAPH_KINDS, Source, explain, load_scenario, refuse_unread
from decentral_dp.config.outside import (
    KEYS,
    Component,
    build_dataset,
    dealer,
    instance,
    mechanism_with,
    problem_type,
    topology_with,
)
from decentral_dp.config.schema import (
    OBJECTS,
    AlgorithmTable,
    Files,
    Partition,
    Scenario,
    common_table,
    csv_of,
    declared_columns,
    own_types,
    table_of,
)
from decentral_dp.data import DATASETS, SYNTHETIC, Dataset, load_dataset, nearest
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files import trust
from decentral_dp.models.build import MODELS, ModelTable
from decentral_dp.privacy.custom_mechanism import mechanism_options, register_outside
from decentral_dp.privacy.fingerprint import digest_of, digest_of_file, imports_of_folder
from decentral_dp.privacy.mechanisms import GAUSSIAN, MECHANISMS, Mechanism, mechanism_of
from decentral_dp.privacy.secret import Secret
from decentral_dp.problems import PROBLEMS, SOLVED, ProblemEntry
from decentral_dp.topology import GENERATORS, Topology
from decentral_dp.user_code import component, in_module

# Component → the registered ones.
_REGISTRIES: Mapping[str, Mapping[str, Any]] = {
    "problem": PROBLEMS,
    "topology": GENERATORS,
    "data": DATASETS,
    "partition": {"iid": None},
    "model": dict.fromkeys(MODELS),
}


class Objects(TypedDict, total=False):
    """Python objects in place of what a scenario names; None, or left out: what it names.

    problem: one made with `from_losses`, or an instance of a class as docs/add_a_problem.md describes it. algorithm: a
    dataclass with its fields filled in. mechanism: an object of your own (docs/add_a_mechanism.md). topology: a
    `networkx.Graph`, a `Topology`, pairs of agents, or several of them. data: (features, labels), a table of columns, a
    pandas `DataFrame` whose label column is problem.label, or a `Dataset`. partition: a function, as in a file.
    """

    problem: Any
    algorithm: Any
    mechanism: Any
    topology: Any
    data: Any
    partition: Any


@dataclass(frozen=True)
class Components:
    """All that a scenario names.

    Args:
        scenario: its text.
        files: (table, …, key) → absolute path, of every value that names a file that is there.
        algorithm: its entry, with the object itself where one was handed over.
        keys: what the scenario says of the algorithm's own keys.
        mechanism: the law of noise.
        problem_entry: the entry of a problem of the package; None of one from outside.
        draws_records: whether made-up records are drawn; a plan needs none of them where counts say everything.
    """

    scenario: Scenario
    files: Files
    algorithm: Entry
    keys: Mapping[str, Any] = field(repr=False)
    mechanism: Mechanism
    problem: Component
    model: Component
    problem_entry: ProblemEntry | None
    topology: Component
    data: Component
    partition: Component
    draws_records: bool = True

    @property
    def one_level(self) -> bool:
        """Whether a registered problem has nothing to tune, and so no validation records."""
        return self.problem_entry is not None and self.problem_entry.one_level

    @property
    def levels(self) -> int:
        """2 where records are split for the lower and the upper level."""
        return 1 if self.one_level or self.algorithm.solves == "minimax" else 2

    @property
    def strict(self) -> bool:
        """Whether nothing may leak around the ledger."""
        guarantee = self.scenario.privacy.guarantee
        # What a paper's noise is worth is stated for a trusted coordinator, too.
        return guarantee == "certified" or (guarantee == "as_published" and self.algorithm.trusts_coordinator)

    @cached_property
    def outside_components(self) -> tuple[Component, ...]:
        """Problem, model, data, partition and topology, as far as they are not of the package."""
        parts = (self.problem, self.model, self.data, self.partition, self.topology)
        return tuple(part for part in parts if part.is_outside)

    @property
    def objects(self) -> dict[str, str]:
        """Component → what it was, of those that were handed over in Python and are in no file."""
        return dict(self.scenario._object_names)

    @property
    def reads_user_code(self) -> bool:
        """Whether Python code of the user's own, found by whatever way, computes on records or deals them."""
        return any(part.role != "topology" for part in self.outside_components)

    @property
    def unverified(self) -> list[str]:
        """What the ledger takes unverified, in sentences that follow these words."""
        return [f"{quoted(part.name)} {_UNVERIFIED[part.role]}." for part in self.outside_components]

    @property
    def digests(self) -> dict[str, str]:
        """Component → digest of its source, with all that it imports, and of its values; of custom ones."""
        return {part.role: digest_of(part.value) for part in self.outside_components}

    def without_records(self) -> Components:
        """The same for a plan that draws no records where they are made up and their numbers alone count.

        Elsewhere, as it is: where a component from outside is tried on records, where labels or features decide who
        holds what or how it is scaled, and where a coordinator's problem reads labels.
        """
        table = self.scenario.problem
        counted = (
            not self.algorithm.trusts_coordinator
            and not self.reads_user_code
            and not self.algorithm.custom
            and table.data in SYNTHETIC
            and table.partition in (None, "iid")
            and table.construction is None
            and table.scale == "none"
        )
        return replace(self, draws_records=False) if counted else self


_UNVERIFIED = {
    "problem": "is clipped record by record, and each row that it computes is of its own record only; synthetic "
    "records were tried, no more",
    "model": "makes a module whose outputs and gradients are of one record only; synthetic records were tried, no more",
    "data": "gives one record to a person, and nothing in it was fitted on the records: no scale, no choice of "
    "features, no list of classes",
    "partition": "deals by nothing but its arguments, and alike whenever it is asked",
    "topology": "was chosen without reading a record",
}


def load_components(scenario: Source, overrides: Sequence[str] = (), **objects: Unpack[Objects]) -> Components:
    """Load a scenario, and look up all that it names.

    Args:
        scenario: as of `load`; it need not name the records and the graph that are handed over.
        overrides: "table.key=value" with a TOML value.
        **objects: Python objects in place of what it names.

    Raises:
        InputError: as of `load`, `with_objects` and `resolve`.
    """
    names = [what for what, value in objects.items() if value is not None]
    return resolve(with_objects(load_scenario(scenario, overrides, objects=names), **objects))


def resolve(s: Scenario) -> Components:
    """Look up all that a scenario names, once.

    Args:
        s: the scenario, with the objects that were handed over in place of what it names.

    Raises:
        InputError: nothing is called so, a module does not give it, an algorithm is not for the
            problem, or an object that a run had was not handed over again.
    """
    missing = next(iter(s.objects), None)
    if missing is not None:
        raise InputError(
            f"objects.{missing}: this scenario is that of a run whose {missing} was a Python object "
            f"({printable(s.objects[missing])}), which no file holds. Give it again in Python, "
            f"decentral_dp.run(scenario, {missing}=…), or name another {missing} in the scenario and take the line out."
        )
    files, entry = trusted_files(s), algorithm_entry(s)
    problem, model, topology, data, partition = (named_component(s, role) for role in KEYS)
    registered = None if problem.is_outside else PROBLEMS.get(s.problem.kind)
    _check_solved(s, problem, registered, entry)
    return Components(
        scenario=s,
        files=files,
        algorithm=entry,
        keys=_own_keys(s, entry),
        mechanism=_mechanism(s, entry.trusts_coordinator),
        problem=replace(problem, make=partial(instance, problem, s.problem.model_extra or {})),
        model=model,
        problem_entry=registered,
        topology=replace(topology, make=partial(_graph, topology, s, files)),
        data=replace(data, make=partial(_records, data, s, files)),
        partition=replace(partition, make=partial(_partition, partition, s)),
    )


def trusted_files(s: Scenario) -> Files:
    """The files that a scenario names, before any of them is run.

    Raises:
        InputError: the scenario is that of a run folder, and names code that is unknown here.
    """
    if trust.needs_trust(s.folder):
        code = s.code_files()
        for path in sorted({*code.values()}):
            for file in (path, *imports_of_folder(path)):
                trust.require_trust(file, file.read_bytes())
        for place, kind in s.modules().items():
            if place not in code:
                # An installed module: any function of it could be called with the scenario's keys.
                trust.require_trust(Path(kind), kind.encode())
    return s.files()


def with_objects(s: Scenario, **objects: Unpack[Objects]) -> Scenario:
    """The scenario with these objects in place of what it names. Raises InputError for what is no such component."""
    handed: dict[str, Any] = {what: value for what, value in objects.items() if value is not None}
    if not handed:
        return s
    changed: dict[str, Any] = {"objects": {what: kind for what, kind in s.objects.items() if what not in handed}}
    names = {what: _name_of_object(handed[what]) for what in sorted(KEYS) if what in handed}
    replaced = set(s._replaced_tables)
    if "algorithm" in handed:
        entry = _entry_of_object(handed["algorithm"])
        changed["algorithm"], handed["algorithm"] = _algorithm_table(s, entry), entry
        replaced |= {"algorithm"} if entry.kind != s.algorithm.kind else set()
        names |= {"algorithm": entry.kind} if entry.custom else {}
    if "mechanism" in handed:
        names["mechanism"] = type(handed["mechanism"]).__name__
        made = handed["mechanism"] = register_outside(mechanism_with(handed["mechanism"], {}))
        table = {"kind": made.name, **mechanism_options(made)}
        changed["privacy"] = s.privacy.model_copy(update={"mechanism": table})
    chosen = s.model_copy(update=changed)
    chosen._objects, chosen._object_names, chosen._replaced_tables = Secret(OBJECTS, handed), names, frozenset(replaced)
    return chosen


def _object(s: Scenario, what: str) -> Any | None:
    """What was handed over; None where nothing was. Raises InputError for a scenario that has lost it."""
    return s._objects().get(what) if s._objects or what in s._object_names else None


def algorithm_entry(s: Scenario) -> Entry:
    """The entry of the algorithm. Raises InputError where there is none."""
    kind = s.algorithm.kind
    given: Entry | None = _object(s, "algorithm")
    if given is not None:
        return given
    if kind in ALGORITHMS:
        return ALGORITHMS[kind]
    definition = component(kind, s.code_paths, "algorithm.kind")
    if definition is None:
        meant = ALGORITHM_KINDS.get(kind.lower().replace("-", "_"))
        hint = f"use {meant!r}" if meant else nearest(kind, ALGORITHMS)
        raise InputError(f"algorithm.kind: no algorithm {kind!r}; {hint}.")
    return entry_of_class(definition, kind, digest_of(definition))


def _entry_of_object(algorithm: Any) -> Entry:
    """The entry of an algorithm that is handed over: a dataclass with its fields filled in."""
    if isinstance(algorithm, type):
        raise InputError(
            f"algorithm: got the class {algorithm.__name__}; wanted an object of it, {algorithm.__name__}(…) with its "
            "options."
        )
    made = type(algorithm)
    ours = next((entry for entry in ALGORITHMS.values() if entry.algorithm is made), None)
    entry = ours or entry_of_class(made, made.__name__, digest_of(made))
    # Fields that are no keys are in no scenario.
    keys = {o.key for o in entry.keys if o.key != "domain"}
    hidden = {f.name: getattr(algorithm, f.name) for f in fields(algorithm) if f.name not in keys}
    source = f"{entry.source} {digest_of(dict(sorted(hidden.items())))}"
    return entry._replace(instance=algorithm, source=source)


def _algorithm_table(s: Scenario, entry: Entry) -> AlgorithmTable:
    """The [algorithm] table with the fields of an object that was handed over."""
    values = {o.key: getattr(entry.instance, o.key) for o in entry.keys if o.key != "domain"}
    steps = {k: v.to_dict() for k, v in values.items() if isinstance(v, StepSize)}
    lists = {k: list(v) for k, v in values.items() if isinstance(v, tuple)}
    given = {k: v for k, v in (values | steps | lists).items() if v is not None}
    if "domain" in s.algorithm.own_keys() and "domain" in (o.key for o in entry.keys):
        given["domain"] = s.algorithm.own_keys()["domain"]
    common = {"kind": entry.kind, "rounds": s.algorithm.rounds, "init": s.algorithm.init}
    return AlgorithmTable.model_validate(common | given)


def _own_keys(s: Scenario, entry: Entry) -> Mapping[str, Any]:
    """What the scenario says of the algorithm's own keys. Raises InputError for values that they cannot have."""
    root = create_model("Scenario", algorithm=(table_of(entry), ...))
    try:
        checked: Any = root.model_validate({"algorithm": s.algorithm.model_dump(exclude_unset=True)})
    except ValidationError as error:
        raise InputError(explain(error, root)) from None
    refuse_unread("algorithm", s.algorithm.kind, checked.algorithm.model_extra or {}, own_types(entry), root)
    return common_table(checked.algorithm).own_keys()


def _mechanism(s: Scenario, own: bool) -> Mechanism:
    """The law of noise. Raises InputError where there is none."""
    kind = s.privacy.mechanism_kind
    given: Mechanism | None = _object(s, "mechanism")
    if given is not None:
        return given
    if kind in MECHANISMS:
        return mechanism_of(kind)
    if own:
        # It is refused by name, with what the algorithm uses, and not looked for.
        return GAUSSIAN
    mechanism = component(kind, s.code_paths, "privacy.mechanism")
    return register_outside(mechanism_with(mechanism, s.privacy.mechanism_options))


def named_component(s: Scenario, what: str) -> Component:
    """What was handed over, or what the scenario names; not yet with what makes it."""
    value = _object(s, what)
    if value is not None:
        return Component(what, s._object_names[what], value, is_object=True)
    table, key = KEYS[what]
    written = getattr(getattr(s, table), key)
    if isinstance(written, ModelTable):
        written = written.kind
    if not isinstance(written, str) or written in _REGISTRIES[what]:
        return Component(what, str(written))
    return Component(what, written, component(written, s.code_paths, f"{table}.{key}"))


def _graph(part: Component, s: Scenario, files: Files) -> Topology:
    """Build the graph and its weights, changing by round where the scenario says so. Raises InputError."""
    table, extra = s.topology, s.topology.model_extra or {}
    seed = table.seed if table.seed is not None else s.public_seed
    kind, agents, directed = "isolated" if table.pooled else str(table.kind), table.agents, bool(table.directed)

    def generate(seed: int) -> Topology:
        return topologies.build_topology(kind, int(agents or 0), extra, table.weights, seed, directed)

    if part.is_outside:
        base = topology_with(part, table, seed, s.algorithm.rounds)
    elif table.file is not None:
        for key in extra:
            raise InputError(f"topology.{key}: a topology from a file takes no such key; leave it out.")
        base = topologies.from_file(
            files.get(("topology", "file"), Path(table.file)), table.weights, agents, directed=directed
        )
    elif other := GRAPH_KINDS.get(kind.removesuffix("_graph")):
        raise InputError(f"topology.kind: no graph {kind!r}; use {other!r}.")
    else:
        base = generate(seed)
    losses: dict[str, Any] = {
        key: value for key in ("drop", "offline", "delay") if (value := getattr(table, key)) is not None
    }
    if base.over_time is not None and table.over_time is not None:
        raise InputError(
            f"topology.over_time: {base.name} says the graph of every round itself ({base.over_time.kind}). Leave "
            "over_time out."
        )
    if base.over_time is None and (table.over_time is not None or any(losses.values())):
        draw = generate if kind in GENERATORS and GENERATORS[kind].random else None
        base = topologies.time_varying(base, table.over_time or "fixed", seed, draw=draw)
    return base if base.over_time is None else replace(base, over_time=replace(base.over_time, **losses))


def _records(part: Component, s: Scenario, files: Files, agents: int, certified: bool, drawn: bool = True) -> Dataset:
    """Read or generate the records. Raises InputError.

    Args:
        part: the data of the scenario.
        s: the scenario.
        files: that it names.
        agents: m.
        certified: whether undeclared classes are refused.
        drawn: whether synthetic records are drawn; else only their number is known.
    """
    table = s.problem
    if part.is_outside:
        return build_dataset(part, table, s.records_seed, agents, certified)
    synthetic = table.synthetic.model_dump(exclude_none=True)
    return load_dataset(
        str(files.get(("problem", "data"), table.data)),
        n_agents=agents,
        seed=s.records_seed,
        root=s.folder,
        d=synthetic.pop("dimension", None),
        drawn=drawn,
        **declared_columns(table)._asdict() | {"csv": csv_of(table), "certified": certified},
        **synthetic,
    )


def _partition(part: Component, s: Scenario) -> Any:
    """Return the partition as `make_shards` takes it. Raises InputError."""
    spec = s.problem.partition
    if part.is_outside:
        return dealer(part)
    return spec.model_dump(exclude_none=True) if isinstance(spec, Partition) else spec


def _name_of_object(value: Any) -> str:
    # Graphs of networkx and topologies have names.
    named = getattr(value, "name", None) if hasattr(value, "edges") else None
    return printable(str(named)) if named else str(getattr(value, "__name__", type(value).__name__))


def _check_solved(s: Scenario, problem: Component, registered: ProblemEntry | None, entry: Entry) -> None:
    """Refuse a problem that nobody knows, and one that the algorithm is not for. Raises InputError."""
    if registered is None and not problem.is_outside:
        raise InputError(f"problem.kind: no problem {s.problem.kind!r}; {nearest(s.problem.kind, PROBLEMS)}.")
    kind = problem_type(problem.value, problem.name) if registered is None else registered.solves
    if kind not in (entry.solves, None):
        others = [
            e.kind for e in ALGORITHMS.values() if e.solves == kind and e.trusts_coordinator == entry.trusts_coordinator
        ]
        raise InputError(
            f"problem.kind: {s.algorithm.kind} is for {entry.solves} problems, and {problem.name} is none. Take "
            f"{', '.join(SOLVED[entry.solves])}; or set algorithm.kind to {' or '.join(map(quoted, others))}."
        )


def inputs_digest(scenario: Scenario, salt: bytes) -> str:
    """Hash what a scenario reads besides its own text: the files that it names, and components from outside.

    Without a salt, whoever knows all of a file but one value could try what that is.

    Args:
        scenario: as loaded.
        salt: at most 64 random bytes, which are kept apart from the digest, for the owner of the files only to read.

    Returns:
        16 hexadecimal digits; the same for all scenarios that name nothing, whatever the salt.

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
            *(f"{part.role} {digest_of(part.value)}" for part in parts if part.is_outside),
            algorithm,
        ]
    )
    return blake2b(inputs.encode(), digest_size=8, key=salt if inputs else b"").hexdigest()
