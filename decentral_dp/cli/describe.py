"""What a scenario or a study can name, and what its keys mean: facts that `list`, `show` and docs/reference format.

`describe` says what a component is, and `keys` lists the keys of scenarios and studies. The terminal's form of both is
here, that of the reference's pages in `reference`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

import decentral_dp
from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.options import Option, constraint
from decentral_dp.config.component_tables import AlgorithmTable, ProblemTable
from decentral_dp.config.components import outside_entry
from decentral_dp.config.loading import find, load, shipped_names
from decentral_dp.config.missing_keys import algorithm_tables
from decentral_dp.config.outside import KEYS, ROUND, option_fields, parameters, problem_type
from decentral_dp.config.schema import Scenario
from decentral_dp.data import DATASETS, ENVIRONMENTS, PARTITIONS
from decentral_dp.data import load as load_data
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.package import shipped_folder
from decentral_dp.files.tables import DeclaredKey, type_in_words
from decentral_dp.privacy.mechanisms import MECHANISMS
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.words import ENDINGS
from decentral_dp.simulation.plan import console
from decentral_dp.studies.measures import group_measures
from decentral_dp.studies.schema import Study, load_study
from decentral_dp.topology import GENERATORS, WEIGHTS, from_file, names, title
from decentral_dp.user_code import GROUPS, entry_points_of, find_outside, in_file

# Names that a refusal suggests, at most.
_NEAREST = 3
# What is described by the file itself: what a name is of → its list.
_FILES = {"scenario": "scenarios", "study": "studies"}
_MECHANISMS = ("laplace", "gaussian")
_PARTITIONS = {
    "iid": '"iid"',
    "by_class": '{ kind = "by_class", share = 0.8 }',
    "dirichlet": '{ kind = "dirichlet", alpha = 0.5 }',
    "column": '{ kind = "column", name = "agent" }',
}
# Stands for whatever name a table of tables has there, such as that of a variable.
ANY = "*"


class Key(NamedTuple):
    """What is said of a key.

    Args:
        name: in its table; of a study or scenario from the top, with dots.
        meaning: a phrase, or sentences.
        may_be: the valid values in words.
        default_text: what holds without it; "required", or "" where it may be left out.
        unit: of a number, or "".
        example: as a scenario could give it.
    """

    name: str
    meaning: str
    may_be: str = ""
    default_text: str = ""
    unit: str = ""
    example: str = ""


class Component(NamedTuple):
    """What is said of a component.

    Args:
        name: of the list.
        registry: of which list.
        line: of the list.
        text: its derivation, as its docstring has it.
        keys: that it reads.
        notes: sentences on it.
        facts: what the reference says besides, in Markdown.
        usage: how a scenario names it, in TOML; of an experiment the command.
    """

    name: str
    registry: str
    line: str
    text: str = ""
    keys: tuple[Key, ...] = ()
    notes: str = ""
    facts: tuple[str, ...] = ()
    usage: str = ""


def registries(*, titles: bool = True) -> dict[str, dict[str, str]]:
    """Registry → name → one line. titles: whether scenarios and studies, which are files, are read for theirs."""
    lines = {
        "algorithms": {k: e.summary for k, e in ALGORITHMS.items()},
        "problems": {k: e.summary for k, e in PROBLEMS.items()},
        "topologies": {k: g.summary for k, g in GENERATORS.items()} | {n: title(n) for n in names()},
        "scenarios": {n: load(n).title if titles else "" for n in shipped_names("scenario")},
        "studies": {n: load_study(n).title if titles else "" for n in shipped_names("study")},
        "experiments": {n: f"{e.alias}: {e.title}. {e.claim}" for n, e in _experiments().items()},
        "data": dict(DATASETS),
        "weights": {k: r.summary for k, r in WEIGHTS.items()},
        "mechanisms": {k: f"{MECHANISMS[k].description} of certified runs" for k in _MECHANISMS},
        "partitions": dict(PARTITIONS),
    }
    # Those of installed packages, which are not imported to be listed, come first.
    for what, group in GROUPS.items():
        registry = "problems" if what == "objective" else group.rpartition(".")[2]
        installed = {name: f"of an installed package: {point.value}" for name, point in entry_points_of(what).items()}
        lines[registry] = installed | lines[registry]
    return lines


def papers() -> ModuleType | None:
    """The package `papers` of published claims, beside this one in a checkout; None where there is none."""
    if "papers" in sys.modules:
        return sys.modules["papers"]
    root = Path(decentral_dp.__file__).parents[1]
    spec = spec_from_file_location("papers", root / "papers" / "__init__.py")
    # Another distribution may install a package of this name; it has no project file beside it.
    if spec is None or spec.loader is None or not (root / "pyproject.toml").is_file() or not (root / "papers").is_dir():
        return None
    sys.modules["papers"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def require_papers() -> ModuleType:
    """The package `papers`. Raises InputError where it is not here."""
    module = papers()
    if module is None:
        raise InputError(
            "experiment: the experiments on published claims are in the repository's folder papers/, and this is an "
            "installed package without it. Clone the repository, and install it with `pip install -e .`."
        )
    return module


def _experiments() -> Mapping[str, Any]:
    """Name → experiment; nothing where the folder papers/ is not here."""
    module = papers()
    return {} if module is None else module.EXPERIMENTS


def describe(registry: str, name: str) -> Component:
    """Describe a component of a list.

    Args:
        registry: of `registries`, but for scenarios and studies.
        name: in that list; none of an installed package.
    """
    line = registries(titles=False)[registry][name]
    return _DESCRIBED[registry](name, Component(name, registry, line))


def _algorithm(entry: Entry) -> Component:
    keys = tuple(of_option(option) for option in entry.keys)
    if entry.private:
        keys += (of_schema(AlgorithmTable, "protocol"),)
    facts = [f"Setting: {entry.rules.trust}; {entry.solves} problems."]
    facts += ["Adds no Gaussian noise: δ = 0 will do."] if entry.pure else []
    facts += ['Knows `protocol = "private"`.'] if entry.private else []
    facts += [f'`guarantee = "as_printed"` runs {entry.claim}.'] if entry.claim else []
    facts += [f"Message t {entry.message}"] if entry.message else []
    facts += [f"{cited.part}: {cited.work.text}" for cited in entry.citations]
    facts += [f"Module: `{entry.module_name}`."]
    text = inspect.getdoc(entry.algorithm) or "" if entry.origin else _docstring(entry.module_name)
    tables = algorithm_tables(entry)
    return Component(entry.kind, "algorithms", entry.summary, text, keys, "", tuple(facts), tables)


def _problem(name: str, component: Component) -> Component:
    entry = PROBLEMS[name]
    keys = tuple(of_schema(ProblemTable, key.name)._replace(meaning=key.description) for key in entry.keys)
    keys = tuple(key._replace(default_text="required") if key.name in entry.required_keys else key for key in keys)
    table_text = f'[problem] kind = "{name}"{"".join(f", {key} = …" for key in entry.options)}'
    return component._replace(text=entry.description, keys=keys, usage=table_text)


def _topology(name: str, component: Component) -> Component:
    """A generator's parameters and a small instance, or a named network's numbers."""
    if name in GENERATORS:
        generator = GENERATORS[name]
        agents, example = generator.example
        chosen = "".join(f", {key} = {value}" for key, value in example.items())
        drawn = " Drawn at random from topology.seed." if generator.random else ""
        return component._replace(
            keys=tuple(map(of_parameter, generator.parameters)),
            notes=f"At least {_count(generator.min_agents, 'agent')}.{drawn}",
            usage=f'[topology] kind = "{name}", agents = {agents}{chosen}',
        )
    network = from_file(name)
    few, many = int(network.degrees.min()), int(network.degrees.max())
    neighbours = _count(many, "neighbour") if few == many else f"{few} to {many} neighbours"
    notes = f"{_count(network.n_agents, 'agent')} with {neighbours} each, {len(network.edges)} links; "
    notes += f"with {network.weights} weights ρ = {network.rho:.4f}."
    return component._replace(notes=notes, usage=f'[topology] file = "{name}"')


def _rule(name: str, component: Component) -> Component:
    rule = WEIGHTS[name]
    return component._replace(keys=tuple(map(of_parameter, rule.parameters)), usage=f"[topology] {rule.usage}")


def _data(name: str, component: Component) -> Component:
    return component._replace(notes=_records(name), usage=f'[problem] data = "{name}"')


def _mechanism(name: str, component: Component) -> Component:
    text = inspect.getdoc(type(MECHANISMS[name])) or ""
    return component._replace(text=text, usage=f'[privacy] mechanism = "{name}"')


def _experiment(name: str, component: Component) -> Component:
    text = _docstring(f"papers.{_experiments()[name].module}")
    return component._replace(text=text, usage=f"decentral-dp experiment {name}")


_DESCRIBED: Mapping[str, Callable[[str, Component], Component]] = {
    "algorithms": lambda name, component: _algorithm(ALGORITHMS[name]),
    "problems": _problem,
    "topologies": _topology,
    "experiments": _experiment,
    "data": _data,
    "weights": _rule,
    "mechanisms": _mechanism,
    "partitions": lambda name, component: component._replace(usage=f"[problem] partition = {_PARTITIONS[name]}"),
}


def _records(name: str) -> str:
    """What is said of a data set."""
    if name.startswith("synthetic_"):
        of_classes = ", separation, relevant" if name == "synthetic_classification" else ""
        return f"Sizes: [problem.synthetic] dimension, records (per agent), test_records{of_classes}."
    if name in ENVIRONMENTS:
        return (
            "CartPole-v1, played by a fixed public policy; 4 numbers a step, mapped to [-1, 1] by declared constants.\n"
            "Sizes: [problem.synthetic] records (trajectories per agent, 100), test_records (200), steps (100).\n"
            "Needs the package gymnasium. Trajectories of your own: a .npz file with observations\n"
            "(n, L+1, d), rewards (n, L), lengths (n,), and terminal (n,) where some end in a state of value 0."
        )
    dataset = load_data(name, n_agents=1, seed=0)
    named = ", ".join(dataset.feature_names[:3])
    return (
        f"{_count(dataset.n, 'record')}, {dataset.features.shape[1]} features ({named}, …); "
        f"classes {', '.join(str(c) for c in dataset.classes)}.\n"
        'scale = "public_ranges" maps the features to [-1, 1] by ranges that were not fitted on the records.'
    )


def _docstring(place: str) -> str:
    """place: module, or module:name."""
    module, _, name = place.partition(":")
    source = importlib.import_module(module)
    return inspect.getdoc(getattr(source, name) if name else source) or ""


def _count(n: int, noun: str) -> str:
    return f"1 {noun}" if n == 1 else f"{n} {noun}s"


# Keys.


def of_option(option: Option) -> Key:
    """A key of an algorithm."""
    left_out = _default_words(option.required, option.default)
    meaning = option.description or "no description"
    return Key(option.key, meaning, constraint(option), left_out, option.unit, option.example)


def of_parameter(p: DeclaredKey) -> Key:
    """A key of a generator, or of a weight rule."""
    return Key(p.name, p.description, type_in_words(p.type), _default_words(p.required, p.default))


def of_schema(table: type[BaseModel], key: str) -> Key:
    """A key of a table."""
    return next(row for row in keys_of(table.model_json_schema()) if row.name == key)


def keys_of(schema: Mapping[str, Any]) -> list[Key]:
    """The keys of a table by its schema, and none of the tables inside it."""
    required = schema.get("required", [])
    return [
        Key(
            name,
            value.get("description", ""),
            kind_words(value),
            _default_words(name in required, value.get("default")),
        )
        for name, value in schema.get("properties", {}).items()
    ]


def _default_words(required: bool, default: Any) -> str:
    if required:
        return "required"
    if default in (None, "", [], {}):
        return ""
    return "the defaults of its keys" if isinstance(default, Mapping) else str(default)


_KINDS = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def kind_words(value: Mapping[str, Any]) -> str:
    """What a value may be, in words, by its schema."""
    if "$ref" in value:
        return f"table {value['$ref'].rpartition('/')[2]}"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in value:
            kinds = [kind_words(v) for v in value[several] if v.get("type") != "null"]
            return ", or ".join(dict.fromkeys(kinds))
    if "const" in value:
        return f'"{value["const"]}"'
    if "enum" in value:
        return ", ".join(map(quoted, value["enum"]))
    if value.get("type") == "array":
        return f"list of {kind_words(value.get('items', {}))}"
    if value.get("type") == "object":
        inside = value.get("additionalProperties")
        return f"table of {kind_words(inside)}" if isinstance(inside, Mapping) else "table"
    bounds = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
    parts = [f"{words} {value[key]:g}" for key, words in bounds.items() if key in value]
    return " ".join([_KINDS.get(str(value.get("type")), "any value"), ", ".join(parts)]).strip()


@cache
def keys() -> tuple[tuple[Key, str], ...]:
    """Every key of scenarios, and with study in front of studies, and one who reads it; as often as it has readers."""
    rows: list[tuple[Key, str]] = []
    own = {f"algorithm.{option.key}" for entry in ALGORITHMS.values() for option in entry.keys}
    readers: dict[str, list[str]] = {}
    for kind, problem in PROBLEMS.items():
        for key_read in problem.options:
            readers.setdefault(f"problem.{key_read}", []).append(kind)
    for key in _of_tables(Scenario.model_json_schema(), ""):
        if key.name not in own:
            rows += [(key, reader) for reader in readers.get(".".join(key.name.split(".")[:2]), [""])]
    for entry in ALGORITHMS.values():
        rows += [
            (_with_table("algorithm", of_option(option)._replace(example="")), entry.kind) for option in entry.keys
        ]
    for table, kinds in (("topology", GENERATORS), ("topology.weights", WEIGHTS)):
        rows += [(_with_table(table, of_parameter(p)), kind) for kind, one in kinds.items() for p in one.parameters]
    return (*rows, *((key, "") for key in _of_tables(Study.model_json_schema(), "study.")))


def _with_table(table: str, key: Key) -> Key:
    return key._replace(name=f"{table}.{key.name}")


def _of_tables(schema: Mapping[str, Any], start: str) -> Iterator[Key]:
    """Every key of a schema, and of the tables inside it, dotted."""
    defined = schema.get("$defs", {})

    def keys_below(table: Mapping[str, Any], place: str) -> Iterator[Key]:
        for key in keys_of(table):
            yield key._replace(name=f"{place}{key.name}")
            for inner, below in _inner_tables(table["properties"][key.name], f"{place}{key.name}."):
                yield from keys_below(defined.get(inner, {}) if isinstance(inner, str) else inner, below)

    yield from keys_below(schema, start)


def _inner_tables(value: Mapping[str, Any], place: str) -> Iterator[tuple[str | Mapping[str, Any], str]]:
    """The tables that a value may be, or hold, each by its name or whole, and how the keys inside it begin."""
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2], place
    if "properties" in value:
        yield value, place
    for inner in value.get("anyOf", ()):
        yield from _inner_tables(inner, place)
    if isinstance(value.get("items"), Mapping):
        yield from _inner_tables(value["items"], place)
    if isinstance(value.get("additionalProperties"), Mapping):
        yield from _inner_tables(value["additionalProperties"], f"{place}{ANY}.")


# On the terminal.


def print_list(kinds: Sequence[str]) -> None:
    """Print name and summary of everything in these registries."""
    out, everything = console(), registries()
    for k, registry in enumerate(kinds):
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 2), pad_edge=True)
        for name, line in everything[registry].items():
            table.add_row(Text(name, no_wrap=True), Text(line))
        if k:
            out.print()
        out.print(Text(registry, style="bold"))
        out.print(table)


def print_entry(name: str) -> None:
    """The text of a scenario or a study, or the description of a registered name; all where a name is several.

    Where there is a scenario, all that stands before it is in comments: the whole can be kept as a scenario file.
    """
    # What a file or a package brings may be a component of any kind, and only the thing itself says which.
    if (
        in_file(name) is not None
        or name.lower().endswith(".py")
        or any(name in entry_points_of(what) for what in GROUPS)
    ):
        print(printable(_describe_outside(name)))
        return
    if name == "measures":
        print(f"measures (of studies)\n\n{_measure_lines()}")
        return
    lists = registries(titles=False)
    # An experiment goes by its short name, too.
    name = next((n for n, e in _experiments().items() if e.alias == name), name)
    known = [registry for registry, lines in lists.items() if name in lines]
    # A file is read, whatever it is called.
    text = None if known or Path(name).is_file() else key_entries(name)
    if text:
        print(printable(text))
        return
    parts = [f"{terminal(describe(registry, name))}\n" for registry in known if registry not in _FILES.values()]
    written = [what for what, registry in _FILES.items() if registry in known] or ([] if parts else ["scenario"])
    parts += [_text(name, what) for what in reversed(written)]
    if len(parts) == 1 or not written:
        print(printable("\n".join(parts)), end="")
        return
    for part in parts[:-1]:
        print(textwrap.indent(printable(part), "# ", lambda line: True).replace("# \n", "#\n"))
    print(printable(f"# {name} ({written[0]}):\n{parts[-1]}"), end="")


def terminal(component: Component) -> str:
    """What `show` prints of a component."""
    c, where = component, "On the command line" if component.registry == "experiments" else "In a scenario"
    head = f"{c.name} ({c.registry})" if c.registry else c.name
    parts = [f"{head}: {c.line}" if c.line else head, c.text]
    parts.append("\n".join(["Keys:", *map(_key_line, c.keys)]) if c.keys else "")
    parts.append(c.notes)
    if c.usage:
        parts.append(f"{where}:{chr(10) * 2 if chr(10) in c.usage else ' '}{c.usage}")
    return "\n\n".join(part for part in parts if part)


def _key_line(key: Key) -> str:
    """What a key is, what it may be, and what holds where it is left out."""
    left_out = {"required": "required", "": "may be left out"}.get(key.default_text, f"{key.default_text} if left out")
    bounds = "; ".join(filter(None, (key.may_be, left_out)))
    if key.meaning.endswith("."):
        return f"  {key.name}: {key.meaning} {bounds[:1].upper()}{bounds[1:]}."
    meaning = f"{key.meaning} [{key.unit}]" if key.unit else key.meaning
    return f"  {key.name}: {'; '.join(filter(None, (meaning, bounds)))}"


# Component → parameters of its function that a scenario says elsewhere.
_PARAMETERS_OF_SCENARIO = {
    "topology": ("agents", "seed", ROUND),
    "data": ("agents", "seed"),
    "partition": ("labels", "classes", "agents", "seed"),
}


def _describe_outside(name: str) -> str:
    """What a component of a user's own says of itself, and its keys. Raises InputError where there is none."""
    groups = [what for what in GROUPS if name in entry_points_of(what)]
    entry: Any = find_outside(groups[0] if groups else "algorithm", name, Path.cwd(), "show")
    if hasattr(entry, "step"):
        return terminal(_algorithm(outside_entry(entry, name))._replace(name=name))
    what = {"objective": "problem"}.get(groups[0], groups[0]) if groups else _kind_of(entry)
    options: Mapping[str, tuple[Any, Any]] = {}
    kind, usage, more = what, "", ""
    if what == "problem":
        kind = f"{problem_type(entry, name)} problem"
        options = option_fields(entry, name) if isinstance(entry, type) else {}
    elif what in _PARAMETERS_OF_SCENARIO:
        known = parameters(entry, ".".join(KEYS[what]), name)
        kind = {"data": "data set"}.get(what, what)
        options = {key: option for key, option in known.items() if key not in _PARAMETERS_OF_SCENARIO[what]}
        more = ", agents = 10" if what == "topology" and "agents" in known else ""
    elif is_dataclass(entry):
        defaults = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(entry)}
        options = {key: ("", ... if default is MISSING else default) for key, default in defaults.items()}
    required = [key for key, (_, default) in options.items() if default is ...]
    if what == "mechanism":
        table = f'{{ kind = "{name}"{"".join(f", {key} = …" for key in required)} }}' if required else f'"{name}"'
        usage = f"[privacy] mechanism = {table}"
    elif what in KEYS:
        table, key = KEYS[what]
        usage = f'[{table}] {key} = "{name}"{more}{"".join(f", {key} = …" for key in required)}'
    keys = tuple(
        Key(key, "", _type_words(annotation), "required" if default is ... else repr(default))
        for key, (annotation, default) in options.items()
    )
    registry = f"a {kind} from outside" if what in KEYS else ""
    return terminal(Component(name, registry, "", inspect.getdoc(entry) or "No description.", keys, usage=usage))


