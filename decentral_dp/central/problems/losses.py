"""Per-record losses of a model's outputs φ (e numbers) and a label, cut to [0, B] by a public cap B.

    name           ℓ                                          labels           e
    cross_entropy  log Σ_k exp(φ_k) − φ_label                  classes          one per class
    logistic       log(1 + exp(−φ)) for 1, log(1 + exp(φ)) for 0    two classes      1
    squared        (φ − label)²                               numbers          1

Outside [0, B] a record's slope is exactly 0. A loss that is not a number counts as B.

Numbers by which classifiers and rankings are judged, by scikit-learn.

A minimax objective from per-record formulas in numpy, on the outputs of any model.

The author's object has these methods; `outputs` (n, e) are the model's and `labels` (n,) class numbers, or numbers to
predict. Row k of what comes back is of record k alone:

    sizes(n_classes) → e, q                 outputs of the model, and the dimension of y
    loss(outputs, y, labels)                (n,)  f
    slopes(outputs, y, labels)              (n, e) ∂f/∂outputs and (n, q) ∂f/∂y
    project_y(y)                            the nearest point of Y
    start_y()                               (q,) public start      left out: zeros, projected
    regulariser(y), regulariser_grad(y)     r(y), ∇r (q,): reads no record      left out: no r
    best_y(outputs, labels)                 the maximiser, for metrics          left out: no "primal" is measured
    radius_y()                              a bound on ‖∂f/∂y‖₂ at which rows are cut      left out: privacy.clip.y
    predict(outputs)                        (n,) class numbers      left out: nothing is classified
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import scipy
from typing_extensions import Doc

from decentral_dp.bounded import Array
from decentral_dp.central.problems.composite import Composite, Objective, Values
from decentral_dp.data import nearest
from decentral_dp.errors import InputError
from decentral_dp.files.tables import Positive
from decentral_dp.models.build import ModelTable
from decentral_dp.models.row_locality import COUNTS, trials
from decentral_dp.problems.bilevel.recordwise import author_sizes, check_has, evaluate, try_rows
from decentral_dp.problems.class_measures import auc
from decentral_dp.problems.entry import ProblemFacts
from decentral_dp.problems.saddle import PublicBall
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame


def ranking(scores: Array, positive: Array) -> dict[str, float]:
    """ "auc": the share of (positive, negative) pairs that the scores rank rightly, ties half; nothing without both."""
    if positive.all() or not positive.any() or not np.isfinite(scores).all():
        return {}
    chosen = positive.astype(bool)
    return {"auc": auc(scores[chosen], scores[~chosen])}


def class_scores(scores: Array, labels: Array) -> dict[str, float]:
    """ "accuracy", and "f1" of class 1 of two, or its mean over more, of predicted classes (n,) and labels (n,)."""
    is_of_two = labels.max(initial=0) <= 1 and scores.max(initial=0) <= 1
    classes = [1] if is_of_two else np.union1d(scores, labels)
    # 2TP/(2TP + FP + FN)
    shares = [
        2.0 * np.sum((scores == k) & (labels == k)) / max(1, np.sum(scores == k) + np.sum(labels == k)) for k in classes
    ]
    return {"accuracy": float(np.mean(scores == labels)), "f1": float(np.mean(shares))}


# Outputs (n, e) and labels (n,) → losses (n,) and their derivatives by the outputs (n, e).
Slopes = Callable[[Array, Array], tuple[Array, Array]]


class RecordLoss(NamedTuple):
    """outputs: e. classes: how many; 0 where labels are numbers. probabilities: of the classes (n, classes), if any."""

    outputs: int
    classes: int
    slopes: Slopes
    probabilities: Callable[[Array], Array] | None = None

    def predicted_classes(self, outputs: Array) -> Array | None:
        """(n,) the class that the model predicts; None where it predicts none."""
        if self.classes >= 2 and self.outputs == self.classes:
            return np.asarray(np.argmax(outputs, axis=1), dtype=np.float64)
        return (outputs[:, 0] > 0.0).astype(np.float64) if self.classes == 2 and self.outputs == 1 else None


@dataclass(frozen=True)
class Capped:
    """A loss cut to [0, cap]."""

    loss: RecordLoss
    cap: float

    def slopes(self, outputs: Array, labels: Array) -> tuple[Array, Array]:
        """Losses (n,) in [0, cap] and their derivatives by the outputs (n, e), which are 0 where the loss is cut."""
        with np.errstate(over="ignore", invalid="ignore"):
            values, slopes = self.loss.slopes(outputs, labels)
        inside = (values >= 0.0) & (values <= self.cap)
        return self.apply_cap(values), np.where(inside[:, None], slopes, 0.0)

    def apply_cap(self, values: Array) -> Array:
        return np.where(np.isnan(values), self.cap, np.clip(values, 0.0, self.cap))

    def values(self, outputs: Array, labels: Array) -> Array:
        return self.apply_cap(self.plain(outputs, labels))

    def plain(self, outputs: Array, labels: Array) -> Array:
        """(n,) losses as they are, uncut."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.loss.slopes(outputs, labels)[0]


