"""The in-process engine: all agents in one vectorised block, or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from decentral_dp.engines.coordinator import coordinate
from decentral_dp.engines.host import Host, View
from decentral_dp.engines.protocol import House, Node, Outcome, Snapshot
from decentral_dp.privacy.ledger import assemble


class LocalEngine:
    """Runs every block in turn in this process."""

    name = "local"

    def run(
        self, nodes: Sequence[Node], rounds: int, evaluate: Sequence[int], observe: Callable[[Snapshot], bool]
    ) -> Outcome:
        hosts = [Host(node, rounds) for node in nodes]
        exchanges = nodes[0].program.exchanges
        looks = set(evaluate) | {rounds}
        messages = [h.advance() for h in hosts]
        last = snapshot(0, [h.view() for h in hosts])
        done = 0 in looks and observe(last)
        for t in range(1, rounds + 1):
            if done:
                break
            for _ in range(exchanges):
                messages = [h.advance(*(messages[j] for j in node.near)) for h, node in zip(hosts, nodes, strict=True)]
            if t in looks:
                last = snapshot(t, [h.view() for h in hosts])
                done = observe(last)
        recorded = [(node.agents, h.recorder()) for node, h in zip(nodes, hosts, strict=True)]
        return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.exchanges))

    def coordinate(
        self, house: House, rounds: int, evaluate: Sequence[int], observe: Callable[[Snapshot], bool]
    ) -> Outcome:
        def everywhere(method: str, *arguments: Any) -> list[Any]:
            return [getattr(holder, method)(*arguments) for holder in house.holders]

        return coordinate(house, rounds, evaluate, observe, everywhere)


def snapshot(index: int, views: Sequence[View]) -> Snapshot:
    """Put the blocks' views side by side, in the order of the agents."""
    troubles = [v.trouble for v in views if v.trouble is not None]
    joined = [
        {c: np.concatenate([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    ]
    return Snapshot(index, joined[0], joined[1], joined[2], min(troubles, default=None))
