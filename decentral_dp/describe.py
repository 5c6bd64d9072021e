"""What a job is, in words and numbers that anyone may know: what the plan already settles of `result.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms.decentralised.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.job import Job
from decentral_dp.privacy import tails
from decentral_dp.privacy.claims import theorem_4_1, theorem_4_5
from decentral_dp.privacy.ledger import IntArray
from decentral_dp.privacy.recursion import endless_remainder, private_state
from decentral_dp.privacy.sensitivity import CHANNELS, KINDS, Array, Kind
from decentral_dp.problems.protocol import FEEDS

# Rounds of the private-state recursion that are computed before its invariant bound takes over.
_EXPLICIT_ROUNDS = 10_000

# Agents that differ in what their limits depend on; beyond so many only the worst agent's limit is given.
_MOST_LIMITS = 16

PROTOCOLS = {
    "released": "released state (gradients and consensus at the agent's own released point)",
    "private": "private state, gradients at the agent's own released point",
    "printed": "private state and private gradient point (as published)",
}


def privacy_summary(job: Job) -> dict[str, Any]:
    """The guarantee, ε per agent, channel and record kind, the claim beside it, T → ∞, and what to know about them."""
    budget, table = job.budget, job.scenario.privacy
    limits = _each_at_infinity(job)
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
        "mechanism": job.mechanism,
        "protocol": PROTOCOLS[job.algorithm.protocol],
        "delta": table.delta,
        "epsilon_max": budget.epsilon.max(),
        "epsilon_pure_max": budget.epsilon_pure.max(),
        "target": table.epsilon if job.mechanism != "none" else None,
        "cap": table.cap,
        "agents": agents,
        "at_infinity": at_infinity(job) | {"channels": {c: at_infinity(job, channel=c) for c in budget.channels}},
        "claimed": claimed(job),
        "free_channels": {c.channel: c.reason for c in job.ledger.channels if c.mechanism == "free"},
        "noise": "off" if job.mechanism == "none" else noise,
        "numerical_slack": _slack(job),
        "notes": notes(job),
    }


def _slack(job: Job) -> dict[str, float] | None:
    """What float64 sampling may add, included in every ε; None where no ε is finite, or ε is for exact arithmetic."""
    if job.scenario.privacy.guarantee != "certified" or not np.isfinite(job.budget.epsilon).any():
        return None
    return {"epsilon": job.budget.slack_epsilon, "delta": min(1.0, job.budget.slack_delta)}


def at_infinity(job: Job, agents: IntArray | None = None, channel: str | None = None) -> dict[str, Any]:
    """T → ∞, in exact arithmetic: what these finite data would cost, and what an endless stream of such records would.

    For the worst of the given agents (default: all), over all channels or over one. finite_data: ε at privacy.delta;
    None where nothing is known. endless_stream: pure ε for Laplace, ε at privacy.delta for Gaussian noise; None
    without a stream or a known bound.
    """
    who = np.arange(job.n_agents) if agents is None else agents
    finite: float | None = math.inf
    endless = None
    if (job.budget.epsilon[who] == 0.0).all():
        finite = 0.0
    elif isinstance(job.algorithm, LdpDsbo) and job.mechanism != "none":
        finite = _finite_budget(job, job.algorithm, who, channel)
        if job.stream.kind == "accumulate":
            endless = _endless_budget(job, job.algorithm, who, channel)
    return {"finite_data": finite, "endless_stream": endless}


def _each_at_infinity(job: Job) -> list[dict[str, Any] | None]:
    """`at_infinity` agent by agent; those with equal counts, weights and noise share it. None where too many differ."""
    facts = [job.counts[k].astype(np.float64) for k in KINDS] + [job.topology.self_weight]
    facts += [part for s in job.noise.values() for part in (s.scale, s.decay)]
    _, first, group = np.unique(np.stack(facts), axis=1, return_index=True, return_inverse=True)
    if first.size > _MOST_LIMITS:
        return [None] * job.n_agents
    limits = [at_infinity(job, np.array([i])) for i in first]
    return [limits[g] for g in group.reshape(-1)]


def _finite_budget(job: Job, algorithm: LdpDsbo, who: IntArray, channel: str | None) -> float | None:
    """ε at privacy.delta after infinitely many rounds of the released-state protocol on these shards; None if unknown.

    Agents are dominated by one with the fewest records, the smallest noise scale and the largest noise decay of all.
    A minibatch is bounded by its whole batch, without amplification.
    """
    if algorithm.protocol != "released":
        # Known only where already the planned rounds cost infinitely much.
        return math.inf if np.isinf(job.budget.epsilon[who]).any() else None
    stream, worst = job.stream, 0.0
    for kind in KINDS:
        fewest = int(job.counts[kind][who].min())
        records = fewest if stream.kind == "accumulate" else int(stream.averaged(job.rounds, fewest))
        queries, batch = _queries(job, algorithm, kind, who, channel), stream.batch or records
        delta = job.scenario.privacy.delta
        cost = tails.at_infinity(queries, batch, stream.warm_start, records, _mechanism(job), delta)
        worst = max(worst, cost)
    return worst


def _endless_budget(job: Job, algorithm: LdpDsbo, who: IntArray, channel: str | None) -> float | None:
    """The budget of the worst agent if every round brought `batch` new records for ever; agents dominated as above."""
    if algorithm.protocol == "printed" and job.constants is not None and channel is None:
        return _endless_printed(job, algorithm, _noise(job, who), np.unique(job.topology.self_weight[who]))
    if algorithm.protocol != "released":
        return None
    stream, worst = job.stream, 0.0
    delta = job.scenario.privacy.delta if job.mechanism == "gaussian" else 0.0
    for kind in KINDS:
        queries = _queries(job, algorithm, kind, who, channel)
        cost = tails.at_infinity(queries, stream.batch or 1, stream.warm_start, None, _mechanism(job), delta)
        worst = max(worst, cost)
    return worst


def _mechanism(job: Job) -> Literal["laplace", "gaussian"]:
    return "gaussian" if job.mechanism == "gaussian" else "laplace"


def _noise(job: Job, who: IntArray) -> dict[str, StepSize]:
    """Channel → the smallest scale and the largest decay of any of these agents."""
    return {c: StepSize(float(s.scale[who].min()), float(s.decay[who].max())) for c, s in job.noise.items()}


def _queries(job: Job, algorithm: LdpDsbo, kind: Kind, who: IntArray, channel: str | None) -> list[tails.Query]:
    """What one record of a kind feeds every round, one query per channel; several terms add their clips."""
    noise = _noise(job, who)
    fed = [FEEDS[t] for t, reads in job.problem.touches.items() if reads == kind and channel in (None, FEEDS[t])]
    return [tails.Query(getattr(algorithm, c), noise[c], job.clip.bound(c) * fed.count(c)) for c in dict.fromkeys(fed)]


def _endless_printed(job: Job, algorithm: LdpDsbo, noise: Mapping[str, StepSize], weights: Array) -> float | None:
    """Recursion for the first rounds, then its invariant bound; worst kind of record and worst self-weight."""
    rounds, batch = max(job.rounds, _EXPLICIT_ROUNDS), job.stream.batch or 1
    steps = {c: getattr(algorithm, c) for c in CHANNELS}
    seen = job.stream.warm_start + batch * np.arange(1.0, rounds + 1.0)
    t = np.arange(1.0, rounds + 1.0)
    worst = 0.0
    for kind in KINDS:
        moved = private_state(job.constants, steps, weights, dict.fromkeys(KINDS, seen), rounds, kind)
        price = np.stack([math.sqrt(2.0) * (t + 1.0) ** noise[c].decay / noise[c].scale for c in CHANNELS], axis=1)
        spent = (moved[1:] * price[:, None, :]).sum(axis=(0, 2))
        for weight, paid, last in zip(weights, spent, moved[-1], strict=True):
            left = endless_remainder(job.constants, steps, float(weight), last, rounds, batch, noise, kind)
            worst = max(worst, float(paid) + left)
    return worst


def claimed(job: Job) -> dict[str, Any] | None:
    """The printed Theorem 4.5, for the paper's own protocol: for comparison, never a certificate."""
    if job.scenario.privacy.guarantee != "as_printed" or not isinstance(job.algorithm, LdpDsbo):
        return None
    steps = {c: getattr(job.algorithm, c) for c in CHANNELS}
    weight = float(job.topology.self_weight.min())
    claim = theorem_4_5(steps, job.noise, weight, job.rounds)
    return {
        "epsilon_max": claim.epsilon_max,
        "epsilon_max_at_infinity": theorem_4_5(steps, job.noise, weight, math.inf).epsilon_max,
        "agents": list(claim.epsilon),
        "source": claim.source,
    }


