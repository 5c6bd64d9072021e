"""Pairs of neighbouring made-up data sets that drive up how far one record moves what is about to be noised.

Both worlds hold the same records but for one, of one agent. It is drawn from what floats make hard (1e-308 to 1e308,
+0 and -0, ties, the bound on records itself, flipped labels), against its mirror image and against others; the worst
pair so far is then varied. Records that are not finite are not tried: loading refuses them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.data import Shards
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.build import records_of
from decentral_dp.simulation.jobs.coordinator_plan import bounded_labels
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.probing.rehearsal import (
    Moved,
    Replaced,
    Script,
    component_name,
    made_up_shards,
    went_wrong,
)
from decentral_dp.user_code import USER_ERRORS

SIZES = (1.0, 1e3, 1e-308, 1e308, 1e-12, 1e6, 1e154, 1e-3)


class Record(NamedTuple):
    """features: (d,). label: a class number, or a number."""

    features: Array
    label: float


@dataclass(frozen=True, eq=False)
class Pair:
    """Two data sets of the same shape. key: of the randomness of the run. replaced: None where all records differ.

    record: number of the one that differs.
    """

    here: Shards
    there: Shards
    key: int
    replaced: Replaced | None
    record: int = -1


@dataclass(frozen=True)
class Tried:
    """What a pair showed.

    refused: why what leaves without noise differs, or "". worst: None where nothing was noised. releases:
    "participant/index/channel" → what the first world released, and the second was given.
    """

    refused: str
    worst: Moved | None
    releases: Mapping[str, Array]


def play(job: Job, pair: Pair) -> Tried:
    """Run both worlds, the second with the released values of the first."""
    moved: list[Moved] = []
    script = Script(component_name(job), moved.append)
    try:
        with np.errstate(all="ignore"):
            for shards, replaced in ((pair.here, None), (pair.there, pair.replaced)):
                script.play(in_world(job, shards, pair.key), replaced)
    except InputError as error:
        return Tried(str(error), worst_of(moved), script.releases())
    except USER_ERRORS as error:
        return Tried(
            f"{component_name(job)} fails on some records: {went_wrong(error)}. Mend it.",
            worst_of(moved),
            script.releases(),
        )
    return Tried("", worst_of(moved), script.releases())


def in_world(job: Any, shards: Shards, key: int) -> Any:
    """The job on other records, with randomness that anyone can draw."""
    labels = bounded_labels(job.scenario, shards.labels)
    other = replace(shards, labels=labels)
    return replace(job, records=records_of(job, other), root=seeded_root(key, b"check"))


def worst_of(moved: list[Moved]) -> Moved | None:
    """The value that was moved farthest beyond, or up to, what is stated."""
    return max(moved, key=lambda m: (not m.within, m.ratio, 0.0 < m.stated < np.inf), default=None)


def pairs_of(shards: Shards, many: int, seed: int) -> Generator[Pair, float | None, None]:
    """So many pairs with one record replaced. `send` it the worst ratio of each pair, so that the worst is varied."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    pools: list[tuple[Split, int]] = []
    kinds: tuple[tuple[Split, Any], ...] = (("train", shards.train), ("validation", shards.validation))
    for split, held in kinds:
        pools += [(split, agent) for agent, index in enumerate(held) if index.size]
    if not pools:
        return
    best: tuple[float, Pair] | None = None
    for k in range(many):
        if best is not None and k % 3 == 2 and k >= 2 * len(SIZES) and 0.0 < best[0] < np.inf:
            pair = _varied(shards, best[1], rng)
        else:
            # Both kinds of records, with every size and every other record beside it.
            split = ("train", "validation")[(k // 2 + k // len(SIZES)) % 2]
            ours = [pool for pool in pools if pool[0] == split] or pools
            split, agent = ours[int(rng.integers(len(ours)))]
            index = (shards.train if split == "train" else shards.validation)[agent]
            # A stream reads the first records first; a sample reads any.
            record = int(index[0] if k % 4 < 3 else rng.choice(index))
            base = made_up_shards(shards, k + 1)
            a, b = _extremes(shards, base, record, k, rng)
            pair = Pair(
                _with(shards, base, record, a), _with(shards, base, record, b), k, Replaced(agent, split), record
            )
        ratio = yield pair
        if ratio is not None and (best is None or ratio > best[0]):
            best = (ratio, pair)


def _extremes(shards: Shards, base: Shards, record: int, k: int, rng: np.random.Generator) -> tuple[Record, Record]:
    d = shards.features.shape[1]
    size = SIZES[k % len(SIZES)]
    drawn = rng.normal(size=d)
    direction: Array = drawn / np.abs(drawn).max()
    if k % 5 == 1:
        direction = np.eye(d)[int(rng.integers(d))]
    elif k % 5 == 2:
        direction = np.ones(d)  # Ties in every column.
    one, other = _labels(shards, float(base.labels[record]), k, rng)
    features = size * direction
    # Its mirror image, a tie, zeros of both signs, or an ordinary record.
    others = (-features, features, np.where(features > 0.0, 0.0, -0.0), base.features[record])
    against = others[(k + k // len(SIZES)) % len(others)]
    return Record(features, one), Record(against, other)


def _labels(shards: Shards, label: float, k: int, rng: np.random.Generator) -> tuple[float, float]:
    if shards.trajectory is not None:
        return label, label
    if shards.classes:
        n = len(shards.classes)
        one = int(rng.integers(n))
        return float(one), float((one + (0 if k % 3 == 0 else 1)) % n)
    far = (1.0, 1e6, 0.0, 1e154, 1e-308)[k % 5]
    return far, -far


def _varied(shards: Shards, pair: Pair, rng: np.random.Generator) -> Pair:
    """Both records turned a little and scaled."""

    def turned(world: Shards) -> Record:
        features, label = world.features[pair.record], float(world.labels[pair.record])
        size = float(np.abs(features).max(initial=0.0))
        with np.errstate(over="ignore"):
            factor = 10.0 ** rng.uniform(-1.0, 1.0)
            new = factor * features + 0.3 * size * rng.normal(size=features.size)
        return Record(np.clip(new, -np.finfo(float).max, np.finfo(float).max), label)

    here = _with(shards, pair.here, pair.record, turned(pair.here))
    there = _with(shards, pair.there, pair.record, turned(pair.there))
    return Pair(here, there, pair.key, pair.replaced, pair.record)


def _with(shards: Shards, base: Shards, record: int, new: Record) -> Shards:
    """With one record in place of another, drawn in to the bounds that loading sets on every record."""
    features, labels = base.features.copy(), base.labels.copy()
    features[record] = _bounded(new.features, shards)
    labels[record] = new.label
    return replace(base, features=features, labels=labels)


def _bounded(features: Array, shards: Shards) -> Array:
    largest = float(np.abs(features).max(initial=0.0))
    factor = 1.0
    if largest > 0.0:
        unit = features / largest
        for bound, norm in ((shards.l1, float(np.abs(unit).sum())), (shards.l2, float(np.sqrt(unit @ unit)))):
            if bound is not None and largest > bound / norm:
                factor = min(factor, float(bound / norm / largest))
    return features * factor if factor < 1.0 else features
