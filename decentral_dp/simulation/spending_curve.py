"""Which rounds are evaluated, and the ε that is spent by then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from decentral_dp.privacy.accounting.accountants import epsilon_of, spending
from decentral_dp.privacy.ledger import IntArray
from decentral_dp.privacy.released_again import released_again
from decentral_dp.simulation.jobs import GossipJob, Job
from decentral_dp.simulation.metrics import Row

# At most so many points of the spent-epsilon curve: each is a full pricing.
_CURVE_POINTS = 25
SPENT = "epsilon_spent"


def evaluated_rounds(rounds: int, every: int) -> list[int]:
    return sorted({*range(0, rounds + 1, every), rounds})


def priced(rows: Sequence[Row], spent: Mapping[int, float]) -> list[Row]:
    """What was measured, with ε spent at the rounds that are priced now: a longer run has others than a shorter."""
    out = []
    for number, measured in itertools.groupby(rows, key=lambda row: row[0]):
        out += [row for row in measured if row[2] != SPENT]
        if number in spent:
            out.append((number, "mean", SPENT, spent[number]))
    return out


def spent_after(job: Job, evaluation_rounds: Sequence[int]) -> dict[int, float]:
    """Epsilon spent by the worst agent after each evaluated round, from the plan: a public number."""
    worst = np.array([int(np.argmax(job.budget.epsilon))])
    stride = max(1, math.ceil(len(evaluation_rounds) / _CURVE_POINTS))
    chosen = sorted({*evaluation_rounds[::stride], evaluation_rounds[-1]})
    if isinstance(job, GossipJob) and job.windows:
        return {t: float(_spent_again(job, worst, t)) for t in chosen}
    spent = spending(job.ledger.only(worst), job.scenario.privacy.delta, chosen)
    return dict(zip(chosen, spent.tolist(), strict=True))


def _spent_again(job: GossipJob, worst: IntArray, t: int) -> float:
    """ε spent after a round by one agent: what was in flight is out as soon as the run has gone on from its state."""
    course = job.course.only(worst)
    out = released_again(course.until(t), course, [w for w in job.windows if w.first <= t])
    return float(epsilon_of(out, job.scenario.privacy.delta)[0])
