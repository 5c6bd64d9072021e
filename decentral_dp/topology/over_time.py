"""Networks that change: whose message arrives where in which round, and with which weight. All of it is public.

Of a base graph with links E and its rule of weights, round t has

    matching               a random maximal matching of E; who is matched averages with its partner, weight 1/2
    one_peer_exponential   agent i hears agent i − 2^(t mod ⌈log₂ m⌉) mod m alone, weight 1/2
    resample               the graph of the kind drawn anew in every round
    sequence               one of several graphs, in turn
    function               what a function of the round gives

Then `offline`: each agent is away for the round with this probability, and sends and hears nothing. `drop`: each
message is lost with this probability. The weight of what does not arrive is the receiver's own; with push-sum it is
the sender's, so that nothing of what is averaged is lost, and of directed graphs it is that. `delay`: what is heard
in round t was sent in round t − delay, along the links of that round, the start before that; it is lost to who is away
in round t. Coins are functions of a public seed and the round alone, so that every block of agents, every engine and a
run that goes on has the same.

A message that was lost had been sent: it is charged. One that was not sent costs nothing.

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
# Rounds over which mixing is measured where no number of rounds repeats; agents up to which it is.
_ROUNDS, _MOST_AGENTS = 32, 500


@dataclass(frozen=True, eq=False)
class OverTime:
    """W(t), t = 0, 1, ….

    Args:
        kind: of `KINDS`, or "function".
        links: (m, m), every link that any round may have.
        make: t → (m, m) weights w_ij of what i hears from j ≠ i, before anything is lost.
        period: rounds after which all repeats, or over which its mixing is measured.
        seed: of the coins, public.
        drop, offline: probabilities, at least 0 and below 1.
        delay: rounds.
        directed: whether weights are column-stochastic with what an agent keeps, not row-stochastic.

    Example:
        >>> from scipy.sparse import csr_array
        >>> ring = csr_array(np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) / 3.0)
        >>> pairs = matching(ring, seed=1)
        >>> pairs.heard_weights(0).toarray().sum(axis=1).tolist()
        [0.5, 0.0, 0.5]
        >>> pairs.heard_weights(5).toarray().tolist() == pairs.heard_weights(5).toarray().tolist()
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
    # Of the last round that was asked for; a copy with other coins begins anew.
    _cache: dict[str, tuple[int, Any]] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_agents(self) -> int:
        return int(self.links.shape[0])

    def online(self, t: int) -> NDArray[np.bool_] | None:
        """Return (m,) who is there in round t; None where everybody always is."""
        if not self.offline:
            return None
        return np.asarray(_coins(self.seed, "offline", t).random(self.n_agents) >= self.offline)

    def sent_weights(self, t: int) -> sp.csr_array:
        """Return (m, m) the weights of the messages that are sent in round t, in row i those to agent i."""
        return self._cached_value("sent_weights", t, self._sent_weights)

    def heard_weights(self, t: int) -> sp.csr_array:
        """Return (m, m) the weights of the messages that arrive in round t, late or not, in row i those to agent i."""
        return self._cached_value("heard_weights", t, self._heard_weights)

    def transfer_weights(self, t: int) -> sp.csr_array:
        """Return (m, m) the weights of round t's messages that are handed over: those that arrive, or all that may."""
        return self.sent_weights(t) if self.delay else self.heard_weights(t)

    def kept_share(self, t: int) -> NDArray[np.float64]:
        """Return (m,) the share of what each agent has in round t that it keeps, for the others never hear it."""
        shares: NDArray[np.float64] = self._cached_value("kept_share", t, self._kept_share)
        return shares

    def _kept_share(self, t: int) -> NDArray[np.float64]:
        # Of what is sent now; its arrival is `heard` in another round, and would take the place of this one's.
        heard = self._heard_weights(t + self.delay) if self.delay else self.heard_weights(t)
        return np.subtract(1.0, np.bincount(heard.indices, heard.data, self.n_agents), dtype=np.float64)

    def _cached_value(self, what: str, t: int, make: Callable[[int], Any]) -> Any:
        # Several blocks in one process ask for the same round.
        at, made = self._cache.get(what, (-1, None))
        if at != t:
            made = make(t)
            self._cache[what] = t, made
        return made

    def _sent_weights(self, t: int) -> sp.csr_array:
        weights, there = self.make(t), self.online(t)
        return weights if there is None else _restrict(weights, there[row_indices(weights)] & there[weights.indices])

    def _heard_weights(self, t: int) -> sp.csr_array:
        sent = self._sent_weights(max(0, t - self.delay)) if self.delay else self.sent_weights(t)
        if self.delay and (there := self.online(t)) is not None:
            sent = _restrict(sent, there[row_indices(sent)])
        return _restrict(sent, _coins(self.seed, "drop", t).random(sent.nnz) >= self.drop) if self.drop else sent

    @cached_property
    def rate(self) -> float | None:
        """‖W(P−1) ⋯ W(0) − 11ᵀ/m‖₂^(1/P): what a round leaves of the disagreement, in the mean.

        P is the period, or as many of them as make 32 rounds where messages are lost or agents away by coins. Of
        directed graphs ‖A(P−1) ⋯ A(0) − φ1ᵀ‖₂^(1/P), φ the mean of the columns.
        None of more than 500 agents. Delays are left out.
        """
        m = self.n_agents
        if m > _MOST_AGENTS:
            return None
        product, in_time = np.eye(m), replace(self, delay=0) if self.delay else self
        rounds = self.period * (-(-_ROUNDS // self.period) if self.drop or self.offline else 1)
        for t in range(rounds):
            weights = in_time.heard_weights(t)
            own = in_time.kept_share(t) if self.directed else 1.0 - weights.sum(axis=1)
            product = weights @ product + own[:, None] * product
        # In place of 11ᵀ/m what the rows tend to, for lost messages move the average itself.
        deviation = product - product.mean(axis=int(self.directed), keepdims=True)
        return float(np.linalg.norm(deviation, 2) ** (1.0 / rounds))


def _coins(seed: int, purpose: str, t: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), t])


