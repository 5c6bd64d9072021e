"""Running a scenario, and the folder that a run leaves behind."""

from __future__ import annotations

import importlib.metadata
import json
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

from decentral_dp import metrics as measuring
from decentral_dp.describe import privacy_summary, problem_summary, theorem, topology_summary
from decentral_dp.describe_trusted import evaluated_on, settings
from decentral_dp.engines import ENGINES
from decentral_dp.engines.protocol import Outcome, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.job import Job, build
from decentral_dp.metrics import Evaluator, Row, pooled
from decentral_dp.metrics_minimax import MinimaxEvaluator
from decentral_dp.privacy.accountants import spending
from decentral_dp.privacy.bounded import Array
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.problems.minimax.minimax_context import MinimaxContext
from decentral_dp.problems.protocol import Problem
from decentral_dp.scenario import load
from decentral_dp.scenario_components import is_coordinated
from decentral_dp.schema import Scenario, put

# At most so many points of the spent-epsilon curve: each is a full pricing.
_CURVE_POINTS = 25


class ProgressCallback(Protocol):
    """Told of progress: round, rounds in all, upper loss, epsilon spent by the worst agent."""

    def __call__(self, done: int, rounds: int, loss: float, epsilon: float) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run.

    metrics: rows (round, agent, name, value). ledger: what was released, as columns. released: channel → (m, ·) last
    released values; published: the average of the last ones (`run.average`). Those two, the ledger and the scenario are
    what the budget covers; metrics, state and plots read private data.
    """

    scenario: Scenario
    job: Job
    metrics: pd.DataFrame
    records: Ledger
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    state: Mapping[str, Array]
    result: dict[str, Any]
    folder: Path | None

    @property
    def ledger(self) -> pd.DataFrame:
        return self.records.to_frame()

    def __repr__(self) -> str:
        title, result = self.scenario.title, self.result
        return f"<Run {title!r}: {result['status']}, {result['rounds']} rounds, ε = {result['privacy']['epsilon_max']}>"


def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    out: str | Path | None = None,
    problem: Problem | None = None,
    progress: ProgressCallback | None = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
) -> Run:
    """Run a scenario (a path, a shipped name, a dict or a loaded Scenario); write a run folder if `out` is given.

    problem, topology, data, partition: used instead of what the scenario names; a problem is one built with
    `from_losses`, or an instance of a class as docs/add_a_problem.md describes it, a topology any `networkx.Graph`,
    data (features, labels), a partition a function.
    Raises InputError with one sentence for whatever is wrong; a run that diverges returns with status "diverged".
    """
    loaded = load(scenario)
    job = build(loaded, problem, topology, data, partition)
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
    done = Run(loaded, job, metrics, outcome.ledger, last.released, last.published, last.state, result, folder)
    if folder is not None:
        write_folder(done, folder)
    return done


def _check_recorded(job: Job, recorded: Ledger) -> None:
    """The budget is the plan's price; it holds for this run only if what was released is what was planned."""
    planned = job.ledger.until(recorded.rounds)
    # A coordinator's scales follow from what it released before; what is planned is the price.
    if not (recorded.costs_within(planned) if job.context is not None else recorded.same_releases(planned)):
        raise RuntimeError(
            f"{type(job.algorithm).__name__}: the releases that were recorded are not those that were planned and "
            "priced, so the budget does not hold. Mend the algorithm's `planned`, or its `step`."
        )


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    return sorted({*range(0, rounds + 1, every), rounds})


def _perform(job: Job, progress: ProgressCallback | None) -> tuple[list[Row], Outcome]:
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    evaluator: Evaluator | MinimaxEvaluator
    if isinstance(job.context, MinimaxContext):
        evaluator = MinimaxEvaluator(job.problem, pooled(agents)[0], job.test)
    elif job.context is None:
        evaluator = Evaluator(job.problem, agents, job.test)
    else:
        # A coordinator weighs records alike, whoever holds them, and publishes one value for all.
        evaluator = Evaluator(job.problem, [pooled(agents)], job.test, gap=True, names=("coordinator",))
    evaluation_rounds = evaluated_rounds(job.rounds, job.scenario.run.evaluate_every)
    spent = _spent(job, evaluation_rounds)
    rows: list[Row] = []

    def observe(s: Snapshot) -> bool:
        if s.divergence is not None:
            return True
        averaging = job.scenario.run.average > 1
        # What overflows here is reported as infinite, and as divergence once a released value does.
        with np.errstate(all="ignore"):
            state = s.state if job.context is None else None
            rows.extend(evaluator.rows(s.round, s.published, s.released if averaging else None, state))
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
        if job.context is not None:
            return rows, engine.coordinate(job.coordinator_node(), job.rounds, evaluation_rounds, observe)
        return rows, engine.run(job.nodes(), job.rounds, evaluation_rounds, observe)


def _spent(job: Job, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Epsilon spent by the worst agent after each evaluated round, from the plan: a public number."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    spent = spending(job.ledger.only(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, spent.tolist(), strict=True))


def _result(job: Job, outcome: Outcome, metrics: pd.DataFrame, seconds: float) -> dict[str, Any]:
    divergence, ends = outcome.last.divergence, measuring.final(metrics)
    status, reason = job.status, job.reason
    if divergence is not None:
        status = "diverged"
        reason = (
            f"the released value of {divergence.channel} stopped being finite at round {divergence.round}; "
            f"metrics are kept up to the last evaluation before it. Use smaller step sizes or a start nearer to 0."
        )
    elif not math.isfinite(ends.get("primal", 0.0)):
        status, reason = "diverged", "what is minimised is not finite at the published x. Use smaller step sizes."
    # Of a run that ended early the last evaluation counts, and there may have been fewer releases than asked for.
    evaluated = 0 if metrics.empty else int(metrics["round"].max())
    average = min(job.scenario.run.average, max(evaluated, 1))
    return {
        "title": job.scenario.title,
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": outcome.last.round if divergence is None else divergence.round,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        "evaluated_on": _evaluated_on(job, average),
        **({} if job.context is None else {"algorithm": settings(job)}),
        "privacy": privacy_summary(job),
        "theorem": theorem(job),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }


def _evaluated_on(job: Job, average: int) -> str:
    if job.context is not None:
        return evaluated_on(job)
    return f"average of the last {average} released values" if average > 1 else "last released values"


def versions() -> dict[str, str]:
    """Versions of this package and of what computes its numbers."""
    names = ("decentral_dp", "numpy", "scipy", "dp-accounting", "scikit-learn", "torch", "ray")
    return {"python": platform.python_version(), **{n: importlib.metadata.version(n) for n in names}}


def plain(value: Any) -> Any:
    """A JSON value: numpy numbers as Python's, infinities as "inf" or "-inf", NaN as None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


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
    from decentral_dp.plots import write_plots
    from decentral_dp.report import write_report

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
        text = json.dumps(plain(done.result), indent=2, allow_nan=False)
        (partial / "result.json").write_text(text + "\n", encoding="utf-8")
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
