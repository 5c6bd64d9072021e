"""A finished run: what it holds, and its numbers as `result.json` has them.

Also which rounds are evaluated, and the ε that is spent by then.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.config.schema import Scenario
from decentral_dp.engines.protocol import Outcome
from decentral_dp.files.package import versions
from decentral_dp.formatting import agent_names, epsilon_text
from decentral_dp.privacy.accounting.accountants import epsilon_of, spending
from decentral_dp.privacy.ledger import IntArray, Ledger, released_again
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation import metrics as measuring
from decentral_dp.simulation.advice import clipping, learning
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.metrics import Row
from decentral_dp.simulation.model import Model, model_of
from decentral_dp.simulation.plan import baselines, problem_summary, title_of, topology_summary
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.of_job import settings_of, statement_of, theorem_of

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.reporting.plots import RunPlots

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
        metrics: rows (round, agent, name, value), and agent_name where agents have other names than their numbers.
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
    metrics: pd.DataFrame
    records: Ledger
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    unnoised: Secret[Mapping[str, Array]]
    result: RunResult
    folder: Path | None
    baselines: Mapping[str, Run] = field(default_factory=dict)

    @property
    def state(self) -> Mapping[str, Array]:
        """What agents keep to themselves, by its name: private values without noise."""
        return self.unnoised()

    @property
    def ledger(self) -> pd.DataFrame:
        return self.records.to_frame(agent_names(self.result.topology.get("labels")))

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
        return self.model if agent is None else self.model.of(agent)

    @property
    def plot(self) -> RunPlots:
        """The figures of this run, as in `run.plot.accuracy()`: notebooks show them, `save` writes them."""
        from decentral_dp.reporting.folder import drawing_of, drawn_rounds
        from decentral_dp.reporting.plots import RunPlots

        ledger = self.ledger
        kept = ledger[ledger["round"].isin(drawn_rounds(self.result))] if "round" in ledger else ledger
        scenario = self.scenario.model_dump()
        return RunPlots(drawing_of(self.result, scenario, self.metrics, kept, self.published.get("x")))

    def _repr_html_(self) -> str:
        from decentral_dp.reporting.page import run_view

        beside = {name: run.result for name, run in self.baselines.items()}
        return run_view(self.result, [picture._repr_png_() for picture in self.plot.opening()], beside)

    def __repr__(self) -> str:
        result, spent = self.result, epsilon_text(self.result.privacy.epsilon_max)
        return f"<Run {result.title!r}: {result.status}, {result.rounds} rounds, ε = {spent}>"


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    return sorted({*range(0, rounds + 1, every), rounds})


def priced(rows: Sequence[Row], spent: Mapping[int, float]) -> list[Row]:
    """What was measured, with ε spent at the rounds that are priced now: a longer run has others than a shorter."""
    out = []
    for number, measured in itertools.groupby(rows, key=lambda row: row[0]):
        out += [row for row in measured if row[2] != SPENT]
        if number in spent:
            out.append((number, "mean", SPENT, spent[number]))
    return out


def spent_after(job: Job, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Epsilon spent by the worst agent after each evaluated round, from the plan: a public number."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    if job.windows:
        return {t: float(_spent_again(job, worst, t)) for t in chosen}
    spent = spending(job.ledger.only(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, spent.tolist(), strict=True))


def _spent_again(job: Job, worst: IntArray, t: int) -> float:
    """ε spent after a round by one agent: what was in flight is out as soon as the run has gone on from its state."""
    course = job.course.only(worst)
    out = released_again(course.until(t), course, [w for w in job.windows if w.first <= t])
    return float(epsilon_of(out, job.scenario.privacy.delta)[0])


def result_of(job: Job, outcome: Outcome, metrics: pd.DataFrame, seconds: float) -> RunResult:
    """Collect the numbers of a finished run.

    Args:
        job: what was run.
        outcome: its last values.
        metrics: rows (round, agent, name, value) of all evaluations.
        seconds: it took.
    """
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
    statement, settled = statement_of(job), settings_of(job)
    content = {
        "title": title_of(job),
        "status": status,
        "reason": reason,
        "engine": job.scenario.run.engine,
        "rounds": outcome.last.round if divergence is None else divergence.round,
        "rounds_planned": job.scenario.algorithm.rounds,
        "seconds": round(seconds, 3),
        "metrics": ends,
        # Read from records, as metrics are.
        "diagnostics": {
            "baselines": {n: v for n, v in baselines(job).items() if any(name.startswith(n) for name in ends)},
            **clipping(job, outcome),
            **({"labels_cut": job.shards.labels_cut} if job.shards.labels_cut else {}),
            **({"features_cut": dict(job.shards.features_cut)} if job.shards.features_cut else {}),
            **({"unmeasured": job.unmeasured} if job.unmeasured else {}),
            **({"learning": said} if (said := learning(job, outcome, metrics, ends)) else {}),
        },
        "evaluated_on": job.evaluated_on(average),
        # Of a bilevel method it goes without saying.
        **({} if job.tunes_x else {"tunes_x": False}),
        **({} if settled is None else {"algorithm": settled}),
        "privacy": statement.to_dict(),
        "theorem": theorem_of(job),
        "topology": topology_summary(job),
        "problem": problem_summary(job),
        "versions": versions(),
    }
    return RunResult.from_content(content, statement)
