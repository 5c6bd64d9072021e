"""Audits whose runs are made by other processes, and as Ray tasks: the same to the bit, kept when they are cut off."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from decentral_dp.auditing import runs as audit_runs
from decentral_dp.auditing import terminal as audit_command
from decentral_dp.cli import commands
from decentral_dp.config.loading import load
from decentral_dp.errors import InputError, Stopped
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.tasks.parallel import Workers
from tests.support.audits import audit

FEW = ["algorithm.rounds=2"]
LOUD = ["algorithm.rounds=2", "topology.agents=3", 'topology.kind="ring"', "privacy.epsilon=30.0"]


@pytest.mark.parametrize(
    ("name", "overrides", "vantage"), [("bsa", FEW, "everybody"), ("network_view", LOUD, "agent:1")]
)
def test_processes_show_what_this_process_shows(
    name: str, overrides: list[str], vantage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"runs": 20, "overrides": overrides, "vantage": vantage, "curve": True}
    here = audit(name, **settings)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(audit_runs, "runs_of", lambda *given: pytest.fail("made here"))
    there = audit(name, **settings, jobs=2, progress=lambda at: told.append((at.done, at.total)))
    assert there == here
    assert here.method in ("likelihood", "counting")
    assert [total for _, total in told] == [60] * len(told)
    # Three blocks, which may end in any order.
    done = [0, *(done for done, _ in told)]
    assert sorted(after - before for before, after in itertools.pairwise(done)) == [12, 24, 24]


def test_ray_tasks_show_what_this_process_shows(ray_cluster: None) -> None:
    here = audit("bsa", runs=20, overrides=FEW)
    assert audit("bsa", runs=20, overrides=FEW, address="auto") == here


def test_an_interrupt_keeps_what_other_processes_made(tmp_path: Path) -> None:
    out = tmp_path / "kept.json"
    whole = audit("bsa", runs=20, overrides=FEW)

    def interrupt(at: Progress) -> None:
        raise KeyboardInterrupt

    # Of the block that is done first.
    with pytest.raises(Stopped, match=r"(4|8) runs of each data set are kept") as stopped:
        audit("bsa", runs=20, overrides=FEW, out=out, jobs=2, progress=interrupt)
    assert f"; {len(json.loads(out.read_text())['outcomes'])} runs" in str(stopped.value)
    # Who makes the rest does not matter.
    assert audit("bsa", runs=20, overrides=FEW, out=out) == whole


def test_blocks_that_come_late_are_put_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[Any] = []

    def backwards(work: Any, items: Any, *others: Any) -> Any:
        blocks.extend(items)
        yield from ((item, work(item)) for item in reversed(items))

    whole = audit("bsa", runs=20, overrides=FEW)
    monkeypatch.setattr(audit_runs, "in_parallel", backwards)
    assert audit("bsa", runs=20, overrides=FEW, jobs=2) == whole
    assert blocks == [tuple(range(0, 8)), tuple(range(8, 16)), tuple(range(16, 20))]


def test_a_worker_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(work: Any, items: Any, lost: Any, *others: Any) -> Any:
        yield items[0], lost("the process was killed by signal 9")

    monkeypatch.setattr(audit_runs, "in_parallel", ended)
    with pytest.raises(InputError, match="was killed by signal 9"):
        audit("bsa", runs=20, overrides=FEW, jobs=2)


def test_what_no_other_process_can_do_is_refused() -> None:
    job = build(load("bsa", FEW))
    with pytest.raises(InputError, match="a built job is audited in this process"):
        audit(job, runs=20, jobs=2)
    with pytest.raises(InputError, match="leave --jobs and --address out"):
        audit("dp_sgda", canaries=50, jobs=2)


def test_the_table_of_audits_takes_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(audit_command, "audit_every", lambda *given: asked.append(given[-1]) or True)
    commands.audit(every=True, address="auto")
    commands.audit(every=True, jobs=2)
    assert [asked[0].address, asked[1]] == ["auto", Workers(2, None)]
