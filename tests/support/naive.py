"""Share small jobs, oracles record by record, loops over agents and adversaries between tests of algorithms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import scipy.sparse as sp

import decentral_dp
from decentral_dp.algorithms.protocol import Public
from decentral_dp.data import Sampling
from decentral_dp.engines.local import LocalEngine
from decentral_dp.engines.protocol import Outcome
from decentral_dp.participants import Network
from decentral_dp.privacy.clipping import RECORD, Clip, Unit
from decentral_dp.privacy.ledger import Ledger
from decentral_dp.problems.bilevel.linear import Quadratic
from decentral_dp.problems.protocol import TERMS, Regulariser, Terms
from decentral_dp.simulation.jobs import gossip_plan
from decentral_dp.simulation.jobs.build import build_job as build
from decentral_dp.simulation.jobs.gossip_plan import PlannedNoise
from decentral_dp.simulation.jobs.gossip_plan import plan_releases as plan
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.support.published import as_published
from tests.support.replay import (
    CROSSED,
    CROSSED_PENALTY,
    Noise,
    certified_change,
    conversation,
    crossed,
    realised_change,
    replay,
)
from tests.support.training import changed

Oracle = Mapping[str, Callable[..., np.ndarray]]
Vectors = list[np.ndarray]
SAMPLINGS: tuple[Any, ...] = (
    "full",
    {"kind": "streaming", "batch_size": 2, "warm_start": 1},
    {"kind": "fixed_batch", "batch_size": 2},
)
SAMPLING_NAMES = ("full", "streaming", "fixed_batch")
CLIPS = {"x": 0.4, "y": 0.5, "z": 0.3}
UNCLIPPED = dict.fromkeys("xyz", np.inf)
RIDGE = 0.5

_LOGISTIC: Oracle = {
    "lower_grad_y": lambda x, y, z, a, b: -a / (1 + np.exp(a @ y)),
    "lower_hvp": lambda x, y, z, a, b: (a @ z) * a / (2 + np.exp(a @ y) + np.exp(-(a @ y))),
    "upper_grad_y": lambda x, y, z, a, b: -a / (1 + np.exp(a @ y)),
}
_SQUARES: Oracle = {
    "lower_grad_y": lambda x, y, z, a, b: (a @ y - b) * a,
    "lower_hvp": lambda x, y, z, a, b: (a @ z) * a,
    "upper_grad_y": lambda x, y, z, a, b: (a @ y - b) * a,
}
# Per record, and of the regulariser.
ORACLES: dict[str, tuple[Oracle, Oracle]] = {
    "logistic_hyperparameter": (
        _LOGISTIC,
        {
            "lower_grad_y": lambda x, y, z: np.exp(x) * y,
            "lower_hvp": lambda x, y, z: np.exp(x) * z,
            "lower_jvp": lambda x, y, z: np.exp(x) * y * z,
        },
    ),
    "quadratic": (
        _SQUARES,
        {
            "lower_grad_y": lambda x, y, z: RIDGE * (y - x),
            "lower_hvp": lambda x, y, z: RIDGE * z,
            "lower_jvp": lambda x, y, z: -RIDGE * z,
        },
    ),
    "crossed": (CROSSED, CROSSED_PENALTY),
    "from_losses": (CROSSED, CROSSED_PENALTY),
}


class Crossed(Quadratic):
    """`replay.crossed` without differentiation: p = q, five terms that read records, each clipped row by row."""

    reads_records: ClassVar[Any] = {t: "train" if t.startswith("lower") else "validation" for t in TERMS}

    def terms(
        self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        out = {}
        for term in wanted:
            records = train if term.startswith("lower") else validation
            a = records.features
            size = {"lower_grad_y": a @ x + a @ y, "upper_grad_y": a @ x, "upper_grad_x": a @ y}.get(term, a @ z)
            rows = (records.label * size)[:, None] * a
            bound = clip.bound({"lower_grad_y": "y", "lower_hvp": "z", "upper_grad_y": "z"}.get(term, "x"))
            norms = np.linalg.norm(rows, 1 if clip.norm == "l1" else 2, axis=1)
            out[term] = (rows * np.where(norms > bound, bound / np.maximum(norms, 1e-300), 1.0)[:, None]).mean(axis=0)
        return Terms(**out)

    def change(self, x: Any, y: Any, other: Any, train: Any, clip: Clip) -> Any:
        """∇_x l is linear in y."""
        return self.terms(x, y, y - other, train, train, clip, ("lower_jvp",)).lower_jvp

    def regulariser(self, x: Any, y: Any, z: Any) -> Regulariser:
        return Regulariser(y + 0.3 * x, z, 0.3 * z)


def base(
    algorithm: Mapping[str, Any], guarantee: str = "certified", mechanism: str = "laplace", **changes: Any
) -> dict[str, Any]:
    """A small scenario; keyword tables change it."""
    privacy: dict[str, Any] = {"guarantee": guarantee}
    if guarantee != "none":
        privacy |= {"mechanism": mechanism, **{c: {"scale": 0.3, "decay": 0.1} for c in "xyz"}}
    if guarantee == "certified":
        privacy["clip"] = CLIPS["y"] if "learning_rate" in algorithm else dict(CLIPS)
    content: dict[str, Any] = {
        "seed": 4,
        "problem": {
            "kind": "quadratic",
            "data": "synthetic_classification",
            "validation": 0.5,
            "synthetic": {"dimension": 2, "records": 12, "test_records": 8},
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"rounds": 3, "init": {"x": 0.7, "y": -0.4}, **algorithm},
        "privacy": privacy,
    }
    return as_published(changed(content, **changes))


def made(kind: str, content: dict[str, Any], *, priced: bool = False) -> Job:
    """Build a job on a named problem, or on "crossed" or "from_losses", whose terms all read records.

    Unless `priced`, the job has no budget, since accounting takes ten times as long as the rest of these tests.
    """
    own = {"crossed": Crossed, "from_losses": crossed}
    problem = {"kind": "quadratic" if kind in own else kind, **({"ridge": RIDGE} if kind == "quadratic" else {})}
    scenario = decentral_dp.load(content | {"problem": content["problem"] | problem})
    return built(scenario, own[kind](2) if kind in own else None, priced=priced)


def built(scenario: Any, problem: Any = None, *, priced: bool = False) -> Job:
    """Build a job, without a budget unless `priced`."""
    with ExitStack() as left_out:
        for module, name in () if priced else ((gossip_plan, "account"),):
            left_out.enter_context(mock.patch.object(module, name, return_value=None))
        return build(scenario, **({} if problem is None else {"problem": problem}))


def finished(job: Job) -> Outcome:
    return LocalEngine().run(job.nodes(), job.rounds)


def settled(algorithm: Mapping[str, Any], **tables: Any) -> tuple[Job, Any]:
    """Run the quadratic problem without noise, where every agent has records of one class."""
    content = base(algorithm, "none", **tables)
    content["problem"] |= {"normalise": "l2", "partition": {"kind": "by_class", "share": 1.0}}
    job = made("quadratic", content)
    return job, finished(job).last_snapshot


def ledgers(job: Job, program: Any) -> tuple[Ledger, Ledger]:
    """(recorded, planned) of another program in this job's place."""
    nodes = [n._replace(program=program) for n in job.nodes()]
    recorded = LocalEngine().run(nodes, job.rounds).ledger
    planned = plan(
        program, job.problem, job.counts, job.sampling, job.topology.neighbour_weight, job.clip, job.rounds,
        PlannedNoise(job.mechanism, job.noise),
    )  # fmt: skip
    return recorded, planned


