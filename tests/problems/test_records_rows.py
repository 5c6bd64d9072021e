"""What a record contributes hangs on it and on its place alone: whoever stands beside it moves no bit of it.

Records that contribute nothing, whatever is in them, stand in one place of a batch in turn. Sums over the batch then
have to be equal to the bit. Features go up to 1e300; where labels are numbers, coefficients are aᵀy − b ≈ 0, so that a
bit would be a sign.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from decentral_dp.models import linear_terms
from decentral_dp.models.build import ModelTable
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems import BILEVEL, Facts
from decentral_dp.problems.bilevel.hyper_cleaning import HyperCleaning
from decentral_dp.problems.bilevel.logistic import LogisticHyperparameter
from decentral_dp.problems.bilevel.losses import from_losses
from decentral_dp.problems.bilevel.means import MeanEstimation, MeanLowerBound
from decentral_dp.problems.bilevel.meta_learning import MetaLearning
from decentral_dp.problems.bilevel.quadratic import Quadratic
from decentral_dp.problems.bilevel.recordwise import recordwise
from decentral_dp.problems.bilevel.regularised_losses import (
    biased_regularisation,
    logistic_regularisation,
    ridge_hyperparameter,
    ridge_regularisation,
)
from decentral_dp.problems.bilevel.softmax import SoftmaxHyperparameter
from decentral_dp.problems.protocol import MATRICES, TERMS, Placed

CLASSES, SIGNS = (0.0, 1.0, 2.0), (-1.0, 1.0)
CLIP = Clip("l2", x=0.7, y=0.9, z=0.4)


class Logs:
    """Formulas of one's own in numpy, with a product of matrices and functions that libraries vectorise."""

    def sizes(self, n_features: int, n_classes: int) -> tuple[int, int]:
        return n_features, n_features

    def lower_loss(self, x: Any, y: Any, features: Any, labels: Any) -> Any:
        return np.log1p(np.exp(features @ y - labels)) + np.tanh(features @ x)

    def lower_grad_y(self, x: Any, y: Any, features: Any, labels: Any) -> Any:
        return np.tanh(features @ y - labels)[:, None] * np.sin(features)

    def lower_hvp(self, x: Any, y: Any, z: Any, features: Any, labels: Any) -> Any:
        return np.exp(-np.square(features @ y - labels) * (features @ z))[:, None] * features

    upper_loss, upper_grad_y = lower_loss, lower_grad_y


@cache
def problem_of(kind: str, d: int) -> Any:
    """The problem, and its classes; None where labels are numbers."""

    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        return torch.tanh(features @ x) * torch.logaddexp(features @ y - label, y[0]) + (features @ y - label).abs()

    made: dict[str, Any] = {
        "quadratic": lambda: (Quadratic(d), None),
        "ridge_hyperparameter": lambda: (ridge_hyperparameter(d), None),
        "ridge_regularisation": lambda: (ridge_regularisation(d, intercept=True), None),
        "logistic_hyperparameter": lambda: (LogisticHyperparameter(d), SIGNS),
        "logistic_regularisation": lambda: (logistic_regularisation(d, SIGNS), SIGNS),
        "biased_regularisation": lambda: (biased_regularisation(d, CLASSES), CLASSES),
        "softmax_hyperparameter": lambda: (SoftmaxHyperparameter(d, CLASSES), CLASSES),
        "hyper_cleaning": lambda: (HyperCleaning(d, CLASSES, agents=1, groups=3), CLASSES),
        "mean_estimation": lambda: (MeanEstimation(d), None),
        "mean_lower_bound": lambda: (MeanLowerBound(d), None),
        "meta_learning": lambda: (MetaLearning.from_dataset(d, 3, ways=2, width=4), CLASSES),
        "meta_learning of images": lambda: (MetaLearning.from_dataset(16, 3, (4, 4, 1), ways=2, width=2), CLASSES),
        "from_losses": lambda: (from_losses(loss, loss, p=d, q=d, n_features=d), None),
        "classification": lambda: (BILEVEL["classification"].build({}, Facts(d, 3)), CLASSES),
        "regression": lambda: (BILEVEL["regression"].build({}, Facts(d, 0)), None),
        "classification by a network": lambda: (
            BILEVEL["classification"].build({"model": ModelTable(kind="mlp", hidden=[5, 4])}, Facts(d, 3)),
            CLASSES,
        ),
        "recordwise": lambda: (recordwise(Logs(), d, 0, "logs"), None),
    }
    return made[kind]()


