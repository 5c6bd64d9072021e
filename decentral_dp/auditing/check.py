"""Check the privacy contract of a component on synthetic neighbouring data sets.

The component must build, release its planned values, and repeat them on the same records. No row of its problem may
depend on another record. Noiseless values must be bitwise equal on neighbouring data sets. In a search for the worst
pair, one record must not change a noisy value by more than its sensitivity. The search ends with an ascent under
smaller clips, which records of a bounded domain can also attain. For a gossip algorithm, both comparisons are repeated
on a network with absent agents and lost messages, and with compressed messages. A custom mechanism and a custom
partition have additional checks.

Limits: a passed check is not a proof. Only the first rounds run, on a limited number of pairs. Scores of a selection
mechanism are not compared with their sensitivity. Topologies and data are not checked.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.algorithms.plans import stated_terms
from decentral_dp.algorithms.protocol import ONE_LEVEL
from decentral_dp.auditing.component_runs import (
    ROUNDS,
    WatchedRun,
    check_rows,
    climb,
    compare_pairs,
    compare_to_plan,
    describe_error,
    synthetic_shards,
    trial_partition,
)
from decentral_dp.auditing.mechanism_trials import find_fault
from decentral_dp.bounded import Split
from decentral_dp.config import outside as outside
from decentral_dp.config.components import Components, resolve, with_objects
from decentral_dp.config.loading import load_scenario
from decentral_dp.config.scenario_components import deal
from decentral_dp.config.schema import Scenario
from decentral_dp.config.templates import algorithm_tables
from decentral_dp.errors import InputError, converting
from decentral_dp.privacy.custom_mechanism import OutsideMechanism
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.result import plain
from decentral_dp.user_code import USER_ERRORS, UserCodeError, component, in_module

PAIRS = 64
# Number of first rounds that are run by default.
MOST_ROUNDS = 24
# Row → keys of [topology] for another comparison of neighbouring data sets, and its rounds.
_NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "absent agents": {"offline": 0.4, "drop": 0.2},
    "compressed messages": {"compression": {"kind": "top_k", "share": 0.5}},
}
_NETWORK_ROUNDS = 6
# Factor of the clips in the ascent, and the share of the planned sensitivity below which a check is weak.
_CLIP_FACTOR = 1e-2
_WEAK = 0.5
_NOT_RUNNING = "Not checked: the component does not build or run."
_RANDOM = "Not checked: two runs on the same records differ."


def try_component(
    component: Any,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: Callback | None = None,
    rounds: int | None = None,
) -> CheckResult:
    """Check a component on synthetic records, as `decentral_dp.check` does."""
    target, c = find_target(component)
    conformance, transcript, repeats = _check_conformance(target, rounds or MOST_ROUNDS)
    check_names = ("neighbours", "search", *_NETWORKS)
    if transcript is None:
        rows = [_skip_row(name, "", _NOT_RUNNING) for name in ("row locality", *check_names)]
    else:
        rows = [_check_row_locality(transcript.job)]
        if repeats:
            # The search uses smaller clips, unless the scenario has none or does not build with them.
            ascent_job, table = transcript.job, target.scenario.privacy.model_dump(exclude_unset=True)
            with suppress(InputError):
                small_clip = {**table, "clip": _scale_clip(table.get("clip", {}))}
                ascent_job = _build_rounds(target, ascent_job.rounds, privacy=small_clip)
            rows += _check_neighbours(transcript, ascent_job, pairs, seed, progress) + _check_networks(
                target, pairs, seed, rounds
            )
        else:
            rows += [_skip_row(name, "", _RANDOM) for name in check_names]
        rows += _check_parts(transcript.job, c)
    ran = 0 if transcript is None else transcript.job.rounds
    return CheckResult(
        subject=target.name,
        rows=(conformance, *rows),
        pairs=next(row.pairs for row in rows if row.name == "neighbours"),
        seed=seed,
        rounds=ran,
        of_rounds=max(ran, target.rounds),
    )


def _check_conformance(target: Target, rounds: int) -> tuple[CheckRow, WatchedRun | None, bool]:
    """Run the first rounds twice.

    Returns:
        The row of the check, the first run (None if the component does not build or run), and whether it repeats.
    """
    requirement = "builds, runs, releases what it plans, and the same again on the same records"
    try:
        job = _build_rounds(target, rounds)
        requirement = (
            f"builds, runs the first {job.rounds} of {max(job.rounds, target.rounds)} rounds, releases what it plans"
        )
        transcript = WatchedRun(job)
        ledger = transcript.record(synthetic_shards(job.shards, 0)).ledger
    except USER_ERRORS as error:
        return _make_row("conformance", requirement, _describe_fault(error, "build")), None, True
    chance = ""
    try:
        transcript.repeat()
    except InputError as error:
        chance = str(error)
    why = chance or compare_to_plan(transcript, ledger)
    return _make_row("conformance", f"{requirement}, twice", why), transcript, not chance


def _make_row(name: str, requirement: str, why: str = "", pairs: int = 0) -> CheckRow:
    """Return the row of a check. `why` is the reason for the failure, or ""."""
    return CheckRow(name, requirement, pairs, "failed" if why else "checked", why=why)


def _skip_row(name: str, requirement: str, why: str) -> CheckRow:
    return CheckRow(name, requirement, 0, "not tried", why=why)


def _describe_fault(error: BaseException, verb: str) -> str:
    """Describe why a component does not `verb` ("build" or "run")."""
    return str(error) if isinstance(error, InputError) else f"It does not {verb}: {describe_error(error)}."


def _build_rounds(target: Target, rounds: int = ROUNDS, **tables: Any) -> PlannedJob:
    """Build a job of the first rounds, or of all rounds if the algorithm has no shorter schedule."""
    try:
        return plan_job(resolve(target.with_rounds(rounds, **tables)))
    except InputError:
        if tables:
            raise
        return plan_job(resolve(target.with_tables()))


def _check_row_locality(job: PlannedJob) -> CheckRow:
    requirement = "another record in a batch moves no row but its own"
    try:
        parts = check_rows(job)
    except InputError as error:
        return _make_row("row locality", requirement, str(error))
    if not parts:
        why = "The problem has no custom rows. The search covers the change by one record."
        return _skip_row("row locality", requirement, why)
    return _make_row("row locality", requirement)


def _scale_clip(clip: Any) -> Any:
    """Return a clipping norm, the norms of channels, or a schedule, multiplied by the factor of the ascent."""
    if isinstance(clip, Mapping):
        return {key: v if key in ("decay", "points") else _scale_clip(v) for key, v in clip.items()}
    return clip * _CLIP_FACTOR


def _check_neighbours(
    transcript: WatchedRun, ascent_job: PlannedJob, pairs: int, seed: int, progress: Callback | None
) -> list[CheckRow]:
    """Return the rows "neighbours" and "search"."""
    leak, unbounded, excess = "", "", None
    n_compared, n_searched = 0, 0
    shares: dict[tuple[str, Split], float] = {}
    report = Reporter(progress, "pairs")
    guarantee = transcript.job.scenario.privacy.guarantee
    # The ascent reads the shares when it begins, after the other pairs.
    ascent = climb(ascent_job, shares, pairs if guarantee == "certified" else 0, seed)
    for comparison in chain(compare_pairs(transcript, pairs, seed), ascent):
        n_compared += 1
        leak = leak or comparison.leak
        unbounded = unbounded or comparison.unbounded
        change = comparison.worst_change
        if comparison.pair.record >= 0:
            n_searched += 1
            report(min(n_searched, pairs), pairs)
        for target, share in comparison.shares.items():
            shares[target] = max(share, shares.get(target, 0.0))
        if change is not None and not change.is_within and (excess is None or excess[1].ratio < change.ratio < np.inf):
            excess = comparison, change
    neighbours = _make_row("neighbours", "noiseless values are identical for the same releases", leak, n_compared)
    worst = max(shares.values(), default=0.0)
    search = CheckRow("search", "moved / sensitivity is at most 1 + 1e-9", n_searched, "checked", worst)
    if guarantee != "certified":
        why = f"The guarantee is {guarantee!r}, without a bound on the change by one record."
        search = replace(search, verdict="not tried", ratio=None, why=why)
    elif excess is not None:
        search = replace(search, verdict="failed", ratio=max(worst, excess[1].ratio), why=excess[0].describe(excess[1]))
    elif not shares:
        why = "No noisy value that reads records states a sensitivity."
        search = replace(search, verdict="not tried", ratio=None, why=why)
    elif unbounded:
        why = f"{unbounded} states no finite sensitivity, so its change has no bound to compare with."
        search = replace(search, verdict="not tried", ratio=None, why=why)
    else:
        parts = [
            f"{share:.0%} ({channel}, {split} record)".replace("%", " %") for (channel, split), share in shares.items()
        ]
        why, least = f"Reached {', '.join(parts)} of the planned sensitivity.", min(shares.values())
        if least < _WEAK:
            missed = f"by a factor below {1.0 / least:.3g}" if least > 0.0 else "by any factor"
            why += f" The check is weak: a sensitivity that is planned too low {missed} passes."
        search = replace(search, why=why)
    return [neighbours, search]


def _check_networks(target: Target, pairs: int, seed: int, rounds: int | None) -> list[CheckRow]:
    """Compare neighbouring data sets on other networks, with a quarter of the pairs."""
    graph = target.scenario.topology.model_dump(exclude_unset=True, exclude={"compression"})
    rows = []
    for name, keys in _NETWORKS.items():
        requirement, n_compared = f"topology.{' and '.join(keys)}: as neighbours and search", 0
        why, unbounded = "", ""
        try:
            job = _build_rounds(target, rounds or _NETWORK_ROUNDS, topology={**graph, **keys})
        except InputError as error:
            # An unsupported network is not a failure.
            rows.append(_skip_row(name, requirement, str(error)))
            continue
        is_certified = job.scenario.privacy.guarantee == "certified"
        try:
            transcript = WatchedRun(job)
            transcript.record(synthetic_shards(job.shards, 0))
            for comparison in compare_pairs(transcript, pairs // 4, seed):
                n_compared += 1
                why = why or (comparison.problem if is_certified else comparison.leak)
                unbounded = unbounded or (comparison.unbounded if is_certified else "")
        except USER_ERRORS as error:
            why = _describe_fault(error, "run")
        row = _make_row(name, requirement, why, n_compared)
        if unbounded and not why:
            row = replace(row, why=f"{unbounded} states no finite sensitivity: only noiseless values were compared.")
        rows.append(row)
    return rows


def _check_parts(job: PlannedJob, c: Components) -> Iterator[CheckRow]:
    """Yield the rows of a custom mechanism and a custom partition."""
    if isinstance(c.mechanism, OutsideMechanism):
        try:
            why = find_fault(c.mechanism)
        except (InputError, UserCodeError) as error:
            why = str(error)
        yield _make_row("mechanism", "own noise for every key, the stated deviation, no event above its cost", why)
    if c.partition.value is not None:
        repeats, reads_labels = trial_partition(c.partition.make(), job.shards)
        why = "" if repeats else "It returns different agents for the same labels. Use a generator with its seed."
        reads = (
            "It reads labels: ε does not cover what it leaks of them." if reads_labels else "No label moved a record."
        )
        yield replace(_make_row("partition", "the same agents for the same labels", why), why=why or reads)


@dataclass(frozen=True)
class CheckRow:
    """Result of one check.

    Args:
        name: name of the check.
        tried: the requirement that was tested.
        pairs: number of pairs of data sets.
        verdict: "checked", "failed" or "not tried".
        ratio: largest ratio of a change to the stated sensitivity.
        why: reason for the verdict.
    """

    name: str
    tried: str
    pairs: int
    verdict: Literal["checked", "failed", "not tried"]
    ratio: float | None = None
    why: str = ""


@dataclass(frozen=True, eq=False)
class CheckResult:
    """Result of the checks of a component.

    Args:
        subject: name of the component or scenario.
        rows: one row for each check.
        pairs: number of neighbouring data sets.
        seed: seed of the search for pairs.
        rounds: number of rounds that were checked.
        of_rounds: total number of rounds of the scenario.

    Example:
        >>> import decentral_dp
        >>> decentral_dp.check("ldp_dsbo", pairs=4, rounds=2).subject
        'ldp_dsbo'
    """

    subject: str
    rows: tuple[CheckRow, ...]
    pairs: int
    seed: int
    rounds: int
    of_rounds: int

    def __repr__(self) -> str:
        return f"<CheckResult {self.subject!r}: {self.label}>"

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(row.verdict != "failed" for row in self.rows)

    @property
    def label(self) -> str:
        """Verdict with its scope: "checked: first 8 of 80 rounds, 69 pairs"."""
        if not self.rounds:
            return "failed: no round was run"
        verdict = "checked" if self.passed else "failed"
        return f"{verdict}: first {self.rounds} of {self.of_rounds} rounds, {self.pairs} pairs"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; infinity is "inf"."""
        return {**plain(asdict(self)), "passed": self.passed, "label": self.label}