def _type_words(annotation: Any) -> str:
    return "any value" if annotation is Any else getattr(annotation, "__name__", str(annotation))


def _kind_of(component: Any) -> str:
    """What a component is, by what it takes: only that a file defines it is known."""
    if isinstance(component, type) or not callable(component):
        methods = ("lower_grad_y", "slopes", "terms", "sums")
        if any(hasattr(component, method) for method in methods):
            return "problem"
        return "mechanism" if hasattr(component, "cost") and hasattr(component, "sample") else ""
    signature = inspect.signature(component)
    names = set(signature.parameters)
    if "labels" in names:
        return "partition"
    # Data sets have no options. A function of nothing may be either: what it says that it returns tells.
    if names == {"agents"} or names - {"agents", "seed"} or "Graph" in str(signature.return_annotation):
        return "topology"
    return "data"


def _text(name: str, what: str) -> str:
    try:
        path = find(name, what)
    except InputError:
        known = {k for lines in registries(titles=False).values() for k in lines} | set(key_names())
        ends = {key.rpartition(".")[2] for key in key_names()} - {ANY}
        close = get_close_matches(name, sorted(known | ends), n=_NEAREST)
        near = f"; did you mean {' or '.join(map(quoted, close))}." if close else "."
        raise InputError(
            f'show: no name and no key is {quoted(name)}{near} "decentral-dp list" lists the names, and docs/reference '
            "the keys."
        ) from None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"show: {path} cannot be read as text ({error}). Give a scenario file.") from None
    return _with_whole_paths(text, name) if what == "scenario" and path.parent == shipped_folder("scenarios") else text


