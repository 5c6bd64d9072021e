"""Saved states of every shipped algorithm, to the bit and without code, also next to the records of agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp import InputError
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines.host import Host
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl, SavedState, Snapshot
from decentral_dp.errors import Stopped
from decentral_dp.files.durable import digest
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.folder import journal as interrupted_run
from decentral_dp.simulation.folder.states import (
    STATES,
    AgentStates,
    AuthorModule,
    from_bytes,
    module_of,
    to_bytes,
)
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.run import Run
from tests.golden.cases import is_planned_only, scenario_names
from tests.support.interruptions import interrupt, save_states_often
from tests.support.published import scenario_file
from tests.support.run_folders import rewrite_journal, rewrite_result
from tests.support.shards import write_shards

ROUNDS = 12
# A block of two agents, and one of another two.
SETTINGS = ["run.blocks=2", "run.evaluate_every=3", "run.agent_scores=true", "run.keep_releases=true"]


@pytest.fixture(scope="module")
def whole_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "shards"
    write_shards(load("ring_breast_cancer", ["topology.agents=4", f"algorithm.rounds={ROUNDS}"]), out)
    return out


@pytest.fixture(scope="module")
def undisturbed(whole_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("whole") / "run"
    return decentral_dp.run(load(whole_shards / "scenario.toml", SETTINGS), out=out)


@pytest.fixture
def shards(whole_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of agents, where a state is kept after every round."""
    save_states_often(monkeypatch)
    return Path(shutil.copytree(whole_shards, tmp_path / "shards"))


def cut_off(shards: Path, out: Path, *overrides: str) -> None:
    """Interrupt a run after its ninth round."""
    interrupt(load(shards / "scenario.toml", [*SETTINGS, *overrides]), out, 9)


def states(shards: Path) -> dict[int, dict[int, Path]]:
    """First agent of a block → round → file."""
    paths: dict[int, dict[int, Path]] = {}
    for path in (shards / STATES).glob("*.npz"):
        _, agent, t = path.stem.split("-")
        paths.setdefault(int(agent), {})[int(t)] = path
    return paths


def resumed_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, list[int]]:
    """Resume a run, and return it with the indices of its releases."""
    indices: list[int] = []
    release = ScheduledReleaser.release

    def counted(self: ScheduledReleaser, index: int, values: Any) -> Any:
        indices.append(index)
        return release(self, index, values)

    monkeypatch.setattr(ScheduledReleaser, "release", counted)
    return decentral_dp.resume(folder), indices


def assert_same(again: Run, expected: Run) -> None:
    for channel, value in expected.released.items():
        np.testing.assert_array_equal(again.released[channel], value, strict=True)
    pd.testing.assert_frame_equal(again.ledger, expected.ledger)
    pd.testing.assert_frame_equal(again.metrics, expected.metrics)
    assert again.folder is not None
    assert expected.folder is not None
    name = "releases.parquet"
    assert (again.folder / name).read_bytes() == (expected.folder / name).read_bytes()


def lose_nothing(shards: Path) -> None:
    return


def lose_last_of_one(shards: Path) -> None:
    states(shards)[2][8].unlink()


def damage_last_of_one(shards: Path) -> None:
    path = states(shards)[0][8]
    path.write_bytes(path.read_bytes()[:-1])


def lose_one_block(shards: Path) -> None:
    for path in states(shards)[2].values():
        path.unlink()


def swap_rounds(shards: Path) -> None:
    """Each file is whole, and neither is what the driver has a receipt of."""
    last, before = states(shards)[0][8], states(shards)[0][7]
    old = last.read_bytes()
    last.write_bytes(before.read_bytes())
    before.write_bytes(old)


def lose_all(shards: Path) -> None:
    shutil.rmtree(shards / STATES)