@dataclass(frozen=True, eq=False)
class CappedObjective(Objective, Protocol):
    """An objective of losses that are cut. loss: ℓ with its cap B."""

    loss: Capped

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        """ "loss": the mean; of classes also "accuracy", "f1" and "worst_class_accuracy".

        outputs: (n, ·); labels: (n,).
        """
        out = {"loss": float(np.mean(self.loss.values(outputs, labels)))}
        predicted = self.loss.loss.predicted_classes(outputs)
        if predicted is None:
            return out
        shares = [float(np.mean(predicted[labels == k] == k)) for k in np.unique(labels)]
        return out | class_scores(predicted, labels) | {"worst_class_accuracy": min(shares, default=0.0)}

    def losses(self, outputs: Array, labels: Array) -> Array:
        return self.loss.plain(outputs, labels)

    def confidences(self, outputs: Array) -> Array | None:
        share = self.probabilities(outputs)
        return None if share is None else np.asarray(np.max(share, axis=1))

    def probabilities(self, outputs: Array) -> Array | None:
        return None if self.loss.loss.probabilities is None else self.loss.loss.probabilities(outputs)

    def predictions(self, outputs: Array) -> Array:
        if (share := self.probabilities(outputs)) is not None:
            return share
        loss = self.loss.loss
        classes = loss.predicted_classes(outputs)
        return outputs[:, 0] if classes is None else np.eye(loss.classes)[classes.astype(np.int64)]


def bisect(is_low: Callable[[float], bool], low: float, high: float) -> float:
    """Where `is_low` turns from true to false between two numbers, from above: the upper end of 80 halvings."""
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return float(high)


Loss = Annotated[str, Doc("The loss of one record, by name.")]
Cap = Annotated[Positive, Doc("Losses are cut at this bound.")]
Strength = Annotated[Positive, Doc("Strength λ of the term that keeps the distribution near that of the records.")]


def capped_loss(loss: str | None, cap: float, classes: int) -> Capped:
    """The loss that problem.loss names, cut at problem.cap; by default that of the labels. Raises InputError."""
    name = loss or ("cross_entropy" if classes else "squared")
    # Labels that a loss needs, and whether these are such.
    losses = {
        "cross_entropy": ("2 or more classes", classes >= 2),
        "logistic": ("exactly 2 classes", classes == 2),
        "squared": ("numbers to predict", classes == 0),
    }
    if name not in losses:
        raise InputError(f"problem.loss: no loss {name!r}; {nearest(name, losses)}.")
    needed, fits = losses[name]
    if not fits:
        has = f"{classes} class{'es' * (classes != 1)}" if classes else "numbers to predict"
        raise InputError(f"problem.loss: {name} needs {needed} for labels, and the data have {has}. Take another loss.")
    if name == "cross_entropy":
        chosen = RecordLoss(classes, classes, _cross_entropy, lambda o: np.asarray(scipy.special.softmax(o, axis=1)))
    elif name == "logistic":
        chosen = RecordLoss(1, classes, _logistic, _two_class_probabilities)
    else:
        chosen = RecordLoss(1, classes, _squared)
    return Capped(chosen, cap)


def _cross_entropy(outputs: Array, labels: Array) -> tuple[Array, Array]:
    own_class = np.arange(len(labels)), labels.astype(np.int64)
    slopes = scipy.special.softmax(outputs, axis=1)
    slopes[own_class] -= 1.0
    return np.asarray(scipy.special.logsumexp(outputs - outputs[own_class][:, None], axis=1)), slopes


def _logistic(outputs: Array, labels: Array) -> tuple[Array, Array]:
    sign = np.where(labels == 1.0, -1.0, 1.0)
    u = sign * outputs[:, 0]
    return np.logaddexp(0.0, u), (sign * scipy.special.expit(u))[:, None]


def _squared(outputs: Array, labels: Array) -> tuple[Array, Array]:
    gap = outputs[:, 0] - labels
    return gap**2, 2.0 * gap[:, None]


def _two_class_probabilities(outputs: Array) -> Array:
    h = scipy.special.expit(outputs[:, :1])
    return np.concatenate([1.0 - h, h], axis=1)


NEEDED = ("sizes", "loss", "slopes", "project_y")


