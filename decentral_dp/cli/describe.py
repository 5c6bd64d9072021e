"""The commands `list` and `show`: what there is, and what each key means.

The entries of single keys of scenarios and studies, as `show` prints them: meaning, unit, default, who reads it.

What a scenario can name, as `list` and `show` print it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.options import Option, constraint
from decentral_dp.cli.papers import papers
from decentral_dp.cli.reference import kind_words, measure_lines, option_lines
from decentral_dp.config.algorithm_schema import AlgorithmTable
from decentral_dp.config.algorithm_tables import algorithm_tables
from decentral_dp.config.components import outside_entry
from decentral_dp.config.loading import find, load, scenario_folder, scenario_names, shipped_names
from decentral_dp.config.outside import shown
from decentral_dp.config.schema import Scenario
from decentral_dp.data import COLLECTIONS, DATASETS, ENVIRONMENTS, FILED, PARTITIONS
from decentral_dp.data import load as load_data
from decentral_dp.data.collections import COLLECTED
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.privacy.mechanisms import MECHANISMS
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.simulation.plan import console
from decentral_dp.studies.schema import Study, load_study
from decentral_dp.topology import GENERATORS, WEIGHTS, Parameter, from_file, names, title
from decentral_dp.user_code import GROUPS, find_outside, in_file, installed

# Names that a refusal suggests, at most.
_NEAREST = 3
# What is described by the file itself.
_TEXTS = {"scenario": "scenarios", "study": "studies"}


# What a scenario can name.
_MECHANISMS = ("laplace", "gaussian")
_PARTITIONS = {
    "iid": '"iid"',
    "by_class": '{ kind = "by_class", share = 0.8 }',
    "dirichlet": '{ kind = "dirichlet", alpha = 0.5 }',
    "column": '{ kind = "column", name = "agent" }',
}


def registries(*, titles: bool = True) -> dict[str, dict[str, str]]:
    """Registry → name → one line. titles: whether scenarios and studies, which are files, are read for theirs."""
    return {
        "algorithms": _installed("algorithm") | {k: e.summary for k, e in ALGORITHMS.items()},
        "problems": _installed("problem")
        | _installed("objective")
        | {k: e.summary for k, e in PROBLEMS.items()}
        | {k: e.summary for k, e in MINIMAX.items()},
        "topologies": _installed("topology")
        | {k: g.summary for k, g in GENERATORS.items()}
        | {n: title(n) for n in names()},
        "scenarios": {n: load(n).title if titles else "" for n in scenario_names()},
        "studies": {n: load_study(n).title if titles else "" for n in shipped_names("study")},
        "experiments": {n: f"{e.alias}: {e.title}. {e.claim}" for n, e in _experiments().items()},
        "data": _installed("data") | dict(DATASETS),
        "weights": {k: r.summary for k, r in WEIGHTS.items()},
        "mechanisms": _installed("mechanism") | {k: f"{MECHANISMS[k].words} of certified runs" for k in _MECHANISMS},
        "partitions": _installed("partition") | dict(PARTITIONS),
    }


def _experiments() -> Mapping[str, Any]:
    """Name → experiment; nothing where the folder papers/ is not here."""
    module = papers()
    return {} if module is None else module.EXPERIMENTS


def _installed(what: str) -> dict[str, str]:
    """Those of installed packages, which are not imported to be listed."""
    return {name: f"of an installed package: {point.value}" for name, point in installed(what).items()}


def print_list(which: Sequence[str]) -> None:
    out, everything = console(), registries()
    for k, registry in enumerate(which):
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
    if in_file(name) is not None or name.lower().endswith(".py") or any(name in installed(what) for what in GROUPS):
        print(printable(shown(name) or _outside(name)))
        return
    if name == "measures":
        print(f"measures (of studies)\n\n{measure_lines()}")
        return
    lists = registries(titles=False)
    # An experiment goes by its short name, too.
    name = next((n for n, e in _experiments().items() if e.alias == name), name)
    if not any(name in lines for lines in lists.values()) and (text := shown(name)) is not None:
        print(printable(text))
        return
    # A file is read, whatever it is called.
    known = any(name in lines for lines in lists.values()) or Path(name).is_file()
    if not known and (text := key_entries(name)):
        print(printable(text))
        return
    described = [(r, lines[name]) for r, lines in lists.items() if name in lines and r not in _TEXTS.values()]
    parts = [f"{name} ({registry}): {line}\n\n{_details(registry, name)}\n" for registry, line in described]
    written = [what for what, registry in _TEXTS.items() if name in lists[registry]] or (
        [] if described else ["scenario"]
    )
    parts += [_text(name, what) for what in reversed(written)]
    if len(parts) == 1 or not written:
        print(printable("\n".join(parts)), end="")
        return
    for part in parts[:-1]:
        print(textwrap.indent(printable(part), "# ", lambda line: True).replace("# \n", "#\n"))
    print(printable(f"# {name} ({written[0]}):\n{parts[-1]}"), end="")


def _outside(name: str) -> str:
    """What a component of a user's own says of itself, and its keys."""
    groups = [what for what in GROUPS if name in installed(what)]
    found = find_outside(groups[0] if groups else "algorithm", name, Path.cwd(), "show")
    if hasattr(found, "step"):
        entry = outside_entry(found, name)
        return f"{name} (algorithms): {entry.summary}\n\n{algorithm_page(entry)}"
    declared = fields(found) if is_dataclass(found) else ()
    options = [f"  {f.name} = {'(required)' if f.default is MISSING else repr(f.default)}" for f in declared]
    described = [name, "", inspect.getdoc(found) or "No description."]
    described += ["", "Options:", *options] if options else []
    if hasattr(found, "cost") and hasattr(found, "sample"):
        required = "".join(f", {f.name} = …" for f in declared if f.default is MISSING and f.default_factory is MISSING)
        written = f'{{ kind = "{name}"{required} }}' if required else f'"{name}"'
        described += ["", f"In a scenario: [privacy] mechanism = {written}"]
    return "\n".join(described)


