"""Interactive pictures: the numbers of the study, on a page that loads nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import decentral_dp
from decentral_dp.errors import InputError
from decentral_dp.studies.page import _figures

STUDY: dict[str, Any] = {
    "title": "Rounds </script><b>",
    "scenario": "quadratic",
    "kind": "plan",
    "grid": {"algorithm.rounds": [1, 2, -3], "topology.agents": [4, 8]},
    "plots": [
        {
            "name": "rounds",
            "title": "R </script>",
            "x": "algorithm.rounds",
            "y": "rounds",
            "lines": "topology.agents",
            "log": "y",
        },
        {"name": "panels", "x": "topology.agents", "y": ["rounds", "agents"], "panels": "algorithm.rounds"},
        {"name": "none", "x": "algorithm.rounds", "y": "epsilon_max", "lines": "topology.agents"},
    ],
}


def figures(found: Any) -> list[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """Name, traces and layout of every figure, as a browser reads them."""
    # Other names are measured as well, and stand at other places.
    other = found.summary.assign(name="other", mean=0.0, low=0.0, high=0.0)
    means = pd.concat([found.summary, other])
    drawn = []
    for plot in found.study.plots:
        for part in _figures(plot, found.measurements._replace(summary=means)):
            assert part.markup.count("</script>") == 1
            called = re.search(r"Plotly\.newPlot\((.*)\);</script>", part.markup)
            assert called is not None
            name, traces, layout, _ = json.loads(f"[{called[1]}]")
            drawn.append((name, traces, layout))
    return drawn


def test_traces_have_the_means_and_what_they_are_over() -> None:
    found = decentral_dp.study(STUDY, workers=1)
    drawn = {name: (traces, layout) for name, traces, layout in figures(found)}
    assert set(drawn) == {"rounds-0", "panels-0", "panels-1", "panels-2", "none-0"}
    # Nothing is private here: every ε is infinite, and said to be.
    assert [t["name"] for t in drawn["none-0"][0]][::2] == [f"{m} (∞ where nothing is drawn)" for m in (4, 8)]
    traces, layout = drawn["rounds-0"]
    measured = [t for t in traces if t["mode"] == "lines+markers"]
    assert [t["name"] for t in measured] == ["4", "8"]
    assert [(t["x"], t["y"]) for t in measured] == [([1, 2], [1.0, 2.0])] * 2
    assert layout["yaxis"]["type"] == "log"
    assert all("n 1, failed 0" in said for t in measured for said in t["text"])
    # A level that failed entirely is marked, and said.
    failed = [t for t in traces if t["name"].endswith("every cell failed")]
    assert [(t["x"], t["y"]) for t in failed] == [([-3], [1.0])] * 2
    assert [t["name"] for t in drawn["panels-0"][0]] == ["rounds", "agents"]
    # Of a panel in which nothing was measured there is no lowest value.
    assert [t["y"] for t in drawn["panels-2"][0]] == [[], [0.0, 0.0]] * 2


def test_without_plotly_a_sentence_says_what_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(InputError, match=r'plotly is not installed; pip install "decentral_dp\[plotly\]"'):
        decentral_dp.study({**STUDY, "interactive": True}, out=tmp_path / "study", workers=1)


def test_the_page_carries_its_script_and_only_on_request(tmp_path: Path) -> None:
    decentral_dp.study(STUDY, out=tmp_path / "still", workers=1)
    assert "Plotly" not in (tmp_path / "still" / "report.html").read_text(encoding="utf-8")
    pytest.importorskip("plotly")
    decentral_dp.study({**STUDY, "interactive": True}, out=tmp_path / "moving", workers=1)
    page = (tmp_path / "moving" / "report.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") >= 3
    assert not re.search(r"<script[^>]+src=|<link[^>]+href=\"http", page)
    assert "R &lt;/script&gt;" in page


def test_points_without_an_interval_have_no_bars_and_legends_have_titles() -> None:
    found = decentral_dp.study(STUDY, workers=1)
    for _, traces, layout in figures(found):
        assert not any("error_y" in trace for trace in traces)
        assert layout["legend"]["title"]["text"] in ("agents", "")
    spread = found.summary.assign(low=found.summary["mean"] - 0.5, high=found.summary["mean"] + 1.0)
    parts = [part for plot in found.study.plots for part in _figures(plot, found.measurements._replace(summary=spread))]
    assert sum(part.markup.count('"array": [1.0') for part in parts) >= 2
    symbols = {trace["marker"]["symbol"] for _, traces, _ in figures(found) for trace in traces}
    assert {"circle", "square"} <= symbols
