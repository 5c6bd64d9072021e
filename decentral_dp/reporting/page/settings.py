"""How the tables of a scenario are printed."""

from __future__ import annotations

from collections.abc import Mapping

from decentral_dp.reporting.page.markup import Html, formula, join
from decentral_dp.reporting.text import Json


def schedules(symbol: str, table: Json) -> Html | str:
    """ "λ_x = 0.5/(t+1)^0.3, …", of everything that the table gives a scale."""
    found = []
    for variable, entry in table.items():
        if isinstance(entry, Mapping) and isinstance(entry.get("scale"), int | float):
            decay = entry.get("decay")
            fall = f"/(t+1)^{decay}" if isinstance(decay, int | float) and decay else ""
            faster = entry.get("decay_per_agent")
            more = f" (exponent + {faster}·i for agent i = 1, 2, …)" if faster else ""
            found.append(join([formula(f"{symbol}_{variable} = {entry['scale']}{fall}"), more]))
    return join(found, ", ") if found else ""


def settings_text(value: object) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value or "")
