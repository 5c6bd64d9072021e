"""What no scenario is written for: labels, columns and files that cannot be meant. No record is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decentral_dp.cli.new_problems import predicts_numbers
from decentral_dp.config.problem_components import is_minimax
from decentral_dp.config.scenario_components import topology_of
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, quoted, quoted_path

# Columns that say who holds a record, and its part, by their names alone.
AGENT, SPLIT = "agent", "split"
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
# A graph is drawn up to try it; that of more agents takes a while, and is left to the plan.
_MOST_DRAWN = 2000


def require_columns(columns: Sequence[str], path: Path) -> None:
    """Refuse a header that is none, or that is not separated by commas.

    Args:
        columns: the names that were found.
        path: of the file.

    Raises:
        InputError: one column whose name has other separators in it, or names that are numbers.
    """
    if len(columns) == 1:
        for separator, name in _SEPARATORS.items():
            if separator in columns[0]:
                raise InputError(
                    f"--csv: {quoted_path(path)} has a single column, whose name has {name} in it. Separate columns by "
                    "commas, and save it again."
                )
    # What is said here names no column: it would be a record.
    if all(_is_number(name) for name in columns):
        raise InputError(
            f"--csv: the first line of {quoted_path(path)} has nothing but numbers, and the names of the columns are "
            "wanted there. Put a header line above the records."
        )


def require_features(features: Sequence[str], label: str, path: Path) -> None:
    """Raises InputError where the label is no label, or no column is left to predict it from."""
    if label in (AGENT, SPLIT):
        said = "who holds a record" if label == AGENT else "the part that a record belongs to"
        raise InputError(f"--label: a column {quoted(label)} says {said}. Name another one, or rename the column.")
    if not features:
        raise InputError(
            f"--csv: {quoted_path(path)} has no feature column beside {quoted(label)}. Add the columns to predict it "
            "from."
        )


def require_classes(classes: Sequence[Any], problem: str | None) -> None:
    """Refuse labels that cannot be told apart.

    Args:
        classes: that were given.
        problem: that was asked for, by its kind; None where none was.

    Raises:
        InputError: one alone, one twice, one that is not finite, or any for a problem whose labels are numbers.
    """
    if not classes:
        return
    if problem is not None and predicts_numbers(problem):
        raise InputError(
            f"--classes: {problem} predicts numbers. Give their public range as --label-range LOW:HIGH, or take "
            "another --problem."
        )
    if len(classes) == 1:
        raise InputError(f"--classes: got {quoted(classes[0])} alone, wanted at least two labels, as in no,yes.")
    for k, label in enumerate(classes):
        if isinstance(label, float) and not math.isfinite(label):
            raise InputError(f"--classes: {label} is no label. Leave it out, and mend the records that have it.")
        if label in classes[:k]:
            raise InputError(f"--classes: got {quoted(label)} more than once. Name every label once.")


def require_buildable(scenario: Scenario) -> None:
    """Refuse what the first plan would refuse, as far as no record is needed to see it.

    Args:
        scenario: as it would be written.

    Raises:
        InputError: an algorithm that is not for the problem, a graph that cannot be, or losses whose file is missing.
    """
    is_minimax(scenario)
    losses = scenario.problem.losses
    if losses is not None and not scenario.resolve(losses).is_file():
        raise InputError(
            f"--problem: from_losses reads a Python file with the two losses, and there is no {quoted_path(losses)} "
            "beside the scenario. Put it there first; docs/add_a_problem.md has one."
        )
    if (scenario.topology.agents or 0) <= _MOST_DRAWN:
        topology_of(scenario)


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True
