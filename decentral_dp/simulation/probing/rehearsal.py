"""A rehearsal of a component from outside: the first rounds on made-up records, before it reads anything real.

What an algorithm then releases must be what it plans, which is what the budget is the price of, and the same again on
the same records. Under "certified" the rounds are run on other made-up records, and what leaves without noise must be
the same; see
`neighbour_rehearsal`. No record is used, and nothing of a rehearsal is kept.

A program in a rehearsal: the line of each of its exchanges is known, and what is no exchange is refused by name.

Rehearsals on neighbouring made-up data with the same releases prescribed: what then differs leaves without noise.

The first rehearsal notes everything that leaves a participant: released values, the questions of a coordinator, what is
published, and in which order. Another one, on other made-up records, is given the released values of the first. Plain
arrays, public parts, sensitivities and the sequence of exchanges have to be the same to the bit; and where a single
record was replaced, what is about to be noised may have moved by what its sensitivity says, and no further.

The same records come first, once more: what then differs is randomness, or state that the code keeps, and no reading of
records.

Limits: a few rounds on a few made-up data sets are compared. What an algorithm does in a later round, or at values that
only real records have, is not seen.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.data import Shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import AgentNode, CoordinatorNode, Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError, quoted
from decentral_dp.exchange import Ask, Gossip, Pool, Release, Released
from decentral_dp.files.source_lines import place_in_class
from decentral_dp.models.row_locality import Apart
from decentral_dp.privacy.ledger import ChannelLedger, Ledger
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.probing.closures import components_of
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blamed

_PACKAGE = f"{Path(__file__).parents[2]}/"


class Places(Protocol):
    """Where a program is. place: as ", in line 3 of file.py", or ""; round: of it."""

    place: str
    round: int


class WatchedProgram:
    """A program that tells where it is.

    name: of the component, for refusals.
    """

    def __init__(self, program: Any, places: Places, name: str) -> None:
        self._program = program
        self._places = places
        self._name = name
        self._author = getattr(program, "program", program)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def init(self, known: Any) -> Any:
        """The start. Raises InputError where its state lacks a channel."""
        self._places.place = self._place_of("init")
        state = self._program.init(known)
        for channel in getattr(self._program, "channels", ()):
            if not hasattr(state, channel):
                at = place_in_class(type(self._author), "channels") or self._places.place
                fields = ", ".join(getattr(state, "_fields", ())) or "none"
                raise InputError(
                    f"{self._name}: channels names {quoted(channel)}{at}, wanted a field of the state that init "
                    f"returns: {fields}; nothing was run. Name one of these, or add {channel} to the state."
                )
        return state

    def step(self, t: int, known: Any, s: Any) -> Generator[Any, Any, Any]:
        """One round. Raises InputError where something is yielded that is no exchange, or a round has none."""
        self._places.round = t
        running, reply, made = self._program.step(t, known, s), None, 0
        if not isinstance(running, Generator):
            raise self._no_exchange(f"returns {type(running).__name__} and never yields", self._place_of("step"))
        while True:
            try:
                request = running.send(reply)
            except StopIteration as done:
                if not made and self._gossips:
                    raise self._no_exchange("returns without a yield", self._place_of("step")) from None
                return done.value
            place = _where(running)
            if not isinstance(request, Gossip | Ask | Pool | Release):
                raise self._no_exchange(f"yields {type(request).__name__}", place or self._place_of("step"))
            self._places.place, made = place, made + 1
            if self._gossips and made > (stated := self._program.releases_per_round):
                raise InputError(
                    f"{self._name}: step makes {made} exchanges{place}, wanted {stated} a round; nothing was run. Send "
                    "all channels in one Gossip(x=…, y=…). Several a round are for a class that plans its releases "
                    "itself: with releases_per_round, releases and planned_releases in the place of RELEASES."
                )
            reply = yield request

    @property
    def _gossips(self) -> bool:
        return hasattr(self._program, "channels")

    def _no_exchange(self, what: str, place: str) -> InputError:
        if self._gossips:
            wanted, mend = "one Gossip a round", "own, near = yield Gossip(y=s.y)"
        else:
            wanted, mend = "questions and releases", "g = yield from release_gradients(…)"
        return InputError(
            f"{self._name}: step {what}{place}, wanted {wanted}; nothing was run. Write for example {mend}."
        )

    def _place_of(self, method: str) -> str:
        code = getattr(getattr(self._author, method), "__code__", None)
        return _place(code.co_filename, code.co_firstlineno) if code is not None else ""


def _where(running: Any) -> str:
    """The innermost line of a waiting generator that is not this package's."""
    place = ""
    while running is not None:
        frame = getattr(running, "gi_frame", None)
        if frame is not None:
            place = _place(frame.f_code.co_filename, frame.f_lineno) or place
        running = getattr(running, "gi_yieldfrom", None)
    return place


