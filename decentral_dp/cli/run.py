"""Runs on the command line: the names of their folders, what their end prints, and runs side by side."""

from __future__ import annotations

import math
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, printable, readable
from decentral_dp.files.spreadsheets import escape_formulas
from decentral_dp.reporting.baselines import compare_with_baselines
from decentral_dp.reporting.facts import facts, predicts, sentence
from decentral_dp.reporting.tables import terminal
from decentral_dp.reporting.words import choose_words
from decentral_dp.simulation.folder.layout import check_writable, new_folder, require_new
from decentral_dp.simulation.model import load_model
from decentral_dp.simulation.plan import console, print_items, rounds_text
from decentral_dp.simulation.result import RunResult, read_result
from decentral_dp.simulation.run import Run

if TYPE_CHECKING:
    from decentral_dp.reporting.comparison import Comparison

# A name in a folder has at most 255 bytes on the usual file systems; a number may follow, and temporary endings.
_MOST_BYTES = 160
# Marks of TOML that a name does without.
_MARKS = r"[{}\[\]'\" ]"


def run_name(stem: str, overrides: Sequence[str]) -> str:
    """Name a run by its scenario and the changed keys, as a folder can be called.

    Args:
        stem: of the scenario's file.
        overrides: "table.key=value"; of a key that is set twice the last counts.

    Example:
        >>> run_name("ring_breast_cancer", ["privacy.epsilon=2.0", "topology.kind=complete"])
        'ring_breast_cancer-epsilon=2.0-kind=complete'
    """
    changed = dict(override.partition("=")[::2] for override in overrides)
    parts = [f"{key.rpartition('.')[2]}={re.sub(_MARKS, '', value)}" for key, value in changed.items()]
    name = "-".join([stem, *(re.sub(r"[^\w.=+,-]+", "_", part) for part in parts)])
    return name.encode("utf-8", "ignore")[:_MOST_BYTES].decode("utf-8", "ignore")


UNRELEASED = "_unreleased"
# Scores that the end of a run prints, in this order; then those that the problem adds.
_SCORES = (
    *("test_auc", "test_accuracy", "test_f1", "test_rmse", "test_r2", "test_loss"),
    *("upper_loss", "lower_loss", "primal", "gradient_norm"),
)
_HIGHER_IS_BETTER = ("test_auc", "test_accuracy", "test_f1", "test_r2")
_PRIVATE = "These numbers read private data, the simulator's view: no ε covers them."
# What every run measures besides, for the report.
_REPORTED = ("consensus_", "hypergradient_", "epsilon_spent")
_ENDINGS = ("_min", "_max", "_last", "_unreleased")


def print_scores(out: Console, result: RunResult) -> None:
    """Scores of the agents, or of the one value that a coordinator publishes, and what to know beside them."""
    # Where x alone is published, scores are those of a solution that nobody sees.
    ending = UNRELEASED if result.solves_lower else ""
    metrics = {n.removesuffix(ending): v for n, v in result.metrics.items() if n.endswith(ending)}
    known = [n for n in _SCORES if n in metrics and (result.tunes_x or n != "upper_loss")]
    added = _extra_scores(metrics)
    if not known and not added:
        return
    out.print()
    if choose_words(result.privacy, result.topology).score_scope:
        tables = [(result.evaluated_on, "worst and best agent", known)]
        tables += [("scores of this problem", "lowest and highest agent", added)]
        for what, ends, names in tables:
            if names:
                out.print(_scores(what, ends, {n: _printed_name(n, result) for n in names}, metrics))
    else:
        whose = "which nobody sees (the simulator's view)" if ending else "in the simulator's view"
        out.print(f"Scores of the {result.evaluated_on}, {whose}:")
        table = Table.grid(padding=(0, 2, 0, 0))
        for name in (*known, *added):
            table.add_row(_printed_name(name, result), _value(metrics[name]))
        out.print(table)
    for fact in facts(result):
        if fact.topic == "scores":
            out.print(fact.text)
    out.print(_PRIVATE)


def _extra_scores(names: Iterable[str]) -> list[str]:
    """The problem's own scores."""
    return sorted(n for n in names if n not in _SCORES and not n.endswith(_ENDINGS) and not n.startswith(_REPORTED))


def _printed_name(name: str, result: RunResult) -> str:
    return "train_loss" if name == "lower_loss" and result.is_one_level else name


def _scores(what: str, ends: str, names: Mapping[str, str], metrics: Mapping[str, float]) -> Table:
    rows = [(what, "mean", ends)]
    for name, printed in names.items():
        low, high = metrics[f"{name}_min"], metrics[f"{name}_max"]
        # Some of these are better where they are higher; of a problem's own scores nothing is known.
        first, last = (high, low) if name in _SCORES and name not in _HIGHER_IS_BETTER else (low, high)
        rows.append((printed, _value(metrics[name]), f"{_value(first)}  {_value(last)}"))
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
    known = [fact for fact in facts(result) if fact.topic != "scores"]
    for fact in known:
        if fact.topic == "status":
            out.print(Text(fact.name, style="bold red"), fact.text, sep=": ")
    published = _published_x(run.published["x"]) if result.algorithm else []
    print_items(out, [*((fact.name, fact.text) for fact in known if fact.topic != "status"), *published])
    print_scores(out, result)
    _print_baselines(out, run)
    if run.folder is not None:
        out.print()
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report: {run.folder / 'report.html'}", soft_wrap=True)
        if predicts(result):
            command = f"decentral-dp predict {shlex.quote(str(run.folder))} FILE --out FILE"
            out.print(f"Predictions of new records: {command}", soft_wrap=True, markup=False)


