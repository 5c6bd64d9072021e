"""Fields of dataclasses: a property of a protocol that one inherits from would stand in the way of a field's value."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import decentral_dp

# Modules that need what is not installed everywhere.
OPTIONAL = ("decentral_dp.engines.ray",)


def classes() -> Iterator[type[Any]]:
    for module in pkgutil.walk_packages(decentral_dp.__path__, "decentral_dp."):
        if not module.name.startswith(OPTIONAL):
            members = vars(importlib.import_module(module.name)).values()
            yield from (c for c in members if inspect.isclass(c) and c.__module__ == module.name)


def shadowed(cls: type[Any]) -> list[str]:
    """Fields without a default that an inherited property hides: they cannot be set."""
    return [f.name for f in dataclasses.fields(cls) if isinstance(getattr(cls, f.name, None), property)]


def test_no_property_hides_a_field() -> None:
    found = [c for c in classes() if dataclasses.is_dataclass(c)]
    assert len(found) > 100
    assert {c.__qualname__: shadowed(c) for c in found if shadowed(c)} == {}


def test_a_hidden_field_is_seen() -> None:
    class Sized:
        @property
        def size(self) -> int:
            return 1

    made = dataclasses.make_dataclass("made", [("size", int, dataclasses.field())], bases=(Sized,))
    assert shadowed(made) == ["size"]
