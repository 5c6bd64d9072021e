"""Plans: the privacy cost of a scenario before anything is run, and its text on a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console
from rich.table import Table
from rich.text import Text

from decentral_dp.bounded import SPLITS
from decentral_dp.config.components import Objects, load_components
from decentral_dp.config.loading import Source
from decentral_dp.formatting import (
    agent_names,
    communication_text,
    compression_text,
    cut_name,
    delta_text,
    epsilon_text,
    graph_text,
    over_time_text,
    ratio_text,
    schedule_text,
    sentence,
    spans,
)
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.reporting.terminal import console, longest, print_items, split_columns, terminal
from decentral_dp.simulation.communication import communication
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import Communication
from decentral_dp.simulation.setting import settled_parameters, statement_of
from decentral_dp.simulation.statements.statement import PrivacyStatement, Setting
from decentral_dp.simulation.summary import method_name, title_of, topology_summary
from decentral_dp.topology import GENERATORS

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
    records: Ledger
    method: str = ""
    settings_text: str = ""
    stability_text: str = ""
    unmeasured: str = ""
    communication: Communication | None = None

    @classmethod
    def from_job(cls, job: PlannedJob) -> Plan:
        """The plan of a job."""
        return cls(
            title=title_of(job.scenario),
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
            settings=settled_parameters(job),
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
        print_privacy_plan(self, console(text, _WIDTH))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def plan_scenario(scenario: Source, overrides: Sequence[str] = (), **objects: Unpack[Objects]) -> Plan:
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
        >>> priced = plan_scenario("quadratic", ["algorithm.rounds=2"])
        >>> priced.rounds, priced.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    c = load_components(scenario, overrides, **objects)
    if c.scenario.run.device != "cpu" and c.algorithm.rules.priced_on_cpu:
        # Prices are the same wherever it will run. Losses of one's own are tried where they will be computed.
        c = load_components(scenario, [*overrides, 'run.device="cpu"'], **objects)
    return Plan.from_job(plan_job(c.without_records()))


# Above so many different lines a table lists only the most expensive agents.
_MOST_ROWS = 12
# Letters that the names of the agents of a line take at most.
_WIDEST_NAMES = 30


def print_privacy_plan(plan: Plan, out: Console | None = None) -> None:
    """Print a plan: the guarantee, ε of each agent and channel, and the public facts that they follow from.

    Args:
        plan: the plan.
        out: a console; by default the terminal.
    """
    out, privacy, graph = out or console(), plan.privacy, plan.topology
    agents = "one agent" if plan.n_agents == 1 else f"{plan.n_agents} agents"
    out.print(Text(plan.title or "Plan", style="bold"), f"({rounds_text(plan.rounds)}, {agents})")
    if plan.reason:
        out.print(Text(plan.status.replace("_", " "), style="bold"), sentence(plan.reason), sep=": ")
    items = []
    # Where agents answer a coordinator or a server, the graph plays no part.
    if not (privacy.network_text or graph["central"] or plan.n_agents == 1):
        beside = [text for text in (over_time_text(graph), compression_text(graph)) if text]
        items += [("Graph", graph_line(graph)), *(("", f"{text}.") for text in (*beside, *graph["notes"]))]
        items += [] if plan.communication is None else [("Sent", communication_text(plan.communication))]
    # Where there is a guarantee, its notes tell of the data, too.
    items += [] if privacy.is_noisy else [("Data", note) for note in plan.data_notes]
    items += [("Algorithm", f"{plan.method}.")] if plan.method else []
    items += [("Settings", plan.settings_text)] if plan.settings_text else []
    items += [("Step", plan.stability_text)] if plan.stability_text else []
    print_items(out, items + [line for line in privacy.lines if line[0] != "Note"])
    if privacy.is_noisy:
        out.print()
        out.print(f"ε of each agent at δ = {delta_text(privacy.delta)} after the last round:")
        for table in _budgets(privacy, out.width, agent_names(graph["labels"])):
            out.print(table, soft_wrap=True)
        out.print()
    values = {} if plan.settings is None else plan.settings["settled"]
    defaults = [] if plan.settings is None else plan.settings["left_out"]
    texts = []
    for name in defaults:
        value = values[name]
        if isinstance(value, Mapping):
            value = f"{value['scale']:.4g}{schedule_text(value)}"
        texts.append(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    last = [("Defaults", f"{', '.join(texts)}.")] if texts else []
    last += [("Scores", plan.unmeasured)] if plan.unmeasured else []
    print_items(out, [*(_privacy_facts(privacy) if privacy.is_noisy else []), *last])


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


def _budgets(privacy: PrivacyStatement, width: int, names: Sequence[str] = ()) -> list[Table]:
    """One line per different budget; agents that pay the same share a line. As many tables as fit the width.

    names: of the agents, where they have others than their numbers.
    """
    agents, claimed = privacy.agents, privacy.claimed
    channels = list(agents[0].channels)
    kinds = [k for k in SPLITS if any(row.records.get(k) is not None for row in agents.different)] or list(SPLITS)
    heads = ["all", *(f"{c} only" for c in channels), *kinds, *([] if claimed is None else ["claimed"])]
    lines: dict[tuple[str, ...], list[int]] = {}
    for row, members in zip(agents.different, agents.members(), strict=True):
        values = [row.epsilon, *(row.channels[c].epsilon for c in channels), *(row.records.get(k) for k in kinds)]
        shown = list(map(epsilon_text, values))
        if claimed is None:
            lines.setdefault(tuple(shown), []).extend(members)
            continue
        for agent in members:
            lines.setdefault((*shown, epsilon_text(claimed.agents[agent])), []).append(agent)
    by_cost = sorted(lines.items(), key=lambda line: -(agents[line[1][0]].epsilon or 0.0))
    chosen = sorted(((cells, sorted(members)) for cells, members in by_cost[:_MOST_ROWS]), key=lambda line: line[1][0])
    first = ("agents", *(_name_list(members, names) for _, members in chosen))
    columns = list(zip(heads, *(cells for cells, _ in chosen), strict=True))
    tables = [terminal([first, *part]) for part in split_columns(columns, width - longest(first))]
    if len(lines) > _MOST_ROWS:
        tables[-1].caption = f"The most expensive {_MOST_ROWS} of {len(lines)} different budgets."
        tables[-1].caption_justify = "left"
    return tables


def _name_list(members: Sequence[int], names: Sequence[str]) -> str:
    """0–4, 7: numbers drawn together; carl, … (4 agents): names in a column that leaves room for numbers."""
    if not names:
        words = spans([str(n) for n in members])
        return ", ".join(words) if len(words) <= 4 else f"{', '.join(words[:3])}, … ({len(members)} agents)"
    if len(members) == len(names) > 1:
        return f"all {len(names)}"
    words = [cut_name(names[agent]) for agent in members]
    text = ", ".join(words)
    return text if len(text) <= _WIDEST_NAMES else f"{words[0]}, … ({len(members)} agents)"


def _privacy_facts(privacy: PrivacyStatement) -> list[tuple[str, str]]:
    """Free channels, the signal-to-noise ratio, the limit for T → ∞, and notes."""
    free: dict[str, list[str]] = {}
    for channel, reason in privacy.free_channels.items():
        free.setdefault(reason, []).append(channel)
    facts = [("Free", f"{', '.join(channels)}: {reason}.") for reason, channels in free.items()]
    if privacy.signal:
        ratios = ", ".join(f"{c} {ratio_text(s.all_releases)}" for c, s in privacy.signal.items())
        agents = "" if privacy.is_trusted else " and agents"
        facts.append(("Signal", f"signal-to-noise ratio over all rounds{agents}, at most: {ratios}."))
    if (limit := privacy.at_infinity) is not None:
        finite = "no bound is known" if limit.finite_data is None else f"ε = {epsilon_text(limit.finite_data)}"
        text = f"{finite} on these data"
        if limit.endless_stream is not None:
            kind = "pure ε" if privacy.mechanisms == ("laplace",) else "ε"
            text += f", {kind} = {epsilon_text(limit.endless_stream)} on an endless stream of records"
        facts.append(("T → ∞", f"{text}."))
    for head, under in privacy.grouped_notes:
        facts += [("Note", head), *(("", f"· {text}") for text in under)]
    return facts
