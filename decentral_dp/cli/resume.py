"""The command `resume` of what is no run: what it prints, and how it ends."""

from __future__ import annotations

from pathlib import Path

import typer

from decentral_dp.errors import printable
from decentral_dp.resumption.resume import Kind, Resumable


def go_on(begun: Resumable, quiet: bool) -> bool:
    """Go on with a study, an audit, a table of audits or an attack, and print what it comes to.

    Args:
        begun: what, and where.
        quiet: whether there is neither bar nor summary.

    Returns:
        Whether it ended well, as the command that began it says so.

    Raises:
        InputError: it cannot go on.
        Stopped: interrupted again.
    """
    if begun.kind is Kind.STUDY:
        return _study(begun.place, quiet)
    return _table(begun.place, quiet) if begun.kind is Kind.AUDITS else _file(begun.place, quiet)


def _study(folder: Path, quiet: bool) -> bool:
    from decentral_dp.cli.progress import ProgressBar
    from decentral_dp.cli.study import print_findings
    from decentral_dp.studies.study import resume_study

    if quiet:
        found = resume_study(folder)
    else:
        with ProgressBar("cells") as progress:
            found = resume_study(folder, progress)
        print_findings(found)
    return len(found.failed) < len(found.cells)


def _table(folder: Path, quiet: bool) -> bool:
    from decentral_dp.adversaries.audit.tables import resume_table
    from decentral_dp.cli.adversaries import UNSOUND, print_table
    from decentral_dp.cli.progress import ProgressBar

    if quiet:
        table = resume_table(folder)
    else:
        with ProgressBar("audits") as bar:
            table = resume_table(folder, bar)
        print_table(table)
        typer.echo(printable(str(folder)))
    return not bool(table["status"].isin(UNSOUND).any())


def _file(out: Path, quiet: bool) -> bool:
    from decentral_dp.adversaries.audit.result import AuditResult
    from decentral_dp.cli.adversaries import UNSOUND, print_audit, print_inference
    from decentral_dp.cli.progress import ProgressBar
    from decentral_dp.resumption.resume import resume_file

    if quiet:
        found = resume_file(out)
    else:
        with ProgressBar("runs", told=True) as bar:
            found = resume_file(out, bar)
    if isinstance(found, AuditResult):
        if not quiet:
            print_audit(found)
    elif not quiet:
        print_inference(found)
    if not quiet:
        typer.echo(printable(str(out)))
    return found.status not in UNSOUND if isinstance(found, AuditResult) else not found.broken
