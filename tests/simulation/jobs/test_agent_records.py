"""Records that are with their agents: same bits as in one process, and a driver that never opens a file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.scenario_components import agent_shards_of
from decentral_dp.data import agent_shards
from decentral_dp.data.agent_shards import read_shard_manifest
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import Outcome
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import SecretRoot
from decentral_dp.simulation.jobs.build import build_job, run_digest
from decentral_dp.simulation.jobs.job import PlannedJob
from tests.support.interruptions import interrupt
from tests.support.shards import write_shards

WHOLE = ("ring_breast_cancer", ["topology.agents=4", "algorithm.rounds=6", "run.evaluate_every=3"])


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "shards"
    write_shards(load(*WHOLE), out)
    return out


def sharded(shards: Path, *overrides: str) -> PlannedJob:
    return build_job(load(shards / "scenario.toml", overrides))


def played(job: PlannedJob) -> Outcome:
    return job.start(LocalEngine())


def same(one: Outcome, other: Outcome) -> bool:
    """Return whether there are last released values and all are equal to the bit."""
    mine, expected = one.last_snapshot.released, other.last_snapshot.released
    return mine.keys() == expected.keys() and all(np.array_equal(mine[c], expected[c]) for c in ("x", "y", "z"))


@pytest.mark.parametrize("blocks", [1, 4])
def test_releases_are_equal_for_one_noise_key(shards: Path, blocks: int) -> None:
    root = b"r" * 32
    sharded_job = sharded(shards, f"run.blocks={blocks}").with_root(root)
    whole_job = build_job(load(*WHOLE)).with_root(root)
    assert same(played(sharded_job), played(whole_job))
    assert not same(played(sharded_job), played(whole_job.with_root(b"s" * 32)))


def test_the_budget_is_that_of_the_whole_data_set(shards: Path) -> None:
    sharded_job, whole_job = sharded(shards), build_job(load(*WHOLE))
    for name in ("epsilon", "epsilon_pure"):
        np.testing.assert_allclose(getattr(sharded_job.budget, name), getattr(whole_job.budget, name), rtol=1e-12)
    assert sharded_job.ledger.same_releases(whole_job.ledger)


def test_the_driver_opens_no_shard(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any, **__: Any) -> Any:
        raise AssertionError("a shard was opened")

    # No file of an agent is even there.
    public = tmp_path / "public"
    public.mkdir()
    for name in ("manifest.toml", "scenario.toml"):
        shutil.copy(shards / name, public)
    monkeypatch.setattr(agent_shards, "load_dataset", opened)
    job = sharded(public)
    assert np.isfinite(job.budget.epsilon).all()
    assert decentral_dp.plan(public / "scenario.toml").privacy.epsilon_max == job.budget.epsilon.max()
    assert np.isnan(job.shards.features).all()
    with pytest.raises(AssertionError, match="a shard was opened"):
        played(job)


def test_the_driver_sees_no_state_and_no_score(shards: Path) -> None:
    run = decentral_dp.run(load(shards / "scenario.toml"))
    assert run.state == {}
    assert set(run.published) == {"x", "y", "z"}
    names = set(run.metrics["name"])
    assert "consensus_x" in names
    assert not {name for name in names if name.startswith(("upper", "lower", "test", "hyper"))}
    assert "clipped" not in run.result["diagnostics"]
    assert run.result.baselines == {}
    assert any("metrics on them are left out" in note for note in run.result.problem["notes"])


def test_scores_that_agents_send_are_those_of_the_whole_data_set(shards: Path) -> None:
    root = b"r" * 32
    whole_job, sharded_job = (
        build_job(load(*WHOLE)).with_root(root),
        sharded(shards, "run.agent_scores=true", "run.blocks=3").with_root(root),
    )
    tables = []
    for job in (whole_job, sharded_job):
        last = played(job).last_snapshot
        tables.append({(of, name): value for _, of, name, value in job.evaluator().rows(last, is_average=False)})
    scores = [key for key in tables[0] if not key[1].startswith("hypergradient") and "unreleased" not in key[1]]
    assert {"upper_loss", "lower_loss", "test_loss", "test_accuracy", "consensus_y"} <= {name for _, name in scores}
    for key in scores:
        assert tables[1][key] == pytest.approx(tables[0][key], rel=1e-12, abs=1e-15)


def test_a_run_has_one_digest_for_one_manifest(shards: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(shards, tmp_path / "moved")
    assert run_digest(sharded(moved)) == run_digest(sharded(shards))
    manifest = moved / "manifest.toml"
    digest = read_shard_manifest(manifest).agents[2].sha256
    manifest.write_text(manifest.read_text().replace(digest, "0" * 64))
    assert run_digest(sharded(moved)) != run_digest(sharded(shards))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("train = 57", "train = 56", r"agent 1: .*has 57 train records .the manifest has 56"),
        ("validation = 57", "validation = 58", r"agent 1: .*has 57 validation records .the manifest has 58"),
        ('sha256 = "', 'sha256 = "00', r"agent 1: .*another SHA-256"),
        ('"mean radius"', '"mean radius", "one more"', r"agent 0: .*has 30 features .the manifest has 31"),
    ],
)
def test_a_shard_that_differs_from_the_manifest_is_refused(
    shards: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    moved = shutil.copytree(shards, tmp_path / "moved")
    manifest = moved / "manifest.toml"
    first, *agents = manifest.read_text().split("[[agents]]")
    if "radius" in old:
        first = first.replace(old, new)
    else:
        agents[1] = agents[1].replace(old, new)
        if "sha256" in old:
            agents[1] = agents[1].replace(agents[1].split('"')[1], agents[1].split('"')[1][:64])
    manifest.write_text("[[agents]]".join([first, *agents]))
    scale = "problem.scale='none'"
    with pytest.raises(InputError, match=message):
        decentral_dp.run(load(moved / "scenario.toml", [scale]), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (decentral_dp.audit, "audit: not supported with problem.manifest"),
        (decentral_dp.check, "check: not supported with problem.manifest"),
    ],
)
def test_commands_that_need_all_records_are_refused(shards: Path, command: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        command(load(shards / "scenario.toml"))
    assert str(refused.value).startswith(message)
    assert "set problem.data" in str(refused.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("problem.scale='standard'", "problem.scale: got 'standard'"),
        ("topology.agents=5", "problem.manifest: number of agents differs from topology.agents (got 4"),
    ],
)
def test_keys_without_effect_on_shards_are_refused(shards: Path, override: str, message: str) -> None:
    content = load(shards / "scenario.toml").model_dump(exclude_unset=True)
    with pytest.raises(InputError) as refused:
        build_job(load(content, [override], folder=shards))
    assert str(refused.value).startswith(message)


def test_resume_checks_the_files_again(shards: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(shards, tmp_path / "moved")
    interrupt(load(moved / "scenario.toml"), tmp_path / "run", 3)
    shutil.copy(moved / "agent-1.npz", moved / "agent-0.npz")
    with pytest.raises(InputError, match=r"agent 0: .*another SHA-256 than in the manifest"):
        decentral_dp.resume(tmp_path / "run")
    manifest = moved / "manifest.toml"
    zeroth, first = (one.sha256 for one in read_shard_manifest(manifest).agents[:2])
    manifest.write_text(manifest.read_text().replace(zeroth, first))
    with pytest.raises(InputError, match="are others than when the run was begun"):
        decentral_dp.resume(tmp_path / "run")


def test_secret_noise_depends_on_the_secrets_in_the_files(shards: Path, tmp_path: Path) -> None:
    content = load(shards / "scenario.toml").model_dump(exclude_unset=True)
    del content["seed"]
    root = SecretRoot(b"r" * 32)
    one = build_job(load(content, folder=shards)).with_root(root)
    # A driver's noise key does not suffice to draw the noise of the run; the same files draw it again.
    assert not same(played(one), played(build_job(load(*WHOLE)).with_root(root)))
    assert same(played(one), played(build_job(load(content, folder=shards)).with_root(root)))
    other = tmp_path / "again"
    write_shards(load(*WHOLE), other)
    assert not same(played(one), played(build_job(load(content, folder=other)).with_root(root)))


def test_records_as_csv_and_by_place(tmp_path: Path) -> None:
    lines = ["a,b,label", *(f"{k % 3},{k % 5},{'yes' if k % 2 else 'no'}" for k in range(6))]
    agents = []
    for agent in range(2):
        path = tmp_path / f"a{agent}.csv"
        path.write_text("\n".join(lines))
        agents.append({"train": 4, "validation": 2, "sha256": agent_shards.digest_of_shard(path)})
    manifest_table = {"features": ["a", "b"], "classes": ["no", "yes"], "range": [0.0, 3.0], "agents": agents}
    (tmp_path / "manifest.toml").write_text(tomli_w.dumps(manifest_table))
    content = load("ring_breast_cancer").model_dump(exclude_unset=True)
    content["problem"] = {
        "kind": "logistic_hyperparameter",
        "data": "a{agent}.csv",
        "manifest": "manifest.toml",
        "label": "label",
        "scale": "public_ranges",
    }
    content["topology"] = {"kind": "path", "agents": 2}
    content["algorithm"]["rounds"] = 2
    job = build_job(load(content, folder=tmp_path))
    assert [counts.tolist() for counts in job.counts.values()] == [[4, 4], [2, 2]]
    mine = agent_shards_of(job.components, 2)
    assert mine is not None
    read = mine.read_agent(1)
    # Cut at the public range, and scaled by it.
    np.testing.assert_allclose(read.features[4], [2.0 / 3.0 * 1 - 1.0, 1.0])
    assert read.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert (read.train[0].tolist(), read.validation[0].tolist()) == ([0, 1, 2, 3], [4, 5])
    assert (
        decentral_dp.run(
            content
            | {
                "problem": content["problem"]
                | {"data": f"{tmp_path}/a{{agent}}.csv", "manifest": str(tmp_path / "manifest.toml")}
            }
        ).result.status
        == "ok"
    )


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("digits_softmax", ["topology={kind='ring', agents=4}"]),
        ("hyper_cleaning", []),
        ("ldp_single_level", []),
        (
            "ring_breast_cancer",
            ["problem.sampling={kind='fixed_batch', batch_size=5}", "problem.partition={kind='by_class', share=0.5}"],
        ),
        # By a coordinator.
        ("dp_bilevel_breast_cancer", []),
        ("pp_ift", []),
        # Counts with noise how many records are of the second class.
        ("auc_digits", ["problem.positive_share='released'"]),
        ("double_spider", []),
        ("dp_sgd_dual", []),
    ],
)
def test_other_problems_and_partitions_have_equal_bits(name: str, overrides: list[str], tmp_path: Path) -> None:
    loaded = load(name, ["algorithm.rounds=3", *overrides])
    write_shards(loaded, tmp_path / "shards")
    sharded_job, whole_job = (
        build_job(s).with_root(b"r" * 32)
        for s in (load(tmp_path / "shards" / "scenario.toml", ["run.blocks=2"]), loaded)
    )
    one, other = played(sharded_job), played(whole_job)
    assert one.last_snapshot.released.keys() == other.last_snapshot.released.keys()
    for channel, value in other.last_snapshot.released.items():
        np.testing.assert_array_equal(one.last_snapshot.released[channel], value, strict=True)
    np.testing.assert_allclose(sharded_job.budget.epsilon, whole_job.budget.epsilon, rtol=1e-12)
    assert sharded_job.ledger.same_releases(whole_job.ledger)
    assert (sharded_job.shards.l1, sharded_job.shards.l2) == (whole_job.shards.l1, whole_job.shards.l2)
    assert set(whole_job.shards.all_notes) <= set(sharded_job.shards.all_notes)
