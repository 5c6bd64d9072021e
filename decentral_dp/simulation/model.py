"""Trained models: the published weights of a run, and the public rules by which they read a raw table.

Predictions are post-processing of released weights and cost no ε. The scenario has the rules for columns, the result
has the names of features and classes. A model reads no records and no state of the agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.config.components import named_component, trusted_files
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.scenario_components import predictor_of
from decentral_dp.config.schema import Partition, Scenario, csv_of
from decentral_dp.data.columns import ColumnRules, Columns, cells_of
from decentral_dp.data.dataset import Label, refuse_masked
from decentral_dp.data.shards import features_for_model
from decentral_dp.data.tables import USUAL_CSV, CsvFormat, read_columns, require_columns
from decentral_dp.errors import InputError, quoted, warn_caller
from decentral_dp.files.regular import own, read_arrays
from decentral_dp.formatting import agent_names
from decentral_dp.models.devices import tensor
from decentral_dp.problems.entry import ProblemFacts
from decentral_dp.problems.protocol import Predictor
from decentral_dp.problems.training import Training
from decentral_dp.simulation.metrics import average_agents
from decentral_dp.simulation.result import (
    METADATA,
    MODEL,
    RunResult,
    is_published,
    published_values,
    read_result,
    refuse_damaged,
    require_run_folder,
)

if TYPE_CHECKING:
    import pandas as pd


# A feature that is clipped in more of the records seems to have another unit.
_MOST_CUT = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """Trained model of a run, which predicts new records: `run.model`, or `load_model` for a run folder.

    By default the weights are the mean over agents of the published weights, which averages their noise. The scores of
    a run are means over agents of the score of each agent's own weights, those of `model.of_agent(agent)`. If
    privacy.adversary is "final_average", they are the scores of the mean weights.

    Args:
        problem: problem that predicts from weights and features.
        published: weights of each agent, (m, q), preceded by the centre of the features if there is one; one row for a
            coordinator and for an average at a centre.
        features: names of the features, in the order of the weights; one column may have several features.
        rules: rules that convert columns to features; None if the columns are the features.
        prepare_columns: function columns → features (n, d), like `shards.features_for_model` with the scenario's rules.
        csv: format of CSV files.
        classes: classes of the labels, in the order of the probabilities; none for numeric labels.
        label_range: public (low, high) of numeric labels, to which [−1, 1] is scaled back; None if they are not scaled.
        agents: names of the agents, if they have any.
        agent: agent whose weights are used for predictions; None for the mean.
        linked: whether agents have edges, so that they have a common model, default True.
        attackers: numbers of the Byzantine agents, which are excluded from the mean, default none.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("classification", set={"algorithm.rounds": 20})
        >>> run.model
        <TrainedModel: a linear model of 30 features, classes 'malignant', 'benign', mean of 5 agents>
        >>> {name: array.shape for name, array in run.model.weights.items()}
        {'weight': (1, 30), 'bias': (1,)}
    """

    problem: Predictor
    published: Array
    features: tuple[str, ...]
    rules: ColumnRules | None
    prepare_columns: Callable[..., tuple[Array, dict[str, float]]]
    csv: CsvFormat
    classes: tuple[Label, ...]
    label_range: tuple[float, float] | None = None
    agents: tuple[str, ...] = ()
    agent: int | None = None
    linked: bool = True
    attackers: Sequence[int] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a raw table must have; other columns are ignored."""
        return self.features if self.rules is None else self.rules.raw(self.features)

    @property
    def weights(self) -> dict[str, Array]:
        """Weights by name, in their shapes, for prepared features.

        With two classes and a clip, the odds from the weights are up to twice as far from 1 as the odds of
        `predict_proba`, which allows for the clip. The predicted classes are the same.
        """
        return self.problem.named_weights(self._y[0])

    def of_agent(self, agent: int | str) -> TrainedModel:
        """Return the model with the published weights of one agent.

        Args:
            agent: agent number, or agent name if agents have names.

        Raises:
            InputError: there is no such agent.
        """
        m = len(self.published)
        number = self.agents.index(agent) if isinstance(agent, str) and agent in self.agents else agent
        if isinstance(number, str) and number.isdecimal():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < m:
            example = f", or a name such as {quoted(self.agents[0])}" if self.agents else ""
            raise InputError(f"agent: got {quoted(agent)}, expected a number from 0 to {m - 1}{example}.")
        return replace(self, agent=int(number))

    def state_dict(self) -> dict[str, Any]:
        """Return the weights as float64 tensors, for `load_state_dict` of a torch module with the same layers.

        The module is a `torch.nn.Linear` for a linear model, and a `torch.nn.Sequential` of Linear and ReLU for an mlp.
        For a cnn it is a `torch.nn.Sequential` of Unflatten(1, (c, h, w)), then Conv2d, ReLU and MaxPool2d(2) for each
        convolution, then Flatten and Linear. For a custom module it is the module itself, without buffers. Its inputs
        are the features from `prepare`.
        """
        return {name: tensor(value) for name, value in self.weights.items()}

    def prepare(self, table: Any) -> Array:
        """Convert raw records to the features (n, d) to which the weights apply. See `predict`."""
        if isinstance(table, str | Path):
            text = set() if self.rules is None else self.rules.text
            place, columns = (
                repr(str(table)),
                read_columns(Path(table), self.columns, text, f"predict: {str(table)!r}", self.csv),
            )
        else:
            place, columns = "the table", self._memory_columns(table)
        try:
            features, clipped_shares = self.prepare_columns(columns, location=place)
        except InputError as error:
            # A trained model keeps the rules of its scenario.
            problem = str(error).partition(" Fix: ")[0]
            raise InputError(f"predict: {problem} Fix: correct this table, or train again with other rules.") from None
        most = sorted(
            (name for name, share in clipped_shares.items() if share > _MOST_CUT),
            key=lambda name: -clipped_shares[name],
        )
        if most:
            columns_text = ", ".join(f"{name} {clipped_shares[name]:.0%}" for name in most[:5])
            more = f" and {len(most) - 5} other features" if len(most) > 5 else ""
            warn_caller(
                f"predict: values outside the declared range are clipped: {columns_text}{more}. Fix: use the "
                "units of problem.scale.",
                UserWarning,
            )
        return features

    def predict(self, table: Any) -> NDArray[Any]:
        """Predict the class or the numeric label of each record.

        Args:
            table: raw records, before any scaling: a pandas DataFrame or dict of columns, from which the columns of the
                features are read by name; an array (n, d) of the features in their order; or the path of a CSV or
                Parquet file.

        Returns:
            The most likely class of each record, as named in the scenario (the first in a tie), or a number in the unit
            of the label, (n,).

        Raises:
            InputError: a column is missing, a cell is neither a number nor covered by a rule, or there are no records.

        Warns:
            UserWarning: more than half of the values of a feature lie outside its declared range and are clipped.
        """
        return self._labels(self._scores(table))

    def predict_proba(self, table: Any) -> Array:
        """Predict the class probabilities (n, c), in the order of `classes`, with the same argument as `predict`.

        Raises:
            InputError: the model predicts numbers, which have no probabilities.
        """
        if not self.classes:
            raise InputError("predict_proba: not available for a regression model. Fix: use predict.")
        return self._scores(table)

    def predictions(self, path: Path) -> pd.DataFrame:
        """Tabulate the predictions for the records of a file.

        Args:
            path: path of a CSV or Parquet file.

        Returns:
            Columns "prediction" and, for classes, "probability_CLASS".

        Raises:
            InputError: `predict` refuses the records.
        """
        import pandas as pd

        scores = self._scores(path)
        shares = {f"probability_{c}": scores[:, k] for k, c in enumerate(self.classes)}
        return pd.DataFrame({"prediction": self._labels(scores), **shares})

    def __repr__(self) -> str:
        m, target = len(self.published), "numbers"
        if self.classes:
            target = "classes " + ", ".join(map(repr, self.classes[:5])) + ", …" * (len(self.classes) > 5)
        honest = f"{len(self._honest)} honest agents" if self.attackers else f"{m} agents"
        shared = f"mean of {honest}" if self.linked else f"of {m} agents without edges"
        suffix = "" if m == 1 else f", {shared if self.agent is None else f'agent {self.agent}'}"
        return f"<TrainedModel: {self.problem.description} of {len(self.features)} features, {target}{suffix}>"

    @property
    def _y(self) -> Array:
        """Weights that predict, (1, q)."""
        if self.agent is not None:
            return self.published[self.agent : self.agent + 1]
        if not self.linked:
            raise InputError(
                f"predict: the {len(self.published)} agents have no edges, so there is no common model. Fix: "
                "select an agent, as in predict(table, agent=0), model.of_agent(0), or --agent 0."
            )
        return np.asarray(self._honest.mean(axis=0, keepdims=True))

    @property
    def _honest(self) -> Array:
        """Published weights of the honest agents, (h, q)."""
        return np.delete(self.published, np.array(self.attackers, dtype=np.int64), axis=0)

    def _scores(self, table: Any) -> Array:
        """Return probabilities (n, c), or numbers (n,) in the unit of the label."""
        scores: Array = self.problem.predict(self._y, self.prepare(table))[0]
        if self.label_range is None:
            return scores
        low, high = self.label_range
        return np.asarray(low + 0.5 * (scores + 1.0) * (high - low))

    def _labels(self, scores: Array) -> NDArray[Any]:
        return np.array(self.classes)[scores.argmax(axis=1)] if self.classes else scores

    def _memory_columns(self, table: Any) -> Columns:
        """Return the columns of records in memory. Raises InputError if they are invalid."""
        if isinstance(table, Mapping):
            import pandas as pd

            table = pd.DataFrame(table)
        if hasattr(table, "columns") and hasattr(table, "iloc"):
            names = [str(column) for column in table.columns]
            require_columns(self.columns, names, "predict: the table")
            if not len(table) or any(names.count(name) > 1 for name in self.columns):
                raise InputError(
                    "predict: the table has no records, or two columns with the same name. Fix: correct the table."
                )
            return cells_of(table.set_axis(names, axis=1), self.columns)
        refuse_masked(table, "predict")
        try:
            rows = np.asarray(table, dtype=np.float64)
        except (TypeError, ValueError):
            rows = np.empty(0)
        by_name = self.columns != self.features
        if by_name or rows.ndim != 2 or rows.shape[1] != len(self.features) or not len(rows):
            shape = "" if by_name else f" or an array (records, {len(self.features)}) of numbers"
            raise InputError(
                f"predict: got {type(table).__name__} of shape {rows.shape}, expected a table with the "
                f"columns {', '.join(self.columns[:5])}, …{shape}. Fix: pass a DataFrame, or the path of a "
                "CSV file."
            )
        return {name: rows[:, k] for k, name in enumerate(self.features)}


