"""The privacy statement of a job: its guarantee, the budget of each agent, and notes.

`to_dict` returns the table "privacy" of `result.json`, and `from_dict` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, cast, overload

import numpy as np
from pydantic import PlainValidator, TypeAdapter, ValidationError

from decentral_dp.bounded import Array
from decentral_dp.data.dataset import IntArray
from decentral_dp.formatting import delta_text, epsilon_text

Setting: TypeAlias = Literal["gossip", "coordinator_bilevel", "coordinator_minimax"]
"""Trust and problem of a job: agents on a graph, or a trusted coordinator of a bilevel or minimax problem."""

View: TypeAlias = Literal["all_messages", "final_models", "final_average"]
"""Values that the adversary of the stated ε receives."""

# First word of notes on unverified code.
UNVERIFIED = "Unverified: "
# In `PrivacyStatement.seen`, of a coordinator that holds all records.
HANDS_RECORDS = "Every agent hands its records to the coordinator, which holds them all."


# Head of ε of all messages next to that of published models.
OF_ALL = "ε of all messages"
# Infinity is the string "inf" in result.json.
Number: TypeAlias = float | None


@dataclass(frozen=True)
class Cost:
    """The privacy cost of one channel for one agent.

    Args:
        epsilon: ε at the δ of the statement; None if unknown, +inf if nothing is proven.
        epsilon_pure: ε at δ = 0; +inf for Gaussian noise.
    """

    epsilon: Number = None
    epsilon_pure: Number = None


@dataclass(frozen=True)
class Horizon:
    """The budget for T → ∞, in exact arithmetic.

    Args:
        finite_data: ε at δ on these records; +inf if it diverges, None if unknown.
        endless_stream: pure ε for Laplace, ε at δ for Gaussian noise, on an endless stream of records; None without a
            bound.
    """

    finite_data: Number = None
    endless_stream: Number = None


@dataclass(frozen=True)
class AgentBudget:
    """The privacy budget of one agent.

    Args:
        agent: its number, from 0.
        epsilon: ε at the δ of the statement, over all channels; +inf if nothing is proven.
        epsilon_pure: the same at δ = 0.
        channels: channel → privacy cost of its releases only.
        records: "train" and "validation" → ε at δ of one replaced record of that split.
        epsilon_published: ε at δ for an adversary that receives only the published models; None if it observes all
            messages.
    """

    agent: int
    epsilon: Number = None
    epsilon_pure: Number = None
    channels: Mapping[str, Cost] = field(default_factory=dict)
    records: Mapping[str, Number] = field(default_factory=dict)
    epsilon_published: Number = None


# Up to this number result.json has an entry per agent; beyond it agents with equal budgets share one.
MOST_ENTRIES = 1000
# A damaged file must not ask for all memory.
_MOST_AGENTS = 10**8


@dataclass(frozen=True, eq=False, repr=False)
class AgentBudgets(Sequence[AgentBudget]):
    """The budgets of all agents: a sequence that keeps equal budgets once.

    Args:
        different: budgets, each of the first agent that has it, ascending.
        budget_index: (m,) index of each agent's budget.
    """

    different: tuple[AgentBudget, ...]
    budget_index: IntArray

    def __len__(self) -> int:
        return int(self.budget_index.size)

    @overload
    def __getitem__(self, agent: int) -> AgentBudget: ...

    @overload
    def __getitem__(self, agent: slice) -> tuple[AgentBudget, ...]: ...

    def __getitem__(self, agent: int | slice) -> AgentBudget | tuple[AgentBudget, ...]:
        if isinstance(agent, slice):
            return tuple(self[i] for i in range(*agent.indices(len(self))))
        budget: AgentBudget = self.different[self.budget_index[agent]]
        return replace(budget, agent=range(len(self))[agent])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentBudgets | tuple) and self[:] == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of any sequence that is compared by its entries

    def per_agent(self, values: Sequence[float | None]) -> Array:
        """Return the number (m,) of each agent, of one for each different budget; 0 for None."""
        return np.array([0.0 if v is None else v for v in values])[self.budget_index]

    def members(self) -> list[list[int]]:
        """Return the agents of each of the different budgets, ascending."""
        ends = np.cumsum(np.bincount(self.budget_index, minlength=len(self.different)))
        return [agents.tolist() for agents in np.split(np.argsort(self.budget_index, kind="stable"), ends[:-1])]

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of result.json; "alike" has first and last agent of each range that shares a budget."""
        if len(self) <= MOST_ENTRIES:
            return [_as_json(budget) for budget in self]
        starts = np.flatnonzero(np.diff(self.budget_index, prepend=-1))
        runs = np.stack([starts, np.append(starts[1:], len(self)) - 1], axis=1)
        order = np.argsort(self.budget_index[starts], kind="stable")
        ends = np.cumsum(np.bincount(self.budget_index[starts], minlength=len(self.different)))
        runs_by_budget = np.split(runs[order], ends[:-1])
        return [
            {**_as_json(b), "alike": alike.tolist()} for b, alike in zip(self.different, runs_by_budget, strict=True)
        ]

    @classmethod
    def from_entries(cls, entries: Any) -> AgentBudgets:
        """Parse the value of `entries`.

        Raises:
            ValueError: an entry is damaged, or an agent has no budget or several.
        """
        if isinstance(entries, AgentBudgets):
            return entries
        budgets = _adapter(tuple[AgentBudget, ...]).validate_python(entries)
        runs = [np.array(entry.get("alike", [[k, k]]), dtype=np.int64) for k, entry in enumerate(entries)]
        all_runs = np.concatenate([np.empty((0, 2), dtype=np.int64), *runs])
        order = np.argsort(all_runs[:, 0], kind="stable")
        first, last = all_runs[order].T
        if (first != np.append(0, last + 1)[:-1]).any() or (first > last).any() or last.max(initial=0) >= _MOST_AGENTS:
            raise ValueError("each agent has one budget")
        owner = np.repeat(np.arange(len(runs)), [len(run) for run in runs])
        return cls(budgets, np.repeat(owner[order], last - first + 1))


