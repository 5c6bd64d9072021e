"""Baselines of a run, on the same records and the same held-out records.

In `alone`, every agent trains in isolation at the same ε. In `central`, a trusted server has all records at the same ε.
`none` is the same network without noise and clipping. The gain over `alone` is the value of collaboration. The loss
compared with `central` is the cost of local instead of central DP.

Default hyper-parameters of training follow from the number of records (`jobs.hyperparameters`). If the agents' numbers
differ by more than a tenth, agents with N to 1.1 N train records are a run `alone_N`, which reads only their records. A
record is in one of these runs.

Each baseline is a separate run with its own folder and ledger, and reads the records again. With several seeds, the run
and its baselines are repeated with different noise and the same partition. Held-out records are the same in all of
them, so differences are paired.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from decentral_dp.bounded import Array
from decentral_dp.config.components import Components, resolve
from decentral_dp.config.schema import OBJECTS, PrivacyTable, Scenario, TopologyTable
from decentral_dp.errors import Refusal, refuse
from decentral_dp.files.durable import write_whole
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.jobs.job import GossipJob, PlannedJob
from decentral_dp.simulation.result import RESULT, RunResult, mode_of, seal
from decentral_dp.simulation.run import Run
from decentral_dp.simulation.sites import compare_sites, site_summary

# Agents whose numbers of train records differ by at most this factor are isolated in one run.
_SIMILAR = 1.1


_REFUSALS: tuple[Refusal[PlannedJob], ...] = (
    Refusal(
        lambda job: job.scenario.privacy.guarantee == "as_published",
        "baselines",
        'require a certified ε (got privacy.guarantee = "as_published")',
        'set privacy.guarantee = "certified"',
    ),
    Refusal(
        lambda job: not job.holds_records,
        "baselines",
        "not supported with problem.manifest, since the trusted server would need all records",
        "remove baselines",
    ),
)


def baseline_jobs(
    c: Components, job: PlannedJob, names: Collection[str] = ("alone", "central", "none")
) -> dict[str, PlannedJob]:
    """Plan the baselines of a run.

    Args:
        c: components of the run's scenario.
        job: job of the run.
        names: baselines to plan, default all.

    Returns:
        Map of "alone", "central" and "none" to jobs, without those that equal the run. Instead of "alone", there may be
        several "alone_N". There is no "central" if whole agents are the privacy unit.

    Raises:
        InputError: the agents hold their records, or the guarantee is a paper's.
    """
    s, scenarios = c.scenario, dict[str, Scenario]()
    refuse(job, _REFUSALS)
    if not job.has_server and job.n_agents > 1:
        counts, parts = job.shards.train_counts.tolist(), s.problem.parts or job.n_agents
        members, noise = s.problem.members or range(parts), getattr(job, "noise", {}).values()
        fewest: list[int] = []
        for n in sorted(counts):
            if not fewest or n > _SIMILAR * fewest[-1]:
                fewest.append(n)
        # Decays that differ between agents are declared for all agents together.
        if c.one_level and len(fewest) > 1 and all(len({*schedule.decay}) == 1 for schedule in noise):
            for n in fewest:
                held = [k for k, count in zip(members, counts, strict=True) if n <= count <= _SIMILAR * n]
                scenarios[f"alone_{n}"] = _without_links(s, job, "isolated", parts=parts, members=held)
        else:
            scenarios["alone"] = _without_links(s, job, "isolated")
        # The server's only agent holds all records: as a privacy unit it would be all of them.
        if job.unit.records is not None:
            scenarios["central"] = _without_links(s, job, "pooled")
    if s.privacy.guarantee != "none":
        scenarios["none"] = s.model_copy(update={"privacy": PrivacyTable(guarantee="none")})
    return {n: plan_job(resolve(each)) for n, each in scenarios.items() if n.partition("_")[0] in names}


def repeat_jobs(c: Components, job: PlannedJob, seeds: int) -> list[tuple[Components, PlannedJob]]:
    """Plan the run again for each additional seed, with different noise and the same records and graph.

    Args:
        c: components of the run's scenario.
        job: job of the run.
        seeds: number of runs, including the first.
    """
    s = c.scenario
    graph = s.topology.model_copy(update={"seed": s.public_seed if s.topology.seed is None else s.topology.seed})
    kept = {"problem": s.problem.model_copy(update={"seed": s.records_seed}), "topology": graph}
    # Without a seed each noise key is new.
    changes = [{} if s.seed is None else {**kept, "seed": s.seed + k} for k in range(1, seeds)]
    components = [resolve(s.model_copy(update=change)) for change in changes]
    return [(each, plan_job(each)) for each in components]


def with_sites(run: Run) -> Run:
    """Add the comparison of sites to a run and its folder. Without sites the run is returned unchanged.

    Args:
        run: finished run, with its baselines and the runs of further seeds.
    """
    runs, job = (run, *run.repeats), run.simulation()
    alone = list(map(isolated_outcomes, runs))
    if job.sites is None or not all(alone):
        return run
    scores = compare_sites(job.sites, list(map(site_outcomes, runs)), alone)
    content = dict(run.result.content) | site_summary(job.sites, scores, len(runs))
    result = RunResult.from_content(seal(content), run.result.privacy)
    if run.folder is not None:
        write_whole(run.folder / RESULT, result.to_json().encode(), mode_of(run.folder))
    return replace(run, result=result)


def site_outcomes(run: Run) -> list[Array]:
    """Return the outcomes of a finished run at its sites (see `Sites.outcomes`)."""
    sites = run.simulation().sites
    return [] if sites is None else sites.outcomes(run.published)


def isolated_outcomes(run: Run) -> list[Array]:
    """Return the outcomes of the isolated agents of a finished run, in the order of the agents."""
    runs = [each for name, each in run.baselines.items() if name.startswith("alone")]
    members = [k for each in runs for k in each.scenario.problem.members or range(each.simulation().n_agents)]
    outcomes = dict(zip(members, (of_agent for each in runs for of_agent in site_outcomes(each)), strict=False))
    return [outcomes[agent] for agent in sorted(outcomes)]


def _without_links(s: Scenario, job: PlannedJob, kind: str, **records: Any) -> Scenario:
    """Return the scenario without a graph, at the ε of the run. `records` has keys of [problem]."""
    # A baseline has no hidden messages.
    privacy = s.privacy.model_copy(update={"adversary": "all_messages"})
    if privacy.guarantee == "certified" and privacy.epsilon is None:
        published = job.published if isinstance(job, GossipJob) else None
        epsilon = float((job.budget.epsilon if published is None else published).max())
        privacy = privacy.model_copy(update={"x": None, "y": None, "z": None, "epsilon": epsilon})
    correlation = privacy.correlation
    if correlation is not None and correlation.between_agents is not None:
        # Without neighbours there is no correlated noise and no collusion.
        over_rounds = correlation.over_rounds and correlation.model_copy(update={"between_agents": None, "ratio": None})
        privacy = privacy.model_copy(update={"correlation": over_rounds, "colluders": 0})
    # Without messages there is no attack. Without other agents, records count equally.
    problem = s.problem.model_copy(update={"weights": "sites", **records})
    graph = TopologyTable(kind=kind, agents=len(records.get("members", range(job.n_agents))))
    chosen = s.model_copy(update={"problem": problem, "topology": graph, "privacy": privacy, "attack": None})
    if s._objects:
        objects = {component: value for component, value in s._objects().items() if component != "topology"}
        chosen._objects = Secret(OBJECTS, objects)
    chosen._object_names = {component: name for component, name in s._object_names.items() if component != "topology"}
    chosen._replaced_tables = s._replaced_tables | {"topology"}
    return chosen
