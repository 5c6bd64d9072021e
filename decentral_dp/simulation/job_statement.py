"""Privacy statements of jobs: the parts that all settings share, and the statement of agents without a trusted party.

The signal-to-noise ratio is bounded from public numbers, before the run. One replaced record moves a release by at most
its sensitivity Δ, so it contributes at most Δ/2. The n records of an agent contribute at most nΔ/2, which requires that
all point in the same direction. Noise of standard deviation σ on d coordinates has the root mean square norm σ√d. With
index t over the releases of a channel and m agents,

    one release     n Δ_t / (2 σ_t √d)
    all releases    Σ_t n Δ_t/2 / √(Σ_t σ_t² d / m)

Below a ratio of 1 over all releases, noise moves the average farther than all records together can. Records rarely
agree so well, so a run may learn nothing even at a ratio several times larger. At a fixed ε, σ_t grows as √T: more
rounds hardly change this ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from decentral_dp.algorithms.gossip.centring import strip_centring
from decentral_dp.algorithms.gossip.choco import Choco
from decentral_dp.algorithms.gossip.dlm import Dlm
from decentral_dp.algorithms.gossip.dp_dsgd import DpDsgd
from decentral_dp.algorithms.gossip.exact_diffusion import ExactDiffusion
from decentral_dp.algorithms.gossip.extra import Extra
from decentral_dp.algorithms.gossip.gossip_sgda import GossipSgda
from decentral_dp.algorithms.gossip.ldp_dsbo import LdpDsbo
from decentral_dp.algorithms.gossip.ldp_single_level import LdpSingleLevel
from decentral_dp.algorithms.gossip.mr_mtl import MrMtl
from decentral_dp.algorithms.gossip.push_sum import PushSum
from decentral_dp.algorithms.protocol import Claiming, Counts, StepSize
from decentral_dp.bounded import CHANNELS, SPLITS, Array
from decentral_dp.formatting import schedule_text
from decentral_dp.privacy.accounting import infinite_horizon
from decentral_dp.privacy.accounting.accountants import AgentCosts
from decentral_dp.privacy.clipping import RECORD, Unit, sampled_unit
from decentral_dp.privacy.custom_mechanism import OutsideMechanism
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, noise_of
from decentral_dp.problems.training import CrossEntropy
from decentral_dp.simulation.jobs.gossip_plan import clips_of_record, gossip_job, largest_contribution
from decentral_dp.simulation.jobs.gossip_setup import clipped_families
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.statement import (
    AgentBudget,
    AgentBudgets,
    Cost,
    Horizon,
    NoiseCorrelation,
    PaperClaim,
    PrivacyStatement,
    Signal,
)
from decentral_dp.simulation.summary import Setting


def statement(job: PlannedJob, ledger: Ledger, is_central: bool, **entries: Any) -> PrivacyStatement:
    """Build the privacy statement of a job.

    Args:
        job: planned job, with its ledger and budget.
        ledger: ledger with every release of a round once.
        is_central: whether a coordinator releases one value for all agents.
        entries: fields of `PrivacyStatement` that depend on the setting.
    """
    table, budget = job.scenario.privacy, job.budget
    is_certified = table.guarantee == "certified"
    published = job.published if isinstance(job, GossipJob) else None
    # The ledger has a channel for x even if x has no coordinates.
    absent = frozenset(c.channel for c in job.ledger.channels if not c.dimension)
    batch = job.sampling.batch if job.sampling.kind == "fixed_batch" else None
    free = {c.channel: str(c.reason) for c in job.ledger.channels if c.dimension and not c.mechanism.charged}
    # Included in every ε.
    slack = {"epsilon": float(budget.slack_epsilon), "delta": float(min(1.0, budget.slack_delta))}
    return PrivacyStatement(
        setting=job.setting,
        guarantee=table.guarantee,
        exchanges=job.algorithm.releases_per_round,
        delta=table.delta,
        epsilon_max=float(budget.epsilon.max()),
        epsilon_pure_max=float(budget.epsilon_pure.max()),
        view="all_messages" if published is None else table.adversary,
        epsilon_published=None if published is None else float(published.max()),
        # "as_published" has a claim instead.
        target=table.epsilon if job.mechanism != NO_NOISE and is_certified else None,
        agents=_agent_budgets(budget, absent, published),
        free_channels=free,
        noise="off" if job.mechanism == NO_NOISE else "secret" if job.scenario.seed is None else "reproducible",
        numerical_slack=slack if is_certified and np.isfinite(budget.epsilon).any() else None,
        unit_records=job.unit.records,
        most_records=int(np.sum([job.counts[k] for k in SPLITS], axis=0).max()),
        neighbours=job.unit.neighbours,
        signal=signals(ledger, job.counts, is_central, job.unit, batch),
        unverified=job.components.unverified,
        bundles=budget.bundles,
        has_pure_only=budget.has_pure_only,
        **entries,
    )


def _agent_budgets(budget: AgentCosts, absent: frozenset[str], published: Array | None) -> AgentBudgets:
    """Return the budget of each agent.

    Args:
        budget: privacy budget of all messages.
        absent: channels without coordinates, which are omitted.
        published: ε of published models, (m,), or None.
    """
    channels = {c: cost for c, cost in budget.channels.items() if c not in absent}
    whole, columns = (budget.epsilon, budget.epsilon_pure), [budget.epsilon, budget.epsilon_pure]
    columns += [column for cost in channels.values() for column in cost]
    columns += [cost.epsilon for cost in budget.records.values()]
    columns += [] if published is None else [published]
    firsts, budget_index = group_equal(columns)
    different = tuple(
        AgentBudget(
            agent=i,
            epsilon=float(whole[0][i]),
            epsilon_pure=float(whole[1][i]),
            epsilon_published=None if published is None else float(published[i]),
            channels={c: Cost(float(cost.epsilon[i]), float(cost.epsilon_pure[i])) for c, cost in channels.items()},
            records={k: float(cost.epsilon[i]) for k, cost in budget.records.items()},
        )
        for i in firsts.tolist()
    )
    return AgentBudgets(different, budget_index)


def group_equal(columns: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """Group agents with equal columns of numbers.

    Args:
        columns: numbers of the agents, (m,) each, finite or infinite.

    Returns:
        The first agent of each group, ascending, and the group of each agent, (m,).

    Example:
        >>> [part.tolist() for part in group_equal([np.array([2.0, 1.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])])]
        [[0, 1, 3], [0, 1, 0, 2]]
    """
    group = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns:
        # Most columns are constant.
        if (column != column[0]).any():
            values, place = np.unique(column, return_inverse=True)
            group = np.unique(group * values.size + place, return_inverse=True)[1]
    firsts = np.unique(group, return_index=True)[1]
    place = np.argsort(np.argsort(firsts))
    return np.sort(firsts), place[group]


def signals(
    ledger: Ledger, counts: Counts, is_central: bool, unit: Unit = RECORD, batch: int | None = None
) -> dict[str, Signal]:
    """Bound the signal-to-noise ratio of every channel.

    Args:
        ledger: planned releases; the ratio of one release is the median over releases of the minimum over agents.
        counts: split → number of records of each agent, (m,).
        is_central: whether a coordinator releases one value for all agents, which reads all records.
        unit: privacy unit of the sensitivities, default one replaced record.
        batch: size of a fixed batch, if any.

    Returns:
        Map of each channel to its ratios, without selections and channels without noise or with infinite sensitivity.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("ring_breast_cancer")
        >>> {c: (round(s.one_release, 2), round(s.all_releases, 1)) for c, s in plan.privacy.signal.items()}
        {'y': (0.12, 4.9), 'z': (0.18, 7.0)}
    """
    # Numbers near the ends of float64 have no ratio.
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        facts = (ledger.n_agents, counts, is_central, unit, batch)
        ratios = {c.channel: _signal(c, *facts) for c in ledger.charged_channels if c.mechanism.adds_noise}
    return {c: s for c, s in ratios.items() if all(r and 0.0 < r < math.inf for r in (s.one_release, s.all_releases))}


def _signal(c: ChannelLedger, n_agents: int, counts: Counts, is_central: bool, unit: Unit, batch: int | None) -> Signal:
    first = np.unique(c.group, return_index=True)[1]
    drift = np.zeros_like(c.scale)
    contribution = largest_contribution(c, counts, unit, batch, is_central)
    for split, sensitivity in c.sensitivity.items():
        n = counts[split].sum() if is_central else counts[split][first]
        sensitivity_to_one = sensitivity / clips_of_record(c, n, unit, batch)
        if sampled_unit(c.sampling) is not None or unit == RECORD:
            drift = drift + c.rate[split] * sensitivity_to_one * n
        else:
            drift = drift + sensitivity_to_one * (n if batch is None else np.minimum(n, batch))
    # Noise that neighbours share cancels in the average.
    noise = c.shared.get("own_scale", c.scale) * noise_of(c.mechanism, c.channel).deviation * math.sqrt(c.dimension)
    members = np.bincount(c.group, minlength=first.size) / n_agents
    # An agent that does not send has infinite noise in the ledger, and adds none.
    is_sent = np.isfinite(noise)
    medians = map(_median, (noise / math.sqrt(c.dimension) / contribution).T)
    multipliers = [z for z in medians if z is not None]
    total = np.sqrt((np.where(is_sent, noise, 0.0) ** 2 @ members).sum() / (1 if is_central else n_agents))
    return Signal(
        one_release=_median(np.where(is_sent, drift / noise, math.inf).min(axis=1)),
        all_releases=float((drift @ members).sum() / total),
        noise_multiplier=(min(multipliers), max(multipliers)) if multipliers else None,
    )


def _median(values: Array) -> float | None:
    """Return the median of the finite values; None if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else None


