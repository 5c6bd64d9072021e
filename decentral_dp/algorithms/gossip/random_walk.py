"""Random walk of a token, whose holder takes a noisy step and passes it to a neighbour.

min_y (1/m) Σ_i g_i(x, y) at a constant x. In round t only the holder i_t sends ỹ_t, with fresh noise, and the next
holder continues from it:

    i_{t+1} = j with probability min(1/d_i, 1/d_j) for each neighbour j of i = i_t, otherwise i, drawn publicly
    y_{t+1} = ỹ_t − λ_t ∇_y g_{i_{t+1}}(x, ỹ_t)

d_i is the number of neighbours of i. These are the probabilities of Metropolis–Hastings: in the long run all agents
hold the token equally often, on any graph. i_0 is uniform. Each agent publishes its last message.

Noise protects one train record of agent i: the walk is public, and given all messages the next one depends on the
records of its sender through one clipped mean at a public point, so its sensitivity is λ_t·2C/N. A round in which an
agent does not send has no privacy cost for it: the certified ε, against an adversary that observes all messages, covers
only its visits. The paper below claims a smaller ε against an agent that sees the token only at its own visits; this
smaller ε is not certified here.

A round in which the token moves has one message. Networks that change or lose messages are not supported, since the
token must arrive. One agent runs gradient descent.

References: E. Cyffers, A. Bellet, J. Upadhyay, "Differentially Private Decentralized Learning with Random Walks", ICML
2024, arXiv 2402.07471.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from decentral_dp.algorithms import vocabulary as dp
from decentral_dp.algorithms.gossip.one_level import OneLevel, OneLevelState
from decentral_dp.participants import Network


@dataclass(frozen=True)
class RandomWalk(OneLevel):
    """Random walk of a token, whose holder takes a noisy step and passes it to a neighbour."""

    # Only the next holder receives a message.
    passes_token: ClassVar[bool] = True

    def senders(self, network: Network) -> Iterator[list[int]]:
        near = [network.neighbours(i) for i in range(network.n_agents)]
        holder, t = int(network.public_rng(0).integers(network.n_agents)), 0
        while True:
            yield [holder]
            t += 1
            coins = network.public_rng(t)
            if near[holder].size:
                # A neighbour drawn uniformly, 1/d_i, is accepted with probability min(1, d_i/d_j).
                neighbour = int(near[holder][coins.integers(near[holder].size)])
                holder = neighbour if coins.random() * near[neighbour].size < near[holder].size else holder

    def step(self, t: int, dataset: dp.LocalDataset, s: OneLevelState) -> Generator[dp.Gossip, Any, OneLevelState]:
        own_values, _, messages = yield dp.Gossip(each=True, y=s.y)
        token = own_values.y.copy()
        token[messages.rows] = messages.values.y
        return OneLevelState(s.x, token - self.learning_rate(t) * dataset.batch(t).lower_grad_y(s.x, token))


ENTRY = dp.Entry(
    "random_walk",
    RandomWalk,
    (dp.Citation("Walk of a token", "cyffers2024differentially"),),
    display_name="random-walk SGD",
    proved=True,
)