@pytest.mark.parametrize(
    ("lose", "first"),
    [
        (lose_nothing, 8),
        (lose_last_of_one, 7),
        (damage_last_of_one, 7),
        (lose_one_block, 0),
        (swap_rounds, 0),
        (lose_all, 0),
    ],
)
def test_a_run_resumes_from_the_last_round_of_all_blocks(
    lose: Callable[[Path], None],
    first: int,
    shards: Path,
    undisturbed: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_off(shards, tmp_path / "run")
    assert {agent: sorted(rounds) for agent, rounds in states(shards).items()} == {0: [7, 8], 2: [7, 8]}
    lose(shards)
    again, indices = resumed_run(tmp_path / "run", monkeypatch)
    per_round = again.simulation().ledger.releases_per_round
    assert min(indices) == first * per_round
    assert len(indices) == 2 * ((ROUNDS - first) * per_round + 1)
    assert_same(again, undisturbed)
    # A completed run leaves no state next to the records.
    assert not (shards / STATES).exists()


def test_a_run_with_lost_states_is_interrupted_again(
    shards: Path, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(shards, tmp_path / "run")
    lose_all(shards)
    held, rounds_seen = Host.save, list[int]()

    def cut(self: Host) -> Any:
        # Before the round that was measured last is reached again.
        rounds_seen.append(self._round)
        if self._round >= 5:
            raise KeyboardInterrupt
        return held(self)

    with monkeypatch.context() as context:
        context.setattr(Host, "save", cut)
        with pytest.raises(Stopped):
            decentral_dp.resume(tmp_path / "run")
    assert min(rounds_seen) < 5
    again, indices = resumed_run(tmp_path / "run", monkeypatch)
    assert min(indices) == 4 * again.simulation().ledger.releases_per_round
    assert_same(again, undisturbed)


def test_only_the_owner_reads_states_and_the_driver_has_receipts(shards: Path, tmp_path: Path) -> None:
    cut_off(shards, tmp_path / "run")
    for rounds in states(shards).values():
        assert {path.stat().st_mode & 0o777 for path in rounds.values()} == {0o600}
    assert (shards / STATES).stat().st_mode & 0o777 == 0o700
    contents = sorted((tmp_path / "run" / "in_progress").glob("saved-*.npz"))
    assert contents
    for path in contents:
        with np.load(path) as archive:
            # A JSON text of rounds and digests, and no array.
            assert archive.files == ["structure"]
            told = json.loads(str(archive["structure"]))
        text = json.dumps(told)
        assert len(told["list"]) == 2
        assert '"states"' in text
        assert '"float"' not in text


def test_a_digest_does_not_confirm_a_guess_of_the_state(tmp_path: Path) -> None:
    home, state = AuthorModule("", {}), {"y": np.array([1.0, 2.0])}
    digests = {AgentStates(tmp_path / STATES, f"run-{k}", home).write(3, state)[-1][1] for k in range(2)}
    assert len(digests) == 2
    assert not digests & {digest(to_bytes(state, home)), digest(to_bytes({"salt": "", "state": state}, home))}


def test_two_runs_on_the_same_records_keep_apart(
    shards: Path, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(shards, tmp_path / "one")
    cut_off(shards, tmp_path / "two")
    assert len(list((shards / STATES).glob("*.npz"))) == 8
    assert_same(decentral_dp.resume(tmp_path / "one"), undisturbed)
    assert {agent: sorted(rounds) for agent, rounds in states(shards).items()} == {0: [7, 8], 2: [7, 8]}
    again, indices = resumed_run(tmp_path / "two", monkeypatch)
    assert min(indices) == 8 * again.simulation().ledger.releases_per_round


def test_records_in_a_folder_that_cannot_be_written(
    shards: Path, undisturbed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where the folder would be, since root may write anywhere.
    (shards / STATES).write_text("")
    cut_off(shards, tmp_path / "run")
    journal = (tmp_path / "run" / "in_progress" / "journal.jsonl").read_text()
    assert f"states of agents cannot be saved in {shards / STATES}" in journal
    again, indices = resumed_run(tmp_path / "run", monkeypatch)
    assert min(indices) == 0
    assert_same(again, undisturbed)


def test_another_machine_is_refused_if_agents_may_have_lost_states(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(shards, tmp_path / "run")
    paths, lock = interrupted_run.open_interrupted(tmp_path / "run")
    lock.close()
    assert paths.saved_state is not None
    # All that may be out lies before the state.
    last = paths.saved_state[0]

    def capped(entry: dict[str, Any]) -> dict[str, Any]:
        return {k: min(v, last) if k in ("leased", "released") else v for k, v in entry.items()}

    rewrite_journal(tmp_path / "run", capped)
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    rewrite_result(tmp_path / "run", {**content, "rounds": min(content["rounds"], last)})
    monkeypatch.setattr(interrupted_run, "machine", lambda _device: {"processor": "another"})
    with pytest.raises(InputError, match="would be released again with different rounding"):
        decentral_dp.resume(tmp_path / "run")


OWN = AuthorModule(__name__, globals())
HERE = [n for n in scenario_names() if not is_planned_only(n)]


@pytest.mark.parametrize("name", HERE)
def test_every_shipped_scenario_resumes_from_a_file_to_the_bit(name: str) -> None:
    job = build_job(decentral_dp.load(scenario_file(name)))
    rounds = min(job.rounds, 3)
    home, rounds_seen, contents = module_of(job.algorithm), [], []

    def observe(s: Snapshot) -> bool:
        rounds_seen.append(s)
        if s.round == rounds - 1:
            contents.append(to_bytes(list(s.save().parts), home))
        return s.round == rounds

    expected = job.start(LocalEngine(), RunControl(range(rounds + 1), observe))
    saved = SavedState(rounds - 1, tuple(from_bytes(contents[0], home)))
    # The first round was charged before, the last after it was kept.
    again = job.start(LocalEngine(), RunControl([rounds], lambda s: s.round == rounds, saved_state=saved))
    for part in ("released", "published", "state"):
        for channel, value in getattr(expected.last_snapshot, part).items():
            np.testing.assert_array_equal(getattr(again.last_snapshot, part)[channel], value, strict=True)
    assert again.ledger.to_frame().equals(expected.ledger.to_frame())


class Inner(NamedTuple):
    a: Any
    b: float


@pytest.mark.parametrize(
    "value",
    [
        None,
        -0.0,
        float("nan"),
        {"x": [1, (2.5, "text")], 3: True},
        Inner(np.float64(1.0), 2.0),
        np.arange(12.0).reshape(3, 4)[:, 1:3],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.zeros((0, 3)),
        np.array(5, dtype=np.int32),
    ],
    ids=str,
)
def test_values_are_read_as_written(value: Any) -> None:
    read = from_bytes(to_bytes(value, OWN), OWN)
    assert type(read) is type(value)
    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(read, value, strict=True)
        assert value.size == 0 or read.strides == value.strides
    elif isinstance(value, Inner):
        assert read == value
        assert type(read.a) is np.float64
    else:
        assert repr(read) == repr(value)


def test_objects_without_values_are_refused() -> None:
    for bad in (object(), lambda: None, np.array([object()]), {"x": {1, 2}}):
        with pytest.raises(TypeError, match="cannot be saved"):
            to_bytes(bad, OWN)
    with pytest.raises(TypeError, match="define it at the top"):
        to_bytes(Inner(1.0, 2.0), AuthorModule("another_module", {}))

    class Hidden(NamedTuple):
        a: Any

    # It is kept only where it would be found again.
    with pytest.raises(TypeError, match="define it at the top"):
        to_bytes(Hidden(1.0), OWN)


@pytest.mark.parametrize(
    "described",
    [
        {"named": ["os", "system"], "parts": [{"value": "true"}]},
        {"named": ["subprocess", "Popen"], "parts": [{"value": "true"}]},
        {"named": ["decentral_dp.config.loading", "load"], "parts": [{"value": "quadratic"}]},
        {"named": ["decentral_dp.config.loading", "Path"], "parts": [{"value": "quadratic"}]},
        {"array": "a9", "scalar": False},
        {"nothing": 1},
    ],
)
def test_a_state_file_cannot_name_code_to_call(described: Any) -> None:
    import io
    import json

    out = io.BytesIO()
    np.savez(out, structure=np.array(json.dumps(described)))
    with pytest.raises(ValueError, match="not a file of saved values"):
        from_bytes(out.getvalue(), OWN)
