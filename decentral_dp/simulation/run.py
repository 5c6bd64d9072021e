"""Running a scenario: the finished run, what it holds, and the folder that it leaves behind.

Its numbers are those of `result.json`. Which rounds are evaluated, and the ε spent by then, follow from the plan.

More rounds for a run that was cut off: priced, or refused where they would not be the same run, only longer.

Going on without the root of the noise: what was in flight is released once more, and charged once more.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from decentral_dp.bounded import Array
from decentral_dp.config.components import Objects
from decentral_dp.config.loading import load, read_toml
from decentral_dp.config.schema import Scenario
from decentral_dp.engines import ENGINES
from decentral_dp.engines.protocol import Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError, Stopped
from decentral_dp.files.durable import OWNERS
from decentral_dp.files.package import versions
from decentral_dp.files.parquet import to_parquet
from decentral_dp.formatting import agent_names, delta_text, duration_text, epsilon_text
from decentral_dp.privacy.accounting.accountants import epsilon_of, spending
from decentral_dp.privacy.ledger import IntArray, Ledger, Window, charge_in_flight
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.advice import clipping, learning
from decentral_dp.simulation.communication import By, communication, tabulate_sent
from decentral_dp.simulation.events import ProgressCallback, Reporter, check_log, log_progress
from decentral_dp.simulation.folder import releases
from decentral_dp.simulation.folder.journal import (
    Interruption,
    RunInProgress,
    advice_on,
    before_damage,
    begin,
    find,
    first_scenario,
    is_full,
    root_of_run,
    unwritable_error,
)
from decentral_dp.simulation.folder.layout import check_writable, resolved_toml
from decentral_dp.simulation.jobs.build import build, with_blocks
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.method import method_name
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.model import Model, model_of
from decentral_dp.simulation.plan import Plan, baselines, problem_summary, title_of, topology_summary
from decentral_dp.simulation.result import IN_PROGRESS, RunResult
from decentral_dp.simulation.statements.of_job import settings_of, statement_of, theorem_of
from decentral_dp.user_code import USER_ERRORS, UserCodeError

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.reporting.folder import Drawing
    from decentral_dp.reporting.plots import RunPlots


# An array is compressed where so many of its numbers shrink to less than this part.
_SAMPLED, _WORTH = 8192, 0.9
# At most so many points of the spent-epsilon curve: each is a full pricing.
_CURVE_POINTS = 25
SPENT = "epsilon_spent"


@dataclass(frozen=True)
class Run:
    """A finished run.

    `released`, `published`, the ledger and the scenario are what the budget covers; metrics, state and plots read
    private data. Neither state, nor records, nor the root of the noise are in a pickle or a copy of a run.

    Args:
        simulation: `run.simulation()` is the job, with all records and the root of the noise: the simulator's view.
        measured: columns of `metrics`.
        records: what was released; `ledger` is the same as a table.
        released: channel → (m, ·) last released values.
        published: the average of the last ones (`run.average`).
        unnoised: `state` is what it holds.
        result: the numbers of `result.json`.
        folder: that was written, or None.
        baselines: "alone", "central", "none" → a run that this one is judged by, where they were asked for.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
        >>> list(run.metrics.columns), list(run.published)
        (['round', 'agent', 'name', 'value'], ['x', 'y', 'z'])
    """

    scenario: Scenario
    simulation: Secret[Job]
    measured: Mapping[str, NDArray[Any]]
    records: Ledger
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    unnoised: Secret[Mapping[str, Array]]
    result: RunResult
    folder: Path | None
    baselines: Mapping[str, Run] = field(default_factory=dict)

    @classmethod
    def resume(
        cls,
        folder: str | Path,
        *,
        progress: ProgressCallback | None = None,
        rounds: int | None = None,
        priced: Callable[[Plan], None] | None = None,
        charge_again: bool = False,
        **objects: Unpack[Objects],
    ) -> Run:
        """Go on with a run that was cut off, and draw its pictures and its page; as `decentral_dp.resume`.

        Args:
            folder: of the run, whose status is "running", "interrupted" or "failed".
            progress: called with a `Progress` of "rounds".
            rounds: in all, more than planned; by default as many as planned.
            priced: called with the plan of a longer run before it goes on.
            charge_again: whether to pay once more for what was in flight.
            **objects: as of `build`.

        Returns:
            The finished run.

        Raises:
            InputError: as of `decentral_dp.resume`; or the folder is of no run.
            Stopped: interrupted again.
        """
        from decentral_dp.reporting import page
        from decentral_dp.reporting.notebook_progress import show_progress

        folder = Path(folder)
        interruption, lock = find(folder)
        try:

            def rebuild(scenario: Scenario) -> Job:
                return build(scenario, **objects)

            # Wherever the text lies, it names files from the folder of the run.
            first = rebuild(load(read_toml(first_scenario(folder)), folder=folder.resolve()))
            check_log(first.scenario.run.log or (), first.scenario.run.engine)
            root, interruption = root_of_run(interruption, first, folder), before_damage(interruption, first, folder)
            job, window = longer_job(first, interruption, folder, rounds, rebuild), None
            if root is None:
                if job.states_are_elsewhere:
                    interruption = replace(interruption, saved_state=None, state_number=0, rows=[])
                job, window = charge_interruption(job, interruption, folder, charge_again)
            else:
                job = job.with_root(root)
            if priced is not None and (rounds is not None or window is not None):
                priced(Plan.from_job(job))
            journal = RunInProgress(folder, job, lock, interruption)
            if rounds is not None:
                journal.extend()
            if window is not None:
                journal.charge_again(window)
        except BaseException:
            lock.close()
            raise
        with show_progress(progress, "rounds") as callback:
            done = _run_in_folder(job, journal, callback, interruption)
        page.draw_run(folder)
        return done

    @property
    def state(self) -> Mapping[str, Array]:
        """What agents keep to themselves, by its name: private values without noise.

        Each is (m, width), a row for each agent.
        """
        return self.unnoised()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Rows (round, agent, name, value), and agent_name where agents have other names than their numbers."""
        # Slow to import, and a folder is written and drawn without it.
        import pandas as pd

        return pd.DataFrame(dict(self.measured))

    @property
    def ledger(self) -> pd.DataFrame:
        return self.records.to_frame(agent_names(self.result.topology.get("labels")))

    def messages(self, by: By = "link") -> pd.DataFrame:
        """Messages, numbers and bits by agent, link, round or message; see `simulation.communication.tabulate_sent`.

        Args:
            by: "agent" that sends, "link" from a sender to a receiver, "round", or "message": every link of every
                round.
        """
        return tabulate_sent(self.simulation(), by)

    @property
    def model(self) -> Model:
        """What was trained, as a model of new records: its weights by name, and what they predict.

        Raises:
            InputError: the problem predicts nothing, what predicts was not published, or the run diverged.
        """
        return model_of(self.scenario, self.result, self.published)

    def predict(self, table: Any, *, agent: int | str | None = None) -> NDArray[Any]:
        """Predict the class of each record of a raw table, or its number, from published weights alone.

        Args:
            table: a DataFrame, a dict of columns, an array (n, d), or the path of a CSV or Parquet file; before any
                scaling. As of `Model.predict`.
            agent: whose weights predict; by default the mean over agents of what each published (see `Model`).

        Returns:
            (n,) labels as the scenario names its classes, or numbers in the label's own unit.

        Raises:
            InputError: as of `model`, there is no such agent, or the table cannot be read so.

        Example:
            >>> import decentral_dp
            >>> from sklearn.datasets import load_breast_cancer
            >>> run = decentral_dp.run("classification", set={"algorithm.rounds": 50})
            >>> run.predict(load_breast_cancer(as_frame=True).data[:3]).tolist()
            ['malignant', 'malignant', 'malignant']
        """
        return self._model_of(agent).predict(table)

    def predict_proba(self, table: Any, *, agent: int | str | None = None) -> Array:
        """The probabilities (n, c) of the classes, in the order of `run.model.classes`; as `predict`.

        Raises:
            InputError: as of `predict`, or numbers are predicted.
        """
        return self._model_of(agent).predict_proba(table)

    def _model_of(self, agent: int | str | None) -> Model:
        return self.model if agent is None else self.model.of_agent(agent)

    @property
    def plot(self) -> RunPlots:
        """The figures of this run, as in `run.plot.accuracy()`: notebooks show them, `save` writes them."""
        from decentral_dp.reporting.plots import RunPlots

        return RunPlots(self.drawing)

    @property
    def drawing(self) -> Drawing:
        """What its figures are drawn from."""
        from decentral_dp.reporting.folder import drawing_of, drawn_rounds

        ledger, scenario = self.records.columns_at(drawn_rounds(self.result)), self.scenario.model_dump()
        return drawing_of(self.result, scenario, self.measured, ledger, self.published.get("x"))

    def _repr_html_(self) -> str:
        from decentral_dp.reporting.page import run_view

        baselines = {name: run.result for name, run in self.baselines.items()}
        return run_view(self.result, [picture._repr_png_() for picture in self.plot.opening()], baselines)

    def __repr__(self) -> str:
        result, spent = self.result, epsilon_text(self.result.privacy.epsilon_max)
        return f"<Run {result.title!r}: {result.status}, {result.rounds} rounds, ε = {spent}>"


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    """List the rounds after which scores are taken: 0, every so many, and the last.

    Example:
        >>> evaluated_rounds(rounds=7, every=3)
        [0, 3, 6, 7]
    """
    return sorted({*range(0, rounds + 1, every), rounds})


