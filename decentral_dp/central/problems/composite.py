"""Minimax problems f(x, y; ξ) = objective(model(x; ξ), y; label): most of them.

x holds the model's weights, then further coordinates of the objective's own, such as a and b of AUC maximisation. A
record's ∇_x f is clipped as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError
from decentral_dp.exchange import ClippedQuery
from decentral_dp.models.protocol import Gathering, Model, Slope
from decentral_dp.privacy.clipping import clip_factors, row_norms
from decentral_dp.problems.records import take
from decentral_dp.problems.saddle import Minimax, PublicBall, Scores

# Float64 numbers of one part of a sum, 128 MiB.
_CELLS = 1 << 24
# Terms that begin with the gradient by the model's weights.
_BY_MODEL = ("grad_x", "joint")


class Labelled(NamedTuple):
    """inputs: (n, d). labels: (n,) class indices as numbers, or numbers to predict."""

    inputs: Array
    labels: Array


class Values(NamedTuple):
    """Per record: f's derivative by the outputs (n, e) and by the further coordinates of x (n, k); y: grad_y (n, q)."""

    outputs: Array
    extra: Array
    y: Array


class Objective(Protocol):
    """f as a function of a model's outputs. One that inherits has a number y, and no coordinate of x of its own.

    Args:
        extra: k, how many coordinates of x are its own.
        q: of y.
        statistics: further terms → width.
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
        """ "extra" (k,) and "y" (q,)."""
        return {"extra": np.zeros(self.extra), "y": np.zeros(self.q)}

    def project_extra(self, extra: Array) -> Array:
        return extra

    def project_y(self, y: Array) -> Array: ...

    def slopes(self, outputs: Array, extra: Array, y: Array, labels: Array) -> Values: ...

    def statistic(self, term: str, outputs: Array, extra: Array, y: Array, labels: Array) -> Array:
        """Evaluate a further term for every record.

        Args:
            term: a key of `statistics`.
            outputs: (n, e) of the model.
            extra: (k,) its own coordinates of x.
            y: (q,).
            labels: (n,).

        Returns:
            (n, width).

        Raises:
            ValueError: there is no such term.
        """
        raise ValueError(f"this objective has no term {term}")

    def public_ball(self, term: str, extra: Array, y: Array) -> PublicBall | None:
        """A ball that holds grad_y, or a further term, of every record; None where nothing bounds it.

        extra: (k,) its own coordinates of x; y: (q,).
        """
        return None

    def public(self, term: str, extra: Array, y: Array) -> Array:
        """Data-independent gradient: (k,) of grad_x beside the model's weights, (q,) of grad_y."""
        return np.zeros(self.extra if term == "grad_x" else self.q)

    def scores(self, outputs: Array, extra: Array, y: Array, labels: Array, gradient: Any) -> Scores:
        """Evaluate the numbers of the train records.

        Args:
            outputs: (n, e) of the model.
            extra: (k,) its own coordinates of x.
            y: (q,).
            labels: (n,).
            gradient: y → ‖∇_x F(x, y)‖₂ on all train records.

        Returns:
            Name → value.
        """
        ...

    def test_scores(self, outputs: Array, labels: Array) -> Scores: ...

    def losses(self, outputs: Array, labels: Array) -> Array: ...

    def confidences(self, outputs: Array) -> Array | None:
        return None

    def probabilities(self, outputs: Array) -> Array | None:
        """(n, c) of the classes; None where it has none, and says at most which class is likeliest."""
        return None

    def predictions(self, outputs: Array) -> Array:
        """Probabilities (n, c) of the classes, or numbers (n,). Raises InputError where it says neither."""
        raise InputError("predict: this objective does not say which label the outputs of its model mean.")


