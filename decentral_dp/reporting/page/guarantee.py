"""The guarantee of a run, what is and is not covered by it, and what it costs each agent.

Beside it: the budget if the run never ended, the conditions of a convergence theorem, how large what records add can be
beside the noise of every channel, and what an audit of the run has shown.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from decentral_dp.formatting import agent_names, at_least_text, delta_text, epsilon_text, price_text
from decentral_dp.reporting.facts import facts
from decentral_dp.reporting.markup import Html, Part, formula, join, scroll_box, table, tag, unbroken, with_formulas
from decentral_dp.reporting.page.run import fact_list, figures
from decentral_dp.reporting.words import (
    Json,
    SettingWords,
    choose_words,
    power_text,
    spans,
)
from decentral_dp.simulation.result import RunResult
from decentral_dp.simulation.statements.statement import AgentBudget, Claim, Cost, PrivacyStatement, number

RELEASED = (tag("code", "released_…"), " and ", tag("code", "published_…"), " in ", tag("code", "state.npz"))
# What only the simulator sees, whoever is trusted.
MEASURED: tuple[Part, ...] = (
    *("metrics, curves and plots, this very page, ", tag("code", "result.json"), ", and running times"),
)
CHOSEN: tuple[Part, ...] = ("settings chosen by looking at earlier runs on the same records",)


def guarantee_section(result: RunResult) -> list[Html]:
    """The verdict, what kind of noise it rests on, what ε compares, and what it covers."""
    privacy, words = result.privacy, _setting_words(result)
    known = [(fact.name, fact.text) for fact in facts(result) if fact.topic in ("data", "privacy")]
    blocks = [tag("h2", "The guarantee"), verdict(privacy, result.topology), fact_list(known)]
    if not privacy.is_noisy:
        return blocks
    adjacency = tag(
        "p",
        tag("strong", "What ε compares. "),
        f"Neighbouring data sets: {privacy.adjacency}. It keeps its agent{words.record_kind} and its index. Partition, "
        "split, order, counts, classes and scaling constants are public. "
        f"{'A person with several records is protected less, and runs' if _is_record(privacy) else 'Runs'} on the same "
        "records add up.",
    )
    texts = {text for _, text in known}
    notes = [
        tag("li", head, *([tag("ul", *(tag("li", text) for text in under))] if under else []))
        for head, under in privacy.grouped_notes
        if head not in texts
    ]
    observed = [tag("li", with_formulas(str(sentence))) for sentence in privacy.seen]
    return [
        *blocks,
        *_about_noise(privacy, result.root_was_kept),
        *([tag("h3", "Who sees what"), tag("ul", *observed)] if observed else []),
        adjacency,
        *_coverage(result, words),
        *([tag("h3", "Notes"), tag("ul", *notes)] if notes else []),
    ]


def _setting_words(result: RunResult) -> SettingWords:
    """Words of the setting; of one level and of minimax problems those without z and validation records."""
    words = choose_words(result.privacy, result.topology)
    if not (result.is_one_level or result.is_minimax):
        return words
    private = f"{'x, y' if result.is_minimax else 'y'} in state.npz" if words.has_local_models else words.private
    return replace(words, record_kind="", epsilon_parts="", private=private)


def _is_record(privacy: PrivacyStatement) -> bool:
    """Whether the unit is one record."""
    return privacy.protected.startswith("one record")


def verdict(privacy: PrivacyStatement, graph: Json) -> Html:
    """The guarantee in a paragraph. graph: as in `result.json`."""
    words, claim = choose_words(privacy, graph), privacy.claimed
    delta, epsilon = delta_text(privacy.delta), epsilon_text(privacy.epsilon_max)
    proven = (
        "Nothing can be proven for this protocol on this problem: the certified ε is ∞."
        if epsilon == "∞"
        else f"What can be proven for it is ε = {epsilon} at δ = {delta}."
    )
    title = "Certified. "
    if privacy.is_declared:
        title = "Certified only if the declared constants are true, which nobody has proven or checked. "
    unchecked = ", but for what the notes take on the author's word" if privacy.is_on_authors_word else ""
    unit = f" This ε is for {privacy.privacy_unit}, as the mechanism states." if privacy.privacy_unit else ""
    verdicts = {
        "certified": (
            title,
            f"An adversary who {privacy.adversary}, and knows all other records, learns about "
            f"{privacy.protected} at most what (ε, δ)-differential privacy with ε = {epsilon} and δ = {delta} "
            f"allows. This holds by construction{unchecked}: "
            f"{words.privacy_reason.format(reasons=_reasons(privacy), draws=_draws(privacy))}{unit}",
        ),
        "as_printed": (
            "As printed, for comparison. ",
            " ".join([words.printed_protocol[claim is None], proven, *([_claim_in_words(claim)] if claim else [])]),
        ),
        "none": ("None. ", f"Noise was switched off, and {words.unnoised_values}: nothing is private."),
    }
    unknown = (f"Unknown guarantee “{privacy.guarantee}”. ", "Treat the run as not private.")
    good = "warn" if privacy.is_declared else "good"
    level = {"certified": good, "as_printed": "warn"}.get(privacy.guarantee, "bad")
    strong, text = verdicts.get(privacy.guarantee, unknown)
    return tag("p", tag("strong", strong), text, class_=f"note {level}")


def _reasons(privacy: PrivacyStatement) -> str:
    """What bounds one record before a coordinator adds noise."""
    reasons = ["each record's contribution is clipped"] if privacy.clip else []
    if privacy.constants == "analytic":
        reasons.append("what one record can do is bounded by constants that are theorems about this problem")
    if privacy.is_declared:
        reasons.append("what one record can do is bounded by the declared constants")
    return f"{' and '.join(reasons)}; " if reasons else ""


def _draws(privacy: PrivacyStatement) -> str:
    return "draws every release at random" if privacy.mechanisms == ("exponential",) else "adds noise to a release once"


def _claim_in_words(claim: Claim) -> str:
    if claim.epsilon_max is None:
        return f"The claimed number ({claim.source}) is undefined on this graph."
    value = epsilon_text(claim.epsilon_max)
    number_at = f"number {value}" if claim.delta is None else f"ε = {value} at δ = {delta_text(claim.delta)}"
    return f"The claimed {number_at} ({claim.source}) is not a guarantee."


def _about_noise(privacy: PrivacyStatement, root_was_kept: bool) -> list[Html]:
    if privacy.noise == "secret":
        where = (
            ". Its root lay in this folder, for its owner only to read, until the run was complete."
            if root_was_kept
            else " and was written nowhere."
        )
        return [tag("p", "The noise came from the operating system", where)]
    if not privacy.is_simulation:
        return []
    words = (
        "the noise is reproducible from the recorded seed. Whoever knows the seed can subtract it, so this output "
        "protects nobody. Every certified ε here is what the same run costs when its noise is secret, which it is when "
        "the scenario states no seed."
    )
    return [tag("p", tag("strong", "This is a simulation: "), words, class_="note warn")]


def _coverage(result: RunResult, words: SettingWords) -> list[Html]:
    """What the guarantee is for, and what it is not for, beside each other; then what may be passed on."""
    empty = " (by ε = ∞, which protects nothing)" if epsilon_text(result.privacy.epsilon_max) == "∞" else ""
    ledger = (tag("code", "ledger.parquet"), f" and the scenario but for its seed: {words.settings}")
    covered = f"{words.coverage}, and whatever is computed from it{empty}:"
    solved = ("the exact lower solution at the published x, which the scores are of",)
    halves: list[tuple[str, str, list[tuple[Part, ...]]]] = [
        ("Covered", covered, [(words.release,), RELEASED, ledger]),
        (
            "Not covered",
            f"{words.exclusions}, because it reads private data:",
            [(words.private,), MEASURED, *([solved] if result.solves_lower else []), CHOSEN],
        ),
    ]
    lists = [
        tag("div", tag("h3", head), tag("p", sentence), tag("ul", *(tag("li", *item) for item in items)))
        for head, sentence, items in halves
    ]
    use: list[Part] = [
        tag("strong", "To pass results on, "),
        "copy the arrays ",
        *RELEASED,
        " to a new file, add the scenario without its seed, and leave out everything else in this folder.",
    ]
    if result.privacy.noise != "secret":
        use.append(" Do so only after a run whose noise is secret.")
    return [tag("div", *lists, class_="pair"), *([] if empty else [tag("p", *use)])]


def theorem_section(result: RunResult) -> list[Html]:
    """Which case of the theorem applies, and every condition once, with its margin and the cases that ask for it."""
    theorem = result.theorem
    cases = theorem.get("cases") or []
    if not cases:
        return []
    verdicts = []
    conditions: dict[str, Json] = {}
    for case in cases:
        listed = case.get("conditions") or []
        conditions |= {str(c.get("condition")): c for c in listed}
        failing = sum(not c.get("holds") for c in listed)
        words: Part = f"{failing} of {len(listed)} conditions fail."
        if case.get("holds"):
            words = join(["applies: ", formula(str(case["rate"]))]) if case.get("rate") else "applies."
        verdicts.append(tag("li", tag("strong", f"{case.get('case')}: "), words))
    rows = []
    for name, condition in conditions.items():
        good = bool(condition.get("holds"))
        asking = [any(str(c.get("condition")) == name for c in case.get("conditions") or []) for case in cases]
        marks = [
            tag("td", ("holds" if good else "fails") if a else "", class_="good" if good else "bad") for a in asking
        ]
        rows.append((formula(name), (tag("td", _margin(condition)), *marks)))
    names = ("Condition", "Left − right (must exceed 0)", *(str(case.get("case")) for case in cases))
    return [
        tag("h2", str(theorem.get("name") or "Theorem 4.1")),
        tag(
            "p",
            "Convergence conditions on the exponents of step sizes (v) and noise (ς). They concern the rate that the "
            "paper proves, not privacy: no budget depends on them.",
        ),
        tag("ul", *verdicts),
        tag("details", tag("summary", f"All conditions ({len(rows)})"), table(names, rows)),
    ]


def _margin(condition: Json) -> str:
    margin = number(condition.get("margin"))
    if margin is None:
        return "–"
    return f"{'+' if margin > 0 else '−' if margin < 0 else ''}{power_text(abs(margin))}"


def signal_section(result: RunResult) -> list[Html]:
    """A table of the largest signal in units of the noise; nothing where no channel has such a bound."""
    privacy = result.privacy
    if not privacy.signal:
        return []
    heads = ("Channel", "in one release", choose_words(privacy, result.topology).signal)
    rows = [
        (channel, [tag("td", _ratio(v), class_="number") for v in (signal.one_release, signal.all_releases)])
        for channel, signal in privacy.signal.items()
    ]
    text = (
        "At most so many times the noise, as a norm, is what all records together add, if all of them agree. Most "
        "records do not agree that well: a run may learn nothing at several times 1, and below 1 noise alone moves it. "
        "The bound follows from sensitivities, counts and scales, and reads no record."
    )
    return [tag("h2", "Signal beside the noise"), table(heads, rows), tag("p", text, class_="small")]


def _ratio(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


def audit_section(result: RunResult) -> list[Html]:
    """Nothing where the run was not audited."""
    audit = result.audit
    if not audit:
        return []
    shown, claimed = number(audit.get("shown")) or 0.0, number(audit.get("claimed"))
    confidence = number(audit.get("confidence")) or 0.0
    rows = [
        ("claimed by the paper", "–" if claimed is None else epsilon_text(claimed)),
        ("certified", epsilon_text(number(audit.get("certified")))),
        ("shown by an attack", f"{at_least_text(shown)}, with confidence {100.0 * confidence:g} %"),
    ]
    body = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows]
    delta = delta_text(number(audit.get("delta")) or 0.0)
    sentences, visible = [str(s) for s in audit.get("sentences") or []], _view_words(str(audit.get("vantage")))
    return [
        tag("h2", "Audit"),
        tag(
            "p",
            f"ε at δ = {delta} of one replaced record, for an observer who sees {visible}. "
            f"Method: {_method_text(str(audit.get('method')), audit.get('runs'))}.",
        ),
        scroll_box(body),
        tag("ul", *(tag("li", sentence) for sentence in sentences)),
    ]


def _view_words(view: str) -> str:
    kind, _, agent = view.partition(":")
    words = {"everybody": "everything that is sent", "published": "what is published at the end"}
    return words.get(view, f"what agent {agent} receives" if kind == "agent" else view)


def _method_text(method: str, runs: object) -> str:
    return "canaries in one run" if method == "one run" else f"{method}, {runs} runs of each of two data sets"


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
    words = _setting_words(result)
    remarks = [
        f"{_agents_epsilon(privacy, words)} "
        "Channels are composed together, so their own budgets need not add up to it. All are rounded up.",
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
    pictures = figures(folder, result, "epsilon", "noise")
    return [*blocks, *_price_table(privacy), *pictures, *_infinite_horizon(privacy)]


def _agents_epsilon(privacy: PrivacyStatement, words: SettingWords) -> str:
    if not _is_record(privacy):
        return f"An agent's ε is that of {privacy.protected}."
    return f"An agent's ε is what its most expensive record costs{words.epsilon_parts}."


def budget_table(privacy: PrivacyStatement, known: Sequence[str] = ()) -> Html:
    """Every agent's ε and what is in it; of many agents a summary and the most expensive.

    Args:
        privacy: whose budgets they are.
        known: names of the agents, where they have others than their numbers.
    """
    budgets, claim = privacy.agents, privacy.claimed
    rows, members = budgets.different, budgets.members()
    if claim and claim.agents:
        # Agents that cost alike may have claims that differ.
        rows, members = budgets[:], [[k] for k in range(len(budgets))]
    columns = _columns(privacy, rows)
    # Equal rows are merged; of more than LISTED_AGENTS the range is listed, and the most expensive agents.
    values = list(zip(*(column.values for column in columns), strict=True))
    total, named = len(budgets), len(known) == len(budgets)
    merged: dict[tuple[str, ...], list[int]] = {}
    for agents, row in zip(members, values, strict=True):
        merged.setdefault(tuple(map(epsilon_text, row)), []).extend(agents)

    def name_of(agent: int) -> str:
        return known[agent] if named else str(agent)

    if len(merged) <= LISTED_AGENTS:
        body = [(_agent_names(list(map(name_of, sorted(of))), total, named), shown) for shown, of in merged.items()]
    else:
        each = [row for agents, row in zip(members, values, strict=True) for _ in agents]
        stacked = [[v for v in column if v is not None] or [math.nan] for column in zip(*each, strict=True)]
        body = [
            (f"{label} of {total}", tuple(epsilon_text(pick(v)) for v in stacked))
            for label, pick in (("lowest", min), ("median", statistics.median), ("highest", max))
        ]
        worst_first = sorted(range(len(members)), key=lambda row: [-(v or 0.0) for v in values[row]])[:WORST_AGENTS]
        worst = [(agent, row) for row in worst_first for agent in members[row][:WORST_AGENTS]][:WORST_AGENTS]
        body += [(f"agent {name_of(agent)}", tuple(map(epsilon_text, values[row]))) for agent, row in worst]
    groups = list(dict.fromkeys(column.group for column in columns))
    spans = [(group, [c for c in columns if c.group == group]) for group in groups]
    heads = [tag("th", unbroken(g), colspan=str(len(of)), scope="colgroup") for g, of in spans]
    first = tag("tr", tag("th", "Agent", rowspan="2", scope="col"), *heads)
    second = tag("tr", *(tag("th", unbroken(column.name), scope="col") for column in columns))
    lines = []
    for name, shown in body:
        # On a narrow screen a row is a list, whose entries have their heads beside them.
        cells = [
            tag("td", text, class_="claimed" if column.is_claimed else "number", data_head=column.head)
            for text, column in zip(shown, columns, strict=True)
        ]
        lines.append(tag("tr", tag("th", name, scope="row"), *cells, data_head="Agent"))
    return scroll_box(lines, [tag("thead", first, second)], class_="rows")


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
    caption = "Fixed before the run; the scale of a release is its sensitivity over its price"
    caption += ", for the kind of record that needs more; the other kind is charged less." if len(kinds) > 1 else "."
    if any(entry.unit == "μ" for entry in listed):
        caption += (
            " μ: nobody tells two data sets that differ in the record apart more surely than two Gaussians of "
            "deviation 1 at the distance μ."
        )
    if sampled:
        caption += " Of a sample, the price is that of a record which is in it; that it may not be is counted in ε."
    return [
        tag("h3", "Price of each release"),
        scroll_box(rows, [tag("thead", heads)], class_="rows"),
        tag("p", caption, class_="small"),
    ]


def _infinite_horizon(privacy: PrivacyStatement) -> list[Html]:
    """What the budget tends to as the number of rounds grows."""
    limit, claim = privacy.at_infinity, privacy.claimed
    finite, endless = (limit.finite_data, limit.endless_stream) if limit else (None, None)
    rows: list[tuple[str, Part]] = []
    if finite is not None:
        grows = math.isinf(finite) and math.isfinite(privacy.epsilon_max or math.inf)
        why = (
            " Once all records are in use, the cost of a round falls too slowly, if at all, to add up to a finite sum."
        )
        text = f"ε → {epsilon_text(finite)}." + (why if grows else "")
        rows.append(("With the records there are", text))
    elif limit:
        rows.append(
            ("With the records there are", "Unknown: for this protocol no bound is derived, and none is refuted.")
        )
    if endless is not None:
        pure = privacy.mechanisms == ("laplace",)
        kind = "a pure ε (δ = 0)" if pure else f"an ε at δ = {delta_text(privacy.delta)}"
        text = f"ε → {epsilon_text(endless)}, if new records kept arriving for ever: {kind}, in exact arithmetic."
        if math.isinf(endless):
            text = "ε → ∞, even if new records kept arriving for ever: the cost of a round falls too slowly, if at all."
        rows.append(("With an endless stream", f"{text} Not a budget of this finite data."))
    if claim and (claimed := claim.epsilon_max_at_infinity) is not None:
        rows.append(("Claimed, not certified", f"ε → {epsilon_text(claimed)}."))
    return [tag("h3", "If the run never ended (T → ∞)"), fact_list(rows)] if rows else []


class Column(NamedTuple):
    """A column of the budget table: its group, its name, and the number of each row."""

    group: str
    name: str
    values: Sequence[float | None]
    is_claimed: bool = False

    @property
    def head(self) -> str:
        """Group and name in one line."""
        return f"{self.group}: {self.name}"


def _columns(privacy: PrivacyStatement, agents: Sequence[AgentBudget]) -> list[Column]:
    """The columns. agents: of the rows."""
    claim = privacy.claimed
    columns = [
        Column("Whole run", f"ε at δ = {delta_text(privacy.delta)}", [agent.epsilon for agent in agents]),
        Column("Whole run", "pure ε (δ = 0)", [agent.epsilon_pure for agent in agents]),
    ]
    if claim and claim.agents:
        # Beside what it is to be compared with, where a narrow page still shows it.
        # A claim without a δ of its own is of pure ε.
        name = f"ε at δ = {delta_text(claim.delta)}" if claim.delta else "pure ε"
        known = [*claim.agents, *[None] * len(agents)][: len(agents)]
        columns.append(Column("Claimed, not certified", name, known, is_claimed=True))
    for channel in agents[0].channels:
        if channel in privacy.free_channels:
            continue
        costs = [agent.channels.get(channel, Cost()) for agent in agents]
        columns.append(Column(f"Channel {channel}", "ε", [cost.epsilon for cost in costs]))
        pure = [cost.epsilon_pure for cost in costs]
        if not (claim and claim.agents) and any(v is not None and math.isfinite(v) for v in pure):
            columns.append(Column(f"Channel {channel}", "pure ε", pure))
    # Of one kind the cost of a record is that of the whole run.
    kinds = agents[0].records if len(agents[0].records) > 1 else ()
    return columns + [Column("ε of one record", kind, [a.records.get(kind) for a in agents]) for kind in kinds]


def _agent_names(names: Sequence[str], total: int, named: bool) -> str:
    """ "0–3, 7", "Bern, Zug", or how many where that would be long."""
    if len(names) == total > 1:
        return f"all {total}"
    if named:
        text = ", ".join(names)
        return text if len(text) <= LONGEST_NAMES or len(names) == 1 else f"{len(names)} agents, {names[0]} among them"
    text = ", ".join(spans(names))
    return text if len(text) <= 24 else f"{len(names)} agents"
