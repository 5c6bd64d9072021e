"""Messages, floats and bits that a run will send, from public facts only.

In an exchange every sending agent sends one message to each out-neighbour of that round. A message has one float of 64
bits for every coordinate of every channel of the exchange, or fewer with `topology.compression`. A lost message counts
as sent. Agents that answer a server send one message to it and get one back. The release after the last round is
published and does not count as a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from decentral_dp.algorithms.gossip.centring import Centring, strip_centring
from decentral_dp.bounded import Array
from decentral_dp.exchange import senders_of
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.problems.protocol import TERMS, Problem
from decentral_dp.simulation.jobs.gossip_plan import PlannedNoise, plan_releases
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.result import Communication
from decentral_dp.topology.over_time import off_diagonal, row_indices

BITS = 64
# More rounds of a network that changes are extrapolated from the mean of these.
_MOST_COUNTED_ROUNDS = 10_000


def communication(job: PlannedJob, rounds: int | None = None) -> Communication | None:
    """Count the messages of a run; return None with a trusted coordinator or without rounds.

    Args:
        job: planned job.
        rounds: number of rounds of a run that ended early; None (the default) means all.

    Limits:
        The messages Z of `dsbo_jhip`, which have no privacy cost, are counted in the first exchange of a round that
            sends them.

    Example:
        >>> import decentral_dp
        >>> ring = {"algorithm.rounds": 10, "topology.kind": "ring", "topology.agents": 8}
        >>> plan = decentral_dp.plan("quadratic", set=ring)
        >>> plan.communication.messages, plan.communication.numbers == 10 * 16 * 15
        (160, True)
    """
    if not isinstance(job, GossipJob) or not job.rounds or rounds == 0:
        return None
    job = job if rounds is None else replace(job, rounds=rounds)
    messages_each, width, size = _message_size(job)
    n_rounds, messages = 0, np.zeros(job.n_agents)
    for recipients in _recipients(job):
        n_rounds += 1
        messages += recipients
    share = job.rounds / max(n_rounds, 1)
    exchanges, (rounds_of_mean, p) = round(float(messages.sum()) * share), _centring_messages(job)
    means = exchanges // job.rounds * rounds_of_mean * p
    return Communication(
        messages=exchanges * messages_each,
        numbers=exchanges * width + means,
        bits=exchanges * size + means * BITS,
        by_agent=tuple(round(float(count) * share) * messages_each for count in messages),
    )


def count_sent(job: PlannedJob, rounds: Sequence[int]) -> dict[str, list[float]]:
    """Count the messages and bits sent after some rounds, as means over agents.

    Args:
        job: planned job.
        rounds: rounds after which messages are counted.

    Returns:
        Map of "messages" and "bits" to a number for each of `rounds`; empty with a trusted coordinator.
    """
    if not isinstance(job, GossipJob) or not job.rounds:
        return {}
    sums = np.cumsum([0.0, *(recipients.mean() for recipients in _recipients(job))])
    n_sums = sums.size - 1
    messages = [float(sums[t] if t <= n_sums else sums[-1] * t / n_sums) for t in rounds]
    (messages_each, _, size), (rounds_of_mean, p) = _message_size(job), _centring_messages(job)
    means = [sums[1] * min(max(t - 1, 0), rounds_of_mean) * p * BITS for t in rounds]
    bits = [count * size + float(more) for count, more in zip(messages, means, strict=True)]
    return {"messages": [count * messages_each for count in messages], "bits": bits}


def _recipients(job: GossipJob) -> Iterator[Array]:
    """Yield the number of messages of each agent, (m,), in an exchange of round 0, 1, …, while rounds may differ."""
    over_time, m = job.topology.over_time, job.n_agents
    senders = senders_of(job.algorithm, job.public_network)
    static_edges = off_diagonal(job.topology.mixing)
    is_constant = over_time is None and senders is None and not job.algorithm.has_local_rounds
    for t in range(1 if is_constant else min(job.rounds, _MOST_COUNTED_ROUNDS)):
        if job.has_server:
            # The server is agent m.
            agents, server = np.arange(m), np.full(m, m)
            ends = np.concatenate([agents, server]), np.concatenate([server, agents])
        else:
            weights = static_edges if over_time is None else over_time.sent_weights(t)
            ends = weights.indices.astype(np.int64), row_indices(weights)
        if senders is not None and getattr(job.algorithm, "passes_token", False):
            # A token goes to its next holder only.
            now, after = (np.flatnonzero(senders.mask_of_round(k)) for k in (t, t + 1))
            ends = now[now != after], after[now != after]
        elif senders is not None:
            sending = np.append(senders.mask_of_round(t), False)
            sending = sending[ends[0]] | sending[ends[1]] if job.has_server else sending[ends[0]]
            ends = ends[0][sending], ends[1][sending]
        # A message of the server counts as that of its receiver.
        messages = np.bincount(np.where(ends[0] < m, *ends), minlength=m)
        yield messages.astype(np.float64) if job.algorithm.sends(t) else np.zeros(m)


def compression_summary(job: PlannedJob) -> dict[str, Any] | None:
    """Return the compression of messages and its saving; None without compression.

    Args:
        job: planned job.

    Returns:
        The fields of the job's `Compression`, the map channel → contraction δ, and the share of all bits that is sent.
    """
    if not isinstance(job, GossipJob) or (compression := job.compression) is None:
        return None
    widths = _message_channels(job)
    return {
        **{f.name: getattr(compression, f.name) for f in fields(compression) if f.name != "quantiser"},
        "contraction": {channel: compression.contraction(width) for channel, width, _ in widths},
        "share_of_bits": _message_size(job)[2] / (BITS * sum(width for _, width, _ in widths)),
    }


def _message_size(job: GossipJob) -> tuple[int, int, int]:
    """Return the number of messages from one agent to another in a round, and their total floats and bits."""
    compression, widths = job.compression, _message_channels(job)
    sizes = [(w, BITS * w) if compression is None else compression.size(w) for _, w, _ in widths]
    numbers, bits = sum(n for n, _ in sizes), sum(b for _, b in sizes)
    return len({exchange for *_, exchange in widths}), numbers, bits


def _centring_messages(job: GossipJob) -> tuple[int, int]:
    """Return the number of rounds after the first that send the mean of features, and its number of coordinates."""
    rounds = job.algorithm.averaging_rounds if isinstance(job.algorithm, Centring) else 0
    return min(rounds, job.rounds - 1), job.problem.p


def _message_channels(job: GossipJob) -> list[tuple[str, int, int]]:
    """Return the channels, coordinates and exchanges of all messages from one agent to another in a round.

    Two rounds are planned as if every term read records, because plans omit trackers that read none.
    """
    problem = SimpleNamespace(p=job.problem.p, q=job.problem.q, reads_records=dict.fromkeys(TERMS, "train"))
    facts = (job.counts, job.sampling, job.topology.neighbour_weight, job.clip)
    noise = PlannedNoise(NO_NOISE, {}, is_final=False)
    two = plan_releases(
        strip_centring(job.algorithm), cast(Problem, problem), *facts, 2, noise, job.public_network, job.unit
    )
    releases = two.releases_per_round
    # Messages of a server follow from the agents' answers.
    channels = [c for c in two.channels if c.sensitivity or not job.has_server]
    return [
        (c.channel, c.dimension, e)
        for c in channels
        for e in set((c.rounds[c.rounds < 2 * releases] % releases).tolist())
    ]
