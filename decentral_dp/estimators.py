"""Estimators in scikit-learn's form: a classifier and a regressor for private decentralised training.

Parameters are set in the constructor. Results of `fit` have names that end in `_`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from decentral_dp.bounded import DEFAULT_DELTA, Array
from decentral_dp.config.arrays import (
    PrivacyWarning,
    check_label_range,
    encode_classes,
    infer_label_range,
    number_owners,
    range_of_features,
    training_scenario,
)
from decentral_dp.config.components import load_components
from decentral_dp.data.dataset import missing_cells, refuse_masked
from decentral_dp.errors import InputError, converting, naming, warn_caller
from decentral_dp.files.durable import new_salt
from decentral_dp.formatting import epsilon_text
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.simulation.budget import Budget
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.hyperparameters import TAIL_OF_LINEAR, TAIL_OF_NETWORK, stable_momentum
from decentral_dp.simulation.model import TrainedModel
from decentral_dp.simulation.run import run_job

# Range of seeds drawn from a scikit-learn generator.
_SEEDS = 2**31 - 1

# scikit-learn requires errors for non-finite values, so such records cannot be replaced.
NOT_COVERED = (
    "Not covered by ε are errors of fit for values that are not finite and labels that are not one of the classes, and "
    "warnings of columns that are not scaled: they depend on the records."
)


class FitCost(NamedTuple):
    """Privacy cost of a fit.

    Args:
        ledger: ledger of all releases.
        epsilon, delta: privacy cost of the agent with the largest ε.
        statement: guarantee in words.
    """

    ledger: Ledger
    epsilon: float
    delta: float
    statement: str


# Added to a statement with a seed.
SIMULATED = " The seed makes the noise reproducible, so this is a simulation."
# Values that undeclared labels reveal, in a privacy statement.
NAMES = "the names of the classes, which were"


class Private:
    """Base of private estimators."""

    random_state: Any

    def _store_cost(self, cost: FitCost, read_off: str) -> None:
        """Store the privacy cost. `read_off` lists values inferred from the labels, not covered by ε; "" if none."""
        self.ledger_, self.epsilon_, self.delta_, statement = cost
        self.statement_ = f"{f'Apart from {read_off} inferred from y: ' if read_off else ''}{statement} {NOT_COVERED}"

    def _column(self, k: int) -> str:
        """Return the name of a column of X for warnings."""
        names = getattr(self, "feature_names_in_", None)
        return f"column {k}" if names is None else repr(str(names[k]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc] # the class after this one is scikit-learn's
        # With few records noise dominates.
        (tags.classifier_tags or tags.regressor_tags).poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags


def validate_records(estimator: Any, X: ArrayLike, y: ArrayLike, numbers: bool = False) -> tuple[Array, NDArray[Any]]:
    """Validate features (n, d) and labels (n,) as scikit-learn does, and return them. Errors quote no record.

    Args:
        estimator: estimator to fit.
        X: features, (n, d).
        y: labels, (n,).
        numbers: whether labels must be numbers; default False.

    Raises:
        InputError: a column is not numeric, a value is missing, labels mix text and numbers, or an array is masked.
        TypeError, ValueError: scikit-learn does not support the shape or type.
    """
    refuse_masked(X, "X")
    refuse_masked(y, "y")
    raw, problem = np.asarray(y), ""
    if numbers and raw.dtype.kind in "USO":
        try:
            raw.astype(np.float64)
        except (TypeError, ValueError):
            problem = "y holds text, expected numbers. Fix: use a classifier, or numbers."
    if raw.dtype.kind == "O" and raw.ndim == 1 and len(raw):
        missing = missing_cells(raw)
        if missing.any():
            problem = f"y: row {int(np.argmax(missing)) + 1} has no label (NaN). Fix: remove the record."
        elif len({isinstance(label, str) for label in raw.tolist()}) > 1:
            problem = "y mixes text and numbers, expected labels of one type. Fix: pass y.astype(str)."
    if problem:
        # Raised outside of the handler, since the error of numpy quotes the label.
        raise InputError(problem)
    with _quoting_no_record():
        features, labels = validate_data(estimator, X, y, dtype=np.float64, order="C", y_numeric=numbers)
    return features, labels


def validate_features(estimator: Any, X: ArrayLike) -> Array:
    """Return the features (n, d) for prediction, checked as by `validate_records`."""
    refuse_masked(X, "X")
    with _quoting_no_record():
        features: Array = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
    return features


@contextmanager
def _quoting_no_record() -> Iterator[None]:
    """Keep only the first line of an error of scikit-learn: others may print rows of X."""
    try:
        yield
        return
    except (TypeError, ValueError) as error:
        text = str(error)
        kind: type[Exception] = TypeError if isinstance(error, TypeError) else ValueError
    line = text.partition("\n")[0]
    sentence = line.rstrip(":")
    if text.startswith("The feature names"):
        sentence = text
    elif "could not convert" in line or "literal" in line:
        fix = "OneHotEncoder(categories=[[…]], sparse_output=False), or declare them in [problem.columns] of a scenario"
        kind, sentence = InputError, f"X holds text, expected numbers. Fix: encode public categories by {fix}."
    elif "Sparse data" in line:
        fix = "X.toarray(), or encoders with sparse_output=False and ColumnTransformer(…, sparse_threshold=0)"
        kind, sentence = InputError, f"X is sparse, expected a dense array. Fix: use {fix}."
    elif "X contains NaN" in line:
        kind, sentence = InputError, f'{sentence} Fix: use SimpleImputer(strategy="constant") with a public fill_value.'
    elif "Reshape your data" in text:
        sentence += ". Reshape your data to (records, features)"
    raise kind(sentence) from None


# Key of a scenario → parameter of an estimator.
_PARAMETERS = {
    **{f"privacy.{name}": name for name in ("epsilon", "delta", "clip", "colluders")},
    **{f"problem.{name}": name for name in ("weights", "l2", "model", "loss", "label_range", "positive_share")},
    **{"privacy.clip.x": "clip", "algorithm.rounds": "rounds", "algorithm.x.scale": "step"},
    **{"topology.agents": "agents", "problem.scale": "data_range"},
}


@contextmanager
def naming_parameters(estimator: Any) -> Iterator[None]:
    """Name the estimator's parameters in errors of its scenario, and omit advice to change other privacy keys."""
    try:
        with naming({key: name for key, name in _PARAMETERS.items() if hasattr(estimator, name)}):
            yield
    except InputError as error:
        problem, _, fix = str(error).partition(" Fix: ")
        raise InputError(problem if "privacy." in fix else error) from None


