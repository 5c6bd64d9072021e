"""What the minimax programs share: their questions, what to read from the replies, and what they must know first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from decentral_dp.algorithms.protocol import Charge, Part, StepSize, gaussian_charges
from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle, ClippedQuery
from decentral_dp.participants.minimax_context import MinimaxContext
from decentral_dp.problems.minimax.protocol import Dual


class Iterate(NamedTuple):
    """x: (p,), y: (q,): public."""

    x: Array
    y: Array

    @classmethod
    def start(cls, context: MinimaxContext, constants: Mapping[str, float]) -> Iterate:
        return cls(context.start("x", constants), context.start("y", constants))


# Channel of a release → the term that it is the mean of.
CHANNELS = {"gx": "grad_x", "gy": "grad_y", "dual": "dual"}
# How y is found: by steps, or as the best one of a released mean.
SOLVERS = ("ascent", "closed_form")


def questions(
    context: MinimaxContext, channels: Sequence[str], x: Array, y: Array, rate: float
) -> dict[str, ClippedQuery]:
    """Ask for the terms of these channels at a public point.

    Args:
        context: what the coordinator knows.
        channels: keys of `CHANNELS`.
        x: (p,), public.
        y: (q,), public.
        rate: of the Poisson sample; 1 for all records.

    Returns:
        Channel → its question, for those whose terms read records.
    """
    asked = {c: CHANNELS[c] for c in channels if context.reads(CHANNELS[c])}
    return {c: context.query(term, x, y, rate) for c, term in asked.items()}


def one_event(context: MinimaxContext, rounds: int, shares: Mapping[str, float], rate: float) -> dict[str, Charge]:
    """Plan one Release a round, of these channels' means on one sample.

    Args:
        context: what the coordinator knows.
        rounds: of the run.
        shares: channel → of a round's μ².
        rate: of the Poisson sample; 1 for all records.

    Returns:
        Channel → its charge, for those whose terms read records.
    """
    read = {c: share for c, share in shares.items() if context.reads(CHANNELS[c])}
    width = context.problem.width
    parts = {c: Part((0,), width(CHANNELS[c]), ("train",), share, rate) for c, share in read.items()}
    return gaussian_charges(rounds, 1, parts)


def released_gradient(context: MinimaxContext, released: Bundle, channel: str, x: Array, y: Array, t: int) -> Array:
    """Compute ∇F by one variable: what was released of the records' part, plus the data-independent part.

    Args:
        context: what the coordinator knows.
        released: channel → (1, d) what left.
        channel: a key of `CHANNELS`.
        x: (p,), public.
        y: (q,), public.
        t: round.

    Returns:
        (d,), d the coordinates of that variable.
    """
    term = CHANNELS[channel]
    public = context.problem.public(term, x, y, t)
    return np.asarray(public + released[channel][0]) if context.reads(term) else public


def best(context: MinimaxContext, released: Bundle) -> Array:
    """The best y at the point that "dual" was asked at, (q,)."""
    # "dual" is among the terms of this problem, so that it has a closed form.
    return np.asarray(cast(Dual, context.problem).dual(released["dual"][0]))


def step_of(size: StepSize | None, t: int) -> float:
    return 0.0 if size is None else size(t)


def check_solver(solver: str, y: StepSize | None, inner: int | None = None) -> None:
    """Refuse an unknown solver, steps where none are taken, and no step size where some are. Raises InputError."""
    if solver not in SOLVERS:
        raise InputError(f"algorithm.solver: no solver {solver!r} for y; there are {' and '.join(SOLVERS)}.")
    for key, given in (("y", y), ("inner", inner)):
        if solver == "closed_form" and given is not None:
            raise InputError(f'algorithm.{key}: "closed_form" takes no steps of y. Leave it out.')
    if solver == "ascent" and y is None:
        raise InputError(
            "algorithm.y: missing. y is found by steps; add for example y = { scale = 0.1, decay = 0.5 }, or take "
            'solver = "closed_form" where the problem has one.'
        )
