"""What a minimax problem offers: per-record gradients, data-independent terms, and values to evaluate.

The problem is  min_x max_{y ∈ Y} F(x, y) = (1/n) Σ_i f(x, y; ξ_i) + r(x, y)  over the train records of all agents, with
r data-independent; or min over both, where y is the dual variable of a distributionally robust problem. Terms are
per-record vectors:

    grad_x = ∇_x f (p)
    grad_y (q): the direction in which y improves, ∇_y f where y maximises and −∇_y f where it minimises
    joint (p + q): both of them as one vector
    dual: a statistic whose mean gives the best y at x in closed form

and whatever else a problem names in `terms`. Every contribution is clipped to a ball in l2, whose centre is public.

Agents who trust nobody ask their own records about it in the terms of bilevel problems (`Saddle`), so that whatever
asks, plans and prices these has it as it is:

    upper_grad_x = ∇_x f,     lower_grad_y = −grad_y, for y goes along grad_y.

Every record's ∇_y f is clipped around the centre of the ball that all possible records are known to be in, which is
public and added once; where no ball is known around 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, Regulariser, Terms, TwoVariables

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
class Attackable(Protocol):
    """A problem whose published x is a model that an attacker can ask about a record."""

    def record_losses(self, x: Array, records: Any) -> Array:
        """(n,) loss of each record."""
        ...

    def confidences(self, x: Array, records: Any) -> Array | None:
        """(n,) probability that the model gives to its own answer; None where it gives none."""
        ...


# Term of a bilevel problem → of a minimax problem, and its sign.
_TERM_OF = {"upper_grad_x": ("grad_x", 1.0), "lower_grad_y": ("grad_y", -1.0)}


@dataclass(frozen=True)
class Saddle(Problem):
    """minimax: a problem whose ∇_x f and ∇_y f read records, and whose r does not change from round to round."""

    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType(dict.fromkeys(_TERM_OF, "train"))

    minimax: Minimax

    @property
    def p(self) -> int:
        return self.minimax.p

    @property
    def q(self) -> int:
        return self.minimax.q

    @property
    def start(self) -> Mapping[str, Array]:
        return self.minimax.start

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        return self.minimax.prepare(features, labels, norm)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The nearest allowed x (b, p) and y (b, q)."""
        return np.stack([self.minimax.project_x(row) for row in x]), np.stack(
            [self.minimax.project_y(row) for row in y]
        )

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        served = [term for term in _TERM_OF if term in wanted]
        queries = [
            ClippedQuery(_TERM_OF[t][0], x, y, clip.bound(CLIP_OF_TERM[t]), centre=self._centre(_TERM_OF[t][0], x, y))
            for t in served
        ]
        sums = zip(served, self.minimax.sums(train, queries), strict=True) if served else ()
        return Terms(**{term: _TERM_OF[term][1] * total / max(len(train[0]), 1) for term, total in sums})

    def matrices(
        self, x: Array, y: Array, matrix: Array | None, train: Any, clip: Clip, wanted: Collection[str]
    ) -> dict[str, Array]:
        """None: no second derivative is asked for."""
        return {}

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """What is public of −grad_y: that of r, and the centre of the ball. As of `Problem.regulariser`."""
        return Regulariser(-self._public("grad_y", x, y), np.zeros_like(y), np.zeros_like(x))

    def public_grad_x(self, x: Array, y: Array) -> Array:
        return self._public("grad_x", x, y)

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def regulariser_value(self, x: Array, y: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def _public(self, term: str, x: Array, y: Array) -> Array:
        rows = np.stack([self.minimax.public(term, *point, 0) for point in zip(x, y, strict=True)])
        centres = [self._centre(term, *point) for point in zip(x, y, strict=True)]
        return rows + np.stack([np.zeros(rows.shape[1]) if c is None else c for c in centres])

    def _centre(self, term: str, x: Array, y: Array) -> Array | None:
        known = self.minimax.public_ball(term, x, y)
        return None if known is None else known.centre
