"""A rehearsal of a component from outside: the first rounds on made-up records, before it reads anything real.

What an algorithm then releases must be what it plans, which is what the budget is the price of, and the same again on
the same records. Under "certified" the rounds are run on other made-up records, and what leaves without noise must be
the same; see
`neighbour_rehearsal`. No record is used, and nothing of a rehearsal is kept.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.bounded import Split
from decentral_dp.config import outside_components as outside
from decentral_dp.config.algorithm_components import entry_of
from decentral_dp.config.closed_over import components_of
from decentral_dp.data import Shards
from decentral_dp.errors import InputError
from decentral_dp.models.row_locality import Apart
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.neighbour_rehearsal import Replaced, Script
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blamed

_OURS = "decentral_dp."
# Enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2
# Where nothing bounds records, one that is replaced is moved so far.
_FAR = 1e3


def needs_rehearsal(job: Any) -> bool:
    """Whether the algorithm is from outside, or a problem whose rows nothing else tries."""
    if entry_of(job.scenario).origin:
        return True
    if outside.component(job.scenario, "problem") is None:
        return False
    posed = [job.problem, *(getattr(job.problem, part, None) for part in ("objective", "model"))]
    ours = all(part is None or type(part).__module__.startswith(_OURS) for part in posed)
    return job.scenario.privacy.guarantee == "certified" and not ours


def try_rows(job: Any) -> int:
    """Try rows of the user's own losses, formulas and modules, for as many records as the job will evaluate at once.

    Returns:
        How many of these there are; 0 where the guarantee rests on none.

    Raises:
        InputError: where a row reads another record.
    """
    if job.scenario.privacy.guarantee != "certified":
        return 0
    held = [int(n) for split in job.counts.values() for n in split if n]
    counts = {min(held), max(held)} if held else set()
    if job.stream.kind == "minibatch" and job.stream.batch:
        counts.add(int(job.stream.batch))
    parts = [part for _, part in components_of(job.problem) if isinstance(part, Apart)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def rehearse(job: Any, records_of: Callable[[Shards], Any]) -> None:
    """Run the first rounds on made-up records, and compare what is recorded with what is planned.

    Args:
        job: complete.
        records_of: records of shards as the job's problem reads them.

    Raises:
        InputError: where the component does not run, releases something else than is planned, or lets something that
            depends on records leave without noise.
    """
    rounds, name = min(ROUNDS, job.rounds), component_name(job)
    if rounds == 0:
        return
    shards, script = made_up_shards(job.shards, 0), Script(name)

    def played(made_up: Shards, replaced: Replaced | None = None, same: bool = False) -> Ledger:
        rehearsed = replace(job, records=records_of(made_up), rounds=rounds, root=seeded_root(0, b"rehearsal"))
        return script.play(rehearsed, replaced, same).ledger

    try:
        recorded = played(shards)
        played(shards, same=True)
        planned = job.ledger.until(rounds)
        # Ours release what they plan, and a plan of more rounds may end otherwise than one of few.
        sent, listed = ({c.channel for c in ledger.channels} for ledger in (recorded, planned))
        if entry_of(job.scenario).origin and not (job.covers(recorded) and sent == listed):
            raise InputError(
                f"{name} releases something else than it plans: {difference(recorded, planned)}{script.place}; nothing "
                "was run. Mend what it states that it releases, or its step."
            )
        if job.scenario.privacy.guarantee == "certified":
            for other, replaced in neighbouring(shards):
                played(other, replaced)
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(
            f"{name} does not run: {went_wrong(error, script.place)}; nothing was run. Mend it."
        ) from error


def component_name(job: Any) -> str:
    """The component that is rehearsed, as a refusal begins."""
    s = job.scenario
    if entry_of(s).origin:
        return f"algorithm.kind: {s.algorithm.kind}"
    return f"problem.kind: {outside.name_of(s, 'problem')}{outside.source_of(outside.component(s, 'problem'))}"


def made_up_shards(shards: Shards, key: int) -> Shards:
    """As many records, of the same shape and within the same bounds, of public random numbers."""
    generator = np.random.Generator(np.random.Philox(key=key))
    n, d = shards.features.shape
    # Below 1 in every norm.
    features = generator.uniform(0.0, 1.0 / d, (n, d))
    if shards.trajectory is not None:
        # Where records are trajectories, labels say how many steps each has.
        labels: Any = np.full(n, shards.trajectory[0])
        return replace(shards, features=key * features, labels=labels.astype(shards.labels.dtype))
    # Class numbers, or numbers below 1.
    drawn = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(drawn) if shards.classes else drawn
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def neighbouring(shards: Shards) -> Iterator[tuple[Shards, Replaced | None]]:
    """All records made up again; then one train and one validation record replaced, of one agent."""
    yield made_up_shards(shards, 1), None
    kinds: tuple[tuple[Split, Any], ...] = (("train", shards.train), ("validation", shards.validation))
    for split, held in kinds:
        agent = next((i for i, index in enumerate(held) if index.size), None)
        if agent is not None:
            yield _with_another(shards, int(held[agent][0])), Replaced(agent, split)


def _with_another(shards: Shards, record: int) -> Shards:
    """With one record replaced, by one as far out as the bounds on records allow."""
    features, labels = shards.features.copy(), shards.labels.copy()
    if shards.trajectory is not None:
        features[record] = 1.0 / features.shape[1]
        return replace(shards, features=features)
    known = [bound for bound in (shards.l1, shards.l2) if bound is not None]
    features[record] = 0.0
    features[record, 0] = -min(known, default=_FAR)
    labels[record] = (labels[record] + 1) % len(shards.classes) if shards.classes else 1.0 - labels[record]
    return replace(shards, features=features, labels=labels)


def went_wrong(error: BaseException, place: str = "") -> str:
    """What went wrong, in words.

    Args:
        error: what was raised.
        place: what stands in the place of the line of the user's own where none is known, such as ", in line 3 of …".
    """
    if isinstance(error, UserCodeError):
        if error.__cause__ is None:
            return str(error).removesuffix(". Mend it there.")
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "scheduled_releaser.py":
        return f"it releases {error.args[0]}, and plans none{place}"
    return blamed(error, place)


def difference(recorded: Ledger, planned: Ledger) -> str:
    """The first difference, in words."""
    mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (recorded, planned))
    for name in mine.keys() - theirs.keys():
        return f"it releases {name}, and plans none"
    for name in theirs.keys() - mine.keys():
        return f"it plans to release {name}, and does not"
    for name, made in mine.items():
        plan = theirs[name]
        if made.mechanism != plan.mechanism:
            if not made.mechanism.charged:
                return f"{name} is planned with {plan.mechanism.name} noise and leaves without, as a plain array"
            return f"{name} is planned as {plan.mechanism.name} and released as {made.mechanism.name}"
        if made.dimension != plan.dimension:
            return f"{name} is planned with {plan.dimension} numbers and released with {made.dimension}"
        if made.mechanism.charged and not np.array_equal(made.rounds, plan.rounds):
            return f"{name} is planned at the indices {plan.rounds.tolist()} and released at {made.rounds.tolist()}"
        for split in sorted(made.sensitivity.keys() | plan.sensitivity.keys()):
            if told := _moved_otherwise(made, plan, split, recorded):
                return told
    return "rates, groups or prices of the same releases differ"


def _moved_otherwise(made: ChannelLedger, plan: ChannelLedger, split: Split, recorded: Ledger) -> str:
    """The first release that one record of this kind moves by another distance than is planned, in words; or ""."""
    each = [
        c.sensitivity[split][:, c.group] if split in c.sensitivity else np.zeros((c.rounds.size, c.group.size))
        for c in (made, plan)
    ]
    if each[0].shape != each[1].shape:
        return f"{made.channel} is planned for {each[1].shape[1]} agents and released by {each[0].shape[1]}"
    apart = ~np.isclose(each[0], each[1], rtol=1e-9, atol=0.0)
    if not apart.any():
        return ""
    row, agent = (int(k) for k in np.argwhere(apart)[0])
    found, planned = float(each[0][row, agent]), float(each[1][row, agent])
    t = -(-int(made.rounds[row]) // recorded.releases_per_round)
    whose = "" if apart[row].all() else f"agent {agent}: "
    if math.isinf(found):
        return (
            f"{whose}{made.channel} in round {t} carries a mean that was asked at a value that was not released, so "
            f"that nothing bounds how far one {split} record moves it, and {planned:.6g} is planned; ask at what an "
            "exchange gave back, such as own.y"
        )
    return (
        f"{whose}one {split} record moves {made.channel} in round {t} by up to {found:.6g} as recorded, and "
        f"{planned:.6g} is planned"
    )
