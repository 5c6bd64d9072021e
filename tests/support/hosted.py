"""A job whose blocks are actors of the Ray engine, in this process and without Ray."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.engines.local import snapshot
from decentral_dp.engines.protocol import Snapshot, boundaries
from decentral_dp.engines.ray import Actor


def released_by_actors(job: Any, members: Sequence[np.ndarray]) -> list[Snapshot]:
    """Return the values released after every round, with these agents on each actor."""
    nodes = job.nodes(members=members)
    cut = boundaries(nodes)
    actors = [Actor() for _ in nodes]
    for actor, node, boundary in zip(actors, nodes, cut, strict=True):
        actor.begin(node, boundary, job.rounds, None, False, None)

    def call_blocks(method: str, *given: Any) -> list[Any]:
        return [actor.call(method, *given) for actor in actors]

    def seen(t: int) -> Snapshot:
        return snapshot(t, call_blocks, members)

    messages: list[Array] = [actor.advance() for actor in actors]
    found = [seen(0)]
    for t in range(1, job.rounds + 1):
        near = [[j for j in node.neighbours if j != k] for k, node in enumerate(nodes)]
        if (over_time := nodes[0].over_time) is not None:
            hears = [b.blocks_read(over_time.transfer_weights(t - 1)) for b in cut]
            near = [list(itertools.compress(*both)) for both in zip(near, hears, strict=True)]
        for _ in range(nodes[0].program.releases_per_round):
            messages = [a.advance(*(messages[j] for j in some)) for a, some in zip(actors, near, strict=True)]
        found.append(seen(t))
    return found
