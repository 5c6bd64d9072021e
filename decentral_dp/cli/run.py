"""Runs on the command line: names of folders, progress and logs, printed results, comparisons and predictions."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from decentral_dp.callbacks import MLflow, RunLog, TensorBoard
from decentral_dp.errors import InputError, converting, printable, quoted, readable
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.exports import escape_formulas
from decentral_dp.files.regular import own, regular
from decentral_dp.formatting import byzantine_text, score_text
from decentral_dp.reporting.privacy import VERBOSE_LINES, mechanism_text, privacy_lines, summary_text
from decentral_dp.reporting.report import (
    TextTable,
    compare_with_baselines,
    data_line,
    evaluated_text,
    headline,
    method_lines,
    reason_text,
    score_notes,
    tabulate_sites,
)
from decentral_dp.reporting.terminal import ProgressBar, console, print_headline, print_items, terminal
from decentral_dp.simulation.events import Callback
from decentral_dp.simulation.folder.layout import TENSORBOARD, check_writable, new_folder, require_new
from decentral_dp.simulation.metrics import MEASURES
from decentral_dp.simulation.model import load_model
from decentral_dp.simulation.result import STATEMENT, RunResult, is_published, read_result, refuse_damaged
from decentral_dp.simulation.run import Run
from decentral_dp.simulation.statement import PrivacyStatement

if TYPE_CHECKING:
    from decentral_dp.reporting.comparison import Comparison

# File systems allow 255 bytes. A number and temporary suffixes may follow.
_MOST_BYTES = 80
# Characters of TOML that a name omits.
_MARKS = r"[{}\[\]'\" ]"


def run_name(stem: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder: its scenario and the changed keys.

    Args:
        stem: stem of the scenario's file.
        overrides: changes "table.key=value"; the last value of a repeated key is used.

    Example:
        >>> run_name("ring_breast_cancer", ["privacy.epsilon=2.0", "topology.kind=complete"])
        'ring_breast_cancer-privacy.epsilon=2.0-topology.kind=complete'
    """
    changed = dict(override.partition("=")[::2] for override in overrides)
    parts = [f"{key.strip()}={re.sub(_MARKS, '', value)}" for key, value in changed.items()]
    names = [stem, *(re.sub(r"[^\w.=+,-]+", "_", part) for part in parts)]
    # No key is cut if the first change fits.
    while len(names) > 2 and len("-".join(names).encode("utf-8", "ignore")) > _MOST_BYTES:
        names.pop()
    return "-".join(names).encode("utf-8", "ignore")[:_MOST_BYTES].decode("utf-8", "ignore")


@contextlib.contextmanager
def open_log(log: str | None, folder: Path) -> Iterator[list[Callback]]:
    """Open the log of a run.

    Args:
        log: destination: "jsonl" for stderr, a file that ends in .jsonl, to which lines are appended (a new file is
            readable only by its owner), "tensorboard", "mlflow" or None.
        folder: folder of the run.

    Raises:
        InputError: the value is invalid, or the log is not writable.
    """
    with contextlib.ExitStack() as stack:
        if log is None:
            yield []
        elif log == "tensorboard":
            yield [TensorBoard(folder / TENSORBOARD)]
        elif log == "mlflow":
            # Nothing is released yet.
            with converting(
                Exception,
                lambda error: f"--log: mlflow cannot be reached ({error}). Fix: start its server, or remove --log.",
            ):
                flow = MLflow(folder.name, {"folder": str(folder)})
            yield [stack.enter_context(flow)]
        elif log == "jsonl" or log.endswith(".jsonl"):
            stream: IO[str] = sys.stderr
            if log != "jsonl":
                path = regular(Path(log), "--log")
                # Losses are not covered by ε: only the owner may read them.
                path.touch(OWNERS)
                stream = stack.enter_context(path.open("a", encoding="utf-8"))
            run_log = RunLog(stream)
            try:
                yield [run_log]
            except BaseException as error:
                run_log.write_failure(error)
                raise
        else:
            raise InputError(
                f'--log: got {quoted(log)}, expected "jsonl", a file that ends in .jsonl, "tensorboard" or "mlflow".'
            )


