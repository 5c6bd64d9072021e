"""A rehearsal of an algorithm from outside: its first rounds on made-up records, before anything real is read by it.

What it then releases must be what it plans, which is what the budget is the price of. No record is used, and nothing
of a rehearsal is kept.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.data import Shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.user_code import USER_ERRORS, reason

_PACKAGE = str(Path(__file__).parent.parent) + "/"
# Enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2


def rehearse(job: Any, records_of: Callable[[Shards], Any]) -> None:
    """Run the first rounds on made-up records, and compare what is recorded with what is planned.

    Args:
        job: complete.
        records_of: records of shards as the job's problem reads them.

    Raises:
        InputError: where the algorithm does not run, or releases something else than it plans.
    """
    rounds, kind = min(ROUNDS, job.rounds), job.scenario.algorithm.kind
    if rounds == 0:
        return
    rehearsed = replace(
        job, records=records_of(_made_up(job.shards)), rounds=rounds, _root=seeded_root(0, b"rehearsal")
    )
    try:
        recorded = rehearsed.start(LocalEngine(), [], lambda _: False).ledger
    except InputError:
        raise
    except (*USER_ERRORS, StopIteration) as error:
        raise InputError(f"algorithm.kind: {kind} does not run: {_what(error)}; nothing was run. Mend it.") from error
    planned = job.ledger.until(rounds)
    if not job.covers(recorded):
        raise InputError(
            f"algorithm.kind: {kind} releases something else than it plans: {_difference(recorded, planned)}; nothing "
            "was run. Mend what it states that it releases, or its step."
        )


def _made_up(shards: Shards) -> Shards:
    """As many records, of the same shape and within the same bounds, of public random numbers."""
    generator = np.random.Generator(np.random.Philox(key=0))
    n, d = shards.features.shape
    # Below 1 in every norm.
    features = generator.uniform(0.0, 1.0 / d, (n, d))
    if shards.trajectory is not None:
        # Where records are trajectories, labels say how many steps each has.
        labels: Any = np.full(n, shards.trajectory[0])
        return replace(shards, features=np.zeros((n, d)), labels=labels.astype(shards.labels.dtype))
    # Class numbers, or numbers below 1.
    drawn = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(drawn) if shards.classes else drawn
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def _what(error: BaseException) -> str:
    """What went wrong, in words."""
    # It was caught where the rehearsal was begun, so that all frames are below.
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "scheduled_releaser.py":
        return f"it releases {error.args[0]}, and plans none"
    # The innermost line that is neither this package's nor another's.
    outside = [f for f in frames if not f.filename.startswith(_PACKAGE) and "/site-packages/" not in f.filename]
    outside = [f for f in outside if "/lib/python" not in f.filename]
    place = f", in line {outside[-1].lineno} of {outside[-1].filename}" if outside else ""
    return f"{reason(error)}{place}"


def _difference(recorded: Ledger, planned: Ledger) -> str:
    """The first difference, in words."""
    mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (recorded, planned))
    for name in mine.keys() - theirs.keys():
        return f"it releases {name}, and plans none"
    for name in theirs.keys() - mine.keys():
        return f"it plans to release {name}, and does not"
    for name, made in mine.items():
        plan = theirs[name]
        if made.mechanism != plan.mechanism:
            return f"{name} is planned as {plan.mechanism} and released as {made.mechanism}"
        if made.dimension != plan.dimension:
            return f"{name} is planned with {plan.dimension} numbers and released with {made.dimension}"
        if made.mechanism != "free" and not np.array_equal(made.rounds, plan.rounds):
            return f"{name} is planned at the indices {plan.rounds.tolist()} and released at {made.rounds.tolist()}"
        for split in made.sensitivity.keys() | plan.sensitivity.keys():
            most = [
                float(c.sensitivity[split].max(initial=0.0)) if split in c.sensitivity else 0.0 for c in (made, plan)
            ]
            if not math.isclose(most[0], most[1], rel_tol=1e-9):
                return f"one {split} record moves {name} by up to {most[0]:.6g}, and {most[1]:.6g} is planned"
    return "rates, groups or prices of the same releases differ"
