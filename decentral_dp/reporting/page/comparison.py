"""The page of a comparison: one file with its tables and its curves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from decentral_dp.reporting.page.markup import Html, breakable, document, figure, tag
from decentral_dp.reporting.plots.comparison import write_comparison_plot
from decentral_dp.reporting.plotted import ComparisonPage, ComparisonTable

_CAPTION = "Curves by round, each the mean over agents. Dotted vertical: where a run's values overflowed."


def write_comparison(page: ComparisonPage, folder: Path, formats: Sequence[Any]) -> Path:
    """Write `comparison.html` and the picture into a folder, and return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as narrow:
        thin = [
            path.read_bytes() for path in write_comparison_plot(page.runs, Path(narrow) / "narrow", ["png"], columns=1)
        ]
    title, sections = _sections(page, folder, formats, thin)
    path = folder / "comparison.html"
    path.write_text(document(title, sections), encoding="utf-8")
    return path


def comparison_view(page: ComparisonPage) -> str:
    """Markup for a notebook: what the page has, without its style."""
    with TemporaryDirectory() as folder:
        return tag("div", *_sections(page, Path(folder), (), ())[1]).markup


def _sections(
    page: ComparisonPage, folder: Path, formats: Sequence[Any], narrow: Sequence[bytes]
) -> tuple[str, list[Html]]:
    """The title and the parts of the page; the picture is written into the folder. narrow: the same for a telephone."""
    written = write_comparison_plot(page.runs, folder / "comparison", ["png", *formats])
    pictures = [path.read_bytes() for path in written if path.suffix == ".png"]
    picture = [figure(png, _CAPTION, narrow=thin) for png, thin in zip_longest(pictures, narrow)]
    title = f"{len(page.runs)} runs side by side"
    titles = [
        tag(
            "li",
            tag("strong", run.name),
            f": {run.result.title or 'no title'}{'' if run.label == run.name else f' ({run.label})'}",
        )
        for run in page.runs
    ]
    sections = [
        tag("header", tag("h1", title), tag("ul", *titles)),
        *(tag("p", remark, class_="note warn") for remark in page.remarks),
        *(part for table in page.tables for part in _table(table, [run.name for run in page.runs])),
        *([tag("h2", "Curves"), *picture] if picture else []),
    ]
    return title, sections


def _table(table: ComparisonTable, runs: Sequence[str]) -> list[Html]:
    if not table.rows:
        return [tag("h2", table.title), tag("p", table.nothing)]
    look = "" if table.numbers else "word"
    heads = [tag("th", ""), *(tag("th", breakable(name), class_=look) for name in runs)]
    rows = [
        tag("tr", tag("td", breakable(name)), *(tag("td", breakable(text), class_=look) for text in texts))
        for name, texts in table.rows
    ]
    shown = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="wrapped")
    shown = tag("div", shown, class_="wide")
    if table.folded:
        return [tag("details", tag("summary", f"{table.title} ({len(table.rows)})"), shown)]
    return [tag("h2", table.title), shown, *([tag("p", table.note, class_="small")] if table.note else [])]
