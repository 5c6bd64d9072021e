"""The command `audit`: what it prints, and where it writes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.audit.audit import play, write_ends
from decentral_dp.adversaries.audit.one_run import gaussian_throughout, one_run_bound
from decentral_dp.adversaries.audit.plan import AuditPlan, Ends, planned
from decentral_dp.adversaries.audit.result import AuditResult
from decentral_dp.adversaries.audit.runs import check_workers
from decentral_dp.adversaries.audit.tables import FILES, audit_table, can_go_on
from decentral_dp.bounded import Array
from decentral_dp.cli.attack import require_new
from decentral_dp.cli.progress import ProgressBar
from decentral_dp.errors import InputError, printable
from decentral_dp.formatting import at_least_text, delta_text, epsilon_text
from decentral_dp.simulation.plan import console
from decentral_dp.simulation.result import as_written, read_result
from decentral_dp.tasks.parallel import HERE, Workers

if TYPE_CHECKING:
    import pandas as pd

# What a status says of a guarantee that does not hold, or of an audit that cannot be believed.
UNSOUND = ("refuted", "broken")


def audit_one(
    scenario: str,
    runs: int,
    vantage: str,
    confidence: float,
    seed: int,
    out: Path | None,
    overrides: Sequence[str],
    canaries: int | None = None,
    curve: Path | None = None,
    workers: Workers = HERE,
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
        canaries: in one run; None plays two worlds.
        curve: the PNG file for the trade-off curve.
        workers: who makes the runs; default this process.

    Returns:
        Whether nothing was refuted, and the audit is none that is broken.

    Raises:
        InputError: one sentence about whatever does not fit.

    Limits:
        Of a run folder, and without `out`, result.json and the page get the numbers, too.
    """
    if curve is not None:
        if curve.suffix != ".png" or canaries is not None:
            raise InputError(f"--curve: got {curve}, wanted a file that ends in .png, and no --canaries beside it.")
        require_new(curve)
    asked = planned(scenario, runs, vantage, confidence, seed, overrides, canaries, curve is not None)
    check_workers(asked, workers)
    file = written_to(scenario, out)
    ends = Ends(Path(scenario) if out is None and Path(scenario).is_dir() else None, curve)
    if ends.run is not None:
        # What the numbers are added to is read before they are made.
        with as_written(ends.run, "audit"):
            read_result(ends.run)
    print_plan(asked)
    with ProgressBar("runs", told=True) as progress:
        found = play(asked, file, progress, workers=workers, ends=ends)
    print_audit(found)
    for path in itertools.chain([] if file is None else [file], write_ends(found, ends)):
        typer.echo(printable(str(path)))
    return found.status not in UNSOUND


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
    if out is not None:
        require_free(out)
    with ProgressBar("audits") as bar:
        table = audit_table(None, runs, vantage, confidence, seed, bar, out, workers)
    print_table(table)
    for path in [out / name for name in FILES] if out is not None else []:
        typer.echo(printable(str(path)))
    return not bool(table["status"].isin(UNSOUND).any())


def written_to(scenario: str, out: Path | None) -> Path | None:
    """The file for the numbers: of a run folder audit.json in it, unless another is given."""
    return out if out is not None or not Path(scenario).is_dir() else Path(scenario) / "audit.json"


def require_free(folder: Path) -> None:
    """Refuse a folder that holds anything but such a table, finished or not."""
    if not can_go_on(folder):
        raise InputError(f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder.")


def print_plan(plan: AuditPlan) -> None:
    """What is going to be played, and the most that it can show."""
    if plan.canaries is not None:
        job, risk = plan.job, 1.0 - plan.confidence
        gaussian = gaussian_throughout(job)
        most = one_run_bound(*_all_right(plan.canaries), job.scenario.privacy.delta, risk, gaussian)
        shown = f"at most ε = {epsilon_text(most)}, if all are guessed"
        text = f"One run with {plan.canaries} canaries, which can show {shown}."
        console().print(Text(text))
        return
    text = (
        f"{plan.runs} runs of each of two worlds, seen from {plan.vantage!r}. Counting can show at most "
        f"ε = {epsilon_text(plan.most_shown)} with confidence {100.0 * plan.confidence:g} %; likelihood ratios have "
        "no limit."
    )
    console().print(Text(text))


def _all_right(canaries: int) -> tuple[Array, NDArray[np.bool_]]:
    return np.ones(canaries), np.ones(canaries, dtype=bool)


def print_audit(found: AuditResult) -> None:
    """A line for claimed, certified and shown, then the sentences."""
    out = console()
    out.print(Text(found.title, style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for name, value in (
        ("claimed ε", epsilon_text(found.claimed)),
        ("certified ε", epsilon_text(found.certified)),
        ("shown ε", f"{at_least_text(found.shown)} (confidence {100.0 * found.confidence:g} %)"),
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
    """A line for each audit."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    drawn.add_column("scenario", overflow="fold")
    for head in ("guarantee", "claimed", "certified", "shown ε", "method", "status"):
        drawn.add_column(head, justify="left" if head in ("guarantee", "method", "status") else "right")
    for row in table.to_dict("records"):
        claimed = None if row["claimed"] != row["claimed"] else float(row["claimed"])
        numbers = (epsilon_text(claimed), epsilon_text(float(row["certified"])), at_least_text(float(row["shown"])))
        names = (str(row["scenario"]), str(row["guarantee"]))
        drawn.add_row(*names, *numbers, str(row["method"]), str(row["status"]))
    console().print(drawn)
