"""A token walks over the graph: its holder takes a noised step, and passes it to a neighbour.

min_y (1/m) Σ_i g_i(x, y) at a constant x. In round t the holder i_t alone sends, ỹ_t with noise of its own, and the
next holder goes on from it:

    i_{t+1} = j with probability min(1/d_i, 1/d_j) for each neighbour j of i = i_t, and i else, by public coins
    y_{t+1} = ỹ_t − λ_t ∇_y g_{i_{t+1}}(x, ỹ_t)

d_i is the number of i's neighbours. These are Metropolis–Hastings' probabilities: all agents hold the token equally
often in the long run, whatever the graph. i_0 is drawn evenly. What is published of an agent is what it sent last.

Noise protects one train record of agent i: who holds the token when is public, and given all messages the next one
depends on the records of its sender by one clipped mean at a public point, so that it moves by λ_t·2C/N. An agent that
does not send in a round pays nothing for it: the certified price is that of its visits, to whoever sees all messages.
The works below claim less, to an observer inside who sees the token at its own visits alone; that is not certified
here.

One message in a round in which it moves. The token has to arrive: networks that change or lose messages are refused.
One agent runs gradient descent.

References: E. Cyffers, A. Bellet, J. Upadhyay, "Differentially Private Decentralized Learning with Random Walks", ICML
2024, arXiv 2402.07471.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.single_level import OneLevel, OneLevelState
from decentral_dp.participants import Network


@dataclass(frozen=True)
class RandomWalk(OneLevel):
    """A token walks over the graph; its holder takes a noised step and passes it to a neighbour."""

    # Who sends is heard by the next who sends alone, whatever its neighbours are.
    passes_token: ClassVar[bool] = True

    def senders(self, network: Network) -> Iterator[list[int]]:
        if network.over_time is not None:
            raise dp.InputError(
                "topology: a token that is lost or late ends its walk. Leave out over_time, drop, offline and delay, "
                "or take dp_dsgd."
            )
        near = [network.neighbours(i) for i in range(network.n_agents)]
        at, t = int(network.public_rng(0).integers(network.n_agents)), 0
        while True:
            yield [at]
            t += 1
            coins = network.public_rng(t)
            if near[at].size:
                # A neighbour drawn evenly, 1/d_i, is accepted with probability min(1, d_i/d_j).
                neighbour = int(near[at][coins.integers(near[at].size)])
                at = neighbour if coins.random() * near[neighbour].size < near[at].size else at

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> Generator[dp.Gossip, Any, OneLevelState]:
        own, _, heard = yield dp.Gossip(each=True, y=s.y)
        token = own.y.copy()
        token[heard.rows] = heard.values.y
        return OneLevelState(s.x, token - self.y(t) * dataset.batch(t).lower_grad_y(s.x, token))


ENTRY = dp.Entry("random_walk", RandomWalk, (dp.Citation("Walk of a token", "cyffers2024differentially"),))
