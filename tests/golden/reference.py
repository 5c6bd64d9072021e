"""The reference pages of docs/reference, from the fields: `python -m tests.golden.reference` writes them.

The pages of algorithms and of the command line are generated with the site: `docs/reference_pages.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import BaseModel

from decentral_dp.cli.describe import describe, keys_of
from decentral_dp.config.schema import PrivacyTable, ProblemTable, RunTable, Scenario, TopologyTable
from decentral_dp.data import DATASETS, PARTITIONS
from decentral_dp.problems import BILEVEL, SOLVED
from decentral_dp.simulation.metrics import ENDINGS
from decentral_dp.studies.measures import group_measures
from decentral_dp.studies.schema import Study
from decentral_dp.topology import GENERATORS, WEIGHTS, names
from docs.reference_pages import tabulate, tabulate_keys, write_component

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
    """Map the name of every file of docs/reference to its text."""
    out = {f"{name}.md": _table_page(f"[{name}]", table) for name, table in _TABLES.items()}
    out["scenario.md"] = _table_page("A scenario", Scenario, nested=False)
    out["studies.md"] = _table_page("A study", Study)
    out["measures.md"] = _measures()
    out["problem_kinds.md"] = _components(
        "Problem kinds",
        "`problem.kind` is one of these, with the keys that it reads.",
        {"Bilevel problems": ("problems", BILEVEL), "Minimax problems": ("problems", SOLVED["minimax"])},
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
        parts += [f"## {group}\n", *(write_component(describe(registry, kind), 3) for kind in kinds)]
    return _page(heading, text, *parts)


def _table_page(heading: str, table: type[BaseModel], nested: bool = True) -> str:
    schema = table.model_json_schema()
    parts = [tabulate_keys(keys_of(schema))]
    for name, content in schema.get("$defs", {}).items() if nested else ():
        if content.get("properties"):
            parts += [f"## {name}\n", f"{content.get('description', '')}\n", tabulate_keys(keys_of(content))]
    return _page(heading, schema.get("description", ""), *parts)


def _measures() -> str:
    parts = []
    for head, measures in group_measures().items():
        rows = [[f"`{n}`", m.description, " ".join(f"`{e}`" for e in m.qualifiers)] for n, m in measures.items()]
        parts += [f"## {head}\n", tabulate(["name", "meaning", "endings"], rows)]
    ends = [f"- `{ending}`: {meaning}." for ending, (_, meaning) in ENDINGS.items()]
    return _page("Measured names", _MEASURED, *parts, "## Endings\n", *ends, "", _DISTANCES)


def write(folder: Path) -> None:
    """Write all pages into the folder, and delete all other pages there."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.name not in made:
            path.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
