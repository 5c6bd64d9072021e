"""Scores of records that are with their agents: sums that agents send, where they are asked to, and what reads none.

The sums are functions of records without noise: the simulator's view, and no part of what a budget covers. Unless
`run.agent_scores` is set, no agent is asked, and only scores of released values alone are left.

Of what `metrics` lists, the hypergradient, what needs an exact lower solution, R² and unreleased states are left out:
each would take more than sums over every agent's records, or values that stay with the agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.engines.protocol import Snapshot
from decentral_dp.problems.protocol import Predicting, Problem, Scored
from decentral_dp.simulation.metrics import Row, scored_agents, summarised

# Sum over held-out records → whether a model of the problem has it.
_COUNT = "records"


@dataclass(frozen=True)
class AgentScorer:
    """What the records of one block make of values; built where the block is.

    Args:
        problem: the bilevel problem.
        records: of every agent of the block, (train, validation, test or None).
        regression: whether labels are numbers.
    """

    problem: Problem
    records: Sequence[tuple[Any, Any, Any | None]]
    regression: bool

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Sum over the block's agents, for each (x, y): of their mean losses, and of their held-out records' scores.

        values: "x" and "y", each (k, ·).
        """
        x, y = values["x"], values["y"]
        sums = dict.fromkeys(("lower_loss", "upper_loss"), np.zeros(len(x)))
        with np.errstate(all="ignore"):
            for train, validation, test in self.records:
                lower, upper = (np.full(len(part[0]), 1.0 / len(part[0])) for part in (train, validation))
                sums["lower_loss"] = sums["lower_loss"] + self.problem.losses(x, y, train, lower)[0]
                sums["upper_loss"] = sums["upper_loss"] + self.problem.losses(x, y, validation, upper)[1]
                for name, value in ({} if test is None else self._held_out(x, y, test)).items():
                    sums[name] = sums.get(name, 0.0) + value
        return sums

    def _held_out(self, x: Array, y: Array, test: Any) -> dict[str, Any]:
        n = len(test[0])
        found = {_COUNT: float(n), "test_loss": self.problem.losses(x, y, test, np.ones(n))[1]}
        accuracy = self.problem.accuracy(x, y, test)
        if accuracy is not None:
            found["test_accuracy"] = n * accuracy
        if self.regression and isinstance(self.problem, Predicting):
            found["test_squared"] = n * np.square(self.problem.regression_scores(x, y, test)["rmse"])
        return found


@dataclass(frozen=True)
class AgentEvaluator:
    """An evaluator of released values where the records are with their agents.

    Args:
        problem: the bilevel problem.
        n_agents: m.
        label_unit: what 1 is in the unit of labels that are numbers; None where they are classes.
    """

    problem: Problem
    n_agents: int
    label_unit: float | None = None

    def rows(self, seen: Snapshot, averaged: bool) -> list[Row]:
        """Evaluate the metrics of one round; rows as of `metrics.Evaluator`."""
        names = [str(agent) for agent in range(self.n_agents)]
        rows: list[Row] = []
        for name, per_row in self._scores(seen, seen.published).items():
            rows += summarised(seen.round, name, per_row, names)
        for name, per_row in self._scores(seen, seen.released).items() if averaged else ():
            if name.startswith("test"):
                rows += summarised(seen.round, f"{name}_last", per_row)
        return rows

    def _scores(self, seen: Snapshot, values: Mapping[str, Array]) -> dict[str, Array]:
        chosen = {channel: value[scored_agents(self.n_agents)] for channel, value in values.items()}
        scores: dict[str, Array] = {}
        with np.errstate(all="ignore"):
            if {"x", "y"} <= chosen.keys():
                scores |= self._of_records(seen, {c: chosen[c] for c in ("x", "y")})
                if isinstance(self.problem, Scored):
                    scores |= self.problem.scores(chosen["x"], chosen["y"])
            for channel, value in chosen.items():
                scores[f"consensus_{channel}"] = np.linalg.norm(value - values[channel].mean(axis=0), axis=1)
        return scores

    def _of_records(self, seen: Snapshot, values: Mapping[str, Array]) -> dict[str, Array]:
        """The scores that agents send sums of; nothing where they send none."""
        blocks = [block for block in seen.score(values) if block is not None]
        if not blocks:
            return {}
        sums = {
            name: sum(block[name] for block in blocks if name in block)
            for name in dict.fromkeys(name for block in blocks for name in block)
        }
        n, m = sums.pop(_COUNT, 1.0), self.n_agents
        scores = {"upper_loss": sums.pop("upper_loss") / m}
        scores["lower_loss"] = sums.pop("lower_loss") / m + self.problem.regulariser_value(values["x"], values["y"])
        squared = sums.pop("test_squared", None)
        scores |= {name: total / n for name, total in sums.items()}
        if squared is not None and self.label_unit is not None:
            scores["test_rmse"] = np.sqrt(squared / n) * self.label_unit
        return scores


class Unscored:
    """An evaluator of a trusted coordinator whose agents have their records: no score of records comes here."""

    def rows(self, seen: Snapshot, averaged: bool) -> list[Row]:
        """Evaluate nothing; as of `metrics.Evaluator`."""
        return []
