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

from decentral_dp.engines.host import LEAST_SUMMED
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode, Outcome, RunControl, Snapshot
from decentral_dp.exchange import senders_of
from decentral_dp.participants import LocalDataset, Network
from decentral_dp.privacy.randomness import generator_of
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob

# Largest number of runs of one block, and of floats of their records and models.
MOST_RUNS, _MOST_FLOATS = 32, 2**20


def can_join(job: PlannedJob) -> bool:
    """Return whether runs of a job can be joined with others.

    Jobs whose network or noise changes over rounds, or with public orders of records, and custom algorithms run one by
    one. Large complete graphs are summed in another order.
    """
    if not isinstance(job, GossipJob) or not (job.holds_records and job.components.has_proved_plan):
        return False
    senders = senders_of(job.algorithm, job.public_network)
    changes = (senders, job.topology.over_time, job.pairs, job.factor, job.attack, job.aggregation, job.compression)
    is_fixed = all(part is None for part in changes) and job.sampling.kind != "cyclic"
    return is_fixed and not job.has_server and job.n_agents < LEAST_SUMMED


def join_runs(jobs: Sequence[GossipJob], agents: NDArray[np.int64]) -> AgentNode:
    """Return one block with selected agents of several runs, which reads the messages of all agents of all runs.

    Args:
        jobs: jobs for which `can_join` holds, with equal algorithms, problems and clips.
        agents: numbers of the agents in each run, ascending. Agent i of run k of m agents has the number km + i.

    Returns:
        The block, with the runs in order.
    """
    nodes, m = [job.block_of(agents) for job in jobs], jobs[0].n_agents
    numbers = np.concatenate([m * k + agents for k in range(len(jobs))])
    edges = sp.csr_array(sp.block_diag([job.public_network.mixing for job in jobs], format="csr"))
    return nodes[0]._replace(
        agents=numbers,
        dataset=LocalDataset.join([node.dataset for node in nodes], numbers, Network(edges)),
        make_releaser=lambda: ScheduledReleaser.join([cast(Any, node).make_releaser() for node in nodes]),
        mixing=sp.csr_array(sp.block_diag([node.mixing for node in nodes], format="csr")),
        public_scale=np.repeat([job.public_scale for job in jobs], agents.size),
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
    m, observed = jobs[0].n_agents, [control.observes(jobs[0].rounds) for control in controls]

    def observe(s: Snapshot) -> bool:
        for k, (control, is_observed) in enumerate(zip(controls, observed, strict=True)):
            if s.divergence is None and is_observed(s.round):
                control.observe(_select_run(s, k, m))
        return s.divergence is not None

    rounds = sorted({t for control in controls for t in control.rounds})
    block = join_runs(jobs, np.arange(m))
    last, ledger = LocalEngine().run([block], jobs[0].rounds, RunControl(rounds, observe))
    if last.divergence is not None:
        return None
    return [Outcome(_select_run(last, k, m), ledger.select(np.arange(m * k, m * (k + 1)))) for k in range(len(jobs))]


def _select_run(s: Snapshot, k: int, m: int) -> Snapshot:
    """Return the values of run k of m agents."""
    rows = slice(m * k, m * (k + 1))
    parts = (s.released, s.published, s.state)
    released, published, state = ({c: v[rows].copy() for c, v in part.items()} for part in parts)
    return s._replace(released=released, published=published, state=state)


def _shape(job: GossipJob) -> tuple[Any, ...]:
    """Return all that joined runs share. They differ in records, noise scales and the noise key."""
    s = job.scenario
    noise = {c: schedule.points for c, schedule in job.noise.items()}
    return (
        *(job.algorithm, job.problem, job.sampling, job.clip, job.mechanism, job.unit, job.rounds, noise),
        *(s.tail_length, s.privacy.domain, generator_of(job.root), tuple(job.weights)),
        *(job.n_agents, s.problem.members),
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
