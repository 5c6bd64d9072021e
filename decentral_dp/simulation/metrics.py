"""Metrics of a run: labels, and the non-private evaluation on all records, which ε does not cover.

Plain names refer to the published values: each agent's released values, averaged over the last releases if
`run.average` is set. `…_last` refers to the last released values only, `…_unreleased` to the state. If only x is
published, the scores of the exact lower solution at x are `…_unreleased`.

    upper_loss      F(x_a, y_a) = (1/m) Σ_i f_i(x_a, y_a) over validation records, for agent a's published x_a, y_a
    lower_loss      (1/m) Σ_i w_i g_i(x_a, y_a) over train records, regulariser included; w_i = 1 unless records
                    have equal weights (problem.weights)
    test_loss       mean upper per-record loss on the held-out records;  test_accuracy  share of correct classes
    test_auc, test_balanced_accuracy, test_f1, test_recall, test_precision, test_brier, test_calibration
                    of problems with class probabilities (`problems.class_measures`)
    test_rmse       of numeric labels: root mean squared error, in their unit
    test_r2         1 − mean squared error / variance of the held-out labels
    site_accuracy, site_absolute_error   of the common model on the held-out records of each agent (`sites`)
    weight_…        of hyper_cleaning
    consensus_v     ‖v_a − (1/m) Σ_b v_b‖₂
    stationarity, …     of `problems.reference`, on request

Minimax problems have

    primal          Φ(x) = max_y F(x, y) on the train records, x as published
    gradient_norm   ‖∇Φ(x)‖₂ on all train records, not the released gradient
    auc, …          of the train records;   test_auc, test_accuracy, test_f1, …  of the held-out ones

`epsilon_spent` follows from the plan. The descriptions of problems list their other metrics. Metrics of held-out
records also read these records.

If the records stay with their agents, agents send sums over them if `run.agent_scores` is set; otherwise only metrics
that read no record are computed. Reference measures, exact lower solutions, R² and unreleased states need more than
sums and are then omitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.engines.protocol import Snapshot
from decentral_dp.files.exports import Columns
from decentral_dp.problems.class_measures import measure_classes
from decentral_dp.problems.lower_level import Share, join_alike, solve_lower
from decentral_dp.problems.protocol import Problem
from decentral_dp.problems.records import RecordPairs, concatenate, count_records
from decentral_dp.problems.reference import REFERENCE_MEASURES, ReferenceObjective
from decentral_dp.simulation.sites import Sites

IntArray = NDArray[np.int64]
# Round, agent or "mean", metric, value.
Row = tuple[int, str, str, float]
# Evaluated values: those of each agent or their average, or those of a coordinator; if it publishes only x, the exact
# lower solution.
EvaluatedOn: TypeAlias = Literal["released_values", "final_average", "x_and_y", "lower_solution"]
# Agents of a large network whose values are scored.
MOST_SCORED = 256
_ENDING = re.compile(r"(_min|_max)?(_last|_unreleased)?(_min|_max)?$")


class Reach(NamedTuple):
    """Kinds of study with a metric.

    Args:
        head: kinds in words.
        kinds: kinds "run" and "plan".
        over_rounds: kinds that measure the metric in every round.
    """

    head: str
    kinds: tuple[str, ...]
    over_rounds: tuple[str, ...]


SCORE = Reach("Runs, over rounds and at the end", ("run",), ("run",))
PRICE = Reach("Plans, over rounds and at the end; runs, at the end", ("run", "plan"), ("plan",))
OF_RUNS = Reach("Runs, at the end", ("run",), ())
FACT = Reach("Runs and plans, at the end", ("run", "plan"), ())
SENT = Reach("Runs and plans, over rounds and at the end", ("run", "plan"), ("run", "plan"))
OF_PLANS = Reach("Plans, at the end", ("plan",), ())


class Measure(NamedTuple):
    """A metric.

    Args:
        label: label on pages, in figures and in tables.
        endings: endings, each of which makes one more name.
        reach: kinds of study with the metric.
        better: whether higher or lower values are better.
        axis: scale in figures: "log", "flat" (a share, never stretched), or chosen by the values.
        meaning: description in `list measures` and the reference, if longer than the label.
        of: the only problem that has the metric; "" if there are several.
    """

    label: str
    endings: tuple[str, ...] = ("",)
    reach: Reach = SCORE
    better: Literal["higher", "lower"] = "lower"
    axis: Literal["values", "log", "flat"] = "values"
    meaning: str = ""
    of: str = ""

    @property
    def description(self) -> str:
        """Meaning, with the only problem that measures the metric."""
        return f"{self.of}: {self.meaning or self.label}" if self.of else self.meaning or self.label

    @property
    def qualifiers(self) -> list[str]:
        """Parts of the endings, such as "_min" of "_last_min"."""
        return [part for part in ENDINGS if any(part in ending for ending in self.endings)]


# Ending of a name → its addition to a label, and its meaning.
ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "_min": (", lowest agent", "the lowest agent's; without an ending it is the mean over agents"),
        "_max": (", highest agent", "the highest agent's"),
        "_last": (", last released values", "of the last released values alone, where published ones are averages"),
        "_unreleased": (", unreleased state", "of the unreleased state"),
    }
)
_SPREAD = ("", "_min", "_max")
# Trusted coordinators that publish only x have losses of an unreleased state.
_LOSS = (*_SPREAD, *(f"_unreleased{end}" for end in _SPREAD))
_TEST = (*_LOSS, *(f"_last{end}" for end in _SPREAD))

_FIRST = "evaluated round at which a metric first reaches a level; any metric, any level"
_DISTANT = "largest {} towards a neighbour; …_2, …_3: that far away"
_DIVERGED = (
    "1 if the run diverged: a released value was not finite or above 10⁶ times its public scale, or the loss ended "
    "above 10³ times max(its start, 1); a mean is a share of cells"
)

# In the order of a run's page, then by name.
MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "upper_loss": Measure("upper loss (validation)", _LOSS),
        "lower_loss": Measure("train loss, regulariser included", _LOSS),
        "test_loss": Measure("loss on held-out records", _TEST),
        "test_auc": Measure("AUC on held-out records", _TEST, better="higher", axis="flat"),
        "test_accuracy": Measure("accuracy on held-out records", _TEST, better="higher", axis="flat"),
        "test_f1": Measure("F1 on held-out records", _TEST, better="higher"),
        "test_balanced_accuracy": Measure("accuracy on held-out records, mean over classes", _TEST, better="higher"),
        "test_brier": Measure("Brier score on held-out records", _TEST),
        "test_recall": Measure("recall of the second class (probability 0.5), held out", _TEST, better="higher"),
        "test_precision": Measure(
            "precision of the second class (at probability 0.5), held out", _TEST, better="higher"
        ),
        "test_calibration": Measure("calibration error on held-out records", _TEST),
        "test_rmse": Measure("root mean squared error on held-out records", _TEST),
        "test_r2": Measure("R² on held-out records", _TEST, better="higher"),
        "site_accuracy": Measure("accuracy of the common model at one site", _SPREAD, better="higher", axis="flat"),
        "site_absolute_error": Measure("mean absolute error of the common model at one site", _SPREAD),
        "worst_site": Measure("score of the common model at the site where it is worst"),
        "test_worst_class_accuracy": Measure("accuracy on the worst class of held-out records", better="higher"),
        "test_robust_loss": Measure("robust loss on held-out records"),
        "test_mspbe": Measure("mean squared projected Bellman error, held out", of="mspbe"),
        "test_return_error": Measure("root mean squared error of predicted returns, held out", of="mspbe"),
        "test_distance": Measure("distance of generated to held-out records; 0 is best", of="wgan"),
        "primal": Measure("Φ(x), F at the best y (train)"),
        "objective": Measure("F at the published x and y (train)"),
        "best_strength": Measure("best λ (train)", of="kl_dro"),
        "robust_loss": Measure("robust loss (train)"),
        "loss": Measure("mean loss (train)"),
        "estimate": Measure("the published critic's own estimate of the distance (train)", of="wgan"),
        "gradient_norm": Measure("norm of the gradient of Φ (train)"),
        "auc": Measure("AUC (train)", better="higher"),
        "optimality_gap": Measure(
            "optimality gap",
            axis="log",
            meaning="g(x̄, ȳ) − min g, or F(x̄) − min F of a bilevel problem; computed only if asked for",
        ),
        "distance_to_solution": Measure(
            "distance to the solution",
            ("", "_max"),
            axis="log",
            meaning="‖ȳ − y*‖₂, or ‖x̄ − x*‖₂ of a bilevel problem; computed only if asked for",
        ),
        "stationarity": Measure(
            "squared norm of the gradient",
            axis="log",
            meaning="‖∇_y g(x̄, ȳ)‖₂², or ‖∇F(x̄)‖₂² of a bilevel problem; computed only if asked for",
        ),
        "heterogeneity": Measure(
            "heterogeneity ζ² of the agents' gradients (train)",
            axis="log",
            meaning="ζ² = mean ‖∇_y g_i − ∇_y g‖₂² over agents at the mean model; computed only if asked for",
        ),
        "heterogeneity_at_solution": Measure(
            "heterogeneity ζ² at the solution (train)",
            axis="log",
            meaning="ζ² at the minimiser; computed only if asked for",
        ),
        "value_function": Measure(
            "F(x̄), upper loss at the exact lower solution",
            meaning="F(x̄) = f(x̄, y*(x̄)) of a bilevel problem; computed only if asked for",
        ),
        "consensus_x": Measure("consensus error of x (ℓ2)", _SPREAD),
        "consensus_y": Measure("consensus error of y (ℓ2)", _SPREAD),
        "consensus_z": Measure("consensus error of z (ℓ2)", _SPREAD),
        "agents": Measure("agents", reach=FACT),
        "bits": Measure("bits sent per agent", reach=SENT),
        "claimed": Measure("ε claimed by the published formula", reach=PRICE),
        "claimed_endless": Measure("ε claimed by the published formula for T → ∞", reach=OF_PLANS),
        "diverged": Measure("1 if the run diverged, else 0", reach=OF_RUNS, meaning=_DIVERGED),
        "endless_stream": Measure("ε of the worst agent on an endless stream", reach=OF_PLANS),
        "epsilon_max": Measure("ε of the worst agent", reach=PRICE),
        "epsilon_mean": Measure("mean ε over agents", reach=FACT),
        "epsilon_median": Measure("median ε over agents", reach=FACT),
        "epsilon_min": Measure("ε of the agent with the smallest ε", reach=FACT),
        "epsilon_published": Measure("ε of the worst agent for an adversary of published models only", reach=FACT),
        "epsilon_pure_max": Measure("pure ε of the worst agent", reach=PRICE),
        "epsilon_spent": Measure("ε spent by the worst agent", axis="log"),
        "finite_data": Measure("ε of the worst agent for T → ∞ on these data", reach=OF_PLANS),
        "label_skew": Measure(
            "label skew",
            reach=FACT,
            meaning="mean total variation between an agent's labels and those of all; reads records without noise",
        ),
        "messages": Measure("messages sent per agent", reach=SENT),
        "neighbour_weight": Measure("smallest total weight of an agent's neighbours", reach=FACT),
        "network_epsilon_distance_1": Measure(_DISTANT.format("certified ε"), reach=FACT),
        "network_linear_distance_1": Measure(_DISTANT.format("ε by the linear price (no bound)"), reach=FACT),
        "network_epsilon_max": Measure("largest ε towards one other agent", reach=FACT),
        "network_epsilon_mean": Measure("mean ε towards one other agent", reach=FACT),
        "ok": Measure("1 if the cell ended ok, else 0; a mean is a share of cells", reach=FACT),
        "rounds": Measure("rounds that were run", reach=FACT),
        "rounds_to_test_accuracy_0.9": Measure(_FIRST, reach=OF_RUNS),
        "seconds": Measure("seconds that the run took", reach=OF_RUNS),
        "share_of_sites_that_gain": Measure(
            "share of sites that gain over training alone at the same ε", reach=OF_RUNS, better="higher", axis="flat"
        ),
        "spectral_gap": Measure("spectral gap 1 − ρ", reach=FACT),
        "test_worst_group_loss": Measure("loss of the worst group of held-out records"),
        "weight_clean": Measure(
            "mean weight of groups whose labels are right", _SPREAD, better="higher", of="hyper_cleaning"
        ),
        "weight_corrupted": Measure("mean weight of groups whose labels are wrong", _SPREAD, of="hyper_cleaning"),
        "worst_group_loss": Measure("loss of the worst group (train)"),
    }
)
# The main held-out score of a run is the first of these. Each has its decimals.
JUDGES = {"test_auc": 3, "test_accuracy": 2, "test_r2": 2}


def metric_words(name: str) -> str | None:
    """Return the label of a metric; None if it is unknown.

    Example:
        >>> metric_words("upper_loss"), metric_words("test_loss_max"), metric_words("mine")
        ('upper loss (validation)', 'loss on held-out records, highest agent', None)
        >>> metric_words("network_epsilon_distance_2")
        'largest ε against an agent at distance 2'
        >>> metric_words("rounds_to_test_accuracy_0.9")
        'rounds until 0.9 is reached, accuracy on held-out records'
    """
    for start, epsilon in (
        ("network_epsilon_distance_", "ε"),
        ("network_linear_distance_", "linear ε (no bound for training)"),
    ):
        distance = name.removeprefix(start)
        if distance != name and distance.isdecimal():
            return f"largest {epsilon} against an agent at distance {distance}"
    if name.startswith("rounds_to_"):
        metric, _, level = name.removeprefix("rounds_to_").rpartition("_")
        return f"rounds until {level} is reached, {metric_words(metric) or metric.replace('_', ' ')}"
    ending = next((e for e in ENDINGS if name.endswith(e) and name not in MEASURES), "")
    measure = MEASURES.get(name.removesuffix(ending))
    return None if measure is None else measure.label + (ENDINGS[ending][0] if ending else "")


@dataclass(frozen=True)
class Evaluator:
    """Evaluator of released values of bilevel problems.

    Args:
        problem: bilevel problem.
        agents: records (train, validation) of each agent.
        test: held-out records or None.
        names: names of the rows of a value, default their numbers.
        numbers: scored rows of a value, with the records of `agents`, default all. Byzantine agents are not scored.
        reads_state: whether agents have an unreleased state, default True.
        label_unit: size of one scaled label unit in the original unit of numeric labels; None for classes.
        measures: metrics to compute, default all.
        requested: metrics of `CLASS_MEASURES` and `REFERENCE_MEASURES` that are requested, default none.
        averages: whether the average of the agents' values is scored; by default each agent's values are scored.
        one_level: whether y is trained at a fixed x.
        weights: split → factors of the agents' losses in the objective, (m,); empty if agents count equally.
        key: identifier of the problem and its records for the cache of reference solutions; by default none is cached.
        sites: held-out records of each agent for scores per site, default none.
    """

    problem: Problem
    agents: Sequence[tuple[Any, Any]]
    test: Any | None
    names: Sequence[str] | None = None
    reads_state: bool = True
    label_unit: float | None = None
    measures: Sequence[str] | None = None
    requested: Sequence[str] = ()
    averages: bool = False
    one_level: bool = False
    key: str = ""
    numbers: IntArray | None = None
    weights: Mapping[Split, Array] = field(default_factory=dict)
    sites: Sites | None = None

    def rows(self, snapshot: Snapshot, is_average: bool) -> list[Row]:
        """Evaluate the metrics of one round.

        Args:
            snapshot: values of all agents at that round.
            is_average: whether published values are averages, so that the last released values differ.

        Returns:
            Rows (round, agent, name, value).
        """
        rows: list[Row] = []
        if self.sites is not None and "y" in snapshot.published:
            scored = [site for site in self.sites.scores(snapshot.published) if site.records]
            scores, agents = np.array([site.score for site in scored]), [str(site.agent) for site in scored]
            rows += summarise(snapshot.round, self.sites.measure, scores, agents)
            # The lowest accuracy, or the largest error.
            rows.append((snapshot.round, "mean", "worst_site", rows[1 if self.sites.unit is None else 2][3]))
        snapshot = select_agents(snapshot, self.numbers)
        index, published, last = snapshot.round, snapshot.published, snapshot.released if is_average else None
        ending = "" if "y" in published else "_unreleased"
        unreleased_state = snapshot.state if self.reads_state else None
        names = self.names or [
            str(agent) for agent in (range(len(self.agents)) if self.numbers is None else self.numbers)
        ]
        for values, suffix in ((published, ending), (last, "_last"), (unreleased_state, "_unreleased")):
            if values is None:
                continue
            is_published = values is published
            for name, per_row in self._scores(values, all_scores=is_published).items():
                is_agent = is_published and len(per_row) == len(scored_agents(len(names)))
                rows += summarise(index, name + suffix, per_row, names if is_agent else ())
        if set(self.requested) & set(REFERENCE_MEASURES) and all(np.isfinite(v).all() for v in published.values()):
            by_weight = self.weights.get("train")
            problem = self.problem.without_clip() if hasattr(self.problem, "without_clip") else self.problem
            objective = ReferenceObjective(problem, self._shares, self.one_level, by_weight)
            measured = objective.measure(published, self.requested, self.agents, self.key)
            rows += [(index, "mean", name, value) for name, value in measured.items()]
        return rows

    def _scores(self, v: Mapping[str, Array], all_scores: bool) -> dict[str, Array]:
        """Compute all scores of values, or only the scores on held-out records."""
        (train, train_weights), (validation, validation_weights) = self._pooled_records
        chosen = scored_agents(len(v["x"]))
        solution = agent_values = {channel: value[chosen] for channel, value in v.items()}
        if self.averages:
            solution = average_agents(v)
        if "y" not in solution:
            level = [solve_lower(self.problem, x, self.agents, weights=self.weights) for x in solution["x"]]
            solution["y"] = np.stack(level)
        x, y = solution["x"], solution["y"]
        with np.errstate(all="ignore"):
            scores = {}
            if all_scores and len(validation_weights) and self._wants("upper_loss"):
                scores["upper_loss"] = self.problem.losses(x, y, validation, validation_weights)[1]
            if all_scores and self._wants("lower_loss"):
                ridge = self.problem.regulariser_value(x, y)
                scores["lower_loss"] = self.problem.losses(x, y, train, train_weights)[0] + ridge
            if self.test is not None and self._wants("test_"):
                n = len(self.test[0])
                scores["test_loss"] = self.problem.losses(x, y, self.test, np.full(n, 1.0 / n))[1]
                accuracy = self.problem.accuracy(x, y, self.test)
                if accuracy is not None:
                    scores["test_accuracy"] = accuracy
                class_measures = measure_classes(self.problem, x, y, self.test, self.requested)
                scores |= {f"test_{name}": value for name, value in class_measures.items()}
                if self.label_unit is not None and hasattr(self.problem, "regression_scores"):
                    for name, value in self.problem.regression_scores(x, y, self.test).items():
                        scores[f"test_{name}"] = value * self.label_unit if name == "rmse" else value
            if hasattr(self.problem, "scores"):
                scores.update(self.problem.scores(x, y))
            if not all_scores:
                return {name: value for name, value in scores.items() if name.startswith("test")}
            # One value for all has no consensus error.
            for channel, value in agent_values.items() if self.names is None else ():
                if not value.shape[1]:
                    continue
                centre = v.get(channel, value).mean(axis=0)
                scores[f"consensus_{channel}"] = np.linalg.norm(value - centre, axis=1)
        return scores

    def _wants(self, start: str) -> bool:
        """Return whether a metric with this prefix is computed."""
        return self.measures is None or any(name.startswith(start) for name in self.measures)

    @cached_property
    def _pooled_records(self) -> tuple[tuple[Any, Array], tuple[Any, Array]]:
        """Pool the train and validation records of all agents, with weights w_i/(m·n_i), (n,); by default w_i = 1."""

        def weigh(parts: Sequence[Any], split: Split) -> tuple[Any, Array]:
            counts, factors = count_records(parts), self.weights.get(split, 1.0)
            return concatenate(parts), np.repeat(factors / (len(parts) * np.maximum(counts, 1)), counts)

        agents = RecordPairs.from_pairs(self.agents)
        return weigh(agents.train, "train"), weigh(agents.validation, "validation")

    @cached_property
    def _shares(self) -> list[Share]:
        return join_alike(self.agents, self.weights)


def select_agents(snapshot: Snapshot, numbers: IntArray | None) -> Snapshot:
    """Return the snapshot with the values of these agents only; None selects all."""
    if numbers is None:
        return snapshot
    released, published, state = (
        {channel: value[numbers] for channel, value in values.items()}
        for values in (snapshot.released, snapshot.published, snapshot.state)
    )
    return snapshot._replace(released=released, published=published, state=state)


def average_agents(values: Mapping[str, Array]) -> dict[str, Array]:
    """Average the values of all agents by computing the exact sum and dividing once.

    Messages with Gaussian noise are multiples of a power of two. `compute_steps` bounds them so that every partial sum
    is exactly representable in float64, in any order of the agents.

    Args:
        values: channel → values of each agent, (m, ·).

    Returns:
        Channel → average, (1, ·).

    Example:
        >>> average_agents({"y": np.array([[1.0, 0.5], [2.0, 0.0]])})["y"].tolist()
        [[1.5, 0.25]]
    """
    return {channel: np.asarray(value.mean(axis=0, keepdims=True)) for channel, value in values.items()}


def summarise(index: int, name: str, per_row: Array, names: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a metric (b,): mean, lowest and highest value, and each value if agents' names are given."""
    rows: list[Row] = [
        (index, "mean", name, float(per_row.mean())),
        (index, "mean", f"{name}_min", float(per_row.min())),
        (index, "mean", f"{name}_max", float(per_row.max())),
    ]
    chosen = [names[row] for row in scored_agents(len(names))] if names else []
    return rows + [(index, agent, name, float(value)) for agent, value in zip(chosen, per_row, strict=bool(chosen))]


