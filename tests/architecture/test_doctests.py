"""Examples of docstrings: all run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import decentral_dp

PACKAGE = Path(decentral_dp.__file__).parent
FEWEST = 150


def prompts(path: Path) -> int:
    """Number of examples in the text of a module."""
    return sum(line.lstrip().startswith(">>> ") for line in path.read_text(encoding="utf-8").splitlines())


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


EXAMPLES = {module_of(path): prompts(path) for path in sorted(PACKAGE.rglob("*.py")) if prompts(path)}


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_hold(module: str) -> None:
    runner, said = doctest.DocTestRunner(), list[str]()
    for test in doctest.DocTestFinder().find(importlib.import_module(module)):
        runner.run(test, out=said.append)
    failed, tried = runner.summarize(verbose=False)
    assert failed == 0, "".join(said)
    assert tried == EXAMPLES[module], "doctest does not find an example"


def test_there_are_examples() -> None:
    assert sum(EXAMPLES.values()) >= FEWEST


@pytest.mark.parametrize("name", sorted(decentral_dp.__all__))
def test_exported_names_have_an_example(name: str) -> None:
    home = f"decentral_dp.{decentral_dp._HOMES[name]}".replace("decentral_dp.decentral_dp", f"decentral_dp.{name}")
    assert home in EXAMPLES
    text = getattr(decentral_dp, name).__doc__ or ""
    assert doctest.DocTestParser().get_examples(text), f"{name} has no example"


def test_every_public_name_has_a_module() -> None:
    assert sorted(decentral_dp._HOMES) == sorted(decentral_dp.__all__)
