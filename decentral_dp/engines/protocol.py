"""Protocol of engines: blocks of agents that run one program, their messages, snapshots and recovery.

A block sends another block only the messages of agents that the other block reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.exchange import Coordination, Program
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.releasers import CheckedReleaser, PlannedReleaser, ScheduledReleaser
from decentral_dp.topology.byzantine import Aggregation, Attack
from decentral_dp.topology.compression import Compression
from decentral_dp.topology.over_time import OverTime

# Adds noise and writes the ledger entry, in one place.
Releaser = ScheduledReleaser | CheckedReleaser
# Channel → (low, high).
Domain = Mapping[str, tuple[float, float]] | None
# Rounds whose states agents keep, oldest first, each with a digest that leaks nothing about the state.
Receipts = Sequence[tuple[int, str]]


class Hosted(NamedTuple):
    """Data of a block of agents in its process.

    Args:
        dataset: records of the agents.
        score: function from values of all agents, channel → (m, d), to scores on the block's records; None (the
            default) lets the driver compute scores.
        states: function from the name of a run and its receipts to its `AgentStates`; None (the default) lets the
            driver keep states.
    """

    dataset: Any
    score: Callable[[Mapping[str, Array]], Any] | None = None
    states: Callable[[str, Receipts], Any] | None = None


class AgentNode(NamedTuple):
    """Block of agents, with the data needed to host it in a process.

    If the program answers a server, `neighbours` are all blocks, and `mixing` is one row of 1/m.

    Args:
        agents: indices of the agents, (b,), ascending.
        program: program of the agents.
        dataset: records of the agents.
        make_releaser: function that builds the releaser in the process of the host.
        neighbours: numbers of the blocks whose messages this block reads, ascending.
        mixing: weights w_ij for j ≠ i, (b, Σ sizes of these blocks).
        average: number of last released values that are averaged for evaluation, default 1.
        domain: box onto which releases and public states are projected, default none.
        read_dataset: function that reads the data in the process of the host, instead of `dataset`, default None. With
            it, private states remain there: snapshots have no state, and saved states are receipts.
        over_time: weights that change from round to round, whose edges are all in `mixing`; None (the default) means
            constant weights.
        columns: agent of each column of `mixing`, if weights change.
        compression: compression of messages, default None.
        attack: Byzantine agents, default none; requires a single block.
        aggregation: robust aggregation, default weighted sums; requires a single block.
        public_scale: public length of an agent's releases, one number or (b,). A run has diverged above
            `MOST_OF_SCALE` times the sum of this scale and the length of the start. By default the scale is infinite,
            so that only values that are not finite diverge.
    """

    agents: NDArray[np.int64]
    program: Program
    dataset: Any
    make_releaser: Callable[[], Releaser]
    neighbours: tuple[int, ...]
    mixing: sp.csr_array
    average: int = 1
    domain: Domain = None
    read_dataset: Callable[[], Hosted] | None = None
    over_time: OverTime | None = None
    columns: NDArray[np.int64] | None = None
    compression: Compression | None = None
    attack: Attack | None = None
    aggregation: Aggregation | None = None
    public_scale: float | Array = math.inf

    def with_boundary(self, boundary: Boundary) -> AgentNode:
        """Return the block that reads its own message and the rows that other blocks send."""
        columns = None if self.columns is None else self.columns[boundary.kept_columns]
        return self._replace(mixing=boundary.mixing, columns=columns)


class CoordinatorNode(NamedTuple):
    """Trusted coordinator and its agents.

    Args:
        program: the coordinator's program.
        context: public facts, with methods that combine the agents' answers (`combine`, `pool`).
        make_releaser: function that builds the releaser.
        client_blocks: blocks of agents in order, each with `answer` and `hand_over`.
        n_agents: number of agents.
        reads: whether the hosts of the blocks read the records when `ready` is called, default False.
        most_records: largest number of records that a release reads, default 1.
        largest_step: largest step size of the program, default 1.
    """

    program: Coordination
    context: Any
    make_releaser: Callable[[], PlannedReleaser]
    client_blocks: tuple[Any, ...]
    n_agents: int
    reads: bool = False
    most_records: int = 1
    largest_step: float = 1.0


# Length of released values, in units of their public scale, above which a run has diverged.
MOST_OF_SCALE = 1e6


def release_scale(
    noise: float | Array, sensitivities: Iterable[float | Array], dimension: int, records: float, growth: float = 1.0
) -> float:
    """Compute the length of released values from public noise scales and clips.

    The length is Σ_t (σ_t √d g + Σ_k N Δ_k,t). A release without a clip contributes 1.

    Args:
        noise: standard deviations σ of the noise, (R,), or one number.
        sensitivities: sensitivities Δ of each split, in the shape of the noise.
        dimension: dimension d.
        records: largest number N of records that a release reads.
        growth: growth g of correlated noise, default 1.

    Returns:
        A threshold for divergence with the margin `MOST_OF_SCALE`. It is not a bound on the length.
    """
    with np.errstate(over="ignore"):
        moves = sum((np.asarray(s, dtype=np.float64) * records for s in sensitivities), np.zeros(np.shape(noise)))
        return float(np.sum(noise)) * math.sqrt(dimension) * growth + float(
            np.where(np.isfinite(moves), moves, 1.0).sum()
        )


class DivergedRelease(NamedTuple):
    """First released value that is not finite or is too large for its public scale.

    Args:
        round: round, from 1; 0 for the start.
        channel: channel of the release.
        finite: whether the value is finite, default False.
    """

    round: int
    channel: str
    finite: bool = False


class SavedState(NamedTuple):
    """State of a run between two rounds. A run that resumes from it is bitwise identical to an uninterrupted run.

    Args:
        round: number t of completed rounds.
        parts: state of each block of agents, or of the coordinator, as numbers, strings, arrays, `Bounded`, and tuples,
            lists and dicts of them, without code. Blocks that keep their states have {"states": Receipts}.
    """

    round: int
    parts: tuple[Mapping[str, Any], ...]


class ReleasedValues(NamedTuple):
    """Released values of one index.

    Args:
        release_index: index of the release.
        values: channel → released values, (m, d), or (1, d) for a coordinator.
    """

    release_index: int
    values: Mapping[str, Array]


class Snapshot(NamedTuple):
    """Values of all agents after a round, for evaluation, as (m, ·) arrays by channel.

    Args:
        round: number of the round.
        released: last released values.
        published: average of the last released values.
        state: private states of the agents.
        divergence: first released value that is not finite or is too long; None if there is none.
        save: function that returns the state from which to resume; call it before the next round.
        drain: function that returns the released values since the last call, if they are kept. Releases that a run
            repeats when it resumes from this round are returned by the next call, unless the run is ending.
        score: function from values of all agents to scores of each block, if agents hold their records.
    """

    round: int
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    state: Mapping[str, Array]
    divergence: DivergedRelease | None
    save: Callable[[], SavedState]
    drain: Callable[[bool], list[ReleasedValues]] = lambda ending: []
    score: Callable[[Mapping[str, Array]], list[Any]] = lambda values: []


class BlockLostError(RuntimeError):
    """Loss of a block of agents during a call.

    The engine starts it again and repeats the observation. An observer must not catch this error.
    """


class Outcome(NamedTuple):
    """Outcome of a run.

    Args:
        last_snapshot: snapshot of the last round.
        ledger: ledger of the recorded releases.
    """

    last_snapshot: Snapshot
    ledger: Ledger


class RunControl(NamedTuple):
    """Observer of a run, and the state from which to resume.

    Args:
        rounds: rounds to observe, default none; the last round is always observed.
        observe: function of a snapshot, default none, that is called before any release of the next round; True ends
            the run. It is called again for a round at which it raised `BlockLostError`.
        due: function that returns whether to observe a round that is not listed, default never.
        saved_state: state from which to resume; None (the default) starts a new run.
        keeps_releases: whether released values are kept for `Snapshot.drain`, default False.
        states: name of the run, under which agents that hold their records keep their states; None (the default) keeps
            no states.
        check_machines: function of the `machine_digest` of each block, called after every start of blocks and before
            any release; it raises InputError if the run cannot continue. None (the default) accepts any machine.
    """

    rounds: Iterable[int] = ()
    observe: Callable[[Snapshot], bool | None] = lambda snapshot: None
    due: Callable[[int], bool] = lambda t: False
    saved_state: SavedState | None = None
    keeps_releases: bool = False
    states: str | None = None
    check_machines: Callable[[Sequence[str]], None] | None = None

    def observes(self, last: int) -> Callable[[int], bool]:
        """Return a function of the round that returns whether it is observed.

        Args:
            last: last round T.

        Example:
            >>> observed = RunControl(rounds=[0, 5]).observes(last=9)
            >>> [t for t in range(10) if observed(t)]
            [0, 5, 9]
        """
        round_set = {*self.rounds, last}
        return lambda t: t in round_set or self.due(t)


# A run from the first round to the last, observed at the end only.
UNATTENDED = RunControl()


class Engine(Protocol):
    """Engine that runs blocks of agents for a number of rounds."""

    @property
    def name(self) -> str: ...

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the program of every block of agents, and deliver their messages.

        Args:
            nodes: all blocks, in the order of their agents.
            rounds: number of rounds T, after which the final values are released.
            control: observer of the run, and state from which to resume; by default there is neither.

        Returns:
            The last snapshot, with one row per agent, and the ledger.

        Raises:
            InputError: a block cannot read its records, or a state is incompatible.
            UserCodeError: a custom algorithm raises.
        """
        ...

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program.

        Args:
            coordinator_node: program, context and agents in blocks.
            rounds: number of rounds T.
            control: observer of the run, and state from which to resume; by default there is neither.

        Returns:
            The last snapshot, with one row, and the ledger.

        Raises:
            InputError, UserCodeError: see `run`.
        """
        ...


def last_common(saved_rounds: Iterable[Sequence[int]]) -> int:
    """Return the last round whose state every block has, or 0 for the start.

    Example:
        >>> last_common([[40, 60], [20, 40]]), last_common([[40, 60], []])
        (40, 0)
    """
    return max(set.intersection(*map(set, saved_rounds)), default=0)


Block = tuple[NDArray[np.int64], tuple[int, ...], sp.csr_array]


def block_sizes(n_agents: int, blocks: int, most: int | None = None) -> list[int]:
    """Return the number of agents of each block.

    Args:
        n_agents: number of all agents.
        blocks: number of blocks, at most `n_agents`, whose sizes differ by at most one.
        most: number of agents of every block except the last, instead of `blocks`, default None.

    Example:
        >>> block_sizes(5, 2), block_sizes(5, 1, most=2)
        ([3, 2], [2, 2, 1])
    """
    if most is not None:
        full, remainder = divmod(n_agents, most)
        return [most] * full + ([remainder] if remainder else [])
    return [part.size for part in np.array_split(np.arange(n_agents), min(blocks, n_agents))]


def server_blocks(sizes: Sequence[int]) -> list[Block]:
    """Build blocks for a server that all agents answer.

    Args:
        sizes: number of agents of each block.

    Returns:
        The blocks, as in `agent_blocks`. Every agent reads the mean of all answers.

    Example:
        >>> agents, read_from, weights = server_blocks([2, 2])[1]
        >>> agents.tolist(), read_from, weights.toarray().tolist()
        ([2, 3], (0, 1), [[0.25, 0.25, 0.25, 0.25]])
    """
    m, starts = sum(sizes), np.concatenate([[0], np.cumsum(sizes)])
    everyone = tuple(range(len(sizes)))
    mean = sp.csr_array(np.full((1, m), 1.0 / m))
    return [(np.arange(starts[k], starts[k + 1]), everyone, mean) for k in range(len(sizes))]


def agent_blocks(
    mixing: sp.csr_array, sizes: Sequence[int], members: Sequence[NDArray[np.int64]] | None = None
) -> list[Block]:
    """Divide a mixing matrix into blocks of agents.

    Args:
        mixing: mixing matrix W, (m, m).
        sizes: number of agents of each block.
        members: agents of each block, ascending, default consecutive agents.

    Returns:
        The agents, the blocks to read, and the weights of their messages, for each block. The diagonal is part of the
        program. The weights of a row are in the order of its neighbours' numbers, so that sums do not depend on the
        blocks. Do not sort the columns.

    Example:
        >>> from decentral_dp.topology import build_topology
        >>> path = build_topology("path", 4).mixing
        >>> [(agents.tolist(), read_from) for agents, read_from, _ in agent_blocks(path, [1, 1, 2])]
        [([0], (1,)), ([1], (0, 2)), ([2, 3], (1, 2))]
    """
    m = mixing.shape[0]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    agents_of = np.split(np.arange(m), starts[1:-1]) if members is None else members
    owner = np.empty(m, dtype=np.int64)
    for k, agents in enumerate(agents_of):
        owner[agents] = k
    off = sp.csr_array(mixing - sp.diags_array(mixing.diagonal()))
    off.eliminate_zeros()
    off.sort_indices()
    out = []
    for k, agents in enumerate(agents_of):
        rows = off[agents]
        neighbours = tuple(int(b) for b in np.unique(owner[rows.indices])) or (k,)
        columns = np.concatenate([agents_of[b] for b in neighbours])
        out.append((agents, neighbours, sp.csr_array(rows[:, columns])))
    return out


class Boundary(NamedTuple):
    """Rows of messages that a block sends and reads.

    Args:
        sent_rows: rows of the block's message that another block reads, (k,), ascending.
        own_place: position of the block's own message among the messages that it reads; None if it does not read it.
        mixing: weights of the block's rows and of the rows that others send, (b, c), in the order of
            `AgentNode.mixing`.
        kept_columns: columns of these rows in `AgentNode.mixing`, (c,).
        agents: numbers of the block's agents, (b,), ascending.
        other_blocks: `agents` and `sent_rows` of each other block that the block reads.
    """

    sent_rows: NDArray[np.int64]
    own_place: int | None
    mixing: sp.csr_array
    kept_columns: NDArray[np.int64]
    agents: NDArray[np.int64]
    other_blocks: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    def outgoing(self, message: Array, weights: sp.csr_array | None = None) -> Array:
        """Return the rows of the block's message that others read.

        Args:
            message: message of the block, (b, d).
            weights: weights of the round, (m, m), if they change, default None.
        """
        rows = self.sent_rows
        rows = rows if weights is None else rows[_read_by_other_blocks(weights, self.agents)[rows]]
        return message if rows.size == len(message) else message[rows]

    def blocks_read(self, weights: sp.csr_array) -> list[bool]:
        """Return, for each of the `other_blocks`, whether it is read in a round with weights (m, m)."""
        senders = np.zeros(weights.shape[0], dtype=np.bool_)
        senders[weights[self.agents].indices] = True
        return [bool(senders[agents].any()) for agents, _ in self.other_blocks]

    def fill(self, messages: Sequence[Array], weights: sp.csr_array, width: int) -> list[Array]:
        """Add rows of zeros for rows that were not sent in a round.

        Args:
            messages: rows of each other block that is read in this round, (k, width), in order.
            weights: weights of the round, (m, m).
            width: number of floats of a message.

        Returns:
            Rows for all `sent_rows` of each of the `other_blocks`.
        """
        arrivals, out = iter(messages), []
        for (agents, rows), arrives in zip(self.other_blocks, self.blocks_read(weights), strict=True):
            out.append(np.zeros((rows.size, width)))
            if arrives:
                out[-1][_read_by_other_blocks(weights, agents)[rows]] = next(arrivals)
        return out


def _read_by_other_blocks(weights: sp.csr_array, agents: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each agent of a block, whether an agent of another block receives its message.

    Args:
        weights: weights without the diagonal, (m, m).
        agents: agents of the block.
    """
    by_all, within = (np.bincount(rows.indices, minlength=weights.shape[0]) for rows in (weights, weights[agents]))
    return np.asarray((by_all > within)[agents])


