"""The protocol of engines: the same program text in every block of agents, and messages between them.

A block sends another the messages of those agents alone that the other reads. `Recovery` says how an engine notices
what is lost, and how often it starts again.
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
from decentral_dp.privacy.mechanisms.releasers import CheckedReleaser, PlannedReleaser, ScheduledReleaser
from decentral_dp.topology.compression import Compression
from decentral_dp.topology.over_time import OverTime

# Adds noise and writes the ledger line, in one place.
Releaser = ScheduledReleaser | CheckedReleaser
# Channel → (low, high).
Domain = Mapping[str, tuple[float, float]] | None
# Rounds whose states lie with the agents, oldest first, each with a digest that tells nothing of the state.
Receipts = Sequence[tuple[int, str]]


class Hosted(NamedTuple):
    """The data of a block of agents, where the block is.

    Args:
        dataset: of the agents.
        score: values of all agents, channel → (m, d), to what this block's records make of them; None where records are
            scored elsewhere.
        states: name of a run, and what it has kept → its `AgentStates`; None where states lie with the driver.
    """

    dataset: Any
    score: Callable[[Mapping[str, Array]], Any] | None = None
    states: Callable[[str, Receipts], Any] | None = None


class AgentNode(NamedTuple):
    """One block of agents, complete: what is needed to run it anywhere.

    Args:
        agents: (b,) numbers, ascending.
        program: what they run.
        dataset: their data.
        make_releaser: builds the mechanism where the block will live.
        neighbours: numbers of the blocks whose messages it reads, ascending.
        mixing: (b, Σ sizes of those blocks), w_ij for j ≠ i.
        average: how many of the last released values to average for evaluation; default 1, only the last.
        domain: onto which releases are projected, and states that are public; default none.
        read_dataset: reads the data where the block will live, in place of `dataset`; default None. What agents keep to
            themselves then stays there: no state is viewed, and what is saved of one is a receipt.
        over_time: weights that change by round, of which `mixing` has every link; default None, they stay.
        columns: number of the agent of each column of `mixing`, where weights change.
        compression: of what is sent; default None, all of it is.
        public_scale: of what an agent releases, beside the length of its start. Above `MOST_OF_SCALE` times both a run
            has diverged; default infinite, and only values that are not finite count.

    Limits:
        Where the program answers a server, neighbours are all blocks and mixing is one row of 1/m, the own answer
        included.
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
    public_scale: float = math.inf

    def with_boundary(self, boundary: Boundary) -> AgentNode:
        """The block where it reads its own message and what others send of theirs."""
        columns = None if self.columns is None else self.columns[boundary.kept_columns]
        return self._replace(mixing=boundary.mixing, columns=columns)


class CoordinatorNode(NamedTuple):
    """A trusted coordinator and its agents, complete.

    Args:
        program: what the coordinator runs.
        context: what it knows beforehand; reads the agents' answers (`combine`, `pool`).
        make_releaser: builds the mechanism.
        client_blocks: blocks of agents in order, each with `answer` and `hand_over`.
        n_agents: their number.
        reads: whether the blocks read their records where they live, once `ready` asks them; default False.
        most_records: the largest number of records that a release reads; default 1.
        largest_step: the largest step size of the program; default 1.
    """

    program: Coordination
    context: Any
    make_releaser: Callable[[], PlannedReleaser]
    client_blocks: tuple[Any, ...]
    n_agents: int
    reads: bool = False
    most_records: int = 1
    largest_step: float = 1.0


# Lengths of released values in their public scale. Above it a run has diverged.
MOST_OF_SCALE = 1e6


