"""Keyed randomness: the same draws are repeated after a retry, after a restart, or when agents are placed elsewhere.

A fresh draw for a release already made would be a second release. The noise key (root), purpose and agent determine the
key of a stream. The index and channel determine the counter of a draw, so draws do not advance each other:

    secret    AES-256 in counter mode under blake2b(purpose, agent), keyed by the root (`Keystreams`): a cryptographic
              generator
    seeded    Philox4×64 keyed by blake2b(root, purpose, agent), with its 256-bit counter set to (0, 0, index, tag) and
              2¹²⁸ outputs left: a statistical generator, for simulations

Secret draws read keystreams of AES-256 in counter mode, one for each agent, channel and index:

    key of a stream     32 bytes for each root, purpose and agent (`Streams`)
    key of a channel    blake2b of its tag, keyed by the stream's key: 32 bytes, a key of AES-256
    block k of a draw   the cipher of the 16 bytes  index | k,  both of 64 bits, big-endian;  k = 0, 1, 2, …
    a number            8 bytes of a block, little-endian, in order

No block is used twice: channels have different keys, and under one key the counters index | k of two draws differ, as
do the counters of one draw. A draw would reach the next index after 2⁶⁴ blocks, or 2⁶⁸ bytes, which is out of reach. An
index of more than 64 bits raises OverflowError. Without the root, the numbers are indistinguishable from ideal random
bits, unless AES-256 or keyed BLAKE2b is broken as a pseudorandom function (proof 09).

If the package was built with a C compiler, `_variates.c` draws the standard variates of all agents in one call.
Otherwise, or if the installed numpy draws differently, numpy draws bitwise equal numbers, agent by agent.
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
    """Secret noise key of 32 bytes."""

    key: bytes = field(repr=False)


# Seeded runs have plain bytes as root.
Root = bytes | SecretRoot

# Names in run folders.
PHILOX, AES = GENERATORS = "philox-4x64", "aes-256-ctr"


def generator_of(root: Root) -> str:
    """Return the name of the generator that draws from this root.

    Example:
        >>> generator_of(secret_root()), generator_of(seeded_root(1, b"run"))
        ('aes-256-ctr', 'philox-4x64')
    """
    return AES if isinstance(root, SecretRoot) else PHILOX


def root_bytes(root: Root) -> bytes:
    """Return the bytes of a root."""
    return root.key if isinstance(root, SecretRoot) else root


def root_of(key: bytes, generator: str) -> Root:
    """Return the root that has these bytes, for a generator named in `GENERATORS`.

    Example:
        >>> root = secret_root()
        >>> root_of(root_bytes(root), generator_of(root)) == root
        True
    """
    return SecretRoot(key) if generator == AES else key


def seeded_root(seed: int, purpose: bytes) -> bytes:
    """Derive the root of reproducible draws.

    Args:
        seed: seed that is recorded in run folders.
        purpose: purpose, such as runs or the trials of an audit. Draws of two purposes are independent.

    Returns:
        A root of 32 bytes.

    Example:
        >>> seeded_root(1, b"run") == seeded_root(1, b"audit")
        False
    """
    return _digest(b"seed", seed.to_bytes(16, "little", signed=True), purpose)


def secret_root() -> SecretRoot:
    """Return a noise key of 256 bits from the operating system.

    Example:
        >>> root = secret_root()
        >>> len(root.key), root
        (32, SecretRoot())
    """
    return SecretRoot(os.urandom(32))


@cache
def tag(name: str) -> int:
    """Return the 64-bit number that identifies a channel name or a list of names.

    Example:
        >>> tag("y") == tag("y"), tag("y") == tag("z")
        (True, False)
    """
    return int.from_bytes(_digest(b"tag", name.encode())[:8], "little")


def _digest(*parts: bytes, key: bytes = b"") -> bytes:
    h = blake2b(digest_size=32, key=key)
    for part in parts:
        # Length prefixes distinguish different splittings of the same bytes.
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


class Streams:
    """Keyed streams for one purpose and the agents of one host. One generator object serves all agents.

    Args:
        root: root from `seeded_root` or `secret_root`.
        purpose: purpose of the draws, such as "noise". Streams for different purposes are independent.
        agents: indices of the agents.

    Attributes:
        source: source of random numbers.

    Example:
        >>> noise = Streams(seeded_root(1, b"run"), "noise", agents=[0, 1])
        >>> first = noise.generator(0, index=3, tag=tag("y")).random()
        >>> [first == noise.generator(row, index=3, tag=tag("y")).random() for row in (1, 0)]
        [False, True]
    """

    def __init__(self, root: Root, purpose: str, agents: Sequence[int] | NDArray[np.int64]) -> None:
        agent_names = [(purpose.encode(), int(a).to_bytes(8, "little")) for a in agents]
        if isinstance(root, SecretRoot):
            self._set_keys([_digest(*parts, key=root.key) for parts in agent_names], True)
        else:
            self._set_keys([_digest(root, *parts)[:16] for parts in agent_names], False)

    def _set_keys(self, keys: list[bytes], secret: bool) -> None:
        self._keys = keys
        self.source = Keystreams(keys) if secret else Philox(np.frombuffer(b"".join(keys), np.uint64).reshape(-1, 2))

    @classmethod
    def join(cls, parts: Sequence[Streams]) -> Streams:
        """Join the streams of several parts in order. Their roots may differ, but their generator must be the same."""
        joined = cls.__new__(cls)
        joined._set_keys([key for part in parts for key in part._keys], isinstance(parts[0].source, Keystreams))
        return joined

    def with_agent_secrets(self, secrets: Sequence[bytes]) -> Streams:
        """Return the streams of a secret root with keys that also depend on a secret of each agent.

        Args:
            secrets: one secret for each agent, in order; an empty secret leaves the key unchanged.
        """
        keys = zip(self._keys, secrets, strict=True)
        copy = Streams.__new__(Streams)
        copy._set_keys([_digest(b"agent", secret, key=key) if secret else key for key, secret in keys], True)
        return copy

    def generator(self, row: int, index: int, tag: int) -> np.random.Generator:
        """Position the generator for one draw of one agent.

        Args:
            row: row of the agent.
            index: index of the release.
            tag: tag of the channel.

        Returns:
            The generator, valid until the next call.
        """
        return self.source.generator(row, index, tag)

    def __getstate__(self) -> tuple[list[bytes], bool]:
        return self._keys, isinstance(self.source, Keystreams)

    def __setstate__(self, state: tuple[list[bytes], bool]) -> None:
        # A copy has another generator, since numpy's pickles would separate the generator from its bits.
        self._set_keys(*state)

    def __len__(self) -> int:
        return len(self._keys)


class Philox:
    """Generator of seeded draws, for keys (b, 2) of the agents' streams."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self.keys = keys
        self._bits = np.random.Philox(key=0)
        # numpy reads tuples of Python integers three times as fast as arrays.
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
        """Position the generator as in `Streams.generator`."""
        self._state["counter"] = (0, 0, index, tag)
        self._state["key"] = self._rows[row]
        self._bits.state = self._full
        return self._generator


