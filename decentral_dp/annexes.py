"""What an annex adds to the core, by name: the core imports no annex, and loads from here when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry")

# Setting → folder of its algorithms.
ALGORITHMS: Mapping[str, str] = {
    "coordinator_bilevel": "decentral_dp.central.bilevel",
    "coordinator_minimax": "decentral_dp.central.minimax",
}
# Setting → what differs before there is a job: `algorithms.entry.Rules`.
RULES: Mapping[str, str] = {
    "coordinator_bilevel": "decentral_dp.central.declared:BILEVEL",
    "coordinator_minimax": "decentral_dp.central.declared:MINIMAX",
}
# Setting → how its jobs are built, and what is promised of them: `simulation.setting.Setting`.
SETTINGS: Mapping[str, str] = {
    "coordinator_bilevel": "decentral_dp.central.statement:BILEVEL",
    "coordinator_minimax": "decentral_dp.central.statement:MINIMAX",
}
# Algorithm → its form as published.
PRINTED = "decentral_dp.central.printed:PRINTED"
# Kind of problem → folder of such problems, and the function that makes one of an author's formulas.
PROBLEMS: Mapping[str, str] = {"minimax": "decentral_dp.central.problems"}
AUTHORED: Mapping[str, str] = {"minimax": "decentral_dp.central.problems.losses:of_author"}
# Records that are whole trajectories.
TRAJECTORIES = "decentral_dp.central.trajectories"


def load(place: str) -> Any:
    """Import a module, or "module:attribute" of one.

    Example:
        >>> load("decentral_dp.formatting:join_words")(["x", "y"])
        'x and y'
    """
    module, _, attribute = place.partition(":")
    imported = import_module(module)
    return getattr(imported, attribute) if attribute else imported


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, whose modules are imported when the first name is asked for.

    Args:
        make: imports them.
    """

    def __init__(self, make: Callable[[], Mapping[str, Entry]]) -> None:
        self._make = make

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The entries, imported."""
        return dict(self._make())

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
