"""A logistic regression whose regularisation is chosen on validation records, privately: `decentral_dp.tune`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import public_generator
from decentral_dp.errors import InputError
from decentral_dp.estimators.two_classes import Cost, Fitted, TwoClasses
from decentral_dp.tuner import Method, project, tune


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateLogisticRegressionCV(TwoClasses):
    """A logistic regression of two classes that tunes its own regularisation, all within one ε.

    Every record is shortened to ‖a‖₂ ≤ radius by itself; bring features to comparable sizes by public ranges
    beforehand, not by a scaler that is fitted on the records.

    Args:
        epsilon, delta: of everything that is published, for replacing one record; default (1, 1e-6), as of all
            estimators here.
        weight_range: (smallest, largest) weight of the regulariser; default (0.01, 1).
        validation: share of the records that choose the weight, above 0 and below 1; default 0.5. Which ones is a
            public draw that reads no record.
        radius: features are shortened to it; default 1.
        fit_intercept: whether a constant feature 1 is appended, regularised like the others; default yes.
        method: of `decentral_dp.tune`, as are steps and lam.
        classes: the two labels that there may be, the negative one first; None reads them off y, with a
            `PrivacyWarning`.
        random_state: None for secret noise; a whole number makes the result a simulation.

    Attributes:
        coef_, intercept_, classes_, n_features_in_: as of scikit-learn.
        weight_: of the regulariser.
        path_: the weights that were tried.
        ledger_: the releases that were made.
        epsilon_, delta_: what they cost, at most the targets.
        statement_: the guarantee in words.

    Example:
        >>> import numpy as np
        >>> from decentral_dp.estimators import PrivateLogisticRegressionCV
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(4000, 5)) / 5
        >>> y = (X @ np.ones(5) > 0).astype(int)
        >>> model = PrivateLogisticRegressionCV(epsilon=2.0, classes=(0, 1), random_state=1).fit(X, y)
        >>> bool(model.score(X, y) > 0.8), bool(model.epsilon_ <= 2.0)
        (True, True)
    """

    epsilon: float = 1.0
    delta: float = 1e-6
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

    def _fitted(self, features: Array, positive: NDArray[np.bool_], seed: int | None) -> Fitted:
        if not 0.0 < self.validation < 1.0:
            raise InputError(f"validation: got {self.validation!r}, but a share above 0 and below 1 is wanted.")
        if not 0.0 < self.radius < math.inf:
            raise InputError(f"radius: got {self.radius!r}, but a finite number above 0 is wanted.")
        n = len(features)
        if n < 2:
            raise InputError(f"X has n_samples = {n}, but at least 2 are wanted: one trains, one validates.")
        rows, radius = self._score_rows(features), float(self.radius)
        if self.fit_intercept:
            rows, radius = np.column_stack([rows, np.ones(n)]), math.hypot(radius, 1.0)
        aside = min(n - 1, max(1, round(n * self.validation)))
        order = public_generator(0 if seed is None else seed, "validation").permutation(n)
        labels = np.where(positive, 1.0, -1.0)
        train, validation = order[aside:], order[:aside]
        found = tune(
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
        self.weight_, self.path_ = found.weight, found.path
        d = features.shape[1]
        intercept = float(found.model[d]) if self.fit_intercept else 0.0
        cost = Cost(found.ledger, float(found.budget.epsilon[0]), found.budget.delta, found.statement)
        return Fitted(found.model[:d], intercept, cost)
