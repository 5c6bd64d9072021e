"""Estimators in scikit-learn's form: a classifier and a regressor that agents train together, privately.

Parameters are given at construction, `fit` trains, and results have names that end in _.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from decentral_dp.bounded import Array
from decentral_dp.config.components import load_components
from decentral_dp.data.dataset import missing_cells, refuse_masked
from decentral_dp.errors import InputError
from decentral_dp.formatting import capitalise, epsilon_text
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.settings import TAIL_OF_LINEAR, TAIL_OF_NETWORK, stable_momentum
from decentral_dp.simulation.model import TrainedModel
from decentral_dp.simulation.run import run_job

# Seeds that a generator of scikit-learn is asked for.
_SEEDS = 2**31 - 1

# scikit-learn's contract wants values that are not finite refused, so that no such record can be replaced instead.
NOT_COVERED = (
    "Not covered is what fit says by refusing a value that is not finite or a label that is not one of the classes, "
    "and by warning of columns that are not scaled: it reads the records."
)


class PrivacyWarning(UserWarning):
    """Something was read off the records that no ε covers."""


class ScaleWarning(UserWarning):
    """Columns of features that are not of comparable sizes, so that few of them decide."""


class FitCost(NamedTuple):
    """What everything that was published cost.

    Args:
        ledger: the releases that were made.
        epsilon, delta: their price, of the agent that spent most.
        statement: that in words.
    """

    ledger: Ledger
    epsilon: float
    delta: float
    statement: str


# What a statement says where there is a seed.
SIMULATED = " The seed makes the noise reproducible, so this is a simulation."
# What the labels told where nobody declared it, as a statement of privacy says it.
NAMES = "the names of the classes, which were"


class Private:
    """What all estimators here do beside scikit-learn's own."""

    random_state: Any

    def _store_cost(self, cost: FitCost, read_off: str) -> None:
        """Keep what the model cost. read_off: what the labels told, which no ε covers; "" where nothing."""
        self.ledger_, self.epsilon_, self.delta_, statement = cost
        self.statement_ = f"{f'Apart from {read_off} read off y: ' if read_off else ''}{statement} {NOT_COVERED}"

    def _column(self, k: int) -> str:
        """What a warning calls a column of X."""
        names = getattr(self, "feature_names_in_", None)
        return f"column {k}" if names is None else repr(str(names[k]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc] # the class after this one is scikit-learn's
        # Of few records noise leaves little.
        (tags.classifier_tags or tags.regressor_tags).poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags


def validate_records(estimator: Any, X: ArrayLike, y: ArrayLike, numbers: bool = False) -> tuple[Array, NDArray[Any]]:
    """Return features (n, d) and labels (n,) as scikit-learn checks them, with refusals that quote no record.

    Args:
        estimator: that is fitted.
        X: (n, d) numbers.
        y: (n,) labels.
        numbers: whether labels have to be numbers; default no.

    Raises:
        InputError: a column is not numeric, a value is missing, or an array is masked.
        TypeError, ValueError: as of scikit-learn, for other shapes and types.
    """
    refuse_masked(X, "X")
    _refuse_labels(y, numbers)
    with _quoting_no_record():
        features, labels = validate_data(estimator, X, y, dtype=np.float64, order="C", y_numeric=numbers)
    return features, labels


def validate_features(estimator: Any, X: ArrayLike) -> Array:
    """Return the features (n, d) to predict, as `validate_records` does."""
    refuse_masked(X, "X")
    with _quoting_no_record():
        features: Array = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
    return features


@contextmanager
def _quoting_no_record() -> Iterator[None]:
    """Keep the first line of an error of scikit-learn. The others may print rows of X."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind, text = TypeError if isinstance(error, TypeError) else ValueError, str(error)
    else:
        return
    if text.startswith("The feature names"):
        raise kind(text) from None
    line = text.partition("\n")[0]
    if "could not convert" in line or "literal" in line:
        fix = "OneHotEncoder(categories=[[…]], sparse_output=False) with public categories"
        raise InputError(f"X holds text, expected numbers. Fix: encode words, for example by {fix}.") from None
    advice = ". Reshape your data to (records, features)" if "Reshape your data" in text else ""
    raise kind(f"{line.rstrip(':')}{advice}") from None


def _refuse_labels(y: Any, numbers: bool) -> None:
    """Refuse masked labels, gaps, and a mix of text and numbers. Raises InputError."""
    refuse_masked(y, "y")
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and labels.ndim == 1 and len(labels):
        missing = missing_cells(labels)
        if missing.any():
            raise InputError(f"y: row {int(np.argmax(missing)) + 1} holds no label (NaN). Fix: remove the record.")
        if len({isinstance(label, str) for label in labels.tolist()}) > 1:
            raise InputError("y mixes text and numbers, expected labels of one type. Fix: y.astype(str).")
    if numbers and labels.dtype.kind in "USO":
        try:
            labels.astype(np.float64)
        except (TypeError, ValueError):
            # numpy would quote the label.
            raise InputError("y holds text, expected numbers. Fix: use a classifier, or numbers.") from None


def encode_classes(
    declared: Sequence[Any] | None, labels: NDArray[Any], binary: bool = False
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Give the classes, and the place of every label among them.

    Args:
        declared: the labels that there may be; None reads them off the labels, with a `PrivacyWarning` at the call of
            `fit`.
        labels: (n,).
        binary: whether two classes are wanted, and no more; default no.

    Returns:
        (c,) classes, those that were read off sorted, and (n,) codes.

    Raises:
        InputError: too few different classes, or too many; or a label that is none of them.
    """
    classes = np.unique(labels) if declared is None else np.asarray(declared)
    if declared is None and len(classes) < 2:
        raise InputError("y has one class, expected two. Fix: declare them, as classes=(0, 1).")
    many = len(np.unique(classes)) if classes.ndim == 1 else 0
    if many < max(2, classes.size) or (binary and many > 2):
        wanted = "two" if binary else "two or more"
        raise InputError(f"classes: got {declared!r}, but {wanted} different labels are wanted.")
    match = labels[:, None] == classes[None]
    if not match.any(axis=1).all():
        raise InputError("y has a label that is not one of `classes`. Declare all of them, or mend the record.")
    if declared is None:
        warnings.warn(
            "The names of the classes were read off y, and no ε covers that. Declare them, as classes=(0, 1).",
            PrivacyWarning,
            stacklevel=3,
        )
    return classes, np.asarray(match.argmax(axis=1))


def seed_of(random_state: Any) -> int | None:
    """Return the seed of the noise: None for a secret one.

    Example:
        >>> seed_of(None), seed_of(7), seed_of(np.random.default_rng(0)) >= 0
        (None, 7, True)
    """
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(_SEEDS))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(_SEEDS))
    return int(random_state)


