"""One HTML file that loads nothing: its head, with the style of all pages, around given sections."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from decentral_dp.reporting.page.markup import Html, Part, join, tag

# Clicked, the head of a column sorts the rows: by the number that a cell carries, else by its text.
_SORT = """
document.querySelectorAll("table.sortable").forEach(t => t.querySelectorAll("thead th").forEach((th, k) => {
  th.tabIndex = 0;
  const sort = () => {
    const up = th.getAttribute("aria-sort") !== "ascending", body = t.tBodies[0];
    const key = r => { const c = r.cells[k], v = c.dataset.sort; return v === undefined ? c.textContent : Number(v); };
    const worse = v => typeof v === "number" && Number.isNaN(v);
    const order = (a, b) => worse(a) || worse(b) ? worse(a) - worse(b)
      : (up ? 1 : -1) * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    [...body.rows].sort((r, s) => order(key(r), key(s))).forEach(r => body.append(r));
    t.querySelectorAll("thead th").forEach(h => h.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
  };
  th.addEventListener("click", sort);
  th.addEventListener("keydown", e => { if (e.key === "Enter") sort(); });
}));
"""


def document(title: str, sections: Iterable[Part], sortable: bool = False) -> str:
    """The text of a page. sortable: whether tables of the class "sortable" are sorted by a click on a column's head."""
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    head = join(
        [
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<link rel="icon" href="data:,">'),
            Html('<meta name="color-scheme" content="light dark">'),
            tag("title", title),
            tag("style", Html(style)),
        ]
    )
    script = [tag("script", Html(_SORT))] if sortable else []
    page = tag("html", tag("head", head), tag("body", tag("main", *sections), *script), lang="en")
    return f"<!DOCTYPE html>\n{page.markup}\n"
