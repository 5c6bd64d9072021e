"""The commands `audit`, `network` and `check`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.auditing.audit import AuditResult, add_to_run, plan_audit, play_game
from decentral_dp.auditing.check import CheckResult, try_component
from decentral_dp.auditing.membership import Inference, describe_inference, infer_membership
from decentral_dp.auditing.network_view import NetworkView, compute_view
from decentral_dp.bounded import Array
from decentral_dp.config.loading import load_scenario
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.reporting.privacy import summary_text
from decentral_dp.reporting.terminal import ProgressBar, console
from decentral_dp.simulation.folder.layout import check_writable
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.plan import graph_line
from decentral_dp.simulation.result import plain, read_result, refuse_damaged
from decentral_dp.simulation.summary import statement_of, title_of, topology_summary


def _table(
    labels: Sequence[str], values: Sequence[str], rows: Iterable[Sequence[str]] = (), last: Sequence[str] = ()
) -> Table:
    """Build a table with text columns on the left and at the end, and numbers in between."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in labels:
        table.add_column(head, overflow="fold")
    for head in values:
        table.add_column(head, justify="right")
    for head in last:
        table.add_column(head)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print(table: Table, remarks: Iterable[str]) -> None:
    """Print a table with its remarks."""
    out = console()
    out.print(table)
    out.print()
    for remark in remarks:
        out.print(Text(f"– {remark}"))


def _print_json(content: Mapping[str, Any]) -> None:
    """Print JSON values as one object, with infinities as "inf"."""
    typer.echo(json.dumps(content, indent=2, allow_nan=False))


def _print_paths(paths: Iterable[Path | None]) -> None:
    """Print the written files."""
    for path in paths:
        if path is not None:
            typer.echo(printable(str(path)))


# audit


def print_inference(inference: Inference) -> None:
    """Print the AUC, its ceilings and the verdict."""
    out, many, auc = console(), len(inference.scores), inference.auc
    out.print(Text(inference.title, style="bold"))
    runs = "one run" if many == 1 else f"{many} runs with fresh noise and splits"
    sizes = inference.scores[0]
    out.print(Text(f"Membership inference on {sizes.members} train and {sizes.nonmembers} held-out records, {runs}:"))
    ceilings = [inference.ceiling, *([inference.claimed[2]] if inference.claimed is not None else [])]
    heads = ["AUC" if many == 1 else "mean AUC", "95 % over runs", "ceiling", "ceiling of the claim"]
    span = f"[{auc.low:.4f}, {auc.high:.4f}]" if many > 1 else "–"
    row = [f"{auc.value:.4f}", span, *(f"{c:.4f}" for c in ceilings)]
    _print(_table([], heads[: len(row)], [row]), describe_inference(inference))


# Statuses with exit code 1.
UNSOUND = ("refuted", "broken")


def audit_command(
    scenario: str,
    *,
    runs: int | None,
    adversary: str,
    confidence: float,
    seed: int,
    out: Path | None,
    override: Sequence[str],
    membership: bool,
    as_json: bool,
) -> bool:
    """Run the command `audit`. Return whether nothing was refuted or broken.

    Raises:
        InputError: an option is invalid, or as in the audits.
    """
    path = Path(scenario)
    if membership:
        if not path.is_dir():
            fix = f"run it first, then audit its folder, such as runs/{path.stem}"
            raise InputError(f"--membership: requires a run folder (got {quoted(scenario)}). Fix: {fix}.")
        if adversary != "all_messages" or override or seed or confidence != 0.95:
            raise InputError(
                "--membership: can be combined with --runs, --out and --json only. Fix: remove the other options."
            )
        with ProgressBar("runs", quiet=as_json) as progress:
            inference = infer_membership(path, 10 if runs is None else runs, progress, out)
        if as_json:
            _print_json(inference.to_dict())
        else:
            print_inference(inference)
            _print_paths([out])
        return inference.status not in UNSOUND
    plan = plan_audit(scenario, 200 if runs is None else runs, adversary, confidence, seed, override)
    run = path if out is None and path.is_dir() else None
    file = out if run is None else run / "audit.json"
    if run is not None:
        # The run must be readable before its audit is computed.
        with refuse_damaged(run, "audit"):
            read_result(run)
    if not as_json:
        limits = (
            f"{plan.runs} runs of each of two data sets, adversary {plan.adversary!r}. Counting can show at most ε = "
            f"{epsilon_text(plan.epsilon_limit)} with confidence {100.0 * plan.confidence:g} %. Likelihood ratios have "
            "no limit."
        )
        console().print(Text(limits))
    with ProgressBar("runs", quiet=as_json) as progress:
        result = play_game(plan, file, progress)
    page = None if run is None else add_to_run(result, run)
    if as_json:
        _print_json(result.to_dict())
    else:
        print_audit(result)
        _print_paths([file, page])
    return result.status not in UNSOUND


