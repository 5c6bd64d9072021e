"""Pairs of neighbouring made-up data sets: a few that every component from outside is tried on, and a search.

The few differ in all records, in one train record, and in one validation record; the latter two also among records that
are all 0. There a normaliser shows that counts some records only. The search drives up how far one record changes what
is about to be noised: the record that is replaced has what floats make hard (1e-308 to 1e308, +0 and -0, ties, the
bound on records itself, flipped labels), among random, equal or zero records. Records that are not finite are not
tried: loading refuses them.

A custom partition sees labels and no feature. It is asked twice for the same synthetic labels, and for others. It must
give one agent for every record, and the same again: ledger, plan and a resumed run rest on one partition. A partition
that follows labels is not wrong, but no ε covers what it leaks of them. See docs/add_data.md.

Limits: labels of real records may be dealt otherwise, and what a function reads beside its arguments is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Split
from decentral_dp.data import Shards
from decentral_dp.errors import InputError

# Sizes of a replaced record's largest feature, in the search.
SIZES = (1.0, 1e3, 1e-308, 1e308, 1e-12, 1e6, 1e154, 1e-3)
# How far it is moved in the few pairs, where nothing bounds records.
_FAR_FACTOR = 1e3


class Replacement(NamedTuple):
    """The only record that two data sets do not share, by who holds it."""

    agent: int
    split: Split


class Record(NamedTuple):
    """features: (d,). label: a class number, or a number."""

    features: Array
    label: float


@dataclass(frozen=True, eq=False)
class ShardsPair:
    """Two data sets of the same shape.

    key: of the randomness of their runs. replacement: None where all records differ. record: number of the one that
    differs; -1 in the few pairs.
    """

    first: Shards
    second: Shards
    key: int
    replacement: Replacement | None
    record: int = -1


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
    numbers = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(numbers) if shards.classes else numbers
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def equal_shards(shards: Shards, value: float) -> Shards:
    """Return as many records, with one value for all features and 0 for all labels; trajectories as they are.

    Args:
        shards: public sizes.
        value: within the bounds on records.
    """
    if shards.trajectory is not None:
        return shards
    return replace(shards, features=np.full_like(shards.features, value), labels=np.zeros_like(shards.labels))


def first_pairs(shards: Shards) -> Iterator[ShardsPair]:
    """All records made up again; then one train and one validation record replaced, of one agent."""
    here = made_up_shards(shards, 0)
    yield ShardsPair(here, made_up_shards(shards, 1), 0, None)
    yield from _replacements(here)


def sparse_pairs(shards: Shards) -> Iterator[ShardsPair]:
    """One train and one validation record replaced where all others are 0."""
    if shards.trajectory is None:
        yield from _replacements(equal_shards(shards, 0.0))


def _replacements(here: Shards) -> Iterator[ShardsPair]:
    """One record replaced of the first agent that holds one, for each kind of records."""
    for split, indices in _kinds(here):
        agent = next((i for i, index in enumerate(indices) if index.size), None)
        if agent is not None:
            yield ShardsPair(here, _with_far_record(here, int(indices[agent][0])), 0, Replacement(agent, split))


def _kinds(shards: Shards) -> tuple[tuple[Split, Any], ...]:
    """Kind of records → those of each agent, by number."""
    return ("train", shards.train), ("validation", shards.validation)


def _with_far_record(shards: Shards, record: int) -> Shards:
    """With one record replaced, by one as far out as the bounds on records allow."""
    features, labels = shards.features.copy(), shards.labels.copy()
    if shards.trajectory is not None:
        features[record] = 1.0 / features.shape[1]
        return replace(shards, features=features)
    known = [bound for bound in (shards.l1, shards.l2) if bound is not None]
    features[record] = 0.0
    features[record, 0] = -min(known, default=_FAR_FACTOR)
    labels[record] = (labels[record] + 1) % len(shards.classes) if shards.classes else 1.0 - labels[record]
    return replace(shards, features=features, labels=labels)


def searched_pairs(shards: Shards, number: int, seed: int) -> Iterator[ShardsPair]:
    """Yield pairs with one record replaced, which has what floats make hard, by its mirror image or by others."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    pools = [(split, agent) for split, indices in _kinds(shards) for agent, index in enumerate(indices) if index.size]
    for k in range(number if pools else 0):
        # Both kinds of records, with every size and every other record beside it.
        wanted = ("train", "validation")[(k // 2 + k // len(SIZES)) % 2]
        ours = [pool for pool in pools if pool[0] == wanted] or pools
        split, agent = ours[int(rng.integers(len(ours)))]
        index = (shards.train if split == "train" else shards.validation)[agent]
        # A stream reads the first records first; a sample reads any.
        record = int(index[0] if k % 4 < 3 else rng.choice(index))
        base = made_up_shards(shards, k + 1)
        if k % 4 > 1:
            # A normaliser that counts some records only shows where the others are 0 or equal.
            base = equal_shards(base, 0.0 if k % 4 == 2 else 0.5 / base.features.shape[1])
        here, there = (_with_record(shards, base, record, r) for r in _extremes(shards, base, record, k, rng))
        yield ShardsPair(here, there, k, Replacement(agent, split), record)


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


def _with_record(shards: Shards, base: Shards, record: int, new: Record) -> Shards:
    """With one record in place of another, drawn in to the bounds that loading sets on every record."""
    features, labels = base.features.copy(), base.labels.copy()
    features[record] = _scale_into_bounds(new.features, shards)
    labels[record] = new.label
    return replace(base, features=features, labels=labels)


def _scale_into_bounds(features: Array, shards: Shards) -> Array:
    largest = float(np.abs(features).max(initial=0.0))
    factor = 1.0
    if largest > 0.0:
        unit = features / largest
        for bound, norm in ((shards.l1, float(np.abs(unit).sum())), (shards.l2, float(np.sqrt(unit @ unit)))):
            if bound is not None and largest > bound / norm:
                factor = min(factor, float(bound / norm / largest))
    return features * factor if factor < 1.0 else features


def deal_trial(deal: Callable[..., Any], shards: Shards) -> tuple[str, bool]:
    """Ask a partition for synthetic labels, for the same again, and for others.

    Args:
        deal: of labels, classes, agents and seed.
        shards: whose public sizes the labels have.

    Returns:
        What is wrong with it, or ""; and whether it reads labels.
    """
    n = int(shards.train_counts.sum() + shards.validation_counts.sum())
    try:
        first, again, *others = (
            _owners(deal, np.resize(made_up_shards(shards, key).labels, n), shards) for key in (0, 0, 1, 2)
        )
    except InputError as error:
        return str(error), False
    if not np.array_equal(first, again):
        return (
            "Asked twice for the same labels it deals otherwise. Draw from a generator that is made of its seed.",
            False,
        )
    return "", not all(np.array_equal(first, other) for other in others)


def _owners(deal: Callable[..., Any], labels: Array, shards: Shards) -> NDArray[np.int64]:
    """(n,) the agent of each record. Raises InputError where a record has none."""
    owners = np.asarray(deal(labels=labels.copy(), classes=len(shards.classes), agents=shards.n_agents, seed=0))
    if owners.shape != labels.shape or not np.issubdtype(owners.dtype, np.integer):
        raise InputError(
            f"It gives {owners.dtype} of shape {owners.shape} for {labels.size} made-up labels, wanted one agent for "
            "each record: records would be lost or doubled. Mend it."
        )
    if owners.size and not (owners.min() >= 0 and owners.max() < shards.n_agents):
        raise InputError(
            f"It gives made-up records to agent {owners.min() if owners.min() < 0 else owners.max()}, and there are "
            f"agents 0 to {shards.n_agents - 1}. Mend it."
        )
    return owners
