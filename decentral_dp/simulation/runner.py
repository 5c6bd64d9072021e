"""Running a scenario, and the folder that a run leaves behind."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
import tomli_w
from threadpoolctl import threadpool_limits

from decentral_dp.bounded import Array
from decentral_dp.config.algorithm_components import is_coordinated
from decentral_dp.config.loading import load
from decentral_dp.config.schema import Scenario, put
from decentral_dp.engines import ENGINES
from decentral_dp.engines.protocol import Outcome, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import spending
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.problems.protocol import Problem
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.result import RunResult, problem_summary, topology_summary
from decentral_dp.user_code import USER_ERRORS

# At most so many points of the spent-epsilon curve: each is a full pricing.
_CURVE_POINTS = 25


class ProgressCallback(Protocol):
    """Told of progress: round, rounds in all, upper loss, epsilon spent by the worst agent."""

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run.

    `released`, `published`, the ledger and the scenario are what the budget covers; metrics, state and plots read
    private data.

    Args:
        metrics: rows (round, agent, name, value). records: what was released; `ledger` is the same as a table.
        released: channel → (m, ·) last released values.
        published: the average of the last ones (`run.average`).
        state: what agents keep to themselves. result: the numbers of `result.json`.
        folder: that was written, or None.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run(decentral_dp.load("quadratic", ["algorithm.rounds=2"]))
        >>> list(run.metrics.columns), list(run.published)
        (['round', 'agent', 'name', 'value'], ['x', 'y', 'z'])
    """

    scenario: Scenario
    job: Job
    metrics: pd.DataFrame
    records: Ledger
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    state: Mapping[str, Array]
    result: RunResult
    folder: Path | None

    @property
    def ledger(self) -> pd.DataFrame:
        return self.records.to_frame()

    def __repr__(self) -> str:
        result = self.result
        return f"<Run {result.title!r}: {result.status}, {result.rounds} rounds, ε = {result.privacy.epsilon_max}>"


def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    out: str | Path | None = None,
    problem: Problem | None = None,
    progress: ProgressCallback | None = None,
    algorithm: Any = None,
    mechanism: Any = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
) -> Run:
    """Run a scenario, and write a run folder where one is asked for.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        out: the folder to write, new or empty; by default nothing is written.
        problem: used instead of the one that the scenario names: one made with `from_losses`, or an instance of a class
            as docs/add_a_problem.md describes it.
        algorithm: used instead of the one that the scenario names: a dataclass with its fields filled in.
        mechanism: used instead of privacy.mechanism: an object of your own (see `docs/add_a_mechanism.md`).
        topology: used instead of the one that the scenario names: a `networkx.Graph`, a `Topology`, or pairs of agents.
        data: used instead of what the scenario names: (features, labels), a table of columns, or a `Dataset`.
        partition: used instead of the one that the scenario names: a function, as in a file.
        progress: told of progress at every evaluation.

    Returns:
        The run: its result, metrics, ledger, and released values. One that diverges has the status "diverged", which
        under "certified" is told from released values alone; metrics may be infinite or missing whatever the status.

    Raises:
        InputError: one sentence about whatever is wrong.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run(decentral_dp.load("quadratic", ["algorithm.rounds=2"]))
        >>> run.result.status, run.result.rounds, run.released["x"].shape
        ('ok', 2, (8, 5))
    """
    loaded = load(scenario)
    job = build(loaded, problem, algorithm, mechanism, topology, data, partition)
    folder = Path(out) if out is not None else None
    if folder is not None:
        _check_writable(folder)
    started = time.perf_counter()
    rows, outcome = _perform(job, progress)
    _check_recorded(job, outcome.ledger)
    seconds = time.perf_counter() - started
    metrics = measuring.frame(rows)
    result = _result(job, outcome, metrics, seconds)
    last = outcome.last
    done = Run(job.scenario, job, metrics, outcome.ledger, last.released, last.published, last.state, result, folder)
    if folder is not None:
        write_folder(done, folder)
    return done


def _check_recorded(job: Job, recorded: Ledger) -> None:
    """The budget is the plan's price; it holds for this run only if what was released is what was planned."""
    if not job.covers(recorded):
        raise RuntimeError(
            f"{type(job.algorithm).__name__}: the releases that were recorded are not those that were planned and "
            "priced, so the budget does not hold. Mend the algorithm's `planned`, or its `step`."
        )


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    return sorted({*range(0, rounds + 1, every), rounds})


