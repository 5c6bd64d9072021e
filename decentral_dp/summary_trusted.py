"""What the command line prints besides, where agents trust a coordinator: scores of one value, prices, settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from decentral_dp.formatting import price_text
from decentral_dp.privacy.bounded import SPLITS, Array

# Beyond so many coordinates x is not printed.
_MOST_COORDINATES = 4


def published(x: Array) -> list[tuple[str, str]]:
    """The x that was published, where it is short; (1, p)."""
    if not 0 < x.size <= _MOST_COORDINATES or not np.isfinite(x).all():
        return []
    values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
    return [("Result", f"x = {values}" if x.size == 1 else f"x = ({values})")]


def prices(privacy: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of a table, its heads first: what every release of a channel may cost one record of a kind."""
    listed = privacy["prices"]
    sampled = any(entry["rate"] for entry in listed)
    kinds = [k for k in SPLITS if any(k in entry["price"] for entry in listed)]
    rows = [("channel", "releases", "numbers each", *kinds, *(["sample"] if sampled else []))]
    for entry in listed:
        cells = [price_text(entry["price"].get(split), entry["unit"]) for split in kinds]
        share = max(entry["rate"].values(), default=1.0)
        drawn = ["all" if share == 1.0 else f"{share:.3g}"] if sampled else []
        rows.append((entry["channel"], str(entry["releases"]), str(entry["width"]), *cells, *drawn))
    return rows


def grid(rows: list[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for k, head in enumerate(rows[0]):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for cells in rows[1:]:
        table.add_row(*map(Text, cells))
    return table


def settled_values(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was left out of the scenario, and follows from public numbers."""
    values = settings["settled"]
    stated = [f"{name} = {setting_text(values[name])}" for name in settings["left_out"]]
    return (
        [("Settled", f"{', '.join(stated)} (left out: defaults, or what follows from public facts).")] if stated else []
    )


def setting_text(value: Any) -> str:
    """ "0.05/(t+1)^0.9", "7", "dp_gd"."""
    if isinstance(value, Mapping):
        fall = f"/(t+1)^{value['decay']:g}" if value["decay"] else ""
        return f"{value['scale']:.4g}{fall}"
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)
