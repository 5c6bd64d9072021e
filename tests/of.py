"""The tests of a module: `python -m tests.of decentral_dp/privacy/clipping.py`, those first that are named for it.

Tests with its name come first, then those that import its definitions, directly or by a package. If there are none,
they are those of the modules that import it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "decentral_dp"


def find_tests(module: Path) -> list[str]:
    """Return paths of test files, by relevance. module: a file of the package."""
    name = ".".join(module.resolve().relative_to(ROOT).with_suffix("").parts)
    room = module.resolve().relative_to(PACKAGE).parts[0]
    named = [path for path in _imports("tests") if _is_named(Path(path), module.stem, room)]
    using = Counter({path: found[name] for path, found in _imports("tests").items() if found[name]})
    if not named and not using:
        near = [".".join(Path(p).with_suffix("").parts) for p, found in _imports("decentral_dp").items() if found[name]]
        using = Counter({path: sum(found[other] for other in near) for path, found in _imports("tests").items()})
    others = [path for path, count in using.most_common() if count and path not in named]
    return sorted(named) + others


def _is_named(path: Path, stem: str, room: str) -> bool:
    named = path.stem == f"test_{stem}" or path.stem.startswith(f"test_{stem}_")
    return named and (room in path.parts or room == f"{stem}.py")


@cache
def _imports(folder: str) -> dict[str, Counter[str]]:
    """Path → module of the package → how many names of it the file imports."""
    pattern = "test_*.py" if folder == "tests" else "*.py"
    paths = sorted((ROOT / folder).rglob(pattern))
    return {str(path.relative_to(ROOT)): Counter(_defining(path)) for path in paths}


def _defining(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("decentral_dp"):
            for name in node.names:
                yield _module_of(str(node.module), name.name)


@cache
def _module_of(package: str, name: str) -> str:
    """Return the module that defines an imported name."""
    inner = f"{package}.{name}"
    if (ROOT / Path(*inner.split("."))).with_suffix(".py").exists():
        return inner
    found: Any = getattr(importlib.import_module(package), name, None)
    return str(getattr(found, "__module__", package))


if __name__ == "__main__":
    print("\n".join(find_tests(Path(sys.argv[1]))))
