"""The functions of the annexes that the core calls: one table, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

# Name → the module of an annex that defines it.
_HOMES = {
    "plan_audit": "auditing.runs",
    "play_game": "auditing.audit",
    "resume_audit": "auditing.audit",
    "resume_table": "auditing.tables",
    "check": "auditing.check",
    "prepare": "auditing.network_view",
    "audit_command": "auditing.terminal",
    "check_command": "auditing.terminal",
    "network_command": "auditing.terminal",
    "print_outcome": "auditing.terminal",
    "Study": "studies.schema",
    "load_study": "studies.schema",
    "group_measures": "studies.measures",
    "conduct": "studies.study",
    "resume_study": "studies.study",
    "study_command": "studies.terminal",
    "print_ended": "studies.terminal",
}


def annex(name: str) -> Any:
    """Return a function or class of an annex.

    Args:
        name: one of the table.

    Raises:
        KeyError: it is not in the table.

    Example:
        >>> annex("load_study")("table_1").kind
        'plan'
    """
    return getattr(importlib.import_module(f"decentral_dp.{_HOMES[name]}"), name)
