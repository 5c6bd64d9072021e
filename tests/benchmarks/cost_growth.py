"""How the cost of a round grows: `python -m tests.benchmarks.cost_growth docs/cost_growth.png`.

By agents, neighbours and records. Certified LDP-DSBO with its ledger, 64 features; processor time of a round, over
that of the smallest system of its panel. The least of several runs; rounds are taken apart from the start by running
twice as many.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from decentral_dp.engines.local import LocalEngine

from .rings import ring_job

AGENTS = [30, 100, 300, 1000, 3000, 10_000]
DEGREES = [2, 4, 8, 16, 32, 64, 128]
RECORDS = [10, 30, 100, 300, 1000]


def seconds_a_round(agents: int, records: int, degree: int = 2) -> float:
    """Processor time. records: of each kind, per agent."""
    rounds = max(4, min(200, 40_000 // (agents * max(1, records // 10))))
    topology = {} if degree == 2 else {"kind": "random_regular", "degree": degree, "seed": 1}
    jobs = [ring_job(n, agents, records, 64, topology) for n in (rounds, 2 * rounds)]
    least = [float("inf")] * 2
    with threadpool_limits(limits=1):
        for _ in range(5):
            for k, job in enumerate(jobs):
                started = time.process_time()
                job.start(LocalEngine())
                least[k] = min(least[k], time.process_time() - started)
    return (least[1] - least[0]) / rounds


def main(target: Path) -> None:
    panels = {
        "agents, on a ring with 20 + 20 records each": (AGENTS, [seconds_a_round(m, 20) for m in AGENTS]),
        "neighbours of each of 1000 agents, 20 + 20 records each": (
            DEGREES,
            [seconds_a_round(1000, 20, degree) for degree in DEGREES],
        ),
        "records of each kind, of 100 agents": (RECORDS, [seconds_a_round(100, n) for n in RECORDS]),
    }
    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (words, (sizes, seconds)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        cost, proportional = [s / seconds[0] for s in seconds], [n / sizes[0] for n in sizes]
        axes.loglog(sizes, cost, marker="o", label="a round")
        axes.loglog(sizes, proportional, color="0.6", linestyle="--", label="proportional")
        axes.set_xlabel(words)
        axes.set_ylabel(f"time of a round, over that at {sizes[0]}")
        axes.grid(True, alpha=0.3)
        axes.legend()
        print(words, [f"{n}: {c:.2f}" for n, c in zip(sizes, cost, strict=True)])
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
