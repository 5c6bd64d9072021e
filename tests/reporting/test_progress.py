"""How long audits and attacks will take is said once, measured on their first runs."""

from __future__ import annotations

import pytest

from decentral_dp.reporting import terminal as progress
from decentral_dp.reporting.terminal import ProgressBar
from decentral_dp.simulation.events import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def _told(clock: list[float], seconds: float, total: int, first: int = 1) -> None:
    with ProgressBar("runs", estimate=True) as bar:
        for done in range(first, total + 1):
            bar(Progress(done, total, "runs"))
            clock[0] += seconds


@pytest.mark.parametrize(
    ("seconds", "total", "said"),
    [
        (2.0, 400, "About 13 min for 398 more runs: 2.0 s each by the first 2."),
        (0.5, 400, "About 3 min for 397 more runs: 0.5 s each by the first 3."),
        (60.0, 400, "About 6.6 h for 398 more runs: 60.0 s each by the first 2."),
        (2.0, 5, ""),
        (0.01, 200, ""),
    ],
)
def test_long_commands_say_how_long(
    clock: list[float], capsys: pytest.CaptureFixture[str], seconds: float, total: int, said: str
) -> None:
    _told(clock, seconds, total)
    assert " ".join(capsys.readouterr().err.split()) == said


def test_runs_of_an_earlier_time_are_not_measured(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    _told(clock, 2.0, 400, first=200)
    assert "for 199 more runs: 2.0 s each" in " ".join(capsys.readouterr().err.split())


def test_other_bars_say_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("pairs") as bar:
        for done in range(1, 5):
            bar(Progress(done, 1000, "pairs"))
            clock[0] += 5.0
    assert capsys.readouterr().err == ""
