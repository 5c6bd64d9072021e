"""The page, from run folders written here by hand."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.errors import InputError, printable
from decentral_dp.formatting import epsilon_text
from decentral_dp.reporting.page import (
    axis_places,
    breakable,
    draw_run,
    formula,
    inline_svg,
    unbroken,
    with_formulas,
    write_report,
)
from decentral_dp.reporting.plots import write_plots
from tests.support.run_folders import ALL_FIGURES, Page, page_of, privacy_of, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("certified"))
    draw_run(folder)
    return folder


@pytest.fixture(scope="module")
def as_published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_run(tmp_path_factory.mktemp("as_published"), guarantee="as_published")
    write_report(folder)
    return folder


# --- numbers -------------------------------------------------------------------------------------------------------


def parsed(text: str) -> Decimal:
    """The number that a printed budget states."""
    back = text.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    return Decimal(re.sub(r"·10(-?\d+)$", r"E\1", back))


@given(st.floats(min_value=1e-12, max_value=1e40))
def test_a_budget_is_never_printed_below_its_value(value: float) -> None:
    stated = parsed(epsilon_text(value))
    assert float(stated) >= value
    assert float(stated) <= value * 1.011 or float(stated) - value <= 0.01


# --- the page ------------------------------------------------------------------------------------------------------


EVIL = "<script>alert(1)</script>&amp;</details>"


@given(st.text())
@example(EVIL)
@pytest.mark.parametrize("markup", [formula, with_formulas, breakable, unbroken])
def test_text_cannot_leave_its_element(markup: Callable[[str], str], text: str) -> None:
    page = Page(f"<p>{markup(text)}</p>")
    assert set(page.tags) <= {"p", "span", "sub", "sup", "wbr"}
    # Control characters are written out.
    assert printable(page.text) == page.text


def test_names_from_files_are_escaped(tmp_path: Path) -> None:
    """A scenario's title, the name of a feature, of an agent, of a file and of a channel."""
    known = json.loads((write_run(tmp_path / "known") / "result.json").read_text(encoding="utf-8"))
    changes = {
        "problem": {**known["problem"], "data": f"{EVIL}.csv", "features": [EVIL], "notes": [EVIL]},
        "topology": {**known["topology"], "kind": EVIL, "labels": [f"{EVIL}{k}" for k in range(10)], "notes": [EVIL]},
        "privacy": {
            **known["privacy"],
            "free_channels": {EVIL: EVIL},
            "unverified": dict.fromkeys(("data", "model"), EVIL),
        },
        "diagnostics": {
            "features_cut": {EVIL: 0.5},
            "absent_measures": [EVIL],
            "failed_callbacks": [{"callback": EVIL, "done": 1, "error": EVIL}],
        },
        "status": "lost",
        "reason": EVIL,
    }
    page = page_of(tmp_path / "run", title=EVIL, changes=changes)
    assert "script" not in page.tags
    assert page.text.count("<script>") > 12


def test_a_page_is_self_contained_and_shows_every_figure(certified: Path) -> None:
    markup = (certified / "report.html").read_text(encoding="utf-8")
    page = Page(markup)
    assert markup.startswith("<!DOCTYPE html>")
    assert {p.stem for p in (certified / "plots").iterdir()} == ALL_FIGURES
    assert len(page.labels) == len(ALL_FIGURES)
    assert all(page.labels)
    assert all(r.startswith(("data:", "#")) or (certified / r).exists() for r in page.resources)
    assert "script" not in page.tags
    assert not re.search(r"https?://|url\((?!#)|@import", markup)
    assert len(markup) < 500_000


def test_links_and_shapes_of_a_page_refer_to_one_element_each(certified: Path) -> None:
    markup = (certified / "report.html").read_text(encoding="utf-8")
    page = Page(markup)
    assert len(set(page.ids)) == len(page.ids)
    targets = {r[1:] for r in page.resources if r.startswith("#")} | set(re.findall(r"url\(#([^)]*)\)", markup))
    assert {"results", "budget", "files"} <= targets <= set(page.ids)


def test_a_page_is_the_same_when_it_is_drawn_again(certified: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "again")
    draw_run(other)
    files = {p.relative_to(other): p.read_bytes() for p in other.rglob("*") if p.suffix in (".svg", ".html")}
    assert files == {name: (certified / name).read_bytes() for name in files}
    assert len(files) == len(ALL_FIGURES) + 1