def _text(name: str, what: str) -> str:
    try:
        path = find(name, what)
    except InputError:
        known = sorted({k for lines in registries(titles=False).values() for k in lines} | set(key_names()))
        ends = {key.rpartition(".")[2] for key in key_names()} - {ANY}
        close = get_close_matches(name, sorted({*known, *ends}), n=_NEAREST)
        near = f"; did you mean {' or '.join(map(quoted, close))}." if close else "."
        raise InputError(
            f'show: no name and no key is {quoted(name)}{near} "decentral-dp list" lists the names, and docs/reference '
            "the keys."
        ) from None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"show: {path} cannot be read as text ({error}). Give a scenario file.") from None
    return _placed(text, name) if what == "scenario" and path.parent == scenario_folder() else text


def _placed(text: str, name: str) -> str:
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


def _details(registry: str, name: str) -> str:
    if registry == "algorithms":
        return algorithm_page(ALGORITHMS[name])
    if registry == "problems":
        chosen = PROBLEMS[name] if name in PROBLEMS else MINIMAX[name]
        options = "".join(f", {key} = …" for key in chosen.options)
        lines = option_lines(chosen.options, getattr(chosen, "needed", ()))
        listed = f"Keys:\n{lines}\n" if lines else ""
        return f'{_docstring(chosen.home)}\n\n{listed}In a scenario: [problem] kind = "{name}"{options}'
    if registry == "topologies":
        return _topology(name)
    if registry == "experiments":
        home = f"papers.{_experiments()[name].module}"
        return f"{_docstring(home)}\n\nOn the command line: decentral-dp experiment {name}"
    if registry == "weights":
        return f"{_parameters(WEIGHTS[name].parameters)}\nIn a scenario: [topology] {WEIGHTS[name].written}"
    if registry == "mechanisms":
        return f'{inspect.getdoc(type(MECHANISMS[name])) or ""}\n\nIn a scenario: [privacy] mechanism = "{name}"'
    if registry == "partitions":
        return f"In a scenario: [problem] partition = {_PARTITIONS[name]}"
    return f'{_data(name)}\n\nIn a scenario: [problem] data = "{name}"'


def algorithm_page(entry: Entry) -> str:
    """What an algorithm is, its keys, and how a scenario names it."""
    own = "\n".join(_key(option) for option in entry.keys)
    if entry.private:
        field = AlgorithmTable.model_fields["protocol"]
        own += f"\n  protocol: {field.description}; {field.default} if left out"
    keys = f"Keys:\n{own}\n\n" if own else ""
    text = inspect.getdoc(entry.algorithm) or "" if entry.origin else _docstring(entry.home)
    return f"{text}\n\n{keys}In a scenario:\n\n{algorithm_tables(entry)}"


def _key(option: Option) -> str:
    """A line on a key: what it is, what it may be, and what holds where it is left out."""
    unit = f" [{option.unit}]" if option.unit else ""
    left_out = "may be left out" if option.default is None else f"{option.default} if left out"
    words = f"{option.description}{unit}" if option.description else "no description"
    return f"  {option.key}: {words}; {constraint(option)}; {'required' if option.required else left_out}"


def _docstring(home: str) -> str:
    """home: module, or module:name."""
    module, _, name = home.partition(":")
    found = importlib.import_module(module)
    return inspect.getdoc(getattr(found, name) if name else found) or ""


