"""The reference pages of docs/reference, from the fields: `python -m tests.golden.reference` writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.describe import Description, KeyText, describe, keys_of
from decentral_dp.config.schema import AlgorithmTable, PrivacyTable, ProblemTable, RunTable, Scenario, TopologyTable
from decentral_dp.data import DATASETS, PARTITIONS
from decentral_dp.problems import BILEVEL, MINIMAX
from decentral_dp.simulation.metrics import ENDINGS
from decentral_dp.studies.measures import group_measures
from decentral_dp.studies.schema import Study
from decentral_dp.topology import GENERATORS, WEIGHTS, names

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
_HEAD = "<!-- Written by python -m tests.golden.reference; do not edit. -->\n"
_MEASURED = (
    "Names for `measure`, plots, gains and claims of a study. A run reports the measures that its problem defines. "
    "At its end, a study lists the measures that no run reported."
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
    out["algorithms.md"] = _algorithms()
    out["scenario.md"] = _table_page("A scenario", Scenario, nested=False)
    out["studies.md"] = _table_page("A study", Study)
    out["measures.md"] = _measures()
    out["problem_kinds.md"] = _components(
        "Problem kinds",
        "`problem.kind` is one of these, with the keys that it reads.",
        {"Bilevel problems": ("problems", BILEVEL), "Minimax problems": ("problems", MINIMAX)},
    )
    out["data_sets.md"] = _components(
        "Data sets",
        "`problem.data` is one of these. `problem.partition` assigns records to agents.",
        {"Data": ("data", DATASETS), "Partitions": ("partitions", PARTITIONS)},
    )
    out["topologies.md"] = _components(
        "Topologies",
        "`topology.kind` is one of the generators, with its parameters as keys of the same table. Otherwise, "
        "`topology.file` is a bundled network.",
        {
            "Generators": ("topologies", GENERATORS),
            "Weights": ("weights", WEIGHTS),
            "Bundled networks": ("topologies", names()),
        },
    )
    return {name: out[name] for name in sorted(out)}


def _page(heading: str, text: str, *parts: str) -> str:
    return "\n".join([_HEAD, f"# {heading}\n", f"{text}\n", *parts]).rstrip("\n") + "\n"


def _components(heading: str, text: str, groups: Mapping[str, tuple[str, Iterable[str]]]) -> str:
    parts = []
    for group, (registry, kinds) in groups.items():
        parts += [f"## {group}\n", *(markdown(describe(registry, kind), 3) for kind in kinds)]
    return _page(heading, text, *parts)


def _algorithms() -> str:
    readers: dict[str, list[str]] = {}
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            readers.setdefault(option.key, []).append(f"[{entry.kind}](#{entry.kind})")
    rows = [f"| `{key}` | {', '.join(kinds)} |" for key, kinds in sorted(readers.items())]
    return _page(
        "Algorithms",
        "An algorithm is named by `algorithm.kind`. `decentral-dp list KIND` prints its derivation. [Add an algorithm]"
        "(../add_an_algorithm.md) explains how to add one.",
        "## Keys of every algorithm\n",
        _keys(keys_of(AlgorithmTable.model_json_schema())),
        "## Keys of algorithms\n",
        "\n".join(["| key | read by |", "|---|---|", *rows, ""]),
        *(markdown(describe("algorithms", kind), 2) for kind in ALGORITHMS),
    )


def markdown(component: Description, level: int) -> str:
    """A section on a component, without its derivation. level: of its heading."""
    c = component
    parts = [f"{'#' * level} {c.name}\n", f"{c.line[:1].upper()}{c.line[1:]}.\n"]
    parts += ["".join(f"- {fact}\n" for fact in c.facts)] if c.facts else []
    parts += [_keys(c.keys)] if c.keys else []
    parts += [f"{c.notes}\n"] if c.notes else []
    parts.append(f"```toml\n{c.usage}\n```\n" if "\n" in c.usage else f"In a scenario: `{c.usage}`\n")
    return "\n".join(parts)


def _table_page(heading: str, table: type[BaseModel], nested: bool = True) -> str:
    schema = table.model_json_schema()
    parts = [_keys(keys_of(schema))]
    for name, content in schema.get("$defs", {}).items() if nested else ():
        if content.get("properties"):
            parts += [f"## {name}\n", f"{content.get('description', '')}\n", _keys(keys_of(content))]
    return _page(heading, schema.get("description", ""), *parts)


def _keys(keys: Sequence[KeyText]) -> str:
    """A table of keys; units and examples have a column where there is one."""
    has_unit, has_example = any(key.unit for key in keys), any(key.example for key in keys)
    heads = ["key", "may be", "left out", "meaning", *["unit"] * has_unit, *["example"] * has_example]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for key in keys:
        more = [*[key.unit or "–"] * has_unit, *[f"`{key.example}`" if key.example else "–"] * has_example]
        cells = [f"`{key.name}`", _cell(key.may_be), _default_words(key), _cell(key.meaning), *more]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _default_words(key: KeyText) -> str:
    return "required" if key.default_text == "required" else f"`{_cell(key.default_text)}`" if key.default_text else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _measures() -> str:
    parts = []
    for head, measures in group_measures().items():
        parts += [f"## {head}\n", "| name | meaning | endings |", "|---|---|---|"]
        for name, m in measures.items():
            parts.append(f"| `{name}` | {_cell(m.description)} | {' '.join(f'`{e}`' for e in m.qualifiers)} |")
        parts.append("")
    ends = [f"- `{ending}`: {meaning}." for ending, (_, meaning) in ENDINGS.items()]
    return _page("Measured names", _MEASURED, *parts, "## Endings\n", *ends, "", _DISTANCES)


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
