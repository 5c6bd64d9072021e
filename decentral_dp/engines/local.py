"""The in-process engine: all agents in one vectorised block, or in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.engines.arithmetic import machine_of_clients
from decentral_dp.engines.coordinator import CallBlocks, coordinate
from decentral_dp.engines.host import Host, View
from decentral_dp.engines.protocol import (
    UNATTENDED,
    AgentNode,
    CoordinatorNode,
    Outcome,
    ReleasedValues,
    RunControl,
    SavedState,
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
        saved = control.saved_state
        first = 0 if saved is None else saved.round
        parts = [None] * len(nodes) if saved is None else saved.parts
        # Rows of other blocks that nobody here reads are not copied beside those that are.
        cut = boundaries(nodes)
        nodes = [node.with_boundary(b) for node, b in zip(nodes, cut, strict=True)]
        hosts = [
            Host(node, rounds, part, control.keeps_releases, control.states)
            for node, part in zip(nodes, parts, strict=True)
        ]

        def call_blocks(method: str, *arguments: Any) -> list[Any]:
            return [getattr(host, method)(*arguments) for host in hosts]

        if control.check_machines is not None:
            control.check_machines(call_blocks("machine"))
        if any(node.read_dataset is not None for node in nodes):
            first = last_common(call_blocks("saved_rounds"))
            call_blocks("resume_after", first)
        releases_per_round = nodes[0].program.releases_per_round
        observed = control.observes(rounds)
        messages = call_blocks("advance")
        agents = [node.agents for node in nodes]
        last = snapshot(first, call_blocks, agents)
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
                last = snapshot(t, call_blocks, agents)
                done = control.observe(last)
        recorded = list(zip(agents, call_blocks("recorder"), strict=True))
        call_blocks("forget")
        return Outcome(last, assemble(recorded, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round))

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program; as in `Engine`."""

        def call_blocks(method: str, *arguments: Any) -> list[Any]:
            return [getattr(client_block, method)(*arguments) for client_block in coordinator_node.client_blocks]

        if control.check_machines is not None:
            control.check_machines([machine_of_clients(block) for block in coordinator_node.client_blocks])
        return coordinate(coordinator_node, rounds, call_blocks, control)


def snapshot(index: int, call_blocks: CallBlocks, agents: Sequence[NDArray[np.int64]]) -> Snapshot:
    """Join the blocks' views in the order of the agents.

    Args:
        index: the round.
        call_blocks: calls a method of every `Host`, and returns what they answer, in their order.
        agents: of each block.

    Returns:
        Arrays of (m, ·), and the first value of all blocks that was not finite.
    """
    join = _join_of(agents)
    views: list[View] = call_blocks("view")
    troubles = [v.divergence for v in views if v.divergence is not None]
    released, published, state = (
        {c: join([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    )
    divergence = min(troubles, default=None)

    def drain(ending: bool) -> list[ReleasedValues]:
        return drain_blocks(call_blocks, agents, ending)

    def save() -> SavedState:
        return SavedState(index, tuple(call_blocks("save")))

    def score(values: Mapping[str, Array]) -> list[Any]:
        return call_blocks("score", dict(values))

    return Snapshot(index, released, published, state, divergence, save, drain, score)


def drain_blocks(call_blocks: CallBlocks, agents: Sequence[NDArray[np.int64]], ending: bool) -> list[ReleasedValues]:
    """Drain the released values of all blocks, and join them in the order of the agents.

    Args:
        call_blocks: as of `snapshot`.
        agents: of each block.
        ending: as of `Snapshot.drain`.
    """
    join = _join_of(agents)
    return [
        ReleasedValues(blocks[0].release_index, {c: join([b.values[c] for b in blocks]) for c in blocks[0].values})
        for blocks in zip(*call_blocks("drain", ending), strict=True)
    ]


def _join_of(agents: Sequence[NDArray[np.int64]]) -> Callable[[Sequence[Array]], Array]:
    """The function that joins rows of all blocks in the order of the agents."""
    every = np.concatenate(agents)
    place = None if (np.diff(every) > 0).all() else np.argsort(every)

    def join(parts: Sequence[Array]) -> Array:
        rows = np.concatenate(parts)
        return rows if place is None else rows[place]

    return join
