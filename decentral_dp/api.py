"""The Python interface: `build` plans a scenario and returns a `Job`, which can be run, audited and checked.

    job = decentral_dp.build("ring_breast_cancer", set={"privacy.epsilon": 2.0})
    job.plan(), job.run(out="runs/two"), job.audit(runs=60), job.check(), job.network()

`run`, `plan`, `audit`, `check` and `network_view` take a scenario or a job, and keyword arguments. The dict
`set={"table.key": value}` changes keys of the scenario.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from decentral_dp.annexes import annex
from decentral_dp.config import loading
from decentral_dp.config.arrays import scenario_of_arrays
from decentral_dp.config.components import Components, Objects, load_components
from decentral_dp.config.loading import Source
from decentral_dp.config.outside import KEYS
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, Stopped, converting, naming, nearest_of, option_error, quoted
from decentral_dp.files.trust import trusting
from decentral_dp.privacy.accounting.accountants import AgentCosts
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.privacy.secret import Secret
from decentral_dp.simulation import plan as plans
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.baselines import baseline_jobs, repeat_jobs, with_sites
from decentral_dp.simulation.budget import Budget
from decentral_dp.simulation.events import join_callbacks
from decentral_dp.simulation.folder.journal import progress_in
from decentral_dp.simulation.jobs import job as jobs
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.result import BASELINES_FOLDER, RESULT, SEEDS_FOLDER, is_complete
from decentral_dp.simulation.steps import NO_METRICS, Released, Step, Watch
from decentral_dp.topology import Topology

if TYPE_CHECKING:
    import pandas as pd

    from decentral_dp.auditing.audit import AuditResult
    from decentral_dp.auditing.check import CheckResult
    from decentral_dp.auditing.network_view import NetworkView
    from decentral_dp.simulation.events import Callback
    from decentral_dp.simulation.plan import Plan
    from decentral_dp.simulation.run import Run
    from decentral_dp.studies.report import Findings
    from decentral_dp.studies.schema import Study

# Component → its key in a scenario.
_KEYS = {what: ".".join(place) for what, place in KEYS.items()}
_KEYS |= {"algorithm": "algorithm.kind", "mechanism": "privacy.mechanism"}
# Keyword → its key in a scenario.
_SHORT = {"epsilon": "privacy.epsilon", "delta": "privacy.delta", "rounds": "algorithm.rounds"}
# Keyword of arrays → the beginning of errors about its value.
_OF_ARRAYS = {
    **{"X": "problem.data: 'arrays'", "agents": "topology.agents", "data_range": "problem.scale"},
    **{"classes": "problem.classes", "label_range": "problem.label_range"},
}


class Arrays(TypedDict, total=False):
    """Records that are passed instead of a scenario, for one-level training.

    Attributes:
        X: features, (n, d), a DataFrame, or a list of these, one for each agent.
        y: labels, (n,), a list of arrays, one for each agent, or the name of a column of X.
        agents: number or name of the agent that holds each record, (n,), or the name of a column of X; or the number of
            agents, among which the records are partitioned evenly.
        data_range: public (low, high) of the features, each a number or one for each feature: features are clipped to
            it and scaled to [−1, 1]. Default (−1, 1).
        classes: allowed labels of a classification.
        label_range: public (low, high) of the labels of a regression. With neither `classes` nor `label_range`, they
            are inferred from y, with a `PrivacyWarning`: text and at most 20 whole numbers are classes.
    """

    X: Any
    y: Any
    agents: Any
    data_range: Any
    classes: Sequence[Any] | None
    label_range: Sequence[float] | None


class Records(Objects, Arrays, total=False):
    """Keyword arguments of `resume`: records, and Python objects that replace components."""


class Changes(Records, total=False):
    """Keyword arguments of `build`: records, changed keys, and Python objects that replace components."""

    epsilon: float
    delta: float
    rounds: int
    set: Mapping[str, Any] | None


class AuditOptions(TypedDict, total=False):
    """Keyword arguments of `Job.audit`, see `audit`."""

    runs: int
    adversary: str
    confidence: float
    seed: int
    out: str | Path | None
    callbacks: Sequence[Callback]


class Job:
    """Planned scenario. Its releases and their ε are known before any run.

    A job contains records and its noise key, so it cannot be pickled, copied or inspected with `vars`.
    `job.simulation()` returns the internal job.

    Example:
        >>> import decentral_dp
        >>> job = decentral_dp.build("quadratic", set={"algorithm.rounds": 2})
        >>> job, job.plan().rounds, job.run().result.status
        (<GossipJob 'Ground truth: a quadratic problem with its optimum in closed form': 8 agents, 2 rounds>, 2, 'ok')
    """

    __slots__ = ("_named", "simulation")

    def __init__(self, job_plan: jobs.PlannedJob, components: Components | None = None) -> None:
        self.simulation = Secret("the records and the noise of a job", job_plan)
        self._named = Secret("the records of a job", components or job_plan.components)

    @property
    def scenario(self) -> Scenario:
        """Scenario with all defaults."""
        return self.simulation().scenario

    @property
    def setting(self) -> str:
        """Threat model and kind of problem."""
        return self.simulation().setting

    @property
    def n_agents(self) -> int:
        """Number of agents."""
        return self.simulation().n_agents

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return self.simulation().rounds

    @property
    def topology(self) -> Topology:
        """Graph and mixing weights."""
        return self.simulation().topology

    @property
    def problem(self) -> Any:
        """Problem, without records."""
        return self.simulation().problem

    @property
    def algorithm(self) -> Any:
        """Algorithm with its options."""
        return self.simulation().algorithm

    @property
    def mechanism(self) -> Mechanism:
        """Noise mechanism."""
        return self.simulation().mechanism

    @property
    def ledger(self) -> Ledger:
        """Planned releases."""
        return self.simulation().ledger

    @property
    def budget(self) -> AgentCosts:
        """Privacy cost of each agent."""
        return self.simulation().budget

    def __repr__(self) -> str:
        return repr(self.simulation())

    def __reduce__(self) -> Any:
        return self.simulation().__reduce__()

    def plan(self, budget: Budget | None = None) -> Plan:
        """Compute ε of the job, as `plan`."""
        return plans.Plan.from_job(self.simulation(), budget)

    def run(
        self,
        out: str | Path | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        baselines: bool = False,
        seeds: int = 1,
        metrics: Mapping[str, Callable[[Released], float]] = NO_METRICS,
        stop: Callable[[Released], bool] | None = None,
        budget: Budget | None = None,
    ) -> Run:
        """Run the job, as `run`."""
        if seeds < 1 or (seeds > 1 and not baselines):
            problem = f": got {seeds}, expected 1, or more with baselines"
            raise option_error("seeds", f"{problem}. Fix: add baselines, or repeat the scenario in a study.")
        if baselines and budget is not None:
            raise option_error(
                "baselines",
                ": cannot be combined with budget, since the run without noise exceeds every budget. Fix: "
                "remove one of the two.",
            )
        # Baselines that cannot be built raise InputError before the first release.
        repeats = repeat_jobs(self._named(), self.simulation(), seeds)
        planned = [(self._named(), self.simulation()), *repeats]
        baseline_plans = [baseline_jobs(*each) if baselines else {} for each in planned]
        all_jobs = [self._with_new_noise(), *(job for _, job in repeats)]
        further = [None if out is None else Path(out) / SEEDS_FOLDER / str(k) for k in range(2, seeds + 1)]
        runs: list[runner.Run] = []
        callback = join_callbacks(callbacks)
        try:
            if out is None and not (callbacks or metrics or stop or budget):
                pairs = list(zip(all_jobs, baseline_plans, strict=True))
                finished = runner.run_jobs([each for job, others in pairs for each in (job, *others.values())])
                for _, others in pairs:
                    runs.append(replace(next(finished), baselines={name: next(finished) for name in others}))
            else:
                for job, others, folder in zip(all_jobs, baseline_plans, [out, *further], strict=True):
                    run = runner.run_job(job, folder, callback, Watch(metrics, stop), budget)
                    places = {name: run.folder and run.folder / BASELINES_FOLDER / name for name in others}
                    ran = {name: runner.run_job(each, places[name], callback) for name, each in others.items()}
                    runs.append(replace(run, baselines=ran))
        except Stopped as stopped:
            if not baselines and seeds == 1:
                raise
            raise Stopped(f"{stopped} Repeat baselines and seeds in a new folder.") from None
        run = with_sites(replace(runs[0], repeats=runs[1:]))
        for finished_run in (*run.baselines.values(), run):
            _draw(finished_run)
        return run

    def steps(
        self, out: str | Path | None = None, *, every: int = 1, budget: Budget | None = None
    ) -> Generator[Step, None, Run]:
        """Run the job round by round, for your own loop. The noise key stays inside.

        If you leave the loop early, the run stops. Its folder, if any, then has the status "interrupted", and `resume`
        continues the run.

        Args:
            out: a new or empty folder; by default nothing is written.
            every: number of rounds between two steps. The start and the last round always yield a step.
            budget: `Budget` of all runs on these records, charged for all rounds before the first step. Default: none.

        Returns:
            Generator that yields a `Step` (round, released, epsilon, bits) at the start and after each of these rounds.
                Its return value is the `Run`.

        Raises:
            InputError: `every` is not a positive number, the folder cannot be written, the run exceeds the budget, or
                privacy.adversary observes only the final models, whose ε assumes a fixed number of rounds.

        Example:
            >>> import decentral_dp
            >>> job = decentral_dp.build("quadratic", set={"algorithm.rounds": 20})
            >>> for step in job.steps(every=10):
            ...     print(step.round, step.released["x"].shape, step.bits)
            0 (8, 5) 0
            10 (8, 5) 230400
            20 (8, 5) 460800
        """
        every = loading.python_value(every)
        if not isinstance(every, int) or every < 1:
            raise InputError(f"every: out of range (got {every!r}, expected at least 1). Fix: use every=10.")
        return runner.steps_of_job(self._with_new_noise(), out, every, _draw, budget)

    def _with_new_noise(self) -> jobs.PlannedJob:
        # Two runs of one job have different secret noise.
        job = self.simulation()
        return job.with_root(secret_root()) if job.scenario.seed is None else job

    def audit(self, **options: Unpack[AuditOptions]) -> AuditResult:
        """Audit the job, as `audit`."""
        return audit(self, **options)

    def check(
        self,
        *,
        pairs: int = 64,
        seed: int = 0,
        callbacks: Sequence[Callback] = (),
        rounds: int | None = None,
    ) -> CheckResult:
        """Check the components, as `check`. Raises InputError for components passed as Python objects."""
        if objects := self.simulation().components.objects:
            raise InputError(
                f"check: not supported for a job with Python objects (got {' and '.join(sorted(objects))}). Fix: pass "
                "each of them to decentral_dp.check."
            )
        callback = join_callbacks(callbacks)
        result: CheckResult = annex("check")(self.simulation().scenario, pairs, seed, callback, rounds)
        return result

    def network(
        self, coalitions: Sequence[Sequence[int | str]] | None = None, *, callbacks: Sequence[Callback] = ()
    ) -> NetworkView:
        """Compute ε against honest-but-curious neighbours, as `network_view`."""
        view: NetworkView = annex("compute_view")(self.simulation(), coalitions, join_callbacks(callbacks))
        return view


def build(scenario: Source | None = None, **options: Unpack[Changes]) -> Job:
    """Build the components of a scenario, and plan its releases and their ε.

    Without a scenario, `build(X=X, y=y, agents=owner, epsilon=4.0, delta=1e-5)` plans D-SGD on a ring. The keywords
    `epsilon`, `delta` and `rounds` set the keys of the scenario with these names. The dict `set` maps "table.key" to a
    value; None removes a key or a table. A Python object replaces a component:

    - problem: a result of `from_losses`, or an instance of a class (docs/add_a_problem.md);
    - algorithm: an instance of its dataclass;
    - mechanism: an instance of a class (docs/add_a_mechanism.md);
    - topology: a table of `decentral_dp.graphs`, a `networkx.Graph`, a `Topology`, pairs of agents, a list of graphs,
      or a function of the round t;
    - data: (features, labels), also as lists of one array for each agent, a dict of columns, a pandas `DataFrame`
      with the column problem.label, or a `Dataset`;
    - partition: a function of labels and agents.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario; None with X and y.
        **options: `set`, `epsilon`, `delta`, `rounds` and objects. Without a scenario, also the records: X, y, agents,
            data_range, classes and label_range (docs/python.md).

    Returns:
        The job, whose `budget` contains the ε of each agent.

    Raises:
        InputError: the scenario or an object is invalid.

    Example:
        >>> import decentral_dp
        >>> job = decentral_dp.build("quadratic", set={"topology.agents": 16})
        >>> job.setting, job.n_agents
        ('gossip', 16)
    """
    source, text, objects = _split(scenario, options)
    with naming(_keys_of(options)):
        components = load_components(source, text, **objects)
        return Job(plan_job(components), components)


def plan(scenario: Source | Job | None = None, *, budget: Budget | None = None, **options: Unpack[Changes]) -> Plan:
    """Compute ε of a scenario without running it.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job; None with X and y.
        budget: `Budget` shared by several runs, which is not charged; `plan.quote` gives ε before and after this run.
        **options: see `build`; a job takes none.

    Returns:
        The plan, with the ε of each agent, δ, the ledger, and the privacy statement.

    Raises:
        InputError: the scenario or an object is invalid.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("quadratic", set={"algorithm.rounds": 2})
        >>> plan.rounds, plan.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    if isinstance(scenario, Job):
        _require_nothing("plan", options)
        return scenario.plan(budget)
    source, text, objects = _split(scenario, options)
    with naming(_keys_of(options)):
        return plans.plan_scenario(source, text, budget, **objects)