def add_spent(rows: Sequence[Row], spent: Mapping[int, float]) -> list[Row]:
    """What was measured, with ε spent at the rounds that are priced now: a longer run has others than a shorter."""
    out = []
    for number, measured in itertools.groupby(rows, key=lambda row: row[0]):
        out += [row for row in measured if row[2] != SPENT]
        if number in spent:
            out.append((number, "mean", SPENT, spent[number]))
    return out


def spent_by_round(job: Job, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Epsilon spent by the worst agent after each evaluated round, from the plan: a public number."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    if job.windows:
        return {t: float(_spent_with_windows(job, worst, t)) for t in chosen}
    spent = spending(job.ledger.select(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, spent.tolist(), strict=True))


def _spent_with_windows(job: Job, worst: IntArray, t: int) -> float:
    """ε spent after a round by one agent: what was in flight is out as soon as the run has gone on from its state."""
    course = job.uninterrupted_ledger.select(worst)
    out = charge_in_flight(course.truncate(t), course, [w for w in job.windows if w.first_round <= t])
    return float(epsilon_of(out, job.scenario.privacy.delta)[0])


def _unmeasured_text(job: Job, ends: Mapping[str, float]) -> str:
    """What was left out, and what was asked for and is not among the last metrics; "" for nothing."""
    missing = [m for m in job.scenario.run.measures or () if not any(name.startswith(m) for name in ends)]
    none = f"Not measured, for this run has none: {', '.join(missing)} (run.measures)." if missing else ""
    return " ".join(filter(None, (job.unmeasured, none)))


def result_of(job: Job, outcome: Outcome, metrics: Mapping[str, NDArray[Any]], seconds: float) -> RunResult:
    """Collect the numbers of a finished run.

    Args:
        job: what was run.
        outcome: its last values.
        metrics: columns round, agent, name, value of all evaluations.
        seconds: it took.
    """
    divergence, ends = outcome.last_snapshot.divergence, measuring.final(metrics)
    status, reason = job.status, job.reason
    if divergence is not None:
        what = "grew above 10⁶ times its public scale" if divergence.finite else "stopped being finite"
        status = "diverged"
        reason = (
            f"the released value of {divergence.channel} {what} at round {divergence.round}; "
            f"metrics are kept up to the last evaluation before it. Use smaller step sizes or a start nearer to 0."
        )
    elif job.scenario.privacy.guarantee != "certified" and not math.isfinite(ends.get("primal", 0.0)):
        # Infinite from the start, it says what the records are, which a certified run must not end by.
        status, reason = "diverged", "what is minimised is not finite at the published x. Use smaller step sizes."
    elif grown := grown_loss(_losses(job, outcome, metrics)):
        status, reason = "diverged", grown
    # Of a run that ended early the last evaluation counts, and there may have been fewer releases than asked for.
    evaluated = int(max(metrics["round"], default=0))
    average = min(job.scenario.tail_length, max(evaluated, 1))
    rounds = outcome.last_snapshot.round if divergence is None else divergence.round
    statement, settled, messages = statement_of(job), settings_of(job), communication(job, rounds)
    content = {
        "title": title_of(job),
        "status": status,
        "reason": reason,
        "method": method_name(job),
        "engine": job.scenario.run.engine,
        "rounds": rounds,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        # Read from records, as metrics are.
        "diagnostics": {
            "baselines": {n: v for n, v in baselines(job).items() if any(name.startswith(n) for name in ends)},
            **clipping(job, outcome),
            **({"labels_cut": job.shards.labels_cut} if job.shards.labels_cut else {}),
            **({"features_cut": dict(job.shards.features_cut)} if job.shards.features_cut else {}),
            **({"unmeasured": text} if (text := _unmeasured_text(job, ends)) else {}),
            **({"learning": sentences} if (sentences := learning(job, outcome, metrics, ends)) else {}),
        },
        "evaluated_on": job.evaluated_on(average),
        # Of a bilevel method it goes without saying.
        **({} if job.tunes_x else {"tunes_x": False}),
        **({} if settled is None else {"algorithm": settled}),
        "privacy": statement.to_dict(),
        "theorem": theorem_of(job),
        **({} if messages is None else {"communication": asdict(messages)}),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return RunResult.from_content(content, statement)


# Losses that are minimised, by the names of their measures.
LOSSES = ("upper_loss", "lower_loss", "primal")
# Times its start, or 1, above which the evaluated loss of a run has diverged.
_MOST_GROWTH = 1e3


def _losses(job: Job, outcome: Outcome, metrics: Mapping[str, NDArray[Any]]) -> dict[str, list[float]]:
    """Loss → its means over agents from the start on; where `run.measures` leaves losses out, at the end alone."""
    of_mean = np.asarray(metrics["agent"]) == "mean"
    names, values = np.asarray(metrics["name"])[of_mean], np.asarray(metrics["value"])[of_mean]
    losses = {name: values[names == name].tolist() for name in LOSSES if (names == name).any()}
    # Without its start, one huge record would be taken for growth, and show in how a certified run ends.
    if losses or job.scenario.run.measures is None or job.scenario.privacy.guarantee == "certified":
        return losses
    evaluator = job.evaluator()
    if not isinstance(evaluator, measuring.Evaluator):
        return {}
    own = replace(evaluator, measures=LOSSES, hypergradient=False, reads_state=False)
    with np.errstate(all="ignore"):
        try:
            rows = own.rows(outcome.last_snapshot, averaged=False)
        except USER_ERRORS:
            # No certified run ends because of what its records are.
            return {}
    return {name: [value] for _, agent, name, value in rows if agent == "mean" and name in LOSSES}


def grown_loss(losses: Mapping[str, Sequence[float]]) -> str:
    """Say that a loss ended above 10³ max(its start, 1); "" where none did.

    It is evaluated on records, and no ε covers it: it labels a run that has ended, and stops none.

    Args:
        losses: measure → its means over agents from the start on, or at the end alone.

    Example:
        >>> grown_loss({"lower_loss": [0.7, 0.5]}), grown_loss({"upper_loss": [0.7, 2e4]})[:39]
        ('', 'upper_loss grew from 0.7 to 2e+04, more')
    """
    for name, values in losses.items():
        start, end = (values[0] if len(values) > 1 else 1.0), values[-1]
        # What is infinite from the start has not grown: it says what the records are, and not how the run went.
        if math.isfinite(start) and not end <= _MOST_GROWTH * max(1.0, start):
            grew = f" grew from {start:.3g} to" if len(values) > 1 else " ended at"
            return (
                f"{name}{grew} {end:.3g}, more than 1000 times max(start, 1), by an evaluation that no ε covers. Use "
                "smaller step sizes or a start nearer to 0."
            )
    return ""


def write_contents(done: Run, folder: Path, parts: releases.Digests) -> None:
    """Write the files of a finished run: all of them beside their places first, result.json last, which says so.

    What is small and dear comes first, so that a full disk takes what can be computed again. parts: of what it
    released, where that is kept.
    """
    # Where it is removed with the rest if the run is killed here.
    partial = Path(tempfile.mkdtemp(prefix="finished-", dir=folder / IN_PROGRESS))
    try:
        (partial / "result.json").write_text(done.result.to_json(), encoding="utf-8")
        text = resolved_toml(done.simulation().components, done.simulation().topology, folder)
        (partial / "scenario.toml").write_text(text, encoding="utf-8")
        arrays = {**done.state}
        arrays |= {f"released_{c}": v for c, v in done.released.items()}
        arrays |= {f"published_{c}": v for c, v in done.published.items()}
        # Un-noised values are their owner's alone.
        _write_arrays(partial / "state.npz", arrays, OWNERS if done.state else 0o666)
        (partial / "metrics.parquet").write_bytes(to_parquet(done.measured))
        done.records.to_parquet(partial / "ledger.parquet", names=agent_names(done.simulation().topology.labels))
        names = ["scenario.toml", "state.npz", "metrics.parquet", "ledger.parquet"]
        if done.scenario.run.keep_releases:
            releases.join(folder / IN_PROGRESS, parts, partial / releases.NAME)
            names.append(releases.NAME)
        for name in [*names, "result.json"]:
            (partial / name).replace(folder / name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_arrays(path: Path, arrays: Mapping[str, Array], mode: int) -> None:
    """Write an .npz, which `numpy.load` reads; each array is compressed only where that is worth its time.

    The state is noise in its last bits: to make it 4 % smaller took two fifths of the run of ten thousand agents.
    """
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(opened, "wb") as whole, zipfile.ZipFile(whole, "w", compresslevel=1) as archive:
        for name, values in arrays.items():
            middle = values.reshape(-1)[values.size // 2 :][:_SAMPLED].tobytes()
            smaller = len(zlib.compress(middle, 1)) < _WORTH * len(middle)
            archive.compression = zipfile.ZIP_DEFLATED if smaller else zipfile.ZIP_STORED
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, values, allow_pickle=False)


def run_job(
    planned: Job, out: str | Path | None = None, progress: ProgressCallback | None = None, keep_secret: bool = True
) -> Run:
    """Run a planned job, and write its folder where one is asked for; nothing is drawn.

    Args:
        planned: as `build` makes it.
        out: the folder to write, new or empty; by default nothing is written.
        progress: told of progress at every evaluation.
        keep_secret: whether secret noise has its root in the folder, for `resume` and its owner alone, until it ends.

    Returns:
        The run. Its folder is complete but for its pictures and its page.

    Raises:
        InputError: the folder holds something, or cannot be written.
        Stopped: interrupted; what was released is on record in the folder.
    """
    job = with_blocks(planned)
    if out is None:
        return _run(job, progress)
    folder = Path(out)
    check_writable(folder)
    check_log(job.scenario.run.log or (), job.scenario.run.engine)
    return _run_in_folder(job, begin(folder, job, keep_secret), progress)


def _run(
    job: Job,
    progress: ProgressCallback | None,
    journal: RunInProgress | None = None,
    interruption: Interruption | None = None,
) -> Run:
    started = time.perf_counter()
    names, place = ((), Path()) if journal is None else (job.scenario.run.log or (), journal.folder)
    with log_progress(names, place, job.scenario.title, progress) as callback:
        rows, outcome = _perform(job, callback, journal, interruption)
    ledger = released_ledger(job, outcome.ledger)
    seconds = time.perf_counter() - started
    measured = measuring.tabulate(rows, agent_names(job.topology.labels))
    result = result_of(job, outcome, measured, seconds)
    last, folder = outcome.last_snapshot, None if journal is None else journal.folder
    return Run(
        scenario=job.scenario,
        simulation=Secret("the records and the noise of a run", job),
        measured=measured,
        records=ledger,
        released=last.released,
        published=last.published,
        unnoised=Secret("the un-noised values of a run", last.state),
        result=result,
        folder=folder,
    )


def _run_in_folder(
    job: Job, journal: RunInProgress, progress: ProgressCallback | None, interruption: Interruption | None = None
) -> Run:
    """Run with a folder that says at every moment what was released."""
    folder = journal.folder
    try:
        done = _run(job, progress, journal, interruption)
        if job.scenario.seed is None and journal.keeps_secret:
            result = RunResult.from_content({**done.result.content, "root_was_kept": True}, done.result.privacy)
            done = replace(done, result=result)
        write_contents(done, folder, journal.release_digests)
    except BaseException as error:
        if journal.discard():
            if is_full(error):
                raise unwritable_error(folder, error) from error
            raise
        goes_on = f'"decentral-dp resume {folder}" goes on'
        released = f"Up to round {journal.released_rounds} of {job.rounds} may have been released"
        if isinstance(error, KeyboardInterrupt):
            journal.write_interruption("interrupted", f"interrupted; {goes_on}")
            raise Stopped(f"Interrupted. {released}, and is on record in {folder}. {goes_on}.") from None
        journal.write_interruption("failed", " ".join(str(error).split()) or type(error).__name__)
        if isinstance(error, OSError):
            text = f"{folder} could not be written ({error}). {released}. {advice_on(error)}, then {goes_on}."
            raise OSError(text) from error
        if isinstance(error, UserCodeError):
            raise UserCodeError(f"{error} {released}, and is on record in {folder}.") from error
        raise
    journal.complete()
    return done


# Seconds of all evaluations above which they are told.
_LONG = 10.0


def _perform(
    job: Job,
    progress: ProgressCallback | None,
    journal: RunInProgress | None = None,
    interruption: Interruption | None = None,
) -> tuple[list[Row], Outcome]:
    evaluator, report = job.evaluator(), Reporter(progress, "rounds")
    evaluation_rounds = evaluated_rounds(job.rounds, job.scenario.run.evaluate_every)
    spent = spent_by_round(job, evaluation_rounds)
    saved = None if interruption is None else interruption.state(job)
    # What a state comes with was measured before it was kept.
    rows: list[Row] = [] if interruption is None else add_spent(interruption.rows, spent)
    # Where agents have lost states, rounds that were measured come again.
    measured = max([-1 if saved is None else saved.round, *(row[0] for row in rows)])
    listed, to_come = set(evaluation_rounds), [t for t in evaluation_rounds if t > measured]
    certified = job.scenario.privacy.guarantee == "certified"

    def observe(s: Snapshot) -> bool:
        if s.divergence is not None:
            if journal is not None:
                journal.write_due(s, rows)
            return True
        if s.round in listed and s.round > measured:
            evaluate(s)
        if journal is not None:
            journal.write_due(s, rows)
        return False

    def note(left: int, seconds: float, word: str = "") -> str:
        if not seconds * left > _LONG:
            return ""
        return (
            f"About {duration_text(seconds * left)} for {left}{word} evaluations: {seconds:.1f} s each. "
            "run.evaluate_every makes them fewer, and run.measures shorter."
        )

    def evaluate(s: Snapshot) -> None:
        started, announced, averaged = time.perf_counter(), "", job.scenario.tail_length > 1
        is_first = progress is not None and s.round == to_come[0]
        # What overflows here is reported as infinite, and as divergence once a released value does.
        with np.errstate(all="ignore"):
            try:
                if is_first and isinstance(evaluator, measuring.Evaluator):
                    announced = note(len(to_come), evaluator.seconds(s, averaged))
                    if announced:
                        report(s.round, job.rounds, note=announced)
                taken = evaluator.rows(s, averaged)
                rows.extend(measuring.select_rows(taken, job.scenario.run.measures))
            except USER_ERRORS as error:
                # Scores read records, and no certified run may end because of one: it goes on without these scores.
                if not certified or isinstance(error, MemoryError):
                    raise
        if s.round in spent:
            rows.append((s.round, "mean", SPENT, spent[s.round]))
        if progress is not None:
            names = ("upper_loss", "primal") if job.tunes_x else ("lower_loss",)
            loss = next((v for r, a, n, v in reversed(rows) if n in names and a == "mean"), math.nan)
            seconds = time.perf_counter() - started
            # Between two priced rounds the later one: never less than what is spent.
            epsilon = next(e for t, e in spent.items() if t >= s.round)
            rest = note(len(to_come) - 1, seconds, " more") if is_first and not announced else ""
            report(s.round, job.rounds, loss=loss, epsilon=epsilon, note=rest)

    table = job.scenario.run
    engine = ENGINES[table.engine](table.address, table.place, dict(table.recovery or ()), table.gpus_per_actor)
    control = RunControl(evaluation_rounds, observe, saved_state=saved)
    if journal is not None:
        control = control._replace(due=journal.due, keeps_releases=journal.keeps_releases, states=journal.states)
    # Products of one agent's records are too small to share: two BLAS threads on a busy machine cost far more than one.
    with threadpool_limits(limits=1):
        return rows, job.start(engine, control)


# As many as a scenario may have.
_LIMIT = 10**12


def longer_job(
    job: Job, interruption: Interruption, folder: Path, rounds: int | None, build: Callable[[Scenario], Job]
) -> Job:
    """The job of a run that goes on, with the rounds that it has by now.

    Noise keeps its schedule: where a target epsilon set it, that is the price of the rounds that were planned first,
    and all rounds cost more. What may have been released must be priced in the longer plan as it was in the shorter.

    Args:
        job: as the run was begun.
        interruption: what its folder says, with the rounds that were asked for since.
        folder: of the run.
        rounds: that are asked for now; None leaves them as they are.
        build: makes the job of a scenario, with the objects that the run was given.

    Returns:
        The job itself where no more was ever asked for.

    Raises:
        InputError: the longer run would pass a cap or has other noise, or the last round may have been released.
    """
    current = (
        job if interruption.extended_rounds is None else build(_with_rounds(job.scenario, interruption.extended_rounds))
    )
    if rounds is None:
        return current
    total = current.scenario.algorithm.rounds
    if not total < rounds <= _LIMIT:
        raise _rounds_error(rounds, f" is not more than the {total} rounds that are planned, or more than {_LIMIT}.")
    if current.plans_ahead:
        raise _rounds_error(
            rounds,
            f": {job.scenario.algorithm.kind} plans its whole budget beforehand, and more rounds would have needed "
            "more noise in the first.",
        )
    if interruption.leased_rounds >= current.rounds:
        raise _rounds_error(
            rounds,
            f": the last of the {current.rounds} rounds of {folder} may have been released, and what leaves at the "
            "end of a run is not what leaves between two rounds.",
        )
    longer = build(_with_rounds(job.scenario, rounds))
    if longer.rounds < rounds:
        raise _rounds_error(
            rounds,
            f" would pass the declared cap ε = {job.scenario.privacy.cap:g}; {longer.rounds} rounds are within it. "
            "Give at most as many.",
        )
    if not _is_same_so_far(current, longer, interruption.leased_rounds):
        raise _rounds_error(
            rounds,
            f": in a run of so many rounds the first {interruption.leased_rounds} would have been released otherwise.",
        )
    return longer


def _rounds_error(rounds: int, why: str) -> InputError:
    """The refusal of so many rounds."""
    said = f"{rounds}{why} Leave it out to go on as planned."
    return InputError(f"resume: rounds = {said}", command=f"resume: --rounds {said}")


def _with_rounds(scenario: Scenario, rounds: int) -> Scenario:
    """The scenario with more rounds; a target epsilon stays that of the rounds that were planned first."""
    privacy = scenario.privacy
    if privacy.epsilon is not None and privacy.epsilon_rounds is None:
        privacy = privacy.model_copy(update={"epsilon_rounds": scenario.algorithm.rounds})
    table = scenario.algorithm.model_copy(update={"rounds": rounds})
    return scenario.model_copy(update={"algorithm": table, "privacy": privacy})


def _is_same_so_far(job: Any, longer: Any, leased: int) -> bool:
    """Whether both jobs make the same releases, with the same noise, up to a round."""
    if longer.algorithm != job.algorithm or longer.noise.keys() != job.noise.keys():
        return False
    same_noise = all(
        np.array_equal(mine.scale, longer.noise[channel].scale)
        and np.array_equal(mine.decay, longer.noise[channel].decay)
        and mine.points == longer.noise[channel].points
        for channel, mine in job.noise.items()
    )
    return same_noise and _releases_until(job.ledger, leased).same_releases(_releases_until(longer.ledger, leased))


def _releases_until(ledger: Ledger, rounds: int) -> Ledger:
    """The releases that are out after so many rounds, without the channels that have none yet."""
    until = ledger.truncate(rounds)
    return replace(until, channels=tuple(c for c in until.channels if c.rounds.size))


def charge_interruption(job: Job, interruption: Interruption, folder: Path, agreed: bool) -> tuple[Job, Window | None]:
    """The job of a run that goes on with another root, with what was in flight in its ledger and in its budget.

    `privacy/ledger.py` says why that covers both passes. What is charged is what may have been released: rounds
    are on record in advance.

    Args:
        job: with the rounds that it has by now.
        interruption: what its folder says.
        folder: of the run.
        agreed: whether whoever asks for it agrees to the new price.

    Returns:
        The job, and the rounds that are charged again from now on; None where nothing was in flight.

    Raises:
        InputError: nobody agreed, the price would pass a cap, a trusted coordinator has planned its whole budget, or
            later noise goes on from what is lost.
    """
    at = interruption.saved_state[0] if interruption.saved_state else 0
    new = Window(at, interruption.in_flight) if interruption.in_flight else None
    if job.plans_ahead:
        if new is None:
            return job.with_root(secret_root()), None
        raise InputError(
            f"{_lost_secret(folder)} {job.scenario.algorithm.kind} plans its whole budget beforehand, and what it "
            "would release again is not in that plan. Run the scenario again in another folder; both runs are to be "
            "paid for."
        )
    if getattr(job, "factor", None) is not None and (new is not None or at):
        raise InputError(
            f"{_lost_secret(folder)} Later noise goes on from it (privacy.correlation.in_time). Run the scenario "
            "again in another folder; both runs are to be paid for."
        )
    # A state that cannot be read is refused before anything is charged.
    interruption.state(job)
    before = job.with_windows(interruption.windows)
    after = before if new is None else job.with_windows((*interruption.windows, new))
    if new is not None:
        _check(before, after, new, folder, agreed)
    return after.with_root(secret_root()), new


def released_ledger(job: Job, recorded: Ledger) -> Ledger:
    """All that a run has released.

    Args:
        job: what was run.
        recorded: by the course that it ended with.

    Raises:
        RuntimeError: what was released is not what was planned. The budget is the plan's price, and would not hold.
    """
    if not job.covers(recorded):
        raise RuntimeError(
            f"{job.scenario.algorithm.kind}: the releases that were recorded are not those that were planned and "
            "priced, so the budget does not hold. Mend the algorithm's plan of releases, or its `step`."
        )
    return charge_in_flight(recorded, job.uninterrupted_ledger, job.windows)


def _check(before: Job, after: Job, new: Window, folder: Path, agreed: bool) -> None:
    was, now = (float(j.budget.epsilon.max()) for j in (before, after))
    privacy = after.scenario.privacy
    cost = f"ε = {epsilon_text(now)} instead of {epsilon_text(was)} at δ = {delta_text(privacy.delta)}"
    rounds = f"{new.first_round} to {new.last_round}"
    if privacy.cap is not None and now > privacy.cap:
        raise InputError(
            f"{_lost_secret(folder)} Releasing rounds {rounds} once more would cost {cost}, and pass the "
            f"declared cap ε = {privacy.cap:g}. Run the scenario again in another folder; both runs are to be paid for."
        )
    if not agreed:
        why = (
            f"{_lost_secret(folder)} Rounds {rounds} may be out, and would be released once more with other "
            f"noise, which is a second release: the run would cost {cost}. Agree with"
        )
        mend = "or run the scenario again in another folder; both runs are to be paid for then."
        raise InputError(f"{why} charge_again=True, {mend}", command=f"{why} --charge-again, {mend}")


def _lost_secret(folder: Path) -> str:
    return f"resume: the secret of {folder} was not kept, and its noise cannot be drawn again."
