"""Problems, objectives, topologies, data sets and partitions of the user's own, as a scenario names them.

    problem.kind      = "my_problem.py:Mine"      a class: see `problems.recordwise` and `problems.minimax.
                                                  recordwise_objective`; its dataclass fields are keys of [problem]
    topology.kind     = "my_graph.py:grid"        grid(agents, …) → networkx.Graph, or pairs of agents; what else it
                                                  takes are keys of [topology]
    problem.data      = "my_data.py:load"         load() → features, labels; or a table of them; or a `Dataset`
    problem.partition = "my_split.py:deal"        deal(labels, agents, …) → the agent of each record

By the name of an entry point of an installed package, and as a Python object to `run`, they are taken just so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from decentral_dp.config.loading import explain
from decentral_dp.config.problem_schema import SHARED_KEYS, ProblemTable
from decentral_dp.config.schema import COMPONENTS, Scenario, TopologyTable
from decentral_dp.config.table_types import Table
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.source_lines import place_in_class, place_of
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.secret import Secret
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


def notes(s: Scenario) -> list[str]:
    """What the ledger takes on the author's word, in sentences that belong beside the budget."""
    said = {
        "problem": "is clipped record by record, and each row that it computes is of its own record alone; made-up "
        "records were tried, no more",
        "data": "gives one record to a person, and nothing in it was fitted on the records: no scale, no choice of "
        "features, no list of classes",
        "partition": "deals by nothing but its arguments, and alike whenever it is asked",
        "topology": "was chosen without reading a record",
    }
    return [
        f"On the author's word: {quoted(name_of(s, what))} {text}."
        for what, text in said.items()
        if component(s, what) is not None
    ] + [
        f"On the author's word: {quoted(file)} {text}; made-up records were tried, no more."
        for file, text in _files_of_code(s).items()
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
