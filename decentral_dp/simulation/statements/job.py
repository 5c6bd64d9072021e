"""The parts of a statement that every setting has: budgets, cautions, and what is on the author's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decentral_dp.bounded import SPLITS
from decentral_dp.config.checked_files import labels
from decentral_dp.formatting import delta_text, epsilon_text
from decentral_dp.privacy.accounting.accountants import Budget
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import NO_NOISE, Mechanism
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.probing.closures import arrays_seen
from decentral_dp.simulation.probing.rehearsal import ROUNDS
from decentral_dp.simulation.statements.signal import signal_cautions
from decentral_dp.simulation.statements.statement import (
    AUTHORS_WORD,
    AgentBudget,
    Cost,
    Horizon,
    PrivacyStatement,
    Signal,
)
from decentral_dp.user_code import own_name

# Arrays that a note names at most.
_NAMED = 5


def statement(
    job: Job, limits: Sequence[Horizon | None], signal: Mapping[str, Signal], notes: Sequence[str], **own: Any
) -> PrivacyStatement:
    """State a job's guarantee and its price, as far as it is said alike in every setting.

    Args:
        job: planned and priced.
        limits: of the budget for T → ∞, agent by agent.
        signal: of every channel beside its noise.
        notes: of its setting, which come last.
        own: the other fields of `PrivacyStatement`, which a setting has of its own.
    """
    table, budget = job.scenario.privacy, job.budget
    certified, word = table.guarantee == "certified", authors_word(job)
    cautions = [*target_cautions(job), *delta_cautions(job)]
    cautions += signal_cautions(signal, job.n_agents, trusted=job.setting != "gossip")
    before = [*job.shards.all_notes, *job.budget.notes, *cautions]
    return PrivacyStatement(
        setting=job.setting,
        guarantee=table.guarantee,
        exchanges=job.algorithm.releases_per_round,
        delta=table.delta,
        epsilon_max=float(budget.epsilon.max()),
        epsilon_pure_max=float(budget.epsilon_pure.max()),
        # "as_printed" has a claim instead.
        target=table.epsilon if job.mechanism != NO_NOISE and certified and not target_is_passed(job) else None,
        cap=table.cap,
        agents=_agent_budgets(budget, limits),
        free_channels=_free_channels(job.ledger),
        noise=_noise_source(job.mechanism, job.scenario.seed),
        numerical_slack=_numerical_slack(budget) if certified else None,
        privacy_unit=getattr(job.mechanism, "privacy_unit", ""),
        signal=signal,
        authors_word=tuple(word),
        notes=(*before, *(f"{AUTHORS_WORD}{text}" for text in word), *check_notes(job), *notes),
        cautions=tuple(cautions),
        **own,
    )


def target_is_passed(job: Job) -> bool:
    """Whether rounds follow those that the target epsilon is spent over."""
    first = job.scenario.privacy.epsilon_rounds
    return first is not None and first < job.rounds


def target_cautions(job: Job) -> list[str]:
    """What the target epsilon means where rounds follow those that it is spent over."""
    if not target_is_passed(job) or job.mechanism == NO_NOISE:
        return []
    table = job.scenario.privacy
    return [
        f"The noise is that of ε = {table.epsilon:g} over {table.epsilon_rounds} rounds. It keeps its schedule up to "
        f"round {job.rounds}, and all rounds together cost ε = {epsilon_text(float(job.budget.epsilon.max()))}."
    ]


def delta_cautions(job: Job) -> list[str]:
    """What a δ allows that is not far below one over the records of an agent."""
    most, delta = int(np.sum([job.counts[k] for k in SPLITS], axis=0).max()), job.scenario.privacy.delta
    if job.mechanism == NO_NOISE or delta * most < 1.0:
        return []
    return [
        f"δ = {delta_text(delta)} is not small beside 1/{most}, one over the records of an agent: a mechanism that "
        "publishes one of them at random would satisfy it. Take a δ far below that."
    ]


def authors_word(job: Job) -> list[str]:
    """What the ledger cannot know of components from outside, in sentences that follow `AUTHORS_WORD`."""
    c, entry, parts = job.components, job.components.algorithm, job.components.authors_word
    if job.mechanism == NO_NOISE:
        return parts
    if entry.origin:
        parts.append(
            f"{own_name(entry.kind)} ({Path(entry.origin).name}) reaches records through bounded "
            "queries alone and opens no bounded value. Whatever it released was recorded and priced; of what its code "
            f"does beside that, the first {min(ROUNDS, job.rounds)} of {job.rounds} rounds were rehearsed on made-up "
            "records, no more."
        )
    if isinstance(job.mechanism, OutsideMechanism):
        parts.append(_mechanisms_word(job.mechanism))
    if entry.origin or c.reads_user_code:
        written = ((job.algorithm, entry.origin), (c.partition.value, c.partition.is_outside))
        arrays = arrays_seen(job.problem, *(part for part, outside in written if outside))
        named = f" Here {'; '.join(arrays[:_NAMED])}{' and more' * (len(arrays) > _NAMED)}." if arrays else ""
        parts.append(
            "what Python code closes over, or reads from a disk, holds no records; nothing here can tell whether it "
            f"does.{named}"
        )
    return parts


def check_notes(job: Job) -> list[str]:
    """Which files a check was run on before, and what that is worth."""
    said = (
        []
        if job.mechanism == NO_NOISE
        else [f"{name} was {label}" for name, label in labels(job.components.files).items()]
    )
    return [f"{'; '.join(said)}; a check on made-up records proves nothing."] if said else []


def _mechanisms_word(mechanism: OutsideMechanism) -> str:
    unit = f" It states its price for {mechanism.privacy_unit}." if mechanism.privacy_unit else ""
    return (
        f"the noise of the mechanism {mechanism.name} has a law of the price that it states, in "
        f"float64 too.{unit} Its releases are composed as the worst of that price."
    )


def _agent_budgets(budget: Budget, limits: Sequence[Horizon | None]) -> tuple[AgentBudget, ...]:
    """The budget of each agent. limits: agent by agent, for T → ∞."""
    return tuple(
        AgentBudget(
            agent=i,
            epsilon=float(budget.epsilon[i]),
            epsilon_pure=float(budget.epsilon_pure[i]),
            channels={c: Cost(float(v.epsilon[i]), float(v.epsilon_pure[i])) for c, v in budget.channels.items()},
            records={k: float(cost.epsilon[i]) for k, cost in budget.records.items()},
            at_infinity=limit,
        )
        for i, limit in enumerate(limits)
    )


def _free_channels(ledger: Ledger) -> dict[str, str]:
    """Channel → why it costs nothing."""
    return {c.channel: str(c.reason) for c in ledger.channels if not c.mechanism.charged}


def _noise_source(mechanism: Mechanism, seed: int | None) -> str:
    """Whether there is noise, and whether anybody can draw it again."""
    if mechanism == NO_NOISE:
        return "off"
    return "secret" if seed is None else "reproducible from the recorded seed, therefore a simulation"


def _numerical_slack(budget: Budget) -> dict[str, float] | None:
    """What float64 sampling may add, included in every ε; None where no ε is finite."""
    if not np.isfinite(budget.epsilon).any():
        return None
    return {"epsilon": float(budget.slack_epsilon), "delta": float(min(1.0, budget.slack_delta))}
