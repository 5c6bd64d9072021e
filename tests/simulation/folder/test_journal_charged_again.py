"""Runs whose secret was forgotten go on with other noise: every release of every process is in the ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import decentral_dp
from decentral_dp.cli.main import app
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.accounting.accountants import epsilon_of, price
from decentral_dp.privacy.ledger import Window, charge_in_flight
from decentral_dp.privacy.mechanisms.releasers import ScheduledReleaser
from decentral_dp.reporting import page
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal as run_in_progress
from decentral_dp.simulation.result import read_result

Make = Callable[..., dict[str, Any]]
ROUNDS = 12
DECLARED = {"epsilon": None, "x": {"scale": 0.5}, "y": {"scale": 0.5, "decay": 0.1}, "z": {"scale": 0.5}}


class _KilledError(BaseException):
    """The process ends here, and writes nothing more."""


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_in_progress, "_INTERVAL", 0.0)
    monkeypatch.setattr(run_in_progress, "_SHARE", 1e9)
    monkeypatch.setattr(page, "draw_run", lambda *_: None)


def _given(scenario: Make, **changes: Any) -> dict[str, Any]:
    made = scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 3}, **changes)
    made["privacy"] = {k: v for k, v in made["privacy"].items() if v is not None}
    del made["seed"]
    return made


class _Watched:
    """Counts what leaves, by index and channel, and ends the process before or after one of the releases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[tuple[str, int]] = Counter()
        self.values: dict[tuple[str, int], list[Any]] = {}
        self.end_at: int | None = None
        release = ScheduledReleaser.release

        def watched(inner: ScheduledReleaser, index: int, values: Any) -> Bundle:
            out = release(inner, index, values)
            for channel, value in out.items():
                self.made[channel, index] += 1
                self.values.setdefault((channel, index), []).append(np.array(value))
            if index == self.end_at:
                raise _KilledError
            return out

        monkeypatch.setattr(ScheduledReleaser, "release", watched)

        def nothing_more(inner: Any, *_: Any) -> bool:
            inner.close()
            return True

        monkeypatch.setattr(run_in_progress.RunInProgress, "discard", nothing_more)

    def killed_at(self, index: int, start: Callable[[], Any]) -> None:
        self.end_at = index
        with pytest.raises(_KilledError):
            start()
        self.end_at = None


def _assert_counted(done: Any, watched: _Watched) -> None:
    """Every release that left is a line of the ledger; there may be more lines, of what might have left."""
    listed: Counter[tuple[str, int]] = Counter()
    for c in done.records.charged_channels:
        listed.update((c.channel.partition(" again")[0], int(index)) for index in c.rounds)
    charged = {c.channel for c in done.simulation().uninterrupted_ledger.charged_channels}
    made = {k: n for k, n in watched.made.items() if k[0] in charged and k[1] > 0}
    assert made
    missing = {k: (n, listed[k]) for k, n in made.items() if n > listed[k]}
    assert not missing


@pytest.mark.parametrize(
    ("course", "keeps_states"),
    [((5,), True), ((0,), True), ((5, 4), True), ((3, 4, 4, 9), True), ((ROUNDS,), False), ((5, 5), False)],
)
def test_every_release_of_every_process_is_in_the_ledger(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, course: tuple[int, ...], keeps_states: bool
) -> None:
    if not keeps_states:
        monkeypatch.setattr(run_in_progress, "_INTERVAL", 1e9)
    given, folder, watched = _given(scenario), tmp_path / "run", _Watched(monkeypatch)
    watched.killed_at(course[0], lambda: decentral_dp.run(given, out=folder, keep_secret=False))
    for index in course[1:]:
        watched.killed_at(index, lambda: decentral_dp.resume(folder, charge_again=True))
    done = decentral_dp.resume(folder, charge_again=True)
    _assert_counted(done, watched)
    # What left twice was noised by two draws, which is why it is charged twice.
    twice = [v for (c, k), v in watched.values.items() if len(v) > 1 and k > 0 and c in done.simulation().noise]
    assert bool(twice) == (course != (0,))
    assert all(not np.array_equal(v[0], v[1]) for v in twice)
    # Plan, ledger, and result are of one price, which is that of a run that had made all of these releases.
    delta = done.simulation().scenario.privacy.delta
    spent = float(epsilon_of(done.records, delta).max())
    assert done.result.privacy.epsilon_max == pytest.approx(spent, rel=1e-12)
    assert read_result(folder).privacy.epsilon_max == done.result.privacy.epsilon_max
    if course != (0,):
        assert spent > float(price(done.simulation().uninterrupted_ledger, delta).epsilon.max())
        assert any("released twice" in note for note in done.result.privacy.notes)
    curve = done.metrics[done.metrics["name"] == "epsilon_spent"].sort_values("round")
    assert curve["value"].is_monotonic_increasing
    assert float(curve["value"].iloc[-1]) == pytest.approx(spent, rel=1e-6)


def test_nobody_pays_without_agreeing_and_the_refusal_has_the_price(scenario: Make, tmp_path: Path) -> None:
    given, folder = _given(scenario), tmp_path / "run"
    _cut_off(given, folder)
    with pytest.raises(InputError, match=r"was not kept.* ε = 4\.\d+ instead of 4\.0.*charge_again=True") as refused:
        decentral_dp.resume(folder)
    assert "Agree with --charge-again, or" in refused.value.command
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert isinstance(CliRunner().invoke(app, ["resume", str(folder)]).exception, InputError)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before
    plans: list[Any] = []
    done = decentral_dp.resume(folder, charge_again=True, priced=plans.append)
    assert [p.privacy.epsilon_max for p in plans] == [done.result.privacy.epsilon_max]
    said = str(refused.value).partition("ε = ")[2].split()[0]
    assert float(said) == pytest.approx(done.result.privacy.epsilon_max, rel=1e-2)
    assert float(said) >= done.result.privacy.epsilon_max


