"""Table of the annexes: names of their parts → modules. The core imports annexes only on demand, by this table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar

Entry = TypeVar("Entry")

_AUDITING, _CENTRAL, _STUDIES = "decentral_dp.auditing", "decentral_dp.central", "decentral_dp.studies"
# Setting → folder of its algorithms.
ALGORITHMS: Mapping[str, str] = {
    "coordinator_bilevel": f"{_CENTRAL}.bilevel",
    "coordinator_minimax": f"{_CENTRAL}.minimax",
}
# Setting → its rules before a job is built: `algorithms.entry.Rules`.
RULES: Mapping[str, str] = {
    "coordinator_bilevel": f"{_CENTRAL}.vocabulary:BILEVEL",
    "coordinator_minimax": f"{_CENTRAL}.vocabulary:MINIMAX",
}
# Setting → builder of its jobs and its privacy statement: `simulation.summary.Setting`.
SETTINGS: Mapping[str, str] = {
    "coordinator_bilevel": f"{_CENTRAL}.statement:BILEVEL",
    "coordinator_minimax": f"{_CENTRAL}.statement:MINIMAX",
}
# Type of problem → its facts: `problems.entry.ProblemType`. Its problems are in the same folder.
PROBLEMS: Mapping[str, str] = {"minimax": f"{_CENTRAL}.problems:MINIMAX"}
# Records that are whole trajectories.
TRAJECTORIES = f"{_CENTRAL}.trajectories"
# Function or class of an annex → module and name.
FUNCTIONS: Mapping[str, str] = {
    "plan_audit": f"{_AUDITING}.audit:plan_audit",
    "play_game": f"{_AUDITING}.audit:play_game",
    "check": f"{_AUDITING}.check:try_component",
    "compute_view": f"{_AUDITING}.network_view:compute_view",
    "audit_command": f"{_AUDITING}.terminal:audit_command",
    "check_command": f"{_AUDITING}.terminal:check_command",
    "network_command": f"{_AUDITING}.terminal:network_command",
    "Study": f"{_STUDIES}.schema:Study",
    "load_study": f"{_STUDIES}.schema:load_study",
    "group_measures": f"{_STUDIES}.measures:group_measures",
    "conduct": f"{_STUDIES}.study:conduct",
    "study_command": f"{_STUDIES}.study:study_command",
}


def import_place(place: str) -> Any:
    """Import a module, or the attribute that "module:attribute" names.

    Example:
        >>> import_place("decentral_dp.formatting:join_words")(["x", "y"])
        'x and y'
    """
    module, _, attribute = place.partition(":")
    loaded_module = import_module(module)
    return getattr(loaded_module, attribute) if attribute else loaded_module


def annex(name: str) -> Any:
    """Return a function or class of an annex.

    Example:
        >>> annex("load_study")("table_1").kind
        'plan'
    """
    return import_place(FUNCTIONS[name])


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name. Their modules are imported at the first access.

    Args:
        make: function that imports the entries.
    """

    def __init__(self, make: Callable[[], Mapping[str, Entry]]) -> None:
        self._make = make

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """All entries."""
        return dict(self._make())

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)
