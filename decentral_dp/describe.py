"""What a job is, in words and numbers that anyone may know: what the plan already settles of `result.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from decentral_dp import describe_trusted as trusted
from decentral_dp.algorithms.decentralised.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.decentralised.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.config import outside
from decentral_dp.formatting import delta_text
from decentral_dp.gossip_noise import clipped_families
from decentral_dp.job import Job
from decentral_dp.privacy import infinite_horizon
from decentral_dp.privacy.bounded import CHANNELS, SPLITS, Array, Split
from decentral_dp.privacy.ledger import IntArray
from decentral_dp.privacy.private_state import endless_remainder, private_state
from decentral_dp.privacy.published_theorems import theorem_4_1, theorem_4_5
from decentral_dp.problems.minimax.minimax_context import MinimaxContext

# Rounds of the private-state recursion that are computed before its invariant bound takes over.
_EXPLICIT_ROUNDS = 10_000

# Algorithms whose every release carries one clipped step of the round, by the formulas of `privacy.infinite_horizon`.
_ONE_STEP = (LdpDsbo, LdpSingleLevel, DpDsgd)
OneStep = LdpDsbo | LdpSingleLevel | DpDsgd

# Agents that differ in what their limits depend on; beyond so many only the worst agent's limit is given.
_MOST_LIMITS = 16

PROTOCOLS = {
    "released": "released state (gradients and consensus at the agent's own released point)",
    "private": "private state, gradients at the agent's own released point",
    "printed": "private state and private gradient point (as published)",
}
# Where a server asks, its points are public under every protocol.
CENTRAL_PROTOCOLS = {
    "released": "public points, every agent's clipped answer noised by the agent",
    "printed": "public points, answers noised but not clipped",
}


def privacy_summary(job: Job) -> dict[str, Any]:
    """The guarantee, ε per agent, channel and record kind, the claim beside it, T → ∞, and what to know about them.

    A trusted coordinator's plan has an end, and no T → ∞; instead there is who sees what, what the constants are, and
    the price of every release.
    """
    budget, table = job.budget, job.scenario.privacy
    if job.context is None:
        limits, limit = _each_at_infinity(job), _limits(job)
        particular: dict[str, Any] = {"seen": []}
    else:
        limits, limit = [None] * job.n_agents, None
        particular = {"seen": trusted.seen(job), "constants": trusted.constants(job), "prices": trusted.prices(job)}
    agents = [
        {
            "agent": i,
            "epsilon": budget.epsilon[i],
            "epsilon_pure": budget.epsilon_pure[i],
            "channels": {
                c: {"epsilon": cost.epsilon[i], "epsilon_pure": cost.epsilon_pure[i]}
                for c, cost in budget.channels.items()
            },
            "records": {k: cost.epsilon[i] for k, cost in budget.records.items()},
            "at_infinity": limits[i],
        }
        for i in range(job.n_agents)
    ]
    noise = "secret" if job.scenario.seed is None else "reproducible from the recorded seed, therefore a simulation"
    return {
        "guarantee": table.guarantee,
        "mechanism": job.mechanism if job.context is None else trusted.mechanisms(job),
        "protocol": _protocol(job),
        **particular,
        "exchanges": job.algorithm.releases_per_round,
        "clip": _clip(job),
        "delta": table.delta,
        "epsilon_max": budget.epsilon.max(),
        "epsilon_pure_max": budget.epsilon_pure.max(),
        # A trusted coordinator's "as_printed" has a claim instead.
        "target": table.epsilon if job.mechanism != "none" and table.guarantee == "certified" else None,
        "cap": table.cap,
        "agents": agents,
        "at_infinity": limit,
        "claimed": claimed(job),
        "free_channels": {c.channel: c.reason for c in job.ledger.channels if c.mechanism == "free"},
        "noise": "off" if job.mechanism == "none" else noise,
        "numerical_slack": _slack(job),
        "notes": notes(job),
    }


def _protocol(job: Job) -> str:
    if job.context is not None:
        return trusted.protocol(job)
    return (CENTRAL_PROTOCOLS if job.program.central else PROTOCOLS)[job.algorithm.protocol]


def _clip(job: Job) -> dict[str, Any] | None:
    """The norm, and the bounds that bound anything: those of families that read records."""
    if job.context is not None:
        return trusted.clip(job)
    if job.scenario.privacy.guarantee != "certified":
        return None
    families = clipped_families(job.program.releases(job.problem.p, job.problem.q), job.problem)
    return {"norm": job.clip.norm, **{c: job.clip.bound(c) for c in CHANNELS if c in families}}


def _slack(job: Job) -> dict[str, float] | None:
    """What float64 sampling may add, included in every ε; None where no ε is finite, or ε is for exact arithmetic."""
    if job.scenario.privacy.guarantee != "certified" or not np.isfinite(job.budget.epsilon).any():
        return None
    return {"epsilon": job.budget.slack_epsilon, "delta": min(1.0, job.budget.slack_delta)}


def at_infinity(job: Job, agents: IntArray | None = None, channel: str | None = None) -> dict[str, Any]:
    """T → ∞, in exact arithmetic: what these finite data would cost, and what an endless stream of such records would.

    For the worst of the given agents (default: all), over all channels or over one. finite_data: ε at privacy.delta;
    +inf where it is proven to diverge, or already the planned rounds have no finite ε; None where nothing is known.
    endless_stream: pure ε for Laplace, ε at privacy.delta for Gaussian noise; None without a stream or a known bound.
    """
    who = np.arange(job.n_agents) if agents is None else agents
    spent = (job.budget if channel is None else job.budget.channels[channel]).epsilon[who]
    finite, endless = None, None
    if (spent == 0.0).all():
        finite = 0.0
    elif job.mechanism == "none" or np.isinf(spent).any():
        finite = math.inf
    elif isinstance(job.algorithm, _ONE_STEP) and job.algorithm.protocol == "released":
        finite = _finite_budget(job, job.algorithm, who, channel)
    charged = job.mechanism != "none" and finite != 0.0
    if charged and job.stream.kind == "accumulate" and isinstance(job.algorithm, LdpDsbo):
        endless = _endless_budget(job, job.algorithm, who, channel)
    return {"finite_data": finite, "endless_stream": endless}


def _limits(job: Job) -> dict[str, Any]:
    """`at_infinity` of everything, and channel by channel."""
    return at_infinity(job) | {"channels": {c: at_infinity(job, channel=c) for c in job.budget.channels}}


def _each_at_infinity(job: Job) -> list[dict[str, Any] | None]:
    """`at_infinity` agent by agent; those with equal counts, weights and noise share it. None where too many differ."""
    facts = [job.counts[k].astype(np.float64) for k in SPLITS] + [job.topology.neighbour_weight]
    facts += [part for s in job.noise.values() for part in (s.scale, s.decay)]
    _, first, group = np.unique(np.stack(facts), axis=1, return_index=True, return_inverse=True)
    if first.size > _MOST_LIMITS:
        return [None] * job.n_agents
    limits = [at_infinity(job, np.array([i])) for i in first]
    return [limits[g] for g in group.reshape(-1)]


def _finite_budget(job: Job, algorithm: OneStep, who: IntArray, channel: str | None) -> float:
    """ε at privacy.delta after infinitely many rounds of the released-state protocol on these shards.

    Agents are dominated by one with the fewest records, the smallest noise scale and the largest noise decay of all.
    A minibatch is bounded by its whole batch, without amplification.
    """
    stream, worst = job.stream, 0.0
    for split in SPLITS:
        fewest = int(job.counts[split][who].min())
        records = fewest if stream.kind == "accumulate" else int(stream.averaged(job.rounds, fewest))
        queries, batch = _queries(job, algorithm, split, who, channel), stream.batch or records
        delta = job.scenario.privacy.delta
        cost = infinite_horizon.at_infinity(queries, batch, stream.warm_start, records, _mechanism(job), delta)
        worst = max(worst, cost)
    return worst


def _endless_budget(job: Job, algorithm: LdpDsbo, who: IntArray, channel: str | None) -> float | None:
    """The budget of the worst agent if every round brought `batch` new records for ever; agents dominated as above."""
    if algorithm.protocol == "printed" and job.constants is not None and channel is None:
        return _endless_printed(job, algorithm, _noise(job, who), np.unique(job.topology.neighbour_weight[who]))
    if algorithm.protocol != "released":
        return None
    stream, worst = job.stream, 0.0
    delta = job.scenario.privacy.delta if job.mechanism == "gaussian" else 0.0
    for split in SPLITS:
        queries = _queries(job, algorithm, split, who, channel)
        cost = infinite_horizon.at_infinity(queries, stream.batch or 1, stream.warm_start, None, _mechanism(job), delta)
        worst = max(worst, cost)
    return worst


def _mechanism(job: Job) -> Literal["laplace", "gaussian"]:
    return "gaussian" if job.mechanism == "gaussian" else "laplace"


def _noise(job: Job, who: IntArray) -> dict[str, StepSize]:
    """Channel → the smallest scale and the largest decay of any of these agents."""
    return {c: StepSize(float(s.scale[who].min()), float(s.decay[who].max())) for c, s in job.noise.items()}


def _queries(
    job: Job, algorithm: OneStep, split: Split, who: IntArray, channel: str | None
) -> list[infinite_horizon.DecayingRelease]:
    """What one record of a kind feeds every round, one query per channel; several terms add their clips."""
    noise = _noise(job, who)
    sent = algorithm.releases(job.problem.p, job.problem.q)
    fed = [c for c in sent for t in sent[c].terms if job.problem.reads_records.get(t) == split and channel in (None, c)]
    return [
        infinite_horizon.DecayingRelease(getattr(algorithm, c), noise[c], job.clip.bound(c) * fed.count(c))
        for c in dict.fromkeys(fed)
    ]


def _endless_printed(job: Job, algorithm: LdpDsbo, noise: Mapping[str, StepSize], weights: Array) -> float | None:
    """Recursion for the first rounds, then its invariant bound; worst kind of record and worst self-weight."""
    rounds, batch = max(job.rounds, _EXPLICIT_ROUNDS), job.stream.batch or 1
    steps = {c: getattr(algorithm, c) for c in CHANNELS}
    seen = job.stream.warm_start + batch * np.arange(1.0, rounds + 1.0)
    t = np.arange(1.0, rounds + 1.0)
    worst = 0.0
    for split in SPLITS:
        sensitivity = private_state(job.constants, steps, weights, dict.fromkeys(SPLITS, seen), rounds, split)
        price = np.stack([math.sqrt(2.0) * (t + 1.0) ** noise[c].decay / noise[c].scale for c in CHANNELS], axis=1)
        spent = (sensitivity[1:] * price[:, None, :]).sum(axis=(0, 2))
        for weight, paid, last in zip(weights, spent, sensitivity[-1], strict=True):
            left = endless_remainder(job.constants, steps, float(weight), last, rounds, batch, noise, split)
            worst = max(worst, float(paid) + left)
    return worst


def claimed(job: Job) -> dict[str, Any] | None:
    """The printed Theorem 4.5, for the paper's own protocol: for comparison, never a certificate."""
    if job.context is not None:
        return trusted.claimed(job)
    if job.scenario.privacy.guarantee != "as_printed" or not isinstance(job.algorithm, LdpDsbo):
        return None
    steps = {c: getattr(job.algorithm, c) for c in CHANNELS}
    weight = float(job.topology.neighbour_weight.min())
    claim = theorem_4_5(steps, job.noise, weight, job.rounds)
    return {
        "epsilon_max": claim.epsilon_max,
        "epsilon_max_at_infinity": theorem_4_5(steps, job.noise, weight, math.inf).epsilon_max,
        "agents": list(claim.epsilon),
        "source": claim.source,
    }


