"""Runs of one shape computed together: their agents are one block of a network without edges between runs.

The bits of an agent do not depend on other agents of its block, and noise is keyed by run and agent. Each run is
therefore bitwise identical to a single run, while a round costs one call for all runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.engines.host import LEAST_SUMMED, Host
from decentral_dp.engines.protocol import AgentNode, Outcome, RunControl, SavedState, Snapshot
from decentral_dp.exchange import senders_of
from decentral_dp.participants import LocalDataset
from decentral_dp.privacy.randomness import generator_of
from decentral_dp.privacy.recorder import assemble
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob

# Largest number of runs of one block, and of floats of their records and models.
MOST_RUNS, _MOST_FLOATS = 32, 2**20


def can_join(job: PlannedJob) -> bool:
    """Return whether runs of a job can be joined with others.

    Jobs whose network or noise changes over rounds, and custom algorithms, run one by one. Large complete graphs are
    summed in another order.
    """
    if not isinstance(job, GossipJob) or not job.holds_records or not job.components.has_proved_plan:
        return False
    senders = senders_of(job.algorithm, job.public_network)
    changes = (senders, job.topology.over_time, job.pairs, job.factor, job.attack, job.aggregation, job.compression)
    return not job.has_server and job.n_agents < LEAST_SUMMED and all(part is None for part in changes)


def join_runs(jobs: Sequence[GossipJob], agents: NDArray[np.int64]) -> AgentNode:
    """Return one block with selected agents of several runs, which reads the messages of all agents of all runs.

    Args:
        jobs: jobs for which `can_join` holds, with equal algorithms, problems, clips and networks.
        agents: numbers of the agents in each run, ascending.

    Returns:
        The block, with the runs in order.
    """
    nodes = [job.block_of(agents) for job in jobs]
    return nodes[0]._replace(
        agents=np.concatenate([node.agents for node in nodes]),
        dataset=LocalDataset.join([node.dataset for node in nodes]),
        make_releaser=lambda: ScheduledReleaser.join([cast(Any, node).make_releaser() for node in nodes]),
        mixing=sp.csr_array(sp.block_diag([node.mixing for node in nodes], format="csr")),
    )


def group_jobs(jobs: Sequence[PlannedJob]) -> list[list[int]]:
    """Return groups of at least two jobs that `start_joined` accepts, as indices of the jobs."""
    groups: list[tuple[Any, list[int]]] = []
    for k, job in enumerate(jobs):
        if not isinstance(job, GossipJob) or job.scenario.run.engine != "local" or not can_join(job):
            continue
        shape, floats = _shape(job), job.shards.features.size + job.n_agents * (job.problem.p + job.problem.q)
        most = min(MOST_RUNS, _MOST_FLOATS // max(floats, 1))
        members = next((g for other, g in groups if len(g) < most and _is_identical(other, shape)), None)
        if members is None:
            groups.append((shape, [k]))
        else:
            members.append(k)
    return [members for _, members in groups if len(members) > 1]


def start_joined(jobs: Sequence[GossipJob], controls: Sequence[RunControl]) -> list[Outcome] | None:
    """Run all rounds of a group of `group_jobs`.

    Args:
        jobs: jobs of the group.
        controls: observer of each run, which never ends it.

    Returns:
        The outcome of each run, or None after a release of any run diverged. Then all runs must be repeated one by one.
    """
    n_agents, rounds, per_round = jobs[0].n_agents, jobs[0].rounds, jobs[0].algorithm.releases_per_round
    scales = np.repeat([job.public_scale for job in jobs], n_agents)
    node = join_runs(jobs, np.arange(n_agents))._replace(public_scale=scales)
    host, observed = Host(node, rounds), [control.observes(rounds) for control in controls]
    rows = [slice(first, first + n_agents) for first in range(0, node.agents.size, n_agents)]
    last: list[Snapshot] = []
    message = host.advance()
    for t in range(rounds + 1):
        for _ in range(per_round if t else 0):
            message = host.advance(message)
        if not any(is_observed(t) for is_observed in observed):
            continue
        view = host.view()
        if view.divergence is not None:
            return None
        parts = view.released, view.published, view.state
        last = []
        for of_run in rows:
            released, published, state = ({c: v[of_run].copy() for c, v in part.items()} for part in parts)
            last.append(Snapshot(t, released, published, state, divergence=None, save=_save))
        for snapshot, control, is_observed in zip(last, controls, observed, strict=True):
            if is_observed(t):
                control.observe(snapshot)
    ledger = assemble([(np.arange(node.agents.size), host.recorder())], node.agents.size, per_round)
    ledgers = (ledger.select(np.arange(of_run.start, of_run.stop)) for of_run in rows)
    return list(map(Outcome, last, ledgers))


def _save() -> SavedState:
    raise TypeError("joined runs keep no states")


def _shape(job: GossipJob) -> tuple[Any, ...]:
    """Return all that joined runs share. They differ in records, noise scales and the noise key."""
    s, mixing = job.scenario, job.public_network.mixing
    noise = {c: schedule.points for c, schedule in job.noise.items()}
    # Public orders of the records follow from the public seed.
    seed = s.public_seed if job.sampling.kind == "cyclic" else 0
    return (
        *(job.algorithm, job.problem, job.sampling, job.clip, job.mechanism, job.unit, job.rounds, noise, seed),
        *(s.tail_length, s.privacy.domain, generator_of(job.root), tuple(job.weights)),
        *(mixing.data, mixing.indices, mixing.indptr, s.problem.members),
    )


def _is_identical(a: Any, b: Any) -> bool:
    """Return whether two nested values are of one type and bitwise equal."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if is_dataclass(a):
        return all(_is_identical(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, Mapping):
        return _is_identical(tuple(a.items()), tuple(b.items()))
    if isinstance(a, Sequence) and not isinstance(a, str | bytes):
        return len(a) == len(b) and all(map(_is_identical, a, b))
    return bool(a == b)
