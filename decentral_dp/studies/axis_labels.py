"""Words for the axes and the legend of a study's pictures."""

from __future__ import annotations

import pandas as pd

from decentral_dp.formatting import delta_text
from decentral_dp.studies.epsilons import BUDGETS, deltas, guarantees
from decentral_dp.studies.grid import Label

NAMES = {
    "agents": "agents",
    "claimed": "ε claimed by the printed formula",
    "claimed_endless": "ε claimed by the printed formula for T → ∞",
    "consensus_x": "distance of x to the network average (ℓ2)",
    "consensus_y": "distance of y to the network average (ℓ2)",
    "consensus_z": "distance of z to the network average (ℓ2)",
    "endless_stream": "ε of the worst agent on an endless stream",
    "epsilon_max": "ε of the worst agent",
    "epsilon_pure_max": "pure ε of the worst agent",
    "epsilon_spent": "ε spent by the worst agent",
    "finite_data": "ε of the worst agent for T → ∞ on these data",
    "hypergradient_norm": "‖∇F‖₂ at the average x",
    "privacy.cap": "cap on ε",
    "privacy.delta": "δ",
    "privacy.epsilon": "target ε",
    "self_weight": "smallest total weight of an agent's neighbours",
    "spectral_gap": "spectral gap 1 − ρ",
    "test_accuracy": "accuracy on held-out records",
    "test_loss": "loss on held-out records",
    "lower_loss": "lower loss (train)",
    "upper_loss": "upper loss (validation)",
}


def axis_label(name: str, cells: pd.DataFrame, most: int = 3) -> str:
    """What is on an axis; of an ε also its δ, and whether it is certified, if these are at most so many guarantees."""
    at, kinds = deltas(name, cells), guarantees(cells) if name in BUDGETS else []
    ends = list(dict.fromkeys([*at[:1], *at[-1:]]))
    delta = f", δ = {' … '.join(map(delta_text, ends))}" if ends else ""
    kind = f" ({' or '.join(kinds)})" if 0 < len(kinds) <= most else ""
    return f"{metric_stem(name)}{delta}{kind}"


def metric_stem(name: str) -> str:
    for ending, words in (("_min", ", lowest agent"), ("_max", ", highest agent")):
        stem = name.removesuffix(ending)
        if stem != name and stem in NAMES and name not in NAMES:
            return NAMES[stem] + words
    return NAMES.get(name, words_of(name.rpartition(".")[2]))


def words_of(value: Label) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
