"""The statement of privacy of a job: its guarantee, what it costs each agent, and what to know about both.

`to_dict` gives what `result.json` holds under "privacy"; `from_dict` reads it again, of older folders too, where parts
may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from decentral_dp.formatting import delta_text, epsilon_text

Setting: TypeAlias = Literal["gossip", "coordinator_bilevel", "coordinator_minimax"]
"""Who trusts whom, and what is solved."""

# What an agent hands to a coordinator that holds all records, in the words of `PrivacyStatement.seen`.
HANDS_RECORDS = "Every agent hands its records to the coordinator, which holds them all."


def number(value: object) -> float | None:
    """A number of result.json, where infinity is the string "inf"; None where there is none."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _table(value: object) -> Mapping[str, Any]:
    # Of a thousand agents a table each: whether it is a dict is seen much sooner than whether it is a mapping.
    return value if isinstance(value, dict | Mapping) else {}


def _listed(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


# What notes on the author's word begin with.
_WORD = "On the author's word: "


@dataclass(frozen=True)
class Cost:
    """ε at δ, and pure ε; None where it is not known."""

    epsilon: float | None
    epsilon_pure: float | None

    def to_dict(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "epsilon_pure": self.epsilon_pure}


@dataclass(frozen=True)
class Horizon:
    """The budget for T → ∞, in exact arithmetic.

    finite_data: ε at δ of the records there are; +inf where it diverges, None where nothing is known.
    endless_stream: pure ε for Laplace, ε at δ for Gaussian noise, if new records never ended; None without a bound.
    channels: the same of single channels, where they were computed.
    """

    finite_data: float | None
    endless_stream: float | None
    channels: Mapping[str, Horizon] | None = None

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"finite_data": self.finite_data, "endless_stream": self.endless_stream}
        if self.channels is not None:
            out["channels"] = {c: limit.to_dict() for c, limit in self.channels.items()}
        return out

    @classmethod
    def from_dict(cls, content: object) -> Horizon | None:
        if not isinstance(content, Mapping) or not content:
            return None
        channels = _table(content.get("channels")).items()
        read = {c: cls.from_dict(v) or cls(None, None) for c, v in channels} or None
        return cls(number(content.get("finite_data")), number(content.get("endless_stream")), read)


@dataclass(frozen=True)
class AgentBudget:
    """What the run costs one agent: over all channels, by channel, and by the kind of record."""

    agent: int
    epsilon: float | None
    epsilon_pure: float | None
    channels: Mapping[str, Cost]
    records: Mapping[str, float | None]
    at_infinity: Horizon | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "epsilon": self.epsilon,
            "epsilon_pure": self.epsilon_pure,
            "channels": {c: cost.to_dict() for c, cost in self.channels.items()},
            "records": dict(self.records),
            "at_infinity": None if self.at_infinity is None else self.at_infinity.to_dict(),
        }

    @classmethod
    def from_dict(cls, row: int, content: object) -> AgentBudget:
        table = _table(content)
        channels = {c: _table(v) for c, v in _table(table.get("channels")).items()}
        return cls(
            agent=table.get("agent", row),
            epsilon=number(table.get("epsilon")),
            epsilon_pure=number(table.get("epsilon_pure")),
            channels={c: Cost(number(v.get("epsilon")), number(v.get("epsilon_pure"))) for c, v in channels.items()},
            records={k: number(v) for k, v in _table(table.get("records")).items()},
            at_infinity=Horizon.from_dict(table.get("at_infinity")),
        )


@dataclass(frozen=True)
class Claim:
    """A budget that a paper claims: for comparison, never a certificate. delta: None where the claim is of pure ε."""

    epsilon_max: float | None
    epsilon_max_at_infinity: float | None
    agents: tuple[float | None, ...]
    source: str
    delta: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon_max": self.epsilon_max,
            "epsilon_max_at_infinity": self.epsilon_max_at_infinity,
            **({} if self.delta is None else {"delta": self.delta}),
            "agents": list(self.agents),
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, content: object) -> Claim | None:
        table = _table(content)
        if not table:
            return None
        # Older folders have a table for each agent.
        agents = [a.get("epsilon") if isinstance(a, Mapping) else a for a in _listed(table.get("agents"))]
        return cls(
            number(table.get("epsilon_max")),
            number(table.get("epsilon_max_at_infinity")),
            tuple(number(a) for a in agents),
            str(table.get("source") or "the paper"),
            number(table.get("delta")),
        )


