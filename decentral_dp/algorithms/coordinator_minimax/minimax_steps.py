"""What the minimax programs share: their questions, what to read from the replies, and what they must know first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.declared import MINIMAX_CHANNELS
from decentral_dp.problems.minimax.protocol import Dual


class Iterate(NamedTuple):
    """x: (p,), y: (q,): public."""

    x: dp.Array
    y: dp.Array

    @classmethod
    def start(cls, context: dp.MinimaxContext, constants: Mapping[str, float]) -> Iterate:
        return cls(context.start("x", constants), context.start("y", constants))


# How y is found: by steps, or as the best one of a released mean.
SOLVERS = ("ascent", "closed_form")


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
    asked = {c: MINIMAX_CHANNELS[c] for c in channels if context.reads(MINIMAX_CHANNELS[c])}
    return {c: context.query(term, x, y, rate) for c, term in asked.items()}


def one_event(
    context: dp.MinimaxContext, rounds: int, shares: Mapping[str, float], rate: float
) -> dict[str, dp.Charge]:
    """Plan one Release a round, of these channels' means on one sample.

    Args:
        context: what the coordinator knows.
        rounds: of the run.
        shares: channel → of a round's μ².
        rate: of the Poisson sample; 1 for all records.

    Returns:
        Channel → its charge, for those whose terms read records.
    """
    read = {c: share for c, share in shares.items() if context.reads(MINIMAX_CHANNELS[c])}
    width = context.problem.width
    parts = {c: dp.Part((0,), width(MINIMAX_CHANNELS[c]), ("train",), share, rate) for c, share in read.items()}
    return dp.gaussian_charges(rounds, 1, parts)


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


def best(context: dp.MinimaxContext, released: dp.Bundle) -> dp.Array:
    """The best y at the point that "dual" was asked at, (q,)."""
    # "dual" is among the terms of this problem, so that it has a closed form.
    return np.asarray(cast(Dual, context.problem).dual(released["dual"][0]))


def step_of(size: dp.StepSize | None, t: int) -> float:
    return 0.0 if size is None else size(t)


def check_solver(solver: str, y: dp.StepSize | None, inner: int | None = None) -> None:
    """Refuse an unknown solver, steps where none are taken, and no step size where some are. Raises InputError."""
    if solver not in SOLVERS:
        raise dp.InputError(f"algorithm.solver: no solver {solver!r} for y; there are {' and '.join(SOLVERS)}.")
    for key, given in (("y", y), ("inner", inner)):
        if solver == "closed_form" and given is not None:
            raise dp.InputError(f'algorithm.{key}: "closed_form" takes no steps of y. Leave it out.')
    if solver == "ascent" and y is None:
        raise dp.InputError(
            "algorithm.y: missing. y is found by steps; add for example y = { scale = 0.1, decay = 0.5 }, or take "
            'solver = "closed_form" where the problem has one.'
        )