def select_rows(rows: list[Row], measures: Sequence[str] | None) -> list[Row]:
    """Keep the rows of some metrics, with all endings.

    Example:
        >>> rows = [(1, "mean", "test_auc", 0.9), (1, "mean", "test_auc_min", 0.8), (1, "mean", "test_loss", 0.5)]
        >>> len(select_rows(rows, ["test_auc"])), len(select_rows(rows, None))
        (2, 3)
    """
    return rows if measures is None else [row for row in rows if _ENDING.sub("", row[2]) in measures]


def scored_agents(n_agents: int) -> IntArray:
    """Return the numbers (k,) of the scored agents: all, or `MOST_SCORED` of them, evenly spaced.

    Each is scored on all records, so scoring every agent of a large network would take longer than its run.

    Example:
        >>> scored_agents(3).tolist(), len(scored_agents(10**5)), int(scored_agents(10**5)[-1])
        ([0, 1, 2], 256, 99999)
    """
    return evenly_spaced(n_agents, MOST_SCORED)


def evenly_spaced(n: int, most: int) -> IntArray:
    """Choose evenly spaced indices, including the first and the last.

    Args:
        n: number of indices.
        most: largest number of chosen indices, at least 2.

    Example:
        >>> evenly_spaced(10, 4).tolist(), evenly_spaced(2, 4).tolist()
        ([0, 3, 6, 9], [0, 1])
    """
    return np.linspace(0, n - 1, min(n, most)).round().astype(np.int64)


