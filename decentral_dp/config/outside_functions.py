"""Functions of the user's own: a graph, the records of a data set, and who holds which record."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from decentral_dp.config.outside_components import KEYS, checked_options, is_given, name_of, source_of
from decentral_dp.config.problem_schema import ProblemTable
from decentral_dp.config.record_tables import Column, Partition
from decentral_dp.config.schema import Scenario
from decentral_dp.data import Dataset
from decentral_dp.data.dataset import as_agents, as_split, encode_labels, nearest, require_two_classes
from decentral_dp.data.partition import NamedPartition
from decentral_dp.errors import InputError, quoted
from decentral_dp.files.source_lines import line_at_top
from decentral_dp.topology import Topology, from_edges, from_matrix, from_networkx
from decentral_dp.topology.parameters import unknown_key
from decentral_dp.user_code import USER_ERRORS, blamed, call, in_file, reason

# What a mapping of a data set may hold.
_COLUMNS = ("features", "labels", "classes", "feature_names", "agent", "split", "image")
_A_LINE = re.compile(r"\bline \d+ of ")
_LISTS = ("classes", "feature_names", "image")


# Topologies.


def build_topology(s: Scenario, found: Any, seed: int) -> Topology:
    """The topology of a function, or of a graph that was handed over. Raises InputError."""
    table, name = s.topology, name_of(s, "topology")
    weights = table.weights or "metropolis"
    if isinstance(found, Topology):
        return found
    if not callable(found) or _is_graph(found):
        if table.model_extra and not is_given(s, "topology"):
            raise InputError(
                f"topology.{next(iter(table.model_extra))}: {name} is a graph and takes none. Leave it out."
            )
        with _naming_line(s, "topology", found):
            return _as_topology(found, name, weights)
    options = dict(table.model_extra or {})
    known = parameters(found, "topology.kind", name)
    sized = "agents" in known
    if sized and table.agents is None:
        raise InputError("topology.agents: missing. Say how many agents the graph is to have.")
    own = {k: v for k, v in known.items() if k not in ("agents", "seed")}
    for key in options:
        if key not in own:
            raise unknown_key(key, name, own)
    chosen = checked_options(own, options, "topology", f"{name}{source_of(found)}")
    chosen |= ({"agents": table.agents} if sized else {}) | ({"seed": seed} if "seed" in known else {})
    with _naming_line(s, "topology", found):
        return _as_topology(_called(found, chosen, "topology.kind", name), name, weights, table.agents)


def _is_graph(found: Any) -> bool:
    return hasattr(found, "nodes") and hasattr(found, "edges")


def _listed(graph: Any) -> Any:
    """What numpy makes an array of: a sparse matrix written out, an array as it is, all else as a list."""
    if hasattr(graph, "todense"):
        return graph.todense()
    return graph if isinstance(graph, np.ndarray) else list(graph)


def _as_topology(graph: Any, name: str, weights: str | Mapping[str, Any], agents: int | None = None) -> Topology:
    if _is_graph(graph):
        if agents is not None and graph.number_of_nodes() != agents:
            raise InputError(
                f"topology.kind: {name} gives {graph.number_of_nodes()} agents, and {agents} were asked for. Mend the "
                "function, or set topology.agents."
            )
        return from_networkx(graph, weights, name)
    wanted = "a networkx.Graph, pairs of agents from 0, or a symmetric matrix of 0 and 1 with a zero diagonal"
    kind = type(graph).__name__
    refused = f"topology: got {kind}" if name == kind else f"topology.kind: {name} gives {kind}"
    refused += f"; wanted {wanted}."
    try:
        numbers = np.asarray(_listed(graph), dtype=np.float64)
    except USER_ERRORS as error:
        raise InputError(refused) from error
    if numbers.ndim == 2 and len(numbers) == numbers.shape[1] and len(numbers) != 2:
        if agents is not None and len(numbers) != agents:
            raise InputError(
                f"topology.kind: {name} gives a matrix of {len(numbers)} agents, and {agents} were asked for. Mend the "
                "function, or set topology.agents."
            )
        return from_matrix(numbers, weights, name, "topology.kind")
    if numbers.size and (numbers.ndim != 2 or numbers.shape[1] != 2 or np.any(numbers != np.floor(numbers))):
        raise InputError(refused)
    return from_edges(numbers.astype(np.int64).reshape(-1, 2), agents, weights, name)


# Data sets.


def build_dataset(s: Scenario, found: Any, agents: int, seed: int, certified: bool) -> Dataset:
    """Take the records of a function, or those that were handed over.

    Args:
        s: the scenario; of its [problem] table classes and limit are read.
        found: the function, or the records: a `Dataset`, a table of columns, features and labels, or a
            DataFrame with the column problem.label.
        agents: how many there are, passed to a function that takes it.
        seed: the public one, passed to a function that takes it.
        certified: whether classes that nobody declared are refused instead of discovered.

    Returns:
        The data set, cut to problem.limit records where that is given.

    Raises:
        InputError: keys that records of a user's own do not take, a function that fails, or records that are not sound.
    """
    table, name = s.problem, name_of(s, "data")
    if table.files is not None:
        raise InputError(f"problem.files: records from {name} take none. Leave it out.")
    if table.synthetic.model_fields_set:
        raise InputError(f"problem.synthetic: records from {name} take none. Leave it out.")
    if callable(found) and not isinstance(found, Dataset):
        known = {"agents": agents, "seed": seed}
        asked = parameters(found, "problem.data", name)
        _refuse_unknown(asked, known, "problem.data", f"{name}{source_of(found)}")
        given = _called(found, {k: known[k] for k in asked if k in known}, "problem.data", name)
        with _naming_line(s, "data", found):
            return _from_given(s, given, name, certified)
    with _naming_line(s, "data", found):
        return _from_given(s, found, name, certified)


def _from_given(s: Scenario, found: Any, name: str, certified: bool) -> Dataset:
    """The data set of what a function gave, or of what was handed over. Raises InputError."""
    table = s.problem
    from_frame = _is_frame(found)
    if from_frame:
        found = _columns_of(found, table, name)
    elif table.label is not None:
        raise InputError(f"problem.label: records from {name} take none, only a DataFrame does. Leave it out.")
    dataset = _as_dataset(found, name, table.classes, certified)
    if from_frame and dataset.classes and not certified:
        require_two_classes(dataset.labels, f"problem.data: {name}")
    return dataset if table.limit is None else dataset.first(table.limit)


def _is_frame(found: Any) -> bool:
    return hasattr(found, "columns") and hasattr(found, "iloc")


def _columns_of(frame: Any, table: ProblemTable, name: str) -> dict[str, Any]:
    """The columns of a DataFrame: as in a CSV file, features are those that are neither label, owner nor split."""
    known = [str(column) for column in frame.columns]
    if table.label is None:
        raise InputError(
            f"problem.label: missing. Name the label column of {name}, {nearest('target', known)}; or give (features, "
            "labels)."
        )
    agent = table.partition.name if isinstance(table.partition, Partition) else None
    split = table.validation.column if isinstance(table.validation, Column) else None
    agent = agent or ("agent" if "agent" in known else None)
    split = split or ("split" if "split" in known else None)
    for key, wanted in (("label", table.label), ("partition", agent), ("validation", split)):
        if wanted is not None and wanted not in known:
            raise InputError(f"problem.{key}: {name} has no column {quoted(wanted)}; {nearest(wanted, known)}.")
    if len(set(known)) < len(known):
        raise InputError(f"problem.data: {name} has two columns of one name. Give every column its own.")
    renamed = frame.set_axis(known, axis=1)
    own = {table.label, agent, split}
    columns = {"labels": renamed[table.label], "agent": agent and renamed[agent], "split": split and renamed[split]}
    return {
        "features": renamed[[c for c in known if c not in own]],
        **{k: v for k, v in columns.items() if v is not None},
    }


def _numbers(features: Any, where: str) -> tuple[Any, list[str] | None]:
    """Features as float64, and the names that their columns have. Raises InputError."""
    names = [str(column) for column in features.columns] if _is_frame(features) else None
    try:
        if np.iscomplexobj(features):
            raise TypeError("complex numbers")
        return np.asarray(features, dtype=np.float64), names
    except USER_ERRORS as error:
        bad = [name for name in names or () if not _is_numbers(features[name])]
        listed = ", ".join(quoted(name) for name in bad)
        wrong = f", for column{'s' if len(bad) > 1 else ''} {listed} hold{'' if len(bad) > 1 else 's'} others" * bool(
            bad
        )
        raise InputError(f"{where} has features that are no table of numbers{wrong}. Mend it.") from error


def _is_numbers(column: Any) -> bool:
    try:
        np.asarray(column, dtype=np.float64)
    except USER_ERRORS:
        return False
    return True


def _as_dataset(found: Any, name: str, classes: Sequence[Any] | None, certified: bool) -> Dataset:
    if isinstance(found, Dataset):
        if classes is not None and tuple(classes) != found.classes:
            raise InputError(
                f"problem.classes: {name} has the classes {list(found.classes)}, got {list(classes)}. Leave it out."
            )
        return found
    columns: Mapping[str, Any] | None = found if isinstance(found, Mapping) else None
    if columns is None and isinstance(found, tuple | list) and len(found) == 2:
        columns = dict(zip(("features", "labels"), found, strict=True))
    if columns is None or not {"features", "labels"} <= set(columns) or not set(columns) <= set(_COLUMNS):
        raise InputError(
            f"problem.data: {name} gives no records; wanted (features, labels), or a table of {', '.join(_COLUMNS)}, "
            "a DataFrame, or a Dataset."
        )
    where = f"problem.data: {name!r}"
    for key in _LISTS:
        if columns.get(key) is not None and not isinstance(columns[key], list | tuple | np.ndarray):
            raise InputError(f"{where} gives {key} as {type(columns[key]).__name__}; wanted a list. Mend it.")
    own = columns.get("classes")
    if classes is not None and own is not None and list(classes) != list(own):
        raise InputError(f"problem.classes: {name} has the classes {list(own)}, got {list(classes)}. Leave it out.")
    features, own_names = _numbers(columns["features"], where)
    labels = np.asarray(columns["labels"])
    if features.ndim != 2 or labels.shape != (len(features),):
        raise InputError(
            f"{where} has features of shape {features.shape} and labels of shape {labels.shape}; wanted records × "
            "features, and one label for each record."
        )
    stated = classes if classes is not None else columns.get("classes")
    codes, known = encode_labels(labels, stated, certified=certified, source=name)
    names = columns.get("feature_names") or own_names or [f"feature_{k}" for k in range(features.shape[1])]
    agent, split, image = (columns.get(key) for key in ("agent", "split", "image"))
    return Dataset(
        np.ascontiguousarray(features),
        codes,
        known,
        tuple(str(n) for n in names),
        name,
        None if agent is None else as_agents(np.asarray(agent), where),
        None if split is None else as_split(np.asarray(split), where),
        None if image is None else tuple(image),
    )


# Partitions.


def dealer(s: Scenario, found: Any) -> Callable[..., Any]:
    """The function that deals records, checked: labels, classes, agents and seed are what it may ask for."""
    name = name_of(s, "partition")
    if not callable(found):
        with _naming_line(s, "partition", found):
            raise InputError(f"problem.partition: {name} is no function. Define it as a function of labels and agents.")
    asked = parameters(found, "problem.partition", name)
    known = ("labels", "classes", "agents", "seed")
    place = f"{name}{source_of(found)}"
    _refuse_unknown(asked, known, "problem.partition", place)

    def deal(**values: Any) -> Any:
        return _called(found, {k: values[k] for k in asked if k in known}, "problem.partition", name)

    return NamedPartition(deal, place)


# How functions of the user's own are called, and refused.


@contextmanager
def _naming_line(s: Scenario, what: str, found: Any) -> Iterator[None]:
    """Add to a refusal of what a component gives the line that defines it, where it names no line.

    Args:
        s: the scenario.
        what: a key of `outside_components.KEYS`.
        found: the component.
    """
    try:
        yield
    except InputError as error:
        text, name = str(error), name_of(s, what)
        # Of an object that was handed over, the line would be that of its class, somewhere in a library.
        place = source_of(found) if callable(found) or not is_given(s, what) else ""
        path, inside = s.files().get(KEYS[what]), None if is_given(s, what) else in_file(name)
        if not place and path is not None and inside is not None:
            # What is no function of its own: a list, for example.
            line = line_at_top(path, inside.name)
            place = f" (line {line} of {path})" if line is not None else ""
        called = next((shown for shown in (repr(name), name) if shown in text), None)
        if not place or place in text or _A_LINE.search(text):
            raise
        if called is not None:
            raise InputError(text.replace(called, f"{called}{place}", 1)) from error
        raise InputError(f"{text.rstrip('.')}; {name}{place} gives it.") from error


def parameters(found: Callable[..., Any], key: str, name: str) -> dict[str, tuple[Any, Any]]:
    """Parameter → (type, default or ...), of a function whose parameters all have names. Raises InputError."""
    try:
        signature = inspect.signature(found, eval_str=True)
    except USER_ERRORS as error:
        raise InputError(
            f"{key}: what {name}{source_of(found)} takes cannot be told: {reason(error)}. Mend it."
        ) from error
    out = {}
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise InputError(f"{key}: {name}{source_of(found)} takes {p}; wanted parameters by name. Write them out.")
        out[p.name] = (Any if p.annotation is p.empty else p.annotation, ... if p.default is p.empty else p.default)
    return out


def _refuse_unknown(asked: Mapping[str, tuple[Any, Any]], known: Any, key: str, name: str) -> None:
    for parameter, (_, default) in asked.items():
        if parameter not in known and default is ...:
            raise InputError(f"{key}: {name} takes {parameter}; it can take {', '.join(known)}, by these names.")


def _called(found: Callable[..., Any], values: Mapping[str, Any], key: str, name: str) -> Any:
    return call(found, values, lambda e: f"{key}: {name} does not run: {blamed(e)}. Mend it.")
