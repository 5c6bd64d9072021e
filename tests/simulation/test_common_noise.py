"""One seed gives one set of draws in every scenario; without a seed no two jobs share a draw."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import decentral_dp
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import SecretRoot
from decentral_dp.reporting import page
from decentral_dp.simulation.jobs.build import build_job
from tests.support.interruptions import interrupt
from tests.support.run_folders import rewrite_journal
from tests.support.training import changed
from tests.support.training import training as small_training

GRAPHS = ("ring", "star", "complete")
# Reads records that are in no file of the scenario.
LOADER = """
from pathlib import Path

import numpy as np


def load():
    table = np.load(Path(__file__).with_name("records.npy"))
    return table[:, :-1], table[:, -1]
"""
GOSSIP = ("ldp_single_level", "exact_diffusion", "random_walk")


def training(algorithm: str, graph: str, **tables: dict[str, Any]) -> dict[str, Any]:
    content = small_training(
        problem={"kind": "logistic_hyperparameter", "normalise": "l2"},
        topology={"kind": graph, "agents": 6},
        algorithm={"kind": algorithm, "rounds": 3},
        privacy={"epsilon": 2.0, "clip": 1.0},
        run={"evaluate_every": 3},
    )
    return changed(content, **tables) | {"seed": 3}


def noise_over_scale(content: dict[str, Any], index: int) -> np.ndarray:
    """Return the noise (m, 4) of channel y at this index, in standard deviations."""
    job = build_job(content)
    (node,) = job.nodes([job.n_agents])
    releaser = node.make_releaser()
    zeros = np.zeros((job.n_agents, 4))
    moved = Sensitivity(np.ones(job.n_agents), np.ones(job.n_agents), None)
    norm = "l1" if job.mechanism.name == "laplace" else "l2"
    out = releaser.release(index, {"y": Bounded(zeros, zeros, {"train": moved}, norm)})["y"]
    t = index // releaser.releases_per_round
    return np.asarray(out / releaser.schedules["y"].scales(t, job.mechanism)[:, None])


def test_central_does_not_depend_on_a_graph() -> None:
    """One seed gives the same values for every graph of the scenario."""
    runs = [decentral_dp.run(training("central", graph)) for graph in GRAPHS]
    for other in runs[1:]:
        for channel, value in runs[0].released.items():
            np.testing.assert_array_equal(other.released[channel], value)
        assert other.result.metrics == runs[0].result.metrics


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("index", [1, 2])
def test_noise_is_paired_over_graphs_and_algorithms(mechanism: str, index: int) -> None:
    privacy = {"mechanism": mechanism, "delta": 1e-5 if mechanism == "gaussian" else 0.0}
    drawn = [
        noise_over_scale(training(algorithm, graph, privacy=privacy), index) for algorithm in GOSSIP for graph in GRAPHS
    ]
    assert np.abs(drawn[0]).min() > 1e-4
    for other in drawn[1:]:
        # Scales differ, and their grids with them.
        np.testing.assert_allclose(other, drawn[0], atol=1e-4)


def test_records_and_starts_are_paired() -> None:
    jobs = [build_job(training(algorithm, graph)) for algorithm in GOSSIP for graph in GRAPHS]
    first = jobs[0]
    for other in jobs[1:]:
        assert other.shards.digest == first.shards.digest
        starts = [j.nodes([6])[0].program.init(j.nodes([6])[0].dataset) for j in (first, other)]
        for channel in first.algorithm.channels:
            values = [getattr(s, channel) for s in starts]
            values = [v.value if isinstance(v, Bounded) else v for v in values]
            np.testing.assert_array_equal(*values)


@pytest.mark.parametrize(
    "change",
    [
        {"privacy": {"epsilon": 4.0}},
        {"privacy": {"clip": 0.5}},
        {"algorithm": {"rounds": 5}},
        {"topology": {"weights": "lazy_metropolis"}},
        {"problem": {"seed": 4}},
        {"problem": {"kind": "softmax_hyperparameter", "data": "digits"}},
    ],
    ids=str,
)
def test_a_seed_settles_the_draws_and_nothing_else_does(change: dict[str, Any]) -> None:
    base = training("ldp_single_level", "ring")
    other = changed(base, **change)
    np.testing.assert_allclose(noise_over_scale(other, 1), noise_over_scale(base, 1), atol=1e-4)
    assert build_job(other).root == build_job(base).root != build_job({**other, "seed": 4}).root


def test_secret_jobs_share_no_noise() -> None:
    content = training("ldp_single_level", "ring")
    del content["seed"]
    jobs = [build_job(content) for _ in range(3)]
    assert all(isinstance(job.root, SecretRoot) for job in jobs)
    assert len({job.root.key for job in jobs if isinstance(job.root, SecretRoot)}) == 3
    first, second = noise_over_scale(content, 1), noise_over_scale(content, 1)
    assert np.abs(first - second).min() > 1e-6


def test_a_run_is_resumed_on_nothing_but_its_own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detect a changed bit of one record, even if no file of the scenario has changed."""
    monkeypatch.setattr(page, "draw_run", lambda folder: None)
    draw = np.random.default_rng(3)
    table = np.column_stack([draw.normal(size=(60, 2)), np.tile([0.0, 1.0], 30)])
    (tmp_path / "loader.py").write_text(LOADER)
    np.save(tmp_path / "records.npy", table)
    loaded = {"data": "loader:load", "classes": [0, 1], "scale": {"*": [-5.0, 5.0]}}
    content = training("ldp_single_level", "ring", problem=loaded, run={"evaluate_every": 1})
    content["code_folders"] = [str(tmp_path)]
    interrupt(content, tmp_path / "run", 2)
    other = table.copy()
    other[0, 0] = np.nextafter(other[0, 0], 9.0)
    np.save(tmp_path / "records.npy", other)
    with pytest.raises(InputError, match="others than when the run was begun"):
        decentral_dp.resume(tmp_path / "run")
    np.save(tmp_path / "records.npy", table)
    assert decentral_dp.resume(tmp_path / "run").result.status == "ok"


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("privacy", "clip", 0.5),
        ("algorithm", "learning_rate", {"scale": 0.25}),
        ("topology", "kind", "star"),
        ("problem", "test", 0.1),
        ("", "seed", 5),
    ],
)
def test_a_run_is_resumed_on_nothing_but_its_own_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None, table: str, key: str, value: Any
) -> None:
    """Noise that was drawn for one scenario is not drawn again for the values of another."""
    monkeypatch.setattr(page, "draw_run", lambda folder: None)
    content, folder = training("ldp_single_level", "ring", run={"evaluate_every": 1}), tmp_path / "run"
    content["seed"] = seed
    if seed is None:
        del content["seed"]
    interrupt(content, folder, 2)
    path = folder / "scenario.toml"
    text = path.read_text()
    content = tomllib.loads(text)
    (content[table] if table else content)[key] = value
    path.write_text(tomli_w.dumps(content))
    with pytest.raises(InputError):
        decentral_dp.resume(folder)
    # Also where the journal is bound to the changed scenario.
    rewrite_journal(folder)
    with pytest.raises(InputError, match="others than when the run was begun"):
        decentral_dp.resume(folder)
    path.write_text(text)
    rewrite_journal(folder)
    assert decentral_dp.resume(folder).result.status == "ok"
    assert json.loads((folder / "result.json").read_text())["status"] == "ok"