def _with_whole_paths(text: str, name: str) -> str:
    """A shipped scenario that also runs from elsewhere: the files beside it are named by their whole paths."""
    scenario = load(name)
    content = scenario.model_dump(exclude_unset=True)
    for (*tables, key), path in scenario.files().items():
        table: Any = content
        for outer in tables:
            table = table[outer]
        before, named = f"{key} = {json.dumps(table[key])}", in_file(str(table[key]))
        whole = str(path) if named is None else f"{path}:{named.name}"
        note = "# The file that comes with the package: its whole path, so that a copy of this scenario runs anywhere."
        text = text.replace(f"\n{before}\n", f"\n{note}\n{key} = {json.dumps(whole, ensure_ascii=False)}\n")
    return text


def key_names() -> list[str]:
    """All keys, from the scenario or, with study in front, from the study."""
    return list(dict.fromkeys(key.name for key, _ in keys()))


def key_entries(name: str) -> str:
    """The entries of all keys that end as the name does, part by part; "" where there are none.

    Example:
        >>> print(key_entries("delta").splitlines()[0])
        privacy.delta
    """
    wanted = name.split(".")
    # Keys of which the same is said share an entry.
    entries: dict[Key, tuple[list[str], list[str]]] = {}
    for key, reader in keys():
        if _ends_with(key.name.split("."), wanted):
            named, readers = entries.setdefault(key._replace(name=""), ([], []))
            named.append(key.name)
            readers += [reader] if reader else []
    tables: dict[str, dict[str, None]] = {}
    for key, _ in keys():
        table, _, last = key.name.rpartition(".")
        tables.setdefault(table, {})[last] = None
    return "\n\n".join(
        _entry(named, key, readers, tables.get(named[0], ())) for key, (named, readers) in entries.items()
    )


