"""Times of functions that are compared with each other."""

from __future__ import annotations

import time


def fastest(functions, rounds):
    """Shortest time of each, in seconds; the functions take turns, so that a busy machine slows all alike."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for k, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[k] = min(best[k], time.perf_counter() - start)
    return best