def notes(job: Job) -> list[str]:
    """Sentences that belong beside the numbers."""
    out = [*job.shards.notes, *job.budget.notes, *delta_notes(job), *outside.notes(job.scenario)]
    if job.context is not None:
        return out + trusted.notes(job)
    if job.scenario.privacy.guarantee == "as_printed":
        out += _printed_notes(job)
    if job.mechanism != "none":
        out.append(_limit(job, at_infinity(job)["finite_data"]))
    return out


def delta_notes(job: Job) -> list[str]:
    """What a δ allows that is not far below one over the records of an agent."""
    most, delta = int(np.sum([job.counts[k] for k in SPLITS], axis=0).max()), job.scenario.privacy.delta
    if job.mechanism == "none" or delta * most < 1.0:
        return []
    return [
        f"δ = {delta_text(delta)} is not small beside 1/{most}, one over the records of an agent: a mechanism that "
        "publishes one of them at random would satisfy it. Take a δ far below that."
    ]


def _printed_notes(job: Job) -> list[str]:
    if not isinstance(job.algorithm, LdpDsbo):
        return ["Noise on every message, and nothing is clipped: nothing bounds what one record can do, and ε = ∞."]
    out = ["The provable ε of the printed protocol holds in exact arithmetic, for the boxed arguments declared."]
    if np.isinf(job.budget.epsilon).any():
        out = [
            "The protocol as printed has certified ε = ∞ here: its state is private and unclipped, and the terms "
            "it feeds on are not Lipschitz without boxes on y and z, a cap on x, and records of bounded l1 norm."
        ]
    return [
        *out,
        "The printed Theorem 4.5 is no certificate: its constants do not depend on the size of the gradients, and "
        "there are losses whose exact ε exceeds it.",
    ]


