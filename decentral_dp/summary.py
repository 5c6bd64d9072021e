"""What the command line prints: the progress bar, the plan, the end of a run, and the lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from decentral_dp.describe import privacy_summary, theorem
from decentral_dp.errors import InputError
from decentral_dp.job import Job
from decentral_dp.runner import Run
from decentral_dp.scenario import scenario_folder, scenario_names

# Above so many agents a table lists only the cheapest and the dearest.
_MOST_ROWS = 12


def printed(epsilon: float | str | None) -> str:
    """An epsilon as text, rounded up to four significant digits; ∞ where it is infinite."""
    if epsilon is None:
        return "–"
    value = float(epsilon)
    if math.isinf(value):
        return "∞"
    if value == 0.0:
        return "0"
    digits = 3 - math.floor(math.log10(abs(value)))
    # The relative nudge keeps a value that is already that round from being pushed up by its binary representation.
    up = math.ceil(value * 10.0**digits * (1 - 1e-12)) / 10.0**digits
    return f"{up:.{max(digits, 0)}f}"


class Progress:
    """A bar with round, loss and ε spent on a terminal; nothing where there is none."""

    def __init__(self, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("round"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("upper loss {task.fields[loss]}"),
            TextColumn("ε spent {task.fields[epsilon]}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("run", total=None, loss="…", epsilon="0")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None:
        known = {} if math.isnan(epsilon) else {"epsilon": printed(epsilon)}
        self._bar.update(self._task, completed=done, total=rounds, loss=f"{loss:.4f}", **known)


def print_run(run: Run) -> None:
    """The end of a run, in a few lines."""
    console, result = Console(), run.result
    privacy, metrics = result["privacy"], result["metrics"]
    console.print()
    console.print(f"[bold]{run.scenario.title or 'Run'}[/bold]  ({result['engine']}, {result['seconds']:.1f} s)")
    if result["status"] != "ok":
        console.print(f"[bold red]{result['status']}[/bold red]: {result['reason']}")
    console.print(_privacy_line(privacy))
    if privacy["claimed"] is not None:
        console.print(
            f"Claimed by the paper, not certified: ε = {printed(privacy['claimed']['epsilon_max'])}  "
            f"({privacy['claimed']['source']})"
        )
    for name in ("test_accuracy", "test_loss", "upper_loss", "lower_loss"):
        if name in metrics:
            low, high = metrics[f"{name}_min"], metrics[f"{name}_max"]
            console.print(f"  {name:<14} {metrics[name]:.4f}   (agents {low:.4f} to {high:.4f}; {result['evaluated_on']})")
    if run.folder is not None:
        console.print(f"Report: {run.folder / 'report.html'}")


def _privacy_line(privacy: dict[str, Any]) -> str:
    if privacy["guarantee"] == "none":
        return "No privacy: noise is off, ε = ∞."
    word = "Certified" if privacy["guarantee"] == "certified" else "Provable for the protocol as printed"
    line = f"{word}: ε = {printed(privacy['epsilon_max'])} per agent at δ = {privacy['delta']:g}"
    return f"{line}, pure ε = {printed(privacy['epsilon_pure_max'])}; noise {privacy['noise']}."


def print_plan(job: Job) -> None:
    """Budgets before running: per agent and channel, at T and for T → ∞."""
    console, privacy = Console(), privacy_summary(job)
    console.print(f"[bold]{job.scenario.title or 'Plan'}[/bold]: {job.rounds} rounds, {job.n_agents} agents")
    console.print(_privacy_line(privacy))
    if job.reason:
        console.print(f"[bold]{job.reason}[/bold]")
    channels = list(privacy["agents"][0]["channels"])
    table = Table(title=f"ε per agent at δ = {privacy['delta']:g}, {job.rounds} rounds", title_justify="left")
    for head in ("agent", "ε", "pure ε", *(f"ε of {c}" for c in channels), "train record", "validation record"):
        table.add_column(head, justify="right")
    if privacy["claimed"] is not None:
        table.add_column("claimed (not certified)", justify="right")
    for row in _shown(privacy["agents"]):
        cells = [str(row["agent"]), printed(row["epsilon"]), printed(row["epsilon_pure"])]
        cells += [printed(row["channels"][c]["epsilon"]) for c in channels]
        cells += [printed(row["records"].get(k)) for k in ("train", "validation")]
        if privacy["claimed"] is not None:
            cells.append(printed(privacy["claimed"]["agents"][row["agent"]]))
        table.add_row(*cells)
    console.print(table)
    if len(privacy["agents"]) > _MOST_ROWS:
        console.print(f"The {_MOST_ROWS} dearest of {len(privacy['agents'])} agents.")
    for channel, reason in privacy["free_channels"].items():
        console.print(f"{channel} is free: {reason}.")
    endless = privacy["at_infinity"]["endless_stream"]
    console.print(f"T → ∞ on these data: ε = {printed(privacy['at_infinity']['finite_data'])}")
    if endless is not None:
        console.print(f"T → ∞ if the stream of records never ended: pure ε = {printed(endless)}")
    for note in privacy["notes"]:
        console.print(f"Note: {note}")
    _print_theorem(console, theorem(job))


def _shown(agents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(agents) <= _MOST_ROWS:
        return list(agents)
    dearest = sorted(agents, key=lambda a: -float(a["epsilon"]))[:_MOST_ROWS]
    return sorted(dearest, key=lambda a: int(a["agent"]))


def _print_theorem(console: Console, theorem: dict[str, Any] | None) -> None:
    if theorem is None:
        return
    console.print(f"{theorem['name']}:")
    for case in theorem["cases"]:
        failing = [c for c in case["conditions"] if not c["holds"]]
        if not failing:
            console.print(f"  {case['case']}: all conditions hold, rate {case['rate']}")
            continue
        listed = "; ".join(f"{c['condition']} (short by {-c['margin']:.3g})" for c in failing)
        console.print(f"  {case['case']}: {len(failing)} of {len(case['conditions'])} conditions fail: {listed}")


def registries() -> dict[str, dict[str, str]]:
    """What can be named in a scenario: registry → name → one line."""
    from decentral_dp.algorithms import ALGORITHMS
    from decentral_dp.data import DATASETS
    from decentral_dp.problems import PROBLEMS
    from decentral_dp.scenario import load
    from decentral_dp.topology import GENERATORS, find_named, from_file, names

    topologies = {k: g.summary for k, g in GENERATORS.items()}
    topologies |= {n: f"file: {from_file(find_named(n), None).n_agents} agents" for n in names()}
    return {
        "algorithms": {k: e.summary for k, e in ALGORITHMS.items()},
        "problems": {k: e.summary for k, e in PROBLEMS.items()},
        "topologies": topologies,
        "scenarios": {n: load(n).title for n in scenario_names()},
        "data": dict(DATASETS),
    }


def print_list(which: Sequence[str]) -> None:
    console, all_of_them = Console(), registries()
    for registry in which:
        table = Table(title=registry, title_justify="left", show_header=False, box=None, padding=(0, 2))
        for name, line in all_of_them[registry].items():
            table.add_row(name, line)
        console.print(table)


def print_entry(name: str) -> None:
    """A shipped scenario's text, or the description of a registered name."""
    if name in scenario_names():
        print((scenario_folder() / f"{name}.toml").read_text(encoding="utf-8"), end="")
        return
    found = [(registry, lines[name]) for registry, lines in registries().items() if name in lines]
    if not found:
        raise InputError(f'show: nothing is called {name!r}; "decentral-dp list" lists what there is.')
    for registry, line in found:
        print(f"{name} ({registry}): {line}")
        print(_details(registry, name), end="")


def _details(registry: str, name: str) -> str:
    import inspect

    if registry == "algorithms":
        from decentral_dp.algorithms.decentralised import ldp_dsbo

        return f"\n{inspect.getdoc(ldp_dsbo)}\n"
    return ""
