"""Scores of published values of minimax problems, computed by the problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.central.problems.saddle import Minimax
from decentral_dp.engines.protocol import Snapshot
from decentral_dp.problems.class_measures import measure_classes
from decentral_dp.problems.records import concatenate
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.metrics import IntArray, Row, scored_agents, select_agents, summarise


@dataclass(frozen=True)
class MinimaxEvaluator:
    """Evaluate the published values of a coordinator or of every agent of a minimax problem.

    Args:
        problem: minimax problem.
        train: records of all scored agents.
        test: held-out records or None.
        requested, numbers: arguments of `Evaluator`.
    """

    problem: Minimax
    train: Any
    test: Any | None
    requested: Sequence[str] = ()
    numbers: IntArray | None = None

    def rows(self, snapshot: Snapshot, is_average: bool) -> list[Row]:
        """Evaluate the metrics of the published values of one round, in the row format of `Evaluator`."""
        rows: list[Row] = []
        snapshot = select_agents(snapshot, self.numbers)
        for values, suffix in ((snapshot.published, ""), (snapshot.released if is_average else None, "_last")):
            if values is not None and all(np.isfinite(v).all() for v in values.values()):
                rows += self._score_rows(snapshot.round, values, suffix)
        return rows

    def _score_rows(self, index: int, values: Mapping[str, Array], suffix: str) -> list[Row]:
        problem: Any = self.problem
        x, y = values["x"], values["y"]
        if "share" in values:
            problem = problem.with_parameters(values["share"][0])
        chosen = scored_agents(len(x))
        score_tables = [dict(problem.scores(x[k], y[k], self.train, self.test)) for k in chosen]
        if self.test is not None:
            class_measures = measure_classes(problem, x[chosen], y[chosen], self.test, self.requested)
            for name, per_row in class_measures.items():
                for agent_scores, value in zip(score_tables, per_row, strict=True):
                    agent_scores[f"test_{name}"] = value
        if len(x) == 1:
            return [(index, "mean", name + suffix, float(value)) for name, value in score_tables[0].items()]
        scores = {name: np.array([agent_scores[name] for agent_scores in score_tables]) for name in score_tables[0]}
        scores |= {
            f"consensus_{c}": np.linalg.norm(v - v.mean(axis=0), axis=1)[scored_agents(len(v))]
            for c, v in (("x", x), ("y", y))
        }
        names = () if suffix else [str(agent) for agent in (range(len(x)) if self.numbers is None else self.numbers)]
        return [row for name, per_agent in scores.items() for row in summarise(index, name + suffix, per_agent, names)]


def make_evaluator(job: PlannedJob) -> MinimaxEvaluator | None:
    """Return the evaluator of a minimax problem, or None if agents keep their records and send no scores."""
    if not job.holds_records:
        return None
    train, honest = job.records["train"], job.honest
    train = train if honest is None else [train[agent] for agent in honest]
    return MinimaxEvaluator(job.posed_problem, concatenate(train), job.test, job.requested, honest)