def _limit(job: Job, finite: float | None) -> str:
    """What becomes of the budget for T → ∞ on finite shards."""
    if finite is None:
        return "What becomes of ε for T → ∞ on finite shards is unknown: for this protocol no bound is derived."
    if np.isinf(job.budget.epsilon).any():
        return "No finite ε is known for T → ∞ on finite shards: the planned rounds have none."
    if math.isinf(finite):
        return "A finite shard is used up: with these steps and this noise its ε grows without bound as T → ∞."
    if finite == 0.0:
        return "Nothing that is released reads a record: ε = 0 for T → ∞, too."
    delta = delta_text(job.scenario.privacy.delta)
    return (
        f"For T → ∞ the ε of these finite shards at δ = {delta} stays bounded in exact arithmetic, since the "
        "steps decay fast enough beside the noise. What float64 adds grows with T."
    )


def theorem(job: Job) -> dict[str, Any] | None:
    """Whether step sizes and noise satisfy the paper's Theorem 4.1, case by case."""
    if not isinstance(job.algorithm, LdpDsbo):
        return None
    steps = {c: getattr(job.algorithm, c).decay for c in CHANNELS}
    noise = {c: schedule.decay for c, schedule in job.noise.items()}
    return theorem_4_1(steps, noise).to_dict()


def topology_summary(job: Job) -> dict[str, Any]:
    """The graph and its numbers."""
    t = job.topology
    return {
        "kind": t.name,
        "agents": t.n_agents,
        "edges": t.edges.tolist(),
        "rho": t.rho,
        "spectral_gap": t.spectral_gap,
        "self_weight": t.neighbour_weight.tolist(),
        "weights": t.weights,
        "labels": list(t.labels),
        "notes": list(t.notes),
        # Where a server asks, nobody talks to a neighbour.
        "central": job.context is not None or job.program.central,
    }


def problem_summary(job: Job) -> dict[str, Any]:
    """The problem, its size, and the public record counts."""
    counts: dict[Split, Any] = {k: job.counts[k].tolist() for k in SPLITS}
    return {
        "kind": job.scenario.problem.kind,
        "solves": "minimax" if isinstance(job.context, MinimaxContext) else "bilevel",
        # What is noted about the records says that they are others than those that were named.
        "data": job.shards.source
        if job.shards.notes or outside.is_given(job.scenario, "data")
        else job.scenario.problem.data,
        "notes": list(job.shards.notes),
        "p": job.problem.p,
        "q": job.problem.q,
        "records": {**counts, "test": int(job.shards.test.size)},
    }
