"""The prober of `check`: a component, tried on made-up records.

What an algorithm releases must be what it plans, which is what the budget is the price of, and the same again on the
same records. A row of a problem's own must read its own record alone. Under "certified" all that leaves is compared on
pairs of neighbouring data sets; see `transcript`.
No real record is used, and nothing of a trial is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from decentral_dp.errors import InputError
from decentral_dp.models.row_locality import RowWise
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.probing.pairs import ShardsPair, first_pairs, searched_pairs, sparse_pairs
from decentral_dp.simulation.probing.transcript import Change, WatchedRun

# Enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class PairFindings:
    """What a pair of data sets showed.

    refusal: why what leaves without noise differs; None where it does not. changes: of what is noised. transcript: of
    the first data set.
    """

    pair: ShardsPair
    refusal: InputError | None
    changes: tuple[Change, ...]
    transcript: WatchedRun

    @property
    def refusal_text(self) -> str:
        """Why what leaves without noise differs, or ""."""
        return "" if self.refusal is None else str(self.refusal)

    @property
    def worst_change(self) -> Change | None:
        """The value that was changed farthest beyond, or up to, its sensitivity; None where nothing was noised."""
        return max(self.changes, key=lambda c: (not c.is_within, c.ratio, 0.0 < c.sensitivity < np.inf), default=None)

    def excess(self, change: Change) -> str:
        """A refusal of a change that is not within its sensitivity."""
        replacement = self.pair.replacement
        split, owner = ("", -1) if replacement is None else (f"{replacement.split} ", replacement.agent)
        whose = "" if change.agent < 0 else f" at agent {change.agent}"
        whose += "" if change.agent in (-1, owner) else ", who does not hold it"
        return (
            f"{self.transcript.component}: one made-up {split}record moves {change.channel} in round {change.round} "
            f"by {change.distance:.6g}{whose}, and {change.sensitivity:.6g} is stated; nothing was run. "
            "Clip every record's contribution, let every term be a function of one record, and open no bounded value."
        )

    def require_private(self) -> None:
        """Raise InputError where a record changes more than it may."""
        change = next((c for c in self.changes if not c.is_within), None)
        if change is not None:
            raise InputError(self.excess(change))
        if self.refusal is not None:
            raise self.refusal


def check_rows(job: PlannedJob) -> int:
    """Try rows of the user's own losses, formulas and modules, for as many records as the job will evaluate at once.

    Returns:
        How many of these there are; 0 where the guarantee rests on none.

    Raises:
        InputError: where a row reads another record.
    """
    if job.scenario.privacy.guarantee != "certified":
        return 0
    sizes = [int(n) for split in job.counts.values() for n in split if n]
    counts = {min(sizes), max(sizes)} if sizes else set()
    if job.stream.kind == "minibatch" and job.stream.batch:
        counts.add(int(job.stream.batch))
    parts = [part for _, part in nested_components(job.problem) if isinstance(part, RowWise)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def require_planned(transcript: WatchedRun, recorded: Ledger) -> None:
    """Raise InputError where what was recorded is not what is planned, and priced."""
    job, foreign = transcript.job, bool(transcript.job.components.algorithm.custom)
    # Ours release what they plan, and a plan of more rounds may end otherwise than one of few.
    if not foreign and job.rounds < job.ledger.rounds:
        return
    planned = job.ledger.truncate(job.rounds)
    made, listed = ({c.channel for c in ledger.channels} for ledger in (recorded, planned))
    if not job.covers(recorded) or (foreign and made != listed):
        raise InputError(
            f"{transcript.component} releases something else than it plans: {difference(recorded, planned)}"
            "; nothing was run. Mend what it states that it releases, or its step."
        )


def tried_pairs(transcript: WatchedRun, pairs: int = 0, seed: int = 0) -> Iterator[PairFindings]:
    """What the few pairs show of a job, and then so many of a search.

    Args:
        transcript: of the job on the first of the made-up data sets.
        pairs: how many the search tries. seed: of it.
    """
    job = transcript.job
    for pair in first_pairs(job.shards):
        yield _comparison(transcript, pair)
    for pair in sparse_pairs(job.shards):
        yield compare_pair(job, pair)
    for pair in searched_pairs(job.shards, pairs, seed):
        yield compare_pair(job, pair)


def compare_pair(job: PlannedJob, pair: ShardsPair) -> PairFindings:
    """Run both data sets, the second with the released values of the first."""
    transcript = WatchedRun(job, pair.key)
    try:
        transcript.record(pair.first)
    except InputError as error:
        return PairFindings(pair, error, (), transcript)
    return _comparison(transcript, pair)


def _comparison(transcript: WatchedRun, pair: ShardsPair) -> PairFindings:
    refusal = None
    try:
        transcript.compare(pair.second, pair.replacement)
    except InputError as error:
        refusal = error
    return PairFindings(pair, refusal, tuple(transcript.changes), transcript)


def difference(recorded: Ledger, planned: Ledger) -> str:
    """Name the first difference between what was released and what is planned."""
    mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (recorded, planned))
    for name in sorted(mine.keys() ^ theirs.keys()):
        return f"it releases {name}, and plans none" if name in mine else f"it plans {name}, and does not release it"
    for name, made in mine.items():
        plan = theirs[name]
        for what, one, other in (
            ("mechanism", made.mechanism.name, plan.mechanism.name),
            ("coordinates", made.dimension, plan.dimension),
            ("agents", made.group.size, plan.group.size),
            ("rounds", made.rounds.tolist(), plan.rounds.tolist()),
        ):
            if one != other and (what != "rounds" or made.mechanism.charged):
                return f"{what} of {name}: {one} as released, {other} as planned"
        for split in sorted(made.sensitivity.keys() | plan.sensitivity.keys()):
            none = np.zeros((made.rounds.size, 1))
            moved, stated = (
                c.sensitivity.get(split, none)[:, c.group if split in c.sensitivity else 0 * c.group]
                for c in (made, plan)
            )
            differ = ~np.isclose(moved, stated, rtol=1e-9, atol=0.0)
            if differ.any():
                row, agent = (int(k) for k in np.argwhere(differ)[0])
                unreleased = "" if np.isfinite(moved[row, agent]) else "; a mean at an unreleased value has no bound"
                return (
                    f"one {split} record of agent {agent} moves {name} in round "
                    f"{-(-int(made.rounds[row]) // recorded.releases_per_round)} by up to {moved[row, agent]:.6g} as "
                    f"recorded, and by {stated[row, agent]:.6g} as planned{unreleased}"
                )
    return "rates or prices of the same releases differ"


# How far objects are followed into each other.
_DEPTH = 8


def nested_components(component: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Name → a problem and what it is made of: the values of its fields, and of theirs."""
    yield name, component
    if depth == 0 or isinstance(component, type):
        return
    if is_dataclass(component):
        names = [f.name for f in fields(component)]
    elif isinstance(component, tuple):
        names = list(getattr(component, "_fields", ()))
    else:
        return
    for inner in names:
        yield from nested_components(getattr(component, inner), inner, depth - 1)
