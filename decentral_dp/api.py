"""The Python interface: `build` plans a scenario and returns a `Job`, which can be run, audited and checked.

    job = decentral_dp.build("ring_breast_cancer", set={"privacy.epsilon": 2.0})
    job.plan(), job.run(out="runs/two"), job.audit(runs=60), job.check(), job.network()

`run`, `plan`, `audit`, `check` and `network_view` take a scenario or a job, and keyword arguments. The dict
`set={"table.key": value}` changes keys of the scenario.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from decentral_dp.annexes import annex
from decentral_dp.config import loading
from decentral_dp.config.components import Components, Objects, load_components
from decentral_dp.config.loading import Source
from decentral_dp.config.outside import KEYS
from decentral_dp.config.schema import Scenario
from decentral_dp.errors import InputError, option_error, quoted
from decentral_dp.files.trust import trusting
from decentral_dp.privacy.accounting.accountants import AgentCosts
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.mechanisms import Mechanism
from decentral_dp.privacy.randomness import secret_root
from decentral_dp.privacy.secret import Secret
from decentral_dp.reporting.notebook import show_progress
from decentral_dp.simulation import plan as plans
from decentral_dp.simulation import run as runner
from decentral_dp.simulation.baselines import baseline_jobs
from decentral_dp.simulation.budget import Budget
from decentral_dp.simulation.communication import By, tabulate_sent
from decentral_dp.simulation.jobs import job as jobs
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.result import BASELINES_FOLDER
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


class Changes(Objects, total=False):
    """Keyword arguments of `build`: changed keys, and Python objects instead of components."""

    set: Mapping[str, Any] | None


class AuditOptions(TypedDict, total=False):
    """Keyword arguments of `audit` without those of `build`."""

    runs: int
    adversary: str
    confidence: float
    seed: int
    out: str | Path | None
    callbacks: Sequence[Callback]
    canaries: int | None


class Job:
    """Planned scenario. Its releases and their ε are known before any run.

    A job contains records and its noise key, so it cannot be pickled or copied and has no `vars`. `job.simulation()`
    returns the internal job.

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

    def messages(self, by: By = "link") -> pd.DataFrame:
        """Return messages, floats and bits by "agent", "link", "round" or "message", as `Run.messages`."""
        return tabulate_sent(self.simulation(), by)

    def run(
        self,
        out: str | Path | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        baselines: bool = False,
        budget: Budget | None = None,
    ) -> Run:
        """Run the job, as `run`."""
        if baselines and budget is not None:
            raise option_error(
                "baselines", ": the run without noise exceeds every budget. Fix: leave baselines or budget out."
            )
        # Baselines that cannot be built raise InputError before the first release.
        baseline_plans = baseline_jobs(self._named(), self.simulation()) if baselines else {}
        with show_progress(callbacks, "rounds") as callback:
            job = self.simulation()
            # Two runs of one job have different secret noise.
            job = job.with_root(secret_root()) if job.scenario.seed is None else job
            run = runner.run_job(job, out, callback, budget)
            places = {name: run.folder and run.folder / BASELINES_FOLDER / name for name in baseline_plans}
            ran = {name: runner.run_job(job, places[name], callback) for name, job in baseline_plans.items()}
        run = replace(run, baselines=ran)
        if run.folder is not None:
            # matplotlib is slow to import, and only runs with a folder write figures.
            from decentral_dp.reporting import page

            for finished_run in (*ran.values(), run):
                page.draw_run(finished_run.folder or run.folder, finished_run.report)
        return run

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
                f"check: {' and '.join(sorted(objects))} of this job {'is' if len(objects) == 1 else 'are'} given as "
                "Python objects. Fix: check each of them, decentral_dp.check(object)."
            )
        with show_progress(callbacks, "pairs") as callback:
            result: CheckResult = annex("check")(self.simulation().scenario, pairs, seed, callback, rounds)
        return result

    def network(
        self, coalitions: Sequence[Sequence[int | str]] | None = None, *, callbacks: Sequence[Callback] = ()
    ) -> NetworkView:
        """Compute ε against honest-but-curious neighbours, as `network_view`."""
        with show_progress(callbacks, "adversaries") as callback:
            view: NetworkView = annex("prepare")(self.simulation(), coalitions).view(callback)
        return view