def run(
    scenario: Source | Job | None = None,
    *,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    baselines: bool = False,
    seeds: int = 1,
    metrics: Mapping[str, Callable[[Released], float]] = NO_METRICS,
    stop: Callable[[Released], bool] | None = None,
    budget: Budget | None = None,
    **options: Unpack[Changes],
) -> Run:
    """Run a scenario, and write a run folder if `out` is set.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job; None with X and y.
        out: a new or empty folder; by default nothing is written.
        callbacks: callbacks that receive a `Progress` (rounds, loss, ε) at every evaluation; default none. If a
            callback raises an exception, the result contains a warning and the run continues.
        baselines: whether to run three baselines on the records: isolated agents and a trusted server, both at the same
            ε, and the network without noise. They are stored in `run.baselines` and in OUT/baselines. Isolated agents
            use the default hyper-parameters for their number of records. Default: no.
        seeds: number of runs with different noise, each with its baselines, for paired intervals (`run.result.sites`).
            The additional runs are stored in `run.repeats` and in OUT/seeds. Default: 1.
        metrics: name → function of the last released values (channel → (m, ·)), recorded in `run.metrics` at evaluated
            rounds; default none. It costs no ε, unless the function reads records.
        stop: function of the last released values that ends the run after an evaluated round if it returns True;
            default none. The run keeps the ε of the plan, since a smaller ε requires a number of rounds fixed in
            advance.
        budget: `Budget` of all runs on these records, charged before the first release. Default: none.
        **options: see `build`; a job takes none.

    Returns:
        The run: result, metrics, ledger, and released values. A run that diverges has the status "diverged". If the run
            is certified, divergence is detected from released values only, and metrics may be infinite or missing.

    Raises:
        InputError: the scenario is invalid, or the run exceeds the budget.
        Stopped: the run was interrupted. The folder contains all releases.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
        >>> run.result.status, run.result.rounds, run.released["x"].shape
        ('ok', 2, (8, 5))
    """
    job = _job("run", scenario, options)
    return job.run(
        out, callbacks=callbacks, baselines=baselines, seeds=seeds, metrics=metrics, stop=stop, budget=budget
    )


