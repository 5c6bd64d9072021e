"""Checks of a component: what it must keep, tried by machine on made-up records.

It builds, releases what it plans, and does so again on the same records; no row reads another record; what leaves
without noise is the same to the bit in two neighbouring data sets; one record changes what is noised by its sensitivity
at most, in a search for the pair that changes it most; and it runs at its limits (no noise, one agent, a complete
graph). For a gossip algorithm, neighbouring data sets are compared once more where agents are absent and messages are
lost, and where messages are compressed. A mechanism and a partition from outside have rows of their own.

Limits: a check that passes found nothing, and proves nothing. As many rounds are tried as fit in a few seconds, from
the first on, on so many pairs; scores of a selection mechanism are not compared with their sensitivity. Of a topology
and of data from outside nothing is tried.

A result has a row for each thing that was tried. The same seed tries the same pairs again.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms import ALGORITHMS, Entry
from decentral_dp.algorithms.entry import entry_of_class
from decentral_dp.config import outside as outside
from decentral_dp.config.components import Components, resolve, with_objects
from decentral_dp.config.loading import load_scenario, shipped_names
from decentral_dp.config.scenario_components import deal
from decentral_dp.config.schema import Scenario
from decentral_dp.config.templates import algorithm_tables
from decentral_dp.data import nearest
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError, quoted
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.problems import PROBLEMS
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.build import plan_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.probing.mechanism import complaint
from decentral_dp.simulation.probing.pairs import deal_trial, made_up_shards
from decentral_dp.simulation.probing.probe import ROUNDS, check_rows, require_planned, tried_pairs
from decentral_dp.simulation.probing.transcript import WatchedRun, on_records, went_wrong
from decentral_dp.simulation.result import plain
from decentral_dp.user_code import USER_ERRORS, UserCodeError, component, in_module

PAIRS = 64
# Rounds are tried as long as all pairs together take no longer, where nobody says how many.
_SECONDS = 6.0
# Row → keys of [topology] under which neighbouring data sets are tried once more, in so many rounds.
_NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "absent agents": {"offline": 0.4, "drop": 0.2},
    "compressed messages": {"compression": {"kind": "top_k", "share": 0.5}},
}
_NETWORK_ROUNDS = 6
_NOT_RUNNING = "It does not build or run, so that this was not tried."
_RANDOM = "Two runs on the same records differ already, so that nothing can be said of neighbouring ones."


def try_component(
    what: Any,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: Callback | None = None,
    rounds: int | None = None,
) -> CheckResult:
    """Check a component on synthetic records; arguments and result as of `decentral_dp.check`."""
    for name, number, least in (("pairs", pairs, 1), ("rounds", rounds, 1), ("seed", seed, 0)):
        if number is not None and (not isinstance(number, int) or number < least):
            raise InputError(f"{name}: got {number!r}, wanted a whole number of at least {least}; or leave it out.")
    target, c = target_of(what)
    conformance, transcript, repeats = _conformance(target, pairs, rounds)
    if transcript is None:
        ran = 0
        names = ("row locality", "neighbours", "search", *_NETWORKS, "noise off", "one agent", "complete graph")
        rest = [_untried(name, "", _NOT_RUNNING) for name in names]
    else:
        ran = transcript.job.rounds
        if repeats:
            compared = [
                *_neighbours(transcript, pairs, seed, progress),
                *_networks(target, pairs, seed, rounds),
            ]
        else:
            names = ("neighbours", "search", *_NETWORKS)
            compared = [_untried(name, "", _RANDOM) for name in names]
        rest = [_row_locality(transcript.job), *compared]
        rest += [*_limits(target, c), *_parts(transcript.job, c)]
    return CheckResult(
        subject=target.name,
        rows=(conformance, *rest),
        pairs=next(row.pairs for row in rest if row.name == "neighbours"),
        seed=seed,
        version=importlib.metadata.version("decentral_dp"),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        rounds=ran,
        of_rounds=max(ran, target.rounds),
    )


def _conformance(target: Target, pairs: int, rounds: int | None) -> tuple[CheckRow, WatchedRun | None, bool]:
    """Whether it releases what it plans; what leaves, None where it does not build or run; whether it does so again."""
    what = "builds, runs, releases what it plans, and the same again on the same records"
    try:
        job = _job_of_rounds(target, _fitting(target, pairs) if rounds is None else rounds)
        what = f"builds, runs the first {job.rounds} of {max(job.rounds, target.rounds)} rounds, releases what it plans"
        transcript = WatchedRun(job)
        recorded = transcript.record(made_up_shards(job.shards, 0)).ledger
    except USER_ERRORS as error:
        return _tried("conformance", what, _fault(error, "build")), None, True
    chance = _refusal(transcript.repeat)
    why = chance or _refusal(lambda: require_planned(transcript, recorded))
    return _tried("conformance", f"{what}, twice", why), transcript, not chance


def _refusal(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except InputError as error:
        return str(error)
    return ""


def _tried(name: str, what: str, why: str = "", pairs: int = 0) -> CheckRow:
    """The row of what was tried. why: it failed; "" where it did not."""
    return CheckRow(name, what, pairs, "failed" if why else "checked", why=why)


def _untried(name: str, what: str, why: str) -> CheckRow:
    return CheckRow(name, what, 0, "not tried", why=why)


def _fault(error: BaseException, verb: str) -> str:
    """What is wrong with a component, as its row says it. verb: what it does not do, where no sentence is at hand."""
    return str(error) if isinstance(error, InputError) else f"It does not {verb}: {went_wrong(error)}. Mend it."


def _fitting(target: Target, pairs: int) -> int:
    """How many rounds all pairs can be tried in within `_SECONDS`, from the time that a few take."""
    if target.rounds <= ROUNDS:
        return target.rounds
    job = _job_of_rounds(target)
    runs, building, one = 2 * pairs + 8, math.inf, math.inf
    # The first of them imports and compiles.
    for _ in range(3):
        started = time.perf_counter()
        shards = made_up_shards(job.shards, 0)
        on_records(job, shards, 0)
        built = time.perf_counter()
        try:
            WatchedRun(job).record(shards)
        except InputError:
            return ROUNDS  # What is wrong is said where it is tried.
        building = min(building, built - started)
        one = min(one, (time.perf_counter() - built - building) / max(1, job.rounds))
    return min(target.rounds, max(ROUNDS, int((_SECONDS / runs - building) / max(one, 1e-9))))


def _job_of_rounds(target: Target, rounds: int = ROUNDS, **tables: Any) -> PlannedJob:
    """The job of so many rounds; of two or of all, where the algorithm cannot have so many."""
    try:
        return plan_job(resolve(target.with_rounds(rounds, **tables)))
    except InputError:
        if rounds > ROUNDS:
            return _job_of_rounds(target, **tables)
        if target.scenario.algorithm.kind not in ALGORITHMS or target.algorithm is not None or tables:
            raise
        return plan_job(resolve(target.with_tables()))


def _row_locality(job: PlannedJob) -> CheckRow:
    what = "another record in a batch moves no row but its own"
    try:
        parts = check_rows(job)
    except InputError as error:
        return _tried("row locality", what, str(error))
    if not parts:
        why = "No part of the problem gives rows that can be tried apart; what one record moves, the search tries."
        return _untried("row locality", what, why)
    return _tried("row locality", what)


def _neighbours(transcript: WatchedRun, pairs: int, seed: int, progress: Callback | None) -> list[CheckRow]:
    """The rows "neighbours" and "search"."""
    free, far = "", None
    tried, searched, worst, bounded = 0, 0, 0.0, False
    report = Reporter(progress, "pairs")
    for shown in tried_pairs(transcript, pairs, seed):
        tried += 1
        free = free or shown.refusal_text
        change = shown.worst_change
        if shown.pair.record >= 0:
            searched += 1
            worst = max(worst, 0.0 if change is None else change.ratio)
            report(searched, pairs)
        if change is not None:
            bounded = bounded or 0.0 < change.sensitivity < np.inf
            if not change.is_within and (far is None or far[1].ratio < change.ratio < np.inf):
                far = shown, change
    what = "the same releases; what leaves without noise is the same to the bit"
    neighbours = _tried("neighbours", what, free, tried)
    guarantee = transcript.job.scenario.privacy.guarantee
    search = CheckRow("search", "pairs that drive moved / sensitivity up; at most 1 + 1e-9", searched, "checked", worst)
    if guarantee != "certified":
        why = f"The guarantee is {guarantee!r}, which bounds nothing that one record moves."
        search = replace(search, verdict="not tried", ratio=None, why=why)
    elif far is not None:
        search = replace(search, verdict="failed", ratio=max(worst, far[1].ratio), why=far[0].excess(far[1]))
    elif not bounded:
        why = "Nothing that is noised and reads records states how far one record moves it."
        search = replace(search, verdict="not tried", ratio=None, why=why)
    return [neighbours, search]


def _networks(target: Target, pairs: int, seed: int, rounds: int | None) -> list[CheckRow]:
    """Compare neighbouring data sets on other networks, with a quarter of the pairs of the search."""
    graph = target.scenario.topology.model_dump(exclude_unset=True, exclude={"compression"})
    rows = []
    for name, keys in _NETWORKS.items():
        what, tried, why = f"topology.{' and '.join(keys)}: what neighbours and search try", 0, ""
        try:
            job = _job_of_rounds(target, rounds or _NETWORK_ROUNDS, topology={**graph, **keys})
        except InputError as error:
            # A network that the component refuses in a sentence is no fault.
            rows.append(_untried(name, what, str(error)))
            continue
        certified = job.scenario.privacy.guarantee == "certified"
        try:
            transcript = WatchedRun(job)
            transcript.record(made_up_shards(job.shards, 0))
            for shown in tried_pairs(transcript, pairs // 4, seed):
                tried += 1
                why = why or (_refusal(shown.require_private) if certified else shown.refusal_text)
        except USER_ERRORS as error:
            why = _fault(error, "run")
        rows.append(_tried(name, what, why, tried))
    return rows


def _parts(job: PlannedJob, c: Components) -> Iterator[CheckRow]:
    """Yield a row for a mechanism and one for a partition from outside."""
    if isinstance(c.mechanism, OutsideMechanism):
        try:
            why = complaint(c.mechanism)
        except (InputError, UserCodeError) as error:
            why = str(error)
        yield _tried("mechanism", "own noise for every key; its deviation; no event shows more than its price", why)
    if c.partition.is_outside:
        problem, reads_labels = deal_trial(c.partition.make(), job.shards)
        reads = (
            "It reads labels, and what it leaks of them no ε covers." if reads_labels else "No label moved a record."
        )
        row = _tried("partition", "one agent for every record, and the same again", problem)
        yield replace(row, why=problem or reads)


def _limits(target: Target, c: Components) -> Iterator[CheckRow]:
    """Yield the rows of no noise, one agent, and a complete graph: it runs, and gives finite numbers."""
    agents = c.topology.make().n_agents
    cases: Mapping[str, tuple[str, dict[str, Any]]] = {
        "noise off": ('guarantee = "none"', {"privacy": {"guarantee": "none"}}),
        "one agent": ("a graph of one agent", {"topology": {"kind": "complete", "agents": 1}}),
        "complete graph": (f"{agents} agents, all linked", {"topology": {"kind": "complete", "agents": agents}}),
    }
    for name, (case, tables) in cases.items():
        what, why = f"{case}: runs, finite numbers", ""
        try:
            job = _job_of_rounds(target, **tables)
        except InputError as error:
            # What is refused in a sentence is no fault.
            yield _untried(name, what, str(error))
            continue
        except USER_ERRORS as error:
            yield _tried(name, what, _fault(error, "build"))
            continue
        try:
            with np.errstate(all="ignore"):
                last = on_records(job, made_up_shards(job.shards, 0), 0).start(LocalEngine()).last_snapshot
        except USER_ERRORS as error:
            why = f"It does not run: {went_wrong(error)}. Mend it."
        else:
            wrong = [c for c, value in last.released.items() if not np.isfinite(value).all()]
            if wrong or last.divergence is not None:
                channel = wrong[0] if wrong else getattr(last.divergence, "channel", "")
                why = f"{channel} is not finite after {job.rounds} rounds. Mend it."
        yield _tried(name, what, why)


@dataclass(frozen=True)
class CheckRow:
    """One check. tried: what; pairs: of data sets; ratio: the worst of moved / sensitivity; why: of a failure."""

    name: str
    tried: str
    pairs: int
    verdict: Literal["checked", "failed", "not tried"]
    ratio: float | None = None
    why: str = ""


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What was tried on a component, and what was found.

    Args:
        subject: what was checked, and `title` of the scenario that it ran in.
        rows: one for each check. pairs: of neighbouring data sets, in all. seed: of their search.
        version: of decentral_dp. date: of the check, as 2026-01-31.
        rounds: how many were run, from the first on. of_rounds: how many there are.

    Example:
        >>> import decentral_dp
        >>> decentral_dp.check("ldp_dsbo", pairs=4, rounds=2).subject
        'ldp_dsbo'
    """

    subject: str
    rows: tuple[CheckRow, ...]
    pairs: int
    seed: int
    version: str
    date: str
    rounds: int = 0
    of_rounds: int = 0

    def __repr__(self) -> str:
        return f"<CheckResult {self.subject!r}: {self.label}>"

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(row.verdict != "failed" for row in self.rows)

    @property
    def label(self) -> str:
        """The verdict with what it rests on: "checked (2026-11-24, decentral_dp 0.1.0: 50 of 80 rounds, 69 pairs)"."""
        verdict = "checked" if self.passed else "failed"
        tried = f"first {self.rounds} of {self.of_rounds} rounds, {self.pairs} pairs" if self.rounds else "no rounds"
        return f"{verdict} ({self.date}, decentral_dp {self.version}: {tried})"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values; an infinite ratio is the text "inf"."""
        return {**plain(asdict(self)), "passed": self.passed, "label": self.label}


# What is asked to be checked, and the smallest scenario that it fits into.
Content = Mapping[str, Any]

# Nothing bounds its records, so that the clip alone does.
_DATA = {"data": "breast_cancer"}
# Tables of problems that an algorithm is tried on, by what it solves.
_PROBLEMS: Mapping[str, tuple[Content, ...]] = {
    "bilevel": ({"kind": "logistic_hyperparameter"}, {"kind": "logistic_regularisation"}),
    "minimax": (
        {"kind": "auc_maximisation", "positive_share": 0.5},
        {"kind": "group_dro", "strength": 1.0, "cap": 1.0},
    ),
}
_STEP = {"scale": 0.5}
# Graph → the algorithm that a problem is tried with on it.
_ALGORITHMS: Mapping[str, Content] = {
    "ring": {"kind": "ldp_dsbo", "x": _STEP, "y": _STEP, "z": _STEP},
    "star": {"kind": "dp_sgda", "x": _STEP, "y": _STEP},
}
# Which channels are clipped, in the order in which they are tried: a scenario that clips one too many is refused.
_CLIPS: tuple[tuple[str, ...], ...] = (("y", "z"), ("x", "y"), ("y",), ("x",), ("x", "y", "z"), ())
# Of a component that is named alone, in the scenario that is made for it.
_TRIAL_ROUNDS = 8


@dataclass(frozen=True)
class Target:
    """A component in a scenario. name: as it was asked for. problem, algorithm: objects in place of what is named."""

    name: str
    scenario: Scenario
    problem: Any = None
    algorithm: Any = None

    @property
    def rounds(self) -> int:
        """Those of the scenario."""
        return int(self.scenario.algorithm.rounds)

    def with_tables(self, **tables: Any) -> Scenario:
        """The scenario with other tables, and with the objects."""
        content = {**self.scenario.model_dump(exclude_unset=True), **tables}
        loaded = load_scenario(content, folder=self.scenario.folder)
        return with_objects(loaded, problem=self.problem, algorithm=self.algorithm)

    def with_rounds(self, rounds: int = ROUNDS, **tables: Any) -> Scenario:
        """The same of so many rounds, and of no more than it has."""
        table = self.scenario.algorithm.model_dump(exclude_unset=True)
        table = {**table, "rounds": min(rounds, self.rounds)}
        # Noise that was calibrated to many rounds says nothing here, and device and engine are those of this process.
        return self.with_tables(algorithm=table, run={}, **tables)


def target_of(what: Any) -> tuple[Target, Components]:
    """What is checked, in a scenario, and all that the scenario names.

    Args:
        what: a shipped scenario, a .toml file, a dict or a `Scenario`; a registered algorithm or problem;
            "module:Name"; or an algorithm, a problem or an objective as a Python object, or a class
            without required fields.

    Raises:
        InputError: where nothing is called so, or what it names is not there.
    """
    target = _target(what)
    scenario = target.with_tables()
    if scenario.problem.manifest is not None:
        raise InputError(
            "check: it tries one agent and other graphs, and this scenario's records are with their agents "
            "(problem.manifest). Give problem.data whole, as any public or made-up records, and leave the manifest out."
        )
    # Names are looked up here, so that a wrong one is a mistake of whoever asks, and no fault of a component.
    c = resolve(scenario)
    deal(c, c.topology.make().n_agents)
    return target, c


def _target(what: Any) -> Target:
    if isinstance(what, Scenario | Mapping):
        loaded = load_scenario(what)
        return Target(loaded.title or "the scenario", loaded)
    if isinstance(what, Path):
        return Target(str(what), load_scenario(what))
    if not isinstance(what, str):
        return _of_object(what)
    if what.lower().endswith(".toml") or what in ALGORITHMS:
        return Target(what, load_scenario(what))
    if what in PROBLEMS:
        # In the shortest shipped certified scenario, or in one that is made for it.
        shipped = [load_scenario(name) for name in shipped_names("scenario")]
        fit = [s for s in shipped if s.problem.kind == what and s.privacy.guarantee == "certified"]
        if fit := [s for s in fit if not s.title.startswith("Figure")] or fit:
            return Target(what, min(fit, key=lambda s: s.algorithm.rounds))
        solves = PROBLEMS[what].solves
        table = next((table for table in _PROBLEMS[solves] if table["kind"] == what), {"kind": what})
        return _first_that_builds(what, _around_problem(table, solves))
    if in_module(what) is not None:
        return _of_code(what, component(what, [Path.cwd()], "check"))
    if what in shipped_names("scenario"):
        return Target(what, load_scenario(what))
    known = [*ALGORITHMS, *PROBLEMS, *shipped_names("scenario")]
    raise InputError(
        f"check: nothing is called {quoted(what)}; {nearest(what, known)}. Give an algorithm, a problem, a scenario, "
        'or "module:Name"; a topology, data, a partition or a mechanism is tried by checking a scenario that uses it.'
    )


def _of_code(name: str, code: Any) -> Target:
    if hasattr(code, "step"):
        return _first_that_builds(name, _around_algorithm(entry_of_class(code, name)))
    solves = _problem_type(code, name)
    options = outside.parameters(code, "problem.kind", name) if isinstance(code, type) else {}
    missing = [key for key, option in options.items() if option.default is option.empty]
    if missing:
        raise InputError(
            f"check: {name} has no default for {' and '.join(missing)}, so nothing says what to try. Give a scenario "
            f"that names it and sets {'it' if len(missing) == 1 else 'them'}: a .toml file."
        )
    return _first_that_builds(name, _around_problem({"kind": name}, solves))


def _of_object(what: Any) -> Target:
    name = what.__name__ if isinstance(what, type) else type(what).__name__
    if isinstance(what, type):
        try:
            what = what()
        except TypeError as error:
            raise InputError(
                f"check: {name} has fields without a default ({error}); give an object with all its fields set."
            ) from None
    if hasattr(what, "step"):
        # An object takes the place of an algorithm that is registered.
        around = _around_algorithm(entry_of_class(type(what), name))
        contents = ({**c, "algorithm": {**_ALGORITHMS[c["topology"]["kind"]], "rounds": _TRIAL_ROUNDS}} for c in around)
        return _first_that_builds(name, contents, algorithm=what)
    solves = _problem_type(what, name)
    return _first_that_builds(name, _around_problem(_PROBLEMS[solves][0], solves), problem=what)


def _problem_type(code: Any, name: str) -> outside.ProblemType:
    """As `outside.problem_type`, whose refusal says here what is tried at all."""
    try:
        if (kind := outside.problem_type(code, name)) is None:
            raise InputError(f"{name} is a function. Check a scenario that names it.")
        return kind
    except InputError as error:
        raise InputError(
            f"check: {name} is no algorithm, problem or objective. A topology, data, a partition or a mechanism is "
            f"tried by checking a scenario that uses it. If it is meant as a problem: {error}"
        ) from None


def _around_algorithm(entry: Entry) -> Iterator[dict[str, Any]]:
    """Yield small scenarios of an algorithm."""
    table = tomllib.loads(algorithm_tables(entry))["algorithm"]
    return _scenarios(_PROBLEMS[entry.solves], entry.rules.graph, table)


def _around_problem(table: Content, solves: str) -> Iterator[dict[str, Any]]:
    """Yield small scenarios of a problem."""
    graph = "star" if solves == "minimax" else "ring"
    return _scenarios([table], graph, _ALGORITHMS[graph])


def _scenarios(problems: Iterable[Content], graph: str, algorithm: Content) -> Iterator[dict[str, Any]]:
    for problem, clip in product(problems, _CLIPS):
        yield {
            "seed": 1,
            "problem": {**_DATA, **problem},
            "topology": {"kind": graph, "agents": 4},
            "algorithm": {**algorithm, "rounds": _TRIAL_ROUNDS},
            "privacy": {"epsilon": 4.0, "delta": 1e-5, "clip": dict.fromkeys(clip, 1.0)},
        }


def _first_that_builds(name: str, contents: Iterable[Content], problem: Any = None, algorithm: Any = None) -> Target:
    """The first scenario that builds; where none does, the first that loads, whose refusal then says why."""
    refusal: InputError | None = None
    first: Target | None = None
    for content in contents:
        try:
            target = Target(name, load_scenario(content), problem, algorithm)
        except InputError as error:
            refusal = refusal or error
            continue
        first = first or target
        with suppress(InputError):
            plan_job(resolve(target.with_rounds()))
            return target
    if first is None:
        raise refusal or InputError("check: no scenario fits; give one.")
    return first
