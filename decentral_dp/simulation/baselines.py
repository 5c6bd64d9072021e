"""Runs that a run is judged by, on the same records and the same held-out ones.

`alone`: every agent by itself, at the same ε. `central`: one trusted server that has all records, at the same ε.
`none`: the same network without noise and clipping. What a run gains on `alone` is what collaboration is worth; what it
lacks of `central` is what it costs that nobody is trusted.

Each is a run of its own, with a folder and a ledger of its own, and reads the records once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from decentral_dp.config.component_tables import Partition
from decentral_dp.config.components import Components, resolve
from decentral_dp.config.schema import OBJECTS, PrivacyTable, Scenario, TopologyTable
from decentral_dp.data import SYNTHETIC
from decentral_dp.data.columns import ColumnRules
from decentral_dp.errors import InputError
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation.jobs.build import build
from decentral_dp.simulation.jobs.job import Job


def baseline_jobs(c: Components, job: Job) -> dict[str, Job]:
    """Plan the runs that a run is judged by.

    Args:
        c: what its scenario names, before anything was planned.
        job: the run.

    Returns:
        "alone", "central", "none" → job; of a trusted coordinator and of a run without noise those that differ from it;
        of made-up records, and where all that an agent holds is protected, no server.

    Raises:
        InputError: the records are with their agents, or the guarantee is that of a paper.
    """
    s = c.scenario
    if s.privacy.guarantee == "as_printed":
        raise InputError(
            'baselines: they are run at the same certified ε, and privacy.guarantee is "as_printed". Take "certified".'
        )
    if job.shards.elsewhere:
        raise InputError(
            "baselines: the records are with their agents (problem.manifest), and no server may have them all. Leave "
            "baselines out."
        )
    made = {name: build(resolve(change(s, job))) for name, change in _CHANGES.items() if name in _of_interest(job)}
    sizes = {(one.shards.test.size, int(one.shards.train_counts.sum())) for one in (job, *made.values())}
    if len(sizes) > 1:
        raise InputError(
            "baselines: with another number of agents there are other train or held-out records, so that scores cannot "
            "be compared. Set problem.validation and problem.test, or leave baselines out."
        )
    return made


def _of_interest(job: Job) -> set[str]:
    networks = set() if job.central or job.n_agents == 1 else {"alone"}
    # Made-up records are drawn agent by agent: with one agent there would be others.
    # One server's only agent holds the records of all: as a unit it would be all of them.
    if networks and job.scenario.problem.data not in SYNTHETIC and job.unit.records is not None:
        networks.add("central")
    return networks | ({"none"} if job.scenario.privacy.guarantee != "none" else set())


def _alone(s: Scenario, job: Job) -> Scenario:
    return _on(s, TopologyTable(kind="isolated", agents=job.n_agents), job)


def _central(s: Scenario, job: Job) -> Scenario:
    changed: dict[str, Any] = {"partition": "iid"}
    owner = s.problem.partition
    if isinstance(owner, Partition) and owner.name not in (None, "agent") and _has_columns(s):
        # The column that said who holds a record is no feature here either; one called "agent" never is.
        rules = s.problem.columns or ColumnRules()
        changed["columns"] = rules.model_copy(update={"drop": [*rules.drop, owner.name]})
    pooled = s.problem.model_copy(update=changed)
    return _on(s.model_copy(update={"problem": pooled}), TopologyTable(kind="complete", agents=1), job)


def _has_columns(s: Scenario) -> bool:
    """Whether records are a table whose columns `problem.columns` names, not arrays."""
    if s._objects and (table := s._objects().get("data")) is not None:
        return hasattr(table, "columns")
    return Path(str(s.problem.data)).suffix.lower() in (".csv", ".parquet") or str(s.problem.data).startswith("openml:")


def _none(s: Scenario, job: Job) -> Scenario:
    return s.model_copy(update={"privacy": PrivacyTable(guarantee="none")})


def _on(s: Scenario, graph: TopologyTable, job: Job) -> Scenario:
    """The scenario on another graph, at the ε of the run whatever its noise was given by."""
    privacy = s.privacy
    if privacy.guarantee == "certified" and privacy.epsilon is None:
        noise = dict.fromkeys(("x", "y", "z"))
        privacy = privacy.model_copy(update={**noise, "epsilon": float(job.budget.epsilon.max())})
    chosen = s.model_copy(update={"topology": graph, "privacy": privacy, "run_graph": None})
    replaced = {"topology", "partition"} if graph.agents == 1 else {"topology"}
    if s._objects:
        handed: dict[str, Any] = {what: value for what, value in s._objects().items() if what not in replaced}
        chosen._objects = Secret(OBJECTS, handed)
    chosen._given = {what: name for what, name in s._given.items() if what not in replaced}
    chosen._replaced = s._replaced | {"topology"}
    return chosen


_CHANGES: Mapping[str, Callable[[Scenario, Job], Scenario]] = MappingProxyType(
    {"alone": _alone, "central": _central, "none": _none}
)
