"""Transcripts of many runs of one gossip job, computed together.

The runs are agents of one network without edges between runs. The bits of an agent do not depend on other agents of its
block, and noise is keyed by run and agent. So each transcript and replay is bitwise that of `observe` and `replay`.
Jobs whose network or noise changes over rounds, and custom algorithms, run one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from decentral_dp.auditing.transcripts import (
    Key,
    Made,
    Noise,
    Query,
    Transcript,
    observe,
    replay,
)
from decentral_dp.bounded import Array, Bounded
from decentral_dp.engines.host import LEAST_SUMMED, Host
from decentral_dp.exchange import Bundle, senders_of
from decentral_dp.privacy.mechanisms import noise_of
from decentral_dp.privacy.randomness import Root
from decentral_dp.privacy.recorder import Recorder
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob

# Most runs, and floats of their releases and records, in memory at once.
_MOST_RUNS, _MOST_NUMBERS = 32, 2**22
# Channel → (K, d) public and private part of the victim's value in each run; the private part is None for an array.
_Values = dict[str, tuple[Array, Array | None]]


def runs_at_once(job: PlannedJob) -> int:
    """Return how many runs of a job are computed together; 1 if they run one by one."""
    if not isinstance(job, GossipJob) or not job.holds_records or not job.components.has_proved_plan:
        return 1
    senders = senders_of(job.algorithm, job.public_network)
    changes = (senders, job.topology.over_time, job.pairs, job.factor, job.attack, job.aggregation, job.compression)
    # Large complete graphs are summed in another order.
    if job.central or any(part is not None for part in changes) or job.n_agents >= LEAST_SUMMED:
        return 1
    numbers = job.n_agents * sum(c.dimension * c.rounds.size for c in job.ledger.channels)
    return max(1, min(_MOST_RUNS, _MOST_NUMBERS // max(numbers, job.shards.features.size, 1)))


def _victims_values(values: Mapping[str, Any], rows: slice) -> _Values:
    return {
        c: (v.public[rows].copy(), v.private[rows].copy()) if isinstance(v, Bounded) else (v[rows].copy(), None)
        for c, v in values.items()
    }


class _RunListener:
    """Releaser of all agents of some runs that records values, releases and noise.

    Attributes:
        releases: index → values of the victim, and its releases, channel → (K, d).
        residuals: (mechanism, (K, m, d) noise divided by its scale) of each release.
        noise: key → noise of the victim.
    """

    def __init__(self, real: Any, runs: int, victim: int) -> None:
        self._real, self._runs = real, runs
        self._agents = real.recorder.agents // runs
        self._victims = slice(victim, None, self._agents)
        self.releases: dict[int, tuple[_Values, dict[str, Array]]] = {}
        self.residuals: list[tuple[str, Array]] = []
        self.noise: dict[Key, Noise | None] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def release(self, index: int, values: Mapping[str, Any]) -> Bundle:
        out: Bundle = self._real.release(index, values)
        released = {c: out[c][self._victims].copy() for c in values}
        self.releases[index] = _victims_values(values, self._victims), released
        for channel, value in values.items():
            self.noise[index, channel] = None
            if isinstance(value, Bounded) and self._real.mechanism.adds_noise:
                mechanism = noise_of(self._real.mechanism, channel)
                t = index // self._real.releases_per_round
                scales = self._real.schedules[channel].scales(t, mechanism)
                scale = float(scales[self._victims.start])
                self.noise[index, channel] = Noise(mechanism, scale, out[channel].shape[1])
                with np.errstate(all="ignore"):
                    noise = (out[channel] - value.value) / scales[:, None]
                self.residuals.append((mechanism.name, noise.reshape(self._runs, self._agents, -1)))
        return out


class _RunScript:
    """Releaser of the victim in some runs that repeats their releases and records the values."""

    def __init__(self, transcripts: Sequence[Transcript]) -> None:
        self.recorder = Recorder(len(transcripts))
        self.values: dict[int, _Values] = {}
        self._transcripts = transcripts

    def release(self, index: int, values: Mapping[str, Any]) -> Bundle:
        self.values[index] = _victims_values(values, slice(None))
        return Bundle({c: np.concatenate([t.replies[index][c] for t in self._transcripts]) for c in values})


def observe_runs(job: PlannedJob, victim: int, roots: Sequence[Root]) -> list[Transcript]:
    """Run a job once for each noise key, as by `observe`.

    Args:
        job: job.
        victim: agent whose releases are recorded.
        roots: noise keys of the runs, at most `runs_at_once`.
    """
    if not isinstance(job, GossipJob) or runs_at_once(job) == 1:
        return [observe(job.with_root(root), victim) for root in roots]
    m, node = job.n_agents, job.node_of_runs(roots, np.arange(job.n_agents))
    listening: Any = _RunListener(node.make_releaser(), len(roots), victim)
    host = Host(node._replace(make_releaser=lambda: listening), job.rounds)
    messages = [host.advance()]
    for _ in range(job.rounds * job.algorithm.releases_per_round):
        messages.append(host.advance(messages[-1]))
    published = host.view().published
    # Blocks of agents as by `observe`.
    blocks = [part for part in (slice(victim), slice(victim, victim + 1), slice(victim + 1, m)) if range(m)[part]]
    out = []
    for k, root in enumerate(roots):
        rows = [slice(k * m + range(m)[part].start, k * m + range(m)[part].stop) for part in blocks]
        draws: dict[str, list[Array]] = {}
        for part in blocks:
            for name, noise in listening.residuals:
                draws.setdefault(name, []).append(noise[k, part].ravel())
        replies = {t: Bundle({c: v[k : k + 1] for c, v in some.items()}) for t, (_, some) in listening.releases.items()}
        out.append(
            Transcript(
                {(t, c): v[0] for t, reply in replies.items() for c, v in reply.items()},
                listening.noise,
                tuple(tuple(message[part] for part in rows) for message in messages),
                np.concatenate([published[c][part].ravel() for c in sorted(published) for part in rows]),
                _queries({t: values for t, (values, _) in listening.releases.items()}, k),
                {name: np.concatenate(parts) for name, parts in draws.items()},
                {},
                root,
                replies,
            )
        )
    return out


def replay_runs(job: PlannedJob, victim: int, transcripts: Sequence[Transcript]) -> list[Mapping[Key, Made]]:
    """Compute the queries of a job's releasing participant on each transcript, as by `replay`."""
    if not isinstance(job, GossipJob) or runs_at_once(job) == 1:
        return [replay(job, victim, transcript) for transcript in transcripts]
    script: Any = _RunScript(transcripts)
    node = job.node_of_runs([t.root for t in transcripts], np.array([victim]))
    host = Host(node._replace(make_releaser=lambda: script), job.rounds)
    host.advance()
    for blocks in zip(*(t.messages[:-1] for t in transcripts), strict=True):
        host.advance(np.concatenate([message for run in blocks for message in run]))
    return [_queries(script.values, k) for k in range(len(transcripts))]


def _queries(values: Mapping[int, _Values], k: int) -> dict[Key, Query]:
    """Return the values of one run by key."""
    return {
        (t, c): Query(public[k], None if private is None else private[k])
        for t, channels in values.items()
        for c, (public, private) in channels.items()
    }
