"""Privacy statement of a job: its guarantee, the budget of each agent, and their context, as numbers and codes.

`to_dict` returns the table "privacy" of `result.json`, and `from_dict` reads it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, cast, overload

import numpy as np
from pydantic import Field, PlainValidator, TypeAdapter, ValidationError

from decentral_dp import annexes
from decentral_dp.bounded import Array
from decentral_dp.data.dataset import IntArray

View: TypeAlias = Literal["all_messages", "final_models", "final_average"]
"""Values that the adversary of the stated ε receives."""

# Infinity is the string "inf" in result.json.
Number: TypeAlias = float | None


@dataclass(frozen=True)
class Cost:
    """Privacy cost of one channel for one agent.

    Args:
        epsilon: ε at the δ of the statement; None if unknown, +inf if nothing is proved.
        epsilon_pure: ε at δ = 0; +inf for Gaussian noise.
    """

    epsilon: Number = None
    epsilon_pure: Number = None


@dataclass(frozen=True)
class Horizon:
    """Budget for T → ∞, in exact arithmetic.

    Args:
        finite_data: ε at δ on these records; +inf if it diverges, None if unknown.
        endless_stream: ε on an endless stream of records, pure for Laplace noise and at δ for Gaussian noise; None if
            it is unbounded.
    """

    finite_data: Number = None
    endless_stream: Number = None


@dataclass(frozen=True)
class AgentBudget:
    """Privacy budget of one agent.

    Args:
        agent: agent number, from 0.
        epsilon: ε at the δ of the statement, over all channels; +inf if nothing is proved.
        epsilon_pure: ε at δ = 0, over all channels.
        channels: channel → privacy cost of its releases only.
        records: split ("train" or "validation") → ε at δ for one replaced record of that split.
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
    """Budgets of all agents, as a sequence that stores equal budgets once.

    Args:
        different: distinct budgets, in the order of the first agent that has each.
        budget_index: index of each agent's budget, (m,).
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
        """Return the number of each agent, (m,), from one number for each distinct budget; 0 for None."""
        return np.array([0.0 if v is None else v for v in values])[self.budget_index]

    def members(self) -> list[list[int]]:
        """Return the agents of each distinct budget, ascending."""
        ends = np.cumsum(np.bincount(self.budget_index, minlength=len(self.different)))
        return [agents.tolist() for agents in np.split(np.argsort(self.budget_index, kind="stable"), ends[:-1])]

    def entries(self) -> list[dict[str, Any]]:
        """Return the entries of result.json; "alike" has the first and last agent of each range with one budget."""
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
    """Privacy budget that a paper claims, which is not certified and serves only for comparison.

    Args:
        epsilon_max: claimed ε of the worst agent.
        epsilon_max_at_infinity: claimed ε of the worst agent for T → ∞.
        agents: claimed ε of each agent.
        source: theorem and paper.
        delta: claimed δ; None for pure ε.
        remarks: remarks on the claim, by the author of the program.
    """

    epsilon_max: Number = None
    epsilon_max_at_infinity: Number = None
    agents: tuple[Number, ...] = ()
    source: str = "the paper"
    delta: Number = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleasePrice:
    """Privacy cost of every release of a channel for one record, fixed before the run.

    Args:
        channel: channel name.
        mechanism: noise mechanism, "gaussian", "laplace" or "exponential".
        unit: unit of the cost, "μ" of a Gaussian pair or pure "ε".
        price: split → lowest and highest cost of a release.
        rate: split → rate of Poisson sampling, if any.
    """

    channel: str
    mechanism: str
    unit: str
    price: Mapping[str, tuple[float, float]]
    rate: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Signal:
    """Signal-to-noise ratio of a channel (upper bound).

    Args:
        one_release: ratio of one agent and release.
        all_releases: ratio of all releases, averaged over the agents.
        noise_multiplier: standard deviation of an agent's noise, divided by the largest contribution of one record: the
            smallest and the largest over all agents, each the median over the agent's releases.
    """

    one_release: Number = None
    all_releases: Number = None
    noise_multiplier: tuple[float, float] | None = None


@dataclass(frozen=True)
class NoiseCorrelation:
    """Noise that is correlated between agents.

    Args:
        ratio: ratio of the standard deviations of the shared noise and an agent's own noise, each averaged if it
            differs.
        collusion_threshold: smallest number of colluding agents that may leave an agent with only its own noise.
        between_agents: kind "pairwise", "zero_sum" or "optimised".
    """

    ratio: float
    collusion_threshold: int
    between_agents: str = "pairwise"


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyStatement:
    """Guarantee of a job and its privacy cost, from public facts only.

    Args:
        setting: "gossip", or the setting of a trusted coordinator and its type of problem.
        guarantee: kind of guarantee, "certified", "as_published" or "none".
        mechanisms: noise mechanisms; none without noise.
        protocol: protocol of the algorithm, "released", "private" or "as_published".
        queries: terms that a trusted coordinator queries and that read records.
        releases: channel → number of a trusted coordinator's releases in all rounds, and coordinates of one release.
        pools_records: whether a coordinator or a server holds the agents' records, rather than sums over them.
        constants: "analytic" if a coordinator's problem has known constants, or None.
        prices: privacy cost of a coordinator's releases.
        exchanges: number of releases per round.
        clip: norm, bounds, and any unusual method of the clip; None if nothing is clipped.
        delta: δ of the statement.
        epsilon_max: ε of the worst agent at δ.
        epsilon_pure_max: ε of the worst agent at δ = 0.
        view: values that the adversary receives: "all_messages", or only the "final_models" or their "final_average".
        epsilon_published: ε of the worst agent for an adversary that receives only the published models; None for
            "all_messages". `epsilon_max` always covers all messages.
        target: ε of the scenario, for the adversary of `view`, or None.
        agents: budget of each agent.
        at_infinity: budget for T → ∞; None if a plan has an end.
        claimed: budget that a paper claims, or None.
        free_channels: channel → reason why it has no privacy cost.
        noise: kind of noise, "off", "secret" or "reproducible".
        numerical_slack: amounts that float64 sampling adds to ε and δ, which are included in every ε.
        unit_records: number of records of one agent in which neighbouring data sets differ; None for all.
        most_records: largest number of records of an agent.
        neighbours: adjacency "replace" or "zero_out".
        colluders: number of colluding agents.
        shared: pairwise correlated noise, or None.
        over_rounds: whether noise is correlated over rounds.
        signal: channel → signal-to-noise ratio.
        unverified: kind of custom component with unchecked assumptions → name.
        uncertified: channel → reason why its mechanism has no proof.
        bundles: number of bundles of agents whose ε is composed together; 0 if each agent's ε is composed separately.
        has_pure_only: whether some agents have only the pure ε of ideal samplers.
    """

    setting: Annotated[str, Field(pattern=f"^({'|'.join(['gossip', *annexes.SETTINGS])})$")]
    guarantee: Literal["certified", "as_published", "none"]
    mechanisms: tuple[str, ...]
    protocol: str
    queries: tuple[str, ...] = ()
    releases: Mapping[str, tuple[int, int]] = field(default_factory=dict)
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
    unit_records: int | None
    most_records: int
    neighbours: Literal["replace", "zero_out"]
    colluders: int = 0
    shared: NoiseCorrelation | None = None
    over_rounds: bool = False
    signal: Mapping[str, Signal] = field(default_factory=dict)
    unverified: Mapping[str, str] = field(default_factory=dict)
    uncertified: Mapping[str, str] = field(default_factory=dict)
    bundles: int = 0
    has_pure_only: bool = False

    def __repr__(self) -> str:
        return f"<PrivacyStatement: {self.guarantee}, epsilon_max={self.epsilon_max:.4g}, delta={self.delta:g}>"

    @property
    def is_trusted(self) -> bool:
        """Whether agents trust a coordinator."""
        return self.setting != "gossip"

    @property
    def publishes_all(self) -> bool:
        """Whether a trusted coordinator or server publishes all that the adversary observes."""
        return self.is_trusted or self.pools_records

    @property
    def rests_on_unverified(self) -> bool:
        """Whether ε relies on unchecked assumptions about custom components."""
        return self.is_noisy and bool(self.unverified)

    @property
    def claimed_epsilon(self) -> float | None:
        """Claimed ε of the worst agent in a paper."""
        return None if self.claimed is None else self.claimed.epsilon_max

    @property
    def is_noisy(self) -> bool:
        return self.guarantee != "none"

    @property
    def is_simulation(self) -> bool:
        """Whether the recorded seed reproduces the noise."""
        return self.noise not in ("", "off", "secret")

    def to_dict(self) -> dict[str, Any]:
        """Return the table "privacy" of result.json, infinities as floats."""
        table: dict[str, Any] = _as_json(self)
        return table

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> PrivacyStatement:
        """Parse the table "privacy" of result.json.

        Raises:
            ValueError: a field is missing or has a value of the wrong type.
        """
        missing = [f.name for f in fields(cls) if f.name not in content]
        if missing:
            raise ValueError(f"privacy: {', '.join(missing)} missing")
        try:
            statement: PrivacyStatement = _adapter(cast(Any, cls)).validate_python(content)
            return statement
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"privacy.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _as_json(value: Any) -> Any:
    """Return dataclasses as tables and tuples as lists, since pydantic would write infinities in sequences as None."""
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
    """Return the statement of a run with unplanned releases, in which ε is ∞ for every agent."""
    budgets = statement.agents
    published = None if statement.view == "all_messages" else math.inf
    different = tuple(AgentBudget(b.agent, math.inf, math.inf, epsilon_published=published) for b in budgets.different)
    return replace(
        statement,
        epsilon_max=math.inf,
        epsilon_pure_max=math.inf,
        epsilon_published=published,
        agents=AgentBudgets(different, budgets.budget_index),
        at_infinity=None,
    )
