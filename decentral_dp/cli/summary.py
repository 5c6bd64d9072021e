"""A run on the command line: its progress bar, and its end.

The scores at the end of a run: of many agents, or of the one value that a trusted coordinator publishes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decentral_dp.bounded import Array
from decentral_dp.reporting.facts import facts
from decentral_dp.reporting.tables import terminal
from decentral_dp.reporting.words import words_of
from decentral_dp.simulation.plan import console, print_items, rounds_text
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.run import Run

UNRELEASED = "_unreleased"
# Scores that the end of a run prints, in this order; then those that the problem adds.
_SCORES = (
    "test_auc",
    "test_accuracy",
    "test_f1",
    "test_rmse",
    "test_r2",
    "test_loss",
    "upper_loss",
    "lower_loss",
    "primal",
    "gradient_norm",
)
_HIGHER_IS_BETTER = ("test_accuracy", "test_r2")
_PRIVATE = "These numbers read private data, the simulator's view: no ε covers them."
# What every run measures besides, for the report.
_UNPRINTED = ("consensus_", "hypergradient_", "epsilon_spent")
_ENDINGS = ("_min", "_max", "_last", "_unreleased")


def print_scores(out: Console, result: RunResult) -> None:
    """Scores of the agents, or of the one value that a coordinator publishes, and what to know beside them."""
    # Where x alone is published, scores are those of a solution that nobody sees.
    ending = UNRELEASED if result.solves_lower else ""
    metrics = {n.removesuffix(ending): v for n, v in result.metrics.items() if n.endswith(ending)}
    known = [n for n in _SCORES if n in metrics and (result.tunes_x or n != "upper_loss")]
    added = _added(metrics)
    if not known and not added:
        return
    out.print()
    if words_of(result.privacy, result.topology).over:
        tables = [(result.evaluated_on, "worst and best agent", known)]
        tables += [("scores of this problem", "lowest and highest agent", added)]
        for what, ends, names in tables:
            if names:
                out.print(_scores(what, ends, names, metrics))
    else:
        whose = "which nobody sees (the simulator's view)" if ending else "in the simulator's view"
        out.print(f"Scores of the {result.evaluated_on}, {whose}:")
        table = Table.grid(padding=(0, 2, 0, 0))
        for name in (*known, *added):
            table.add_row(name, _value(metrics[name]))
        out.print(table)
    for fact in facts(result):
        if fact.about == "scores":
            out.print(fact.text)
    out.print(_PRIVATE)


def _added(names: Iterable[str]) -> list[str]:
    """The problem's own scores."""
    return sorted(n for n in names if n not in _SCORES and not n.endswith(_ENDINGS) and not n.startswith(_UNPRINTED))


def _scores(what: str, ends: str, names: Sequence[str], metrics: Mapping[str, float]) -> Table:
    rows = [(what, "mean", ends)]
    for name in names:
        low, high = metrics[f"{name}_min"], metrics[f"{name}_max"]
        # Of these, accuracy and R² are better where they are higher; of a problem's own scores nothing is known.
        first, last = (high, low) if name in _SCORES and name not in _HIGHER_IS_BETTER else (low, high)
        rows.append((name, _value(metrics[name]), f"{_value(first)}  {_value(last)}"))
    return terminal(list(zip(*rows, strict=True)))


def _value(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return "–" if math.isnan(value) else "∞"
    if abs(value) >= 1e7:
        return f"{value:.4g}"
    # Four decimals of a loss; of an error in the label's unit no more digits than say something.
    size = abs(value)
    digits = 4 if size < 1e2 else 2 if size < 1e3 else 1 if size < 1e4 else 0
    return f"{value:.{digits}f}"


# Beyond so many coordinates x is not printed.
_MOST_COORDINATES = 4


def print_run(run: Run) -> None:
    """The end of a run, in a few lines."""
    out, result = console(), run.result
    out.print()
    head = Text(result.title or "Run", style="bold")
    out.print(head, f"({rounds_text(result.rounds)}, {result.engine} engine, {result.seconds:.1f} s)")
    known = [fact for fact in facts(result) if fact.about != "scores"]
    for fact in known:
        if fact.about == "status":
            out.print(Text(fact.name, style="bold red"), fact.text, sep=": ")
    published = _published(run.published["x"]) if result.algorithm else []
    print_items(out, [*((fact.name, fact.text) for fact in known if fact.about != "status"), *published])
    print_scores(out, result)
    if run.folder is not None:
        out.print()
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report: {run.folder / 'report.html'}", soft_wrap=True)


def _published(x: Array) -> list[tuple[str, str]]:
    """The x that was published, where it is short; (1, p)."""
    if not 0 < x.size <= _MOST_COORDINATES or not np.isfinite(x).all():
        return []
    values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
    return [("Result", f"x = {values}" if x.size == 1 else f"x = ({values})")]
