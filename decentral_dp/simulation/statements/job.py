"""The parts of a statement that every setting has: budgets, cautions, what is on the author's word, and the signal.

The signal is what records contribute beside the noise: a bound from public numbers, before anything is run.

One replaced record moves a release by at most its sensitivity Δ, since it contributes at most Δ/2. All n records of an
agent that a release reads contribute at most nΔ/2, and only if all point the same way; noise of standard deviation σ on
d coordinates has the norm σ√d (root mean square). With index t over the releases of a channel and m agents whose
average moves by what each adds,

    one release     n Δ_t / (2 σ_t √d)
    all releases    Σ_t n Δ_t/2 / √(Σ_t σ_t² d / m)

Where the second is below 1, noise moves the average farther than all records together can. Most records do not agree
that well, so that a run may learn nothing at several times that. At a fixed ε both σ_t and √T grow alike: more rounds
change the second hardly at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from decentral_dp.algorithms.protocol import Counts
from decentral_dp.bounded import SPLITS, Array
from decentral_dp.formatting import delta_text
from decentral_dp.privacy.accounting.accountants import Budget
from decentral_dp.privacy.ledger import ChannelLedger, IntArray, Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, noise_of
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.privacy.unit import RECORD, Unit, sampled_unit
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.statements.statement import (
    AUTHORS_WORD,
    AgentBudget,
    AgentBudgets,
    Cost,
    PrivacyStatement,
    Signal,
)

# Times 1/N, up to which δ is taken without a note.
_LARGE_DELTA = 0.1
# Arrays that a note names at most.
_MOST_NAMED = 5


def statement(job: PlannedJob, planned: Ledger, notes: Sequence[str], trusted: bool, **own: Any) -> PrivacyStatement:
    """State a job's guarantee and its price, as far as it is said alike in every setting.

    Args:
        job: planned and priced.
        planned: every release of a round once.
        notes: of its setting, which come last.
        trusted: whether a coordinator releases one value for all.
        own: the other fields of `PrivacyStatement`, which a setting has of its own.
    """
    table, budget = job.scenario.privacy, job.budget
    certified, word = table.guarantee == "certified", authors_word(job)
    # An x without coordinates carries nothing, though the ledger has a channel for it.
    absent = frozenset(c.channel for c in job.ledger.channels if not c.dimension)
    cautions = delta_cautions(job)
    batch = job.stream.batch if job.stream.kind == "minibatch" else None
    signal = signals(planned, job.counts, trusted, job.unit, batch)
    cautions += signal_cautions(signal, job.n_agents, trusted)
    # A channel without coordinates carries nothing.
    free = {c.channel: str(c.reason) for c in job.ledger.channels if c.dimension and not c.mechanism.charged}
    # What float64 sampling may add, included in every ε.
    slack = {"epsilon": float(budget.slack_epsilon), "delta": float(min(1.0, budget.slack_delta))}
    before = [*job.shards.all_notes, *job.budget.notes, *cautions]
    return PrivacyStatement(
        setting=job.setting,
        guarantee=table.guarantee,
        exchanges=job.algorithm.releases_per_round,
        delta=table.delta,
        epsilon_max=float(budget.epsilon.max()),
        epsilon_pure_max=float(budget.epsilon_pure.max()),
        # "as_published" has a claim instead.
        target=table.epsilon if job.mechanism != NO_NOISE and certified else None,
        cap=table.cap,
        agents=_agent_budgets(budget, absent),
        free_channels=free,
        noise="off" if job.mechanism == NO_NOISE else "secret" if job.scenario.seed is None else "reproducible",
        numerical_slack=slack if certified and np.isfinite(budget.epsilon).any() else None,
        protected=job.unit.protected,
        neighbours=job.unit.neighbours,
        signal=signal,
        authors_word=tuple(word),
        notes=(*before, *(f"{AUTHORS_WORD}{text}" for text in word), *notes),
        cautions=tuple(cautions),
        **own,
    )


def delta_cautions(job: PlannedJob) -> list[str]:
    """What a δ allows that is not far below one over the records of an agent."""
    most, delta = int(np.sum([job.counts[k] for k in SPLITS], axis=0).max()), job.scenario.privacy.delta
    together = job.unit.records
    # Whoever publishes one record of an agent at random tells of the agent for certain.
    if job.mechanism == NO_NOISE or together is None or delta * most < _LARGE_DELTA * together:
        return []
    return [
        f"δ = {delta_text(delta)} is large: with probability δ·{most}/{together} = {delta * most / together:.2g} a "
        f"mechanism that satisfies it may publish {'a record' if together == 1 else f'{together} records'} of an agent "
        f"with {most} records. Fix: choose δ far below {together}/{most}."
    ]


def authors_word(job: PlannedJob) -> list[str]:
    """What the ledger cannot know of components from outside, in sentences that follow `AUTHORS_WORD`."""
    c, entry, parts = job.components, job.components.algorithm, job.components.authors_word
    if job.mechanism == NO_NOISE:
        return parts
    if entry.custom:
        parts.append(
            f"{entry.kind} reaches records through bounded queries only and opens no bounded value. Its releases are "
            "recorded and accounted. Nothing tries the rest of its code except `decentral-dp check`."
        )
    if isinstance(job.mechanism, OutsideMechanism):
        parts.append(_mechanisms_word(job.mechanism))
    if entry.custom or c.reads_user_code:
        parts.append(
            "what Python code closes over, or reads from a disk, holds no records; nothing here can tell whether it "
            "does."
        )
    return parts


def _mechanisms_word(mechanism: OutsideMechanism) -> str:
    return (
        f"the noise of the mechanism {mechanism.name} has a law of the price that it states, in float64 too. Its "
        "releases are composed as the worst of that price."
    )


def _agent_budgets(budget: Budget, absent: frozenset[str]) -> AgentBudgets:
    """The budget of each agent. absent: channels that nothing is sent on."""
    sent = {c: cost for c, cost in budget.channels.items() if c not in absent}
    whole, columns = (budget.epsilon, budget.epsilon_pure), [budget.epsilon, budget.epsilon_pure]
    columns += [column for cost in sent.values() for column in cost]
    columns += [cost.epsilon for cost in budget.records.values()]
    firsts, which = group_equal(columns)
    different = tuple(
        AgentBudget(
            agent=i,
            epsilon=float(whole[0][i]),
            epsilon_pure=float(whole[1][i]),
            channels={c: Cost(float(cost.epsilon[i]), float(cost.epsilon_pure[i])) for c, cost in sent.items()},
            records={k: float(cost.epsilon[i]) for k, cost in budget.records.items()},
        )
        for i in firsts.tolist()
    )
    return AgentBudgets(different, which)


def group_equal(columns: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """Gather agents whose numbers are all equal.

    Args:
        columns: (m,) each, finite or infinite.

    Returns:
        The first agent of each group, ascending, and (m,) the group of each agent.

    Example:
        >>> [found.tolist() for found in group_equal([np.array([2.0, 1.0, 2.0, 1.0]), np.array([0.0, 0.0, 0.0, 1.0])])]
        [[0, 1, 3], [0, 1, 0, 2]]
    """
    which = np.zeros(columns[0].size, dtype=np.int64)
    for column in columns:
        # Of most numbers all agents have the same.
        if (column != column[0]).any():
            values, place = np.unique(column, return_inverse=True)
            which = np.unique(which * values.size + place, return_inverse=True)[1]
    firsts = np.unique(which, return_index=True)[1]
    place = np.argsort(np.argsort(firsts))
    return np.sort(firsts), place[which]


def signals(
    ledger: Ledger, counts: Counts, trusted: bool, unit: Unit = RECORD, batch: int | None = None
) -> dict[str, Signal]:
    """Bound the signal of every channel that is noised, against its noise.

    Args:
        ledger: what is planned; of unequal releases the first ratio is their median, of unequal agents the smallest.
        counts: record kind → (m,) records of each agent.
        trusted: whether a coordinator releases one value for all, which reads the records of all.
        unit: what sensitivities are to; default one replaced record.
        batch: records of a batch of fixed size, if they are drawn.

    Returns:
        Channel → its ratios. Choices, and what has no noise or an infinite sensitivity, are left out.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("ring_breast_cancer")
        >>> {c: (round(s.one_release, 2), round(s.all_releases, 1)) for c, s in plan.privacy.signal.items()}
        {'y': (0.12, 4.9), 'z': (0.18, 7.0)}
    """
    # Numbers near the ends of float64 have no ratio.
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        facts = (ledger.n_agents, counts, trusted, unit, batch)
        ratios = {c.channel: _signal(c, *facts) for c in ledger.charged_channels if _has_ratio(c)}
    return {c: s for c, s in ratios.items() if _is_usable(s.one_release) and _is_usable(s.all_releases)}


def _is_usable(ratio: float | None) -> bool:
    return ratio is not None and 0.0 < ratio < math.inf


def _has_ratio(c: ChannelLedger) -> bool:
    moves = list(c.sensitivity.values())
    return c.mechanism.adds_noise and bool((c.scale > 0.0).all()) and bool(np.isfinite(moves).all() and np.any(moves))


def _signal(c: ChannelLedger, n_agents: int, counts: Counts, trusted: bool, unit: Unit, batch: int | None) -> Signal:
    first = np.unique(c.group, return_index=True)[1]
    drift = np.zeros_like(c.scale)
    for split, sensitivity in c.sensitivity.items():
        n = counts[split].sum() if trusted else counts[split][first]
        sampled = sampled_unit(c.sampling)
        if sampled is not None or unit == RECORD:
            drift = drift + c.rate[split] * sensitivity * n / (2 if sampled is None else sampled.steps)
        else:
            n = n if batch is None else np.minimum(n, batch)
            drift = drift + sensitivity * n / unit.clips(n)
    # What neighbours share is not in the average.
    noise = c.shared.get("own_scale", c.scale) * noise_of(c.mechanism, c.channel).deviation * math.sqrt(c.dimension)
    members = np.bincount(c.group, minlength=first.size) / n_agents
    total = np.sqrt((noise**2 @ members).sum() / (1 if trusted else n_agents))
    return Signal(
        one_release=float(np.median((drift / noise).min(axis=1))), all_releases=float((drift @ members).sum() / total)
    )


def signal_cautions(signal: Mapping[str, Signal], n_agents: int, trusted: bool) -> list[str]:
    """Say which channels noise swamps, and by how much."""
    all_releases = {c: s.all_releases for c, s in signal.items() if s.all_releases is not None}
    swamped = [f"{c} {1.0 / ratio:.2g} times" for c, ratio in all_releases.items() if ratio < 1.0]
    if not swamped:
        return []
    average = "" if trusted or n_agents == 1 else f" the average of {n_agents} agents"
    more = "more records" if trusted else "more records for each agent, more agents"
    return [
        f"Noise swamps the steps: over all rounds it moves{average} farther than all records together can, even if all "
        f"of them agreed ({', '.join(swamped)} as far). Use {more}, fewer coordinates or a larger ε; more rounds do "
        "not help."
    ]
