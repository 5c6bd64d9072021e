"""What a minimax problem offers: per-record gradients, data-independent terms, and values to evaluate.

The problem is  min_x max_{y ∈ Y} F(x, y) = (1/n) Σ_i f(x, y; ξ_i) + r(x, y)  over the train records of all agents, with
r data-independent; or min over both, where y is the dual variable of a distributionally robust problem. Terms are
per-record vectors:

    grad_x = ∇_x f (p)
    grad_y (q): the direction in which y improves, ∇_y f where y maximises and −∇_y f where it minimises
    joint (p + q): both of them as one vector
    dual: a statistic whose mean gives the best y at x in closed form

and whatever else a problem names in `terms`. Every contribution is clipped to a ball in l2, whose centre is public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm
from decentral_dp.errors import InputError
from decentral_dp.exchange import ClippedQuery
from decentral_dp.problems.protocol import TwoVariables

# Terms that are means over records, of every minimax problem that has them.
MINIMAX_TERMS = ("grad_x", "grad_y", "joint")
# Numbers by name that a reader wants to see.
Scores = Mapping[str, float]


class PublicBall(NamedTuple):
    """A ball that every possible record's vector lies in: public centre (width,), None for 0, and radius.

    diameter: the largest distance between two vectors where that is less than twice the radius, for means over all
    records; None for twice the radius.
    """

    centre: Array | None
    radius: float
    diameter: float | None = None


class Minimax(TwoVariables, Protocol):
    """A minimax problem.

    terms: those it has → whether it reads records; of one that reads none `public` is the
    whole. start: variable → (d,) public start. Records are whatever `prepare` returned: a
    NamedTuple of arrays whose first axis is the records.
    """

    @property
    def terms(self) -> Mapping[str, bool]: ...

    @property
    def start(self) -> Mapping[str, Array]: ...

    def width(self, term: str) -> int:
        """Coordinates of a term."""
        ...

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """Records of features (n, d) and labels (n,) in the form that `sums` reads."""
        ...

    def project_x(self, x: Array) -> Array:
        """The nearest x (p,) that is allowed: any, unless a problem says so."""
        return x

    def project_y(self, y: Array) -> Array:
        """The nearest point of Y (q,): any, unless a problem says so."""
        return y

    def public_ball(self, term: str, x: Array, y: Array) -> PublicBall | None:
        """A ball that holds this term of every record at the public x (p,), y (q,); None where nothing bounds it."""
        return None

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        """Evaluate the data-independent part of a term.

        Args:
            term: "grad_x", or "grad_y" (towards better y).
            x: (p,).
            y: (q,).
            round: keys what is drawn afresh in every round, publicly.

        Returns:
            (width,) that part.
        """
        ...

    def sums(
        self, records: Any, queries: Sequence[ClippedQuery], drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        """Σ_i clip(v_i − centre, bound) over the records, (width,) for each query; see `exchange.ClippedQuery`.

        drawn: (n,) which of the records count; all if None. What one contributes depends on the record, its place and
        the number of records, and not on the others.

        A contribution that is not finite counts as zero. Memory does not grow with the number of records.
        """
        ...

    def scores(self, x: Array, y: Array, train: Any, test: Any | None) -> Scores:
        """Evaluate the simulator's view of a public point.

        Args:
            x: (p,).
            y: (q,).
            train: train records of all agents.
            test: held-out records, or None.

        Returns:
            Name → value; names beginning with "test_" are of held-out records alone.
        """
        ...


@runtime_checkable
class Pooling(Protocol):
    """A problem that sums over records which are evaluated apart, and adds them up at once."""

    def sums_over(
        self, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
    ) -> list[Array]:
        """What `sums` gives for each (records, drawn), added up."""
        ...


@runtime_checkable
class Dual(Protocol):
    """A problem with the best y in closed form. "dual" is among its terms."""

    def dual(self, statistic: Array) -> Array:
        """The best y at x, from the mean of the term "dual" over all records, (q,)."""
        ...


@runtime_checkable
class Compositional(Protocol):
    """A problem whose gradients follow from three means: of "inner" (1), of "inner_x" (p), ∇_x of it, and of "inner_y"
    (q), ∂_y of it. It has no grad_x and no grad_y.
    """

    def outer(self, y: Array, inner: Array, inner_x: Array, inner_y: Array) -> tuple[Array, Array]:
        """Form the gradients from the three means, or from estimates of them.

        Args:
            y: (q,).
            inner: (1,) mean of "inner".
            inner_x: (p,) mean of "inner_x".
            inner_y: (q,) mean of "inner_y".

        Returns:
            ∇_x F (p,) and the direction in which y improves (q,).

        Limits:
            An estimate that lies where no mean can is taken for the nearest that can be.
        """
        ...


@runtime_checkable
class Parametrised(Protocol):
    """A problem with public parameters that a program may find out, at a price, before it uses them."""

    def with_parameters(self, parameters: Array) -> Minimax:
        """The problem with these public parameters (k,)."""
        ...


@runtime_checkable
class Attackable(Protocol):
    """A problem whose published x is a model that an attacker can ask about a record."""

    def record_losses(self, x: Array, records: Any) -> Array:
        """(n,) loss of each record."""
        ...

    def confidences(self, x: Array, records: Any) -> Array | None:
        """(n,) probability that the model gives to its own answer; None where it gives none."""
        ...


def sum_over_parts(
    problem: Minimax, parts: Iterable[tuple[Any, NDArray[np.bool_] | None]], queries: Sequence[ClippedQuery]
) -> list[Array]:
    """Sum over records that are evaluated apart.

    A class that overrides `sums` and inherits `sums_over` has changed its mathematics in one of two places: what it
    inherits is not used.

    Args:
        problem: of the records.
        parts: (records, which of them count) of each evaluation.
        queries: what is summed.

    Returns:
        (width,) for each query.
    """
    order = type(problem).__mro__
    single, over = (next((k for k, c in enumerate(order) if n in vars(c)), len(order)) for n in ("sums", "sums_over"))
    if isinstance(problem, Pooling) and over <= single:
        return problem.sums_over(parts, queries)
    totals = [np.zeros(problem.width(q.term)) for q in queries]
    for records, drawn in parts:
        for total, part_sum in zip(totals, problem.sums(records, queries, drawn), strict=True):
            total += part_sum
    return totals


def check_share(positive_share: float | str | None, guarantee: str) -> None:
    """Refuse to certify what moves every gradient with one record, and a release no paper has. Raises InputError."""
    if positive_share == "released" and guarantee == "as_printed":
        raise InputError(
            'problem.positive_share: no paper prints a noise for it. With "as_printed" give a number, or "empirical", '
            "which counts it."
        )
    if positive_share == "empirical" and guarantee == "certified":
        raise InputError(
            "problem.positive_share: a counted share is part of every record's gradient, so that one record moves all "
            'of them, by up to 7.4 times what a clip certifies. Give a public number, or "released".'
        )
