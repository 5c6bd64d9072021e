"""Custom components: construction and options.

    problem.kind      = "my_problem:Mine"      a class: see `problems.recordwise` and `central.problems.composite`; its
                                               dataclass fields are keys of [problem]. A function may build the
                                               problem from public facts, such as (n_features, n_classes); its other
                                               parameters are keys
    problem.model     = "my_net:build"         build(n_features, outputs) → a torch module
    topology.kind     = "my_graph:grid"        grid(agents, …) → networkx.Graph, pairs of agents, a matrix, or a list of
                                               them for the rounds; grid(t, …) → the graph of round t; other parameters
                                               are keys of [topology]
    topology.compression.kind                  Q(u, generator) → (d,), with bits(d); fields of a class are keys of
                = "my_compressor:Q"            [topology.compression]
    attack.kind       = "my_attack:Attack"     f(messages, attackers, generator) → the attackers' messages; fields of a
                                               class are keys of [attack]
    topology.aggregation.kind                  f(own, near, weights) → the new value; fields of a class are keys of
                = "my_rule:Rule"               [topology.aggregation]
    problem.data      = "my_data:load"         load() → (features, labels), a dict of columns, or a `Dataset`
    problem.partition = "my_split:deal"        deal(labels, agents, …) → the agent of each record

Python objects are used in the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from functools import partial
from types import FunctionType
from typing import Annotated, Any, get_origin

import numpy as np
from pydantic import ConfigDict, Field, ValidationError, create_model

from decentral_dp.config.arrays import join_agents
from decentral_dp.config.loading import explain, python_value
from decentral_dp.config.schema import ProblemTable, TopologyTable, csv_of, declared_columns
from decentral_dp.data import Dataset
from decentral_dp.data.dataset import as_agents, as_split, encode_labels, real_array, refuse_masked, require_classes
from decentral_dp.data.tables import frame_dataset, refuse_values
from decentral_dp.errors import InputError, converting
from decentral_dp.files.tables import Table
from decentral_dp.problems import TYPES
from decentral_dp.problems.entry import PUBLIC_FACTS
from decentral_dp.topology import Topology, from_edges, from_matrix, from_networkx, in_turn
from decentral_dp.user_code import USER_ERRORS, convert_failures, reason

# Component → the scenario's key that names one.
KEYS: Mapping[str, tuple[str, ...]] = {
    "problem": ("problem", "kind"),
    "model": ("problem", "model"),
    "topology": ("topology", "kind"),
    "data": ("problem", "data"),
    "partition": ("problem", "partition"),
    "compression": ("topology", "compression"),
    "attack": ("attack", "kind"),
    "aggregation": ("topology", "aggregation"),
}


@dataclass(frozen=True)
class Component:
    """Component of a scenario: a problem, model, graph, data set, partition, compressor, attack or aggregation.

    Args:
        role: a key of `KEYS`.
        name: name in the scenario, or for an object its name or the name of its type.
        value: class, function or object of a custom component, or None for a registered component or a file.
        is_object: whether the component was passed as a Python object.
        label: name of the data for display, or "" if the data are named by their source.
        make: function that builds the graph, the records (from agents, certified, drawn), the partition, a custom
            problem, or a custom compressor, attack or aggregation; None for a registered component.
    """

    role: str
    name: str
    value: Any = field(default=None, repr=False)
    is_object: bool = False
    label: str = ""
    make: Callable[..., Any] = field(default=lambda: None, repr=False)


# Problems.


def problem_type(problem: Any, name: str) -> str | None:
    """Return the type of a custom problem by its methods; None for a function. Raises InputError without a type."""
    if isinstance(problem, FunctionType):
        return None
    # Problems of annexes have terms, too.
    for solves in reversed(list(TYPES)):
        if any(hasattr(problem, method) for method in TYPES[solves].methods):
            return solves
    methods = " nor ".join(f"{kind.methods[0]} of a {kind.name} problem" for kind in TYPES.values())
    raise InputError(f"problem.kind: {name} has neither {methods}. Fix: define one of them.")


def instance(problem: Component, keys: Mapping[str, Any]) -> Any:
    """Build a custom problem with the options of a scenario.

    Args:
        problem: class, function or object of the problem.
        keys: keys of the [problem] table, except those that every problem has.

    Returns:
        The object, or for a function a partial that still needs public facts about the data.

    Raises:
        InputError: an option is invalid, or the class raises.
    """
    make, name = problem.value, problem.name
    if not isinstance(make, type | FunctionType):
        _refuse_options({} if problem.is_object else keys, "problem", name)
        return make
    options = parameters(make, "problem.kind", name)
    if isinstance(make, type):
        return _call(make, checked_options(options, keys, "problem", name), "problem.kind", name)
    options = {key: option for key, option in options.items() if key not in PUBLIC_FACTS}
    defaults = {key: option.default for key, option in options.items() if option.default is not option.empty}
    return partial(make, **defaults | checked_options(options, keys, "problem", name))


def callable_with(part: Component, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Build a custom compressor, attack or aggregation with its options. Raises InputError for an invalid option."""
    key, value = "attack" if part.role == "attack" else f"topology.{part.role}", part.value
    if isinstance(value, FunctionType):
        _refuse_options(options, key, part.name)
    made: Callable[..., Any] = mechanism_with(value, options, key)
    for method in ("__call__", "bits") if part.role == "compression" else ("__call__",):
        if not callable(getattr(made, method, None)):
            raise InputError(f"{key}: {part.name} has no method {method}. Fix: define it.")
    return made