# The mean of features is released in round 0 only. Limits need a decaying step: this one is 1 in round 0, and its later
# rounds together add less than one unit of float64.
_MEAN_STEP = StepSize(1.0, decay=60.0)

# Algorithms with one clipped step of the round in every release, by the formulas of `infinite_horizon`.
OneStep = LdpDsbo | LdpSingleLevel | DpDsgd | Choco | ExactDiffusion | Extra | Dlm | MrMtl | GossipSgda | PushSum


def gossip_statement(job: GossipJob) -> PrivacyStatement:
    """Return the privacy statement of a job without a trusted party."""
    noise_correlation = None
    if job.pairs is not None:
        rounds = (0,) if job.topology.over_time is None else range(job.rounds + 1)
        most = np.max([job.pairs.degrees(t) for t in rounds], axis=0)
        deviations, correlation = job.pairs.own_deviations(np.arange(job.n_agents)), job.scenario.privacy.correlation
        ratio = float(job.pairs.ratios(job.pairs.links()).mean() / deviations.mean())
        noise_correlation = NoiseCorrelation(ratio, int(most.min()), (correlation and correlation.between_agents) or "")
    return statement(
        job,
        # Noise that is correlated over rounds has no ratio of one release.
        job.ledger if job.factor is None else replace(job.ledger, channels=()),
        is_central=False,
        claimed=gossip_claim(job),
        pools_records=job.pools_records,
        mechanisms=() if job.mechanism == NO_NOISE else (job.mechanism.name,),
        protocol=job.algorithm.protocol,
        clip=_clip(job) if job.scenario.privacy.guarantee == "certified" else None,
        at_infinity=gossip_horizon(job),
        colluders=job.scenario.privacy.colluders,
        shared=noise_correlation,
        over_rounds=job.factor is not None,
    )


