"""Gradient estimates that are updated by clipped differences, and the plan of their releases.

At an anchor, every `period` rounds, the estimate is released anew. In the other rounds, the change in the same records'
mean since the previous point is released and added. The anchors are fixed before the run: a schedule that depends on
released values can cost more than the most expensive fixed one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from decentral_dp.central import vocabulary as dp

# A public point (x, y).
Point = tuple[dp.Array, dp.Array]
# Share of the budget of an estimate for its anchors.
ANCHORS = 0.5


class SpiderState(NamedTuple):
    """Public state of an algorithm with estimates of both gradients.

    Args:
        x: iterate, (p,).
        y: iterate, (q,).
        v: estimate of the records' part of ∇_x F, (p,).
        u: estimate of the records' part of ∇_y F, (q,).
        last_x: x of the previous round, (p,).
        last_y: y of the previous round, (q,).
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    u: dp.Array
    last_x: dp.Array
    last_y: dp.Array

    @classmethod
    def start(cls, context: dp.MinimaxContext, constants: Mapping[str, float]) -> SpiderState:
        """Return the state before the first round."""
        x, y = context.start("x", constants), context.start("y", constants)
        return cls(x, y, np.zeros_like(x), np.zeros_like(y), x, y)


class Estimate(NamedTuple):
    """Mean that is updated by differences.

    Args:
        term: term of the problem.
        anchor: channel of the releases at anchors.
        change: channel of the differences.
    """

    term: str
    anchor: str
    change: str

    def next(self, released: dp.Bundle, estimate: dp.Array) -> dp.Array:
        """Return the estimate after a release: the new value at an anchor, otherwise the old value plus its change."""
        if self.anchor in released:
            return np.asarray(released[self.anchor][0])
        return np.asarray(estimate + released[self.change][0]) if self.change in released else estimate


BY_X, BY_Y = Estimate("grad_x", "gx", "dx"), Estimate("grad_y", "gy", "dy")


_SMOOTHNESS = (
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].period > 1 and c[0].smoothness is None and c[1].noisy,
        "algorithm.smoothness",
        "missing; differences of gradients are clipped at smoothness times the distance between the points",
        "set a public constant, for example 1.0, or set period = 1",
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].period == 1 and c[0].smoothness is not None,
        "algorithm.smoothness",
        "no effect with period = 1, where every round is an anchor",
        "remove it",
    ),
)


class Estimating(dp.Coordinated, Protocol):
    """Program with estimates that are updated by differences.

    Args:
        period: number of rounds T from one anchor to the next.
        smoothness: constant L in the clipping norm of a difference.
        rate: rate q of the Poisson samples.
    """

    period: int
    smoothness: float | None
    rate: float

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        algorithm = super().resolve_defaults(context)
        dp.refuse((self, context), _SMOOTHNESS)
        return algorithm

    def estimate_query(
        self, t: int, context: dp.MinimaxContext, estimate: Estimate, point: Point, previous: Point
    ) -> tuple[str, dp.ClippedQuery]:
        """Query a term at an anchor, and its change since the previous point, clipped to τ, in other rounds.

        Args:
            t: round.
            context: public facts of the run.
            estimate: term and its channels.
            point: current point.
            previous: previous point.

        Returns:
            The channel of the release, and the query.
        """
        if t % self.period == 0:
            return estimate.anchor, context.query(estimate.term, *point, self.rate)
        # τ, or the largest distance between two clipped contributions at these points, if that is less.
        bound = min(threshold(self.smoothness, point, previous), distance(context, estimate.term, point, previous))
        return estimate.change, context.query(estimate.term, *point, self.rate, previous, bound)

    def released_estimate(
        self,
        t: int,
        context: dp.MinimaxContext,
        s: Any,
        estimate: Estimate,
        last: dp.Array,
        point: Point,
        previous: Point,
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Query a mean or its change, release it, and update the estimate, which is unchanged if no record is read.

        Args:
            t: round.
            context: public facts of the run.
            s: state, for programs whose clipping norms depend on it.
            estimate: the term and its channels.
            last: previous estimate, (width of the term,).
            point: current point.
            previous: previous point.

        Returns:
            The next estimate, of the same shape.
        """
        if not context.reads(estimate.term):
            yield dp.Release()
            return last
        channel, query = self.estimate_query(t, context, estimate, point, previous)
        released = yield from self._release_mean(context, s, channel, query)
        # The noise is part of the release. Noise added to the sum afterwards would reveal low bits.
        return np.asarray(released if channel == estimate.anchor else last + released)

    def _release_mean(
        self, context: dp.MinimaxContext, s: Any, channel: str, query: dp.ClippedQuery
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Release the mean that answers a query. As-published programs clip it by the state s."""
        mean = (yield dp.Ask(mean=query)).mean
        released: dp.Array = (yield dp.Release(**{channel: mean})).released[channel][0]
        return released


def plan_estimates(
    context: dp.MinimaxContext,
    period: int,
    indices: Mapping[Estimate, NDArray[np.int64]],
    rate: float,
    share: float = 1.0,
) -> dict[str, dp.Part]:
    """Plan the anchors and differences of the estimates that read records, with half of the share for the anchors.

    Args:
        context: public facts of the run.
        period: number of rounds T from one anchor to the next; the anchors have the whole share if there are no
            differences.
        indices: indices of the releases of each estimate, (rounds,).
        rate: rate of the Poisson samples.
        share: share of Σμ² of each estimate, relative to other parts, default 1.

    Returns:
        Map from each channel to its releases.
    """
    parts = {}
    for estimate, numbers in indices.items():
        if context.reads(estimate.term):
            width, is_anchor = context.problem.width(estimate.term), np.arange(numbers.size) % period == 0
            anchor_share = share if is_anchor.all() else ANCHORS * share
            parts[estimate.anchor] = dp.Part(numbers[is_anchor], width, share=anchor_share, rate=rate)
            parts[estimate.change] = dp.Part(numbers[~is_anchor], width, share=(1.0 - ANCHORS) * share, rate=rate)
    return parts


def threshold(smoothness: float | None, point: Point, previous: Point) -> float:
    """Compute τ = L ‖point − previous‖₂ over x and y, a bound on the change of an L-smooth gradient.

    It is 0 if a point is not finite. In that case zeros are released, because an error would depend on released values.
    """
    with np.errstate(all="ignore"):
        difference = np.concatenate([a - b for a, b in zip(point, previous, strict=True)])
        bound = (smoothness or 0.0) * float(np.linalg.norm(difference))
    return bound if math.isfinite(bound) else 0.0


def distance(context: dp.MinimaxContext, term: str, point: Point, previous: Point) -> float:
    """Compute the largest distance between two vectors in a term's balls at two public points."""
    now, then = context.ball(term, *point), context.ball(term, *previous)
    width = context.problem.width(term)
    centres = [np.zeros(width) if ball.centre is None else ball.centre for ball in (now, then)]
    return now.radius + then.radius + float(np.linalg.norm(centres[0] - centres[1]))
