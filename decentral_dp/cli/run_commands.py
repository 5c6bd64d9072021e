"""Commands on single runs: run, resume, plan, report, compare. Heavy imports wait."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decentral_dp.cli.arguments import Name, PictureFormat, Set, Unset
from decentral_dp.errors import InputError, printable, readable

if TYPE_CHECKING:
    from decentral_dp.simulation.runner import Run

Log = Annotated[
    str | None,
    typer.Option(metavar="jsonl|FILE.jsonl", help="A JSON object a line of progress, on stderr or added to a file."),
]


def run(
    scenario: Name,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; runs/NAME by default, with what --set changes.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or ray; overrides run.engine.")] = None,
    override: Set = None,
    unset: Unset = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
    forget_secret: Annotated[
        bool, typer.Option("--forget-secret", help="Never write secret noise's root down: no resume after a crash.")
    ] = False,
    log: Log = None,
) -> None:
    """Run a scenario and write its run folder: metrics, ledger, result, plots and report.

    What may have been released is on record before it is. A run that is cut off goes on with "decentral-dp resume".
    """
    import json

    from decentral_dp.cli.run_log import ON_STDERR, opened
    from decentral_dp.cli.run_names import run_name
    from decentral_dp.cli.summary import Progress
    from decentral_dp.config.loading import load
    from decentral_dp.simulation import runner
    from decentral_dp.simulation.events import Events
    from decentral_dp.simulation.folder import layout

    overrides = [*(override or []), *([f"run.engine={json.dumps(engine)}"] if engine is not None else [])]
    loaded = load(scenario, overrides, unset=unset or ())
    changed = [*(f"{key}=null" for key in unset or ()), *overrides]
    with (
        layout.new_folder(out, run_name(Path(scenario).stem, changed)) as folder,
        opened(log) as logs,
        Progress(quiet or log == ON_STDERR) as bar,
    ):
        finished = runner.run(loaded, out=folder, progress=Events([bar, *logs]), keep_secret=not forget_secret)
        for one in logs:
            one.ended(finished)
    _end(finished, quiet)


def _end(finished: Run, quiet: bool) -> None:
    """Print a run, and exit with 1 where it diverged, which is said even where nothing else is."""
    from decentral_dp.cli.summary import print_run

    if not quiet:
        print_run(finished)
    if finished.result.has_diverged:
        if quiet:
            typer.echo(readable(f"The run diverged: {finished.result.reason} See {finished.folder}."), err=True)
        raise typer.Exit(1)


def resume(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Of a run or a study that was cut off; or the file of an audit or attack."
        ),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds in all, more than planned: priced first, with the same noise.")
    ] = None,
    charge_again: Annotated[
        bool, typer.Option("--charge-again", help="Pay once more for what was in flight, after --forget-secret.")
    ] = False,
    log: Log = None,
) -> None:
    """Go on with what was interrupted, killed, or stopped by a full disk: a run, a study, an audit, an attack.

    A run goes on from its last state on disk; finished cells of a study, and runs of an audit or attack, are kept. What
    a run released after that state is released again with the same draws: the same values, and no second release.
    Where --forget-secret has lost the draws, it is a second release, which is charged if you agree to its price.
    """
    from decentral_dp.resumption.begun import Kind, begun_in
    from decentral_dp.resumption.resume import refuse_for_others

    begun = begun_in(folder)
    if begun.kind is not Kind.RUN:
        from decentral_dp.cli.resume_command import go_on

        given = {"--rounds": rounds, "--charge-again": charge_again or None, "--log": log}
        refuse_for_others(begun.kind, begun.place, [name for name, value in given.items() if value is not None])
        if not go_on(begun, quiet):
            raise typer.Exit(1)
        return

    from decentral_dp.cli.run_log import ON_STDERR, opened
    from decentral_dp.cli.summary import Progress
    from decentral_dp.simulation import plan as plan_text
    from decentral_dp.simulation import runner
    from decentral_dp.simulation.events import Events

    with opened(log) as logs, Progress(quiet or log == ON_STDERR) as bar:
        progress = Events([bar, *logs])
        finished = runner.resume(
            folder, progress=progress, rounds=rounds, priced=plan_text.print_plan, charge_again=charge_again
        )
        for one in logs:
            one.ended(finished)
    _end(finished, quiet)


def plan(
    scenario: Name,
    override: Set = None,
    unset: Unset = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="List every condition of the convergence theorem that fails."),
    ] = False,
) -> None:
    """Print what a scenario would cost each agent, before anything is run: at T rounds and for T → ∞."""
    from decentral_dp.simulation import plan as plan_text
    from decentral_dp.simulation import plan as plans

    plan_text.print_plan(plans.plan(scenario, override or [], unset=unset or ()), conditions=every)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    formats: Annotated[
        list[PictureFormat] | None, typer.Option("--format", help="Also as svg or pdf, beside png; repeatable.")
    ] = None,
) -> None:
    """Draw the plots and the HTML page of a run folder again."""
    from decentral_dp.files.regular import regular
    from decentral_dp.reporting.page import write_report
    from decentral_dp.reporting.plots import write_plots
    from decentral_dp.simulation.result import as_written, require_complete

    for name in ("result.json", "scenario.toml", "metrics.parquet", "ledger.parquet", "state.npz"):
        regular(folder / name, "report")
    require_complete(folder)
    # Without one of these a page would say that nothing was measured, or released.
    for name in ("result.json", "metrics.parquet", "ledger.parquet"):
        if not (folder / name).is_file():
            raise InputError(f"report: {folder} is no run folder: it has no {name}. Give the folder that a run wrote.")
    # What a run writes can be drawn; what somebody has changed since need not be.
    with as_written(folder, "report"):
        # The page shows the PNGs.
        write_plots(folder, ["png", *(f.value for f in formats or [])])
        page = write_report(folder)
    typer.echo(printable(str(page)))


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, at least two.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the page; runs/compare by default.")] = None,
    formats: Annotated[
        list[PictureFormat] | None, typer.Option("--format", help="Also as svg or pdf, beside png; repeatable.")
    ] = None,
) -> None:
    """Set runs side by side: what differs in their settings, budgets, last metrics, and curves on one page.

    A run that is not complete is shown as far as it goes.
    """
    from decentral_dp.cli import compare_command as inside

    inside.carry_out(folders, out, [f.value for f in formats or []])
