"""The random numbers of secret draws: keystreams of AES-256 in counter mode, one for each agent, channel and index.

    key of a stream     32 bytes for each root, purpose and agent (`randomness.Streams`)
    key of a channel    blake2b of its tag, keyed by that: 32 bytes, a key of AES-256
    block k of a draw   the cipher of the 16 bytes  index | k,  both of 64 bits, big-endian;  k = 0, 1, 2, …
    a number            8 bytes of a block, little-endian, in order

No block is used twice: channels have keys of their own, and under one key the counters index | k of two draws differ,
as do those of one draw. A draw would reach the next index after 2⁶⁴ blocks, that is 2⁶⁵ numbers or 2⁶⁸ bytes, which no
machine makes; an index that is no number of 64 bits is refused. To whoever does not have the root, and computes no more
than breaks AES-256 or keyed BLAKE2b as pseudorandom functions, the numbers look like ideal random bits (proof 09).

`_variates.c` has the cipher encrypt counters. Without it numpy calls back for every number; the bits are the same.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from operator import mul, rshift
from threading import RLock
from types import SimpleNamespace
from typing import Any

import numpy as np

try:
    from decentral_dp.privacy import _variates
except ImportError:
    _variates = None  # type: ignore[assignment]  # it is optional

# Numbers that are made at a time where numpy calls back.
_NUMBERS = 256


class Keystreams:
    """The keystreams of agents that are hosted together. One generator object serves all agents.

    A cipher takes about 1 kB, and is kept for each agent and channel that was drawn from.

    Args:
        keys: of the agents' streams, 32 bytes each.

    Example:
        >>> streams = Keystreams([bytes(32), bytes(31) + b"1"])
        >>> first = streams.at(0, index=3, tag=7).random()
        >>> first == streams.at(1, index=3, tag=7).random(), first == streams.at(0, index=3, tag=7).random()
        (False, True)
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._ciphers: dict[int, list[Any]] = {}
        self._numbers: Iterator[int] | None = None
        self._bits = None if _variates is None else _variates.bits()
        self._generator = None if self._bits is None else _generator_over(self._bits)

    def ciphers(self, tag: int) -> list[Any]:
        """AES-256 of single blocks under the key of each agent and this channel: what counters are put through.

        Args:
            tag: of the channel.
        """
        if tag not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            # Counter mode is this mode over counters. A call for each draw takes half of the time of two, the first of
            # which sets the counter; and a signal in between leaves no state of a cipher behind.
            keys = (_channel_key(key, tag) for key in self._keys)
            self._ciphers[tag] = [Cipher(algorithms.AES(key), modes.ECB()).encryptor() for key in keys]
        return self._ciphers[tag]

    def at(self, row: int, index: int, tag: int) -> np.random.Generator:
        """Give numpy's generator over one draw of one agent, from its beginning; valid until the next call.

        Args:
            row: of the agent.
            index: of the release.
            tag: of the channel.

        Raises:
            OverflowError: the index is no number of 64 bits.
            RuntimeError: the keystream of the last draw broke off, so that what was drawn is not to be used.
        """
        if _variates is not None and self._generator is not None:
            _variates.at(self._bits, self.ciphers(tag)[row], index)
            return self._generator
        if self._numbers is not None and next(self._numbers, None) is None:
            raise RuntimeError("a keystream broke off, by a signal or for want of memory: its draw is not to be used")
        self._numbers = _numbers(_channel_key(self._keys[row], tag), index)
        return _generator_over(*_bits_over(self._numbers))


def _channel_key(key: bytes, tag: int) -> bytes:
    return blake2b(b"channel" + tag.to_bytes(8, "little"), key=key, digest_size=32).digest()


def _generator_over(capsule: Any, *kept: Any) -> np.random.Generator:
    # numpy asks a bit generator for these two, and no more.
    given: Any = SimpleNamespace(capsule=capsule, lock=RLock(), kept=kept)
    return np.random.Generator(given)


def _numbers(key: bytes, index: int) -> Iterator[int]:
    """The numbers of a draw, one after another; they end where the cipher fails."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    start = index.to_bytes(8, "big") + bytes(8)
    cipher = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    # Nothing but compiled functions: a signal that came between two lines would end a call from within numpy, which
    # takes no exception and would go on with zeros.
    encrypted = map(cipher.update, repeat(bytes(8 * _NUMBERS)))
    return chain.from_iterable(map(struct.Struct(f"<{_NUMBERS}Q").unpack, encrypted))


class _Bits(ctypes.Structure):
    """numpy's bitgen_t."""

    _fields_ = (
        ("state", ctypes.c_void_p),
        ("next_uint64", ctypes.c_void_p),
        ("next_uint32", ctypes.c_void_p),
        ("next_double", ctypes.c_void_p),
        ("next_raw", ctypes.c_void_p),
    )


_NAME = b"BitGenerator"
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def _bits_over(numbers: Iterator[int]) -> tuple[Any, Any]:
    """numpy's capsule of a bit generator over numbers, as `_variates.c` takes them; and what has to live as long."""
    halves = map(rshift, numbers, repeat(32))
    fractions = map(mul, map(rshift, numbers, repeat(11)), repeat(2.0**-53))
    # The argument is none of theirs.
    calls = (
        ctypes.CFUNCTYPE(ctypes.c_uint64)(numbers.__next__),
        ctypes.CFUNCTYPE(ctypes.c_uint32)(halves.__next__),
        ctypes.CFUNCTYPE(ctypes.c_double)(fractions.__next__),
    )
    uint64, uint32, double = (ctypes.cast(call, ctypes.c_void_p) for call in calls)
    bits = _Bits(None, uint64, uint32, double, uint64)
    return _new_capsule(ctypes.addressof(bits), _NAME, None), (bits, calls)
