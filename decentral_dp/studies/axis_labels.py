"""Words for the axes and the legend of a study's pictures."""

from __future__ import annotations

import pandas as pd

from decentral_dp.formatting import delta_text
from decentral_dp.reporting.metric_words import metric_words
from decentral_dp.studies.epsilons import BUDGETS, deltas, guarantees
from decentral_dp.studies.grid import Label

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
    return _KEYS.get(name) or metric_words(name) or words_of(own_name(name))


def own_name(key: str) -> str:
    """The last part of a dotted key; of what kind a table is, the table's name.

    Example:
        >>> own_name("algorithm.y.scale"), own_name("topology.kind"), own_name("topology")
        ('scale', 'topology', 'topology')
    """
    table, _, last = key.rpartition(".")
    return table.rpartition(".")[2] if last == "kind" and table else last


def words_of(value: Label) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
