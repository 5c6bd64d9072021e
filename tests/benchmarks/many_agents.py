"""Time and memory of whole runs, by agents: `python -m tests.benchmarks.many_agents`.

Certified LDP-DSBO for two rounds on a ring, 4 + 4 records of 10 features each, with its folder, figures and page, and
plans only, each in a separate process. The last run takes 6 to 9 GB and three minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

AGENTS = [1000, 10_000, 100_000, 1_000_000]


def alone(agents: int, runs: bool) -> None:
    """Run or plan here, and print seconds of the processor and the peak in MiB."""
    import decentral_dp

    step = {"scale": 0.1, "decay": 0.5}
    scenario: dict[str, Any] = {
        "seed": 1,
        "problem": {
            "kind": "logistic_hyperparameter",
            "data": "synthetic_classification",
            "synthetic": {"dimension": 10, "records": 8, "test_records": 4},
            "normalise": "l1",
        },
        "topology": {"kind": "ring", "agents": agents},
        "algorithm": {"kind": "ldp_dsbo", "rounds": 2, "x": step, "y": step, "z": step},
        "privacy": {"epsilon": 8.0, "clip": {"x": 1.0, "y": 1.0, "z": 1.0}},
        "run": {"evaluate_every": 2},
    }
    if runs:
        with tempfile.TemporaryDirectory() as folder:
            decentral_dp.run(scenario, out=Path(folder) / "run")
    else:
        decentral_dp.plan(scenario)
    # Not ru_maxrss: that is what the parent had where that was more.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024.0
    print(time.process_time(), peak)


def main() -> None:
    for what in ("run", "plan"):
        for agents in AGENTS:
            command = [sys.executable, "-m", __spec__.name, what, str(agents)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            seconds, peak = map(float, done.stdout.split())
            print(f"{what} {agents} agents: {seconds:.1f} s, {peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        alone(int(sys.argv[2]), sys.argv[1] == "run")
    else:
        main()
