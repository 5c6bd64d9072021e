"""The command `audit`: what it prints, and where it writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.audit_result import AuditResult
from decentral_dp.adversaries.audit_tables import audit_table, write_table
from decentral_dp.adversaries.audits import AuditPlan, planned, play
from decentral_dp.cli.progress import ProgressBar
from decentral_dp.errors import InputError, printable
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.simulation.plan_text import console

if TYPE_CHECKING:
    import pandas as pd


# What a status says of a guarantee that does not hold, or of an audit that cannot be believed.
_UNSOUND = ("refuted", "broken")


def audit_one(
    scenario: str, runs: int, vantage: str, confidence: float, seed: int, out: Path | None, overrides: Sequence[str]
) -> bool:
    """Audit a scenario or a run folder, print what is found, and write it where there is a file for it.

    Args:
        scenario: a shipped scenario's name, a scenario file, or a run folder.
        runs: of each world, and so on up to `seed` as of `audits.audit`.
        vantage: who attacks.
        confidence: of what is shown.
        seed: of the noise of these runs.
        out: the JSON file; of a run folder audit.json in it by default.
        overrides: "table.key=value".

    Returns:
        Whether nothing was refuted, and the audit is none that is broken.

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    asked = planned(scenario, runs, vantage, confidence, seed, overrides)
    file = written_to(scenario, out)
    print_plan(asked)
    with ProgressBar("runs") as progress:
        found = play(asked, file, progress)
    print_audit(found)
    if file is not None:
        typer.echo(printable(str(file)))
    return found.status not in _UNSOUND


def audit_every(runs: int, vantage: str, confidence: float, seed: int, out: Path | None) -> bool:
    """Audit every algorithm's own scenario, of few rounds; arguments and result as of `audit_one`, `out` a folder."""
    if out is not None:
        require_free(out)
    with ProgressBar("scenarios") as bar:
        table = audit_table(None, runs, vantage, confidence, seed, bar, out)
    print_table(table)
    for path in write_table(table, out) if out is not None else []:
        typer.echo(printable(str(path)))
    return not bool(table["status"].isin(_UNSOUND).any())


def written_to(scenario: str, out: Path | None) -> Path | None:
    """The file for the numbers: of a run folder audit.json in it, unless another is given."""
    return out if out is not None or not Path(scenario).is_dir() else Path(scenario) / "audit.json"


def require_free(folder: Path) -> None:
    """Refuse a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder.")


def print_plan(plan: AuditPlan) -> None:
    """What is going to be played, and the most that it can show."""
    text = (
        f"{plan.runs} runs of each of two worlds, seen from {plan.vantage!r}. Counting can show at most "
        f"ε = {plan.most_shown:.3g} with confidence {100.0 * plan.confidence:g} %; likelihood ratios have no limit."
    )
    console().print(Text(text))


def print_audit(found: AuditResult) -> None:
    """A line for claimed, certified and shown, then the sentences."""
    out = console()
    out.print(Text(found.title, style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for name, value in (
        ("claimed ε", epsilon_text(found.claimed)),
        ("certified ε", epsilon_text(found.certified)),
        ("shown ε", f"{shown_text(found.shown)} (confidence {100.0 * found.confidence:g} %)"),
        ("δ", delta_text(found.delta)),
        ("method", found.method),
        ("seen from", found.vantage),
    ):
        table.add_row(name, value)
    out.print(table)
    out.print()
    for sentence in found.sentences:
        out.print(Text(f"– {sentence}"))


def print_table(table: pd.DataFrame) -> None:
    """A line for each scenario."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    drawn.add_column("scenario", overflow="fold")
    for head in ("claimed", "certified", "shown ε", "method", "status"):
        drawn.add_column(head, justify="left" if head in ("method", "status") else "right")
    for row in table.to_dict("records"):
        claimed = None if row["claimed"] != row["claimed"] else float(row["claimed"])
        numbers = (epsilon_text(claimed), epsilon_text(float(row["certified"])), shown_text(float(row["shown"])))
        drawn.add_row(str(row["scenario"]), *numbers, str(row["method"]), str(row["status"]))
    console().print(drawn)


def shown_text(value: float) -> str:
    """ "≥ 3.99": a lower bound, rounded down."""
    if value == float("inf"):
        return "∞"
    return "≥ 0" if value <= 0.0 else f"≥ {int(value * 100.0) / 100.0:.2f}"
