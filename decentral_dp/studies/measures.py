"""What the cells of a study measure: which names there are, and their words in tables and pictures.

A misspelled name is refused before anything is run. Of an ε the words say whether it is certified, provable or neither,
and at which δ; the cells that they are told of are a table with the columns guarantee, mechanism and delta
(`tables.cell_table`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from decentral_dp.config.loading import nearest_of
from decentral_dp.errors import InputError, quoted
from decentral_dp.formatting import delta_text
from decentral_dp.reporting.measures import FACT, MEASURES, OF_PLANS, OF_RUNS, PRICE, SCORE, SENT, Measure, metric_words
from decentral_dp.studies.schema import Axis, Label, Side, Study
from decentral_dp.tasks.outcomes import number

Split = Literal["run", "plan"]

# Of pairs so many links apart; any number of links can be asked for.
_AT_A_DISTANCE = re.compile(r"network_(epsilon|linear)_distance_[1-9][0-9]{0,5}")
# When a metric first reaches a level; any level can be asked for.
_TO = re.compile(r"rounds_to_([a-z]\w*)_(-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)")
# Known of a cell that diverged, too: its price and what it was, not how well it did.
OF_EVERY_CELL = tuple(name for name, m in MEASURES.items() if m.reach != SCORE)
# An algorithm may send other variables, each with its distance.
_ANY_DISTANCE = re.compile(r"consensus_\w+")


def names_of(kind: Split, over_rounds: bool) -> list[str]:
    """List what cells of this kind can measure over rounds, or at the end.

    Example:
        >>> names_of("plan", over_rounds=True)
        ['bits', 'claimed', 'epsilon_max', 'epsilon_pure_max', 'messages']
    """
    reaches = ((name, m, m.reach.over_rounds if over_rounds else m.reach.kinds) for name, m in MEASURES.items())
    return sorted(f"{name}{ending}" for name, m, kinds in reaches if kind in kinds for ending in m.endings)


def check_names(study: Study, axes: Sequence[Axis]) -> None:
    """Refuse what no cell of the study's kind measures, and rounds that are not kept.

    Raises:
        InputError: an unknown name, with the nearest one; a round of which the study keeps no values.
    """
    kind, varied = study.kind, [axis.name for axis in axes]
    kept = [] if isinstance(study.rounds, str) else study.rounds
    for name in study.measure:
        if not _is_known(name, kind, over_rounds=True):
            check_measure("measure", name, kind, over_rounds=False)
    for claim in study.claims:
        place = f"claims ({claim.statement})"
        for side in (claim.left, claim.right):
            if isinstance(side, Side):
                check_measure(f"{place}.measure", side.measure, kind, side.round is not None)
                if side.round is not None and not (study.rounds == "all" or side.round in kept):
                    raise InputError(f'{place}.round: {side.round} is not kept. Fix: set rounds = "all", or list it.')
    for plot in study.plots:
        place, over_rounds = f"plots ({plot.name})", plot.x == "round"
        if over_rounds and study.rounds != "all" and not kept:
            raise InputError(f'{place}.x: no values of single rounds are kept. Fix: set rounds = "all", or a list.')
        if not over_rounds and plot.x not in varied and not _is_known(plot.x, kind, over_rounds=False):
            hint = nearest_of(plot.x, ["round", *varied, *names_of(kind, over_rounds=False)])
            raise InputError(f"{place}.x: {quoted(plot.x)} is no axis, and is not measured{hint}.")
        for name in plot.measures:
            check_measure(f"{place}.y", name, kind, over_rounds)


def require_axis(key: str, name: str, axes: Collection[str]) -> None:
    """Refuse a name that is no axis of a study. Raises InputError, which begins with the key."""
    if name not in axes:
        raise InputError(f"{key}: {quoted(name)} does not vary here{nearest_of(name, sorted(axes))}.")


def check_measure(place: str, name: str, kind: Split, over_rounds: bool) -> None:
    """Refuse what no cell of a study of this kind measures over rounds, or at the end. Raises InputError."""
    if not _is_known(name, kind, over_rounds):
        when = f"over the rounds of a {kind}" if over_rounds else f"at the end of a {kind}"
        hint = nearest_of(name, names_of(kind, over_rounds))
        raise InputError(f"{place}: {quoted(name)} is not measured {when}{hint}.")


def _is_known(name: str, kind: Split, over_rounds: bool) -> bool:
    if not over_rounds and (_AT_A_DISTANCE.fullmatch(name) or (kind == "run" and is_to(name))):
        return True
    return name in names_of(kind, over_rounds) or (kind == "run" and _ANY_DISTANCE.fullmatch(name) is not None)


def is_to(name: str) -> bool:
    """Whether a name asks when a metric first reaches a level.

    Example:
        >>> is_to("rounds_to_test_accuracy_0.9"), is_to("rounds_to_test_accuracy"), is_to("rounds_to_nothing_1")
        (True, False, False)
    """
    parts = _TO.fullmatch(name)
    return parts is not None and parts[1] in names_of("run", over_rounds=True)


def first_reaching(name: str, curves: Mapping[str, Sequence[Sequence[Any]]]) -> float:
    """Find at which round a metric first reaches a level; NaN where it never does.

    Args:
        name: such as "rounds_to_test_accuracy_0.9".
        curves: name → its rounds, and its values there.

    Example:
        >>> first_reaching("rounds_to_test_loss_0.5", {"test_loss": [[0, 5], [0.7, 0.4]]})
        5.0
    """
    parts = _TO.fullmatch(name)
    if parts is None or parts[1] not in curves:
        return math.nan
    measure = MEASURES.get(re.sub(r"(_last|_unreleased)?(_min|_max)?$", "", parts[1]))
    sign = 1.0 if measure is not None and measure.better == "higher" else -1.0
    level = sign * float(parts[2])
    return next(
        (float(t) for t, value in zip(*curves[parts[1]], strict=True) if sign * number(value) >= level), math.nan
    )


def named_measures(study: Study) -> set[str]:
    """List what the study's tables, pictures, claims and gains name."""
    sides = [side for claim in study.claims for side in (claim.left, claim.right) if isinstance(side, Side)]
    names = {*study.measure, *(side.measure for side in sides), *(gain.measure for gain in study.gains)}
    return names | {name for plot in study.plots for name in (plot.x, *plot.measures)}


