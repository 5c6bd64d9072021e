"""Experiments on published claims: `python -m papers e5 --quick`, or `all`; without a name it lists them.

`python -m papers printed_epsilon --out FOLDER` compares published ε with certified and empirical ones.
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
from papers import EXPERIMENTS, name_of, run
from papers.findings import Finding, short

_ALL, _PUBLISHED = "all", "printed_epsilon"


def chosen(names: Sequence[str]) -> list[str]:
    """The experiments of these names or aliases, each once, in the order of the catalogue; all where there are none.

    Raises InputError for an unknown name.
    """
    wanted = {name_of(name) for name in names}
    return [name for name in EXPERIMENTS if not names or name in wanted]


def carry_out(names: Sequence[str], seed: int, quick: bool, out: Path | None) -> Iterator[Finding]:
    """Run experiments in turn, print each result, and write it into a folder.

    Args:
        names: names of experiments.
        seed, quick: see `papers.run`.
        out: the folder; None writes nothing.

    Raises:
        InputError: as `papers.run`.
    """
    for name in names:
        finding = run(name, seed, quick)
        print_finding(finding, quick)
        if out is not None:
            for path in write_finding(finding, out):
                console().print(Text(str(path)), soft_wrap=True)
        yield finding


def print_finding(finding: Finding, quick: bool) -> None:
    """Print the numbers, panel by panel, then every claim with its verdict.

    Args:
        finding: see `papers.run`.
        quick: whether to say that it was a quick one.
    """
    out = console()
    out.print()
    how = f"{finding.name}{', quick' if quick else ''}, {finding.seconds:.1f} s"
    out.print(Text(finding.title, style="bold"), Text(f"({how})"))
    out.print(Text(f"{finding.source}: {EXPERIMENTS[finding.name].claim}"))
    for panel, rows in finding.rows.groupby("panel", sort=False):
        out.print()
        out.print(Text(f"{panel}: {' or '.join(dict.fromkeys(rows['measure']))}"))
        out.print(_numbers(rows))
    out.print()
    for check in finding.checks:
        out.print(Text(f"{check.words}:", style="bold"), Text(check.statement))
        out.print(Text(f"    {check.numbers}"))
    for sentence in finding.sentences:
        out.print(Text(f"– {sentence}"))


def _numbers(rows: pd.DataFrame) -> Table:
    """Means over repetitions in one panel: a line for each series, a column for each point."""
    means = rows.pivot_table("value", "series", "at", "mean", sort=False).sort_index(axis=1)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(Text(str(rows["axis"].iloc[0])))
    for at in means.columns.to_numpy(dtype=np.float64):
        table.add_column(short(at), justify="right")
    for series, numbers in zip(means.index, means.to_numpy(), strict=True):
        table.add_row(Text(str(series)), *("–" if np.isnan(v) else short(v) for v in numbers))
    return table


def write_finding(finding: Finding, folder: Path) -> list[Path]:
    """Write NAME.parquet, a row for each measured number, and NAME.png.

    Args:
        finding: see `papers.run`.
        folder: where to.

    Returns:
        Both paths.
    """
    from papers import experiment_plots as pictures

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{finding.name}.parquet"
    finding.rows.to_parquet(table, index=False)
    return [table, pictures.write_finding(finding, folder / f"{finding.name}.png")]


def require_free(names: Sequence[str], folder: Path) -> None:
    """Refuse a folder in which something would be written over.

    Args:
        names: names of experiments.
        folder: where to.

    Raises:
        InputError: there is a file of one of them.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"--out: {folder} is no folder; give one, which is made where there is none.")
    for path in (folder / f"{name}.{ending}" for name in names for ending in ("parquet", "png")):
        if path.exists():
            raise InputError(f"--out: {path} exists already, and nothing is written over; give another folder.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"an experiment, {_ALL}, or {_PUBLISHED}")
    parser.add_argument("--seed", type=int, default=0, help="of synthetic data and of noise")
    parser.add_argument("--quick", action="store_true", help="fewer points and repetitions: seconds, wider intervals")
    parser.add_argument("--out", type=Path, help="folder for a table and a figure of each")
    options = parser.parse_args(arguments)
    try:
        if not options.names:
            for name, entry in EXPERIMENTS.items():
                console().print(Text(f"{entry.alias:<4} {name}: {entry.title}. {entry.claim}"), soft_wrap=True)
        elif options.names == [_PUBLISHED]:
            from papers import printed_report

            printed_report.conduct(options.out or Path("runs") / _PUBLISHED)
        else:
            names = chosen([] if options.names == [_ALL] else options.names)
            if options.out is not None:
                require_free(names, options.out)
            findings = list(carry_out(names, options.seed, options.quick, options.out))
            if len(findings) > 1:
                print_summary(findings)
    except InputError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


def print_summary(findings: Sequence[Finding]) -> None:
    """Print one line for each of several experiments.

    Args:
        findings: see `papers.run`.
    """
    out = console()
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for head in ("", "experiment", "verdict"):
        table.add_column(head)
    for finding in findings:
        table.add_row(EXPERIMENTS[finding.name].alias, Text(finding.title), Text(finding.words))
    out.print(table)


if __name__ == "__main__":
    sys.exit(main())
