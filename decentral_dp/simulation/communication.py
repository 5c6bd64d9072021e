"""What a run sends: messages, numbers and bits, from public facts alone, before it runs.

In an exchange every agent that sends makes one message to each of those that hear it in that round, with one number of
64 bits for every coordinate of every channel of the exchange, or with what a compression leaves of it
(`topology.compression`). A lost message was sent. Agents that answer a server send one message to it, and get one back;
what it says before it asks follows from that. What is released after the last round is published, and counts as no
message.

With `run.network` an exchange takes

    latency + max_j (bits that agent j sends)/bandwidth · s_j    seconds,

s_j being `slowdown` for an agent that lags in this round, by a public coin, and 1 otherwise: all wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.config.schema import NetworkTable
from decentral_dp.data.dataset import public_generator
from decentral_dp.exchange import senders_of
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.problems.protocol import TERMS, Problem
from decentral_dp.simulation.jobs.gossip_plan import plan
from decentral_dp.simulation.jobs.job import GossipJob, Job
from decentral_dp.simulation.result import Communication
from decentral_dp.topology.over_time import off_diagonal

BITS = 64
# More rounds of a network that changes are counted as so many times the mean of these.
_MOST_COUNTED = 10_000


def communication(job: Job) -> Communication | None:
    """Count what a run sends; None of a trusted coordinator, whose agents hand over records or answers.

    Args:
        job: planned.

    Limits:
        Z of `dsbo_jhip`, which costs nothing, is counted in the first of the exchanges of a round that send it.

    Example:
        >>> import decentral_dp
        >>> ring = {"algorithm.rounds": 10, "topology.kind": "ring", "topology.agents": 8}
        >>> plan = decentral_dp.plan("quadratic", set=ring)
        >>> plan.communication.messages, plan.communication.numbers == 10 * 16 * 15
        (160, True)
    """
    if not isinstance(job, GossipJob) or not job.rounds:
        return None
    each, width, size = _size_of_a_round(job)
    table, counted = job.scenario.run.network, 0
    messages, seconds = np.zeros(job.n_agents), 0.0
    for counted, recipients in enumerate(_recipients(job), 1):
        messages += recipients
        seconds += 0.0 if table is None else _seconds(table, recipients * size / each, counted - 1, job) * each
    share = job.rounds / counted
    total = round(float(messages.sum()) * share) * each
    rounds = round(float(messages.sum()) * share)
    return Communication(
        messages=total,
        numbers=rounds * width,
        bits=rounds * size,
        by_agent=tuple(round(float(count) * share) * each for count in messages),
        seconds=None if table is None else seconds * share,
    )


def sent_after(job: Job, rounds: Sequence[int]) -> dict[str, list[float]]:
    """Count what an agent has sent after so many rounds, in the mean over agents.

    Args:
        job: planned.
        rounds: after which it is counted.

    Returns:
        "messages" and "bits", one for each of `rounds`; nothing of a trusted coordinator.
    """
    if not isinstance(job, GossipJob) or not job.rounds:
        return {}
    sums = np.cumsum([0.0, *(recipients.mean() for recipients in _recipients(job))])
    counted = sums.size - 1
    messages = [float(sums[t] if t <= counted else sums[-1] * t / counted) for t in rounds]
    each, _, size = _size_of_a_round(job)
    return {"messages": [count * each for count in messages], "bits": [count * size for count in messages]}


def _recipients(job: GossipJob) -> Iterator[Array]:
    """Yield (m,) to how many others each agent sends in an exchange of round 0, 1, …, while rounds may differ."""
    over_time, table = job.topology.over_time, job.scenario.run.network
    senders = senders_of(job.algorithm, job.public_network)
    alike = over_time is None and senders is None and not (table and table.stragglers)
    fixed = off_diagonal(job.topology.mixing)
    for t in range(1 if alike else min(job.rounds, _MOST_COUNTED)):
        if job.central:
            recipients = np.full(job.n_agents, 2.0)
        else:
            weights = fixed if over_time is None else over_time.sent(t)
            recipients = np.bincount(weights.indices, minlength=job.n_agents).astype(np.float64)
            # A token goes to its next holder alone.
            recipients = np.minimum(recipients, getattr(job.algorithm, "recipients", np.inf))
        yield recipients if senders is None else np.where(senders.at(t), recipients, 0.0)


def compression_summary(job: Job) -> dict[str, Any] | None:
    """Say what of each message travels, and what that saves; None where all of it does.

    Args:
        job: planned.

    Returns:
        The fields of its `Compression`, channel → contraction δ, and the share of all bits that is sent.
    """
    if not isinstance(job, GossipJob) or (made := job.compression) is None:
        return None
    widths = _widths_of_a_round(job)
    return {
        **asdict(made),
        "contraction": {channel: made.contraction(width) for channel, width, _ in widths},
        "share_of_bits": _size_of_a_round(job)[2] / (BITS * sum(width for _, width, _ in widths)),
    }


def _size_of_a_round(job: GossipJob) -> tuple[int, int, int]:
    """Messages that one agent sends to one other in a round, and the numbers and bits in all of them."""
    made, widths = job.compression, _widths_of_a_round(job)
    sizes = [(w, BITS * w) if made is None else made.size(w) for _, w, _ in widths]
    numbers, bits = map(sum, zip(*sizes, strict=True))
    return len({exchange for *_, exchange in widths}), numbers, bits


def _widths_of_a_round(job: GossipJob) -> list[tuple[str, int, int]]:
    """Channels, their coordinates and exchanges, of all messages that one agent sends to one other in a round.

    Two rounds are planned as if every term read records: a tracker that reads none is sent all the same, and in no
    plan. What is released after the last round is not sent.
    """
    problem = SimpleNamespace(p=job.problem.p, q=job.problem.q, reads_records=dict.fromkeys(TERMS, "train"))
    facts = (job.counts, job.stream, job.topology.neighbour_weight, job.clip, job.constants)
    two = plan(job.algorithm, cast(Problem, problem), *facts, 2, NO_NOISE, {}, False, job.public_network, job.unit)
    each = two.releases_per_round
    # What a server says follows from answers that the agents have.
    channels = [c for c in two.channels if c.sensitivity or not job.central]
    return [(c.channel, c.dimension, e) for c in channels for e in set((c.rounds[c.rounds < 2 * each] % each).tolist())]


def _seconds(table: NetworkTable, bits: Array, t: int, job: GossipJob) -> float:
    lag = np.ones(job.n_agents)
    if table.stragglers:
        coins = public_generator(job.scenario.public_seed, "stragglers", t).random(job.n_agents)
        lag[coins < table.stragglers] = table.slowdown
    return table.latency + float((bits / table.bandwidth * lag).max())
