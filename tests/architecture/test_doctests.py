"""The examples of every name that the package exports."""

from __future__ import annotations

import doctest

import pytest

import decentral_dp

# The example of a value that a function returns is that of the function.
ELSEWHERE = {"Tuned": "tune"}


@pytest.mark.parametrize("name", sorted(set(decentral_dp.__all__) - set(ELSEWHERE)))
def test_examples_hold(name: str) -> None:
    found = getattr(decentral_dp, name)
    parser, text = doctest.DocTestParser(), found.__doc__ or ""
    test = parser.get_doctest(text, {}, name, None, None)
    assert test.examples, f"{name} has no example"
    said: list[str] = []
    failed, tried = doctest.DocTestRunner().run(test, out=said.append)
    assert (failed, tried) == (0, len(test.examples)), "".join(said)


def test_every_name_is_at_home() -> None:
    assert sorted(decentral_dp._HOMES) == sorted(decentral_dp.__all__)
    for name, function in ELSEWHERE.items():
        assert getattr(decentral_dp, name).__name__ == name
        assert function in decentral_dp.__all__