def _place(file: str, line: int) -> str:
    return "" if file.startswith((_PACKAGE, "<")) else f", in line {line} of {file}"


# What rounding may add to how far one record moves a value, relative to its sensitivity and to the value.
_ROUNDING = 1e-9
_MEND = "send what reads records as the bounded value of a query, which is noised and priced"


class Replaced(NamedTuple):
    """The only record that another data set does not share with the first."""

    agent: int
    split: Split


class Moved(NamedTuple):
    """How far the replaced record moved what one agent is about to release, and what is stated.

    round: of the release. agent: its number; -1 for a coordinator. within: whether `moved` is at most `stated`, but for
    rounding: 10⁻⁹ of what is stated, and of the value.
    """

    channel: str
    round: int
    agent: int
    moved: float
    stated: float
    within: bool

    @property
    def ratio(self) -> float:
        """moved / stated; 0 where nothing is exceeded because nothing is stated, infinite where no number says it."""
        if self.within and self.stated == 0.0:
            return 0.0
        ratio = self.moved / self.stated if self.stated > 0.0 else np.inf
        return float(ratio) if ratio == ratio else np.inf


class Script:
    """What left in the first rehearsal, participant by participant.

    name: of the component, for refusals. replaced: what the data of the present rehearsal differ in; None where all
    records are others, or where they are the same ones. meter: is told how far a replaced record moves each value, and
    nothing is then refused for it.
    """

    def __init__(self, name: str, meter: Callable[[Moved], None] | None = None) -> None:
        self.name = name
        self.meter = meter
        self.replaced: Replaced | None = None
        self.same = False
        self._logs: list[Log] = []
        self._seen: dict[int, Snapshot] = {}
        self._first = True

    def play(self, job: Any, replaced: Replaced | None = None, same: bool = False) -> Outcome:
        """Run the job: the first time as it is, and then with the released values of the first time.

        Args:
            job: on the records of this rehearsal.
            replaced: the only record that they do not share with those of the first one.
            same: whether they are those of the first one.

        Raises:
            InputError: where something that leaves without noise is not what it was; with `same`, anything at all.
        """
        self.replaced, self.same = replaced, same
        control = RunControl(range(job.rounds + 1), self._observe)
        if job.setting == "gossip":
            nodes = [self._agent(k, node) for k, node in enumerate(job.nodes())]
            out = LocalEngine().run(nodes, job.rounds, control)
        else:
            out = LocalEngine().coordinate(self._coordinator(job.coordinator_node()), job.rounds, control)
        for log in self._logs:
            log.close()
        self._first = False
        return out

    @property
    def place(self) -> str:
        """The last exchange that was made, as ", in line 3 of file.py"; "" where it is not known."""
        return self._logs[-1].place if self._logs else ""

    def releases(self) -> dict[str, Array]:
        """ "participant/index/channel" → what was released in the first rehearsal, and is prescribed to others."""
        return {key: value for k, log in enumerate(self._logs) for key, value in log.releases(str(k))}

    def _agent(self, number: int, node: AgentNode) -> AgentNode:
        log = self._log(number, node.agents, node.program.releases_per_round)
        program: Any = WatchedProgram(node.program, log, self.name)
        return node._replace(program=program, make_releaser=partial(_Releaser, node.make_releaser, log))

    def _coordinator(self, node: CoordinatorNode) -> CoordinatorNode:
        log = self._log(0, None, node.program.releases_per_round)
        program: Any = WatchedProgram(node.program, log, self.name)
        blocks = tuple(_Block(block, log) for block in node.client_blocks)
        make: Any = partial(_Releaser, node.make_releaser, log)
        return node._replace(program=program, make_releaser=make, client_blocks=blocks)

    def _log(self, number: int, agents: Any, releases_per_round: int) -> Log:
        if self._first:
            self._logs.append(Log(self, agents, releases_per_round))
        return self._logs[number]

    def _observe(self, now: Snapshot) -> bool:
        if self._first:
            self._seen[now.round] = now
            return False
        before = self._seen[now.round]
        for channel, value in now.released.items():
            if channel not in before.released or not _same(before.released[channel], value):
                if self.same:
                    raise self.chance(f"what is published of {channel} after round {now.round}")
                raise InputError(
                    f"{self.name} publishes {channel} after round {now.round} as a function of records: with the same "
                    f"releases it is another on other made-up records; nothing was run. Publish released values alone."
                )
        return False

    def chance(self, what: str, place: str = "") -> InputError:
        """A refusal of what differs although records and releases are the same."""
        return InputError(
            f"{self.name}: {what} differs between two runs on the same records{place}: it is random, or kept from one "
            "run to the next; nothing was run. Draw public randomness by public numbers, as "
            "numpy.random.default_rng((seed, t)), and keep nothing on the object."
        )


