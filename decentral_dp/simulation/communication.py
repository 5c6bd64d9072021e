"""What a run sends: messages, numbers and bits, from public facts alone, before it runs.

In an exchange every agent that sends makes one message to each of those that hear it in that round, with one number of
64 bits for every coordinate of every channel of the exchange, or with what a compression leaves of it
(`topology.compression`). A lost message was sent. Agents that answer a server send one message to it, and get one back;
what it says before it asks follows from that. What is released after the last round is published, and counts as no
message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from decentral_dp.bounded import Array
from decentral_dp.errors import InputError, quoted
from decentral_dp.exchange import senders_of
from decentral_dp.formatting import agent_names
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.problems.protocol import TERMS, Problem
from decentral_dp.simulation.jobs.gossip_plan import PlannedNoise, plan_releases
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.result import Communication
from decentral_dp.topology.graphs import IntArray
from decentral_dp.topology.over_time import off_diagonal, row_indices

if TYPE_CHECKING:
    import pandas as pd

BITS = 64
By: TypeAlias = Literal["agent", "link", "round", "message"]
# More rounds of a network that changes are counted as so many times the mean of these.
_MOST_COUNTED_ROUNDS = 10_000


def communication(job: PlannedJob, rounds: int | None = None) -> Communication | None:
    """Count what a run sends; None of a trusted coordinator, whose agents hand over records or answers.

    Args:
        job: planned.
        rounds: of a run that ended early; default all. A run that ended before its first round has no count: None.

    Limits:
        Z of `dsbo_jhip`, which costs nothing, is counted in the first of the exchanges of a round that send it.

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
    each, width, size = _size_of_a_round(job)
    counted, messages = 0, np.zeros(job.n_agents)
    for recipients in _recipients(job):
        counted += 1
        messages += recipients
    share = job.rounds / max(counted, 1)
    exchanges, (beside, p) = round(float(messages.sum()) * share), _centring_messages(job)
    means = exchanges // job.rounds * beside * p
    return Communication(
        messages=exchanges * each,
        numbers=exchanges * width + means,
        bits=exchanges * size + means * BITS,
        by_agent=tuple(round(float(count) * share) * each for count in messages),
    )


def count_sent(job: PlannedJob, rounds: Sequence[int]) -> dict[str, list[float]]:
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
    (each, _, size), (beside, p) = _size_of_a_round(job), _centring_messages(job)
    means = [sums[1] * min(max(t - 1, 0), beside) * p * BITS for t in rounds]
    bits = [count * size + float(more) for count, more in zip(messages, means, strict=True)]
    return {"messages": [count * each for count in messages], "bits": bits}


def tabulate_sent(job: PlannedJob, by: By = "link") -> pd.DataFrame:
    """Tabulate what is sent, by who sends it, along which link, or in which round; from public facts alone.

    Args:
        job: planned.
        by: "agent" that sends, "link" from a sender to a receiver, "round", or "message": every link of every round.

    Returns:
        One row for each of these with `messages`, `numbers` and `bits`, where there are any; `sender` and `receiver`
        are numbers of agents, −1 of a server, and have `sender_name` and `receiver_name` where agents have names.
        Empty of a trusted coordinator.

    Raises:
        InputError: another `by`.

    Example:
        >>> import decentral_dp
        >>> ring = {"algorithm.rounds": 10, "topology.kind": "ring", "topology.agents": 8}
        >>> decentral_dp.build("quadratic", set=ring).messages("link").iloc[0].tolist()
        [0, 1, 10, 150, 9600]
    """
    import pandas as pd

    keys = {"agent": ["sender"], "link": ["sender", "receiver"], "round": ["round"]}
    keys["message"] = [*keys["round"], *keys["link"]]
    if by not in keys:
        raise InputError(f'by: got {quoted(by)}, wanted "agent", "link", "round" or "message".')
    if not isinstance(job, GossipJob) or not job.rounds:
        return pd.DataFrame(columns=[*keys[by], "messages", "numbers", "bits"])
    ends = list(_links(job, job.rounds)) * (job.rounds if _is_alike(job) and by in ("round", "message") else 1)
    rounds = np.repeat(np.arange(1, len(ends) + 1), [senders.size for senders, _ in ends])
    senders, receivers = (np.concatenate(column) for column in zip(*ends, strict=True))
    links = pd.DataFrame({"round": rounds, "sender": senders, "receiver": receivers})
    count = links.groupby(keys[by]).size() * (job.rounds if len(ends) == 1 else 1)
    table = count.rename("messages").reset_index()
    names = np.array([*agent_names(job.topology.labels), "server"])
    for end in set(keys["link"]) & set(keys[by]):
        if names.size > 1:
            table[f"{end}_name"] = names[table[end]]
        # A server is counted as the agent after the last.
        table[end] = table[end].where(table[end] < job.n_agents, -1)
    each, numbers, bits = _size_of_a_round(job)
    exchanges, (beside, p) = table.pop("messages"), _centring_messages(job)
    # The first round sends what it starts from.
    with_mean = table["round"].between(2, beside + 1) if "round" in table else beside / job.rounds
    means = (exchanges * with_mean * p).round().astype(np.int64)
    return table.assign(
        messages=exchanges * each, numbers=exchanges * numbers + means, bits=exchanges * bits + means * BITS
    )