def mechanism_with(mechanism: Any, options: Mapping[str, Any], key: str = "privacy.mechanism") -> Any:
    """Build a custom mechanism, or the component of another key, with its options. Raises InputError."""
    if isinstance(mechanism, type):
        name = mechanism.__name__
        if options and not is_dataclass(mechanism):
            # No digest would contain them, so a run could be resumed with other options.
            raise InputError(f"{key}.kind: {name} is not a dataclass and has no options. Fix: decorate it.")
        return _call(mechanism, checked_options(parameters(mechanism, key, name), options, key, name), key, name)
    if not isinstance(mechanism, FunctionType):
        _refuse_options(options, key, type(mechanism).__name__)
    return mechanism


def _refuse_options(options: Mapping[str, Any], table: str, name: str) -> None:
    if options:
        raise InputError(f"{table}.{next(iter(options))}: {name} is an object, which has no keys. Fix: remove it.")


def checked_options(
    options: Mapping[str, inspect.Parameter], values: Mapping[str, Any], table: str, name: str
) -> dict[str, Any]:
    """Check the values in a scenario against the parameters of a custom class or function.

    Args:
        options: key → parameter; numbers must be finite.
        values: key → value in the scenario.
        table: name of the scenario's table, for errors.
        name: name of the component, for errors.

    Returns:
        Key → value of the keys in the scenario.

    Raises:
        InputError: a key is unknown or missing, is a key that every problem has, or has a value of the wrong type.
    """
    for key in options if table == "problem" else ():
        if key in ProblemTable.model_fields:
            raise InputError(
                f"problem.kind: {name} has an option {key}, which is a key of every problem. Fix: rename it."
            )
    fields: dict[str, Any] = {}
    for key, option in options.items():
        annotation: Any = Any if option.annotation is option.empty else option.annotation
        if get_origin(annotation) is tuple:
            # TOML writes a tuple as a list.
            annotation = Annotated[annotation, Field(strict=False)]
        fields[key] = annotation, ... if option.default is option.empty else None
    # pydantic reports a missing key under the name of the model.
    model = create_model("scenario", __base__=_Options, **fields)
    with converting(ValidationError, lambda e: f"{table}.{explain(e, model).rstrip('.')} (an option of {name})."):
        valid = model.model_validate(dict(values))
    return {key: getattr(valid, key) for key in values}


class _Options(Table):
    """Options of a custom component."""

    model_config = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)


# Columns of a data set that is passed as a dict.
_COLUMNS = ("features", "labels", "classes", "feature_names", "agent", "split", "image")
_LISTS = ("classes", "feature_names", "image")


# Topologies.

# A function with this parameter returns the graph of a round.
ROUND = "t"


def topology_with(graph: Component, table: TopologyTable, seed: int, rounds: int) -> Topology:
    """Return the topology of a custom function, graph or list of graphs. Raises InputError."""
    value, name = graph.value, graph.name
    options = dict(table.model_extra or {})
    if isinstance(value, Topology):
        return value
    if not callable(value) or _is_graph(value):
        _refuse_options({} if graph.is_object else options, "topology", name)
        return _one_or_several(value, name, table.model_copy(update={"agents": None}), seed)
    arguments = parameters(value, "topology.kind", name)
    shared = {"seed": seed} | ({} if table.agents is None else {"agents": table.agents})
    own_options = {key: option for key, option in arguments.items() if key not in (*shared, ROUND)}
    values = checked_options(own_options, options, "topology", name)
    values |= {key: shared_value for key, shared_value in shared.items() if key in arguments}
    call_with = partial(_call, value, key="topology.kind", name=name)
    if ROUND not in arguments:
        return _one_or_several(call_with(values), name, table, seed)
    # Round 0 is computed twice.
    by_round = (call_with(values | {ROUND: t}) for t in (*range(rounds), 0))
    *graphs, repeats = _several(by_round, name, table)
    if repeats is not graphs[0]:
        raise InputError(
            f"topology: {name} returns another graph for round 0 when it is called again. Fix: draw with "
            f"numpy.random.default_rng([seed, t]), where seed is a parameter of {name}."
        )
    return in_turn(graphs, seed, name, "function")


