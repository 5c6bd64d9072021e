"""How much memory a run takes as its rounds grow: `python -m tests.benchmarks.memory_over_rounds 10000 100000`.

Each run is a process of its own with a folder: 100 agents, one coordinate, certified, states kept, evaluated ten times.
The largest resident size of the process is what the kernel says. `--keep-releases` writes released values as well.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENTS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="+")
    parser.add_argument("--keep-releases", action="store_true")
    parser.add_argument("--alone", action="store_true", help="run here, and print the peak")
    asked = parser.parse_args()
    if asked.alone:
        print(f"{_peak(asked.rounds[0], asked.keep_releases):.0f}")
        return
    print(f"{'rounds':>9} {'peak MB':>8} {'seconds':>8}")
    more = ["--keep-releases"] if asked.keep_releases else []
    for rounds in asked.rounds:
        started = time.monotonic()
        command = [sys.executable, "-m", __spec__.name, str(rounds), "--alone", *more]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"{rounds:9d} {float(done.stdout):8.0f} {time.monotonic() - started:8.0f}", flush=True)


def _peak(rounds: int, keep_releases: bool) -> float:
    """Megabytes."""
    import decentral_dp

    scenario = {
        "seed": 1,
        "problem": {
            "kind": "quadratic",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 1, "records": 10, "test_records": 10},
            "normalise": "l1",
        },
        "topology": {"kind": "ring", "agents": AGENTS},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": rounds,
            "x": {"scale": 0.05, "decay": 0.6},
            "y": {"scale": 0.05, "decay": 0.55},
            "z": {"scale": 0.05, "decay": 0.5},
        },
        "privacy": {
            "guarantee": "certified",
            "mechanism": "gaussian",
            **{c: {"scale": 1.0} for c in "xyz"},
            "clip": {"x": 1.0, "y": 1.0, "z": 1.0},
        },
        "run": {"evaluate_every": max(1, rounds // 10), "keep_releases": keep_releases},
    }
    with tempfile.TemporaryDirectory() as folder:
        decentral_dp.run(scenario, out=Path(folder) / "run")
    # Not ru_maxrss: that is what the parent had where that was more.
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024.0


if __name__ == "__main__":
    main()
