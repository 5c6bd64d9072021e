"""What programs have in common that release x once, as a draw from a law that the records shape."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol

import numpy as np

from decentral_dp.algorithms.coordinator_bilevel.second_order_dp_bilevel import bounds_of
from decentral_dp.algorithms.coordinator_protocol import Charge
from decentral_dp.bounded import Array
from decentral_dp.constants.problem_constants import ProblemConstants
from decentral_dp.errors import InputError
from decentral_dp.exchange import Release, Request, Response, SelectionMechanism
from decentral_dp.participants.coordinator_context import CoordinatorContext
from decentral_dp.participants.selection import (
    BoxExponential,
    FiniteExponential,
    Function,
    Score,
    candidates,
    per_axis,
)
from decentral_dp.privacy.mechanisms.box_sampler import Box

_FIRST = np.array([1])
# How a point is found where a grid of candidates is not the only way.
METHODS = ("grid", "cells")


class State(NamedTuple):
    """x: (p,) what is public."""

    x: Array


class Drawing(Protocol):
    """A program whose only release is one draw of x."""

    def law(self, context: CoordinatorContext, score: Function) -> SelectionMechanism: ...


def begin(program: Any, context: CoordinatorContext) -> State:
    """`init` of a program that draws x once."""
    return State(context.start("x", program.start))


def publish_draw(program: Any, s: State) -> dict[str, Array]:
    """`published` of a program that draws x once."""
    return {"x": s.x}


def price_of_draw(program: Drawing, context: CoordinatorContext, rounds: int) -> dict[str, Charge]:
    """`planned_releases` of a program that draws x once."""
    return charge(program.law(context, no_score))


def resolve_candidates(context: CoordinatorContext, method: str, count: int | None) -> int | None:
    """As many candidates along each axis of a grid as given, or as usual; "cells" takes none."""
    return per_axis(context.problem.p) if method == "grid" and count is None else count


def constants_of(context: CoordinatorContext) -> ProblemConstants:
    """For the whole domain."""
    return bounds_of(context).family.constants(*context.domain.corners(context.problem.p))


def check_once(context: CoordinatorContext, kind: str) -> None:
    """Raises InputError for more rounds than one, and for a domain that is not compact."""
    if context.rounds != 1:
        raise InputError(
            f"algorithm.rounds: got {context.rounds}, but {kind} is one draw of x, and a second would have to share "
            "its budget; set rounds = 1."
        )
    check_compact(context, kind)


def check_compact(context: CoordinatorContext, kind: str) -> None:
    if not context.domain.compact:
        raise InputError(
            f"algorithm.domain: {kind} draws x from a bounded set; give for example "
            '{ kind = "box", low = -5.0, high = 0.0 }.'
        )


def box_of(context: CoordinatorContext, kind: str) -> Box:
    """Raises InputError where the domain is no box."""
    if context.domain.kind != "box":
        raise InputError(
            f'algorithm.domain: {kind} draws from a box, and this is a {context.domain.kind}; give {{ kind = "box", '
            "low = …, high = … }."
        )
    return Box(*context.domain.corners(context.problem.p))


def law_of(
    context: CoordinatorContext, kind: str, facts: Score, score: Function, method: str, count: int | None
) -> SelectionMechanism:
    """The exponential mechanism of a score, over candidates ("grid") or the box ("cells").

    Raises InputError for a method that is unknown, or does not fit the domain.
    """
    if method not in METHODS:
        raise InputError(f"algorithm.method: no method {method!r} of {kind}; there are {', '.join(METHODS)}.")
    if method == "grid":
        return FiniteExponential(facts, candidates(context.domain, context.problem.p, count), score)
    if count is not None:
        raise InputError('algorithm.candidates: "cells" draws from the whole box and takes none; leave them out.')
    if context.problem.p > 3:
        raise InputError(
            f'algorithm.method: "cells" goes up to 3 upper variables, and this problem has {context.problem.p}; take '
            'another problem, or "second_order_dp_bilevel".'
        )
    return BoxExponential(facts, box_of(context, kind), score)


def drawn(selection: SelectionMechanism) -> Generator[Request, Response, State]:
    """Release a draw."""
    released = yield Release(x=selection)
    return State(released.released.x[0])


def charge(selection: SelectionMechanism, reason: str = "") -> dict[str, Charge]:
    """One release. Every kind of records may cost the whole target: each is compared with its own neighbours."""
    weight = {kind: np.ones(1) for kind in selection.sensitivity}
    return {"x": Charge(selection.mechanism, selection.width, _FIRST, weight, {}, selection.distortion, reason)}


def no_score(points: Array) -> Array:
    """Stands for a score where only prices are wanted. Raises ValueError."""
    raise ValueError("there are no records yet")