def _ends_with(key: list[str], ending: list[str]) -> bool:
    return len(ending) <= len(key) and all(
        ours in (theirs, ANY) for ours, theirs in zip(key[::-1], ending[::-1], strict=False)
    )


def _entry(names: list[str], key: Key, readers: list[str], inside: Collection[str]) -> str:
    """inside: keys of the table that this one is, if it is one."""
    left_out = {"required": "Required.", "": "May be left out."}.get(key.default_text, f"Left out: {key.default_text}")
    lines = [", ".join(dict.fromkeys(names)), f"  {key.meaning}"]
    lines += [f"  Unit: {key.unit}"] if key.unit else []
    lines += [f"  May be: {key.may_be}", f"  {left_out}"]
    lines += [f"  Keys: {', '.join(inside)}"] if inside else []
    lines += [f"  Read by: {', '.join(dict.fromkeys(readers))}"] if readers else []
    return "\n".join(lines)


MEASURED = (
    "What a study can name under measure, in plots, gains and claims. Runs measure what fits their problem, and a "
    "study says at its end what none has measured."
)
DISTANCES = "An algorithm that sends other variables than x, y and z has consensus_NAME of each."


def _measure_lines() -> str:
    """The measured names of studies."""
    groups, lines = group_measures(), [MEASURED]
    wide = max(len(name) for measures in groups.values() for name in measures)
    for head, measures in groups.items():
        lines += ["", f"{head}:"]
        for name, m in measures.items():
            also = f"; also {' '.join(m.qualifiers)}" if m.qualifiers else ""
            lines.append(f"  {name:<{wide}}  {m.meaning or m.figure}{also}")
    ends = [f"  {ending:<{wide}}  {meaning}" for ending, (_, meaning) in ENDINGS.items()]
    return "\n".join([*lines, "", "Endings:", *ends, "", DISTANCES])