def model_of(scenario: Scenario, result: RunResult, published: Mapping[str, Array]) -> TrainedModel:
    """Build the model of a run from its published values.

    Args:
        scenario: scenario of the run.
        result: result of the run.
        published: channel → published values, (m, ·).

    Raises:
        InputError: the run diverged, its problem does not predict, or the weights were not published.
    """
    # A divergence of released values, which ends a run early; the status after an evaluation reads records.
    has_stopped_early = result.has_diverged and result.rounds != result.rounds_planned
    if has_stopped_early or not all(np.isfinite(value).all() for value in published.values()):
        raise InputError(
            "predict: this run diverged, so it has no usable model. Fix: run it with a smaller learning rate."
        )
    graph = result.topology
    return _make_model(
        scenario, result.problem, published, graph.get("labels"), graph.get("edges") != [], result.problem_type.weights
    )


def _make_model(
    scenario: Scenario,
    about: Mapping[str, Any],
    published: Mapping[str, Array],
    labels: Any,
    linked: bool,
    weights: str = "y",
) -> TrainedModel:
    """Make a model from its weights.

    Args:
        scenario: scenario of the run.
        about: summary of the problem, with features, classes, image and bounds.
        published: published values, as in `model_of`.
        labels: names of the agents.
        linked: whether agents have edges.
        weights: variable whose value is the model, default "y".
    """
    kind = scenario.problem.kind
    names, classes = tuple(about.get("features") or ()), tuple(about.get("classes") or ())
    image, bounds = about.get("image"), about.get("bounds")
    y = published.get(weights)
    facts = ProblemFacts(
        len(names),
        len(classes),
        None if image is None else tuple(image),
        1 if y is None else len(y),
        scenario.records_seed,
        module=named_component(scenario, "model").value,
    )
    problem = predictor_of(scenario, facts) if names and "problem" not in scenario.objects else None
    if problem is None or y is None or scenario.problem.scale == "standard":
        refusal = 'problem.scale = "standard" was fitted on the records, and no run publishes it'
        if problem is None:
            refusal = f"{kind} has no model that predicts the label of a record"
        elif y is None:
            refusal = f"{scenario.algorithm.kind} publishes {' and '.join(published)} only, and {kind} predicts by y"
        raise InputError(
            f"predict: {refusal}. Fix: read the published values in run.published, or in state.npz of the run folder."
        )
    if isinstance(problem, Training):
        if problem.p and scenario.privacy.adversary == "final_average":
            # The intercepts for features that are not centred depend on each agent's weights and centre.
            published = average_agents(published)
        y = problem.predicting(published["x"], published["y"])
    prepare = partial(
        features_for_model,
        names=names,
        rules=scenario.problem.columns,
        scale_spec=scenario.problem.scale,
        normalisation=scenario.problem.normalise,
        bounds=None if bounds is None else (bounds[0], bounds[1]),
        source=str(about.get("data", "")),
    )
    if problem.predict(np.zeros(y[:1].shape), np.zeros((1, len(names)))).ndim == 2:
        # A regression on the indices of classes predicts numbers.
        classes = ()
    limits, partition = scenario.problem.label_range, scenario.problem.partition
    names_of_agents = agent_names(labels)
    if not names_of_agents and isinstance(partition, Partition):
        names_of_agents = agent_names(partition.agents)
    return TrainedModel(
        problem,
        np.array(y),
        names,
        scenario.problem.columns,
        prepare,
        csv_of(scenario.problem) or USUAL_CSV,
        classes,
        None if limits is None or classes else (limits[0], limits[1]),
        names_of_agents,
        linked=len(y) == 1 or linked,
        attackers=() if scenario.attack is None else scenario.attack.agents,
    )


