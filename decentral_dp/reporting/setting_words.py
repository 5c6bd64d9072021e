"""What the page and the figures say differently by setting: agents among themselves, or with a trusted coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from decentral_dp.simulation.statements.statement import Setting


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
        title_width: letters in a line of a figure's title.
    """

    where: str
    whose: str
    spent: str
    loss: str
    hypergradient: str
    columns: tuple[str, ...]
    endings: Mapping[str, str]
    title_width: int


_AGENTS = SettingWords(
    where="",
    whose="worst agent",
    spent="ε spent by the worst agent",
    loss="loss, mean over agents",
    hypergradient="‖∇F‖₂ at the average x",
    columns=("Metric", "Mean over agents", "Lowest agent", "Highest agent"),
    endings=MappingProxyType({"_last": ", last released values", "_unreleased": ", unreleased state"}),
    title_width=60,
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
    title_width=52,
)
WORDS: Mapping[Setting, SettingWords] = MappingProxyType(
    {"gossip": _AGENTS, "coordinator_bilevel": _COORDINATOR, "coordinator_minimax": _COORDINATOR}
)
