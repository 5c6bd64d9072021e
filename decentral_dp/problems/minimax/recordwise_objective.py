"""A minimax objective from per-record formulas in numpy, on the outputs of any model.

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
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.files.source_lines import place_in_class
from decentral_dp.models.row_locality import COUNTS, trials
from decentral_dp.problems.bilevel.recordwise import author_sizes, check_has, evaluated, try_rows
from decentral_dp.problems.minimax.binary_scores import classification
from decentral_dp.problems.minimax.composite import Objective, Values
from decentral_dp.problems.minimax.protocol import Known
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blamed

OPTIONAL = ("start_y", "regulariser", "regulariser_grad", "best_y", "radius_y", "predict")
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
        """What a method gives, (q,). Raises UserCodeError where it does not give what it gave when it was tried."""
        try:
            return _given_by(self.author, self.name, method, self.q, *given)
        except InputError as error:
            raise UserCodeError(str(error)) from error

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        both = evaluated(
            lambda some: np.concatenate(self.author.slopes(some[0], y, some[1]), axis=1),
            (outputs, labels),
            (len(labels), self.outputs + self.q),
        )
        return Values(both[:, : self.outputs], np.zeros((len(labels), 0)), both[:, self.outputs :])

    def known(self, term: str, extra: Array, y: Array) -> Known | None:
        return Known(None, float(self.author.radius_y())) if hasattr(self.author, "radius_y") else None

    def public(self, term: str, extra: Array, y: Array) -> Array:
        if term == "grad_x" or not hasattr(self.author, "regulariser_grad"):
            return super().public(term, extra, y)
        return self._vector("regulariser_grad", y)

    def scores(
        self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Callable[[Array], float]
    ) -> Mapping[str, float]:
        found = {"objective": self._value(outputs, y, labels)}
        if hasattr(self.author, "best_y"):
            best = self._vector("best_y", outputs, labels)
            found |= {"primal": self._value(outputs, best, labels), "gradient_norm": gradient(best)}
        return found

    def test_scores(self, outputs: Array, labels: Array) -> Mapping[str, float]:
        return classification(self.author.predict(outputs), labels) if hasattr(self.author, "predict") else {}

    def losses(self, outputs: Array, labels: Array) -> Array:
        """f at the public start of y."""
        return self._losses(outputs, self.start["y"], labels)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Run every formula on made-up outputs, for batches of so many, and again with one record replaced.

        Raises InputError for what does not run, has another shape, or reads another record's row.
        """
        tried, y, author = tuple(trials(counts, self.outputs, self.n_classes)), self.start["y"], self.author
        loss, slopes = (place_in_class(type(author), method) for method in ("loss", "slopes"))
        try_rows(lambda o, b: author.loss(o, y, b), (), f"{self.name}: loss", tried, loss)
        for k, width in enumerate((self.outputs, self.q)):
            which = "∂f/∂outputs" if k == 0 else "∂f/∂y"
            name = f"{self.name}: slopes ({which})"
            try_rows(lambda o, b, k=k: author.slopes(o, y, b)[k], (width,), name, tried, slopes)

    def _losses(self, outputs: Array, y: Array, labels: Array) -> Array:
        return evaluated(lambda some: self.author.loss(some[0], y, some[1]), (outputs, labels), (len(labels),))

    def _value(self, outputs: Array, y: Array, labels: Array) -> float:
        own = self.author.regulariser(y) if hasattr(self.author, "regulariser") else 0.0
        return float(np.mean(self._losses(outputs, y, labels)) + own)


def _try_methods(objective: RecordwiseObjective) -> None:
    """Refuse a method beside the formulas of records that raises, or gives another shape. Raises InputError."""
    author, name = objective.author, objective.name
    trial = next(iter(trials(COUNTS, objective.outputs, objective.n_classes)))
    made_up = {"best_y": trial.records, "predict": trial.records[:1]}
    wanted = {"project_y": objective.q, "start_y": objective.q, "regulariser_grad": objective.q, "best_y": objective.q}
    wanted |= {"radius_y": 1, "regulariser": 1, "predict": len(trial.records[1])}
    for method, size in wanted.items():
        if not hasattr(author, method):
            continue
        given: tuple[Any, ...] = made_up.get(method, ())
        if method in ("project_y", "regulariser", "regulariser_grad"):
            given = (np.zeros(objective.q) if method == "project_y" else objective.start["y"],)
        found = _given_by(author, name, method, size, *given)
        wrong = None
        if not np.isfinite(found).all() and method != "best_y":
            wrong = f"{_shown(found)}, which is not finite"
        elif method == "radius_y" and found[0] <= 0.0:
            wrong = f"{found[0]:g}, wanted a number above 0"
        elif method == "start_y" and not np.allclose(objective.project_y(found), found):
            wrong = f"{_shown(found)}, which is not in Y: project_y makes it {_shown(objective.project_y(found))}"
        if wrong is not None:
            raise InputError(f"{name}: {method} gives {wrong}{place_in_class(type(author), method)}. Mend it.")


def _shown(found: Array) -> str:
    return f"[{', '.join(f'{v:g}' for v in found[:4])}{', …' if found.size > 4 else ''}]"


def _given_by(author: Any, name: str, method: str, size: int, *given: Array) -> Array:
    """The numbers that a method gives, (size,). Raises InputError where it raises, or gives others than so many."""
    try:
        found = np.asarray(getattr(author, method)(*given), dtype=np.float64)
    except USER_ERRORS as error:
        why = blamed(error, place_in_class(type(author), method))
        raise InputError(f"{name}: {method} does not run: {why}. Mend it.") from error
    if found.size != size:
        wanted, place = "one number" if size == 1 else f"{size} numbers", place_in_class(type(author), method)
        raise InputError(f"{name}: {method} gives shape {found.shape}{place}, wanted {wanted}. Mend it.")
    return found.reshape(size)


def recordwise_objective(author: Any, n_classes: int, name: str) -> RecordwiseObjective:
    """Make the objective of an author's formulas, and try it on made-up records.

    Args:
        author: the object with the methods that the module's head lists.
        n_classes: classes of the labels, 0 where labels are numbers.
        name: for messages.

    Raises:
        InputError: for a formula that is missing, does not run, or reads another record.
    """
    check_has(author, NEEDED, name, "a minimax objective", OPTIONAL)
    if hasattr(author, "regulariser") != hasattr(author, "regulariser_grad"):
        there = "regulariser" if hasattr(author, "regulariser") else "regulariser_grad"
        raise InputError(
            f"{name}: regulariser(y) and regulariser_grad(y) go together{place_in_class(type(author), there)}. Define "
            "both, or neither."
        )
    outputs, q = author_sizes(author, name, "outputs and q", n_classes=n_classes)
    objective = RecordwiseObjective(author, outputs, q, n_classes, name)
    _try_methods(objective)
    objective.check_rows_apart(COUNTS)
    return objective
