"""Allowed imports between the rooms of the package."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from decentral_dp import annexes

PACKAGE = Path(__file__).parents[2] / "decentral_dp"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: a room may import itself and the rooms above it in this list only, also lazily.
ORDER: tuple[tuple[str, ...], ...] = tuple(
    tuple(names.split())
    for names in (
        "errors formatting annexes bounded user_code files",
        "exchange",
        "data topology privacy",
        "models",
        "problems engines",
        "constants",
        "participants",
        "algorithms",
        "config",
        "simulation",
        "callbacks",
        "estimators graphs",
        "api",
        "cli",
        "__main__",
        "central",
        "auditing studies",
    )
)
# Outside the core, which loads their parts by `decentral_dp.annexes`. Audits may import the coordinator.
ANNEXES = ("central", "auditing", "studies")
# Rooms of an annex from the ground up. A room may import those above it and of its line.
CENTRAL: tuple[tuple[str, ...], ...] = tuple(
    tuple(names.split())
    for names in (
        "integer_samplers sensitivities trajectories",
        "problems certified_solver",
        "clients",
        "pooled",
        "context",
        "selection",
        "vocabulary",
        "bilevel minimax",
        "jobs",
        "statement",
        "tuner",
        "estimators",
    )
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
# Modules that pages, plots and bars import besides the base: the result and its statement, progress, labels of metrics,
# intervals, and the tables of algorithms and problems.
REPORTING = {
    "decentral_dp.simulation.events",
    "decentral_dp.simulation.metrics",
    "decentral_dp.simulation.result",
    "decentral_dp.simulation.statistics",
    "decentral_dp.simulation.statement",
    "decentral_dp.algorithms",
    "decentral_dp.problems",
}
# Results with figures or printed text. The code that runs and writes a folder draws nothing.
VIEWED = {"decentral_dp.simulation.run", "decentral_dp.simulation.plan"}
# Within or across rooms, beyond the order: file or folder → prefixes it must not import.
FORBIDDEN = {
    "central/minimax": ["decentral_dp.engines", "decentral_dp.data"],
    # Algorithms receive values by messages and answers only.
    "algorithms": ["decentral_dp.engines", "decentral_dp.data"],
    "constants.py": ["decentral_dp.data", "decentral_dp.engines"],
    "participants.py": ["decentral_dp.engines"],
    # The privacy statement of a job is above it.
    "simulation/jobs": ["decentral_dp.simulation.job_statement"],
}
TOP_LEVEL = {
    "__main__",
    "__init__",
    "annexes",
    "errors",
    "formatting",
    "bounded",
    "user_code",
    "exchange",
    "constants",
    "participants",
    "estimators",
    "graphs",
    "api",
    "callbacks",
}
# Third-party package → the only files or folders that may import it.
ONLY_IN = {
    "ray": ["engines/ray.py", "studies/tasks.py"],
    "networkx": ["topology", "reporting/plots.py"],
    "matplotlib": [
        "reporting/plots.py",
        "reporting/style.py",
        "reporting/comparison.py",
        "auditing",
        "studies",
    ],
    "cryptography": ["privacy/randomness.py"],
    "jinja2": ["reporting/page.py"],
    "torch": ["problems", "models", "central/problems"],
}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes(path):
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


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


MODULES = {module_of(path): path for path in SOURCES}


def own_imports(path: Path, *, for_types: bool = True) -> set[str]:
    """Modules of the package that a file imports. for_types: also those for annotations."""
    found = set()
    types = {
        id(inner)
        for node in nodes(path)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes(path):
        if not for_types and id(node) in types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            of = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in of}
    return {name for name in found if name in MODULES}


@pytest.mark.parametrize("room", [*LEVEL, "reporting"])
def test_imports_run_downwards(room: str) -> None:
    users = {name: path for name, path in MODULES.items() if room_of(name) == room}
    assert users, f"{room} is missing. Fix the order"
    for name, path in users.items():
        for other in own_imports(path) - {"decentral_dp"}:
            to = room_of(other)
            if to in ANNEXES and room not in ANNEXES:
                # It may annotate types of an annex.
                fine = room == "api" and other not in own_imports(path, for_types=False)
            elif room == "reporting":
                fine = to == room or LEVEL[to] == 0 or other in REPORTING
            else:
                # Commands draw their results; simulation and run folders do not import reporting.
                above = LEVEL[room] > LEVEL["simulation"] or name in VIEWED
                fine = to == room or (to == "reporting" and above)
                fine = fine or (to in LEVEL and (LEVEL[to] < LEVEL[room] or LEVEL[room] == 0))
            assert fine, f"{name} imports {other}"


def test_the_rooms_of_the_coordinator_have_an_order() -> None:
    level = {room: k for k, rooms in enumerate(CENTRAL) for room in rooms}
    inner = {name: name.split(".")[2] for name in MODULES if name.startswith("decentral_dp.central.")}
    assert set(inner.values()) == set(level)
    for name, room in inner.items():
        used = {inner[other] for other in own_imports(MODULES[name]) if other in inner} - {room}
        assert not [other for other in used if level[other] >= level[room]], name


def test_annexes_are_reached_by_one_table() -> None:
    """Every entry of the table exists, and no other module has the name of a module of an annex in a string."""
    tables = (
        annexes.ALGORITHMS,
        annexes.RULES,
        annexes.SETTINGS,
        annexes.PROBLEMS,
        annexes.FUNCTIONS,
    )
    for place in [place for table in tables for place in table.values()] + [annexes.TRAJECTORIES]:
        assert room_of(place.partition(":")[0]) in ANNEXES
        assert annexes.import_place(place)
    core = [path for path in SOURCES if room_of(module_of(path)) not in ANNEXES and path.stem != "annexes"]
    for path in core:
        texts = [node.value for node in nodes(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        assert not [t for t in texts if re.fullmatch(r"decentral_dp\.(central|auditing|studies)(\.\w+)+(:\w+)?", t)], (
            path
        )


# Files of the core whose docstrings name minimax problems, as examples or in descriptions of keys.
NAMES_IN_DOCSTRINGS = {"config/schema.py", "models/build.py", "simulation/metrics.py"}
# A gossip algorithm that solves them. Its code names its type of problem once.
SOLVES_THEM = "algorithms/gossip/gossip_sgda.py"


def test_the_core_reads_types_of_problems_from_the_table() -> None:
    """Code and templates of the core do not name the problems of an annex."""
    files = {*SOURCES, *PACKAGE.rglob("*.j2")}
    core = {path for path in files if path.relative_to(PACKAGE).parts[0] not in (*ANNEXES, "annexes.py")}
    users = {path for path in core if "minimax" in path.read_text(encoding="utf-8").lower()}
    assert {path.relative_to(PACKAGE).as_posix() for path in users} == {*NAMES_IN_DOCSTRINGS, SOLVES_THEM}
    for path in users:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in docs]
        named = [t for t in texts if "minimax" in str(t).lower()]
        assert named == (["minimax"] if inside(path, SOLVES_THEM) else []), path
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Name) and "minimax" in n.id.lower()], path


def test_every_room_is_in_the_order() -> None:
    assert {room_of(name) for name in MODULES} == {"", "reporting", *LEVEL}
    assert {path.stem for path in PACKAGE.glob("*.py")} == TOP_LEVEL


def test_imports_have_no_cycle() -> None:
    """Including imports in functions and for annotations."""
    graph = {name: own_imports(path) - {name, "decentral_dp"} for name, path in MODULES.items()}
    while ends := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in ends:
            del graph[name]
    assert not graph, f"a cycle is among {sorted(graph)}"


@pytest.mark.parametrize("place", FORBIDDEN)
def test_rooms_have_no_forbidden_imports(place: str) -> None:
    files = [p for p in SOURCES if inside(p, place)]
    assert files, f"{place} is missing. Fix the table"
    for path in files:
        wrong = [n for n in imports(path) for prefix in FORBIDDEN[place] if reaches(n, prefix)]
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {wrong}"


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_are_imported_in_their_rooms_only(library: str) -> None:
    users = [p for p in SOURCES if any(reaches(n, library) for n in imports(p))]
    assert users, f"nothing imports {library}. Fix the table"
    for path in users:
        assert any(inside(path, place) for place in ONLY_IN[library]), path.relative_to(PACKAGE)


def test_a_run_is_written_and_drawn_without_pandas(tmp_path: Path) -> None:
    """Its import takes a tenth of a short run."""
    changes = {"algorithm.rounds": 2}
    run = f"import sys, decentral_dp; decentral_dp.run('ring_breast_cancer', set={changes}, out='r')"
    check = f"{run}; print([m for m in ('torch', 'ray', 'pandas', 'scipy.linalg') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert out.stdout.strip() == "[]"
    assert (tmp_path / "r" / "plots" / "epsilon.svg").is_file()


@pytest.mark.parametrize("statement", ["import decentral_dp", "import decentral_dp.cli.main"])
def test_importing_is_light(statement: str) -> None:
    heavy = ("torch", "ray", "matplotlib", "pandas", "jinja2")
    check = f"import sys; {statement}; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_names_of_classes_and_public_functions_are_unique() -> None:
    """One class name is one class, and one public function name is one function."""
    classes = Counter(node.name for path in SOURCES for node in nodes(path) if isinstance(node, ast.ClassDef))
    functions = Counter(
        node.name
        for path in SOURCES
        for node in ast.iter_child_nodes(nodes(path)[0])
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
    assert len(classes) > 300
    assert len(functions) > 500
    assert not {name: n for name, n in (classes | functions).items() if n > 1}


def test_no_global_randomness_and_no_asserts() -> None:
    for path in SOURCES:
        assert not any(isinstance(n, ast.Assert) for n in nodes(path)), path
        text = path.read_text(encoding="utf-8")
        assert "np.random.seed" not in text, path
        assert "torch.manual_seed" not in text, path


def test_algorithms_do_not_open_bounded_values() -> None:
    """Arrays computed from `.value` or `.private` would be released without a privacy cost."""
    opened = {"value", "private"}
    for path in [
        p for p in SOURCES if any(inside(p, at) for at in ("algorithms", "central/bilevel", "central/minimax"))
    ]:
        wrong = [n.attr for n in nodes(path) if isinstance(n, ast.Attribute) and n.attr in opened]
        assert not wrong, f"{path.relative_to(PACKAGE)} reads {wrong}"


def test_no_test_imports_a_test() -> None:
    """Shared code of tests is in `tests/support`."""
    tests = PACKAGE.parent / "tests"
    for path in sorted(tests.rglob("*.py")):
        if path.is_relative_to(tests / "benchmarks"):
            continue
        wrong = [n for n in imports(path) if re.match(r"tests\.(.*\.)?test_", n)]
        assert not wrong, f"{path.relative_to(tests)} imports {wrong}"


def test_one_module_moves_tensors_between_devices() -> None:
    """Restrict transfers between devices to one module."""
    moves = re.compile(r"\.(cpu|cuda|numpy)\(|\.to\((self\.)?device\b|^torch\..*\bdevice=(self\.)?device\b")
    places = {
        path.name
        for path in SOURCES
        if room_of(module_of(path)) in ("models", "problems", "central")
        for node in nodes(path)
        if isinstance(node, ast.Call) and moves.search(ast.unparse(node))
    }
    assert places == {"devices.py"}


def test_the_package_imports_no_papers_and_they_run_no_scenario() -> None:
    """Experiments on published claims are in no wheel, and do not run scenarios."""
    named = {path: name for path in SOURCES for name in imports(path) if name.split(".")[0] == "papers"}
    assert not named
    barred = ["decentral_dp.simulation.run", "decentral_dp.config.loading", "decentral_dp.studies"]
    experiments = sorted((PACKAGE.parent / "papers").glob("*.py"))
    assert len(experiments) > 20
    for path in experiments:
        assert not [name for name in imports(path) if any(reaches(name, prefix) for prefix in barred)], path