@dataclass(frozen=True)
class RecordwiseObjective(Objective):
    """A `composite.Objective` from an author's per-record formulas.

    Args:
        author: the object with the methods that the module's head lists.
        outputs: e, outputs of the model.
        width: q, dimension of y.
        n_classes: classes of the labels, 0 where labels are numbers.
        name: for messages.
    """

    author: Any
    outputs: int
    width: int
    n_classes: int
    name: str

    @property
    def q(self) -> int:
        return self.width

    @property
    def start(self) -> Mapping[str, Array]:
        own = hasattr(self.author, "start_y")
        y = self._vector("start_y") if own else self.project_y(np.zeros(self.q))
        return {"extra": np.zeros(0), "y": y}

    def project_y(self, y: Array) -> Array:
        return self._vector("project_y", y)

    def _vector(self, method: str, *given: Array) -> Array:
        """What a method gives, (q,). Raises UserCodeError where it raises, or gives another shape."""
        try:
            value = np.asarray(getattr(self.author, method)(*given), dtype=np.float64)
        except USER_ERRORS as error:
            raise UserCodeError(f"{self.name}: {method} does not run: {blame(error)}. Mend it.") from error
        if value.size != self.q:
            wanted = "one number" if self.q == 1 else f"{self.q} numbers"
            raise UserCodeError(f"{self.name}: {method} gives shape {value.shape}, wanted {wanted}. Mend it.")
        return value.reshape(self.q)

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        both = evaluate(
            lambda some: np.concatenate(self.author.slopes(some[0], y, some[1]), axis=1),
            (outputs, labels),
            (len(labels), self.outputs + self.q),
        )
        return Values(both[:, : self.outputs], np.zeros((len(labels), 0)), both[:, self.outputs :])

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        if not hasattr(self.author, "radius_y"):
            return None
        radius = float(self.author.radius_y())
        if not 0.0 < radius < np.inf:
            # Rows are cut at it: it bounds what one record moves.
            raise InputError(f"{self.name}: radius_y gives {radius:g}, wanted a finite number above 0. Mend it.")
        return PublicBall(None, radius)

    def public(self, term: str, extra: Array, y: Array) -> Array:
        if term == "grad_x" or not hasattr(self.author, "regulariser_grad"):
            return super().public(term, extra, y)
        return self._vector("regulariser_grad", y)

    def scores(
        self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Callable[[Array], float]
    ) -> Mapping[str, float]:
        by_name = {"objective": self._value(outputs, y, labels)}
        if hasattr(self.author, "best_y"):
            best = self._vector("best_y", outputs, labels)
            by_name |= {"primal": self._value(outputs, best, labels), "gradient_norm": gradient(best)}
        return by_name

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        return class_scores(self.author.predict(outputs), labels) if hasattr(self.author, "predict") else {}

    def losses(self, outputs: Array, labels: Array) -> Array:
        """(n,) f at the public start of y."""
        return self._losses(outputs, self.start["y"], labels)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Run every formula on made-up outputs, for batches of so many, and again with one record replaced.

        Raises InputError for what does not run, has another shape, or reads another record's row.
        """
        tried, y, author = tuple(trials(counts, self.outputs, self.n_classes)), self.start["y"], self.author
        try_rows(lambda o, b: author.loss(o, y, b), (), f"{self.name}: loss", tried)
        for k, width in enumerate((self.outputs, self.q)):
            which = "∂f/∂outputs" if k == 0 else "∂f/∂y"
            name = f"{self.name}: slopes ({which})"
            try_rows(lambda o, b, k=k: author.slopes(o, y, b)[k], (width,), name, tried)

    def _losses(self, outputs: Array, y: Array, labels: Array) -> Array:
        return evaluate(lambda some: self.author.loss(some[0], y, some[1]), (outputs, labels), (len(labels),))

    def _value(self, outputs: Array, y: Array, labels: Array) -> float:
        own = self.author.regulariser(y) if hasattr(self.author, "regulariser") else 0.0
        return float(np.mean(self._losses(outputs, y, labels)) + own)


def of_author(author: Any, facts: ProblemFacts, name: str, model: ModelTable | None) -> Composite:
    """Make the problem of an author's per-record formulas, and try these on made-up records.

    Args:
        author: the object with the methods that the module's head lists.
        facts: public facts of the data.
        name: of the problem in the scenario.
        model: that problem.model chooses; None for a linear one.

    Raises:
        InputError: a model that does not fit, or a formula that is missing, does not run, or reads another record.
    """
    check_has(author, NEEDED, name, "a minimax objective")
    if hasattr(author, "regulariser") != hasattr(author, "regulariser_grad"):
        raise InputError(f"{name}: regulariser(y) and regulariser_grad(y) go together. Define both, or neither.")
    outputs, q = author_sizes(author, name, "outputs and q", n_classes=facts.n_classes)
    objective = RecordwiseObjective(author, outputs, q, facts.n_classes, name)
    try:
        objective.check_rows_apart(COUNTS)
    except UserCodeError as error:
        raise InputError(str(error)) from error
    return Composite(facts.model(outputs, model), objective)
