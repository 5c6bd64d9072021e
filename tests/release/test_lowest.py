"""Compare the lowest versions used in CI with pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.release.lowest import lowest, needed

ROOT = Path(__file__).parents[2]


def test_every_dependency_has_its_lowest_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    found = lowest(needed())
    assert len(found) == len(declared) > 10
    for text, bound in zip(declared, map(Requirement, found), strict=True):
        (pin,) = bound.specifier
        assert (bound.name, pin.operator) == (Requirement(text).name, "==")
        assert Requirement(text).specifier.contains(pin.version)
        below = [s.version for s in Requirement(text).specifier if s.operator == ">="]
        assert below == [pin.version]


def test_other_forms_of_a_requirement() -> None:
    assert lowest(["a.b-c[x,y] >= 1.2,<2", "d>=3"]) == ["a.b-c==1.2", "d==3"]
    for without in ("numpy", "numpy<3", "numpy==2.0", "numpy>=2.0; python_version < '3.12'", "numpy>=2.*"):
        with pytest.raises(ValueError, match="has no lowest version"):
            lowest([without])


def test_ci_takes_them_from_there() -> None:
    assert "-m tests.release.lowest >" in (ROOT / ".ci" / "run").read_text()
