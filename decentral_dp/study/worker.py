"""A process that computes cells: tasks come in, keys of what was kept go out, one JSON line each.

It ends when its input does, so that it does not outlive whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from decentral_dp.study.cells import Task, compute, kept, write


def main(folder: str) -> None:
    """Compute one task after the other; a finished cell is on the disk before it is reported."""
    # An interrupt is for the process that hands out the tasks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The replies go where nothing else is printed.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        for line in sys.stdin:
            task = Task(*json.loads(line))
            record = compute(task)
            if kept(record["status"]):
                write(Path(folder), task.key, record)
                record = {}
            replies.write(json.dumps(record) + "\n")
            replies.flush()


if __name__ == "__main__":
    main(sys.argv[1])
