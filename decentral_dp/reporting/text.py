"""Numbers and names as the page and the figures print them. Every ε is rounded up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from decentral_dp.formatting import SUPERSCRIPTS
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
