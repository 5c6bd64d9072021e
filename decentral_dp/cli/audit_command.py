"""The command `audit`: what it prints, and where it writes."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.audits import AuditPlan, AuditResult
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.simulation.plan_text import console


def written_to(scenario: str, out: Path | None) -> Path | None:
    """The file for the numbers: of a run folder audit.json in it, unless another is given."""
    return out if out is not None or not Path(scenario).is_dir() else Path(scenario) / "audit.json"


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
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in (
        "claimed ε",
        "certified ε",
        "shown ε",
        "δ",
        "confidence",
        "method",
        "seen from",
        "runs",
        "equal worlds",
    ):
        table.add_column(head, justify="left" if head in ("method", "seen from") else "right")
    table.add_row(
        epsilon_text(found.claimed),
        epsilon_text(found.certified),
        shown_text(found.shown),
        delta_text(found.delta),
        f"{100.0 * found.confidence:g} %",
        found.method,
        found.vantage,
    )
    out.print(table)
    out.print()
    for sentence in found.sentences:
        out.print(Text(f"– {sentence}"))


def shown_text(value: float) -> str:
    """ "≥ 3.99": a lower bound, rounded down."""
    if value == float("inf"):
        return "∞"
    return "≥ 0" if value <= 0.0 else f"≥ {int(value * 100.0) / 100.0:.2f}"