def build(scenario: Source, **options: Unpack[Changes]) -> Job:
    """Build the components of a scenario, and plan its releases and their ε.

    The dict `set` maps "table.key" to a value; None removes a key or a table. A Python object replaces a component:

    - problem: a result of `from_losses`, or an instance of a class (docs/add_a_problem.md);
    - algorithm: an instance of its dataclass;
    - mechanism: an instance of a class (docs/add_a_mechanism.md);
    - topology: a `networkx.Graph`, a `Topology`, pairs of agents, a list of graphs, or a function of the round t;
    - data: (features, labels), a dict of columns, a pandas `DataFrame` with the column problem.label, or a `Dataset`;
    - partition: a function of labels and agents.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, or a loaded scenario.
        **options: `set` and objects.

    Returns:
        The job. Its `budget` has the ε of each agent.

    Raises:
        InputError: the scenario or an object is invalid.

    Example:
        >>> import decentral_dp
        >>> job = decentral_dp.build("quadratic", set={"topology.agents": 16})
        >>> job.setting, job.n_agents
        ('gossip', 16)
    """
    text, objects = _split(options)
    components = load_components(scenario, text, **objects)
    return Job(plan_job(components), components)


def plan(scenario: Source | Job, *, budget: Budget | None = None, **options: Unpack[Changes]) -> Plan:
    """Compute ε of a scenario without running it.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job.
        budget: of several runs, which is not charged; `plan.quote` has ε before and after this run.
        **options: as in `build`; a job takes none.

    Returns:
        The plan, with ε of each agent, δ, the ledger, and the privacy statement.

    Raises:
        InputError: an unusable scenario or object.

    Example:
        >>> import decentral_dp
        >>> plan = decentral_dp.plan("quadratic", set={"algorithm.rounds": 2})
        >>> plan.rounds, plan.ledger["round"].unique().tolist()
        (2, [1, 2])
    """
    if isinstance(scenario, Job):
        _require_nothing("plan", options)
        return scenario.plan(budget)
    text, objects = _split(options)
    return plans.plan_scenario(scenario, text, budget, **objects)


def run(
    scenario: Source | Job,
    *,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    baselines: bool = False,
    budget: Budget | None = None,
    **options: Unpack[Changes],
) -> Run:
    """Run a scenario, and write a run folder if `out` is set.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job.
        out: a new or empty folder; by default nothing is written.
        callbacks: functions of a `Progress` (rounds, loss, ε), called at every evaluation; by default notebooks show a
            progress bar. If a callback raises, the result has a warning and the run continues.
        baselines: whether to run three baselines on the records: isolated agents and a trusted server, both at the same
            ε, and the network without noise. They are in `run.baselines` and in OUT/baselines. Default: no.
        budget: of all runs on these records, charged before the first release. Default: none.
        **options: as in `build`; a job takes none.

    Returns:
        The run: result, metrics, ledger, and released values. A run that diverges has the status "diverged". If it is
            certified, the decision uses released values only, and metrics may be infinite or missing.

    Raises:
        InputError: an unusable scenario, or a run beyond the budget.
        Stopped: interrupted. The folder has all releases.

    Example:
        >>> import decentral_dp
        >>> run = decentral_dp.run("quadratic", set={"algorithm.rounds": 2})
        >>> run.result.status, run.result.rounds, run.released["x"].shape
        ('ok', 2, (8, 5))
    """
    job = _job("run", scenario, options)
    return job.run(out, callbacks=callbacks, baselines=baselines, budget=budget)