def test_the_command_goes_on_if_one_agrees(scenario: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _cut_off(_given(scenario), folder)
    done = CliRunner().invoke(app, ["resume", str(folder), "--charge-again"])
    assert done.exit_code == 0, done.output
    assert "released twice" in (folder / "result.json").read_text()


def test_a_cap_is_not_passed(scenario: Make, tmp_path: Path) -> None:
    whole = decentral_dp.plan(_given(scenario, privacy=DECLARED)).privacy.epsilon_max
    assert whole is not None
    given = _given(scenario, privacy={**DECLARED, "cap": 1.001 * whole})
    _cut_off(given, tmp_path / "run")
    with pytest.raises(InputError, match="pass the declared cap"):
        decentral_dp.resume(tmp_path / "run", charge_again=True)
    given["privacy"]["cap"] = 3.0 * whole
    _cut_off(given, tmp_path / "roomy")
    assert decentral_dp.resume(tmp_path / "roomy", charge_again=True).result.status == "ok"


def test_more_rounds_and_what_was_in_flight_are_priced_together(scenario: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _cut_off(_given(scenario, privacy=DECLARED), folder)
    done = decentral_dp.resume(folder, rounds=ROUNDS + 5, charge_again=True)
    assert done.result.rounds == ROUNDS + 5
    assert {"y", "y again"} <= {c.channel for c in done.records.channels}
    assert done.result.privacy.epsilon_max == pytest.approx(
        float(epsilon_of(done.records, done.simulation().scenario.privacy.delta).max()), rel=1e-12
    )


def test_a_kept_secret_is_drawn_again_and_nothing_is_charged(scenario: Make, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _cut_off(_given(scenario), folder, keep_secret=True)
    done = decentral_dp.resume(folder, charge_again=True)
    assert {c.channel for c in done.records.channels} == {"x", "y", "z"}


def test_a_trusted_coordinator_is_refused(tmp_path: Path) -> None:
    given = load("dp_bilevel", ["algorithm.rounds=6", "run.evaluate_every=1"])
    given = given.model_copy(update={"seed": None})
    _cut_off(given, tmp_path / "run")
    with pytest.raises(InputError, match="plans its whole budget beforehand"):
        decentral_dp.resume(tmp_path / "run", charge_again=True)


def test_batches_amplify_nothing_of_what_was_released_twice(scenario: Make, tmp_path: Path) -> None:
    given = _given(scenario, problem={"stream": {"kind": "minibatch", "batch": 3}}, privacy=DECLARED)
    _cut_off(given, tmp_path / "run")
    done = decentral_dp.resume(tmp_path / "run", charge_again=True)
    (window,) = done.simulation().windows
    lines = {c.channel: c for c in done.records.charged_channels}
    inside = (lines["y"].rounds >= window.first_round) & (lines["y"].rounds <= window.last_round)
    for split, rate in done.simulation().uninterrupted_ledger.charged_channels[0].rate.items():
        assert (rate < 1.0).all()
        assert (lines["y"].rate[split][inside] == 1.0).all()
        assert (lines["y again"].rate[split] == 1.0).all()
        np.testing.assert_array_equal(lines["y"].rate[split][~inside], rate[~inside])


def test_two_releases_of_one_batch_cost_more_than_two_samples() -> None:
    """Why nothing is amplified: one batch of half the records, released twice, against two batches of half."""
    shared, apart = (np.log1p(0.5 * np.expm1(2.0)), 2.0 * np.log1p(0.5 * np.expm1(1.0)))
    assert shared > apart
    course = decentral_dp.plan(_minibatches(), set={"privacy.guarantee": "certified"}).records
    both = charge_in_flight(course, course, [Window(1, 1)])
    names = [c.channel for c in course.charged_channels]
    per_release = {c.channel: c for c in both.charged_channels}
    for name in names:
        assert all((r[0] == 1.0).all() for r in per_release[name].rate.values())


def _minibatches() -> dict[str, Any]:
    return load("ring_breast_cancer", ['problem.stream={kind="minibatch",batch=4}', "algorithm.rounds=3"]).model_dump(
        exclude_none=True, exclude_defaults=True
    )


def _cut_off(given: Any, folder: Path, keep_secret: bool = False) -> None:
    def progress(at: Progress) -> None:
        if at.done >= 3:
            raise KeyboardInterrupt

    with pytest.raises(Stopped):
        decentral_dp.run(given, out=folder, callbacks=[progress], keep_secret=keep_secret)


def test_the_folder_says_what_is_charged_before_it_is_released(
    scenario: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    _cut_off(_given(scenario), folder)
    release, seen = ScheduledReleaser.release, []

    def watched(inner: ScheduledReleaser, index: int, values: Any) -> Bundle:
        entries = [json.loads(x) for x in (folder / "in_progress" / "journal.jsonl").read_text().splitlines()]
        charged = [k for k, e in enumerate(entries) if "charged_again" in e]
        leased = [e["leased"] for e in entries[charged[0] :] if "leased" in e]
        seen.append((index, entries[charged[0]]["charged_again"][0], max(leased, default=0)))
        return release(inner, index, values)

    monkeypatch.setattr(ScheduledReleaser, "release", watched)
    decentral_dp.resume(folder, charge_again=True)
    assert seen[0][0] == seen[0][1]
    assert all(index <= leased for index, _, leased in seen[1:])
