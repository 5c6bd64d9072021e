"""Cells of a study: runs or plans, computed one by one or in parallel.

A finished cell is saved in SETTINGS-INPUTS-PACKAGE.json, whose name consists of three digests. The last two depend on
the files of the scenario and on this package. The salt of the folder keys the digest of the files.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from decentral_dp.annexes import annex
from decentral_dp.config.components import inputs_digest
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError
from decentral_dp.files.package import package_digest
from decentral_dp.privacy.accounting.accountants import spending
from decentral_dp.reporting.privacy import adjacency_text, adversary_text
from decentral_dp.reporting.report import reason_text
from decentral_dp.simulation.baselines import baseline_jobs, with_sites
from decentral_dp.simulation.budget import Budget, BudgetError
from decentral_dp.simulation.communication import count_sent
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.jobs.joined import MOST_RUNS, most_joined
from decentral_dp.simulation.result import plain
from decentral_dp.simulation.run import Run, run_job, run_joined
from decentral_dp.simulation.statement import Horizon, PrivacyStatement
from decentral_dp.simulation.summary import claim_of, method_name, statement_of
from decentral_dp.studies.schema import Cell
from decentral_dp.studies.tasks import Stream, in_processes, in_ray, read_outcome, write
from decentral_dp.user_code import USER_ERRORS

Status = Literal["ok", "diverged", "refused", "failed"]
# Statuses of cells with results.
GOOD = ("ok",)
# Measure that needs a run of isolated agents.
_GAINING = "share_of_sites_that_gain"
Record = dict[str, Any]
"""status, reason, round, seconds; finals: name → value at the end; curves: name → [[rounds], [values]];
unverified: custom components; threat_model: adjacency and adversary; method: the algorithm with its options."""


class Task(NamedTuple):
    """Input of a worker for one cell.

    Args:
        key: name of the cell's file.
        content: content of the scenario.
        folder: folder to which relative paths refer.
        rounds: rounds of a plan at which ε is computed; None for a run.
        network: whether network DP is measured; default no.
        requested: measures that are computed on request, see `requested_measures`; default none.
        budget: `Budget` to which every run is charged; default none.
    """

    key: str
    content: dict[str, Any]
    folder: str
    rounds: Literal["last", "all"] | list[int] | None
    network: bool = False
    requested: tuple[str, ...] = ()
    budget: Budget | None = None


def make_task(
    cell: Cell,
    kind: str,
    rounds: Literal["last", "all"] | list[int],
    network: bool = False,
    salt: bytes = b"",
    requested: tuple[str, ...] = (),
) -> Task | Record:
    """Return the task of a cell, or the record of a refused cell. `salt` is the salt of the study's folder.

    The key has the digests of the settings, of the contents of their files, and of this package.
    """
    priced = rounds if kind == "plan" else None
    try:
        scenario = load_scenario(cell.content, folder=cell.folder)
        # The digest of the package covers defaults.
        settings = scenario.model_dump(mode="json", exclude={"title", "description", "objects"}, exclude_defaults=True)
        parts = [settings, priced, *(["network"] if network else []), *requested]
        digest = blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()
        key = f"{digest}-{inputs_digest(scenario, salt)}-{package_digest()}"
    except InputError as error:
        return _make_record("refused", str(error))
    return Task(key, cell.content, str(cell.folder), priced, network, requested)


class _Prepared(NamedTuple):
    """Cell that is ready to run: its task, job, measures of network DP, and jobs of isolated agents."""

    task: Task
    job: PlannedJob
    network: dict[str, float]
    isolated: dict[str, PlannedJob]


def compute(tasks: Sequence[Task]) -> Iterator[Record]:
    """Run or plan cells; runs of one shape are computed together. Any error of a cell is written into its record."""
    remaining = list(tasks)
    while remaining:
        started, cells = time.perf_counter(), [_catch_errors(_prepare, remaining[0])]
        most = most_joined(cells[0].job) if isinstance(cells[0], _Prepared) else 1
        cells += [_catch_errors(_prepare, task) for task in remaining[1:most]]
        joined = iter(run_joined([cell.job for cell in cells if isinstance(cell, _Prepared)]))
        shared = (time.perf_counter() - started) / len(cells)
        for cell in cells:
            started = time.perf_counter()
            record = _catch_errors(_run, cell, next(joined)) if isinstance(cell, _Prepared) else cell
            yield cast(Record, plain(record | {"seconds": shared + time.perf_counter() - started}))
        remaining = remaining[len(cells) :]


def _catch_errors(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, or the record of its error."""
    try:
        return function(*arguments)
    except BudgetError as error:
        # Not saved: another budget may allow the run.
        return _make_record("failed", str(error))
    except InputError as error:
        return _make_record("refused", str(error))
    except USER_ERRORS as error:
        return _make_record("failed", f"{type(error).__name__}: {error}")


