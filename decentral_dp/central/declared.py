"""A coordinator's algorithms that state what they release, and what every coordinator shares before there is a job.

Such an algorithm states the terms that it asks for, and how each round's budget is shared among them:

    QUERIES = ("grad_x", "grad_y")
    SHARES = {"grad_x": 0.5, "grad_y": 0.5}      equal ones if left out

    def init(self, context, x, y): ...           (p,) and (q,)
    def step(self, t, context, s): ...           calls `release_gradients`, as often as `releases_per_round` says

Limits: as of `algorithms.plans`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decentral_dp.algorithms.entry import AUC, Rules
from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.bounded import Array
from decentral_dp.central import programs
from decentral_dp.central.context import CoordinatorContext, MinimaxContext
from decentral_dp.exchange import Ask, Bundle, Release, Request, Response

# Channel of a release → the term of a minimax problem that it is the mean of; other means are released by their names.
MINIMAX_CHANNELS = {"gx": "grad_x", "gy": "grad_y", "dual": "dual"}
_CHANNEL_OF = {term: channel for channel, term in MINIMAX_CHANNELS.items()}
# Short names of what is returned.
_SHORT_NAMES = {"grad_x": "x", "grad_y": "y"}


def release_gradients(
    t: int,
    context: CoordinatorContext | MinimaxContext,
    queries: Sequence[str],
    x: Array,
    y: Array,
    rate: float = 1.0,
    along: Array | None = None,
) -> Generator[Request, Response, Bundle]:
    """Ask all agents for the means of these terms at one public point, and release them with noise.

    Args:
        t: the round.
        context: what the coordinator knows.
        queries: terms, of `problems.protocol` or `problems.saddle`.
        x: (p,), public.
        y: (q,), public.
        rate: below 1, of one Poisson sample that all these terms read.
        along: (q,) vector of lower_hvp and lower_jvp.

    Returns:
        Term → its gradient, (d,): the released mean, with the data-independent part. grad_x and grad_y are also there
        as x and y.
    """
    read = [term for term in queries if context.reads(term)]
    questions = {_channel(term): context.question(term, x, y, along, rate) for term in read}
    noised = (yield Release(**(yield Ask(**questions)))).released
    out = {}
    for term in queries:
        public = context.public(term, x, y, along, t)
        out[term] = np.asarray(public + noised[_channel(term)][0]) if term in read else public
    return Bundle(out | {_SHORT_NAMES[term]: value for term, value in out.items() if term in _SHORT_NAMES})


def _channel(term: str) -> str:
    return _CHANNEL_OF.get(term, term)


@dataclass(frozen=True)
class DeclaredCoordinator(Wrapper, programs.Coordinated):
    """A coordinator's algorithm with its plan derived."""

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(self.program.QUERIES)

    @property
    def releases_per_round(self) -> int:
        return int(getattr(self.program, "releases_per_round", 1))

    def published(self, s: Any) -> Mapping[str, Array]:
        publish = getattr(self.program, "published", super().published)
        return dict(publish(s))

    def planned_releases(self, context: Any, rounds: int) -> dict[str, programs.Charge]:
        """One price for all rounds, each round's μ² shared among the terms that read records."""
        shares: Mapping[str, float] = getattr(self.program, "SHARES", {})
        rate, positions = float(getattr(self.program, "rate", 1.0)), range(self.releases_per_round)
        parts = {
            _channel(term): programs.Part(
                positions, context.width(term), (context.split_of(term),), shares.get(term, 1.0), rate
            )
            for term in self.queries
            if context.reads(term)
        }
        return programs.gaussian_charges(rounds, self.releases_per_round, parts)


BILEVEL = Rules(
    is_coordinated=True,
    trust="a trusted coordinator",
    graph="star",
    complete=DeclaredCoordinator,
    domain=True,
    unscored_note="The records are with their agents (problem.manifest), and scores of them are left out.",
)
MINIMAX = BILEVEL._replace(
    domain=False, solves="minimax", example=AUC | {"clip": "clip.x = 1.0\nclip.y = 1.0"}, priced_on_cpu=True
)