def run_with_progress(
    make: Callable[[Sequence[Callback]], Run], log: str | None, quiet: bool, folder: str | Path
) -> Run:
    """Run with a progress bar and a log.

    Args:
        make: function from callbacks to the run.
        log: see `open_log`.
        quiet: whether to hide the progress bar.
        folder: folder of the run.
    """
    bar = ProgressBar("rounds", lines=True, quiet=quiet or log == "jsonl")
    with open_log(log, Path(folder)) as logs, bar:
        finished = make([bar, *logs])
        for callback in logs:
            if isinstance(callback, RunLog):
                callback.write_end(finished)
    return finished


# Printed scores in order. Scores of the problem follow.
_SCORES = (
    *("test_auc", "test_accuracy", "test_f1", "test_rmse", "test_r2", "test_loss"),
    *("upper_loss", "lower_loss", "primal", "gradient_norm"),
)
# Metrics that only the report shows.
_REPORTED = ("consensus_", "stationarity", "epsilon_spent")
_ENDINGS = ("_min", "_max", "_last", "_unreleased")
# Number of rows of the table of scores without --verbose.
_MOST_SCORES = 4
# Largest number of coordinates of x that are printed.
_MOST_COORDINATES = 4


def print_scores(out: Console, result: RunResult, verbose: bool = False) -> None:
    """Print the scores of the published values, next to the majority-class or mean-label baseline.

    Args:
        out: console for the output.
        result: result of the run.
        verbose: whether to print all scores; by default the first four.
    """
    # If only x is published, the scores are those of the exact lower solution.
    ending = "_unreleased" if result.solves_lower else ""
    metrics = {n.removesuffix(ending): v for n, v in result.metrics.items() if n.endswith(ending)}
    known = [n for n in _SCORES if n in metrics and (result.tunes_x or n != "upper_loss")]
    added = sorted(n for n in metrics if n not in _SCORES and not n.endswith(_ENDINGS) and not n.startswith(_REPORTED))
    names = [*known, *added] if verbose else [*known, *added][:_MOST_SCORES]
    if not names:
        return
    single, known_baselines = result.privacy.is_trusted or result.scores_average, result.baselines
    held_out = result.problem["records"]["test"]
    head = f"{held_out} held-out records" if held_out else evaluated_text(result)
    columns: list[list[str]] = [[head], ["averaged model" if result.scores_average else "value" if single else "mean"]]
    columns += [] if single else [["worst"], ["best"]]
    guess = "majority class" if "test_accuracy" in known_baselines else "mean label"
    baseline = guess if known_baselines else ""
    columns += [[baseline]] if baseline else []
    for name in names:
        cells = [name, score_text(metrics[name])]
        if not single:
            worst, best = (score_text(metrics.get(f"{name}_{end}")) for end in ("min", "max"))
            # Scores of a problem have no known direction: lowest, then highest.
            lower = name in _SCORES and MEASURES[name].better == "lower"
            cells += [best, worst] if lower else [worst, best]
        cells += [score_text(known_baselines[name]) if name in known_baselines else "–"] if baseline else []
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
    out.print()
    out.print(terminal(columns))
    out.print("Scores read private records: ε does not cover them.")


def print_run(run: Run, verbose: bool = False) -> None:
    """Print a finished run: algorithm, data, privacy, mechanism, scores and warnings.

    Args:
        run: finished run.
        verbose: whether to print all notes, settings and scores; by default about 15 lines of text.
    """
    out, result = console(), run.result
    print_headline(out, headline(result))
    if result.status != "ok":
        out.print(Text(result.status.replace("_", " "), style="bold red"), reason_text(result), sep=": ")
    x = run.published["x"]
    items = [("Data", data_line(result.problem))]
    items += [("Messages", f"{text}.")] if (text := byzantine_text(result.topology)) else []
    items += [line for line in privacy_lines(result.privacy) if verbose or line[0] not in VERBOSE_LINES]
    items += [("Mechanism", text)] if (text := mechanism_text(result.privacy)) else []
    if result.algorithm and 0 < x.size <= _MOST_COORDINATES and np.isfinite(x).all():
        values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
        items.append(("Result", f"x = {values}" if x.size == 1 else f"x = ({values})"))
    if verbose:
        items = [("Title", result.title), *items, *method_lines(result)]
    print_items(out, items)
    print_scores(out, result, verbose)
    comparison = compare_with_baselines(run.compared)
    if comparison is not None:
        _print_table(out, comparison.table)
        if comparison.sentence:
            out.print(comparison.sentence, style="bold")
        out.print(comparison.price)
    if (sites := tabulate_sites(result)) is not None:
        _print_table(out, sites)
        out.print(sites.note)
    notes = score_notes(result, brief=not verbose)
    if not verbose:
        notes += [("Warning", text) for text in result.problem["warnings"]]
        notes += [("Note", text) for text in result.problem["notes"] if result.privacy.is_noisy]
    out.print()
    print_items(out, notes)
    if run.folder is not None:
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report     {run.folder / 'report.html'}  ({result.seconds:.1f} s)", soft_wrap=True)
        if verbose and result.has_model:
            command = f"decentral-dp predict {shlex.quote(str(run.folder))} FILE --out FILE"
            out.print(f"Predict    {command}", soft_wrap=True, markup=False)


