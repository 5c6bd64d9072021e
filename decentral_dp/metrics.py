"""What a reader wants to know about a run. Computed by the simulator from all records: no part of what is private.

The plain names are evaluated on published values: each agent's released values, averaged over the last few releases
where the scenario says so. `…_last` are evaluated on the last released values alone, `…_unreleased` on the state.

    upper_loss      F(x_a, y_a) = (1/m) Σ_i f_i(x_a, y_a) over validation records, for agent a's published x_a, y_a
    lower_loss      (1/m) Σ_i g_i(x_a, y_a) over train records, regulariser included
    test_loss       mean upper per-record loss on the held-out records;  test_accuracy  share classified rightly
    weight_…        of problems with numbers of their own: see their descriptions
    consensus_v     ‖v_a − (1/m) Σ_b v_b‖₂
    hypergradient_norm  ‖∇F(x̄)‖₂ at the mean published x̄, with the lower level solved there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from decentral_dp.privacy.sensitivity import Array, Kind
from decentral_dp.problems.protocol import Problem, Scored
from decentral_dp.problems.solve import true_hypergradient

Row = tuple[int, str, str, float]


class Weighted(NamedTuple):
    """Records of all agents together; weights 1/(m·n_i), so that every agent counts the same."""

    records: Any
    weights: Array


@dataclass(frozen=True)
class Evaluator:
    """Scores released values. agents: per agent (train, validation) records; test: held-out records or None."""

    problem: Problem
    agents: Sequence[tuple[Any, Any]]
    test: Any | None
    hypergradient: bool = True

    def rows(
        self, index: int, published: Mapping[str, Array], last: Mapping[str, Array] | None, state: Mapping[str, Array]
    ) -> list[Row]:
        """All metrics of one round as (round, agent, name, value) rows. last: given where it differs from published."""
        rows = []
        for values, suffix in ((published, ""), (last, "_last"), (state, "_unreleased")):
            if values is None:
                continue
            for name, per_agent in self._scores(values).items():
                full = suffix == "" or name.startswith("test")
                if full:
                    rows += _summary(index, name + suffix, per_agent, each=suffix == "")
        if self.hypergradient and np.isfinite(published["x"]).all():
            gradient = true_hypergradient(self.problem, published["x"].mean(axis=0), self.agents)
            # Not finite where the lower level could not be solved at x̄: then there is nothing to report.
            if np.isfinite(gradient).all():
                rows.append((index, "mean", "hypergradient_norm", float(np.linalg.norm(gradient))))
        return rows

    def _scores(self, v: Mapping[str, Array]) -> dict[str, Array]:
        train, validation = self._pooled("train"), self._pooled("validation")
        with np.errstate(all="ignore"):
            scores = {
                "upper_loss": self.problem.losses(v["x"], v["y"], validation.records, validation.weights)[1],
                "lower_loss": self.problem.losses(v["x"], v["y"], train.records, train.weights)[0]
                + self.problem.regulariser_value(v["x"], v["y"]),
            }
            if self.test is not None:
                n = len(self.test[0])
                scores["test_loss"] = self.problem.losses(v["x"], v["y"], self.test, np.full(n, 1.0 / n))[1]
                accuracy = self.problem.accuracy(v["x"], v["y"], self.test)
                if accuracy is not None:
                    scores["test_accuracy"] = accuracy
            if isinstance(self.problem, Scored):
                scores.update(self.problem.scores(v["x"], v["y"]))
            for channel, value in v.items():
                scores[f"consensus_{channel}"] = np.linalg.norm(value - value.mean(axis=0), axis=1)
        return scores

    def _pooled(self, kind: Kind) -> Weighted:
        parts = [a[0] if kind == "train" else a[1] for a in self.agents]
        weights = np.concatenate([np.full(len(r[0]), 1.0 / (len(parts) * len(r[0]))) for r in parts])
        return Weighted(type(parts[0])(*(np.concatenate(columns) for columns in zip(*parts, strict=True))), weights)


def _summary(index: int, name: str, per_agent: Array, each: bool) -> list[Row]:
    rows: list[Row] = [
        (index, "mean", name, float(per_agent.mean())),
        (index, "mean", f"{name}_min", float(per_agent.min())),
        (index, "mean", f"{name}_max", float(per_agent.max())),
    ]
    if each:
        rows += [(index, str(agent), name, float(value)) for agent, value in enumerate(per_agent)]
    return rows


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows as a table with columns round, agent, name, value."""
    return pd.DataFrame(rows, columns=["round", "agent", "name", "value"])


def final(metrics: pd.DataFrame) -> dict[str, float]:
    """Means over agents at the last evaluated round, by name."""
    if metrics.empty:
        return {}
    means = metrics[metrics["agent"] == "mean"]
    return {str(name): float(group["value"].iloc[-1]) for name, group in means.groupby("name", sort=True)}
