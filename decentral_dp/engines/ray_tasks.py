"""Independent pieces of work as tasks of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import ray
import ray.exceptions

from decentral_dp.engines.ray_cluster import cluster

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
# Tasks handed to Ray at a time: enough for any cluster's cores, few enough to be taken back at once.
_AHEAD = 256


def mapped(
    work: Callable[[Item], Outcome], items: Sequence[Item], address: str | None, lost: Callable[[str], Outcome]
) -> Generator[tuple[Item, Outcome], None, None]:
    """Compute independent items as tasks of a Ray cluster, one core each.

    Args:
        work: item → outcome.
        items: what to compute.
        address: "auto" or "host:port" of a running cluster; None starts one for the length of the iteration.
        lost: sentence → outcome, where a task's process ended.

    Returns:
        (item, outcome) in the order in which they are done.
    """

    def worked(item: Item) -> Outcome:
        # Ray takes functions only, and what is worked on may be a partial one.
        return work(item)

    with cluster(address):
        remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(worked)
        waiting = list(reversed(items))
        pending: dict[ray.ObjectRef[Outcome], Item] = {}
        try:
            while waiting or pending:
                while waiting and len(pending) < _AHEAD:
                    item = waiting.pop()
                    pending[remote.remote(item)] = item
                ready, _ = ray.wait(list(pending), num_returns=1)
                for reference in ready:
                    yield pending.pop(reference), _outcome(reference, lost)
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _outcome(reference: ray.ObjectRef[Outcome], lost: Callable[[str], Outcome]) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        return lost(f"the Ray task did not end: {str(error).strip().splitlines()[0]}")
    return outcome
