"""One table for components of many kinds: the keys that they declare, and which of these a kind has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from decentral_dp.files.tables import DeclaredKey


def merged_fields(
    declared: Iterable[tuple[str, DeclaredKey]], describe: Callable[[Mapping[str, Sequence[str]]], str]
) -> dict[str, tuple[Any, Any]]:
    """Merge the keys of all kinds into fields of one table, all of them optional: which are read depends on the kind.

    Args:
        declared: kind and key, as often as some kind has a key.
        describe: description → the kinds that give it, to the sentences of the reference.

    Returns:
        Key → type and field, as `pydantic.create_model` reads them. A switch is off where it is left out.

    Raises:
        TypeError: two kinds declare one key with different types or bounds.
    """
    by_name: dict[str, list[tuple[str, DeclaredKey]]] = {}
    for kind, key in declared:
        by_name.setdefault(key.name, []).append((kind, key))
    out = {}
    for name, takers in by_name.items():
        first, by_text = takers[0][1], dict[str, list[str]]()
        for kind, key in takers:
            if key.type != first.type:
                kinds = ", ".join(kind for kind, _ in takers)
                raise TypeError(f"{kinds} declare {name} with different types or bounds")
            by_text.setdefault(key.description, []).append(kind)
        switch = first.type is bool
        default, kind_of = (False, bool) if switch else (None, first.type | None)
        out[name] = (kind_of, Field(default=default, description=describe(by_text)))
    return out


def case_of(kind: str, common: Iterable[str], keys: Sequence[str], needed: Sequence[str]) -> dict[str, Any]:
    """The part of a JSON Schema that says what a table of this kind needs, and may have beside the common keys."""
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"required": list(needed), "propertyNames": {"enum": [*common, *keys]}},
    }
