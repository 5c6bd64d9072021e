"""Measures of a study's cells: their names, and their labels in tables and figures.

The label of an ε states its guarantee and δ, which are read from a table of cells with the columns guarantee, mechanism
and delta (`tables.cell_table`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from decentral_dp.errors import quoted
from decentral_dp.formatting import delta_text
from decentral_dp.simulation.metrics import FACT, MEASURES, OF_PLANS, OF_RUNS, PRICE, SCORE, SENT, Measure, metric_words
from decentral_dp.studies.schema import Label, Plot, Side, Study
from decentral_dp.studies.tasks import number

CellKind = Literal["run", "plan"]

# ε of pairs at any distance in edges.
_AT_A_DISTANCE = re.compile(r"network_(epsilon|linear)_distance_[1-9][0-9]{0,5}")
# Round at which a metric first reaches any level.
_TO = re.compile(r"rounds_to_([a-z]\w*)_(-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)")
# Measures that diverged cells also have: all except scores.
OF_EVERY_CELL = tuple(name for name, m in MEASURES.items() if m.reach != SCORE)
# Consensus errors of an algorithm's own channels.
_ANY_DISTANCE = re.compile(r"consensus_\w+")


def list_measures(kind: CellKind, over_rounds: bool) -> list[str]:
    """List the measures of cells of a kind over rounds, or at the end.

    Example:
        >>> list_measures("plan", over_rounds=True)
        ['bits', 'claimed', 'epsilon_max', 'epsilon_pure_max', 'messages']
    """
    reaches = ((name, m, m.reach.over_rounds if over_rounds else m.reach.kinds) for name, m in MEASURES.items())
    return sorted(f"{name}{ending}" for name, m, kinds in reaches if kind in kinds for ending in m.endings)


def is_measured(name: str, kind: CellKind, over_rounds: bool) -> bool:
    """Return whether cells of a kind have a measure over rounds, or at the end."""
    if not over_rounds and (_AT_A_DISTANCE.fullmatch(name) or (kind == "run" and is_to(name))):
        return True
    return name in list_measures(kind, over_rounds) or (kind == "run" and _ANY_DISTANCE.fullmatch(name) is not None)


def is_to(name: str) -> bool:
    """Return whether a measure is the round at which a metric first reaches a level.

    Example:
        >>> is_to("rounds_to_test_accuracy_0.9"), is_to("rounds_to_test_accuracy"), is_to("rounds_to_nothing_1")
        (True, False, False)
    """
    parts = _TO.fullmatch(name)
    return parts is not None and parts[1] in list_measures("run", over_rounds=True)


def _find_measure(name: str) -> Measure | None:
    return MEASURES.get(name) or MEASURES.get(re.sub(r"(_last|_unreleased)?(_min|_max)?$", "", name))


def is_log(name: str) -> bool:
    """Return whether figures have a logarithmic axis for a measure.

    Example:
        >>> is_log("optimality_gap"), is_log("test_accuracy"), is_log("algorithm.rounds")
        (True, False, False)
    """
    measure = _find_measure(name)
    return measure is not None and measure.axis == "log"


def follows_rounds(plot: Plot, study: Study) -> bool:
    """Return whether a plot has a point for every round: x is "round", or all its measures are kept over rounds."""
    names = (plot.x, *plot.measures)
    kept = study.rounds not in ("last", []) and all(is_measured(name, study.kind, over_rounds=True) for name in names)
    return plot.x == "round" or kept


def first_reaching(name: str, curves: Mapping[str, Sequence[Sequence[Any]]]) -> float:
    """Return the round at which a metric first reaches a level, or NaN.

    Args:
        name: name such as "rounds_to_test_accuracy_0.9".
        curves: name of a metric → rounds and values.

    Example:
        >>> first_reaching("rounds_to_test_loss_0.5", {"test_loss": [[0, 5], [0.7, 0.4]]})
        5.0
    """
    parts = _TO.fullmatch(name)
    if parts is None or parts[1] not in curves:
        return math.nan
    measure = _find_measure(parts[1])
    sign = 1.0 if measure is not None and measure.better == "higher" else -1.0
    level = sign * float(parts[2])
    return next(
        (float(t) for t, value in zip(*curves[parts[1]], strict=True) if sign * number(value) >= level), math.nan
    )


def named_measures(study: Study) -> set[str]:
    """List the measures in the tables, plots, claims and gains of a study."""
    sides = [side for claim in study.claims for side in (claim.left, claim.right) if isinstance(side, Side)]
    names = {*study.measure, *(side.measure for side in sides), *(gain.measure for gain in study.gains)}
    return names | {name for plot in study.plots for name in (plot.x, *plot.measures)}


def missing_measures(study: Study, measured: pd.DataFrame, drawn: Collection[str]) -> list[str]:
    """Return a warning for every measure that no cell has, and for every plot without numbers."""
    available = set(measured["name"])
    sentences = [f"measure: no cell has measured {quoted(name)}." for name in study.measure if name not in available]
    for plot in study.plots:
        lost = [name for name in plot.measures if name not in available]
        if plot.name not in drawn:
            sentences.append(f"plots ({plot.name}): not drawn, no cell has its measures.")
        elif lost:
            sentences.append(f"plots ({plot.name}): no cell has measured {', '.join(map(quoted, lost))}.")
    return sentences


def group_measures() -> dict[str, dict[str, Measure]]:
    """Group the measures by the cells that have them, with measures over rounds first.

    Example:
        >>> list(group_measures())[0], list(group_measures()["Plans, at the end"])[0]
        ('Runs, over rounds and at the end', 'claimed_endless')
    """
    reaches = (SCORE, SENT, PRICE, OF_RUNS, FACT, OF_PLANS)
    return {reach.head: {name: m for name, m in sorted(MEASURES.items()) if m.reach is reach} for reach in reaches}


GUARANTEES = {"certified": "certified", "as_published": "provable as published", "none": "no guarantee"}
_AGENTS = ("epsilon_max", "epsilon_mean", "epsilon_median", "epsilon_min")
BUDGETS = (*_AGENTS, "epsilon_published", "epsilon_spent", "epsilon_pure_max", "finite_data", "endless_stream")
CLAIMS = ("claimed", "claimed_endless")
TARGETS = ("privacy.epsilon", "privacy.noise_multiplier")
# Prefixes of the measures of network DP.
NETWORK = CERTIFIED, LINEAR = ("network_epsilon_", "network_linear_")


def is_epsilon(name: str) -> bool:
    """Return whether a measure is a certified or claimed ε, which is rounded up."""
    return name in (*BUDGETS, *CLAIMS) or name.startswith(NETWORK)


def guarantees(cells: pd.DataFrame) -> list[str]:
    """List the guarantees of cells, in words."""
    names = set(cells["guarantee"])
    return [words for name, words in GUARANTEES.items() if name in names]


def deltas(name: str, cells: pd.DataFrame) -> list[float]:
    """List the δ of an ε in cells.

    Args:
        name: name of a measure.
        cells: table with the columns guarantee, mechanism and delta.

    Returns:
        The distinct δ, ascending; empty for a pure ε, without noise, or for another measure.

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
    """Describe an ε as far as all cells agree, such as "certified, δ = 1e-5"; "" for other measures.

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


# Labels of keys of a scenario.
_KEYS = {
    "privacy.noise_multiplier": "noise multiplier",
    "privacy.delta": "δ",
    "privacy.epsilon": "target ε",
    "problem.synthetic.records": "records per agent",
}


def axis_label(name: str, cells: pd.DataFrame) -> str:
    """Return the label of an axis or a measure; an ε has its guarantee and δ if all cells agree."""
    # The stem of a target already has the word.
    words = epsilon_words(name, cells).removeprefix("target").removeprefix(", ")
    return f"{metric_stem(name)} ({words})" if words else metric_stem(name)


def metric_stem(name: str) -> str:
    """Return the label of an axis or a measure without δ and guarantee."""
    return _KEYS.get(name) or metric_words(name) or label_text(key_name(name))


def key_name(key: str) -> str:
    """Return the last part of a dotted key, but "topology" for "topology.kind".

    Example:
        >>> key_name("algorithm.y.scale"), key_name("topology.kind"), key_name("topology")
        ('scale', 'topology', 'topology')
    """
    table, _, last = key.rpartition(".")
    return table.rpartition(".")[2] if last == "kind" and table else last


def label_text(value: Label) -> str:
    """Return a value of an axis as text, without underscores."""
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
