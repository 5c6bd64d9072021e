"""The prober: a component from outside, tried on made-up records before it reads anything real.

What an algorithm releases must be what it plans, which is what the budget is the price of, and the same again on the
same records. A row of a problem's own must read its own record alone. Under "certified" all that leaves is compared on
pairs of neighbouring data sets; see `transcript`. `build` tries the few `first_pairs` and `sparse_pairs`, and `check`
searches many more.
No real record is used, and nothing of a trial is kept.

Arrays that Python code of the user's own can see beside its arguments, named for a note.

A loss is tried on made-up records, and may still hold real ones: a file that reads the data when it is imported, a
function that closes over an array, an object with a table in an attribute. Nothing can tell whether such an array is
private. What is found is named; what is not found (what a function reads from a disk when it is called) may be there.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from decentral_dp.bounded import Array, Split
from decentral_dp.errors import InputError
from decentral_dp.models.row_locality import RowWise
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.simulation.jobs.job import Job
from decentral_dp.simulation.probing.pairs import Pair, first_pairs, made_up_shards, searched_pairs, sparse_pairs
from decentral_dp.simulation.probing.transcript import Change, Transcript

# Those that `build` tries: enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2
_PACKAGE = "decentral_dp."


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a pair of data sets showed.

    refusal: why what leaves without noise differs; None where it does not. changes: of what is noised. transcript: of
    the first data set.
    """

    pair: Pair
    refusal: InputError | None
    changes: tuple[Change, ...]
    transcript: Transcript

    @property
    def refusal_text(self) -> str:
        """Why what leaves without noise differs, or ""."""
        return "" if self.refusal is None else str(self.refusal)

    @property
    def worst_change(self) -> Change | None:
        """The value that was changed farthest beyond, or up to, its sensitivity; None where nothing was noised."""
        return max(self.changes, key=lambda c: (not c.is_within, c.ratio, 0.0 < c.sensitivity < np.inf), default=None)

    @property
    def releases(self) -> dict[str, Array]:
        """ "participant/index/channel" → what the first run released, and the second was given. Each is (b, width)."""
        return self.transcript.releases()

    def excess(self, change: Change) -> str:
        """A refusal of a change that is not within its sensitivity."""
        replacement = self.pair.replacement
        split, owner = ("", -1) if replacement is None else (f"{replacement.split} ", replacement.agent)
        whose = "" if change.agent < 0 else f" at agent {change.agent}"
        whose += "" if change.agent in (-1, owner) else ", who does not hold it"
        return (
            f"{self.transcript.component}: one made-up {split}record moves {change.channel} in round {change.round} "
            f"by {change.distance:.6g}{whose}, and {change.sensitivity:.6g} is stated{change.place}; nothing was run. "
            "Clip every record's contribution, let every term be a function of one record, and open no bounded value."
        )

    def require_private(self) -> None:
        """Raise InputError where a record changes more than it may."""
        change = next((c for c in self.changes if not c.is_within), None)
        if change is not None:
            raise InputError(self.excess(change))
        if self.refusal is not None:
            raise self.refusal


def probe(job: Job) -> None:
    """Try what a job takes from outside, as `build` does it. Raises InputError where it does not keep what it must."""
    check_rows(job)
    if not is_rehearsed(job) or job.rounds == 0:
        return
    transcript = Transcript(replace(job, rounds=min(ROUNDS, job.rounds)))
    recorded = transcript.record(made_up_shards(job.shards, 0)).ledger
    transcript.repeat()
    require_planned(transcript, recorded)
    if job.scenario.privacy.guarantee == "certified":
        for comparison in comparisons(transcript):
            comparison.require_private()


def is_rehearsed(job: Job) -> bool:
    """Whether the algorithm is from outside, or a problem whose rows nothing else tries."""
    if job.components.algorithm.origin:
        return True
    if job.scenario.privacy.guarantee != "certified" or not job.components.problem.is_outside:
        return False
    parts = [job.problem, *(getattr(job.problem, part, None) for part in ("objective", "model"))]
    return not all(part is None or type(part).__module__.startswith(_PACKAGE) for part in parts)


