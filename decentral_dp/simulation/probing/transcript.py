"""Transcripts: all that leaves the participants of a job on made-up records, noted once and compared with other runs.

A transcript holds released values, the questions of a coordinator, what is published, and in which order. Another run,
on other records, is given the released values of the first. Plain arrays, public parts, sensitivities and the sequence
of exchanges have to be the same to the bit: what differs leaves without noise and depends on records. Where a single
record was replaced, how far it changes what is about to be noised is noted beside the stated sensitivity.

A run on the same records has to be the same in all: what differs is randomness, or state that the code keeps.

Limits: a few rounds on made-up data sets are compared. What an algorithm does in a later round, or at values that only
real records have, is not seen.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Bounded
from decentral_dp.data import Shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import UNATTENDED, AgentNode, CoordinatorNode, Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.job import PlannedJob, as_numbers, records_in
from decentral_dp.simulation.probing.pairs import Replacement
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# What rounding may add to how far one record changes a value, relative to its sensitivity and to the value.
_ROUNDING = 1e-9


class Change(NamedTuple):
    """How far a replaced record changed what one agent is about to release, and its sensitivity.

    round: of the release. agent: its number; -1 for a coordinator. is_within: whether `distance` is at most
    `sensitivity`, but for rounding: 10⁻⁹ of the sensitivity, and of the value.
    """

    channel: str
    round: int
    agent: int
    distance: float
    sensitivity: float
    is_within: bool

    @property
    def ratio(self) -> float:
        """distance / sensitivity; 0 where nothing is exceeded as none is stated, infinite where no number says it."""
        if self.is_within and self.sensitivity == 0.0:
            return 0.0
        ratio = self.distance / self.sensitivity if self.sensitivity > 0.0 else np.inf
        return float(ratio) if ratio == ratio else np.inf


class WatchedRun:
    """What leaves the participants of a job on made-up records: an engine, which notes it and compares later runs.

    Args:
        job: complete; all its rounds are run.
        key: of the randomness of every run.

    `record` comes first. shards: whose records were noted. changes: those of the last comparison.
    """

    name = "local"

    def __init__(self, job: PlannedJob, key: int = 0) -> None:
        self.job = job
        self.component = component_name(job)
        self.changes: list[Change] = []
        self.replacement: Replacement | None = None
        self.same = False
        self._key = key
        self._logs: list[_Log] = []
        self._snapshots: dict[int, Snapshot] = {}
        self._noted = False

    def record(self, shards: Shards) -> Outcome:
        """Run the job on made-up records, and note what leaves. Raises InputError where it does not run."""
        self.shards = shards
        outcome = self._start(shards, "does not run")
        self._noted = True
        return outcome

    def repeat(self) -> None:
        """Run it on the same records. Raises InputError where anything is not what it was."""
        self._start(self.shards, "does not run a second time", same=True)

    def compare(self, shards: Shards, replacement: Replacement | None = None) -> None:
        """Run it on other records with the same released values, and note what a replaced record changes.

        Args:
            shards: other made-up records, of the same sizes.
            replacement: the only record that they do not share with the noted ones; None where all are others.

        Raises:
            InputError: where something that leaves without noise is not what it was.
        """
        self._start(shards, "fails on some records", replacement)

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run agents here."""
        watched = []
        for k, node in enumerate(nodes):
            log = self._log(k, node, node.agents)
            watched.append(node._replace(**self._watching_parts(node, log)))
        return LocalEngine().run(watched, rounds, control)

    def coordinate(self, node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program here."""
        log = self._log(0, node, None)
        blocks = tuple(_WatchedBlock(block, log) for block in node.client_blocks)
        watched = node._replace(client_blocks=blocks, **self._watching_parts(node, log))
        return LocalEngine().coordinate(watched, rounds, control)

    def chance(self, what: str) -> InputError:
        """A refusal of what differs although records and releases are the same."""
        return InputError(
            f"{self.component}: {what} differs between two runs on the same records: it is random, or kept from "
            "one run to the next; nothing was run. Draw public randomness by public numbers, as "
            "numpy.random.default_rng((seed, t)), and keep nothing on the object."
        )

    def _start(
        self, shards: Shards, failing: str, replacement: Replacement | None = None, same: bool = False
    ) -> Outcome:
        self.replacement, self.same, self.changes = replacement, same, []
        for log in self._logs:
            log.rewind()
        try:
            with np.errstate(all="ignore"):
                job = on_records(self.job, shards, self._key)
                out = job.start(self, RunControl(range(job.rounds + 1), self._observe), strict=False)
                for log in self._logs:
                    log.close()
        except InputError:
            raise
        except USER_ERRORS as error:
            raise InputError(f"{self.component} {failing}: {went_wrong(error)}; nothing was run. Mend it.") from error
        return out

    def _log(self, number: int, node: AgentNode | CoordinatorNode, agents: Any) -> _Log:
        if not self._noted:
            self._logs.append(_Log(self, agents, node.program.releases_per_round))
        return self._logs[number]

    def _watching_parts(self, node: AgentNode | CoordinatorNode, log: _Log) -> dict[str, Any]:
        return {
            "program": _WatchedProgram(node.program, log),
            "make_releaser": partial(_WatchedReleaser, node.make_releaser, log),
        }

    def _observe(self, now: Snapshot) -> bool:
        before = self._snapshots.setdefault(now.round, now)
        for channel, value in now.released.items():
            if channel not in before.released or not _is_same(before.released[channel], value):
                if self.same:
                    raise self.chance(f"what is published of {channel} after round {now.round}")
                raise InputError(
                    f"{self.component} publishes {channel} after round {now.round} as a function of records: with the "
                    "same releases it is another on other made-up records; nothing was run. Publish released values "
                    "alone."
                )
        return False


class _Event(NamedTuple):
    """What left at one moment. kind: "release", "question" or "records". reply: what came back of it."""

    kind: str
    number: int
    values: Mapping[str, Any]
    reply: Any


class _Log:
    """What left one participant. round: the one that runs."""

    def __init__(self, transcript: WatchedRun, agents: Any, releases_per_round: int) -> None:
        self.round = 0
        self._transcript = transcript
        self._agents = agents
        self._releases_per_round = releases_per_round
        self._events: list[_Event] = []
        self._at = 0
        self._closed = False

    def note(self, now: _Event) -> Any:
        """Note it, or compare it with what was noted; gives back what came back of it the first time."""
        if not self._closed:
            self._events.append(now)
            return now.reply
        before = self._events[self._at] if self._at < len(self._events) else None
        self._at += 1
        if before is None or before[:2] != now[:2] or list(before.values) != list(now.values):
            raise self._other_exchanges()
        for channel, value in now.values.items():
            self._compare(now, channel, before.values[channel], value)
        return before.reply

    def close(self) -> None:
        """At the end of a run. Raises InputError where something is missing."""
        if self._closed and self._at != len(self._events):
            raise self._other_exchanges()
        self._closed = True

    def rewind(self) -> None:
        """At the start of a run."""
        self._at = 0

    def check_answers(self, agents: Any, before: Mapping[str, Array], answers: Mapping[str, Array]) -> None:
        """Raise InputError where agents who do not hold the replaced record answer otherwise than before."""
        replacement = self._transcript.replacement
        if replacement is None:
            return
        others = np.asarray(agents) != replacement.agent
        for name, rows in answers.items():
            distance = float(np.abs(rows[others] - before[name][others]).max(initial=0.0))
            if not distance <= _ROUNDING * float(np.abs(rows[others]).max(initial=0.0)):
                raise InputError(
                    f"{self._transcript.component}: one made-up {replacement.split} record moves {name} in round "
                    f"{self.round} of agents who do not hold it by {distance:.6g}; nothing was run. Let "
                    "every term be a function of one record."
                )

    def _compare(self, now: _Event, channel: str, before: Any, value: Any) -> None:
        t = now.number // self._releases_per_round if self._agents is not None else self.round
        when = f"{channel} in round {t}"
        component = self._transcript.component
        same_type = type(before) is type(value)
        parts = _public_parts(value)
        differing = [p for p, part in _public_parts(before).items() if same_type and not _is_same(part, parts[p])]
        if self._transcript.same:
            if not same_type or differing or not _is_close(before, value):
                raise self._transcript.chance(when)
        elif not same_type:
            raise InputError(
                f"{component} sends {when} as {type(value).__name__} or as {type(before).__name__}, depending on "
                f"records; nothing was run. Let the sequence of exchanges be fixed."
            )
        elif differing:
            part = differing[0]
            does = "states" if part in _PRICE_FIELDS else "asks for" if now.kind == "question" and not part else "sends"
            raise InputError(
                f"{component} {does} {part and f'the {part} of '}{when} without noise, and it depends on records: with "
                f"the same releases it is another on other made-up records; nothing was run. Mend it: send "
                "what reads records as the bounded value of a query, which is noised and priced."
            )
        elif isinstance(value, Bounded):
            self._note_changes(channel, t, before, value)

    def _note_changes(self, channel: str, t: int, before: Bounded, value: Bounded) -> None:
        """How far the replaced record changes a value: at most its sensitivity, and nothing of another agent."""
        replacement = self._transcript.replacement
        if replacement is None:
            return
        here, there = before.private, value.private
        gap = np.where((here == there) | (np.isnan(here) & np.isnan(there)), 0.0, here - there)
        distances = np.abs(gap).sum(axis=1) if value.norm == "l1" else np.sqrt(np.einsum("ij,ij->i", gap, gap))
        size = np.abs(here).max(initial=0.0) + np.abs(there).max(initial=0.0)
        sensitivity = value.sensitivities.get(replacement.split)
        for row, distance in enumerate(distances):
            agent = -1 if self._agents is None else int(self._agents[row])
            holds = agent in (-1, replacement.agent)
            most = float(sensitivity.sensitivity[row]) if holds and sensitivity is not None else 0.0
            within = bool(distance <= most * (1.0 + _ROUNDING) + _ROUNDING * size)
            self._transcript.changes.append(Change(channel, t, agent, float(distance), most, within))

    def _other_exchanges(self) -> InputError:
        if self._transcript.same:
            return self._transcript.chance("the sequence of its exchanges")
        return InputError(
            f"{self._transcript.component} makes other exchanges on other made-up records; nothing was "
            "run. Let their number, kind and channels be fixed."
        )


class _WatchedReleaser:
    """A releaser whose values are noted; in a later run those of the first come back."""

    def __init__(self, make: Any, log: _Log) -> None:
        self._inner = make()
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def release(self, index: int, values: Mapping[str, Any], *sends: Any) -> Any:
        return self._log.note(_Event("release", index, dict(values), self._inner.release(index, values, *sends)))


class _WatchedBlock:
    """Agents of a coordinator, to whom only what is public may go."""

    def __init__(self, inner: Any, log: _Log) -> None:
        self._inner = inner
        self._log = log

    def answer(self, number: int, questions: Mapping[str, Any]) -> dict[str, Array]:
        answers: dict[str, Array] = self._inner.answer(number, questions)
        before = self._log.note(_Event("question", number, dict(questions), answers))
        self._log.check_answers(self._inner.agents, before, answers)
        return answers

    def hand_over(self) -> Any:
        self._log.note(_Event("records", 0, {}, None))
        return self._inner.hand_over()


# Parts of a value that state its price.
_PRICE_FIELDS = ("sensitivity", "price")


def _public_parts(value: Any) -> dict[str, Any]:
    """Part → what of a value that leaves no record may change: of a plain array all, under ""."""
    if isinstance(value, Bounded):
        return {"public part": value.public, "sensitivity": (value.norm, value.sensitivities)}
    if hasattr(value, "draw"):
        return {"price": (value.mechanism, value.sensitivity, value.width)}
    return {"": value}


def _is_close(before: Any, value: Any) -> bool:
    """Whether what reads records is the same but for rounding."""
    if not isinstance(value, Bounded):
        return True
    return np.allclose(before.private, value.private, rtol=_ROUNDING, atol=0.0, equal_nan=True)


def _is_same(a: Any, b: Any) -> bool:
    """To the bit, and what is no number like any other that is none."""
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(_is_same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(_is_same(*pair) for pair in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        here, there = np.asarray(a), np.asarray(b)
        if here.shape != there.shape or here.dtype != there.dtype:
            return False
        return np.array_equal(here, there, equal_nan=here.dtype.kind == "f")
    return bool(a == b)


class _WatchedProgram:
    """A program whose rounds are known to its log."""

    def __init__(self, program: Any, log: _Log) -> None:
        self._program = program
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def step(self, t: int, known: Any, s: Any) -> Any:
        self._log.round = t
        return self._program.step(t, known, s)


def on_records(job: PlannedJob, shards: Shards, key: int) -> PlannedJob:
    """The job on made-up records, with randomness that anyone can draw."""
    bounded = replace(shards, labels=as_numbers(shards.labels))
    return replace(job, records=records_in(job.problem, bounded, job.clip.norm), root=seeded_root(key, b"check"))


def component_name(job: PlannedJob) -> str:
    """The component that is tried, as a refusal begins."""
    c = job.components
    return f"algorithm.kind: {c.algorithm.kind}" if c.algorithm.custom else f"problem.kind: {c.problem.name}"


def went_wrong(error: BaseException) -> str:
    """What went wrong, in words."""
    if isinstance(error, UserCodeError):
        if error.__cause__ is None:
            return str(error).removesuffix(". Fix it there.")
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "releasers.py":
        return f"it releases {error.args[0]}, and plans none"
    return blame(error)
