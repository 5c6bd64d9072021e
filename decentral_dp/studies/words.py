"""Words for the axes and the legend of a study's pictures.

Words for numbers called ε: certified, provable or neither, and at which δ.

The cells are a table with the columns guarantee, mechanism and delta (see `table.cell_table`).
"""

from __future__ import annotations

import pandas as pd

from decentral_dp.formatting import delta_text
from decentral_dp.reporting.words import metric_words
from decentral_dp.studies.grid import Label

GUARANTEES = {"certified": "certified", "as_printed": "provable as printed", "none": "no guarantee"}
BUDGETS = ("epsilon_max", "epsilon_spent", "epsilon_pure_max", "finite_data", "endless_stream")
CLAIMS = ("claimed", "claimed_endless")
TARGETS = ("privacy.epsilon", "privacy.cap")
# Measures of what one agent learns of another begin so.
NETWORK = "network_epsilon_"


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
    at_delta = cells["guarantee"].isin(["certified", "as_printed"])
    if name == "endless_stream":
        at_delta &= cells["mechanism"] == "gaussian"
    if name == "epsilon_pure_max" or not (name in (*BUDGETS, *TARGETS) or name.startswith(NETWORK)):
        return []
    return sorted(set(cells.loc[at_delta, "delta"]))


def described(name: str, cells: pd.DataFrame) -> str:
    """Describe an ε as far as all cells agree, such as "certified, δ = 1e-5"; "" for what is no ε.

    Example:
        >>> cells = pd.DataFrame({"guarantee": ["certified"], "mechanism": ["laplace"], "delta": [1e-5]})
        >>> described("epsilon_max", cells), described("upper_loss", cells)
        ('certified, δ = 1e-5', '')
    """
    if name in CLAIMS:
        return "claimed, not proved"
    found, at = guarantees(cells) if name in BUDGETS else [], deltas(name, cells)
    words = found[:1] if len(found) == 1 else ["target"] if name == "privacy.epsilon" else []
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