def seed_of(random_state: Any) -> int | None:
    """Return the seed of the noise, or None if the noise is secret.

    Example:
        >>> seed_of(None), seed_of(7), seed_of(np.random.default_rng(0)) >= 0
        (None, 7, True)

    Raises:
        InputError: the argument is neither a seed nor a NumPy generator.
    """
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    if not isinstance(random_state, int | np.integer) or random_state < 0:
        got = f"got {random_state!r}, expected None, an integer of at least 0, or a generator of numpy"
        raise InputError(f"random_state: {got}.")
    return int(random_state)


# Default number of agents, and the smallest ring.
_AGENTS, _RING = 5, 3
Number = float | Sequence[float] | NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class _Decentralised(Private):
    """Parameters and training of both estimators, see `DecentralisedClassifier`."""

    agents: int | None = None
    topology: Any = "ring"
    epsilon: float = 1.0
    delta: float = DEFAULT_DELTA
    model: str | Mapping[str, Any] = "linear"
    algorithm: str | Mapping[str, Any] = "dp_dsgd"
    rounds: int | Literal["auto"] = "auto"
    clip: float | Literal["auto"] = "auto"
    colluders: int | None = None
    weights: Literal["sites", "records"] = "sites"
    l2: float = 0.0
    data_range: tuple[Number, Number] = (-1.0, 1.0)
    budget: Budget | None = None
    random_state: Any = None

    def _train(
        self, problem: Mapping[str, Any], features: Array, labels: NDArray[Any], owners: ArrayLike | None, read_off: str
    ) -> TrainedModel:
        """Run the agents, and store the privacy cost. Raises InputError.

        `read_off` lists values inferred from the labels, not covered by ε; "" if none.
        """
        n, d = features.shape
        owner, counts = (None, ()) if owners is None else number_owners(owners, n, self.agents)
        agents = self.agents if owner is None else len(counts)
        names = [str(name) for name in getattr(self, "feature_names_in_", [f"x{k}" for k in range(d)])]
        ranges = range_of_features(self.data_range, d)
        seed = seed_of(self.random_state)
        graph, topology = _graph(self.topology, agents)
        agent_names = (graph or {}).get("agents")
        if isinstance(agent_names, int | np.integer) and n < agent_names:
            raise InputError(
                f"X has n_samples = {n}, too few for {agent_names} agents with a record each. Fix: use fewer agents."
            )
        options = self.algorithm if isinstance(self.algorithm, Mapping) else {"kind": self.algorithm}
        algorithm: dict[str, Any] = {"kind": "dp_dsgd", **options}
        if self.rounds != "auto":
            algorithm["rounds"] = self.rounds
        table = {**problem, "test": 0.0, "l2": self.l2, "weights": self.weights}
        table |= {} if self.model == "linear" else {"model": self.model}
        scenario, data = training_scenario(table, ranges, features, labels, names, owner, counts)
        scenario |= {
            "title": type(self).__name__,
            **({} if seed is None else {"seed": seed}),
            **({} if graph is None else {"topology": graph}),
            "algorithm": algorithm,
            # Scores would read the records; no records are held out.
            "run": {"evaluate_every": 1_000_000, "measures": ["test_loss"]},
        }
        clip = {} if self.clip == "auto" else {"clip": self.clip}
        scenario["privacy"] |= {"epsilon": self.epsilon, "delta": self.delta, **clip}
        if self.colluders is not None:
            scenario["privacy"] |= {"correlation": {"between_agents": "pairwise"}, "colluders": self.colluders}
        scenario = self._with_default_parts(scenario, data, topology)
        with naming_parameters(self):
            job = build_job(scenario, data=data, topology=topology)
        if job.n_agents > 1 and not len(job.topology.edges):
            raise InputError(
                f"topology: {job.n_agents} agents without edges do not train a common model. Fix: use a "
                "connected graph, or fit one estimator with agents=1 for each agent."
            )
        if self.budget is None and seed is None:
            fix = 'pass budget=decentral_dp.Budget(epsilon, delta, dataset="NAME")'
            warn_of_refits(features, float(job.budget.epsilon.max()), job.budget.delta, fix)
        run = run_job(job, budget=self.budget)
        budget, m = job.budget, job.n_agents
        model = run.model if run.model.agents else replace(run.model, agents=counts)
        epsilon = float(budget.epsilon.max())
        q = self.colluders
        collusion = "" if q is None else f", if at most {q} agent{'s' * (q != 1)} may collude with the adversary"
        statement = (
            f"All that each of {m} agents sends is (epsilon = {epsilon_text(epsilon)}, delta = {budget.delta:g})-"
            f"differentially private for replacing one of its records{collusion}; how many of the {n} records an agent "
            f"has is public.{'' if seed is None else SIMULATED}"
        )
        self._store_cost(FitCost(run.records, epsilon, budget.delta, statement), read_off)
        self.model_ = model
        return model

    def _with_default_parts(self, scenario: dict[str, Any], data: Any, graph: Any) -> dict[str, Any]:
        """Add default momentum, centring and tail average, unless `algorithm` sets them."""
        table, linear = scenario["algorithm"], self.model == "linear"
        # AdaSSP publishes a solution, without steps to average.
        tail = 1 if table["kind"] == "adassp" else TAIL_OF_LINEAR if linear else TAIL_OF_NETWORK
        run = {"average": tail, **scenario["run"]}
        if table["kind"] in _WITH_PARTS:
            try:
                topology = load_components(scenario, data=data, topology=graph).topology.make()
                momentum = stable_momentum(topology, table["kind"])
            except InputError:
                # `build` raises it again, with the name of the parameter.
                momentum = 0.0
            whole = scenario.get("topology", {}).get("compression") is None
            table = {"momentum": momentum if whole else 0.0, "centring": linear} | table
        return {**scenario, "algorithm": table, "run": run}

    def _linear(self, model: TrainedModel) -> tuple[Array, Array]:
        """Return weights (e, d) and intercepts (e,) for unscaled features."""
        weights = model.weights
        low, high = range_of_features(self.data_range, weights["weight"].shape[1])
        coef = weights["weight"] * 2.0 / (high - low)
        return coef, weights["bias"] - coef @ (0.5 * (low + high))