try:
    from decentral_dp.privacy import _variates
except ImportError:
    _variates = None  # type: ignore[assignment]  # it is optional

# Numbers per call of the cipher without the compiled module.
_NUMBERS = 256


def load_cipher() -> None:
    """Import the cipher for secret noise before its first use."""
    import cryptography.hazmat.primitives.ciphers  # noqa: F401


class Keystreams:
    """Keystreams of the agents of one host. One generator object serves all agents.

    One cipher of about 1 kB is kept in memory for each agent and channel.

    Args:
        keys: keys of the agents' streams, 32 bytes each.

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
        """Return AES-256 of single blocks under the key of each agent and this channel.

        Args:
            tag: tag of the channel.
        """
        if tag not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            # Counter mode is this mode over counters. One call per draw is faster than two, and a signal between them
            # would leave a wrong counter.
            keys = (_channel_key(key, tag) for key in self._keys)
            self._ciphers[tag] = [Cipher(algorithms.AES(key), modes.ECB()).encryptor() for key in keys]
        return self._ciphers[tag]

    def generator(self, row: int, index: int, tag: int) -> np.random.Generator:
        """Position the generator at the beginning of one draw of one agent. It is valid until the next call.

        Args:
            row: row of the agent.
            index: index of the release.
            tag: tag of the channel.

        Raises:
            OverflowError: the index has more than 64 bits.
            RuntimeError: the keystream of the last draw was interrupted, so that its numbers must not be used.
        """
        if _variates is not None and self._generator is not None:
            _variates.at(self._bits, self.ciphers(tag)[row], index)
            return self._generator
        if self._numbers is not None and next(self._numbers, None) is None:
            raise RuntimeError("the keystream was interrupted by a signal or a lack of memory, so its draw is invalid")
        self._numbers = _numbers(_channel_key(self._keys[row], tag), index)
        return _generator_over(*_bits_over(self._numbers))


def _channel_key(key: bytes, tag: int) -> bytes:
    return blake2b(b"channel" + tag.to_bytes(8, "little"), key=key, digest_size=32).digest()


def _generator_over(capsule: Any, *references: Any) -> np.random.Generator:
    # numpy uses only the capsule and the lock of a bit generator.
    bit_generator: Any = SimpleNamespace(capsule=capsule, lock=RLock(), referenced=references)
    return np.random.Generator(bit_generator)


def _numbers(key: bytes, index: int) -> Iterator[int]:
    """Return an iterator over the numbers of a draw, which ends if the cipher fails."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    start = index.to_bytes(8, "big") + bytes(8)
    cipher = Cipher(algorithms.AES(key), modes.CTR(start)).encryptor()
    # Compiled functions only: numpy ignores exceptions in a callback, such as one by a signal between two lines of
    # Python, and would continue with zeros.
    blocks = map(cipher.update, repeat(bytes(8 * _NUMBERS)))
    return chain.from_iterable(map(struct.Struct(f"<{_NUMBERS}Q").unpack, blocks))


