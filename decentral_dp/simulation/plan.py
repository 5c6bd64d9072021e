"""Plans: what a scenario would cost, before anything is run.

The text of a plan: what the command line prints of it, and what a terminal shows.

What results say of a job: its title, graph, problem and records, and the scores of who knows nothing.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Unpack

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from decentral_dp.bounded import SPLITS, Split
from decentral_dp.config.components import Components, Objects, components_of
from decentral_dp.config.loading import Source
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import printable
from decentral_dp.formatting import (
    agent_names,
    communication_text,
    compression_text,
    cut_name,
    delta_text,
    epsilon_text,
    graph_text,
    over_time_text,
    price_text,
    schedule_text,
)
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.problems.protocol import Predictor
from decentral_dp.reporting.facts import data_facts, privacy_facts, sentence
from decentral_dp.reporting.tables import GAP, terminal
from decentral_dp.reporting.words import WORDS, article, choose_words, spans, topology_name
from decentral_dp.simulation.communication import communication, compression_summary
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.method import method_name
from decentral_dp.simulation.result import Communication
from decentral_dp.simulation.statements.of_job import settings_of, statement_of, theorem_of
from decentral_dp.simulation.statements.statement import Horizon, PrivacyStatement, ReleasePrice, Setting
from decentral_dp.topology import GENERATORS, Topology
from decentral_dp.topology.over_time import OverTime

if TYPE_CHECKING:
    import pandas as pd

# Columns of the text of a plan, where no terminal says how many it has.
_WIDTH = 100


@dataclass(frozen=True, eq=False)
class Plan:
    """The price of a scenario; `print(plan)` shows what the command "plan" prints.

    Args:
        title: of the scenario. setting: who trusts whom, and what is solved.
        rounds: that would be run; status and reason say why they are fewer than asked for, where they are.
        n_agents: number of agents. topology: their graph, as in `result.json`. privacy: the guarantee and its price.
        data_notes: in what the records are others than those that were named.
        method: the algorithm's name, with every part that is on.
        settings_text: what the settings of training come to; "" of anything else.
        stability_text: a warning of steps that may be unstable on this graph; "" where there is none.
        unmeasured: which metric a run leaves out because it would take too long; "" where none.
        settings: the hyper-parameters of a coordinator's program, else None.
        theorem: the conditions of a convergence theorem, where one is known.
        records: every planned release.
        communication: what agents send; None of a trusted coordinator.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("quadratic")
        >>> plan.setting, len(plan.epsilon) == plan.n_agents
        ('gossip', True)
    """

    title: str
    setting: Setting
    rounds: int
    status: str
    reason: str | None
    n_agents: int
    topology: Mapping[str, Any]
    privacy: PrivacyStatement
    data_notes: tuple[str, ...]
    settings: Mapping[str, Any] | None
    theorem: Mapping[str, Any] | None
    records: Ledger
    method: str = ""
    settings_text: str = ""
    stability_text: str = ""
    unmeasured: str = ""
    communication: Communication | None = None

    @classmethod
    def from_job(cls, job: Job) -> Plan:
        """The plan of a job."""
        return cls(
            title=title_of(job),
            setting=job.setting,
            rounds=job.rounds,
            status=job.status,
            reason=job.reason,
            n_agents=job.n_agents,
            topology=topology_summary(job),
            privacy=statement_of(job),
            data_notes=tuple(job.shards.notes),
            method=method_name(job),
            settings_text=job.settings_text,
            stability_text=job.stability_text,
            settings=settings_of(job),
            theorem=theorem_of(job),
            records=job.ledger,
            unmeasured=job.unmeasured,
            communication=communication(job),
        )

    @property
    def epsilon(self) -> tuple[float | None, ...]:
        """ε of each agent at delta."""
        return tuple(agent.epsilon for agent in self.privacy.agents)

    @property
    def delta(self) -> float | None:
        return self.privacy.delta

    @property
    def ledger(self) -> pd.DataFrame:
        """One row for each planned release of an agent, as in `ledger.parquet`."""
        return self.records.to_frame(agent_names(self.topology["labels"]))

    def __repr__(self) -> str:
        return f"<Plan {self.title!r}: {self.status}, {self.rounds} rounds, {self.privacy.summary}>"

    def _repr_html_(self) -> str:
        from decentral_dp.reporting.page import plan_view

        return plan_view(self.title, self.privacy, self.topology, self.settings_text, self.method)

    def __str__(self) -> str:
        text = io.StringIO()
        print_plan(self, console(text, _WIDTH))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def plan(scenario: Source, overrides: Sequence[str] = (), **objects: Unpack[Objects]) -> Plan:
    """Price every release of a scenario, without running anything.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        overrides: "table.key=value" with a TOML value.
        **objects: in place of what it names; as in `build`.

    Returns:
        The plan, with ε of each agent, δ, the ledger, and the statement of privacy.

    Raises:
        InputError: one sentence about whatever does not fit.

    Example:
        >>> priced = plan("quadratic", ["algorithm.rounds=2"])
        >>> priced.rounds, priced.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    c = components_of(scenario, overrides, **objects)
    if c.scenario.run.device != "cpu" and c.algorithm.rules.priced_on_cpu:
        # Prices are the same wherever it will run. Losses of one's own are tried where they will be computed.
        c = components_of(scenario, [*overrides, 'run.device="cpu"'], **objects)
    return Plan.from_job(build(c.without_records()))


