"""Pages from jinja2 templates: every value is escaped, and no page loads anything.

Names from files are untrusted text: control characters are written out, then the text is escaped.
"""

from __future__ import annotations

import base64
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from decentral_dp import formatting
from decentral_dp.errors import printable
from decentral_dp.reporting.tables import head_of

# A number, and what it is the value of: "δ = 1e-5", "0.590 ± 0.02".
_NUMBERS = re.compile(r"((?:\S+ = )?[-−]?\d[\d.]*(?:e[-+]?\d+)?(?: ± [\d.]+)?)")


def render(template: str, **values: Any) -> str:
    """Render a template of this package.

    Args:
        template: its name without the ending.
        values: of its variables.
    """
    return environment().get_template(f"{template}.html.j2").render(values).strip() + "\n"


def unbroken(text: str) -> Markup:
    """Keep every number of a text on one line, however narrow its column is."""
    return Markup("").join(
        Markup('<span class="unbroken">{}</span>').format(part) if k % 2 and len(part) > 1 else escape(part)
        for k, part in enumerate(_NUMBERS.split(printable(text)))
    )


def breakable(text: str) -> Markup:
    """Allow a break after an underscore, or after a dot between keys, in a narrow column."""
    return Markup("<wbr>").join(unbroken(part) for part in re.split(r"(?<=_)|(?<=\.)(?=[a-z])", text))


def formula(text: str) -> Markup:
    """Write `_i`, `_(t−1)` and `^-0.5` of a plain text as subscripts and superscripts."""
    parts = re.split(r"([_^])(-?\w+(?:\.\w+)?|\([^()]*\))", printable(text))
    marks = [escape(parts[0])]
    for sign, mark, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        element = Markup("<sub>{}</sub>") if sign == "_" else Markup("<sup>{}</sup>")
        marks += [element.format(mark.strip("()").replace("-", "−")), escape(rest)]
    return Markup('<span class="formula">{}</span>').format(Markup("").join(marks))


def with_formulas(sentence: str) -> Markup:
    """Write the words of a sentence that are formulas, such as ∇_y, as `formula` does."""
    words = (formula(word) if re.search("[_^]", word) else escape(printable(word)) for word in sentence.split(" "))
    return Markup(" ").join(words)


def _data_uri(png: bytes) -> Markup:
    return Markup(f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}")


_NUMERALS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"]


def _agents_text(count: int) -> str:
    """ "Ten agents", at the start of a sentence."""
    return f"{_NUMERALS[count] if count < len(_NUMERALS) else count} {'agent' if count == 1 else 'agents'}"


def _margin(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{formatting.power_text(abs(value))}"


@cache
def environment() -> Environment:
    """Make the environment of templates, once."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        # Only markup of templates and of this module is not text.
        finalize=lambda value: printable(value) if isinstance(value, str) and type(value) is not Markup else value,
    )
    texts = {name.removesuffix("_text"): f for name, f in vars(formatting).items() if name.endswith("_text")}
    made.filters |= texts | {
        "article": formatting.article,
        "capitalise": formatting.capitalise,
        "graph_noun": formatting.graph_noun,
        "topology_name": formatting.topology_name,
        "agents": _agents_text,
        "breakable": breakable,
        "data_uri": _data_uri,
        "formula": formula,
        "head": head_of,
        "margin": _margin,
        "minus": lambda text: str(text).replace("-", "−"),
        "number": lambda value: None if value is None else float(value),
        "unbroken": unbroken,
        "with_formulas": with_formulas,
    }
    return made
