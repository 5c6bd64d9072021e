"""What an annex adds to the core, by name: the core imports no annex, and loads from here when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_AUDITING, _STUDIES = "decentral_dp.auditing", "decentral_dp.studies"
# Function or class of an annex that interfaces and studies call → its place.
FUNCTIONS: Mapping[str, str] = {
    "plan_audit": f"{_AUDITING}.runs:plan_audit",
    "play_game": f"{_AUDITING}.audit:play_game",
    "resume_audit": f"{_AUDITING}.audit:resume_audit",
    "resume_table": f"{_AUDITING}.tables:resume_table",
    "check": f"{_AUDITING}.check:check",
    "prepare": f"{_AUDITING}.network_view:prepare",
    "audit_command": f"{_AUDITING}.terminal:audit_command",
    "check_command": f"{_AUDITING}.terminal:check_command",
    "network_command": f"{_AUDITING}.terminal:network_command",
    "print_outcome": f"{_AUDITING}.terminal:print_outcome",
    "Study": f"{_STUDIES}.schema:Study",
    "load_study": f"{_STUDIES}.schema:load_study",
    "group_measures": f"{_STUDIES}.measures:group_measures",
    "conduct": f"{_STUDIES}.study:conduct",
    "resume_study": f"{_STUDIES}.study:resume_study",
    "study_command": f"{_STUDIES}.terminal:study_command",
    "print_ended": f"{_STUDIES}.terminal:print_ended",
}


def load(place: str) -> Any:
    """Import a module, or "module:attribute" of one.

    Example:
        >>> load("decentral_dp.formatting:join_words")(["x", "y"])
        'x and y'
    """
    module, _, attribute = place.partition(":")
    imported = import_module(module)
    return getattr(imported, attribute) if attribute else imported


def annex(name: str) -> Any:
    """Return a function or class of an annex.

    Example:
        >>> annex("load_study")("table_1").kind
        'plan'
    """
    return load(FUNCTIONS[name])
