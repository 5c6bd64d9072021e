"""The Ray engine: the same numbers as in this process, errors as sentences, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import decentral_dp
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.ray import RayEngine
from decentral_dp.job import build

Make = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "docker-compose.yml"


@pytest.mark.parametrize("per_actor", [1, 2, 5])
@pytest.mark.parametrize("guarantee", ["certified", "as_printed"])
def test_ray_gives_the_same_numbers_and_the_same_ledger(
    scenario: Make, ray_cluster: None, per_actor: int, guarantee: str
) -> None:
    base = scenario(
        topology={"kind": "random_regular", "degree": 4}, problem={"stream": {"kind": "minibatch", "batch": 6}}
    )
    if guarantee == "as_printed":
        base["privacy"] = {"guarantee": guarantee, **dict.fromkeys("xyz", {"scale": 0.1})}
    local = decentral_dp.run(base)
    base["run"] |= {"engine": "ray", "agents_per_actor": per_actor, "average": 3}
    remote = decentral_dp.run(base)
    assert remote.result["status"] == "ok"
    assert remote.records.same_releases(local.records)
    for channel, value in local.released.items():
        np.testing.assert_allclose(remote.released[channel], value, atol=1e-9, rtol=0)
        np.testing.assert_allclose(remote.state[channel], local.state[channel], atol=1e-9, rtol=0)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_local_blocks_agree(scenario: Make, blocks: int) -> None:
    whole = decentral_dp.run(scenario())
    cut = decentral_dp.run(scenario(run={"blocks": blocks}))
    assert cut.records.same_releases(whole.records)
    for channel, value in whole.released.items():
        np.testing.assert_allclose(cut.released[channel], value, atol=1e-12, rtol=0)


def test_a_lost_actor_is_an_error_and_the_others_end(scenario: Make, ray_cluster: None) -> None:
    import ray

    job = build(decentral_dp.load(scenario(algorithm={"rounds": 400}, run={"engine": "ray"})))

    def kill_one(s: Any) -> bool:
        os.kill(_actors()[0], signal.SIGKILL)
        return False

    with pytest.raises(RuntimeError, match="actor ended before the run did"):
        RayEngine().run(job.nodes(), 400, [1, 400], kill_one)
    assert ray.is_initialized(), "the cluster was not ours to end"
    _until(lambda: not _actors(), 20)


def test_an_unreachable_cluster_is_one_sentence(scenario: Make, tmp_path: Path) -> None:
    free = _free_port()
    done = _cli(
        "run", "ring_breast_cancer", "--engine", "ray", "--set", f'run.address="127.0.0.1:{free}"', cwd=tmp_path
    )
    assert done.returncode == 2
    assert "no Ray cluster answers" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())


def test_interrupting_a_run_leaves_no_process(scenario: Make, tmp_path: Path) -> None:
    import tomli_w

    (tmp_path / "long.toml").write_text(
        tomli_w.dumps(scenario(algorithm={"rounds": 100_000}, run={"engine": "ray", "evaluate_every": 50_000}))
    )
    before = _ray_processes()
    command = [sys.executable, "-m", "decentral_dp.cli", "run", "long.toml", "--quiet"]
    started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    _until(lambda: any("Actor" in line for pid, line in _ray_processes().items() if pid not in before), 90)
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=60) == 130
    _until(lambda: not _ray_processes().keys() - before.keys(), 30)
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["long.toml"]


def test_compose_file_is_valid() -> None:
    file = yaml.safe_load(COMPOSE.read_text())
    assert set(file["services"]) == {"head", "worker", "runner"}
    client = shutil.which("docker")
    if client is None or subprocess.run([client, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose client here; the YAML was parsed all the same")
    checked = subprocess.run(
        [client, "compose", "-f", str(COMPOSE), "config", "--quiet"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[str]:
    """The head and worker of docker-compose.yml, started by its own commands, on loopback."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    port = _free_port()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        for service in ("head", "worker"):
            command = services[service]["command"].replace("head:6379", f"127.0.0.1:{port}").replace("6379", str(port))
            extra = ["--node-ip-address=127.0.0.1"] + (["--num-cpus=1"] if service == "worker" else [])
            with (tmp_path / f"{service}.log").open("w") as log:
                process = subprocess.Popen(
                    [*command.split(), *extra], stdout=log, stderr=log, env=environment, start_new_session=True
                )
            started.append(process)
            _wait_for_nodes(port, len(started), environment)
        yield f"127.0.0.1:{port}"
    finally:
        for process in reversed(started):
            # Only what was started here: its whole session.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def test_two_nodes_run_a_scenario(scenario: Make, two_nodes: str, tmp_path: Path) -> None:
    import json

    import tomli_w

    (tmp_path / "small.toml").write_text(tomli_w.dumps(scenario()))
    done = _cli(
        "run", "small.toml", "--engine", "ray", "--set", f'run.address="{two_nodes}"', "--out", "r", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert (result["status"], result["engine"]) == ("ok", "ray")
    here = decentral_dp.run(scenario())
    released = np.load(tmp_path / "r" / "state.npz", allow_pickle=False)["released_y"]
    np.testing.assert_allclose(released, here.released["y"], atol=1e-9, rtol=0)


def test_observer_can_end_a_run_early(scenario: Make) -> None:
    job = build(decentral_dp.load(scenario()))
    seen: list[int] = []
    outcome = LocalEngine().run(job.nodes(), 6, range(7), lambda s: seen.append(s.round) or s.round == 2)
    assert seen == [0, 1, 2]
    assert outcome.ledger.rounds == 2


def _actors() -> list[int]:
    return [pid for pid, line in _ray_processes().items() if line.startswith("ray::Actor")]


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def _cli(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "decentral_dp.cli", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=180, check=False)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _ray_processes() -> dict[int, str]:
    """Ray's processes on this machine, from /proc: pid → command line."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if "raylet" in line or line.startswith("ray::") or "gcs_server" in line:
            found[int(entry.name)] = line
    return found


def _wait_for_nodes(port: int, nodes: int, environment: dict[str, str]) -> None:
    check = (
        "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR');"
        "sys.exit(0 if len([n for n in ray.nodes() if n['Alive']]) >= int(sys.argv[2]) else 1)"
    )
    deadline = time.monotonic() + 60
    command = [sys.executable, "-c", check, f"127.0.0.1:{port}", str(nodes)]
    while subprocess.run(command, capture_output=True, env=environment, check=False).returncode:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{nodes} Ray nodes did not come up on port {port}")
        time.sleep(0.5)
