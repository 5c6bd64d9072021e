"""The entries of single keys of scenarios and studies, as `show` prints them: meaning, unit, default, who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.options import constraint
from decentral_dp.cli.reference import kind_words
from decentral_dp.config.schema import Scenario
from decentral_dp.problems import PROBLEMS
from decentral_dp.problems.minimax import MINIMAX
from decentral_dp.studies.schema import Study
from decentral_dp.topology import GENERATORS, WEIGHTS, Parameter

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
