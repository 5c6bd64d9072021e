"""The Ray engine: the same numbers as in this process, errors as sentences, and nothing left behind."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import yaml

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.schema import Scenario
from decentral_dp.engines import Recovery
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.engines.ray import RayEngine, start_actors
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.build import with_blocks
from tests.support.ray_processes import descendants, ray_actors, ray_processes

Make = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgd_dual"])
def test_agents_are_hosted_by_as_many_actors_as_the_cluster_has_cores(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    import ray

    base = load(name, ["algorithm.rounds=4"])
    counts: list[int] = []

    def counted(kind: type[Any], places: Any, *overrides: Any) -> list[Any]:
        counts.append(len(places))
        return start_actors(kind, places, *overrides)

    monkeypatch.setattr("decentral_dp.engines.ray.start_actors", counted)
    on_ray = {"engine": "ray", "agents_per_actor": "auto"}
    remote = decentral_dp.run(changed(base, on_ray), out=tmp_path / "run")
    assert counts == [ray.cluster_resources()["CPU"]] == [2]
    m = remote.simulation().n_agents
    kept = tomllib.loads((tmp_path / "run" / "scenario.toml").read_text(encoding="utf-8"))
    assert kept["run"]["agents_per_actor"] == math.ceil(m / 2)
    local = decentral_dp.run(base)
    assert remote.records.same_releases(local.records)
    for channel, value in local.released.items():
        np.testing.assert_allclose(remote.released[channel], value, atol=1e-9, rtol=0)


def test_auto_is_one_agent_per_actor_with_places(scenario: Make) -> None:
    placed = build(scenario(run={"engine": "ray", "agents_per_actor": "auto", "place": "site-{agent}"}))
    assert with_blocks(placed).sizes() == [1] * placed.n_agents
    here = build(scenario(run={"agents_per_actor": "auto", "blocks": 2}))
    assert with_blocks(here) is here
    assert here.sizes() == [3, 2]


def changed(loaded: Scenario, run: dict[str, Any]) -> Scenario:
    return loaded.model_copy(update={"run": loaded.run.model_copy(update=run)})


@pytest.mark.parametrize("name", ["gossip", "changing", "dp_bilevel"])
def test_lost_actors_are_started_again_with_the_same_draws(scenario: Make, ray_cluster: None, name: str) -> None:
    import ray

    engine = RayEngine(recovery=Recovery(save_every=0.05))
    rounds = 6 if name == "dp_bilevel" else 60
    graph = {"kind": "complete", "over_time": "one_peer_exponential", "drop": 0.1} if name == "changing" else {}
    loaded: Any = name
    if name != "dp_bilevel":
        loaded = scenario(algorithm={"rounds": rounds}, topology={"agents": 4, **graph})
    job = build(load(loaded, [f"algorithm.rounds={rounds}", "run.agents_per_actor=2", 'run.engine="ray"']))
    observed: list[int] = []

    def kill_one(s: Any) -> bool:
        observed.append(s.round)
        if s.round in (1, rounds // 2):
            os.kill(ray_actors()[0], signal.SIGKILL)
        return False

    evaluated = [1, rounds // 2, rounds]
    survived = job.start(engine, RunControl(evaluated, kill_one))
    assert ray.is_initialized(), "the cluster was not ours to end"
    assert observed == evaluated, "no round is observed twice"
    undisturbed = job.start(RayEngine(), RunControl(evaluated))
    for channel, value in undisturbed.last_snapshot.released.items():
        np.testing.assert_array_equal(survived.last_snapshot.released[channel], value)
    assert survived.ledger.to_frame().equals(undisturbed.ledger.to_frame())
    _until(lambda: not ray_actors(), 20)


def test_an_actor_that_always_fails_ends_the_run(
    scenario: Make, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decentral_dp.engines import ray as module

    monkeypatch.setattr("decentral_dp.engines.protocol.RECOVERY", Recovery(restarts=1, pause=0.0, heartbeat=0.2))
    run = {"engine": "ray", "agents_per_actor": 3}
    loaded = decentral_dp.load(scenario(algorithm={"rounds": 400}, run=run))
    advance = module.Actor.advance

    def die(self: Any, *messages: Any) -> Any:
        if len(messages):
            os._exit(1)
        return advance(self)

    monkeypatch.setattr(module.Actor, "advance", die)
    with pytest.raises(RuntimeError, match="failed 2 times after round 0"):
        decentral_dp.run(loaded)
    _until(lambda: not ray_actors(), 20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupting_a_run_leaves_no_process(number: signal.Signals, scenario: Make, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(
        tomli_w.dumps(scenario(algorithm={"rounds": 100_000}, run={"engine": "ray", "evaluate_every": 50_000}))
    )
    command = [sys.executable, "-m", "decentral_dp.cli.main", "run", "long.toml", "--quiet", "--out", "run"]
    with (tmp_path / "said").open("w") as said:
        started = subprocess.Popen(command, cwd=tmp_path, stderr=said, start_new_session=True)

    def ours() -> dict[int, str]:
        # Others test on this machine, too.
        children = descendants([started.pid])
        return {pid: line for pid, line in ray_processes().items() if pid in children}

    journal = tmp_path / "run" / "in_progress" / "journal.jsonl"
    _until(lambda: journal.is_file() and b"leased" in journal.read_bytes(), 300)
    counts = ours().keys()
    assert any("Actor" in line for line in ours().values())
    started.send_signal(number)
    assert started.wait(timeout=60) == 130
    _until(lambda: not counts & ray_processes().keys(), 30)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    assert (tmp_path / "said").read_text().count("\n") == 1


def test_compose_file_is_valid() -> None:
    file = yaml.safe_load(COMPOSE.read_text())
    assert set(file["services"]) == {"head", "worker", "runner"}
    for service in file["services"].values():
        # No public token, and no open port.
        assert service["environment"]["RAY_AUTH_TOKEN"].startswith("${RAY_AUTH_TOKEN:?")
        assert not service.keys() & {"ports", "network_mode"}
        # Older clients, such as Debian's, know no Dockerfile inside the file.
        assert set(service["build"]) == {"context", "args", "dockerfile"}


def test_the_image_has_what_the_package_is_built_from() -> None:
    """Every path of the repository that the build reads, and nothing that is not there."""
    build = yaml.safe_load(COMPOSE.read_text())["services"]["head"]["build"]
    assert build["context"] == "."
    text = (ROOT / build["dockerfile"]).read_text()
    # Copies between stages are not in the repository.
    lines = [line for line in re.findall(r"^COPY (.*) \S+$", text, re.M) if not line.startswith("--from=")]
    copied = {source for line in lines for source in line.split()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", "hatch_build.py", project["project"]["readme"], *project["project"]["license-files"]}
    assert copied == needed | set(wheel["packages"]) | set(wheel["force-include"])
    assert all((ROOT / source).exists() for source in copied)
    # Bases of one version each, and a user that is not root.
    assert all(re.search(r":\d+\.\d+\.\d+-", base) for base in re.findall(r"^FROM (\S+)", text, re.M))
    assert re.search(r"^USER [1-9]\d*$", text, re.M)
    arguments = set(re.findall(r"^ARG (\w+)", text, re.M))
    assert set(build["args"]) == arguments


STARTING = """
import ray, stat, sys
from pathlib import Path
from decentral_dp.engines.ray import cluster
with cluster(None):
    token = Path.home() / ".ray" / "auth_token"
    print(oct(stat.S_IMODE(token.stat().st_mode)), bool(token.read_text().strip()))
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
"""
KNOCKING = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
"""


