"""Private linear classifiers of two classes: a self-tuning logistic regression, and a classifier trained by its AUC."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from decentral_dp.bounded import DEFAULT_DELTA, Array
from decentral_dp.central.tuner import Method, project, tune
from decentral_dp.config.arrays import ScaleWarning, encode_classes
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError, warn_caller
from decentral_dp.estimators import (
    NAMES,
    SIMULATED,
    FitCost,
    Private,
    naming_parameters,
    seed_of,
    validate_features,
    validate_records,
    warn_of_refits,
)
from decentral_dp.formatting import epsilon_text
from decentral_dp.reporting.report import reason_text
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.run import run_job

# Largest root mean square of a column of scaled data, and its largest ratio to the median.
_LARGEST, _SPREAD = 5.0, 20.0


class TwoClasses(Private, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Private linear classifier for two classes. Subclasses have parameters with these names.

    Subclasses define `_fit_model`, which maps features, a mask of positive labels and a seed to the weights (d,), the
    intercept and a `FitCost`.

    Args:
        classes: two labels, the negative label first. None infers them from the labels, which ε does not cover.
        random_state: seed that makes the result a simulation, or None for secret noise.
    """

    classes: Sequence[Any] | None

    def _score_rows(self, features: Array) -> Array:
        """Return the rows in the form of the model."""
        return features

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the model privately.

        Args:
            X: features, (n, d).
            y: labels, (n,).

        Returns:
            The fitted estimator, with ledger_, epsilon_, delta_ and statement_.

        Raises:
            InputError: a parameter is invalid, or the labels do not have two classes.
            TypeError: an argument is not supported, such as sample_weight.

        Warns:
            PrivacyWarning: classes were inferred from y, or some of these records were fitted before in this process.
            ScaleWarning: columns have very different scales.
        """
        features, labels = validate_records(self, X, y)
        check_classification_targets(labels)
        if self.classes is None and (kind := type_of_target(labels, input_name="y")) != "binary":
            raise InputError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = encode_classes(self.classes, labels, binary=True)
        self._warn_of_sizes(features)
        coef, intercept, cost = self._fit_model(features, codes == 1, seed_of(self.random_state))
        self.coef_, self.intercept_ = coef[None, :], np.array([intercept])
        if self.random_state is None:
            warn_of_refits(features, cost.epsilon, cost.delta, "choose parameters without these records, and fit once")
        self._store_cost(cost, "" if self.classes is not None else NAMES)
        return self

    def _warn_of_sizes(self, features: Array) -> None:
        """Compare the root mean squares of columns, which are not printed because they depend on records."""
        with np.errstate(over="ignore"):
            sizes = np.sqrt(np.square(features).mean(axis=0))
        positive_sizes = sizes[sizes > 0.0]
        if not positive_sizes.size or (
            positive_sizes.max() <= _LARGEST and positive_sizes.max() <= _SPREAD * float(np.median(positive_sizes))
        ):
            return
        warn_caller(
            f"The columns of X are not scaled: {self._column(int(np.argmax(sizes)))} outweighs the others, and every "
            "record is cut to a bounded length. Map columns to [-1, 1] by public ranges, "
            "2*(X - low)/(high - low) - 1, for example with a FunctionTransformer. A StandardScaler is fitted on the "
            "records, which no ε covers.",
            ScaleWarning,
        )

    def decision_function(self, X: ArrayLike) -> Array:
        """Compute scores, (n,), which are above 0 if the second class is more likely."""
        check_is_fitted(self)
        features = validate_features(self, X)
        scores: Array = self._score_rows(features) @ self.coef_[0] + self.intercept_[0]
        return scores

    def predict_proba(self, X: ArrayLike) -> Array:
        """Compute the probabilities of both classes, (n, 2)."""
        positive = expit(self.decision_function(X))
        return np.column_stack([1.0 - positive, positive])

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the more likely class of every record, (n,)."""
        likelier = self.decision_function(X) > 0.0
        return np.asarray(self.classes_[likelier.astype(np.int64)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegressionCV(TwoClasses):
    """Logistic regression for two classes, with private tuning of the regularisation within one ε.

    Every record is scaled separately so that ‖a‖₂ ≤ radius. Scale features by public ranges first, not with a scaler
    that is fitted to the records.

    Args:
        epsilon, delta: privacy budget for replacing one record, default (1, 1e-5). Choose δ below 1/N.
        weight_range: smallest and largest weight of the regulariser, default (0.01, 1).
        validation: share of the records that are used to choose the weight, above 0 and below 1, default 0.5. The split
            is a public draw that reads no record.
        radius: bound on the norm of features, default 1.
        fit_intercept: whether to append a constant feature 1, regularised like the others, default True.
        method, steps, lam: arguments of `decentral_dp.tune`.
        classes: two labels, the negative label first. None infers them from y, with a `PrivacyWarning`.
        random_state: seed that makes the result a simulation, or None for secret noise.

    Attributes:
        coef_, intercept_, classes_, n_features_in_: attributes of scikit-learn's linear classifiers.
        weight_: weight of the regulariser.
        path_: weights of all steps.
        ledger_: ledger of the releases.
        epsilon_, delta_: privacy cost of the releases, at most the budget.
        statement_: guarantee in words.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.central.estimators import PrivateLogisticRegressionCV
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(4000, 5)) / 5
        >>> y = (X @ np.ones(5) > 0).astype(int)
        >>> model = PrivateLogisticRegressionCV(epsilon=2.0, delta=1e-6, classes=(0, 1), random_state=1).fit(X, y)
        >>> bool(model.score(X, y) > 0.8), bool(model.epsilon_ <= 2.0)
        (True, True)
    """

    epsilon: float = 1.0
    delta: float = DEFAULT_DELTA
    weight_range: tuple[float, float] = (0.01, 1.0)
    validation: float = 0.5
    radius: float = 1.0
    fit_intercept: bool = True
    method: Method = "ppift"
    steps: int = 15
    lam: float = 10.0
    classes: Sequence[Any] | None = None
    random_state: Any = None

    def _score_rows(self, features: Array) -> Array:
        return project(features, np.ones(len(features)), "logistic", float(self.radius), 1.0)[0]

    def _fit_model(
        self, features: Array, positive: NDArray[np.bool_], seed: int | None
    ) -> tuple[Array, float, FitCost]:
        for name, most in (("validation", 1.0), ("radius", math.inf)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0.0 < value < most):
                raise InputError(f"{name}: got {value!r}, expected a number above 0 and below {most:g}.")
        n = len(features)
        if n < 2:
            raise InputError(f"X: got n_samples = {n}, expected at least 2, one to train and one to validate.")
        rows, radius = self._score_rows(features), float(self.radius)
        if self.fit_intercept:
            rows, radius = np.column_stack([rows, np.ones(n)]), math.hypot(radius, 1.0)
        aside = min(n - 1, max(1, round(n * self.validation)))
        order = public_generator(0 if seed is None else seed, "validation").permutation(n)
        labels = np.where(positive, 1.0, -1.0)
        train, validation = order[aside:], order[:aside]
        result = tune(
            train=(rows[train], labels[train]),
            validation=(rows[validation], labels[validation]),
            epsilon=self.epsilon,
            delta=self.delta,
            weight_range=self.weight_range,
            radius=radius,
            method=self.method,
            steps=self.steps,
            lam=self.lam,
            seed=seed,
        )
        self.weight_, self.path_ = result.weight, result.path
        d = features.shape[1]
        intercept = float(result.model[d]) if self.fit_intercept else 0.0
        cost = FitCost(result.ledger, float(result.budget.epsilon[0]), result.budget.delta, result.statement)
        return result.model[:d], intercept, cost


# The threshold is at least this far from 0 and 1, so that it has a logit.
_LEAST = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAUCClassifier(TwoClasses):
    """Linear classifier for two classes that ranks records of the second class above records of the first.

    It minimises the least-squares surrogate of the AUC, π(1−π) E(1 − h₊ + h₋)² with h the sigmoid of the score, by
    noisy steps on all records. The decision threshold is the midpoint of the two classes' mean h, which is released
    with the weights. Probabilities are the sigmoid of the distance from the threshold and are not calibrated.

    Args:
        epsilon, delta: privacy budget for replacing one record, default (1, 1e-5). Choose δ below 1/N.
        rounds: number of steps, default 50.
        step: learning rate, default 0.5.
        clip: clipping norm of a record's gradient, default 1.
        positive_share: public share π of records of the second class, default 0.5. With "released", they are counted
            with noise, which uses a share of the budget.
        classes: two labels, the negative label first. None infers them from y, with a `PrivacyWarning`.
        random_state: seed that makes the result a simulation, or None for secret noise.

    Attributes:
        coef_, intercept_, classes_, n_features_in_: attributes of scikit-learn's linear classifiers.
        ledger_: ledger of the releases.
        epsilon_, delta_: privacy cost of the releases, at most the budget.
        statement_: guarantee in words.

    References:
        Ying, Wen and Lyu, NeurIPS 2016; Yuan, Yan, Sonka and Yang, ICCV 2021, Equation 3.

    Example:
        >>> import numpy as np
        >>> from sklearn.metrics import roc_auc_score
        >>> from decentral_dp.central.estimators import PrivateAUCClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 5))
        >>> y = (X @ np.ones(5) > 2.0).astype(int)
        >>> model = PrivateAUCClassifier(epsilon=2.0, classes=(0, 1), random_state=1).fit(X, y)
        >>> bool(roc_auc_score(y, model.decision_function(X)) > 0.9), bool(model.epsilon_ <= 2.0)
        (True, True)
    """

    epsilon: float = 1.0
    delta: float = DEFAULT_DELTA
    rounds: int = 50
    step: float = 0.5
    clip: float = 1.0
    positive_share: float | Literal["released"] = 0.5
    classes: Sequence[Any] | None = None
    random_state: Any = None

    def _fit_model(
        self, features: Array, positive: NDArray[np.bool_], seed: int | None
    ) -> tuple[Array, float, FitCost]:
        share, (n, d) = self.positive_share, features.shape
        scenario = {
            "title": "PrivateAUCClassifier",
            **({} if seed is None else {"seed": seed}),
            "problem": {"kind": "auc_maximisation", "data": "X and y", "positive_share": share, "test": 0.0},
            "topology": {"kind": "complete", "agents": 1},
            "algorithm": {"kind": "dp_sgda", "rounds": self.rounds, "solver": "closed_form", "x": {"scale": self.step}},
            "privacy": {"epsilon": self.epsilon, "delta": self.delta, "clip": {"x": self.clip}},
            "run": {"evaluate_every": self.rounds},
        }
        data = {"features": features, "labels": positive.astype(np.int64), "classes": [0, 1]}
        with naming_parameters(self):
            job = build_job(scenario, data=data)
        outcome = run_job(job)
        if not np.isfinite(outcome.published["x"]).all():
            raise InputError(f"fit: {reason_text(outcome.result)}")
        # Weights, bias, and the mean h of both classes.
        x, budget = outcome.published["x"][0], outcome.simulation().budget
        middle = float(np.clip(0.5 * (x[d + 1] + x[d + 2]), _LEAST, 1.0 - _LEAST))
        epsilon = float(budget.epsilon.max())
        statement = (
            f"The model is (epsilon = {epsilon_text(epsilon)}, delta = {budget.delta:g})-differentially private for "
            f"replacing one of {n} records; their number is public, and the share of the second class is "
            f"{'released with noise' if share == 'released' else f'declared as {share}'}."
            f"{'' if seed is None else SIMULATED}"
        )
        cost = FitCost(outcome.records, epsilon, budget.delta, statement)
        return x[:d].copy(), float(x[d] - logit(middle)), cost
