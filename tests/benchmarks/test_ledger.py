"""Memory of a long ledger: recorded, written, and read back as plots read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

AGENTS, ROUNDS = 100, 100_000
# A process of its own, for the peak of a process never falls. Not ru_maxrss, which is its parent's where that is more.
SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import pandas, pyarrow.compute, pyarrow.parquet
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.privacy.recorder import Recorder, assemble
from decentral_dp.reporting.folder import read_ledger

agents, rounds, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
before, recorder = peak(), Recorder(agents)
moved = {k: Sensitivity(np.full(agents, 0.5), np.ones(agents), None) for k in ("train", "validation")}
value = Bounded(np.zeros((agents, 4)), np.ones((agents, 4)), moved, "l1")
for index in range(1, rounds + 1):
    for channel in "xyz":
        recorder.charge(index, channel, "laplace", np.full(agents, index**0.1), value)
assemble([(np.arange(agents), recorder)], agents).to_parquet(path)
drawn = np.unique(np.geomspace(1, rounds, 400).round())
print(peak() - before, len(read_ledger(path, drawn)), drawn.size * agents * 6)
"""


def test_memory_of_a_long_ledger(benchmark: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(AGENTS), str(ROUNDS), str(tmp_path / "ledger.parquet")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak, rows, wanted = (float(part) for part in done.stdout.split())
    benchmark.extra_info["ratio"] = round(peak / 300, 2)
    size = (tmp_path / "ledger.parquet").stat().st_size / 2**20
    print(
        f"\na ledger of {AGENTS} agents × {ROUNDS} rounds: {peak:.0f} MiB of memory (at most 300), {size:.0f} on disk"
    )
    benchmark.pedantic(lambda: None, rounds=1)
    assert rows == wanted
    assert peak <= 300.0
