"""Runs of a component on neighbouring synthetic data sets, compared release by release.

A first run records released values, queries of a coordinator, published values, and their order. A second run, on
other records, receives the released values of the first. Plain arrays, public parts, sensitivities and the sequence of
exchanges must be bitwise equal: a difference would be sent without noise and depends on records. If one record is
replaced, its change of every noisy value is compared with the stated sensitivity. A run on the same records must repeat
all values. A difference indicates randomness or stored state in the code.

Pairs differ in all records, in one train record, or in one validation record. In sparse pairs all other records are 0,
which exposes a normaliser that counts only some records. A search looks for the pair with the largest change: its
record has extreme floats (1e-308 to 1e308, +0 and -0, ties, the bound on records, flipped labels), among random, equal
or zero records. An ascent then starts from two records at the bound, equal or mirrored, in a plane of two features. It
rotates them, changes their labels, and adds public noise to the releases: some terms attain their bound only at a large
released value, and a guarantee holds for all released values.

A custom partition receives labels and no features. It must return the same agents for the same labels, since ledger,
plan and a resumed run assume one partition. A partition that reads labels is allowed, but ε does not cover its leakage.

Limits: only the first rounds run, on synthetic records. Real labels may be partitioned differently. Data that a
function reads in addition to its arguments are not observed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from decentral_dp.bounded import Array, Bounded, Split
from decentral_dp.data import Shards
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import UNATTENDED, AgentNode, CoordinatorNode, Outcome, RunControl, Snapshot
from decentral_dp.errors import InputError, converting
from decentral_dp.exchange import Bundle
from decentral_dp.models.row_locality import RowWise
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.privacy.randomness import seeded_root
from decentral_dp.simulation.jobs.job import PlannedJob, records_in
from decentral_dp.user_code import USER_ERRORS, UserCodeError, blame

# Number of rounds that covers the start, a step, and a step from a released value.
ROUNDS = 2
# Sizes of the largest feature of a replaced record.
SIZES = (1.0, 1e3, 1e-308, 1e308, 1e-12, 1e6, 1e154, 1e-3)
# Size of a replaced record in the first pairs, if records are unbounded.
_FAR = 1e3
# Sizes of an unbounded record, and standard deviations of noise that is added to releases, in an ascent.
_CLIMB_SIZES = (1.0, 30.0, _FAR)
_SPREADS = (0.0, 0.3, 3.0, 30.0)
# Proposals of an ascent: angles of a rotation, and the share of new starts.
_ANGLES = (0.03, 0.1, 0.3, 1.0)
_NEW_STARTS = 0.25
# Tolerance of a change for rounding, relative to its sensitivity and to the value.
_ROUNDING = 1e-9
# Fields of a value that state its privacy cost.
_PRICE_FIELDS = ("sensitivity", "price")
# Levels of nesting in which parts of a problem are found.
_DEPTH = 8


class Replacement(NamedTuple):
    """Agent and split of the only record in which two data sets differ."""

    agent: int
    split: Split


@dataclass(frozen=True, eq=False)
class ShardsPair:
    """Pair of data sets of the same shape.

    Args:
        first, second: data sets.
        key: key of the randomness in their runs.
        replacement: agent and split of the record that differs, or None if all records differ.
        record: index of the record that differs; -1 outside the search.
        spread: standard deviation of noise added to releases.
    """

    first: Shards
    second: Shards
    key: int
    replacement: Replacement | None
    record: int = -1
    spread: float = 0.0


def synthetic_shards(shards: Shards, key: int) -> Shards:
    """Draw the same number of public random records, with the same shape and bounds."""
    generator = np.random.Generator(np.random.Philox(key=key))
    n, d = shards.features.shape
    # Below 1 in every norm.
    features = generator.uniform(0.0, 1.0 / d, (n, d))
    if shards.trajectory is not None:
        # Labels of trajectories are their numbers of steps.
        labels: Any = np.full(n, shards.trajectory[0])
        return replace(shards, features=key * features, labels=labels.astype(shards.labels.dtype))
    # Class numbers, or numbers below 1.
    numbers = generator.uniform(0.0, max(1, len(shards.classes)), n)
    labels = np.floor(numbers) if shards.classes else numbers
    return replace(shards, features=features, labels=labels.astype(shards.labels.dtype))


def constant_shards(shards: Shards, value: float) -> Shards:
    """Set all features to one value and all labels to 0. Trajectories remain unchanged."""
    if shards.trajectory is not None:
        return shards
    return replace(shards, features=np.full_like(shards.features, value), labels=np.zeros_like(shards.labels))


def replaced_pairs(base: Shards) -> Iterator[ShardsPair]:
    """Yield pairs in which the first agent with records in a split has one of them replaced by one at the bounds."""
    for split, indices in _list_splits(base):
        agent = next((i for i, index in enumerate(indices) if index.size), None)
        if agent is None:
            continue
        record = int(indices[agent][0])
        features, labels = base.features.copy(), base.labels.copy()
        if base.trajectory is not None:
            features[record] = 1.0 / features.shape[1]
        else:
            features[record] = 0.0
            features[record, 0] = -min((bound for bound in (base.l1, base.l2) if bound is not None), default=_FAR)
            labels[record] = (labels[record] + 1) % len(base.classes) if base.classes else 1.0 - labels[record]
        yield ShardsPair(base, replace(base, features=features, labels=labels), 0, Replacement(agent, split))


def _list_splits(shards: Shards) -> tuple[tuple[Split, Any], ...]:
    """Return each split with the record indices of every agent."""
    return ("train", shards.train), ("validation", shards.validation)


def searched_pairs(shards: Shards, number: int, seed: int) -> Iterator[ShardsPair]:
    """Yield pairs in which a record with extreme floats is replaced by its negation or by another record."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    holders = [
        (split, agent) for split, indices in _list_splits(shards) for agent, index in enumerate(indices) if index.size
    ]
    for k in range(number if holders else 0):
        # Test both splits with every size and every other record.
        next_split = ("train", "validation")[(k // 2 + k // len(SIZES)) % 2]
        choices = [holder for holder in holders if holder[0] == next_split] or holders
        split, agent = choices[int(rng.integers(len(choices)))]
        index = (shards.train if split == "train" else shards.validation)[agent]
        # A stream reads the first records first; a sample may read any.
        record = int(index[0] if k % 4 < 3 else rng.choice(index))
        base = synthetic_shards(shards, k + 1)
        if k % 4 > 1:
            base = constant_shards(base, 0.0 if k % 4 == 2 else 0.5 / base.features.shape[1])
        first, second = (
            _replace_record(shards, base, record, *r) for r in _draw_extremes(shards, base, record, k, rng)
        )
        yield ShardsPair(first, second, k, Replacement(agent, split), record)


def _draw_extremes(
    shards: Shards, base: Shards, record: int, k: int, rng: np.random.Generator
) -> list[tuple[Array, float]]:
    """Return features (d,) and label of both records of a pair."""
    d, size = shards.features.shape[1], SIZES[k % len(SIZES)]
    direction: Array = np.asarray(rng.normal(size=d))
    direction = direction / np.abs(direction).max()
    if k % 5 == 1:
        direction = np.eye(d)[int(rng.integers(d))]
    elif k % 5 == 2:
        direction = np.ones(d)  # Ties in every column.
    label = float(base.labels[record])
    labels = (label, label)
    if shards.trajectory is None and shards.classes:
        n = len(shards.classes)
        number = int(rng.integers(n))
        labels = float(number), float((number + (0 if k % 3 == 0 else 1)) % n)
    elif shards.trajectory is None:
        far = (1.0, 1e6, 0.0, 1e154, 1e-308)[k % 5]
        labels = far, -far
    features = size * direction
    # The negation, a tie, zeros of both signs, or an ordinary record.
    values = (-features, features, np.where(features > 0.0, 0.0, -0.0), base.features[record])
    return [(features, labels[0]), (values[(k + k // len(SIZES)) % len(values)], labels[1])]


def _replace_record(shards: Shards, base: Shards, record: int, features: Array, label: float) -> Shards:
    """Replace one record, scaled into the bounds that loading sets on every record."""
    largest, factor = float(np.abs(features).max(initial=0.0)), 1.0
    if largest > 0.0:
        unit = features / largest
        for bound, norm in ((shards.l1, float(np.abs(unit).sum())), (shards.l2, float(np.sqrt(unit @ unit)))):
            if bound is not None and largest > bound / norm:
                factor = min(factor, float(bound / norm / largest))
    all_features, labels = base.features.copy(), base.labels.copy()
    all_features[record] = features * factor if factor < 1.0 else features
    labels[record] = label
    return replace(base, features=all_features, labels=labels)


class _Point(NamedTuple):
    """Pair of an ascent: replaced record, features (2, d) and labels of both records, key and spread of the runs."""

    replacement: Replacement
    features: Array
    labels: tuple[float, float]
    key: int
    spread: float

    def make_pair(self, shards: Shards) -> ShardsPair:
        """Return the data sets, among random records."""
        record = int(getattr(shards, self.replacement.split)[self.replacement.agent][0])
        base = synthetic_shards(shards, self.key)
        first, second = (
            _replace_record(shards, base, record, *r) for r in zip(self.features, self.labels, strict=True)
        )
        return ShardsPair(first, second, self.key, self.replacement, record, self.spread)


def _draw_start(shards: Shards, split: Split, rng: np.random.Generator) -> _Point:
    """Draw a record in a plane of two features, and an equal or mirrored record."""
    agent = int(rng.choice([i for i, index in enumerate(getattr(shards, split)) if index.size]))
    d = shards.features.shape[1]
    record = np.zeros(d)
    record[rng.choice(d, min(d, 2), replace=False)] = rng.normal(size=min(d, 2))
    size = min((b for b in (shards.l1, shards.l2) if b is not None), default=float(rng.choice(_CLIMB_SIZES)))
    # The pair scales it down to its bounds.
    record *= 2.0 * size / np.linalg.norm(record)
    features = np.stack([record, rng.choice([-1.0, 1.0]) * record])
    key, spread = int(rng.integers(2**31)), float(rng.choice(_SPREADS))
    return _Point(Replacement(agent, split), features, _draw_labels(shards, rng), key, spread)


def _draw_labels(shards: Shards, rng: np.random.Generator) -> tuple[float, float]:
    first, second = rng.integers(len(shards.classes), size=2) if shards.classes else rng.choice([-_FAR, _FAR], size=2)
    return float(first), float(second)


def _move_point(shards: Shards, point: _Point, rng: np.random.Generator) -> _Point:
    """Rotate a record in its plane, or change the labels or the noise."""
    kind = int(rng.integers(6))
    if kind == 4:
        return point._replace(labels=_draw_labels(shards, rng))
    if kind == 5:
        return point._replace(spread=float(rng.choice(_SPREADS)))
    features = point.features.copy()
    record = features[kind % 2]
    move = np.where(record == 0.0, 0.0, rng.normal(size=record.size))
    record += rng.choice(_ANGLES) * np.linalg.norm(record) * move
    return point._replace(features=features)


def trial_partition(partition: Callable[..., Any], shards: Shards) -> tuple[bool, bool]:
    """Call a custom partition on synthetic labels, on the same labels again, and on other labels.

    Args:
        partition: function of labels, classes, agents and seed.
        shards: shards whose public sizes determine the synthetic labels.

    Returns:
        Whether the partition is deterministic, and whether it reads labels.
    """
    n = int(shards.train_counts.sum() + shards.validation_counts.sum())
    first, again, *repetitions = (
        partition(
            labels=np.resize(synthetic_shards(shards, key).labels, n),
            classes=len(shards.classes),
            agents=shards.n_agents,
            seed=0,
        )
        for key in (0, 0, 1, 2)
    )
    return np.array_equal(first, again), not all(np.array_equal(first, repetition) for repetition in repetitions)


class Change(NamedTuple):
    """Change of an agent's noisy value when a record is replaced, compared with the stated sensitivity.

    Args:
        channel: channel of the release.
        round: round of the release.
        agent: index of the agent; -1 for a coordinator.
        distance: distance between the two values in the norm of the mechanism.
        sensitivity: stated sensitivity.
        is_within: whether the distance is at most the sensitivity, up to rounding.
    """

    channel: str
    round: int
    agent: int
    distance: float
    sensitivity: float
    is_within: bool

    @property
    def ratio(self) -> float:
        """Ratio of the distance to the sensitivity. It is 0 if both are 0, and infinite for NaN."""
        if self.is_within and self.sensitivity == 0.0:
            return 0.0
        ratio = self.distance / self.sensitivity if self.sensitivity > 0.0 else np.inf
        return float(ratio) if ratio == ratio else np.inf


class WatchedRun:
    """Engine that records all values that participants send, and compares later runs with this recording.

    Call `record` first.

    Args:
        job: job, of which all rounds are run.
        key: key of the randomness of every run.
        spread: standard deviation of the public noise that is added to noisy releases.
    """

    name = "local"

    def __init__(self, job: PlannedJob, key: int = 0, spread: float = 0.0) -> None:
        self.job = job
        self.spread = spread
        self.changes: list[Change] = []
        self.replacement: Replacement | None = None
        self.repeats = False
        self.key = key
        self._logs: list[_Log] = []
        self._snapshots: dict[int, Snapshot] = {}
        self._is_recorded = False

    def record(self, shards: Shards) -> Outcome:
        """Run the job on records, and record all sent values. Raises InputError if it does not run."""
        self.shards = shards
        outcome = self._start(shards, "does not run")
        self._is_recorded = True
        return outcome

    def repeat(self) -> None:
        """Run the job on the same records. Raises InputError if anything differs."""
        self._start(self.shards, "does not run a second time", repeats=True)

    def compare(self, shards: Shards, replacement: Replacement | None = None) -> None:
        """Run the job on other records with the same released values, and measure the changes that the record causes.

        Args:
            shards: other records, of the same sizes.
            replacement: the only record that differs, or None if all records differ.

        Raises:
            InputError: a noiseless value differs.
        """
        self._start(shards, "fails on some records", replacement)

    def run(self, nodes: Sequence[AgentNode], rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run agents in this process."""
        watchers = [self._watch(node, self._log(k, node, node.agents)) for k, node in enumerate(nodes)]
        return LocalEngine().run(watchers, rounds, control)

    def coordinate(self, node: CoordinatorNode, rounds: int, control: RunControl = UNATTENDED) -> Outcome:
        """Run a trusted coordinator's program in this process."""
        log = self._log(0, node, None)
        blocks = tuple(_WatchedBlock(block, log) for block in node.client_blocks)
        return LocalEngine().coordinate(self._watch(node, log)._replace(client_blocks=blocks), rounds, control)

    def refusal(self, problem: str, fix: str) -> InputError:
        """Build the error of a component, with the problem and a fix."""
        c = self.job.components
        key, name = ("problem", c.problem.name) if c.algorithm.proved else ("algorithm", c.algorithm.kind)
        return InputError(f"{key}.kind: {name} {problem}. Fix: {fix}.")

    def difference_refusal(self, value: str, problem: str, fix: str) -> InputError:
        """Build the error of a value that differs from the recorded one.

        Args:
            value: name of the value.
            problem, fix: texts of the error if the records differ, too.
        """
        if not self.repeats:
            return self.refusal(problem, fix)
        return self.refusal(
            f"is random, or keeps state: {value} differs between two runs on the same records",
            "draw public randomness from public numbers, as numpy.random.default_rng((seed, t)), and keep nothing on "
            "the object",
        )

    def _start(
        self, shards: Shards, failure: str, replacement: Replacement | None = None, repeats: bool = False
    ) -> Outcome:
        self.replacement, self.repeats, self.changes = replacement, repeats, []
        for log in self._logs:
            log.position = 0
        fails = converting(
            USER_ERRORS, lambda error: str(self.refusal(f"{failure}: {describe_error(error)}", "correct the code"))
        )
        with fails, np.errstate(all="ignore"):
            shards_in_bounds = replace(shards, labels=np.asarray(shards.labels, dtype=np.float64))
            records = records_in(self.job.problem, shards_in_bounds, self.job.clip.norm)
            job = replace(self.job, records=records, root=seeded_root(self.key, b"check"))
            outcome = job.start(self, RunControl(range(job.rounds + 1), self._observe), strict=False)
            for log in self._logs:
                log.close()
        return outcome

    def _log(self, number: int, node: AgentNode | CoordinatorNode, agents: Any) -> _Log:
        if not self._is_recorded:
            self._logs.append(_Log(self, agents, node.program.releases_per_round))
        return self._logs[number]

    def _watch(self, node: Any, log: _Log) -> Any:
        return node._replace(
            program=_WatchedProgram(node.program, log),
            make_releaser=partial(_WatchedReleaser, node.make_releaser, log),
        )

    def _observe(self, snapshot: Snapshot) -> bool:
        before = self._snapshots.setdefault(snapshot.round, snapshot)
        for channel, value in snapshot.released.items():
            if channel not in before.released or not _is_same(before.released[channel], value):
                raise self.difference_refusal(
                    f"published {channel} after round {snapshot.round}",
                    f"publishes {channel} after round {snapshot.round} without noise, and it depends on "
                    "records: it changes with the records if the releases stay the same",
                    "publish only released values",
                )
        return False


class _Event(NamedTuple):
    """Values sent in one event of kind "release", "question" or "records", and the reply to them."""

    kind: str
    number: int
    values: Mapping[str, Any]
    reply: Any


class _Log:
    """Events of one participant, the position of the next event, and the current round."""

    def __init__(self, run: WatchedRun, agents: Any, releases_per_round: int) -> None:
        self.round = self.position = 0
        self._run = run
        self._agents = agents
        self._releases_per_round = releases_per_round
        self._events: list[_Event] = []
        self._is_closed = False

    def add(self, event: _Event) -> Any:
        """Record an event, or compare it with the recorded event, and return the recorded reply."""
        if not self._is_closed:
            self._events.append(event)
            return event.reply
        before = self._events[self.position] if self.position < len(self._events) else None
        self.position += 1
        if before is None or before[:2] != event[:2] or list(before.values) != list(event.values):
            raise self._sequence_refusal()
        for channel, value in event.values.items():
            self._compare(event, channel, before.values[channel], value)
        return before.reply

    def close(self) -> None:
        """End a run. Raises InputError if an event is missing."""
        if self._is_closed and self.position != len(self._events):
            raise self._sequence_refusal()
        self._is_closed = True

    def spread(self, index: int, values: Mapping[str, Any], reply: Any) -> Any:
        """Return the reply to a release with the public noise of the run added to its noisy channels."""
        if not self._run.spread:
            return reply
        bundle = reply if isinstance(reply, Bundle) else reply.released
        noise = np.random.default_rng([self._run.key, index])
        wide = Bundle(
            {
                c: v + noise.normal(scale=self._run.spread, size=v.shape) if isinstance(values[c], Bounded) else v
                for c, v in bundle.items()
            }
        )
        return wide if bundle is reply else reply._replace(released=wide)

    def check_answers(self, agents: Any, before: Mapping[str, Array], answers: Mapping[str, Array]) -> None:
        """Raise InputError if agents without the replaced record answer differently."""
        replacement = self._run.replacement
        if replacement is None:
            return
        is_other_agent = np.asarray(agents) != replacement.agent
        for name, rows in answers.items():
            distance = float(np.abs(rows[is_other_agent] - before[name][is_other_agent]).max(initial=0.0))
            if not distance <= _ROUNDING * float(np.abs(rows[is_other_agent]).max(initial=0.0)):
                raise self._run.refusal(
                    f"lets one {replacement.split} record of another agent change {name} in round "
                    f"{self.round} by {distance:.6g} (expected 0)",
                    "let every term be a function of one record",
                )

    def _compare(self, event: _Event, channel: str, before: Any, value: Any) -> None:
        t = event.number // self._releases_per_round if self._agents is not None else self.round
        place = f"{channel} in round {t}"
        same_type = type(before) is type(value)
        parts = _public_parts(value)
        differing = [p for p, part in _public_parts(before).items() if same_type and not _is_same(part, parts[p])]
        if self._run.repeats and same_type and isinstance(value, Bounded):
            is_close = np.allclose(before.private, value.private, rtol=_ROUNDING, atol=0.0, equal_nan=True)
            differing += [] if is_close else ["private part"]
        if not same_type:
            raise self._run.difference_refusal(
                place,
                f"sends {place} as {type(value).__name__} or as {type(before).__name__}, depending on records",
                "make the sequence of exchanges independent of records",
            )
        if differing:
            part = differing[0]
            verb = "asks for" if event.kind == "question" and not part else "sends"
            verb = "states" if part in _PRICE_FIELDS else verb
            raise self._run.difference_refusal(
                place,
                f"{verb} {part and f'the {part} of '}{place} without noise, and it depends on records: it changes "
                "with the records if the releases stay the same",
                "send values that read records as the bounded value of a query",
            )
        if isinstance(value, Bounded) and self._run.replacement is not None:
            replacement, first, second = self._run.replacement, before.private, value.private
            gap = np.where((first == second) | (np.isnan(first) & np.isnan(second)), 0.0, first - second)
            distances = np.abs(gap).sum(axis=1) if value.norm == "l1" else np.sqrt(np.einsum("ij,ij->i", gap, gap))
            size = np.abs(first).max(initial=0.0) + np.abs(second).max(initial=0.0)
            sensitivity = value.sensitivities.get(replacement.split)
            for row, distance in enumerate(distances):
                agent = -1 if self._agents is None else int(self._agents[row])
                holds = agent in (-1, replacement.agent)
                most = float(sensitivity.sensitivity[row]) if holds and sensitivity is not None else 0.0
                within = bool(distance <= most * (1.0 + _ROUNDING) + _ROUNDING * size)
                self._run.changes.append(Change(channel, t, agent, float(distance), most, within))

    def _sequence_refusal(self) -> InputError:
        return self._run.difference_refusal(
            "the sequence of its exchanges",
            "makes other exchanges on other records",
            "fix their number, kind and channels",
        )


class _WatchedReleaser:
    """Releaser that records its values, and returns them in later runs."""

    def __init__(self, make: Any, log: _Log) -> None:
        self._inner = make()
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def release(self, index: int, values: Mapping[str, Any], *sends: Any) -> Any:
        reply = self._log.spread(index, values, self._inner.release(index, values, *sends))
        return self._log.add(_Event("release", index, dict(values), reply))


class _WatchedBlock:
    """Agents of a coordinator, whose queries must be public."""

    def __init__(self, inner: Any, log: _Log) -> None:
        self._inner = inner
        self._log = log

    def answer(self, number: int, questions: Mapping[str, Any]) -> dict[str, Array]:
        answers: dict[str, Array] = self._inner.answer(number, questions)
        before = self._log.add(_Event("question", number, dict(questions), answers))
        self._log.check_answers(self._inner.agents, before, answers)
        return answers

    def hand_over(self) -> Any:
        self._log.add(_Event("records", 0, {}, None))
        return self._inner.hand_over()


class _WatchedProgram:
    """Program that sets the round of its log."""

    def __init__(self, program: Any, log: _Log) -> None:
        self._program = program
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        self._log.round = t
        return self._program.step(t, dataset, s)


def _public_parts(value: Any) -> dict[str, Any]:
    """Return the parts of a value that must not depend on records; a plain array is one part, ""."""
    if isinstance(value, Bounded):
        return {"public part": value.public, "sensitivity": (value.norm, value.sensitivities)}
    if hasattr(value, "draw"):
        return {"price": (value.mechanism, value.sensitivity, value.width)}
    return {"": value}


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two values are bitwise equal; NaN equals NaN."""
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(_is_same(v, b[k]) for k, v in a.items())
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(_is_same(*pair) for pair in zip(a, b, strict=True))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        first, second = np.asarray(a), np.asarray(b)
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(a == b)


def describe_error(error: BaseException) -> str:
    """Describe an error of custom code in words."""
    if isinstance(error, UserCodeError):
        if error.__cause__ is None:
            return str(error).partition(". Fix: ")[0]
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and Path(frames[-1].filename).name == "releasers.py":
        return f"it releases {error.args[0]} without a plan"
    return blame(error)


@dataclass(frozen=True, eq=False)
class PairComparison:
    """Comparison of a pair of data sets.

    Args:
        pair: pair of data sets.
        run: run on the first data set.
        leak: error about a noiseless value that differs, or "" if none differs.
        changes: changes of the noisy values.
    """

    pair: ShardsPair
    run: WatchedRun
    leak: str
    changes: tuple[Change, ...]

    @property
    def worst_change(self) -> Change | None:
        """Change with the largest excess over its sensitivity, or None if there are no changes."""
        return max(self.changes, key=lambda c: (not c.is_within, c.ratio, 0.0 < c.sensitivity < np.inf), default=None)

    @property
    def shares(self) -> dict[tuple[str, Split], float]:
        """Largest ratio of change to sensitivity of bounded values, by (channel, split)."""
        shares: dict[tuple[str, Split], float] = {}
        replacement = self.pair.replacement
        for c in self.changes:
            if replacement is not None and 0.0 < c.sensitivity < np.inf:
                key = c.channel, replacement.split
                shares[key] = max(shares.get(key, 0.0), c.ratio)
        return shares

    @property
    def unbounded(self) -> str:
        """First noisy value without a finite sensitivity, such as "y in round 2", or "" if there is none."""
        return next((f"{c.channel} in round {c.round}" for c in self.changes if not c.sensitivity < np.inf), "")

    @property
    def problem(self) -> str:
        """Error about a change beyond its sensitivity or about a leak, or "" if there is neither."""
        change = next((c for c in self.changes if not c.is_within), None)
        return self.leak if change is None else self.describe(change)

    def describe(self, change: Change) -> str:
        """Describe a change beyond its sensitivity as an error."""
        split, owner = self.pair.replacement[::-1] if self.pair.replacement is not None else ("", -1)
        agent = "" if change.agent < 0 else f" at agent {change.agent}"
        agent += "" if change.agent in (-1, owner) else ", who does not hold it"
        return str(
            self.run.refusal(
                f"states too small a sensitivity for {change.channel} in round {change.round} (got "
                f"{change.sensitivity:.6g}, but one {split} record changes it by {change.distance:.6g}{agent})",
                "clip every record's contribution, compute every term from one record, and do not read "
                ".private of a bounded value",
            )
        )


def compare_pairs(run: WatchedRun, pairs: int = 0, seed: int = 0) -> Iterator[PairComparison]:
    """Compare pairs of data sets that differ in all records or in one record, then the pairs of a search.

    Args:
        run: run recorded on the first data set.
        pairs: number of pairs of the search.
        seed: seed of the search.
    """
    job, shards = run.job, run.job.shards
    base = synthetic_shards(shards, 0)
    for pair in (ShardsPair(base, synthetic_shards(shards, 1), 0, None), *replaced_pairs(base)):
        yield _compare_second_run(run, pair)
    # All other records are 0.
    sparse = () if shards.trajectory is not None else replaced_pairs(constant_shards(shards, 0.0))
    for pair in chain(sparse, searched_pairs(shards, pairs, seed)):
        yield _compare_runs(job, pair)


def climb(
    job: PlannedJob, shares: Mapping[tuple[str, Split], float], steps: int, seed: int
) -> Iterator[PairComparison]:
    """Compare pairs in an ascent towards the planned sensitivity.

    Every step modifies the best pair of the next channel and split, or draws a new starting pair.

    Args:
        job: job to run.
        shares: (channel, split) → largest change / sensitivity so far.
        steps: number of pairs.
        seed: seed of the ascent.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    best: dict[tuple[str, Split], tuple[float, _Point | None]] = dict.fromkeys(shares, (0.0, None))
    open_targets = [target for target, share in shares.items() if share < 1.0 - _ROUNDING]
    for k in range(steps if job.shards.trajectory is None else 0):
        if not open_targets:
            return
        target = open_targets[k % len(open_targets)]
        point = best[target][1] if rng.random() > _NEW_STARTS else None
        point = _draw_start(job.shards, target[1], rng) if point is None else _move_point(job.shards, point, rng)
        comparison = _compare_runs(job, point.make_pair(job.shards))
        yield comparison
        for key, share in comparison.shares.items():
            if share > best.get(key, (np.inf,))[0]:
                best[key] = share, point
        open_targets = [key for key in open_targets if best[key][0] < 1.0 - _ROUNDING]


def _compare_runs(job: PlannedJob, pair: ShardsPair) -> PairComparison:
    first = WatchedRun(job, pair.key, pair.spread)
    try:
        first.record(pair.first)
    except InputError as error:
        # Code may reject released values with added noise, which are public.
        return PairComparison(pair, first, "" if pair.spread else str(error), ())
    return _compare_second_run(first, pair)


def _compare_second_run(run: WatchedRun, pair: ShardsPair) -> PairComparison:
    leak = ""
    try:
        run.compare(pair.second, pair.replacement)
    except InputError as error:
        leak = str(error)
    return PairComparison(pair, run, leak, tuple(run.changes))


def check_rows(job: PlannedJob) -> int:
    """Check that every row of custom losses, formulas and modules depends only on the record of that row.

    Returns:
        The number of custom parts on which the guarantee depends.

    Raises:
        InputError: a row depends on another record.
    """
    if job.scenario.privacy.guarantee != "certified":
        return 0
    sizes = [int(n) for split in job.counts.values() for n in split if n]
    counts = {min(sizes), max(sizes)} if sizes else set()
    if job.sampling.kind == "fixed_batch" and job.sampling.batch:
        counts.add(int(job.sampling.batch))
    parts = [part for part in _nested_parts(job.problem) if isinstance(part, RowWise)]
    for part in parts:
        part.check_rows_apart(counts)
    return len(parts)


def _nested_parts(part: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Yield a problem, the values of its fields, and recursively the values of their fields."""
    yield part
    if depth == 0 or isinstance(part, type):
        return
    names = [f.name for f in fields(part)] if is_dataclass(part) else getattr(part, "_fields", ())
    for name in names:
        yield from _nested_parts(getattr(part, name), depth - 1)


def compare_to_plan(run: WatchedRun, run_ledger: Ledger) -> str:
    """Return the error if a ledger differs from the planned one, or ""."""
    job, proved = run.job, run.job.components.algorithm.proved
    # A plan of more rounds may end differently; registered algorithms release the planned values.
    if proved and job.rounds < job.ledger.rounds:
        return ""
    plan = job.ledger.truncate(job.rounds)
    released_channels, planned_channels = ({c.channel for c in ledger.channels} for ledger in (run_ledger, plan))
    if job.covers(run_ledger) and (proved or released_channels == planned_channels):
        return ""
    problem = f"releases other values than planned: {describe_difference(run_ledger, plan)}"
    return str(run.refusal(problem, "correct its planned releases, or its step"))


def describe_difference(run_ledger: Ledger, plan_ledger: Ledger) -> str:
    """Describe the first difference between recorded and planned releases."""
    releases, plans = ({c.channel: c for c in ledger.channels} for ledger in (run_ledger, plan_ledger))
    for name in sorted(releases.keys() ^ plans.keys()):
        return f"it releases {name} without a plan" if name in releases else f"it plans {name} but does not release it"
    for name, release in releases.items():
        plan = plans[name]
        for key, value, expected in (
            ("mechanism", release.mechanism.name, plan.mechanism.name),
            ("coordinates", release.dimension, plan.dimension),
            ("agents", release.group.size, plan.group.size),
            ("rounds", release.rounds.tolist(), plan.rounds.tolist()),
        ):
            if value != expected and (key != "rounds" or release.mechanism.charged):
                return f"{key} of {name}: {value} as released, {expected} as planned"
        for split in sorted(release.sensitivity.keys() | plan.sensitivity.keys()):
            none = np.zeros((release.rounds.size, 1))
            move, bound = (
                c.sensitivity.get(split, none)[:, c.group if split in c.sensitivity else 0 * c.group]
                for c in (release, plan)
            )
            differ = ~np.isclose(move, bound, rtol=1e-9, atol=0.0)
            if differ.any():
                row, agent = (int(k) for k in np.argwhere(differ)[0])
                t = -(-int(release.rounds[row]) // run_ledger.releases_per_round)
                note = "" if np.isfinite(move[row, agent]) else "; a mean at an unreleased value has no bound"
                return (
                    f"one {split} record of agent {agent} moves {name} in round {t} by up to {move[row, agent]:.6g} "
                    f"as recorded, and by {bound[row, agent]:.6g} as planned{note}"
                )
    return "sampling rates or costs of the same releases differ"
