"""The command `audit`: what it prints, and where it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.audit_result import AuditResult
from decentral_dp.adversaries.audits import AuditPlan
from decentral_dp.errors import InputError
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.simulation.plan_text import console

if TYPE_CHECKING:
    import pandas as pd


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
