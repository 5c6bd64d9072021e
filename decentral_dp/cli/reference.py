"""The reference pages of docs/reference, from the fields: `python -m decentral_dp.cli.reference` writes them.

The reference of all registered algorithms, written from their fields and entries.

python -m decentral_dp.cli.reference
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import Option, constraint
from decentral_dp.config.algorithm_schema import AlgorithmTable
from decentral_dp.config.problem_schema import ProblemTable
from decentral_dp.config.schema import PrivacyTable, RunTable, Scenario, TopologyTable
from decentral_dp.data import DATASETS
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.studies.measures import ENDINGS, grouped
from decentral_dp.studies.schema import Study
from decentral_dp.topology import GENERATORS, WEIGHTS, Parameter, names, title

_OPENING = """# Algorithms

Written from the code by `python -m decentral_dp.cli.reference`; a change belongs there.

An algorithm is named by `algorithm.kind`. `decentral-dp show KIND` prints its derivation and the tables to start from;
[Add an algorithm](../add_an_algorithm.md) says how to bring one.
"""
_SETTINGS = {
    (False, "bilevel"): "gossip or a server, agents trust nobody; bilevel problems",
    (True, "bilevel"): "a trusted coordinator; bilevel problems",
    (True, "minimax"): "a trusted coordinator; minimax problems",
}


def algorithm_pages() -> dict[str, str]:
    """File name → text of the reference's pages on algorithms."""
    parts = [_OPENING, _common(), _readers(), *(_section(entry) for entry in ALGORITHMS.values())]
    return {"algorithms.md": "\n".join(parts)}


def _common() -> str:
    """The keys that every algorithm has."""
    rows = []
    for key, field in AlgorithmTable.model_fields.items():
        default = "required" if field.is_required() else _code(field.default)
        rows.append(f"| `{key}` | {_option_cell(field.description or '')} | {default} |")
    return "\n".join(["## Keys of every algorithm", "", "| key | meaning | default |", "|---|---|---|", *rows, ""])


def _readers() -> str:
    """Own keys, and which algorithms read them."""
    readers: dict[str, list[str]] = {}
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            readers.setdefault(option.key, []).append(f"[{entry.kind}](#{entry.kind})")
    rows = [f"| `{key}` | {', '.join(names)} |" for key, names in sorted(readers.items())]
    return "\n".join(["## Who reads which key", "", "| key | read by |", "|---|---|", *rows, ""])


def _section(entry: Entry) -> str:
    """One algorithm: what it is, where it fits, its keys, its sources."""
    lines = [f"## {entry.kind}", "", f"{entry.summary[0].upper()}{entry.summary[1:]}.", ""]
    lines += [f"- Setting: {_SETTINGS[entry.trusted, entry.solves]}."]
    if entry.pure:
        lines.append("- Adds no Gaussian noise: δ = 0 will do.")
    if entry.private:
        lines.append('- Knows `protocol = "private"`.')
    if entry.claim:
        lines.append(f'- `guarantee = "as_printed"` runs {entry.claim}.')
    if entry.message:
        lines.append(f"- Message t {entry.message}")
    lines += [f"- {cited.part}: {cited.work.text}" for cited in entry.citations]
    lines += [f"- Module: `{entry.home}`.", ""]
    keys = entry.keys
    if keys:
        head = ["| key | meaning | unit | value | default | example |", "|---|---|---|---|---|---|"]
        lines += [*head, *(_row(option) for option in keys), ""]
    return "\n".join(lines)


def _row(o: Option) -> str:
    default = "required" if o.required else "–" if o.default is None else _code(o.default)
    meaning, value = _option_cell(o.description), _option_cell(constraint(o))
    return f"| `{o.key}` | {meaning} | {o.unit or '–'} | {value} | {default} | `{o.example}` |"


def _option_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: object) -> str:
    if value is None:
        return "–"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return f"`{text}`"


FOLDER = Path(__file__).parent.parent.parent / "docs" / "reference"
_HEAD = "<!-- Written by python -m decentral_dp.cli.reference; do not edit. -->\n"
_MEASURED = (
    "What a study can name under measure, in plots, gains and claims. Runs measure what fits their problem, and a "
    "study says at its end what none has measured."
)
_DISTANCES = "An algorithm that sends other variables than x, y and z has consensus_NAME of each."
_TABLES: Mapping[str, type[BaseModel]] = {
    "problem": ProblemTable,
    "topology": TopologyTable,
    "privacy": PrivacyTable,
    "run": RunTable,
}


def pages() -> dict[str, str]:
    """File name → text, of every page of the reference."""
    out = {f"{name}.md": _table_page(f"[{name}]", table) for name, table in _TABLES.items()}
    out.update(algorithm_pages())
    out["scenario.md"] = _table_page("A scenario", Scenario, nested=False)
    out["studies.md"] = _table_page("A study", Study)
    out["measures.md"] = _measures()
    out["problem_kinds.md"] = _problems()
    out["data_sets.md"] = _page("Data sets", "`problem.data` is one of these.", _listed(DATASETS))
    out["topologies.md"] = _topologies()
    return {name: out[name] for name in sorted(out)}


def _page(heading: str, text: str, *parts: str) -> str:
    return "\n".join([_HEAD, f"# {heading}\n", f"{text}\n", *parts]).rstrip("\n") + "\n"