# Scenarios for components without one.
Content = Mapping[str, Any]

# Only the clip bounds its records.
_DATA = {"data": "breast_cancer"}
# Problems for an algorithm, by kind of problem.
_PROBLEMS: Mapping[str, tuple[Content, ...]] = {
    "bilevel": ({"kind": "logistic_hyperparameter"}, {"kind": "logistic_regularisation"}),
    "minimax": (
        {"kind": "auc_maximisation", "positive_share": 0.5},
        {"kind": "group_dro", "strength": 1.0, "cap": 1.0},
    ),
}
_STEP = {"scale": 0.5}
# Graph → algorithm for a problem.
_ALGORITHMS: Mapping[str, Content] = {
    "ring": {"kind": "ldp_dsbo", "x": _STEP, "y": _STEP, "z": _STEP},
    "star": {"kind": "dp_sgda", "x": _STEP, "y": _STEP},
}
# Clipped channels, in the order of the search: a scenario with an unnecessary one is invalid.
_CLIPS: tuple[tuple[str, ...], ...] = (("y", "z"), ("x", "y"), ("y",), ("x",), ("x", "y", "z"), ())
_TRIAL_ROUNDS = 8


@dataclass(frozen=True)
class Target:
    """Component within a scenario. The objects `problem` and `algorithm` replace those of the scenario."""

    name: str
    scenario: Scenario
    problem: Any = None
    algorithm: Any = None

    @property
    def rounds(self) -> int:
        """Number of rounds of the scenario."""
        return int(self.scenario.algorithm.rounds)

    def with_tables(self, **tables: Any) -> Scenario:
        """Return the scenario with other tables and with these objects."""
        content = {**self.scenario.model_dump(exclude_unset=True), **tables}
        scenario = load_scenario(content, folder=self.scenario.folder)
        return with_objects(scenario, problem=self.problem, algorithm=self.algorithm)

    def with_rounds(self, rounds: int = ROUNDS, **tables: Any) -> Scenario:
        """Return the scenario with at most this number of rounds."""
        table = self.scenario.algorithm.model_dump(exclude_unset=True)
        table = {**table, "rounds": min(rounds, self.rounds)}
        # In this process, on its own device.
        return self.with_tables(algorithm=table, run={}, **tables)


