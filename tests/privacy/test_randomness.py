"""Secret draws are keystreams of AES-256, each bit used once; seeded ones are the numbers of numpy's own generators."""

from __future__ import annotations

import copy
import shutil
from hashlib import blake2b
from itertools import product
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import ciphers
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from decentral_dp.privacy import randomness
from decentral_dp.privacy.randomness import Draws, Keystreams, Law, SecretRoot, Streams, tag

ROOT = SecretRoot(bytes(range(32)))
AGENTS = [4, 9, 2**40]
LAWS: list[Law] = ["uniform", "exponential", "normal"]
OF_NUMPY = {"uniform": "random", "exponential": "standard_exponential", "normal": "standard_normal"}


@pytest.fixture(params=["compiled", "numpy"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(randomness, "_compiled", None)
        monkeypatch.setattr(randomness, "_variates", None)
    elif randomness._variates is None or randomness._compiled is None:
        pytest.skip("installed without a C compiler")
    return str(request.param)


# --- the same bits by other means -------------------------------------------------------------------------------------


def _numbers(purpose: str, agent: int, index: int, name: str, n: int, secret: bytes = b"") -> np.ndarray:
    """The first numbers of a draw, by the library's counter mode."""

    def keyed(key: bytes, *parts: bytes) -> bytes:
        text = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
        return blake2b(text, key=key, digest_size=32).digest()

    key = keyed(ROOT.key, purpose.encode(), agent.to_bytes(8, "little"))
    if secret:
        key = keyed(key, b"agent", secret)
    key = blake2b(b"channel" + tag(name).to_bytes(8, "little"), key=key, digest_size=32).digest()
    sampling = Cipher(algorithms.AES(key), modes.CTR((index << 64).to_bytes(16, "big"))).encryptor()
    return np.frombuffer(sampling.update(bytes(8 * n)), dtype="<u8")


class _Numpys:
    """numpy's generator over given numbers, by threes: those that Philox would have made and not yet given."""

    def __init__(self, numbers: np.ndarray) -> None:
        self._numbers, self._at, self._bits = numbers, 0, np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)

    def draw(self, law: Law, n: int) -> np.ndarray:
        state, out = self._bits.state, []
        for _ in range(n):
            # numpy takes no buffer from its first place on.
            buffer = np.append(self._numbers[:1], self._numbers[self._at : self._at + 3])
            self._bits.state = {**state, "buffer": buffer, "buffer_pos": 1}
            out.append(getattr(self._generator, OF_NUMPY[law])())
            taken = self._bits.state
            # More than three would be Philox's own.
            assert taken["state"]["counter"].tolist() == state["state"]["counter"].tolist()
            self._at += int(taken["buffer_pos"]) - 1
        return np.array(out)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("columns", [1, 3, 2200])
def test_a_draw_is_what_numpy_makes_of_the_keystream(way: str, law: Law, columns: int) -> None:
    out = np.empty((3, columns))
    Draws(Streams(ROOT, "noise", AGENTS), 3, tag("y")).fill((law, out))
    for row in range(3 if columns < 100 else 1):
        expected = _Numpys(_numbers("noise", AGENTS[row], 3, "y", 2 * columns + 100)).draw(law, columns)
        np.testing.assert_array_equal(out[row], expected)


def test_a_draw_in_parts_is_that_in_one_piece(way: str) -> None:
    streams, parts = Streams(ROOT, "noise", AGENTS), [1, 2, 5, 16, 3, 400, 3000]
    draws, found = Draws(streams, 3, tag("y"), slice(1, 2)), []
    for n in parts:
        found.append(np.empty((1, n)))
        draws.fill(("normal", found[-1]))
    whole = np.empty((3, sum(parts)))
    Draws(streams, 3, tag("y")).fill(("normal", whole))
    np.testing.assert_array_equal(np.concatenate(found, axis=1)[0], whole[1])


@pytest.mark.parametrize("n", [1, 31, 32, 33, 256, 257, 20_000])
def test_numbers_of_every_width_come_in_order(way: str, n: int) -> None:
    """Draw in the ways of Poisson samples, batches, selections and integer samplers."""
    streams, numbers = Streams(ROOT, "coins", AGENTS), _numbers("coins", 9, 5, "train", n + 31)
    fractions = (numbers >> 11) * 2.0**-53
    np.testing.assert_array_equal(streams.generator(1, 5, tag("train")).random(n), fractions[:n])
    whole = streams.generator(1, 5, tag("train")).integers(2**64, size=n, dtype=np.uint64)
    np.testing.assert_array_equal(whole, numbers[:n])
    generator = streams.generator(1, 5, tag("train"))
    few = 1 + n % 30
    # 32-bit numbers are upper halves, in order.
    assert generator.bytes(4 * few) == (numbers[:few] >> 32).astype("<u4").tobytes()
    assert generator.random() == fractions[few]


# Known answers of AES-256 from NIST's validation suite: a key, with an index whose first block is the text.
@pytest.mark.parametrize(
    ("key", "index", "block"),
    [
        ("c47b0294dbbbee0fec4757f22ffeee3587ca4730c3d33b691df38bab076bc558", 0, "46f2fb342d6f0ab477476fc501242c5f"),
        ("00" * 32, 1 << 63, "ddc6bf790c15760d8d9aeb6f9a75fd4e"),
    ],
)
def test_published_answers(way: str, key: str, index: int, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_channel_key", lambda *_: bytes.fromhex(key))
    found = Keystreams([b""]).generator(0, index, 0).integers(2**64, size=2, dtype=np.uint64)
    assert found.astype("<u8").tobytes().hex() == block


# --- every block once -------------------------------------------------------------------------------------------------


class _Watched:
    """A cipher that notes every block it is asked for, by key and counter."""

    seen: dict[tuple[bytes, int], Any]
    shared: list[tuple[Any, Any]]
    draw: Any

    def __init__(self, algorithm: Any, mode: Any) -> None:
        self._key = algorithm.key
        self._next = None if isinstance(mode, modes.ECB) else int.from_bytes(mode.nonce, "big")
        self._real = Cipher(algorithm, mode).encryptor()

    def encryptor(self) -> Any:
        return self

    def _note(self, block: int) -> None:
        # Not asserted here: numpy would call it.
        if self.seen.setdefault((self._key, block), self.draw) != self.draw:
            self.shared.append((self.seen[self._key, block], self.draw))

    def update(self, data: bytes) -> bytes:
        assert self._next is not None
        for _ in range(len(data) // 16):
            self._note(self._next)
            self._next += 1
        return bytes(self._real.update(data))

    def update_into(self, data: Any, out: Any) -> int:
        for k in range(0, len(data), 16):
            self._note(int.from_bytes(data[k : k + 16], "big"))
        return int(self._real.update_into(data, out))


def test_no_block_serves_two_draws(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purposes, agents, channels, indexes that differ in their lowest and highest bits; short draws and long ones."""
    monkeypatch.setattr(ciphers, "Cipher", _Watched)
    monkeypatch.setattr(_Watched, "seen", {}, raising=False)
    monkeypatch.setattr(_Watched, "shared", [], raising=False)
    monkeypatch.setattr(_Watched, "draw", None, raising=False)
    indexes = [0, 1, 2, 3, 255, 256, 257, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    for purpose, name in product(["noise", "batch", "coins"], ["y", "z", "y,z", "train"]):
        streams = Streams(ROOT, purpose, AGENTS)
        for index, row in product(indexes, range(3)):
            _Watched.draw = (purpose, name, index, row)
            n = 2500 if index < 3 and name == "y" else 3
            Draws(streams, index, tag(name), slice(row, row + 1)).fill(("normal", np.empty((1, n))))
            # The same draw again with another distribution.
            streams.generator(row, index, tag(name)).random(n)
    assert not _Watched.shared
    assert len(set(_Watched.seen.values())) == 3 * 4 * 3 * len(indexes)
    assert len(_Watched.seen) > 3 * 3 * 3 * 1250


@pytest.mark.parametrize("index", [-1, 2**64])
def test_an_index_that_would_be_taken_for_another_is_refused(way: str, index: int) -> None:
    streams = Streams(ROOT, "noise", AGENTS)
    with pytest.raises(OverflowError):
        streams.generator(0, index, 7)
    with pytest.raises(OverflowError):
        Draws(streams, index, 7).fill(("normal", np.empty((3, 4))))


def test_placement_copies_and_retries_do_not_matter(way: str) -> None:
    together, alone, copied = np.empty((3, 70)), np.empty((1, 70)), np.empty((3, 70))
    streams = Streams(ROOT, "noise", AGENTS)
    Draws(streams, 3, tag("y")).fill(("normal", together))
    Draws(copy.deepcopy(streams), 3, tag("y")).fill(("normal", copied))
    np.testing.assert_array_equal(copied, together)
    for row, agent in enumerate(AGENTS):
        Draws(Streams(ROOT, "noise", [agent]), 3, tag("y")).fill(("normal", alone))
        np.testing.assert_array_equal(alone[0], together[row])


def test_a_secret_of_the_agents_own_is_part_of_its_key(way: str) -> None:
    secrets = [b"first" * 6, b"", b"third" * 6]
    mixed = Streams(ROOT, "noise", AGENTS).with_agent_secrets(secrets)
    for row, (agent, secret) in enumerate(zip(AGENTS, secrets, strict=True)):
        numbers = _numbers("noise", agent, 3, "y", 5, secret)
        np.testing.assert_array_equal(
            mixed.generator(row, 3, tag("y")).integers(2**64, size=5, dtype=np.uint64), numbers
        )


def test_a_root_does_not_show_itself() -> None:
    assert repr(ROOT) == "SecretRoot()"


# --- a cipher that fails ----------------------------------------------------------------------------------------------


class _Cut:
    """A cipher that a signal comes into."""

    def __init__(self, algorithm: Any, mode: Any) -> None:
        self._real, self.left = Cipher(algorithm, mode).encryptor(), 1

    def encryptor(self) -> Any:
        return self

    def update_into(self, data: Any, out: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return int(self._real.update_into(data, out))

    def update(self, data: bytes) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return bytes(self._real.update(data))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_drawn_while_a_cipher_fails_goes_nowhere(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "Cipher", _Cut)
    streams = Streams(ROOT, "noise", [0])
    if way == "compiled":
        with pytest.raises(KeyboardInterrupt):
            Draws(streams, 1, 7).fill(("normal", np.empty((1, 10_000))))
        with pytest.raises((KeyboardInterrupt, SystemError)):
            streams.generator(0, 1, 8).standard_normal(10_000)
        with pytest.raises((KeyboardInterrupt, SystemError)):
            streams.generator(0, 1, 9).choice(10**6, 5000, replace=False, shuffle=False)
    else:
        streams.generator(0, 1, 7).standard_normal(300)
        with pytest.raises(RuntimeError, match="was interrupted"):
            streams.generator(0, 2, 7)
    monkeypatch.undo()
    again = np.empty((1, 4))
    Draws(Streams(ROOT, "noise", [0]), 1, 7).fill(("uniform", again))
    assert np.unique(again).size == 4


# --- seeded draws -----------------------------------------------------------------------------------------------------

SEEDED = b"0" * 32


def _numpys(streams: Streams, row: int, index: int, name: str) -> np.random.Generator:
    counter = np.array([0, 0, index, tag(name)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=streams.source.keys[row], counter=counter))


@pytest.mark.skipif(shutil.which("cc") is None, reason="the compiled module needs a C compiler")
def test_the_compiled_module_is_in_use_where_a_compiler_is() -> None:
    assert randomness._compiled is not None


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("columns", [1, 3, 16, 17, 1000, 200_000])
def test_a_draw_is_that_of_numpys_generator_with_the_same_key(way: str, law: Law, columns: int) -> None:
    streams, out = Streams(SEEDED, "noise", AGENTS), np.empty((3, columns))
    Draws(streams, 3, tag("y")).fill((law, out))
    for row in range(3):
        expected = getattr(_numpys(streams, row, 3, "y"), OF_NUMPY[law])(columns)
        np.testing.assert_array_equal(out[row], expected)


def test_no_variate_is_given_twice_where_numpy_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "_compiled", None)
    draws, out = Draws(Streams(SEEDED, "noise", AGENTS), 3, 7), np.empty((3, 4))
    draws.fill(("normal", out))
    with pytest.raises(ValueError, match="in parts"):
        draws.fill(("normal", out))


def test_what_numpy_would_draw_otherwise_is_left_to_numpy() -> None:
    class _Shifted:
        EXPONENTIAL, UNIFORM, NORMAL = 0, 1, 2

        @staticmethod
        def fill(keys: Any, used: Any, index: int, tag: int, kind: int, out: np.ndarray) -> None:
            Draws(Streams(b"", "comparison", [0, 1]), index, tag)._fill_by_numpy(((LAWS[(1, 0, 2)[kind]], out),))
            if kind == 2:
                out[1, 2000] = np.nextafter(out[1, 2000], np.inf)

    assert not randomness._as_numpy_draws(_Shifted)  # type: ignore[arg-type]  # a fake module
