"""Commands that take an adversary's side: what `attack`, `audit`, `network` and `check` ask for, print and write."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.attack.attack import Inference, sentences
from decentral_dp.adversaries.audit.audit import play_game, write_ends
from decentral_dp.adversaries.audit.one_run import gaussian_throughout, one_run_bound
from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.adversaries.audit.runs import AuditPlan, Ends, check_workers
from decentral_dp.adversaries.audit.tables import FILES, audit_table, can_resume
from decentral_dp.adversaries.check.check import CheckResult, CheckRow, check, repeat_case, save_case
from decentral_dp.adversaries.network.attacks import NetworkAudit, audit_network
from decentral_dp.adversaries.network.view import NetworkView, Unpriced, prepare
from decentral_dp.bounded import Array
from decentral_dp.config.loading import assign, load, parse_change
from decentral_dp.config.outside import keep_label
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, printable, quoted
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.reporting.plots.style import Format
from decentral_dp.reporting.progress import ProgressBar
from decentral_dp.simulation.folder.layout import check_writable, require_new
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.plan import console, graph_line, title_of, topology_summary
from decentral_dp.simulation.result import read_result, refuse_damaged
from decentral_dp.simulation.statements.of_job import statement_of
from decentral_dp.tasks.parallel import HERE, Workers
from decentral_dp.topology import names

if TYPE_CHECKING:
    import pandas as pd


def _table(
    left: Sequence[str], right: Sequence[str], rows: Iterable[Sequence[str]] = (), last: Sequence[str] = ()
) -> Table:
    """A table whose first and last columns are words, and whose middle ones are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in left:
        table.add_column(head, overflow="fold")
    for head in right:
        table.add_column(head, justify="right")
    for head in last:
        table.add_column(head)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print(table: Table, remarks: Iterable[str]) -> None:
    """A table, and what has to be known beside it."""
    out = console()
    out.print(table)
    out.print()
    for remark in remarks:
        out.print(Text(f"– {remark}"))


# attack


def print_inference(inference: Inference) -> None:
    """A line for each attack, then the verdict."""
    out, many = console(), len(inference.scores)
    out.print(Text(inference.scenario.title or "Membership inference", style="bold"))
    runs = "one run" if many == 1 else f"{many} runs with fresh noise and splits"
    sizes = inference.scores[0]
    out.print(Text(f"AUC of telling {sizes.members} train records from {sizes.nonmembers} held-out ones, {runs}:"))
    ceilings = [inference.ceiling, *([inference.claimed[2]] if inference.claimed is not None else [])]
    heads = ["AUC" if many == 1 else "mean AUC", "95 % over runs", "ceiling", "ceiling of the claim"]
    table = _table(["attack"], heads[: 2 + len(ceilings)])
    for name, verdict in inference.verdicts.items():
        span = "–" if verdict.interval is None else f"[{verdict.interval.low:.4f}, {verdict.interval.high:.4f}]"
        table.add_row(name, f"{verdict.auc:.4f}", Text(span), *(f"{c:.4f}" for c in ceilings))
    _print(table, sentences(inference))


# audit

# What a status says of a guarantee that does not hold, or of an audit that cannot be believed.
UNSOUND = ("refuted", "broken")


def print_outcome(outcome: AuditResult | Inference | pd.DataFrame, quiet: bool = False) -> bool:
    """Print an audit, an attack or a table of audits, unless quiet. Gives whether nothing was refuted or broken."""
    if isinstance(outcome, AuditResult):
        show: Callable[[Any], None] = print_audit
        sound = outcome.status not in UNSOUND
    elif isinstance(outcome, Inference):
        show, sound = print_inference, not outcome.broken
    else:
        show, sound = print_table, not bool(outcome["status"].isin(UNSOUND).any())
    if not quiet:
        show(outcome)
    return sound


def require_curve(curve: Path, canaries: int | None) -> None:
    """Refuse a file that no trade-off curve is drawn into."""
    if curve.suffix != ".png" or canaries is not None:
        raise InputError(f"--curve: got {curve}, wanted a file that ends in .png, and no --canaries beside it.")
    require_new("--curve", curve)


