"""Commands that take an adversary's side: network, attack, audit, check. Heavy imports wait."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from decentral_dp.cli.arguments import Name, PictureFormat, Set
from decentral_dp.errors import InputError, printable


def network(
    scenario: Name,
    out: Annotated[Path | None, typer.Option(help="Folder for network.parquet and the figures.")] = None,
    coalition: Annotated[
        list[str] | None, typer.Option(metavar="AGENTS", help="Agents that pool what they see, e.g. 0,3; repeatable.")
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GRAPH",
            help="Another graph to draw beside it: torus, random_regular,degree=4, karate_club, or a file; repeatable.",
        ),
    ] = None,
    formats: Annotated[
        list[PictureFormat] | None,
        typer.Option("--format", help="Also as svg or pdf, beside png; repeatable."),
    ] = None,
    width: Annotated[
        float | None,
        typer.Option(
            min=2.0, max=20.0, metavar="INCHES", help="Of each figure, in a paper's letters; 3.3 is a column."
        ),
    ] = None,
    override: Set = None,
) -> None:
    """Print what a curious agent learns of the others' records from its neighbours' messages alone."""
    from decentral_dp.cli import network_command as inside

    inside.carry_out(
        scenario, override or [], out, coalition or [], beside or [], [f.value for f in formats or []], width
    )


def attack(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder; or several of one scenario.")],
    runs: Annotated[
        int, typer.Option(min=1, help="Runs in all, the given ones among them; an interval needs several.")
    ] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON file for all numbers.")] = None,
) -> None:
    """Try to tell a run's train records from held-out ones by what it published, beside the AUC that its ε allows.

    The scenario is run again with fresh noise and another split, for an interval over runs. The run folder stays as
    it is. Interrupted with --out, "decentral-dp resume FILE" goes on. Exit code 1 where an attack does better than the
    certificate allows.
    """
    from decentral_dp.adversaries.attack.attack import infer, write
    from decentral_dp.cli import attack_command as inside
    from decentral_dp.cli.progress import ProgressBar

    with ProgressBar("runs", told=True) as progress:
        found = infer(folders, runs, progress, out)
    inside.print_inference(found)
    if out is not None:
        write(found, folders, out)
        typer.echo(printable(str(out)))
    if found.broken:
        raise typer.Exit(1)


def audit(
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="SCENARIO_OR_RUN", help="A shipped scenario's name, a scenario file, or a run folder."),
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs of each of the two worlds, at least 20.")] = 200,
    vantage: Annotated[str, typer.Option(metavar="WHO", help="everybody, published, or agent:K.")] = "everybody",
    confidence: Annotated[float, typer.Option(help="Of what is shown.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise of these runs.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file for all numbers; of a run audit.json in its folder.")
    ] = None,
    override: Set = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Every algorithm without noise, as printed and certified; --out is a folder then."),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default this one, and with --all one per core.")
    ] = None,
    address: Annotated[str | None, typer.Option(help='A Ray cluster to use: "auto" or "host:port".')] = None,
    canaries: Annotated[
        int | None, typer.Option(help="One run, in which so many records are canaries with a coin for a label.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the trade-off curve that the runs show, too.")
    ] = None,
) -> None:
    """Show a lower bound on what a scenario tells of one record, beside the ε that is certified, and the claimed one.

    Two worlds that differ in one record are run with the scenario's own noise, and an attack tells them apart. The same
    is tried on two equal worlds, where it must fail. Interrupted with --out, "decentral-dp resume FILE" goes on. Exit
    code 1 where more is shown than is certified, or where the audit itself is broken.
    """
    from decentral_dp.adversaries.audit.runs import Workers
    from decentral_dp.cli import audit_command as inside
    from decentral_dp.engines.task_pool import cores

    if every == (scenario is not None):
        raise InputError("audit: give a scenario or a run folder, or --all without either.")
    if scenario is None:
        if override:
            raise InputError("--set: --all audits scenarios as they are shipped; audit one by its name to change it.")
        sound = inside.audit_every(runs, vantage, confidence, seed, out, Workers(jobs or cores(), address))
    else:
        workers = Workers(jobs or 1, address)
        given = (scenario, runs, vantage, confidence, seed, out, override or [], canaries, curve)
        sound = inside.audit_one(*given, workers)
    if not sound:
        raise typer.Exit(1)


def check(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_KIND",
            help="An algorithm or a problem, file.py:Name, an entry point, or a scenario: then all that it names.",
        ),
    ],
    pairs: Annotated[int, typer.Option(min=1, help="Pairs of neighbouring data sets that the search tries.")] = 64,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help=".npz file for a pair that shows a failure.")] = None,
    again: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Try only the pair of such a file, once more.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds that are tried, from the first on; by default what takes seconds.")
    ] = None,
) -> None:
    """Try what a component must keep, on made-up records, and search for a record that moves more than is stated.

    What passes is checked, never proved. Exit code 1 where a check fails.
    """
    from decentral_dp.cli import check_command as inside

    if not inside.carry_out(what, pairs, seed, out, again, rounds):
        raise typer.Exit(1)