def resume(
    folder: str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    metrics: Mapping[str, Callable[[Released], float]] = NO_METRICS,
    stop: Callable[[Released], bool] | None = None,
    budget: Budget | None = None,
    **objects: Unpack[Records],
) -> Run:
    """Resume an interrupted run, or load a complete one.

    A run resumes from the last state in its folder, and its result is bitwise identical to that of an uninterrupted
    run. Later releases are recomputed with the same noise key. Their values are identical, so ε does not increase.

    Args:
        folder: folder of the run.
        callbacks: callbacks that receive a `Progress`; default none.
        trust: whether to run code from the folder that this machine has not run before.
        metrics, stop: the functions passed to `run`.
        budget: `Budget` to which the run is charged, unless it is complete or was charged at its start. Default: none.
        **objects: the Python objects of the run, if any, or its X, y and agents.

    Returns:
        The finished run.

    Raises:
        InputError: the folder contains no run, the run is in progress, or its records, scenario or versions have
            changed.
        Stopped: the run was interrupted again.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(":")[0])
        resume
    """
    if changed := objects.keys() - Records.__annotations__.keys():
        raise TypeError(f"resume() got an unexpected keyword argument {min(changed)!r}")
    # `progress_in` removes files that a killed process left in a complete run, but also any run without a release.
    if (Path(folder) / RESULT).is_file() and is_complete(Path(folder)) and progress_in(Path(folder)) == "complete":
        return runner.Run.load(folder)
    _, _, parts = _split(None if "X" in objects else str(folder), cast(Changes, objects))
    with trusting() if trust else nullcontext():
        return runner.Run.resume(folder, callbacks=callbacks, watch=Watch(metrics, stop), budget=budget, **parts)


