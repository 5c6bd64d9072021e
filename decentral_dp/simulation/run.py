"""Runs: execution of a planned job, comparison of its ledger with the plan, and the files of its folder.

The evaluated rounds, and the ε spent up to each of them, follow from the plan.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from decentral_dp.bounded import Array
from decentral_dp.config.components import Objects
from decentral_dp.config.loading import load_scenario, read_toml
from decentral_dp.config.schema import Scenario
from decentral_dp.engines import engine_of
from decentral_dp.engines.protocol import BlockLostError, Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError, Stopped, UnplannedReleaseError, quoted
from decentral_dp.files.durable import OWNERS, require_locks, write_whole
from decentral_dp.files.exports import to_parquet
from decentral_dp.files.package import versions
from decentral_dp.formatting import agent_names
from decentral_dp.privacy.accounting.accountants import spending
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import load_cipher
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.advice import clipping, learning
from decentral_dp.simulation.budget import Budget
from decentral_dp.simulation.communication import communication, count_sent
from decentral_dp.simulation.events import Callback, CallbackFailure, Callbacks, Reporter, join_callbacks
from decentral_dp.simulation.folder import releases
from decentral_dp.simulation.folder.journal import (
    Interruption,
    RunInProgress,
    begin,
    open_interrupted,
    root_of_run,
    unwritable_error,
)
from decentral_dp.simulation.folder.layout import check_writable, inputs_in, resolved_toml
from decentral_dp.simulation.folder.published import write_published
from decentral_dp.simulation.jobs.build import build_job, with_blocks
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.jobs.joined import group_jobs, start_joined
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.model import TrainedModel, model_of
from decentral_dp.simulation.result import (
    BASELINES_FOLDER,
    FILES,
    FORMAT,
    IN_PROGRESS,
    RESULT,
    RUN,
    Divergence,
    RunResult,
    further_seeds,
    published_values,
    read_result,
    refuse_damaged,
    require_run_folder,
    result_adapter,
    seal,
    sha256_of_file,
)
from decentral_dp.simulation.sites import site_summary
from decentral_dp.simulation.steps import Step, Watch, check_watch, iterate, read_only
from decentral_dp.simulation.summary import (
    baselines,
    method_name,
    problem_summary,
    setting_of,
    statement_of,
    title_of,
    topology_summary,
)
from decentral_dp.user_code import USER_ERRORS, UserCodeError, reason

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.reporting.plots import Picture
    from decentral_dp.reporting.report import Report


# Points of the curve of spent ε at most: each composes the whole ledger.
_CURVE_POINTS = 25
# Rounds between two evaluations at least, and evaluations at most, by default.
_LEAST_INTERVAL, _MOST_EVALUATIONS = 10, 30
SPENT = "epsilon_spent"
METRICS, LEDGER = "metrics.parquet", "ledger.parquet"


@dataclass(frozen=True)
class Run:
    """Finished run; `print(run)` prints the text of the command "run", with its warnings.

    ε covers `released`, `published`, the ledger and the scenario. Metrics, state and plots are computed from private
    data. A pickle or a copy of a run contains no state, records or noise key.

    Args:
        simulation: function that returns the job, with all records and the noise key.
        measured: columns of `metrics`.
        records: `Ledger` of all releases; None after `load`. `ledger` is the same as a table.
        released: channel → last released values, (m, ·).
        published: channel → averages of the last released values (`run.average`), (m, ·).
        noiseless: noiseless private values, which `state` returns.
        result: numbers of `result.json`.
        folder: run folder, or None.
        baselines: runs for comparison, if requested, by the names "alone" (or "alone_N" for agents with N to
            1.1 N train records, if their numbers differ by more), "central" and "none".
        repeats: repeated run, with its baselines, for each further seed.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
        >>> list(run.metrics.columns), list(run.published)
        (['round', 'agent', 'name', 'value'], ['x', 'y', 'z'])
    """

    scenario: Scenario
    simulation: Secret[PlannedJob]
    measured: Mapping[str, NDArray[Any]]
    records: Any
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    noiseless: Secret[Mapping[str, Array]]
    result: RunResult
    folder: Path | None
    baselines: Mapping[str, Run] = field(default_factory=dict)
    repeats: Sequence[Run] = ()

    @classmethod
    def load(cls, folder: str | Path) -> Run:
        """Load a complete run from its folder, without private state and records.

        Args:
            folder: run folder.

        Returns:
            The run, with its result, metrics, ledger, released and published values, baselines, and runs with further
            seeds.

        Raises:
            InputError: the folder has no complete run, or a file was changed.

        Example:
            >>> import tempfile, decentral_dp
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = decentral_dp.run("quadratic", set={"algorithm.rounds": 2}, out=f"{folder}/run")
            ...     run = decentral_dp.Run.load(f"{folder}/run")
            ...     run.result.rounds, run.released["x"].shape, len(run.ledger)
            (2, (8, 5), 64)
        """
        from decentral_dp.reporting.report import read_metrics

        folder = Path(folder)
        result = read_result(folder)
        require_run_folder(folder, "load", ("scenario.toml", "state.npz", METRICS, LEDGER))
        with refuse_damaged(folder, "load"):
            return cls(
                scenario=load_scenario(folder / "scenario.toml"),
                simulation=Secret("the records and the noise of a run"),
                measured={str(name): column.to_numpy() for name, column in read_metrics(folder / METRICS).items()},
                records=None,
                released=published_values(folder, "load", start="released_"),
                published=published_values(folder, "load"),
                noiseless=Secret("the noiseless values of a run"),
                result=result,
                folder=folder,
                baselines={path.name: cls.load(path) for path in sorted((folder / BASELINES_FOLDER).glob("*"))},
                repeats=[cls.load(path) for path in further_seeds(folder)],
            )

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        *,
        callbacks: Sequence[Callback] = (),
        watch: Watch = Watch(),  # noqa: B008 # immutable
        budget: Budget | None = None,
        **objects: Unpack[Objects],
    ) -> Run:
        """Resume an interrupted run, and write its figures and its page, like `decentral_dp.resume`.

        Args:
            folder: folder of a run whose status is "running", "interrupted" or "failed".
            callbacks: callbacks that receive a `Progress` for "rounds".
            watch: functions of released values, default none.
            budget: budget that is charged for all rounds unless this run was charged at its start.
            **objects: Python objects that replace components of the scenario, as in `build`.

        Returns:
            The finished run.

        Raises:
            InputError: `decentral_dp.resume` refuses the run, or the folder contains no run.
            Stopped: the run was interrupted again.
        """
        from decentral_dp.reporting import page

        folder = Path(folder)
        interruption, lock = open_interrupted(folder)
        with ExitStack() as stack:
            stack.enter_context(lock)
            # Relative paths start at the folder of the run.
            job = build_job(load_scenario(read_toml(folder / "scenario.toml"), folder=folder.resolve()), **objects)
            job = job.with_root(root_of_run(interruption, job, folder))
            check_watch(watch, job)
            _load_libraries(job)
            if budget is not None:
                budget.charge(job, is_resumed=True)
            journal = RunInProgress(folder, job, lock, interruption)
            # The journal closes the lock.
            stack.pop_all()
        run = _run_in_folder(job, journal, join_callbacks(callbacks), watch, interruption)
        page.draw_run(folder)
        return run

    @property
    def state(self) -> Mapping[str, Array]:
        """Noiseless private values of the agents by name, (m, width), with a row for each agent."""
        return self.noiseless()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics as rows (round, agent, name, value), and agent_name if agents have names."""
        # Slow to import, and not needed to write or draw a folder.
        import pandas as pd

        return pd.DataFrame(dict(self.measured))

    @property
    def ledger(self) -> pd.DataFrame:
        """Ledger of all releases, as a table."""
        if self.records is None and self.folder is not None:
            import pandas as pd

            return pd.read_parquet(self.folder / LEDGER)
        table: pd.DataFrame = self.records.to_frame(agent_names(self.result.topology.get("labels")))
        return table

    @property
    def model(self) -> TrainedModel:
        """Trained model, for predictions on new records.

        Raises:
            InputError: the problem does not predict, the weights were not published, or the run diverged.
        """
        return model_of(self.scenario, self.result, self.published)

    def predict(self, table: Any, *, agent: int | str | None = None) -> NDArray[Any]:
        """Predict the class or the number of each record of a raw table, from published weights only.

        Args:
            table: raw records before any scaling: a DataFrame, a dict of columns, an array (n, d), or the path of a CSV
                or Parquet file (see `TrainedModel.predict`).
            agent: agent whose weights are used; by default the mean over all agents (see `TrainedModel`).

        Returns:
            The labels as the scenario names its classes, or numbers in the unit of the label, (n,).

        Raises:
            InputError: the run has no model, there is no such agent, or the table cannot be read.

        Example:
            >>> import decentral_dp
            >>> from sklearn.datasets import load_breast_cancer
            >>> run = decentral_dp.run("classification", set={"algorithm.rounds": 50})
            >>> run.predict(load_breast_cancer(as_frame=True).data[:3]).tolist()
            ['malignant', 'malignant', 'malignant']
        """
        return (self.model if agent is None else self.model.of_agent(agent)).predict(table)

    def predict_proba(self, table: Any, *, agent: int | str | None = None) -> Array:
        """Predict probabilities (n, c) in the order of `run.model.classes`, with the same arguments as `predict`.

        Raises:
            InputError: `predict` refuses the arguments, or the model predicts numbers.
        """
        return (self.model if agent is None else self.model.of_agent(agent)).predict_proba(table)

    def plot(self, name: str) -> Picture:
        """Draw a figure of this run, which notebooks show and `save` writes.

        Args:
            name: name of the figure: "losses", "accuracy", "explained", "optimality", "upper_variable", "stationarity",
                "consensus", "primal", "gradient", "epsilon" or "topology".

        Returns:
            The figure.

        Raises:
            InputError: there is no such figure, or the run has no values for it.

        Example:
            >>> import decentral_dp
            >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
            >>> run.plot("consensus")._repr_png_()[1:4]
            b'PNG'
        """
        from decentral_dp.reporting.plots import FIGURES, draw

        picture = draw(name, self.report) if name in FIGURES else None
        if picture is None:
            raise InputError(f"plot: this run has no figure {quoted(name)}. Fix: use another of {', '.join(FIGURES)}.")
        return picture

    @cached_property
    def report(self) -> Report:
        """Content of the page of the run, and its figures."""
        from decentral_dp.reporting.report import make_report, parse_scenario, read_report, scenario_text

        if self.records is None and self.folder is not None:
            return read_report(self.folder)
        # The scenario of a folder also names components that are Python objects.
        text = "" if self.folder is None else scenario_text(self.folder)
        return make_report(
            self.result,
            parse_scenario(text) or self.scenario.model_dump(),
            self.measured,
            self.published.get("x"),
            self.compared,
            text,
        )

    @property
    def compared(self) -> Sequence[tuple[RunResult, Mapping[str, RunResult]]]:
        """Results of the run and its baselines, for each seed."""
        runs = (self, *self.repeats)
        return [(run.result, {name: each.result for name, each in run.baselines.items()}) for run in runs]

    def _repr_html_(self) -> str:
        from decentral_dp.reporting.page import run_view
        from decentral_dp.reporting.plots import draw

        figures = {name: draw(name, self.report) for name in ("losses", "accuracy", "explained", "primal")}
        drawn = [(name, figure.svg) for name, figure in figures.items() if figure is not None]
        return run_view(self.report, dict(drawn[:2]))

    def __str__(self) -> str:
        from decentral_dp.reporting.terminal import capture_text, print_run

        return capture_text(lambda out: print_run(self.report, self.folder, out))

    def __repr__(self) -> str:
        from decentral_dp.reporting.privacy import summary_text

        result = self.result
        score = "" if result.judge is None else f"{result.judge} {result.score(result.judge):.4g}, "
        return f"<Run {result.title!r}: {result.status}, {result.rounds} rounds, {score}{summary_text(result.privacy)}>"