# Agents where nothing says how many, and the least that a ring has.
_AGENTS, _RING = 5, 3
# The share of a column's values outside data_range from which on it is said.
_MOST_CLIPPED = 0.5
Number = float | Sequence[float] | NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)
class _Decentralised(Private):
    """The parameters that both estimators have, and how agents are run with them. As `DecentralisedClassifier`."""

    agents: int | None = None
    topology: Any = "ring"
    epsilon: float = 1.0
    delta: float = 1e-6
    model: str | Mapping[str, Any] = "linear"
    algorithm: str | Mapping[str, Any] = "dp_dsgd"
    rounds: int | Literal["auto"] = "auto"
    clip: float | Literal["auto"] = "auto"
    l2: float = 0.0
    data_range: tuple[Number, Number] = (-1.0, 1.0)
    random_state: Any = None

    def _train(
        self, problem: Mapping[str, Any], features: Array, labels: NDArray[Any], owners: ArrayLike | None, read_off: str
    ) -> TrainedModel:
        """Run the agents, and keep what it cost. read_off: what the labels told besides. Raises InputError."""
        n, d = features.shape
        owner, owned = _owners(owners, n, self.agents)
        agents = self.agents if owner is None else len(owned)
        names = [str(name) for name in getattr(self, "feature_names_in_", [f"x{k}" for k in range(d)])]
        low, high = _range(self.data_range, d)
        _warn_of_cuts(self, features, low, high)
        seed = seed_of(self.random_state)
        graph, drawn = _graph(self.topology, agents)
        stated = (graph or {}).get("agents")
        if isinstance(stated, int | np.integer) and n < stated:
            raise InputError(
                f"X has n_samples = {n}, and {stated} agents want at least one record each. Take fewer agents."
            )
        algorithm: dict[str, Any] = (
            dict(self.algorithm) if isinstance(self.algorithm, Mapping) else {"kind": self.algorithm}
        )
        if self.rounds != "auto":
            algorithm["rounds"] = self.rounds
        scenario: dict[str, Any] = {
            "title": type(self).__name__,
            **({} if seed is None else {"seed": seed}),
            "problem": {
                **problem,
                "data": "X and y",
                "test": 0.0,
                "l2": self.l2,
                "scale": {name: [float(a), float(b)] for name, a, b in zip(names, low, high, strict=True)},
                **({} if self.model == "linear" else {"model": self.model}),
                **({"partition": "iid"} if owner is None else {}),
            },
            **({} if graph is None else {"topology": graph}),
            "algorithm": algorithm,
            "privacy": {
                "mechanism": "gaussian",
                "epsilon": self.epsilon,
                "delta": self.delta,
                **({} if self.clip == "auto" else {"clip": {"y": self.clip}}),
            },
            # Scores read the records, and nobody asks for them here: there are no held-out ones.
            "run": {"evaluate_every": 1_000_000, "measures": ["test_loss"]},
        }
        data = {"features": features, "labels": labels, "feature_names": names}
        data |= {} if owner is None else {"agent": owner}
        scenario = self._with_default_parts(scenario, data, drawn)
        planned = build_job(scenario, data=data, topology=drawn)
        if planned.n_agents > 1 and not len(planned.topology.edges):
            raise InputError(
                f"topology: {planned.n_agents} agents without links have no model in common. Link them, or fit "
                "an estimator with agents=1 on the records of each."
            )
        done = run_job(planned)
        budget, m = planned.budget, planned.n_agents
        model = done.model if done.model.agents else replace(done.model, agents=owned)
        epsilon = float(budget.epsilon.max())
        statement = (
            f"All that each of {m} agents sends is (epsilon = {epsilon_text(epsilon)}, delta = {budget.delta:g})-"
            f"differentially private for replacing one of its records; how many of the {n} records an agent has is "
            f"public.{'' if seed is None else SIMULATED}"
        )
        self._store_cost(FitCost(done.records, epsilon, budget.delta, statement), read_off)
        self.model_ = model
        return model

    def _with_default_parts(self, scenario: dict[str, Any], data: Any, drawn: Any) -> dict[str, Any]:
        """Ask for those parts of the default hyper-parameters that `algorithm` has and does not give."""
        table, linear = scenario["algorithm"], self.model == "linear"
        run = {"average": TAIL_OF_LINEAR if linear else TAIL_OF_NETWORK, **scenario["run"]}
        if table["kind"] in _WITH_PARTS:
            try:
                topology = load_components(scenario, data=data, topology=drawn).topology.make()
                momentum = stable_momentum(topology, table["kind"])
            except InputError:
                # Refused once more by the build, in the words of parameters.
                momentum = 0.0
            whole = scenario.get("topology", {}).get("compression") is None
            table = {"heavy_ball": momentum if whole else 0.0, "centring": linear} | table
        return {**scenario, "algorithm": table, "run": run}

    def _linear(self, model: TrainedModel) -> tuple[Array, Array]:
        """Weights (e, d) and intercepts (e,) of features as they are given."""
        weights = model.weights
        low, high = _range(self.data_range, weights["weight"].shape[1])
        coef = weights["weight"] * 2.0 / (high - low)
        return coef, weights["bias"] - coef @ (0.5 * (low + high))


