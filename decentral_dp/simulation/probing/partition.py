"""Trials of a partition from outside: that it deals every record once, alike whenever it is asked, and what it reads.

A partition sees labels and no feature. It is asked twice for the same made-up labels, and again with one label
replaced by another, as often as `TRIES` says, and with all labels made up anew. What is not one agent for every record
is refused, and so is another answer to the same question: ledger, plan and a run that goes on after an interruption
rest on one deal.

A deal that follows labels is not wrong. It is taken as given by every guarantee, and what it tells of labels is not
covered; so what a replaced label moved is said. See docs/add_data.md.

Limits: labels of real records may be dealt otherwise, and what a function reads beside its arguments is not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.data import Shards
from decentral_dp.errors import InputError
from decentral_dp.simulation.probing.pairs import made_up_shards

TRIES = 12


class Dealt(NamedTuple):
    """What was found. wrong: a sentence, or "". moved: most other records whose agent one replaced label changed."""

    wrong: str
    moved: int
    tries: int
    of_records: int
    reads: bool

    @property
    def words(self) -> str:
        """What it reads, in a sentence."""
        if not self.reads:
            return f"No label moved any record, in {self.tries} tries: the deal tells of none that was tried."
        return (
            f"It reads labels: one replaced label moved up to {self.moved} of {self.of_records - 1} other records to "
            "another agent. The deal is taken as given, and what it tells of labels no ε covers."
        )


def deal_trial(deal: Callable[..., Any], shards: Shards) -> Dealt:
    """Ask a partition for deals of made-up labels.

    Args:
        deal: of labels, classes, agents and seed.
        shards: whose public sizes made-up labels have.

    Returns:
        What was found.
    """
    n = int(shards.train_counts.sum() + shards.validation_counts.sum())
    labels: Any = np.resize(made_up_shards(shards, 0).labels, n)
    rng = np.random.Generator(np.random.Philox(key=7))
    moved, reads, tries = 0, False, 0
    try:
        base = _owners(deal, labels, shards)
        if not np.array_equal(base, _owners(deal, labels, shards)):
            return Dealt(
                "Asked twice for the same labels it deals otherwise. Draw from a generator that is made of its seed.",
                *(0, 1, n, False),
            )
        for k in range(TRIES):
            other, place = labels.copy(), int(rng.integers(n))
            # Classes in turn; of numbers a far one of either sign.
            c = len(shards.classes)
            other[place] = (labels[place] + 1 + k % (c - 1)) % c if c > 1 else (1e6, -1e6, 0.5)[k % 3]
            apart = base != _owners(deal, other, shards)
            reads, tries = reads or bool(apart.any()), tries + 1
            moved = max(moved, int(apart.sum() - apart[place]))
        for key in (1, 2):
            anew: Any = np.resize(made_up_shards(shards, key).labels, n)
            reads, tries = reads or not np.array_equal(base, _owners(deal, anew, shards)), tries + 1
    except InputError as error:
        return Dealt(str(error), moved, tries, n, reads)
    return Dealt("", moved, tries, n, reads)


def _owners(deal: Callable[..., Any], labels: Array, shards: Shards) -> NDArray[np.int64]:
    """(n,) the agent of each record. Raises InputError where a record has none."""
    found = np.asarray(deal(labels=labels.copy(), classes=len(shards.classes), agents=shards.n_agents, seed=0))
    if found.shape != labels.shape or not np.issubdtype(found.dtype, np.integer):
        raise InputError(
            f"It gives {found.dtype} of shape {found.shape} for {labels.size} made-up labels, wanted one agent for "
            "each record: records would be lost or doubled. Mend it."
        )
    if found.size and not (found.min() >= 0 and found.max() < shards.n_agents):
        raise InputError(
            f"It gives made-up records to agent {found.min() if found.min() < 0 else found.max()}, and there are "
            f"agents 0 to {shards.n_agents - 1}. Mend it."
        )
    return found