def _topology(name: str) -> str:
    """A generator's parameters and a small instance, or a named network's numbers."""
    if name in GENERATORS:
        generator = GENERATORS[name]
        agents, example = generator.example
        chosen = "".join(f", {key} = {value}" for key, value in example.items())
        seed = "Drawn at random from topology.seed.\n" if generator.random else ""
        return (
            f"{_parameters(generator.parameters)}At least {_count(generator.least, 'agent')}.\n{seed}\n"
            f'In a scenario: [topology] kind = "{name}", agents = {agents}{chosen}'
        )
    network = from_file(name)
    few, many = int(network.degrees.min()), int(network.degrees.max())
    neighbours = _count(many, "neighbour") if few == many else f"{few} to {many} neighbours"
    return (
        f"{_count(network.n_agents, 'agent')} with {neighbours} each, "
        f"{len(network.edges)} links; with {network.weights} weights ρ = {network.rho:.4f}.\n\n"
        f'In a scenario: [topology] file = "{name}"'
    )


def _parameters(parameters: Sequence[Parameter]) -> str:
    lines = []
    for p in parameters:
        without = "may be left out" if p.optional else "required" if p.default is None else f"{p.default} if left out"
        lines.append(f"  {p.name}: {p.description}; {p.constraint}; {without}\n")
    return "Parameters:\n" + "".join(lines) if lines else ""


def _data(name: str) -> str:
    if name.startswith("synthetic_"):
        keys = "dimension, records (per agent), test_records"
        of_classes = ", separation, relevant" if name == "synthetic_classification" else ""
        return f"Sizes: [problem.synthetic] {keys}{of_classes}."
    if name in COLLECTIONS:
        return _images(name)
    if name in ENVIRONMENTS:
        return _played(name)
    if name in FILED or name in COLLECTED:
        return _docstring(f"decentral_dp.data.collections:load_{name if name in FILED else 'collected'}").partition(
            "\n\nArgs:"
        )[0]
    dataset = load_data(name, n_agents=1, seed=0)
    named = ", ".join(dataset.feature_names[:3])
    return (
        f"{_count(dataset.n, 'record')}, {dataset.features.shape[1]} features ({named}, …); "
        f"classes {', '.join(str(c) for c in dataset.classes)}.\n"
        'scale = "public_ranges" maps the features to [-1, 1] by ranges that were not fitted on the records.'
    )


def _played(name: str) -> str:
    which = ENVIRONMENTS[name]
    return (
        f"{which.name}, played by a fixed public policy; {len(which.low)} numbers a step, mapped to [-1, 1] by "
        "declared constants.\n"
        f"Sizes: [problem.synthetic] records (trajectories per agent, {which.records}), test_records "
        f"({which.test_records}), steps (cut off after {which.steps}).\n"
        f"Needs the packages {' and '.join(which.needs)}. Trajectories of your own: a .npz file with observations\n"
        "(n, L+1, d), rewards (n, L), lengths (n,), and terminal (n,) where some end in a state of value 0."
    )


def _images(name: str) -> str:
    height, width, channels = COLLECTIONS[name].image
    if name == "cifar10":
        one, file = "archive", "cifar-10-binary.tar.gz"
        binary = f"The binary version ({file}) is needed, not the one for Python, which nothing here unpickles.\n"
    else:
        one, file, binary = "images, labels, test_images, test_labels", "train-images-idx3-ubyte.gz", ""
    return (
        f"{height * width * channels} features ({channels} × {height} × {width} pixels times 1/255), classes 0 to 9; "
        "the test files are held out.\n"
        f"{binary}Files: [problem.files] folder = …, or by path or URL {one}.\n"
        f"Checksums: sha256 = {{ {one.partition(',')[0]} = … }} by these keys, required for URLs; with folder,\n"
        f'by file name, as in sha256 = {{ "{file}" = … }}.\n'
        f"Without [problem.files], the folder {name} of the environment's DECENTRAL_DP_DATA; without that,\n"
        "scikit-learn's digits stand in, and say so.\n"
        "[problem] limit = 6000 takes the first 6000 records, and as many for testing.\n"
        "[problem] construction = { positive = [5, 6, 7, 8, 9], share = 0.1 } makes two classes of them, with a tenth\n"
        "of the train records positive; keep = { 0 = 100 } or tail = 0.1 instead of share thins single classes."
    )


def _count(n: int, noun: str) -> str:
    return f"1 {noun}" if n == 1 else f"{n} {noun}s"


# Stands for whatever name a table of tables has there, such as that of a variable.
ANY = "*"


class _Meaning(NamedTuple):
    """What is said of a key; keys of which the same is said share an entry."""

    description: str
    may_be: str
    left_out: str
    unit: str = ""


