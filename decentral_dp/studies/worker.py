"""A worker process that computes cells: tasks come in, keys of what was kept go out, one JSON line each.

It ends when its input does, and in the middle of a cell when whoever started it has ended without a word.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from decentral_dp.studies.study_runs import Task, compute, kept, write

# Seconds between two looks at whether the process that hands out the tasks is still there.
_LOOK_EVERY = 0.5


def end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed in the middle of an hour's cell."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    # A cell is written whole or not at all, so nothing is left to tidy up.
    os._exit(1)


def main(folder: str, parent: int) -> None:
    """Compute one task after the other; a finished cell is on the disk before it is reported."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
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
    main(sys.argv[1], int(sys.argv[2]))
