"""Draws of several agents at once: the numbers of numpy's own generators, to the bit, by both ways of making them."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from decentral_dp.models import linear_terms
from decentral_dp.privacy import randomness as module
from decentral_dp.privacy.randomness import Draws, Law, Streams, tag

ROOT = b"0" * 32
AGENTS = [4, 9, 2**40]
OF_NUMPY = {"uniform": "random", "exponential": "standard_exponential", "normal": "standard_normal"}
LAWS: list[Law] = ["uniform", "exponential", "normal"]


@pytest.fixture(params=["compiled", "numpy"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "numpy":
        monkeypatch.setattr(module, "_compiled", None)
    elif module._compiled is None:
        pytest.skip("installed without a C compiler")
    return str(request.param)


def _numpys(streams: Streams, row: int, index: int, name: str) -> np.random.Generator:
    counter = np.array([0, 0, index, tag(name)], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=streams.source.keys[row], counter=counter))


@pytest.mark.skipif(shutil.which("cc") is None, reason="the compiled module needs a C compiler")
def test_the_compiled_modules_are_there_and_in_use_where_a_compiler_is() -> None:
    assert module._compiled is not None
    assert linear_terms._compiled is not None


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("columns", [1, 3, 16, 17, 1000, 200_000])
def test_a_draw_is_that_of_numpys_generator_with_the_same_key(way: str, law: Law, columns: int) -> None:
    streams, out = Streams(ROOT, "noise", AGENTS), np.empty((3, columns))
    Draws(streams, 3, tag("y")).fill((law, out))
    for row in range(3):
        expected = getattr(_numpys(streams, row, 3, "y"), OF_NUMPY[law])(columns)
        np.testing.assert_array_equal(out[row], expected)


def test_one_law_after_the_other_continues_each_agents_stream(way: str) -> None:
    streams = Streams(ROOT, "noise", AGENTS)
    first, second, third = np.empty((3, 2, 7)), np.empty((3, 9))[:, 2:7], np.empty((3, 5))
    Draws(streams, 3, tag("y")).fill(("exponential", first), ("uniform", second), ("normal", third))
    for row in range(3):
        own = _numpys(streams, row, 3, "y")
        np.testing.assert_array_equal(first[row], own.standard_exponential((2, 7)))
        np.testing.assert_array_equal(second[row], own.random(5))
        np.testing.assert_array_equal(third[row], own.standard_normal(5))


@pytest.mark.parametrize("law", LAWS)
def test_one_agents_draw_may_be_made_in_parts(way: str, law: Law) -> None:
    streams, parts = Streams(ROOT, "noise", AGENTS), [1, 2, 5, 16, 3, 400]
    draws, found = Draws(streams, 3, tag("y"), slice(1, 2)), []
    for n in parts:
        found.append(np.empty((1, n)))
        draws.fill((law, found[-1]))
        # Another draw of the same streams does not move it.
        Draws(streams, 8, tag("z"), slice(1, 2)).fill((law, np.empty((1, 5)))) if way == "compiled" else None
    expected = getattr(_numpys(streams, 1, 3, "y"), OF_NUMPY[law])(sum(parts))
    np.testing.assert_array_equal(np.concatenate(found, axis=1)[0], expected)


def test_no_variate_is_given_twice_where_numpy_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_compiled", None)
    draws, out = Draws(Streams(ROOT, "noise", AGENTS), 3, 7), np.empty((3, 4))
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

    assert not module._as_numpy_draws(_Shifted)  # type: ignore[arg-type]  # a module's stand-in


@pytest.mark.parametrize(
    ("keys", "used", "out"),
    [
        (np.zeros((2, 2), np.uint64), np.zeros((3, 1), np.uint64), np.empty((3, 4))),
        (np.zeros((3, 1), np.uint64), np.zeros((3, 1), np.uint64), np.empty((3, 4))),
        (np.zeros((3, 2), np.uint64), np.zeros((3, 1), np.uint64), np.empty((4, 3)).T),
        (np.zeros((3, 2), np.uint64), np.zeros((3, 1), np.uint64), np.empty((3, 4), np.float32)),
        (np.zeros((3, 2), np.uint64), np.zeros((3, 1), np.uint64), np.empty(3)),
        (np.zeros((3, 2), np.uint64), np.zeros(3, np.uint64), np.empty((3, 4))),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_is_written(keys: Any, used: Any, out: Any) -> None:
    if module._compiled is None:
        pytest.skip("installed without a C compiler")
    with pytest.raises(ValueError, match="wanted"):
        module._compiled.fill(keys, used, 1, 2, 0, out)
