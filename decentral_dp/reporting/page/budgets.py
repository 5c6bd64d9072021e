"""The cost of a run for each agent, and what it would cost if it never ended."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from decentral_dp.formatting import agent_names, delta_text, epsilon_text, price_text
from decentral_dp.reporting.page.markup import Html, join, tag, unbroken
from decentral_dp.reporting.page.outcome import figures
from decentral_dp.reporting.words import words_of
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import AgentBudget, PrivacyStatement

LISTED_AGENTS = 30
WORST_AGENTS = 5
LONGEST_NAMES = 60


def budget_section(folder: Path, result: RunResult) -> list[Html]:
    """A table of every agent's ε, what is in it, its growth over the rounds, and its limit."""
    privacy = result.privacy
    agents, slack = privacy.agents, privacy.numerical_slack or {}
    if not privacy.is_noisy or not agents:
        return []
    free = privacy.free_channels
    blocks = [tag("h2", "Budget of every agent"), budget_table(privacy, agent_names(result.topology.get("labels")))]
    words = words_of(privacy, result.topology)
    remarks = [
        f"An agent's ε is what its most expensive record costs{words.dearest}. "
        "Channels are composed together, so their own budgets need not add up to it. All are rounded up."
    ]
    if privacy.claimed:
        remarks.append(
            f"The claimed column shows {privacy.claimed.source}. It is shown for comparison and is not certified."
        )
    if any(slack.values()):
        remarks.append(
            f"Each ε includes what float64 costs: beyond the ideal law of the noise, sampling may add up to "
            f"{epsilon_text(slack.get('epsilon'))} to an agent's ε and "
            f"{epsilon_text(slack.get('delta'))} to its δ, over the whole run."
        )
    blocks += [tag("p", remark, class_="small") for remark in remarks]
    for channel, reason in free.items():
        blocks.append(tag("p", tag("strong", f"Channel {channel} is free: "), f"it {reason}."))
    drawn = figures(folder, result, "epsilon", "noise")
    return [*blocks, *_price_table(privacy), *drawn, *_forever(privacy)]


def budget_table(privacy: PrivacyStatement, names: Sequence[str] = ()) -> Html:
    """Every agent's ε and what is in it; of many agents a summary and the dearest.

    Args:
        privacy: whose budgets they are.
        names: of the agents, where they have others than their numbers.
    """
    return _budget_table(privacy.agents, _columns(privacy), names)


def _price_table(privacy: PrivacyStatement) -> list[Html]:
    """What each release may cost, channel by channel."""
    listed = privacy.prices
    if not listed:
        return []
    kinds = [k for k in ("train", "validation") if any(k in p.price for p in listed)]
    names = ("Channel", "Releases", "Numbers each", *(f"One {k} record" for k in kinds), "Read")
    rows = []
    for entry in listed:
        each = [price_text(entry.price.get(k), entry.unit) for k in kinds]
        share = f"a sample, {min(entry.rate.values()):.3g} of them" if entry.rate else "all records"
        cells = [str(entry.releases), str(entry.width), *each, share]
        named = zip(cells, names[1:], strict=True)
        tds = [tag("td", cell, data_head=name) for cell, name in named]
        rows.append(tag("tr", tag("th", entry.channel, scope="row"), *tds, data_head=names[0]))
    heads = tag("tr", *(tag("th", name, scope="col") for name in names))
    sampled = any(entry.rate for entry in listed)
    stated = "Fixed before the run; the scale of a release is its sensitivity over its price"
    stated += ", for the kind of record that needs more; the other kind is charged less." if len(kinds) > 1 else "."
    if any(entry.unit == "μ" for entry in listed):
        stated += (
            " μ: nobody tells two data sets that differ in the record apart more surely than two Gaussians of "
            "deviation 1 at the distance μ."
        )
    if sampled:
        stated += " Of a sample, the price is that of a record which is in it; that it may not be is counted in ε."
    return [
        tag("h3", "Price of each release"),
        tag("div", tag("table", tag("thead", heads), tag("tbody", *rows), class_="rows"), class_="wide", tabindex="0"),
        tag("p", stated, class_="small"),
    ]


def _forever(privacy: PrivacyStatement) -> list[Html]:
    """What the budget tends to as the number of rounds grows."""
    limit, claim = privacy.at_infinity, privacy.claimed
    finite, endless = (limit.finite_data, limit.endless_stream) if limit else (None, None)
    rows = []
    if finite is not None:
        grows = math.isinf(finite) and math.isfinite(privacy.epsilon_max or math.inf)
        why = (
            " Once all records are in use, the cost of a round falls too slowly, if at all, to add up to a finite sum."
        )
        text = f"ε → {epsilon_text(finite)}." + (why if grows else "")
        rows.append(join([tag("dt", "With the records there are"), tag("dd", text)]))
    elif limit:
        text = "Unknown: for this protocol no bound is derived, and none is refuted."
        rows.append(join([tag("dt", "With the records there are"), tag("dd", text)]))
    if endless is not None:
        pure = privacy.mechanisms == ("laplace",)
        kind = "a pure ε (δ = 0)" if pure else f"an ε at δ = {delta_text(privacy.delta)}"
        text = f"ε → {epsilon_text(endless)}, if new records kept arriving for ever: {kind}, in exact arithmetic."
        if math.isinf(endless):
            text = "ε → ∞, even if new records kept arriving for ever: the cost of a round falls too slowly, if at all."
        rows.append(join([tag("dt", "With an endless stream"), tag("dd", f"{text} Not a budget of this finite data.")]))
    if claim and (claimed := claim.epsilon_max_at_infinity) is not None:
        rows.append(join([tag("dt", "Claimed, not certified"), tag("dd", f"ε → {epsilon_text(claimed)}.")]))
    return [tag("h3", "If the run never ended (T → ∞)"), tag("dl", *rows, class_="facts")] if rows else []


