"""A worker process of `task_pool`: work and an item come in, the outcome goes out, one line each.

It ends when its input does, and in the middle of its work when whoever started it has ended without a word.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from decentral_dp.engines.task_pool import from_line, to_line

# Seconds between two looks at whether the process that hands out the work is still there.
_LOOK_EVERY = 0.5


def end_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed in the middle of an hour's work."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    # What is kept is written whole or not at all, so nothing is left to tidy up.
    os._exit(1)


def main(parent: int) -> None:
    """Work on one item after the other."""
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    # An interrupt is for the process that hands out the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The replies go where nothing else is printed.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)
        for line in sys.stdin:
            work, item = from_line(line)
            replies.write(to_line(work(item)))
            replies.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
