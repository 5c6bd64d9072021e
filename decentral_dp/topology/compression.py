"""Compressed messages: quantised differences from replicas that an agent and its neighbours keep.

Let ṽ_i be the release of agent i on a channel, v̂_i its replica at agent i and all neighbours, Q a quantiser, W the
mixing matrix and γ the consensus step size. In an exchange

    agent i sends q_i = Q(ṽ_i − v̂_i) and all update v̂_i ← v̂_i + q_i,
    agent i uses ṽ_i + γ (v̂_j − v̂_i) instead of ṽ_j, so that it mixes to ṽ_i + γ Σ_j w_ij (v̂_j − v̂_i).

Replicas start at the public start of the channel. The difference that Q drops remains in ṽ_i − v̂_i and is sent later
(error feedback). Mixing preserves the network mean. Noise is added before compression, so q and v̂ are post-processing
without privacy cost. With Q the identity and γ = 1 this is plain gossip.

    kind        Q(u), u ∈ R^d                                   δ                     bits
    top_k       the k entries of largest size                   k/d                   k (64 + ⌈log₂ d⌉)
    random_k    k entries, chosen at random (public seed)       k/d, in the mean      64 k
    qsgd        ‖u‖₂ sign(u) ξ/(s (1 + ω)), ξ is s|u|/‖u‖₂      1/(1 + ω), in the     64 + d (1 + ⌈log₂(s + 1)⌉)
                stochastically rounded (public seed)            mean; ω is
                                                                min(d/s², √d/s)
    sign        (‖u‖₁/d) sign(u)                                ‖u‖₁²/(d ‖u‖₂²)       64 + d
    custom      quantiser(u, generator)                         declared or measured  quantiser.bits(d)

Here k = max(1, ⌈share · d⌉), s is the number of levels, and δ the contraction: ‖Q(u) − u‖² ≤ (1 − δ) ‖u‖². For `sign`
it is at least 1/d, and 2/π for Gaussian entries such as noise.

References: A. Koloskova, S. Stich, M. Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication", ICML 2019, Algorithm 2; D. Alistarh et al., "QSGD", NeurIPS 2017 (ω).
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError
from decentral_dp.user_code import call_array, convert_failures

BITS = 64
KINDS = ("top_k", "random_k", "qsgd", "sign")
# Standard Gaussian vectors that measure the contraction of a custom quantiser.
_VECTORS = 64


@dataclass(frozen=True)
class Compression:
    """Quantiser with its consensus step size.

    Args:
        kind: quantiser "top_k", "random_k", "qsgd" or "sign", or the name of a custom quantiser.
        consensus: consensus step size γ, above 0 and at most 1.
        share: fraction of entries that top_k and random_k send.
        levels: number s of quantisation levels of qsgd.
        seed: public seed of random choices.
        quantiser: custom Q, a function of u (d,) and a generator of public draws, with a method bits(d) and, unless its
            contraction is measured, contraction(d).

    Example:
        >>> largest = Compression("top_k", share=0.5)
        >>> largest(np.array([[3.0, -1.0, 0.5, -4.0]]), "y", 1, np.array([0])).tolist()
        [[3.0, 0.0, 0.0, -4.0]]
        >>> largest.size(4), largest.contraction(4)
        ((2, 132), 0.5)
    """

    kind: str
    consensus: float = 1.0
    share: float = 1.0
    levels: int = 1
    seed: int = 0
    quantiser: Any = None

    def __call__(self, differences: Array, channel: str, index: int, agents: NDArray[np.int64]) -> Array:
        """Quantise every row.

        Args:
            differences: differences from the replicas, (b, d).
            channel: channel of the release.
            index: index of the release.
            agents: indices of the agents, (b,).
        """
        if not differences.shape[1]:
            return differences
        if self.kind == "top_k":
            # Stable: ties are broken identically on every machine.
            largest = np.argsort(-np.abs(differences), axis=1, kind="stable")[:, : self._n_kept(differences.shape[1])]
            out = np.zeros_like(differences)
            np.put_along_axis(out, largest, np.take_along_axis(differences, largest, axis=1), axis=1)
            return out
        if self.kind == "sign":
            sizes = np.abs(differences).sum(axis=1, keepdims=True) / differences.shape[1]
            return np.asarray(np.copysign(sizes, differences))
        key, out = [self.seed, zlib.crc32(b"compression"), zlib.crc32(channel.encode())], np.zeros_like(differences)
        for quantised, row, agent in zip(out, differences, agents, strict=True):
            rng = np.random.default_rng([*key, index, int(agent)])
            if self.quantiser is not None:
                quantised[:] = call_array(self._key, self.quantiser, row.shape, row.copy(), rng)
            elif self.kind == "random_k":
                kept_index = rng.choice(row.size, self._n_kept(row.size), replace=False)
                quantised[kept_index] = row[kept_index]
            else:
                norm = float(np.sqrt((row * row).sum()))
                steps = np.floor(self.levels * np.abs(row) / (norm or 1.0) + rng.random(row.size))
                quantised[:] = np.sign(row) * steps * (norm / (self.levels * (1.0 + self._variance(row.size))))
        return out

    @property
    def _key(self) -> str:
        return f"topology.compression: {self.kind}"

    def _n_kept(self, width: int) -> int:
        return max(1, math.ceil(self.share * width))

    def _variance(self, width: int) -> float:
        """Bound ω on the variance of qsgd."""
        return min(width / self.levels**2, math.sqrt(width) / self.levels)

    def contraction(self, width: int) -> float:
        """Return the contraction δ. For `sign`, and if a custom Q does not declare δ, it is that of Gaussian entries.

        Args:
            width: number of coordinates d, above 0.

        Raises:
            InputError: a custom quantiser does not contract.
        """
        if self.quantiser is None:
            if self.kind == "sign":
                return 2.0 / math.pi
            return 1.0 / (1.0 + self._variance(width)) if self.kind == "qsgd" else self._n_kept(width) / width
        if hasattr(self.quantiser, "contraction"):
            with convert_failures(self._key):
                value = float(self.quantiser.contraction(width))
        else:
            rng = np.random.default_rng(self.seed)
            rows = rng.normal(size=(_VECTORS, width))
            quantised = [call_array(self._key, self.quantiser, row.shape, row.copy(), rng) for row in rows]
            rest = np.stack(quantised) - rows
            value = 1.0 - float(np.square(rest).sum() / np.square(rows).sum())
        if not 0.0 < value <= 1.0:
            raise InputError(
                f"{self._key} does not contract (got δ = {value:.3g}, expected above 0 and at most 1). Fix: define "
                "contraction(d), or scale its output."
            )
        return value

    def size(self, width: int) -> tuple[int, int]:
        """Return the number of floats and the number of bits in one message on a channel.

        Args:
            width: number of coordinates d.
        """
        if not width:
            return 0, 0
        if self.quantiser is not None:
            with convert_failures(self._key):
                return width, int(self.quantiser.bits(width))
        if self.kind == "sign":
            return width, BITS + width
        if self.kind == "qsgd":
            return width, BITS + width * (1 + math.ceil(math.log2(self.levels + 1)))
        coordinates = self._n_kept(width)
        return coordinates, coordinates * (BITS + (math.ceil(math.log2(width)) if self.kind == "top_k" else 0))