def boundaries(nodes: Sequence[AgentNode]) -> list[Boundary]:
    """Compute the rows that each block sends, and the weights of the rows that it reads.

    Columns of zero weights are removed. Sums have the same terms in the same order, so they are bitwise equal.

    Example:
        >>> from decentral_dp.engines.protocol import agent_blocks
        >>> from decentral_dp.topology import build_topology
        >>> cut = agent_blocks(build_topology("path", 6).mixing, [3, 3])
        >>> nodes = [AgentNode(agents, None, None, None, near, mixing) for agents, near, mixing in cut]
        >>> [(b.sent_rows.tolist(), b.own_place, b.mixing.shape) for b in boundaries(nodes)]
        [([2], 0, (3, 4)), ([0], 1, (3, 4))]
    """
    sizes = [node.agents.size for node in nodes]
    read_rows: list[set[int]] = [set() for _ in nodes]
    for k, node in enumerate(nodes):
        for j, rows in _segments(node, sizes):
            if j != k:
                read_rows[j].update((np.intersect1d(node.mixing.indices, rows) - rows[0]).tolist())
    sent_rows = [np.array(sorted(rows), dtype=np.int64) for rows in read_rows]
    all_boundaries = []
    for k, node in enumerate(nodes):
        columns = np.concatenate([rows if j == k else rows[sent_rows[j]] for j, rows in _segments(node, sizes)])
        mixing = sp.csr_array(node.mixing[:, columns])
        own_place = node.neighbours.index(k) if k in node.neighbours else None
        other_blocks = tuple((nodes[j].agents, sent_rows[j]) for j in node.neighbours if j != k)
        all_boundaries.append(Boundary(sent_rows[k], own_place, mixing, columns, node.agents, other_blocks))
    return all_boundaries


def _segments(node: AgentNode, sizes: Sequence[int]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return pairs of a block and its columns of the node's weights, in order."""
    ends = np.cumsum([sizes[j] for j in node.neighbours])
    return [(j, np.arange(end - sizes[j], end)) for j, end in zip(node.neighbours, ends, strict=True)]


@dataclass(frozen=True)
class Recovery:
    """Detection and restart of lost actors.

    Args:
        heartbeat: number of seconds between calls that detect a loss.
        save_every: number of seconds between states that the driver keeps.
        restarts: number of restarts without another completed round before a run fails.
        pause: number of seconds before the first restart, doubled each time.
        longest_pause: largest pause, in seconds.

    Example:
        >>> [Recovery().wait(k) for k in (1, 2, 3, 9)]
        [0.25, 0.5, 1.0, 5.0]
    """

    heartbeat: float = 1.0
    save_every: float = 5.0
    restarts: int = 3
    pause: float = 0.25
    longest_pause: float = 5.0

    def wait(self, start: int) -> float:
        """Return the pause before a restart, in seconds. The first restart after a loss has start 1."""
        # More than 60 doublings reach any longest pause.
        return min(self.pause * 2.0 ** min(start - 1, 60), self.longest_pause)


RECOVERY = Recovery()
