"""The command `check`: what it prints and what it writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.check.check import again, check
from decentral_dp.adversaries.check.result import CheckResult, CheckRow, save_case
from decentral_dp.cli.attack import require_new
from decentral_dp.cli.progress import ProgressBar
from decentral_dp.config.checked_files import keep_label
from decentral_dp.errors import InputError
from decentral_dp.simulation.plan import console


def carry_out(what: str, pairs: int, seed: int, out: Path | None, kept: Path | None, rounds: int | None) -> bool:
    """Check it and print a row for each check, or try one kept pair once more. Gives whether nothing failed."""
    if kept is not None:
        return _print_again(what, kept)
    if out is not None:
        if out.suffix != ".npz":
            raise InputError(f"--out: got {out}, wanted a file that ends in .npz; call it {out.with_suffix('.npz')}.")
        require_new(out)
    with ProgressBar("pairs") as progress:
        found = check(what, pairs, seed, progress, rounds)
    print_check(found)
    if out is not None and found.case is not None:
        save_case(found, out)
        console().print(Text(str(out)))
    if found.passed:
        for path, components in found.files.items():
            label = found.label_of(components)
            if label is None:
                console().print(Text(f"{path.name} gets no label: nothing of it ({', '.join(components)}) was tried."))
                continue
            console().print(Text(f"{keep_label(path, label)} lets pages say so, until {path.name} is changed: {label}"))
    return found.passed


def print_check(found: CheckResult) -> None:
    """A row for each check, the sentences of those that failed, and what may be said now."""
    out = console()
    out.print(Text(f"{found.subject}: {found.label}", style="bold"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("check", "what was tried"):
        table.add_column(head)
    for head in ("pairs", "moved / sensitivity"):
        table.add_column(head, justify="right")
    table.add_column("verdict")
    for row in found.rows:
        table.add_row(row.name, row.tried, str(row.pairs) if row.pairs else "–", _ratio(row), row.verdict)
    out.print(table)
    out.print()
    for row in found.rows:
        if row.why:
            out.print(Text(f"– {row.name}: {row.why}"))
    if found.case is not None:
        out.print(Text("– A pair of data sets shows it; --out FILE.npz keeps it, and --again FILE.npz tries it again."))
    out.print(Text("– A check that passes found nothing on made-up records, and proves nothing."))


def _ratio(row: CheckRow) -> str:
    if row.ratio is None:
        return "–"
    return f"{row.ratio:.6g}" if np.isfinite(row.ratio) else "∞"


def _print_again(what: str, kept: Path) -> bool:
    """Say whether the pair of a file still shows a failure."""
    out, shown = console(), again(what, kept)
    worst = shown.worst
    if worst is not None:
        out.print(
            Text(
                f"{what}: {worst.channel} in round {worst.round} moves farthest: by {worst.distance:.6g}, "
                f"and {worst.sensitivity:.6g} is stated."
            )
        )
    if shown.refused:
        out.print(Text(shown.refused))
    passed = not shown.refused and (worst is None or worst.within)
    out.print(Text("This pair shows no failure." if passed else "This pair shows a failure."))
    return passed