def resume(
    folder: str | Path,
    *,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    budget: Budget | None = None,
    **objects: Unpack[Objects],
) -> Run:
    """Resume an interrupted run. The result is bitwise that of an uninterrupted run.

    A run resumes from the last state in its folder. Later releases are recomputed with the same noise key. Their values
    are equal, so ε does not increase.

    Args:
        folder: folder of the run.
        callbacks: functions of a `Progress`; by default notebooks show a bar.
        trust: whether to run code of the folder that this machine has not run before.
        budget: charged if the run was not charged at its start. Default: none.
        **objects: the Python objects of the run, if any.

    Returns:
        The finished run.

    Raises:
        InputError: the run is complete or under way, or its records, scenario or versions have changed.
        Stopped: interrupted again.

    Example:
        >>> import decentral_dp
        >>> try:
        ...     decentral_dp.resume("scenarios")
        ... except decentral_dp.InputError as error:
        ...     print(str(error).partition(":")[0])
        resume
    """
    if trust:
        with trusting():
            return runner.Run.resume(folder, callbacks=callbacks, budget=budget, **objects)
    return runner.Run.resume(folder, callbacks=callbacks, budget=budget, **objects)


def audit(
    scenario: Source | Job,
    *,
    runs: int = 200,
    adversary: str = "all_messages",
    confidence: float = 0.95,
    seed: int = 0,
    out: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    canaries: int | None = None,
    **options: Unpack[Changes],
) -> AuditResult:
    """Estimate an empirical lower bound on ε, next to the certified and the claimed ε.

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, a job, or a run folder.
        runs: number of runs on each of the two neighbouring data sets, at least 20.
        adversary: observed values: "all_messages", "published" values, the messages to agent K ("agent:K"), or the
            job's privacy.adversary ("final_models" or "final_average").
        confidence: confidence level of the lower bound.
        seed: public seed of the audit.
        out: path of a new JSON file.
        callbacks: functions of a `Progress` of runs; by default notebooks show a bar.
        canaries: number of canary records, included by Bernoulli draws, in a single run instead of many runs.
        **options: as in `build`; a job and a run folder take none.

    Returns:
        The lower bound, the method, and the lower bound for two equal data sets.

    Raises:
        InputError: a job that cannot be audited.

    Example:
        >>> import decentral_dp
        >>> shown = decentral_dp.audit("network_view", set={"algorithm.rounds": 2}, runs=20)
        >>> shown.shown <= shown.certified, shown.null_shown
        (True, 0.0)
    """
    text: Sequence[str] = ()
    if isinstance(scenario, Job):
        _require_nothing("audit", options)
        scenario = cast(Any, scenario.simulation())
    elif set(options) - {"set"}:
        scenario = cast(Any, build(scenario, **options).simulation())
    else:
        text, _ = _split(options)
    runs, confidence, seed, canaries = loading.python_value([runs, confidence, seed, canaries])
    request = annex("plan_audit")(cast(Any, scenario), runs, adversary, confidence, seed, text, canaries)
    with show_progress(callbacks, "runs") as callback:
        place = None if out is None else Path(out)
        result: AuditResult = annex("play_game")(request, place, callback)
    return result


def check(what: Any, **options: Any) -> CheckResult:
    """Test the privacy contract of a component on synthetic data.

    Args:
        what: a registered algorithm or problem, "module:Name", a scenario (name, file, dict or loaded;
            then all its components are checked), a job, or an algorithm or problem as a Python object.
        **options: pairs: number of neighbouring data sets in the search; seed: public seed of the search; rounds:
            number of rounds to run, from the first on, by default 24; callbacks: functions of a `Progress` of pairs; by
            default notebooks show a bar.

    Returns:
        One row per check. A passed check is not a proof; its label is "checked".

    Raises:
        InputError: an unknown name, or an unusable scenario.

    Example:
        >>> import decentral_dp
        >>> checked = decentral_dp.check("ldp_dsbo", pairs=4, rounds=2)
        >>> checked.passed, [row.name for row in checked.rows][:4]
        (True, ['conformance', 'row locality', 'neighbours', 'search'])
    """
    if isinstance(what, Job):
        return what.check(**options)
    with show_progress(options.pop("callbacks", ()), "pairs") as callback:
        result: CheckResult = annex("check")(what, progress=callback, **loading.python_value(options))
    return result