def test_a_started_ray_requires_a_token(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with subprocess.Popen(
        [sys.executable, "-c", STARTING],
        env=kept | {"HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline().split() == ["0o600", "True"]
        address = ours.stdout.readline().strip()
        knock = [sys.executable, "-c", KNOCKING, address]
        come = {"capture_output": True, "text": True, "check": False, "timeout": 120}
        stranger = kept | {"HOME": str(tmp_path / "elsewhere"), "RAY_AUTH_MODE": "disabled"}
        refused = subprocess.run(knock, env=stranger, **come)
        let_in = subprocess.run(knock, env=kept | {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}, **come)
        ours.communicate(timeout=60)
    assert refused.returncode != 0
    assert "Failed to connect" in refused.stderr
    assert let_in.returncode == 0, let_in.stderr


JOINING = """
import os, ray
from decentral_dp.engines import ray as engine
ray.init = lambda **options: print("mode", os.environ.get("RAY_AUTH_MODE"))
engine._check_reachable = lambda address: address
with engine.cluster("127.0.0.1:1"):
    pass
"""


@pytest.mark.parametrize(
    ("token", "mode", "joined_by"), [(True, None, "token"), (False, None, "None"), (True, "disabled", "disabled")]
)
def test_a_head_with_tokens_is_joined_with_the_users_token(
    token: bool, mode: str | None, joined_by: str, tmp_path: Path
) -> None:
    """`ray start --head` wants a token where ~/.ray/auth_token is; Ray itself offers none to an explicit address."""
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = kept | {"HOME": str(tmp_path)} | ({} if mode is None else {"RAY_AUTH_MODE": mode})
    process = subprocess.run(
        [sys.executable, "-c", JOINING], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert process.stdout.strip() == f"mode {joined_by}", process.stderr
    assert "WARNING" not in process.stderr


def test_observer_can_end_a_run_early(scenario: Make) -> None:
    job = build(decentral_dp.load(scenario()))
    observed: list[int] = []
    outcome = LocalEngine().run(
        job.nodes(), 6, RunControl(range(7), lambda s: observed.append(s.round) or s.round == 2)
    )
    assert observed == [0, 1, 2]
    assert outcome.ledger.rounds == 2


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