def audit(
    scenario: Source | Job | None = None,
    *,
    runs: int = 200,
    adversary: str = "all_messages",
    confidence: float = 0.95,
    seed: int = 0,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[Changes],
) -> AuditResult:
    """Estimate an empirical lower bound on ε, next to the certified and the claimed ε.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, a job, or a run folder.
        runs: number of runs on each of the two neighbouring data sets, at least 20.
        adversary: values that the adversary observes: "all_messages", "published" values, the messages to agent K
            ("agent:K"), or the job's privacy.adversary ("final_models" or "final_average").
        confidence: confidence level of the lower bound.
        seed: public seed of the audit.
        out: path of a new JSON file.
        callbacks: callbacks that receive a `Progress` with the unit "runs"; default none.
        **options: see `build`; a job and a run folder take none.

    Returns:
        The lower bound, the method, and the lower bound for two identical data sets.

    Raises:
        InputError: the job cannot be audited.

    Example:
        >>> import decentral_dp
        >>> shown = decentral_dp.audit("network_view", set={"algorithm.rounds": 2}, runs=20)
        >>> shown.shown <= shown.certified, shown.null_shown
        (True, 0.0)
    """
    text: Sequence[str] = ()
    if isinstance(scenario, Job) or set(options) - {"set"}:
        scenario = cast(Any, _job("audit", scenario, options).simulation())
    else:
        scenario, text, _ = _split(scenario, options)
    runs, confidence, seed = loading.python_value([runs, confidence, seed])
    request = annex("plan_audit")(cast(Any, scenario), runs, adversary, confidence, seed, text)
    place = None if out is None else Path(out)
    result: AuditResult = annex("play_game")(request, place, join_callbacks(callbacks))
    return result