@dataclass(frozen=True)
class ReleasePrice:
    """What every release of a channel may cost one record, fixed before the run: lowest and highest, by kind.

    unit: "μ" of a Gaussian pair, or pure "ε". rate: kind → share of a Poisson sample, where it is one.
    """

    channel: str
    mechanism: str
    releases: int
    width: int
    unit: str
    price: Mapping[str, Sequence[float]]
    rate: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        return {
            "channel": self.channel,
            "mechanism": self.mechanism,
            "releases": self.releases,
            "width": self.width,
            "unit": self.unit,
            "price": {kind: list(ends) for kind, ends in self.price.items()},
            "rate": dict(self.rate),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ReleasePrice:
        return cls(
            channel=str(content.get("channel")),
            mechanism=str(content.get("mechanism") or ""),
            releases=content.get("releases", 0),
            width=content.get("width", 0),
            unit=str(content.get("unit")),
            price={k: [number(v) or 0.0 for v in _listed(ends)] for k, ends in _table(content.get("price")).items()},
            rate={k: number(v) or 0.0 for k, v in _table(content.get("rate")).items()},
        )


@dataclass(frozen=True)
class Signal:
    """At most so large is what records contribute to a channel, in units of its noise.

    one_release: of one agent and release. all_releases: of all of them, averaged over the agents.
    """

    one_release: float | None
    all_releases: float | None

    def to_dict(self) -> dict[str, Any]:
        return {"one_release": self.one_release, "all_releases": self.all_releases}


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivacyStatement:
    """The guarantee of a job and its price, in numbers and sentences that anyone may know.

    Args:
        setting: who trusts whom; not written, for the rest tells it.
        guarantee: "certified", "as_printed" or "none".
        mechanism: of the noise; several are joined by " and ". protocol: in words.
        seen: the threat model of a trusted coordinator, sentence by sentence; empty where nobody is trusted.
        seen_briefly: the same in a line; not written.
        constants: of a coordinator's problem: "analytic", "declared", or None where none are known.
        prices: of a coordinator's releases.
        exchanges: releases per round. clip: norm and bounds, None where nothing is clipped.
        delta, epsilon_max, epsilon_pure_max: of the worst agent. target, cap: as asked, or None.
        agents: the budget of each. at_infinity: the limit for T → ∞, None where a plan has an end.
        claimed: what a paper says. free_channels: channel → why it costs nothing.
        noise: "off", "secret", or that it can be reproduced. numerical_slack: what float64 adds, within every ε.
        privacy_unit: what the mechanism says that its price is for, as "one group of 5 records"; "" is one record of
            one agent, and not written.
        signal: channel → how large what records contribute can be beside the noise.
        notes: sentences that belong beside the numbers. cautions: those of them that are about δ and about noise that
            swamps the steps; not written.
    """

    setting: Setting = "gossip"
    guarantee: str
    mechanism: str
    protocol: str
    seen: tuple[str, ...] = ()
    seen_briefly: str = ""
    constants: str | None = None
    prices: tuple[ReleasePrice, ...] = ()
    exchanges: int
    clip: Mapping[str, Any] | None
    delta: float | None
    epsilon_max: float | None
    epsilon_pure_max: float | None
    target: float | None
    cap: float | None
    agents: tuple[AgentBudget, ...]
    at_infinity: Horizon | None
    claimed: Claim | None
    free_channels: Mapping[str, str]
    noise: str
    numerical_slack: Mapping[str, float] | None
    privacy_unit: str = ""
    signal: Mapping[str, Signal] = field(default_factory=dict)
    notes: tuple[str, ...]
    cautions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        price = f"ε = {epsilon_text(self.epsilon_max)} at δ = {delta_text(self.delta)}"
        return f"<PrivacyStatement: {self.guarantee.replace('_', ' ')}, {price}, worst of {len(self.agents)} agents>"

    @property
    def is_trusted(self) -> bool:
        """Whether agents trust a coordinator."""
        return self.setting != "gossip"

    @property
    def is_declared(self) -> bool:
        """Whether ε rests on constants that nobody has proven."""
        return self.constants == "declared"

    @property
    def is_on_authors_word(self) -> bool:
        """Whether part of what ε rests on was not checked, but taken from whoever wrote it."""
        return self.is_noisy and any("author's word" in note for note in self.notes)

    @property
    def claimed_epsilon(self) -> float | None:
        """ε that a paper claims, of the worst agent."""
        return None if self.claimed is None else self.claimed.epsilon_max

    @property
    def is_noisy(self) -> bool:
        return self.guarantee != "none"

    @property
    def pools_records(self) -> bool:
        """Whether agents hand their records to the coordinator, not sums over them."""
        return HANDS_RECORDS in self.seen

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of the mechanisms that are drawn from."""
        return tuple(self.mechanism.split(" and "))

    @property
    def grouped_notes(self) -> list[tuple[str, tuple[str, ...]]]:
        """The notes in their order, those on the author's word as one: what they begin with, and how each goes on."""
        words = [note.removeprefix(_WORD) for note in self.notes if note.startswith(_WORD)]
        if len(words) < 2:
            return [(note, ()) for note in self.notes]
        first = next(k for k, note in enumerate(self.notes) if note.startswith(_WORD))
        out: list[tuple[str, tuple[str, ...]]] = [(note, ()) for note in self.notes if not note.startswith(_WORD)]
        before = sum(not note.startswith(_WORD) for note in self.notes[:first])
        return [*out[:before], (_WORD.rstrip(), tuple(words)), *out[before:]]

    def to_dict(self) -> dict[str, Any]:
        """The table "privacy" of result.json, infinities as floats."""
        out: dict[str, Any] = {}
        for name in (f.name for f in fields(self) if f.name not in ("setting", "seen_briefly", "cautions")):
            if name in ("constants", "prices") and not self.is_trusted:
                continue
            if name == "privacy_unit" and not self.privacy_unit:
                continue
            out[name] = _plain(getattr(self, name))
        return out

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], solves: str = "bilevel") -> PrivacyStatement:
        """The statement that was written as such a table. solves: what `result.json` says of the problem."""
        seen = tuple(map(str, _listed(content.get("seen"))))
        slack = content.get("numerical_slack")
        coordinator: Setting = "coordinator_minimax" if solves == "minimax" else "coordinator_bilevel"
        return cls(
            setting=coordinator if seen else "gossip",
            guarantee=str(content.get("guarantee")),
            mechanism=str(content.get("mechanism") or ""),
            protocol=str(content.get("protocol") or ""),
            seen=seen,
            constants=None if content.get("constants") is None else str(content["constants"]),
            prices=tuple(ReleasePrice.from_dict(p) for p in _listed(content.get("prices")) if isinstance(p, Mapping)),
            exchanges=content.get("exchanges", 0),
            clip=content.get("clip") if isinstance(content.get("clip"), Mapping) else None,
            delta=number(content.get("delta")),
            epsilon_max=number(content.get("epsilon_max")),
            epsilon_pure_max=number(content.get("epsilon_pure_max")),
            target=number(content.get("target")),
            cap=number(content.get("cap")),
            agents=tuple(AgentBudget.from_dict(k, a) for k, a in enumerate(_listed(content.get("agents")))),
            at_infinity=Horizon.from_dict(content.get("at_infinity")),
            claimed=Claim.from_dict(content.get("claimed")),
            free_channels=dict(_table(content.get("free_channels"))),
            noise=str(content.get("noise") or ""),
            numerical_slack=None if slack is None else {k: number(v) or 0.0 for k, v in _table(slack).items()},
            privacy_unit=str(content.get("privacy_unit") or ""),
            signal={
                c: Signal(number(_table(v).get("one_release")), number(_table(v).get("all_releases")))
                for c, v in _table(content.get("signal")).items()
            },
            notes=tuple(map(str, _listed(content.get("notes")))),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, AgentBudget | Horizon | Claim | ReleasePrice | Signal):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, Mapping) else value