def check_rows(job: Job) -> int:
    """Try rows of the user's own losses, formulas and modules, for as many records as the job will evaluate at once.

    Returns:
        How many of these there are; 0 where the guarantee rests on none.

    Raises:
        InputError: where a row reads another record.
    """
    if job.scenario.privacy.guarantee != "certified":
        return 0
    sizes = [int(n) for split in job.counts.values() for n in split if n]
    counts = {min(sizes), max(sizes)} if sizes else set()
    if job.stream.kind == "minibatch" and job.stream.batch:
        counts.add(int(job.stream.batch))
    parts = [part for _, part in components_of(job.problem) if isinstance(part, RowWise)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def require_planned(transcript: Transcript, recorded: Ledger) -> None:
    """Raise InputError where what was recorded is not what is planned, and priced."""
    job, foreign = transcript.job, bool(transcript.job.components.algorithm.origin)
    # Ours release what they plan, and a plan of more rounds may end otherwise than one of few.
    if not foreign and job.rounds < job.ledger.rounds:
        return
    planned = job.ledger.truncate(job.rounds)
    made, listed = ({c.channel for c in ledger.channels} for ledger in (recorded, planned))
    if not job.covers(recorded) or (foreign and made != listed):
        raise InputError(
            f"{transcript.component} releases something else than it plans: {difference(recorded, planned)}"
            f"{transcript.place}; nothing was run. Mend what it states that it releases, or its step."
        )


def comparisons(transcript: Transcript, pairs: int = 0, seed: int = 0) -> Iterator[Comparison]:
    """What the few pairs show of a job, and then so many of a search.

    Args:
        transcript: of the job on the first of the made-up data sets.
        pairs: how many the search tries. seed: of it.
    """
    job = transcript.job
    for pair in first_pairs(job.shards):
        yield _comparison(transcript, pair)
    for pair in sparse_pairs(job.shards):
        yield compare(job, pair)
    search, ratio = searched_pairs(job.shards, pairs, seed), None
    while True:
        try:
            pair = search.send(ratio)
        except StopIteration:
            return
        shown = compare(job, pair)
        yield shown
        ratio = 0.0 if shown.worst_change is None else shown.worst_change.ratio


def compare(job: Job, pair: Pair) -> Comparison:
    """Run both data sets, the second with the released values of the first."""
    transcript = Transcript(job, pair.key)
    try:
        transcript.record(pair.first)
    except InputError as error:
        return Comparison(pair, error, (), transcript)
    return _comparison(transcript, pair)


def _comparison(transcript: Transcript, pair: Pair) -> Comparison:
    refusal = None
    try:
        transcript.compare(pair.second, pair.replacement)
    except InputError as error:
        refusal = error
    return Comparison(pair, refusal, tuple(transcript.changes), transcript)


def difference(recorded: Ledger, planned: Ledger) -> str:
    """The first difference, in words."""
    mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (recorded, planned))
    for name in mine.keys() - theirs.keys():
        return f"it releases {name}, and plans none"
    for name in theirs.keys() - mine.keys():
        return f"it plans to release {name}, and does not"
    for name, made in mine.items():
        plan = theirs[name]
        if made.mechanism != plan.mechanism:
            if not made.mechanism.charged:
                return f"{name} is planned with {plan.mechanism.name} noise and leaves without, as a plain array"
            return f"{name} is planned as {plan.mechanism.name} and released as {made.mechanism.name}"
        if made.dimension != plan.dimension:
            return f"{name} is planned with {plan.dimension} numbers and released with {made.dimension}"
        if made.mechanism.charged and not np.array_equal(made.rounds, plan.rounds):
            return f"{name} is planned at the indices {plan.rounds.tolist()} and released at {made.rounds.tolist()}"
        for split in sorted(made.sensitivity.keys() | plan.sensitivity.keys()):
            if differing := _other_sensitivity(made, plan, split, recorded):
                return differing
    return "rates, groups or prices of the same releases differ"


