"""Terminal output: a console that prints control characters as text, tables of numbers, and progress bars."""

from __future__ import annotations

import io
import re
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Columns
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from decentral_dp.errors import printable
from decentral_dp.formatting import byzantine_text, range_text, score_text
from decentral_dp.reporting.privacy import VERBOSE_LINES, mechanism_text, privacy_lines
from decentral_dp.reporting.report import Report, TextTable, evaluated_text, method_lines, reason_text, score_notes
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.metrics import MEASURES
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statement import PrivacyStatement

# Columns of a text without a terminal.
_WIDTH = 100
# Blanks between the columns of a table.
GAP = 2
_BLANK_ENDS = re.compile(r"[ ]+$", re.MULTILINE)
# Blanks around "=", between a variable and its value, and between groups of digits.
_BLANK_INSIDE = re.compile(r"(?<=[xyzεδ=]) (?=[=\d∞])|(?<=\d) (?=\d{3}\b)")
_NO_BREAK = "\N{NO-BREAK SPACE}"
_LABEL_WIDTH, _LEAST_TEXT_WIDTH = 9, 10


class PlainConsole(Console):
    """Console that prints control characters as text."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, without trailing blanks in a file or a pipe."""
        if self.is_terminal or self.is_jupyter:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_BLANK_ENDS.sub("", captured.get()))


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Make a console that prints text unchanged, since titles and paths may contain brackets."""
    return PlainConsole(markup=False, highlight=False, emoji=False, file=file, width=width)


def wrap_text(text: str, width: int) -> str:
    r"""Break a text into lines, but not inside "y 1", "ε = 4" and "10 000". rich would break at every blank.

    Example:
        >>> wrap_text("clipping norm y 1", 16)
        'clipping norm\ny 1'
    """
    lines = textwrap.wrap(_BLANK_INSIDE.sub(_NO_BREAK, text), width, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def print_items(out: Console, items: Sequence[tuple[str, str]]) -> None:
    """Print labelled sentences with a hanging indent."""
    # Tables below each other have one indent.
    indent = max([_LABEL_WIDTH, *(cell_len(label) for label, _ in items)])
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True, min_width=indent)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(wrap_text(text, max(_LEAST_TEXT_WIDTH, out.width - indent - GAP))))
    out.print(grid)


def terminal(columns: Sequence[Sequence[str]]) -> Table:
    """Make a table of columns that begin with their headings; all but the first are numbers, and no cell is wrapped."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for k, (head, *_) in enumerate(columns):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for cells in list(zip(*columns, strict=True))[1:]:
        table.add_row(*map(Text, cells))
    return table


def longest(texts: Iterable[str]) -> int:
    """Return the width of the widest text plus the gap after it."""
    return max(cell_len(text) for text in texts) + GAP


def split_columns(columns: Sequence[Sequence[str]], width: int) -> list[list[Sequence[str]]]:
    """Split columns into parts that fit a width; each part has at least one column."""
    parts: list[list[Sequence[str]]] = [[]]
    left = width
    for column in columns:
        left -= longest(column)
        if left < 0 and parts[-1]:
            parts.append([])
            left = width - longest(column)
        parts[-1].append(column)
    return parts


def print_headline(
    out: Console, method: str, graph: Mapping[str, Any], p: PrivacyStatement, problem: Mapping[str, Any], rounds: int
) -> None:
    """Print the first line of a run or a plan, and its graph on a second line if this avoids a break in the method.

    Args:
        out: console for the output.
        method: name of the algorithm.
        graph: entry "topology" of `result.json`.
        p: privacy statement.
        problem: entry "problem" of `result.json`.
        rounds: number of rounds.
    """
    n = len(p.agents)
    agents = "1 agent" if n == 1 else f"{n} agents"
    network = f"{graph['kind']}, {agents}"
    if p.publishes_all or graph["has_server"]:
        network = f"{agents} and {'a trusted' if p.publishes_all else 'an untrusted'} server"
    sampling = problem.get("sampling") or {}
    batch, rate = sampling.get("batch"), sampling.get("rate")
    # Empty if the sampling is unknown.
    samples = {
        "full": ", full batch",
        "fixed_batch": f", batches of {batch} records",
        "cyclic": f", cyclic batches of {batch} records",
        "poisson": f", Poisson samples of rate {rate:g}" if rate else "",
        "streaming": f", {batch} new records per round",
    }.get(sampling.get("kind", ""), "")
    network = f"{network} · {rounds} round{'s' * (rounds != 1)}{samples}"
    is_broken = out.width < cell_len(f"{method} · {network}") and cell_len(method) <= out.width
    out.print(Text(method + ("\n" if is_broken else " · ") + network, style="bold"))