def _table_page(heading: str, table: type[BaseModel], nested: bool = True) -> str:
    schema = table.model_json_schema()
    defined = schema.get("$defs", {}) if nested else {}
    parts = [_keys(schema)]
    for name, content in defined.items():
        if content.get("properties"):
            parts += [f"## {name}\n", f"{content.get('description', '')}\n", _keys(content)]
    return _page(heading, schema.get("description", ""), *parts)


def _keys(schema: Mapping[str, Any]) -> str:
    """A table of keys: what each may be, what holds where it is left out, and what it means."""
    required = schema.get("required", [])
    lines = ["| key | may be | left out | meaning |", "|---|---|---|---|"]
    for key, value in schema.get("properties", {}).items():
        default = "required" if key in required else _default(value.get("default"))
        lines.append(f"| `{key}` | {kind_words(value)} | {default} | {_cell(value.get('description', ''))} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    return "–" if value in (None, "", [], {}) else f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_NAMES = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}


def kind_words(value: Mapping[str, Any]) -> str:
    """What a value may be, in words."""
    if "$ref" in value:
        return f"table {value['$ref'].rpartition('/')[2]}"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in value:
            kinds = [kind_words(v) for v in value[several] if v.get("type") != "null"]
            return ", or ".join(dict.fromkeys(kinds))
    if "const" in value:
        return f'"{value["const"]}"'
    if "enum" in value:
        return ", ".join(f'"{v}"' for v in value["enum"])
    if value.get("type") == "array":
        return f"list of {kind_words(value.get('items', {}))}"
    if value.get("type") == "object":
        inside = value.get("additionalProperties")
        return f"table of {kind_words(inside)}" if isinstance(inside, Mapping) else "table"
    bounds = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
    said = [f"{words} {value[key]:g}" for key, words in bounds.items() if key in value]
    return " ".join([_NAMES.get(str(value.get("type")), "any value"), ", ".join(said)]).strip()


def option_lines(options: Sequence[str], needed: Sequence[str] = ()) -> str:
    """Lines on keys of the [problem] table, as `show` prints them."""
    fields = ProblemTable.model_fields
    return "".join(f"  {k}: {fields[k].description}{' Required.' if k in needed else ''}\n" for k in options)


def measure_lines() -> str:
    """The measured names of studies, as `show measures` prints them."""
    groups, lines = grouped(), [_MEASURED]
    wide = max(len(m.name) for found in groups.values() for m in found)
    for head, found in groups.items():
        lines += ["", f"{head}:"]
        lines += [f"  {m.name:<{wide}}  {'; '.join([m.meaning, *_ended(m.endings)])}" for m in found]
    ends = [f"  {ending:<{wide}}  {words}" for ending, words in ENDINGS.items()]
    return "\n".join([*lines, "", "Endings:", *ends, "", _DISTANCES])


def _ended(endings: Sequence[str]) -> list[str]:
    return [f"also {' '.join(endings)}"] if endings else []


def _measures() -> str:
    parts = []
    for head, found in grouped().items():
        parts += [f"## {head}\n", "| name | meaning | endings |", "|---|---|---|"]
        parts += [f"| `{m.name}` | {_cell(m.meaning)} | {' '.join(f'`{e}`' for e in m.endings)} |" for m in found]
        parts.append("")
    ends = [f"- `{ending}`: {words}." for ending, words in ENDINGS.items()]
    return _page("Measured names", _MEASURED, *parts, "## Endings\n", *ends, "", _DISTANCES)


def _problems() -> str:
    parts = []
    for kinds, heading in ((PROBLEMS, "Bilevel problems"), (MINIMAX, "Minimax problems")):
        parts.append(f"## {heading}\n")
        for name, entry in kinds.items():
            options = [f"- `{key}`: {ProblemTable.model_fields[key].description}" for key in entry.options]
            parts += [
                f"### {name}\n",
                f"{entry.summary[0].upper()}{entry.summary[1:]}.\n",
                *options,
                *([""] * bool(options)),
            ]
    return _page("Problem kinds", "`problem.kind` is one of these, with the keys that it reads.", *parts)


def _topologies() -> str:
    parts = ["## Generators\n"]
    for name, generator in GENERATORS.items():
        drawn = " Drawn at random from `topology.seed`." if generator.random else ""
        text = f"{generator.summary[0].upper()}{generator.summary[1:]}. At least {generator.least} agents.{drawn}\n"
        parts += [f"### {name}\n", text, *_parameters(generator.parameters)]
    parts += ["## Weights\n"]
    for name, rule in WEIGHTS.items():
        parts += [f"### {name}\n", f"{rule.summary[0].upper()}{rule.summary[1:]}.\n", *_parameters(rule.parameters)]
    parts += ["## Networks that come along\n", "`topology.file` is one of these.\n"]
    return _page(
        "Topologies",
        "`topology.kind` is one of the generators, with its parameters as keys beside it.",
        *parts,
        _listed({name: title(name) for name in names()}),
    )


def _parameters(parameters: Sequence[Parameter]) -> list[str]:
    lines = []
    for p in parameters:
        without = "may be left out" if p.optional else "required" if p.default is None else f"{p.default} if left out"
        lines.append(f"- `{p.name}`: {p.description}; {p.constraint}; {without}.")
    return [*lines, ""] if lines else []


def _listed(lines: Mapping[str, str]) -> str:
    return "\n".join(f"- `{name}`: {line}" for name, line in lines.items()) + "\n"


def write(folder: Path) -> None:
    """Write all pages into the folder, and take away pages of what is no more."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