def _other_sensitivity(made: ChannelLedger, plan: ChannelLedger, split: Split, recorded: Ledger) -> str:
    """The first release that one record of this kind moves by another distance than is planned, in words; or ""."""
    each = [
        c.sensitivity[split][:, c.group] if split in c.sensitivity else np.zeros((c.rounds.size, c.group.size))
        for c in (made, plan)
    ]
    if each[0].shape != each[1].shape:
        return f"{made.channel} is planned for {each[1].shape[1]} agents and released by {each[0].shape[1]}"
    differ = ~np.isclose(each[0], each[1], rtol=1e-9, atol=0.0)
    if not differ.any():
        return ""
    row, agent = (int(k) for k in np.argwhere(differ)[0])
    change, planned = float(each[0][row, agent]), float(each[1][row, agent])
    t = -(-int(made.rounds[row]) // recorded.releases_per_round)
    whose = "" if differ[row].all() else f"agent {agent}: "
    if math.isinf(change):
        return (
            f"{whose}{made.channel} in round {t} carries a mean that was asked at a value that was not released, so "
            f"that nothing bounds how far one {split} record moves it, and {planned:.6g} is planned; ask at what an "
            "exchange gave back, such as own.y"
        )
    return (
        f"{whose}one {split} record moves {made.channel} in round {t} by up to {change:.6g} as recorded, and "
        f"{planned:.6g} is planned"
    )


# Fewer numbers than this are settings.
HANDFUL = 16
# How far objects are followed into each other.
_DEPTH = 4
_OURS = f"{Path(__file__).parents[2]}/"
_LIBRARIES = tuple(
    {path + "/" for key in ("stdlib", "platstdlib", "purelib", "platlib") if (path := sysconfig.get_path(key))}
)


def components_of(component: Any, name: str = "", depth: int = 2 * _DEPTH) -> Iterator[tuple[str, Any]]:
    """Name → a problem and what it is made of: the values of its fields, and of theirs."""
    yield name, component
    if depth == 0 or isinstance(component, type):
        return
    if is_dataclass(component):
        names = [f.name for f in fields(component)]
    elif isinstance(component, tuple):
        names = list(getattr(component, "_fields", ()))
    else:
        return
    for inner in names:
        yield from components_of(getattr(component, inner), inner, depth - 1)


def arrays_seen(*things: Any) -> list[str]:
    """In words, as "`upper_loss` closes over `features`, an array of shape (569, 30)"; each array once.

    Args:
        things: problems, algorithms and functions. Of a problem those parts are looked at that its user wrote.
    """
    visited: set[int] = set()
    out: dict[str, None] = {}
    for thing in things:
        for field, part in components_of(thing):
            if not _is_written(part):
                continue
            is_function = isinstance(part, FunctionType | MethodType)
            name = (field or part.__name__) if is_function else type(part).__name__
            for variable, array in _arrays(part, "", visited, _DEPTH):
                out[f"`{name}` closes over `{variable}`, {array}"] = None
    return list(out)


def _is_written(part: Any) -> bool:
    """Whether one part of a problem is a function, an object or a module that the user wrote."""
    if isinstance(part, FunctionType | MethodType):
        return not _is_foreign(part.__code__.co_filename)
    if isinstance(part, partial) or hasattr(part, "named_buffers"):
        return True
    return not isinstance(part, type) and bool(_methods(part))


def _arrays(value: Any, name: str, visited: set[int], depth: int) -> Iterator[tuple[str, str]]:
    """Variable → what it holds, of everything that a value leads to."""
    if id(value) in visited or value is None or isinstance(value, str | bytes | int | float | type):
        return
    visited.add(id(value))
    described = _describe(value)
    if described is not None:
        if described:
            yield name, described
        return
    if depth == 0:
        return
    for inner, values in _reachable_values(value):
        yield from _arrays(values, inner if not name or inner.isidentifier() else f"{name}{inner}", visited, depth - 1)


def _describe(value: Any) -> str | None:
    """What an array, or a list of numbers, is, in words; "" of one that is small, None of anything else."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and (hasattr(value, "dtype") or hasattr(value, "dtypes")):
        if any(not isinstance(n, int | np.integer) for n in shape):
            return None
        kind = "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        return f"{kind} of shape {tuple(map(int, shape))}" if np.prod(shape, dtype=np.int64) > HANDFUL else ""
    if isinstance(value, list | tuple) and value and all(isinstance(v, int | float) for v in value):
        return f"{len(value)} numbers" if len(value) > HANDFUL else ""
    return None


def _reachable_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Variable → value, of what Python code can reach from a value of the user's own."""
    if isinstance(value, ModuleType):
        return  # `torch.ops` says that it has whatever it is asked for; what a function names of a module is looked up.
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", inner) for key, inner in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{k}]", inner) for k, inner in enumerate(value))
    elif isinstance(value, partial):
        yield from (("func", value.func), *((f"[{k}]", v) for k, v in enumerate(value.args)), *value.keywords.items())
    elif isinstance(value, MethodType):
        yield from (("self", value.__self__), ("func", value.__func__))
    elif isinstance(value, FunctionType):
        if not _is_foreign(value.__code__.co_filename):
            yield from _of_function(value)
    elif hasattr(value, "named_buffers"):
        # A torch module: its trainable parameters are published anyway.
        yield from value.named_buffers()
        yield from ((name, p) for name, p in value.named_parameters() if not p.requires_grad)
        yield from ((f.__name__, f) for part in value.modules() for f in _methods(part))
    else:
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
        yield from ((f.__name__, f) for f in _methods(value))


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, and the globals that it names."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:  # Empty: nothing was assigned yet.
            continue
    arguments = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name in _names(code):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType) and not _is_foreign(getattr(value, "__file__", None) or "<built in>"):
                yield from ((n, getattr(value, n)) for n in _names(code) if hasattr(value, n))


def _names(code: CodeType) -> set[str]:
    """Names that are not local, of a function and of those in it."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _methods(component: Any) -> list[Callable[..., Any]]:
    """The methods of an object that its user wrote."""
    functions = [f for home in type(component).__mro__ for f in vars(home).values() if isinstance(f, FunctionType)]
    return [f for f in functions if not _is_foreign(f.__code__.co_filename)]


def _is_foreign(file: str) -> bool:
    """Whether code is this package's or a library's; what was typed in or made by a dataclass is in no file."""
    return file.startswith((_OURS, "<string>", "<built in>", "<frozen", *_LIBRARIES))
