"""Markup whose text is escaped by construction, for it is a type of its own (`Html`); pages that load nothing."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from decentral_dp.errors import printable


@dataclass(frozen=True)
class Html:
    """Markup, as opposed to text that has yet to be escaped."""

    markup: str


Part: TypeAlias = str | int | float | Html


def tag(name: str, *parts: Part, **attributes: str) -> Html:
    """An element; `class_` stands for class, `data_head` for data-head. Parts that are not Html are escaped."""
    named = ((key.rstrip("_").replace("_", "-"), html.escape(printable(value))) for key, value in attributes.items())
    heads = "".join(f' {name}="{value}"' for name, value in named)
    return Html(f"<{name}{heads}>{join(parts).markup}</{name}>")


def join(parts: Iterable[Part], between: str = "") -> Html:
    """Join parts to one; text among them is escaped."""
    return Html(between.join(p.markup if isinstance(p, Html) else html.escape(printable(str(p))) for p in parts))


def table(heads: Iterable[Part], rows: Iterable[tuple[Part, Iterable[Html]]]) -> Html:
    """A table in a box of its own. rows: the head of each, and its cells."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in heads)))
    return scroll_box([tag("tr", tag("th", first, scope="row"), *cells) for first, cells in rows], [head])


def scroll_box(rows: Iterable[Html], heads: Iterable[Html] = (), **attributes: str) -> Html:
    """Rows, and whole heads, of a table in a box of its own, which is scrolled where it is too wide."""
    return tag("div", tag("table", *heads, tag("tbody", *rows), **attributes), class_="wide", tabindex="0")


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
    """Plain text where `_i`, `_(t−1)` and `^-0.5` become subscript and superscript."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?|\([^()]*\))", text)
    marks: list[Part] = [parts[0]]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        marks += [tag("sub" if sign == "_" else "sup", mark.strip("()").replace("-", "−")), rest]
    return tag("span", *marks, class_="formula")


def with_formulas(sentence: str) -> Html:
    """A sentence whose words may be formulas, such as ∇_y."""
    return join([formula(word) if re.search("[_^]", word) else word for word in sentence.split(" ")], " ")


def figure(png: bytes, caption: str, captioned: bool = True, narrow: bytes | None = None) -> Html:
    """A picture within the page.

    Args:
        png: the picture.
        caption: what it shows.
        captioned: whether that is printed below it, too.
        narrow: the same drawn for a narrow screen, where the picture is too wide for one.
    """
    return tag("figure", picture(png, caption, narrow), *([tag("figcaption", caption)] if captioned else []))


def picture(png: bytes, words: str, narrow: bytes | None = None) -> Html:
    """A picture, on a narrow screen the one that was drawn for it; words: what it shows."""
    shown = image(png, alt=words)
    if narrow is None:
        return shown
    source = image(narrow, media="(max-width:40rem)").markup.replace("<img src=", "<source srcset=", 1)
    return tag("picture", Html(source), shown)


def image(png: bytes, **attributes: str) -> Html:
    """A picture whose bytes stand in the markup. attributes: of `<img>`."""
    data = base64.b64encode(png).decode("ascii")
    return Html(tag("img", src=f"data:image/png;base64,{data}", **attributes).markup.removesuffix("</img>"))


def _file(name: str) -> Html:
    return Html(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def document(title: str, sections: Iterable[Part], sortable: bool = False) -> str:
    """The text of a page. sortable: whether tables of the class "sortable" are sorted by a click on a column's head."""
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<link rel="icon" href="data:,">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", _file("style.css")),
        ]
    )
    script = [tag("script", _file("sort.js"))] if sortable else []
    page = tag("html", tag("head", head), tag("body", tag("main", *sections), *script), lang="en")
    return f"<!DOCTYPE html>\n{page.markup}\n"
