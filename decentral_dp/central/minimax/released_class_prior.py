"""Around a minimax program: the share of positive records is released first, and then taken as the public one.

    p̂ = clip((number of positive records)/n + noise, p_min, 1 − p_min),    p_min = 0.01

before round 0, of all records. Every question after that carries p̂, and the agents take it for the share of positive
records wherever f has one; the program runs as it is.

Whose data: every record of every agent. One record moves the share by 1/n. The release takes 2 % of Σμ², where one on a
Poisson sample of rate q counts q²μ², which is about what it costs. (A share that is counted instead moves all gradients
at once with one record, by up to 7 times 2C: nothing certifies it.)

Reference: the two-class objective of AUC maximisation, "released" beside a declared constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.central import vocabulary as dp

CHANNEL = "share"
# p_min, and the share of Σμ².
LEAST, BUDGET = 0.01, 0.02


class ClassShareState(NamedTuple):
    """inner: of the program. share: (1,) p̂, one half before it is known. All public."""

    inner: Any
    share: dp.Array


@dataclass(frozen=True)
class ClassShare(Wrapper, dp.Coordinated):
    """program: of a problem with the term "positive", to be given its mean."""

    program: dp.Coordinated

    @property
    def protocol(self) -> str:
        return self.program.protocol

    @property
    def needs_constants(self) -> bool:
        return self.program.needs_constants

    @property
    def needs_records(self) -> bool:
        return self.program.needs_records

    @property
    def queries(self) -> tuple[str, ...]:
        return ("positive", *self.program.queries)

    @property
    def releases_per_round(self) -> int:
        return self.program.releases_per_round + 1

    def resolve_defaults(self, context: dp.MinimaxContext) -> tuple[Self, dp.MinimaxContext]:
        program, context = self.program.resolve_defaults(context)
        return replace(self, program=program), context

    def init(self, context: dp.MinimaxContext) -> ClassShareState:
        return ClassShareState(self.program.init(context), np.full(1, 0.5))

    def step(self, t: int, context: dp.MinimaxContext, s: ClassShareState) -> dp.CoordinatorSteps[ClassShareState]:
        share = s.share
        if t == 0:
            query = context.query("positive", context.start("x", {}), context.start("y", {}))
            reply = yield dp.Release(**{CHANNEL: (yield dp.Ask(share=query)).share})
            share = np.clip(reply.released[CHANNEL][0], LEAST, 1.0 - LEAST)
        else:
            yield dp.Release()
        # A problem with the term "positive" has this parameter.
        problem = cast(Any, context.problem).with_parameters(share)
        context = replace(context, problem=problem, parameters=share)
        return ClassShareState((yield from self.program.step(t, context, s.inner)), share)

    def published(self, s: ClassShareState) -> dict[str, dp.Array]:
        return {**self.program.published(s.inner), CHANNEL: s.share}

    def free_channels(self, context: dp.MinimaxContext) -> dict[str, int]:
        return dict(self.program.free_channels(context))

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        inner = self.program.planned_releases(context, rounds)
        squares = sum(float(((c.rate.get("train", 1.0) * c.weight["train"]) ** 2).sum()) for c in inner.values())
        first_release = np.full(1, np.sqrt(BUDGET / (1.0 - BUDGET) * squares))
        first = dp.Charge("gaussian", 1, np.ones(1, dtype=np.int64), {"train": first_release})
        # Release e of round t has one more exchange before it in every round.
        delay = {name: (c.indices - 1) // self.program.releases_per_round + 1 for name, c in inner.items()}
        return {CHANNEL: first} | {name: c._replace(indices=c.indices + delay[name]) for name, c in inner.items()}
