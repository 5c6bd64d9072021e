"""Keyed randomness: every draw has its own key, so a retry, a restart or another placement repeats the same draw.

A stream has a key of its root, purpose and agent, and every draw of it a counter of its index and channel, so that
no draw advances another. A fresh draw for a release already made would be a second release. The root says where its
numbers come from:

    secret    AES-256 in counter mode under blake2b(purpose, agent), keyed by the root (`keystreams`): a cryptographic
              generator
    seeded    Philox4×64 keyed by blake2b(root, purpose, agent), its 256-bit counter set to (0, 0, index, tag), which
              leaves 2¹²⁸ outputs of room: a statistical generator, of simulations
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from decentral_dp.privacy.keystreams import Keystreams


@final
@dataclass(frozen=True)
class SecretRoot:
    """The root of draws that nobody is to guess. key: 32 bytes."""

    key: bytes = field(repr=False)


# Of bytes alone are those of seeded runs.
Root = bytes | SecretRoot

# As folders of runs name them.
PHILOX, AES = GENERATORS = "philox-4x64", "aes-256-ctr"


def generator_of(root: Root) -> str:
    """Return the name of the generator that draws of this root come from.

    Example:
        >>> generator_of(secret_root()), generator_of(seeded_root(1, b"one scenario"))
        ('aes-256-ctr', 'philox-4x64')
    """
    return AES if isinstance(root, SecretRoot) else PHILOX


def key_of(root: Root) -> bytes:
    """Return the bytes of a root."""
    return root.key if isinstance(root, SecretRoot) else root


def root_of(key: bytes, generator: str) -> Root:
    """Return the root with these bytes, whose draws come from this one of `GENERATORS`.

    Example:
        >>> root = secret_root()
        >>> root_of(key_of(root), generator_of(root)) == root
        True
    """
    return SecretRoot(key) if generator == AES else key


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


def secret_root() -> SecretRoot:
    """Return a root of 256 bits from the operating system.

    Example:
        >>> root = secret_root()
        >>> len(root.key), root
        (32, SecretRoot())
    """
    return SecretRoot(os.urandom(32))


@cache
def tag(name: str) -> int:
    """Return a 64-bit number for a channel name (or a list of them).

    Example:
        >>> tag("y") == tag("y"), tag("y") == tag("z")
        (True, False)
    """
    return int.from_bytes(_digest(b"tag", name.encode())[:8], "little")


def _digest(*parts: bytes, key: bytes = b"") -> bytes:
    h = hashlib.blake2b(digest_size=32, key=key)
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

    Attributes:
        source: of their numbers.

    Example:
        >>> noise = Streams(seeded_root(1, b"scenario"), "noise", agents=[0, 1])
        >>> first = noise.at(0, index=3, tag=tag("y")).random()
        >>> first == noise.at(1, index=3, tag=tag("y")).random(), first == noise.at(0, index=3, tag=tag("y")).random()
        (False, True)
    """

    def __init__(self, root: Root, purpose: str, agents: Sequence[int] | NDArray[np.int64]) -> None:
        each = [(purpose.encode(), int(a).to_bytes(8, "little")) for a in agents]
        if isinstance(root, SecretRoot):
            self._bind([_digest(*of_one, key=root.key) for of_one in each], True)
        else:
            self._bind([_digest(root, *of_one)[:16] for of_one in each], False)

    def _bind(self, keys: list[bytes], secret: bool) -> None:
        self._keys = keys
        self.source = Keystreams(keys) if secret else Philox(np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2))

    def mixed(self, secrets: Sequence[bytes]) -> Streams:
        """The same streams under keys that need a secret of each agent as well as the root.

        Args:
            secrets: one for each agent, in order; an empty one leaves its key as it is.
        """
        each, secret = list(zip(self._keys, secrets, strict=True)), isinstance(self.source, Keystreams)
        other = Streams.__new__(Streams)
        if secret:
            other._bind([_digest(b"agent", own, key=key) if own else key for key, own in each], secret)
        else:
            # Of a run that was begun when secret noise came from Philox.
            other._bind([_digest(b"agent", key, own)[:16] if own else key for key, own in each], secret)
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
        return self.source.at(row, index, tag)

    def __getstate__(self) -> tuple[list[bytes], bool]:
        return self._keys, isinstance(self.source, Keystreams)

    def __setstate__(self, state: tuple[list[bytes], bool]) -> None:
        # A copy must own its generator: numpy's pickles would part the generator from the bits it is positioned by.
        self._bind(*state)

    def __len__(self) -> int:
        return len(self._keys)


class Philox:
    """The numbers of seeded draws. keys: of the agents' streams, (b, 2)."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys
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
        self._generator = np.random.Generator(self._bits)

    def at(self, row: int, index: int, tag: int) -> np.random.Generator:
        """As of `Streams`."""
        self._state["counter"] = (0, 0, index, tag)
        self._state["key"] = self._rows[row]
        self._bits.state = self._full
        return self._generator
