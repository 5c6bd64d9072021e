"""Time-varying networks: the mixing weights of every round, with lost and delayed messages and absent agents.

All draws and weights are public. With the edges E and weight rule of a base graph, round t uses

    matching               a random maximal matching of E; matched agents average with weight 1/2
    one_peer_exponential   agent i receives from agent i − 2^(t mod ⌈log₂ m⌉) mod m only, weight 1/2
    resample               a new random graph of the kind in every round
    sequence               one of several graphs, in turn
    function               a graph that a function of the round returns

`offline` is the probability that an agent is absent for a round, in which it neither sends nor receives. `drop` is the
probability that a message is lost. The receiver keeps the weight of a lost message. With push-sum, which directed
graphs require, the sender keeps it, so the average is preserved. With `delay`, the messages that arrive in round t were
sent in round t − delay along the edges of that round. Before the first of them, the start arrives. Agents that are
absent in round t do not receive messages. All draws are functions of a public seed and the round. Blocks of agents,
engines and resumed runs therefore agree.

A lost message was sent, so it has a privacy cost. A message that is not sent has none.

References: S. Boyd et al., "Randomized gossip algorithms", 2006 (matchings); K. Ying et al., "Exponential Graph is
Provably Efficient for Decentralized Deep Training", NeurIPS 2021 (one peer).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.errors import InputError
from decentral_dp.topology.graphs import IntArray

if TYPE_CHECKING:
    import scipy.sparse as sp

KINDS = ("fixed", "matching", "one_peer_exponential", "resample", "sequence")
# Rounds over which mixing is measured without a period, and largest number of agents.
_ROUNDS, _MOST_AGENTS = 32, 500


@dataclass(frozen=True, eq=False)
class OverTime:
    """Mixing weights W(t), t = 0, 1, ….

    Args:
        kind: kind in `KINDS`, or "function".
        links: all edges that may occur in any round, (m, m).
        make: function t → weights w_ij, (m, m), of the messages from j ≠ i to i, before any loss.
        period: number of rounds after which weights repeat, or over which mixing is measured.
        seed: public seed of random draws.
        drop, offline: probabilities of a lost message and of an absent agent, at least 0 and below 1.
        delay: delay of messages, in rounds.
        directed: whether the weights, including kept shares, are column-stochastic instead of row-stochastic.

    Example:
        >>> from scipy.sparse import csr_array
        >>> ring = csr_array(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 3.0)
        >>> pairs = matching(ring, seed=1)
        >>> pairs.received_weights(0).toarray().sum(axis=1).tolist()
        [0.5, 0.0, 0.5]
        >>> pairs.received_weights(5).toarray().tolist() == pairs.received_weights(5).toarray().tolist()
        True
    """

    kind: str
    links: sp.csr_array
    make: Callable[[int], sp.csr_array]
    period: int
    seed: int = 0
    drop: float = 0.0
    offline: float = 0.0
    delay: int = 0
    directed: bool = False
    # Values of the last round.
    _cache: dict[str, tuple[int, Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_agents(self) -> int:
        return int(self.links.shape[0])

    def online(self, t: int) -> NDArray[np.bool_] | None:
        """Return whether each agent is present in round t, (m,), or None if all agents are always present."""
        if not self.offline:
            return None
        return np.asarray(_generator(self.seed, "offline", t).random(self.n_agents) >= self.offline)

    def sent_weights(self, t: int) -> sp.csr_array:
        """Return the weights, (m, m), of the messages sent in round t. Row i contains the messages to agent i."""
        return self._cached_value("sent_weights", t, self._sent_weights)

    def received_weights(self, t: int) -> sp.csr_array:
        """Return the weights, (m, m), of the messages that arrive in round t. Row i contains those to agent i."""
        return self._cached_value("received_weights", t, self._received_weights)

    def transfer_weights(self, t: int) -> sp.csr_array:
        """Return the weights, (m, m), of messages that the engine delivers: those sent if delayed, else received."""
        return self.sent_weights(t) if self.delay else self.received_weights(t)

    def kept_share(self, t: int) -> NDArray[np.float64]:
        """Return the fraction of its value, (m,), that each agent keeps in round t since no other agent receives it."""
        shares: NDArray[np.float64] = self._cached_value("kept_share", t, self._kept_share)
        return shares

    def _kept_share(self, t: int) -> NDArray[np.float64]:
        # Messages sent now arrive in another round: do not overwrite the cached weights of this one.
        weights = self._received_weights(t + self.delay) if self.delay else self.received_weights(t)
        return np.subtract(1.0, np.bincount(weights.indices, weights.data, self.n_agents), dtype=np.float64)

    def _cached_value(self, name: str, t: int, make: Callable[[int], Any]) -> Any:
        # Several blocks of one process read the same round.
        round_of_value, value = self._cache.get(name, (-1, None))
        if round_of_value != t:
            value = make(t)
            self._cache[name] = t, value
        return value

    def _sent_weights(self, t: int) -> sp.csr_array:
        weights, present = self.make(t), self.online(t)
        return (
            weights if present is None else _restrict(weights, present[row_indices(weights)] & present[weights.indices])
        )

    def _received_weights(self, t: int) -> sp.csr_array:
        weights = self._sent_weights(max(0, t - self.delay)) if self.delay else self.sent_weights(t)
        if self.delay and (present := self.online(t)) is not None:
            weights = _restrict(weights, present[row_indices(weights)])
        return (
            _restrict(weights, _generator(self.seed, "drop", t).random(weights.nnz) >= self.drop)
            if self.drop
            else weights
        )

    @cached_property
    def rate(self) -> float | None:
        """Factor by which the disagreement contracts per round, ‖W(P−1) ⋯ W(0) − 11ᵀ/m‖₂^(1/P).

        P is the period, or a multiple of it near 32 rounds if messages may be lost or agents absent. For directed
        graphs the contraction is ‖A(P−1) ⋯ A(0) − φ1ᵀ‖₂^(1/P), with φ the mean of the columns. Delays are ignored. The
        value is None above 500 agents.
        """
        m = self.n_agents
        if m > _MOST_AGENTS:
            return None
        product, over_rounds = np.eye(m), replace(self, delay=0) if self.delay else self
        rounds = self.period * (-(-_ROUNDS // self.period) if self.drop or self.offline else 1)
        for t in range(rounds):
            weights = over_rounds.received_weights(t)
            diagonal = over_rounds.kept_share(t) if self.directed else 1.0 - weights.sum(axis=1)
            product = weights @ product + diagonal[:, None] * product
        # The limit of the rows instead of 11ᵀ/m, since lost messages move the average.
        deviation = product - product.mean(axis=int(self.directed), keepdims=True)
        return float(np.linalg.norm(deviation, 2) ** (1.0 / rounds))


def _generator(seed: int, purpose: str, t: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), t])


def row_indices(weights: sp.csr_array) -> IntArray:
    """Return the row of every stored entry, in order, (nnz,)."""
    return np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))


def _restrict(weights: sp.csr_array, mask: NDArray[np.bool_]) -> sp.csr_array:
    """Keep the selected entries, in order."""
    import scipy.sparse as sp

    ends = np.concatenate([[0], np.cumsum(mask)])
    return sp.csr_array((weights.data[mask], weights.indices[mask], ends[weights.indptr]), shape=weights.shape)


def off_diagonal(mixing: sp.csr_array) -> sp.csr_array:
    """Return W without its diagonal and without stored zeros.

    Args:
        mixing: mixing matrix W, (m, m).
    """
    return _restrict(mixing, (mixing.indices != row_indices(mixing)) & (mixing.data != 0.0))


def _matching_weights(agents: int, edges: IntArray, seed: int, t: int) -> sp.csr_array:
    """Match agents by a random order of the edges, taking each edge whose ends are both free."""
    i, j = _generator(seed, "matching", t).permutation(edges).T.copy()
    partner = np.full(agents, -1)
    # Edges that come first at both ends are taken together; the result is that of a sequential pass.
    while i.size:
        place, first = np.arange(i.size), np.full((2, agents), i.size)
        # In reverse order, so that the first position of an agent is written last.
        first[0, i[::-1]] = first[1, j[::-1]] = place[::-1]
        first = first.min(axis=0)
        is_matched = (first[i] == place) & (first[j] == place)
        partner[i[is_matched]], partner[j[is_matched]] = j[is_matched], i[is_matched]
        free = (partner[i] < 0) & (partner[j] < 0)
        i, j = i[free], j[free]
    return _pull_weights(partner)


def _one_peer_weights(agents: int, t: int) -> sp.csr_array:
    return _pull_weights((np.arange(agents) - 2 ** (t % _hops(agents))) % agents)


def _resampled_weights(draw: Callable[[int], Any], seed: int, t: int) -> sp.csr_array:
    return off_diagonal(draw(int(_generator(seed, "resample", t).integers(2**31))).mixing)


def _weights_in_turn(several: tuple[sp.csr_array, ...], t: int) -> sp.csr_array:
    return several[t % len(several)]


def _pull_weights(sender: IntArray) -> sp.csr_array:
    """Return weights 1/2 for the one agent from which each agent receives; none if its number is negative."""
    import scipy.sparse as sp

    has_sender = sender >= 0
    ends = np.concatenate([[0], np.cumsum(has_sender)])
    return sp.csr_array((np.full(ends[-1], 0.5), sender[has_sender], ends), shape=(sender.size, sender.size))


def _hops(agents: int) -> int:
    return max(1, math.ceil(math.log2(agents)))


def fixed_weights(links: sp.csr_array, seed: int = 0) -> OverTime:
    """Use the same weights in every round. Messages may be lost or delayed.

    Args:
        links: weights without the diagonal, (m, m).
        seed: public seed of message losses.
    """
    return OverTime("fixed", links, partial(_weights_in_turn, (links,)), 1, seed)


def matching(links: sp.csr_array, seed: int) -> OverTime:
    """Use pairwise gossip, in which every round has a random maximal matching of the edges.

    Args:
        links: symmetric weights without the diagonal, (m, m).
        seed: public seed.
    """
    import scipy.sparse as sp

    upper = sp.triu(links).tocoo()
    edges = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    return OverTime("matching", links, partial(_matching_weights, links.shape[0], edges, seed), _ROUNDS, seed)


def one_peer_exponential(agents: int, seed: int) -> OverTime:
    """Let every agent send to one other agent in each round, at distances 1, 2, 4, … in turn.

    Args:
        agents: number of agents m, at least 2.
        seed: public seed of message losses.

    Example:
        >>> one_peer_exponential(8, seed=0).rate
        0.0
    """
    make = partial(_one_peer_weights, agents)
    union = sum((make(t) for t in range(1, _hops(agents))), make(0))
    return OverTime("one_peer_exponential", union.tocsr(), make, _hops(agents), seed)


def resample(draw: Callable[[int], Any], agents: int, seed: int) -> OverTime:
    """Draw a new random graph in every round.

    Args:
        draw: function seed → topology of a random graph.
        agents: number of agents m.
        seed: public seed.
    """
    import scipy.sparse as sp

    every_link = sp.csr_array(np.ones((agents, agents)) - np.eye(agents))
    return OverTime("resample", every_link, partial(_resampled_weights, draw, seed), _ROUNDS, seed)


def sequence(several: Sequence[sp.csr_array], seed: int) -> OverTime:
    """Use several graphs in turn.

    Args:
        several: weights of each graph without the diagonal, (m, m).
        seed: public seed of message losses.

    Raises:
        InputError: the graphs do not have the same agents, or their union over a period is not connected.
    """
    from scipy.sparse.csgraph import connected_components

    sizes = sorted({weights.shape[0] for weights in several})
    union = sum(several[1:], several[0]).tocsr() if len(sizes) == 1 else several[0]
    parts, _ = connected_components(union, connection="strong")
    if len(sizes) != 1 or parts > 1:
        problem = f"leave {parts} groups of agents that never communicate" if len(sizes) == 1 else ""
        raise InputError(
            f"topology.over_time: {len(several)} graphs in turn {problem or f'have {sizes} agents'}. Fix: use "
            "graphs of the same agents, whose union is connected."
        )
    return OverTime("sequence", union, partial(_weights_in_turn, tuple(several)), len(several), seed)
