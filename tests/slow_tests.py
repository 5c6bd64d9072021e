"""Slow tests: the suite runs one in twenty-four of them, another part every day; `--slow all` runs all.

`slow_tests.txt` lists them. Other tests always run, and so do tests whose file, name or folder is given on the command
line. `--slow none` runs no slow test; `--slow record` runs all and writes the list.
"""

from __future__ import annotations

import datetime
from collections import Counter
from pathlib import Path

import pytest

PARTS = 24
LIST = Path(__file__).with_suffix(".txt")
# Seconds, on the machine that records.
LONG = 0.1
# Always run: golden scenarios, planted errors, and the power of audits.
_GOLDEN = "tests/golden/test_scenarios.py::test_"
_POWER = (
    "tests/auditing/test_audit.py::test_half_the_noise_is_refuted",
    "tests/auditing/test_audit_family.py::test_a_third_of_the_noise_exceeds_the_certified_epsilon",
    "tests/auditing/test_audit_family.py::test_a_series_without_noise_exceeds_the_certified_epsilon",
)
ALWAYS = (f"{_GOLDEN}plan", f"{_GOLDEN}seeded", f"{_GOLDEN}releases", "tests/planted/", *_POWER)


def parts() -> dict[str, int]:
    """Return slow test → part, 0 to PARTS − 1, in turn: cases of one test are in different parts."""
    return {node: k % PARTS for k, node in enumerate(LIST.read_text(encoding="utf-8").splitlines())}


class SlowTests:
    """Pytest plugin that deselects slow tests, or records them.

    Args:
        chosen: the part that runs, "all", "none", or "record".
    """

    def __init__(self, chosen: str) -> None:
        self._chosen = chosen
        self._seconds: Counter[str] = Counter()

    def pytest_report_header(self) -> str:
        whole, part = self._chosen in ("all", "record"), _number(self._chosen)
        which = "all" if whole else "none" if part < 0 else f"part {part + 1} of {PARTS}; --slow all runs all"
        return f"slow tests: {which}"

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._chosen in ("all", "record"):
            return
        part, here = parts(), _number(self._chosen)
        left_out = [i for i in items if part.get(i.nodeid, here) != here]
        config.hook.pytest_deselected(items=left_out)
        out = {i.nodeid for i in left_out}
        items[:] = [i for i in items if i.nodeid not in out]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._chosen != "record" or hasattr(session.config, "workerinput"):
            return
        slow = sorted(n for n, s in self._seconds.items() if s >= LONG and not n.startswith(ALWAYS))
        LIST.write_text("\n".join(slow) + "\n", encoding="utf-8")


def _number(chosen: str) -> int:
    """Return the number of the part; −1, which no test has, for none."""
    return int(chosen) if chosen.isdecimal() else -1


def configure(config: pytest.Config) -> None:
    """Choose the part of this run. Workers receive it from their parent process."""
    if config.option.slow is None:
        whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
        today = datetime.date.today().toordinal() % PARTS  # any day will do, and all come in turn
        config.option.slow = str(today) if whole_suite else "all"
    config.pluginmanager.register(SlowTests(config.option.slow), "slow_tests")
