"""Questions about a new scenario, to who sits at a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.cli.new_command import (
    DEFAULT_ALGORITHM,
    DEFAULT_DATA,
    Wishes,
    columns_of,
    features_of,
    first_named,
)
from decentral_dp.cli.new_text import parsed_classes, parsed_ends

# Ranges of more columns are filled in with an editor, not one by one.
_MOST_ASKED = 20


def asked(wishes: Wishes) -> Wishes:
    """The wishes with answers where nothing is said; an empty answer is the usual value."""

    def ask(question: str, usual: str = "") -> str:
        return str(typer.prompt(question, default=usual, show_default=bool(usual))).strip()

    if wishes.csv is None and wishes.data is None:
        given = ask(f"CSV file of your records (empty: the bundled {DEFAULT_DATA} records)")
        wishes = replace(wishes, csv=Path(given)) if given else replace(wishes, data=DEFAULT_DATA)
    if wishes.csv is not None:
        wishes = _asked_of_records(wishes, ask)
    if wishes.algorithm is None:
        wishes = replace(
            wishes, algorithm=ask('Algorithm ("decentral-dp list algorithms" lists them)', DEFAULT_ALGORITHM)
        )
    if wishes.topology is None and not getattr(ALGORITHMS.get(str(wishes.algorithm)), "trusted", True):
        wishes = replace(wishes, topology=ask("Graph of the agents", "ring"))
    if wishes.agents is None:
        wishes = replace(wishes, agents=int(typer.prompt("Agents", default=10, type=int)))
    if wishes.epsilon is None:
        wishes = replace(
            wishes, epsilon=float(typer.prompt("ε of every agent, for the whole run", default=4.0, type=float))
        )
    return wishes


def _asked_of_records(wishes: Wishes, ask: Any) -> Wishes:
    columns = columns_of(wishes.csv or Path())
    if wishes.label is None:
        wishes = replace(wishes, label=ask(f"Label column, of {first_named(columns)}", columns[-1]))
    if not wishes.classes and wishes.label_range is None:
        wishes = _asked_of_labels(wishes, ask)
    features = [name for name in features_of(columns, wishes.label) if name not in wishes.ranges]
    ranges = dict(wishes.ranges)
    for name in features if len(features) <= _MOST_ASKED else []:
        given = ask(f"Public range of {name} as LOW:HIGH, from its meaning, not from the records (empty: later)")
        if given:
            ranges[name] = parsed_ends(given, name)
    return replace(wishes, ranges=ranges)


def _asked_of_labels(wishes: Wishes, ask: Any) -> Wishes:
    if "ridge" in (wishes.problem or ""):
        given = ask("Public range of the label as LOW:HIGH, from its meaning, not from the records (empty: later)")
    else:
        given = ask(
            "Labels that there may be, separated by commas; or LOW:HIGH, the public range of a number to predict"
        )
    if ":" in given and "," not in given:
        return replace(wishes, label_range=parsed_ends(given, "Range of the label"))
    return replace(wishes, classes=parsed_classes(given))
