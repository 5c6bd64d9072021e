"""Keyed randomness: every draw has its own key, so that a retry, a restart or another placement repeats the draw.

A stream has a key of its root, purpose and agent, and every draw of it a counter of its index and channel, so that
no draw advances another. A fresh draw for a release already made would be a second release. The root says where its
numbers come from:

    secret    AES-256 in counter mode under blake2b(purpose, agent), keyed by the root (`Keystreams`): a cryptographic
              generator
    seeded    Philox4×64 keyed by blake2b(root, purpose, agent), its 256-bit counter set to (0, 0, index, tag), which
              leaves 2¹²⁸ outputs of room: a statistical generator, of simulations

Secret draws read keystreams of AES-256 in counter mode, one for each agent, channel and index:

    key of a stream     32 bytes for each root, purpose and agent (`randomness.Streams`)
    key of a channel    blake2b of its tag, keyed by that: 32 bytes, a key of AES-256
    block k of a draw   the cipher of the 16 bytes  index | k,  both of 64 bits, big-endian;  k = 0, 1, 2, …
    a number            8 bytes of a block, little-endian, in order

No block is used twice: channels have keys of their own, and under one key the counters index | k of two draws differ,
as do those of one draw. A draw would reach the next index after 2⁶⁴ blocks, that is 2⁶⁵ numbers or 2⁶⁸ bytes, which no
machine makes; an index that is no number of 64 bits is refused. To whoever does not have the root, and computes no more
than breaks AES-256 or keyed BLAKE2b as pseudorandom functions, the numbers look like ideal random bits (proof 09).

`_variates.c` has the cipher encrypt counters. Without it numpy calls back for every number; the bits are the same.

`_variates.c` makes the standard variates of all agents in one call, where this package was built with a C compiler.
Without it numpy makes the same numbers, to the bit, in one call for each agent; and where the numpy at hand draws
otherwise than the one that was built with.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from itertools import chain, repeat
from operator import mul, rshift
from threading import RLock
from types import ModuleType, SimpleNamespace
from typing import Any, Literal, final, get_args

import numpy as np
from numpy.typing import NDArray

from decentral_dp.bounded import Array


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
        >>> generator_of(secret_root()), generator_of(seeded_root(1, b"run"))
        ('aes-256-ctr', 'philox-4x64')
    """
    return AES if isinstance(root, SecretRoot) else PHILOX


def root_bytes(root: Root) -> bytes:
    """Return the bytes of a root."""
    return root.key if isinstance(root, SecretRoot) else root


def root_of(key: bytes, generator: str) -> Root:
    """Return the root with these bytes, whose draws come from this one of `GENERATORS`.

    Example:
        >>> root = secret_root()
        >>> root_of(root_bytes(root), generator_of(root)) == root
        True
    """
    return SecretRoot(key) if generator == AES else key


def seeded_root(seed: int, purpose: bytes) -> bytes:
    """Derive the root of reproducible draws.

    Args:
        seed: that is recorded.
        purpose: what is drawn, such as runs or the trials of an audit. Draws of two purposes are independent.

    Returns:
        32 bytes.

    Example:
        >>> seeded_root(1, b"run") == seeded_root(1, b"audit")
        False
    """
    return _digest(b"seed", seed.to_bytes(16, "little", signed=True), purpose)


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
    h = blake2b(digest_size=32, key=key)
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
        >>> noise = Streams(seeded_root(1, b"run"), "noise", agents=[0, 1])
        >>> first = noise.generator(0, index=3, tag=tag("y")).random()
        >>> [first == noise.generator(row, index=3, tag=tag("y")).random() for row in (1, 0)]
        [False, True]
    """

    def __init__(self, root: Root, purpose: str, agents: Sequence[int] | NDArray[np.int64]) -> None:
        each = [(purpose.encode(), int(a).to_bytes(8, "little")) for a in agents]
        if isinstance(root, SecretRoot):
            self._set_keys([_digest(*of_one, key=root.key) for of_one in each], True)
        else:
            self._set_keys([_digest(root, *of_one)[:16] for of_one in each], False)

    def _set_keys(self, keys: list[bytes], secret: bool) -> None:
        self._keys = keys
        self.source = Keystreams(keys) if secret else Philox(np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2))

    def with_agent_secrets(self, secrets: Sequence[bytes]) -> Streams:
        """The same streams, of a secret root, under keys that need a secret of each agent as well.

        Args:
            secrets: one for each agent, in order; an empty one leaves its key as it is.
        """
        each = zip(self._keys, secrets, strict=True)
        other = Streams.__new__(Streams)
        other._set_keys([_digest(b"agent", own, key=key) if own else key for key, own in each], True)
        return other

    def generator(self, row: int, index: int, tag: int) -> np.random.Generator:
        """Position the generator for one draw of one agent.

        Args:
            row: of the agent.
            index: of the release.
            tag: of the channel.

        Returns:
            The generator, valid until the next call.
        """
        return self.source.generator(row, index, tag)

    def __getstate__(self) -> tuple[list[bytes], bool]:
        return self._keys, isinstance(self.source, Keystreams)

    def __setstate__(self, state: tuple[list[bytes], bool]) -> None:
        # A copy must own its generator: numpy's pickles would part the generator from the bits it is positioned by.
        self._set_keys(*state)

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

    def generator(self, row: int, index: int, tag: int) -> np.random.Generator:
        """As of `Streams`."""
        self._state["counter"] = (0, 0, index, tag)
        self._state["key"] = self._rows[row]
        self._bits.state = self._full
        return self._generator


try:
    from decentral_dp.privacy import _variates
except ImportError:
    _variates = None  # type: ignore[assignment]  # it is optional

# Numbers that are made at a time where numpy calls back.
_NUMBERS = 256


def load_cipher() -> None:
    """Import the cipher of secret noise, which is otherwise imported by its first draw."""
    import cryptography.hazmat.primitives.ciphers  # noqa: F401


class Keystreams:
    """The keystreams of agents that are hosted together. One generator object serves all agents.

    A cipher takes about 1 kB, and is kept for each agent and channel that was drawn from.

    Args:
        keys: of the agents' streams, 32 bytes each.

    Example:
        >>> streams = Keystreams([bytes(32), bytes(31) + b"1"])
        >>> first = streams.generator(0, index=3, tag=7).random()
        >>> [first == streams.generator(row, index=3, tag=7).random() for row in (1, 0)]
        [False, True]
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

    def generator(self, row: int, index: int, tag: int) -> np.random.Generator:
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


