"""Slow tests run in turn, one part per day, and all others always."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.slow_tests import ALWAYS, LIST, PARTS, SlowTests, parts

LISTED = LIST.read_text(encoding="utf-8").splitlines()


def left(chosen: str, nodes: list[str]) -> tuple[list[str], list[str]]:
    """Kept and deselected tests of a part."""
    items: list[Any] = [SimpleNamespace(nodeid=n) for n in nodes]
    deselected: list[str] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: deselected.extend(i.nodeid for i in items))
    config: Any = SimpleNamespace(hook=hook)
    SlowTests(chosen).pytest_collection_modifyitems(config, items)
    return [i.nodeid for i in items], deselected


def test_every_slow_test_is_in_one_part_and_others_in_all() -> None:
    nodes = [*LISTED, "tests/new.py::test_new[1]"]
    kept = [left(str(part), nodes) for part in range(PARTS)]
    assert sorted(n for names, _ in kept for n in names if n in LISTED) == sorted(LISTED)
    assert all(names[-1] == nodes[-1] for names, _ in kept)
    assert all(sorted(names + out) == sorted(nodes) for names, out in kept)
    assert left("none", nodes) == ([nodes[-1]], nodes[:-1])
    assert left("all", nodes) == left("record", nodes) == (nodes, [])
    assert set(parts().values()) == set(range(PARTS))


def test_the_list_names_tests() -> None:
    root = Path(__file__).parents[2]
    # Inherited tests of classes.
    inherited = "".join(p.read_text(encoding="utf-8") for p in (root / "tests" / "conformance").glob("*.py"))
    for node in LISTED:
        path, _, name = node.partition("::")
        text = (root / path).read_text(encoding="utf-8") + inherited
        assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in text, node
    assert not [n for n in LISTED if n.startswith(ALWAYS)]
    assert sorted(set(LISTED)) == LISTED
