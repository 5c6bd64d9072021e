"""Runs on the command line: names of folders, progress and logs, printed results, comparisons and predictions."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.callbacks import MLflow, RunLog, TensorBoard
from decentral_dp.errors import InputError, converting, printable, quoted, readable
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.exports import escape_formulas
from decentral_dp.files.regular import own, regular
from decentral_dp.reporting.privacy import summary_text
from decentral_dp.reporting.report import reason_text
from decentral_dp.reporting.terminal import ProgressBar, console, print_items
from decentral_dp.simulation.events import Callback
from decentral_dp.simulation.folder.layout import TENSORBOARD, check_writable, new_folder, require_new
from decentral_dp.simulation.model import load_model
from decentral_dp.simulation.result import STATEMENT, is_published, read_result, refuse_damaged
from decentral_dp.simulation.run import Run
from decentral_dp.simulation.statement import PrivacyStatement

if TYPE_CHECKING:
    from decentral_dp.reporting.comparison import Comparison

# File systems allow 255 bytes. A number and temporary suffixes may follow.
_MOST_BYTES = 80
# Characters of TOML that a name omits.
_MARKS = r"[{}\[\]'\" ]"


def run_name(stem: str, overrides: Sequence[str]) -> str:
    """Return the name of a run's folder: its scenario and the changed keys, or only the first keys if it is long.

    Args:
        stem: stem of the scenario's file.
        overrides: changes "table.key=value"; the last value of a repeated key is used.

    Example:
        >>> run_name("ring_breast_cancer", ["privacy.epsilon=2.0", "topology.kind=complete"])
        'ring_breast_cancer-privacy.epsilon=2.0-topology.kind=complete'
    """
    changed = dict(override.partition("=")[::2] for override in overrides)
    parts = [f"{key.strip()}={re.sub(_MARKS, '', value)}" for key, value in changed.items()]
    # ε is never omitted.
    parts.sort(key=lambda part: not part.startswith("privacy.epsilon="))
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
        make: function that runs with the given callbacks, and returns the run.
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


# Width of the column of keys and metrics, for any number of runs, unless a word is wider.
_KEY_WIDTH = 26
_LEAST_WIDTH = 6


def print_and_write_comparison(folders: Sequence[Path], out: Path | None, formats: Sequence[str]) -> None:
    """Compare runs, print the tables, and write the page to a new or empty folder."""
    # Slow to import, with pandas.
    from decentral_dp.reporting.comparison import compare

    # Earlier comparisons, which runs/* matches, are no runs.
    comparison = compare(*(path for path in folders if not (path / "comparison.html").is_file()))
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
