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
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.auditing.targets import Target, target_of
from decentral_dp.config.components import Components, resolve
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.simulation.events import Callback, Reporter
from decentral_dp.simulation.jobs.build import build_job
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.simulation.probing.mechanism import complaint
from decentral_dp.simulation.probing.pairs import deal_trial, made_up_shards
from decentral_dp.simulation.probing.probe import ROUNDS, check_rows, require_planned, tried_pairs
from decentral_dp.simulation.probing.transcript import WatchedRun, on_records, went_wrong
from decentral_dp.simulation.result import plain
from decentral_dp.user_code import USER_ERRORS, UserCodeError

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


def check(
    what: Any,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: Callback | None = None,
    rounds: int | None = None,
) -> CheckResult:
    """Try what a component must keep, on made-up records: nothing real is read by what is checked.

    Args:
        what: a registered algorithm or problem, "module:Name", a scenario (name, file, dict or loaded;
            then all that it names is checked), or an algorithm or problem as a Python object.
        pairs: how many neighbouring data sets with one record replaced the search may try.
        seed: of the search.
        progress: called with a `Progress` of "pairs".
        rounds: how many rounds are tried, from the first on, and no more than there are; by default as many as fit in a
            few seconds, and at least two.

    Returns:
        One row for each check. That nothing was found is no proof: it is labelled "checked".

    Raises:
        InputError: where nothing is called so, or its scenario cannot be read.

    Example:
        >>> import decentral_dp
        >>> found = decentral_dp.check("ldp_dsbo", pairs=4, rounds=2)
        >>> found.passed, [row.name for row in found.rows][:4]
        (True, ['conformance', 'row locality', 'neighbours', 'search'])
    """
    for name, number, least in (("pairs", pairs, 1), ("rounds", rounds, 1), ("seed", seed, 0)):
        if number is not None and (not isinstance(number, int) or number < least):
            raise InputError(f"{name}: got {number!r}, wanted a whole number of at least {least}; or leave it out.")
    target, c = target_of(what)
    conformance, transcript, repeats = _conformance(target, pairs, rounds)
    if transcript is None:
        ran = 0
        names = ("row locality", "neighbours", "search", *_NETWORKS, "noise off", "one agent", "complete graph")
        rest = [CheckRow(name, "", 0, "not tried", why=_NOT_RUNNING) for name in names]
    else:
        ran = transcript.job.rounds
        if repeats:
            compared = [
                *_neighbours(transcript, pairs, seed, progress),
                *_networks(target, pairs, seed, rounds),
            ]
        else:
            names = ("neighbours", "search", *_NETWORKS)
            compared = [CheckRow(name, "", 0, "not tried", why=_RANDOM) for name in names]
        rest = [_row_locality(transcript.job), *compared]
        rest += [*_limits(target, c), *_mechanism(c), *_partition(transcript.job, c)]
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
        return build_job(resolve(target.with_rounds(rounds, **tables)))
    except InputError:
        if rounds > ROUNDS:
            return _job_of_rounds(target, **tables)
        if target.scenario.algorithm.kind not in ALGORITHMS or target.algorithm is not None or tables:
            raise
        return build_job(resolve(target.with_tables()))


def _row_locality(job: PlannedJob) -> CheckRow:
    what = "another record in a batch moves no row but its own"
    try:
        parts = check_rows(job)
    except InputError as error:
        return _tried("row locality", what, str(error))
    if not parts:
        why = "No part of the problem gives rows that can be tried apart; what one record moves, the search tries."
        return CheckRow("row locality", what, 0, "not tried", why=why)
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
    return [_network(target, name, {**graph, **keys}, pairs, seed, rounds) for name, keys in _NETWORKS.items()]


def _network(
    target: Target, name: str, topology: Mapping[str, Any], pairs: int, seed: int, rounds: int | None
) -> CheckRow:
    """The row of one network, whose table is `topology`."""
    what = f"topology.{' and '.join(_NETWORKS[name])}: what neighbours and search try"
    try:
        job = _job_of_rounds(target, rounds or _NETWORK_ROUNDS, topology=topology)
    except InputError as error:
        # A network that the component refuses in a sentence is no fault.
        return CheckRow(name, what, 0, "not tried", why=str(error))
    certified, tried, why = job.scenario.privacy.guarantee == "certified", 0, ""
    try:
        transcript = WatchedRun(job)
        transcript.record(made_up_shards(job.shards, 0))
        for shown in tried_pairs(transcript, pairs // 4, seed):
            tried += 1
            why = why or (_refusal(shown.require_private) if certified else shown.refusal_text)
    except USER_ERRORS as error:
        why = _fault(error, "run")
    return _tried(name, what, why, tried)


def _mechanism(c: Components) -> list[CheckRow]:
    """A row for a mechanism from outside."""
    if not isinstance(c.mechanism, OutsideMechanism):
        return []
    what = "own noise for every key; its deviation; no event shows more than its price"
    try:
        why = complaint(c.mechanism)
    except (InputError, UserCodeError) as error:
        why = str(error)
    return [_tried("mechanism", what, why)]


def _partition(job: PlannedJob, c: Components) -> list[CheckRow]:
    """A row for a partition from outside."""
    if not c.partition.is_outside:
        return []
    problem, reads_labels = deal_trial(c.partition.make(), job.shards)
    reads = "It reads labels, and what it leaks of them no ε covers." if reads_labels else "No label moved a record."
    row = _tried("partition", "one agent for every record, and the same again", problem)
    return [replace(row, why=problem or reads)]


def _limits(target: Target, c: Components) -> list[CheckRow]:
    """No noise; one agent; a complete graph: runs, and gives finite numbers."""
    agents = c.topology.make().n_agents
    cases: Mapping[str, tuple[str, dict[str, Any]]] = {
        "noise off": ('guarantee = "none"', {"privacy": {"guarantee": "none"}}),
        "one agent": ("a graph of one agent", {"topology": {"kind": "complete", "agents": 1}}),
        "complete graph": (f"{agents} agents, all linked", {"topology": {"kind": "complete", "agents": agents}}),
    }
    return [_limit(target, name, f"{what}: runs, finite numbers", tables) for name, (what, tables) in cases.items()]


def _limit(target: Target, name: str, what: str, tables: dict[str, Any]) -> CheckRow:
    try:
        job = _job_of_rounds(target, **tables)
    except InputError as error:
        # What is refused in a sentence is no fault.
        return CheckRow(name, what, 0, "not tried", why=str(error))
    except USER_ERRORS as error:
        return _tried(name, what, _fault(error, "build"))
    try:
        with np.errstate(all="ignore"):
            last = on_records(job, made_up_shards(job.shards, 0), 0).start(LocalEngine()).last_snapshot
    except USER_ERRORS as error:
        return _tried(name, what, f"It does not run: {went_wrong(error)}. Mend it.")
    wrong = [c for c, value in last.released.items() if not np.isfinite(value).all()]
    if wrong or last.divergence is not None:
        channel = wrong[0] if wrong else getattr(last.divergence, "channel", "")
        return _tried(name, what, f"{channel} is not finite after {job.rounds} rounds. Mend it.")
    return _tried(name, what)


Verdict = Literal["checked", "failed", "not tried"]


@dataclass(frozen=True)
class CheckRow:
    """One check. tried: what; pairs: of data sets; ratio: the worst of moved / sensitivity; why: of a failure."""

    name: str
    tried: str
    pairs: int
    verdict: Verdict
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