def _recipients(job: GossipJob) -> Iterator[Array]:
    """Yield (m,) how many messages are of each agent in an exchange of round 0, 1, …, while rounds may differ."""
    m = job.n_agents
    for senders, receivers in _links(job, _MOST_COUNTED_ROUNDS):
        # What a server says to an agent is counted as that agent's.
        agents = np.where(senders < m, senders, receivers)
        yield np.bincount(agents, minlength=m).astype(np.float64)


def _is_alike(job: GossipJob) -> bool:
    """Whether all rounds send the same."""
    return job.topology.over_time is None and senders_of(job.algorithm, job.public_network) is None


def _links(job: GossipJob, most: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield who sends a message, and to whom, in an exchange of round 0, 1, …, while rounds may differ.

    A server is agent m.
    """
    over_time, m = job.topology.over_time, job.n_agents
    senders = senders_of(job.algorithm, job.public_network)
    fixed = off_diagonal(job.topology.mixing)
    for t in range(1 if _is_alike(job) else min(job.rounds, most)):
        if job.central:
            agents, server = np.arange(m), np.full(m, m)
            ends = np.concatenate([agents, server]), np.concatenate([server, agents])
        else:
            weights = fixed if over_time is None else over_time.sent_weights(t)
            ends = weights.indices.astype(np.int64), row_indices(weights)
        if senders is not None and getattr(job.algorithm, "passes_token", False):
            # A token goes to its next holder alone, and nowhere where it stays.
            now, after = (np.flatnonzero(senders.mask_of_round(k)) for k in (t, t + 1))
            ends = now[now != after], after[now != after]
        elif senders is not None:
            some = np.append(senders.mask_of_round(t), False)
            some = some[ends[0]] | some[ends[1]] if job.central else some[ends[0]]
            ends = ends[0][some], ends[1][some]
        yield ends


def compression_summary(job: PlannedJob) -> dict[str, Any] | None:
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
    numbers, bits = sum(n for n, _ in sizes), sum(b for _, b in sizes)
    return len({exchange for *_, exchange in widths}), numbers, bits


def _centring_messages(job: GossipJob) -> tuple[int, int]:
    """In how many rounds, from the second on, the mean of features travels in the same messages; its coordinates."""
    return min(job.algorithm.centring_rounds, job.rounds - 1), job.problem.p


def _widths_of_a_round(job: GossipJob) -> list[tuple[str, int, int]]:
    """Channels, their coordinates and exchanges, of all messages that one agent sends to one other in a round.

    Two rounds are planned as if every term read records: a tracker that reads none is sent all the same, and in no
    plan. What is released after the last round is not sent.
    """
    problem = SimpleNamespace(p=job.problem.p, q=job.problem.q, reads_records=dict.fromkeys(TERMS, "train"))
    facts = (job.counts, job.stream, job.topology.neighbour_weight, job.clip)
    noise = PlannedNoise(NO_NOISE, {}, is_final=False)
    two = plan_releases(job.algorithm, cast(Problem, problem), *facts, 2, noise, job.public_network, job.unit)
    each = two.releases_per_round
    # What a server says follows from answers that the agents have.
    channels = [c for c in two.channels if c.sensitivity or not job.central]
    if job.algorithm.centring_rounds:
        channels = [c for c in channels if c.channel not in ("x", "m")]
    return [(c.channel, c.dimension, e) for c in channels for e in set((c.rounds[c.rounds < 2 * each] % each).tolist())]
