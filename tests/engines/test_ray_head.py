"""The memory of Ray's head after a run: no key of secret noise is in it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.privacy.randomness import Streams
from tests.support.ray_processes import descendants, ray_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/mem")


def _memory_of_head() -> list[bytes]:
    """The writable memory of our gcs_server, in pieces; skips where it may not be read."""
    ours = descendants([os.getpid()])
    (head,) = (pid for pid, line in ray_processes().items() if pid in ours and "/gcs_server" in line.split()[0])
    pieces = []
    try:
        with Path(f"/proc/{head}/mem").open("rb", buffering=0) as memory:
            for line in Path(f"/proc/{head}/maps").read_text().splitlines():
                span = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
                if span is None:
                    continue
                first, end = (int(number, 16) for number in span.groups())
                memory.seek(first)
                # A reserved page that was never touched cannot be read.
                with contextlib.suppress(OSError):
                    pieces.append(memory.read(end - first))
    except PermissionError:
        pytest.skip("the memory of another process may not be read here")
    return pieces


def _has(pieces: list[bytes], key: bytes) -> bool:
    return any(form in piece for piece in pieces for form in (key, key.hex().encode()))


@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgd_dual"])
def test_no_key_of_secret_noise_is_in_the_memory_of_the_head(name: str, ray_cluster: None) -> None:
    import ray

    marker = os.urandom(32)
    # The power of the test: what an actor is made with stays there.
    made = ray.remote(num_cpus=0)(_Holder).remote(marker)
    assert ray.get(made.length.remote()) == 32
    ray.kill(made)
    given = load(name, ["seed=null", "algorithm.rounds=3", "run.engine='ray'", "run.agents_per_actor=2"])
    done = decentral_dp.run(given)
    job = done.simulation()
    keys = [
        key
        for purpose in ("noise", "coins", "batch", "pair")
        for key in Streams(job.root, purpose, np.arange(job.n_agents))._keys
    ]
    pieces = _memory_of_head()
    assert _has(pieces, marker)
    assert not any(_has(pieces, key) for key in keys)


class _Holder:
    def __init__(self, value: bytes) -> None:
        self.value = value

    def length(self) -> int:
        return len(self.value)
