"""A scenario as a file that explains itself: every key below what it means."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import tomli_w
from pydantic import BaseModel

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.algorithm_schema import AlgorithmTable
from decentral_dp.config.problem_schema import ProblemTable
from decentral_dp.config.schema import PrivacyTable, RunTable, TopologyTable
from decentral_dp.topology import GENERATORS

_WIDTH = 100
_TABLES: Mapping[str, type[BaseModel]] = {
    "problem": ProblemTable,
    "topology": TopologyTable,
    "algorithm": AlgorithmTable,
    "privacy": PrivacyTable,
    "run": RunTable,
}
_HEADS = {
    "problem": "What is optimised, over which records.",
    "topology": "Who talks to whom.",
    "algorithm": "How it is optimised.",
    "privacy": "What is guaranteed, and what it costs.",
    "run": "How it is run; nothing here changes what is guaranteed.",
}
_SEED = (
    "Without a seed the noise is secret, and what is published is private. With one, such as seed = 1, a run can be "
    "repeated, and is a simulation."
)


def scenario_text(content: Mapping[str, Any], notes: Mapping[str, str]) -> str:
    """Write a scenario as TOML with a comment on every key.

    Args:
        content: of the scenario.
        notes: dotted key → what stands beside its value; of a table above its keys.
    """
    lines = [f"title = {toml_value(content['title'])}", "", *_comment(_SEED), ""]
    for name, head in _HEADS.items():
        table = content.get(name)
        if not table:
            continue
        described = _descriptions(name, table)
        lines += [*_comment(head), f"[{name}]"]
        # What has a table of its own comes last: keys after it would be that table's.
        own = {key: value for key, value in table.items() if f"{name}.{key}" in notes and _is_listed(value)}
        for key, value in table.items():
            if key not in own:
                note = notes.get(f"{name}.{key}", "")
                lines += [
                    *_comment(described.get(key, "")),
                    f"{_key(key)} = {toml_value(value)}{note and f'  # {note}'}",
                ]
        for key, inner in own.items():
            lines += ["", *_comment(notes[f"{name}.{key}"]), f"[{name}.{key}]"]
            lines += [_line(k, value, notes.get(f"{name}.{key}.{k}", "")) for k, value in inner.items()]
        lines.append("")
    return "\n".join(lines)


def _is_listed(value: Any) -> bool:
    """Whether it is a table with a line for each key; one of numbers, such as { scale = 0.2 }, stays on its line."""
    return isinstance(value, Mapping) and not all(isinstance(inner, int | float) for inner in value.values())


def _line(key: str, value: Any, note: str) -> str:
    return f"{_key(key)} = {toml_value(value)}{f'  # {note}' if note else ''}"


def toml_value(value: Any) -> str:
    """Write a value on one line, tables in braces.

    Example:
        >>> toml_value({"kind": "ring", "agents": 4}), toml_value([1, "a"])
        ('{ kind = "ring", agents = 4 }', '[1, "a"]')
    """
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(k)} = {toml_value(v)}' for k, v in value.items())} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").rstrip("\n")


def _key(name: str) -> str:
    return tomli_w.dumps({name: 0}).rpartition(" = ")[0]


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH)]


def _descriptions(name: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Key → what it means, of one table."""
    found = {key: field.description or "" for key, field in _TABLES[name].model_fields.items()}
    if name == "algorithm" and (entry := ALGORITHMS.get(str(table.get("kind")))) is not None:
        found |= {option.key: option.description for option in entry.keys}
    if name == "topology" and (generator := GENERATORS.get(str(table.get("kind")))) is not None:
        found |= {p.name: p.description for p in generator.parameters}
    # A Greek letter stays what it is.
    return {key: text[:1].upper() + text[1:] if text[:1].isascii() else text for key, text in found.items()}
