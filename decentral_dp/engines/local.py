"""The in-process engine: all agents in one vectorised block, or in several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.engines.host import Everywhere, Host, View, coordinate
from decentral_dp.engines.protocol import (
    UNATTENDED,
    AgentNode,
    CoordinatorNode,
    Outcome,
    ReleasedValues,
    RunControl,
    Saved,
    Snapshot,
    boundaries,
    last_common,
)
from decentral_dp.privacy.recorder import assemble


class LocalEngine:
    """The in-process engine, which runs every block in turn.

    Example:
        >>> LocalEngine().name
        'local'
    """

    name = "local"

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the nodes for a number of rounds; as in `Engine`."""
        saved = control.saved
        first = 0 if saved is None else saved.round
        parts = [None] * len(nodes) if saved is None else saved.parts
        # Rows of other blocks that nobody here reads are not copied beside those that are.
        cut = boundaries(nodes)
        nodes = [node.with_boundary(b) for node, b in zip(nodes, cut, strict=True)]
        hosts = [
            Host(node, rounds, part, control.keeps_releases, control.states)
            for node, part in zip(nodes, parts, strict=True)
        ]

        def everywhere(method: str, *arguments: Any) -> list[Any]:
            return [getattr(host, method)(*arguments) for host in hosts]

        if any(node.read is not None for node in nodes):
            first = last_common(everywhere("saved_rounds"))
            everywhere("go_on", first)
        releases_per_round = nodes[0].program.releases_per_round
        observed = control.observes(rounds)
        messages = everywhere("advance")
        of = [node.agents for node in nodes]
        last = snapshot(first, everywhere, of)
        done = observed(first) and control.observe(last)
        for t in range(first + 1, rounds + 1):
            if done:
                break
            for _ in range(releases_per_round):
                # A single block reads nobody else.
                sent = [b.outgoing(m) for m, b in zip(messages, cut, strict=True)] if len(nodes) > 1 else messages
                messages = [
                    hosts[k].advance(*(messages[k] if j == k else sent[j] for j in node.neighbours))
                    for k, node in enumerate(nodes)
                ]
            if observed(t):
                last = snapshot(t, everywhere, of)
                done = control.observe(last)
        recorded = list(zip((node.agents for node in nodes), everywhere("recorder"), strict=True))
        everywhere("forget")
        return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program; as in `Engine`."""

        def everywhere(method: str, *arguments: Any) -> list[Any]:
            return [getattr(client_block, method)(*arguments) for client_block in coordinator_node.client_blocks]

        return coordinate(coordinator_node, rounds, everywhere, control)


def snapshot(index: int, everywhere: Everywhere, agents: Sequence[NDArray[np.int64]]) -> Snapshot:
    """Join the blocks' views in the order of the agents.

    Args:
        index: the round.
        everywhere: calls a method of every `Host`, and returns what they answer, in their order.
        agents: of each block.

    Returns:
        Arrays of (m, ·), and the first value of all blocks that was not finite.
    """
    every = np.concatenate(agents)
    place = None if (np.diff(every) > 0).all() else np.argsort(every)

    def joined(parts: Sequence[Array]) -> Array:
        rows = np.concatenate(parts)
        return rows if place is None else rows[place]

    def released_at(blocks: Sequence[ReleasedValues]) -> ReleasedValues:
        first = blocks[0]
        return ReleasedValues(first.release_index, {c: joined([b.values[c] for b in blocks]) for c in first.values})

    views: list[View] = everywhere("view")
    troubles = [v.divergence for v in views if v.divergence is not None]
    released, published, state = (
        {c: joined([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    )
    divergence = min(troubles, default=None)

    def drain(ending: bool) -> list[ReleasedValues]:
        return [released_at(blocks) for blocks in zip(*everywhere("drain", ending), strict=True)]

    def save() -> Saved:
        return Saved(index, tuple(everywhere("save")))

    def score(values: Mapping[str, Array]) -> list[Any]:
        return everywhere("score", dict(values))

    return Snapshot(index, released, published, state, divergence, save, drain, score)