def notes(job: Job) -> list[str]:
    """Sentences that belong beside the numbers."""
    out = [*job.shards.notes, *job.budget.notes]
    if job.scenario.privacy.guarantee == "as_printed":
        if np.isinf(job.budget.epsilon).any():
            out.append(
                "The protocol as printed has certified ε = ∞ here: its state is private and unclipped, and the terms "
                "it feeds on are not Lipschitz without boxes on y and z, a cap on x, and records of bounded l1 norm."
            )
        else:
            out.append(
                "The provable ε of the printed protocol holds in exact arithmetic, for the boxed arguments declared."
            )
        if isinstance(job.algorithm, LdpDsbo):
            out.append(
                "The printed Theorem 4.5 is no certificate: its constants do not depend on the size of the gradients, "
                "and there are losses whose exact ε exceeds it."
            )
    if job.mechanism != "none":
        out.append(_limit(job, at_infinity(job)["finite_data"]))
    return out


def _limit(job: Job, finite: float | None) -> str:
    """What becomes of the budget for T → ∞ on finite shards."""
    if finite is not None and math.isfinite(finite):
        return (
            f"For T → ∞ the ε of these finite shards at δ = {job.scenario.privacy.delta:g} stays bounded in exact "
            "arithmetic, since the steps decay fast enough beside the noise. What float64 adds grows with T."
        )
    if isinstance(job.algorithm, LdpDsbo) and job.algorithm.protocol == "released":
        return "A finite shard is used up: with these steps and this noise its ε grows without bound as T → ∞."
    return "No finite ε is known for T → ∞ on finite shards under this protocol."


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
        "self_weight": t.self_weight.tolist(),
        "weights": t.weights,
        "labels": list(t.labels),
        "notes": list(t.notes),
    }


def problem_summary(job: Job) -> dict[str, Any]:
    """The problem, its size, and the public record counts."""
    counts: dict[Kind, Any] = {k: job.counts[k].tolist() for k in KINDS}
    return {
        "kind": job.scenario.problem.kind,
        # What is noted about the records says that they are others than those that were named.
        "data": job.shards.source if job.shards.notes else job.scenario.problem.data,
        "notes": list(job.shards.notes),
        "p": job.problem.p,
        "q": job.problem.q,
        "records": {**counts, "test": int(job.shards.test.size)},
    }
