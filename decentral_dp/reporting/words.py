"""Words and numbers of pages and figures.

What the page and the figures say differently by setting: agents among themselves, or with a trusted coordinator.

Numbers and names as the page and the figures print them. Every ε is rounded up.

Words for measured names, as figures and tables print them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from decentral_dp.formatting import SUPERSCRIPTS
from decentral_dp.simulation.statements.statement import Setting
from decentral_dp.user_code import in_file

Json: TypeAlias = Mapping[str, Any]

GRAPHS = {
    "complete": "complete graph",
    "random_regular": "random regular graph",
    "erdos_renyi": "Erdős–Rényi graph",
    "small_world": "small-world graph",
    "preferential_attachment": "preferential-attachment graph",
    # The file in a run folder whose graph was an object.
    "topology": "network",
}


def power_text(value: float, pad: bool = False) -> str:
    """`value` in three digits (at most, unless `pad`), as a power of ten where it is very small or large."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".") if pad else f"{value:.3g}"
    mantissa, exponent = f"{value:.2e}".split("e")
    short = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(SUPERSCRIPTS)
    return power if short == "1" else f"{short}·{power}"


def score_text(value: float) -> str:
    """`value` in four digits; whole where it has more before the point, as people write prices."""
    if 1e3 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e3 else power_text(value)


def capitalised(text: str) -> str:
    """`str.capitalize` without lowering the rest: a name within stays a name."""
    return text[:1].upper() + text[1:]


def article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def graph_noun(graph: Json) -> str:
    kind = str(graph.get("kind") or "")
    place = in_file(kind)
    kind = kind if place is None else place.name
    plain = kind.replace("_", " ") if kind.isascii() and kind.isprintable() else ""
    return GRAPHS.get(kind, plain) or "network"


def topology_name(graph: Json) -> str:
    """ "ring of 10 agents"; "one agent"."""
    m = int(graph.get("agents") or 0)
    return "one agent" if m == 1 else f"{graph_noun(graph)} of {m} agents"


def cut_text(shares: Mapping[str, float]) -> str:
    """Say how many values the declared ranges cut; "" where none.

    Args:
        shares: feature → share of its values that were cut, largest first.

    Example:
        >>> cut_text({"gain": 0.5, "age": 0.015})
        'Values outside problem.scale were cut: gain 50%, age 1.5%.'
    """
    listed = [f"{name} {_percent(float(share))}" for name, share in list(shares.items())[:5]]
    more = f" and fewer of {len(shares) - 5} other features" if len(shares) > 5 else ""
    return f"Values outside problem.scale were cut: {', '.join(listed)}{more}." if listed else ""


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100.0 * share:.2g}%"


METRIC_WORDS: Mapping[str, str] = MappingProxyType(
    {
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
        "network_epsilon_max": "largest ε towards one other agent",
        "network_epsilon_mean": "mean ε towards one other agent",
        "neighbour_weight": "smallest total weight of an agent's neighbours",
        "spectral_gap": "spectral gap 1 − ρ",
        "test_accuracy": "accuracy on held-out records",
        "test_auc": "AUC on held-out records",
        "test_rmse": "root mean squared error on held-out records",
        "test_r2": "R² on held-out records",
        "test_loss": "loss on held-out records",
        "lower_loss": "lower loss (train)",
        "upper_loss": "upper loss (validation)",
        "primal": "value that is minimised",
        "gradient_norm": "norm of its gradient",
    }
)
_ENDINGS = {
    "_min": ", lowest agent",
    "_max": ", highest agent",
    "_last": ", last released values",
    "_unreleased": ", unreleased state",
}


def metric_words(name: str) -> str | None:
    """What a measured name is; None where nothing is known of it.

    Example:
        >>> metric_words("upper_loss"), metric_words("test_loss_max"), metric_words("mine")
        ('upper loss (validation)', 'loss on held-out records, highest agent', None)
        >>> metric_words("network_epsilon_distance_2")
        'largest ε towards an agent 2 links away'
    """
    if name in METRIC_WORDS:
        return METRIC_WORDS[name]
    links = name.removeprefix("network_epsilon_distance_")
    if links != name and links.isdecimal():
        return f"largest ε towards an agent {links} {'link' if links == '1' else 'links'} away"
    stem, ending = next(((name.removesuffix(e), words) for e, words in _ENDINGS.items() if name.endswith(e)), ("", ""))
    return METRIC_WORDS[stem] + ending if stem in METRIC_WORDS else None


@dataclass(frozen=True, kw_only=True)
class SettingWords:
    """Words for the runs of one setting.

    Args:
        where: who takes part beside the agents; "" where the graph says it.
        whose: of which agent the stated ε is.
        spent: axis of the ε that is spent.
        loss: axis of losses.
        hypergradient: axis of the norm of the hypergradient.
        columns: heads of the table of metrics.
        endings: ending of a metric's name → what the label adds for it.
    """

    where: str
    whose: str
    spent: str
    loss: str
    hypergradient: str
    columns: tuple[str, ...]
    endings: Mapping[str, str]


_AGENTS = SettingWords(
    where="",
    whose="worst agent",
    spent="ε spent by the worst agent",
    loss="loss, mean over agents",
    hypergradient="‖∇F‖₂ at the average x",
    columns=("Metric", "Mean over agents", "Lowest agent", "Highest agent"),
    endings=MappingProxyType({"_last": ", last released values", "_unreleased": ", unreleased state"}),
)
# What the scores of a coordinator are of is said above the table.
_COORDINATOR = SettingWords(
    where=" and a trusted coordinator",
    whose="the same for every agent",
    spent="ε spent",
    loss="loss",
    hypergradient="‖∇F‖₂ at the published x",
    columns=("Metric", "Value"),
    endings=MappingProxyType({"_last": "", "_unreleased": ""}),
)
WORDS: Mapping[Setting, SettingWords] = MappingProxyType(
    {"gossip": _AGENTS, "coordinator_bilevel": _COORDINATOR, "coordinator_minimax": _COORDINATOR}
)