def row_indices(weights: sp.csr_array) -> IntArray:
    """Return (nnz,) the row of every stored entry, in their order."""
    return np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))


def _restrict(weights: sp.csr_array, chosen: NDArray[np.bool_]) -> sp.csr_array:
    """The entries that are chosen, in their order."""
    import scipy.sparse as sp

    ends = np.concatenate([[0], np.cumsum(chosen)])
    return sp.csr_array((weights.data[chosen], weights.indices[chosen], ends[weights.indptr]), shape=weights.shape)


def off_diagonal(mixing: sp.csr_array) -> sp.csr_array:
    """Return W without its diagonal and without stored zeros.

    Args:
        mixing: (m, m).
    """
    return _restrict(mixing, (mixing.indices != row_indices(mixing)) & (mixing.data != 0.0))


def _matching_weights(agents: int, edges: IntArray, seed: int, t: int) -> sp.csr_array:
    """Take links in a random order, each whose two ends are both free."""
    i, j = _coins(seed, "matching", t).permutation(edges).T.copy()
    partner = np.full(agents, -1)
    # One link after the other would give the same: all that come first at both of their ends are taken at once.
    while i.size:
        place, first = np.arange(i.size), np.full((2, agents), i.size)
        # Of several places of one agent the one that is written last stays, the first.
        first[0, i[::-1]] = first[1, j[::-1]] = place[::-1]
        first = first.min(axis=0)
        taken = (first[i] == place) & (first[j] == place)
        partner[i[taken]], partner[j[taken]] = j[taken], i[taken]
        left = (partner[i] < 0) & (partner[j] < 0)
        i, j = i[left], j[left]
    return _pull_weights(partner)


def _one_peer_weights(agents: int, t: int) -> sp.csr_array:
    return _pull_weights((np.arange(agents) - 2 ** (t % _hops(agents))) % agents)


def _resampled_weights(draw: Callable[[int], Any], seed: int, t: int) -> sp.csr_array:
    return off_diagonal(draw(int(_coins(seed, "resample", t).integers(2**31))).mixing)


def _weights_in_turn(several: tuple[sp.csr_array, ...], t: int) -> sp.csr_array:
    return several[t % len(several)]


def _pull_weights(heard: IntArray) -> sp.csr_array:
    """Weights 1/2 of the one agent that each hears; of none where its number is below 0."""
    import scipy.sparse as sp

    some = heard >= 0
    ends = np.concatenate([[0], np.cumsum(some)])
    return sp.csr_array((np.full(ends[-1], 0.5), heard[some], ends), shape=(heard.size, heard.size))


def _hops(agents: int) -> int:
    return max(1, math.ceil(math.log2(agents)))


def fixed_weights(links: sp.csr_array, seed: int = 0) -> OverTime:
    """The same weights in every round, of which messages may be lost or late.

    Args:
        links: (m, m) weights without diagonal.
        seed: public, of what is lost.
    """
    return OverTime("fixed", links, partial(_weights_in_turn, (links,)), 1, seed)


def matching(links: sp.csr_array, seed: int) -> OverTime:
    """Pairwise gossip: a random maximal matching of the links in every round.

    Args:
        links: (m, m), symmetric, without diagonal.
        seed: public.
    """
    import scipy.sparse as sp

    upper = sp.triu(links).tocoo()
    edges = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    return OverTime("matching", links, partial(_matching_weights, links.shape[0], edges, seed), _ROUNDS, seed)


def one_peer_exponential(agents: int, seed: int) -> OverTime:
    """Every agent sends to one other, at distances 1, 2, 4, … in turn.

    Args:
        agents: m, at least 2.
        seed: public, of what is lost.

    Example:
        >>> one_peer_exponential(8, seed=0).rate
        0.0
    """
    make = partial(_one_peer_weights, agents)
    union = sum((make(t) for t in range(1, _hops(agents))), make(0))
    return OverTime("one_peer_exponential", union.tocsr(), make, _hops(agents), seed)


def resample(draw: Callable[[int], Any], agents: int, seed: int) -> OverTime:
    """A random graph drawn anew in every round.

    Args:
        draw: seed → the topology of a random graph.
        agents: m.
        seed: public.
    """
    import scipy.sparse as sp

    every_link = sp.csr_array(np.ones((agents, agents)) - np.eye(agents))
    return OverTime("resample", every_link, partial(_resampled_weights, draw, seed), _ROUNDS, seed)


def sequence(several: Sequence[sp.csr_array], seed: int) -> OverTime:
    """Graphs in turn.

    Args:
        several: (m, m) weights without diagonal.
        seed: public, of what is lost.

    Raises:
        InputError: graphs of other agents, or none that connect them over a period.
    """
    from scipy.sparse.csgraph import connected_components

    sizes = sorted({one.shape[0] for one in several})
    union = sum(several[1:], several[0]).tocsr() if len(sizes) == 1 else several[0]
    parts, _ = connected_components(union, connection="strong")
    if len(sizes) != 1 or parts > 1:
        problem = f"leave {parts} groups of agents that never hear of one another" if len(sizes) == 1 else ""
        raise InputError(
            f"topology.over_time: {len(several)} graphs in turn {problem or f'have {sizes} agents'}. Fix: give graphs "
            "of the same agents whose links together connect all."
        )
    return OverTime("sequence", union, partial(_weights_in_turn, tuple(several)), len(several), seed)
