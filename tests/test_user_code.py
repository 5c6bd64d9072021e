"""Custom modules: imports between files of a folder, their digest, and refused modules."""

from __future__ import annotations

import py_compile
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.errors import InputError
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.build import run_digest
from decentral_dp.user_code import component, run_file
from tests.support.pages import EXAMPLES, write_files

SHARED = "import numbers_of\n\ndef pulled(released, last):\n    return numbers_of.HALF * (released - last)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The algorithm of the how-to page, split into three files."""
    text = EXAMPLES["momentum.py"].replace("from typing", "from shared_moves import pulled\nfrom typing", 1)
    text, many = re.subn(
        r"self\.friction \* \((\w+)\.y - s\.last\)", r"2.0 * self.friction * pulled(\1.y, s.last)", text
    )
    assert many == 1
    others = {"shared_moves.py": SHARED, "numbers_of.py": "HALF = 0.5\n"}
    return write_files(tmp_path, {"momentum.py": text, "momentum.toml": EXAMPLES["momentum.toml"], **others})


def test_modules_of_a_run_are_removed(folder: Path) -> None:
    run = decentral_dp.run(folder / "momentum.toml")
    assert run.result["status"] == "ok"
    assert not {"shared_moves", "numbers_of"} & sys.modules.keys()
    assert not (folder / "__pycache__").exists()
    assert not any(type(finder).__name__ == "_Beside" for finder in sys.meta_path)


def test_digests_follow_all_files(folder: Path) -> None:
    """A run cannot be resumed after a change of the third file."""
    first = run_digest(build(folder / "momentum.toml"))
    assert run_digest(build(folder / "momentum.toml")) == first
    (folder / "numbers_of.py").write_text("HALF = 0.25\n", encoding="utf-8")
    assert run_digest(build(folder / "momentum.toml")) != first


def test_nothing_that_is_installed_is_shadowed(folder: Path) -> None:
    for name in ("numpy", "colorsys"):
        (folder / f"{name}.py").write_text("raise RuntimeError('shadowed')\n", encoding="utf-8")
    (folder / "asks.py").write_text("import colorsys\nimport numpy\n", encoding="utf-8")
    before = digest_of_file(folder / "asks.py")
    assert run_file(folder / "asks.py").numpy is np
    (folder / "numpy.py").write_text("", encoding="utf-8")
    assert digest_of_file(folder / "asks.py") == before


def test_a_library_imports_nothing_of_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An optional import of an installed module does not find a file of this name."""
    site = tmp_path_factory.mktemp("site")
    (site / "a_library.py").write_text(
        "try:\n    import shared_moves\nexcept ImportError:\n    shared_moves = None\n", encoding="utf-8"
    )
    (folder / "asks.py").write_text(f"import sys\nsys.path.append({str(site)!r})\nimport a_library\n", encoding="utf-8")
    try:
        assert run_file(folder / "asks.py").a_library.shared_moves is None
    finally:
        sys.path.remove(str(site))
        sys.modules.pop("a_library", None)


def test_a_missing_module_is_refused_with_its_fix(folder: Path) -> None:
    (folder / "shared_moves.py").unlink()
    with pytest.raises(InputError) as said:
        build(folder / "momentum.toml")
    assert f"install shared_moves, or put shared_moves.py into {folder}, and import it at the top." in str(said.value)


# Names of modules.

DEAL = "import numpy as np\n\nWHERE = {!r}\n\n\ndef deal(labels, agents):\n    return np.arange(len(labels)) % agents\n"


def _named(folder: Path, kind: str, **keys: Any) -> Any:
    """The scenario of the page in this folder, with another algorithm."""
    return load(folder / "momentum.toml", [f'algorithm.kind="{kind}"'], **keys)


def test_two_folders_have_modules_of_one_name(tmp_path: Path) -> None:
    """In one process, without a trace in `sys.modules`."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "dealing.py").write_text(DEAL.format(name), encoding="utf-8")
    folders = [tmp_path / "here", tmp_path / "there", tmp_path / "here"]
    dealt = [component("dealing:deal", [folder], "problem.partition") for folder in folders]
    assert [function.__globals__["WHERE"] for function in dealt] == ["here", "there", "here"]
    assert "dealing" not in sys.modules
    # The first folder with the file.
    assert component("dealing:WHERE", folders, "data") == "here"