# Algorithms with momentum and centring.
_WITH_PARTS = ("dp_dsgd", "alone", "federated", "central")


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralisedClassifier(_Decentralised, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Classifier trained by agents on a graph, without a trusted party.

    Training is decentralised DP-SGD (`problem.kind = "classification"`): every agent takes clipped steps on its
    records, sends them with noise, and averages with its neighbours. All messages of an agent together are (ε, δ)-
    differentially private for replacing one of its records. The number of rounds, the learning rate and the clipping
    norm are derived from public numbers. Unless `algorithm` sets them, the defaults are momentum 0.9 (if stable on the
    graph), centred features for a linear model, and a tail average.

    Args:
        agents: number of agents. Rows are partitioned evenly at random by a public seed, unless `fit` receives the
            owners. Default: 5, or the number of agents of the graph.
        topology: kind of graph, as in a scenario ("ring", "torus", "complete", …), a table given as a dict, or a
            `networkx.Graph`. A ring of fewer than 3 agents is a complete graph. Default "ring".
        epsilon, delta: privacy target of every agent for all its messages; default (1, 1e-5). Choose δ below 1/N.
        model: "linear", or a table such as {"kind": "mlp", "hidden": [32]}.
        algorithm: kind of algorithm, or a table with options, such as {"kind": "dp_dsgd", "learning_rate": 0.5}.
        rounds: number of rounds, or "auto".
        clip: clipping norm of a record's gradient, or "auto".
        colluders: None for independent noise, or the number q of agents that may collude with the adversary: noise is
            then correlated between neighbours, and smaller at the same ε (`privacy.correlation`, `privacy.colluders`).
        weights: "sites" weights agents equally, "records" weights records equally, by public counts
            (`problem.weights`); default "sites".
        l2: strength of l2/2 ‖weights‖²; default 0.
        data_range: public (low, high) of the features, each a number or one for each feature: features are clipped to
            it and scaled to [−1, 1]. Default (−1, 1).
        budget: `decentral_dp.Budget` to which every `fit` is charged, including the fits of a search or a
            cross-validation; default None. Folds are different data sets, so set its `dataset`.
        classes: allowed labels; None infers them from y, with a `PrivacyWarning`.
        class_weight: public weights as {label: number}, by default 1. Predicted probabilities are multiplied by them
            after training, at no privacy cost (Elkan, "The Foundations of Cost-Sensitive Learning", IJCAI 2001).
        random_state: None for secret noise. An integer seeds noise and partition; the result is then a simulation.

    Attributes:
        classes_, n_features_in_: see scikit-learn.
        coef_, intercept_: weights of a linear model, for unscaled features inside data_range. A score above 0 predicts
            the second of two classes (`decision_function` returns log-odds). With more than two classes, there is one
            row per class.
        class_weight_: weight of each class, (c,), which coef_, intercept_ and model_ do not include.
        model_: `TrainedModel`, the mean of the agents' published models; `model_.of_agent(k)` is one of them.
        ledger_: ledger of all releases.
        epsilon_, delta_: privacy cost of all releases, at most the targets.
        statement_: guarantee in words.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.estimators import DecentralisedClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 100, size=(3000, 4))
        >>> y = np.where(X @ [1, 1, -1, 0] > 50, "yes", "no")
        >>> model = DecentralisedClassifier(
        ...     agents=5, epsilon=8.0, data_range=(0, 100), classes=("no", "yes"), rounds=200, random_state=1
        ... ).fit(X, y)
        >>> bool(model.score(X, y) > 0.9), bool(model.epsilon_ <= 8.0)
        (True, True)
    """

    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike, agents: ArrayLike | None = None) -> Self:
        """Train the classifier privately.

        Args:
            X: features, (n, d), a row for each record.
            y: labels, (n,).
            agents: owner of each record, (n,), numbers or names, public; None partitions the rows.

        Returns:
            The estimator, with the privacy cost in ledger_, epsilon_, delta_ and statement_.

        Raises:
            InputError: a parameter is invalid, or labels are not classes.

        Warns:
            PrivacyWarning: classes were inferred from y, or some of these records were fitted before in this process
                without a budget.
            ScaleWarning: most values of a column lie outside their range.
        """
        features, labels = validate_records(self, X, y)
        check_classification_targets(labels)
        self.classes_, codes = encode_classes(self.classes, labels)
        self.class_weight_ = _check_class_weight(self.class_weight, self.classes_)
        problem = {"kind": "classification", "classes": list(range(len(self.classes_)))}
        model = self._train(problem, features, codes, agents, "" if self.classes is not None else NAMES)
        self.model_ = replace(model, classes=tuple(self.classes_.tolist()))
        if self.model == "linear":
            self.coef_, self.intercept_ = self._linear(model)
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return class probabilities, (n, c), in the order of classes_."""
        check_is_fitted(self)
        model: TrainedModel = self.model_
        shares = model.predict_proba(validate_features(self, X)) * self.class_weight_
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the log-odds of the second of two classes, (n,), or the log-probabilities of more than two, (n, c)."""
        # Small probabilities round to 0.
        logarithms = np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))
        return logarithms[:, 1] - logarithms[:, 0] if logarithms.shape[1] == 2 else logarithms

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class of each record, (n,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralisedRegressor(_Decentralised, RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Regressor trained by agents on a graph, without a trusted party.

    It is trained like `DecentralisedClassifier`, with `problem.kind = "regression"`.

    Args:
        label_range: public (low, high) of the label, which is clipped to it; None infers it from y, with a
            `PrivacyWarning`.
        loss: "squared", "huber" or "poisson". The Huber loss is linear beyond a tenth of half the label range. The
            Poisson loss is for counts in a label range that starts at 0, and predicts exp(x·coef_ + intercept_).
        agents, topology, epsilon, delta, model, algorithm, rounds, clip: see `DecentralisedClassifier`.
        colluders, weights, l2, data_range, budget, random_state: see `DecentralisedClassifier`.

    Attributes:
        coef_, intercept_: weights of a linear model, (d,) and a number, for unscaled features and labels inside
            data_range.
        n_features_in_, model_, ledger_, epsilon_, delta_, statement_: see `DecentralisedClassifier`.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.estimators import DecentralisedRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 100, size=(3000, 3))
        >>> y = X @ [1.0, 0.5, 0.0] + rng.normal(size=3000)
        >>> model = DecentralisedRegressor(
        ...     epsilon=8.0, data_range=(0, 100), label_range=(0, 150), rounds=200, random_state=1
        ... ).fit(X, y)
        >>> bool(model.score(X, y) > 0.9), bool(model.epsilon_ <= 8.0)
        (True, True)
    """

    label_range: tuple[float, float] | None = None
    loss: Literal["squared", "huber", "poisson"] = "squared"

    def fit(self, X: ArrayLike, y: ArrayLike, agents: ArrayLike | None = None) -> Self:
        """Train the regressor privately.

        Args:
            X: features, (n, d), a row for each record.
            y: numeric labels, (n,).
            agents: owner of each record, (n,), numbers or names, public; None partitions the rows.

        Returns:
            The estimator, with the privacy cost in ledger_, epsilon_, delta_ and statement_.

        Raises:
            InputError: a parameter is invalid.

        Warns:
            PrivacyWarning: the range of the labels was inferred from y, or some of these records were fitted before in
                this process without a budget.
            ScaleWarning: most values of a column lie outside their range.
        """
        features, labels = validate_records(self, X, y, numbers=True)
        labels = np.asarray(labels, dtype=np.float64)
        limits, read_off = self.label_range, ""
        if limits is None:
            limits, read_off = infer_label_range(labels), "the range of the labels, which was"
        low, high = check_label_range(limits)
        table = {"kind": "regression", "classes": [], "label_range": [low, high], "loss": self.loss}
        model = self._train(table, features, labels, agents, read_off)
        if self.model == "linear":
            unit, middle = 0.5 * (high - low), 0.5 * (high + low)
            coef, intercept = self._linear(model)
            is_log = self.loss == "poisson"
            self.coef_ = coef[0] if is_log else unit * coef[0]
            self.intercept_ = float(intercept[0] + math.log(unit) if is_log else unit * intercept[0] + middle)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Predict the label of each record, (n,)."""
        check_is_fitted(self)
        model: TrainedModel = self.model_
        return np.asarray(model.predict(validate_features(self, X)))


def _graph(topology: Any, agents: int | None) -> tuple[dict[str, Any] | None, Any]:
    """Return the table [topology] and None, or None and the graph object."""
    if not isinstance(topology, str | Mapping):
        return None, topology
    table: dict[str, Any] = {"kind": topology} if isinstance(topology, str) else dict(topology)
    if agents is not None or not {"agents", "file"} & table.keys():
        table["agents"] = _AGENTS if agents is None else agents
    if table.get("kind") == "ring" and isinstance(table.get("agents"), int | np.integer) and table["agents"] < _RING:
        table["kind"] = "complete"
    return table, None


def _check_class_weight(class_weight: Any, classes: NDArray[Any]) -> Array:
    """Return the weight of each class, (c,). Raises InputError."""
    if isinstance(class_weight, str):
        raise InputError(
            f"class_weight: {class_weight!r} reads the class counts, which are private. Fix: pass public weights, as "
            "{label: number}."
        )
    problem, labels = "class_weight: expected {label: number}, finite numbers above 0.", classes.tolist()
    with converting((TypeError, ValueError), lambda _: problem):
        table = {} if class_weight is None else dict(class_weight)
        weights = np.array([float(table.get(label, 1.0)) for label in labels])
    if not ((weights > 0.0) & (weights < np.inf)).all():
        raise InputError(problem)
    if unknown := table.keys() - set(labels):
        raise InputError(f"class_weight: unknown labels (got {sorted(map(str, unknown))}, expected some of {labels}).")
    return weights


# Keyed digests of the records, ε and δ of each fit in this process with secret noise and without a budget.
_FITS: list[tuple[NDArray[np.uint64], float, float]] = []
_FITS_KEY = new_salt()


def warn_of_refits(features: Array, epsilon: float, delta: float, fix: str) -> None:
    """Warn about the composed ε of the record with the largest privacy cost, if it was used in earlier fits.

    Args:
        features: features of the records, (n, d).
        epsilon, delta: privacy cost of this fit.
        fix: advice, without a full stop.
    """
    # Adding 0 turns −0 into 0.
    rows = b"".join(blake2b((row + 0.0).tobytes(), digest_size=8, key=_FITS_KEY).digest() for row in features)
    records = np.unique(np.frombuffer(rows, dtype=np.uint64))
    _FITS.append((records, epsilon, delta))
    total = np.zeros((3, len(records)))
    for others, *cost in _FITS:
        total += np.array([[1.0], *([number] for number in cost)]) * np.isin(records, others, assume_unique=True)
    fits, epsilon, delta = total[:, total[1].argmax()].tolist()
    if fits > 1:
        warn_caller(
            f"{fits:.0f} fits on these records, or on some of them, cost epsilon = {epsilon_text(epsilon)}, delta = "
            f"{delta:g} together (basic composition). Fix: {fix}.",
            PrivacyWarning,
        )
