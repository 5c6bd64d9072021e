"""Components from outside the package: files, entry points and objects, looked up and tried at the door.

Functions of the user's own: a graph, the records of a data set, and who holds which record.

Problems, objectives, topologies, data sets and partitions of the user's own, as a scenario names them.

    problem.kind      = "my_problem.py:Mine"      a class: see `problems.recordwise` and `problems.minimax.
                                                  recordwise_objective`; its dataclass fields are keys of [problem]
    topology.kind     = "my_graph.py:grid"        grid(agents, …) → networkx.Graph, or pairs of agents; what else it
                                                  takes are keys of [topology]
    problem.data      = "my_data.py:load"         load() → features, labels; or a table of them; or a `Dataset`
    problem.partition = "my_split.py:deal"        deal(labels, agents, …) → the agent of each record

By the name of an entry point of an installed package, and as a Python object to `run`, they are taken just so.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, get_type_hints

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from decentral_dp.config.loading import explain
from decentral_dp.config.problem_schema import SHARED_KEYS, Column, Partition, ProblemTable
from decentral_dp.config.schema import COMPONENTS, Scenario, TopologyTable
from decentral_dp.data import Dataset
from decentral_dp.data.dataset import as_agents, as_split, encode_labels, nearest, require_two_classes
from decentral_dp.data.partition import NamedPartition
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.source_lines import line_at_top, place_in_class, place_of
from decentral_dp.files.tables import Table
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.secret import Secret
from decentral_dp.topology import Topology, from_edges, from_matrix, from_networkx
from decentral_dp.topology.graph import unknown_key
from decentral_dp.user_code import USER_ERRORS, blamed, call, find_outside, in_file, own_name, reason, untyped_options

ProblemType = Literal["bilevel", "minimax"]

# Component → the scenario's key that names one, and the groups of entry points that it may be in.
KEYS: Mapping[str, tuple[str, ...]] = {
    "problem": ("problem", "kind"),
    "topology": ("topology", "kind"),
    "data": ("problem", "data"),
    "partition": ("problem", "partition"),
}
_LONGEST_NAME = 60
GROUPS_OF: Mapping[str, tuple[str, ...]] = {"problem": ("problem", "objective")}


@dataclass(frozen=True)
class GivenComponents:
    """Components that are handed over as Python objects, in place of those that the scenario names; None: its own.

    Args:
        problem: a bilevel problem, a minimax problem, or the formulas of one (an instance with its options set).
        topology: a `networkx.Graph`, a `Topology`, or pairs of agents.
        data: (features, labels), a table of columns, or a `Dataset`.
        partition: a function, as in a file.
    """

    problem: Any = None
    topology: Any = None
    data: Any = None
    partition: Any = None


def with_given(s: Scenario, given: GivenComponents) -> Scenario:
    """The scenario with these objects in place of what it names. What is found in files is looked up once for it."""
    chosen = s.model_copy()
    components = {what: value for what in KEYS if (value := getattr(given, what)) is not None}
    chosen._components, chosen._given = Secret(COMPONENTS, components), frozenset(components)
    if "topology" in components and chosen.run_graph is not None:
        # It is here again, and so is what the scenario said of it before its folder had a file.
        table = TopologyTable.model_validate_json(chosen.run_graph.table)
        again = chosen.model_copy(update={"topology": table, "run_graph": None})
        again._components, again._given = chosen._components, chosen._given
        return again
    return chosen


def require_objects(s: Scenario, handed: Collection[str]) -> Scenario:
    """The scenario of a run folder, less the note of what its components were, once they are here again.

    Args:
        s: the scenario.
        handed: components that are given as Python objects.

    Raises:
        InputError: one of them is missing, and what the scenario says in its place is another.
    """
    missing = next((what for what in s.objects if what not in handed), None)
    if missing is None:
        return s.model_copy(update={"objects": {}}) if s.objects else s
    raise InputError(
        f"objects.{missing}: this scenario is that of a run whose {missing} was a Python object "
        f"({printable(s.objects[missing])}), which no file holds. Give it again in Python, "
        f"decentral_dp.run(scenario, {missing}=…), or name another {missing} in the scenario and take the line out."
    )


def objects_of(s: Scenario) -> dict[str, str]:
    """Component → what it was, of those that were given as Python objects and are in no file."""
    found = {what: name_of(s, what) for what in sorted(s._given)}
    return found | dict(s._objects)


def component(s: Scenario, what: str) -> Any | None:
    """What a scenario is given, or names in a file or by entry point; None where it names something registered.

    Raises:
        InputError: for a file or an entry point that does not give it.
    """
    if not s._components and not is_given(s, what):
        # A copy from elsewhere finds in files what was found in files.
        return _found(s, what)
    components = s._components()
    if what not in components:
        components[what] = _found(s, what)
    return components[what]


def is_given(s: Scenario, what: str) -> bool:
    """Whether it was handed over as a Python object."""
    return what in s._given


def _found(s: Scenario, what: str) -> Any | None:
    place = KEYS[what]
    written = getattr(getattr(s, place[0]), place[1])
    if not isinstance(written, str) or written in _registered(what):
        return None
    key, inside, path = ".".join(place), in_file(written), s.files().get(place)
    if inside is not None and path is not None:
        written = f"{path}:{inside.name}"
    for group in GROUPS_OF.get(what, (what,)):
        if what == "data" and inside is None and not written.lower().endswith(".py") and Path(written).suffix:
            return None  # A file of records.
        found = find_outside(group, written, s.folder, key)
        if found is not None:
            return found
    return None


def _registered(what: str) -> Sequence[str]:
    from decentral_dp.data import DATASETS
    from decentral_dp.problems import PROBLEMS
    from decentral_dp.problems.minimax import MINIMAX
    from decentral_dp.topology import GENERATORS

    return {"problem": [*PROBLEMS, *MINIMAX], "topology": [*GENERATORS], "data": [*DATASETS], "partition": ["iid"]}[
        what
    ]


def name_of(s: Scenario, what: str) -> str:
    """What messages call it: as the scenario writes it, without folders; of an object its name, or that of its type."""
    if is_given(s, what):
        given = s._components()[what]
        # A graph of networkx may have a name of its own; a column of a table has one, too, which says nothing.
        own = getattr(given, "name", None) if what == "topology" else None
        if isinstance(own, str) and own.strip():
            return printable(own.strip())[:_LONGEST_NAME]
        return str(getattr(given, "__name__", type(given).__name__))
    place = KEYS[what]
    return own_name(str(getattr(getattr(s, place[0]), place[1])))


# Problems.


def problem_type(found: Any, name: str) -> ProblemType:
    """Whether a class or an object is a bilevel or a minimax problem. Raises InputError where it is neither."""
    if (hasattr(found, "sums") and hasattr(found, "project_y")) or hasattr(found, "slopes"):
        return "minimax"
    if (hasattr(found, "terms") and hasattr(found, "prepare")) or hasattr(found, "lower_grad_y"):
        return "bilevel"
    raise InputError(
        f"problem.kind: {name} is neither a bilevel problem, which has lower_grad_y, nor a minimax objective, which "
        f"has slopes{place_of(found)}. Define its methods."
    )


def instance(s: Scenario, found: Any, table_keys: Mapping[str, Any]) -> Any:
    """The object of a class, its options set by the scenario; an object that was handed over as it is.

    table_keys: what the [problem] table says beyond what every problem shares. Raises InputError.
    """
    if not isinstance(found, type):
        if is_given(s, "problem") or not table_keys:
            return found
        raise _takes_none(next(iter(table_keys)), name_of(s, "problem"))
    name, place = name_of(s, "problem"), source_of(found)
    options = option_fields(found, name)
    chosen = checked_options(options, table_keys, "problem", f"{name}{place}")
    return call(found, chosen, lambda e: f"problem.kind: {name} refuses these options: {blamed(e)}. Set others.")


def option_fields(found: type, name: str) -> dict[str, tuple[Any, Any]]:
    """Key → (type, default or ... where it is required), of the options of a class: its dataclass fields."""
    untyped = untyped_options(found)
    if untyped:
        place = place_in_class(found, untyped[0]) or source_of(found)
        raise InputError(
            f"problem.kind: {name} sets {untyped[0]} without a type{place}, so it is no option. Write for "
            f"example {untyped[0]}: float = …, or in capitals where it is none."
        )
    if not is_dataclass(found):
        if "__init__" in vars(found) or vars(found).get("__annotations__"):
            raise InputError(
                f"problem.kind: {name}{source_of(found)} is no dataclass, so its options are not known. Decorate it "
                "with @dataclass(frozen=True)."
            )
        return {}
    scope = next((f.__globals__ for f in vars(found).values() if isinstance(f, FunctionType)), {})
    try:
        types = get_type_hints(found, globalns=scope)
    except USER_ERRORS as error:
        why = f"{reason(error)}{place_of(found)}"
        raise InputError(f"problem.kind: a field of {name} has no usable type: {why}. Mend it.") from error
    out, keys = {}, ProblemTable.model_fields
    for f in fields(found):
        # A default that is written out in a run folder could not be told from an option of that value.
        if f.name in SHARED_KEYS or (f.name in keys and keys[f.name].default is not None):
            raise InputError(
                f"problem.kind: {name} has a field {f.name}, which is a key of every problem"
                f"{place_in_class(found, f.name)}. Give it another name."
            )
        default = f.default if f.default_factory is MISSING else f.default_factory()
        out[f.name] = (types[f.name], ... if default is MISSING else default)
    return out


def source_of(found: Any) -> str:
    """ " (line 3 of file)", where it is known."""
    home = found if isinstance(found, type) else type(found)
    methods = [f for f in vars(home).values() if isinstance(f, FunctionType)]
    functions = [found] if isinstance(found, FunctionType) else methods
    # A dataclass's own methods are in no file.
    functions = [f for f in functions if not f.__code__.co_filename.startswith("<")]
    where = min(functions, key=lambda f: f.__code__.co_firstlineno, default=None)
    return f" (line {where.__code__.co_firstlineno} of {where.__code__.co_filename})" if where is not None else ""


def checked_options(
    options: Mapping[str, tuple[Any, Any]], given: Mapping[str, Any], table: str, name: str
) -> dict[str, Any]:
    """Check options by name: of their types, none unknown, none missing.

    Args:
        options: key → (type, default, or ... where it is required).
        given: key → value, as the scenario has it.
        table: name of the scenario's table, for messages.
        name: of the component and where it stands, for messages.

    Returns:
        Key → value for every option, its default where none is given.

    Raises:
        InputError: an option that is unknown, missing or of another type.
    """
    known: dict[str, Any] = dict(options)
    # The message speaks of the scenario that an option is missing in.
    model = create_model("scenario", __base__=_Options, **known)
    try:
        valid = model.model_validate(dict(given))
    except ValidationError as error:
        raise InputError(f"{table}.{explain(error, model).rstrip('.')}; {name} says what it takes.") from None
    return {key: getattr(valid, key) for key in options}


class _Options(Table):
    """Options of a component from outside."""

    model_config = ConfigDict(arbitrary_types_allowed=True)


def _takes_none(key: str, name: str) -> InputError:
    return InputError(f"problem.{key}: {name} takes none. Leave it out.")


def table_options(table: ProblemTable) -> dict[str, Any]:
    """What the [problem] table says beyond what every problem shares."""
    return dict(table.model_extra or {})


# What is said of them, and what keys the noise.


def authors_word(s: Scenario) -> list[str]:
    """What the ledger takes on the author's word, in sentences that follow these words."""
    said = {
        "problem": "is clipped record by record, and each row that it computes is of its own record alone; made-up "
        "records were tried, no more",
        "data": "gives one record to a person, and nothing in it was fitted on the records: no scale, no choice of "
        "features, no list of classes",
        "partition": "deals by nothing but its arguments, and alike whenever it is asked",
        "topology": "was chosen without reading a record",
    }
    return [f"{quoted(name_of(s, what))} {text}." for what, text in said.items() if component(s, what) is not None] + [
        f"{quoted(file)} {text}; made-up records were tried, no more." for file, text in _files_of_code(s).items()
    ]


def _files_of_code(s: Scenario) -> dict[str, str]:
    """File → what is taken on its author's word, of files of Python code that are no components."""
    table, model = s.problem, s.problem.model
    out = {} if table.losses is None else {Path(table.losses).name: "gives losses of one record alone"}
    if str(table.loss).lower().endswith(".py"):
        out[Path(str(table.loss)).name] = "gives the loss of one record alone"
    if model is not None and model.file is not None:
        out[Path(str(model.file)).name] = "makes a module whose outputs and gradients are of one record alone"
    return out


def reads_user_code(s: Scenario) -> bool:
    """Whether Python code of the user's own, found by whatever way, computes on records or deals them."""
    return bool(_files_of_code(s)) or any(component(s, what) is not None for what in ("problem", "data", "partition"))


def fingerprints(s: Scenario) -> dict[str, str]:
    """Component → digest of what it is, of those that no file of the scenario holds: objects and entry points."""
    out = {}
    for what, place in KEYS.items():
        if not is_given(s, what) and place in s.files():
            continue  # Its file is hashed.
        found = component(s, what)
        if found is not None:
            out[what] = digest_of(found)
    return out


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