@dataclass(frozen=True)
class PaperClaim:
    """A budget that a paper claims: for comparison, never a certificate.

    Args:
        epsilon_max: the claimed ε of the worst agent.
        epsilon_max_at_infinity: the same for T → ∞.
        agents: the claimed ε of each agent.
        source: theorem and paper.
        delta: the claimed δ; None for pure ε.
    """

    epsilon_max: Number = None
    epsilon_max_at_infinity: Number = None
    agents: tuple[Number, ...] = ()
    source: str = "the paper"
    delta: Number = None

    @property
    def text(self) -> str:
        """The claim with its label, "ε = 2.00 at δ = 1e-5 by …; not certified."."""
        # A claim without δ is of pure ε.
        delta_suffix = f" at δ = {delta_text(self.delta)}" if self.delta else ""
        return f"ε = {epsilon_text(self.epsilon_max)}{delta_suffix} by {self.source}; not certified."


@dataclass(frozen=True)
class ReleasePrice:
    """The privacy cost of every release of a channel for one record, fixed before the run.

    Args:
        channel: its name.
        mechanism: "gaussian", "laplace" or "exponential".
        releases: number of releases in all rounds.
        width: coordinates of one release.
        unit: "μ" of a Gaussian pair, or pure "ε".
        price: split → lowest and highest cost of a release.
        rate: split → rate of Poisson sampling, if any.
    """

    channel: str
    mechanism: str
    releases: int
    width: int
    unit: str
    price: Mapping[str, tuple[float, float]]
    rate: Mapping[str, float] = field(default_factory=dict)


# Heads of `PrivacyStatement.lines` that the terminal prints with --verbose only.
VERBOSE_LINES = ("Correlated", "Seen")


@dataclass(frozen=True)
class Signal:
    """The signal-to-noise ratio of a channel (upper bound).

    Args:
        one_release: of one agent and release.
        all_releases: of all releases, averaged over the agents.
        noise_multiplier: standard deviation of an agent's noise over the largest contribution of one record.
    """

    one_release: Number = None
    all_releases: Number = None
    noise_multiplier: Number = None


