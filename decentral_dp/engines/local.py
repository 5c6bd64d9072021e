"""The in-process engine: all agents in one vectorised block, or in several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decentral_dp.engines.coordinator import coordinate
from decentral_dp.engines.host import Host, View
from decentral_dp.engines.protocol import AgentNode, CoordinatorNode, Observer, Outcome, Snapshot
from decentral_dp.privacy.recorder import assemble


class LocalEngine:
    """The in-process engine, which runs every block in turn.

    Example:
        >>> LocalEngine().name
        'local'
    """

    name = "local"

    def run(self, nodes: Sequence[AgentNode], rounds: int, evaluate: Sequence[int], observe: Observer) -> Outcome:
        """Run the nodes for a number of rounds; as in `Engine`."""
        hosts = [Host(node, rounds) for node in nodes]
        releases_per_round = nodes[0].program.releases_per_round
        evaluation_rounds = set(evaluate) | {rounds}
        messages = [h.advance() for h in hosts]
        last = snapshot(0, [h.view() for h in hosts])
        done = 0 in evaluation_rounds and observe(last)
        for t in range(1, rounds + 1):
            if done:
                break
            for _ in range(releases_per_round):
                messages = [
                    h.advance(*(messages[j] for j in node.neighbours)) for h, node in zip(hosts, nodes, strict=True)
                ]
            if t in evaluation_rounds:
                last = snapshot(t, [h.view() for h in hosts])
                done = observe(last)
        recorded = [(node.agents, h.recorder()) for node, h in zip(nodes, hosts, strict=True)]
        return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))

    def coordinate(
        self, coordinator_node: CoordinatorNode, rounds: int, evaluate: Sequence[int], observe: Observer
    ) -> Outcome:
        """Run a trusted coordinator's program; as in `Engine`."""

        def everywhere(method: str, *arguments: Any) -> list[Any]:
            return [getattr(client_block, method)(*arguments) for client_block in coordinator_node.client_blocks]

        return coordinate(coordinator_node, rounds, evaluate, observe, everywhere)


def snapshot(index: int, views: Sequence[View]) -> Snapshot:
    """Join the blocks' views in the order of the agents.

    Args:
        index: the round.
        views: one per block.

    Returns:
        Arrays of (m, ·), and the first value of all blocks that was not finite.
    """
    troubles = [v.divergence for v in views if v.divergence is not None]
    joined = [
        {c: np.concatenate([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    ]
    return Snapshot(index, joined[0], joined[1], joined[2], min(troubles, default=None))
