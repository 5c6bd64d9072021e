"""What the command line prints of a scenario and a run: the progress bar, the plan, and the end of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from decentral_dp import summary_trusted as trusted
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.bounded import SPLITS
from decentral_dp.runner import Run
from decentral_dp.simulation.jobs import Job
from decentral_dp.summary_scores import print_scores, print_values

# Blanks between the columns of a table.
_GAP = 2
# Above so many different lines a table lists only the dearest agents.
_MOST_ROWS = 12


class Progress:
    """A bar with round, loss and ε spent on a terminal; nothing where there is none."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("ε spent {task.fields[epsilon]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._spent = "0"
        self._task = self._bar.add_task("run", total=None, loss="…", epsilon=self._spent)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None:
        # ε is not priced at every round; the last known one stays.
        if not math.isnan(epsilon):
            self._spent = epsilon_text(epsilon)
        self._bar.update(self._task, completed=done, total=rounds, loss=f"{loss:.4f}", epsilon=self._spent)


def console() -> Console:
    """Prints text as it is: titles and paths may hold brackets, and numbers need no colours."""
    return Console(markup=False, highlight=False, emoji=False)


def print_run(run: Run) -> None:
    """The end of a run, in a few lines."""
    out, result = console(), run.result
    privacy = result["privacy"]
    out.print()
    head = Text(run.scenario.title or "Run", style="bold")
    out.print(head, f"({_rounds(result['rounds'])}, {result['engine']} engine, {result['seconds']:.1f} s)")
    if result["status"] != "ok":
        out.print(Text(result["status"].replace("_", " "), style="bold red"), _sentence(result["reason"]), sep=": ")
    warned = [("Note", note) for note in result.privacy.cautions]
    facts = [("Data", note) for note in result["problem"]["notes"]] + _guarantee(privacy) + warned
    if result.privacy.is_trusted:
        _items(out, [*facts, ("Seen", result.privacy.seen_briefly), *trusted.published(run.published["x"])])
        print_values(out, result)
    else:
        _items(out, facts)
        print_scores(out, result)
    if run.folder is not None:
        out.print()
        # Not wrapped, so that it can be clicked and copied.
        out.print(f"Report: {run.folder / 'report.html'}", soft_wrap=True)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _guarantee(privacy: dict[str, Any]) -> list[tuple[str, str]]:
    if privacy["guarantee"] == "none":
        return [("Privacy", "none: noise is off, ε = ∞.")]
    word = "certified" if privacy["guarantee"] == "certified" else "provable for the protocol as printed"
    if privacy.get("constants") == "declared":
        word += ", if the declared constants are true"
    delta = delta_text(privacy["delta"])
    lines = [
        (
            "Privacy",
            f"{word}: ε = {epsilon_text(privacy['epsilon_max'])} at δ = {delta} for every agent "
            f"(pure ε = {epsilon_text(privacy['epsilon_pure_max'])}).",
        )
    ]
    if privacy["claimed"] is not None:
        claim = epsilon_text(privacy["claimed"]["epsilon_max"])
        # A claim without a δ of its own is of pure ε.
        at = f" at δ = {delta_text(privacy['claimed']['delta'])}" if privacy["claimed"].get("delta") else ""
        lines.append(("Claimed", f"ε = {claim}{at} by {privacy['claimed']['source']}; not certified."))
    lines.append(("Noise", f"{privacy['noise']}."))
    return lines


def _seen(privacy: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("Seen" if not k else "", sentence) for k, sentence in enumerate(privacy["seen"])]


def print_plan(job: Job) -> None:
    """Budgets before running: per agent and channel, at T and for T → ∞, or with the price of every release."""
    out, privacy = console(), job.statement().to_dict()
    size = f"({_rounds(job.rounds)}, {_agents(job.n_agents)})"
    out.print(Text(job.scenario.title or "Plan", style="bold"), size)
    if job.reason:
        out.print(Text(job.status.replace("_", " "), style="bold"), _sentence(job.reason), sep=": ")
    # Where there is a guarantee, its notes tell of the data, too.
    stated = job.shards.notes if privacy["guarantee"] == "none" else ()
    _items(out, [("Data", note) for note in stated] + _guarantee(privacy))
    if privacy["guarantee"] != "none":
        out.print()
        out.print(f"ε of each agent at δ = {delta_text(privacy['delta'])} after the last round:")
        for table in _budgets(privacy, out.width):
            out.print(table, soft_wrap=True)
        if "prices" in privacy:
            out.print()
            out.print("Price of each release, fixed beforehand; noise scale = sensitivity/price:")
            out.print(trusted.grid(trusted.prices(privacy)), soft_wrap=True)
        out.print()
        _items(out, _facts(privacy))
    settings = job.settings()
    if settings is not None:
        _items(out, trusted.settled_values(settings) + _seen(privacy))
    _print_theorem(out, job.theorem())


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _agents(count: int) -> str:
    return "one agent" if count == 1 else f"{count} agents"


def _budgets(privacy: dict[str, Any], width: int) -> list[Table]:
    """One line per different budget; agents that pay the same share a line. As many tables as fit the width."""
    agents, claimed = privacy["agents"], privacy["claimed"]
    channels = list(agents[0]["channels"])
    endless = privacy["at_infinity"] is not None
    kinds = [k for k in SPLITS if any(row["records"].get(k) is not None for row in agents)] or list(SPLITS)
    heads = ["all", "pure ε", *(f"{c} alone" for c in channels), *kinds, *(["T → ∞"] if endless else [])]
    heads += ["claimed"] if claimed is not None else []
    lines: dict[tuple[str, ...], list[int]] = {}
    for row in agents:
        values = [row["epsilon"], row["epsilon_pure"], *(row["channels"][c]["epsilon"] for c in channels)]
        values += [row["records"].get(k) for k in kinds]
        shown = list(map(epsilon_text, values))
        if endless:
            shown.append(_limit_text((row["at_infinity"] or privacy["at_infinity"])["finite_data"]))
        shown += [epsilon_text(claimed["agents"][row["agent"]])] if claimed is not None else []
        lines.setdefault(tuple(shown), []).append(int(row["agent"]))
    by_cost = sorted(lines.items(), key=lambda line: -float(agents[line[1][0]]["epsilon"]))
    chosen = sorted(by_cost[:_MOST_ROWS], key=lambda line: line[1][0])
    first = ("agents", *(spans(members) for _, members in chosen))
    columns = list(zip(heads, *(cells for cells, _ in chosen), strict=True))
    tables = [_table(first, part) for part in _fitting(first, columns, width)]
    if len(lines) > _MOST_ROWS:
        tables[-1].caption = f"The dearest {_MOST_ROWS} of {len(lines)} different budgets."
        tables[-1].caption_justify = "left"
    return tables


def _fitting(first: Sequence[str], columns: Sequence[Sequence[str]], width: int) -> list[list[Sequence[str]]]:
    """The columns in as few parts as fit the width beside the first column, in their order."""
    parts: list[list[Sequence[str]]] = [[]]
    left = start = width - _widest(first)
    for column in columns:
        left -= _widest(column)
        if left < 0 and parts[-1]:
            parts.append([])
            left = start - _widest(column)
        parts[-1].append(column)
    return parts


def _widest(column: Sequence[str]) -> int:
    return max(cell_len(text) for text in column) + _GAP


def _table(first: Sequence[str], columns: Sequence[Sequence[str]]) -> Table:
    """A table of columns, each with its head first; a cell is never wrapped, and so never cut."""
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(first[0], no_wrap=True)
    for head, *_ in columns:
        table.add_column(head, justify="right", no_wrap=True)
    for cells in list(zip(first, *columns, strict=True))[1:]:
        table.add_row(*cells)
    return table


def _limit_text(limit: float | None) -> str:
    """ε for T → ∞: infinite is not the same as unknown."""
    return "unknown" if limit is None else epsilon_text(limit)


def spans(numbers: Sequence[int]) -> str:
    """0–4, 7: consecutive numbers drawn together."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    words = [str(a) if a == b else f"{a}–{b}" for a, b in runs]
    return ", ".join(words) if len(words) <= 4 else f"{', '.join(words[:3])}, … ({len(numbers)} agents)"


def _facts(privacy: dict[str, Any]) -> list[tuple[str, str]]:
    free: dict[str, list[str]] = {}
    for channel, reason in privacy["free_channels"].items():
        free.setdefault(reason, []).append(channel)
    facts = [("Free", f"{', '.join(channels)}: {reason}.") for reason, channels in free.items()]
    limit, noted = privacy["at_infinity"], [("Note", note) for note in privacy["notes"]]
    if limit is None:
        return facts + noted
    finite = f"ε = {_limit_text(limit['finite_data'])} on these data{_by_channel(limit, 'finite_data')}."
    facts.append(("T → ∞", finite if limit["finite_data"] is not None else "unknown on these data."))
    if limit["endless_stream"] is not None:
        kind = "pure ε" if privacy["mechanism"] == "laplace" else "ε"
        endless = f"{kind} = {epsilon_text(limit['endless_stream'])} if the stream of records never ended"
        facts.append(("", f"{endless}{_by_channel(limit, 'endless_stream')}."))
    return facts + noted


def _by_channel(limit: dict[str, Any], which: str) -> str:
    """ " (y alone 2.00, z alone ∞)": the limits of single channels, where they are known."""
    known = {c: values[which] for c, values in limit["channels"].items() if values[which] is not None}
    listed = ", ".join(f"{c} alone {epsilon_text(v)}" for c, v in known.items())
    return f" ({listed})" if len(known) > 1 else ""


def _items(out: Console, items: Iterable[tuple[str, str]]) -> None:
    """Labelled sentences, one below the other, with a hanging indent."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(text))
    out.print(grid)


def _print_theorem(out: Console, found: dict[str, Any] | None) -> None:
    """Which cases of the convergence theorem apply, and the conditions that fail, by how much."""
    if found is None:
        return
    out.print()
    out.print(f"Convergence, {found['name']} (no budget depends on it):")
    failing: dict[str, float] = {}
    verdicts = []
    for case in found["cases"]:
        missed = [c for c in case["conditions"] if not c["holds"]]
        failing |= {c["condition"]: -c["margin"] for c in missed}
        fate = (
            f"applies, {case['rate']}" if not missed else f"{len(missed)} of {len(case['conditions'])} conditions fail"
        )
        verdicts.append((case["case"], fate))
    _items(out, verdicts)
    if not failing:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("fails")
    table.add_column("short by", justify="right", no_wrap=True)
    for case in found["cases"]:
        table.add_column(case["case"].partition(" ")[0], justify="center")
    for condition, gap in failing.items():
        asked = ["×" if any(c["condition"] == condition for c in case["conditions"]) else "" for case in found["cases"]]
        table.add_row(Text(condition), f"{abs(gap):.3g}", *asked)
    out.print(Padding(table, (1, 0, 0, 0)))