def _clip(job: GossipJob) -> dict[str, Any]:
    """Return the norm, the bounds of the channels that read records, and whether losses are clipped by envelopes."""
    families = clipped_families(job.algorithm.releases(job.problem.p, job.problem.q), job.problem)
    out: dict[str, Any] = {"norm": job.clip.norm, **{c: job.clip.bound(c) for c in CHANNELS if c in families}}
    has_envelope = job.clip.envelope and isinstance(getattr(job.problem, "loss", None), CrossEntropy)
    out |= {"method": "Pasch–Hausdorff envelope"} if has_envelope else {}
    return out | {c: f"{out[c]:g}{schedule_text(share.to_dict())}" for c, share in job.clip.shares if c in out}


def gossip_horizon(job: GossipJob) -> Horizon:
    """Bound ε of the worst agent for T → ∞, in exact arithmetic.

    Returns:
        `finite_data`: ε at privacy.delta on these records; +inf if it diverges or is infinite for the planned rounds,
        None if unknown. `endless_stream`: the bound on an endless stream of records, pure ε for Laplace and ε at
        privacy.delta for Gaussian noise; None if there is no stream or no known bound.
    """
    epsilon, finite, endless = job.budget.epsilon, None, None
    algorithm = strip_centring(job.algorithm)
    if isinstance(job.algorithm, Claiming) and job.mechanism != NO_NOISE and epsilon.any():
        return Horizon(math.inf if np.isinf(epsilon).any() else None, job.algorithm.endless_stream(job))
    has_other_sums = _has_other_sums(job)
    if (epsilon == 0.0).all():
        finite = 0.0
    elif job.mechanism == NO_NOISE or np.isinf(epsilon).any():
        finite = math.inf
    elif has_other_sums:
        return Horizon(None, None)
    elif isinstance(algorithm, OneStep) and not job.has_server and algorithm.protocol == "released":
        finite = _limit(job, algorithm, is_endless=False)
    has_finite_horizon = job.mechanism != NO_NOISE and finite != 0.0 and job.unit == RECORD and not has_other_sums
    if (
        has_finite_horizon
        and job.sampling.kind == "streaming"
        and isinstance(job.algorithm, LdpDsbo)
        and job.algorithm.memoryless
    ):
        endless = _limit(job, job.algorithm, is_endless=True)
    return Horizon(finite, endless)


