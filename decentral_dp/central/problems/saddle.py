"""Protocol of a minimax problem: per-record gradients, data-independent terms, and values for evaluation.

The problem is  min_x max_{y ∈ Y} F(x, y) = (1/n) Σ_i f(x, y; ξ_i) + r(x, y)  over the train records of all agents, with
r data-independent. For a distributionally robust problem, with dual variable y, it is the min over both. Terms are
per-record vectors:

    grad_x = ∇_x f (p)
    grad_y (q): the direction in which y improves, ∇_y f if y maximises, −∇_y f if y minimises
    joint (p + q): both gradients as one vector
    dual: a statistic whose mean gives the best y at x in closed form

Further terms are in `terms` of a problem. Every contribution is clipped to an l2 ball with a public centre.

For gossip, `Saddle` translates the problem to the terms of bilevel problems:

    upper_grad_x = ∇_x f,     lower_grad_y = −grad_y, for y goes along grad_y.

Every record's ∇_y f is clipped around the public centre of a ball that contains it for all possible records; the centre
is added once. Without such a ball the centre is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Norm, Split
from decentral_dp.exchange import ClippedQuery
from decentral_dp.privacy.clipping import Clip
from decentral_dp.problems.protocol import CLIP_OF_TERM, TERMS, Problem, Regulariser, Terms, TwoVariables

# Terms that are means over records.
MINIMAX_TERMS = ("grad_x", "grad_y", "joint")
# Metric → value.
Scores = Mapping[str, float]


class PublicBall(NamedTuple):
    """Ball that contains the vector of every possible record.

    Args:
        centre: public centre, (width,), or None if it is 0.
        radius: radius of the ball.
        diameter: largest distance between two vectors, for means over all records, or None if it is twice the radius.
    """

    centre: Array | None
    radius: float
    diameter: float | None = None


class Minimax(TwoVariables, Protocol):
    """Minimax problem.

    `terms` states whether each term reads records. A term that reads none equals its `public` part. `start` maps
    variables to public starts (d,). `prepare` returns records as a NamedTuple of arrays whose first axis indexes the
    records.
    """

    @property
    def terms(self) -> Mapping[str, bool]: ...

    @property
    def start(self) -> Mapping[str, Array]: ...

    def width(self, term: str) -> int:
        """Return the number of coordinates of a term."""
        ...

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        """Prepare records for `sums` from features (n, d) and labels (n,)."""
        ...

    def project_x(self, x: Array) -> Array:
        """Return the nearest allowed x (p,). By default, every x is allowed."""
        return x

    def project_y(self, y: Array) -> Array:
        """Return the nearest point of Y (q,). By default, Y is R^q."""
        return y

    def public_ball(self, term: str, x: Array, y: Array) -> PublicBall | None:
        """Return a ball that contains this term of every record at the public x (p,), y (q,), or None if unbounded."""
        return None

    def public(self, term: str, x: Array, y: Array, round: int) -> Array:
        """Evaluate the data-independent part of a term.

        Args:
            term: "grad_x", or "grad_y" (the direction in which y improves).
            x: public x, (p,).
            y: public y, (q,).
            round: key of public draws.

        Returns:
            The public part, (width,).
        """
        ...

    def sums(
        self, records: Any, queries: Sequence[ClippedQuery], is_drawn: NDArray[np.bool_] | None = None
    ) -> list[Array]:
        """Return Σ_i clip(v_i − centre, bound) over the records, (width,) for each query (see `exchange.ClippedQuery`).

        A contribution depends on its record, the index and the number of records, and not on other records. A
        contribution that is not finite counts as zero. Memory does not grow with the number of records.

        Args:
            records: n records.
            queries: clipped queries.
            is_drawn: mask of the sample, (n,), or None for all records.
        """
        ...

    def scores(self, x: Array, y: Array, train: Any, test: Any | None) -> Scores:
        """Evaluate a public point on all records (not covered by ε).

        Args:
            x: public x, (p,).
            y: public y, (q,).
            train: train records of all agents.
            test: held-out records, or None.

        Returns:
            The value of each metric. Metrics whose names begin with "test_" read held-out records only.
        """
        ...


# Term of a bilevel problem → of a minimax problem, and its sign.
_TERM_OF = {"upper_grad_x": ("grad_x", 1.0), "lower_grad_y": ("grad_y", -1.0)}


@dataclass(frozen=True)
class Saddle(Problem):
    """Minimax problem expressed in the terms of bilevel problems. Its r is the same in every round."""

    reads_records: ClassVar[Mapping[str, Split]] = MappingProxyType(dict.fromkeys(_TERM_OF, "train"))

    posed: Minimax

    @property
    def p(self) -> int:
        return self.posed.p

    @property
    def q(self) -> int:
        return self.posed.q

    @property
    def start(self) -> Mapping[str, Array]:
        return self.posed.start

    def prepare(self, features: Array, labels: Array, norm: Norm) -> Any:
        return self.posed.prepare(features, labels, norm)

    def project(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the nearest allowed x (b, p) and y (b, q)."""
        return np.stack([self.posed.project_x(row) for row in x]), np.stack([self.posed.project_y(row) for row in y])

    def terms(
        self, x: Array, y: Array, z: Array, train: Any, validation: Any, clip: Clip, term_names: Collection[str] = TERMS
    ) -> Terms:
        names = [term for term in _TERM_OF if term in term_names]
        queries = [
            ClippedQuery(_TERM_OF[t][0], x, y, clip.bound(CLIP_OF_TERM[t]), centre=self._centre(_TERM_OF[t][0], x, y))
            for t in names
        ]
        sums = zip(names, self.posed.sums(train, queries), strict=True) if names else ()
        return Terms(**{term: _TERM_OF[term][1] * total / max(len(train[0]), 1) for term, total in sums})

    def regulariser(self, x: Array, y: Array, z: Array) -> Regulariser:
        """Return the public part of −grad_y, the gradient of r plus the ball's centre. See `Problem.regulariser`."""
        return Regulariser(-self._public("grad_y", x, y), np.zeros_like(y), np.zeros_like(x))

    def public_grad_x(self, x: Array, y: Array) -> Array:
        return self._public("grad_x", x, y)

    def losses(self, x: Array, y: Array, records: Any, weights: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def regulariser_value(self, x: Array, y: Array) -> NoReturn:
        raise ValueError("a minimax problem is judged by its own scores")

    def _public(self, term: str, x: Array, y: Array) -> Array:
        rows = np.stack([self.posed.public(term, *point, 0) for point in zip(x, y, strict=True)])
        centres = [self._centre(term, *point) for point in zip(x, y, strict=True)]
        return rows + np.stack([np.zeros(rows.shape[1]) if c is None else c for c in centres])

    def _centre(self, term: str, x: Array, y: Array) -> Array | None:
        ball = self.posed.public_ball(term, x, y)
        return None if ball is None else ball.centre