@dataclass(frozen=True)
class Column:
    """A column of the budget table: its group, its name, and how to read it from an agent's entry and number."""

    group: str
    name: str
    read: Callable[[AgentBudget, int], float | None]
    claimed: bool = False

    @property
    def head(self) -> str:
        """Group and name in one line."""
        return f"{self.group}: {self.name}"


def _columns(privacy: PrivacyStatement) -> list[Column]:
    agents, free, claimed = privacy.agents, privacy.free_channels, privacy.claimed
    claims, at_delta = (claimed.agents, claimed.delta) if claimed else ((), None)
    channels = [c for c in agents[0].channels if c not in free]
    records = list(agents[0].records)

    def of_channel(channel: str, pure: bool) -> Callable[[AgentBudget, int], float | None]:
        def read(agent: AgentBudget, _: int) -> float | None:
            cost = agent.channels.get(channel)
            return None if cost is None else cost.epsilon_pure if pure else cost.epsilon

        return read

    def of_record(kind: str) -> Callable[[AgentBudget, int], float | None]:
        return lambda agent, _: agent.records.get(kind)

    def claim(_: AgentBudget, row: int) -> float | None:
        return claims[row] if row < len(claims) else None

    columns = [
        Column("Whole run", f"ε at δ = {delta_text(privacy.delta)}", lambda agent, _: agent.epsilon),
        Column("Whole run", "pure ε (δ = 0)", lambda agent, _: agent.epsilon_pure),
    ]
    if claims:
        # Beside what it is to be compared with, where a narrow page still shows it.
        # A claim without a δ of its own is of pure ε.
        name = f"ε at δ = {delta_text(at_delta)}" if at_delta else "pure ε"
        columns.append(Column("Claimed, not certified", name, claim, claimed=True))
    for channel in channels:
        columns.append(Column(f"Channel {channel}", "ε", of_channel(channel, pure=False)))
        pure = of_channel(channel, pure=True)
        if not claims and any(math.isfinite(pure(a, 0) or 0.0) and pure(a, 0) is not None for a in agents):
            columns.append(Column(f"Channel {channel}", "pure ε", pure))
    return columns + [Column("ε of one record", kind, of_record(kind)) for kind in records]


def _budget_table(agents: Sequence[AgentBudget], columns: Sequence[Column], known: Sequence[str]) -> Html:
    """One row per agent, equal rows merged; beyond LISTED_AGENTS rows the range and the most expensive agents."""
    values = [[column.read(agent, row) for column in columns] for row, agent in enumerate(agents)]
    named = len(known) == len(agents)
    names = [known[agent.agent] if named else str(agent.agent) for agent in agents]
    merged: dict[tuple[str, ...], list[str]] = {}
    for name, row in zip(names, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).append(name)
    if len(merged) <= LISTED_AGENTS:
        body = [(_agent_names(of, len(agents), named), shown) for shown, of in merged.items()]
    else:
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*values, strict=True)]
        body = [
            (f"{label} of {len(agents)}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        order = sorted(range(len(agents)), key=lambda row: [-(v or 0.0) for v in values[row]])[:WORST_AGENTS]
        body += [(f"agent {names[row]}", tuple(map(epsilon_text, values[row]))) for row in order]
    groups = list(dict.fromkeys(column.group for column in columns))
    spans = [(group, [c for c in columns if c.group == group]) for group in groups]
    heads = [tag("th", unbroken(g), colspan=str(len(of)), scope="colgroup") for g, of in spans]
    first = tag("tr", tag("th", "Agent", rowspan="2", scope="col"), *heads)
    second = tag("tr", *(tag("th", unbroken(column.name), scope="col") for column in columns))
    rows = []
    for name, shown in body:
        # On a narrow screen a row is a list, whose entries have their heads beside them.
        cells = [
            tag("td", text, class_="claimed" if column.claimed else "number", data_head=column.head)
            for text, column in zip(shown, columns, strict=True)
        ]
        rows.append(tag("tr", tag("th", name, scope="row"), *cells, data_head="Agent"))
    table = tag("table", tag("thead", first, second), tag("tbody", *rows), class_="rows")
    return tag("div", table, class_="wide", tabindex="0")


def _agent_names(names: Sequence[str], total: int, named: bool) -> str:
    """ "0–3, 7", "Bern, Zug", or how many where that would be long."""
    if len(names) == total > 1:
        return f"all {total}"
    if named:
        text = ", ".join(names)
        return text if len(text) <= LONGEST_NAMES or len(names) == 1 else f"{len(names)} agents, {names[0]} among them"
    runs: list[list[str]] = []
    for name in names:
        if runs and runs[-1][-1].isdigit() and name.isdigit() and int(name) == int(runs[-1][-1]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    text = ", ".join(r[0] if len(r) == 1 else f"{r[0]}–{r[-1]}" for r in runs)
    return text if len(text) <= 24 else f"{len(names)} agents"
