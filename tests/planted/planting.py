"""Plant an error in a copy of the package, and run the tests that must catch it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[2]
COPIED = (
    "decentral_dp",
    "papers",
    "tests",
    "scenarios",
    "topologies",
    "docs",
    "pyproject.toml",
    "CHANGELOG.md",
    "README.md",
)
# Failure messages that count as caught. Another failure, for example a missing name, does not count.
FOUND = ("AssertionError", "assert ", "Failed", "hypothesis.errors.Flaky")
LIMIT_S = 120


class Mutation(NamedTuple):
    """Replace the only occurrence of `old` in `decentral_dp/file` by the error `new`, which `tests` must catch."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """Store the verdict ("caught", "survived", or "broken" for an unrelated failure) and its evidence."""

    word: str
    evidence: str


class Copy:
    """A copy of the repository's package and tests, in which errors are planted one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Errors are planted in Python; other tests compare the compiled parts with it.
        leave_out = shutil.ignore_patterns("__pycache__", ".*_cache", "*.pyc", "*.so", "*.pyd")
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=leave_out)
            elif source.exists():
                shutil.copy(source, folder / name)

    def verdict(self, mutation: Mutation) -> Verdict:
        path = self.folder / "decentral_dp" / mutation.file
        text = path.read_text(encoding="utf-8")
        if text.count(mutation.old) != 1:
            return Verdict("broken", f"{mutation.file} holds the text {text.count(mutation.old)} times: {mutation.old}")
        self._write(path, text.replace(mutation.old, mutation.new))
        try:
            return self.tested(mutation.tests)
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Python identifies compiled files by size and second, which a planted error may share.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def tested(self, tests: tuple[str, ...]) -> Verdict:
        """Run these tests on the package in this folder."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", f"--junit-xml={report}"]
        environment = os.environ | {
            "PYTHONPATH": str(self.folder),
            "OMP_NUM_THREADS": "1",
            # Hypothesis would write examples, and try those of another error first.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "examples"),
        }
        for unwanted in ("PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(unwanted, None)
        shutil.rmtree(self.folder / "examples", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Verdict("broken", f"no answer within {LIMIT_S} s")
        if done.returncode == 0:
            return Verdict("survived", "every test passed")
        if done.returncode != 1 or not report.exists():
            return Verdict("broken", done.stdout.strip()[-300:])
        return judged(report.read_text(encoding="utf-8"))


def judged(report: str) -> Verdict:
    """Return the verdict of a JUnit report with a failure."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    for case in cases:
        failure = case.find("failure")
        if failure is not None:
            evidence = f"{case.get('name')}: {failure.get('message', '')[:160]}".replace("\n", " ")
            return Verdict("caught" if failure.get("message", "").startswith(FOUND) else "broken", evidence)
    return Verdict("broken", "an error outside of any test")
