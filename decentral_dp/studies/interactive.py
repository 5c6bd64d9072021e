"""The pictures of a study as figures to zoom into and to point at, by plotly; the page carries all that they need."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from decentral_dp.errors import needing
from decentral_dp.reporting.markup import Html, tag
from decentral_dp.reporting.plots.style import SERIES_COLOURS
from decentral_dp.studies.grid import Axis
from decentral_dp.studies.plots import are_joined, values_of
from decentral_dp.studies.schema import Plot, Study
from decentral_dp.studies.verdicts import selected
from decentral_dp.studies.words import axis_label, own_name

# Beyond so many panels the pictures are enough.
_MOST_PANELS = 12
_SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star")
_OPTIONS = {"displaylogo": False, "responsive": True}


def interactive_figures(study: Study, axes: Sequence[Axis], summary: pd.DataFrame, cells: pd.DataFrame) -> list[Html]:
    """Draw the study's plots with plotly, whose script comes first and once.

    Args:
        study: with its plots.
        axes: what varied.
        summary: means with intervals.
        cells: what their ε is, for the words on axes.

    Returns:
        A heading and a figure for every plot and panel that has numbers; nothing without one.

    Raises:
        InputError: plotly is not installed.
    """
    drawn = [part for plot in study.plots for part in _figures(plot, axes, summary, cells)]
    if not drawn:
        return []
    with needing("interactive"):
        from plotly.offline import get_plotlyjs
    hint = "Point at a value for its numbers, click a name to hide it, drag to zoom, click twice to go back."
    script = tag("script", Html(get_plotlyjs().replace("</script", "<\\/script")))
    return [tag("h2", "Interactive pictures"), tag("p", hint, class_="small"), script, *drawn]


def require_plotly() -> None:
    """Raises InputError where plotly is not installed."""
    with needing("interactive"):
        import plotly.offline  # noqa: F401


def _figures(plot: Plot, axes: Sequence[Axis], summary: pd.DataFrame, cells: pd.DataFrame) -> list[Html]:
    """One figure, or one for each panel."""
    rows = selected(summary, plot.where)
    rows = rows[rows["last"] != (plot.x == "round")]
    by_name = {axis.name: axis for axis in axes}
    found: list[Html] = []
    for panel in values_of(by_name, plot.panels, rows)[:_MOST_PANELS]:
        part = rows if plot.panels is None else selected(rows, {plot.panels: panel})
        traces = [trace for lines in _traces(plot, by_name, part) for trace in lines]
        if any(trace["y"] for trace in traces):
            title = plot.title or plot.name
            title += "" if plot.panels is None else f" ({own_name(plot.panels)}: {panel})"
            found.append(_figure(f"{plot.name}-{len(found)}", title, traces, _layout(plot, cells)))
    return found


def _figure(name: str, title: str, traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any]) -> Html:
    # Within a script "<" could end it.
    given = [json.dumps(value, allow_nan=False).replace("<", "\\u003c") for value in (name, traces, layout, _OPTIONS)]
    call = Html(f"Plotly.newPlot({', '.join(given)});")
    return tag("figure", tag("figcaption", title), tag("div", id=name), tag("script", call))


def _layout(plot: Plot, cells: pd.DataFrame) -> dict[str, Any]:
    y = plot.y_label or (axis_label(plot.measures[0], cells) if len(plot.measures) == 1 else "")
    x = plot.x_label or axis_label(plot.x, cells)
    return {
        "height": 420,
        "margin": {"l": 60, "r": 15, "t": 20, "b": 60},
        "xaxis": {"title": {"text": x}, "type": "log" if "x" in plot.log else "-", "automargin": True},
        "yaxis": {"title": {"text": y}, "type": "log" if "y" in plot.log else "-", "automargin": True},
        "showlegend": True,
        # Below the axes, as in the pictures: beside them it would leave little of a telephone's width.
        "legend": {
            "orientation": "h",
            "y": -0.22,
            "yanchor": "top",
            "title": {"text": "" if plot.lines is None else axis_label(plot.lines, cells)},
        },
        "hovermode": "closest",
    }


def _traces(plot: Plot, axes: Mapping[str, Axis], rows: pd.DataFrame) -> list[list[dict[str, Any]]]:
    """For every line what was measured, and where all cells failed."""
    found = []
    for m, measure in enumerate(plot.measures):
        for k, value in enumerate(values_of(axes, plot.lines, rows)):
            own = rows[rows["name"] == measure]
            own = own if plot.lines is None else selected(own, {plot.lines: value})
            parts = ([] if plot.lines is None else [str(value)]) + ([measure] if len(plot.measures) > 1 else [])
            hue = k if plot.lines is not None else m
            found.append(_line(plot, axes, rows, own, ", ".join(parts) or measure, hue))
    return found


def _line(
    plot: Plot, axes: Mapping[str, Axis], rows: pd.DataFrame, own: pd.DataFrame, name: str, hue: int
) -> list[dict[str, Any]]:
    colour, symbol = SERIES_COLOURS[hue % len(SERIES_COLOURS)], _SYMBOLS[hue % len(_SYMBOLS)]
    good, lost = own[own["n"] > 0], own[own["n"] == 0]
    others = [axis for axis in axes if axis not in (plot.x, plot.lines)]
    said = [
        " · ".join([f"{own_name(a)} {row[a]}" for a in others] + [f"n {row['n']}, failed {row['failed']}"])
        for row in good.to_dict("records")
    ]
    mean, low, high = (good[c].astype(float) for c in ("mean", "low", "high"))
    measured: dict[str, Any] = {
        "type": "scatter",
        "name": name + (" (∞ where nothing is drawn)" if (mean.abs() == float("inf")).any() else ""),
        "mode": "lines+markers" if are_joined(plot, axes) else "markers",
        "x": _across(plot, rows, good, axes),
        "y": _plain(mean),
        "text": said,
        "marker": {"color": colour, "symbol": symbol, "size": 7},
        "line": {"color": colour},
    }
    # A point without an interval has no bar: one of length 0 would be drawn as a dash.
    if (high > low).any():
        spread = {"array": _plain(high - mean), "arrayminus": _plain(mean - low)}
        measured["error_y"] = {"type": "data", "symmetric": False, **spread}
    if not len(lost) or plot.x not in axes:
        return [measured]
    drawn = rows[rows["name"].isin(plot.measures)]
    finite = [v for v in _plain(drawn["low"].fillna(drawn["mean"]).astype(float)) if v is not None]
    bottom = min(finite, default=float("y" in plot.log))
    failed = {
        "type": "scatter",
        "name": f"{name}: every cell failed",
        "mode": "markers",
        "x": [_own(v) for v in lost[plot.x]],
        "y": [bottom] * len(lost),
        "marker": {"color": colour, "symbol": "x", "size": 10},
    }
    return [measured, failed]


def _across(plot: Plot, rows: pd.DataFrame, good: pd.DataFrame, axes: Mapping[str, Axis]) -> list[Any]:
    if plot.x == "round" or plot.x in axes:
        return [_own(v) for v in good[plot.x]]
    # Another measured name: its mean for the same labels.
    keys = list(axes)
    there = rows[(rows["name"] == plot.x) & (rows["n"] > 0)].set_index(keys)["mean"] if keys else pd.Series(dtype=float)
    known = {k if isinstance(k, tuple) else (k,): float(v) for k, v in there.items()}
    return [known.get(tuple(row)) for row in good[keys].itertuples(index=False)]


def _own(value: Any) -> Any:
    """A number of Python's own, or text."""
    value = value.item() if hasattr(value, "item") else value
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _plain(values: pd.Series[float]) -> list[float | None]:
    """Finite numbers; None for others, which are not drawn."""
    return [float(v) if pd.notna(v) and abs(v) != float("inf") else None for v in values]
