"""Search for the two neighbouring data sets whose queries differ most.

The victim is the agent with the largest ε, and the record is the first of its split. For other units, the first k
records of the agent, or all its records, are copies of one candidate, or contribute nothing in one of the data sets.

Candidates are records of the data, their negations, and records along axes and along the difference of the class means,
in opposite directions and of several sizes. If the certificate depends only on clipping, some candidates are longer
than any record, so both are clipped. All candidates are replayed on one transcript, and the pair with the largest
difference is chosen.

In a batch of fixed size, another record replaces one that is not drawn. The bound for such batches is attained if that
record equals the replaced record of one data set. `add_copies` makes all other records copies of it. A guarantee holds
for all data sets, so an audit may also choose the other records.

`component_runs` searches other pairs: extreme floats in synthetic data sets. Here the job must be able to load both
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from decentral_dp.auditing.losses import compute_movement, find_loss_distribution
from decentral_dp.auditing.transcripts import Membership, Neighbours, Transcript, observe, replay
from decentral_dp.bounded import SPLITS, Array, Split
from decentral_dp.problems.records import take
from decentral_dp.simulation.jobs.job import PlannedJob

# Largest number of floats in the queries of all candidates together.
_MOST_QUERY_NUMBERS = 30_000_000
_MOST = 26
# Records other than plain rows of features: only records of the data are candidates.
_STRUCTURED_RECORDS = ("Trajectories", "MetaRecords", "QuadraticRecords", "Real")


def add_copies(neighbours: Neighbours) -> Neighbours:
    """Return the same pair of records, with all other records replaced by copies of the second record."""
    place = neighbours.split, neighbours.victim
    first, second = (
        take(w.records[neighbours.split][neighbours.victim], slice(0, 1)) for w in (neighbours.first, neighbours.second)
    )
    records = neighbours.second.records[neighbours.split][neighbours.victim]
    many = type(records)(*(np.repeat(field, len(records[0]), axis=0) for field in second))
    shards = tuple(
        many if k == neighbours.victim else r for k, r in enumerate(neighbours.second.records[neighbours.split])
    )
    crowd = replace(neighbours.second, records={**neighbours.second.records, neighbours.split: shards})
    return neighbours._replace(first=crowd.with_record(*place, first), second=crowd, copies=True)


def find_farthest(job: PlannedJob, seed_root: bytes) -> Neighbours:
    """Return the pair of data sets whose queries differ most on a transcript of the job.

    Args:
        job: job with its records.
        seed_root: noise key of the transcript.
    """
    victim = int(np.argmax(job.budget.epsilon))
    job_with_key = job.with_root(seed_root)
    transcript = observe(job_with_key, victim)
    best: tuple[float, Neighbours] = (-1.0, Neighbours(job_with_key, job_with_key, victim, "train"))
    for split in SPLITS:
        if split in job.records and len(job.records[split]) > victim and len(job.records[split][victim][0]):
            best = max(best, _search_split(job_with_key, victim, split, transcript), key=lambda pair: pair[0])
    return best[1]


def _search_split(job: Any, victim: int, split: Split, transcript: Transcript) -> tuple[float, Neighbours]:
    numbers = sum(v.size for v in transcript.releases.values())
    most = int(np.clip(_MOST_QUERY_NUMBERS // max(numbers, 1), 4, _MOST))
    unit, n = job.unit, len(job.records[split][victim][0])
    times = n if unit.records is None else min(unit.records, n)
    records = list(_draw_candidates(job, victim, split, most))
    candidates = [job, *(job.with_record(split, victim, record, times) for record in records)]
    if unit.zeroed:
        # One data set of every pair.
        candidates[0] = job.with_record(split, victim, job.problem.null_record(job.records[split][victim]), times)
    # In every sample, since a sampled record may have no effect.
    always_in = Membership(split, "in")
    base = replay(candidates[0], victim, transcript, always_in)
    # Relative to one data set, so that the movement of a pair is a difference.
    movements = [compute_movement(transcript, replay(side, victim, transcript, always_in), base) for side in candidates]
    pairs = [pair for pair in combinations(range(len(candidates)), 2) if not unit.zeroed or pair[0] == 0]
    sizes = [movements[i].minus(movements[k]).size(job.scenario.privacy.delta) for i, k in pairs]
    best = int(np.argmax(sizes))
    i, k = pairs[best]
    return float(sizes[best]), Neighbours(candidates[i], candidates[k], victim, split)


def _draw_candidates(job: Any, victim: int, split: Split, most: int) -> Iterator[Any]:
    shards = job.shards
    indices = np.concatenate([np.asarray(part[victim]) for part in (shards.train, shards.validation) if len(part)])
    rows, labels = shards.features[indices], np.asarray(shards.labels, dtype=np.float64)[indices]
    if not rows.size:
        return
    labels_there = np.unique(np.asarray(shards.labels, dtype=np.float64)[np.concatenate([*shards.train])])
    ends = [float(labels_there[0]), float(labels_there[-1])]
    is_structured = type(job.records[split][victim]).__name__ in _STRUCTURED_RECORDS
    if is_structured or rows.ndim > 2:
        candidates = list(zip(rows[:12], labels[:12].tolist(), strict=True))
    else:
        candidates = list(_draw_synthetic_candidates(job, rows, labels, ends))
    for row, label in candidates[:most]:
        record = job.problem.prepare(row[None], np.array([label]), job.clip.norm)
        if hasattr(job.problem, "place_records") and split == "train":
            # It has the group of the record that it replaces.
            first = take(job.records[split][victim], slice(0, 1))
            fields = zip(first._fields, first, record, strict=True)
            record = type(first)(*(f if name == "group" else r for name, f, r in fields))
        yield record


def _draw_synthetic_candidates(
    job: Any, rows: Array, labels: Array, ends: list[float]
) -> Iterator[tuple[Array, float]]:
    size = float(np.linalg.norm(rows, axis=1).max()) or 1.0
    sizes = [size] if job.needs_norms else [4.0 * size, size]
    d = rows.shape[1]
    # The direction of a model that fits the data: a record against it has a large gradient.
    sides = np.where(labels == ends[-1], 1.0, -1.0)
    model = _normalise_vector((sides[:, None] * rows).mean(axis=0))
    axis = np.zeros(d)
    axis[int(np.argmin(np.abs(model)))] = 1.0
    random = np.random.default_rng(0).normal(size=d)
    across = _normalise_vector(random - model * float(random @ model)) if d > 1 else np.ones(1)
    for sign in (1.0, -1.0):
        for label in dict.fromkeys(ends):
            # Laplace noise hides a single coordinate least.
            yield sign * sizes[0] * axis, label
    for length in sizes:
        for direction in (axis, across):
            for sign in (1.0, -1.0):
                for label, side in zip(dict.fromkeys(ends), (-1.0, 1.0), strict=False):
                    # Against the model of its label.
                    yield length * _normalise_vector(sign * direction - 0.25 * side * model), label
    for row, label in zip(rows[:2], labels[:2].tolist(), strict=True):
        yield row, label
        yield -row, label
        yield row, ends[0] if label != ends[0] else ends[1]


def _normalise_vector(v: Array) -> Array:
    return np.asarray(v / max(float(np.linalg.norm(v)), 1e-300))


def find_neighbours(job: PlannedJob, root: bytes) -> Neighbours:
    """Return the pair of data sets with the largest ε, among the agent's own records or among copies of one record.

    Args:
        job: job to audit.
        root: noise key of the runs in the search.
    """
    pair = find_farthest(job, root)
    rates = [(c.sampling, rate) for c in job.ledger.channels for rate in c.rate.values()]
    if not any(sampling == "fixed" and (rate < 1.0).any() for sampling, rate in rates):
        return pair

    def distance(neighbours: Neighbours) -> float:
        law = find_loss_distribution(neighbours.observe(neighbours.first, root), neighbours)
        return -1.0 if law is None else law.epsilon(job.scenario.privacy.delta, 1.0)

    return max((pair, add_copies(pair)), key=distance)