def _print_table(out: Console, table: TextTable) -> None:
    out.print()
    out.print(terminal([[name, *cells] for (name, _), *cells in zip(table.heads, *table.rows, strict=True)]))


# Width of the column of keys and metrics, for any number of runs, unless a word is wider.
_KEY_WIDTH = 26
_LEAST_WIDTH = 6


def print_and_write_comparison(folders: Sequence[Path], out: Path | None, formats: Sequence[str]) -> None:
    """Compare runs, print the tables, and write the page to a new or empty folder."""
    # Slow to import, with pandas.
    from decentral_dp.reporting.comparison import compare

    comparison = compare(*folders)
    if out is not None:
        check_writable(out)
    with new_folder(out, "compare") as folder:
        page = comparison.write(folder, formats)
    print_comparison(comparison)
    typer.echo(printable(f"Page: {page}"))


def print_comparison(comparison: Comparison) -> None:
    """Print tables with a column per run, and remarks."""
    from decentral_dp.reporting.comparison import comparison_tables

    out, runs = console(), [run.name for run in comparison.runs]
    if max(map(len, runs)) > (out.width - _KEY_WIDTH) // len(runs) - 2:
        names, runs = runs, [f"run {k}" for k in range(1, len(runs) + 1)]
        print_items(out, list(zip(runs, names, strict=True)))
        out.print()
    for words in comparison_tables(comparison):
        out.print(Text(words.title, style="bold"))
        if words.rows:
            table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
            rows = [name for name, _ in words.rows]
            keys = max(min(max(map(len, rows)), _KEY_WIDTH), *map(len, " ".join(rows).split()))
            # Without a bound, the last columns would be cut.
            most = max(_LEAST_WIDTH, (out.width - keys) // len(runs) - 2)
            table.add_column("", overflow="fold", min_width=keys, max_width=keys)
            for run in runs:
                table.add_column(Text(run, overflow="fold"), justify="right", overflow="fold", max_width=most)
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
    """Write the predictions of new records atomically, and print their source.

    Args:
        folder: folder of a run.
        file: CSV or Parquet file of new records.
        out: CSV file to write.
        agent: agent whose model predicts; None for the mean over agents.

    Raises:
        InputError: as in `load_model` and `TrainedModel.predict`, or the output exists or is not writable.
    """
    require_new("--out", out)
    model = load_model(folder)
    if agent is not None:
        model = model.of_agent(agent)
    partial_file = out.with_name(f".{out.name}.part")
    try:
        with (
            open(partial_file, "x", encoding="utf-8", newline="") as written,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", UserWarning)
            predicted = model.predictions(file)
            escape_formulas(predicted).to_csv(written, index=False)
        partial_file.replace(out)
    finally:
        partial_file.unlink(missing_ok=True)
    m = len(model.published)
    source = f"the model of agent {agent}" if agent is not None else f"the mean of the models of {m} agents"
    typer.echo(printable(f"{out}: {len(predicted)} predictions by {source if m > 1 else 'the published model'}."))
    result = None if is_published(folder) else read_result(folder)
    if result is not None:
        privacy = result.privacy
    else:
        with refuse_damaged(folder, "predict"):
            statement = json.loads(own(folder / STATEMENT, folder, "predict").read_text("utf-8"))
            privacy = PrivacyStatement.from_dict(statement)
    typer.echo(printable(f"Privacy of the published models: {summary_text(privacy)}"))
    for warning in caught:
        typer.echo(readable(f"Warning: {warning.message}"), err=True)
    if result is not None and result.has_diverged:
        typer.echo(readable(f"Warning: the run diverged. {reason_text(result)}"), err=True)
