"""The command `shards`: it writes what every agent has, and says what to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from decentral_dp.errors import printable
from decentral_dp.simulation.folder.shards import MANIFEST, SCENARIO, write_shards


def carry_out(scenario: str, out: Path, overrides: Sequence[str]) -> None:
    """Write the shards of a scenario.

    Args:
        scenario: a shipped name, or a file.
        out: new or empty folder.
        overrides: "table.key=value".

    Raises:
        InputError: one sentence about whatever does not fit.
    """
    written = write_shards(scenario, out, overrides)
    typer.echo(printable(f"{len(written) - 2} files of agents, {MANIFEST} and {SCENARIO} are in {out}."))
    typer.echo(printable(f"To run on them: decentral-dp run {out / SCENARIO}"))
    typer.echo(
        "On a cluster put every file where its agent runs, give its place there as problem.data, and pin agents with "
        "run.place. The driver needs the scenario and the manifest alone."
    )
