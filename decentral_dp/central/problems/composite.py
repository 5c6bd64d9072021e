"""Minimax problems f(x, y; ξ) = objective(model(x; ξ), y; label).

x holds the model's weights, then the objective's additional coordinates, such as a and b of AUC maximisation. A
record's ∇_x f is clipped as one vector.

A custom objective is an object with per-record formulas in NumPy (`make_custom_problem`). `outputs` (n, e) are outputs
of the model, and `labels` (n,) class indices or numbers to predict. Row k of a result depends on record k only:

    sizes(n_classes) → e, q                 number of outputs of the model, and dimension of y
    loss(outputs, y, labels)                (n,)  f
    slopes(outputs, y, labels)              (n, e) ∂f/∂outputs and (n, q) ∂f/∂y
    project_y(y)                            the nearest point of Y
    start_y()                               (q,) public start                   default: zeros, projected
    regulariser(y), regulariser_grad(y)     r(y), ∇r (q,): read no record       default: no r
    best_y(outputs, labels)                 the maximiser, for metrics          default: no metric "primal"
    radius_y()                              a bound on ‖∂f/∂y‖₂, rows are clipped to it      default: privacy.clip.y
    predict(outputs)                        (n,) class indices                  default: no predictions
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.central.problems.saddle import Minimax, PublicBall, Scores
from decentral_dp.errors import InputError, converting
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.build import Model, ModelTable
from decentral_dp.models.protocol import Gathering, Slope
from decentral_dp.models.row_locality import COUNTS, trials
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.problems.bilevel.recordwise import author_sizes, check_has, evaluate, try_rows
from decentral_dp.problems.class_measures import auc
from decentral_dp.problems.entry import ProblemFacts
from decentral_dp.problems.records import take
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# Float64 numbers in one part of a sum, 128 MiB.
_CELLS = 1 << 24
# Terms that begin with the gradient by the model's weights.
_BY_MODEL = ("grad_x", "joint")


class Labelled(NamedTuple):
    """Records with labels.

    Args:
        inputs: features, (n, d).
        labels: class indices as floats, (n,), or numbers to predict.
    """

    inputs: Array
    labels: Array


class Values(NamedTuple):
    """Derivatives of f per record.

    Args:
        outputs: derivatives with respect to the outputs of the model, (n, e).
        extra: derivatives with respect to the objective's coordinates of x, (n, k).
        y: grad_y, (n, q).
    """

    outputs: Array
    extra: Array
    y: Array


class Objective(Protocol):
    """Function f of a model's outputs. By default y is a number, and the objective adds no coordinates to x.

    Args:
        extra: number k of coordinates that the objective adds to x.
        q: dimension of y.
        statistics: width of each further term.
    """

    @property
    def extra(self) -> int:
        return 0

    @property
    def q(self) -> int:
        return 1

    @property
    def statistics(self) -> Mapping[str, int]:
        return {}

    @property
    def start(self) -> Mapping[str, Array]:
        """Public starts "extra" (k,) and "y" (q,)."""
        return {"extra": np.zeros(self.extra), "y": np.zeros(self.q)}

    def project_extra(self, extra: Array) -> Array:
        return extra

    def project_y(self, y: Array) -> Array: ...

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values: ...

    def statistic(self, term: str, outputs: Array, extra: Array, y: Array, labels: Array) -> Array:
        """Evaluate a further term for every record, (n, width).

        Args:
            term: key of `statistics`.
            outputs: outputs of the model, (n, e).
            extra: additional coordinates of x, (k,).
            y: public y, (q,).
            labels: labels, (n,).
        """
        raise ValueError(f"this objective has no term {term}")

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        """Return a ball that contains grad_y, or a further term, of every record, or None if it is unbounded.

        Args:
            term: "grad_y" or a key of `statistics`.
            extra: additional coordinates of x, (k,).
            y: public y, (q,).
        """
        return None

    def public(self, term: str, extra: Array, y: Array) -> Array:
        """Compute the data-independent gradient: (k,) for the objective's part of grad_x, (q,) for grad_y."""
        return np.zeros(self.extra if term == "grad_x" else self.q)

    def scores(self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Any) -> Scores:
        """Compute the metrics of the train records, as a map from name to value.

        Args:
            outputs: outputs of the model, (n, e).
            extra: additional coordinates of x, (k,).
            y: public y, (q,).
            labels: labels, (n,).
            gradient: function that maps y to ‖∇_x F(x, y)‖₂ on all train records.
        """
        ...

    def test_scores(self, outputs: Array, labels: Array) -> Scores: ...

    def losses(self, outputs: Array, labels: Array) -> Array: ...

    def probabilities(self, outputs: Array) -> Array | None:
        """Compute the probabilities of the classes, (n, c), or None if there are none."""
        return None

    def predictions(self, outputs: Array) -> Array:
        """Return class probabilities (n, c), or numbers (n,). Raises InputError if the objective does not predict."""
        raise InputError("predict: this objective has no predictions. Fix: define predict(outputs).")


