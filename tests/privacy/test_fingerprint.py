"""Digests of Python objects and files: other where something else is computed, the same in another process."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

import decentral_dp
from decentral_dp.privacy import fingerprint
from decentral_dp.privacy.fingerprint import digest_of, digest_of_file

SCALE = [1.0]


def scaled(weight: Any) -> Callable[[float], Any]:
    return lambda a: weight * a


def by_default(weight: float) -> Callable[..., float]:
    def inner(a: float, w: float = weight, *, more: float = 2.0 * weight) -> float:
        return w * a + more

    return inner


def without_gradient(weight: float) -> Any:
    """Find a user's function in a wrapper of an installed package."""
    return torch.no_grad()(scaled(weight))


def by_global(a: float) -> float:
    return SCALE[0] * a


class Weighted:
    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, a: float) -> Any:
        return self.weight * a


def linear(value: float) -> torch.nn.Module:
    module = torch.nn.Linear(2, 1, dtype=torch.float64)
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(value)
    return module


MAKERS: dict[str, Callable[[float], Any]] = {
    "what a function closes over": scaled,
    "an array that it closes over": lambda w: scaled(np.full(4, w)),
    "defaults": by_default,
    "a decorated function": without_gradient,
    "a partial function": lambda w: functools.partial(by_global, w),
    "a method's object": lambda w: Weighted(w).__call__,
    "an instance": Weighted,
    "a tensor": lambda w: torch.full((3,), w, dtype=torch.float64),
    "an array of objects": lambda w: np.array([w, "a"], dtype=object),
    "a module's weights": linear,
    "a graph": lambda w: nx.Graph([(0, 1, {"weight": w})]),
    "a table": lambda w: pd.DataFrame({"a": [w, 2.0]}),
    "nested containers": lambda w: {"a": [(w,), {w}]},
}


@pytest.mark.parametrize("what", MAKERS)
def test_what_is_computed_decides(what: str) -> None:
    make = MAKERS[what]
    assert digest_of(make(1.0)) == digest_of(make(1.0)) != digest_of(make(np.nextafter(1.0, 2.0).item()))


def test_a_global_that_a_function_reads_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(by_global)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", [2.0])
    assert digest_of(by_global) != before


def test_files_count_with_what_they_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "helpers_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "deep.py").write_text("A = 1\n", encoding="utf-8")
    (tmp_path / "middle_of_mine.py").write_text("from helpers_of_mine.deep import A\nimport numpy\n", encoding="utf-8")
    main = tmp_path / "main.py"
    main.write_text("def f():\n    import middle_of_mine\n    return middle_of_mine.A\n", encoding="utf-8")
    before = digest_of_file(main)
    assert digest_of_file(main) == before
    (package / "deep.py").write_text("A = 2\n", encoding="utf-8")
    assert digest_of_file(main) != before


def test_relative_imports_count(tmp_path: Path) -> None:
    package = tmp_path / "package_of_mine"
    (package / "inner").mkdir(parents=True)
    sources = {
        package / "inner" / "main.py": "from . import beside\nfrom .deeper import A\nfrom ..above import B\n",
        package / "inner" / "beside.py": "C = 1\n",
        package / "inner" / "deeper.py": "A = 1\n",
        package / "above.py": "B = 1\n",
        package / "inner" / "__init__.py": "",
    }
    for path, text in sources.items():
        path.write_text(text, encoding="utf-8")
    main, *imported = sources
    for path in imported:
        before = digest_of_file(main)
        path.write_text("A = B = C = 2\n", encoding="utf-8")
        assert digest_of_file(main) != before, path


def test_modules_that_import_each_other_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "one_of_two.py").write_text("import other_of_two\n", encoding="utf-8")
    (tmp_path / "other_of_two.py").write_text("import one_of_two\n", encoding="utf-8")
    assert digest_of_file(tmp_path / "one_of_two.py") != digest_of_file(tmp_path / "other_of_two.py")


def test_what_an_object_keeps_from_call_to_call_does_not_matter() -> None:
    def loss(x: Any, y: Any, features: Any, label: Any) -> Any:
        return x.exp().sum() * (features @ y - label) ** 2

    problem = decentral_dp.from_losses(loss, loss, p=1, q=2, n_features=2)
    first = digest_of(problem)
    problem.losses(np.zeros((1, 1)), np.zeros((1, 2)), problem.prepare(np.ones((3, 2)), np.ones(3), "l2"), np.ones(3))
    assert problem._captures
    assert digest_of(problem) == first
    assert digest_of(replace(problem, device="cuda")) != first


def test_another_process_says_the_same() -> None:
    """No address, no order of a set, and no memory of the process is in it."""
    text = (
        "from tests.privacy.test_fingerprint import *\n"
        "print([digest_of(make(1.0)) for make in MAKERS.values()], digest_of({'b', 'a', 'c'}))"
    )
    there = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "1", "PATH": ""},
    ).stdout
    here = [digest_of(make(1.0)) for make in MAKERS.values()], digest_of({"b", "a", "c"})
    assert there == " ".join(map(str, here)) + "\n"


def test_an_installed_component_counts_with_its_whole_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "private_steps"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from private_steps.inner import FACTOR\nclass Step:\n    factor = FACTOR\n")
    digests = []
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    for factor in (0.5, 0.5, 3.0):
        (package / "inner.py").write_text(f"FACTOR = {factor}\n")
        for name in ("private_steps", "private_steps.inner"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()
        fingerprint._package_bytes.cache_clear()
        digests.append(digest_of(importlib.import_module("private_steps").Step))
    assert digests[0] == digests[1] != digests[2]
