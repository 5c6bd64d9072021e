"""An evaluation of many agents against one of few, per agent."""

from __future__ import annotations

from typing import Any

from threadpoolctl import threadpool_limits

from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import RunControl
from tests.benchmarks.rings import ring_job
from tests.benchmarks.timing import fastest

FEW, MANY = 1000, 10_000


def test_an_evaluation_costs_as_much_per_agent_in_a_large_network(benchmark: Any) -> None:
    looks = [_look(agents) for agents in (FEW, MANY)]
    with threadpool_limits(limits=1):
        few, many = fastest(looks, 3)
    ratio = many / MANY / (few / FEW)
    benchmark.extra_info["ratio"] = round(ratio, 2)
    print(f"\nan evaluation, per agent: {ratio:.2f} × at {MANY} agents what it is at {FEW} (at most 1.2)")
    benchmark.pedantic(looks[0], rounds=1)
    assert ratio <= 1.2


def _look(agents: int) -> Any:
    job = ring_job(1, agents, records=2, width=20)
    evaluator, seen = job.evaluator(), list[Any]()
    job.start(LocalEngine(), RunControl([1], seen.append))
    last = seen[-1]
    return lambda: evaluator.rows(last, False)