def check(what: Any, **options: Any) -> CheckResult:
    """Test the privacy contract of a component on synthetic data.

    Args:
        what: a registered algorithm or problem, "module:Name", a scenario (name, file, dict or loaded), whose
            components are all checked, a job, or an algorithm or problem as a Python object.
        **options: pairs: number of neighbouring data sets in the search; seed: public seed of the search; rounds:
            number of rounds to run from the start, by default 24; callbacks: callbacks that receive a `Progress` with
            the unit "pairs", by default none.

    Returns:
        One row per check. A passed check is labelled "checked", because it is not a proof.

    Raises:
        InputError: the name is unknown, or the scenario is invalid.

    Example:
        >>> import decentral_dp
        >>> checked = decentral_dp.check("ldp_dsbo", pairs=4, rounds=2)
        >>> checked.passed, [row.name for row in checked.rows][:4]
        (True, ['conformance', 'row locality', 'neighbours', 'search'])
    """
    if isinstance(what, Job):
        return what.check(**options)
    callback = join_callbacks(options.pop("callbacks", ()))
    result: CheckResult = annex("check")(what, progress=callback, **loading.python_value(options))
    return result


def network_view(
    scenario: Source | Job | None = None,
    *,
    coalitions: Sequence[Sequence[int | str]] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[Changes],
) -> NetworkView:
    """Compute ε against honest-but-curious neighbours (network DP).

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job; None with X and y.
        coalitions: sets of colluding agents, by number or by name; by default each agent is an adversary on its own.
        callbacks: callbacks that receive a `Progress` with the unit "adversaries"; default none.
        **options: see `build`; a job takes none.

    Returns:
        The distance, the certified ε and the exact ε, each with shape (adversaries, victims), and ε against an
        adversary that observes all messages.

    Raises:
        InputError: network DP does not support the scenario.

    Example:
        >>> import decentral_dp
        >>> few = {"topology.agents": 5, "algorithm.rounds": 5}
        >>> view = decentral_dp.network_view("network_view", coalitions=[[0]], set=few)
        >>> view.certified.shape, bool((view.certified[0, 1:] <= view.certified_total[1:]).all())
        ((1, 5), True)
    """
    return _job("network_view", scenario, options).network(coalitions, callbacks=callbacks)


