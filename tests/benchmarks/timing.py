"""Times of functions that are compared with each other, and the ratio that a benchmark reports."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from threadpoolctl import threadpool_limits


def fastest(
    functions: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Shortest time of each, in seconds; the functions take turns, so that a busy machine slows all of them."""
    best = [float("inf")] * len(functions)
    for _ in range(rounds):
        for k, function in enumerate(functions):
            start = clock()
            function()
            best[k] = min(best[k], clock() - start)
    return best


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Restrict BLAS and torch to one thread: agents run in parallel, one per core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


def report(benchmark: Any, words: str, ratio: float, limit: float) -> None:
    """Record and print a ratio, and require that it is at most the limit."""
    benchmark.extra_info[words] = round(ratio, 3)
    print(f"\n{words}: {ratio:.2f} (at most {limit:g})")
    # `--benchmark-only` skips tests that measure nothing by the fixture.
    if benchmark.stats is None:
        benchmark.pedantic(lambda: None, rounds=1)
    assert ratio <= limit
