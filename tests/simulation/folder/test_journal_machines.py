"""Rounds in flight are repeated on machines that round as the first one did, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import decentral_dp
from decentral_dp.engines import arithmetic
from decentral_dp.errors import InputError, Stopped
from decentral_dp.reporting import page
from decentral_dp.simulation.folder import journal
from decentral_dp.simulation.folder.journal_lines import next_line, read_lines
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.result import seal, text_of
from tests.support.interruptions import interrupt, interrupt_at

ROUNDS = 6


@pytest.fixture(autouse=True)
def undrawn_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "draw_run", lambda folder: None)


@pytest.fixture
def base(scenario: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    return scenario(algorithm={"rounds": ROUNDS}, run={"evaluate_every": 1})


def test_the_machine_of_the_last_resume_counts(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun here without a release, resumed elsewhere, and not resumed here again: that would repeat other bits."""
    folder = tmp_path / "run"
    interrupt(base, folder, 3)
    lines = [json.loads(line) for line in (folder / "in_progress" / "journal.jsonl").read_text().splitlines()]
    # As after a crash before the first lease.
    lines_kept = [line for line in lines if "leased" not in line and "saved" not in line and "ended" not in line]
    (folder / "in_progress" / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines_kept))
    for state in (folder / "in_progress").glob("saved-*.npz"):
        state.unlink()
    running = json.loads((folder / "result.json").read_text()) | {"status": "running", "rounds": 0}
    (folder / "result.json").write_text(text_of(seal(running)))
    here = journal.machine()
    monkeypatch.setattr(journal, "machine", lambda device="cpu": {**here, "processor": "another"})

    with pytest.raises(Stopped):
        decentral_dp.resume(folder, callbacks=[interrupt_at(4)])
    monkeypatch.setattr(journal, "machine", lambda device="cpu": here)
    with pytest.raises(InputError, match="started with processor another"):
        decentral_dp.resume(folder)
    monkeypatch.setattr(journal, "machine", lambda device="cpu": {**here, "processor": "another"})
    assert decentral_dp.resume(folder).result.status == "ok"


def test_a_model_on_a_gpu_is_not_resumed_while_rounds_are_in_flight(tmp_path: Path) -> None:
    """Its kernels may round differently at every call: another value under the same noise."""
    pytest.importorskip("torch")
    from tests.support.emulated_device import emulated_cuda

    folder = tmp_path / "run"
    with emulated_cuda():
        base = decentral_dp.load(
            "wgan_digits", set={"algorithm.rounds": 4, "run.evaluate_every": 1, "run.device": "cuda"}
        )
        interrupt(base, folder, 3)
        before = {path: path.read_bytes() for path in (folder / "in_progress").iterdir()}
        with pytest.raises(InputError, match=r"^run\.device: rounds in flight"):
            decentral_dp.resume(folder)
        assert {path: path.read_bytes() for path in (folder / "in_progress").iterdir()} == before
        interruption, lock = journal.open_interrupted(folder)
        lock.close()
        nothing_released = replace(interruption, leased_rounds=0)
        job = build_job(decentral_dp.load(folder / "scenario.toml"))
        assert journal.root_of_run(nothing_released, job, folder) == interruption.root


def test_blocks_resume_on_their_machines(base: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    interrupt(base, folder, 3)
    path = folder / "in_progress" / "journal.jsonl"
    path.write_bytes(path.read_bytes() + next_line(read_lines(path).chain, {"machines": ["a", "b"]})[0])
    interruption, lock = journal.open_interrupted(folder)
    assert interruption.machines == ("a", "b")
    # For any engine of the scenario.
    lock.close()
    with pytest.raises(InputError, match="agents run on other processors"):
        decentral_dp.resume(folder)
    interruption, lock = journal.open_interrupted(folder)
    assert interruption.leased_rounds
    resumed = journal.RunInProgress(folder, decentral_dp.build(base), lock, interruption)
    resumed.check_machines(["a", "b"])
    with pytest.raises(InputError, match="agents run on other processors"):
        resumed.check_machines(["a", "c"])
    resumed.close()


def test_noise_that_neighbours_share_needs_machines_that_round_identically(
    base: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from decentral_dp.engines import local

    run = local.LocalEngine.run

    def on_two_machines(self: Any, nodes: Any, rounds: int, control: Any) -> Any:
        control.check_machines(["a", "b"])
        return run(self, nodes, rounds, control)

    monkeypatch.setattr(local.LocalEngine, "run", on_two_machines)
    assert decentral_dp.run(base).result.status == "ok"
    with pytest.raises(InputError, match=r"privacy\.correlation"):
        decentral_dp.run("shared_noise", set={"algorithm.rounds": 2})


@pytest.mark.parametrize("lines_kept", [1, 2, 3])
def test_a_journal_that_lacks_its_last_lines_is_refused(base: dict[str, Any], tmp_path: Path, lines_kept: int) -> None:
    """Every prefix of a journal is a chain; what it leads to is on disk, and counts."""
    folder = tmp_path / "run"
    interrupt(base, folder, 3)
    path = folder / "in_progress" / "journal.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines_kept]))
    with pytest.raises(InputError, match="lacks lines"):
        decentral_dp.resume(folder)


def test_changed_sources_of_the_package_are_another_machine(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    interrupt(base, folder, 3)
    monkeypatch.setattr(arithmetic, "package_digest", lambda: "another")
    with pytest.raises(InputError, match="started with sources"):
        decentral_dp.resume(folder)
