"""Commands that run many scenarios: study, experiment. Heavy imports wait."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from decentral_dp.errors import InputError

# The study that audits every algorithm under every guarantee.
AUDITS = "audits"


def study(
    study: Annotated[
        str, typer.Argument(metavar="NAME_OR_FILE", help="A shipped study's name, a study file, or audits.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results; runs/study-NAME by default.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per core by default.")] = None,
    address: Annotated[str | None, typer.Option(help='A Ray cluster to use: "auto" or "host:port".')] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of the study (seeds=2), or one of the scenario."),
    ] = None,
) -> None:
    """Run a grid of scenarios × seeds in parallel: tables, confidence intervals, plots and verdicts on claims.

    Finished cells are kept: started again, or with "decentral-dp resume", a study goes on. A changed one, started
    again, computes only what is new. Where decentral_dp or a file that the scenarios name has changed since, kept cells
    are computed anew.
    "python -m pydoc decentral_dp.studies" describes the file.
    """
    from decentral_dp.cli.study_printing import Progress, print_findings
    from decentral_dp.studies.schema import load_study
    from decentral_dp.studies.study import conduct

    if study == AUDITS:
        return _study_audits(out, jobs, address, override)
    loaded = load_study(study, override or [])
    folder = out if out is not None else Path("runs") / f"study-{Path(study).stem}"
    with Progress() as progress:
        found = conduct(loaded, folder, jobs, address, progress)
    print_findings(found)
    if len(found.failed) == len(found.cells):
        raise typer.Exit(1)


def _study_audits(out: Path | None, jobs: int | None, address: str | None, override: list[str] | None) -> None:
    """The study of all audits, whose cells are no runs of one scenario."""
    from decentral_dp.adversaries.audit.runs import Workers
    from decentral_dp.cli.audit_command import audit_every
    from decentral_dp.engines.task_pool import cores

    if override:
        raise InputError('--set: the study "audits" takes none; "decentral-dp audit NAME --set ..." audits one.')
    folder = out if out is not None else Path("runs") / f"study-{AUDITS}"
    if not audit_every(40, "everybody", 0.95, 0, folder, Workers(jobs or cores(), address)):
        raise typer.Exit(1)


def experiment(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help='"decentral-dp list experiments"; all by default.')
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of made-up data and of noise.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer points and repetitions: seconds, wider intervals.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for a table and a plot of each.")] = None,
) -> None:
    """Measure what the papers on central-DP bilevel optimisation prove or claim, with a verdict for each claim."""
    from decentral_dp.cli import experiment_command as inside

    chosen = inside.chosen(names or [])
    if out is not None:
        inside.require_free(chosen, out)
    findings = list(inside.carry_out(chosen, seed, quick, out))
    if len(findings) > 1:
        inside.print_summary(findings)