def missing_measures(study: Study, measured: pd.DataFrame, drawn: Collection[str]) -> list[str]:
    """Write one sentence for every name that no cell has measured, and for every picture without numbers."""
    there = set(measured["name"])
    sentences = [f"measure: no cell has measured {quoted(name)}." for name in study.measure if name not in there]
    for plot in study.plots:
        lost = [name for name in plot.measures if name not in there]
        if plot.name not in drawn:
            sentences.append(f"plots ({plot.name}): not drawn, for its cells have measured nothing of it.")
        elif lost:
            sentences.append(f"plots ({plot.name}): no cell has measured {', '.join(map(quoted, lost))}.")
    return sentences


def group_measures() -> dict[str, dict[str, Measure]]:
    """Group the measures by who measures them, in words, those over rounds first.

    Example:
        >>> list(group_measures())[0], list(group_measures()["Of plans, at the end"])[0]
        ('Of runs, over rounds and at the end', 'claimed_endless')
    """
    reaches = (SCORE, SENT, PRICE, OF_RUNS, FACT, OF_PLANS)
    return {reach.head: {name: m for name, m in sorted(MEASURES.items()) if m.reach is reach} for reach in reaches}


GUARANTEES = {"certified": "certified", "as_published": "provable as published", "none": "no guarantee"}
BUDGETS = ("epsilon_max", "epsilon_spent", "epsilon_pure_max", "finite_data", "endless_stream")
CLAIMS = ("claimed", "claimed_endless")
TARGETS = ("privacy.epsilon", "privacy.cap")
# Measures of what one agent learns of another begin so.
NETWORK = CERTIFIED, LINEAR = ("network_epsilon_", "network_linear_")


