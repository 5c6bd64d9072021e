"""A minimax program that first releases the share of positive records, and then uses it as a public constant.

    p̂ = clip((number of positive records)/n + noise, p_min, 1 − p_min),    p_min = 0.01

is released before round 0, from all records. Every later query contains p̂, and the agents use it as the share of
positive records in f.

The guarantee holds for every record of every agent. One record changes the share by 1/n. The release has 2 % of Σμ²,
where a release on a Poisson sample of rate q counts q²μ², about its privacy cost. (With a counted, noiseless share, one
record would change all gradients by up to 7 times 2C, without a certified ε.)

The objective is the two-class objective of AUC maximisation, with a released instead of a declared constant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, cast

import numpy as np

from decentral_dp.algorithms.plans import Wrapper
from decentral_dp.central import vocabulary as dp

# p_min, and the share of Σμ².
_LEAST, _BUDGET = 0.01, 0.02


class ClassShareState(NamedTuple):
    """The public state.

    Args:
        inner: state of the program.
        share: p̂, (1,), one half before it is released.
    """

    inner: Any
    share: dp.Array


@dataclass(frozen=True)
class ClassShare(Wrapper, dp.Coordinated):
    """Wrapper around a program for a problem with the term "positive".

    Args:
        program: inner program.
    """

    program: dp.Coordinated

    @property
    def protocol(self) -> str:
        return self.program.protocol

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
            released = (yield dp.Release(share=(yield dp.Ask(share=query)).share)).released
            share = np.clip(released.share[0], _LEAST, 1.0 - _LEAST)
        else:
            yield dp.Release()
        # A problem with the term "positive" has this parameter.
        problem = cast(Any, context.problem).with_parameters(share)
        context = replace(context, problem=problem, parameters=share)
        return ClassShareState((yield from self.program.step(t, context, s.inner)), share)

    def published(self, s: ClassShareState) -> dict[str, dp.Array]:
        return {**self.program.published(s.inner), "share": s.share}

    def planned_releases(self, context: dp.MinimaxContext, rounds: int) -> dict[str, dp.Charge]:
        inner = self.program.planned_releases(context, rounds)
        squares = sum(float(((c.rate.get("train", 1.0) * c.weight["train"]) ** 2).sum()) for c in inner.values())
        weight = np.full(1, np.sqrt(_BUDGET / (1.0 - _BUDGET) * squares))
        first = dp.Charge("gaussian", 1, np.ones(1, dtype=np.int64), {"train": weight})
        # In every round the share is released before the program's releases.
        delay = {name: (c.indices - 1) // self.program.releases_per_round + 1 for name, c in inner.items()}
        return {"share": first} | {name: c._replace(indices=c.indices + delay[name]) for name, c in inner.items()}
