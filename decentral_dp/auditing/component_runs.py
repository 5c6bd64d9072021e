"""Runs of a component on neighbouring made-up data sets, compared release by release.

A transcript holds released values, the questions of a coordinator, what is published, and in which order. Another run,
on other records, is given the released values of the first. Plain arrays, public parts, sensitivities and the sequence
of exchanges have to be the same to the bit: what differs leaves without noise and depends on records. Where a single
record was replaced, how far it changes what is about to be noised is noted beside the stated sensitivity. A run on the
same records has to be the same in all: what differs is randomness, or state that the code keeps.

A few pairs differ in all records, in one train record, and in one validation record; the latter two also among records
that are all 0. There a normaliser shows that counts some records only. A search drives up how far one record changes
what is about to be noised: the record that is replaced has what floats make hard (1e-308 to 1e308, +0 and -0, ties, the
bound on records itself, flipped labels), among random, equal or zero records. Records that are not finite are not
tried: loading refuses them.

What an algorithm releases must be what it plans, and a row of a problem's own must read its own record alone. A custom
partition sees labels and no feature. It is asked twice for the same synthetic labels, and for others. It must give one
agent for every record, and the same again: ledger, plan and a resumed run rest on one partition. A partition that
follows labels is not wrong, but no ε covers what it leaks of them. See docs/add_data.md.

Limits: a few rounds on made-up data sets are compared. What an algorithm does in a later round, or at values that only
real records have, is not seen. Labels of real records may be dealt otherwise, and what a function reads beside its
arguments is not seen.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.data import Shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import UNATTENDED, AgentNode, CoordinatorNode, Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError
from decentral_dp.models.row_locality import RowWise
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.agent_records import as_numbers, records_in
from decentral_dp.simulation.jobs.job import PlannedJob
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# Sizes of a replaced record's largest feature, in the search.
SIZES = (1.0, 1e3, 1e-308, 1e308, 1e-12, 1e6, 1e154, 1e-3)
# How far it is moved in the few pairs, where nothing bounds records.
_FAR_FACTOR = 1e3


class Replacement(NamedTuple):
    """The only record that two data sets do not share, by who holds it."""

    agent: int
    split: Split


@dataclass(frozen=True, eq=False)
class ShardsPair:
    """Two data sets of the same shape.

    key: of the randomness of their runs. replacement: None where all records differ. record: number of the one that
    differs; -1 in the few pairs.
    """

    first: Shards
    second: Shards
    key: int
    replacement: Replacement | None
    record: int = -1


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
    numbers = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(numbers) if shards.classes else numbers
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def equal_shards(shards: Shards, value: float) -> Shards:
    """Return as many records, with one value for all features and 0 for all labels; trajectories as they are.

    Args:
        shards: public sizes.
        value: within the bounds on records.
    """
    if shards.trajectory is not None:
        return shards
    return replace(shards, features=np.full_like(shards.features, value), labels=np.zeros_like(shards.labels))


def first_pairs(shards: Shards) -> Iterator[ShardsPair]:
    """All records made up again; then one train and one validation record replaced, of one agent."""
    here = made_up_shards(shards, 0)
    yield ShardsPair(here, made_up_shards(shards, 1), 0, None)
    yield from _replacements(here)


def sparse_pairs(shards: Shards) -> Iterator[ShardsPair]:
    """One train and one validation record replaced where all others are 0."""
    if shards.trajectory is None:
        yield from _replacements(equal_shards(shards, 0.0))


def _replacements(here: Shards) -> Iterator[ShardsPair]:
    """One record replaced of the first agent that holds one, for each kind of records."""
    for split, indices in _kinds(here):
        agent = next((i for i, index in enumerate(indices) if index.size), None)
        if agent is not None:
            yield ShardsPair(here, _with_far_record(here, int(indices[agent][0])), 0, Replacement(agent, split))


def _kinds(shards: Shards) -> tuple[tuple[Split, Any], ...]:
    """Kind of records → those of each agent, by number."""
    return ("train", shards.train), ("validation", shards.validation)


def _with_far_record(shards: Shards, record: int) -> Shards:
    """With one record replaced, by one as far out as the bounds on records allow."""
    features, labels = shards.features.copy(), shards.labels.copy()
    if shards.trajectory is not None:
        features[record] = 1.0 / features.shape[1]
        return replace(shards, features=features)
    known = [bound for bound in (shards.l1, shards.l2) if bound is not None]
    features[record] = 0.0
    features[record, 0] = -min(known, default=_FAR_FACTOR)
    labels[record] = (labels[record] + 1) % len(shards.classes) if shards.classes else 1.0 - labels[record]
    return replace(shards, features=features, labels=labels)


def searched_pairs(shards: Shards, number: int, seed: int) -> Iterator[ShardsPair]:
    """Yield pairs with one record replaced, which has what floats make hard, by its mirror image or by others."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    pools = [(split, agent) for split, indices in _kinds(shards) for agent, index in enumerate(indices) if index.size]
    for k in range(number if pools else 0):
        # Both kinds of records, with every size and every other record beside it.
        wanted = ("train", "validation")[(k // 2 + k // len(SIZES)) % 2]
        ours = [pool for pool in pools if pool[0] == wanted] or pools
        split, agent = ours[int(rng.integers(len(ours)))]
        index = (shards.train if split == "train" else shards.validation)[agent]
        # A stream reads the first records first; a sample reads any.
        record = int(index[0] if k % 4 < 3 else rng.choice(index))
        base = made_up_shards(shards, k + 1)
        if k % 4 > 1:
            # A normaliser that counts some records only shows where the others are 0 or equal.
            base = equal_shards(base, 0.0 if k % 4 == 2 else 0.5 / base.features.shape[1])
        here, there = (_with_record(shards, base, record, *r) for r in _extremes(shards, base, record, k, rng))
        yield ShardsPair(here, there, k, Replacement(agent, split), record)


def _extremes(shards: Shards, base: Shards, record: int, k: int, rng: np.random.Generator) -> list[tuple[Array, float]]:
    """Return features (d,) and label of both records of a pair."""
    d = shards.features.shape[1]
    size = SIZES[k % len(SIZES)]
    drawn = rng.normal(size=d)
    direction: Array = drawn / np.abs(drawn).max()
    if k % 5 == 1:
        direction = np.eye(d)[int(rng.integers(d))]
    elif k % 5 == 2:
        direction = np.ones(d)  # Ties in every column.
    one, other = _labels(shards, float(base.labels[record]), k, rng)
    features = size * direction
    # Its mirror image, a tie, zeros of both signs, or an ordinary record.
    others = (-features, features, np.where(features > 0.0, 0.0, -0.0), base.features[record])
    against = others[(k + k // len(SIZES)) % len(others)]
    return [(features, one), (against, other)]


def _labels(shards: Shards, label: float, k: int, rng: np.random.Generator) -> tuple[float, float]:
    if shards.trajectory is not None:
        return label, label
    if shards.classes:
        n = len(shards.classes)
        one = int(rng.integers(n))
        return float(one), float((one + (0 if k % 3 == 0 else 1)) % n)
    far = (1.0, 1e6, 0.0, 1e154, 1e-308)[k % 5]
    return far, -far


def _with_record(shards: Shards, base: Shards, record: int, features: Array, label: float) -> Shards:
    """Replace one record, scaled into the bounds that loading sets on every record."""
    largest, factor = float(np.abs(features).max(initial=0.0)), 1.0
    if largest > 0.0:
        unit = features / largest
        for bound, norm in ((shards.l1, float(np.abs(unit).sum())), (shards.l2, float(np.sqrt(unit @ unit)))):
            if bound is not None and largest > bound / norm:
                factor = min(factor, float(bound / norm / largest))
    new_features, labels = base.features.copy(), base.labels.copy()
    new_features[record] = features * factor if factor < 1.0 else features
    labels[record] = label
    return replace(base, features=new_features, labels=labels)


def trial_partition(partition: Callable[..., Any], shards: Shards) -> tuple[bool, bool]:
    """Ask a custom partition for synthetic labels, for the same again, and for others.

    Args:
        partition: function of labels, classes, agents and seed.
        shards: their public sizes are the sizes of the labels.

    Returns:
        Whether it repeats its answer, and whether it reads labels.
    """
    n = int(shards.train_counts.sum() + shards.validation_counts.sum())
    first, again, *others = (
        partition(
            labels=np.resize(made_up_shards(shards, key).labels, n),
            classes=len(shards.classes),
            agents=shards.n_agents,
            seed=0,
        )
        for key in (0, 0, 1, 2)
    )
    return np.array_equal(first, again), not all(np.array_equal(first, other) for other in others)


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
            return str(error).removesuffix(". Mend it there.")
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "releasers.py":
        return f"it releases {error.args[0]}, and plans none"
    return blame(error)


# Enough to meet the start, a step, and a step from where a step led.
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class PairFindings:
    """What a pair of data sets showed.

    refusal: why what leaves without noise differs; None where it does not. changes: of what is noised. transcript: of
    the first data set.
    """

    pair: ShardsPair
    refusal: InputError | None
    changes: tuple[Change, ...]
    transcript: WatchedRun

    @property
    def refusal_text(self) -> str:
        """Why what leaves without noise differs, or ""."""
        return "" if self.refusal is None else str(self.refusal)

    @property
    def worst_change(self) -> Change | None:
        """The value that was changed farthest beyond, or up to, its sensitivity; None where nothing was noised."""
        return max(self.changes, key=lambda c: (not c.is_within, c.ratio, 0.0 < c.sensitivity < np.inf), default=None)

    def excess(self, change: Change) -> str:
        """A refusal of a change that is not within its sensitivity."""
        replacement = self.pair.replacement
        split, owner = ("", -1) if replacement is None else (f"{replacement.split} ", replacement.agent)
        whose = "" if change.agent < 0 else f" at agent {change.agent}"
        whose += "" if change.agent in (-1, owner) else ", who does not hold it"
        return (
            f"{self.transcript.component}: one made-up {split}record moves {change.channel} in round {change.round} "
            f"by {change.distance:.6g}{whose}, and {change.sensitivity:.6g} is stated; nothing was run. "
            "Clip every record's contribution, let every term be a function of one record, and open no bounded value."
        )

    def require_private(self) -> None:
        """Raise InputError where a record changes more than it may."""
        change = next((c for c in self.changes if not c.is_within), None)
        if change is not None:
            raise InputError(self.excess(change))
        if self.refusal is not None:
            raise self.refusal


def check_rows(job: PlannedJob) -> int:
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
    parts = [part for _, part in nested_components(job.problem) if isinstance(part, RowWise)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def require_planned(transcript: WatchedRun, recorded: Ledger) -> None:
    """Raise InputError where what was recorded is not what is planned, and priced."""
    job, foreign = transcript.job, bool(transcript.job.components.algorithm.custom)
    # Ours release what they plan, and a plan of more rounds may end otherwise than one of few.
    if not foreign and job.rounds < job.ledger.rounds:
        return
    planned = job.ledger.truncate(job.rounds)
    made, listed = ({c.channel for c in ledger.channels} for ledger in (recorded, planned))
    if not job.covers(recorded) or (foreign and made != listed):
        raise InputError(
            f"{transcript.component} releases something else than it plans: {difference(recorded, planned)}"
            "; nothing was run. Mend what it states that it releases, or its step."
        )


def tried_pairs(transcript: WatchedRun, pairs: int = 0, seed: int = 0) -> Iterator[PairFindings]:
    """What the few pairs show of a job, and then so many of a search.

    Args:
        transcript: of the job on the first of the made-up data sets.
        pairs: how many the search tries. seed: of it.
    """
    job = transcript.job
    for pair in first_pairs(job.shards):
        yield _comparison(transcript, pair)
    for pair in sparse_pairs(job.shards):
        yield compare_pair(job, pair)
    for pair in searched_pairs(job.shards, pairs, seed):
        yield compare_pair(job, pair)


def compare_pair(job: PlannedJob, pair: ShardsPair) -> PairFindings:
    """Run both data sets, the second with the released values of the first."""
    transcript = WatchedRun(job, pair.key)
    try:
        transcript.record(pair.first)
    except InputError as error:
        return PairFindings(pair, error, (), transcript)
    return _comparison(transcript, pair)


def _comparison(transcript: WatchedRun, pair: ShardsPair) -> PairFindings:
    refusal = None
    try:
        transcript.compare(pair.second, pair.replacement)
    except InputError as error:
        refusal = error
    return PairFindings(pair, refusal, tuple(transcript.changes), transcript)


def difference(recorded: Ledger, planned: Ledger) -> str:
    """Name the first difference between what was released and what is planned."""
    mine, theirs = ({c.channel: c for c in ledger.channels} for ledger in (recorded, planned))
    for name in sorted(mine.keys() ^ theirs.keys()):
        return f"it releases {name}, and plans none" if name in mine else f"it plans {name}, and does not release it"
    for name, made in mine.items():
        plan = theirs[name]
        for what, one, other in (
            ("mechanism", made.mechanism.name, plan.mechanism.name),
            ("coordinates", made.dimension, plan.dimension),
            ("agents", made.group.size, plan.group.size),
            ("rounds", made.rounds.tolist(), plan.rounds.tolist()),
        ):
            if one != other and (what != "rounds" or made.mechanism.charged):
                return f"{what} of {name}: {one} as released, {other} as planned"
        for split in sorted(made.sensitivity.keys() | plan.sensitivity.keys()):
            none = np.zeros((made.rounds.size, 1))
            moved, stated = (
                c.sensitivity.get(split, none)[:, c.group if split in c.sensitivity else 0 * c.group]
                for c in (made, plan)
            )
            differ = ~np.isclose(moved, stated, rtol=1e-9, atol=0.0)
            if differ.any():
                row, agent = (int(k) for k in np.argwhere(differ)[0])
                unreleased = "" if np.isfinite(moved[row, agent]) else "; a mean at an unreleased value has no bound"
                return (
                    f"one {split} record of agent {agent} moves {name} in round "
                    f"{-(-int(made.rounds[row]) // recorded.releases_per_round)} by up to {moved[row, agent]:.6g} as "
                    f"recorded, and by {stated[row, agent]:.6g} as planned{unreleased}"
                )
    return "rates or prices of the same releases differ"


# How far objects are followed into each other.
_DEPTH = 8


def nested_components(component: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
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
        yield from nested_components(getattr(component, inner), inner, depth - 1)
