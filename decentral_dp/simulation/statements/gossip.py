"""The statement of privacy of agents that trust nobody: in words and numbers that anyone may know."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from decentral_dp.algorithms.gossip.choco import Choco
from decentral_dp.algorithms.gossip.exact_diffusion import ExactDiffusion
from decentral_dp.algorithms.gossip.gossip_sgda import GossipSgda
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.gossip.push_sum import PushSum
from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.algorithms.protocol import Claiming, StepSize
from decentral_dp.bounded import CHANNELS, SPLITS, Split
from decentral_dp.formatting import schedule_text
from decentral_dp.privacy.accounting import infinite_horizon
from decentral_dp.privacy.mechanisms import NO_NOISE
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.unit import RECORD
from decentral_dp.simulation.jobs.gossip_plan import gossip_job
from decentral_dp.simulation.jobs.gossip_setup import clipped_families
from decentral_dp.simulation.jobs.job import GossipJob
from decentral_dp.simulation.setting import Setting
from decentral_dp.simulation.statements.job import statement
from decentral_dp.simulation.statements.statement import Horizon, NoiseCorrelation, PaperClaim, PrivacyStatement

# The mean of features is released in round 0 alone, and limits are stated for decaying steps: this one is 1 in round 0,
# and all its later rounds together add less than float64 can tell.
_MEAN_STEP = StepSize(1.0, decay=60.0)

# Algorithms whose every release carries one clipped step of the round, by the formulas of `infinite_horizon`.
OneStep = LdpDsbo | LdpSingleLevel | DpDsgd | Choco | ExactDiffusion | GossipSgda | PushSum

PROTOCOLS = {
    "released": "released state (gradients at points that follow from released values)",
    "private": "private state, gradients at the agent's own released point",
    "published": "private state and private gradient point (as published)",
}
# Where a server asks, its points are public under every protocol.
CENTRAL_PROTOCOLS = {
    "released": "public points, every agent's clipped answer noised by the agent",
    "published": "public points, answers noised but not clipped",
}


def gossip_statement(job: GossipJob) -> PrivacyStatement:
    """Return the privacy statement of a job without a trusted party."""
    protocols = CENTRAL_PROTOCOLS if job.central else PROTOCOLS
    return statement(
        job,
        # How far steps lead beside noise that takes itself back no ratio of one release says.
        job.ledger if job.factor is None else replace(job.ledger, channels=()),
        _notes(job),
        trusted=False,
        claimed=gossip_claim(job),
        pools_records=job.pools_records,
        mechanisms=() if job.mechanism == NO_NOISE else (job.mechanism.name,),
        protocol=protocols[job.algorithm.protocol],
        clip=_clip(job) if job.scenario.privacy.guarantee == "certified" else None,
        at_infinity=gossip_horizon(job),
        colluders=job.scenario.privacy.colluders,
        shared=_noise_correlation(job),
    )


def _noise_correlation(job: GossipJob) -> NoiseCorrelation | None:
    if job.pairs is None:
        return None
    pairs = job.pairs
    most = np.max(
        [pairs.degrees(t) for t in ((0,) if job.topology.over_time is None else range(job.rounds + 1))], axis=0
    )
    own, links = pairs.own_deviations(np.arange(job.n_agents)), pairs.links()
    correlation = job.scenario.privacy.correlation
    ratio = float(pairs.ratios(links).mean() / own.mean())
    return NoiseCorrelation(ratio, int(most.min()), (correlation and correlation.across) or "")


def _clip(job: GossipJob) -> dict[str, Any]:
    """The norm, and the bounds that bound anything: those of families that read records."""
    families = clipped_families(job.algorithm.releases(job.problem.p, job.problem.q), job.problem)
    out: dict[str, Any] = {"norm": job.clip.norm, **{c: job.clip.bound(c) for c in CHANNELS if c in families}}
    return out | {c: f"{out[c]:g}{schedule_text(share.to_dict())}" for c, share in job.clip.shares if c in out}


def gossip_horizon(job: GossipJob) -> Horizon:
    """Bound ε of the worst agent for T → ∞, in exact arithmetic.

    Returns:
        `finite_data`: ε at privacy.delta on these records, +inf if that is proved to diverge or the planned rounds have
        no finite ε already, None if nothing is known. `endless_stream`: the bound if the stream of records never ended,
        pure ε for Laplace and ε at privacy.delta for Gaussian noise; None without a stream or a known bound.
    """
    epsilon, finite, endless = job.budget.epsilon, None, None
    if isinstance(job.algorithm, Claiming) and job.mechanism != NO_NOISE and epsilon.any():
        return Horizon(math.inf if np.isinf(epsilon).any() else None, job.algorithm.endless_stream(job))
    has_other_sums = _has_other_sums(job)
    if (epsilon == 0.0).all():
        finite = 0.0
    elif job.mechanism == NO_NOISE or np.isinf(epsilon).any():
        finite = math.inf
    elif has_other_sums:
        return Horizon(None, None)
    elif isinstance(job.algorithm, OneStep) and not job.central and job.algorithm.protocol == "released":
        finite = _limit(job, job.algorithm, is_endless=False)
    charged = job.mechanism != NO_NOISE and finite != 0.0 and job.unit == RECORD and not has_other_sums
    if charged and job.stream.kind == "accumulate" and isinstance(job.algorithm, LdpDsbo) and job.algorithm.memoryless:
        endless = _limit(job, job.algorithm, is_endless=True)
    return Horizon(finite, endless)


def _has_other_sums(job: GossipJob) -> bool:
    """Whether the budget is no sum of one step of an agent a round, under noise of its own, by sensitivity/scale."""
    algorithm: Any = job.algorithm
    return bool(
        # Noise that neighbours share.
        job.pairs is not None
        or job.factor is not None
        # A price need not be sensitivity/scale, and a plan need not be that of a base class.
        or isinstance(job.mechanism, OutsideMechanism)
        or job.components.algorithm.custom
        # Sums of samples, several releases a round, no single steps, or what follows no power law.
        or job.stream.kind == "poisson"
        or getattr(algorithm, "local_steps", None)
        or job.clip.shares
        or any(getattr(part, "points", ()) for part in (*vars(algorithm).values(), *job.noise.values()))
    )


def _limit(job: GossipJob, algorithm: OneStep, is_endless: bool) -> float:
    """ε of the worst agent after infinitely many rounds of the released-state protocol.

    Agents are dominated by one with the fewest records, the smallest noise scale and the largest noise decay of all.
    A minibatch is bounded by its whole batch, without amplification.

    Args:
        job: its noise, records and δ.
        algorithm: its program.
        is_endless: whether every round brings `batch` new records for ever, instead of these shards.
    """
    stream, worst = job.stream, 0.0
    delta = 0.0 if is_endless and job.mechanism.pure else job.scenario.privacy.delta
    for split in SPLITS:
        queries, records, batch = _queries(job, algorithm, split), None, stream.batch or 1
        if not is_endless:
            fewest = int(job.counts[split].min())
            if not fewest:
                continue
            records = fewest if stream.kind == "accumulate" else int(stream.averaged_counts(job.rounds, fewest))
            batch = stream.batch or records
            if job.unit != RECORD:
                # Groups move means of fewer records no further in their share: min(k, N_t)/N_t ≤ k/N_t.
                clips = float(job.unit.clips(records)) / 2.0
                queries = [q._replace(clip=q.clip * clips) for q in queries]
        cost = infinite_horizon.price_endless(queries, batch, stream.warm_start, records, job.mechanism, delta)
        worst = max(worst, cost)
    return worst


def smallest_noise(job: GossipJob) -> dict[str, StepSize]:
    """Channel → the smallest scale and the largest decay of any agent."""
    return {c: StepSize(float(s.scale.min()), float(s.decay.max())) for c, s in job.noise.items()}


def _queries(job: GossipJob, algorithm: OneStep, split: Split) -> list[infinite_horizon.DecayingRelease]:
    """What one record of a kind feeds every round, one query per channel; several terms add their clips."""
    noise = smallest_noise(job)
    sent = algorithm.releases(job.problem.p, job.problem.q)
    fed = [c for c in sent for t in sent[c].terms if job.problem.reads_records.get(t) == split]
    steps = {c: _MEAN_STEP if sent[c].terms == ("feature_mean",) else getattr(algorithm, c) for c in fed}
    return [
        infinite_horizon.DecayingRelease(step, noise[c], job.clip.bound(c) * fed.count(c)) for c, step in steps.items()
    ]


def gossip_claim(job: GossipJob) -> PaperClaim | None:
    """The ε that the paper of a published form states: for comparison, never a certificate."""
    is_published = job.scenario.privacy.guarantee == "as_published"
    return job.algorithm.paper_claim(job) if is_published and isinstance(job.algorithm, Claiming) else None


def _notes(job: GossipJob) -> list[str]:
    out = []
    if job.scenario.privacy.guarantee == "as_published":
        out = ["Noise on every message, and nothing is clipped: nothing bounds what one record can do, and ε = ∞."]
        if isinstance(job.algorithm, Claiming):
            out = job.algorithm.paper_notes(job)
    if job.factor is not None:
        out.append(
            "Noise goes on from that of earlier rounds. That saves reading, and no privacy: at this ε, all records in "
            "every round err no more in fresh noise."
        )
    average, rounds = job.scenario.run.average, job.scenario.algorithm.rounds
    if isinstance(average, float) and job.scenario.tail_length == 1:
        out.append(f"run.average = {average:g} of {rounds} rounds is one released value, and nothing is averaged.")
    return out


GOSSIP = Setting(gossip_job, gossip_statement, gossip_claim)
