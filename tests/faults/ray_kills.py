"""Runs on Ray whose actors, machines or driver are killed at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import decentral_dp
from decentral_dp.engines import protocol
from decentral_dp.engines.local import LocalEngine
from decentral_dp.reporting import page
from decentral_dp.simulation.jobs.build import build_job as build
from tests.support.ray_processes import ray_actors

from .kills import SCENARIO, Tally, unequal


def kill_actors(times: int, seed: int, place: Path) -> Tally:
    """Kill a random actor of a Ray run at random moments of it.

    Args:
        times: kills in all.
        seed: of the moments.
        place: an empty folder.
    """
    import ray

    # A page takes longer than the run.
    page.draw_run = lambda *_: None
    content = json.loads(json.dumps(SCENARIO))
    content["algorithm"]["rounds"] = 1500
    content["topology"]["agents"] = 6
    # As many losses as it takes, one soon after the other.
    protocol.RECOVERY = protocol.Recovery(save_every=0.2, restarts=1000, pause=0.01, longest_pause=0.1)
    content["run"] |= {"engine": "ray", "agents_per_actor": 3, "evaluate_every": 250}
    content["run"]["keep_releases"] = True
    draw, kills, runs, wrong = random.Random(seed), [0], 0, list[str]()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        decentral_dp.run(content, out=place / "whole")
        while kills[0] < times:
            over = threading.Event()

            def disturb(over: threading.Event = over) -> None:
                while kills[0] < times and not over.wait(draw.uniform(0.3, 8.0)):
                    if actors := ray_actors():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(draw.choice(actors), signal.SIGKILL)
                            kills[0] += 1

            thread = threading.Thread(target=disturb)
            thread.start()
            try:
                decentral_dp.run(content, out=place / f"run-{runs}")
            finally:
                over.set()
                thread.join()
            wrong += [f"run {runs}: {difference}" for difference in unequal(place / f"run-{runs}", place / "whole")]
            runs += 1
        deadline = time.monotonic() + 20
        while ray_actors() and time.monotonic() < deadline:
            time.sleep(0.2)
        wrong += ["an actor is left behind"] * bool(ray_actors())
    finally:
        ray.shutdown()
    return Tally(kills[0], runs, wrong)


def lose_machines(times: int, seed: int, place: Path) -> Tally:
    """End a machine of a Ray cluster, with all of its processes, at random moments of a run; another joins later.

    Values that agents send are of 400 KB, so that they lie in the object store of their machine and are lost with it.

    Args:
        times: machines lost in all.
        seed: of the moments.
        place: not used.
    """
    import ray
    from ray.cluster_utils import Cluster

    from decentral_dp.engines import Recovery
    from decentral_dp.engines.protocol import RunControl
    from decentral_dp.engines.ray import RayEngine

    recovery = Recovery(save_every=0.5, restarts=1000, pause=0.1, longest_pause=1.0)
    content = json.loads(json.dumps(SCENARIO))
    rounds = content["algorithm"]["rounds"] = 60
    sizes = {"dimension": 4000, "records": 6, "test_records": 4}
    content["problem"] = {
        "kind": "logistic_hyperparameter",
        "data": "synthetic_classification",
        "synthetic": sizes,
        "normalise": "l1",
    }
    content["run"] |= {"engine": "ray", "agents_per_actor": 2, "evaluate_every": rounds}
    content["topology"]["agents"] = 4
    job = build(content)
    expected = job.start(LocalEngine(), RunControl([0, rounds]))
    draw, lost, runs, wrong = random.Random(seed), 0, 0, list[str]()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        while lost < times:
            machine = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            over = threading.Event()

            def end(over: threading.Event = over, machine: Any = machine) -> bool:
                """Return whether the machine was lost before the end of the run."""
                over_rounds = not over.wait(draw.uniform(0.2, 1.5))
                cluster.remove_node(machine, allow_graceful=False)
                return over_rounds

            with ThreadPoolExecutor(1) as pool:
                ended = pool.submit(end)
                again = job.start(RayEngine(recovery=recovery), RunControl([0, rounds]))
                over.set()
                lost, runs = lost + int(ended.result()), runs + 1
            for channel, value in expected.last_snapshot.released.items():
                if not np.array_equal(value, again.last_snapshot.released[channel]):
                    wrong.append(f"run {runs}: {channel} differs")
            if not again.ledger.to_frame().equals(expected.ledger.to_frame()):
                wrong.append(f"run {runs}: the ledger differs")
    finally:
        ray.shutdown()
        cluster.shutdown()
    return Tally(lost, runs, wrong)
