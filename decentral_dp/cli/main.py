"""The command line: run, resume, plan, compare, study, network, attack, audit, check, experiment, list, show, report.

Heavy imports wait.
"""

from __future__ import annotations

import errno
import io
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from decentral_dp.errors import InputError, Stopped, printable, readable

if TYPE_CHECKING:
    from decentral_dp.simulation.runner import Run

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_INTERRUPTED = "Interrupted; nothing was written."
# The study that audits every algorithm under every guarantee.
AUDITS = "audits"

Name = Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="A shipped scenario's name, or a scenario file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key, e.g. algorithm.rounds=500.")
]


class Listing(StrEnum):
    """What `list` can list."""

    algorithms = "algorithms"
    problems = "problems"
    topologies = "topologies"
    scenarios = "scenarios"
    studies = "studies"
    experiments = "experiments"
    data = "data"
    weights = "weights"


class PictureFormat(StrEnum):
    """What pictures can be written as."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"decentral_dp {importlib.metadata.version('decentral_dp')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate, price and audit private decentralised optimisation."""


@app.command()
def run(
    scenario: Name,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; runs/NAME by default, with what --set changes.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local or ray; overrides run.engine.")] = None,
    override: Set = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
    forget_secret: Annotated[
        bool, typer.Option("--forget-secret", help="Never write secret noise's root down: no resume after a crash.")
    ] = False,
) -> None:
    """Run a scenario and write its run folder: metrics, ledger, result, plots and report.

    What may have been released is on record before it is. A run that is cut off goes on with "decentral-dp resume".
    """
    import json

    from decentral_dp.cli.run_names import run_name
    from decentral_dp.cli.summary import Progress
    from decentral_dp.config.loading import load
    from decentral_dp.simulation import run_folder, runner

    overrides = [*(override or []), *([f"run.engine={json.dumps(engine)}"] if engine is not None else [])]
    loaded = load(scenario, overrides)
    with run_folder.new_folder(out, run_name(Path(scenario).stem, overrides)) as folder, Progress(quiet) as progress:
        finished = runner.run(loaded, out=folder, progress=progress, keep_secret=not forget_secret)
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


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that was cut off.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar, no summary.")] = False,
) -> None:
    """Go on with a run that was interrupted, killed, or stopped by a full disk, from its last state on disk.

    What was released after that state is released again with the same draws: the same values, and no second release.
    """
    from decentral_dp.cli.summary import Progress
    from decentral_dp.simulation import runner

    with Progress(quiet) as progress:
        finished = runner.resume(folder, progress=progress)
    _end(finished, quiet)


@app.command()
def plan(scenario: Name, override: Set = None) -> None:
    """Print what a scenario would cost each agent, before anything is run: at T rounds and for T → ∞."""
    from decentral_dp.simulation import plan_text, plans

    plan_text.print_plan(plans.plan(scenario, override or []))


@app.command()
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
    override: Set = None,
) -> None:
    """Print what a curious agent learns of the others' records from its neighbours' messages alone."""
    from decentral_dp.cli import network_command as inside

    inside.carry_out(scenario, override or [], out, coalition or [], beside or [])


@app.command()
def attack(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN", help="A run folder; or several of one scenario.")],
    runs: Annotated[
        int, typer.Option(min=1, help="Runs in all, the given ones among them; an interval needs several.")
    ] = 10,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON file for all numbers.")] = None,
) -> None:
    """Try to tell a run's train records from held-out ones by what it published, beside the AUC that its ε allows.

    The scenario is run again with fresh noise and another split, for an interval over runs. The run folder stays as
    it is. Exit code 1 where an attack does better than the certificate allows.
    """
    from decentral_dp.adversaries.repeats import infer
    from decentral_dp.cli import attack_command as inside
    from decentral_dp.cli.progress import ProgressBar

    if out is not None:
        inside.require_new(out)
    with ProgressBar("runs") as progress:
        found = infer(folders, runs, progress)
    inside.print_inference(found)
    if out is not None:
        inside.write(found, folders, out)
        typer.echo(printable(str(out)))
    if found.broken:
        raise typer.Exit(1)


@app.command()
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
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes of --all; one per core by default.")] = None,
    canaries: Annotated[
        int | None, typer.Option(help="One run, in which so many records are canaries with a coin for a label.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the trade-off curve that the runs show, too.")
    ] = None,
) -> None:
    """Show a lower bound on what a scenario tells of one record, beside the ε that is certified, and the claimed one.

    Two worlds that differ in one record are run with the scenario's own noise, and an attack tells them apart. The same
    is tried on two equal worlds, where it must fail. Interrupted with --out, the same command goes on. Exit code 1
    where more is shown than is certified, or where the audit itself is broken.
    """
    from decentral_dp.cli import audit_command as inside
    from decentral_dp.studies.pool import cores

    if every == (scenario is not None):
        raise InputError("audit: give a scenario or a run folder, or --all without either.")
    if scenario is None:
        if override:
            raise InputError("--set: --all audits scenarios as they are shipped; audit one by its name to change it.")
        sound = inside.audit_every(runs, vantage, confidence, seed, out, jobs or cores())
    else:
        sound = inside.audit_one(scenario, runs, vantage, confidence, seed, out, override or [], canaries, curve)
    if not sound:
        raise typer.Exit(1)


@app.command()
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
) -> None:
    """Try what a component must keep, on made-up records, and search for a record that moves more than is stated.

    What passes is checked, never proved. Exit code 1 where a check fails.
    """
    from decentral_dp.cli import check_command as inside

    if not inside.carry_out(what, pairs, seed, out, again):
        raise typer.Exit(1)


