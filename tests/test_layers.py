"""Who may import whom, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "decentral_dp"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Folder or file (relative to the package) → prefixes it must not import.
FORBIDDEN = {
    "algorithms": [
        "decentral_dp.engines",
        "decentral_dp.runner",
        "decentral_dp.scenario",
        "decentral_dp.schema",
        "decentral_dp.simulation",
        "decentral_dp.data",
    ],
    "engines": [
        "decentral_dp.algorithms",
        "decentral_dp.problems",
        "decentral_dp.data",
        "decentral_dp.privacy.scheduled_releaser",
    ],
    "privacy": ["decentral_dp.algorithms", "decentral_dp.engines", "decentral_dp.problems", "decentral_dp.data"],
    "problems": ["decentral_dp.algorithms", "decentral_dp.engines"],
    "adversaries": ["decentral_dp.algorithms", "decentral_dp.engines"],
    "tuning": ["decentral_dp.engines", "decentral_dp.algorithms", "decentral_dp.problems"],
    "data": ["decentral_dp.algorithms", "decentral_dp.engines", "decentral_dp.problems", "decentral_dp.privacy"],
    "topology": ["decentral_dp.algorithms", "decentral_dp.engines", "decentral_dp.problems", "decentral_dp.privacy"],
    "experiments": ["decentral_dp.engines", "decentral_dp.runner", "decentral_dp.scenario", "decentral_dp.studies"],
    "studies": [
        "decentral_dp.algorithms",
        "decentral_dp.problems",
        "decentral_dp.data",
        "decentral_dp.privacy.scheduled_releaser",
        "decentral_dp.engines.local",
        "decentral_dp.engines.ray",
    ],
    "exchange.py": ["decentral_dp.engines", "decentral_dp.algorithms", "decentral_dp.problems"],
}
# Third-party package → the only places that may import it.
ONLY_IN = {
    "ray": ["engines/ray.py", "engines/ray_tasks.py"],
    "networkx": ["topology"],
    "matplotlib": ["plots"],
    "dp_accounting": ["privacy/loss_distributions.py"],
    "torch": ["problems"],
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def inside(path: Path, place: str) -> bool:
    relative = path.relative_to(PACKAGE).as_posix()
    return relative == place or relative.startswith(f"{place}/")


def reaches(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


@pytest.mark.parametrize("place", FORBIDDEN)
def test_rooms_do_not_reach_where_they_must_not(place: str) -> None:
    files = [p for p in SOURCES if inside(p, place)]
    assert files, f"{place} is gone: mend the table"
    for path in files:
        wrong = [n for n in imports(path) for prefix in FORBIDDEN[place] if reaches(n, prefix)]
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {wrong}"


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_stay_in_their_room(library: str) -> None:
    users = [p for p in SOURCES if any(reaches(n, library) for n in imports(p))]
    assert users, f"nothing imports {library} any more: mend the table"
    for path in users:
        assert any(inside(path, place) for place in ONLY_IN[library]), path.relative_to(PACKAGE)


def test_the_walk_sees_a_forbidden_import(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from decentral_dp.engines import ENGINES\n    import ray.util\n")
    assert any(reaches(n, "decentral_dp.engines") for n in imports(bad))
    assert any(reaches(n, "ray") for n in imports(bad))


@pytest.mark.parametrize("statement", ["import decentral_dp", "import decentral_dp.cli"])
def test_importing_is_light(statement: str) -> None:
    check = f"import sys; {statement}; print([m for m in ('torch', 'ray', 'matplotlib', 'pandas') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_no_global_randomness_and_no_asserts() -> None:
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not any(isinstance(n, ast.Assert) for n in ast.walk(tree)), path
        text = path.read_text(encoding="utf-8")
        assert "np.random.seed" not in text, path
        assert "torch.manual_seed" not in text, path


def test_algorithms_do_not_open_bounded_values() -> None:
    """What an algorithm computes from `.value` or `.private` would leave without a price: a plain array is free."""
    opened = {"value", "private"}
    for path in [p for p in SOURCES if inside(p, "algorithms")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong = [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in opened]
        assert not wrong, f"{path.relative_to(PACKAGE)} reads {wrong}"