def audit_one(plan: AuditPlan, scenario: Path, out: Path | None, curve: Path | None, workers: Workers = HERE) -> bool:
    """Carry out an audit, print what is found, and write it where there is a file for it.

    Args:
        plan: what is played.
        scenario: as it was named; a run folder keeps the numbers in its audit.json, in result.json and on its page.
        out: the JSON file instead of these.
        curve: the PNG file for the trade-off curve.
        workers: who makes the runs; default this process.

    Returns:
        Whether nothing was refuted, and the audit is none that is broken.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    check_workers(plan, workers)
    ends = Ends(scenario if out is None and scenario.is_dir() else None, curve)
    file = out if ends.run is None else ends.run / "audit.json"
    if ends.run is not None:
        # What the numbers are added to is read before they are made.
        with refuse_damaged(ends.run, "audit"):
            read_result(ends.run)
    print_plan(plan)
    with ProgressBar("runs", estimate=True) as progress:
        result = play_game(plan, file, progress, workers=workers, ends=ends)
    sound = print_outcome(result)
    for path in itertools.chain([] if file is None else [file], write_ends(result, ends)):
        typer.echo(printable(str(path)))
    return sound


def audit_every(
    runs: int, vantage: str, confidence: float, seed: int, out: Path | None, workers: Workers = HERE
) -> bool:
    """Audit every algorithm without noise, as printed and certified, in few rounds.

    Args:
        runs, vantage, confidence, seed: as of `audit_one`.
        out: a folder for table and figure.
        workers: who makes the audits.

    Returns:
        As `audit_one`.

    Raises:
        InputError: a folder that holds something else.
    """
    if out is not None and not can_resume(out):
        check_writable(out)
    with ProgressBar("audits") as bar:
        table = audit_table(None, runs, vantage, confidence, seed, bar, out, workers)
    sound = print_outcome(table)
    for path in [out / name for name in FILES] if out is not None else []:
        typer.echo(printable(str(path)))
    return sound


def audit_neighbours(runs: int, confidence: float, seed: int, out: Path | None) -> bool:
    """Attack what is claimed and certified of curious neighbours, and print it.

    Args:
        runs, confidence, seed: as of `audit_network`.
        out: a new folder for table and figure.

    Returns:
        Whether no certificate was refuted.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    if out is not None:
        check_writable(out)
    result = audit_network(runs, confidence, seed)
    print_attacks(result)
    if out is not None:
        from decentral_dp.adversaries.network.plots import write_attacks

        out.mkdir(parents=True, exist_ok=True)
        for path in write_attacks(result, out):
            typer.echo(printable(str(path)))
    return result.status not in UNSOUND


def print_attacks(audit: NetworkAudit) -> None:
    """A line for each attack, then the sentences."""
    console().print(Text("What a curious neighbour learns in training", style="bold"))
    heads = ["shown μ", "claimed", "certified", "all seen", "ε"]
    rows = []
    for a in audit.attacks:
        prices = ["–" if np.isnan(mu) else f"{mu:.4f}" for mu in (a.claimed, a.certified, a.everything)]
        shown = at_least_text(a.shown) if a.method == "runs" else f"{a.shown:.4f}"
        rows.append((a.case, shown, *prices, epsilon_text(a.epsilon), a.claim))
    _print(_table(["attack"], heads, rows, ["claim"]), audit.sentences)


def print_plan(plan: AuditPlan) -> None:
    """What is going to be played, and the most that it can show."""
    if plan.canaries is not None:
        job, risk = plan.job, 1.0 - plan.confidence
        gaussian = gaussian_throughout(job)
        guesses = np.ones(plan.canaries)
        most = one_run_bound(guesses, guesses > 0, job.scenario.privacy.delta, risk, gaussian)
        shown = f"at most ε = {epsilon_text(most)}, if all are guessed"
        text = f"One run with {plan.canaries} canaries, which can show {shown}."
        console().print(Text(text))
        return
    text = (
        f"{plan.runs} runs of each of two data sets, seen from {plan.vantage!r}. Counting can show at most "
        f"ε = {epsilon_text(plan.epsilon_limit)} with confidence {100.0 * plan.confidence:g} %; likelihood ratios have "
        "no limit."
    )
    console().print(Text(text))