def evaluated_rounds(rounds: int, interval: int | None) -> list[int]:
    """List the evaluated rounds: 0, the multiples of `interval`, and the last.

    Args:
        rounds: number of rounds T.
        interval: number of rounds between evaluations; None means 10, or more so that there are at most 30 evaluations.

    Example:
        >>> evaluated_rounds(rounds=7, interval=3)
        [0, 3, 6, 7]
        >>> len(evaluated_rounds(rounds=1000, interval=None))
        30
    """
    interval = interval or max(_LEAST_INTERVAL, math.ceil(rounds / (_MOST_EVALUATIONS - 1)))
    return sorted({*range(0, rounds + 1, interval), rounds})


def spent_by_round(job: PlannedJob, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Return the ε that the worst agent has spent after each evaluated round, computed from the plan only."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    epsilons = spending(job.ledger.select(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, epsilons.tolist(), strict=True))


def collect_result(
    job: PlannedJob,
    outcome: Outcome,
    metrics: Mapping[str, NDArray[Any]],
    seconds: float,
    failed_callbacks: Sequence[CallbackFailure] = (),
) -> RunResult:
    """Collect the numbers of a finished run.

    Args:
        job: job that was run.
        outcome: last values and ledger of the run.
        metrics: table of all evaluations, with columns round, agent, name, value.
        seconds: running time.
        failed_callbacks: callbacks that failed, default none.
    """
    divergence, ends = outcome.last_snapshot.divergence, measuring.final(metrics)
    cause: Divergence | None
    if divergence is not None:
        cause = Divergence(name=divergence.channel, is_released=True, is_finite=divergence.finite)
    elif job.scenario.privacy.guarantee != "certified" and not math.isfinite(ends.get("primal", 0.0)):
        # It reads records: a certified run must not end because of it.
        cause = Divergence(name="primal")
    else:
        cause = grown_loss(metrics)
    # A run that ended early counts up to its last evaluation, with fewer releases than planned.
    last_evaluation = int(max(metrics["round"], default=0))
    average = min(job.scenario.tail_length, max(last_evaluation, 1))
    rounds = outcome.last_snapshot.round if divergence is None else divergence.round
    missing = [m for m in job.scenario.run.measures or () if not any(name.startswith(m) for name in ends)]
    sites = job.scored_sites if "y" in outcome.last_snapshot.published else None
    statement, messages = statement_of(job), communication(job, rounds)
    parameters = setting_of(job.setting).hyperparameters(job)
    content = {
        "format": FORMAT,
        "title": title_of(job.scenario),
        "status": "ok" if cause is None else "diverged",
        "reason": None,
        **({} if cause is None else {"divergence": asdict(cause)}),
        "method": method_name(job),
        "engine": job.scenario.run.engine,
        "rounds": rounds,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        # These read records, as metrics do.
        "diagnostics": {
            "baselines": {n: v for n, v in baselines(job).items() if any(name.startswith(n) for name in ends)},
            **clipping(job, outcome),
            **({} if (skew := job.shards.label_skew) is None else {"label_skew": skew}),
            **({"labels_cut": job.shards.labels_cut} if job.shards.labels_cut else {}),
            **({"features_cut": dict(job.shards.features_cut)} if job.shards.features_cut else {}),
            **({"absent_measures": missing} if missing else {}),
            **({"failed_callbacks": list(map(asdict, failed_callbacks))} if failed_callbacks else {}),
            **learning(job, outcome, metrics, ends),
        },
        **({} if sites is None else site_summary(sites, sites.scores(outcome.last_snapshot.published))),
        "evaluated_on": job.evaluated_on,
        "averaged": average,
        **({} if job.tunes_x else {"tunes_x": False}),
        **({} if parameters is None else {"algorithm": parameters}),
        "privacy": statement.to_dict(),
        **({} if messages is None else {"communication": asdict(messages)}),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return RunResult.from_content(content, statement)


# Losses that are minimised, by the names of their metrics.
LOSSES = ("upper_loss", "lower_loss", "primal")
# A loss above this times max(its start, 1) has diverged.
_MOST_GROWTH = 1e3


def grown_loss(metrics: Mapping[str, NDArray[Any]]) -> Divergence | None:
    """Return a loss whose last value is above 10³ max(first value, 1).

    The loss reads records, and ε does not cover it. Therefore it is used to label a run that has ended, but never to
    stop a run.

    Args:
        metrics: table of all evaluations, with columns round, agent, name, value.

    Example:
        >>> grown_loss(measuring.tabulate([(0, "mean", "primal", 0.7), (9, "mean", "primal", 2e4)])).last
        20000.0
    """
    for name in LOSSES:
        values = metrics["value"][(metrics["agent"] == "mean") & (metrics["name"] == name)]
        # A loss that is infinite at the start has not grown.
        if values.size and math.isfinite(values[0]) and not values[-1] <= _MOST_GROWTH * max(1.0, values[0]):
            first, last = float(values[0]), float(values[-1])
            return Divergence(name=name, is_finite=math.isfinite(last), first=first, last=last)
    return None


def write_contents(run: Run, folder: Path, journal: RunInProgress) -> Run:
    """Write the files of a finished run, first to a temporary folder and then in place, with `result.json` last.

    If the noise is secret, only the owner may read files that contain more than releases.

    Returns:
        The run, whose result has the digests of its files.
    """
    mode = OWNERS if run.scenario.seed is None else 0o666
    # A folder that is removed with the journal if the run is killed here.
    partial = Path(tempfile.mkdtemp(prefix="finished-", dir=folder / IN_PROGRESS))
    try:
        text = resolved_toml(run.simulation().components, run.simulation().topology, folder)
        (partial / "scenario.toml").write_text(text, encoding="utf-8")
        arrays = {**run.state}
        arrays |= {f"released_{c}": v for c, v in run.released.items()}
        arrays |= {f"published_{c}": v for c, v in run.published.items()}
        # Noiseless values are for the owner only.
        descriptor = os.open(
            partial / "state.npz", os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNERS if run.state else 0o666
        )
        with open(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        write_whole(partial / METRICS, to_parquet(run.measured), mode)
        run.records.to_parquet(partial / LEDGER, names=agent_names(run.simulation().topology.labels))
        names = ["scenario.toml", "state.npz", METRICS, LEDGER]
        if run.scenario.run.keep_releases:
            parts = {} if journal.releases is None else journal.releases.digests
            releases.join(folder / IN_PROGRESS, run.simulation(), run.records, parts, partial / releases.NAME)
            names.append(releases.NAME)
        # Weights of a custom problem have no names.
        has_names = run.result.has_model and "problem" not in run.scenario.objects
        if run.result.privacy.view != "all_messages" and has_names:
            names += write_published(run.result, run.model, run.published, partial)
        digests = {name: sha256_of_file(partial / name) for name in names}
        digests |= {name: sha256_of_file(folder / name) for name in inputs_in(folder)}
        sealed_result = seal({**run.result.content, FILES: digests, RUN: journal.begun})
        result = RunResult.from_content(sealed_result, run.result.privacy)
        content = result.to_json().encode()
        write_whole(partial / RESULT, content, mode)
        for name in [*names, RESULT]:
            (folder / name).parent.mkdir(exist_ok=True)
            (partial / name).replace(folder / name)
        return replace(run, result=result)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def run_job(
    job_plan: PlannedJob,
    out: str | Path | None = None,
    progress: Callback | None = None,
    watch: Watch = Watch(),  # noqa: B008 # immutable
    budget: Budget | None = None,
) -> Run:
    """Run a planned job and write its folder, without figures and page.

    Args:
        job_plan: planned job, as returned by `build`.
        out: folder to write, new or empty; None (the default) writes nothing.
        progress: callback that receives a `Progress` at every evaluation.
        watch: functions of released values, default none.
        budget: budget that is charged before the first release and before the folder exists, default none.

    Returns:
        The run.

    Raises:
        InputError: the folder is not empty or cannot be written, the run exceeds the budget, or the job does not
            support stopping early.
        Stopped: the run was interrupted. The folder contains a record of all releases.
    """
    check_watch(watch, job_plan)
    job = with_blocks(job_plan)
    if out is None:
        if budget is not None:
            budget.charge(job)
        return _run(job, progress, watch)
    require_locks("out")
    folder = Path(out)
    check_writable(folder)
    _load_libraries(job)
    if budget is not None:
        budget.charge(job)
    return _run_in_folder(job, begin(folder, job), progress, watch)


def run_joined(jobs: Sequence[PlannedJob]) -> list[Run | None]:
    """Run planned jobs of one shape together, without folders. Each is bitwise identical to a run on its own.

    Args:
        jobs: planned jobs.

    Returns:
        The run of each job, or None for a job that must run on its own. `Run.result.seconds` is the time of a group
        divided by its number of runs.
    """
    runs: list[Run | None] = [None] * len(jobs)
    for members in group_jobs(jobs):
        group, start = [cast(GossipJob, jobs[k]) for k in members], time.perf_counter()
        # A job without a run is run by itself, which repeats the error for this job.
        with suppress(*USER_ERRORS), threadpool_limits(limits=1):
            observed = [_observe_run(job) for job in group]
            outcomes = start_joined(group, [control for _, control in observed])
            if outcomes is None:
                continue
            seconds = (time.perf_counter() - start) / len(group)
            for k, (rows, _), outcome in zip(members, observed, outcomes, strict=True):
                runs[k] = _finish(jobs[k], rows, outcome, seconds)
    return runs


def run_jobs(jobs: Sequence[PlannedJob]) -> Iterator[Run]:
    """Run planned jobs without folders, as by `run_job`; those of one shape are computed together."""
    for job, run in zip(jobs, run_joined(jobs), strict=True):
        yield run or run_job(job)


def steps_of_job(
    job: PlannedJob, out: str | Path | None, every: int, draw: Callable[[Run], None], budget: Budget | None = None
) -> Generator[Step, None, Run]:
    """Run a planned job round by round, like `Job.steps`.

    Args:
        job: planned job, as returned by `build`.
        out: folder to write, new or empty; None writes nothing.
        every: number of rounds between two steps.
        draw: function that draws the figures of the finished run.
        budget: budget that is charged before the first step, default none.
    """
    rounds = evaluated_rounds(job.rounds, every)
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    epsilons = spending(job.ledger.select(worst), job.scenario.privacy.delta, rounds)
    bits = [each * job.n_agents for each in count_sent(job, rounds).get("bits", [0.0] * len(rounds))]
    facts = {t: (float(e), round(b)) for t, e, b in zip(rounds, epsilons, bits, strict=True)}
    running = iterate(lambda visit: run_job(job, out, None, Watch(visit=visit, rounds=rounds), budget))
    with closing(running):
        while True:
            try:
                t, values = next(running)
            except StopIteration as done:
                draw(done.value)
                return cast(Run, done.value)
            yield Step(t, values, *facts[t])


def _load_libraries(job: PlannedJob) -> None:
    """Import the libraries that a run needs, so that a lack of memory is detected before the first release."""
    import pyarrow.parquet  # noqa: F401

    if job.scenario.seed is None:
        load_cipher()
    result_adapter()


def _run(
    job: PlannedJob,
    progress: Callback | None,
    watch: Watch,
    journal: RunInProgress | None = None,
    interruption: Interruption | None = None,
) -> Run:
    start = time.perf_counter()
    rows, outcome = _perform(job, progress, watch, journal, interruption)
    seconds, failures = time.perf_counter() - start, progress.failures if isinstance(progress, Callbacks) else ()
    return _finish(job, rows, outcome, seconds, failures, None if journal is None else journal.folder)


def _finish(
    job: PlannedJob,
    rows: Sequence[Row],
    outcome: Outcome,
    seconds: float,
    failures: Sequence[CallbackFailure] = (),
    folder: Path | None = None,
) -> Run:
    ledger = released_ledger(job, outcome.ledger)
    metrics = measuring.tabulate(rows, agent_names(job.topology.labels))
    result, last = collect_result(job, outcome, metrics, seconds, failures), outcome.last_snapshot
    return Run(
        scenario=job.scenario,
        simulation=Secret("the records and the noise of a run", job),
        measured=metrics,
        records=ledger,
        released=last.released,
        published=last.published,
        noiseless=Secret("the noiseless values of a run", last.state),
        result=result,
        folder=folder,
    )


def _run_in_folder(
    job: PlannedJob,
    journal: RunInProgress,
    progress: Callback | None,
    watch: Watch,
    interruption: Interruption | None = None,
) -> Run:
    """Run with a folder that records every release before it is sent."""
    folder = journal.folder
    try:
        run = _run(job, progress, watch, journal, interruption)
        run = write_contents(run, folder, journal)
    except BaseException as error:
        if journal.discard():
            if isinstance(error, OSError):
                raise unwritable_error(folder, error) from error
            raise
        resumes = f'"decentral-dp resume {folder}" resumes it'
        released = f"Up to round {journal.released_rounds} of {job.rounds} may have been released"
        is_interrupt = isinstance(error, KeyboardInterrupt)
        cause = f"interrupted; {resumes}" if is_interrupt else " ".join(str(error).split()) or type(error).__name__
        journal.write_interruption(
            "interrupted" if is_interrupt else "failed",
            cause,
            is_planned=not isinstance(error, UnplannedReleaseError),
            # Custom code may fail because of released values.
            is_adaptive=watch.visit is not None if is_interrupt else isinstance(error, UserCodeError),
        )
        run_error: BaseException = error
        if is_interrupt:
            run_error = Stopped(f"Interrupted. {released}, and is on record in {folder}. {resumes}.")
        elif isinstance(error, OSError):
            run_error = OSError(
                f"{folder} could not be written ({error}). {released}. Fix: free some disk space, then {resumes}."
            )
        elif isinstance(error, MemoryError):
            run_error = MemoryError(f"{reason(error)}. {released}, and is on record in {folder}. {resumes}")
        elif isinstance(error, UserCodeError):
            error.args = (f"{error} {released}, and is on record in {folder}.",)
        if run_error is error:
            raise
        raise run_error from (None if is_interrupt else error)
    journal.complete()
    return run


def _perform(
    job: PlannedJob,
    progress: Callback | None,
    watch: Watch = Watch(),  # noqa: B008 # immutable
    journal: RunInProgress | None = None,
    interruption: Interruption | None = None,
) -> tuple[list[Row], Outcome]:
    rows, control = _observe_run(job, progress, watch, journal, interruption)
    table = job.scenario.run
    # Products with one agent's records are too small for two BLAS threads.
    with threadpool_limits(limits=1):
        return rows, job.start(engine_of(table.engine, table.place), control)


def _observe_run(
    job: PlannedJob,
    progress: Callback | None = None,
    watch: Watch = Watch(),  # noqa: B008 # immutable
    journal: RunInProgress | None = None,
    interruption: Interruption | None = None,
) -> tuple[list[Row], RunControl]:
    """Return the observer of a run, and the rows of its metrics, to which the observer appends."""
    evaluator, report = job.evaluator(), Reporter(progress, "rounds")
    evaluation_rounds = evaluated_rounds(job.rounds, job.scenario.run.evaluate_every)
    epsilons = spent_by_round(job, evaluation_rounds)
    saved_state = None if interruption is None else interruption.state(job)
    # Rows of a saved state were measured before it was saved.
    rows: list[Row] = [] if interruption is None else list(interruption.rows)
    # After agents lost their states, measured rounds are repeated.
    last_measurement = last_visit = max([-1 if saved_state is None else saved_state.round, *(row[0] for row in rows)])
    evaluation_set, visited_rounds = set(evaluation_rounds), set(watch.rounds)
    is_certified = job.scenario.privacy.guarantee == "certified"

    def observe(s: Snapshot) -> bool:
        nonlocal last_measurement, last_visit
        ends = s.divergence is not None
        if not ends and s.round in evaluation_set and s.round > last_measurement:
            evaluate(s)
            last_measurement = s.round
            ends = watch.stops(s)
        if journal is not None:
            journal.write_due(s, rows, ends)
        # After agents lost their states, rounds are repeated.
        if watch.visit is not None and s.round in visited_rounds and s.round > last_visit:
            last_visit = s.round
            watch.visit(s.round, read_only(s.released))
        return ends

    def evaluate(s: Snapshot) -> None:
        # An overflow is reported as infinite, and as divergence once a released value overflows.
        new_rows: list[Row] = []
        with np.errstate(all="ignore"):
            try:
                if evaluator is not None:
                    new_rows = evaluator.rows(s, is_average=job.scenario.tail_length > 1)
                rows.extend(measuring.select_rows(new_rows, job.scenario.run.measures))
            except BlockLostError:
                # The engine starts the block again and asks once more.
                raise
            except USER_ERRORS as error:
                # Scores read records: a certified run continues without them.
                if not is_certified or isinstance(error, MemoryError):
                    raise
        rows.extend(watch.rows(s, {SPENT, *(row[2] for row in new_rows)}))
        if s.round in epsilons:
            rows.append((s.round, "mean", SPENT, epsilons[s.round]))
        if progress is not None:
            names = ("upper_loss", "primal") if job.tunes_x else ("lower_loss",)
            loss = next((v for r, a, n, v in reversed(rows) if n in names and a == "mean"), math.nan)
            # The value of the next composed round is never less than the spent ε.
            epsilon = next(e for t, e in epsilons.items() if t >= s.round)
            report(s.round, job.rounds, loss=loss, epsilon=epsilon)

    def check_machines(machines: Sequence[str]) -> None:
        if len(set(machines)) > 1 and getattr(job, "pairs", None) is not None:
            # Both ends of an edge round the same draw to the grid, and must get the same number.
            raise InputError(
                "privacy.correlation: noise of neighbours cancels only if their machines round identically "
                f"(got {len(set(machines))} kinds of processor or versions, expected 1). Fix: start Ray on "
                "identical machines, or remove privacy.correlation."
            )
        if journal is not None:
            journal.check_machines(machines)

    control = RunControl(
        [*evaluation_rounds, *watch.rounds], observe, saved_state=saved_state, check_machines=check_machines
    )
    if journal is not None:
        control = control._replace(due=journal.due, keeps_releases=journal.releases is not None, states=journal.states)
    return rows, control


def released_ledger(job: PlannedJob, run_ledger: Ledger) -> Ledger:
    """Return the recorded ledger if it equals the planned ledger.

    Args:
        job: job that was run.
        run_ledger: recorded ledger of the run.

    Raises:
        UnplannedReleaseError: the releases differ from the plan, so that its ε does not hold.
    """
    if not job.covers(run_ledger):
        raise UnplannedReleaseError(
            f"{job.scenario.algorithm.kind}: the releases are not those of the plan, so no ε holds "
            f"({_difference(job.ledger.truncate(run_ledger.rounds), run_ledger)}). Fix: correct the algorithm's plan "
            'of releases or its `step`; "decentral-dp check" tests both.'
        )
    return run_ledger


def _difference(plan_ledger: Ledger, run_ledger: Ledger) -> str:
    """Name the channels in which two ledgers differ."""

    def lines(ledger: Ledger) -> dict[str, None]:
        names = [getattr(line.mechanism, "name", line.mechanism) for line in ledger.channels]
        noises = ["without noise" if name in ("free", "none") else f"with {name} noise" for name in names]
        return dict.fromkeys(
            f"{line.channel} {noise}, {line.dimension} numbers, {line.rounds.size} times"
            for line, noise in zip(ledger.channels, noises, strict=True)
        )

    got, expected = lines(run_ledger), lines(plan_ledger)
    parts = ("got", [line for line in got if line not in expected]), ("expected", [e for e in expected if e not in got])
    texts = [f"{word} {'; '.join(entries) or 'nothing else'}" for word, entries in parts]
    return ", ".join(texts) if any(entries for _, entries in parts) else "a sensitivity, scale or rate differs"
