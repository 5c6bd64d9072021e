"""In-process engine, and the run of a trusted coordinator's program on any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array, Bounded
from decentral_dp.engines.arithmetic import machine_digest
from decentral_dp.engines.host import Host, View
from decentral_dp.engines.protocol import (
    MOST_OF_SCALE,
    UNATTENDED,
    AgentNode,
    CoordinatorNode,
    DivergedRelease,
    Outcome,
    ReleasedValues,
    RunControl,
    SavedState,
    Snapshot,
    boundaries,
    last_common,
    release_scale,
)
from decentral_dp.exchange import Ask, Pool, Release, Released
from decentral_dp.privacy.recorder import assemble
from decentral_dp.user_code import (
    USER_ERRORS,
    UserCodeError,
    author_of,
    raise_in_round,
    running_step,
    wrong_exchanges,
    wrong_yield,
)

# Calls a method of every block of agents, and returns their results in order.
CallBlocks = Callable[..., list[Any]]


def coordinate(
    coordinator_node: CoordinatorNode,
    rounds: int,
    call_blocks: CallBlocks,
    control: RunControl = UNATTENDED,
) -> Outcome:
    """Run a trusted coordinator's program.

    Agents receive public values only, and the observer receives published values only.

    Args:
        coordinator_node: program, context and agents.
        rounds: number of rounds T.
        call_blocks: function that calls a method of every block of agents, and returns the results in order.
        control: observer of the run, and state from which to resume; by default there is neither.

    Returns:
        The last snapshot and the ledger of all agents.
    """
    if coordinator_node.reads:
        # All records are read before the first release.
        call_blocks("ready")
    coordinator = _Coordinator(coordinator_node, call_blocks, control.keeps_releases)
    first = 0
    if control.saved_state is not None:
        first = control.saved_state.round
        coordinator.restore(control.saved_state.parts[0])
    is_observed = control.observes(rounds)
    last = coordinator.snapshot(first)
    stops = is_observed(first) and control.observe(last)
    for t in range(first + 1, rounds + 1):
        if stops:
            break
        coordinator.round(t - 1)
        if is_observed(t):
            last = coordinator.snapshot(t)
            stops = control.observe(last)
    return Outcome(
        last,
        coordinator.releaser.ledger(coordinator_node.program.releases_per_round).repeat(coordinator_node.n_agents),
    )


class _Coordinator:
    """State of a coordinator's program, its releaser and its divergence."""

    def __init__(self, coordinator_node: CoordinatorNode, call_blocks: CallBlocks, keeps_releases: bool) -> None:
        self.releaser = coordinator_node.make_releaser()
        self._coordinator_node = coordinator_node
        self._call_blocks = call_blocks
        self._state: Any = coordinator_node.program.init(coordinator_node.context)
        self._questions = 0
        self._pool: Any = None
        self._divergence: DivergedRelease | None = None
        # Public length of the start and of all releases so far.
        start = coordinator_node.program.published(self._state).values()
        self._scale = 1.0 + max((float(np.linalg.norm(v)) for v in start), default=0.0)
        self._keeps_releases = keeps_releases
        self._undrained: list[ReleasedValues] = []

    def round(self, t: int) -> None:
        """Run round t + 1 from exchange to exchange."""
        program = self._coordinator_node.program
        index, end = t * program.releases_per_round, (t + 1) * program.releases_per_round
        running = running_step(program, t, self._coordinator_node.context, self._state)
        reply: Any = None
        # Overflow is divergence, not a warning.
        with np.errstate(all="ignore"):
            while True:
                try:
                    request = running.send(reply)
                except StopIteration as done:
                    self._state = done.value
                    break
                except USER_ERRORS as error:
                    raise_in_round(error, t + 1)
                if isinstance(request, Release):
                    if index == end:
                        wrong_exchanges(program, t + 1, "publishes", f"{program.releases_per_round + 1} times or more")
                    index += 1
                    try:
                        reply = self.releaser.release(index, request.values)
                    except (ValueError, KeyError) as error:
                        text = f"round {t + 1}: step of {author_of(program)}: {error}; it was not made."
                        raise UserCodeError(text) from error
                    self._add_to_scale(request.values, reply)
                    self._check_length(t + 1, reply.released)
                    if self._keeps_releases:
                        self._undrained.append(ReleasedValues(index, dict(reply.released)))
                elif isinstance(request, Ask):
                    self._questions += 1
                    blocks = self._call_blocks("answer", self._questions, request.values)
                    answers = {name: np.concatenate([block[name] for block in blocks]) for name in request.values}
                    reply = self._coordinator_node.context.combine(self._questions, request.values, answers)
                elif isinstance(request, Pool):
                    if self._pool is None:
                        handed_records = [records for block in self._call_blocks("hand_over") for records in block]
                        self._pool = self._coordinator_node.context.pool(handed_records)
                    reply = self._pool
                else:
                    raise wrong_yield(program, t + 1, f"yields {type(request).__name__}")
        # Values computed from releases may diverge even if the releases do not.
        self._check_length(t + 1, program.published(self._state))
        if index != end:
            count = index - t * program.releases_per_round
            wrong_exchanges(program, t + 1, "publishes", f"{count} time{'s' * (count != 1)}")

    def _add_to_scale(self, values: Mapping[str, Any], reply: Released) -> None:
        node = self._coordinator_node
        for channel, value in values.items():
            if isinstance(value, Bounded):
                moves, width = [float(s.sensitivity[0]) for s in value.sensitivities.values()], value.value.shape[1]
                scale = release_scale(reply.scale[channel], moves, width, node.most_records)
                self._scale += max(1.0, node.largest_step) * scale
            elif not isinstance(value, np.ndarray):
                # A draw from a public set has at most the length of the set's diameter.
                self._scale += float(np.linalg.norm(reply.released[channel]))

    def _check_length(self, t: int, values: Mapping[str, Any]) -> None:
        """Record a released or published value that is not finite or is too large for its public scale."""
        if self._divergence is None:
            limit = MOST_OF_SCALE * self._scale
            for channel, value in values.items():
                finite = bool(np.isfinite(value).all())
                with np.errstate(over="ignore"):
                    is_short = float(np.linalg.norm(value)) <= limit
                if not (finite and is_short):
                    self._divergence = DivergedRelease(t, channel, finite)
                    return

    def snapshot(self, t: int) -> Snapshot:
        """Return the published values, which are the only observed values."""
        published: dict[str, Array] = {
            c: np.asarray(v)[None] for c, v in self._coordinator_node.program.published(self._state).items()
        }

        def drain(ending: bool) -> list[ReleasedValues]:
            # Finished rounds are released only once.
            pending, self._undrained = self._undrained, []
            return pending

        return Snapshot(
            t, published, published, published, self._divergence, lambda: SavedState(t, (self._save(),)), drain
        )

    def _save(self) -> dict[str, Any]:
        # After a restart, agents send the records again, which is not a release.
        return {
            "state": self._state,
            "asked": self._questions,
            "divergence": self._divergence,
            "scale": self._scale,
            "recorded": self.releaser.recorder.lines(),
        }

    def restore(self, saved_state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        self._state, self._questions = saved_state["state"], saved_state["asked"]
        self._divergence, self._scale = saved_state["divergence"], saved_state["scale"]
        self.releaser.recorder.load(saved_state["recorded"], [c.mechanism for c in self.releaser.plan.channels])


class LocalEngine:
    """In-process engine, which runs all blocks in turn.

    Example:
        >>> LocalEngine().name
        'local'
    """

    name = "local"

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the nodes for a number of rounds. See `Engine`."""
        saved_state = control.saved_state
        first = 0 if saved_state is None else saved_state.round
        parts = [None] * len(nodes) if saved_state is None else saved_state.parts
        # Rows of other blocks that this block does not read are not copied.
        node_boundaries = boundaries(nodes)
        nodes = [node.with_boundary(b) for node, b in zip(nodes, node_boundaries, strict=True)]
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
        is_observed = control.observes(rounds)
        messages = call_blocks("advance")
        agents = [node.agents for node in nodes]
        last = snapshot(first, call_blocks, agents)
        stops = is_observed(first) and control.observe(last)
        for t in range(first + 1, rounds + 1):
            if stops:
                break
            for _ in range(releases_per_round):
                # A single block has no neighbours.
                outgoing = (
                    [b.outgoing(m) for m, b in zip(messages, node_boundaries, strict=True)]
                    if len(nodes) > 1
                    else messages
                )
                messages = [
                    hosts[k].advance(*(messages[k] if j == k else outgoing[j] for j in node.neighbours))
                    for k, node in enumerate(nodes)
                ]
            if is_observed(t):
                last = snapshot(t, call_blocks, agents)
                stops = control.observe(last)
        recorders = list(zip(agents, call_blocks("recorder"), strict=True))
        call_blocks("forget")
        return Outcome(
            last, assemble(recorders, sum(n.agents.size for n in nodes), nodes[0].program.releases_per_round)
        )

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program. See `Engine`."""

        def call_blocks(method: str, *arguments: Any) -> list[Any]:
            return [getattr(client_block, method)(*arguments) for client_block in coordinator_node.client_blocks]

        if control.check_machines is not None:
            control.check_machines([machine_digest(block) for block in coordinator_node.client_blocks])
        return coordinate(coordinator_node, rounds, call_blocks, control)


def snapshot(index: int, call_blocks: CallBlocks, agents: Sequence[NDArray[np.int64]]) -> Snapshot:
    """Join the blocks' views in the order of the agents.

    Args:
        index: index of the round.
        call_blocks: function that calls a method of every `Host`, and returns the results in order.
        agents: numbers of the agents of each block.

    Returns:
        The snapshot with arrays (m, ·), and the first value of any block that was not finite.
    """
    join = _join_of(agents)
    views: list[View] = call_blocks("view")
    troubles = [v.divergence for v in views if v.divergence is not None]
    released, published, state = (
        {c: join([getattr(v, part)[c] for v in views]) for c in getattr(views[0], part)}
        for part in ("released", "published", "state")
    )
    return Snapshot(
        index,
        released,
        published,
        state,
        divergence=min(troubles, default=None),
        save=lambda: SavedState(index, tuple(call_blocks("save"))),
        drain=partial(drain_blocks, call_blocks, agents),
        score=lambda values: call_blocks("score", dict(values)),
    )


def drain_blocks(call_blocks: CallBlocks, agents: Sequence[NDArray[np.int64]], ending: bool) -> list[ReleasedValues]:
    """Drain the released values of all blocks, and join them in the order of the agents.

    Args:
        call_blocks: function that calls a method of every `Host`, as in `snapshot`.
        agents: numbers of the agents of each block.
        ending: whether to include the first release of the next round.
    """
    join = _join_of(agents)
    return [
        ReleasedValues(blocks[0].release_index, {c: join([b.values[c] for b in blocks]) for c in blocks[0].values})
        for blocks in zip(*call_blocks("drain", ending), strict=True)
    ]


def _join_of(agents: Sequence[NDArray[np.int64]]) -> Callable[[Sequence[Array]], Array]:
    """Return a function that joins rows of all blocks in the order of the agents."""
    numbers = np.concatenate(agents)
    place = None if (np.diff(numbers) > 0).all() else np.argsort(numbers)

    def join(parts: Sequence[Array]) -> Array:
        rows = np.concatenate(parts)
        return rows if place is None else rows[place]

    return join