def study(
    study: str | Path | Mapping[str, Any] | Study,
    *,
    out: str | Path | None = None,
    set: Mapping[str, Any] | None = None,
    workers: int | None = None,
    address: str | None = None,
    callbacks: Sequence[Callback] = (),
    budget: Budget | None = None,
) -> Findings:
    """Run a grid of scenarios × seeds, with verdicts on its claims.

    Args:
        study: a shipped name, a path, a dict of the same shape, or a loaded study.
        out: folder of tables and figures; an interrupted study resumes from it. By default nothing is kept.
        set: changed keys of the study, or of the scenario in all cells, as key → value; not supported for a loaded
            study.
        workers: number of processes on this machine, by default one per core.
        address: address of a Ray cluster ("auto", "host:port") to use instead.
        callbacks: callbacks that receive a `Progress` with the unit "cells", including failed cells; default none.
        budget: `Budget` backed by a file, to which each cell's run is charged; a cell that exceeds it fails. Default:
            none.

    Returns:
        Tables, verdicts on claims, and figures.

    Raises:
        InputError: the study is invalid.
        Stopped: the study was interrupted. Finished cells are in `out`.

    Example:
        >>> import decentral_dp
        >>> grid = {"algorithm.rounds": [1, 2]}
        >>> grid = {"scenario": "quadratic", "kind": "plan", "measure": ["rounds"], "grid": grid}
        >>> decentral_dp.study(grid, workers=1).summary["mean"].tolist()
        [1.0, 2.0]
    """
    text, conduct = changes(set), annex("conduct")
    is_read = isinstance(study, annex("Study"))
    if is_read and text:
        raise InputError("study: keys of a loaded study cannot be changed. Fix: pass its name, path or dict.")
    study_object = study if is_read else annex("load_study")(study, text)
    callback = join_callbacks(callbacks)
    if out is not None:
        findings: Findings = conduct(study_object, Path(out), workers, address, callback, budget)
        return findings
    with TemporaryDirectory(prefix="decentral_dp-study-") as folder:
        findings = conduct(study_object, Path(folder), workers, address, callback, budget)
    return replace(findings, folder=None)


