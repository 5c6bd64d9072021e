"""Keyed randomness: every draw has its own key, so a retry, a restart or another placement repeats the same draw.

A stream is Philox4×64 keyed by blake2b(root, purpose, agent); before each draw its 256-bit counter is set to
(0, 0, index, tag), which leaves 2¹²⁸ outputs of room and never advances a shared stream. A fresh draw for a release
already made would be a second release. Philox is a statistical, not a cryptographic, generator.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def seeded_root(seed: int, scenario: bytes) -> bytes:
    """Derive the root of a reproducible run.

    Args:
        seed: of the run.
        scenario: all of it: equal noise under two scales would cancel out.

    Returns:
        32 bytes.

    Example:
        >>> seeded_root(1, b"one scenario") == seeded_root(1, b"another")
        False
    """
    return _digest(b"seed", seed.to_bytes(16, "little", signed=True), scenario)


def secret_root() -> bytes:
    """Return 256 bits from the operating system.

    Example:
        >>> len(secret_root())
        32
    """
    return os.urandom(32)


@cache
def tag(name: str) -> int:
    """Return a 64-bit number for a channel name (or a list of them).

    Example:
        >>> tag("y") == tag("y"), tag("y") == tag("z")
        (True, False)
    """
    return int.from_bytes(_digest(b"tag", name.encode())[:8], "little")


def _digest(*parts: bytes) -> bytes:
    h = hashlib.blake2b(digest_size=32)
    for part in parts:
        # Length prefixes keep different splittings of the same bytes apart.
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


class Streams:
    """The keyed streams of one purpose for the agents hosted together. One generator object serves all agents.

    Args:
        root: of `seeded_root` or `secret_root`.
        purpose: such as "noise"; streams of two purposes are independent.
        agents: their numbers.

    Example:
        >>> noise = Streams(seeded_root(1, b"scenario"), "noise", agents=[0, 1])
        >>> first = noise.at(0, index=3, tag=tag("y")).random()
        >>> first == noise.at(1, index=3, tag=tag("y")).random(), first == noise.at(0, index=3, tag=tag("y")).random()
        (False, True)
    """

    def __init__(self, root: bytes, purpose: str, agents: Sequence[int] | NDArray[np.int64]) -> None:
        digests = [_digest(root, purpose.encode(), int(a).to_bytes(8, "little"))[:16] for a in agents]
        self._bind(np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2).copy())

    def _bind(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._bits = np.random.Philox(key=0)
        # Tuples of Python's integers, which numpy reads one by one three times as fast as those of an array.
        self._rows: list[tuple[int, ...]] = [tuple(key) for key in keys.tolist()]
        self._state: Any = {"counter": (0, 0, 0, 0), "key": (0, 0)}
        self._full: Any = {
            "bit_generator": "Philox",
            "state": self._state,
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        self.generator = np.random.Generator(self._bits)

    def mixed(self, secrets: Sequence[bytes]) -> Streams:
        """The same streams under keys that need a secret of each agent as well as the root.

        Args:
            secrets: one for each agent, in order; an empty one leaves its key as it is.
        """
        keys = self._keys.copy()
        for row, secret in enumerate(secrets):
            if secret:
                keys[row] = np.frombuffer(_digest(b"agent", keys[row].tobytes(), secret)[:16], dtype=np.uint64)
        other = Streams.__new__(Streams)
        other._bind(keys)
        return other

    def at(self, row: int, index: int, tag: int) -> np.random.Generator:
        """Position the generator for one draw of one agent.

        Args:
            row: of the agent.
            index: of the release.
            tag: of the channel.

        Returns:
            The generator, valid until the next call.
        """
        self._state["counter"] = (0, 0, index, tag)
        self._state["key"] = self._rows[row]
        self._bits.state = self._full
        return self.generator

    @property
    def keys(self) -> NDArray[np.uint64]:
        """The key of each agent, (b, 2)."""
        return self._keys

    def __getstate__(self) -> NDArray[np.uint64]:
        return self._keys

    def __setstate__(self, keys: NDArray[np.uint64]) -> None:
        # A copy must own its generator: numpy's pickles would part the generator from the bits it is positioned by.
        self._bind(keys)

    def __len__(self) -> int:
        return len(self._rows)
