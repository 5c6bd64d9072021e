"""Files of one author import each other: found beside the file, hashed with it, and known to nobody afterwards."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.outside import keep_label, label_of
from decentral_dp.errors import InputError
from decentral_dp.privacy.fingerprint import digest_of_file
from decentral_dp.simulation.jobs.build import build, run_digest
from decentral_dp.user_code import run_file

BLOCKS = dict(
    re.findall(
        r"^```\w+ (\S+)\n(.*?)^```$",
        (Path(__file__).parents[2] / "docs" / "add_an_algorithm.md").read_text(encoding="utf-8"),
        re.M | re.S,
    )
)
SHARED = "import numbers_of\n\ndef pulled(released, last):\n    return numbers_of.HALF * (released - last)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The guide's heavy ball, whose move comes from a second file, and that one's number from a third."""
    text = BLOCKS["heavy_ball.py"].replace("from typing", "from shared_moves import pulled\nfrom typing", 1)
    text, many = re.subn(
        r"self\.friction \* \((\w+)\.y - s\.last\)", r"2.0 * self.friction * pulled(\1.y, s.last)", text
    )
    assert many == 1
    (tmp_path / "heavy_ball.py").write_text(text, encoding="utf-8")
    (tmp_path / "shared_moves.py").write_text(SHARED, encoding="utf-8")
    (tmp_path / "numbers_of.py").write_text("HALF = 0.5\n", encoding="utf-8")
    (tmp_path / "heavy_ball.toml").write_text(BLOCKS["heavy_ball.toml"], encoding="utf-8")
    return tmp_path


def test_it_runs_and_is_forgotten(folder: Path) -> None:
    run = decentral_dp.run(folder / "heavy_ball.toml")
    assert run.result["status"] == "ok"
    assert not {"shared_moves", "numbers_of"} & sys.modules.keys()
    assert not (folder / "__pycache__").exists()
    assert not any(type(finder).__name__ == "_Beside" for finder in sys.meta_path)


def test_digests_and_labels_follow_all_files(folder: Path) -> None:
    """A change of the third file is another algorithm: no run is resumed with it, and no label stays."""
    first = run_digest(build(folder / "heavy_ball.toml"))
    assert run_digest(build(folder / "heavy_ball.toml")) == first
    keep_label(folder / "heavy_ball.py", "checked (some day)")
    assert label_of(folder / "heavy_ball.py") == "checked (some day)"
    (folder / "numbers_of.py").write_text("HALF = 0.25\n", encoding="utf-8")
    assert run_digest(build(folder / "heavy_ball.toml")) != first
    assert label_of(folder / "heavy_ball.py") is None


def test_two_folders_do_not_mix(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "shared_moves.py").write_text("def pulled(released, last):\n    return 7.0\n", encoding="utf-8")
    (other / "asks.py").write_text("from shared_moves import pulled\n", encoding="utf-8")
    (folder / "asks.py").write_text("from shared_moves import pulled\n", encoding="utf-8")
    here, there = (run_file(place / "asks.py", "").pulled for place in (folder, other))
    assert (here(3.0, 1.0), there(3.0, 1.0)) == (1.0, 7.0)
    assert digest_of_file(folder / "asks.py") != digest_of_file(other / "asks.py")


def test_nothing_that_is_installed_is_shadowed(folder: Path) -> None:
    for name in ("numpy", "colorsys"):
        (folder / f"{name}.py").write_text("raise RuntimeError('shadowed')\n", encoding="utf-8")
    (folder / "asks.py").write_text("import colorsys\nimport numpy\n", encoding="utf-8")
    before = digest_of_file(folder / "asks.py")
    assert run_file(folder / "asks.py", "").numpy is np
    (folder / "numpy.py").write_text("", encoding="utf-8")
    assert digest_of_file(folder / "asks.py") == before


def test_a_library_finds_nothing_of_the_folder(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An optional import of an installed module is not met by a file that happens to be called so."""
    site = tmp_path_factory.mktemp("site")
    (site / "a_library.py").write_text(
        "try:\n    import shared_moves\nexcept ImportError:\n    shared_moves = None\n", encoding="utf-8"
    )
    (folder / "asks.py").write_text(f"import sys\nsys.path.append({str(site)!r})\nimport a_library\n", encoding="utf-8")
    try:
        assert run_file(folder / "asks.py", "").a_library.shared_moves is None
    finally:
        sys.path.remove(str(site))
        sys.modules.pop("a_library", None)


def test_what_is_nowhere_is_told_with_its_mend(folder: Path) -> None:
    (folder / "shared_moves.py").unlink()
    with pytest.raises(InputError) as said:
        build(folder / "heavy_ball.toml")
    assert f"install shared_moves, or put shared_moves.py into {folder}, and import it at the top." in str(said.value)