def sweep(
    scenario: Source | None = None,
    *,
    grid: Mapping[str, Sequence[Any] | Mapping[str, Any]],
    measure: Mapping[str, Callable[[Run], float]],
    seeds: int | Iterable[int] = 1,
    **options: Unpack[Changes],
) -> pd.DataFrame:
    """Run every combination of a grid for every seed, one after another in this process.

    A `study` runs on all cores and resumes after an interruption, but does not accept Python objects.

    Args:
        scenario: see `build`; None with X and y.
        grid: keyword of `build` (such as "epsilon", "topology" or "algorithm") or "table.key" → list of its values, or
            dict of label → value.
        measure: name → function of the `Run`.
        seeds: number of seeds (1, 2, …), or the seeds themselves; default 1. They are recorded, so all runs are
            simulations.
        **options: see `build`; the same for all runs.

    Returns:
        One row for each run: a column for each axis of the grid, `seed`, `status`, `epsilon_max`, and the measures.

    Raises:
        InputError: a scenario or an axis is invalid, or two values of an axis have the same label.

    Example:
        >>> import decentral_dp
        >>> table = decentral_dp.sweep(
        ...     "quadratic",
        ...     rounds=2,
        ...     grid={"topology": [decentral_dp.graphs.ring(8), decentral_dp.graphs.star(8)]},
        ...     measure={"norm": lambda run: abs(run.released["x"]).max()},
        ... )
        >>> table.columns.tolist(), table["topology"].tolist()
        (['topology', 'seed', 'status', 'epsilon_max', 'norm'], ['ring', 'star'])
    """
    import pandas as pd

    rows, seed_list = [], list(range(1, seeds + 1) if isinstance(seeds, int) else seeds)
    if not isinstance(measure, Mapping):
        raise InputError("measure: invalid (expected a dict of name → function of the Run). Fix: pass a dict.")
    for cell in itertools.product(*(_labels(name, values).items() for name, values in grid.items())):
        values = {name: value for name, (_, value) in zip(grid, cell, strict=True)}
        keywords: Any = {name: value for name, value in values.items() if name in Changes.__annotations__}
        keys = {name: value for name, value in values.items() if name not in keywords}
        keys |= keywords.pop("set", None) or {}
        for seed in seed_list:
            combined = cast(Any, options) | keywords | {"set": {**(options.get("set") or {}), **keys, "seed": seed}}
            done = run(scenario, **combined)
            facts = {"seed": seed, "status": done.result.status, "epsilon_max": done.result.privacy.epsilon_max}
            labels = {name: label for name, (label, _) in zip(grid, cell, strict=True)}
            rows.append({**labels, **facts, **{name: function(done) for name, function in measure.items()}})
    return pd.DataFrame(rows)


def _labels(name: str, values: Sequence[Any] | Mapping[str, Any]) -> dict[Any, Any]:
    """Return label → value of an axis. Raises InputError for missing or equal labels, and for seeds."""
    if name == "seed":
        raise InputError("grid: seed cannot be an axis of the grid. Fix: pass seeds=[…].")
    if isinstance(values, Mapping):
        return dict(values)
    labels = [v.get("kind") if isinstance(v, Mapping) else v if isinstance(v, Hashable) else str(v) for v in values]
    fix = "Fix: pass labels, as in {label: value}."
    with converting(TypeError, lambda _: f"grid: a value of {name} has no label. {fix}"):
        count = len({*labels})
    if count < len(labels):
        raise InputError(f"grid: two values of {name} have the same label. {fix}")
    return dict(zip(labels, values, strict=True))


def changes(set: Mapping[str, Any] | None) -> list[str]:
    """Convert changed keys to overrides of the command line.

    Args:
        set: "table.key" → value; None removes the key.

    Raises:
        TypeError: TOML does not support a value.

    Example:
        >>> changes({"privacy.epsilon": 2.0, "topology": {"kind": "ring", "agents": 4}})
        ['privacy.epsilon=2.0', 'topology={ kind = "ring", agents = 4 }']
    """
    values = loading.python_value(dict(set or {}))
    return [f"{key}={'null' if value is None else loading.toml_value(value)}" for key, value in values.items()]


