"""The in-process engine: all agents in one vectorised block, or in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.engines.host import Host, View, coordinate
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
        nodes = [node.within(b) for node, b in zip(nodes, cut, strict=True)]
        hosts = [
            Host(node, rounds, part, control.keeps_releases, control.states)
            for node, part in zip(nodes, parts, strict=True)
        ]
        if any(node.read is not None for node in nodes):
            first = last_common(h.held() for h in hosts)
            for h in hosts:
                h.go_on(first)
        releases_per_round = nodes[0].program.releases_per_round
        observed = control.observed(rounds)
        messages = [h.advance() for h in hosts]

        def drain(ending: bool) -> list[list[ReleasedValues]]:
            return [h.drain(ending) for h in hosts]

        def look(t: int) -> Snapshot:
            return snapshot(t, [h.view() for h in hosts], lambda: [h.save() for h in hosts], drain, score)

        def score(values: Mapping[str, Array]) -> list[Any]:
            return [h.score(values) for h in hosts]

        last = look(first)
        done = observed(first) and control.observe(last)
        for t in range(first + 1, rounds + 1):
            if done:
                break
            for _ in range(releases_per_round):
                sent = [b.of(m) for m, b in zip(messages, cut, strict=True)]
                messages = [
                    hosts[k].advance(*(messages[k] if j == k else sent[j] for j in node.neighbours))
                    for k, node in enumerate(nodes)
                ]
            if observed(t):
                last = look(t)
                done = control.observe(last)
        recorded = [(node.agents, h.recorder()) for node, h in zip(nodes, hosts, strict=True)]
        for h in hosts:
            h.forget()
        return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program; as in `Engine`."""

        def everywhere(method: str, *arguments: Any) -> list[Any]:
            return [getattr(client_block, method)(*arguments) for client_block in coordinator_node.client_blocks]

        return coordinate(coordinator_node, rounds, everywhere, control)


def snapshot(
    index: int,
    views: Sequence[View],
    save: Callable[[], list[dict[str, Any]]],
    drain: Callable[[bool], list[list[ReleasedValues]]],
    score: Callable[[Mapping[str, Array]], list[Any]],
) -> Snapshot:
    """Join the blocks' views in the order of the agents.

    Args:
        index: the round.
        views: one per block.
        save: returns what each block needs to go on from here.
        drain: returns what each block keeps of what it has released.
        score: returns what each block's own records make of values.

    Returns:
        Arrays of (m, ·), and the first value of all blocks that was not finite.
    """
    troubles = [v.divergence for v in views if v.divergence is not None]
    joined = [
        {c: np.concatenate([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    ]
    divergence = min(troubles, default=None)

    def released(ending: bool) -> list[ReleasedValues]:
        return [_joined(blocks) for blocks in zip(*drain(ending), strict=True)]

    return Snapshot(
        index, joined[0], joined[1], joined[2], divergence, lambda: Saved(index, tuple(save())), released, score
    )


def _joined(blocks: Sequence[ReleasedValues]) -> ReleasedValues:
    """What all blocks released at one index."""
    first = blocks[0]
    return ReleasedValues(first.at, {c: np.concatenate([b.values[c] for b in blocks]) for c in first.values})
