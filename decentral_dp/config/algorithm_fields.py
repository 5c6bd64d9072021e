"""From the fields of algorithms to the keys of the [algorithm] table: types and bounds for pydantic, descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.algorithms.entry import Entry
from decentral_dp.algorithms.options import Bounds, Option
from decentral_dp.config.table_types import LARGEST_COUNT

# Type of a field → the table that it is in a scenario: a step size, a domain.
Tables = Mapping[Any, type]


def registered_fields(tables: Tables) -> dict[str, tuple[Any, Any]]:
    """Every key of every registered algorithm, all of them optional: which are read depends on the kind.

    Raises:
        TypeError: where two algorithms declare one key with different types or bounds.
    """
    takers: dict[str, list[tuple[Entry, Option]]] = {}
    for entry in ALGORITHMS.values():
        for option in entry.keys:
            takers.setdefault(option.key, []).append((entry, option))
    return {key: _merged(key, found, tables) for key, found in takers.items()}


def own_fields(options: Iterable[Option], tables: Tables) -> dict[str, tuple[Any, Any]]:
    """The keys of one algorithm, all of them optional: what is missing is refused with an example."""
    return {o.key: (_annotation(o, tables) | None, Field(None, description=_phrase(o))) for o in options}


def _merged(key: str, found: list[tuple[Entry, Option]], tables: Tables) -> tuple[Any, Any]:
    kinds = {(o.type, o.bounds) for _, o in found}
    if len(kinds) > 1:
        raise TypeError(f"{', '.join(entry.kind for entry, _ in found)} declare {key} with different types or bounds")
    by_phrase: dict[str, list[str]] = {}
    for entry, option in found:
        by_phrase.setdefault(_phrase(option), []).append(entry.kind)
    description = "; ".join(f"{', '.join(names)}: {phrase}" for phrase, names in by_phrase.items())
    return _annotation(found[0][1], tables) | None, Field(None, description=description)


def _phrase(option: Option) -> str:
    """The description with the unit and the default."""
    text = option.description or option.key
    text += f" [{option.unit}]" if option.unit else ""
    return text if option.default is None else f"{text} (default {option.default})"


def _annotation(option: Option, tables: Tables) -> Any:
    """The type that pydantic checks, with the bounds."""
    if get_origin(option.type) is tuple:
        inner = get_args(option.type)[0]
        return list[_number(inner, option.bounds)]  # type: ignore[misc] # pydantic reads it when it runs
    if option.type in tables:
        return tables[option.type]
    return option.type if get_origin(option.type) is Literal else _number(option.type, option.bounds)


def _number(kind: Any, b: Bounds) -> Any:
    limits = {"gt": b.above, "ge": b.at_least, "lt": b.below, "le": b.at_most}
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    if kind is int and not {"lt", "le"} & given.keys():
        given["le"] = LARGEST_COUNT
    if kind is float and not ({"gt", "ge"} & given.keys() and {"lt", "le"} & given.keys()):
        given["allow_inf_nan"] = False
    return Annotated[kind, Field(**given)] if given else kind