def key_entries(name: str) -> str:
    """The entries of all keys that end as the name does, part by part; "" where there are none.

    Example:
        >>> print(key_entries("delta").splitlines()[0])
        privacy.delta
    """
    wanted = name.split(".")
    keys: dict[_Meaning, list[str]] = {}
    readers: dict[_Meaning, list[str]] = {}
    for key, meaning, reader in _keys():
        if not _ends(key.split("."), wanted):
            continue
        if key not in keys.setdefault(meaning, []):
            keys[meaning].append(key)
        if reader:
            readers.setdefault(meaning, []).append(reader)
    return "\n\n".join(_entry(found, meaning, readers.get(meaning, [])) for meaning, found in keys.items())


def key_names() -> list[str]:
    """All keys, from the scenario or, with study in front, from the study."""
    return list(dict.fromkeys(key for key, _, _ in _keys()))


def _ends(key: list[str], wanted: list[str]) -> bool:
    return len(wanted) <= len(key) and all(
        ours in (theirs, ANY) for ours, theirs in zip(key[::-1], wanted[::-1], strict=False)
    )


def _entry(keys: list[str], meaning: _Meaning, readers: list[str]) -> str:
    lines = [", ".join(keys), f"  {meaning.description}"]
    if meaning.unit:
        lines.append(f"  Unit: {meaning.unit}")
    lines.append(f"  May be: {meaning.may_be}")
    lines.append(f"  {meaning.left_out}")
    if readers:
        lines.append(f"  Read by: {', '.join(dict.fromkeys(readers))}")
    return "\n".join(lines)


@cache
def _keys() -> tuple[tuple[str, _Meaning, str], ...]:
    """Key, what is said of it, and one who reads it; a key as often as it has readers."""
    return tuple(_listed())


def _listed() -> Iterator[tuple[str, _Meaning, str]]:
    own = {f"algorithm.{option.key}" for entry in ALGORITHMS.values() for option in entry.keys}
    problems = {kind: entry.options for kind, entry in PROBLEMS.items()}
    problems |= {kind: entry.options for kind, entry in MINIMAX.items()}
    for key, meaning in _of_tables(Scenario.model_json_schema(), ""):
        if key not in own:
            table, _, inner = key.partition(".")
            of = [kind for kind, options in problems.items() if table == "problem" and inner in options]
            yield from ((key, meaning, reader) for reader in of or [""])
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            left_out = _left_out(option.required, option.default)
            meaning = _Meaning(option.description, constraint(option), left_out, option.unit)
            yield f"algorithm.{option.key}", meaning, entry.kind
    for kind, generator in GENERATORS.items():
        yield from ((f"topology.{p.name}", _of_parameter(p), kind) for p in generator.parameters)
    for kind, rule in WEIGHTS.items():
        yield from ((f"topology.weights.{p.name}", _of_parameter(p), kind) for p in rule.parameters)
    yield from ((key, meaning, "") for key, meaning in _of_tables(Study.model_json_schema(), "study."))


def _of_parameter(p: Parameter) -> _Meaning:
    return _Meaning(
        f"{p.description[:1].upper()}{p.description[1:]}.",
        p.constraint,
        _left_out(not p.optional and p.default is None, p.default),
    )


def _of_tables(schema: Mapping[str, Any], start: str) -> Iterator[tuple[str, _Meaning]]:
    """Every key of a schema, and of the tables inside it."""
    defined = schema.get("$defs", {})

    def of(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, _Meaning]]:
        for key, value in table.get("properties", {}).items():
            left_out = _left_out(key in table.get("required", []), value.get("default"))
            yield f"{place}{key}", _Meaning(value.get("description", ""), kind_words(value), left_out)
            for inner, below in _inside(value, f"{place}{key}."):
                yield from of(defined.get(inner, {}) if isinstance(inner, str) else inner, below)

    yield from of(schema, start)


def _inside(value: Mapping[str, Any], place: str) -> Iterator[tuple[str | Mapping[str, Any], str]]:
    """The tables that a value may be, or hold, each by its name or whole, and how the keys inside it begin."""
    if "$ref" in value:
        yield value["$ref"].rpartition("/")[2], place
    if "properties" in value:
        yield value, place
    for inner in value.get("anyOf", ()):
        yield from _inside(inner, place)
    if isinstance(value.get("items"), Mapping):
        yield from _inside(value["items"], place)
    if isinstance(value.get("additionalProperties"), Mapping):
        yield from _inside(value["additionalProperties"], f"{place}{ANY}.")


def _left_out(required: bool, default: Any) -> str:
    if required:
        return "Required."
    if default in (None, "", [], {}):
        return "May be left out."
    return f"Left out: {'the defaults of its keys' if isinstance(default, Mapping) else default}"