def print_audit(result: AuditResult) -> None:
    """Print claimed and certified ε, the lower bound, and the sentences."""
    out = console()
    out.print(Text(result.title, style="bold"))
    facts = {
        "claimed ε": epsilon_text(result.claimed),
        "certified ε": epsilon_text(result.certified),
        "empirical lower bound": f"{at_least_text(result.shown)} (confidence {100.0 * result.confidence:g} %)",
        "δ": delta_text(result.delta),
        "guarantee": result.privacy,
        "method": result.method,
        "adversary": result.adversary,
    }
    # Only algorithms with a published guarantee have a claim.
    table = _table(["", ""], [], [fact for fact in facts.items() if fact != ("claimed ε", "–")])
    table.show_header = False
    _print(table, result.sentences)


# network


def network_command(
    scenario: str, overrides: Sequence[str], out: Path | None, coalitions: Sequence[str], as_json: bool
) -> None:
    """Run the command `network`: print the ε of network DP, and write a table and a figure.

    Args:
        scenario: shipped name, or file.
        overrides: "table.key=value".
        out: output folder. With None, nothing is written.
        coalitions: colluding agents, such as "0,3". By default, each agent is an adversary.
        as_json: whether to print one JSON object instead of text.

    Raises:
        InputError: the job or the coalitions are not supported.
    """
    job = build_job(load_scenario(scenario, overrides))
    if out is not None:
        check_writable(out)
    with ProgressBar("adversaries", quiet=as_json) as progress:
        view = compute_view(job, [[name.strip() for name in text.split(",")] for text in coalitions] or None, progress)
    paths: list[Path] = []
    if out is not None:
        from decentral_dp.auditing.plots import write_distances

        out.mkdir(parents=True, exist_ok=True)
        view.to_frame().to_parquet(out / "network.parquet", index=False)
        paths = [out / "network.parquet", *write_distances(view, out)]
    title, graph, privacy = title_of(job.scenario), topology_summary(job), statement_of(job)
    if as_json:
        context = {"title": title, "topology": graph, "privacy": privacy.to_dict()}
        pairs = view.to_frame().to_dict("records")
        return _print_json(plain({**context, "assumptions": view.assumptions, "pairs": pairs}))
    print_view(view, title, graph_line(graph))
    console().print(Text(f"Against all messages: {summary_text(privacy)}"))
    _print_paths(paths)


def print_view(view: NetworkView, title: str, graph: str) -> None:
    """Print ε by distance and for all messages, with the description of the graph and the assumptions."""
    out, delta = console(), delta_text(view.delta)
    out.print(Text(title or "Network", style="bold"))
    out.print(Text(f"Graph: {graph}"))
    training = view.linear is not None
    other = "Linear: ε of linear gossip, no bound" if training else "Exact: in real arithmetic"
    out.print(f"ε at δ = {delta} of one record of a victim at this distance. Certified: upper bound. {other}.")
    least = "linear: least" if training else "exact: least"
    table = _table(["adversary"], ["distance", "pairs", "certified ε", least, "mean", "largest"])
    groups = [("one agent", slice(None))] if view.observes_single_agents else [
        (view.adversary(row), slice(row, row + 1)) for row in range(len(view.pairs.observers))
    ]  # fmt: skip
    for name, rows in groups:
        certified_epsilon, distance = view.certified[rows], view.distance[rows]
        for edges in np.unique(distance[~np.isnan(certified_epsilon)]):
            pairs = (distance == edges) & ~np.isnan(certified_epsilon)
            cells = _cells(certified_epsilon[pairs], view.reference[rows][pairs])
            table.add_row(Text(name), str(edges), str(pairs.sum()), *cells)
            name = ""
    table.add_row("all messages", "–", str(len(view.labels)), *_cells(view.certified_total, view.epsilon_total))
    _print(table, view.assumptions)


def _cells(certified_epsilon: Array, exact: Array) -> list[str]:
    """Return the largest certified ε, and the smallest, mean and largest exact ε."""
    return [epsilon_text(float(v)) for v in (certified_epsilon.max(), exact.min(), exact.mean(), exact.max())]


# check


def check_command(component: str, pairs: int, seed: int, rounds: int | None) -> bool:
    """Run the command `check`. Return whether no check failed.

    Raises:
        InputError: as in `check`.
    """
    with ProgressBar("pairs") as progress:
        result = try_component(component, pairs, seed, progress, rounds)
    print_check(result)
    return result.passed


def print_check(result: CheckResult) -> None:
    """Print one row for each check, and the failures."""
    out = console()
    out.print(Text(f"{result.subject}: {result.label}", style="bold"))
    rows = []
    for row in result.rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.6g}" if np.isfinite(row.ratio) else "∞"
        rows.append((row.name, row.tried, str(row.pairs) if row.pairs else "–", ratio, row.verdict))
    reasons = dict.fromkeys(row.why for row in result.rows if row.why)
    remarks = [f"{', '.join(row.name for row in result.rows if row.why == why)}: {why}" for why in reasons]
    remarks.append("A check that passes found nothing on synthetic records, and proves nothing.")
    _print(_table(["check", "requirement"], ["pairs", "ratio"], rows, ["verdict"]), remarks)
