"""Markup whose text is escaped by construction: markup is a type of its own (`Html`)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from decentral_dp.errors import printable


@dataclass(frozen=True)
class Html:
    """Markup, as opposed to text that has yet to be escaped."""

    markup: str


Part: TypeAlias = str | int | float | Html


def tag(name: str, *parts: Part, **attributes: str) -> Html:
    """An element; `class_` stands for class. Parts that are not Html are escaped."""
    heads = "".join(f' {key.rstrip("_")}="{html.escape(printable(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{heads}>{join(parts).markup}</{name}>")


def join(parts: Iterable[Part], between: str = "") -> Html:
    return Html(between.join(p.markup if isinstance(p, Html) else html.escape(printable(str(p))) for p in parts))


def breakable(text: str) -> Html:
    """Text whose names may be broken after an underscore, or a dot between keys, where a column is narrow."""
    return join((unbroken(part) for part in re.split(r"(?<=_)|(?<=\.)(?=[a-z])", text)), "<wbr>")


# A number, and what it is the value of: "δ = 1e-5", "0.590 ± 0.02".
_NUMBERS = re.compile(r"((?:\S+ = )?[-−]?\d[\d.]*(?:e[-+]?\d+)?(?: ± [\d.]+)?)")


def unbroken(text: str) -> Html:
    """Text of which no number is broken over two lines, however narrow its column is."""
    parts = _NUMBERS.split(text)
    return join(
        tag("span", part, class_="unbroken") if k % 2 and len(part) > 1 else part for k, part in enumerate(parts)
    )


def formula(text: str) -> Html:
    """Plain text where `_i` and `^-0.5` become subscript and superscript."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?)", text)
    marks: list[Part] = [parts[0]]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        marks += [tag("sub" if sign == "_" else "sup", mark.replace("-", "−")), rest]
    return tag("span", *marks, class_="formula")
