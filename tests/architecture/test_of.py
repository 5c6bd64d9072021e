"""`python -m tests.of MODULE` finds the tests of a module: those of its name, and those that import what it defines."""

from __future__ import annotations

import pytest

from tests.of import PACKAGE, find_tests


@pytest.mark.parametrize(
    ("module", "path"),
    [
        # By its name, by what a package hands on, and by who imports it.
        ("privacy/clipping.py", "tests/privacy/test_unit.py"),
        ("privacy/mechanisms.py", "tests/privacy/test_mechanisms.py"),
        ("topology/weights.py", "tests/topology/test_topology.py"),
    ],
)
def test_the_find_tests_a_module_are_found(module: str, path: str) -> None:
    assert path in find_tests(PACKAGE / module)