def release_scale(
    noise: float | Array, sensitivities: Iterable[float | Array], dimension: int, records: float, growth: float = 1.0
) -> float:
    """Compute the length of released values from their noise and their clips, which are public.

    It is Σ_t (σ_t √d g + Σ_k N Δ_k,t). A release that has no clip counts 1.

    Args:
        noise: σ, shape (R,) or one number.
        sensitivities: Δ of each split, in the shape of the noise.
        dimension: d.
        records: N, the largest number of records that a release reads.
        growth: g, of noise that is shared or correlated over rounds; default 1.

    Returns:
        A threshold for divergence with the margin `MOST_OF_SCALE`. It is no bound on the length.
    """
    with np.errstate(over="ignore"):
        moves = sum((np.asarray(s, dtype=np.float64) * records for s in sensitivities), np.zeros(np.shape(noise)))
        return float(np.sum(noise)) * math.sqrt(dimension) * growth + float(
            np.where(np.isfinite(moves), moves, 1.0).sum()
        )


class DivergedRelease(NamedTuple):
    """The first released value that was not finite, or too long for its public scale.

    Args:
        round: from 1; 0 of the start.
        channel: that it was released on.
        finite: whether it was finite; default no.
    """

    round: int
    channel: str
    finite: bool = False


class SavedState(NamedTuple):
    """A run between two rounds: what goes on from it releases, to the bit, what would have been released.

    Args:
        round: t, the rounds that are done.
        parts: one per block of agents, or the coordinator's alone. Numbers, strings, arrays, `Bounded`, and tuples,
            lists and dicts of them; no code. Of agents that read records of their own, {"states": Receipts}.
    """

    round: int
    parts: tuple[Mapping[str, Any], ...]


class ReleasedValues(NamedTuple):
    """What was released at one index.

    Args:
        release_index: index of the release.
        values: channel → (m, d), or (1, d) of a coordinator.
    """

    release_index: int
    values: Mapping[str, Array]


