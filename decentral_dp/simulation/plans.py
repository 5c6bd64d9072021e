"""Plans: what a scenario would cost, before anything is run."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decentral_dp.config.algorithm_components import entry_of
from decentral_dp.config.loading import load_with_records
from decentral_dp.config.schema import Scenario
from decentral_dp.formatting import agent_names, epsilon_text
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.problems.protocol import Problem
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.job_summary import title_of, topology_summary
from decentral_dp.simulation.jobs import Job
from decentral_dp.simulation.plan_text import console, print_plan
from decentral_dp.simulation.statement import PrivacyStatement, Setting

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
        unmeasured: which metric a run leaves out because it would take too long; "" where none.
        settings: the hyper-parameters of a coordinator's program, else None.
        theorem: the conditions of a convergence theorem, where one is known.
        records: every planned release.

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
    unmeasured: str = ""

    @classmethod
    def of(cls, job: Job) -> Plan:
        """The plan of a job."""
        return cls(
            title=title_of(job),
            setting=job.setting,
            rounds=job.rounds,
            status=job.status,
            reason=job.reason,
            n_agents=job.n_agents,
            topology=topology_summary(job),
            privacy=job.statement(),
            data_notes=tuple(job.shards.notes),
            settings=job.settings(),
            theorem=job.theorem(),
            records=job.ledger,
            unmeasured=job.unmeasured,
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
        spent = epsilon_text(self.privacy.epsilon_max)
        return f"<Plan {self.title!r}: {self.status}, {self.rounds} rounds, ε = {spent}>"

    def _repr_html_(self) -> str:
        from decentral_dp.reporting.notebook import plan_view

        return plan_view(self.title, self.privacy, self.topology)

    def __str__(self) -> str:
        text = io.StringIO()
        print_plan(self, console(text, _WIDTH))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def plan(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    overrides: Sequence[str] = (),
    problem: Problem | None = None,
    algorithm: Any = None,
    mechanism: Any = None,
    topology: Any = None,
    data: Any = None,
    partition: Any = None,
    unset: Sequence[str] = (),
) -> Plan:
    """Price every release of a scenario, without running anything.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        overrides: "table.key=value" with a TOML value.
        problem, algorithm, mechanism, topology, data, partition: objects that are used instead of those that the
            scenario names; as in `build`.
        unset: "table.key" of what is taken out of the scenario before overrides are set.

    Returns:
        The plan, with ε of each agent, δ, the ledger, and the statement of privacy.

    Raises:
        InputError: one sentence about whatever does not fit.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("quadratic", ["algorithm.rounds=2"])
        >>> plan.rounds, plan.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    loaded = load_with_records(scenario, overrides, data, topology, unset)
    if loaded.run.device != "cpu" and entry_of(loaded).solves == "minimax":
        # Prices are the same wherever it will run. Losses of one's own are tried where they will be computed.
        loaded = load_with_records(scenario, [*overrides, 'run.device="cpu"'], data, topology, unset)
    return Plan.of(build(loaded, problem, algorithm, mechanism, topology, data, partition))
