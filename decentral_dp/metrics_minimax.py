"""What a reader wants to know about a run on a minimax problem. Computed by the simulator from all records.

    primal          Φ(x) = max_y F(x, y) on the train records, x as published
    gradient_norm   ‖∇Φ(x)‖₂ on all train records: the true one, not what was released of it
    auc, …          of the train records;   test_auc, test_accuracy, test_f1, …  of the held-out ones
    epsilon_spent   from the plan

What each problem gives beyond these its description says. Numbers of train records are the simulator's view, and no
part of what the budget covers; those of held-out records say nothing about the others beyond what x says, but they do
read the held-out people's records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.metrics import Row
from decentral_dp.privacy.bounded import Array
from decentral_dp.problems.minimax.protocol import Minimax, Parametrised


@dataclass(frozen=True)
class MinimaxEvaluator:
    """Scores what a coordinator has published. train: the records of all agents; test: held-out ones or None."""

    problem: Minimax
    train: Any
    test: Any | None

    def rows(
        self,
        index: int,
        published: Mapping[str, Array],
        last: Mapping[str, Array] | None,
        state: Mapping[str, Array] | None,
    ) -> list[Row]:
        """All metrics of one round as (round, agent, name, value) rows; of published values alone."""
        x, y = published["x"][0], published["y"][0]
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return []
        problem = self.problem
        if "share" in published and isinstance(problem, Parametrised):
            problem = problem.given(published["share"][0])
        scores = problem.scores(x, y, self.train, self.test)
        return [(index, "mean", name, float(value)) for name, value in scores.items()]