def tabulate(rows: Sequence[Row], names: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Make the columns round, agent, name and value, and agent_name if agents have names.

    Args:
        rows: rows (round, agent, name, value).
        names: names of the agents.

    Example:
        >>> columns = tabulate([(1, "mean", "upper_loss", 0.5), (1, "1", "upper_loss", 0.3)], ["Bern", "Zug"])
        >>> columns["agent_name"].tolist(), columns["value"].tolist()
        (['mean', 'Zug'], [0.5, 0.3])
    """
    types = {"round": np.int64, "agent": np.str_, "name": np.str_, "value": np.float64}
    columns: dict[str, NDArray[Any]] = {
        name: np.array([row[k] for row in rows], dtype=kind) for k, (name, kind) in enumerate(types.items())
    }
    if names:
        labels = {str(agent): name for agent, name in enumerate(names)}
        columns["agent_name"] = np.array([labels.get(agent, agent) for agent in columns["agent"].tolist()], dtype=str)
    return columns


def final(metrics: Columns) -> dict[str, float]:
    """Return means over agents at the last evaluated round, by name.

    Example:
        >>> rows = [(1, "mean", "upper_loss", 0.5), (2, "mean", "upper_loss", 0.25), (2, "0", "upper_loss", 0.3)]
        >>> final(tabulate(rows))
        {'upper_loss': 0.25}
    """
    means = np.asarray(metrics["agent"]) == "mean"
    names, values = (np.asarray(metrics[column])[means].tolist() for column in ("name", "value"))
    return dict(sorted(dict(zip(names, values, strict=True)).items()))


_COUNT = "records"


@dataclass(frozen=True)
class AgentScorer:
    """Scorer that sums over the records of one block, in the process of the block.

    Args:
        problem: bilevel problem.
        records: records (train, validation, test or None) of every agent of the block.
        regression: whether labels are numbers.
    """

    problem: Problem
    records: Sequence[tuple[Any, Any, Any | None]]
    regression: bool

    def __call__(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Sum the mean losses and the held-out scores of the block's agents for each (x, y).

        Args:
            values: values of "x" and "y", each (k, ·).
        """
        x, y = values["x"], values["y"]
        sums = dict.fromkeys(("lower_loss", "upper_loss"), np.zeros(len(x)))
        with np.errstate(all="ignore"):
            for train, validation, test in self.records:
                lower, upper = (np.full(len(part[0]), 1.0 / len(part[0])) for part in (train, validation))
                sums["lower_loss"] = sums["lower_loss"] + self.problem.losses(x, y, train, lower)[0]
                sums["upper_loss"] = sums["upper_loss"] + self.problem.losses(x, y, validation, upper)[1]
                if test is None:
                    continue
                n = len(test[0])
                scores: dict[str, Any] = {_COUNT: float(n), "test_loss": self.problem.losses(x, y, test, np.ones(n))[1]}
                if (accuracy := self.problem.accuracy(x, y, test)) is not None:
                    scores["test_accuracy"] = n * accuracy
                if self.regression and hasattr(self.problem, "regression_scores"):
                    scores["test_squared"] = n * np.square(self.problem.regression_scores(x, y, test)["rmse"])
                for name, value in scores.items():
                    sums[name] = sums.get(name, 0.0) + value
        return sums


@dataclass(frozen=True)
class AgentEvaluator:
    """Evaluator of released values when records stay with their agents.

    Args:
        problem: bilevel problem.
        n_agents: number m of agents.
        label_unit: size of one scaled label unit in the original unit of numeric labels; None for classes.
    """

    problem: Problem
    n_agents: int
    label_unit: float | None = None

    def rows(self, snapshot: Snapshot, is_average: bool) -> list[Row]:
        """Evaluate the metrics of one round, in the row format of `metrics.Evaluator`."""
        names = [str(agent) for agent in range(self.n_agents)]
        rows: list[Row] = []
        for name, per_row in self._scores(snapshot, snapshot.published).items():
            rows += summarise(snapshot.round, name, per_row, names)
        for name, per_row in self._scores(snapshot, snapshot.released).items() if is_average else ():
            if name.startswith("test"):
                rows += summarise(snapshot.round, f"{name}_last", per_row)
        return rows

    def _scores(self, snapshot: Snapshot, values: Mapping[str, Array]) -> dict[str, Array]:
        chosen = {channel: value[scored_agents(self.n_agents)] for channel, value in values.items()}
        scores: dict[str, Array] = {}
        with np.errstate(all="ignore"):
            if {"x", "y"} <= chosen.keys():
                scores |= self._record_scores(snapshot, {c: chosen[c] for c in ("x", "y")})
                if hasattr(self.problem, "scores"):
                    scores |= self.problem.scores(chosen["x"], chosen["y"])
            for channel, value in chosen.items():
                scores[f"consensus_{channel}"] = np.linalg.norm(value - values[channel].mean(axis=0), axis=1)
        return scores

    def _record_scores(self, snapshot: Snapshot, values: Mapping[str, Array]) -> dict[str, Array]:
        """Compute scores from the sums of the agents; return none if they send no sums."""
        blocks = [block for block in snapshot.score(values) if block is not None]
        if not blocks:
            return {}
        sums = {
            name: sum(block[name] for block in blocks if name in block)
            for name in dict.fromkeys(name for block in blocks for name in block)
        }
        n, m = sums.pop(_COUNT, 1.0), self.n_agents
        scores = {"upper_loss": sums.pop("upper_loss") / m}
        scores["lower_loss"] = sums.pop("lower_loss") / m + self.problem.regulariser_value(values["x"], values["y"])
        square_sums = sums.pop("test_squared", None)
        scores |= {name: total / n for name, total in sums.items()}
        if square_sums is not None and self.label_unit is not None:
            scores["test_rmse"] = np.sqrt(square_sums / n) * self.label_unit
        return scores


class Scorer(Protocol):
    """Evaluator of the published values of a job."""

    def rows(self, snapshot: Snapshot, is_average: bool) -> list[Row]:
        """Evaluate the metrics of one round."""
        ...
