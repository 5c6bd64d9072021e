"""`python -m tests.of MODULE` lists the tests of a module: by its name, and by imports from it."""

from __future__ import annotations

from tests.of import PACKAGE, find_tests


def test_tests_of_a_module_are_found_by_its_name_and_by_imports() -> None:
    assert "tests/privacy/test_unit.py" in find_tests(PACKAGE / "privacy" / "unit.py")
    assert "tests/topology/test_topology.py" in find_tests(PACKAGE / "topology" / "weights.py")