def is_epsilon(name: str) -> bool:
    """Whether a measure is a price, certified or claimed, of which rounding may take nothing off."""
    return name in (*BUDGETS, *CLAIMS) or name.startswith(NETWORK)


def guarantees(cells: pd.DataFrame) -> list[str]:
    """List the different guarantees of these cells, in words."""
    there = set(cells["guarantee"])
    return [words for name, words in GUARANTEES.items() if name in there]


def deltas(name: str, cells: pd.DataFrame) -> list[float]:
    """List the different δ at which these cells have the ε of this name.

    Args:
        name: of a measure.
        cells: a table with the columns guarantee, mechanism and delta.

    Returns:
        None of them where the ε is pure, without noise, or no ε.

    Example:
        >>> cells = pd.DataFrame({"guarantee": ["certified"], "mechanism": ["laplace"], "delta": [1e-5]})
        >>> deltas("epsilon_max", cells), deltas("epsilon_pure_max", cells)
        ([1e-05], [])
    """
    at_delta = cells["guarantee"].isin(["certified", "as_published"])
    if name == "endless_stream":
        at_delta &= cells["mechanism"] == "gaussian"
    if name == "epsilon_pure_max" or not (name in (*BUDGETS, *TARGETS) or name.startswith(NETWORK)):
        return []
    return sorted(set(cells.loc[at_delta, "delta"]))


def epsilon_words(name: str, cells: pd.DataFrame) -> str:
    """Describe an ε as far as all cells agree, such as "certified, δ = 1e-5"; "" for what is no ε.

    Example:
        >>> cells = pd.DataFrame({"guarantee": ["certified"], "mechanism": ["laplace"], "delta": [1e-5]})
        >>> epsilon_words("epsilon_max", cells), epsilon_words("upper_loss", cells)
        ('certified, δ = 1e-5', '')
    """
    if name in CLAIMS:
        return "claimed, not proved"
    parts, at = guarantees(cells) if name in BUDGETS or name.startswith(CERTIFIED) else [], deltas(name, cells)
    if name.startswith(LINEAR):
        parts = ["linear, no bound for training"]
    words = parts[:1] if len(parts) == 1 else ["target"] if name == "privacy.epsilon" else []
    return ", ".join(words + ([f"δ = {delta_text(at[0])}"] if len(at) == 1 else []))


# Keys of a scenario that axes have besides measured names.
_KEYS = {
    "privacy.cap": "cap on ε",
    "privacy.delta": "δ",
    "privacy.epsilon": "target ε",
    "problem.synthetic.records": "records per agent",
}


def axis_label(name: str, cells: pd.DataFrame, most: int = 3) -> str:
    """What is on an axis; of an ε also its δ, and whether it is certified, if these are at most so many guarantees."""
    at, kinds = deltas(name, cells), guarantees(cells) if name in BUDGETS else []
    ends = list(dict.fromkeys([*at[:1], *at[-1:]]))
    delta = f", δ = {' … '.join(map(delta_text, ends))}" if ends else ""
    kind = f" ({' or '.join(kinds)})" if 0 < len(kinds) <= most else ""
    return f"{metric_stem(name)}{delta}{kind}"


def metric_stem(name: str) -> str:
    """What an axis or a measure is called, without δ and guarantee."""
    return _KEYS.get(name) or metric_words(name) or label_text(own_name(name))


def own_name(key: str) -> str:
    """The last part of a dotted key; of what kind a table is, the table's name.

    Example:
        >>> own_name("algorithm.y.scale"), own_name("topology.kind"), own_name("topology")
        ('scale', 'topology', 'topology')
    """
    table, _, last = key.rpartition(".")
    return table.rpartition(".")[2] if last == "kind" and table else last


def label_text(value: Label) -> str:
    """A value of an axis as text, without underscores."""
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