class Left(NamedTuple):
    """What left at one moment. kind: "release", "question" or "records". out: what came back of a release."""

    kind: str
    number: int
    values: Mapping[str, Any]
    out: Any


class Log:
    """What left one participant. place: where its code was then, as ", in line 3 of file.py", or ""; round: of it."""

    def __init__(self, script: Script, agents: Any, releases_per_round: int) -> None:
        self.place, self.round = "", 0
        self._script = script
        self._agents = agents
        self._releases_per_round = releases_per_round
        self._events: list[Left] = []
        self._at = 0
        self._closed = False

    def left(self, now: Left) -> Any:
        """Note it, or compare it with what was noted; gives back what came back of it the first time."""
        if not self._closed:
            self._events.append(now)
            return now.out
        before = self._events[self._at] if self._at < len(self._events) else None
        self._at += 1
        same = before is not None and (before.kind, before.number, list(before.values)) == (
            *(now.kind, now.number),
            list(now.values),
        )
        if before is None or not same:
            raise self._other_exchanges()
        for channel, value in now.values.items():
            self._compare(now, channel, before.values[channel], value)
        return before.out

    def releases(self, participant: str) -> Generator[tuple[str, Array], None, None]:
        """Key and value of each release that was noted."""
        for event in self._events:
            if event.kind == "release":
                bundle = event.out.released if isinstance(event.out, Released) else event.out
                for channel in event.values:
                    yield f"{participant}/{event.number}/{channel}", np.asarray(bundle[channel])

    def close(self) -> None:
        """At the end of a rehearsal. Raises InputError where something is missing."""
        if self._closed and self._at != len(self._events):
            raise self._other_exchanges()
        self._closed, self._at = True, 0

    def _compare(self, now: Left, channel: str, before: Any, value: Any) -> None:
        when = f"{channel} in round {self._round(now)}"
        if self._script.same:
            if not _repeated(before, value):
                raise self._script.chance(when, self.place)
            return
        if type(before) is not type(value):
            raise InputError(
                f"{self._script.name} sends {when} as {type(value).__name__} or as {type(before).__name__}, depending "
                f"on records{self.place}; nothing was run. Let the sequence of exchanges be fixed."
            )
        if isinstance(value, Bounded):
            if not _same(before.public, value.public):
                raise self._free(f"the public part of {when}", "sends")
            if not (before.norm == value.norm and _same(before.sensitivities, value.sensitivities)):
                raise self._free(f"the sensitivity of {when}", "states")
            self._check_moved(when, self._round(now), before, value)
        elif hasattr(value, "draw"):
            known = ("mechanism", "sensitivity", "width")
            if not all(_same(getattr(before, part), getattr(value, part)) for part in known):
                raise self._free(f"the price of {when}", "states")
        elif not _same(before, value):
            raise self._free(when, "asks for" if now.kind == "question" else "sends")

    def check_answers(self, agents: Any, before: Mapping[str, Array], answers: Mapping[str, Array]) -> None:
        """What agents answer who do not hold the replaced record is what they answered before."""
        replaced = self._script.replaced
        if replaced is None:
            return
        others = np.asarray(agents) != replaced.agent
        for name, rows in answers.items():
            with np.errstate(all="ignore"):
                distance = float(np.abs(rows[others] - before[name][others]).max(initial=0.0))
                size = float(np.abs(rows[others]).max(initial=0.0))
            if not distance <= _ROUNDING * size:
                raise InputError(
                    f"{self._script.name}: one made-up {replaced.split} record moves {name} in round {self.round} of "
                    f"agents who do not hold it by {distance:.6g}{self.place}; nothing was run. Let every term be a "
                    "function of one record."
                )

    def _check_moved(self, when: str, number: int, before: Bounded, value: Bounded) -> None:
        """What one record moves is at most its sensitivity, and nothing of another agent."""
        replaced = self._script.replaced
        if replaced is None:
            return
        with np.errstate(all="ignore"):
            here, there = before.private, value.private
            gap = np.where((here == there) | (np.isnan(here) & np.isnan(there)), 0.0, here - there)
            moved = np.abs(gap).sum(axis=1) if value.norm == "l1" else np.sqrt(np.einsum("ij,ij->i", gap, gap))
            size = np.abs(before.private).max(initial=0.0) + np.abs(value.private).max(initial=0.0)
        stated = value.sensitivities.get(replaced.split)
        for row, distance in enumerate(moved):
            mine = self._agents is None or self._agents[row] == replaced.agent
            most = float(stated.sensitivity[row]) if mine and stated is not None else 0.0
            within = bool(distance <= most * (1.0 + _ROUNDING) + _ROUNDING * size)
            if self._script.meter is not None:
                agent = -1 if self._agents is None else int(self._agents[row])
                found = Moved(when.split(" in round ")[0], number, agent, float(distance), most, within)
                self._script.meter(found)
            elif not within:
                whose = "" if mine else f" of agent {int(self._agents[row])}, who does not hold it"
                raise InputError(
                    f"{self._script.name}: one made-up {replaced.split} record moves {when}{whose} by {distance:.6g}, "
                    f"and {most:.6g} is stated{self.place}; nothing was run. Let every term be a function of one "
                    "record, and open no bounded value."
                )

    def _free(self, what: str, does: str) -> InputError:
        return InputError(
            f"{self._script.name} {does} {what} without noise, and it depends on records: with the same releases it is "
            f"another on other made-up records{self.place}; nothing was run. Mend it: {_MEND}."
        )

    def _other_exchanges(self) -> InputError:
        if self._script.same:
            return self._script.chance("the sequence of its exchanges", self.place)
        return InputError(
            f"{self._script.name} makes other exchanges on other made-up records{self.place}; nothing was run. Let "
            "their number, kind and channels be fixed."
        )

    def _round(self, now: Left) -> int:
        return now.number // self._releases_per_round if self._agents is not None else self.round


