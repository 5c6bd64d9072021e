"""Descriptions of components for `list` and the reference pages."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from rich.table import Table
from rich.text import Text

from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.algorithms.options import Option, constraint
from decentral_dp.algorithms.plans import stated_terms
from decentral_dp.algorithms.protocol import ONE_LEVEL
from decentral_dp.annexes import annex
from decentral_dp.config.loading import find, load_scenario, shipped_names
from decentral_dp.config.templates import algorithm_tables
from decentral_dp.data import DATASETS, ENVIRONMENTS, PARTITIONS
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.files.tables import DeclaredKey
from decentral_dp.privacy.mechanisms import MECHANISMS
from decentral_dp.problems import PROBLEMS
from decentral_dp.reporting.terminal import console
from decentral_dp.topology import GENERATORS, WEIGHTS, from_file, graph_title, names
from decentral_dp.user_code import component, in_module

# Registry of files → their kind in `find`.
_FILES = {"scenarios": "scenario", "studies": "study"}
_MECHANISMS = ("laplace", "gaussian")
_PARTITIONS = {
    "iid": '"iid"',
    "by_class": '{ kind = "by_class", share = 0.8 }',
    "dirichlet": '{ kind = "dirichlet", alpha = 0.5 }',
    "column": '{ kind = "column", name = "agent" }',
}


class KeyText(NamedTuple):
    """Description of a key.

    Args:
        name: name of the key in its table.
        meaning: meaning of the key, in a phrase or in sentences.
        may_be: valid values in words.
        default_text: default value, "required", or "" for an optional key.
        unit: unit of a number, or "".
        example: example value in TOML.
    """

    name: str
    meaning: str
    may_be: str = ""
    default_text: str = ""
    unit: str = ""
    example: str = ""


class Description(NamedTuple):
    """Description of a component.

    Args:
        name: name of the component in its registry.
        registry: name of the registry in `registries`.
        line: summary of the component.
        text: docstring of the component.
        keys: keys that the component reads.
        notes: sentences about the component.
        facts: facts for the reference, in Markdown.
        usage: entry in a scenario, as TOML.
    """

    name: str
    registry: str
    line: str
    text: str = ""
    keys: tuple[KeyText, ...] = ()
    notes: str = ""
    facts: tuple[str, ...] = ()
    usage: str = ""


def registries(*, titles: bool = True) -> dict[str, dict[str, str]]:
    """Return registry → name → summary; `titles` selects whether titles of scenarios and studies are read."""
    return {
        "algorithms": {k: e.summary for k, e in ALGORITHMS.items()},
        "problems": {k: e.summary for k, e in PROBLEMS.items()},
        "topologies": {k: g.summary for k, g in GENERATORS.items()} | {n: graph_title(n) for n in names()},
        "scenarios": {n: load_scenario(n).title if titles else "" for n in shipped_names("scenario")},
        "studies": {n: annex("load_study")(n).title if titles else "" for n in shipped_names("study")},
        "data": dict(DATASETS),
        "weights": {k: r.summary for k, r in WEIGHTS.items()},
        "mechanisms": {k: f"{MECHANISMS[k].description} of certified runs" for k in _MECHANISMS},
        "partitions": dict(PARTITIONS),
        "measures": {
            name: measure.description + (f"; also {' '.join(measure.qualifiers)}" if measure.qualifiers else "")
            for group in annex("group_measures")().values()
            for name, measure in group.items()
        },
    }


def describe(registry: str, name: str) -> Description:
    """Describe a component.

    Args:
        registry: name in `registries`, except scenarios and studies.
        name: name of the component in the registry; components of installed packages are not supported.
    """
    component = Description(name, registry, registries(titles=False)[registry][name])
    match registry:
        case "algorithms":
            return _algorithm(ALGORITHMS[name])
        case "problems":
            entry = PROBLEMS[name]
            keys = [of_declared(key) for key in entry.keys]
            usage = f'[problem] kind = "{name}"{"".join(f", {key} = …" for key in entry.options)}'
            return component._replace(text=entry.description, keys=tuple(keys), usage=usage)
        case "topologies" if name in GENERATORS:
            generator = GENERATORS[name]
            agents, example = generator.example
            options = "".join(f", {key} = {value}" for key, value in example.items())
            return component._replace(
                keys=tuple(map(of_declared, generator.parameters)),
                notes="Drawn at random from topology.seed." if generator.random else "",
                usage=f'[topology] kind = "{name}", agents = {agents}{options}',
            )
        case "topologies":
            network = from_file(name)
            notes = f"{network.n_agents} agents, {len(network.edges)} edges; {network.weights} weights: ρ = "
            return component._replace(notes=f"{notes}{network.rho:.4f}.", usage=f'[topology] file = "{name}"')
        case "weights":
            rule = WEIGHTS[name]
            keys = [of_declared(p) for p in rule.parameters]
            return component._replace(keys=tuple(keys), usage=f"[topology] {rule.usage}")
        case "data":
            table = "Sizes: [problem.synthetic]." if name.startswith("synthetic_") or name in ENVIRONMENTS else ""
            return component._replace(notes=table, usage=f'[problem] data = "{name}"')
        case "mechanisms":
            text = inspect.getdoc(type(MECHANISMS[name])) or ""
            return component._replace(text=text, usage=f'[privacy] mechanism = "{name}"')
        case "partitions":
            return component._replace(usage=f"[problem] partition = {_PARTITIONS[name]}")
        case _:
            return component._replace(usage=f'measure = ["{name}"] of a study')


def _algorithm(entry: Entry) -> Description:
    keys = tuple(of_option(option) for option in entry.keys)
    terms = set(stated_terms(entry.algorithm))
    problems = "one-level" if terms and terms <= set(ONE_LEVEL) else entry.solves
    facts = [f"Setting: {entry.rules.trust}; {problems} problems."]
    facts += ["Adds no Gaussian noise: δ = 0 is possible."] if entry.pure else []
    facts += [f"{cited.part}: {cited.work.text}" for cited in entry.citations]
    facts += [f"Module: `{entry.algorithm.__module__}`."]
    tables = algorithm_tables(entry)
    return Description(entry.kind, "algorithms", entry.summary, entry.description, keys, "", tuple(facts), tables)


# Keys.


def of_option(option: Option) -> KeyText:
    """Describe a key of an algorithm."""
    left_out = _default_words(option.required, option.default)
    if option.key == "learning_rate" and option.required:
        left_out = "planned for one-level problems"
    meaning = option.description or "no description"
    return KeyText(option.key, meaning, constraint(option), left_out, option.unit, option.example)


def of_declared(key: DeclaredKey) -> KeyText:
    """Describe a key of a problem, a generator, or a weight rule."""
    may_be = kind_words(TypeAdapter(key.type).json_schema())
    return KeyText(key.name, key.description, may_be, _default_words(key.required, key.default))


def keys_of(schema: Mapping[str, Any]) -> list[KeyText]:
    """Describe the keys of a table from its schema, without the keys of inner tables."""
    required = schema.get("required", [])
    return [
        KeyText(
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
    if isinstance(default, bool):
        return str(default).lower()
    return "the defaults of its keys" if isinstance(default, Mapping) else str(default)


_KINDS = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false"}


def kind_words(value: Mapping[str, Any]) -> str:
    """Write the valid values of a schema."""
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


# On the terminal.


def list_names(registry: str | None) -> dict[str, dict[str, str]]:
    """Return registry → name → summary of one registry, or of all registries for None."""
    everything = registries()
    return everything if registry is None else {registry: everything[registry]}


def print_list(registry: str | None) -> None:
    """Print the names and summaries of a registry, or of all registries for None."""
    out = console()
    for kind, lines in list_names(registry).items():
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 2), pad_edge=True)
        for name, line in lines.items():
            table.add_row(Text(name, no_wrap=True), Text(line))
        out.print(Text(kind, style="bold"), table, *([""] if registry is None else []), sep="\n")


def find_entry(name: str) -> tuple[list[Description], dict[str, str]]:
    """Find the components, scenarios and studies of a name. Raises InputError for an unknown name.

    Returns:
        The components, and the map from the kind of file ("scenario" or "study") to the text of the file.
    """
    if in_module(name) is not None:
        entry: Any = component(name, [Path.cwd()], "list")
        if hasattr(entry, "step"):
            return [_algorithm(entry_of_class(entry, name))._replace(name=name)], {}
        parameters = inspect.signature(entry).parameters.values() if callable(entry) else ()
        keys = [
            KeyText(p.name, "", default_text="required" if p.default is p.empty else repr(p.default))
            for p in parameters
        ]
        usage = f'kind = "{name}", or the key of its table'
        return [Description(name, "", "", inspect.getdoc(entry) or "", tuple(keys), usage=usage)], {}
    lists = registries(titles=False)
    known = [registry for registry, lines in lists.items() if name in lines]
    components = [describe(registry, name) for registry in known if registry not in _FILES]
    files = [_FILES[registry] for registry in ("studies", "scenarios") if registry in known]
    if not known and (Path(name).is_file() or name.endswith(".toml")):
        files = ["scenario"]
    if not (known or files):
        close = get_close_matches(name, sorted(set().union(*lists.values())), cutoff=0.65)
        near = f"; did you mean {' or '.join(map(quoted, close))}?" if close else "."
        fix = 'use a name that "decentral-dp list" prints. For a key, use the name of its algorithm or problem, or see '
        raise InputError(f"list: unknown name {quoted(name)}{near} Fix: {fix}docs/reference/scenario.md.")
    return components, {what: find(name, what).read_text(encoding="utf-8", errors="replace") for what in files}


def print_entry(name: str) -> None:
    """Print the components, scenarios and studies of a name.

    Descriptions before a scenario or study are comments, so the output can be saved as a file.
    """
    components, files = find_entry(name)
    texts = [*map(description_text, components), *files.values()]
    for text in texts[:-1]:
        commented = textwrap.indent(printable(text), "# " if files else "", lambda line: True)
        print(commented.replace("# \n", "#\n") + "\n")
    print(printable(texts[-1].rstrip("\n")))


def description_text(component: Description) -> str:
    """Write the description of a component for `list`."""
    c = component
    head = f"{c.name} ({c.registry})" if c.registry else c.name
    parts = [f"{head}: {c.line}" if c.line else head, c.text]
    parts.append("\n".join(["Keys:", *map(_key_line, c.keys)]) if c.keys else "")
    parts.append(c.notes)
    if c.usage:
        parts.append(f"In a scenario:{chr(10) * 2 if chr(10) in c.usage else ' '}{c.usage}")
    return "\n\n".join(part for part in parts if part)


def _key_line(key: KeyText) -> str:
    """Write the meaning, the valid values and the default of a key."""
    left_out = {"required": "required", "": "may be left out"}.get(key.default_text, f"{key.default_text} if left out")
    bounds = "; ".join(filter(None, (key.may_be, left_out)))
    if key.meaning.endswith("."):
        return f"  {key.name}: {key.meaning} {bounds[:1].upper()}{bounds[1:]}."
    meaning = f"{key.meaning} [{key.unit}]" if key.unit else key.meaning
    return f"  {key.name}: {'; '.join(filter(None, (meaning, bounds)))}"