def _print_baselines(out: Console, run: Run) -> None:
    """The run beside those that it is judged by; nothing where there are none."""
    comparison = compare_with_baselines(run.result, {name: beside.result for name, beside in run.baselines.items()})
    if comparison is not None:
        table = comparison.table
        columns = [[name, *cells] for (name, _), *cells in zip(table.heads, *table.rows, strict=True)]
        out.print()
        out.print(terminal(columns))
        if comparison.sentence:
            out.print(comparison.sentence, style="bold")
        out.print(comparison.price)


def _published_x(x: Array) -> list[tuple[str, str]]:
    """The x that was published, where it is short; (1, p)."""
    if not 0 < x.size <= _MOST_COORDINATES or not np.isfinite(x).all():
        return []
    values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
    return [("Result", f"x = {values}" if x.size == 1 else f"x = ({values})")]


# Columns of a terminal that the names of keys and metrics get, however many runs there are.
_KEY_WIDTH = 26
_LEAST_WIDTH = 6


def print_and_write_comparison(folders: Sequence[Path], out: Path | None, formats: Sequence[str]) -> None:
    """Compare, print, and write the page; a folder that is given is new or empty."""
    # Slow to import, as pandas is, which runs do without.
    from decentral_dp.reporting.comparison import compare

    comparison = compare(*folders)
    if out is not None:
        check_writable(out)
    with new_folder(out, "compare") as folder:
        page = comparison.write(folder, formats)
    print_comparison(comparison)
    typer.echo(printable(f"Page: {page}"))


def print_comparison(comparison: Comparison) -> None:
    """Tables with a column for each run, then what has to be known beside them."""
    from decentral_dp.reporting.comparison import comparison_tables

    out = console()
    for words in comparison_tables(comparison):
        if words.is_folded:
            continue
        out.print(Text(words.title, style="bold"))
        if not words.rows:
            out.print(words.empty_text)
        else:
            table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
            longest = max(len(name) for name, _ in words.rows)
            keys = min(longest, _KEY_WIDTH)
            # Without a bound of their own the last columns would be cut at the rim, since that of keys is not narrowed.
            most = max(_LEAST_WIDTH, (out.width - keys) // len(comparison.runs) - 2)
            table.add_column("", overflow="fold", min_width=keys, max_width=keys)
            for run in comparison.runs:
                table.add_column(Text(run.name, overflow="fold"), justify="right", overflow="fold", max_width=most)
            for name, texts in words.rows:
                table.add_row(Text(name), *(Text(text) for text in texts))
            out.print(table)
            if words.note:
                out.print(Text(words.note, style="dim"))
        out.print()
    for remark in comparison.remarks:
        out.print(Text("Note:", style="bold"), Text(remark))
    if comparison.remarks:
        out.print()


def write_predictions(folder: Path, file: Path, out: Path, agent: str | None = None) -> None:
    """Write the predictions of new records whole or not at all, and say whose they are.

    Args:
        folder: of a run.
        file: CSV or Parquet, with new records.
        out: the CSV file to write.
        agent: whose weights predict; None for the mean over agents.

    Raises:
        InputError: as of `load_model` and `Model.predict`, or the file to write exists or cannot be written.
    """
    require_new("--out", out)
    if out.suffix.lower() != ".csv":
        raise InputError(f"--out: got a file that ends in {out.suffix or 'nothing'}, expected .csv. Fix: rename it.")
    model = load_model(folder)
    if agent is not None:
        model = model.of_agent(agent)
    count, partial_file = 0, out.with_name(f".{out.name}.part")
    try:
        with (
            open(partial_file, "x", encoding="utf-8", newline="") as written,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", UserWarning)
            for frame in model.predictions(file):
                escape_formulas(frame).to_csv(written, index=False, header=not count)
                count += len(frame)
        partial_file.replace(out)
    except OSError as error:
        raise InputError(f"--out: {out} cannot be written ({error.strerror}). Give another file.") from None
    finally:
        partial_file.unlink(missing_ok=True)
    result, m = read_result(folder), len(model.published)
    privacy = result.privacy
    whose = f"what agent {agent} published" if agent is not None else f"the mean of what {m} agents published"
    typer.echo(printable(f"{out}: {count} predictions by {whose if m > 1 else 'what was published'}."))
    typer.echo(f"Privacy of what was published: {privacy.summary}")
    for warning in caught:
        typer.echo(readable(f"Warning: {warning.message}"), err=True)
    if result.has_diverged:
        typer.echo(readable(f"Warning: the run diverged. {sentence(result.reason)}"), err=True)
