"""Tables in words: on a page, on a terminal, as Markdown, and in LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from decentral_dp.reporting.markup import Html, breakable, tag, unbroken


class TextTable(NamedTuple):
    """A table in words.

    Args:
        heads: name of each column, and what is said below it.
        numbers: whether a column holds numbers.
        rows: text of each cell.
        sorted_by: what a column is sorted by, row by row; the text where that is None, or by default.
        note: what the means and intervals are.
        groups: words above several columns, and how many these are, from left to right; none by default.
    """

    heads: Sequence[tuple[str, str]]
    numbers: Sequence[bool]
    rows: Sequence[Sequence[str]]
    sorted_by: Sequence[Sequence[float | None]] = ()
    note: str = ""
    groups: Sequence[tuple[str, int]] = ()


# Blanks between the columns of a table on a terminal.
GAP = 2


def terminal(columns: Sequence[Sequence[str]]) -> Table:
    """Draw columns, each with its head first, of which all but the first are numbers; no cell is wrapped, or cut."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for k, (head, *_) in enumerate(columns):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*map(Text, cells))
    return table


def html(table: TextTable, kind: str, marks: Mapping[str, str] = MappingProxyType({}), broken: bool = False) -> Html:
    """Write a table for a page, its heads beside every cell for narrow screens.

    Args:
        table: in words.
        kind: class of the table.
        marks: text of a cell → class that it has; others have the class "word" where they are no numbers.
        broken: whether names within cells may be broken, where a column is narrow.
    """
    classes = ["" if number else "word" for number in table.numbers]
    heads = [
        tag("th", breakable(name), *([Html("<br>"), tag("small", unbroken(below))] if below else []), class_=look)
        for (name, below), look in zip(table.heads, classes, strict=True)
    ]
    rows = []
    for row, keys in zip(table.rows, table.sorted_by or [[None] * len(classes)] * len(table.rows), strict=True):
        cells = []
        for head, text, key, look in zip(table.heads, row, keys, classes, strict=True):
            by = {} if key is None else {"data_sort": "NaN" if math.isnan(key) else repr(key)}
            by["data_head"] = head_of(head)
            cells.append(tag("td", breakable(text) if broken else text, class_=marks.get(text, look), **by))
        rows.append(tag("tr", *cells))
    return tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_=kind)


def head_of(head: tuple[str, str]) -> str:
    """Name and what is said below it in one line."""
    name, below = head
    return " ".join(filter(None, (name, below and f"({below})")))


def markdown(table: TextTable) -> str:
    """Write a table in GitHub's Markdown, with its note below; it has one line of heads."""
    above = [words for words, wide in table.groups for _ in range(wide)] or [""] * len(table.heads)
    named = (", ".join(filter(None, (group, head_of(head)))) for group, head in zip(above, table.heads, strict=True))
    heads = list(map(_plain_markdown, named))
    rule = ["---:" if number else "---" for number in table.numbers]
    rows = [[_plain_markdown(text) for text in row] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in (heads, rule, *rows)]
    return "\n".join([*lines, "", _plain_markdown(table.note), ""])


def _plain_markdown(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    return re.sub(r"([\\`*_<|~]|\](?=[(\[]))", r"\\\1", " ".join(text.split()))


# What pdflatex has no letter for, and what it takes for a command.
_LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": "$<$", ">": "$>$", "|": r"$|$", "±": r"$\pm$", "·": r"$\cdot$", "∞": r"$\infty$", "−": "$-$", "–": "--"},
    **{"≤": r"$\le$", "≥": r"$\ge$", "→": r"$\to$", "×": r"$\times$", "‖": r"$\|$", "…": r"\dots{}", "∇": r"$\nabla$"},
    **{"ε": r"$\varepsilon$", "δ": r"$\delta$", "λ": r"$\lambda$", "ρ": r"$\rho$", "σ": r"$\sigma$", "ℓ": r"$\ell$"},
    **{"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "μ": r"$\mu$", "ν": r"$\nu$", "ς": r"$\varsigma$"},
}
_POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


# Beyond so many rows a table breaks over pages.
_MOST_ON_A_PAGE = 40


def latex(table: TextTable) -> str:
    """Write a table with the rules of booktabs, with its note below as a comment: a paper has its caption.

    One of many rows is a `longtable`, which breaks over pages and repeats its heads.
    """
    columns = "".join("r" if number else "l" for number in table.numbers)
    heads = [_latex_row([head_of(head) for head in table.heads])]
    if table.groups:
        above: list[str] = []
        rules, first = [], 1
        for words, wide in table.groups:
            above += [rf"\multicolumn{{{wide}}}{{c}}{{{plain_latex(words)}}}"] if words else [""] * wide
            rules += [rf"\cmidrule(lr){{{first}-{first + wide - 1}}}"] if words else []
            first += wide
        heads = [" & ".join(above) + r" \\", " ".join(rules), *heads]
    rows = [_latex_row(row) for row in table.rows]
    long = len(rows) > _MOST_ON_A_PAGE
    kind, packages = ("longtable", "booktabs, longtable") if long else ("tabular", "booktabs")
    top = [rf"% \usepackage{{{packages}}}", rf"\begin{{{kind}}}{{{columns}}}", r"\toprule", *heads, r"\midrule"]
    body = [*([r"\endhead", r"\bottomrule", r"\endfoot"] if long else []), *rows]
    end = [*([] if long else [r"\bottomrule"]), rf"\end{{{kind}}}"]
    return "\n".join([*top, *body, *end, "", f"% {' '.join(table.note.split())}", ""])


def _latex_row(texts: Sequence[str]) -> str:
    return " & ".join(map(plain_latex, texts)) + r" \\"


def plain_latex(text: str) -> str:
    r"""Text that LaTeX prints as it stands here.

    Example:
        >>> print(plain_latex("test_accuracy, 5 % at ε = 1.2·10⁻⁴"))
        test\_accuracy, 5 \% at $\varepsilon$ = 1.2$\cdot$10$^{-4}$
    """
    # A bracket after the end of a row would be taken for its option.
    escaped = "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
    escaped = f"{{[}}{escaped[1:]}" if escaped.startswith("[") else escaped
    return re.sub(r"[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: f"$^{{{power[0].translate(_POWERS)}}}$", escaped)