def compute_and_keep(folder: Path | None, tasks: Sequence[Task]) -> list[Record]:
    """Compute cells, and save each in a folder on this machine, if there is one, before the next is computed."""
    records = []
    for task, record in zip(tasks, compute(tasks), strict=True):
        if folder is not None:
            _save(folder, task, record)
        records.append(record)
    return records


def _save(folder: Path, task: Task, record: Record) -> None:
    """Save a cell unless it failed, since a lack of memory, for example, may be temporary."""
    if record["status"] != "failed":
        write(folder, task.key, record)


def _make_record(status: Status, reason: str | None, round_: int = 0) -> Record:
    return {
        "status": status,
        "reason": reason,
        "round": round_,
        "seconds": 0.0,
        "finals": {"ok": float(status in GOOD)},
        "curves": {},
        "unverified": {},
        "threat_model": ["", ""],
        "method": "",
    }


def _prepare(task: Task) -> _Prepared | Record:
    """Plan a cell, and charge the budget with its run; the record of a cell that only plans."""
    scenario = load_scenario(task.content, folder=Path(task.folder))
    if task.rounds is not None:
        return _plan(scenario, task.rounds, task.network)
    # Before the run, since network DP may not support the job.
    job = build_job(scenario)
    if scenario.run.measures is None:
        job = replace(job, requested=tuple(dict.fromkeys((*job.requested, *task.requested))))
    pairs = _measure_network(job) if task.network else {}
    # Before the run, since isolated agents may be refused.
    isolated = baseline_jobs(job.components, job, ["alone"]) if _GAINING in task.requested else {}
    if task.budget is not None:
        task.budget.charge(job)
    return _Prepared(task, job, pairs, isolated)


def _run(cell: _Prepared, joined: Run | None) -> Record:
    """Return the record of a cell, whose run is computed here unless it was joined with others."""
    task, job, pairs, isolated = cell
    done = joined or run_job(job)
    result = done.result
    means = done.metrics[done.metrics["agent"].to_numpy() == "mean"]
    curves = {
        str(name): [part["round"].tolist(), part["value"].tolist()] for name, part in means.groupby("name", sort=False)
    }
    finals = {} if result.has_diverged else dict(result.metrics)
    finals |= {
        "epsilon_max": result.privacy.epsilon_max,
        "epsilon_published": result.privacy.epsilon_published,
        "epsilon_pure_max": result.privacy.epsilon_pure_max,
        "claimed": result.privacy.claimed_epsilon,
        "rounds": result.rounds,
        "seconds": result.seconds,
        "diverged": float(result.has_diverged),
    }
    if isolated and not result.has_diverged:
        compared = replace(done, baselines={n: run_job(each, budget=task.budget) for n, each in isolated.items()})
        gains = [site.gain > 0.0 for site in with_sites(compared).result.sites if site.gain is not None]
        finals |= {_GAINING: float(np.mean(gains))} if gains else {}
    record = _make_record(cast(Status, result.status), reason_text(result) or None, result.rounds)
    rounds = sorted({*means["round"].tolist(), result.rounds})
    return _add_facts(record, job, result.privacy, rounds, curves, finals | pairs)


def _plan(scenario: Scenario, rounds: Literal["last", "all"] | list[int], network: bool) -> Record:
    job = build_job(scenario)
    privacy = statement_of(job)
    budget, whole, limits = job.budget, claim_of(job), privacy.at_infinity or Horizon()
    cuts = sorted({*list_cuts(rounds, job.rounds), job.rounds})
    claims_of_cuts = [claim_of(cast(PlannedJob, replace(cast(Any, job), rounds=cut))) for cut in cuts]
    claims = [None if claim is None else claim.epsilon_max for claim in claims_of_cuts]
    curves = {
        "epsilon_max": [cuts, _compute_spending(job, cuts, budget.epsilon, job.scenario.privacy.delta)],
        "epsilon_pure_max": [cuts, _compute_spending(job, cuts, budget.epsilon_pure, 0.0)],
        "claimed": [cuts, claims],
    }
    finals = {
        "epsilon_max": budget.epsilon.max(),
        "epsilon_published": privacy.epsilon_published,
        "epsilon_pure_max": budget.epsilon_pure.max(),
        "claimed": claims[-1],
        "finite_data": limits.finite_data,
        "endless_stream": limits.endless_stream,
        "claimed_endless": None if whole is None else whole.epsilon_max_at_infinity,
        "rounds": job.rounds,
    }
    finals |= _measure_network(job) if network else {}
    return _add_facts(_make_record("ok", None, job.rounds), job, privacy, cuts, curves, finals)


