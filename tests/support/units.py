"""Privacy units of small jobs: their keys, neighbouring data sets, and noiseless messages at equal releases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.exchange import Bundle, Reply
from decentral_dp.privacy.clipping import Unit

KEYS: tuple[Mapping[str, Any], ...] = (
    {},
    {"neighbours": "zero_out"},
    {"unit": 3},
    {"unit": 3, "neighbours": "zero_out"},
    {"unit": "agent"},
    {"unit": "agent", "neighbours": "zero_out"},
)


def data_sets(records: Any, unit: Unit, draw: np.random.Generator, extreme: bool) -> Iterator[Any]:
    """Two data sets that differ in the unit: its features are opposite and long if `extreme`, or of any size.

    The model is symmetric in the first feature, so that neither gradient saturates.
    """
    n = len(records.label)
    members = np.arange(n) if unit.records is None else draw.choice(n, min(unit.records, n), replace=False)
    for side in (1.0, -1.0):
        features = records.features.copy()
        row = np.zeros(features.shape[1])
        row[0] = 1e6 * side
        drawn = draw.normal(size=(members.size, row.size)) * 10.0 ** draw.integers(-2, 5, size=(members.size, 1))
        features[members] = row if extreme else drawn
        label = records.label.copy()
        label[members] = 1.0
        if unit.zeroed and side < 0.0:
            # A record that is not finite contributes nothing, like a zeroed one.
            features[members] = np.nan
        yield type(records)(features, label)


def with_train(job: Any, agent: int, records: Any) -> Any:
    changed = tuple(records if k == agent else r for k, r in enumerate(job.records["train"]))
    return replace(job, records={**job.records, "train": changed})


def replayed(job: Any) -> list[Array]:
    """Noiseless messages of each agent in each round, (m, q), while all release the same synthetic values."""
    said, channel = [], job.ledger.charged_channels[0].channel
    nodes, public = job.nodes([job.n_agents]), np.random.default_rng(0).normal(size=(job.rounds + 1, job.n_agents, 1))
    node = nodes[0]
    state = node.program.init(node.dataset)
    for t in range(job.rounds):
        step = node.program.step(t, node.dataset, state)
        exchange = next(step)
        released = np.broadcast_to(public[t], exchange.values["y"].shape).copy()
        released[:, 0] = 0.0
        if t:
            said.append(exchange.values[channel].private)
        out = {c: released if c == channel else v for c, v in exchange.values.items()}
        try:
            step.send(Reply(Bundle(out), Bundle({c: node.mixing @ v for c, v in out.items()})))
        except StopIteration as done:
            state = done.value
    said.append(getattr(state, channel).private)
    return said