class _Releaser:
    """A releaser whose values are noted; in a later rehearsal those of the first come back."""

    def __init__(self, make: Any, log: Log) -> None:
        self._inner = make()
        self._log = log

    @property
    def recorder(self) -> Any:
        return self._inner.recorder

    @property
    def mechanism(self) -> Any:
        return self._inner.mechanism

    def release(self, index: int, values: Mapping[str, Any], *sends: Any) -> Any:
        return self._log.left(Left("release", index, dict(values), self._inner.release(index, values, *sends)))

    def ledger(self, releases_per_round: int = 1) -> Any:
        return self._inner.ledger(releases_per_round)


class _Block:
    """Agents of a coordinator, to whom only what is public may go."""

    def __init__(self, inner: Any, log: Log) -> None:
        self._inner = inner
        self._log = log

    def answer(self, number: int, questions: Mapping[str, Any]) -> dict[str, Array]:
        answers: dict[str, Array] = self._inner.answer(number, questions)
        before = self._log.left(Left("question", number, dict(questions), answers))
        self._log.check_answers(self._inner.agents, before, answers)
        return answers

    def hand_over(self) -> Any:
        self._log.left(Left("records", 0, {}, None))
        return self._inner.hand_over()


def _repeated(before: Any, value: Any) -> bool:
    """Whether what left is the same again; what reads records but for rounding."""
    if type(before) is not type(value):
        return False
    if isinstance(value, Bounded):
        with np.errstate(all="ignore"):
            near = np.allclose(before.private, value.private, rtol=_ROUNDING, atol=0.0, equal_nan=True)
        parts = ("public", "norm", "sensitivities")
        return near and all(_same(getattr(before, part), getattr(value, part)) for part in parts)
    if hasattr(value, "draw"):
        return all(_same(getattr(before, part), getattr(value, part)) for part in ("mechanism", "sensitivity", "width"))
    return _same(before, value)


