"""Plans: the privacy cost of a scenario before it is run, and its text for a terminal."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from decentral_dp.config.components import Objects, load_components
from decentral_dp.config.loading import Source
from decentral_dp.formatting import (
    agent_names,
    byzantine_text,
    capitalise,
    communication_text,
    compression_text,
    delta_text,
    epsilon_text,
    graph_text,
    over_time_text,
    ratio_text,
    schedule_text,
)
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.reporting.privacy import (
    UNVERIFIED,
    VERBOSE_LINES,
    mechanism_text,
    notes,
    privacy_lines,
    summary_text,
    unverified_texts,
    variables_text,
)
from decentral_dp.reporting.report import skew_text, tabulate_budgets
from decentral_dp.simulation.budget import Budget, Quote, describe_quote
from decentral_dp.simulation.communication import communication
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.jobs.published import has_published_epsilon
from decentral_dp.simulation.result import Communication, text_of
from decentral_dp.simulation.statement import PrivacyStatement
from decentral_dp.simulation.summary import (
    method_name,
    problem_summary,
    setting_of,
    statement_of,
    title_of,
    topology_summary,
)

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

# Rows of the table of agents without --verbose.
_MOST_ROWS = 3


@dataclass(frozen=True, eq=False)
class Plan:
    """Privacy cost of a scenario; `print(plan)` prints the text of the command "plan".

    Args:
        title: title of the scenario.
        setting: "gossip", or the setting of a trusted coordinator and its type of problem.
        rounds: number of rounds.
        n_agents: number of agents.
        topology: graph of the agents, as in `result.json`.
        privacy: privacy statement.
        data_notes: differences between the given records and the scenario's records.
        method: name of the algorithm with every enabled part.
        hyperparameters_text: default hyper-parameters of training; "" for other problems.
        setting_warnings: warnings of learning rates that may be unstable on this graph, and of features that are not
            centred.
        problem: problem, data and record counts, as in `result.json`.
        label_skew: mean total variation distance between an agent's labels and all labels, not covered by ε, or None.
        settings: hyper-parameters of a coordinator's program, or None.
        records: ledger of every planned release.
        communication: messages of the agents; None with a trusted coordinator.
        adversary_hint: setting that states ε of the published model, or "".
        quote: ε of the data set before and after this run, if a budget is given.
        quote_text: quote in words, or "".

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("quadratic")
        >>> plan.setting, len(plan.epsilon) == plan.n_agents, plan.epsilon_max == max(plan.epsilon)
        ('gossip', True, True)
    """

    title: str
    setting: str
    rounds: int
    n_agents: int
    topology: Mapping[str, Any]
    privacy: PrivacyStatement
    data_notes: tuple[str, ...]
    settings: Mapping[str, Any] | None
    records: Ledger
    method: str = ""
    hyperparameters_text: str = ""
    setting_warnings: tuple[str, ...] = ()
    problem: Mapping[str, Any] = field(default_factory=dict)
    label_skew: float | None = None
    communication: Communication | None = None
    adversary_hint: str = ""
    quote: Quote | None = None
    quote_text: str = ""

    @classmethod
    def from_job(cls, job: PlannedJob, budget: Budget | None = None) -> Plan:
        """Build the plan of a job, without charging the budget of several runs."""
        quote, hint = None if budget is None else budget.quote(job), ""
        if isinstance(job, GossipJob) and job.n_agents > 1 and job.published is None and has_published_epsilon(job):
            hint = 'privacy.adversary = "final_average" states ε of the published model.'
        return cls(
            title=title_of(job.scenario),
            setting=job.setting,
            rounds=job.rounds,
            n_agents=job.n_agents,
            topology=topology_summary(job),
            privacy=statement_of(job),
            data_notes=tuple(job.shards.notes),
            method=method_name(job),
            hyperparameters_text=job.hyperparameters_text,
            setting_warnings=job.setting_warnings,
            problem=problem_summary(job),
            settings=setting_of(job.setting).hyperparameters(job),
            records=job.ledger,
            label_skew=job.shards.label_skew,
            communication=communication(job),
            adversary_hint=hint,
            quote=quote,
            quote_text="" if budget is None or quote is None else f"{capitalise(describe_quote(budget, quote))}.",
        )

    @property
    def epsilon(self) -> tuple[float | None, ...]:
        """Privacy cost ε of each agent at delta."""
        return tuple(agent.epsilon for agent in self.privacy.agents)

    @property
    def epsilon_max(self) -> float:
        """Privacy cost ε of the worst agent at delta."""
        return self.privacy.epsilon_max

    @property
    def delta(self) -> float | None:
        return self.privacy.delta

    @property
    def ledger(self) -> pd.DataFrame:
        """Ledger with one row for each planned release of an agent, as in `ledger.parquet`."""
        return self.records.to_frame(agent_names(self.topology["labels"]))

    def to_json(self) -> str:
        """Return the plan as JSON; infinities are "inf", NaN is null."""
        names = ("title", "method", "rounds", "topology", "problem", "settings")
        content = {name: getattr(self, name) for name in names}
        communication = None if self.communication is None else asdict(self.communication)
        budget = {} if self.quote is None else {"budget": self.quote._asdict()}
        return text_of({**content, "communication": communication, "privacy": self.privacy.to_dict(), **budget})

    def __repr__(self) -> str:
        return f"<Plan {self.title!r}: {self.rounds} rounds, {summary_text(self.privacy)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        from decentral_dp.reporting.terminal import capture_text

        return capture_text(lambda out: print_privacy_plan(self, out))


def plan_scenario(
    scenario: Source, overrides: Sequence[str] = (), budget: Budget | None = None, **objects: Unpack[Objects]
) -> Plan:
    """Compute the privacy cost of a scenario, without running anything.

    Args:
        scenario: name of a shipped scenario, path, dict of the same shape, or loaded scenario.
        overrides: overrides "table.key=value" with TOML values.
        budget: privacy budget shared by several runs; the plan gives ε before and after this run.
        **objects: Python objects that replace components of the scenario, as in `build`.

    Returns:
        The plan, with the ε of each agent, δ, the ledger, and the privacy statement.

    Raises:
        InputError: the scenario is invalid.

    Example:
        >>> plan = plan_scenario("quadratic", ["algorithm.rounds=2"])
        >>> plan.rounds, plan.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    c = load_components(scenario, overrides, **objects)
    if c.scenario.run.device != "cpu" and c.algorithm.rules.plans_on_cpu:
        # The privacy cost is the same on every device.
        c = load_components(scenario, [*overrides, 'run.device="cpu"'], **objects)
    return Plan.from_job(plan_job(c.without_records()), budget)


