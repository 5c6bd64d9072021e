"""Composition of the ledgers of several runs that use the same records.

A run with another partition or split may give a record to another agent. So the adversary chooses, for every run, the
agent and the split of the record. Every choice is one sequence of costs, and ε is the largest over all sequences. Above
`MOST_SEQUENCES`, costs are replaced by their elementwise maximum. Gaussian releases then compose with the largest μ of
every run.

The composition holds for settings that do not depend on earlier results. With adaptive settings it holds for pure
releases and for Gaussian releases that every record takes part in (Rogers et al. 2016; Smith & Thakurta 2022).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.privacy.accounting.accountants import epsilon_at
from decentral_dp.privacy.accounting.charges import (
    MOST_COLUMNS,
    SamplerCounts,
    charges,
    collect_charges,
    count_samples,
    gather,
)
from decentral_dp.privacy.accounting.float_slack import DrawnVariates, join_by_grid
from decentral_dp.privacy.accounting.loss_distributions import Releases
from decentral_dp.privacy.ledger import IntArray, Ledger

MOST_SEQUENCES = 32
# Relative reduction of ε below which no further bound on the samplers is composed.
_WORTH = 1e-3


class RecordCost(NamedTuple):
    """Privacy cost of one record in one or several runs, in a form that can be composed exactly.

    Attributes:
        releases: charges of the record's releases.
        counts: samples that protect the record, for a single group.
    """

    releases: Releases
    counts: SamplerCounts

    def join(self, other: RecordCost) -> RecordCost:
        """Return the joint cost of both."""
        a, b = self.counts, other.counts
        counts = SamplerCounts(
            a.epsilon + b.epsilon, a.delta + b.delta, a.ratio + b.ratio, tuple(join_by_grid([*a.normals, *b.normals]))
        )
        return RecordCost(self.releases.join(other.releases), counts)

    def epsilon(self, delta: float) -> float:
        """Compute ε at δ."""
        least = np.inf
        for slack in self.counts.slacks(delta):
            ideal = np.array([epsilon_at(self.releases, float(slack.remaining_delta(delta)[0]))])
            least = min(least, float(slack.total(ideal)[0]))
            if float(slack.added_epsilon(ideal)[0]) <= _WORTH * least < np.inf:
                break
        return least

    def to_json(self) -> dict[str, Any]:
        """Convert to floats and lists, in which equal releases form one entry with their number."""
        releases: dict[str, Any] = {}
        for name, part in self.releases._asdict().items():
            if np.ndim(part) == 0:
                releases[name] = part
                continue
            # One row [values …, count] for equal columns.
            columns, counts = np.unique(np.atleast_2d(part), axis=1, return_counts=True)
            releases[name] = [[*column, int(count)] for column, count in zip(columns.T.tolist(), counts, strict=True)]
        slack = [float(part[0]) for part in self.counts[:3]]
        normals = [
            [
                n.unit,
                *(float(part[0]) for part in (n.coordinates, n.n_randomised, n.weighted_number)),
                *n.sensitivities[0],
            ]
            for n in self.counts.normals
        ]
        return {"releases": releases, "slack": slack, "normals": normals}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RecordCost:
        """Restore a cost from the result of `to_json`."""
        parts: dict[str, Any] = {}
        for name, part in content["releases"].items():
            if not isinstance(part, list):
                parts[name] = float(part)
                continue
            height = np.shape(getattr(Releases(), name))[:-1]
            table = np.array(part, dtype=np.float64).reshape(len(part), (height or (1,))[0] + 1)
            parts[name] = np.repeat(table[:, :-1], table[:, -1].astype(np.int64), axis=0).T.reshape(*height, -1)
        normals = []
        for unit, *rest in content["normals"]:
            numbers = np.array([rest], dtype=np.float64)
            normals.append(DrawnVariates(unit, numbers[:, 0], numbers[:, 3:], numbers[:, 1], numbers[:, 2]))
        epsilon, delta, ratio = (np.array([part], dtype=np.float64) for part in content["slack"])
        return cls(Releases(**parts), SamplerCounts(epsilon, delta, ratio, tuple(normals)))


def record_costs(ledger: Ledger) -> list[RecordCost]:
    """Return the cost of a record for every split and every group of agents with equal charges.

    Args:
        ledger: releases of one run.

    Returns:
        The costs, or a single cost without charges if no release reads a record.

    Raises:
        InputError: no rule covers an entry of the ledger.
    """
    ledger_charges, costs = charges(ledger), list[RecordCost]()
    for split in ledger_charges.kinds:
        composition, counts = collect_charges(ledger_charges, split, None), count_samples(ledger_charges, split, None)
        bundles = composition.equal_groups(np.arange(composition.groups))
        if len(bundles) > MOST_COLUMNS:
            bundles = gather(bundles, np.maximum(composition.size(), np.finfo(np.float64).tiny))
        for bundle in bundles:
            epsilon, delta, ratio = (part[bundle].max(keepdims=True) for part in counts[:3])
            normals = tuple(_largest_variates(n, bundle) for n in counts.normals)
            of_bundle = SamplerCounts(epsilon, delta, ratio, normals)
            costs.append(RecordCost(composition.releases(bundle), of_bundle))
    zero = np.zeros(1)
    return costs or [RecordCost(Releases(), SamplerCounts(zero, zero, zero, ()))]


def _largest_variates(variates: DrawnVariates, groups: IntArray | slice) -> DrawnVariates:
    return DrawnVariates(variates.unit, *(part[groups].max(axis=0, keepdims=True) for part in variates[1:]))


def compose_runs(runs: Iterable[Sequence[RecordCost]], delta: float) -> float:
    """Compute ε at δ over several runs for the record with the largest cost.

    Args:
        runs: costs of every run, from `record_costs`.
        delta: privacy parameter δ.

    Returns:
        An upper bound on ε, which is 0 if there are no runs.

    Example:
        >>> from decentral_dp.privacy.ledger import ChannelLedger
        >>> ones = np.ones((4, 1))
        >>> line = ChannelLedger(channel="y", mechanism="gaussian", dimension=1, group=np.zeros(3, dtype=np.int64),
        ...     rounds=np.arange(1, 5), scale=4.0 * ones, sensitivity={"train": ones}, rate={"train": ones})
        >>> costs = record_costs(Ledger(3, (line,)))
        >>> round(compose_runs([costs], 1e-5), 3), round(compose_runs([costs] * 4, 1e-5), 3)
        (1.993, 4.377)
    """
    sequences: list[RecordCost] = []
    for costs in runs:
        candidates = list(costs)
        if all(cost.releases.only_gaussian for cost in candidates):
            candidates = [_largest_cost(candidates)]
        if len(sequences) * len(candidates) > MOST_SEQUENCES:
            sequences = [_largest_cost(sequences)]
        sequences = [a.join(b) for a, b in product(sequences, candidates)] if sequences else candidates
    return max((sequence.epsilon(delta) for sequence in sequences), default=0.0)


def _largest_cost(costs: Sequence[RecordCost]) -> RecordCost:
    """Return a cost that bounds each of these. Releases are paired in descending order."""
    if len(costs) == 1:
        return costs[0]
    fields: dict[str, Any] = {"mu": max(cost.releases.mu for cost in costs)}
    for name in (field for field in Releases._fields if field != "mu"):
        parts = [np.asarray(getattr(cost.releases, name)) for cost in costs]
        tables = [np.atleast_2d(part) for part in parts]
        width = max(table.shape[1] for table in tables)
        ordered = [table[:, np.argsort(-table[0], kind="stable")] for table in tables]
        largest = np.max([np.pad(table, ((0, 0), (0, width - table.shape[1]))) for table in ordered], axis=0)
        fields[name] = largest.reshape(*parts[0].shape[:-1], width)
    units = {n.unit for cost in costs for n in cost.counts.normals}
    normals = []
    for unit in sorted(units):
        parts_of_grid = [n for cost in costs for n in cost.counts.normals if n.unit == unit]
        stacked = DrawnVariates(unit, *(np.concatenate(parts) for parts in list(zip(*parts_of_grid, strict=True))[1:]))
        normals.append(_largest_variates(stacked, slice(None)))
    epsilon, delta, ratio = (np.max(parts, axis=0) for parts in zip(*(cost.counts[:3] for cost in costs), strict=True))
    return RecordCost(Releases(**fields), SamplerCounts(epsilon, delta, ratio, tuple(normals)))
