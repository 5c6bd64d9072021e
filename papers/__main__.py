"""Run experiments on published claims: `python -m papers e5 --quick`, or `all`. Without a name, list them.

`python -m papers published_epsilon --out FOLDER` compares published ε with certified ε and empirical lower bounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from decentral_dp.errors import InputError
from decentral_dp.reporting.terminal import console
from papers import EXPERIMENTS, resolve_name, run
from papers.findings import Finding, short

_ALL, _PUBLISHED = "all", "published_epsilon"


def select_names(names: Sequence[str]) -> list[str]:
    """Return the selected experiments in the order of `EXPERIMENTS`, without duplicates. No names select all.

    Args:
        names: names or aliases.

    Raises:
        InputError: there is no such experiment.
    """
    selected = {resolve_name(name) for name in names}
    return [name for name in EXPERIMENTS if not names or name in selected]


def run_all(names: Sequence[str], seed: int, quick: bool, out: Path | None) -> Iterator[Finding]:
    """Run experiments in turn, print each result, and write it into a folder.

    Args:
        names: names of experiments.
        seed, quick: see `papers.run`.
        out: output folder; None writes nothing.

    Raises:
        InputError: see `papers.run`.
    """
    for name in names:
        finding = run(name, seed, quick)
        print_finding(finding, quick)
        if out is not None:
            for path in write_finding(finding, out):
                console().print(Text(str(path)), soft_wrap=True)
        yield finding


def print_finding(finding: Finding, quick: bool) -> None:
    """Print the measurements of each panel, then each claim with its verdict.

    Args:
        finding: result of `papers.run`.
        quick: whether the result comes from a quick run.
    """
    out = console()
    out.print()
    details = f"{finding.name}{', quick' if quick else ''}, {finding.seconds:.1f} s"
    out.print(Text(finding.title, style="bold"), Text(f"({details})"))
    out.print(Text(f"{finding.source}: {EXPERIMENTS[finding.name].claim}"))
    for panel, rows in finding.rows.groupby("panel", sort=False):
        out.print()
        out.print(Text(f"{panel}: {' or '.join(dict.fromkeys(rows['measure']))}"))
        out.print(_table_of_means(rows))
    out.print()
    for check in finding.checks:
        out.print(Text(f"{check.verdict}:", style="bold"), Text(check.statement))
        out.print(Text(f"    {check.comparison}"))
    for sentence in finding.sentences:
        out.print(Text(f"– {sentence}"))


def _table_of_means(rows: pd.DataFrame) -> Table:
    """Format the means over repetitions in one panel: one line for each series, one column for each point."""
    means = rows.pivot_table("value", "series", "point", "mean", sort=False).sort_index(axis=1)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(Text(str(rows["axis"].iloc[0])))
    for point in means.columns.to_numpy(dtype=np.float64):
        table.add_column(short(point), justify="right")
    for series, numbers in zip(means.index, means.to_numpy(), strict=True):
        table.add_row(Text(str(series)), *("–" if np.isnan(v) else short(v) for v in numbers))
    return table


def write_finding(finding: Finding, folder: Path) -> list[Path]:
    """Write NAME.parquet, with one row for each measurement, and NAME.png.

    Args:
        finding: result of `papers.run`.
        folder: output folder.

    Returns:
        Paths of both files.
    """
    from papers import experiment_plots

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{finding.name}.parquet"
    finding.rows.to_parquet(table, index=False)
    return [table, experiment_plots.write_finding(finding, folder / f"{finding.name}.png")]


def check_output_folder(names: Sequence[str], folder: Path) -> None:
    """Reject a folder in which results would be overwritten.

    Args:
        names: names of experiments.
        folder: output folder.

    Raises:
        InputError: the path is not a folder, or it contains a result of one of the experiments.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"--out: not a folder (got {folder}). Fix: give a folder, which is created if it is missing.")
    for path in (folder / f"{name}.{ending}" for name in names for ending in ("parquet", "png")):
        if path.exists():
            raise InputError(f"--out: {path} already exists and would be overwritten. Fix: give another folder.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments that the arguments name, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"an experiment, {_ALL} or {_PUBLISHED}")
    parser.add_argument("--seed", type=int, default=0, help="public seed of synthetic data and noise")
    parser.add_argument("--quick", action="store_true", help="use fewer points and repetitions (faster)")
    parser.add_argument("--out", type=Path, help="folder for a table and a figure of each experiment")
    options = parser.parse_args(arguments)
    try:
        if not options.names:
            for name, entry in EXPERIMENTS.items():
                console().print(Text(f"{entry.alias:<4} {name}: {entry.title}. {entry.claim}"), soft_wrap=True)
        elif options.names == [_PUBLISHED]:
            from papers import published_report

            published_report.write_report(options.out or Path("runs") / _PUBLISHED)
        else:
            names = select_names([] if options.names == [_ALL] else options.names)
            if options.out is not None:
                check_output_folder(names, options.out)
            findings = list(run_all(names, options.seed, options.quick, options.out))
            if len(findings) > 1:
                print_summary(findings)
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def print_summary(findings: Sequence[Finding]) -> None:
    """Print one line for each experiment.

    Args:
        findings: results of `papers.run`.
    """
    out = console()
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("", "experiment", "verdict"):
        table.add_column(head)
    for finding in findings:
        table.add_row(EXPERIMENTS[finding.name].alias, Text(finding.title), Text(finding.verdict))
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