def _split(scenario: Source | None, options: Changes) -> tuple[Source, list[str], Objects]:
    """Return the scenario, changed keys as text, and Python objects. Raises InputError for invalid objects."""
    if unknown := options.keys() - Changes.__annotations__.keys():
        name, keys = min(unknown), loading.keys_named(min(unknown))
        near = f". Fix: use set={{KEY: value}} with {keys}." if keys else nearest_of(name, Changes.__annotations__)
        raise TypeError(f"unexpected keyword argument {name!r}{near}")
    values: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    arrays = {name: value for name, value in values.items() if name in Arrays.__annotations__}
    objects: Any = {what: value for what in _KEYS if (value := values.get(what)) is not None}
    # Tables change the scenario, so that a run resumes without them.
    tables = {
        what: objects.pop(what)
        for what in ("topology", "algorithm")
        if isinstance(table := objects.get(what), Mapping) and {"kind", "file"} & table.keys()
    }
    tables |= {key: values[name] for name, key in _SHORT.items() if name in values}
    problem = ""
    for what, value in objects.items():
        if isinstance(value, str):
            fix = f'set={{"{_KEYS[what]}": {quoted(value)}}}'
            problem = f"{what}: got the text {quoted(value)}, expected an object. Fix: {fix}."
    if scenario is not None and arrays:
        fix = "pass data=(X, y), and change keys with set={…}"
        problem = f"{next(iter(arrays))}: cannot be combined with a scenario. Fix: {fix}."
    elif scenario is None and "X" not in arrays:
        problem = "scenario: missing. Fix: pass a scenario, or records, as in run(X=X, y=y, agents=8, epsilon=4)."
    elif scenario is None:
        scenario, objects["data"] = scenario_of_arrays(**arrays)
        count, nodes = (table.get("topology", {}).get("agents") for table in (scenario, tables))
        if "topology" not in tables | objects | scenario:
            problem = "agents: missing. Fix: pass the agent of each record, or a number of agents, as in agents=8."
        elif None not in (count, nodes) and count != nodes:
            problem = (
                f"agents: number of agents differs from the graph (got {count}, expected {nodes}). Fix: use a graph "
                f"of {count} agents."
            )
    if problem:
        raise InputError(problem)
    return cast(Source, scenario), changes(tables | dict(values.get("set", {}))), objects


def _keys_of(options: Changes) -> dict[str, str]:
    """Return key of a scenario → keyword that sets it."""
    keys = {key: name for name, key in (_KEYS | _SHORT).items() if name in options}
    return keys | ({key: name for name, key in _OF_ARRAYS.items()} if "X" in options else {})


def _job(function: str, scenario: Source | Job | None, options: Changes) -> Job:
    """Return a job unchanged, or build the job of a scenario. Raises InputError."""
    if isinstance(scenario, Job):
        _require_nothing(function, options)
        return scenario
    return build(scenario, **options)


def _require_nothing(function: str, options: Mapping[str, Any]) -> None:
    """Raise InputError for changes of a planned job."""
    if options:
        raise InputError(f"{function}: {', '.join(options)} cannot change a planned job. Fix: pass them to build.")


def _draw(run: Run) -> None:
    """Write the figures and the page of a run with a folder."""
    if run.folder is not None:
        # matplotlib is slow to import, and only runs with a folder write figures.
        from decentral_dp.reporting import page

        page.draw_run(run.folder, run.report)


def load(
    scenario: Source,
    *,
    set: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> Scenario:
    """Read and validate a scenario.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        set: "table.key" → value; None removes a key.
        folder: folder to which the relative paths in a dict refer; by default the working directory.

    Returns:
        The scenario with all defaults.

    Raises:
        InputError: the scenario is invalid.

    Example:
        >>> import decentral_dp
        >>> scenario = decentral_dp.load("quadratic", set={"algorithm.rounds": 5})
        >>> scenario.algorithm.kind, scenario.algorithm.rounds
        ('ldp_dsbo', 5)
    """
    return loading.load_scenario(scenario, changes(set), folder)