@dataclass(frozen=True)
class NoiseCorrelation:
    """Noise that is correlated between agents.

    Args:
        ratio: deviation of the shared noise, over that of an agent's own; both averaged if they differ.
        collusion_threshold: the least number of colluding agents that may leave an agent its own noise only.
        between_agents: "pairwise", "zero_sum" or "optimised".
    """

    ratio: float
    collusion_threshold: int
    between_agents: str = "pairwise"

    @property
    def text(self) -> str:
        """The correlated agents, the ratio, and the collusion threshold."""
        agents = "every two agents" if self.between_agents == "zero_sum" else "each two neighbours"
        mean = "on average " if self.between_agents == "optimised" else ""
        return (
            f"{agents} share noise that cancels, {mean}{self.ratio:.3g} times an agent's own. Against "
            f"{self.collusion_threshold} colluders an agent may be left with its own noise only."
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyStatement:
    """The guarantee of a job and its privacy cost, from public facts only.

    Args:
        setting: of the job.
        guarantee: "certified", "as_published" or "none".
        mechanisms: noise mechanisms; none without noise.
        protocol: in words.
        seen: the threat model of a trusted coordinator, sentence by sentence; else empty.
        seen_briefly: the same in a line.
        pools_records: whether a coordinator or a server holds the agents' records, instead of sums over them.
        constants: "analytic" if a coordinator's problem has known constants, else None.
        prices: privacy cost of a coordinator's releases.
        exchanges: releases per round.
        clip: norm and bounds; None if nothing is clipped.
        delta: δ.
        epsilon_max: ε of the worst agent at δ.
        epsilon_pure_max: ε of the worst agent at δ = 0.
        view: values that the adversary receives: "all_messages", or only the "final_models" or their "final_average".
        epsilon_published: ε of the worst agent for an adversary that receives only the published models; None for
            "all_messages". `epsilon_max` is always that of all messages.
        target: ε of the scenario, for the adversary of `view`, or None.
        agents: the budget of each agent.
        at_infinity: the budget for T → ∞; None if a plan has an end.
        claimed: the budget that a paper claims, or None.
        free_channels: channel → reason why it has no privacy cost.
        noise: "off", "secret" or "reproducible".
        numerical_slack: what float64 sampling adds to ε and δ; included in every ε.
        protected: the difference of neighbouring data sets, as "one record of one agent".
        neighbours: "replace" or "zero_out".
        colluders: number of colluding agents.
        shared: pairwise correlated noise, or None.
        signal: channel → signal-to-noise ratio.
        unverified: unchecked assumptions on custom components.
        notes: sentences on these numbers.
        cautions: the notes on a large δ and a low signal.
    """

    setting: Setting
    guarantee: Literal["certified", "as_published", "none"]
    mechanisms: tuple[str, ...]
    protocol: str
    seen: tuple[str, ...] = ()
    seen_briefly: str = ""
    pools_records: bool = False
    constants: str | None = None
    prices: tuple[ReleasePrice, ...] = ()
    exchanges: int
    clip: Mapping[str, Any] | None
    delta: float
    epsilon_max: float
    epsilon_pure_max: float
    view: View = "all_messages"
    epsilon_published: Number = None
    target: Number
    agents: Annotated[AgentBudgets, PlainValidator(AgentBudgets.from_entries)]
    at_infinity: Horizon | None
    claimed: PaperClaim | None
    free_channels: Mapping[str, str]
    noise: str
    numerical_slack: Mapping[str, float] | None
    protected: str
    neighbours: Literal["replace", "zero_out"]
    colluders: int = 0
    shared: NoiseCorrelation | None = None
    signal: Mapping[str, Signal] = field(default_factory=dict)
    unverified: tuple[str, ...] = ()
    notes: tuple[str, ...]
    cautions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<PrivacyStatement of {len(self.agents)} agents: {self.summary}>"

    @property
    def is_trusted(self) -> bool:
        """Whether agents trust a coordinator."""
        return self.setting != "gossip"

    @property
    def rests_on_unverified(self) -> bool:
        """Whether ε relies on unchecked assumptions on custom components."""
        return self.is_noisy and bool(self.unverified)

    @property
    def claimed_epsilon(self) -> float | None:
        """The ε of the worst agent that a paper claims."""
        return None if self.claimed is None else self.claimed.epsilon_max

    @property
    def is_noisy(self) -> bool:
        return self.guarantee != "none"

    @property
    def is_simulation(self) -> bool:
        """Whether the recorded seed reproduces the noise."""
        return self.noise not in ("", "off", "secret")

    @property
    def adjacency(self) -> str:
        """The neighbouring relation: "replace one record of one agent"."""
        return f"{'zero out' if self.neighbours == 'zero_out' else self.neighbours} {self.protected}"

    @property
    def adversary(self) -> str:
        """The threat model: what the adversary observes.

        An adversary of published models receives nothing else, except the messages to colluding agents. With
        independent noise of each agent the guarantee for all messages holds against any number of colluding agents.
        Pairwise correlated noise needs a bound on their number.
        """
        if self.is_trusted or self.pools_records:
            return f"observes all that the trusted {'coordinator' if self.is_trusted else 'server'} publishes"
        q = self.colluders
        colluders = f"colludes with {q} agent{'s' * (q > 1)}" if q else "no agent colludes"
        if self.view != "all_messages":
            return f"receives {self.published_text} and {colluders}" if q else f"receives only {self.published_text}"
        if self.shared is None:
            return "observes all messages"
        return f"observes all messages, {colluders}"

    @property
    def published_text(self) -> str:
        """The models that the adversary of `view` receives: "the average of the 16 final models"."""
        models = f"the {len(self.agents)} final models"
        return f"the average of {models}" if self.view == "final_average" else models

    @property
    def assumptions(self) -> str:
        """The assumptions of ε of published models; "" if the adversary observes all messages."""
        if self.view == "all_messages":
            return ""
        others = "all other agents" if self.colluders else "agents"
        return (
            f"The first ε assumes that {others} follow the protocol and keep messages to themselves, and that no score "
            "or model of an earlier round is shown"
        )

    @property
    def epsilons(self) -> list[tuple[str, Number]]:
        """ε of the worst agent for each adversary: its name in tables and ε, that of all messages last."""
        if self.view == "all_messages":
            return [("ε", self.epsilon_max)]
        return [(f"ε of the {self.view.replace('_', ' ')}", self.epsilon_published), (OF_ALL, self.epsilon_max)]

    @property
    def certainty(self) -> str:
        """The kind of guarantee: "certified", or its limits."""
        word = "certified" if self.guarantee == "certified" else "provable for the algorithm as published"
        return f"{word}, with unverified components (listed by plan --verbose)" if self.rests_on_unverified else word

    @property
    def summary(self) -> str:
        """ε of the worst agent with its context: certainty, δ, adjacency, adversary, simulation.

        Every output with the ε of a run prints this text.

        Example:
            >>> import decentral_dp
            >>> decentral_dp.plan("ring_breast_cancer").privacy.summary.split(". ")[1:3]
            ['Adjacency: replace one record of one agent', 'Adversary: observes all messages']
        """
        if not self.is_noisy:
            return "none: noise is off, ε = ∞."
        different = self.agents.different
        most, most_published = (
            "at most " if len(set(map(epsilon_text, values))) > 1 else ""
            for values in ([b.epsilon for b in different], [b.epsilon_published for b in different])
        )
        # Gaussian noise has no pure ε.
        pure = f" (pure ε = {epsilon_text(self.epsilon_pure_max)})" if math.isfinite(self.epsilon_pure_max) else ""
        delta = f"at δ = {delta_text(self.delta)}"
        if self.view == "all_messages":
            budget = [f"{most}ε = {epsilon_text(self.epsilon_max)} {delta} for every agent{pure}"]
        else:
            published = epsilon_text(self.epsilon_published)
            budget = [
                f"{most_published}ε = {published} {delta} for an adversary that {self.adversary}",
                f"{most.capitalize()}ε = {epsilon_text(self.epsilon_max)} for one that observes every message",
                self.assumptions,
            ]
        parts = [
            f"{self.certainty}: {'. '.join(budget)}",
            f"Adjacency: {self.adjacency}",
            *([f"Adversary: {self.adversary}"] if self.view == "all_messages" else []),
            "SIMULATION: the recorded seed reproduces the noise" if self.is_simulation else f"Noise: {self.noise}",
        ]
        return f"{'. '.join(parts)}."

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Head and sentence of the summary, correlated noise, a paper's claim, cautions and the threat model."""
        out = [("Privacy", self.summary)]
        if not self.is_noisy:
            return out
        out += [] if self.shared is None else [("Correlated", self.shared.text)]
        out += [] if self.claimed is None else [("Claimed", self.claimed.text)]
        out += [("Note", note) for note in self.cautions]
        return [*out, ("Seen", self.seen_briefly)] if self.seen_briefly else out

    @property
    def mechanism_text(self) -> str:
        """The mechanism with the clipping norms and noise multipliers of its channels; "" without noise.

        The noise multiplier z of a channel is the standard deviation of the noise over the largest contribution of one
        record to the release. A sum of clipped per-example gradients then has noise of standard deviation z·C. The
        variables of bilevel problems are explained.
        """
        if not self.is_noisy or not self.mechanisms:
            return ""
        parts = [self.mechanism.capitalize()]
        # A channel of another name has the clip of its first term.
        norms = {c: bound for c, bound in (self.clip or {}).items() if c != "norm"}
        parts += [f"clipping norm {_by_channel(norms, is_single=True)}"] if norms else []
        parts += [f"noise multiplier {text}"] if (text := self.noise_multipliers_text) else []
        return ", ".join(parts)

    @property
    def noise_multipliers_text(self) -> str:
        """The noise multiplier of each channel."""
        levels = {c: s.noise_multiplier for c, s in self.signal.items() if s.noise_multiplier}
        return _by_channel(levels, is_single=len(self.signal) == 1) if levels else ""

    @property
    def variables_text(self) -> str:
        """The variables that the channels of a bilevel problem release; "" for other problems."""
        # Bilevel problems have records of two splits.
        is_bilevel = any(len(budget.records) > 1 for budget in self.agents.different)
        names = [f"{c}: {_BILEVEL_VARIABLES[c]}" for c in self.signal if c in _BILEVEL_VARIABLES]
        return ", ".join(names) if is_bilevel and len(self.signal) > 1 else ""

    @property
    def network_text(self) -> str:
        """The trusted party that agents answer; "" if agents use the graph."""
        if self.pools_records:
            whom = "coordinator" if self.is_trusted else "server"
            return f"every agent hands its records to a trusted {whom}; the scenario's graph plays no part"
        if self.is_trusted:
            return "a trusted coordinator asks every agent; the scenario's graph plays no part"
        return ""

    @property
    def mechanism(self) -> str:
        """The noise mechanisms, such as "exponential and gaussian"; "none" without noise."""
        return " and ".join(self.mechanisms) or "none"

    @property
    def grouped_notes(self) -> list[tuple[str, tuple[str, ...]]]:
        """The notes in their order, with those on unverified code as one: head and items of each."""
        words = {f"{UNVERIFIED}{word}": word for word in self.unverified}
        items = tuple(words[note] for note in self.notes if note in words)
        if len(items) < 2:
            return [(note, ()) for note in self.notes]
        heads = dict.fromkeys(UNVERIFIED.rstrip() if note in words else note for note in self.notes)
        return [(head, items if head == UNVERIFIED.rstrip() else ()) for head in heads]

    def to_dict(self) -> dict[str, Any]:
        """Return the table "privacy" of result.json, infinities as floats."""
        texts = {name: getattr(self, name) for name in ("mechanism", "summary", "adjacency", "adversary")}
        return {**_as_json(self), **texts}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PrivacyStatement:
        """Parse the table "privacy" of result.json.

        Raises:
            ValueError: a field is missing, or has a value of another kind.
        """
        missing = [f.name for f in fields(cls) if f.name not in content]
        if missing:
            raise ValueError(f"privacy: {', '.join(missing)} missing, as in no folder of this version")
        try:
            statement: PrivacyStatement = _adapter(cast(Any, cls)).validate_python(content)
            return statement
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"privacy.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


_BILEVEL_VARIABLES = {"x": "outer variable", "y": "inner variable", "z": "inverse Hessian times a gradient"}


def _by_channel(values: Mapping[str, Any], is_single: bool) -> str:
    """Return numbers with three digits, each after its channel if there are several."""
    texts = {c: f"{v:.3g}" if isinstance(v, float) else str(v) for c, v in values.items()}
    return (
        next(iter(texts.values())) if is_single and len(texts) == 1 else ", ".join(f"{c} {t}" for c, t in texts.items())
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _as_json(value: Any) -> Any:
    """Return dataclasses as tables and tuples as lists; pydantic would write infinities in sequences as None."""
    # Most values are of these types, and large runs have millions.
    kind: Any = type(value)
    if kind is float or kind is str or kind is int or value is None:
        return value
    if isinstance(value, tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, dict | Mapping):
        return {k: _as_json(v) for k, v in value.items()}
    if isinstance(value, AgentBudgets):
        return value.entries()
    if is_dataclass(value):
        return {f.name: _as_json(getattr(value, f.name)) for f in fields(value)}
    return value


def without_bound(statement: PrivacyStatement) -> PrivacyStatement:
    """Return the statement of a run with unplanned releases: ε is ∞ for every agent."""
    budgets = statement.agents
    published = None if statement.view == "all_messages" else math.inf
    different = tuple(AgentBudget(b.agent, math.inf, math.inf, epsilon_published=published) for b in budgets.different)
    note = "The run released values that were not planned. No ε holds for it."
    return replace(
        statement,
        epsilon_max=math.inf,
        epsilon_pure_max=math.inf,
        epsilon_published=published,
        agents=AgentBudgets(different, budgets.budget_index),
        at_infinity=None,
        notes=(note, *statement.notes),
    )
