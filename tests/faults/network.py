"""Two machines with a slow and lossy wire between them: network namespaces, and a bridge that delays and drops frames.

Linux alone, as root, where the kernel has network namespaces and TAP devices. What `tc netem` would do a thread does
here, since not every kernel has it.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import random
import secrets
import select
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tomli_w

import decentral_dp

from .kills import SCENARIO, Tally

# Of linux/if_tun.h: set the name of a device; Ethernet frames, without a header of its own.
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_DELAY, _LOSS = 0.05, 0.01
_PORT = 6391
_CLUSTER = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ADDRESS": f"10.211.7.1:{_PORT}",
}
_NAMES = ("ddp-fault-0", "ddp-fault-1")


def lossy_network(times: int, seed: int, place: Path) -> Tally:
    """Run on two Ray nodes, of one agent block each, with 50 ms delay and 1 % loss of frames in either direction.

    Args:
        times: runs.
        seed: of the frames that are lost.
        place: an empty folder.
    """
    given = json.loads(json.dumps(SCENARIO))
    rounds = given["algorithm"]["rounds"] = 40
    given["topology"]["agents"] = 4
    given["run"] = {"engine": "ray", "agents_per_actor": 2, "evaluate_every": rounds}
    (place / "scenario.toml").write_text(tomli_w.dumps(given), encoding="utf-8")
    here = decentral_dp.run({**given, "run": {"evaluate_every": rounds}})
    wrong: list[str] = []
    with _machines(seed) as lost:
        for run in range(times):
            command = ["-m", "decentral_dp.cli.main", "run", "scenario.toml", "--out", f"run-{run}", "--quiet"]
            done = _inside(0, [sys.executable, *command], cwd=place, capture_output=True, text=True, check=False)
            if done.returncode:
                wrong.append(f"run {run}: {done.stderr.strip()[-300:]}")
                continue
            with np.load(place / f"run-{run}" / "state.npz") as found:
                for channel, value in here.released.items():
                    if not np.array_equal(found[f"released_{channel}"], value):
                        wrong.append(f"run {run}: {channel} differs")
        wrong += ["no frame was lost"] * (not lost)
    return Tally(times, times - len(wrong), 0, wrong)


def is_possible() -> bool:
    """Whether namespaces and TAP devices can be made here."""
    try:
        os.close(_tap("ddpprobe"))
        _run("ip", "netns", "add", "ddp-probe")
        _run("ip", "netns", "del", "ddp-probe")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@contextlib.contextmanager
def _machines(seed: int) -> Iterator[list[int]]:
    """Two namespaces with a Ray node each. Gives the lengths of the frames that were lost."""
    taps, over, lost = [_tap(f"ddptap{k}") for k in range(2)], threading.Event(), list[int]()
    wire = threading.Thread(target=_carry, args=(taps, over, random.Random(seed), lost))
    try:
        for k, name in enumerate(_NAMES):
            _run("ip", "netns", "add", name)
            _run("ip", "link", "set", f"ddptap{k}", "netns", name)
            _inside(k, ["ip", "addr", "add", f"10.211.7.{k + 1}/24", "dev", f"ddptap{k}"], check=True)
            for device in ("lo", f"ddptap{k}"):
                _inside(k, ["ip", "link", "set", device, "up"], check=True)
        wire.start()
        shared = ["--num-cpus=1", "--disable-usage-stats"]
        head = ["--head", f"--port={_PORT}", "--node-ip-address=10.211.7.1", "--include-dashboard=false"]
        joined = [f"--address=10.211.7.1:{_PORT}", "--node-ip-address=10.211.7.2"]
        for k, own in enumerate((head, joined)):
            ray = str(Path(sys.executable).with_name("ray"))
            _inside(k, [ray, "start", *own, *shared], check=True, stdout=subprocess.DEVNULL)
        yield lost
    finally:
        for name in _NAMES:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
        over.set()
        if wire.is_alive():
            wire.join()
        for tap, name in zip(taps, _NAMES, strict=True):
            os.close(tap)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _tap(name: str) -> int:
    """A new TAP device of this name: what is written to it arrives there as a frame from the wire."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH14x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return tap


def _carry(taps: list[int], over: threading.Event, draw: random.Random, lost: list[int]) -> None:
    """Carry frames between two devices, late, and not all of them."""
    waiting: list[tuple[float, int, int, bytes]] = []
    number = 0
    while not over.is_set():
        until = waiting[0][0] - time.monotonic() if waiting else 0.1
        ready, _, _ = select.select(taps, [], [], min(0.1, max(0.0, until)))
        for tap in ready:
            with contextlib.suppress(BlockingIOError):
                frame = os.read(tap, 65536)
                if draw.random() < _LOSS:
                    lost.append(len(frame))
                    continue
                number += 1
                other = taps[1] if tap == taps[0] else taps[0]
                heapq.heappush(waiting, (time.monotonic() + _DELAY, number, other, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, tap, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):
                os.write(tap, frame)


def _inside(machine: int, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a namespace, with the address and the token of the cluster."""
    whole = ["ip", "netns", "exec", _NAMES[machine], *command]
    return subprocess.run(whole, env=os.environ | _CLUSTER, **options)  # type: ignore[call-overload, no-any-return] # options as given


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
