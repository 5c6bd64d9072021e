"""Command line: commands, exit codes and signals. Heavy imports are deferred until a command runs."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import signal
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from decentral_dp.annexes import annex
from decentral_dp.errors import InputError, Stopped, option_error, printable, readable

if TYPE_CHECKING:
    from decentral_dp.config.schema import Scenario
    from decentral_dp.simulation.budget import Budget
    from decentral_dp.simulation.run import Run

# Types of optional arguments.
Repeated = list[str] | None
Text = str | None
File = Path | None
Number = int | None

Name = Annotated[str, Argument(metavar="NAME_OR_FILE", help="A shipped scenario's name, or a scenario file.")]
Set = Annotated[
    Repeated, Option("--set", metavar="KEY=VALUE", help="Override a key: algorithm.rounds=500; null removes it.")
]


class PictureFormat(StrEnum):
    """File formats of figures."""

    png = "png"
    svg = "svg"
    pdf = "pdf"


Log = Annotated[
    Text,
    Option(
        metavar="jsonl|FILE.jsonl|tensorboard|mlflow",
        help="Progress as JSON lines, on stderr or added to a file; or for TensorBoard or MLflow.",
    ),
]
Formats = Annotated[list[PictureFormat] | None, Option("--format", help="Figures also as png or pdf; repeatable.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress bar, no summary.")]
Verbose = Annotated[bool, Option("--verbose", help="All notes, settings and scores.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]


def _consent(context: typer.Context, value: bool) -> bool:
    if value:
        from decentral_dp.files.trust import trusting

        context.with_resource(trusting())
    return value


Upload = Annotated[
    Text, Option(metavar="URL", help="Copy the finished folder there, e.g. to s3://…, without noiseless values.")
]
Trust = Annotated[
    bool,
    Option("--trust", help="Run code of a run folder that this machine has not run before.", callback=_consent),
]
BudgetFile = Annotated[
    File, Option("--budget", metavar="FILE", help='Budget of all runs on these records: {"epsilon": 4, "delta": 1e-5}.')
]
Address = Annotated[Text, Option(help='A Ray cluster to use: "auto" or "host:port".')]


class Commands(TyperGroup):
    """Commands, with advice on keys of a scenario that are passed as options."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            unknown: Any = error
            # typer does not export the type of an unknown option.
            if not (hasattr(unknown, "option_name") and hasattr(unknown, "possibilities")):
                raise
            from decentral_dp.config.loading import keys_named

            name, keys = unknown.option_name, keys_named(unknown.option_name)
            if not keys or not any("--set" in parameter.opts for parameter in unknown.ctx.command.params):
                raise
            raise InputError(f"{name}: no such option. Fix: use --set KEY=VALUE with the key {keys}.") from None


