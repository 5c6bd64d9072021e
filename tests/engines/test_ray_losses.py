"""Actors that are lost at every call: no released value is missing. Calls in this process take the place of Ray."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray

from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines import Recovery
from decentral_dp.engines import ray as engine
from decentral_dp.engines.protocol import ReleasedValues, RunControl, Snapshot
from decentral_dp.reporting import page
from decentral_dp.simulation.folder import journal, releases
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from decentral_dp.simulation.run import run_job
from tests.support.shards import write_shards

ROUNDS = 4
FILES = ("releases.parquet", "ledger.parquet", "metrics.parquet")


class InProcessRay:
    """Actors in this process. The one that is called at a given call, counted from 1, is lost before it answers."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.calls, self.lost_at = 0, 0

    def start_actors(self, kind: type[Any], places: Sequence[Any], *_: Any) -> list[Any]:
        return [self._actor(kind(), number) for number in range(len(places))]

    def _actor(self, actor: Any, number: int) -> Any:
        lost: list[bool] = []

        def remote(method: Callable[..., Any], *values: Any) -> Any:
            self.calls += 1
            if lost or self.calls == self.lost_at:
                lost.append(True)
                return ray.exceptions.RayActorError()
            # As in Ray, a call whose argument is lost is not made.
            missing = [v for v in values if isinstance(v, ray.exceptions.RayError)]
            return missing[0] if missing else method(*values)

        def bind(method: Callable[..., Any]) -> Any:
            return SimpleNamespace(remote=lambda *values: remote(method, *values))

        identity = SimpleNamespace(hex=lambda: str(number))
        methods = {name: bind(getattr(actor, name)) for name in ("begin", "advance", "call") if hasattr(actor, name)}
        return SimpleNamespace(_actor_id=identity, **methods)

    def put(self, value: Any) -> Any:
        return value

    def get(self, values: Sequence[Any]) -> Sequence[Any]:
        for value in values:
            if isinstance(value, ray.exceptions.RayError):
                raise value
        return values

    def wait(self, *_: Any, **__: Any) -> None: ...

    def kill(self, actor: Any) -> None: ...


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> InProcessRay:
    fake = InProcessRay()
    monkeypatch.setattr(engine, "ray", fake)
    monkeypatch.setattr(engine, "start_actors", fake.start_actors)
    monkeypatch.setattr(engine, "cluster", lambda *_: nullcontext())
    monkeypatch.setattr(page, "draw_run", lambda *_: None)
    return fake


def _often(monkeypatch: pytest.MonkeyPatch, journal_saves: bool) -> None:
    """Have the journal keep values and a state after every round, or values at the end and no state."""
    monkeypatch.setattr(journal, "_INTERVAL", 0.0 if journal_saves else 1e9)
    monkeypatch.setattr(journal, "_SHARE", 1e9)
    monkeypatch.setattr(releases, "_HELD", 1 if journal_saves else 2**24)


def _differ(folder: Path, expected: Path) -> list[str]:
    return [name for name in FILES if (folder / name).read_bytes() != (expected / name).read_bytes()]


def _job(path: Path | str = "quadratic") -> Job:
    common = [f"algorithm.rounds={ROUNDS}", "run.evaluate_every=2", "run.keep_releases=true", "topology.agents=2"]
    return build(load(path, [*common, "run.engine='ray'", "run.agents_per_actor=1"]))


def _saves(monkeypatch: pytest.MonkeyPatch, driver: bool) -> None:
    """Have the driver keep a state after every round, or never."""
    recovery = Recovery(save_every=1e-9 if driver else 86400, restarts=2, pause=0.0)
    monkeypatch.setattr("decentral_dp.engines.protocol.RECOVERY", recovery)


@pytest.mark.parametrize("every", [1, 3])
def test_releases_before_the_drivers_state_are_drained_later(every: int, in_process: InProcessRay) -> None:
    """Drained after every, or every third, round; an actor is lost at each call in turn."""
    job = _job()
    ray_engine = engine.RayEngine(recovery=Recovery(save_every=0.0, restarts=2, pause=0.0))

    def drained() -> list[ReleasedValues]:
        values: dict[int, ReleasedValues] = {}

        def observe(snapshot_seen: Snapshot) -> None:
            for value in snapshot_seen.drain(snapshot_seen.round == ROUNDS):
                # After a loss, what was drained already may come again, with the same draws.
                assert value.release_index <= len(values)
                values.setdefault(value.release_index, value)

        job.start(ray_engine, RunControl(range(every, ROUNDS + 1, every), observe, keeps_releases=True))
        return list(values.values())

    expected = drained()
    assert [v.release_index for v in expected] == list(range(ROUNDS + 1))
    calls = in_process.calls
    for lost_at in range(1, calls + 1):
        in_process.calls, in_process.lost_at = 0, lost_at
        values = drained()
        assert len(values) == len(expected), f"lost at call {lost_at} of {calls}"
        for mine, expected_value in zip(values, expected, strict=True):
            assert mine.release_index == expected_value.release_index
            np.testing.assert_equal(dict(mine.values), dict(expected_value.values))


@pytest.mark.parametrize(("driver_saves", "journal_saves"), [(True, False), (True, True), (False, True)])
def test_no_released_value_is_missing_wherever_an_actor_is_lost(
    driver_saves: bool, journal_saves: bool, in_process: InProcessRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _often(monkeypatch, journal_saves)
    _saves(monkeypatch, driver_saves)
    _compare_losses(_job(), in_process, tmp_path)


def test_no_released_value_is_missing_if_agents_keep_states(
    in_process: InProcessRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _often(monkeypatch, True)
    write_shards(load("ring_breast_cancer", ["topology.agents=2"]), tmp_path / "shards")
    _saves(monkeypatch, driver=False)
    _compare_losses(_job(tmp_path / "shards" / "scenario.toml"), in_process, tmp_path, step=5)


def _compare_losses(job: Job, in_process: InProcessRay, tmp_path: Path, step: int = 1) -> None:
    """Lose an actor at each call in turn, or at every `step`-th, and compare with a run without a loss."""
    run_job(job, tmp_path / "whole")
    assert len(pd.read_parquet(tmp_path / "whole" / "releases.parquet")["release"].unique()) == ROUNDS + 1
    calls = in_process.calls
    for lost_at in range(1, calls + 1, step):
        in_process.calls, in_process.lost_at = 0, lost_at
        run_job(job, tmp_path / "run")
        assert _differ(tmp_path / "run", tmp_path / "whole") == [], f"lost at call {lost_at} of {calls}"
        shutil.rmtree(tmp_path / "run")