_BLANK_ENDS = re.compile(r"[ ]+$", re.MULTILINE)
# Above so many different lines a table lists only the most expensive agents.
_MOST_ROWS = 12
# Facts that a plan tells elsewhere: among its notes, and sentence by sentence.
_FACTS_ELSEWHERE = ("Note", "Seen")
# Letters that the names of the agents of a line take at most.
_WIDEST_NAMES = 30


class PlainConsole(Console):
    """A console on which no text of a scenario, a file or a file's name can command the terminal."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does; what goes to a file or a pipe has no blanks at the ends of its lines."""
        if self.is_terminal or self.is_jupyter:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(_BLANK_ENDS.sub("", captured.get()))


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Prints text as it is: titles and paths may hold brackets, and numbers need no colours."""
    return PlainConsole(markup=False, highlight=False, emoji=False, file=file, width=width)


def print_plan(plan: Plan, out: Console | None = None, conditions: bool = False) -> None:
    """Budgets before running: per agent and channel, at T and for T → ∞, or with the price of every release.

    Args:
        plan: what is printed.
        out: where to; by default the terminal.
        conditions: whether every condition of the convergence theorem that fails is listed; default no.
    """
    out, privacy = out or console(), plan.privacy
    size = f"({rounds_text(plan.rounds)}, {_agents(plan.n_agents)})"
    out.print(Text(plan.title or "Plan", style="bold"), size)
    if plan.reason:
        out.print(Text(plan.status.replace("_", " "), style="bold"), sentence(plan.reason), sep=": ")
    # Where there is a guarantee, its notes tell of the data, too.
    data = data_facts(() if privacy.is_noisy else plan.data_notes, plan.settings_text, plan.method)
    known = [(fact.name, fact.text) for fact in privacy_facts(privacy) if fact.name not in _FACTS_ELSEWHERE]
    warned = [("Step", plan.stability_text)] if plan.stability_text else []
    print_items(out, _graph(plan) + [(fact.name, fact.text) for fact in data] + warned + known)
    if privacy.is_noisy:
        out.print()
        out.print(f"ε of each agent at δ = {delta_text(privacy.delta)} after the last round:")
        for table in _budgets(privacy, out.width, agent_names(plan.topology["labels"])):
            out.print(table, soft_wrap=True)
        if privacy.prices:
            out.print()
            out.print("Price of each release, fixed beforehand; noise scale = sensitivity/price:")
            out.print(terminal(list(zip(*_prices(privacy.prices), strict=True))), soft_wrap=True)
        out.print()
        print_items(out, _facts(privacy))
    if plan.settings is not None:
        seen = zip(("Seen", *[""] * len(privacy.seen)), privacy.seen, strict=False)
        print_items(out, [*_settled_values(plan.settings), *seen])
    if plan.unmeasured:
        print_items(out, [("Scores", plan.unmeasured)])
    if conditions:
        _print_theorem(out, plan.theorem)
    elif plan.theorem is not None:
        print_items(out, [("Theorem", theorem_line(plan.theorem))])


def _graph(plan: Plan) -> list[tuple[str, str]]:
    """The graph in one line; none where it plays no part."""
    graph = plan.topology
    if choose_words(plan.privacy, graph).network or plan.n_agents == 1:
        return []
    beside = [text for text in (over_time_text(graph), compression_text(graph)) if text] + list(graph["notes"])
    sent = [] if plan.communication is None else [("Sent", communication_text(plan.communication))]
    return [("Graph", graph_line(graph)), *(("", f"{text}.") for text in beside), *sent]


def graph_line(graph: Mapping[str, Any]) -> str:
    """Print a graph in one line; one that no generator made with its nodes and first names, to be compared.

    graph: as of `topology_summary`.
    """
    labels, first = graph["labels"], ", ".join(graph["labels"][:3])
    made = graph["kind"] in GENERATORS and labels == [str(k) for k in range(len(labels))]
    nodes = "" if made else f"{len(labels)} nodes ({first}{', …' if len(labels) > 3 else ''}), "
    return f"{graph['kind']} ({graph['weights']}): {nodes}{graph_text(graph)}."


def rounds_text(count: int) -> str:
    """So many rounds, in words."""
    return "1 round" if count == 1 else f"{count} rounds"


def _agents(count: int) -> str:
    return "one agent" if count == 1 else f"{count} agents"


def _budgets(privacy: PrivacyStatement, width: int, names: Sequence[str] = ()) -> list[Table]:
    """One line per different budget; agents that pay the same share a line. As many tables as fit the width.

    names: of the agents, where they have others than their numbers.
    """
    agents, claimed, limit = privacy.agents, privacy.claimed, privacy.at_infinity
    channels = list(agents[0].channels)
    kinds = [k for k in SPLITS if any(row.records.get(k) is not None for row in agents.different)] or list(SPLITS)
    heads = ["all", "pure ε", *(f"{c} alone" for c in channels), *kinds, *(["T → ∞"] if limit is not None else [])]
    heads += ["claimed"] if claimed is not None else []
    lines: dict[tuple[str, ...], list[int]] = {}
    for row, members in zip(agents.different, agents.members(), strict=True):
        values = [row.epsilon, row.epsilon_pure, *(row.channels[c].epsilon for c in channels)]
        values += [row.records.get(k) for k in kinds]
        shown = list(map(epsilon_text, values))
        if limit is not None:
            shown.append(_limit_text((row.at_infinity or limit).finite_data))
        if claimed is None:
            lines.setdefault(tuple(shown), []).extend(members)
            continue
        for agent in members:
            lines.setdefault((*shown, epsilon_text(claimed.agents[agent])), []).append(agent)
    by_cost = sorted(lines.items(), key=lambda line: -(agents[line[1][0]].epsilon or 0.0))
    chosen = sorted(((cells, sorted(members)) for cells, members in by_cost[:_MOST_ROWS]), key=lambda line: line[1][0])
    first = ("agents", *(_name_list(members, names) if names else _spans(members) for _, members in chosen))
    columns = list(zip(heads, *(cells for cells, _ in chosen), strict=True))
    tables = [terminal([first, *part]) for part in _fitting(first, columns, width)]
    if len(lines) > _MOST_ROWS:
        tables[-1].caption = f"The most expensive {_MOST_ROWS} of {len(lines)} different budgets."
        tables[-1].caption_justify = "left"
    return tables


def _fitting(first: Sequence[str], columns: Sequence[Sequence[str]], width: int) -> list[list[Sequence[str]]]:
    """The columns in as few parts as fit the width beside the first column, in their order."""
    parts: list[list[Sequence[str]]] = [[]]
    left = start = width - _widest(first)
    for column in columns:
        left -= _widest(column)
        if left < 0 and parts[-1]:
            parts.append([])
            left = start - _widest(column)
        parts[-1].append(column)
    return parts


def _widest(column: Sequence[str]) -> int:
    return max(cell_len(text) for text in column) + GAP


def _limit_text(limit: float | None) -> str:
    """ε for T → ∞: infinite is not the same as unknown."""
    return "unknown" if limit is None else epsilon_text(limit)


def _spans(numbers: Sequence[int]) -> str:
    """0–4, 7: consecutive numbers drawn together."""
    words = spans([str(n) for n in numbers])
    return ", ".join(words) if len(words) <= 4 else f"{', '.join(words[:3])}, … ({len(numbers)} agents)"


def _name_list(members: Sequence[int], names: Sequence[str]) -> str:
    """carl, ben; all 5; carl, … (4 agents): by name, in a column that leaves room for numbers."""
    if len(members) == len(names) > 1:
        return f"all {len(names)}"
    words = [cut_name(names[agent]) for agent in members]
    text = ", ".join(words)
    return text if len(text) <= _WIDEST_NAMES else f"{words[0]}, … ({len(members)} agents)"


def _facts(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    free: dict[str, list[str]] = {}
    for channel, reason in privacy.free_channels.items():
        free.setdefault(reason, []).append(channel)
    facts = [("Free", f"{', '.join(channels)}: {reason}.") for reason, channels in free.items()]
    facts += _signals(privacy)
    limit, noted = privacy.at_infinity, _note_rows(privacy)
    if limit is None:
        return facts + noted
    finite = f"ε = {_limit_text(limit.finite_data)} on these data{_by_channel(limit, 'finite_data')}."
    facts.append(("T → ∞", finite if limit.finite_data is not None else "unknown on these data."))
    if limit.endless_stream is not None:
        kind = "pure ε" if privacy.mechanisms == ("laplace",) else "ε"
        endless = f"{kind} = {epsilon_text(limit.endless_stream)} if the stream of records never ended"
        facts.append(("", f"{endless}{_by_channel(limit, 'endless_stream')}."))
    return facts + noted


def _note_rows(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    """Notes; those on the author's word under one head."""
    out = []
    for head, under in privacy.grouped_notes:
        out += [("Note", head), *(("", f"· {text}") for text in under)]
    return out


