"""Whether one record is in the samples that a run draws, prescribed: what the hidden coin of that record leads to.

A certificate with amplification holds against an observer who knows how the other records were drawn, since a
divergence of mixtures is at most the mixture of their divergences. Given that, a release is a mixture of two laws:

    Poisson       every record by its own coin: in with probability q, else left out, all others being as they are
    fixed size    b of n: with probability q = b/n the record is in, else another one has its place

Of fixed size, the observer is told the b − 1 others and who takes the place if the record does not. Both are drawn
alike whether it is in or not, so that they tell nothing of the record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from decentral_dp.bounded import Split
from decentral_dp.data.streams import Draw, draw_batch
from decentral_dp.engines.protocol import AgentNode, CoordinatorNode
from decentral_dp.privacy.randomness import Streams, tag


@dataclass(frozen=True)
class Membership:
    """Whether the first record of a kind is in the samples: in all, in none, or in each by a coin of its own."""

    split: Split
    drawn: Literal["in", "out", "by coin"]

    def of(self, generator: np.random.Generator) -> bool:
        """generator: keyed for the sample, so that all who ask of one sample get one answer."""
        return self.drawn == "in" if self.drawn != "by coin" else bool(generator.random() < 0.5)


def prescribed_agent(node: AgentNode, membership: Membership) -> AgentNode:
    """Prescribe whether the minibatches of one agent hold its first record.

    Args:
        node: of an agent alone in its block.
        membership: what is prescribed.

    Returns:
        The same node; all other records are drawn as before.
    """

    def draw(split: Split, n: int, batch: int, generator: np.random.Generator) -> Draw:
        found = draw_batch(n, batch, generator)
        if split != membership.split or batch >= n:
            return found
        members = found.index
        there = 0 in members
        # Who stands in the record's place where it is out, and in whose place it stands where it is in.
        partner = generator.choice(np.setdiff1d(np.arange(1, n), members)) if there else generator.choice(members)
        if membership.of(generator) == there:
            return found
        return replace(found, index=np.where(members == 0, partner, np.where(members == partner, 0, members)))

    return node._replace(dataset=node.dataset.drawn_by(draw))


def prescribed_coordinator(node: CoordinatorNode, victim: int, membership: Membership) -> CoordinatorNode:
    """Prescribe whether a coordinator's Poisson samples hold the first record of one agent.

    Args:
        node: of the coordinator.
        victim: number of the agent.
        membership: what is prescribed.

    Returns:
        The same node; all other records are drawn as before.
    """
    blocks = []
    for block in node.client_blocks:
        at = np.flatnonzero(block.agents == victim)
        blocks.append(replace(block, coins=_Coins(block.coins, int(at[0]), membership)) if at.size else block)
    return node._replace(client_blocks=tuple(blocks))


class _Coins:
    """Streams of coins in which that of one record is prescribed."""

    def __init__(self, real: Streams, row: int, membership: Membership) -> None:
        self._real = real
        self._row = row
        self._membership = membership

    def at(self, row: int, index: int, name: int) -> Any:
        generator = self._real.at(row, index, name)
        here = row == self._row and name == tag(self._membership.split)
        return _Coin(generator, self._membership) if here else generator


class _Coin:
    """The coins of one sample."""

    def __init__(self, generator: np.random.Generator, membership: Membership) -> None:
        self._generator = generator
        self._membership = membership

    def random(self, n: int) -> Any:
        coins = self._generator.random(n)
        # Below any rate, or at none.
        coins[0] = 0.0 if self._membership.of(self._generator) else 1.0
        return coins
