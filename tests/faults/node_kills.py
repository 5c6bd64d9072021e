"""The job of `deploy/rayjob.yaml` on a Ray of two nodes, whose processes are killed at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tomli_w
import yaml

import decentral_dp
from tests.support.ray_processes import descendants, ray_processes

from .kills import SCENARIO, Tally, unequal

_JOB = Path(__file__).parents[2] / "deploy" / "rayjob.yaml"
# Node ("" for any), and a part of a program's name on it ("" for all processes).
_KINDS = [("", "driver"), ("", "ray::Actor"), *(("head", part) for part in ("/gcs_server", "/raylet", ""))]
_KINDS += [("worker", "/raylet"), ("worker", "")]
_ROUNDS, _PATIENCE = 2000, 300.0


def kill_nodes(times: int, seed: int, place: Path) -> Tally:
    """Kill processes of a job on two nodes at random moments, and give its command again, until it is complete.

    Start a new cluster for every attempt, as Kubernetes does. If the whole head is lost, so is the driver. A lost
    worker is replaced in the same attempt. Kills and the reached rounds are printed to stderr.

    Args:
        times: kills in all.
        seed: of the moments and of the processes.
        place: an empty folder.
    """
    content = json.loads(json.dumps(SCENARIO))
    content["algorithm"]["rounds"] = _ROUNDS
    content["run"] |= {"agents_per_actor": 2, "evaluate_every": 50, "keep_releases": True}
    (place / "scenario.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    decentral_dp.run(content, out=place / "here")
    draw, kills, runs = random.Random(seed), 0, 0
    with _cluster(place) as cluster:
        if cluster.driver(place / "whole").wait():
            raise RuntimeError(f"the job failed by itself: {cluster.output()}")
    length = json.loads((place / "whole" / "result.json").read_bytes())["seconds"]
    wrong = [f"without a kill: {difference}" for difference in unequal(place / "whole", place / "here")]
    while kills < times:
        folder, complete = place / f"run-{runs}", False
        while not complete:
            with _cluster(place) as cluster:
                since, before, driver = time.time(), kills, cluster.driver(folder)
                begun = draw.random() < 0.25
                # Three of four times the first kill comes when rounds are under way.
                while not (begun or _goes_on(folder, since) or _ends(driver, 0.1)):
                    pass
                while cluster.has_head and kills < times and not _ends(driver, draw.expovariate(3.0 / length)):
                    (node, part), reached = draw.choice(_KINDS), _reached(folder)
                    if cluster.kill(node, part, driver, draw):
                        kills += 1
                        difference = " ".join(filter(None, (node, part.strip("/"))))
                        print(f"{kills}: {difference}; run {runs}, {reached}", file=sys.stderr, flush=True)
                if not _ends(driver, _PATIENCE):
                    driver.kill()
                    wrong.append(f"run {runs} hangs: {cluster.output()}")
                complete = driver.wait() == 0
                if not complete and kills == before:
                    raise RuntimeError(f"run {runs} failed by itself: {cluster.output()}")
        wrong += [f"run {runs}: {difference}" for difference in unequal(folder, place / "here")]
        runs += 1
    return Tally(kills, runs, wrong)


def _ends(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.returncode is not None


def _goes_on(folder: Path, since: float) -> bool:
    """Return whether rounds were allowed after this time."""
    journal = folder / "in_progress" / "journal.jsonl"
    with contextlib.suppress(OSError, IndexError):
        return journal.stat().st_mtime > since and b"leased" in journal.read_bytes().splitlines()[-1]
    return False


def _reached(folder: Path) -> str:
    if (folder / "result.json").is_file() and not (folder / "in_progress").is_dir():
        return "complete"
    with contextlib.suppress(OSError, ValueError):
        journal = (folder / "in_progress" / "journal.jsonl").read_bytes().splitlines()
        return f"round {max(json.loads(line).get('leased', 0) for line in journal)} of {_ROUNDS}"
    return "not begun"


class _Node:
    """`ray start --block`, which ends with its raylet, as a container does."""

    def __init__(self, place: Path, environment: dict[str, str], *arguments: str) -> None:
        shared = ["--block", "--num-cpus=1", "--disable-usage-stats", "--object-store-memory=100000000"]
        log = place / f"node-{time.monotonic_ns()}"
        with log.open("wb") as out:
            command = [str(Path(sys.executable).with_name("ray")), "start", *shared, *arguments]
            self.process = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        deadline = time.monotonic() + _PATIENCE
        while b"Ray runtime started" not in log.read_bytes():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RuntimeError(f"a node does not start: {log.read_text()}")
            time.sleep(0.1)

    def named(self, part: str) -> list[int]:
        below = descendants([self.process.pid])
        return [pid for pid, line in ray_processes().items() if pid in below and part in line.split()[0]]

    def end(self) -> None:
        """Kill all of its processes."""
        for pid in (self.process.pid, *descendants([self.process.pid])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


class _Cluster:
    """A head and a worker, and the job that is given to them."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._place, self._joining = place, f"--address=127.0.0.1:{port}"
        secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # A driver whose head is gone gives up after a minute by default.
        patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": "10"}
        self._environment = os.environ | secret | patience | {"RAY_ADDRESS": f"127.0.0.1:{port}"}
        head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={place}/ray")
        self._nodes = {"head": _Node(place, self._environment, *head)}
        self._nodes["worker"] = _Node(place, self._environment, self._joining)
        self.has_head = True

    def driver(self, folder: Path) -> subprocess.Popen[bytes]:
        """Give the command of the job, with another scenario, into this folder."""
        job = next(yaml.safe_load_all(_JOB.read_text(encoding="utf-8")))
        _, command, _, *arguments = shlex.split(job["spec"]["entrypoint"])
        arguments[arguments.index("--out") + 1] = str(folder)
        program = [
            sys.executable,
            "-m",
            "decentral_dp.cli.main",
            command,
            str(self._place / "scenario.toml"),
            *arguments,
        ]
        with (self._place / "output").open("wb") as output:
            return subprocess.Popen(program, env=self._environment, stdout=output, stderr=output)

    def output(self) -> str:
        return (self._place / "output").read_text(encoding="utf-8").strip()

    def kill(self, node: str, part: str, driver: subprocess.Popen[bytes], draw: random.Random) -> bool:
        """Kill a process, by a part of its name, of one node or any; or a whole node. Returns whether it was there."""
        nodes = [self._nodes[node]] if node else list(self._nodes.values())
        if part:
            pids = [driver.pid] if part == "driver" else sorted(pid for n in nodes for pid in n.named(part))
            if not pids:
                return False
            os.kill(draw.choice(pids), signal.SIGKILL)
        elif node == "head":
            nodes[0].end()
            driver.kill()
        if node == "worker":
            # Its container ends, and another one begins.
            nodes[0].end()
            self._nodes["worker"] = _Node(self._place, self._environment, self._joining)
        self.has_head &= node != "head"
        return True

    def end(self) -> None:
        for node in self._nodes.values():
            node.end()


@contextlib.contextmanager
def _cluster(place: Path) -> Iterator[_Cluster]:
    cluster = _Cluster(place)
    try:
        yield cluster
    finally:
        cluster.end()
