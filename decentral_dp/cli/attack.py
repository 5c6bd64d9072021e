"""The command `attack`: what it prints."""

from __future__ import annotations

import os
from pathlib import Path

from rich.table import Table
from rich.text import Text

from decentral_dp.adversaries.attack.attack import Inference, sentences
from decentral_dp.errors import InputError
from decentral_dp.simulation.plan import console


def require_new(out: Path) -> None:
    """Refuse, before anything is run, a file that is there or has no folder to go to."""
    if os.path.lexists(out):
        raise InputError(f"--out: {out} exists already, and nothing is written over; give another file.")
    if not out.parent.is_dir():
        raise InputError(f"--out: there is no folder {out.parent}; make it, or give a file in another.")


def print_inference(found: Inference) -> None:
    """A line for each attack, then the verdict."""
    out, many = console(), len(found.each)
    out.print(Text(found.scenario.title or "Membership inference", style="bold"))
    runs = "one run" if many == 1 else f"{many} runs with fresh noise and splits"
    sizes = found.each[0]
    out.print(Text(f"AUC of telling {sizes.members} train records from {sizes.others} held-out ones, {runs}:"))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("attack")
    heads = ["AUC" if many == 1 else "mean AUC", "95 % over runs", "ceiling"]
    heads += ["ceiling of the claim"] if found.claimed is not None else []
    for head in heads:
        table.add_column(head, justify="right")
    for name, verdict in found.verdicts.items():
        span = "–" if verdict.interval is None else f"[{verdict.interval.low:.4f}, {verdict.interval.high:.4f}]"
        ceilings = [found.ceiling, *([found.claimed[2]] if found.claimed is not None else [])]
        table.add_row(name, f"{verdict.auc:.4f}", span, *(f"{c:.4f}" for c in ceilings))
    out.print(table)
    out.print()
    for sentence in sentences(found):
        out.print(Text(f"– {sentence}"))