def _has_other_sums(job: GossipJob) -> bool:
    """Return whether the budget differs from the sum of sensitivity/scale over one step per agent and round."""
    algorithm = strip_centring(job.algorithm)
    return bool(
        # Noise that is correlated between agents or over rounds.
        job.pairs is not None
        or job.factor is not None
        # The cost of a custom mechanism, and the plan of a custom algorithm.
        or isinstance(job.mechanism, OutsideMechanism)
        # Gradients that are weighted by counts.
        or job.weights
        or not job.components.algorithm.proved
        # Sampling, several steps a round, or schedules that are no power law.
        or job.sampling.kind == "poisson"
        or getattr(algorithm, "local_steps", None)
        or job.clip.shares
        or any(getattr(part, "points", ()) for part in (*vars(algorithm).values(), *job.noise.values()))
    )


def _limit(job: GossipJob, algorithm: OneStep, is_endless: bool) -> float:
    """Bound ε of the worst agent after infinitely many rounds of the released-state protocol.

    The bound is for an agent with the fewest records, the smallest noise scale and the largest noise decay.
    A minibatch counts as its whole batch, without amplification by sampling.

    Args:
        job: job, whose noise, records and δ are read.
        algorithm: algorithm of the job, without centring.
        is_endless: whether every round has `batch` new records instead of these records.
    """
    sampling, worst = job.sampling, 0.0
    delta = 0.0 if is_endless and job.mechanism.pure else job.scenario.privacy.delta
    noise, releases = smallest_noise(job), job.algorithm.releases(job.problem.p, job.problem.q)
    has_own_steps = isinstance(algorithm, LdpDsbo | GossipSgda)
    for split in SPLITS:
        # One query for each channel that reads a record of the split; several terms add their clips.
        channels = [c for c in releases for t in releases[c].terms if job.problem.reads_records.get(t) == split]
        queries = []
        for c in dict.fromkeys(channels):
            step = _MEAN_STEP
            if releases[c].terms != ("feature_mean",):
                # One-level training has one learning rate.
                step = getattr(algorithm, c if has_own_steps else "learning_rate")
            queries.append(infinite_horizon.DecayingRelease(step, noise[c], job.clip.bound(c) * channels.count(c)))
        records, batch = None, sampling.batch or 1
        if not is_endless:
            fewest = int(job.counts[split].min())
            if not fewest:
                continue
            records = fewest if sampling.kind == "streaming" else int(sampling.averaged_counts(job.rounds, fewest))
            batch = sampling.batch or records
            if job.unit != RECORD:
                # min(k, N_t)/N_t ≤ k/N_t for a group of k records.
                clips = float(job.unit.clips(records)) / 2.0
                queries = [q._replace(clip=q.clip * clips) for q in queries]
        cost = infinite_horizon.account_endless(queries, batch, sampling.warm_start, records, job.mechanism, delta)
        worst = max(worst, cost)
    return worst


def smallest_noise(job: GossipJob) -> dict[str, StepSize]:
    """Return channel → smallest scale and largest decay of any agent."""
    return {c: StepSize(float(s.scale.min()), float(s.decay.max())) for c, s in job.noise.items()}


def gossip_claim(job: GossipJob) -> PaperClaim | None:
    """Return the ε that the paper of a published form claims, for comparison only."""
    is_published = job.scenario.privacy.guarantee == "as_published"
    return job.algorithm.paper_claim(job) if is_published and isinstance(job.algorithm, Claiming) else None


GOSSIP = Setting(gossip_job, gossip_statement, gossip_claim)