# Algorithms that have momentum and centring.
_WITH_PARTS = ("dp_dsgd", "alone", "federated", "central")


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralisedClassifier(_Decentralised, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A classifier that agents train together on a graph, none of whom trusts another.

    Every agent takes clipped steps on its own records, noises each before it is sent, and averages with its neighbours:
    decentralised DP-SGD, `problem.kind = "classification"`. What an agent sends in all is (ε, δ)-differentially private
    for replacing one of its records. Rounds, step and clip follow from public numbers. Momentum 0.9 where the graph
    bears it, centred features of a linear model and a tail average are on, unless `algorithm` says otherwise.

    Args:
        agents: among how many the rows are dealt, evenly and at random from a public seed; 5 where neither this nor the
            graph says. Owners of one's own are given to `fit`.
        topology: the kind of graph, as in a scenario ("ring", "torus", "complete", …), its table as a dict, or a
            `networkx.Graph`. A ring of fewer than 3 agents is a complete graph. Default "ring".
        epsilon, delta: of every agent, for all that it sends; default (1, 1e-6), as of all estimators here.
        model: "linear", or a table such as {"kind": "mlp", "hidden": [32]}.
        algorithm: its kind, or its table with options, such as {"kind": "dp_dsgd", "y": {"scale": 0.5}}.
        rounds: "auto", or a number.
        clip: "auto", or the bound on the norm of a record's gradient.
        l2: strength of l2/2 ‖weights‖²; default 0.
        data_range: public (low, high) of the features, each a number or one for each feature: they are scaled to
            [−1, 1], and cut outside. Default (−1, 1).
        classes: the labels that there may be; None reads them off y, with a `PrivacyWarning`.
        random_state: None for secret noise; a whole number is the seed of noise and deal, and makes the result a
            simulation.

    Attributes:
        classes_, n_features_in_: as of scikit-learn.
        coef_, intercept_: of a linear model, for features as they are given: a score above 0 for the second of two
            classes, whose log-odds `decision_function` has, or one row for each of more, inside data_range.
        model_: the `TrainedModel`, the mean over agents of what each published; `model_.of_agent(k)` that of one.
        ledger_: the releases that were made.
        epsilon_, delta_: what they cost, at most the targets.
        statement_: the guarantee in words.

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

    def fit(self, X: ArrayLike, y: ArrayLike, agents: ArrayLike | None = None) -> Self:
        """Train the classifier, privately.

        Args:
            X: (n, d) features, a row for each record.
            y: (n,) labels.
            agents: (n,) who owns each record, numbers or names; None to deal them. Who owns what is taken as public.

        Returns:
            Itself. ledger_, epsilon_, delta_ and statement_ say what it cost.

        Raises:
            InputError: parameters that cannot be used, or labels that are no classes.

        Warns:
            PrivacyWarning: classes were read off y.
            ScaleWarning: a column lies outside data_range for the most part.
        """
        features, labels = validate_records(self, X, y)
        check_classification_targets(labels)
        self.classes_, codes = encode_classes(self.classes, labels)
        problem = {"kind": "classification", "classes": list(range(len(self.classes_)))}
        model = self._train(problem, features, codes, agents, "" if self.classes is not None else NAMES)
        self.model_ = replace(model, classes=tuple(self.classes_.tolist()))
        if self.model == "linear":
            self.coef_, self.intercept_ = self._linear(model)
        return self

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of the classes, (n, c), in the order of classes_."""
        check_is_fitted(self)
        model: TrainedModel = self.model_
        return model.predict_proba(validate_features(self, X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-odds of the second of two classes, (n,); of more the log-probability of each, (n, c)."""
        # Of a confident model an odd rounds to 0.
        logarithms = np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))
        return logarithms[:, 1] - logarithms[:, 0] if logarithms.shape[1] == 2 else logarithms

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The likeliest class of every record, (n,)."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


