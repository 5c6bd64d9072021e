"""What programs have in common that release x once, as a draw from a law that the records shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from decentral_dp.central import vocabulary as dp
from decentral_dp.central.bilevel.second_order_dp_bilevel import bounds_of
from decentral_dp.central.exponential_samplers import Box
from decentral_dp.central.pooled import PooledBounds
from decentral_dp.central.selection import FiniteExponential, Function, SelectionBounds, candidates, per_axis

_INDEX = np.array([1])


class DrawState(NamedTuple):
    """x: (p,) what is public."""

    x: dp.Array


class SingleDraw(dp.Coordinated):
    """A program whose only release is one draw of x, by records that the coordinator holds.

    Args:
        name: its kind, as messages call it.
    """

    name: ClassVar[str]
    needs_constants = needs_records = pure = needs_domain = True

    def init(self, context: dp.CoordinatorContext) -> DrawState:
        return DrawState(context.start("x", self.start))

    def check_once(self, context: dp.CoordinatorContext) -> None:
        """Refuse more rounds than one, and a domain that is not compact. Raises InputError."""
        if context.rounds != 1:
            raise dp.InputError(
                f"algorithm.rounds: got {context.rounds}, but {self.name} is one draw of x, and a second would have to "
                "share its budget; set rounds = 1."
            )
        context.domain.require_compact(self.name)

    def box(self, context: dp.CoordinatorContext) -> Box:
        """The domain."""
        return Box(*context.domain.corners(context.problem.p))


@dataclass(frozen=True)
class ScoredDraw(SingleDraw):
    """A draw with P(x) ∝ exp(−score(x)/scale), among candidates.

    Args:
        candidates: along each axis.
    """

    candidates: int | None = dp.count_option("candidates along each axis; settled by default", "points", "65")

    @staticmethod
    def facts(bounds: PooledBounds, low: dp.Array, high: dp.Array) -> SelectionBounds:
        """What is public of the score on the box [low, high], each (p,)."""
        raise NotImplementedError

    def resolve_defaults(self, context: dp.CoordinatorContext) -> tuple[Self, dp.CoordinatorContext]:
        self.check_once(context)
        self.law(context, no_score)
        return replace(self, candidates=self.candidates or per_axis(context.problem.p)), context

    def law(self, context: dp.CoordinatorContext, score: Function) -> FiniteExponential:
        """The exponential mechanism of a score. Raises InputError for candidates that do not fit the domain."""
        facts = self.facts(bounds_of(context), *context.domain.corners(context.problem.p))
        return FiniteExponential(facts, candidates(context.domain, context.problem.p, self.candidates), score)

    def planned_releases(self, context: dp.CoordinatorContext, rounds: int) -> dict[str, dp.Charge]:
        return charge(self.law(context, no_score))


def pure_draw_entry(algorithm: type[SingleDraw], cited: str, example: Mapping[str, str]) -> dp.Entry:
    """The entry of a draw that adds no Gaussian noise, from a domain of x. cited: what it takes from Lowy & Liu."""
    citations = (dp.Citation(cited, "lowy2025differentially"),)
    example = {"rounds": "1", **example}
    return dp.Entry(algorithm.name, algorithm, citations, example=example)


def release_draw(selection: dp.SelectionMechanism) -> dp.CoordinatorSteps[DrawState]:
    """Release a draw."""
    released = yield dp.Release(x=selection)
    return DrawState(released.released.x[0])


def charge(selection: dp.SelectionMechanism, reason: str = "") -> dict[str, dp.Charge]:
    """One release. Every kind of records may cost the whole target: each is compared with its own neighbours."""
    weight = {kind: np.ones(1) for kind in selection.sensitivity}
    return {"x": dp.Charge(selection.mechanism, selection.width, _INDEX, weight, {}, selection.distortion, reason)}


def no_score(points: dp.Array) -> dp.Array:
    """Stand for a score of (n, p) points where only prices are wanted. Raises ValueError."""
    raise ValueError("there are no records yet")