def print_audit(result: AuditResult) -> None:
    """A line for claimed, certified and shown, then the sentences."""
    out = console()
    out.print(Text(result.title, style="bold"))
    facts = {
        "claimed ε": epsilon_text(result.claimed),
        "certified ε": epsilon_text(result.certified),
        "shown ε": f"{at_least_text(result.shown)} (confidence {100.0 * result.confidence:g} %)",
        "δ": delta_text(result.delta),
        "guarantee": result.privacy,
        "method": result.method,
        "seen from": result.vantage,
    }
    table = _table(["", ""], [], facts.items())
    table.show_header = False
    _print(table, result.sentences)


def print_table(table: pd.DataFrame) -> None:
    """A line for each audit."""
    rows = []
    for row in table.to_dict("records"):
        claimed = None if row["claimed"] != row["claimed"] else float(row["claimed"])
        numbers = (epsilon_text(claimed), epsilon_text(float(row["certified"])), at_least_text(float(row["shown"])))
        rows.append((str(row["scenario"]), str(row["guarantee"]), *numbers, str(row["method"]), str(row["status"])))
    heads = ("claimed", "certified", "shown ε")
    console().print(_table(["scenario", "guarantee"], heads, rows, ["method", "status"]))


# network


def network(
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
    prepared = prepare(job, [[name.strip() for name in text.split(",")] for text in coalitions] or None)
    others = comparisons(loaded, graphs, job.n_agents)
    if graphs and out is None:
        raise InputError("--beside: other graphs are drawn, not printed; give --out DIR as well.")
    if (formats or width is not None) and out is None:
        raise InputError("--format, --width: figures are drawn into a folder; give --out DIR as well.")
    if out is not None:
        check_writable(out)
    with ProgressBar("observers") as progress:
        view = prepared.view(progress)
        views = {name: graph.view(progress) for name, graph in others.items()}
    paths: list[Path] = []
    if out is not None:
        from decentral_dp.adversaries.network.plots import write_pairs

        out.mkdir(parents=True, exist_ok=True)
        view.to_frame().to_parquet(out / "network.parquet", index=False)
        paths = [out / "network.parquet", *write_pairs(view, out, views, ("png", *formats), width)]
    print_view(view, title_of(job), graph_line(topology_summary(job)))
    console().print(Text(f"Every message: {statement_of(job).summary}"))
    for path in paths:
        typer.echo(printable(str(path)))


def comparisons(scenario: Scenario, graphs: Sequence[str], agents: int) -> dict[str, Unpriced]:
    """The same scenario on other graphs, every agent observing alone, ready to be priced. Raises InputError.

    graphs: "torus", "random_regular,degree=4", a network that comes with the package ("karate_club"), or a graph file.
    """
    rows: dict[str, Unpriced] = {}
    for graph in graphs:
        kind, *options = [part.strip() for part in graph.split(",")]
        from_file = kind in names() or Path(kind).suffix != ""
        table: dict[str, Any] = {"file": kind} if from_file else {"kind": kind, "agents": agents}
        for option in options:
            if "=" not in option:
                raise InputError(f"--beside: {quoted(graph)} has {quoted(option)}, wanted KEY=VALUE, as in degree=4.")
            table = assign(table, *parse_change(option))
        content = scenario.model_dump(exclude_unset=True) | {"topology": table}
        try:
            unpriced = prepare(build(load(content, folder=scenario.folder)))
        except InputError as error:
            raise InputError(f"--beside: {quoted(graph)}: {error}") from error
        size = [f"{unpriced.job.n_agents} agents"] if from_file else []
        rows[", ".join([kind.replace("_", " "), *size, *options])] = unpriced
    return rows


def print_view(view: NetworkView, title: str, graph: str) -> None:
    """ε by distance, beside those for every message; and what they rest on. graph: a line about it."""
    out, delta = console(), delta_text(view.delta)
    out.print(Text(title or "Network", style="bold"))
    out.print(Text(f"Graph: {graph}"))
    training = view.linear is not None
    other = "those of linear gossip, which are no bound" if training else "the exact ones in real arithmetic"
    out.print(f"ε of one record at δ = {delta}: the largest certified, and {other}:")
    least = "linear: least" if training else "exact: least"
    table = _table(["observer"], ["links away", "pairs", "certified ε", least, "mean", "largest"])
    groups = [("one agent", slice(None))] if view.observes_single_agents else [
        (view.observer(row), slice(row, row + 1)) for row in range(len(view.pairs.observers))
    ]  # fmt: skip
    for name, rows in groups:
        certified, distance = view.certified[rows], view.distance[rows]
        for links in np.unique(distance[~np.isnan(certified)]):
            there = (distance == links) & ~np.isnan(certified)
            cells = _cells(certified[there], view.reference[rows][there])
            table.add_row(Text(name), str(links), str(there.sum()), *cells)
            name = ""
    table.add_row("every message", "–", str(len(view.labels)), *_cells(view.certified_total, view.epsilon_total))
    _print(table, view.assumptions)


def _cells(certified: Array, exact: Array) -> list[str]:
    """The largest certified ε, and the least, the mean and the largest exact one."""
    return [epsilon_text(float(v)) for v in (certified.max(), exact.min(), exact.mean(), exact.max())]


# check


def check_component(what: str, pairs: int, seed: int, out: Path | None, again: Path | None, rounds: int | None) -> bool:
    """Check it and print a row for each check, or try one kept pair once more. Gives whether nothing failed.

    Raises InputError: nothing is called so, or a file that cannot be written or read.
    """
    if again is not None:
        return _print_again(what, again)
    if out is not None:
        if out.suffix != ".npz":
            raise InputError(f"--out: got {out}, wanted a file that ends in .npz; call it {out.with_suffix('.npz')}.")
        require_new("--out", out)
    with ProgressBar("pairs") as progress:
        result = check(what, pairs, seed, progress, rounds)
    print_check(result)
    if out is not None and result.case is not None:
        save_case(result, out)
        console().print(Text(str(out)))
    if result.passed:
        for path, components in result.files.items():
            label = result.label_of(components)
            if label is None:
                console().print(Text(f"{path.name} gets no label: nothing of it ({', '.join(components)}) was tried."))
                continue
            console().print(Text(f"{keep_label(path, label)} lets pages say so, until {path.name} is changed: {label}"))
    return result.passed


def print_check(result: CheckResult) -> None:
    """A row for each check, the sentences of those that failed, and what may be said now."""
    out = console()
    out.print(Text(f"{result.subject}: {result.label}", style="bold"))
    rows = [(r.name, r.tried, str(r.pairs) if r.pairs else "–", _ratio(r), r.verdict) for r in result.rows]
    remarks = [f"{row.name}: {row.why}" for row in result.rows if row.why]
    if result.case is not None:
        remarks.append("A pair of data sets shows it; --out FILE.npz keeps it, and --again FILE.npz tries it again.")
    remarks.append("A check that passes found nothing on made-up records, and proves nothing.")
    _print(_table(["check", "what was tried"], ["pairs", "moved / sensitivity"], rows, ["verdict"]), remarks)


def _ratio(row: CheckRow) -> str:
    if row.ratio is None:
        return "–"
    return f"{row.ratio:.6g}" if np.isfinite(row.ratio) else "∞"


def _print_again(what: str, file: Path) -> bool:
    """Say whether the pair of a file still shows a failure."""
    out, shown = console(), repeat_case(what, file)
    worst = shown.worst_change
    if worst is not None:
        out.print(
            Text(
                f"{what}: {worst.channel} in round {worst.round} moves farthest: by {worst.distance:.6g}, "
                f"and {worst.sensitivity:.6g} is stated."
            )
        )
    if shown.refusal_text:
        out.print(Text(shown.refusal_text))
    passed = not shown.refusal_text and (worst is None or worst.is_within)
    out.print(Text("This pair shows no failure." if passed else "This pair shows a failure."))
    return passed
