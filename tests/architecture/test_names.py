"""One class name is one class, and one public function name is one function."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TREES = [ast.parse(p.read_text(encoding="utf-8")) for p in (Path(__file__).parents[2] / "decentral_dp").rglob("*.py")]


def test_names_of_classes_and_public_functions_are_unique() -> None:
    classes = Counter(node.name for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    functions = Counter(
        node.name
        for tree in TREES
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
    assert len(classes) > 300
    assert len(functions) > 500
    assert not {name: n for name, n in (classes | functions).items() if n > 1}
