"""Byzantine agents: attacks on messages, and robust aggregation instead of weighted sums.

Let ṽ_j be the release of agent j, B the attackers, H the honest agents and u_j the message that arrives: u_j = ṽ_j for
honest j. Attackers know all releases of the exchange. With s the strength,

    sign_flip    u_j = −s ṽ_j
    noise        u_j = ṽ_j + s N(0, I), from a public seed
    alie         u_j = μ_H − s σ_H: mean and standard deviation of the honest releases, coordinate by coordinate
    ipm          u_j = −s μ_H (inner product manipulation)
    custom       (u_j)_{j ∈ B} = attack(ṽ, B, generator), with a generator of public draws

With a_i = 1 − Σ_j w_ij, aggregation replaces a_i ṽ_i + Σ_j w_ij u_j of agent i by

    clipped_gossip           ṽ_i + Σ_j w_ij clip(u_j − ṽ_i, τ), clipped in ℓ2 to the radius τ
    self_centred_clipping    the same with τ_i the distance of the neighbour next to the `trim` farthest ones
    trimmed_mean             coordinate by coordinate the mean of ṽ_i and the neighbours' values without the `trim`
                             largest and the `trim` smallest ones
    median                   coordinate by coordinate the median of ṽ_i and the neighbours' values
    custom                   rule(ṽ_i, (u_j)_j, (w_ij)_j)

In a trimmed mean, an agent with n neighbours trims at most ⌈n/2⌉ − 1 values on each side.

Aggregation reads released values only, so it is post-processing. The sensitivity of a release holds for any received
messages, so an attacker cannot change the ε of an honest agent (docs/proofs/02).

References: L. He, S. P. Karimireddy, M. Jaggi, "Byzantine-Robust Decentralized Learning via ClippedGossip",
arXiv:2202.01545 (clipped gossip, self-centred clipping); Z. Yang, W. U. Bajwa, "ByRDiE", IEEE Transactions on
Signal and Information Processing over Networks 5(4), 2019 (trimmed mean); G. Baruch, M. Baruch, Y. Goldberg, "A Little
Is Enough", NeurIPS 2019; C. Xie, S. Koyejo, I. Gupta, "Fall of Empires", UAI 2019 (inner product manipulation).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from decentral_dp.bounded import Array
from decentral_dp.user_code import call_array

AGGREGATIONS = ("clipped_gossip", "self_centred_clipping", "trimmed_mean", "median")
# Strength s of an attack without one.
STRENGTHS = {"sign_flip": 1.0, "noise": 1.0, "alie": 1.5, "ipm": 0.5}


@dataclass(frozen=True)
class Attack:
    """Agents that send wrong messages.

    Args:
        agents: indices of the attackers.
        kind: name of the attack.
        strength: strength s.
        seed: public seed of random draws.
        custom: custom attack. The default is None.

    Example:
        >>> attack = Attack((2,), "ipm", strength=2.0)
        >>> attack(np.array([[1.0], [3.0], [0.5]]), index=0)[:, 0].tolist()
        [1.0, 3.0, -4.0]
    """

    agents: tuple[int, ...]
    kind: str
    strength: float = 1.0
    seed: int = 0
    custom: Callable[..., Any] | None = None

    def __call__(self, messages: Array, index: int) -> Array:
        """Return the messages that arrive, (m, D).

        Args:
            messages: releases of all agents, (m, D).
            index: index of the exchange.
        """
        attackers = np.array(self.agents)
        honest = np.delete(messages, attackers, axis=0)
        rng = np.random.default_rng([self.seed, zlib.crc32(b"attack"), index])
        if self.custom is not None:
            shape = (attackers.size, messages.shape[1])
            wrong = call_array(f"attack.kind: {self.kind}", self.custom, shape, messages.copy(), attackers, rng)
        elif self.kind == "sign_flip":
            wrong = -self.strength * messages[attackers]
        elif self.kind == "noise":
            wrong = messages[attackers] + self.strength * rng.normal(size=(attackers.size, messages.shape[1]))
        else:
            spread = honest.std(axis=0) if self.kind == "alie" else 0.0
            scale = 1.0 if self.kind == "alie" else -self.strength
            wrong = np.tile(scale * honest.mean(axis=0) - self.strength * spread, (attackers.size, 1))
        arriving = messages.copy()
        arriving[attackers] = wrong
        return arriving


@dataclass(frozen=True)
class Aggregation:
    """Robust aggregation of neighbours' messages.

    Args:
        kind: name of the rule.
        radius: radius τ of clipped_gossip.
        trim: number of neighbours' values that self_centred_clipping and trimmed_mean assume to be corrupted.
        custom: custom rule. The default is None.

    Example:
        >>> weights = sp.csr_array(np.array([[0.0, 0.5, 0.25], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0]]))
        >>> values = np.array([[0.0], [1.0], [100.0]])
        >>> Aggregation("clipped_gossip", radius=2.0)(values, values, weights)[0].tolist()
        [1.0]
        >>> Aggregation("median")(values, values, weights)[0].tolist()
        [1.0]
    """

    kind: str
    radius: float = np.inf
    trim: int = 1
    custom: Callable[..., Any] | None = None

    def __call__(self, own: Array, messages: Array, weights: sp.csr_array) -> Array:
        """Aggregate each agent's release with the messages that arrive.

        Args:
            own: releases of the agents, (m, D).
            messages: messages that arrive, (m, D).
            weights: weights w_ij of the messages that arrive, (m, m), without diagonal entries.

        Returns:
            The aggregates that replace a_i ṽ_i + Σ_j w_ij u_j, (m, D).
        """
        out = own.copy()
        for i in range(len(own)):
            part = slice(weights.indptr[i], weights.indptr[i + 1])
            near, share = messages[weights.indices[part]], weights.data[part]
            if not share.size:
                continue
            if self.custom is not None:
                key = f"topology.aggregation: {self.kind}"
                out[i] = call_array(key, self.custom, own[i].shape, own[i].copy(), near, share.copy())
            elif self.kind in ("clipped_gossip", "self_centred_clipping"):
                change = near - own[i]
                lengths = np.linalg.norm(change, axis=1)
                radius = self.radius
                if self.kind == "self_centred_clipping":
                    radius = np.sort(lengths)[max(0, lengths.size - 1 - self.trim)]
                # A length of 0 or of infinity gives a factor of 1 or 0.
                factors = np.minimum(1.0, radius / np.maximum(lengths, np.finfo(np.float64).tiny))
                out[i] += (share * factors) @ np.where(factors[:, None] > 0.0, change, 0.0)
            elif self.kind == "median":
                out[i] = np.median(np.vstack([own[i], near]), axis=0)
            else:
                trim = min(self.trim, (len(near) - 1) // 2)
                kept = np.sort(near, axis=0)[trim : len(near) - trim]
                out[i] = (own[i] + kept.sum(axis=0)) / (1 + len(kept))
        return out