class _Bits(ctypes.Structure):
    """C struct bitgen_t of numpy."""

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
    """Return numpy's capsule of a bit generator over numbers, and objects that must not be collected before it."""
    halves = map(rshift, numbers, repeat(32))
    fractions = map(mul, map(rshift, numbers, repeat(11)), repeat(2.0**-53))
    # None of the calls has an argument.
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
# Distribution → its number in the compiled module.
_KINDS: dict[Law, int] = {law: getattr(_variates, law.upper(), 0) for law in get_args(Law)}


class Draws:
    """One keyed draw for each of some agents.

    A draw may be made in parts. Without the compiled module, this holds for a single agent only.

    Args:
        streams: streams of the agents.
        index: index of the release.
        tag: tag of its channels.
        rows: rows of the agents in the streams, as a slice or as indices. None (the default) means all rows.

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
        """Fill arrays with standard variates. The rows of each agent are drawn in the order of the arrays.

        Args:
            arrays: pairs (distribution, array). The array, (b, …) for b agents, is overwritten. In an array of more
                than two axes, all but the first axis are contiguous.
        """
        module = _compiled
        if module is None:
            self._fill_by_numpy(arrays)
            return
        # The compiled function takes at most 16 arrays.
        if len(arrays) > 16:
            self.fill(*arrays[:16])
            self.fill(*arrays[16:])
            return
        kinds_and_arrays: list[Any] = []
        for law, array in arrays:
            kinds_and_arrays += (_KINDS[law], array)
        if isinstance(self._keys, list):
            module.fill_secret(self._keys, self._used, self._index, *kinds_and_arrays)
        else:
            module.fill(self._keys, self._used, self._index, self._tag, *kinds_and_arrays)

    def _fill_by_numpy(self, arrays: tuple[tuple[Law, Array], ...]) -> None:
        if self._generators is None:
            is_single = len(self._rows) == 1
            self._generators = repeat(next(self.generators())) if is_single else self.generators()
        for row in range(len(self._rows)):
            generator = next(self._generators, None)
            if generator is None:
                raise ValueError("drawing noise of several agents in parts requires the compiled module")
            for law, array in arrays:
                if law == "uniform":
                    generator.random(out=array[row])
                elif law == "exponential":
                    generator.standard_exponential(out=array[row])
                else:
                    generator.standard_normal(out=array[row])

    def generators(self) -> Iterator[np.random.Generator]:
        """Return an iterator over generators, each at the start of one agent's draw and valid until the next one."""
        return (self._streams.generator(row, self._index, self._tag) for row in self._rows)


def _as_numpy_draws(module: ModuleType) -> bool:
    """Return whether the compiled module and numpy draw the same thousands of numbers from each distribution."""
    streams, ours, numpys = Streams(b"", "comparison", [0, 1]), np.empty((2, 2048)), np.empty((2, 2048))
    laws: tuple[Law, ...] = ("exponential", "uniform", "normal")
    keys = Draws(streams, 1, 0)._keys
    for tag, law in enumerate(laws):
        counter = np.zeros((2, 1), dtype=np.uint64)
        module.fill(keys, counter, 1, tag, getattr(module, law.upper()), ours)
        Draws(streams, 1, tag)._fill_by_numpy(((law, numpys),))
        if not np.array_equal(ours, numpys):
            return False
    return True


_compiled: ModuleType | None = _variates if _variates is not None and _as_numpy_draws(_variates) else None