def network_view(
    scenario: Source | Job,
    *,
    coalitions: Sequence[Sequence[int | str]] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[Changes],
) -> NetworkView:
    """Compute ε against honest-but-curious neighbours (network DP).

    Args:
        scenario: a shipped name, a path, a dict of the same shape, a loaded scenario, or a job.
        coalitions: sets of colluding agents, by number, or by name as text; by default each agent is an adversary.
        callbacks: functions of a `Progress` of adversaries; by default notebooks show a bar.
        **options: as in `build`; a job takes none.

    Returns:
        Distance, certified ε and exact ε, each (adversaries, victims), and ε against an adversary that observes all
        messages.

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
        set: key → value of the study, or of the scenario in all cells; not supported for a loaded study.
        workers: number of processes on this machine, by default one per core.
        address: address of a Ray cluster ("auto", "host:port") to use instead.
        callbacks: functions of a `Progress` of cells, including failed ones; by default notebooks show a bar.
        budget: with a file, charged for the run of every cell; a cell beyond it fails. Default: none.

    Returns:
        Tables, verdicts on claims, and figures.

    Raises:
        InputError: the study is invalid.
        Stopped: interrupted. Finished cells are in `out`.

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
        raise InputError("study: a loaded study takes no changed keys. Fix: give its name, path or dict.")
    study_object = study if is_read else annex("load_study")(study, text)
    with show_progress(callbacks, "cells") as callback:
        if out is not None:
            findings: Findings = conduct(study_object, Path(out), workers, address, callback, budget)
            return findings
        with TemporaryDirectory(prefix="decentral_dp-study-") as folder:
            findings = conduct(study_object, Path(folder), workers, address, callback, budget)
        return replace(findings, folder=None)


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


def _split(options: Changes) -> tuple[list[str], Objects]:
    """Return changed keys as text, and Python objects. Raises InputError for text instead of an object."""
    if unknown := options.keys() - Changes.__annotations__.keys():
        raise TypeError(f"got an unexpected keyword argument {min(unknown)!r}")
    objects: Any = {what: value for what in _KEYS if (value := options.get(what)) is not None}
    for what, value in objects.items():
        if isinstance(value, str):
            fix = f'set={{"{_KEYS[what]}": {quoted(value)}}}'
            raise InputError(f"{what}: got the text {quoted(value)}, expected an object. Fix: {fix}.")
    return changes(options.get("set")), objects


def _job(function: str, scenario: Source | Job, options: Changes) -> Job:
    """Return a job unchanged, or build the job of a scenario. Raises InputError."""
    if isinstance(scenario, Job):
        _require_nothing(function, options)
        return scenario
    return build(scenario, **options)


def _require_nothing(function: str, options: Mapping[str, Any]) -> None:
    """Raise InputError for changes of a planned job."""
    if options:
        raise InputError(
            f"{function}: got {', '.join(options)} with a planned job. Fix: pass them to "
            "decentral_dp.build(scenario, …)."
        )


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
        folder: start of relative paths in a dict; default the working directory.

    Returns:
        The scenario with all defaults.

    Raises:
        InputError: an unusable scenario.

    Example:
        >>> import decentral_dp
        >>> scenario = decentral_dp.load("quadratic", set={"algorithm.rounds": 5})
        >>> scenario.algorithm.kind, scenario.algorithm.rounds
        ('ldp_dsbo', 5)
    """
    return loading.load_scenario(scenario, changes(set), folder)