# Commands in the order of the help. Plain text is faster than boxes.
app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command("run")
def invoke_run(
    scenario: Name,
    out: Annotated[
        File, Option(metavar="DIR", help="Folder for the results; runs/NAME and the changed keys by default.")
    ] = None,
    engine: Annotated[Text, Option(help="local or ray; overrides run.engine.")] = None,
    override: Set = None,
    quiet: Quiet = False,
    baselines: Annotated[
        bool, Option("--baselines", help="Also run isolated agents, a trusted server, and the run without noise.")
    ] = False,
    seeds: Annotated[
        int, Option(metavar="N", help="Repeat the run and its baselines with N seeds, for paired intervals.")
    ] = 1,
    or_resume: Annotated[
        bool, Option("--or-resume", help="Resume an interrupted run in --out, not its baselines; for jobs that retry.")
    ] = False,
    budget: BudgetFile = None,
    upload: Upload = None,
    log: Log = None,
    verbose: Verbose = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Run a scenario and write its run folder.

    The folder contains the metrics, ledger, result, plots and report. Every release is logged before it is sent.
    "decentral-dp resume" resumes an interrupted run.
    """
    import json

    from decentral_dp import api
    from decentral_dp.cli.run import run_name, run_with_progress
    from decentral_dp.config.loading import load_scenario
    from decentral_dp.simulation.folder import layout

    overrides = [*(override or []), *([f"run.engine={json.dumps(engine)}"] if engine is not None else [])]
    loaded = load_scenario(scenario, overrides)
    store, account = _open_store(upload), _open_budget(budget)
    shown = Output(quiet or as_json, verbose, as_json)
    if or_resume and _resume_in(loaded, out, log, shown, store, account):
        return
    name = run_name(Path(scenario).stem, overrides)
    with layout.new_folder(None, name) if out is None else nullcontext(out) as folder:
        finished = run_with_progress(
            lambda callbacks: api.run(
                loaded, out=folder, callbacks=callbacks, baselines=baselines, seeds=seeds, budget=account
            ),
            log,
            shown.quiet,
            folder,
        )
    _upload(finished.folder, store)
    _print_and_exit(finished, shown)


def _open_budget(file: Path | None) -> Budget | None:
    if file is None:
        return None
    from decentral_dp.simulation.budget import Budget

    return Budget.open(file)


def _open_store(url: str | None) -> Any:
    """Open the store for `_upload`. Raises InputError, before the first release, if it is not writable."""
    if url is None:
        return None
    from decentral_dp.simulation.folder.layout import open_store

    return open_store(url)


def _upload(folder: Path | None, store: Any) -> None:
    if store is not None and folder is not None:
        from decentral_dp.simulation.folder.layout import upload

        upload(folder, store)


def _resume_in(
    asked: Scenario, folder: Path | None, log: str | None, shown: Output, store: Any, budget: Budget | None
) -> bool:
    """Complete a run of this scenario in the folder, and return whether there was one."""
    from decentral_dp.cli.run import run_with_progress
    from decentral_dp.config.loading import load_scenario, read_toml
    from decentral_dp.reporting import page
    from decentral_dp.simulation.folder.journal import progress_in
    from decentral_dp.simulation.jobs.build import build_job, run_digest
    from decentral_dp.simulation.run import Run

    if folder is None:
        raise option_error("or_resume", ": requires --out, the folder of the run. Fix: add --out.")
    progress = progress_in(folder)
    finished = None
    if progress != "none":
        there = load_scenario(read_toml(folder / "scenario.toml"), folder=folder.resolve())
        if run_digest(build_job(there)) != run_digest(build_job(asked)):
            raise option_error(
                "out", f": {folder} holds a run of another scenario or of other records. Fix: use another folder."
            )
    if progress == "under way":
        typer.echo(f"{folder} holds a run that was interrupted; it resumes.", err=True)
        finished = run_with_progress(
            lambda callbacks: Run.resume(folder, callbacks=callbacks, budget=budget), log, shown.quiet, folder
        )
    elif progress == "complete":
        if not (folder / "report.html").is_file():
            page.draw_run(folder)
        typer.echo(f"{folder}: the run is complete.", err=True)
    if progress != "none":
        _upload(folder, store)
    if finished is not None:
        _print_and_exit(finished, shown)
    return progress != "none"


class Output(NamedTuple):
    """Kind of output of a run: none, verbose, or JSON."""

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False


def _print_and_exit(finished: Run, shown: Output) -> None:
    """Print a run. Exit with code 1 if it diverged; divergence is always printed."""
    from decentral_dp.reporting.report import reason_text
    from decentral_dp.reporting.terminal import console, print_run

    if shown.as_json:
        typer.echo(finished.result.to_json())
    elif not shown.quiet:
        print_run(finished.report, finished.folder, console(), shown.verbose)
    elif finished.result.has_diverged:
        typer.echo(readable(f"The run diverged: {reason_text(finished.result)} See {finished.folder}."), err=True)
    _exit_with_1_unless(not finished.result.has_diverged)


def _exit_with_1_unless(sound: bool) -> None:
    if not sound:
        raise typer.Exit(1)


@app.command("resume")
def invoke_resume(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="The folder of an interrupted run.")],
    quiet: Quiet = False,
    budget: BudgetFile = None,
    upload: Upload = None,
    log: Log = None,
    verbose: Verbose = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Resume an interrupted run from its last state on disk.

    Releases after that state are drawn again from the same noise key, so their values are the same at no further cost.
    """
    from decentral_dp.cli.run import run_with_progress
    from decentral_dp.simulation.run import Run

    store, account = _open_store(upload), _open_budget(budget)
    shown = Output(quiet or as_json, verbose, as_json)
    finished = run_with_progress(
        lambda callbacks: Run.resume(folder, callbacks=callbacks, budget=account), log, shown.quiet, folder
    )
    _upload(finished.folder, store)
    _print_and_exit(finished, shown)


@app.command("plan")
def invoke_plan(
    scenario: Name,
    override: Set = None,
    budget: BudgetFile = None,
    verbose: Verbose = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Print the privacy cost of a scenario for each agent.

    Nothing is run.
    """
    from decentral_dp.simulation import plan as plans

    plan = plans.plan_scenario(scenario, override or [], _open_budget(budget))
    if as_json:
        typer.echo(plan.to_json())
    else:
        plans.print_privacy_plan(plan, verbose=verbose)


@app.command("report")
def invoke_report(
    folder: Annotated[Path, Argument(metavar="DIR", help="A run folder.")], formats: Formats = None
) -> None:
    """Redraw the plots and the page of a run folder."""
    from decentral_dp.reporting.page import write_report
    from decentral_dp.reporting.plots import write_plots
    from decentral_dp.simulation.result import refuse_damaged, require_run_folder

    # Without one of these files, the page would have no metrics.
    needed = ("result.json", "metrics.parquet")
    require_run_folder(folder, "report", needed, more=("scenario.toml", "state.npz"))
    # A changed folder may be damaged.
    with refuse_damaged(folder, "report"):
        write_plots(folder, [f.value for f in formats or []])
        page = write_report(folder)
    typer.echo(printable(str(page)))


@app.command("predict")
def invoke_predict(
    run: Annotated[Path, Argument(metavar="RUN", help="A run folder.")],
    file: Annotated[Path, Argument(metavar="FILE", help="New records, raw: a CSV or Parquet file.")],
    out: Annotated[Path, Option(metavar="PREDICTIONS.csv", help="The file to write; it must not exist.")],
    agent: Annotated[
        Text, Option(metavar="K", help="The agent whose weights predict; the mean over all agents by default.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Predict the labels of new records with a run's model.

    The output contains predictions and class probabilities. Columns of the file are read by name, with the rules and
    ranges of the scenario. Other columns are ignored. This is post-processing: no record of the run is read, and no
    further ε is spent.
    """
    from decentral_dp.cli.run import write_predictions

    write_predictions(run, file, out, agent)


@app.command("compare")
def invoke_compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders; at least two.")],
    out: Annotated[File, Option(help="Folder for the page; runs/compare by default.")] = None,
    formats: Formats = None,
) -> None:
    """Compare runs.

    One page shows the settings that differ, the budgets, the last metrics and the curves. An incomplete run is shown up
    to its last round.
    """
    from decentral_dp.cli.run import print_and_write_comparison

    print_and_write_comparison(runs, out, [f.value for f in formats or []])


@app.command("network")
def invoke_network(
    scenario: Name,
    out: Annotated[File, Option(metavar="DIR", help="Folder for network.parquet and the figure.")] = None,
    coalition: Annotated[
        Repeated,
        Option(metavar="AGENTS", help="Colluding agents as one adversary, e.g. 0,3; repeatable. Default: each agent."),
    ] = None,
    override: Set = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Print ε against honest-but-curious neighbours (network DP).

    Each agent is an adversary that observes only the messages that it receives. The output contains the certified ε of
    the other agents' records by distance in the graph, next to the ε against an adversary that observes all messages.
    """
    annex("network_command")(scenario, override or [], out, coalition or [], as_json)


@app.command("audit")
def invoke_audit(
    scenario: Annotated[
        str,
        Argument(metavar="SCENARIO_OR_RUN", help="A shipped scenario's name, a scenario file, or a run folder."),
    ],
    runs: Annotated[Number, Option(help="Runs of each data set, at least 20; by default 200.")] = None,
    adversary: Annotated[
        str,
        Option(
            metavar="NAME", help="It observes all_messages, published values, agent:K, or what privacy.adversary names."
        ),
    ] = "all_messages",
    confidence: Annotated[float, Option(help="Confidence of the lower bound.")] = 0.95,
    seed: Annotated[int, Option(min=0, help="Public seed of the audit.")] = 0,
    out: Annotated[
        File, Option(metavar="FILE", help="JSON file for all numbers; of a run audit.json in its folder.")
    ] = None,
    override: Set = None,
    membership: Annotated[
        bool, Option("--membership", help="Membership inference on train and test records, over --runs (10) runs.")
    ] = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Estimate an empirical lower bound on ε.

    The output contains the claimed, certified and empirical ε. The scenario runs on two neighbouring data sets, and an
    attack distinguishes them. The same attack on two identical data sets must fail. The exit code is 1 if the lower
    bound exceeds the certified ε, or if the audit is broken. With --membership, the published values are used to score
    the records of a run folder. The output then contains the AUC over repeated runs, and its upper bound from ε.
    """
    try:
        sound = annex("audit_command")(
            scenario,
            runs=runs,
            adversary=adversary,
            confidence=confidence,
            seed=seed,
            out=out,
            override=override or [],
            membership=membership,
            as_json=as_json,
        )
    except KeyboardInterrupt:
        raise Stopped(f"{_INTERRUPTED} An audit does not resume. Fix: repeat it with fewer --runs.") from None
    _exit_with_1_unless(sound)


@app.command("check")
def invoke_check(
    what: Annotated[
        str,
        Argument(
            metavar="FILE_OR_KIND",
            help="An algorithm, a problem, module:Name, or a scenario with all its components.",
        ),
    ],
    pairs: Annotated[int, Option(min=1, help="Pairs of neighbouring data sets of the search.")] = 64,
    seed: Annotated[int, Option(min=0, help="Public seed of the search.")] = 0,
    rounds: Annotated[
        Number, Option(min=1, help="First rounds that are tested; by default those of a few seconds.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Test the privacy contract of a component on synthetic data.

    A search looks for a record that exceeds the stated sensitivity. A passed check is not a proof. The exit code is 1
    if a check fails.
    """
    _exit_with_1_unless(annex("check_command")(what, pairs, seed, rounds))


@app.command("study")
def invoke_study(
    study: Annotated[str, Argument(metavar="NAME_OR_FILE", help="A shipped study's name, or a study file.")],
    out: Annotated[File, Option(help="Folder for the results; runs/study-NAME by default.")] = None,
    jobs: Annotated[Number, Option(min=1, help="Processes; one per core by default.")] = None,
    address: Address = None,
    override: Annotated[
        Repeated, Option("--set", metavar="KEY=VALUE", help="A key of the study (seeds=2), or one of the scenario.")
    ] = None,
    budget: BudgetFile = None,
    trust: Trust = False,
) -> None:
    """Run a grid of scenarios × seeds in parallel.

    The output contains tables, confidence intervals, plots and verdicts on claims. Finished cells are kept, so a second
    start resumes the study and computes only new cells. If decentral_dp or a file that the scenarios name has changed
    since, all cells are computed again. The exit code is 1 if no cell ended ok. A diverged cell is recorded as a
    result. "python -m pydoc decentral_dp.studies" describes the file.
    """
    _exit_with_1_unless(annex("study_command")(study, override or [], out, jobs, address, _open_budget(budget)))


@app.command("list")
def invoke_list(
    name: Annotated[
        Text,
        Argument(
            metavar="NAME_OR_FILE",
            help="A registry, such as algorithms; a name in one, or a module:Name. Leave out to list everything.",
        ),
    ] = None,
    schema: Annotated[bool, Option("--schema", help="Print the JSON Schema of scenario files, for editors.")] = False,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """List components, scenarios, studies and measures, or describe one.

    The text of a scenario or a study is printed unchanged, so that it can be saved as a file.
    """
    import json

    if schema:
        from decentral_dp.config.schema import Scenario

        return typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
    from decentral_dp.cli.describe import find_entry, list_names, print_entry, print_list, registries

    is_list = name is None or name in registries(titles=False)
    if as_json:
        content: Any
        if is_list:
            content = list_names(name)
        else:
            components, files = find_entry(str(name))
            described = [{**c._asdict(), "keys": [key._asdict() for key in c.keys]} for c in components]
            content = {"components": described, "files": files}
        typer.echo(json.dumps(content, indent=2))
    elif is_list:
        print_list(name)
    else:
        print_entry(str(name))


@app.command("new")
def invoke_new(
    out: Annotated[
        File, Argument(metavar="FILE", help="The scenario to write; named for the records' file by default.")
    ] = None,
    data: Annotated[
        Text,
        Option(metavar="FILE_OR_NAME", help="Your records, a CSV or Parquet file; or the name of bundled records."),
    ] = None,
    label: Annotated[Text, Option(metavar="COLUMN", help="The label column of the file.")] = None,
    classes: Annotated[str, Option(help="All possible labels, e.g. no,yes.")] = "",
    ranges: Annotated[
        Repeated, Option("--range", metavar="COLUMN=LOW:HIGH", help="Public range of a column; repeatable.")
    ] = None,
    sites: Annotated[
        Text, Option(metavar="COLUMN=NAME,NAME", help="The column of the agents' names, and all names in it.")
    ] = None,
    algorithm: Annotated[str, Option(metavar="KIND", help="Its shipped scenario is the template.")] = "dp_dsgd",
    agents: Annotated[Number, Option(help="Number of agents; --sites sets it.")] = None,
    epsilon: Annotated[float | None, Option(help="Target ε of every agent, for the whole run.")] = None,
    override: Set = None,
) -> None:
    """Write a commented scenario to edit.

    The command reads the column names of the file, and whether the first record contains numbers or words. Labels,
    ranges,
    sites, words and dates are public facts that you declare: inferring them from the records would leak information.
    Undeclared labels and ranges are placeholders.
    """
    from decentral_dp.cli.new import write_template

    write_template(
        out,
        data=data,
        label=label,
        classes=classes,
        ranges=ranges or (),
        sites=sites,
        algorithm=algorithm,
        agents=agents,
        epsilon=epsilon,
        changes=override or (),
    )


# Imports and figures create many objects and few cycles. With the default of 700 new objects, collection takes a tenth
# of a short run.
_OBJECTS_BETWEEN_SEARCHES = 400_000
_INTERRUPTED = "Interrupted; nothing was written."


def _print_version(version: bool) -> None:
    if version:
        import importlib.metadata

        typer.echo(f"decentral_dp {importlib.metadata.version('decentral_dp')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Simulate, account and audit private decentralised optimisation."""


def main() -> None:
    """Run a command. Exit with 0 if it is done, 1 if a run failed, 2 for invalid input, and 130 if interrupted."""
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
    # A garbage collection at exit would double the running time.
    atexit.register(gc.freeze)
    # A shell may start background jobs with SIGINT ignored. Both signals must trigger the clean-up of processes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # A terminal without ε prints a question mark instead of a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="decentral-dp")
    except InputError as error:
        typer.echo(f"Error: {error.command}", err=True)
        sys.exit(2)
    except Stopped as stopped:
        typer.echo(printable(str(stopped)), err=True)
        sys.exit(130)
    except KeyboardInterrupt:
        typer.echo(_INTERRUPTED, err=True)
        sys.exit(130)
    except SystemExit as end:
        # typer turns an interrupt into an exit.
        if end.code == 130:
            typer.echo(_INTERRUPTED, err=True)
        raise
    except MemoryError as error:
        fix = "use fewer agents, records or rounds, or a smaller model"
        typer.echo(f"Error: not enough memory ({readable(str(error))}). Fix: {fix}.", err=True)
        sys.exit(1)
    except (OSError, RuntimeError) as error:
        typer.echo(f"Error: {readable(str(error))}", err=True)
        # A name that is too long is user input.
        sys.exit(2 if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG else 1)


if __name__ == "__main__":
    main()
