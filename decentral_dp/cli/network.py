"""The command `network`: which observers and graphs it is asked for, what it prints and what it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.network.view import ASSUMPTIONS, UNPRICED, NetworkView, Unpriced, prepare
from decentral_dp.bounded import Array
from decentral_dp.cli.progress import ProgressBar
from decentral_dp.config.loading import assign, load, parsed
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.reporting.plots.style import Format
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.plan import console
from decentral_dp.topology import names
from decentral_dp.topology.graph import few


def carry_out(
    scenario: str,
    overrides: Sequence[str],
    out: Path | None,
    coalitions: Sequence[str],
    graphs: Sequence[str],
    formats: Sequence[Format] = (),
    width: float | None = None,
) -> None:
    """Price what curious agents learn, print it, and write it where there is a folder for it.

    Args:
        scenario: a shipped name, or a file.
        overrides: "table.key=value".
        out: the folder.
        coalitions: agents that pool what they see, as "0,3"; by default every agent observes alone.
        graphs: others to draw beside it, see `comparisons`.
        formats: of the figures, beside png.
        width: of each figure in inches, in the letters of a paper.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    loaded = load(scenario, overrides)
    job = build(loaded)
    # Whatever can be refused is refused before the first pair is priced.
    asked = prepare(job, coalitions_of(coalitions, job) if coalitions else None)
    others = comparisons(loaded, graphs, job.n_agents)
    if graphs and out is None:
        raise InputError("--beside: other graphs are drawn, not printed; give --out DIR as well.")
    if (formats or width is not None) and out is None:
        raise InputError("--format, --width: figures are drawn into a folder; give --out DIR as well.")
    if out is not None:
        require_new(out)
    with ProgressBar("observers") as progress:
        view = asked.view(progress)
        views = {name: graph.view(progress) for name, graph in others.items()}
    written = write_view(view, out, views, ("png", *formats), width) if out is not None else []
    print_view(view, loaded.title)
    for path in written:
        typer.echo(printable(str(path)))


def coalitions_of(texts: Sequence[str], job: Job) -> list[list[int]]:
    """Sets of agents from texts such as "0,3" or "Medici, Pazzi": agents as the graph calls them."""
    named = {label: agent for agent, label in enumerate(job.topology.labels)}
    out = []
    for text in texts:
        parts = [part.strip() for part in text.split(",")]
        for part in parts:
            if part not in named:
                raise InputError(
                    f"--coalition: no agent {quoted(part)}; this graph has {few(list(named), 'agent')}; "
                    "name some of them with commas between."
                )
        out.append([named[part] for part in parts])
    return out


def comparisons(scenario: Scenario, graphs: Sequence[str], agents: int) -> dict[str, Unpriced]:
    """The same scenario on other graphs, every agent observing alone, ready to be priced.

    graphs: "torus", "random_regular,degree=4", a network that comes with the package ("karate_club"), or a graph file.
    """
    found: dict[str, Unpriced] = {}
    for graph in graphs:
        kind, *options = [part.strip() for part in graph.split(",")]
        from_file = kind in names() or Path(kind).suffix != ""
        table: dict[str, Any] = {"file": kind} if from_file else {"kind": kind, "agents": agents}
        for option in options:
            if "=" not in option:
                raise InputError(f"--beside: {quoted(graph)} has {quoted(option)}, wanted KEY=VALUE, as in degree=4.")
            table = assign(table, *parsed(option))
        content = scenario.model_dump(exclude_unset=True) | {"topology": table}
        try:
            unpriced = prepare(build(load(content, folder=scenario.folder)))
        except InputError as error:
            raise InputError(f"--beside: {quoted(graph)}: {error}") from error
        size = [f"{unpriced.job.n_agents} agents"] if from_file else []
        found[", ".join([kind.replace("_", " "), *size, *options])] = unpriced
    return found


def print_view(view: NetworkView, title: str) -> None:
    """ε by distance, beside those for every message; and what they rest on."""
    out, delta = console(), delta_text(view.delta)
    out.print(Text(title or "Network", style="bold"))
    out.print(f"ε of one record at δ = {delta}: the largest certified, and the exact ones in real arithmetic:")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("observer")
    for head in ("links away", "pairs", "certified ε", "exact: least", "mean", "largest"):
        table.add_column(head, justify="right")
    groups = [("one agent", slice(None))] if view.alone else [
        (view.observer(row), slice(row, row + 1)) for row in range(len(view.pairs.observers))
    ]  # fmt: skip
    for name, rows in groups:
        certified, distance = view.certified[rows], view.distance[rows]
        for links in np.unique(distance[~np.isnan(certified)]):
            there = (distance == links) & ~np.isnan(certified)
            cells = _cells(certified[there], view.epsilon[rows][there])
            table.add_row(Text(name), str(links), str(there.sum()), *cells)
            name = ""
    table.add_row("every message", "–", str(len(view.labels)), *_cells(view.certified_total, view.epsilon_total))
    out.print(table)
    out.print()
    for sentence in ASSUMPTIONS if view.priced else (*ASSUMPTIONS, UNPRICED):
        out.print(Text(f"– {sentence}"))


def _cells(certified: Array, exact: Array) -> list[str]:
    """The largest certified ε, and the least, the mean and the largest exact one."""
    return [epsilon_text(float(v)) for v in (certified.max(), exact.min(), exact.mean(), exact.max())]


def require_new(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder.")


def write_view(
    view: NetworkView,
    folder: Path,
    others: Mapping[str, NetworkView],
    formats: Sequence[Format] = ("png",),
    width: float | None = None,
) -> list[Path]:
    """network.parquet and the figures; `others`: the same scenario on other graphs, for one more figure."""
    from decentral_dp.adversaries.network.plots import write_pairs

    require_new(folder)
    folder.mkdir(parents=True, exist_ok=True)
    view.to_frame().to_parquet(folder / "network.parquet", index=False)
    return [folder / "network.parquet", *write_pairs(view, folder, others, formats, width)]