KINDS = sorted({*BILEVEL, "meta_learning of images", "classification by a network", "recordwise"})


def silent(problem: Any, records: Any, place: int, ask: Any) -> list[Any]:
    """The same records with others in this place that contribute nothing to any term, and are very different."""
    rng, width, out = np.random.default_rng(8), records[0].shape[1], []
    far = 1e300 * rng.choice([-1.0, 1.0], size=(3, width))
    far[1], far[2, ::2] = far[1] * rng.uniform(0.1, 1.0, width), 0.0
    # What is not finite is refused where features are multiplied as they are.
    nan = np.where(np.arange(width) == 0, np.nan, far[0])
    for row in (np.zeros(width), *far, *([] if "l1" in records._fields else [nan, np.full(width, np.nan)])):
        kept = [a.copy() for a in records]
        kept[0][place] = row
        # Norms that are kept beside the features.
        for name, order in (("l1", 1), ("l2", 2)):
            if name in records._fields:
                with np.errstate(all="ignore"):
                    size = np.linalg.norm(row, order)
                kept[records._fields.index(name)][place] = size if size < linear_terms.LARGEST_NORM else np.inf
        one = type(records)(*(a[place : place + 1] for a in kept))
        if all(not np.any(value) for value in ask(one).values()):
            out.append(type(records)(*kept))
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_in_its_place_moves_no_bit_of_another(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    slow = kind == "from_losses"
    for seed in range(3 if slow else 12):
        rng = np.random.default_rng([seed, len(kind)])
        d, n = (8, 5) if slow else (int(rng.choice([3, 8, 12, 17])), int(rng.choice([2, 3, 5, 8, 33])))
        problem, classes = problem_of(kind, d)
        width = 16 if kind.endswith("images") else d
        # Of parts of a batch as well as of whole ones.
        monkeypatch.setattr(linear_terms, "BLOCK", 4 * d if seed % 3 == 0 else 1 << 18)
        features = rng.normal(size=(n, width)) * 10.0 ** rng.integers(-2, 3, size=(n, 1))
        start = getattr(problem, "start", {}).get("x", 0.0)
        x, y, z = start + 0.3 * rng.normal(size=problem.p), *rng.normal(size=(2, problem.q))
        labels = rng.normal(size=n) if classes is None else rng.choice(classes, size=n)
        if classes is None:
            # A coefficient that is nothing but rounding.
            features *= 1.0 if kind in ("from_losses", "recordwise") else 1e17
            labels = features @ y[:width]
        records = problem.prepare(features, labels, "l2")
        records = problem.place_records(records, 0) if isinstance(problem, Placed) else records

        def ask(some: Any, at: Any = (x, y, z), problem: Any = problem) -> dict[str, Any]:
            terms = problem.terms(*at, some, some, CLIP, TERMS)._asdict()
            matrix = np.outer(at[2], at[0])
            whole = problem.matrices(at[0], at[1], matrix, some, CLIP, tuple(MATRICES)) if problem.p < 40 else {}
            return {name: value for name, value in {**terms, **whole}.items() if value is not None}

        with np.errstate(all="ignore"):
            data_sets = [ask(some) for some in silent(problem, records, int(rng.integers(n)), ask)]
        found = max(found, len(data_sets))
        for other in data_sets[1:]:
            for name, value in data_sets[0].items():
                assert np.array_equal(value, other[name]), (name, n, d)
    assert found > 1
