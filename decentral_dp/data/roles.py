"""What a record is for: testing, training or validation, by the seed, its place, or a column of the data.

No label is read here, no split is stratified, and the indices of every part are in file order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from decentral_dp.data.dataset import Dataset, IntArray, TextArray, public_generator
from decentral_dp.errors import InputError


class Roles(NamedTuple):
    """Indices of the train and of the validation records of all agents together: disjoint, each in file order."""

    train: IntArray
    validation: IntArray


class Split(NamedTuple):
    """Per agent, the indices of its train and of its validation records: disjoint, each in file order, none empty."""

    train: tuple[IntArray, ...]
    validation: tuple[IntArray, ...]


def held_out(
    dataset: Dataset, *, validation: float | Mapping[str, str] | None = None, test: float | None = None, seed: int
) -> IntArray:
    """Choose the test records, held back before anything is given to an agent.

    The data's own test set where they have one. With `validation = {"column": …}`, or with a split column and neither
    share given, those that the column calls "test". Otherwise the share `test` of all records, drawn at random.

    Args:
        dataset: the records.
        validation: share for the upper level, or {"column": …}; only read for whether the split column decides.
        test: share of all records, at least 0 and below 1; None for 0.2.
        seed: the public one.

    Returns:
        Indices of the test records, in file order.

    Raises:
        InputError: a share out of range, or one beside a test set or split column of the data's own.
    """
    if dataset.own_test:
        if test is not None:
            raise InputError(f"problem.test: {dataset.source!r} has a test set of its own; leave `test` out.")
        return np.arange(dataset.n - dataset.own_test, dataset.n)
    if values_by_column(dataset, validation, test):
        if test:
            raise InputError("problem.test: the split column says which records are for testing; leave `test` out.")
        return np.flatnonzero(_words(dataset) == "test")
    share = 0.2 if test is None else test
    if not 0 <= share < 1:
        raise InputError(f"problem.test: got {share}, but a share of at least 0 and below 1 is wanted.")
    order = public_generator(seed, "test").permutation(dataset.n)
    return np.sort(order[: math.floor(share * dataset.n + 0.5)])


def cut_roles(
    dataset: Dataset,
    among: IntArray,
    *,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    seed: int,
    levels: int = 2,
) -> Roles:
    """Divide the records of `among` into train and validation ones by their places, before they are dealt.

    It reads the seed, the number of records and the split column, and no label.

    Args:
        dataset: the records.
        among: indices of the records to divide, in file order.
        validation: as of `split`; the share is of all records together.
        test: as of `split`.
        seed: the public one.
        levels: as of `split`.

    Returns:
        The train and the validation records of all agents together.

    Raises:
        InputError: as of `split`, but for an empty part.
    """
    share, by_column = _share(dataset, validation, test)
    if levels == 1:
        return Roles(among, among[:0])
    if by_column:
        words = _words(dataset)[among]
        return Roles(among[words == "train"], among[words == "validation"])
    chosen = np.zeros(among.size, dtype=np.bool_)
    order = public_generator(seed, "validation").permutation(among.size)
    chosen[order[: math.floor(share * among.size + 0.5)]] = True
    return Roles(among[~chosen], among[chosen])


def split(
    dataset: Dataset,
    shards: Sequence[IntArray],
    *,
    validation: float | Mapping[str, str] | None = None,
    test: float | None = None,
    seed: int,
    levels: int = 2,
) -> Split:
    """Divide every agent's shard into train and validation records.

    Args:
        dataset: the records.
        shards: per agent, indices of its records.
        validation: the share for the upper level (default 0.5), drawn at random within each shard and rounded to whole
            records; or {"column": …}. None takes the split column where the data have one and no `test` share is given.
        test: share of held-out records, if one is given.
        seed: the public one.
        levels: 2, the default, or 1: then all are train records.

    Returns:
        The train and the validation records of each agent. A record that the column calls "test" is in neither.

    Raises:
        InputError: a share or a column that does not fit the data, and an empty part.
    """
    share, by_column = _share(dataset, validation, test)
    train, held = [], []
    for i, shard in enumerate(shards):
        shard = np.sort(shard)
        if levels == 1:
            upper, lower = shard[:0], shard
        elif by_column:
            words = _words(dataset)[shard]
            upper, lower = shard[words == "validation"], shard[words == "train"]
        else:
            chosen = np.zeros(shard.size, dtype=np.bool_)
            order = public_generator(seed, "validation", i).permutation(shard.size)
            chosen[order[: math.floor(share * shard.size + 0.5)]] = True
            upper, lower = shard[chosen], shard[~chosen]
        check_parts(i, lower, upper, levels)
        train.append(lower)
        held.append(upper)
    return Split(tuple(train), tuple(held))


def _share(dataset: Dataset, validation: float | Mapping[str, str] | None, test: float | None) -> tuple[float, bool]:
    """The share of validation records, and whether a column says which they are instead. Raises InputError."""
    by_column = values_by_column(dataset, validation, test)
    share = validation if isinstance(validation, float | int) else 0.5
    if not by_column and not 0 < share < 1:
        raise InputError(f"problem.validation: got {share}, but a share above 0 and below 1 is wanted.")
    return share, by_column


def check_parts(i: int, lower: IntArray, upper: IntArray, levels: int) -> None:
    """Refuse an agent without records.

    Args:
        i: the agent's number.
        lower: indices of its train records.
        upper: indices of its validation records.
        levels: 2 where both have to be there, 1 where train records alone have to.

    Raises:
        InputError: a part that is empty and must not be.
    """
    if levels == 1 and not lower.size:
        raise InputError(f"problem.partition: agent {i} has no records; use fewer agents, or an even partition.")
    if levels == 2 and not (upper.size and lower.size):
        raise InputError(
            f"problem.partition: agent {i} has {lower.size} train and {upper.size} validation records, but needs "
            "at least one of each; use fewer agents, a more even partition, or another validation share."
        )


def values_by_column(dataset: Dataset, validation: float | Mapping[str, str] | None, test: float | None) -> bool:
    """Whether a column of the data says which records are held out."""
    return isinstance(validation, Mapping) or (validation is None and test is None and dataset.split is not None)


def _words(dataset: Dataset) -> TextArray:
    if dataset.split is None:
        raise InputError(
            f"problem.validation: {dataset.source!r} has no split column; give a share such as validation = 0.5."
        )
    return dataset.split