class Snapshot(NamedTuple):
    """What the simulator evaluates of all agents at one round; (m, ·) arrays by channel.

    Args:
        round: its number.
        released: the last released values.
        published: the average of the last released values.
        state: the agents' own state.
        divergence: the first released value that was not finite, or too long; None where none is.
        save: returns all that is needed to go on from here; to be called before the next round.
        drain: returns the released values that are kept since the last call, where they are kept at all. Whatever the
            state of this round releases again is left for the next call, unless the run is ending.
        score: values of all agents → what each block's records make of them, where agents read their own records.
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
    """A block of agents was lost while it was asked.

    The engine starts it again and repeats the observation: whoever observes lets this error pass.
    """


class Outcome(NamedTuple):
    """What a run comes to.

    Args:
        last_snapshot: the snapshot of the last round.
        ledger: of what was really released.
    """

    last_snapshot: Snapshot
    ledger: Ledger


class RunControl(NamedTuple):
    """How a run is controlled from outside: when it is observed, by what, and where it goes on from.

    Args:
        rounds: the rounds to observe; the last of a run is always observed. By default no other.
        observe: gets a snapshot before anything of the next round is released; True ends the run. By default nothing.
            It is called again for a round at which it raised `BlockLostError`.
        due: whether to observe after a round that is not listed; by default never.
        saved_state: where the run goes on from; by default it starts anew.
        keeps_releases: whether released values are kept for `Snapshot.drain`; default False.
        states: name of the run, under which agents that read records of their own keep their states; by default they
            keep none.
        check_machines: gets `machine_digest` of each block whenever blocks were started, before anything is released
            there; raises InputError if the run cannot continue. Default None: any will do.
    """

    rounds: Iterable[int] = ()
    observe: Callable[[Snapshot], bool | None] = lambda snapshot: None
    due: Callable[[int], bool] = lambda t: False
    saved_state: SavedState | None = None
    keeps_releases: bool = False
    states: str | None = None
    check_machines: Callable[[Sequence[str]], None] | None = None

    def observes(self, last: int) -> Callable[[int], bool]:
        """The rounds that are observed of a run with this last round.

        Args:
            last: T.

        Returns:
            Round → whether it is observed.

        Example:
            >>> observed = RunControl(rounds=[0, 5]).observes(last=9)
            >>> [t for t in range(10) if observed(t)]
            [0, 5, 9]
        """
        listed = {*self.rounds, last}
        return lambda t: t in listed or self.due(t)


# From the first round to the last, observed at the end alone.
UNATTENDED = RunControl()


class Engine(Protocol):
    """An engine, which runs nodes for a number of rounds, as it is controlled."""

    @property
    def name(self) -> str: ...

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run the program of every block of agents, and deliver their messages.

        Args:
            nodes: all blocks, in the order of their agents.
            rounds: T, after which what was sent last is released once more.
            control: when the run is observed, by what, and where it goes on from.

        Returns:
            The last snapshot, with one row for each agent, and the ledger of what was released.

        Raises:
            InputError: a block cannot read its records, or a state does not fit.
            UserCodeError: an algorithm from outside fails.
        """
        ...

    def coordinate(self, coordinator_node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program.

        Args:
            coordinator_node: the program, its context and its agents in blocks.
            rounds: T.
            control: as of `run`.

        Returns:
            The last snapshot, with one row for all, and the ledger.

        Raises:
            InputError, UserCodeError: as of `run`.
        """
        ...


def last_common(saved_rounds: Iterable[Sequence[int]]) -> int:
    """The last round whose state every block has; 0, the start, where there is none.

    Example:
        >>> last_common([[40, 60], [20, 40]]), last_common([[40, 60], []])
        (40, 0)
    """
    return max(set.intersection(*map(set, saved_rounds)), default=0)


Block = tuple[NDArray[np.int64], tuple[int, ...], sp.csr_array]


def block_sizes(n_agents: int, blocks: int, most: int | None = None) -> list[int]:
    """Agents of each block.

    Args:
        n_agents: in all.
        blocks: how many, of equal size to within one; fewer where there are fewer agents.
        most: agents of every block but the last, in place of `blocks`; default None.

    Example:
        >>> block_sizes(5, 2), block_sizes(5, 1, most=2)
        ([3, 2], [2, 2, 1])
    """
    if most is not None:
        full, rest = divmod(n_agents, most)
        return [most] * full + ([rest] if rest else [])
    return [part.size for part in np.array_split(np.arange(n_agents), min(blocks, n_agents))]


def server_blocks(sizes: Sequence[int]) -> list[Block]:
    """Make blocks for a server that everybody answers.

    Args:
        sizes: agents of each block.

    Returns:
        As `blocks`; every agent reads the mean of all answers, its own included.

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
    """Cut a mixing matrix into blocks of agents.

    Args:
        mixing: W, (m, m).
        sizes: agents of each block.
        members: the agents of each block, ascending; by default consecutive ones.

    Returns:
        For each block: its agents, the blocks that it reads from, and the weights of their messages. The diagonal is
        left out: an agent's own share is its program's business. The weights of a row lie in the order of its
        neighbours' numbers, so that sums add up in the same order whatever the cut: their columns are not to be sorted.

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
    """The ends of a block's links to other blocks.

    Args:
        sent_rows: (k,) rows of the block's message that some other block reads, ascending.
        own_place: the place of the block's own message, which stays, among those that it reads; None where it reads
            none.
        mixing: (b, c) weights of its own rows and of the rows that others send, in the order of `AgentNode.mixing`.
        kept_columns: (c,) which columns of that these are.
        agents: (b,) numbers of the block's agents, ascending.
        other_blocks: of each of the other blocks that it reads, `agents` and `sent_rows`.
    """

    sent_rows: NDArray[np.int64]
    own_place: int | None
    mixing: sp.csr_array
    kept_columns: NDArray[np.int64]
    agents: NDArray[np.int64]
    other_blocks: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    def outgoing(self, message: Array, heard: sp.csr_array | None = None) -> Array:
        """(k, d) the rows of the block's message (b, d) that others read. heard: (m, m) weights, where they change."""
        sent = self.sent_rows
        sent = sent if heard is None else sent[_heard_by_other_blocks(heard, self.agents)[sent]]
        return message if sent.size == len(message) else message[sent]

    def blocks_heard(self, heard: sp.csr_array) -> list[bool]:
        """Which of the `other_blocks` it hears in a round with these weights (m, m)."""
        mine = np.zeros(heard.shape[0], dtype=np.bool_)
        mine[heard[self.agents].indices] = True
        return [bool(mine[agents].any()) for agents, _ in self.other_blocks]

    def fill(self, messages: Sequence[Array], heard: sp.csr_array, width: int) -> list[Array]:
        """Fill what arrived in a round up to what all `other_blocks` may send: a row of zeros for each that did not.

        Args:
            messages: (k, width) rows of each of the others that it hears, in their order.
            heard: (m, m) weights of the round.
            width: numbers of a message.

        Returns:
            Of each of the `other_blocks` a row for each of its `sent_rows`.
        """
        arrived, out = iter(messages), []
        for (agents, sent), arrives in zip(self.other_blocks, self.blocks_heard(heard), strict=True):
            out.append(np.zeros((sent.size, width)))
            if arrives:
                out[-1][_heard_by_other_blocks(heard, agents)[sent]] = next(arrived)
        return out


def _heard_by_other_blocks(heard: sp.csr_array, agents: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which agents of a block others hear that are not of it. heard: (m, m) weights without diagonal."""
    by_all, within = (np.bincount(rows.indices, minlength=heard.shape[0]) for rows in (heard, heard[agents]))
    return np.asarray((by_all > within)[agents])


def boundaries(nodes: Sequence[AgentNode]) -> list[Boundary]:
    """Find what each block has to send, and the weights of what it then reads.

    Left out are columns of weights that are zero: sums have the same terms in the same order, and the same bits.

    Example:
        >>> from decentral_dp.engines.protocol import agent_blocks
        >>> from decentral_dp.topology import build_topology
        >>> cut = agent_blocks(build_topology("path", 6).mixing, [3, 3])
        >>> nodes = [AgentNode(agents, None, None, None, near, mixing) for agents, near, mixing in cut]
        >>> [(b.sent_rows.tolist(), b.own_place, b.mixing.shape) for b in boundaries(nodes)]
        [([2], 0, (3, 4)), ([0], 1, (3, 4))]
    """
    sizes = [node.agents.size for node in nodes]
    read: list[set[int]] = [set() for _ in nodes]
    for k, node in enumerate(nodes):
        for j, rows in _segments(node, sizes):
            if j != k:
                read[j].update((np.intersect1d(node.mixing.indices, rows) - rows[0]).tolist())
    sent = [np.array(sorted(rows), dtype=np.int64) for rows in read]
    all_boundaries = []
    for k, node in enumerate(nodes):
        columns = np.concatenate([rows if j == k else rows[sent[j]] for j, rows in _segments(node, sizes)])
        mixing = sp.csr_array(node.mixing[:, columns])
        own = node.neighbours.index(k) if k in node.neighbours else None
        others = tuple((nodes[j].agents, sent[j]) for j in node.neighbours if j != k)
        all_boundaries.append(Boundary(sent[k], own, mixing, columns, node.agents, others))
    return all_boundaries


def _segments(node: AgentNode, sizes: Sequence[int]) -> list[tuple[int, NDArray[np.int64]]]:
    """(block, its columns of the node's weights), in their order."""
    ends = np.cumsum([sizes[j] for j in node.neighbours])
    return [(j, np.arange(end - sizes[j], end)) for j, end in zip(node.neighbours, ends, strict=True)]


@dataclass(frozen=True)
class Recovery:
    """How lost actors are noticed and started again.

    Args:
        heartbeat: seconds after which actors are asked whether they are there.
        save_every: seconds after which the driver keeps what they would go on from.
        restarts: starts after a loss, without a round more done, before a run gives up.
        pause: seconds before the first of these starts, doubled each time.
        longest_pause: the most that it is doubled to, in seconds.

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
        """Seconds before a start; the first after a loss is 1."""
        # Doubled more often, the longest pause is long reached, or the first is 0.
        return min(self.pause * 2.0 ** min(start - 1, 60), self.longest_pause)


RECOVERY = Recovery()