def load_model(folder: str | Path) -> TrainedModel:
    """Load the model of a run folder, or of its folder `published`, without the records.

    If `problem.model` is a custom torch module, the folder's copy of its Python file is executed.

    Args:
        folder: folder of a complete run, or its folder `published`.

    Returns:
        The trained model.

    Raises:
        InputError: the folder contains no complete run, or its problem does not predict.

    Example:
        >>> import tempfile, decentral_dp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = decentral_dp.run("classification", set={"algorithm.rounds": 2}, out=f"{folder}/run")
        ...     decentral_dp.load_model(f"{folder}/run").of_agent(0)
        <TrainedModel: a linear model of 30 features, classes 'malignant', 'benign', agent 0>
    """
    folder = Path(folder)
    if is_published(folder):
        with refuse_damaged(folder, "predict"):
            metadata = json.loads(own(folder / METADATA, folder, "predict").read_text(encoding="utf-8"))
            arrays = read_arrays(own(folder / MODEL, folder, "predict"), "predict", ["x", "y"])
            scenario = load_scenario(own(folder / "scenario.toml", folder, "predict"))
            trusted_files(scenario)
            values = {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()}
            return _make_model(scenario, metadata["problem"], values, metadata["agents"], metadata["linked"])
    result = read_result(folder)
    require_run_folder(folder, "predict", ("scenario.toml", "state.npz"))
    with refuse_damaged(folder, "predict"):
        scenario = load_scenario(folder / "scenario.toml")
        trusted_files(scenario)
        return model_of(scenario, result, published_values(folder, "predict"))