@dataclass(frozen=True)
class Composite(Minimax):
    """Problem of a model and an objective."""

    model: Model
    objective: Objective

    @property
    def p(self) -> int:
        return self.model.p + self.objective.extra

    @property
    def q(self) -> int:
        return self.objective.q

    @property
    def terms(self) -> Mapping[str, bool]:
        return dict.fromkeys(("grad_x", "grad_y", "joint", *self.objective.statistics), True)

    @property
    def start(self) -> Mapping[str, Array]:
        own_start = self.objective.start
        return {"x": np.concatenate([self.model.start, own_start["extra"]]), "y": own_start["y"]}

    def width(self, term: str) -> int:
        return {"grad_x": self.p, "grad_y": self.q, "joint": self.p + self.q, **self.objective.statistics}[term]

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Labelled:
        return Labelled(np.asarray(features), np.asarray(labels, dtype=np.float64))

    def project_x(self, x: Array) -> Array:
        weights, extra = self._split_x(x)
        return np.concatenate([weights, self.objective.project_extra(extra)])

    def project_y(self, y: Array) -> Array:
        return self.objective.project_y(y)

    def public_ball(self, term: str, x: Array, y: Array) -> PublicBall | None:
        return None if term in _BY_MODEL else self.objective.public_ball(term, self._split_x(x)[1], y)

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        own_term = self.objective.public(term, self._split_x(x)[1], y)
        return np.concatenate([np.zeros(self.model.p), own_term]) if term == "grad_x" else own_term

    def dual(self, statistic: Array) -> Array:
        """Compute argmax_y F, (q,), from a mean, for an objective with a closed form."""
        return cast(Array, cast(Any, self.objective).dual(statistic))

    def with_parameters(self, parameters: Array) -> Composite:
        """Return the problem with these public parameters (k,), for an objective with parameters."""
        return replace(self, objective=cast(Any, self.objective).with_parameters(parameters))

    def sums(
        self, records: Labelled, queries: Sequence[ClippedQuery], is_drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        return self.sums_over([(records, is_drawn)], queries)

    def sums_over(
        self, parts: Iterable[tuple[Labelled, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
    ) -> list[Array]:
        totals = [np.zeros(self.width(q.term)) for q in queries]
        sums: list[list[Any]] = [[] for _ in queries]
        count, largest = 0, self._most_records
        for records, is_drawn in parts:
            is_excluded = None if is_drawn is None else ~is_drawn
            for start, chunk in self._chunks(records):
                n = len(chunk.labels)
                if count + n > largest:
                    self._join(totals, sums)
                    count = 0
                count += n
                evaluations = _Evaluations(self, chunk, None if is_excluded is None else is_excluded[start : start + n])
                for total, query, rows in zip(totals, queries, sums, strict=True):
                    self._add(total, query, evaluations, rows)
        self._join(totals, sums)
        return totals

    def _join(self, totals: Sequence[Array], parts: Sequence[list[Any]]) -> None:
        """Add the parts to each total by one product, and clear the parts."""
        for total, of_query in zip(totals, parts, strict=True):
            if of_query and isinstance(self.model, Gathering):
                total[: self.model.p] += self.model.sum_parts(of_query)
                of_query.clear()

    def _add(self, total: Array, query: ClippedQuery, evaluations: _Evaluations, parts: list[Any]) -> None:
        """Add the contributions of these records to the total, or append them to the parts for `_join`."""
        current = evaluations.evaluate(query.x, query.y)
        earlier = None if query.earlier_point is None else evaluations.evaluate(*query.earlier_point)
        if query.term in _BY_MODEL:
            slope, earlier_slope = current.slope, None if earlier is None else earlier.slope
            extra = _extra_rows(query.term, current)
            extra = extra if earlier is None else extra - _extra_rows(query.term, earlier)
            if isinstance(self.model, Gathering):
                clipped, factors = self.model.clipped_parts(slope, extra, query.bound, earlier_slope)
                parts.append(clipped)
            else:
                sums, factors = self.model.clipped_sum(slope, extra, query.bound, earlier_slope)
                total[: self.model.p] += sums
            total[self.model.p :] += _weighted_sum(factors, extra)
            return
        rows = evaluations.rows(query.term, current)
        if earlier is not None:
            rows = rows - evaluations.rows(query.term, earlier)
        elif query.centre is not None:
            rows = rows - query.centre
        total += _weighted_sum(clip_factors(row_norms(rows, "l2"), query.bound), rows)

    def scores(self, x: Array, y: Array, train: Labelled, test: Labelled | None) -> Scores:
        weights, extra = self._split_x(x)
        outputs = self._outputs(weights, train)

        def gradient(dual: Array) -> float:
            (total,) = self.sums(train, [ClippedQuery("grad_x", x, dual, np.inf)])
            return float(np.linalg.norm(total / len(train.labels) + self.public("grad_x", x, dual, 0)))

        out = dict(self.objective.scores(outputs, extra, y, train.labels, gradient))
        if test is not None:
            scores = self.objective.test_scores(self._outputs(weights, test), test.labels)
            out |= {f"test_{name}": value for name, value in scores.items()}
        return out

    def record_losses(self, x: Array, records: Labelled) -> Array:
        return self.objective.losses(self._outputs(self._split_x(x)[0], records), records.labels)

    def probabilities(self, x: Array, y: Array, records: Labelled) -> list[tuple[Array, NDArray[np.int64]]]:
        share = self.objective.probabilities(self._outputs(self._split_x(x)[0], records))
        return [] if share is None else [(share, records.labels.astype(np.int64))]

    description = "a model"

    def predict(self, y: Array, features: Array) -> Array:
        """Return predictions at the rows of y = x (b, p); see `problems.protocol.Predictor`."""
        records = Labelled(features, np.zeros(len(features)))
        return np.stack([self.objective.predictions(self._outputs(self._split_x(x)[0], records)) for x in y])

    def named_weights(self, y: Array) -> dict[str, Array]:
        return self.model.named_weights(self._split_x(y)[0])

    def _outputs(self, weights: Array, records: Labelled) -> Array:
        parts = [self.model.forward(weights, c.inputs, keep=False)[0] for _, c in self._chunks(records)]
        return np.concatenate(parts)

    def _chunks(self, records: Labelled) -> Iterator[tuple[int, Labelled]]:
        """Yield parts of bounded memory, each with its first index; one empty part if there are no records."""
        n, size = len(records.labels), self._most_records
        return ((k, take(records, slice(k, k + size))) for k in range(0, max(n, 1), size))

    @property
    def _most_records(self) -> int:
        """Return the number of records that are evaluated and summed together."""
        return max(1, _CELLS // self.model.cells)

    def _split_x(self, x: Array) -> tuple[Array, Array]:
        return x[: self.model.p], x[self.model.p :]


class _Evaluation(NamedTuple):
    """Outputs and derivatives at one point."""

    x: Array
    y: Array
    outputs: Array
    values: Values
    slope: Slope


class _Evaluations:
    """Evaluations of one part of the records, cached because several queries use the same point.

    The derivatives of excluded records are NaN, which every clip turns into zero.
    """

    def __init__(self, problem: Composite, records: Labelled, is_excluded: NDArray[np.bool_] | None) -> None:
        self._problem = problem
        self._records = records
        self._excluded = is_excluded
        self._all: list[_Evaluation] = []

    def evaluate(self, x: Array, y: Array) -> _Evaluation:
        for previous in self._all:
            if np.array_equal(previous.x, x) and np.array_equal(previous.y, y):
                return previous
        weights, extra = self._problem._split_x(x)
        outputs, tape = self._problem.model.forward(weights, self._records.inputs)
        slopes = self._problem.objective.slopes(outputs, extra, y, self._records.labels)
        values = Values(*map(self._mask_rows, slopes))
        evaluation = _Evaluation(x, y, outputs, values, Slope(tape, values.outputs))
        self._all.append(evaluation)
        return evaluation

    def rows(self, term: str, evaluation: _Evaluation) -> Array:
        """Return a term other than grad_x, (n, width)."""
        if term == "grad_y":
            return evaluation.values.y
        extra = self._problem._split_x(evaluation.x)[1]
        return self._mask_rows(
            self._problem.objective.statistic(term, evaluation.outputs, extra, evaluation.y, self._records.labels)
        )

    def _mask_rows(self, rows: Array) -> Array:
        return rows if self._excluded is None else np.where(self._excluded[:, None], np.nan, rows)


def _extra_rows(term: str, evaluation: _Evaluation) -> Array:
    """Return a record's gradient with respect to the objective's coordinates of x, then y."""
    extra = evaluation.values.extra
    return extra if term == "grad_x" else np.concatenate([extra, evaluation.values.y], axis=1)


def _weighted_sum(factors: Array, rows: Array) -> Array:
    """Compute Σ_k factors_k · rows_k, where a factor of 0 ignores its row even if it is NaN."""
    return np.asarray(factors @ np.where(factors[:, None] > 0.0, rows, 0.0))


def ranking(scores: Array, positive: Array) -> dict[str, float]:
    """Compute "auc", the share of correctly ordered (positive, negative) pairs, if both classes occur."""
    if positive.all() or not positive.any() or not np.isfinite(scores).all():
        return {}
    is_positive = positive.astype(bool)
    return {"auc": auc(scores[is_positive], scores[~is_positive])}


def class_scores(scores: Array, labels: Array) -> dict[str, float]:
    """Compute "accuracy" and "f1" of predicted classes (n,): F1 of class 1 of two, or its mean over more classes."""
    is_of_two = labels.max(initial=0) <= 1 and scores.max(initial=0) <= 1
    classes = [1] if is_of_two else np.union1d(scores, labels)
    # 2TP/(2TP + FP + FN)
    shares = [
        2.0 * np.sum((scores == k) & (labels == k)) / max(1, np.sum(scores == k) + np.sum(labels == k)) for k in classes
    ]
    return {"accuracy": float(np.mean(scores == labels)), "f1": float(np.mean(shares))}


NEEDED = ("sizes", "loss", "slopes", "project_y")


@dataclass(frozen=True)
class RecordwiseObjective(Objective):
    """An `Objective` from custom per-record formulas.

    Args:
        author: object with the methods listed in the module docstring.
        outputs: number e of outputs of the model.
        width: dimension q of y.
        n_classes: number of classes, or 0 if labels are numbers.
        name: name of the problem in a scenario.
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
        has_own_start = hasattr(self.author, "start_y")
        y = self._vector("start_y") if has_own_start else self.project_y(np.zeros(self.q))
        return {"extra": np.zeros(0), "y": y}

    def project_y(self, y: Array) -> Array:
        return self._vector("project_y", y)

    def _vector(self, method: str, *arguments: Array) -> Array:
        """Call a method that returns (q,). Raises UserCodeError if the method raises or returns another shape."""
        try:
            value = np.asarray(getattr(self.author, method)(*arguments), dtype=np.float64)
        except USER_ERRORS as error:
            raise UserCodeError(f"{self.name}: {method} fails: {blame(error)}. Fix: correct its code.") from error
        if value.size != self.q:
            raise UserCodeError(
                f"{self.name}: {method} returns an array of the wrong shape (got {value.shape}, expected "
                f"({self.q},)). Fix: return an array of this shape."
            )
        return value.reshape(self.q)

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values:
        rows = evaluate(
            lambda some: np.concatenate(self.author.slopes(some[0], y, some[1]), axis=1),
            (outputs, labels),
            (len(labels), self.outputs + self.q),
        )
        return Values(rows[:, : self.outputs], np.zeros((len(labels), 0)), rows[:, self.outputs :])

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        if not hasattr(self.author, "radius_y"):
            return None
        radius = float(self.author.radius_y())
        if not 0.0 < radius < np.inf:
            # Rows are clipped to it, so every sensitivity depends on it.
            raise InputError(
                f"{self.name}: radius_y out of range (got {radius:g}, expected a finite number above 0). Fix: "
                "return such a number."
            )
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
        """Compute f at the public start of y, (n,)."""
        return self._losses(outputs, self.start["y"], labels)

    def check_rows_apart(self, counts: Collection[int]) -> None:
        """Test every formula on synthetic outputs for batches of these sizes, with and without a replaced record.

        Raises:
            InputError: a formula does not run, has another shape, or depends on another record's row.
        """
        trial_records, y, author = tuple(trials(counts, self.outputs, self.n_classes)), self.start["y"], self.author
        try_rows(lambda o, b: author.loss(o, y, b), (), f"{self.name}: loss", trial_records)
        for k, width in enumerate((self.outputs, self.q)):
            derivative = "∂f/∂outputs" if k == 0 else "∂f/∂y"
            name = f"{self.name}: slopes ({derivative})"
            try_rows(lambda o, b, k=k: author.slopes(o, y, b)[k], (width,), name, trial_records)

    def _losses(self, outputs: Array, y: Array, labels: Array) -> Array:
        return evaluate(lambda some: self.author.loss(some[0], y, some[1]), (outputs, labels), (len(labels),))

    def _value(self, outputs: Array, y: Array, labels: Array) -> float:
        regulariser = self.author.regulariser(y) if hasattr(self.author, "regulariser") else 0.0
        return float(np.mean(self._losses(outputs, y, labels)) + regulariser)


def make_custom_problem(author: Any, facts: ProblemFacts, name: str, model: ModelTable | None) -> Composite:
    """Build the problem from custom per-record formulas, and test them on synthetic records.

    Args:
        author: object with the methods listed in the module docstring.
        facts: public facts of the data.
        name: name of the problem in the scenario.
        model: model that `problem.model` declares, or None for a linear model.

    Raises:
        InputError: the model is not supported, or a formula is missing, fails, or depends on another record.
    """
    check_has(author, NEEDED, name, "a minimax objective")
    if hasattr(author, "regulariser") != hasattr(author, "regulariser_grad"):
        raise InputError(
            f"{name}: only one of regulariser(y) and regulariser_grad(y) is defined. Fix: define both, or neither."
        )
    outputs, q = author_sizes(author, name, "outputs and q", n_classes=facts.n_classes)
    objective = RecordwiseObjective(author, outputs, q, facts.n_classes, name)
    with converting(UserCodeError, str):
        objective.check_rows_apart(COUNTS)
    return Composite(facts.model(outputs, model), objective)