def data_line(problem: Mapping[str, Any]) -> str:
    """Return the data set, the numbers of records and the objective, from a summary of a problem."""
    records, counts = problem["records"], []
    for split in ("train", "validation"):
        if any(records[split]):
            counts.append(f"{range_text(min(records[split]), max(records[split]), ',')} {split}")
    held_out = f", {records['test']:,} held out" if records["test"] else ""
    objective = {"sites": ", mean over agents", "records": ", mean over all records"}
    return f"{problem['data']}: {' + '.join(counts)} per agent{held_out}{objective.get(problem.get('weights', ''), '')}"


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


def print_run(report: Report, folder: Path | None, out: Console, verbose: bool = False) -> None:
    """Print a finished run: algorithm, data, privacy, mechanism, scores and warnings.

    Args:
        report: report of the run.
        folder: folder of the run, or None.
        out: console for the output.
        verbose: whether to print all notes, settings and scores; by default about 15 lines of text.
    """
    result, x = report.result, report.x
    print_headline(out, result.method, result.topology, result.privacy, result.problem, result.rounds)
    if result.status != "ok":
        out.print(Text(result.status.replace("_", " "), style="bold red"), reason_text(result), sep=": ")
    items = [("Data", data_line(result.problem))]
    items += [("Messages", f"{text}.")] if (text := byzantine_text(result.topology)) else []
    items += [line for line in privacy_lines(result.privacy) if verbose or line[0] not in VERBOSE_LINES]
    items += [("Mechanism", text)] if (text := mechanism_text(result.privacy)) else []
    if result.algorithm and x is not None and 0 < x.size <= _MOST_COORDINATES and np.isfinite(x).all():
        values = ", ".join(f"{v:.4g}".replace("-", "−") for v in x.reshape(-1))
        items.append(("Result", f"x = {values}" if x.size == 1 else f"x = ({values})"))
    if verbose:
        items = [("Title", result.title), *items, *method_lines(result)]
    print_items(out, items)
    print_scores(out, result, verbose)
    if (comparison := report.baselines) is not None:
        _print_table(out, comparison.table)
        if comparison.sentence:
            out.print(comparison.sentence, style="bold")
        out.print(comparison.price)
    if report.sites is not None:
        _print_table(out, report.sites)
        out.print(report.sites.note)
    notes = score_notes(result, brief=not verbose)
    if not verbose:
        notes += [("Warning", text) for text in result.problem["warnings"]]
        notes += [("Note", text) for text in result.problem["notes"] if result.privacy.is_noisy]
    out.print()
    print_items(out, notes)
    if folder is not None:
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report     {folder / 'report.html'}  ({result.seconds:.1f} s)", soft_wrap=True)
        if verbose and result.has_model:
            command = f"decentral-dp predict {shlex.quote(str(folder))} FILE --out FILE"
            out.print(f"Predict    {command}", soft_wrap=True, markup=False)


def _print_table(out: Console, table: TextTable) -> None:
    out.print()
    out.print(terminal([[name, *cells] for (name, _), *cells in zip(table.heads, *table.rows, strict=True)]))


def capture_text(print_on: Callable[[Console], None]) -> str:
    """Return the output of a function on a console of 100 columns."""
    text = io.StringIO()
    print_on(console(text, _WIDTH))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


# Seconds between two lines of progress without a terminal.
_BETWEEN_LINES = 30.0


class ProgressBar:
    """Callback that shows a progress bar inside `with`.

    Args:
        unit: counted unit, such as "runs".
        lines: whether to print a line every 30 seconds if there is no terminal; default False.
        quiet: whether to show nothing; default False.
    """

    def __init__(self, unit: str, lines: bool = False, quiet: bool = False) -> None:
        console = Console(stderr=True)
        self._is_hidden = quiet or not console.is_terminal
        self._unit = unit
        self._lines, self._last = lines and not quiet and self._is_hidden, time.monotonic()
        self._bar = Columns(
            *(TextColumn(unit), MofNCompleteColumn(), BarColumn(), TextColumn("{task.fields[words]}")),
            *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
            console=console,
            transient=True,
            disable=self._is_hidden,
        )
        self._task = self._bar.add_task(unit, total=None, words="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Early versions of rich end a line even if there is no bar.
        if not self._is_hidden:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        self._bar.update(self._task, completed=progress.done, total=progress.total, words=progress.description)
        if self._lines and now - self._last >= _BETWEEN_LINES:
            self._last = now
            left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
            speed = f"{progress.per_second or 0.0:.3g} {self._unit}/s"
            where = f"{self._unit.removesuffix('s')} {progress.done} of {progress.total}"
            print(f"{where}, {progress.description}, {speed}{left}", file=sys.stderr, flush=True)