def meddled(step: Any, sent: Callable[[Any], Any], heard: Callable[[Any, Any], Any]) -> Any:
    """Change the messages and replies of a step in transit: heard(exchange, reply) → reply."""
    reply = None
    try:
        while True:
            exchange = step.send(reply)
            exchange.values = sent(exchange.values)
            reply = heard(exchange, (yield exchange))
    except StopIteration as done:
        return done.value


def misheard(step: Any, heard: Callable[[Any, Any], Any]) -> Any:
    """Change the replies of a step in transit: heard(exchange, reply) → reply."""
    return meddled(step, lambda values: values, heard)


def change_end(step: Any, change: Callable[[Any, Any], Any]) -> Any:
    """Change the state after a step of one exchange: change(state, reply) → state."""
    reply = yield next(step)
    try:
        step.send(reply)
    except StopIteration as done:
        return change(done.value, reply)


# Loops over agents --------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """Provide means record by record, mixing pair by pair, and a list of all messages."""

    job: Job
    kind: str
    noise: Noise
    clips: Mapping[str, float]
    told: list[dict[str, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.m = self.job.n_agents
        self.weights = self.job.topology.mixing.toarray()
        self.algorithm: Any = self.job.algorithm
        self.printed = self.algorithm.protocol == "as_published"
        self.reads_x = self.kind in ("crossed", "from_losses")
        self.per_round = self.algorithm.releases_per_round
        self.told = [{} for _ in range(self.job.rounds * self.per_round + 1)]

    def start(self, channel: str) -> Vectors:
        return [np.full(2, self.algorithm.start.get(channel, 0.0)) for _ in range(self.m)]

    def zeros(self) -> Vectors:
        return [np.zeros(2) for _ in range(self.m)]

    def say(self, index: int, channel: str, values: Vectors, noised: bool) -> Vectors:
        out = [v + self.noise(index, channel, i, v.size) * noised for i, v in enumerate(values)]
        self.told[index][channel] = np.array(out)
        return out

    def toward(self, i: int, own: np.ndarray, heard: Vectors) -> np.ndarray:
        """own + Σ_j w_ij (heard_j − own)."""
        moves = (self.weights[i, j] * (heard[j] - own) for j in range(self.m) if j != i)
        return own + sum(moves, np.zeros_like(own))

    def mean(self, term: str, t: int, i: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        per_record, penalty = ORACLES[self.kind]
        records = self.job.records["train" if term.startswith("lower") else "validation"][i]
        rows = records.signed if hasattr(records, "signed") else records.features
        labels = np.ones(len(rows)) if hasattr(records, "signed") else records[1]
        n = len(rows) if self.job.sampling.kind == "full" else min(len(rows), 1 + 2 * (t + 1))
        norm = 1 if self.job.mechanism.name == "laplace" else 2
        bound = self.clips[{"lower_grad_y": "y", "lower_hvp": "z", "upper_grad_y": "z"}.get(term, "x")]
        total = np.zeros_like(y)
        if term in per_record:
            for a, b in zip(rows[:n], labels[:n], strict=True):
                one = per_record[term](x, y, z, a, b)
                size = np.linalg.norm(one, norm)
                total = total + one * (bound / size if size > bound else 1.0) / n
        return total + penalty[term](x, y, z) if term in penalty else total


def agree(job: Job, noise: Noise, told: Sequence[Mapping[str, np.ndarray]]) -> None:
    """Compare all released values with those of the loop."""
    got = conversation(job, noise)
    assert len(got) == len(told)
    for index, (ours, theirs) in enumerate(zip(got, told, strict=True)):
        assert ours.keys() == theirs.keys(), index
        for channel, value in theirs.items():
            np.testing.assert_allclose(ours[channel], value, rtol=0, atol=1e-10, err_msg=f"{channel} at {index}")


# Quadratic limits ---------------------------------------------------------------------------------------------------


@dataclass
class Squares:
    """A, c of one agent's train records and of its validation records, (2, 2) and (2,), by sums over records."""

    hessian: np.ndarray
    linear: np.ndarray
    upper: np.ndarray
    target: np.ndarray


def squares(job: Job) -> list[Squares]:
    out = []
    for i in range(job.n_agents):
        parts = []
        for kind in ("train", "validation"):
            records = job.records[kind][i]
            n = len(records.label)
            second, cross = np.zeros((2, 2)), np.zeros(2)
            for a, b in zip(records.features, records.label, strict=True):
                second, cross = second + np.outer(a, a) / n, cross + a * b / n
            parts += [second, cross]
        parts[0] = parts[0] + RIDGE * np.eye(2)
        out.append(Squares(*parts))
    return out


def series(hessian: np.ndarray, smoothness: float, terms: int) -> np.ndarray:
    """(1/L) Σ_{k<b} (I − H/L)^k, summed."""
    out, power = np.zeros_like(hessian), np.eye(len(hessian))
    for _ in range(terms):
        out, power = out + power / smoothness, power @ (np.eye(len(hessian)) - hessian / smoothness)
    return out


# Adversaries --------------------------------------------------------------------------------------------------------

LABELS = np.array([1.0, 1.0, -1.0])
READ = (Sampling("full"), Sampling("streaming", batch=1), Sampling("fixed_batch", batch=1))
# (round, exchange, rng) → the agent's message and the received values, (1, ·).
Scene = Callable[[int, int, np.random.Generator], tuple[dict[str, np.ndarray], np.ndarray]]
# kind of record → features and labels.
DataSet = dict[str, tuple[np.ndarray, np.ndarray]]


def opposite_labels(rng: np.random.Generator, kind: str, worst: bool) -> tuple[DataSet, DataSet]:
    """Three records of each kind; of the other data set the first of a kind is replaced, by its opposite if `worst`."""
    d, n = 2, LABELS.size
    one = {k: (rng.normal(size=(n, d)) * 10.0 ** rng.integers(0, 3), LABELS.copy()) for k in ("train", "validation")}
    if worst:
        for rows, _ in one.values():
            rows[0] = [1e3, 0.0]
    other = {k: (rows.copy(), labels.copy()) for k, (rows, labels) in one.items()}
    if worst:
        other[kind][1][0] *= -1
    else:
        other[kind][0][0] = rng.normal(size=d) * 100
    return one, other


def data_sets(
    algorithm: Any, problem: Any, rounds: int, scene: Scene, pair: tuple[DataSet, DataSet], norm: Any,
    sampling: Sampling, rng: np.random.Generator, unit: Unit = RECORD, clip: Clip | None = None,
) -> list[list[dict[str, Any]]]:  # fmt: skip
    """Return one agent's values before noise on one transcript, for each of two data sets."""
    script = [
        scene(*divmod(index, algorithm.releases_per_round), rng)
        for index in range(rounds * algorithm.releases_per_round + 1)
    ]
    own, received = [s[0] for s in script], [s[1] for s in script[:-1]]
    return [
        replay(
            algorithm, problem, *(problem.prepare(*data_set[k], norm) for k in ("train", "validation")), rounds=rounds,
            neighbour_weight=0.6, own=own, received=received, clip=clip or Clip(norm, *CLIPS.values()),
            sampling=sampling, unit=unit,
        )
        for data_set in pair
    ]  # fmt: skip


def shares(runs: list[list[dict[str, Any]]], kind: Any, norm: Any) -> dict[str, np.ndarray]:
    """Realised change over certified sensitivity, per release; 0 where both are 0."""
    allowed, out = certified_change(runs[0], kind), {}
    for channel, sizes in realised_change(*runs, norm=norm).items():
        with np.errstate(divide="ignore", invalid="ignore"):
            out[channel] = np.where(sizes == 0.0, 0.0, sizes / allowed[channel])
    return out


def public_of(rounds: int, sampling: Sampling, problem: Any) -> Public:
    """Return the public facts about the agent of `data_sets`."""
    t, counts = np.arange(rounds)[:, None], np.full((1, 1), LABELS.size)
    kinds = ("train", "validation")
    return Public(
        rounds,
        {k: sampling.averaged_counts(t, counts) * 1.0 for k in kinds},
        {k: sampling.rate(t, counts)[0] for k in kinds},
        np.array([0.6]),
        problem.reads_records,
        Clip("l1", *CLIPS.values()),
        problem.p,
        problem.q,
        Network(sp.csr_array((1, 1))),
    )


class Unclipped(Crossed):
    """Omit the clip."""

    def terms(
        self, x: Any, y: Any, z: Any, train: Any, validation: Any, clip: Clip, wanted: Collection[str] = TERMS
    ) -> Terms:
        return super().terms(x, y, z, train, validation, Clip(clip.norm), wanted)


@dataclass(frozen=True)
class Small:
    """Collect the parts of small jobs.

    base: algorithm table, guarantee, mechanism → scenario. made: kind, scenario → job. all_read: the kind whose
    terms all read records. problem, unclipped: that problem with and without clipping. neighbours: rng, split,
    whether at worst → two data sets. zeroed: splits whose terms are all multiples of their features.
    """

    base: Callable[..., dict[str, Any]]
    made: Callable[..., Job]
    all_read: str
    problem: Any
    unclipped: Any
    neighbours: Callable[[np.random.Generator, str, bool], tuple[DataSet, DataSet]]
    zeroed: tuple[str, ...] = ("train", "validation")


SMALL = Small(base, made, "crossed", Crossed(2), Unclipped(2), opposite_labels)