def test_the_documentation_that_pages_name_exists() -> None:
    templates = (ROOT / "decentral_dp" / "reporting" / "templates").glob("*.j2")
    listed = [re.findall(r"documentation\((\[[^]]*\])", path.read_text(encoding="utf-8")) for path in templates]
    pages = [page for lists in listed for pages in lists for page in json.loads(pages)]
    assert len(pages) > 5
    assert not [page for page in pages if not (ROOT / "docs" / f"{page}.md").is_file()]


FOREIGN = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="a()">
<script>a()</script><style>* {{ fill: url(http://a.example) }}</style><foreignObject><b>bold</b></foreignObject>
<a href="http://a.example"><text>linked</text></a><image href="{href}" width="9"/><use xlink:href="{href}"/>
<path d="M 0 0" style="{style}" onclick="a()"/><text id="t">kept &lt;b&gt;\u202e</text></svg>"""


@pytest.mark.parametrize("href", ["javascript:a()", "http://a.example/a.svg#b", "data:image/svg+xml;base64,PHN2Zz4="])
@pytest.mark.parametrize("style", ["fill: url(http://a.example)", "fill: u\\72l(//a)", "fill: ururl(#l(//a)"])
def test_a_foreign_figure_keeps_only_shapes_and_text(href: str, style: str) -> None:
    markup = inline_svg(FOREIGN.format(href=href, style=style).encode(), "n", 'a "label"')
    page = Page(markup)
    assert set(page.tags) == {"svg", "image", "use", "path", "text"}
    assert (page.resources, page.labels, page.ids) == ([], ['a "label"'], ["n-t"])
    assert page.text.strip() == "kept <b>\\u202e"
    assert "style" not in markup
    assert "example" not in markup


def test_a_damaged_figure_is_refused(certified: Path, tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "plots").mkdir()
    (folder / "plots" / "epsilon.svg").write_bytes((certified / "plots" / "epsilon.svg").read_bytes()[:500])
    with pytest.raises(InputError, match=r"epsilon\.svg: cannot be read"):
        write_report(folder)


@given(st.lists(st.floats(min_value=0.0, allow_nan=False), min_size=1, max_size=3))
def test_the_axis_of_an_audit_keeps_the_order_of_its_values(values: list[float]) -> None:
    places = axis_places(values)
    assert all(0.0 <= place <= 100.0 for place in places)
    ordered = [place for _, place in sorted(zip(values, places, strict=True))]
    assert ordered == sorted(ordered)
    assert [place == 100.0 for place in places] == [math.isinf(value) for value in values]


def test_equal_agents_share_a_row_and_many_agents_a_summary(tmp_path: Path) -> None:
    entry = {"epsilon_pure": "inf", "epsilon": 2.0, "channels": {}, "records": {}}
    same = [{"agent": i, **entry} for i in range(10)]
    page = page_of(tmp_path / "same", changes={"privacy": privacy_of(tmp_path / "known", agents=same)})
    assert page.row("all 10") == ["2.00"]
    same[3] = {**same[3], "epsilon": 2.5}
    page = page_of(tmp_path / "one", changes={"privacy": privacy_of(tmp_path / "known", agents=same)})
    assert page.row("0–2, 4–9") == ["2.00"]
    page = page_of(tmp_path / "many", agents=1000, rounds=2)
    assert page.row("lowest of 1000")[0] == "3.21"
    assert page.row("median of 1000")[0] == "3.61"
    assert page.row("highest of 1000")[0] == "4.00"
    assert page.row("agent 999")[0] == "4.00"
    assert len(page.rows) < 50
    assert "1000 agents on a ring" in page.text


def test_a_folder_without_a_result_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"result\.json"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="was not written by this version"):
        write_plots(tmp_path)


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_algorithm_cites_its_own_authors(kind: str) -> None:
    """The docstring of its module names the first author, so that an entry that cites another's paper is found."""
    entry = ALGORITHMS[kind]
    docstring = sys.modules[entry.algorithm.__module__].__doc__ or ""
    assert entry.citations
    for citation in entry.citations:
        assert citation.work.authors.split(",")[0] in docstring + entry.summary