def find_target(target_source: Any) -> tuple[Target, Components]:
    """Return the component within a scenario, and all components of this scenario.

    Args:
        target_source: scenario (shipped name, .toml file, dict or `Scenario`), registered algorithm, "module:Name",
            algorithm, problem or objective as a Python object, or class without required fields.

    Raises:
        InputError: `target_source` is none of these, or its scenario cannot be loaded.
    """
    if isinstance(target_source, str) and in_module(target_source) is not None:
        target = _target_of_component(target_source, component(target_source, [Path.cwd()], "check"), is_object=False)
    elif isinstance(target_source, Scenario | Mapping | Path | str):
        target_scenario = load_scenario(target_source)
        target = Target(
            str(target_source) if isinstance(target_source, str | Path) else target_scenario.title or "the scenario",
            target_scenario,
        )
    else:
        is_class = isinstance(target_source, type)
        name = (target_source if is_class else type(target_source)).__name__
        with converting(
            TypeError, lambda error: f"check: {name} has required fields ({error}). Fix: pass an instance."
        ):
            component_object = target_source() if is_class else target_source
        target = _target_of_component(name, component_object, is_object=True)
    scenario = target.with_tables()
    if scenario.problem.manifest is not None:
        raise InputError(
            "check: not supported with problem.manifest, since only the agents hold the records. Fix: set "
            "problem.data instead."
        )
    # A wrong name is an input error, not a failure of a component.
    c = resolve(scenario)
    deal(c, c.topology.make().n_agents)
    return target, c