def _perform(job: Job, progress: ProgressCallback | None) -> tuple[list[Row], Outcome]:
    evaluator = job.evaluator()
    evaluation_rounds = evaluated_rounds(job.rounds, job.scenario.run.evaluate_every)
    spent = _spent(job, evaluation_rounds)
    rows: list[Row] = []
    certified = job.scenario.privacy.guarantee == "certified"

    def observe(s: Snapshot) -> bool:
        if s.divergence is not None:
            return True
        averaging = job.scenario.run.average > 1
        # What overflows here is reported as infinite, and as divergence once a released value does.
        with np.errstate(all="ignore"):
            try:
                rows.extend(evaluator.rows(s.round, s.published, s.released if averaging else None, s.state))
            except USER_ERRORS:
                # Scores read records, and no certified run may end because of one: it goes on without these scores.
                if not certified:
                    raise
        if s.round in spent:
            rows.append((s.round, "mean", "epsilon_spent", spent[s.round]))
        if progress is not None:
            loss = next((v for r, a, n, v in reversed(rows) if n in ("upper_loss", "primal") and a == "mean"), math.nan)
            # Between two priced rounds the later one: never less than what is spent.
            progress(s.round, job.rounds, loss, next(e for t, e in spent.items() if t >= s.round))
        return False

    engine = ENGINES[job.scenario.run.engine](job.scenario.run.address)
    # Products of one agent's records are too small to share: two BLAS threads on a busy machine cost far more than one.
    with threadpool_limits(limits=1):
        return rows, job.start(engine, evaluation_rounds, observe)


def _spent(job: Job, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Epsilon spent by the worst agent after each evaluated round, from the plan: a public number."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    spent = spending(job.ledger.only(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, spent.tolist(), strict=True))


def _result(job: Job, outcome: Outcome, metrics: pd.DataFrame, seconds: float) -> RunResult:
    divergence, ends = outcome.last.divergence, measuring.final(metrics)
    status, reason = job.status, job.reason
    if divergence is not None:
        status = "diverged"
        reason = (
            f"the released value of {divergence.channel} stopped being finite at round {divergence.round}; "
            f"metrics are kept up to the last evaluation before it. Use smaller step sizes or a start nearer to 0."
        )
    elif job.scenario.privacy.guarantee != "certified" and not math.isfinite(ends.get("primal", 0.0)):
        # A metric reads records, and what a certified run ends with follows from what it released.
        status, reason = "diverged", "what is minimised is not finite at the published x. Use smaller step sizes."
    # Of a run that ended early the last evaluation counts, and there may have been fewer releases than asked for.
    evaluated = 0 if metrics.empty else int(metrics["round"].max())
    average = min(job.scenario.run.average, max(evaluated, 1))
    statement, settings = job.statement(), job.settings()
    content = {
        "title": job.scenario.title,
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": outcome.last.round if divergence is None else divergence.round,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        "evaluated_on": job.evaluated_on(average),
        **({} if settings is None else {"algorithm": settings}),
        "privacy": statement.to_dict(),
        "theorem": job.theorem(),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return RunResult(statement, content)


def versions() -> dict[str, str]:
    """Versions of this package and of what computes its numbers."""
    names = ("decentral_dp", "numpy", "scipy", "dp-accounting", "scikit-learn", "torch", "ray")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}


def new_folder(out: Path | None, name: str) -> Path:
    """Where a run goes: `out`, or a new folder runs/NAME, runs/NAME-2, …"""
    if out is not None:
        return out
    base = Path("runs")
    taken = {p.name for p in base.iterdir()} if base.is_dir() else set()
    numbered = (name if k == 1 else f"{name}-{k}" for k in range(1, len(taken) + 2))
    return base / next(n for n in numbered if n not in taken)


def _check_writable(folder: Path) -> None:
    """Refuse before the run what could not be written after it; leaves nothing behind."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(
                f"--out: {folder} exists already, and nothing is written over. Give a new or an empty folder."
            )
        above = next(p for p in folder.absolute().parents if p.exists())
        Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=above)).rmdir()
    except OSError as error:
        raise InputError(f"--out: {folder} cannot be written ({error.strerror}). Give another folder.") from None


def write_folder(done: Run, folder: Path) -> None:
    """Write everything beside its place first and move it there whole, so that no half-written folder is left."""
    from decentral_dp.reporting.page import write_report
    from decentral_dp.reporting.plots import write_plots

    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        (partial / "scenario.toml").write_text(resolved_toml(done.scenario), encoding="utf-8")
        done.metrics.to_parquet(partial / "metrics.parquet", index=False)
        done.ledger.to_parquet(partial / "ledger.parquet", index=False)
        arrays = {**done.state}
        arrays |= {f"released_{c}": v for c, v in done.released.items()}
        arrays |= {f"published_{c}": v for c, v in done.published.items()}
        np.savez_compressed(partial / "state.npz", allow_pickle=False, **arrays)
        (partial / "result.json").write_text(done.result.to_json(), encoding="utf-8")
        if folder.is_dir():
            folder.rmdir()
        partial.chmod(0o755)
        partial.rename(folder)
        # Last, so that what cannot be drawn is not lost: "decentral-dp report" draws it again.
        write_plots(folder)
        write_report(folder)
    except OSError as error:
        raise OSError(
            f"the run is done, but its folder {folder} could not be written ({error}). Give --out where there is room."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def resolved_toml(scenario: Scenario) -> str:
    """The scenario with every default filled in, the versions and the seed (never a secret root)."""
    content = scenario.model_dump(exclude_none=True)
    content["versions"] = versions()
    if is_coordinated(scenario) and "mechanism" not in scenario.privacy.model_fields_set:
        # A coordinator's algorithm has its own, and refuses any other.
        del content["privacy"]["mechanism"]
    for place, path in scenario.files().items():
        put(content, place, str(path))
    if scenario.problem.files is not None:
        content["problem"]["files"] = scenario.image_files()
    return tomli_w.dumps(content)