def print_privacy_plan(plan: Plan, out: Console | None = None, verbose: bool = False) -> None:
    """Print a plan: algorithm, data, graph, privacy, mechanism, and ε of each agent.

    Args:
        plan: plan to print.
        out: console, default the terminal.
        verbose: whether to print all settings, notes, channels without cost, and the limit for T → ∞.
    """
    from decentral_dp.reporting import terminal

    out, privacy, graph = out or terminal.console(), plan.privacy, plan.topology
    terminal.print_headline(out, plan.method, graph, privacy, plan.problem, plan.rounds)
    items = [("Title", plan.title)] if verbose and plan.title else []
    items.append(("Data", terminal.data_line(plan.problem)))
    # With a coordinator or a server the graph plays no part.
    if not (privacy.publishes_all or graph["has_server"] or plan.n_agents == 1):
        changes = [text for text in (over_time_text(graph), compression_text(graph), byzantine_text(graph)) if text]
        items += [("Graph", graph_line(graph)), *(("", f"{capitalise(text)}.") for text in (*changes, *graph["notes"]))]
    items += [line for line in privacy_lines(privacy) if verbose or line[0] not in VERBOSE_LINES]
    items += [("Mechanism", text)] if (text := mechanism_text(privacy)) else []
    is_centred = plan.problem["solves"] == "one-level" and "x" in privacy.signal
    centred = "x: mean of the features, y: model" if is_centred else ""
    items += [("Skew", skew_text(plan.label_skew))] if verbose and plan.label_skew is not None else []
    items += [("Variables", text)] if verbose and (text := variables_text(privacy) or centred) else []
    sent = plan.communication if plan.n_agents > 1 else None
    items += [] if sent is None else [("Sent", communication_text(sent))]
    items += [("Budget", plan.quote_text)] if plan.quote_text else []
    items += [("Settings", plan.hyperparameters_text)] if plan.hyperparameters_text else []
    # Assumptions on the data matter to a guarantee only.
    limits = [*(plan.problem["notes"] if privacy.is_noisy else plan.data_notes), *notes(privacy, plan.rounds)]
    items += [("Warning", text) for text in (*plan.setting_warnings, *plan.problem["warnings"])]
    if not verbose:
        items += [("Note", text) for text in limits]
        count = len(unverified_texts(privacy.unverified))
        unverified = f"{count} unverified assumption{'s' * (count > 1)} on custom components. --verbose lists them."
        items += [("Warning", unverified)] if privacy.rests_on_unverified else []
    terminal.print_items(out, items)
    summary = {} if verbose else {"most_rows": _MOST_ROWS, "worst_agents": 0}
    if (budgets := tabulate_budgets(privacy, graph, **summary)) is not None:
        out.print()
        agents, rows = zip(*budgets.rows, strict=True)
        cells = [(c.head, *texts) for c, *texts in zip(budgets.columns, *rows, strict=True)]
        head = f"agents, δ = {delta_text(privacy.delta)}"
        for part in terminal.split_columns(cells, out.width - terminal.longest([head, *agents])):
            out.print(terminal.terminal([(head, *agents), *part]), soft_wrap=True)
    if not verbose:
        return
    values = {} if plan.settings is None else plan.settings["settled"]
    defaults = [] if plan.settings is None else plan.settings["left_out"]
    texts = []
    for name in defaults:
        value = values[name]
        if isinstance(value, Mapping):
            value = f"{value['scale']:.4g}{schedule_text(value)}"
        texts.append(f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}")
    out.print()
    last = [("Defaults", f"{', '.join(texts)}.")] if texts else []
    last += [("Adversary", plan.adversary_hint)] if plan.adversary_hint else []
    terminal.print_items(out, [*(_privacy_facts(privacy, limits) if privacy.is_noisy else []), *last])


def graph_line(graph: Mapping[str, Any]) -> str:
    """Describe a graph in one line: its kind, weights and numbers.

    Args:
        graph: graph that `topology_summary` returned.
    """
    return f"{graph['kind']} ({graph['weights']}): {graph_text(graph)}."


def _privacy_facts(privacy: PrivacyStatement, limits: Sequence[str]) -> list[tuple[str, str]]:
    """Return channels without privacy cost, the signal-to-noise ratio, the limit for T → ∞, and notes.

    Args:
        privacy: privacy statement of the plan.
        limits: notes on the data and on ε.
    """
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
    facts += [("Note", text) for text in limits]
    if privacy.unverified:
        facts += [("Note", UNVERIFIED), *(("", f"· {text}") for text in unverified_texts(privacy.unverified))]
    return facts
