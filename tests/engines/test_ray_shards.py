"""Records that are with their agents, on Ray: actors read them and the driver does not, on machines that are lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.data import agent_shards
from decentral_dp.engines import protocol
from decentral_dp.engines import ray as ray_engine
from decentral_dp.files.regular import regular
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.folder import journal
from decentral_dp.simulation.folder.states import STATES
from decentral_dp.simulation.result import is_complete
from tests.support.ray_processes import parent, ray_actors
from tests.support.shards import MANIFEST, write_shards


def manifest_alone(path: Path, *rest: Any) -> Path:
    """The manifest may be read, and no other file."""
    if path.name != MANIFEST:
        raise AssertionError("a shard was opened")
    return regular(path, *rest)


def test_actors_read_their_own_records_and_the_driver_none(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(load("ring_breast_cancer", ["topology.agents=4"]), tmp_path / "shards")
    overrides = ["algorithm.rounds=5", "run.evaluate_every=2", "run.agent_scores=true"]
    local = decentral_dp.run(load(tmp_path / "shards" / "scenario.toml", overrides))

    def opened(*_: Any, **__: Any) -> Any:
        raise AssertionError("a shard was opened")

    # Only this process is patched: actors import the package again.
    for name in ("load_dataset", "digest_of_shard", "read_arrays", "names_in"):
        monkeypatch.setattr(agent_shards, name, opened)
    monkeypatch.setattr(agent_shards, "regular", manifest_alone)
    # A state is asked for whenever something is evaluated, and stays where it is.
    monkeypatch.setattr(journal, "_INTERVAL", 0.0)
    loaded = load(tmp_path / "shards" / "scenario.toml", [*overrides, "run.engine='ray'", "run.agents_per_actor=3"])
    remote = decentral_dp.run(loaded, out=tmp_path / "run")
    for channel, value in local.released.items():
        np.testing.assert_array_equal(remote.released[channel], value, strict=True)
    assert remote.records.same_releases(local.records)
    assert remote.state == {}
    scores = [run.metrics.set_index(["round", "agent", "name"])["value"] for run in (local, remote)]
    pd.testing.assert_series_equal(*scores, rtol=1e-12, check_like=True)
    (tmp_path / "shards" / "agent-2.npz").unlink()
    with pytest.raises(decentral_dp.InputError, match=r"agent-2\.npz.* cannot be read"):
        decentral_dp.run(loaded, out=tmp_path / "without")
    assert not (tmp_path / "without").exists()
    shutil.copy(tmp_path / "shards" / "agent-1.npz", tmp_path / "shards" / "agent-2.npz")
    with pytest.raises(decentral_dp.InputError, match=r"agent 2: .*the manifest"):
        decentral_dp.run(loaded)


ROUNDS = 30


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of a head without cores; machines are added to it."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # The tests above share a cluster, which ends with this file.
    ray.shutdown()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def site(machines: Any, *agents: int) -> Any:
    """Add a machine on which these agents are."""
    node = machines.add_node(num_cpus=1, resources={f"site-{agent}": 1 for agent in agents})
    machines.wait_for_nodes()
    return node


def sites_of_actors() -> list[list[str]]:
    """Return, for every actor, the site resources of its machine."""
    sites = []
    for pid in ray_actors():
        fields = (
            (Path("/proc") / str(parent(pid)) / "cmdline").read_bytes().decode().replace("\0", " ").replace(",", " ")
        )
        sites.append(sorted({w.rpartition("=")[2] for w in fields.split() if w.rpartition("=")[2].startswith("site-")}))
    return sorted(sites)


def test_a_run_resumes_after_a_lost_site_from_its_states(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_INTERVAL", 0.0)
    monkeypatch.setattr(journal, "_SHARE", 1e9)
    rounds_begun: list[int] = []

    def from_round(saved: Any) -> int:
        rounds_begun.append(protocol.last_common(saved))
        return rounds_begun[-1]

    monkeypatch.setattr(ray_engine, "last_common", from_round)
    shards = tmp_path / "shards"
    write_shards(load("ring_breast_cancer", ["topology.agents=4"]), shards)
    shared = [f"algorithm.rounds={ROUNDS}", "run.evaluate_every=5", "run.agent_scores=true"]
    expected = decentral_dp.run(load(shards / "scenario.toml", shared))
    on_ray = ["run.engine='ray'", "run.place='site-{agent}'", "run.agents_per_actor=2"]
    loaded = load(shards / "scenario.toml", [*shared, *on_ray])
    nodes_left = [site(machines, 0, 1), site(machines, 2, 3)]
    seen: list[list[list[str]]] = []

    def lose(at: Progress) -> None:
        seen.append(sites_of_actors())
        if at.done >= 20 and len(nodes_left) == 2:
            machines.remove_node(nodes_left.pop(), allow_graceful=False)

    with pytest.raises(decentral_dp.InputError, match=r'no machine of the cluster has "site-2", "site-3"'):
        decentral_dp.run(loaded, out=tmp_path / "run", callbacks=[lose])
    assert seen[0] == [["site-0", "site-1"], ["site-2", "site-3"]]
    assert not is_complete(tmp_path / "run")
    agents = {path.name.split("-")[1] for path in (shards / STATES).iterdir()}
    assert agents == {"0", "2"}
    site(machines, 2, 3)
    again = decentral_dp.resume(tmp_path / "run")
    assert rounds_begun[0] == 0
    # The loss shows some rounds later, and both sites have kept states meanwhile.
    assert 15 <= rounds_begun[-1] < ROUNDS
    for channel, value in expected.released.items():
        np.testing.assert_array_equal(again.released[channel], value, strict=True)
    pd.testing.assert_frame_equal(again.ledger, expected.ledger)
    scores = [run.metrics.set_index(["round", "agent", "name"])["value"] for run in (expected, again)]
    pd.testing.assert_series_equal(*scores, rtol=1e-12, check_like=True)
    assert not (shards / STATES).exists()