def _generator_over(capsule: Any, *referenced: Any) -> np.random.Generator:
    # numpy asks a bit generator for its capsule and its lock, and no more.
    bit_generator: Any = SimpleNamespace(capsule=capsule, lock=RLock(), referenced=referenced)
    return np.random.Generator(bit_generator)


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


# U(0, 1) on multiples of 2⁻⁵³; Exp(1); N(0, 1).
Law = Literal["uniform", "exponential", "normal"]
# Law → its number in the compiled module.
_KINDS: dict[Law, int] = {law: getattr(_variates, law.upper(), 0) for law in get_args(Law)}


class Draws:
    """The generators of some agents, each positioned at one draw of its own.

    They go on from where they stopped, so that a draw may be made in parts. Without the compiled module only that of a
    single agent may.

    Args:
        streams: of the agents.
        index: of the release.
        tag: of its channels.
        rows: of the agents among the streams, or their numbers there; all by default.

    Example:
        >>> streams, noise = Streams(b"root", "noise", agents=[0, 1]), np.empty((2, 3))
        >>> Draws(streams, index=1, tag=7).fill(("normal", noise))
        >>> bool((noise[1] == streams.generator(1, index=1, tag=7).standard_normal(3)).all())
        True
    """

    def __init__(self, streams: Streams, index: int, tag: int, rows: slice | NDArray[np.int64] = slice(None)) -> None:
        self._streams, self._index, self._tag, self._of = streams, index, tag, rows
        source = streams.source
        if isinstance(source, Philox):
            self._keys: Any = source.keys[rows]
        else:
            ciphers = source.ciphers(tag)
            self._keys = [ciphers[row] for row in self._rows]
        self._used = np.zeros((len(self._keys), 1), dtype=np.uint64)
        self._generators: Iterator[np.random.Generator] | None = None

    @property
    def _rows(self) -> Sequence[int]:
        rows = self._of
        return range(*rows.indices(len(self._streams))) if isinstance(rows, slice) else rows.tolist()

    def fill(self, *arrays: tuple[Law, Array]) -> None:
        """Fill arrays with standard variates, each agent's rows in the order of the arrays.

        Args:
            arrays: each with its law, (b, …) for b agents, overwritten; all but the first axis of an array of more than
                two axes are contiguous.
        """
        module = _compiled
        if module is None:
            self._fill_by_numpy(arrays)
            return
        # All in one call, up to so many arrays.
        if len(arrays) > 16:
            self.fill(*arrays[:16])
            self.fill(*arrays[16:])
            return
        filled: list[Any] = []
        for law, array in arrays:
            filled += (_KINDS[law], array)
        if isinstance(self._keys, list):
            module.fill_secret(self._keys, self._used, self._index, *filled)
        else:
            module.fill(self._keys, self._used, self._index, self._tag, *filled)

    def _fill_by_numpy(self, arrays: tuple[tuple[Law, Array], ...]) -> None:
        if self._generators is None:
            alone = len(self._rows) == 1
            self._generators = repeat(next(self.generators())) if alone else self.generators()
        for row in range(len(self._rows)):
            generator = next(self._generators, None)
            if generator is None:
                raise ValueError("a draw of several agents was asked for in parts")
            for law, array in arrays:
                if law == "uniform":
                    generator.random(out=array[row])
                elif law == "exponential":
                    generator.standard_exponential(out=array[row])
                else:
                    generator.standard_normal(out=array[row])

    def generators(self) -> Iterator[np.random.Generator]:
        """Give numpy's generator of each agent in turn, at the beginning of its draw, valid until the next."""
        return (self._streams.generator(row, self._index, self._tag) for row in self._rows)


def _as_numpy_draws(module: ModuleType) -> bool:
    """Whether the compiled module and the numpy at hand make the same numbers, thousands of each law."""
    streams, ours, numpys = Streams(b"", "comparison", [0, 1]), np.empty((2, 2048)), np.empty((2, 2048))
    laws: tuple[Law, ...] = ("exponential", "uniform", "normal")
    keys = Draws(streams, 1, 0)._keys
    for tag, law in enumerate(laws):
        used = np.zeros((2, 1), dtype=np.uint64)
        module.fill(keys, used, 1, tag, getattr(module, law.upper()), ours)
        Draws(streams, 1, tag)._fill_by_numpy(((law, numpys),))
        if not np.array_equal(ours, numpys):
            return False
    return True


_compiled: ModuleType | None = _variates if _variates is not None and _as_numpy_draws(_variates) else None
