"""Build wheel and sdist, and test the wheel in fresh environments: `python -m tests.release`.

    python -m tests.release                       with this Python
    python -m tests.release python3.12 python3.13  with others as well
    python -m tests.release --suite python3.13     and runs the test suite there, with all extras

It checks the metadata, the data files of both, and the output of the README's first command from only the wheel and
the light core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="further interpreters")
    parser.add_argument("--suite", action="store_true", help="run the test suite in each of them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = built(Path(folder))
        for number, python in enumerate([sys.executable, *asked.pythons]):
            tried(python, wheel, Path(folder) / f"environment-{number}", asked.suite)


def built(folder: Path) -> Path:
    """Build both, and return the wheel."""
    _run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    wheel, archive = (next(folder.glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(archive)])
    for name, missing in (
        (wheel.name, wanted_in_wheel() - set(zipfile.ZipFile(wheel).namelist())),
        (archive.name, wanted_in_sdist() - _members(archive)),
    ):
        if missing:
            sys.exit(f"{name} lacks {', '.join(sorted(missing))}")
        print(f"{name}: complete")
    return wheel


def wanted_in_wheel() -> set[str]:
    """Paths of what is read at run time: modules, typing information, ranges, scenarios and graphs."""
    package = {path for path in _tracked("decentral_dp") if not path.startswith("decentral_dp/scenarios/")}
    return package | {f"decentral_dp/{path}" for path in [*_tracked("scenarios"), *_tracked("topologies")]}


def wanted_in_sdist() -> set[str]:
    """Paths of all that git knows."""
    return set(_tracked("."))


def tried(python: str, wheel: Path, environment: Path, suite: bool) -> None:
    """Install only the wheel, run the README's first command elsewhere, and compare its output."""
    _run([python, "-m", "venv", str(environment)])
    own = environment / "bin" / "python"
    _run([str(own), "-m", "pip", "install", "--quiet", str(wheel)])
    version = _run([str(own), "--version"])
    with tempfile.TemporaryDirectory() as elsewhere:
        printed = _run([str(environment / "bin" / "decentral-dp"), "run", "ring_breast_cancer"], elsewhere)
    shown = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- main job -->")[2]
    lines = [line for line in shown.partition("```text\n")[2].partition("```")[0].splitlines() if line.strip()]
    absent = [line for line in lines if line.split() not in [other.split() for other in printed.splitlines()]]
    if absent:
        sys.exit(f"{version.strip()} prints otherwise than the README: {absent}")
    print(f"{version.strip()}: the main job prints what the README shows")
    if suite:
        _run([str(own), "-m", "pip", "install", "--quiet", f"{wheel}[test]"])
        # The wheel installs the dependencies; the tests import the checkout's package.
        _run([str(own), "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"], ROOT)
        print(f"{version.strip()}: the test suite passes")


def _tracked(folder: str) -> list[str]:
    return _run(["git", "ls-files", "--", folder], ROOT).splitlines()


def _members(archive: Path) -> set[str]:
    with tarfile.open(archive) as opened:
        return {name.partition("/")[2] for name in opened.getnames()}


def _run(command: Sequence[str], where: Path | str | None = None) -> str:
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
