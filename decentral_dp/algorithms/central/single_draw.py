"""What programs have in common that release x once, as a draw from a law that the records shape."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

import numpy as np

from decentral_dp.algorithms.central.protocol import Calibration, Charge
from decentral_dp.algorithms.central.second_order import bounds_of
from decentral_dp.errors import InputError
from decentral_dp.exchange import Lottery, Publish, Request, Response
from decentral_dp.privacy.cells import Box
from decentral_dp.privacy.granular import Granular
from decentral_dp.privacy.sensitivity import Array, Kind
from decentral_dp.problems.desk import Desk
from decentral_dp.problems.lotteries import Candidates, Continuum, Function, Score, candidates

_FIRST = np.array([1])
# How a point is found where a grid of candidates is not the only way.
METHODS = ("grid", "cells")


class State(NamedTuple):
    """x: (p,) what is public."""

    x: Array


def constants_of(desk: Desk) -> Granular:
    """For the whole domain."""
    return bounds_of(desk).family.constants(*desk.domain.corners(desk.problem.p))


def check_once(desk: Desk, kind: str) -> None:
    """Raises InputError for more rounds than one, and for a domain that is not compact."""
    if desk.rounds != 1:
        raise InputError(
            f"algorithm.rounds: got {desk.rounds}, but {kind} is one draw of x, and a second would have to share its "
            "budget; set rounds = 1."
        )
    check_compact(desk, kind)


def check_compact(desk: Desk, kind: str) -> None:
    if not desk.domain.compact:
        raise InputError(
            f"algorithm.domain: {kind} draws x from a bounded set; give for example "
            '{ kind = "box", low = -5.0, high = 0.0 }.'
        )


def box_of(desk: Desk, kind: str) -> Box:
    """Raises InputError where the domain is no box."""
    if desk.domain.kind != "box":
        raise InputError(
            f'algorithm.domain: {kind} draws from a box, and this is a {desk.domain.kind}; give {{ kind = "box", '
            "low = …, high = … }."
        )
    return Box(*desk.domain.corners(desk.problem.p))


def law_of(desk: Desk, kind: str, facts: Score, score: Function, method: str, count: int | None) -> Lottery:
    """The exponential mechanism of a score, over candidates ("grid") or the box ("cells").

    Raises InputError for a method that is unknown, or does not fit the domain.
    """
    if method not in METHODS:
        raise InputError(f"algorithm.method: no method {method!r} of {kind}; there are {', '.join(METHODS)}.")
    if method == "grid":
        return Candidates(facts, candidates(desk.domain, desk.problem.p, count), score)
    if count is not None:
        raise InputError('algorithm.candidates: "cells" draws from the whole box and takes none; leave them out.')
    if desk.problem.p > 3:
        raise InputError(
            f'algorithm.method: "cells" goes up to 3 upper variables, and this problem has {desk.problem.p}; take '
            'another problem, or "second_order_dp_bilevel".'
        )
    return Continuum(facts, box_of(desk, kind), score)


def drawn(lottery: Lottery) -> Generator[Request, Response, State]:
    """Publish a draw."""
    told = yield Publish(x=lottery)
    return State(told.own.x[0])


def charge(lottery: Lottery, reason: str = "") -> dict[str, Charge]:
    """One release. Every kind of records may cost the whole target: each is compared with its own neighbours."""
    weight = {kind: np.ones(1) for kind in lottery.sensitivity}
    return {"x": Charge(lottery.mechanism, lottery.width, _FIRST, weight, {}, lottery.distortion, reason)}


def calibration(lottery: Lottery, scale: float) -> dict[str, Calibration]:
    """A published scale, and what it really meets."""
    moved: Mapping[Kind, float] = lottery.sensitivity
    return {"x": Calibration(np.array([scale]), {kind: np.array([s]) for kind, s in moved.items()})}


def printed_records(desk: Desk) -> int:
    """n of a published formula, which knows one set of records: the smaller count, by which it adds more noise."""
    return min(desk.counts.values())


def no_score(points: Array) -> Array:
    """Stands for a score where only prices are wanted. Raises ValueError."""
    raise ValueError("there are no records yet")
