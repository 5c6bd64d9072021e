"""Checks of a component: what it must keep, tried by machine on made-up records.

It builds, releases what it plans, and does so again on the same records; no row reads another record; what leaves
without noise is the same to the bit in two neighbouring worlds; one record moves what is noised by its sensitivity at
most, in a search for the pair that moves it farthest; and it runs at its limits (no noise, one agent, a complete
graph). A mechanism and a partition from outside have rows of their own.

Limits: a check that passes found nothing, and proves nothing. As many rounds are tried as fit in a few seconds, from
the first on, on so many pairs; scores of a selection mechanism are not compared with their sensitivity. Of a topology
and of data from outside nothing is tried. The label says all of this.

What a check of a component found, and the pair of data sets that shows a failure, kept in a file.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from decentral_dp.adversaries.check.targets import Subject, subject
from decentral_dp.algorithms import ALGORITHMS
from decentral_dp.config.checked_files import code_files
from decentral_dp.config.components import Components, resolve
from decentral_dp.config.outside import KEYS
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.mechanisms.outside_mechanism import OutsideMechanism
from decentral_dp.simulation.events import ProgressCallback, Reporter
from decentral_dp.simulation.jobs.build import assemble
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.probing.mechanism import complaint
from decentral_dp.simulation.probing.pairs import Pair, Tried, in_world, pairs_of, play
from decentral_dp.simulation.probing.partition import TRIES, deal_trial
from decentral_dp.simulation.probing.rehearsal import (
    Moved,
    Replaced,
    Script,
    component_name,
    difference,
    made_up_shards,
    neighbouring,
    try_rows,
    went_wrong,
)
from decentral_dp.simulation.result import plain
from decentral_dp.user_code import USER_ERRORS, UserCodeError

Verdict = Literal["checked", "failed", "not tried"]
# Components that run in rounds, and those that have a row of their own; of all others nothing is tried.
_IN_ROUNDS, _BY_ROW = ("algorithm", "problem"), ("mechanism", "partition")
# Rows that a label names where they were not tried.
_NAMED_ROWS = ("two worlds", "search")
# Fields of a result that are written as they are.
_FACTS = ("subject", "pairs", "rounds", "of_rounds", "seed", "version", "date")


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
class Case:
    """A pair of data sets that shows a failure, and what it shows. moved: None where something left without noise."""

    pair: Pair
    shown: Tried
    how: str


@dataclass(frozen=True, eq=False)
class CheckResult:
    """What was tried on a component, and what was found.

    Args:
        subject: what was checked, and `title` of the scenario that it ran in.
        rows: one for each check. pairs: of neighbouring data sets, in all. seed: of their search.
        version: of decentral_dp. date: of the check, as 2026-01-31.
        rounds: how many were run, from the first on. of_rounds: how many there are.
        case: the first pair that shows a failure, where a pair does.
        outside: components that are not of the package.
        files: file of Python code → the components that it defines.

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
    case: Case | None = field(default=None, repr=False)
    outside: tuple[str, ...] = ()
    files: Mapping[Path, tuple[str, ...]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<CheckResult {self.subject!r}: {self.label}>"

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(row.verdict != "failed" for row in self.rows)

    @property
    def label(self) -> str:
        """What may be said afterwards of all that was asked for: what was tried, and what was not."""
        said = "checked" if self.passed else "failed"
        return f"{said} ({self.date}, decentral_dp {self.version}: {self._words((*_IN_ROUNDS, *self.outside))})"

    def label_of(self, components: Sequence[str]) -> str | None:
        """The same of some components, as a file defines them; None where nothing of them was tried and passed."""
        if not self.passed or not any(self._was_tried(one) for one in components):
            return None
        return f"checked ({self.date}, decentral_dp {self.version}: {self._words(components)})"

    def _was_tried(self, component: str) -> bool:
        if component in _IN_ROUNDS:
            return self.rounds > 0 and self.pairs > 0
        return component in _BY_ROW and self._verdict(component) == "checked"

    def _verdict(self, name: str) -> Verdict | None:
        return next((row.verdict for row in self.rows if row.name == name), None)

    def _words(self, components: Sequence[str]) -> str:
        said, rehearsed = [], any(one in _IN_ROUNDS for one in components)
        if rehearsed:
            said.append(f"first {self.rounds} of {self.of_rounds} rounds, {self.pairs} pairs")
        said += [one for one in _BY_ROW if one in components and self._was_tried(one)]
        missed = [one for one in dict.fromkeys(components) if not self._was_tried(one)]
        missed = [one for one in missed if self._verdict(one) != "failed" and (self.rounds or one not in _IN_ROUNDS)]
        missed += [row for row in _NAMED_ROWS if rehearsed and self._verdict(row) == "not tried"]
        return "; ".join([*said, *([f"not: {', '.join(missed)}"] if missed else [])])

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values, but for the pair of a failure and for files; an infinite ratio is the text "inf"."""
        return {
            **{name: plain(getattr(self, name)) for name in (*_FACTS, "outside")},
            "passed": self.passed,
            "label": self.label,
            "how": None if self.case is None else self.case.how,
            "rows": [plain(asdict(row)) for row in self.rows],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> CheckResult:
        """What `to_dict` gave. Raises InputError where it is none of a check."""
        try:
            rows = TypeAdapter(tuple[CheckRow, ...]).validate_python(content["rows"])
            return cls(rows=rows, outside=tuple(content["outside"]), **{name: content[name] for name in _FACTS})
        except (KeyError, TypeError, ValidationError) as error:
            why = " ".join(str(error).split())
            raise InputError(f"check: this is no result of a check ({why}); give one that was written.") from None


def save_case(found: CheckResult, path: Path) -> None:
    """Write the pair that shows a failure: plain arrays, and sentences; nothing of it is pickled.

    Raises InputError where no pair shows one.
    """
    if found.case is None:
        raise InputError("--out: no pair of data sets shows a failure, so there is none to keep; leave --out out.")
    pair, shown = found.case.pair, found.case.shown
    moved = shown.worst
    replaced = pair.replaced if pair.replaced is not None else Replaced(-1, "train")
    facts = {
        "subject": found.subject,
        "how": found.case.how,
        "key": pair.key,
        "agent": replaced.agent,
        "split": replaced.split if pair.replaced is not None else "all records",
        "record": pair.record,
        "channel": "" if moved is None else moved.channel,
        "round": -1 if moved is None else moved.round,
        "moved": 0.0 if moved is None else moved.moved,
        "sensitivity": 0.0 if moved is None else moved.stated,
        "ratio": 0.0 if moved is None else moved.ratio,
        "rounds": found.rounds,
        "version": found.version,
    }
    arrays: dict[str, Any] = {key: np.asarray(value) for key, value in facts.items()}
    for world, shards in (("here", pair.here), ("there", pair.there)):
        arrays[f"features_{world}"], arrays[f"labels_{world}"] = shards.features, shards.labels
    for agent in range(pair.here.n_agents):
        arrays[f"train/{agent}"], arrays[f"validation/{agent}"] = pair.here.train[agent], pair.here.validation[agent]
    arrays |= {f"release/{key}": value for key, value in shown.releases.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


PAIRS = 64
# Rounds are tried as long as all pairs together take no longer, where nobody says how many.
_SECONDS = 6.0
_FEWEST_ROUNDS = 2
_NOT_RUNNING = "It does not build or run, so that this was not tried."
_RANDOM = "Two runs on the same records differ already, so that nothing can be said of neighbouring ones."


def check(
    what: Any,
    pairs: int = PAIRS,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    rounds: int | None = None,
) -> CheckResult:
    """Try what a component must keep, on made-up records: nothing real is read by what is checked.

    Args:
        what: a registered algorithm or problem, "file.py:Name", an entry point, a scenario (name, file, dict or loaded;
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
        (True, ['conformance', 'row locality', 'two worlds', 'search'])
    """
    if not isinstance(pairs, int) or pairs < 1:
        raise InputError(f"pairs: got {pairs!r}, wanted a whole number of at least 1; give for example {PAIRS}.")
    if rounds is not None and (not isinstance(rounds, int) or rounds < 1):
        raise InputError(f"rounds: got {rounds!r}, wanted a whole number of at least 1; leave it out for what fits.")
    asked = subject(what)
    c = resolve(asked.changed())
    job, conformance, repeated = _conformance(asked, pairs, rounds)
    case, tried = None, 0
    if job is None:
        names = ("row locality", "two worlds", "search", "noise off", "one agent", "complete graph")
        rest = [CheckRow(name, "", 0, "not tried", why=_NOT_RUNNING) for name in names]
    else:
        certified = job.scenario.privacy.guarantee == "certified"
        locality = _row_locality(job)
        if repeated:
            two_worlds, search, case = _neighbours(job, pairs, seed, certified, progress)
        else:
            two_worlds, search = (CheckRow(name, "", 0, "not tried", why=_RANDOM) for name in ("two worlds", "search"))
        tried = two_worlds.pairs
        rest = [locality, two_worlds, search, *_limits(asked, c), *_of_noise(c), *_of_deal(job, c)]
    version = importlib.metadata.version("decentral_dp")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    ran = 0 if job is None else job.rounds
    files = code_files(c.files)
    rows, whole = (conformance, *rest), max(ran, asked.rounds)
    named = _outside(asked, c)
    return CheckResult(asked.name, rows, tried, seed, version, today, ran, whole, case, named, files)


def _outside(asked: Subject, c: Components) -> tuple[str, ...]:
    """The components that are not of the package."""
    named = ["algorithm"] * bool(asked.algorithm is not None or c.algorithm.origin)
    named += [what for what in KEYS if getattr(c, what).is_outside]
    return (*named, *["mechanism"] * isinstance(c.mechanism, OutsideMechanism))


def _conformance(asked: Subject, pairs: int, rounds: int | None) -> tuple[Job | None, CheckRow, bool]:
    """The job, None where it does not build or run; whether it releases what it plans; and whether it does so again."""
    what = "builds, runs, releases what it plans, and the same again on the same records"

    def failed(why: str) -> CheckRow:
        return CheckRow("conformance", what, 0, "failed", why=why)

    try:
        job = _short(asked, _fitting(asked, pairs) if rounds is None else rounds)
    except InputError as error:
        return None, failed(str(error)), True
    except USER_ERRORS as error:
        return None, failed(f"It does not build: {went_wrong(error)}. Mend it."), True
    whole = max(job.rounds, asked.rounds)
    what = f"builds, runs the first {job.rounds} of {whole} rounds, releases what it plans, twice"
    script = Script(component_name(job))
    try:
        with np.errstate(all="ignore"):
            outcome = script.play(in_world(job, made_up_shards(job.shards, 0), 0))
        planned = job.ledger.until(job.rounds)
        if not job.covers(outcome.ledger):
            where = difference(outcome.ledger, planned)
            why = f"{component_name(job)} releases something else than it plans: {where}. Mend its plan."
            return job, failed(why), _repeats(job, script) == ""
    except InputError as error:
        return None, failed(str(error)), True
    except USER_ERRORS as error:
        return None, failed(f"{component_name(job)} does not run: {went_wrong(error)}. Mend it."), True
    if why := _repeats(job, script):
        return job, failed(why), False
    return job, CheckRow("conformance", what, 0, "checked"), True


def _repeats(job: Job, script: Script) -> str:
    """Why the same records and releases do not give the same again; "" where they do."""
    try:
        with np.errstate(all="ignore"):
            script.play(in_world(job, made_up_shards(job.shards, 0), 0), same=True)
    except InputError as error:
        return str(error)
    except USER_ERRORS as error:
        return f"{component_name(job)} does not run a second time: {went_wrong(error)}. Mend it."
    return ""


def _fitting(asked: Subject, pairs: int) -> int:
    """How many rounds all pairs can be tried in within `_SECONDS`, from the time that a few take."""
    if asked.rounds <= _FEWEST_ROUNDS:
        return asked.rounds
    job = _short(asked, _FEWEST_ROUNDS)
    plays, build, one = 2 * pairs + 8, math.inf, math.inf
    # The first of them imports and compiles.
    for _ in range(3):
        started = time.perf_counter()
        ready = in_world(job, made_up_shards(job.shards, 0), 0)
        built = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                Script(component_name(job)).play(ready)
        except USER_ERRORS:
            return _FEWEST_ROUNDS  # What is wrong is said where it is tried.
        build = min(build, built - started)
        one = min(one, (time.perf_counter() - built) / max(1, job.rounds))
    return min(asked.rounds, max(_FEWEST_ROUNDS, int((_SECONDS / plays - build) / one)))


def _short(asked: Subject, rounds: int = _FEWEST_ROUNDS, **tables: Any) -> Job:
    """The job of so many rounds; of two or of all, where the algorithm cannot have so many."""
    try:
        return assemble(resolve(asked.short(rounds, **tables)))
    except InputError:
        if rounds > _FEWEST_ROUNDS:
            return _short(asked, **tables)
        if asked.scenario.algorithm.kind not in ALGORITHMS or asked.algorithm is not None or tables:
            raise
        return assemble(resolve(asked.changed()))


def _row_locality(job: Job) -> CheckRow:
    what = "another record in a batch moves no row but its own"
    try:
        parts = try_rows(job)
    except InputError as error:
        return CheckRow("row locality", what, 0, "failed", why=str(error))
    if not parts:
        why = "No part of the problem gives rows that can be tried apart; what one record moves, the search tries."
        return CheckRow("row locality", what, 0, "not tried", why=why)
    return CheckRow("row locality", what, 0, "checked")


def _of_noise(c: Components) -> list[CheckRow]:
    """A row for a mechanism from outside."""
    if not isinstance(c.mechanism, OutsideMechanism):
        return []
    what = "own noise for every key; its deviation; no event shows more than its price"
    try:
        why = complaint(c.mechanism)
    except (InputError, UserCodeError) as error:
        why = str(error)
    return [CheckRow("mechanism", what, 0, "failed" if why else "checked", why=why)]


def _of_deal(job: Job, c: Components) -> list[CheckRow]:
    """A row for a partition from outside."""
    if not c.partition.is_outside:
        return []
    found = deal_trial(c.partition.make(), job.shards)
    what = f"one agent for every record, the same again; {TRIES} replaced labels"
    return [CheckRow("partition", what, 0, "failed" if found.wrong else "checked", why=found.wrong or found.words)]


def _neighbours(
    job: Job, pairs: int, seed: int, certified: bool, progress: ProgressCallback | None
) -> tuple[CheckRow, CheckRow, Case | None]:
    """Two worlds and the search share their pairs; with the first case that shows a failure, a moved value first."""
    free: tuple[Pair, Tried] | None = None
    far: tuple[Pair, Tried, Moved] | None = None
    many, measured, worst = 0, 0, 0.0
    bounded, report = False, Reporter(progress, "pairs")
    base = made_up_shards(job.shards, 0)
    search = pairs_of(job.shards, pairs, seed)
    for other, replaced in neighbouring(base):
        pair = Pair(base, other, 0, replaced)
        shown = play(job, pair)
        many += 1
        free = free or ((pair, shown) if shown.refused else None)
    ratio: float | None = None
    while True:
        try:
            pair = search.send(ratio)
        except StopIteration:
            break
        shown = play(job, pair)
        many, measured = many + 1, measured + 1
        report(measured, pairs)
        if shown.refused and free is None:
            free = (pair, shown)
        found, ratio = shown.worst, 0.0
        if found is not None:
            ratio = found.ratio
            worst = max(worst, ratio)
            bounded = bounded or 0.0 < found.stated < np.inf
            if not found.within and (far is None or (ratio > far[2].ratio and np.isfinite(ratio))):
                far = (pair, shown, found)
    two_worlds = CheckRow(
        "two worlds",
        "the same releases; what leaves without noise is the same to the bit",
        many,
        "failed" if free is not None else "checked",
        why="" if free is None else free[1].refused,
    )
    what = "pairs that drive moved / sensitivity up; at most 1 + 1e-9"
    case = None
    if free is not None:
        case = Case(*free, _how(job, free[0], free[1].refused))
    if not certified:
        why = f"The guarantee is {job.scenario.privacy.guarantee!r}, which bounds nothing that one record moves."
        return two_worlds, CheckRow("search", what, measured, "not tried", None, why), case
    if far is None and not bounded:
        why = "Nothing that is noised and reads records states how far one record moves it."
        return two_worlds, CheckRow("search", what, measured, "not tried", None, why), case
    if far is None:
        return two_worlds, CheckRow("search", what, measured, "checked", worst), case
    pair, shown, found = far
    who = "the coordinator" if found.agent < 0 else f"agent {found.agent}"
    why = (
        f"{component_name(job)}: one {_split(pair)} record moves {found.channel} of {who} in round {found.round} by "
        f"{found.moved:.6g}, and {found.stated:.6g} is stated. Clip every record's contribution."
    )
    return two_worlds, CheckRow("search", what, measured, "failed", worst, why), Case(pair, shown, _how(job, pair, why))


def _split(pair: Pair) -> str:
    return pair.replaced.split if pair.replaced is not None else "made-up"


def _how(job: Job, pair: Pair, why: str) -> str:
    return (
        f"Run {component_name(job)} for {job.rounds} rounds on features_here and labels_here, then on features_there "
        "and labels_there with the same releases (arrays release/participant/index/channel); agents hold the records "
        "that train/AGENT and validation/AGENT number. decentral_dp.adversaries.check.check.again does so. "
        f"Found: {why}"
    )


def _limits(asked: Subject, c: Components) -> list[CheckRow]:
    """No noise; one agent; a complete graph: runs, and gives finite numbers."""
    agents = c.topology.make().n_agents
    cases: Mapping[str, tuple[str, dict[str, Any]]] = {
        "noise off": ('guarantee = "none"', {"privacy": {"guarantee": "none"}}),
        "one agent": ("a graph of one agent", {"topology": {"kind": "complete", "agents": 1}}),
        "complete graph": (f"{agents} agents, all linked", {"topology": {"kind": "complete", "agents": agents}}),
    }
    return [_limit(asked, name, what, tables) for name, (what, tables) in cases.items()]


def _limit(asked: Subject, name: str, what: str, tables: dict[str, Any]) -> CheckRow:
    what = f"{what}: runs, finite numbers"
    try:
        job = _short(asked, **tables)
    except InputError as error:
        # What is refused in a sentence is no fault.
        return CheckRow(name, what, 0, "not tried", why=str(error))
    except USER_ERRORS as error:
        return CheckRow(name, what, 0, "failed", why=f"It does not build: {went_wrong(error)}. Mend it.")
    try:
        ready: Any = in_world(job, made_up_shards(job.shards, 0), 0)
        with np.errstate(all="ignore"):
            last = ready.start(LocalEngine()).last
    except USER_ERRORS as error:
        return CheckRow(name, what, 0, "failed", why=f"It does not run: {went_wrong(error)}. Mend it.")
    wrong = [c for c, value in last.released.items() if not np.isfinite(value).all()]
    if wrong or last.divergence is not None:
        channel = wrong[0] if wrong else getattr(last.divergence, "channel", "")
        return CheckRow(name, what, 0, "failed", why=f"{channel} is not finite after {ready.rounds} rounds. Mend it.")
    return CheckRow(name, what, 0, "checked")


def again(what: Any, path: str | Path) -> Tried:
    """Run the pair of a file that `save_case` wrote, once more.

    Args:
        what: as for `check`.
        path: of the file.

    Raises:
        InputError: where the file is none of these, or belongs to other data.
    """
    try:
        with np.load(path, allow_pickle=False) as kept:
            job = _short(subject(what), int(kept["rounds"]))
            worlds = [
                replace(job.shards, features=kept[f"features_{w}"], labels=kept[f"labels_{w}"])
                for w in ("here", "there")
            ]
            key, agent, split = int(kept["key"]), int(kept["agent"]), str(kept["split"])
            record = int(kept["record"])
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no file that check wrote ({error}). Give the one of --out.") from None
    known: Any = split
    return play(job, Pair(worlds[0], worlds[1], key, Replaced(agent, known) if agent >= 0 else None, record))