def _one_or_several(value: Any, name: str, table: TopologyTable, seed: int) -> Topology:
    """Return the topology of a graph, or of a sequence of graphs. Raises InputError."""
    refuse_masked(value, f"topology: {name}")
    if (isinstance(value, list | tuple) and not value) or (isinstance(value, np.ndarray) and not value.size):
        raise InputError(f"topology: {name} is empty. Fix: pass a graph, pairs of agents, or a list of graphs.")
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 2)
    if is_list and any(_is_graph(part) or hasattr(part, "todense") or np.ndim(part) > 1 for part in value):
        return in_turn(_several(value, name, table), seed, name)
    return _as_topology(value, name, table)


def _several(graphs: Iterable[Any], name: str, table: TopologyTable) -> list[Topology]:
    """Return the graphs of the rounds, in which equal graphs share one object. Raises InputError."""
    by_content: dict[bytes, Topology] = {}
    topologies = []
    for k, graph in enumerate(graphs):
        topology = _as_topology(graph, f"{name}, graph {k + 1}", table, connected=False)
        parts = (topology.mixing.indptr, topology.mixing.indices, topology.mixing.data)
        key = repr(topology.labels).encode() + b"".join(part.tobytes() for part in parts)
        topologies.append(by_content.setdefault(key, topology))
    return topologies


def _is_graph(value: Any) -> bool:
    return isinstance(value, Topology) or (hasattr(value, "nodes") and hasattr(value, "edges"))


def _as_topology(graph: Any, name: str, table: TopologyTable, connected: bool = True) -> Topology:
    if isinstance(graph, Topology):
        return graph
    agents, weights, directed = table.agents, table.weights, bool(table.directed)

    if _is_graph(graph):
        topology = from_networkx(graph, weights, name, connected, directed)
    else:
        rows = graph.todense() if hasattr(graph, "todense") else graph
        try:
            numbers = np.asarray(rows if isinstance(rows, np.ndarray) else list(rows), dtype=np.float64)
        except USER_ERRORS:
            numbers = np.array([np.nan])
        if numbers.ndim == 2 and len(numbers) == numbers.shape[1] and len(numbers) != 2:
            topology = from_matrix(numbers, weights, name, "topology.kind", connected, directed)
        elif numbers.size and (numbers.ndim != 2 or numbers.shape[1] != 2 or np.any(numbers != np.floor(numbers))):
            raise InputError(
                f"topology: {name} gives no graph (got {type(graph).__name__}, expected a networkx.Graph, pairs of "
                "agents from 0, or a symmetric matrix of 0 and 1 with a zero diagonal). Fix: use one of these."
            )
        else:
            topology = from_edges(numbers.astype(np.int64).reshape(-1, 2), agents, weights, name, connected, directed)
    if agents is not None and topology.n_agents != agents:
        raise InputError(
            f"topology.agents: differs from the number of agents in {name} (got {agents}, expected "
            f"{topology.n_agents}). Fix: set agents = {topology.n_agents}."
        )
    return topology


# Data sets.


def build_dataset(data: Component, table: ProblemTable, seed: int, agents: int, certified: bool) -> Dataset:
    """Return the data set of a custom function or of records in memory.

    Args:
        data: function, or records as a `Dataset`, a table of columns, features and labels, or a DataFrame with the
            column problem.label.
        table: table [problem] of the scenario, from which the classes are read.
        seed: public seed, passed to a function with this parameter.
        agents: number of agents, passed to a function with this parameter.
        certified: whether undeclared classes raise InputError instead of being discovered.

    Returns:
        The data set.

    Raises:
        InputError: a key does not apply to records of this kind, a function raises an error, or the records are
            invalid.
    """
    records, name = data.value, data.name
    if callable(records) and not isinstance(records, Dataset):
        arguments = parameters(records, "problem.data", name)
        values = {k: v for k, v in (("agents", agents), ("seed", seed)) if k in arguments}
        records = _call(records, values, "problem.data", name)
    return _dataset(records, table, name, certified)


