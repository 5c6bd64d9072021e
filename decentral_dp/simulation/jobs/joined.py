"""Runs of one shape computed together: their agents are one block of a network without edges between runs.

The bits of an agent do not depend on other agents of its block, and noise is keyed by run and agent. Each run is
therefore bitwise identical to a single run, while a round costs one call for all runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from decentral_dp.engines.host import LEAST_SUMMED
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode, Outcome, RunControl, Snapshot
from decentral_dp.exchange import senders_of
from decentral_dp.participants import LocalDataset, Network
from decentral_dp.privacy.fingerprint import digest_of
from decentral_dp.privacy.randomness import generator_of
from decentral_dp.privacy.releasers import ScheduledReleaser
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob

# Largest number of runs of one block, and of floats of their records and models. Larger models gain nothing.
MOST_RUNS, _MOST_FLOATS, _LARGE = 32, 2**20, 2**13


def most_joined(job: PlannedJob) -> int:
    """Return the number of runs of a job's shape that are computed together; 1 if they run one by one.

    Jobs whose network or noise changes over rounds, or with public orders of records, and custom algorithms run one by
    one. Large complete graphs are summed in another order.
    """
    if not isinstance(job, GossipJob) or not (job.holds_records and job.components.has_proved_plan):
        return 1
    senders = senders_of(job.algorithm, job.public_network)
    changes = (senders, job.topology.over_time, job.pairs, job.factor, job.attack, job.aggregation, job.compression)
    is_fixed = all(part is None for part in changes) and job.sampling.kind != "cyclic"
    is_small = job.n_agents < LEAST_SUMMED and job.problem.q < _LARGE
    if not (is_fixed and is_small) or job.has_server or job.scenario.run.engine != "local":
        return 1
    values = job.n_agents * (job.problem.p + job.problem.q) * (1 + job.scenario.tail_length)
    return max(1, min(MOST_RUNS, _MOST_FLOATS // (job.shards.features.size + values)))


def join_runs(jobs: Sequence[GossipJob], agents: NDArray[np.int64]) -> AgentNode:
    """Return one block with selected agents of several runs, which reads the messages of all agents of all runs.

    Args:
        jobs: jobs with `most_joined` above 1, and equal algorithms, problems and clips.
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
    by_shape: dict[str, list[int]] = {}
    for k, job in enumerate(jobs):
        if isinstance(job, GossipJob) and most_joined(job) > 1:
            by_shape.setdefault(_digest_of_shape(job), []).append(k)
    groups = []
    for members in by_shape.values():
        most = min(most_joined(jobs[k]) for k in members)
        groups += [members[first : first + most] for first in range(0, len(members), most)]
    return [members for members in groups if len(members) > 1]


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


def _digest_of_shape(job: GossipJob) -> str:
    """Return a digest of all that joined runs share. They differ in records, noise scales, graph and noise key."""
    s, noise = job.scenario, {c: schedule.points for c, schedule in job.noise.items()}
    parts = (job.algorithm, job.problem, job.sampling, job.clip, job.mechanism, job.unit, job.rounds, noise)
    facts = (s.tail_length, s.privacy.domain, generator_of(job.root), tuple(job.weights), job.n_agents)
    return digest_of((*parts, *facts, s.problem.members))
