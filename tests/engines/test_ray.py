"""The Ray engine: the same numbers as in this process, errors as sentences, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import yaml

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.config.schema import Scenario
from decentral_dp.engines import Recovery
from decentral_dp.engines import ray as ray_engine
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from decentral_dp.engines.ray import RayEngine, start_actors
from decentral_dp.errors import InputError
from decentral_dp.simulation.events import Progress
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.build import with_blocks
from tests.support.ray_processes import descendants, ray_actors, ray_processes

Make = Callable[..., dict[str, Any]]
ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"


@pytest.mark.parametrize("per_actor", [1, 2, 5])
def test_ray_gives_the_same_numbers_and_the_same_ledger(scenario: Make, ray_cluster: None, per_actor: int) -> None:
    base = scenario(
        topology={"kind": "random_regular", "degree": 4}, problem={"stream": {"kind": "minibatch", "batch": 6}}
    )
    local = decentral_dp.run(base)
    base["run"] |= {"engine": "ray", "agents_per_actor": per_actor, "average": 3}
    remote = decentral_dp.run(base)
    assert remote.result["status"] == "ok"
    assert remote.records.same_releases(local.records)
    for channel, value in local.released.items():
        np.testing.assert_allclose(remote.released[channel], value, atol=1e-9, rtol=0)
        np.testing.assert_allclose(remote.state[channel], local.state[channel], atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgd_dual"])
def test_agents_are_hosted_by_as_many_actors_as_the_cluster_has_cores(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    import ray

    base = load(name, ["algorithm.rounds=4"])
    begun: list[int] = []

    def counted(kind: type[Any], places: Any, *more: Any) -> list[Any]:
        begun.append(len(places))
        return start_actors(kind, places, *more)

    monkeypatch.setattr("decentral_dp.engines.ray.start_actors", counted)
    there = {"engine": "ray", "agents_per_actor": "auto"}
    remote = decentral_dp.run(changed(base, there), out=tmp_path / "run")
    assert begun == [ray.cluster_resources()["CPU"]] == [2]
    m = remote.simulation().n_agents
    kept = tomllib.loads((tmp_path / "run" / "scenario.toml").read_text(encoding="utf-8"))
    assert kept["run"]["agents_per_actor"] == math.ceil(m / 2)
    local = decentral_dp.run(base)
    assert remote.records.same_releases(local.records)
    for channel, value in local.released.items():
        np.testing.assert_allclose(remote.released[channel], value, atol=1e-9, rtol=0)


def test_auto_is_one_agent_an_actor_where_they_have_places_and_nothing_elsewhere(scenario: Make) -> None:
    placed = build(scenario(run={"engine": "ray", "agents_per_actor": "auto", "place": "site-{agent}"}))
    assert with_blocks(placed).sizes() == [1] * placed.n_agents
    here = build(scenario(run={"agents_per_actor": "auto", "blocks": 2}))
    assert with_blocks(here) is here
    assert here.sizes() == [3, 2]


def changed(given: Scenario, run: dict[str, Any]) -> Scenario:
    return given.model_copy(update={"run": given.run.model_copy(update=run)})


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgd_dual"])
def test_released_values_are_kept_on_both_engines(name: str, ray_cluster: None, tmp_path: Path) -> None:
    base = ["algorithm.rounds=5", "run.keep_releases=true", "run.evaluate_every=2"]
    tables = []
    for engine in ("local", "ray"):
        more = ['run.engine="ray"', "run.agents_per_actor=4"] if engine == "ray" else []
        decentral_dp.run(load(name, [*base, *more]), out=tmp_path / engine)
        tables.append(pd.read_parquet(tmp_path / engine / "releases.parquet"))
    pd.testing.assert_frame_equal(*(t.drop(columns="values") for t in tables))
    for one, other in zip(*(t["values"] for t in tables), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", ["gossip", "changing", "dp_bilevel"])
def test_lost_actors_are_started_again_with_the_same_draws(scenario: Make, ray_cluster: None, name: str) -> None:
    import ray

    engine = RayEngine(recovery=Recovery(save_every=0.05))
    rounds = 6 if name == "dp_bilevel" else 60
    graph = {"kind": "complete", "over_time": "one_peer_exponential", "drop": 0.1} if name == "changing" else {}
    given: Any = name
    if name != "dp_bilevel":
        given = scenario(algorithm={"rounds": rounds}, topology={"agents": 4, **graph})
    job = build(load(given, [f"algorithm.rounds={rounds}", "run.agents_per_actor=2", 'run.engine="ray"']))
    seen: list[int] = []

    def kill_one(s: Any) -> bool:
        seen.append(s.round)
        if s.round in (1, rounds // 2):
            os.kill(ray_actors()[0], signal.SIGKILL)
        return False

    evaluated = [1, rounds // 2, rounds]
    survived = job.start(engine, RunControl(evaluated, kill_one))
    assert ray.is_initialized(), "the cluster was not ours to end"
    assert seen == evaluated, "no round is observed twice"
    undisturbed = job.start(RayEngine(), RunControl(evaluated))
    for channel, value in undisturbed.last_snapshot.released.items():
        np.testing.assert_array_equal(survived.last_snapshot.released[channel], value)
    assert survived.ledger.to_frame().equals(undisturbed.ledger.to_frame())
    _until(lambda: not ray_actors(), 20)


def test_an_actor_that_cannot_live_is_an_error_and_the_others_end(
    scenario: Make, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from decentral_dp.engines import ray as module

    monkeypatch.setattr("decentral_dp.engines.protocol.RECOVERY", Recovery(restarts=1, pause=0.0, heartbeat=0.2))
    run = {"engine": "ray", "agents_per_actor": 3}
    given = decentral_dp.load(scenario(algorithm={"rounds": 400}, run=run))
    advance = module.Actor.advance

    def die(self: Any, *messages: Any) -> Any:
        if len(messages):
            os._exit(1)
        return advance(self)

    monkeypatch.setattr(module.Actor, "advance", die)
    with pytest.raises(RuntimeError, match="ended 2 times after round 0"):
        decentral_dp.run(given)
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
        mine = descendants([started.pid])
        return {pid: line for pid, line in ray_processes().items() if pid in mine}

    journal = tmp_path / "run" / "in_progress" / "journal.jsonl"
    _until(lambda: journal.is_file() and b"leased" in journal.read_bytes(), 300)
    begun = ours().keys()
    assert any("Actor" in line for line in ours().values())
    started.send_signal(number)
    assert started.wait(timeout=60) == 130
    _until(lambda: not begun & ray_processes().keys(), 30)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "interrupted"
    assert (tmp_path / "said").read_text().count("\n") == 1


def test_compose_file_is_valid() -> None:
    file = yaml.safe_load(COMPOSE.read_text())
    assert set(file["services"]) == {"head", "worker", "runner"}
    for service in file["services"].values():
        # No token that everybody knows, and no port that everybody reaches.
        assert service["environment"]["RAY_AUTH_TOKEN"].startswith("${RAY_AUTH_TOKEN:?")
        assert not service.keys() & {"ports", "network_mode"}
        # Older clients, such as Debian's, know no Dockerfile inside the file.
        assert set(service["build"]) == {"context", "args", "dockerfile"}
    client = shutil.which("docker")
    if client is None or subprocess.run([client, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose client here; the YAML was parsed all the same")
    checked = subprocess.run(
        [client, "compose", "-f", str(COMPOSE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RAY_AUTH_TOKEN": secrets.token_hex(32)},
    )
    assert checked.returncode == 0, checked.stderr


def test_the_image_has_what_the_package_is_built_from() -> None:
    """Every path of the repository that the build reads, and nothing that is not there."""
    build = yaml.safe_load(COMPOSE.read_text())["services"]["head"]["build"]
    assert build["context"] == "."
    text = (ROOT / build["dockerfile"]).read_text()
    # What one stage takes from another does not lie in the repository.
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


def test_a_ray_of_our_own_lets_nobody_in_who_has_no_token(tmp_path: Path) -> None:
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


def test_a_ray_that_knows_no_tokens_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(ray_engine.importlib, "import_module", missing)
    with pytest.raises(InputError, match=r"ray 2\.52"):
        ray_engine._ask_for_token()
    assert "RAY_AUTH_MODE" not in os.environ


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
def test_a_head_that_wants_a_token_is_joined_with_the_one_that_is_there(
    token: bool, mode: str | None, joined_by: str, tmp_path: Path
) -> None:
    """`ray start --head` wants a token where ~/.ray/auth_token is; Ray itself offers none to an explicit address."""
    if token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = kept | {"HOME": str(tmp_path)} | ({} if mode is None else {"RAY_AUTH_MODE": mode})
    done = subprocess.run(
        [sys.executable, "-c", JOINING], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == f"mode {joined_by}", done.stderr
    assert "WARNING" not in done.stderr


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The head and worker of docker-compose.yml, started by its own commands, as two hosts of the loopback range."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    port, head = _free_port(), "127.0.0.2"
    for name, value in services["head"]["environment"].items():
        monkeypatch.setenv(name, secrets.token_hex(32) if name == "RAY_AUTH_TOKEN" else value)
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "120")  # a busy machine is slower than the default of 30
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    started: list[subprocess.Popen[bytes]] = []
    try:
        for service, host in (("head", head), ("worker", "127.0.0.3")):
            command = services[service]["command"].replace("head:", f"{head}:").replace("6379", str(port)).split()
            command += [f"--node-ip-address={host}"] + (["--num-cpus=1"] if service == "worker" else [])
            with (tmp_path / f"{service}.log").open("w") as log:
                started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
            _until(lambda s=service: "Ray runtime started" in (tmp_path / f"{s}.log").read_text(), 120)  # type: ignore[misc]
        yield f"{head}:{port}"
    finally:
        # Taken before they end: what a killed node leaves behind is ours too, and nobody's child any more.
        ours = descendants([process.pid for process in started])
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
        for process in started:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for pid in ours & ray_processes().keys():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_two_nodes_run_networks_that_change(two_nodes: str, tmp_path: Path) -> None:
    """Lost and late messages, agents away, arcs: the bits of one process."""
    late = {"kind": "ring", "agents": 6, "over_time": "matching", "drop": 0.2, "offline": 0.2, "delay": 1}
    arcs = {"kind": "erdos_renyi", "agents": 6, "probability": 0.6, "directed": True, "drop": 0.2}
    arcs["over_time"] = "resample"
    for name, algorithm, topology in (("late", "dp_dsgd", late), ("arcs", "push_sum", arcs)):
        given: dict[str, Any] = {
            "seed": 5,
            "problem": {"kind": "classification", "data": "breast_cancer", "scale": "public_ranges", "test": 0.2},
            "topology": topology,
            "algorithm": {"kind": algorithm, "rounds": 12, "y": {"scale": 0.5}},
            "privacy": {"mechanism": "gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": {"y": 0.1}},
            "run": {"agents_per_actor": 2},
        }
        (tmp_path / f"{name}.toml").write_text(tomli_w.dumps(given))
        done = _cli("run", f"{name}.toml", "--engine", "ray", "--out", name, cwd=tmp_path, address=two_nodes)
        assert done.returncode == 0, done.stderr
        here = decentral_dp.run(given)
        with np.load(tmp_path / name / "state.npz", allow_pickle=False) as there:
            for channel, value in here.released.items():
                np.testing.assert_array_equal(there[f"released_{channel}"], value)
        assert pd.read_parquet(tmp_path / name / "ledger.parquet").equals(here.ledger)


@pytest.mark.parametrize("name", ["scenario", "dp_sgd_dual"])
def test_agents_are_where_their_machines_are(
    scenario: Make, own_resources: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import ray

    from decentral_dp.engines import ray as module

    asked: list[dict[str, float]] = []
    wanted = module.resources_of

    def seen(place: str | None, agents: Any) -> dict[str, float]:
        asked.append(wanted(place, agents))
        return asked[-1]

    monkeypatch.setattr("decentral_dp.engines.ray.resources_of", seen)
    given: Any = scenario(topology={"agents": 4}, algorithm={"rounds": 3}) if name == "scenario" else name
    more = ["algorithm.rounds=3", "topology.agents=4", "run.agents_per_actor=2"]
    there = load(given, [*more, 'run.engine="ray"', 'run.place="site-{agent}"'])

    def look(at: Progress) -> None:
        # While it runs, an actor holds a trace of each of them; Ray tells so a little later.
        _until(lambda: all(0.0 < ray.available_resources()[f"site-{agent}"] < 1.0 for agent in range(4)), 20)

    done = decentral_dp.run(there, callbacks=[look])
    here = decentral_dp.run(load(given, more))
    for channel, value in here.released.items():
        np.testing.assert_allclose(done.released[channel], value, atol=1e-9, rtol=0)
    assert [sorted(a) for a in asked] == [["site-0", "site-1"], ["site-2", "site-3"]]
    with pytest.raises(decentral_dp.InputError, match=r"run\.place: "):
        decentral_dp.run(load(given, [*more, 'run.engine="ray"', 'run.place="desk-{agent}"']))


@pytest.fixture
def own_resources(ray_cluster: None) -> Iterator[None]:
    """The shared Ray again, with resources that name sites."""
    import ray

    options: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    ray.shutdown()
    ray.init(address="local", **options, resources={f"site-{agent}": 1 for agent in range(4)})
    yield
    ray.shutdown()
    ray.init(address="local", **options, logging_level="ERROR")


def test_observer_can_end_a_run_early(scenario: Make) -> None:
    job = build(decentral_dp.load(scenario()))
    seen: list[int] = []
    outcome = LocalEngine().run(job.nodes(), 6, RunControl(range(7), lambda s: seen.append(s.round) or s.round == 2))
    assert seen == [0, 1, 2]
    assert outcome.ledger.rounds == 2


def _until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def _cli(*arguments: str, cwd: Path, address: str) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, "-m", "decentral_dp.cli.main", *arguments], {"RAY_ADDRESS": address}
    return subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=180, check=False
    )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