@dataclass(kw_only=True, eq=False, repr=False)
class DecentralisedRegressor(_Decentralised, RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A regression that agents train together on a graph, none of whom trusts another.

    As `DecentralisedClassifier`, with `problem.kind = "regression"`.

    Args:
        label_range: public (low, high) of the label, which is cut outside; None reads them off y, with a
            `PrivacyWarning`.
        loss: "squared", or "huber", which is linear beyond a tenth of half the label range.
        agents, topology, epsilon, delta, model, algorithm, rounds, clip, l2, data_range, random_state: as of
            `DecentralisedClassifier`.

    Attributes:
        coef_, intercept_: of a linear model, (d,) and a number, for features and labels as they are given, inside
            data_range.
        n_features_in_, model_, ledger_, epsilon_, delta_, statement_: as of `DecentralisedClassifier`.

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
    loss: Literal["squared", "huber"] = "squared"

    def fit(self, X: ArrayLike, y: ArrayLike, agents: ArrayLike | None = None) -> Self:
        """Train the regression, privately.

        Args:
            X: (n, d) features, a row for each record.
            y: (n,) numbers.
            agents: (n,) who owns each record, numbers or names; None to deal them. Who owns what is taken as public.

        Returns:
            Itself. ledger_, epsilon_, delta_ and statement_ say what it cost.

        Raises:
            InputError: parameters that cannot be used.

        Warns:
            PrivacyWarning: the range of the labels was read off y.
            ScaleWarning: a column lies outside data_range for the most part.
        """
        features, labels = validate_records(self, X, y, numbers=True)
        labels = np.asarray(labels, dtype=np.float64)
        limits, read_off = self.label_range, ""
        if limits is None:
            low, high = float(labels.min()), float(labels.max())
            limits = (low, high) if high > low else (low - 1.0, low + 1.0)
            read_off = "the range of the labels, which was"
            warnings.warn(
                "The range of the labels was read off y, and no ε covers that. Declare it, as label_range=(0, 350).",
                PrivacyWarning,
                stacklevel=2,
            )
        try:
            low, high = (float(end) for end in limits)
        except (TypeError, ValueError):
            raise InputError(f"label_range: got {limits!r}; wanted public (low, high).") from None
        problem = {"kind": "regression", "classes": [], "label_range": [low, high], "loss": self.loss}
        model = self._train(problem, features, labels, agents, read_off)
        if ((labels < low) | (labels > high)).mean() > _MOST_CLIPPED:
            warnings.warn(
                "y lies outside label_range for the most part, and is cut there. Give label_range=(low, high) from the "
                "meaning of the labels.",
                ScaleWarning,
                stacklevel=2,
            )
        if self.model == "linear":
            unit, middle = 0.5 * (high - low), 0.5 * (high + low)
            coef, intercept = self._linear(model)
            self.coef_, self.intercept_ = unit * coef[0], float(unit * intercept[0] + middle)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The number of every record, (n,), in the unit of the labels."""
        check_is_fitted(self)
        model: TrainedModel = self.model_
        return np.asarray(model.predict(validate_features(self, X)))


def _owners(owners: ArrayLike | None, n: int, agents: int | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """(n,) numbers of the owners, and their names; None and nobody where nothing says. Raises InputError."""
    if owners is None:
        return None, ()
    refuse_masked(owners, "fit: owners")
    column = np.asarray(owners)
    if column.shape != (n,):
        raise InputError(f"fit: agents has the shape {column.shape}; wanted ({n},), the owner of each record.")
    try:
        known, numbers = np.unique(column, return_inverse=True)
        gaps = bool((known != known).any())
    except TypeError:
        gaps = True
    if gaps:
        raise InputError("fit: agents has gaps, or mixes names and numbers; say of every record who owns it.")
    if agents is not None and agents != len(known):
        raise InputError(f"agents: got {agents}, and the column of owners names {len(known)}. Leave the parameter out.")
    return numbers.astype(np.int64), tuple(map(str, known))


def _graph(topology: Any, agents: int | None) -> tuple[dict[str, Any] | None, Any]:
    """The table [topology] and None, or None and the graph that was handed over."""
    if not isinstance(topology, str | Mapping):
        return None, topology
    table: dict[str, Any] = {"kind": topology} if isinstance(topology, str) else dict(topology)
    if agents is not None or not {"agents", "file"} & table.keys():
        table["agents"] = _AGENTS if agents is None else agents
    if table.get("kind") == "ring" and isinstance(table.get("agents"), int | np.integer) and table["agents"] < _RING:
        table["kind"] = "complete"
    return table, None


def _range(data_range: Any, d: int) -> tuple[Array, Array]:
    """(d,) the low and the high end of every feature. Raises InputError."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in data_range)
    except (TypeError, ValueError):
        low = high = np.zeros(d)
    if not (np.isfinite(high - low) & (high > low)).all():
        raise InputError(
            f"data_range: wanted public (low, high), each a number or one for each of {d} features, and low < high."
        )
    return low, high


def _warn_of_cuts(self: _Decentralised, features: Array, low: Array, high: Array) -> None:
    """Which share is cut is not printed: it tells of the records."""
    cut = ((features < low) | (features > high)).mean(axis=0)
    worst = int(np.argmax(cut))
    if cut[worst] <= _MOST_CLIPPED:
        return
    warnings.warn(
        f"{capitalise(self._column(worst))} of X lies outside data_range for the most part, and is cut there. Give "
        "data_range=(low, high) from the meaning of the columns, each a number or one for each column.",
        ScaleWarning,
        stacklevel=4,
    )