def _signals(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    """How large what all records add can be beside the noise."""
    one = {c: s.one_release for c, s in privacy.signal.items()}
    every = {c: s.all_releases for c, s in privacy.signal.items()}
    if not one:
        return []
    text = f"{_ratios(one)} in a release; {_ratios(every)} {WORDS[privacy.setting].signal}"
    return [("Signal", f"at most so many times the noise, if all records agree: {text}.")]


def _ratios(values: Mapping[str, float | None]) -> str:
    """ "y 0.12, z 18"."""
    return ", ".join(f"{c} {v:.2g}" if v < 10.0 else f"{c} {v:.0f}" for c, v in values.items() if v is not None)


def _by_channel(limit: Horizon, which: str) -> str:
    """ " (y alone 2.00, z alone ∞)": the limits of single channels, where they are known."""
    channels = limit.channels or {}
    known = {c: value for c, single in channels.items() if (value := getattr(single, which)) is not None}
    listed = ", ".join(f"{c} alone {epsilon_text(v)}" for c, v in known.items())
    return f" ({listed})" if len(known) > 1 else ""


def print_items(out: Console, items: Iterable[tuple[str, str]]) -> None:
    """Labelled sentences, one below the other, with a hanging indent."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in items:
        grid.add_row(Text(label), Text(text))
    out.print(grid)


def theorem_line(theorem: Mapping[str, Any]) -> str:
    """Which cases of the convergence theorem apply, and how many conditions fail, in a sentence.

    Args:
        theorem: the theorem, as of `Plan.theorem`.

    Example:
        >>> failing = {"condition": "v_z > 0", "holds": False, "margin": -0.1}
        >>> theorem_line({"name": "Theorem 4.1", "cases": [{"case": "(i) convex", "conditions": [failing]}]})
        'Theorem 4.1 on convergence does not apply: 1 condition fails (plan --all lists it). No budget depends on it.'
    """
    fate = {
        case["case"]: (case.get("rate"), {c["condition"] for c in case["conditions"] if not c["holds"]})
        for case in theorem["cases"]
    }
    missed = set().union(*(failing for _, failing in fate.values()))
    many = f"{len(missed)} conditions fail (plan --all lists them)"
    number = many if len(missed) != 1 else "1 condition fails (plan --all lists it)"
    if applies := [f"{case}, {rate}" for case, (rate, failing) in fate.items() if not failing]:
        rest = f"; of its other cases {number}" if missed else ""
        return f"{theorem['name']} on convergence applies in case {'; '.join(applies)}{rest}. No budget depends on it."
    return f"{theorem['name']} on convergence does not apply: {number}. No budget depends on it."


def _print_theorem(out: Console, theorem: Mapping[str, Any] | None) -> None:
    """Which cases of the convergence theorem apply, and the conditions that fail, by how much."""
    if theorem is None:
        return
    out.print()
    out.print(f"Convergence, {theorem['name']} (no budget depends on it):")
    failing: dict[str, float] = {}
    verdicts = []
    for case in theorem["cases"]:
        missed = [c for c in case["conditions"] if not c["holds"]]
        failing |= {c["condition"]: -c["margin"] for c in missed}
        fate = (
            f"applies, {case['rate']}" if not missed else f"{len(missed)} of {len(case['conditions'])} conditions fail"
        )
        verdicts.append((case["case"], fate))
    print_items(out, verdicts)
    if not failing:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("fails")
    table.add_column("short by", justify="right", no_wrap=True)
    for case in theorem["cases"]:
        table.add_column(case["case"].partition(" ")[0], justify="center")
    for condition, gap in failing.items():
        asking = [any(c["condition"] == condition for c in case["conditions"]) for case in theorem["cases"]]
        marks = ["×" if asks else "" for asks in asking]
        table.add_row(Text(condition), f"{abs(gap):.3g}", *marks)
    out.print(Padding(table, (1, 0, 0, 0)))


def _prices(listed: Sequence[ReleasePrice]) -> list[tuple[str, ...]]:
    """Rows of a table, its heads first: what every release of a channel may cost one record of a kind."""
    sampled = any(entry.rate for entry in listed)
    kinds = [k for k in SPLITS if any(k in entry.price for entry in listed)]
    rows = [("channel", "releases", "numbers each", *kinds, *(["sample"] if sampled else []))]
    for entry in listed:
        cells = [price_text(entry.price.get(split), entry.unit) for split in kinds]
        share = max(entry.rate.values(), default=1.0)
        rates = ["all" if share == 1.0 else f"{share:.3g}"] if sampled else []
        rows.append((entry.channel, str(entry.releases), str(entry.width), *cells, *rates))
    return rows


def _settled_values(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was left out of the scenario, and follows from public numbers."""
    values = settings["settled"]
    named = [f"{name} = {_setting_text(values[name])}" for name in settings["left_out"]]
    return (
        [("Settled", f"{', '.join(named)} (left out: defaults, or what follows from public facts).")] if named else []
    )


def _setting_text(value: Any) -> str:
    """ "0.05/(t+1)^0.9", "7", "dp_gd"."""
    if isinstance(value, Mapping):
        return f"{value['scale']:.4g}{schedule_text(value)}"
    return f"{value:.4g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def baselines(job: Job) -> dict[str, float]:
    """Scores of who knows nothing of a record but its kind.

    Returns:
        test_accuracy: the share of held-out records in the class that is commonest among the agents' records.
        test_rmse, test_r2: of labels that are numbers, of always predicting the mean label of the agents' records.
        Nothing without held-out records.
    """
    shards = job.shards
    if not shards.test.size:
        return {}
    known = shards.labels[np.concatenate([*shards.train, *shards.validation])]
    if (unit := shards.label_unit) is not None:
        held_out = shards.labels[shards.test]
        with np.errstate(all="ignore"):
            squared = float(np.mean(np.square(held_out - known.mean())))
            explained = {"test_r2": 1.0 - squared / float(np.var(held_out))} if np.ptp(held_out) > 0.0 else {}
        scores = {"test_rmse": math.sqrt(squared) * unit, **explained}
        return {name: value for name, value in scores.items() if math.isfinite(value)}
    known = known.astype(np.int64)
    commonest = int(np.argmax(np.bincount(known, minlength=len(shards.classes))))
    return {"test_accuracy": float(np.mean(shards.labels[shards.test] == commonest))}


def title_of(job: Job) -> str:
    """The scenario's title, with the graph where it is another."""
    return title_here(job.scenario, job.topology, served=job.central)


def title_here(s: Scenario, topology: Topology, served: bool) -> str:
    """The scenario's title; where its algorithm or its graph was replaced, with that which is run.

    served: whether agents answer a server, and no link matters.
    """
    replaced = s._replaced_tables | ({"topology"} & s._object_names.keys())
    m = topology.n_agents
    named = s.topology.file is not None
    graph = (
        f"the network {topology.name}, {m} agents"
        if named
        else article(topology_name({"kind": topology.name, "agents": m}))
    )
    others = [s.algorithm.kind] if "algorithm" in replaced else []
    if "topology" in replaced:
        others.append("a server with all records" if s.topology.pooled else _agents(m) if served or m == 1 else graph)
    return f"{s.title} (here {', '.join(others)})" if s.title and others else s.title


def topology_summary(job: Job) -> dict[str, Any]:
    """The graph and its numbers."""
    t = job.topology
    return {
        "kind": t.name,
        "agents": t.n_agents,
        "edges": t.edges.tolist(),
        "rho": t.rho,
        "spectral_gap": t.spectral_gap,
        "neighbour_weight": t.neighbour_weight.tolist(),
        "weights": t.weights,
        "labels": list(t.labels),
        # A generator's are no better than those that a picture finds; a map is another matter.
        **({} if t.positions is None or t.name in GENERATORS else {"positions": t.positions.tolist()}),
        "notes": list(t.notes),
        "central": job.central,
        **({"directed": True} if t.directed else {}),
        **({} if t.over_time is None else {"over_time": _over_time(t.over_time)}),
        **({} if (made := compression_summary(job)) is None else {"compression": made}),
    }


def _over_time(changes: OverTime) -> dict[str, Any]:
    return {
        "kind": changes.kind,
        "rate": changes.rate,
        "period": changes.period,
        **{key: value for key in ("drop", "offline", "delay") if (value := getattr(changes, key))},
    }


def problem_summary(job: Job) -> dict[str, Any]:
    """The problem, its size, and the public record counts."""
    counts: dict[Split, Any] = {k: job.counts[k].tolist() for k in SPLITS}
    return {
        "kind": job.scenario.problem.kind,
        "solves": job.solves,
        # What is noted about the records says that they are others than those that were named.
        "data": job.shards.source if job.shards.notes or job.components.data.is_object else _data_name(job.components),
        "notes": list(job.shards.all_notes),
        **({"settings": job.settings_text} if job.settings_text else {}),
        **({"x_names": names} if (names := _names_of_x(job)) else {}),
        **_reading_facts(job),
        "p": job.problem.p,
        "q": job.problem.q,
        "records": {**counts, "test": int(job.shards.test.size)},
    }


def _reading_facts(job: Job) -> dict[str, Any]:
    """What a model reads and says, where it predicts: public, and with the weights all that a prediction needs."""
    if not isinstance(job.posed_problem, Predictor):
        return {}
    shards = job.shards
    known = {"image": shards.image, "bounds": shards.bounds}
    return {
        "features": list(shards.feature_names),
        "classes": list(shards.classes),
        **{key: list(value) for key, value in known.items() if value is not None},
    }


def _data_name(c: Components) -> str:
    """What the records are called; of a file its name, for its folders say who ran this."""
    table = c.scenario.problem
    named = c.data.value is None and (("problem", "data") in c.files or table.manifest is not None)
    return Path(table.data).name if named else table.data


# Problems of which x has a coordinate for each feature.
_BY_FEATURE = ("logistic_hyperparameter", "ridge_hyperparameter", "softmax_hyperparameter")
# Names that say no more than a number: of features that have none.
_NUMBERED_NAME = re.compile(r"(x|feature_?|pixel_?)\d+")


def _names_of_x(job: Job) -> list[str]:
    """What the coordinates of x stand for; empty where nothing names them."""
    names, p = list(job.shards.feature_names), job.problem.p
    if job.scenario.problem.kind not in _BY_FEATURE or job.components.problem.is_object:
        return []
    if not 0 <= p - len(names) <= 1 or all(_NUMBERED_NAME.fullmatch(name) for name in names):
        return []
    return [*names, "intercept"][:p]
