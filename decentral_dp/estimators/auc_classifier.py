"""A linear classifier that is trained by its AUC, privately: the algorithm `dp_sgda` on `auc_maximisation`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from decentral_dp.bounded import Array
from decentral_dp.config.loading import load_with_records
from decentral_dp.errors import InputError
from decentral_dp.estimators.two_classes import SIMULATED, Cost, Fitted, TwoClasses
from decentral_dp.formatting import epsilon_text
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.run import run_job

# Scores of the two classes on the scale of probabilities, so that their middle has a logit.
_LEAST = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateAUCClassifier(TwoClasses):
    """A linear classifier of two classes that ranks the records of the second above those of the first.

    It minimises the least-squares surrogate of the AUC, π(1−π) E(1 − h₊ + h₋)² with h the sigmoid of the score, by
    noised steps on all records. A class is predicted by the middle of the two classes' mean h, which is
    released with the weights; probabilities are the sigmoid of the distance from it, and not calibrated.

    Args:
        epsilon, delta: of everything that is published, for replacing one record; default (1, 1e-6), as of all
            estimators here.
        rounds: noised steps; default 50.
        step: size of each; default 0.5.
        clip: bound on the norm of a record's gradient; default 1.
        positive_share: public share π of records of the second class, or "released": counted with noise, at a share
            of the budget; default 0.5.
        classes: the two labels that there may be, the negative one first; None reads them off y, with a
            `PrivacyWarning`.
        random_state: None for secret noise; a whole number makes the result a simulation.

    Attributes:
        coef_, intercept_, classes_, n_features_in_: as of scikit-learn.
        ledger_: the releases that were made.
        epsilon_, delta_: what they cost, at most the targets.
        statement_: the guarantee in words.

    References:
        Ying, Wen and Lyu, NeurIPS 2016; Yuan, Yan, Sonka and Yang, ICCV 2021, Equation 3.

    Example:
        >>> import numpy as np
        >>> from sklearn.metrics import roc_auc_score
        >>> from decentral_dp.estimators import PrivateAUCClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(1000, 5))
        >>> y = (X @ np.ones(5) > 2.0).astype(int)
        >>> model = PrivateAUCClassifier(epsilon=2.0, classes=(0, 1), random_state=1).fit(X, y)
        >>> bool(roc_auc_score(y, model.decision_function(X)) > 0.9), bool(model.epsilon_ <= 2.0)
        (True, True)
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    rounds: int = 50
    step: float = 0.5
    clip: float = 1.0
    positive_share: float | Literal["released"] = 0.5
    classes: Sequence[Any] | None = None
    random_state: Any = None

    def _fitted(self, features: Array, positive: NDArray[np.bool_], seed: int | None) -> Fitted:
        share: Any = self.positive_share
        if share == "empirical":
            raise InputError(
                'positive_share: "empirical" is counted without noise. Give a public share, or "released".'
            )
        n, d = features.shape
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
        done = run_job(build(load_with_records(scenario, (), data, None), data=data))
        if done.result.has_diverged:
            raise InputError(f"fit: {done.result.reason}")
        # Weights, bias, and the mean h of both classes.
        x, budget = done.published["x"][0], done.simulation().budget
        middle = float(np.clip(0.5 * (x[d + 1] + x[d + 2]), _LEAST, 1.0 - _LEAST))
        epsilon = float(budget.epsilon.max())
        statement = (
            f"The model is (epsilon = {epsilon_text(epsilon)}, delta = {budget.delta:g})-differentially private for "
            f"replacing one of {n} records; their number is public, and the share of the second class is "
            f"{'released with noise' if share == 'released' else f'declared as {share}'}."
            f"{'' if seed is None else SIMULATED}"
        )
        cost = Cost(done.records, epsilon, budget.delta, statement)
        return Fitted(x[:d].copy(), float(x[d] - logit(middle)), cost)