@dataclass(frozen=True)
class Composite(Minimax):
    """A model and an objective."""

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
        own = self.objective.start
        return {"x": np.concatenate([self.model.start, own["extra"]]), "y": own["y"]}

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
        own = self.objective.public(term, self._split_x(x)[1], y)
        return np.concatenate([np.zeros(self.model.p), own]) if term == "grad_x" else own

    def dual(self, statistic: Array) -> Array:
        """(q,) argmax_y F in closed form, of an objective that has one."""
        return cast(Array, cast(Any, self.objective).dual(statistic))

    def with_parameters(self, parameters: Array) -> Composite:
        """The problem with these public parameters (k,), of an objective that has some."""
        return replace(self, objective=cast(Any, self.objective).with_parameters(parameters))

    def sums(
        self, records: Labelled, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        return self.sums_over([(records, drawn)], queries)

    def sums_over(
        self, parts: Iterable[tuple[Labelled, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
    ) -> list[Array]:
        totals = [np.zeros(self.width(q.term)) for q in queries]
        sums: list[list[Any]] = [[] for _ in queries]
        waiting, most = 0, self._most_records
        for records, drawn in parts:
            excluded = None if drawn is None else ~drawn
            for start, chunk in self._chunks(records):
                n = len(chunk.labels)
                if waiting + n > most:
                    self._join(totals, sums)
                    waiting = 0
                waiting += n
                evaluations = _Evaluations(self, chunk, None if excluded is None else excluded[start : start + n])
                for total, query, rows in zip(totals, queries, sums, strict=True):
                    self._add(total, query, evaluations, rows)
        self._join(totals, sums)
        return totals

    def _join(self, totals: Sequence[Array], parts: Sequence[list[Any]]) -> None:
        """Add to each total its parts by one product, and forget them."""
        for total, of_query in zip(totals, parts, strict=True):
            if of_query and isinstance(self.model, Gathering):
                total[: self.model.p] += self.model.sum_parts(of_query)
                of_query.clear()

    def _add(self, total: Array, query: ClippedQuery, evaluations: _Evaluations, parts: list[Any]) -> None:
        """Add what these records contribute to the total, or append it to the parts that `_join` adds at once."""
        now = evaluations.evaluate(query.x, query.y)
        before = None if query.earlier_point is None else evaluations.evaluate(*query.earlier_point)
        if query.term in _BY_MODEL:
            here, there = now.slope, None if before is None else before.slope
            extra = _extra_rows(query.term, now)
            extra = extra if before is None else extra - _extra_rows(query.term, before)
            if isinstance(self.model, Gathering):
                clipped, factors = self.model.clipped_parts(here, extra, query.bound, there)
                parts.append(clipped)
            else:
                sums, factors = self.model.clipped_sum(here, extra, query.bound, there)
                total[: self.model.p] += sums
            total[self.model.p :] += _weighted_sum(factors, extra)
            return
        rows = evaluations.rows(query.term, now)
        if before is not None:
            rows = rows - evaluations.rows(query.term, before)
        elif query.centre is not None:
            rows = rows - query.centre
        total += _weighted_sum(clip_factors(row_norms(rows, "l2"), query.bound), rows)

    def scores(self, x: Array, y: Array, train: Labelled, test: Labelled | None) -> Scores:
        weights, extra = self._split_x(x)
        outputs = self._outputs(weights, train)

        def gradient(at: Array) -> float:
            (total,) = self.sums(train, [ClippedQuery("grad_x", x, at, np.inf)])
            return float(np.linalg.norm(total / len(train.labels) + self.public("grad_x", x, at, 0)))

        out = dict(self.objective.scores(outputs, extra, y, train.labels, gradient))
        if test is not None:
            scores = self.objective.test_scores(self._outputs(weights, test), test.labels)
            out |= {f"test_{name}": value for name, value in scores.items()}
        return out

    def record_losses(self, x: Array, records: Labelled) -> Array:
        return self.objective.losses(self._outputs(self._split_x(x)[0], records), records.labels)

    def confidences(self, x: Array, records: Labelled) -> Array | None:
        return self.objective.confidences(self._outputs(self._split_x(x)[0], records))

    def probabilities(self, x: Array, y: Array, records: Labelled) -> list[tuple[Array, NDArray[np.int64]]]:
        share = self.objective.probabilities(self._outputs(self._split_x(x)[0], records))
        return [] if share is None else [(share, records.labels.astype(np.int64))]

    description = "a model"

    def predict(self, y: Array, features: Array) -> Array:
        """As of `problems.protocol.Predictor`, of x (b, p) in the place of y."""
        records = Labelled(features, np.zeros(len(features)))
        return np.stack([self.objective.predictions(self._outputs(self._split_x(x)[0], records)) for x in y])

    def named_weights(self, y: Array) -> dict[str, Array]:
        return self.model.named_weights(self._split_x(y)[0])

    def _outputs(self, weights: Array, records: Labelled) -> Array:
        parts = [self.model.forward(weights, c.inputs, keep=False)[0] for _, c in self._chunks(records)]
        return np.concatenate(parts)

    def _chunks(self, records: Labelled) -> Iterator[tuple[int, Labelled]]:
        """Parts of bounded memory, each with where it starts; one empty part where there are no records."""
        n, size = len(records.labels), self._most_records
        return ((k, take(records, slice(k, k + size))) for k in range(0, max(n, 1), size))

    @property
    def _most_records(self) -> int:
        """How many records are evaluated, and added up, at once."""
        return max(1, _CELLS // self.model.cells)

    def _split_x(self, x: Array) -> tuple[Array, Array]:
        return x[: self.model.p], x[self.model.p :]


class _Evaluation(NamedTuple):
    """One evaluation: the point, the outputs, and the derivatives there."""

    x: Array
    y: Array
    outputs: Array
    values: Values
    slope: Slope


class _Evaluations:
    """Evaluations of one part of the records: several queries ask at the same point.

    excluded: which of the records do not count. Their derivatives are no numbers, which every clip cuts to zero.
    """

    def __init__(self, problem: Composite, records: Labelled, excluded: NDArray[np.bool_] | None) -> None:
        self._problem = problem
        self._records = records
        self._excluded = excluded
        self._all: list[_Evaluation] = []

    def evaluate(self, x: Array, y: Array) -> _Evaluation:
        for known in self._all:
            if np.array_equal(known.x, x) and np.array_equal(known.y, y):
                return known
        weights, extra = self._problem._split_x(x)
        outputs, tape = self._problem.model.forward(weights, self._records.inputs)
        slopes = self._problem.objective.slopes(outputs, extra, y, self._records.labels)
        values = Values(*map(self._mask_rows, slopes))
        evaluation = _Evaluation(x, y, outputs, values, Slope(tape, values.outputs))
        self._all.append(evaluation)
        return evaluation

    def rows(self, term: str, at: _Evaluation) -> Array:
        """(n, width) of a term other than grad_x."""
        if term == "grad_y":
            return at.values.y
        extra = self._problem._split_x(at.x)[1]
        return self._mask_rows(self._problem.objective.statistic(term, at.outputs, extra, at.y, self._records.labels))

    def _mask_rows(self, rows: Array) -> Array:
        return rows if self._excluded is None else np.where(self._excluded[:, None], np.nan, rows)


def _extra_rows(term: str, at: _Evaluation) -> Array:
    """What a record's gradient has beside the model's weights: the further coordinates of x, then those of y."""
    own = at.values.extra
    return own if term == "grad_x" else np.concatenate([own, at.values.y], axis=1)


def _weighted_sum(factors: Array, rows: Array) -> Array:
    """Σ_k factors_k · rows_k; a factor of 0 lets nothing through, whatever the row."""
    return np.asarray(factors @ np.where(factors[:, None] > 0.0, rows, 0.0))
