"""Secrets on Ray: who receives the token, errors of joining and starting, and no noise key in the head's memory."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import decentral_dp
from decentral_dp.config.loading import load_scenario as load
from decentral_dp.engines import ray as ray_engine
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import Streams
from tests.support.ray_processes import descendants, ray_processes


def test_a_ray_that_does_not_start_is_an_input_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(**_: Any) -> None:
        raise Exception(
            "The current node timed out during startup. This could happen because some of the raylet\nfailed."
        )

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", late)
    # As one who has decided of tokens, so that this process is left as it was.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(InputError, match=r"^run\.engine: .*timed out during startup"):
        decentral_dp.run(load("quadratic", ["algorithm.rounds=2", 'run.engine="ray"']))


def test_a_refused_token_and_an_absent_cluster_have_different_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 127.0.0.1:6379. This may be due to a firewall.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refused)
    monkeypatch.setattr(ray_engine, "_offer_token", lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as door:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{door.getsockname()[1]}")
        with pytest.raises(InputError, match=r"^RAY_ADDRESS .*rejected the connection"):
            decentral_dp.run(load("quadratic", ["algorithm.rounds=2", 'run.engine="ray"']))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "somewhere", "localhost:99999"])
def test_an_address_where_no_ray_is_found_is_not_ignored(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("a Ray was started or joined"))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(InputError, match=rf"^RAY_ADDRESS .*: no Ray cluster answers at '{address}'"):
        decentral_dp.run(load("quadratic", ["algorithm.rounds=2", 'run.engine="ray"']))


def test_a_note_of_a_cluster_that_another_user_wrote_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("a Ray was joined"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(InputError, match=r"there is no .*ray_current_cluster"), ray_engine.cluster("auto"):
        pass
    note = tmp_path / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    note.write_text("127.0.0.1:1")
    with pytest.raises(InputError, match="Connection refused"), ray_engine.cluster("auto"):
        pass
    monkeypatch.setattr(os, "geteuid", lambda: note.stat().st_uid + 1)
    monkeypatch.setattr(ray_engine, "_ROOT", note.stat().st_uid + 2)
    with pytest.raises(InputError, match="belongs to another user"), ray_engine.cluster("auto"):
        pass


# The empty frame of settings that HTTP/2 begins with.
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class Listener:
    """A listener that greets as a gRPC server does, acknowledges, and keeps what it is sent."""

    def __init__(self) -> None:
        self.received = bytearray()
        # Ray takes 127.0.0.1 for another name of this machine.
        self._server = socket.create_server(("127.0.0.2", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._server.accept()[0],), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(SETTINGS)
            while content := connection.recv(65536):
                self.received += content
                if SETTINGS not in content:
                    connection.sendall(SETTINGS[:4] + b"\x01" + SETTINGS[5:])

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()


def test_no_file_makes_this_process_send_its_token(listener: Listener, tmp_path: Path) -> None:
    """A scenario must not name a host that receives the token."""
    text = Path("scenarios/quadratic.toml").read_text(encoding="utf-8")
    address = f'engine = "ray"\naddress = "127.0.0.2:{listener.port}"\n'
    (tmp_path / "s.toml").write_text(text + address, encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-m", "decentral_dp.cli.main", "run", "s.toml"],
        cwd=tmp_path,
        env=_with_token(tmp_path, "c0ffee" * 10),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not listener.received
    assert "Traceback" not in process.stderr
    assert process.returncode == 2
    assert "run.address" in process.stderr


def _with_token(home: Path, token: str) -> dict[str, str]:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").write_text(token)
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {"HOME": str(home)}


def test_the_listener_receives_the_token_if_the_user_names_it(listener: Listener, tmp_path: Path) -> None:
    """The power of the test above."""
    token = secrets.token_hex(32)
    environment = _with_token(tmp_path, token) | {"RAY_ADDRESS": f"127.0.0.2:{listener.port}"}
    command = [sys.executable, "-m", "decentral_dp.cli.main", "run", "quadratic", "--engine", "ray"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as joining:
        deadline = time.monotonic() + 60
        while token.encode() not in listener.received and time.monotonic() < deadline:
            time.sleep(0.1)
        joining.kill()
    assert token.encode() in listener.received


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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/mem")
@pytest.mark.parametrize("name", ["ring_breast_cancer", "dp_sgd_dual"])
def test_no_key_of_secret_noise_is_in_the_memory_of_the_head(name: str, ray_cluster: None) -> None:
    import ray

    marker = os.urandom(32)
    # The power of the test: what an actor is made with stays there.
    holder = ray.remote(num_cpus=0)(_Holder).remote(marker)
    assert ray.get(holder.length.remote()) == 32
    ray.kill(holder)
    loaded = load(name, ["seed=null", "algorithm.rounds=3", "run.engine='ray'", "run.agents_per_actor=2"])
    process = decentral_dp.run(loaded)
    job = process.simulation()
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