def _target_of_component(name: str, code: Any, is_object: bool) -> Target:
    """Place a component in the first small scenario that can be built, or otherwise in the first that can be loaded.

    Args:
        name: name of the component, "module:Name" unless it is an object.
        code: class, function or object of the component.
        is_object: whether it is an object, which replaces a registered component.
    """
    algorithms = hasattr(code, "step")
    if algorithms:
        entry = entry_of_class(type(code) if is_object else code, name)
        graph, problems = entry.rules.graph, _PROBLEMS[entry.solves]
        algorithm = _ALGORITHMS[graph] if is_object else tomllib.loads(algorithm_tables(entry))["algorithm"]
    else:
        solves, why = None, ""
        try:
            solves = outside.problem_type(code, name)
        except InputError as error:
            why = f" If it is meant as a problem: {error}"
        if solves is None:
            raise InputError(
                f"check: {name} is not an algorithm, a problem or an objective. Fix: for a topology, data, a "
                f"partition, a mechanism or a function, check a scenario that uses it.{why}"
            )
        graph, problems = "star" if solves == "minimax" else "ring", ({"kind": name},)
        problems = _PROBLEMS[solves][:1] if is_object else problems
        algorithm = _ALGORITHMS[graph]
    objects = {"algorithm" if algorithms else "problem": code} if is_object else {}
    refusal, first = InputError(f"check: no shipped scenario fits {name}. Fix: pass a scenario that uses it."), None
    tables: list[Any] = [dict.fromkeys(channels, 1.0) for channels in _CLIPS]
    stated_keys = set(stated_terms(entry.algorithm)) if algorithms else set()
    is_training = graph == "ring" and bool(stated_keys) and stated_keys <= set(ONE_LEVEL)
    for problem, clip in product(problems, [1.0] if is_training else [*tables, 1.0]):
        content = {
            "seed": 1,
            "problem": {**_DATA, **problem},
            "topology": {"kind": graph, "agents": 4},
            "algorithm": {**algorithm, "rounds": _TRIAL_ROUNDS},
            "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": clip},
        }
        try:
            target = Target(name, load_scenario(content), **objects)
        except InputError as error:
            refusal = error
            continue
        first = first or target
        with suppress(InputError):
            plan_job(resolve(target.with_rounds()))
            return target
    if first is None:
        raise refusal
    return first
