"""Two data sets that differ in one record, as far apart as a search over a few records finds them.

Where a scenario protects another unit, they differ in that: the first k records of the agent, or all, are copies of one
candidate in either data set, or contribute nothing in one of the data sets.

The agent with the largest budget holds the record, the first one of its kind. Candidates are records of the data, the
same turned around, and records along single axes and along the difference of the data's means, in opposite directions
and of several sizes; where a certificate rests on clips alone, larger than any in the data too, so that both are cut
at the clip. All candidates are replayed on one transcript; the pair whose queries are farthest apart is chosen.

In a batch of fixed size somebody else has the place of a record that is not drawn. The bound for such batches is
reached where that one is like the replaced record of one data set: `among_copies` makes all others copies of it. A
guarantee is for all data sets, so that an audit may choose the other records, too.

`component_runs` searches for something else: floats of every size that break a component's own bound, on
made-up data sets that are replaced whole. Here a job is given, and both records must be such that its own loading
would let through.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from decentral_dp.auditing.losses import loss_law, movement
from decentral_dp.auditing.transcripts import Membership, Neighbours, Transcript, observe, replay
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.problems.records import take
from decentral_dp.simulation.jobs.job import PlannedJob

# Queries of all candidates are held at once: at most so many numbers.
_MOST_QUERY_NUMBERS = 30_000_000
_MOST = 26
# Records whose rows are no plain features: those of the data alone are tried.
_STRUCTURED_RECORDS = ("Trajectories", "MetaRecords", "QuadraticRecords", "Real")


def among_copies(neighbours: Neighbours) -> Neighbours:
    """The same pair of records, among copies of the second one."""
    place = neighbours.split, neighbours.victim
    one, other = (
        take(w.records[neighbours.split][neighbours.victim], slice(0, 1)) for w in (neighbours.first, neighbours.second)
    )
    mine = neighbours.second.records[neighbours.split][neighbours.victim]
    many = type(mine)(*(np.repeat(field, len(mine[0]), axis=0) for field in other))
    changed = tuple(
        many if k == neighbours.victim else r for k, r in enumerate(neighbours.second.records[neighbours.split])
    )
    crowd = replace(neighbours.second, records={**neighbours.second.records, neighbours.split: changed})
    return neighbours._replace(first=crowd.with_record(*place, one), second=crowd, copies=True)


def farthest(job: PlannedJob, seed_root: bytes) -> Neighbours:
    """Find the pair of data sets whose queries are farthest apart on a transcript of the job.

    Args:
        job: to be audited, with its records.
        seed_root: of the coins of that transcript.
    """
    victim = int(np.argmax(job.budget.epsilon))
    keyed = job.with_root(seed_root)
    transcript = observe(keyed, victim)
    best: tuple[float, Neighbours] = (-1.0, Neighbours(keyed, keyed, victim, "train"))
    for split in SPLITS:
        if split in job.records and len(job.records[split]) > victim and len(job.records[split][victim][0]):
            best = max(best, _farthest_of(keyed, victim, split, transcript), key=lambda one: one[0])
    return best[1]


def _farthest_of(job: Any, victim: int, split: Split, transcript: Transcript) -> tuple[float, Neighbours]:
    numbers = sum(v.size for v in transcript.releases.values())
    most = int(np.clip(_MOST_QUERY_NUMBERS // max(numbers, 1), 4, _MOST))
    unit, n = job.unit, len(job.records[split][victim][0])
    times = n if unit.records is None else min(unit.records, n)
    records = list(_records(job, victim, split, most))
    candidates = [job, *(job.with_record(split, victim, record, times) for record in records)]
    if unit.zeroed:
        # All pairs have it on one side.
        candidates[0] = job.with_record(split, victim, job.problem.null_record(job.records[split][victim]), times)
    # In every sample: else a record that is rarely drawn would move nothing here.
    there = Membership(split, "in")
    base = replay(candidates[0], victim, transcript, there)
    # From the data set as it is, so that a pair's movement is a difference of two.
    movements = [movement(transcript, replay(side, victim, transcript, there), base) for side in candidates]
    pairs = [pair for pair in combinations(range(len(candidates)), 2) if not unit.zeroed or pair[0] == 0]
    sizes = [movements[i].minus(movements[k]).size(job.scenario.privacy.delta) for i, k in pairs]
    best = int(np.argmax(sizes))
    i, k = pairs[best]
    return float(sizes[best]), Neighbours(candidates[i], candidates[k], victim, split)


def _records(job: Any, victim: int, split: Split, most: int) -> Iterator[Any]:
    shards = job.shards
    mine = np.concatenate([np.asarray(part[victim]) for part in (shards.train, shards.validation) if len(part)])
    rows, labels = shards.features[mine], np.asarray(shards.labels, dtype=np.float64)[mine]
    if not rows.size:
        return
    labels_there = np.unique(np.asarray(shards.labels, dtype=np.float64)[np.concatenate([*shards.train])])
    ends = [float(labels_there[0]), float(labels_there[-1])]
    structured = type(job.records[split][victim]).__name__ in _STRUCTURED_RECORDS
    if structured or rows.ndim > 2:
        made = list(zip(rows[:12], labels[:12].tolist(), strict=True))
    else:
        made = list(_made_up_records(job, rows, labels, ends))
    for row, label in made[:most]:
        record = job.problem.prepare(row[None], np.array([label]), job.clip.norm)
        if hasattr(job.problem, "place_records") and split == "train":
            # Its place is that of the record it replaces.
            first = take(job.records[split][victim], slice(0, 1))
            fields = zip(first._fields, first, record, strict=True)
            record = type(first)(*(f if name == "group" else r for name, f, r in fields))
        yield record


def _made_up_records(job: Any, rows: Array, labels: Array, ends: list[float]) -> Iterator[tuple[Array, float]]:
    size = float(np.linalg.norm(rows, axis=1).max()) or 1.0
    sizes = [size] if job.needs_norms else [4.0 * size, size]
    d = rows.shape[1]
    # Where a model that fits the data looks: a record against it has a large gradient.
    sides = np.where(labels == ends[-1], 1.0, -1.0)
    model = _unit((sides[:, None] * rows).mean(axis=0))
    axis = np.zeros(d)
    axis[int(np.argmin(np.abs(model)))] = 1.0
    random = np.random.default_rng(0).normal(size=d)
    across = _unit(random - model * float(random @ model)) if d > 1 else np.ones(1)
    for sign in (1.0, -1.0):
        for label in dict.fromkeys(ends):
            # A single coordinate: what Laplace noise hides least.
            yield sign * sizes[0] * axis, label
    for length in sizes:
        for direction in (axis, across):
            for sign in (1.0, -1.0):
                for label, side in zip(dict.fromkeys(ends), (-1.0, 1.0), strict=False):
                    # Leaning against the model of its label.
                    yield length * _unit(sign * direction - 0.25 * side * model), label
    for row, label in zip(rows[:2], labels[:2].tolist(), strict=True):
        yield row, label
        yield -row, label
        yield row, ends[0] if label != ends[0] else ends[1]


def _unit(v: Array) -> Array:
    return np.asarray(v / max(float(np.linalg.norm(v)), 1e-300))


def worst_neighbours(job: PlannedJob, root: bytes) -> Neighbours:
    """Find neighbours that are far apart, among the agent's own records, or among copies of one where that shows more.

    Args:
        job: to be audited.
        root: of the coins of the runs on which it is decided, and of no others.

    Returns:
        The data sets.
    """
    pair = farthest(job, root)
    rates = [(c.sampling, rate) for c in job.ledger.channels for rate in c.rate.values()]
    if not any(sampling == "fixed" and (rate < 1.0).any() for sampling, rate in rates):
        return pair

    def shown(neighbours: Neighbours) -> float:
        law = loss_law(neighbours.observe(neighbours.first, root), neighbours)
        return -1.0 if law is None else law.epsilon(job.scenario.privacy.delta, 1.0)

    return max((pair, among_copies(pair)), key=shown)
