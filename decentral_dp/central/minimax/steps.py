"""What minimax programs share: their questions, what is read from the replies, and estimates that differences carry on.

Every `period` rounds such an estimate is released afresh, at an anchor; in the rounds between, the change of the same
records' mean since the last evaluated point is released and added. Which rounds are anchors is decided before the run:
events that depend on what was released cost more than the most expensive of the fixed schedules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.vocabulary import MINIMAX_CHANNELS
from decentral_dp.problems.saddle import PublicBall


class Iterate(NamedTuple):
    """x: (p,), y: (q,): public."""

    x: dp.Array
    y: dp.Array

    @classmethod
    def start(cls, context: dp.MinimaxContext, constants: Mapping[str, float]) -> Iterate:
        return cls(context.start("x", constants), context.start("y", constants))


def questions(
    context: dp.MinimaxContext, channels: Sequence[str], x: dp.Array, y: dp.Array, rate: float
) -> dict[str, dp.ClippedQuery]:
    """Ask for the terms of these channels at a public point.

    Args:
        context: what the coordinator knows.
        channels: keys of `declared.MINIMAX_CHANNELS`.
        x: (p,), public.
        y: (q,), public.
        rate: of the Poisson sample; 1 for all records.

    Returns:
        Channel → its question, for those whose terms read records.
    """
    terms = {c: MINIMAX_CHANNELS[c] for c in channels if context.reads(MINIMAX_CHANNELS[c])}
    return {c: context.query(term, x, y, rate) for c, term in terms.items()}


def released_gradient(
    context: dp.MinimaxContext, released: dp.Bundle, channel: str, x: dp.Array, y: dp.Array, t: int
) -> dp.Array:
    """Compute ∇F by one variable: what was released of the records' part, plus the data-independent part.

    Args:
        context: what the coordinator knows.
        released: channel → (1, d) what left.
        channel: a key of `declared.MINIMAX_CHANNELS`.
        x: (p,), public.
        y: (q,), public.
        t: round.

    Returns:
        (d,), d the coordinates of that variable.
    """
    term = MINIMAX_CHANNELS[channel]
    public = context.problem.public(term, x, y, t)
    return np.asarray(public + released[channel][0]) if context.reads(term) else public


def best_response(context: dp.MinimaxContext, released: dp.Bundle) -> dp.Array:
    """The best y at the point that "dual" was asked at, (q,)."""
    # "dual" is among the terms of this problem, so that it has a closed form.
    return np.asarray(cast(Any, context.problem).dual(released["dual"][0]))


def step_of(size: dp.StepSize | None, t: int) -> float:
    """λ_t; 0 without a step size."""
    return 0.0 if size is None else size(t)


def check_solver(solver: str, y: dp.StepSize | None, inner: int | None = None) -> None:
    """Refuse an unknown solver, steps where none are taken, and no step size where some are. Raises InputError."""
    dp.check_choice("solver", solver, ("ascent", "closed_form"))
    for key, option in (("y", y), ("inner", inner)):
        if solver == "closed_form" and option is not None:
            raise dp.InputError(f'algorithm.{key}: "closed_form" takes no steps of y. Leave it out.')
    if solver == "ascent" and y is None:
        raise dp.InputError(
            "algorithm.y: missing. y is found by steps; add for example y = { scale = 0.1, decay = 0.5 }, or take "
            'solver = "closed_form" where the problem has one.'
        )


# A public point (x, y).
Point = tuple[dp.Array, dp.Array]
# Of the budget of anchors and differences together.
ANCHORS = 0.5


class ReleaseBlock(NamedTuple):
    """The releases of one channel in a run.

    indices: (R,), ascending. width: coordinates of one. share: of Σμ², in proportion to other channels', evenly over
    the releases.
    """

    indices: NDArray[np.int64]
    width: int
    share: float


def block_charges(blocks: Mapping[str, ReleaseBlock], rate: float) -> dict[str, dp.Charge]:
    """All on samples of one rate. Channels without a release are left out, and what they would have had with them."""
    charged = {channel: block for channel, block in blocks.items() if block.indices.size}
    total = sum(block.share for block in charged.values())
    return {
        channel: dp.Charge(
            "gaussian",
            block.width,
            block.indices,
            {"train": np.full(block.indices.size, math.sqrt(block.share / (total * block.indices.size)))},
            {"train": rate} if rate < 1.0 else {},
        )
        for channel, block in charged.items()
    }


class SpiderState(NamedTuple):
    """All public. x (p,), y (q,): the iterate; last_x, last_y: of the round before.

    v (p,), u (q,): estimates of the records' parts of the gradients.
    """

    x: dp.Array
    y: dp.Array
    v: dp.Array
    u: dp.Array
    last_x: dp.Array
    last_y: dp.Array

    @classmethod
    def start(cls, context: dp.MinimaxContext, constants: Mapping[str, float]) -> SpiderState:
        x, y = context.start("x", constants), context.start("y", constants)
        return cls(x, y, np.zeros_like(x), np.zeros_like(y), x, y)


class Estimate(NamedTuple):
    """A mean that differences carry on. term: of the problem. anchor, change: channels of either kind of release."""

    term: str
    anchor: str
    change: str

    def next(self, released: dp.Bundle, estimate: dp.Array) -> dp.Array:
        """The estimate after a release: a new one on the channel of anchors, else the last one and its change."""
        if self.anchor in released:
            return np.asarray(released[self.anchor][0])
        return np.asarray(estimate + released[self.change][0]) if self.change in released else estimate


BY_X, BY_Y = Estimate("grad_x", "gx", "dx"), Estimate("grad_y", "gy", "dy")


_SMOOTHNESS = (
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].period > 1 and c[0].smoothness is None and c[1].noisy,
        "algorithm.smoothness",
        "missing; changes of gradients are clipped at smoothness times the distance between points",
        "give a public constant, for example 1.0, or take period = 1",
    ),
    dp.Refusal[tuple[Any, Any]](
        lambda c: c[0].period == 1 and c[0].smoothness is not None,
        "algorithm.smoothness",
        "with period = 1 every round is an anchor, and nothing reads it",
        "leave it out",
    ),
)


class Estimating(dp.Coordinated, Protocol):
    """A program with estimates that differences carry on.

    Args:
        period: T, rounds from one anchor to the next; a field of the program.
        smoothness: L of the clip on a difference; a field of the program.
        rate: q of the samples; a field of the program.
    """

    period: int
    smoothness: float | None
    rate: float

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        """As it is.

        Raises:
            InputError: starts of no variable, and means and differences that nothing bounds.
        """
        resolved = super().resolve_defaults(context)
        dp.refuse((self, context), _SMOOTHNESS)
        return resolved

    def estimate_query(
        self, t: int, context: dp.MinimaxContext, of: Estimate, here: Point, before: Point
    ) -> tuple[str, dp.ClippedQuery]:
        """Ask for a term at an anchor, and for its change since the round before, clipped at τ, in other rounds.

        Args:
            t: round.
            context: what the coordinator knows.
            of: the term and its channels.
            here: the point that is evaluated now.
            before: the point that a change is since.

        Returns:
            The channel that the mean is released on, and the question.
        """
        if is_anchor(t, self.period):
            return of.anchor, context.query(of.term, *here, self.rate)
        # τ, or what two contributions that are clipped at these points can be apart, if less.
        bound = min(threshold(self.smoothness, here, before), distance(context, of.term, here, before))
        return of.change, context.query(of.term, *here, self.rate, before, bound)

    def released_estimate(
        self, t: int, context: dp.MinimaxContext, s: Any, of: Estimate, last: dp.Array, here: Point, before: Point
    ) -> dp.CoordinatorSteps[dp.Array]:
        """Ask for a mean or its change, release it, and carry the estimate on; where no record is read it stays.

        Args:
            t: round.
            context: what the coordinator knows.
            s: the state, for programs that clip by it.
            of: the term and its channels.
            last: (width of the term,) the estimate before.
            here: the point that is evaluated now.
            before: the point that a change is since.

        Returns:
            The next estimate, of the same shape.
        """
        if not context.reads(of.term):
            yield dp.Release()
            return last
        channel, query = self.estimate_query(t, context, of, here, before)
        released = yield from self._release_mean(context, s, channel, query)
        # The noise is in the release: added to the estimate alone, after the difference, it would betray low bits.
        return np.asarray(released if channel == of.anchor else last + released)

    def _release_mean(
        self, context: dp.MinimaxContext, s: Any, channel: str, query: dp.ClippedQuery
    ) -> dp.CoordinatorSteps[dp.Array]:
        """The mean that a question asks for, with noise. s: the state."""
        mean = (yield dp.Ask(mean=query)).mean
        released: dp.Array = (yield dp.Release(**{channel: mean})).released[channel][0]
        return released


def is_anchor(t: int, period: int) -> bool:
    """Whether gradients are estimated anew in round t, and not carried on."""
    return t % period == 0


def split_releases(
    first: NDArray[np.int64], period: int, of: Estimate, width: int, share: float
) -> dict[str, ReleaseBlock]:
    """Divide one block's releases into anchors and differences: half of their share for the anchors.

    Args:
        first: (rounds,) their indices in the rounds 0, 1, ….
        period: T, rounds from one anchor to the next; with one round a period, all is for anchors.
        of: the channels of anchors and of differences.
        width: coordinates of one release.
        share: of Σμ², in proportion to other blocks'.

    Returns:
        Channel → its releases.
    """
    anchored = np.arange(first.size) % period == 0
    whole = share if anchored.all() else ANCHORS * share
    return {
        of.anchor: ReleaseBlock(first[anchored], width, whole),
        of.change: ReleaseBlock(first[~anchored], width, (1.0 - ANCHORS) * share),
    }


def planned_estimates(
    context: dp.MinimaxContext, period: int, first: Mapping[Estimate, NDArray[np.int64]], share: float = 1.0
) -> dict[str, ReleaseBlock]:
    """Plan the anchors and differences of those estimates that read records.

    Args:
        context: what the coordinator knows.
        period: T.
        first: estimate → (rounds,) the indices of its releases.
        share: of Σμ² for each, in proportion to other blocks'; default 1.

    Returns:
        Channel → its releases.
    """
    blocks: dict[str, ReleaseBlock] = {}
    for of, indices in first.items():
        if context.reads(of.term):
            blocks |= split_releases(indices, period, of, context.problem.width(of.term), share)
    return blocks


def threshold(smoothness: float | None, here: Point, before: Point) -> float:
    """τ = L ‖here − before‖₂ over x and y together: what the change of an L-smooth gradient cannot exceed.

    0 where a point is not finite: a release of zeros, and no error that depends on what was released.
    """
    with np.errstate(all="ignore"):
        away = np.concatenate([one - other for one, other in zip(here, before, strict=True)])
        bound = (smoothness or 0.0) * float(np.linalg.norm(away))
    return bound if math.isfinite(bound) else 0.0


def distance(context: dp.MinimaxContext, term: str, here: Point, before: Point) -> float:
    """Compute the largest distance between a vector in the ball at one point and one in the ball at another.

    Args:
        context: what the coordinator knows.
        term: of the problem.
        here: a public point (x, y).
        before: another.
    """
    now, then = context.ball(term, *here), context.ball(term, *before)
    width = context.problem.width(term)
    centres = [np.zeros(width) if ball.centre is None else ball.centre for ball in (now, then)]
    return now.radius + then.radius + float(np.linalg.norm(centres[0] - centres[1]))


def reach(ball: PublicBall) -> float:
    """How long a vector in a ball can be."""
    return ball.radius + (0.0 if ball.centre is None else float(np.linalg.norm(ball.centre)))


def inner_bound(context: dp.MinimaxContext, here: Point, before: Point) -> float:
    """How far "inner" of a record moves between two points where its clipped derivatives are its derivatives."""
    by_x = max(reach(context.ball("inner_x", *point)) for point in (here, before))
    by_y = max(reach(context.ball("inner_y", *point)) for point in (here, before))
    away = [float(np.linalg.norm(one - other)) for one, other in zip(here, before, strict=True)]
    bound = by_x * away[0] + by_y * away[1]
    return min(bound, distance(context, "inner", here, before)) if math.isfinite(bound) else 0.0


def compose_gradients(
    context: dp.MinimaxContext, y: dp.Array, inner: dp.Array, inner_x: dp.Array, inner_y: dp.Array
) -> tuple[dp.Array, dp.Array]:
    """Compute ∇_x F and the direction in which y improves, from estimates of the three means.

    Args:
        context: of a problem that is a function of means.
        y: (q,), public.
        inner: (1,) estimate of the mean of "inner".
        inner_x: (p,) estimate of the mean of "inner_x".
        inner_y: (q,) estimate of the mean of "inner_y".

    Returns:
        (p,) and (q,).
    """
    # "inner" is among the terms of this problem, so that it is a function of means.
    return cast(tuple[dp.Array, dp.Array], cast(Any, context.problem).outer(y, inner, inner_x, inner_y))


def limited_step(size: float, longest: float | None, direction: dp.Array) -> float:
    """min{size, longest/‖direction‖₂}: the step size along a direction (d,) with which no step is longer."""
    if longest is None:
        return size
    length = float(np.linalg.norm(direction))
    return size if not length * size > longest else longest / length


ONE_CLIP = (
    dp.Refusal[dp.MinimaxContext](
        lambda context: context.noisy and not math.isfinite(context.clip.bound("x")),
        "privacy.clip.x",
        "missing; nothing else bounds what one record adds to the gradient by x and y",
        "give for example clip.x = 1.0",
    ),
    dp.Refusal[dp.MinimaxContext](
        lambda context: math.isfinite(context.clip.bound("y")),
        "privacy.clip.y",
        "the gradient by x and y is clipped as one vector, to clip.x",
        "leave it out",
    ),
)
"""Of a program that clips both gradients as one vector."""


def joint_step(
    context: dp.MinimaxContext,
    released: dp.Array,
    x: dp.Array,
    y: dp.Array,
    t: int,
    size: dp.StepSize,
    size_y: dp.StepSize | None,
) -> tuple[dp.Array, dp.Array]:
    """Step x against and y along an estimate of both gradients.

    Args:
        context: what the coordinator knows.
        released: (p + q,) estimate of the records' part; the public parts are added.
        x: (p,).
        y: (q,).
        t: round.
        size: step sizes of x.
        size_y: step sizes of y; None: those of x.

    Returns:
        The next x and y, projected on their sets.
    """
    by_x = released[: x.size] + context.problem.public("grad_x", x, y, t)
    by_y = released[x.size :] + context.problem.public("grad_y", x, y, t)
    up = size if size_y is None else size_y
    return context.problem.project_x(x - size(t) * by_x), context.problem.project_y(y + up(t) * by_y)
