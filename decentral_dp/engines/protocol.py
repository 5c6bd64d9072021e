"""What an engine does: run the same program text in every block of agents, and carry messages between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.exchange import Bundle, Coordination, Program, Released, SelectionMechanism, Value
from decentral_dp.privacy.ledger import Ledger, Recorder


class Releaser(Protocol):
    """Adds noise and writes the ledger line, in one place."""

    @property
    def recorder(self) -> Recorder: ...

    def release(self, index: int, values: Mapping[str, Value]) -> Bundle: ...


class AgentNode(NamedTuple):
    """One block of agents, complete: what is needed to run it anywhere.

    agents: (b,) numbers, ascending. shard: their data. make_releaser: builds the mechanism where the block will live.
    near: numbers of the blocks whose messages it reads, ascending. mixing: (b, Σ sizes of those blocks), w_ij for j≠i.
    average: how many of the last released values to average for evaluation (1: only the last).
    Where the program answers a server, near are all blocks and mixing is one row of 1/m, the own answer included.
    """

    agents: NDArray[np.int64]
    program: Program
    dataset: Any
    make_releaser: Callable[[], Releaser]
    neighbours: tuple[int, ...]
    mixing: sp.csr_array
    average: int = 1


class CoordinatorReleaser(Protocol):
    """Adds a trusted coordinator's noise, and writes the ledger line."""

    def release(self, index: int, values: Mapping[str, Value | SelectionMechanism]) -> Released: ...

    def ledger(self, releases_per_round: int = 1) -> Ledger: ...


class CoordinatorNode(NamedTuple):
    """A trusted coordinator and its agents, complete.

    context: what it knows beforehand; reads the agents' answers (`combined`, `pooled`). holders: blocks of agents in
    order, each with `answer` and `hand_over`.
    """

    program: Coordination
    context: Any
    make_releaser: Callable[[], CoordinatorReleaser]
    client_blocks: tuple[Any, ...]
    n_agents: int


class Divergence(NamedTuple):
    """The first released value that was not finite."""

    round: int
    channel: str


class Snapshot(NamedTuple):
    """What the simulator sees of all agents at one round: last released, average of released, state; (m, ·) arrays."""

    round: int
    released: Mapping[str, Array]
    published: Mapping[str, Array]
    state: Mapping[str, Array]
    divergence: Divergence | None


class Outcome(NamedTuple):
    """The last snapshot and what was really released."""

    last: Snapshot
    ledger: Ledger


# What gets a snapshot of a run, and may end it (True).
Observer = Callable[[Snapshot], bool]


class Engine(Protocol):
    """Runs nodes for a number of rounds. `observe` gets a snapshot at the listed rounds and may end the run (True)."""

    @property
    def name(self) -> str: ...

    def run(self, nodes: Sequence[AgentNode], rounds: int, evaluate: Sequence[int], observe: Observer) -> Outcome: ...

    def coordinate(
        self, coordinator_node: CoordinatorNode, rounds: int, evaluate: Sequence[int], observe: Observer
    ) -> Outcome:
        """The same for a trusted coordinator's program; snapshots have one row."""
        ...


Block = tuple[NDArray[np.int64], tuple[int, ...], sp.csr_array]


def server_blocks(sizes: Sequence[int]) -> list[Block]:
    """As `blocks`, for a server that everybody answers: every agent reads the mean of all answers, its own included."""
    m, starts = sum(sizes), np.concatenate([[0], np.cumsum(sizes)])
    everyone = tuple(range(len(sizes)))
    return [
        (np.arange(starts[k], starts[k + 1]), everyone, sp.csr_array(np.full((1, m), 1.0 / m)))
        for k in range(len(sizes))
    ]


def blocks(mixing: sp.csr_array, sizes: Sequence[int]) -> list[Block]:
    """Cut a mixing matrix into blocks of consecutive agents: (agents, blocks read from, weights of their messages).

    The diagonal is left out: an agent's own share is its program's business. Column order is ascending in every block,
    so that row sums add up in the same order whatever the cut.
    """
    m = mixing.shape[0]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    if starts[-1] != m:
        raise ValueError(f"block sizes add up to {starts[-1]}, but there are {m} agents")
    owner = np.repeat(np.arange(len(sizes)), sizes)
    off = sp.csr_array(mixing - sp.diags_array(mixing.diagonal()))
    off.eliminate_zeros()
    out = []
    for k in range(len(sizes)):
        agents = np.arange(starts[k], starts[k + 1])
        rows = off[agents]
        neighbours = tuple(int(b) for b in np.unique(owner[rows.indices])) or (k,)
        columns = np.concatenate([np.arange(starts[b], starts[b + 1]) for b in neighbours])
        weights = sp.csr_array(rows[:, columns])
        weights.sort_indices()
        out.append((agents, neighbours, weights))
    return out