def _same(a: Any, b: Any) -> bool:
    """To the bit, and what is no number like any other that is none."""
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(_same(*pair) for pair in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        here, there = np.asarray(a), np.asarray(b)
        if here.shape != there.shape or here.dtype != there.dtype:
            return False
        return np.array_equal(here, there, equal_nan=here.dtype.kind == "f")
    return bool(a == b)


_OURS = "decentral_dp."
# Enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2
# Where nothing bounds records, one that is replaced is moved so far.
_FAR = 1e3


def needs_rehearsal(job: Any) -> bool:
    """Whether the algorithm is from outside, or a problem whose rows nothing else tries."""
    if job.components.algorithm.origin:
        return True
    if not job.components.problem.is_outside:
        return False
    posed = [job.problem, *(getattr(job.problem, part, None) for part in ("objective", "model"))]
    ours = all(part is None or type(part).__module__.startswith(_OURS) for part in posed)
    return job.scenario.privacy.guarantee == "certified" and not ours


def try_rows(job: Any) -> int:
    """Try rows of the user's own losses, formulas and modules, for as many records as the job will evaluate at once.

    Returns:
        How many of these there are; 0 where the guarantee rests on none.

    Raises:
        InputError: where a row reads another record.
    """
    if job.scenario.privacy.guarantee != "certified":
        return 0
    held = [int(n) for split in job.counts.values() for n in split if n]
    counts = {min(held), max(held)} if held else set()
    if job.stream.kind == "minibatch" and job.stream.batch:
        counts.add(int(job.stream.batch))
    parts = [part for _, part in components_of(job.problem) if isinstance(part, Apart)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def rehearse(job: Any, records_of: Callable[[Shards], Any]) -> None:
    """Run the first rounds on made-up records, and compare what is recorded with what is planned.

    Args:
        job: complete.
        records_of: records of shards as the job's problem reads them.

    Raises:
        InputError: where the component does not run, releases something else than is planned, or lets something that
            depends on records leave without noise.
    """
    rounds, name = min(ROUNDS, job.rounds), component_name(job)
    if rounds == 0:
        return
    shards, script = made_up_shards(job.shards, 0), Script(name)

    def played(made_up: Shards, replaced: Replaced | None = None, same: bool = False) -> Ledger:
        rehearsed = replace(job, records=records_of(made_up), rounds=rounds, root=seeded_root(0, b"rehearsal"))
        return script.play(rehearsed, replaced, same).ledger

    try:
        recorded = played(shards)
        played(shards, same=True)
        planned = job.ledger.until(rounds)
        # Ours release what they plan, and a plan of more rounds may end otherwise than one of few.
        sent, listed = ({c.channel for c in ledger.channels} for ledger in (recorded, planned))
        if job.components.algorithm.origin and not (job.covers(recorded) and sent == listed):
            raise InputError(
                f"{name} releases something else than it plans: {difference(recorded, planned)}{script.place}; nothing "
                "was run. Mend what it states that it releases, or its step."
            )
        if job.scenario.privacy.guarantee == "certified":
            for other, replaced in neighbouring(shards):
                played(other, replaced)
    except InputError:
        raise
    except USER_ERRORS as error:
        raise InputError(
            f"{name} does not run: {went_wrong(error, script.place)}; nothing was run. Mend it."
        ) from error


def component_name(job: Any) -> str:
    """The component that is rehearsed, as a refusal begins."""
    c = job.components
    return f"algorithm.kind: {c.algorithm.kind}" if c.algorithm.origin else f"problem.kind: {c.problem.titled}"


def made_up_shards(shards: Shards, key: int) -> Shards:
    """As many records, of the same shape and within the same bounds, of public random numbers."""
    generator = np.random.Generator(np.random.Philox(key=key))
    n, d = shards.features.shape
    # Below 1 in every norm.
    features = generator.uniform(0.0, 1.0 / d, (n, d))
    if shards.trajectory is not None:
        # Where records are trajectories, labels say how many steps each has.
        labels: Any = np.full(n, shards.trajectory[0])
        return replace(shards, features=key * features, labels=labels.astype(shards.labels.dtype))
    # Class numbers, or numbers below 1.
    drawn = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(drawn) if shards.classes else drawn
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def neighbouring(shards: Shards) -> Iterator[tuple[Shards, Replaced | None]]:
    """All records made up again; then one train and one validation record replaced, of one agent."""
    yield made_up_shards(shards, 1), None
    kinds: tuple[tuple[Split, Any], ...] = (("train", shards.train), ("validation", shards.validation))
    for split, held in kinds:
        agent = next((i for i, index in enumerate(held) if index.size), None)
        if agent is not None:
            yield _with_another(shards, int(held[agent][0])), Replaced(agent, split)


def _with_another(shards: Shards, record: int) -> Shards:
    """With one record replaced, by one as far out as the bounds on records allow."""
    features, labels = shards.features.copy(), shards.labels.copy()
    if shards.trajectory is not None:
        features[record] = 1.0 / features.shape[1]
        return replace(shards, features=features)
    known = [bound for bound in (shards.l1, shards.l2) if bound is not None]
    features[record] = 0.0
    features[record, 0] = -min(known, default=_FAR)
    labels[record] = (labels[record] + 1) % len(shards.classes) if shards.classes else 1.0 - labels[record]
    return replace(shards, features=features, labels=labels)


def went_wrong(error: BaseException, place: str = "") -> str:
    """What went wrong, in words.

    Args:
        error: what was raised.
        place: what stands in the place of the line of the user's own where none is known, such as ", in line 3 of …".
    """
    if isinstance(error, UserCodeError):
        if error.__cause__ is None:
            return str(error).removesuffix(". Mend it there.")
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "scheduled_releaser.py":
        return f"it releases {error.args[0]}, and plans none{place}"
    return blamed(error, place)


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
            if told := _moved_otherwise(made, plan, split, recorded):
                return told
    return "rates, groups or prices of the same releases differ"


def _moved_otherwise(made: ChannelLedger, plan: ChannelLedger, split: Split, recorded: Ledger) -> str:
    """The first release that one record of this kind moves by another distance than is planned, in words; or ""."""
    each = [
        c.sensitivity[split][:, c.group] if split in c.sensitivity else np.zeros((c.rounds.size, c.group.size))
        for c in (made, plan)
    ]
    if each[0].shape != each[1].shape:
        return f"{made.channel} is planned for {each[1].shape[1]} agents and released by {each[0].shape[1]}"
    apart = ~np.isclose(each[0], each[1], rtol=1e-9, atol=0.0)
    if not apart.any():
        return ""
    row, agent = (int(k) for k in np.argwhere(apart)[0])
    found, planned = float(each[0][row, agent]), float(each[1][row, agent])
    t = -(-int(made.rounds[row]) // recorded.releases_per_round)
    whose = "" if apart[row].all() else f"agent {agent}: "
    if math.isinf(found):
        return (
            f"{whose}{made.channel} in round {t} carries a mean that was asked at a value that was not released, so "
            f"that nothing bounds how far one {split} record moves it, and {planned:.6g} is planned; ask at what an "
            "exchange gave back, such as own.y"
        )
    return (
        f"{whose}one {split} record moves {made.channel} in round {t} by up to {found:.6g} as recorded, and "
        f"{planned:.6g} is planned"
    )