@app.command()
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

    Finished cells are kept: started again, a study goes on, and a changed one computes only what is new. Where
    decentral_dp or a file that the scenarios name has changed since, kept cells are computed anew.
    "python -m pydoc decentral_dp.studies" describes the file.
    """
    from decentral_dp.cli.study_printing import Progress, print_findings
    from decentral_dp.studies.conduct import conduct
    from decentral_dp.studies.study_schema import load_study

    if study == AUDITS:
        return _study_audits(out, jobs, override)
    loaded = load_study(study, override or [])
    folder = out if out is not None else Path("runs") / f"study-{Path(study).stem}"
    with Progress() as progress:
        found = conduct(loaded, folder, jobs, address, progress)
    print_findings(found)
    if len(found.failed) == len(found.cells):
        raise typer.Exit(1)


def _study_audits(out: Path | None, jobs: int | None, override: list[str] | None) -> None:
    """The study of all audits, whose cells are no runs of one scenario."""
    from decentral_dp.cli.audit_command import audit_every
    from decentral_dp.studies.pool import cores

    if override:
        raise InputError('--set: the study "audits" takes none; "decentral-dp audit NAME --set ..." audits one.')
    folder = out if out is not None else Path("runs") / f"study-{AUDITS}"
    if not audit_every(40, "everybody", 0.95, 0, folder, jobs or cores()):
        raise typer.Exit(1)


@app.command()
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


@app.command("list")
def list_(what: Annotated[Listing | None, typer.Argument(help="Leave out to list everything.")] = None) -> None:
    """List what a scenario can name."""
    from decentral_dp.cli.catalogue import print_list

    print_list([what.value] if what else [w.value for w in Listing])


@app.command()
def show(name: Name) -> None:
    """Print a scenario, or what a registered algorithm, problem, topology, weight rule or data set is."""
    from decentral_dp.cli.catalogue import print_entry

    print_entry(name)


@app.command()
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
    from decentral_dp.simulation.result import require_complete
    from decentral_dp.user_code import USER_ERRORS, reason

    for name in ("result.json", "scenario.toml", "metrics.parquet", "ledger.parquet", "state.npz"):
        regular(folder / name, "report")
    require_complete(folder)
    # Without one of these a page would say that nothing was measured, or released.
    for name in ("result.json", "metrics.parquet", "ledger.parquet"):
        if not (folder / name).is_file():
            raise InputError(f"report: {folder} is no run folder: it has no {name}. Give the folder that a run wrote.")
    try:
        # The page shows the PNGs.
        write_plots(folder, ["png", *(f.value for f in formats or [])])
        page = write_report(folder)
    except InputError:
        raise
    except (*USER_ERRORS, MemoryError) as error:
        # What a run writes can be drawn; what somebody has changed since need not be.
        raise InputError(
            f"report: {folder} does not hold what a run writes ({reason(error)}). Run its scenario again."
        ) from error
    typer.echo(printable(str(page)))


@app.command()
def new(
    out: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The scenario to write; named for the CSV file by default.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Your records: numbers, with one header line.")] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="The label column of the CSV file.")] = None,
    classes: Annotated[str, typer.Option(help="All labels that there may be, e.g. no,yes.")] = "",
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="COLUMN=LOW:HIGH", help="Public range of a column; repeatable."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Bundled records instead of a CSV file.")] = None,
    problem: Annotated[str | None, typer.Option(metavar="KIND", help="By default one that fits the algorithm.")] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="KIND", help="ldp_dsbo by default.")] = None,
    topology: Annotated[str | None, typer.Option(metavar="KIND", help="A generator of graphs, such as ring.")] = None,
    agents: Annotated[int | None, typer.Option(help="Number of agents.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target ε of every agent, for the whole run.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of that.")] = None,
) -> None:
    """Write a commented scenario that plan and run accept; on a terminal what is not given is asked for.

    Of a CSV file only the names of its columns are read. Labels and ranges are public facts that you declare: taken
    from the records they would tell of them. What you do not give is a placeholder, and said.
    """
    from decentral_dp.cli import new_command as inside

    features = [] if csv is None else inside.features_of(inside.columns_of(csv), label)
    wishes = inside.Wishes(
        csv=csv,
        data=data,
        label=label,
        classes=inside.parsed_classes(classes),
        ranges=dict(inside.parsed_range(text, features) for text in ranges or []),
        agents=agents,
        topology=topology,
        problem=problem,
        algorithm=algorithm,
        rounds=rounds,
        epsilon=epsilon,
        delta=delta,
    )
    inside.carry_out(out, wishes)


@app.command()
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


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    import json

    from decentral_dp.config.schema import Scenario

    typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))


def main() -> None:
    """Entry point: 0 done, 1 failed run, 2 bad scenario or input (one sentence, no traceback), 130 interrupted."""
    # A shell may start background jobs with SIGINT ignored; both signals must reach the clean-up of what was started.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Where the terminal cannot write an ε, a question mark is better than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="decentral-dp")
    except InputError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except Stopped as stopped:
        typer.echo(printable(str(stopped)), err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        sys.exit(130)
    except SystemExit as end:
        # typer makes an exit of its own of an interrupt.
        if end.code == 130:
            typer.echo(_INTERRUPTED, err=True)
        raise
    except MemoryError as error:
        typer.echo(f"Error: not enough memory ({readable(str(error))}). Use fewer agents, records or rounds.", err=True)
        sys.exit(1)
    except (OSError, RuntimeError) as error:
        typer.echo(f"Error: {readable(str(error))}", err=True)
        # A name that is too long is somebody's input.
        sys.exit(2 if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG else 1)


if __name__ == "__main__":
    main()