def _dataset(records: Any, table: ProblemTable, name: str, certified: bool) -> Dataset:
    """Return the data set of records in memory. Raises InputError."""
    is_frame = _is_frame(records)
    unread = {
        "separator, decimal, encoding": csv_of(table),
        "synthetic": table.synthetic.model_fields_set,
        **({} if is_frame else {"columns": table.columns, "label": table.label}),
    }
    for key in (key for key, value in unread.items() if value):
        raise InputError(f"problem.{key}: does not apply to records from {name}. Fix: remove it.")
    if not is_frame:
        return _as_dataset(records, name, table.classes, certified)
    # As in a CSV file, features are all columns but label, agent and split.
    column_names, location = [str(column) for column in records.columns], f"problem.data: {name!r}"
    if len(set(column_names)) < len(column_names):
        raise InputError(f"{location} has two columns with the same name. Fix: rename one.")
    # pandas reads the first record as the header of a file without one.
    refuse_values([column for column in records.columns if isinstance(column, str)], location)
    column_spec = declared_columns(table)._replace(certified=certified)
    return frame_dataset(records.set_axis(column_names, axis=1), name, column_spec)


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and hasattr(value, "iloc")


def _as_dataset(records: Any, name: str, classes: Sequence[Any] | None, certified: bool) -> Dataset:
    if isinstance(records, Dataset):
        require_classes(name, classes, records.classes)
        return records
    columns: Mapping[str, Any] | None = records if isinstance(records, Mapping) else None
    if columns is None and isinstance(records, tuple | list) and len(records) == 2:
        columns = dict(zip(("features", "labels"), records, strict=True))
    if columns is None or not {"features", "labels"} <= set(columns) or not set(columns) <= set(_COLUMNS):
        raise InputError(
            f"problem.data: {name} does not return records. Fix: return (features, labels), a dict of "
            f"{', '.join(_COLUMNS)}, a DataFrame, or a Dataset."
        )
    location = f"problem.data: {name!r}"
    for key in _LISTS:
        if columns.get(key) is not None and not isinstance(columns[key], list | tuple | np.ndarray):
            raise InputError(
                f"{location} has {key} as {type(columns[key]).__name__} (expected a list). Fix: return a list."
            )
    columns = {**columns, **{key: python_value(columns[key]) for key in _LISTS if key in columns}}
    if columns.get("classes") is not None:
        require_classes(name, classes, columns["classes"])
    joined, joined_labels, owner = join_agents(columns["features"], columns["labels"])
    own_names = [str(column) for column in joined.columns] if _is_frame(joined) else None
    features = real_array(joined, f"{location}, features")
    refuse_masked(joined_labels, f"{location}, labels")
    labels = np.asarray(joined_labels)
    if features.ndim != 2 or labels.shape != (len(features),):
        raise InputError(
            f"{location} has features of shape {features.shape} and labels of shape {labels.shape} (expected (n, d) "
            "and (n,)). Fix: return arrays of these shapes."
        )
    declared_classes = classes if classes is not None else columns.get("classes")
    codes, labels_of_codes = encode_labels(labels, declared_classes, certified=certified, source=name)
    names = columns.get("feature_names") or own_names or [f"feature_{k}" for k in range(features.shape[1])]
    agent, split, image = (columns.get(key) for key in ("agent", "split", "image"))
    agent = owner if agent is None else agent
    return Dataset(
        np.ascontiguousarray(features),
        codes,
        labels_of_codes,
        tuple(str(n) for n in names),
        name,
        None if agent is None else as_agents(agent, location),
        None if split is None else as_split(split, location),
        None if image is None else tuple(image),
    )


# Partitions.


def dealer(partition: Component) -> Callable[..., Any]:
    """Return the partition function. It receives those of labels, classes, agents and seed that are its parameters.

    Raises:
        InputError: the value is not a function.
    """
    deal, name = partition.value, partition.name
    arguments = parameters(deal, "problem.partition", name)

    def call_deal(**values: Any) -> Any:
        return _call(deal, {k: v for k, v in values.items() if k in arguments}, "problem.partition", name)

    # For messages.
    call_deal.__name__ = name
    return call_deal


# Calls of custom functions.


def parameters(make: Callable[..., Any], key: str, name: str) -> dict[str, inspect.Parameter]:
    """Return the parameters of a custom class or function, with their types, by name.

    Args:
        make: class or function.
        key: key of the scenario, for errors.
        name: name of the component, for errors.

    Raises:
        InputError: `make` is not a function, or a type cannot be read.
    """
    problem = f"{key}: the parameters of {name} are invalid"
    with converting(USER_ERRORS, lambda error: f"{problem}: {reason(error)}. Fix: correct them."):
        return dict(inspect.signature(make, eval_str=True).parameters)


def _call(function: Callable[..., Any], values: Mapping[str, Any], key: str, name: str) -> Any:
    with convert_failures(f"{key}: {name}"):
        return function(**values)
