"""What the SPIDER programs share: how far a change may go, and steps of bounded length."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from decentral_dp.algorithms.coordinator_minimax.spider_schedule import Point, distance
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.participants.minimax_context import MinimaxContext
from decentral_dp.problems.minimax.protocol import Compositional, Known


def reach(ball: Known) -> float:
    """How long a vector in a ball can be."""
    return ball.radius + (0.0 if ball.centre is None else float(np.linalg.norm(ball.centre)))


def inner_bound(context: MinimaxContext, here: Point, before: Point) -> float:
    """How far "inner" of a record moves between two points where its clipped derivatives are its derivatives."""
    by_x = max(reach(context.ball("inner_x", *point)) for point in (here, before))
    by_y = max(reach(context.ball("inner_y", *point)) for point in (here, before))
    away = [float(np.linalg.norm(one - other)) for one, other in zip(here, before, strict=True)]
    found = by_x * away[0] + by_y * away[1]
    return min(found, distance(context, "inner", here, before)) if math.isfinite(found) else 0.0


def composed(context: MinimaxContext, y: Array, inner: Array, inner_x: Array, inner_y: Array) -> tuple[Array, Array]:
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
    return cast(Compositional, context.problem).outer(y, inner, inner_x, inner_y)


def shortened(size: float, longest: float | None, direction: Array) -> float:
    """min{size, longest/‖direction‖}: the step size with which no step is longer than that."""
    if longest is None:
        return size
    length = float(np.linalg.norm(direction))
    return size if not length * size > longest else longest / length


def check_one_clip(context: MinimaxContext, kind: str) -> None:
    """Both gradients are one vector with one clip. Raises InputError."""
    if context.noisy and not math.isfinite(context.clip.bound("x")):
        raise InputError(
            "privacy.clip.x: missing. Nothing else bounds what one record adds to the gradient by x and y; give for "
            "example clip.x = 1.0."
        )
    if math.isfinite(context.clip.bound("y")):
        raise InputError(
            f"privacy.clip.y: {kind} clips the gradient by x and y as one vector, to clip.x. Leave it out."
        )


def joint_step(
    context: MinimaxContext, released: Array, x: Array, y: Array, t: int, size: StepSize, size_y: StepSize | None
) -> tuple[Array, Array]:
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