def _add_facts(
    record: Record, job: PlannedJob, privacy: PrivacyStatement, rounds: list[int], curves: Record, finals: Record
) -> Record:
    """Add values, messages, network and threat model to a record."""
    sent = count_sent(job, rounds)
    epsilons = privacy.agents.per_agent([budget.epsilon for budget in privacy.agents.different])
    network = {
        "epsilon_min": float(epsilons.min()),
        "epsilon_median": float(np.median(epsilons)),
        "epsilon_mean": float(epsilons.mean()),
        "spectral_gap": job.topology.spectral_gap,
        "neighbour_weight": float(job.topology.neighbour_weight.min()),
        "agents": job.n_agents,
        **({} if (skew := job.shards.label_skew) is None else {"label_skew": skew}),
    }
    return record | {
        "curves": curves | {name: [rounds, counts] for name, counts in sent.items()},
        "finals": record["finals"] | finals | network | {name: counts[-1] for name, counts in sent.items()},
        "method": method_name(job),
        "unverified": dict(privacy.unverified),
        "threat_model": [adjacency_text(privacy), adversary_text(privacy)] if privacy.is_noisy else ["", ""],
    }


def list_cuts(rounds: Literal["last", "all"] | list[int], last: int) -> list[int]:
    """Return the rounds at which ε of a plan is computed; "all" means 1, 2, 5, 10, 20, …

    Example:
        >>> list_cuts("all", 30), list_cuts("last", 30), list_cuts([5, 50], 30)
        ([1, 2, 5, 10, 20], [], [5])
    """
    if rounds == "last":
        return []
    steps = [s * 10**k for k in range(len(str(last))) for s in (1, 2, 5)] if rounds == "all" else rounds
    return [r for r in steps if r <= last]


def _compute_spending(job: PlannedJob, cuts: Sequence[int], budget: np.ndarray[Any, Any], delta: float) -> list[float]:
    """Return the ε over rounds of the agent with the largest ε at the end."""
    worst = np.array([int(np.argmax(budget))])
    spent = spending(job.ledger.select(worst), delta, cuts)
    # The last ε is composed in one piece, which may be tighter.
    return [*spent.tolist()[:-1], min(float(spent[-1]), float(budget.max()))]


def _measure_network(job: PlannedJob) -> dict[str, float]:
    """Return the measures of network DP. Raises InputError."""
    try:
        view = annex("compute_view")(job)
    except InputError as error:
        raise InputError(f"measure: network_epsilon is not supported for this cell: {error}") from error
    linear = {} if view.linear is None else view.at_distance(view.reference)
    certified = view.certified[~np.isnan(view.certified)]
    return {
        "network_epsilon_max": float(certified.max()),
        "network_epsilon_mean": float(certified.mean()),
        **{f"network_epsilon_distance_{edges}": epsilon for edges, epsilon in view.at_distance().items()},
        **{f"network_linear_distance_{edges}": epsilon for edges, epsilon in linear.items()},
    }


def perform(tasks: Sequence[Task], folder: Path, jobs: int, address: str | None) -> Stream[Task, Record]:
    """Compute the cells. Cells that differ only in their seed are computed together in one process.

    Args:
        tasks: tasks, one for each cell.
        folder: folder of saved cells. Workers save cells; cells from Ray are saved on return.
        jobs: number of processes on this machine; 1 means this process only.
        address: address of a Ray cluster to use instead of processes; None means no cluster.

    Returns:
        Tasks with their records, in the order of completion.
    """
    groups = _group_by_seed(tasks, jobs)
    if address is None and jobs == 1:
        for task, record in itertools.chain.from_iterable(zip(group, compute(group), strict=True) for group in groups):
            _save(folder, task, record)
            yield task, record
        return

    def lost(reason: str) -> list[Record]:
        return [_make_record("failed", reason)]

    while groups:
        stream = (
            in_processes(partial(compute_and_keep, folder), groups, lost, jobs)
            if address is None
            else in_ray(partial(compute_and_keep, None), groups, lost, address)
        )
        groups = []
        for group, records in stream:
            kept = records if len(records) == len(group) else [read_outcome(folder, task.key) for task in group]
            for task, record in zip(group, kept, strict=True):
                if record is None:
                    # The process ended: cells of its group without a record are computed one by one.
                    groups.append([task])
                    continue
                if address is not None:
                    _save(folder, task, record)
                yield task, record


def _group_by_seed(tasks: Sequence[Task], jobs: int) -> list[Sequence[Task]]:
    """Group runs that differ only in their seed, a few for each process at least; charged runs stay single."""
    most = max(1, min(MOST_RUNS, len(tasks) // (2 * jobs)))
    by_content: dict[str, list[Task]] = {}
    for task in tasks:
        single = task.key if task.budget is not None or task.rounds is not None else ""
        content = {key: value for key, value in task.content.items() if key != "seed"}
        by_content.setdefault(f"{single} {task.folder} {content}", []).append(task)
    return [group[k : k + most] for group in by_content.values() for k in range(0, len(group), most)]
