"""Inject faults and count the outcomes: `python -m tests.faults [KIND …] [--times N] [--seed S]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from .kills import kill_local
from .node_kills import kill_nodes
from .ray_kills import kill_actors, lose_machines

KINDS = {
    "local": kill_local,
    "actor": kill_actors,
    "machine": lose_machines,
    "nodes": kill_nodes,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[[], *KINDS], default=[], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    print("| fault | times | runs | errors | seconds |\n|---|---|---|---|---|")
    for kind in options.kinds or KINDS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            tally = KINDS[kind](options.times, options.seed, Path(place))
        seconds = time.monotonic() - started
        numbers = f"{tally.faults} | {tally.runs} | {len(tally.wrong)} | {seconds:.0f}"
        print(f"| {kind} | {numbers} |", flush=True)
        for line in tally.wrong:
            print(f"  {line}", file=sys.stderr)
        failed |= bool(tally.wrong)
    sys.exit(failed)


main()