@pytest.mark.parametrize("name", ["colorsys", "os", "numpy", "decentral_dp"])
def test_a_file_hides_no_module_of_python_and_no_installed_one(folder: Path, name: str) -> None:
    mark = folder / "mark"
    (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"^algorithm\.kind: .*(of Python or of this package|installed module as well)"
    ):
        build(_named(folder, f"{name}:Momentum"))
    assert not mark.exists()


@pytest.mark.parametrize(
    "kind",
    [
        "os:system",
        "os.path:join",
        "builtins:eval",
        "runpy:run_path",
        "pandas:read_pickle",
        "torch.hub:load",
        "decentral_dp.user_code:run_file",
    ],
)
def test_importable_functions_are_no_components(folder: Path, kind: str) -> None:
    """A scenario from elsewhere would call the function with its keys."""
    content = tomllib.loads((folder / "momentum.toml").read_text(encoding="utf-8"))
    content["topology"] = {"kind": kind, "agents": 4, "command": f"touch {folder / 'mark'}", "path": "momentum.py"}
    with pytest.raises(InputError, match=r"^topology\.kind: .*(of Python or of this package|not require decentral_dp)"):
        build(load(content, folder=folder))
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("requirement", ["decentral_dp", "decentral-dp >= 0.1", "numpy", "decentral_dpx"])
def test_a_package_that_requires_this_one_has_components(
    folder: Path, monkeypatch: pytest.MonkeyPatch, requirement: str
) -> None:
    site = folder / "site-packages"
    package, info = site / "my_moves", site / "my_moves-1.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text(EXAMPLES["momentum.py"], encoding="utf-8")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: my_moves\nVersion: 1.0\nRequires-Dist: {requirement}\n"
    )
    (info / "top_level.txt").write_text("my_moves\n")
    monkeypatch.syspath_prepend(str(site))
    scenario = _named(folder, "my_moves:Momentum")
    if requirement in ("numpy", "decentral_dpx"):
        with pytest.raises(InputError, match="does not require decentral_dp"):
            build(scenario)
        assert "my_moves" not in sys.modules
        return
    assert build(scenario).budget.epsilon.max() <= 4.0
    del sys.modules["my_moves"]


def test_a_cache_of_a_file_is_never_read(folder: Path, tmp_path: Path) -> None:
    """Consent is for the source. A cache of the same size and date could have any content."""
    source, mark = folder / "shared_moves.py", tmp_path / "mark"
    honest = source.read_bytes()
    other = f"open({str(mark)!r}, 'w')\n{SHARED}"
    source.write_text(other, encoding="utf-8")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    source.write_bytes(honest)
    assert list((folder / "__pycache__").glob("shared_moves*.pyc"))
    assert np.isfinite(build(folder / "momentum.toml").budget.epsilon).all()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("momentun:Momentum", 'an installed module); did you mean "momentum"?'),
        ("momentum:Momentun", 'momentum defines no Momentun; did you mean "Momentum"? Fix'),
        ("momentum:Lazy", 'momentum defines no Lazy. Valid: "'),
        ("momentum.py:Momentum", 'unknown algorithm "momentum.py:Momentum"'),
        ("momentum.inner:Momentum", "no module momentum.inner"),
        ("momentum", 'unknown algorithm "momentum"'),
    ],
)
def test_a_wrong_name_is_refused(folder: Path, kind: str, words: str) -> None:
    with pytest.raises(InputError, match=rf"^algorithm\.kind: .*{re.escape(words)}"):
        build(_named(folder, kind))


def test_a_scenario_may_set_the_folders_of_its_modules(folder: Path) -> None:
    (folder / "src").mkdir()
    for name in ("momentum", "shared_moves", "numbers_of"):
        (folder / f"{name}.py").rename(folder / "src" / f"{name}.py")
    with pytest.raises(InputError, match="no module momentum"):
        build(folder / "momentum.toml")
    moved = load(folder / "momentum.toml", ['code_folders=["src"]'])
    decentral_dp.run(moved, out=folder / "run")
    assert {path.name for path in (folder / "run" / "code").iterdir()} == {
        "momentum.py",
        "shared_moves.py",
        "numbers_of.py",
    }
    (folder / "src").rename(folder / "gone")
    again = build(folder / "run" / "scenario.toml")
    assert run_digest(again) == run_digest(build(load(folder / "momentum.toml", ['code_folders=["gone"]'])))
