"""Tables in words: the same rows on a page, on a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import io
import re

from rich.console import Console

from decentral_dp.reporting.tables import TextTable, html, latex, markdown, terminal

MEANS = TextTable(
    [("graph", ""), ("epsilon_max", "certified, δ = 1e-5")],
    [False, True],
    [["ring", "2.00"], ["a<b>", "failed"]],
    [[None, 2.0], [None, float("nan")]],
)


def test_tables_escape_what_their_language_reads() -> None:
    table = TextTable([("a_b|c", "δ = 1e-5")], [False], [["[x](y) & 5 % of {z} ≈ 2·10⁻⁴ *"]], [[None]], "")
    assert markdown(table).splitlines() == [
        "| a\\_b\\|c (δ = 1e-5) |",
        "| --- |",
        "| [x\\](y) & 5 % of {z} ≈ 2·10⁻⁴ \\* |",
        "",
        "",
    ]
    rows = latex(table).splitlines()
    assert rows[3] == r"a\_b$|$c ($\delta$ = 1e-5) \\"
    assert rows[5] == r"{[}x](y) \& 5 \% of \{z\} ≈ 2$\cdot$10$^{-4}$ * \\"
    # A paper that reads the file in has a caption of its own.
    assert latex(table._replace(note="All 4\ncells.")).splitlines()[-1] == "% All 4 cells."


def test_a_page_sorts_by_numbers_names_every_cell_and_escapes_its_text() -> None:
    page = html(MEANS, "sortable", {"failed": "bad"}).markup
    assert page.startswith('<table class="sortable">')
    assert re.findall(r'data-sort="([^"]*)"', page) == ["2.0", "NaN"]
    assert page.count('data-head="epsilon_max (certified, δ = 1e-5)"') == 2
    assert '<td class="bad" data-sort="NaN"' in page
    assert "a&lt;b&gt;" in page
    assert "<b>" not in page


def test_names_within_cells_break_where_a_table_says_so() -> None:
    table = TextTable([("key", "")], [False], [["algorithm.y.scale"]])
    assert "<wbr>" not in html(table, "wrapped").markup
    assert "algorithm.<wbr>y.<wbr>scale" in html(table, "wrapped", broken=True).markup


def test_a_terminal_has_words_on_the_left_and_numbers_on_the_right() -> None:
    out = io.StringIO()
    Console(file=out, width=80, markup=False).print(terminal([("graph", "ring", "[red]"), ("ε", "2.00", "16.0")]))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == ["graph     ε", "ring   2.00", "[red]  16.0"]
