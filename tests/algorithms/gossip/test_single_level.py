"""The single-level algorithms against naive loops, adversarial neighbours, and their fixed points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.single_level import DpDsgd, LdpSingleLevel
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.data import Stream
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.accounting.accountants import price
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.gossip_plan import plan
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from tests.support.replay import (
    CROSSED,
    CROSSED_PENALTY,
    Crossed,
    Noise,
    certified_change,
    conversation,
    crossed,
    loud,
    quiet,
    realised_change,
    replay,
)

NAMES = ("ldp_single_level", "dp_dsgd")
ALGORITHMS = {"ldp_single_level": LdpSingleLevel, "dp_dsgd": DpDsgd}
STREAMS: tuple[Any, ...] = ("all", {"batch": 2, "warm_start": 1}, {"kind": "minibatch", "batch": 2})
CLIP = 0.5


def base(name: str, guarantee: str = "certified", mechanism: str = "laplace", **changes: Any) -> dict[str, Any]:
    """A small scenario; keyword tables change it."""
    privacy: dict[str, Any] = {"guarantee": guarantee}
    if guarantee != "none":
        privacy |= {"mechanism": mechanism, "y": {"scale": 0.3, "decay": 0.1}}
    if guarantee == "certified":
        privacy["clip"] = {"y": CLIP}
    content: dict[str, Any] = {
        "seed": 4,
        "problem": {
            "kind": "quadratic",
            "ridge": 0.5,
            "data": "synthetic_classification",
            "validation": 0.5,
            "synthetic": {"dimension": 2, "records": 12, "test_records": 8},
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {"kind": name, "rounds": 5, "y": {"scale": 0.3, "decay": 0.2}, "init": {"x": 0.7, "y": -0.4}},
        "privacy": privacy,
    }
    for table, values in changes.items():
        content[table] = content.get(table, {}) | values
    return content


def made(kind: str, content: dict[str, Any]) -> Job:
    problem = {"from_losses": crossed, "crossed": Crossed}
    if kind in problem:
        return build(decentral_dp.load(content), problem[kind](2))
    table = {k: v for k, v in content["problem"].items() if k != "ridge" or kind == "quadratic"}
    return build(decentral_dp.load(content | {"problem": table | {"kind": kind}}))


# Naive loops --------------------------------------------------------------------------------------------------------

GRADIENTS: dict[str, tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]] = {
    "logistic_hyperparameter": (lambda x, y, a, b: -a / (1 + np.exp(a @ y)), lambda x, y: np.exp(x) * y),
    "quadratic": (lambda x, y, a, b: (a @ y - b) * a, lambda x, y: 0.5 * (y - x)),
    "from_losses": (
        lambda x, y, a, b: CROSSED["lower_grad_y"](x, y, None, a, b),
        lambda x, y: CROSSED_PENALTY["lower_grad_y"](x, y, None),
    ),
}


def gradient(job: Job, kind: str, t: int, i: int, y: np.ndarray, clip: float) -> np.ndarray:
    records, x, norm = job.records["train"][i], np.full(2, 0.7), 1 if job.mechanism.name == "laplace" else 2
    rows = records.signed if hasattr(records, "signed") else records.features
    labels = np.ones(len(rows)) if hasattr(records, "signed") else records[1]
    n = len(rows) if job.stream.kind == "all" else min(len(rows), 1 + 2 * (t + 1))
    one, penalty = GRADIENTS[kind]
    total = penalty(x, y)
    for a, b in zip(rows[:n], labels[:n], strict=True):
        g = one(x, y, a, b)
        size = np.linalg.norm(g, norm)
        total = total + g * (clip / size if size > clip else 1.0) / n
    return np.asarray(total)


def naive(job: Job, name: str, kind: str, noise: Noise, clip: float, *, first: bool) -> list[np.ndarray]:
    """What all agents say of y at index 0 … T. first: whether the start is noised too."""
    weights, m = job.topology.mixing.toarray(), job.n_agents
    printed = job.algorithm.protocol == "printed"
    y, told = [np.full(2, -0.4) for _ in range(m)], []
    for t in range(job.rounds + 1):
        said = [v + noise(t, "y", i, 2) * (first or t > 0) for i, v in enumerate(y)]
        told.append(np.array(said))
        own = y if printed else said
        mixed = []
        for i in range(m):
            heard = [weights[i, j] * (said[j] - own[i]) for j in range(m) if j != i]
            mixed.append(own[i] + sum(heard, np.zeros(2)))
        at = mixed if name == "dp_dsgd" else own
        step = 0.3 / (t + 1) ** 0.2
        if t < job.rounds:
            y = [mixed[i] - step * gradient(job, kind, t, i, at[i], clip) for i in range(m)]
    return told


def agree(job: Job, name: str, kind: str, noise: Noise, clip: float, first: bool = False) -> None:
    got, want = conversation(job, noise), naive(job, name, kind, noise, clip, first=first)
    assert len(got) == len(want)
    for index, (said, value) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_allclose(said["y"], value, rtol=0, atol=1e-10, err_msg=str(index))
        # x is a constant: nobody sends it, and it is published as it is.
        assert set(said) == ({"x", "y"} if index == job.rounds else {"y"})
    assert (got[-1]["x"] == 0.7).all()


@pytest.mark.parametrize("kind", list(GRADIENTS))
@pytest.mark.parametrize("name", NAMES)
def test_every_round_is_the_formula(name: str, kind: str) -> None:
    for stream in STREAMS[:2]:
        plain = base(name, "none")
        plain["problem"]["stream"] = stream
        agree(made(kind, plain), name, kind, quiet, np.inf)
        for mechanism in ("laplace", "gaussian"):
            noisy = base(name, mechanism=mechanism)
            noisy["problem"]["stream"] = stream
            agree(made(kind, noisy), name, kind, loud, CLIP)
    agree(made(kind, base(name, "as_printed")), name, kind, loud, np.inf, first=True)


def test_the_two_differ_in_where_they_take_the_gradient() -> None:
    ends = [conversation(made("quadratic", base(name)), loud)[-1]["y"] for name in NAMES]
    assert np.abs(ends[0] - ends[1]).max() > 1e-3


# Limits -------------------------------------------------------------------------------------------------------------


def moments(job: Job) -> list[tuple[np.ndarray, np.ndarray]]:
    """(H_i, c_i) with ∇_y g_i = H_i y − c_i at x = 0.7."""
    out = []
    for train in job.records["train"]:
        a, b = train.features, train.target
        out.append((a.T @ a / len(b) + 0.5 * np.eye(2), a.T @ b / len(b) + 0.5 * 0.7))
    return out


def smooth(name: str, **changes: Any) -> Job:
    content = base(name, "none", **changes)
    content["problem"]["normalise"] = "l2"
    return made("quadratic", content)


@pytest.mark.parametrize("name", NAMES)
def test_decaying_steps_reach_the_common_minimiser(name: str) -> None:
    job = smooth(name, algorithm={"rounds": 4000, "y": {"scale": 1.0, "decay": 0.7}})
    parts = moments(job)
    best = np.linalg.solve(sum(h for h, _ in parts), sum(c for _, c in parts))
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    np.testing.assert_allclose(best, job.problem.lower_solution(np.full(2, 0.7), agents), atol=1e-12)
    last = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).last.released["y"]
    assert np.abs(last - best).max() < 0.01 * np.abs(best + 0.4).max()


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_step_ends_at_its_fixed_point(name: str) -> None:
    """Of Y ← P Y − λ(H Y − c), or of Y ← P Y − λ(H P Y − c), solved for here; not at the minimiser."""
    step = 0.4
    job = smooth(name, algorithm={"rounds": 300, "y": {"scale": step}})
    parts, m = moments(job), job.n_agents
    mix = np.kron(np.eye(m) + job.topology.mixing.toarray(), np.eye(2))
    curve, linear = np.zeros((2 * m, 2 * m)), np.concatenate([c for _, c in parts])
    for i, (h, _) in enumerate(parts):
        curve[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = h
    at = mix if name == "dp_dsgd" else np.eye(2 * m)
    fixed = np.linalg.solve(np.eye(2 * m) - mix + step * curve @ at, step * linear).reshape(m, 2)
    last = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).last.released["y"]
    np.testing.assert_allclose(last, fixed, atol=1e-10)
    best = np.linalg.solve(sum(h for h, _ in parts), sum(c for _, c in parts))
    assert np.abs(fixed - best).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_one_agent_runs_gradient_descent(name: str) -> None:
    job = smooth(name, topology={"kind": "complete", "agents": 1}, algorithm={"rounds": 6, "y": {"scale": 0.4}})
    ((h, c),) = moments(job)
    y = np.full(2, -0.4)
    for said in conversation(job):
        np.testing.assert_allclose(said["y"][0], y, atol=1e-12)
        y = y - 0.4 * (h @ y - c)


def test_a_complete_graph_averages_at_once() -> None:
    """With Metropolis weights dp_dsgd is a gradient step for everyone from the same point: disagreement is one step."""
    topology = {"kind": "complete", "agents": 5}
    job = smooth("dp_dsgd", topology=topology, algorithm={"rounds": 3, "y": {"scale": 0.4}})
    said, parts = conversation(job), moments(job)
    for before, after in pairwise(said):
        mean = before["y"].mean(axis=0)
        for i, (h, c) in enumerate(parts):
            np.testing.assert_allclose(after["y"][i], mean - 0.4 * (h @ mean - c), atol=1e-12)


# The ledger ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS, ids=["all", "accumulate", "minibatch"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("name", NAMES)
def test_planned_is_recorded_however_the_agents_are_hosted(name: str, mechanism: str, stream: Any) -> None:
    ends = []
    for blocks in (1, 3):
        content = base(name, mechanism=mechanism, run={"blocks": blocks})
        content["problem"] |= {"stream": stream, "partition": {"kind": "dirichlet", "alpha": 3.0}}
        job = made("crossed", content)
        outcome = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
        assert outcome.ledger.same_releases(job.ledger)
        assert not outcome.ledger.same_releases(job.ledger.rescaled(1.0 + 1e-9))
        ends.append(outcome.last.released["y"])
        (y,) = job.ledger.charged
        for agent in range(job.n_agents):
            n = int(job.counts["train"][agent])
            seen = {"all": [n] * 5, "accumulate": [3, 5, 7, 9, 11], "minibatch": [2] * 5}[job.stream.kind]
            averaged = np.minimum(seen, n)
            steps = 0.3 / np.arange(1, 6) ** 0.2
            column = y.group[agent]
            np.testing.assert_allclose(y.sensitivity["train"][:, column], steps * 2 * CLIP / averaged, rtol=1e-12)
            np.testing.assert_allclose(y.rate["train"][:, column], averaged / n if "mini" in job.stream.kind else 1.0)
        assert set(y.sensitivity) == {"train"}
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_fresh_batches_are_amplified(name: str) -> None:
    """Nothing of a batch is kept, so its round is worth log(1 + q(e^E − 1)), and the sum is what is priced."""
    content = base(name)
    content["problem"]["stream"] = {"kind": "minibatch", "batch": 2}
    job = made("quadratic", content)
    (y,) = job.ledger.charged
    n = job.counts["train"][y.group.size - 1]
    column = y.group[y.group.size - 1]
    losses = y.sensitivity["train"][:, column] / y.scale[:, column]
    want = np.log1p(2 / n * np.expm1(losses)).sum()
    assert price(job.ledger, 0.0).epsilon[-1] == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("guarantee", ["none", "as_printed"])
def test_planned_is_recorded_without_a_certificate(name: str, guarantee: str) -> None:
    job = made("quadratic", base(name, guarantee))
    outcome = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
    assert outcome.ledger.same_releases(job.ledger)
    assert np.isinf(job.budget.epsilon).all()


# Adversaries --------------------------------------------------------------------------------------------------------

ROUNDS = 4


def worlds(algorithm: Any, norm: Any, stream: Stream, seed: int, kind: str, problem: Any = None) -> list[Any]:
    rng = np.random.default_rng([3, seed])
    data = {k: (rng.normal(size=(3, 2)) * 10.0 ** (seed % 4), np.array([1.0, 1.0, -1.0])) for k in ("t", "v")}
    other = {k: (a.copy(), b.copy()) for k, (a, b) in data.items()}
    if seed % 2:
        other[kind][1][0] *= -1.0
    else:
        other[kind][0][0] = rng.normal(size=2) * 100
    own = [{"y": rng.normal(size=(1, 2)) * 5} for _ in range(ROUNDS + 1)]
    received = [rng.normal(size=(1, 2)) * 5 for _ in range(ROUNDS)]
    problem = problem or Crossed(2)
    return [
        replay(
            algorithm, problem, *(problem.prepare(*w[k], norm) for k in ("t", "v")), rounds=ROUNDS,
            neighbour_weight=0.6,
            own=own, received=received, clip=Clip(norm, y=CLIP), stream=stream,
        )
        for w in (data, other)
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [Stream("all"), Stream("accumulate", batch=1), Stream("minibatch", batch=2)])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("name", NAMES)
def test_no_neighbour_exceeds_the_certificate_and_the_worst_reaches_it(name: str, norm: Any, stream: Stream) -> None:
    best = np.zeros(ROUNDS)
    for seed in range(12):
        runs = worlds(ALGORITHMS[name](StepSize(0.5, 0.3), start={"x": 1.0}), norm, stream, seed, "t")
        change, allowed = realised_change(*runs, norm=norm), certified_change(runs[0], "train")
        assert set(change) == {"y"}
        assert (change["y"] <= allowed["y"] * (1 + 1e-9)).all()
        best = np.maximum(best, change["y"] / allowed["y"])
        # No validation record is read.
        same = worlds(ALGORITHMS[name](StepSize(0.5, 0.3), start={"x": 1.0}), norm, stream, seed, "v")
        assert (realised_change(*same, norm=norm)["y"] == 0.0).all()
    # A fresh batch may leave the record out.
    assert (best.max() if stream.kind == "minibatch" else best.min()) > 0.99


# Planted bugs -------------------------------------------------------------------------------------------------------


class Half(LdpSingleLevel):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        return out | {"y": out["y"]._replace(sensitivity={"train": out["y"].sensitivity["train"] / 2})}


class Hidden(LdpSingleLevel):
    """Goes on from its own y before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        step = super().step(t, dataset, s)
        reply = yield next(step)
        try:
            step.send(reply._replace(released=type(reply.released)({"y": s.y})))
        except StopIteration as done:
            return done.value


class Twice(LdpSingleLevel):
    """Adds the gradient of the round before again, from the same fresh batch."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        own, near = yield next(super().step(t, dataset, s))
        y = (1.0 - dataset.neighbour_weight) * own.y + near.y
        for earlier in (t, t - 1) if t else (t,):
            y = y - self.y(t) * dataset.batch(earlier).lower_grad_y(s.x, own.y)
        return s._replace(y=y)


@pytest.mark.parametrize("bug", [Half, Hidden, Twice])
def test_a_planted_bug_is_refused(bug: Any) -> None:
    content = base("ldp_single_level")
    content["problem"]["stream"] = {"kind": "minibatch", "batch": 2} if bug is Twice else "all"
    job = made("crossed", content)
    broken = bug(job.algorithm.y, start=job.algorithm.start)
    planned = plan(
        broken, job.problem, job.counts, job.stream, job.topology.neighbour_weight, job.clip, None, job.rounds,
        job.mechanism, job.noise,
    )  # fmt: skip
    nodes = [n._replace(program=broken) for n in job.nodes()]

    def same() -> bool:
        return LocalEngine().run(nodes, job.rounds, [], lambda s: False).ledger.same_releases(planned)

    if bug is Twice:
        with pytest.raises(ValueError, match="charged as if"):
            same()
    else:
        assert not same()


def test_a_forgotten_clip_exceeds_the_certificate() -> None:
    class Unclipped(Crossed):
        def terms(self, x: Any, y: Any, z: Any, a: Any, b: Any, clip: Clip, wanted: Any = ()) -> Any:
            return super().terms(x, y, z, a, b, Clip(clip.norm), wanted)

    for name in NAMES:
        algorithm = ALGORITHMS[name](StepSize(0.5), start={"x": 1.0})
        runs = worlds(algorithm, "l1", Stream("all"), 3, "t", Unclipped(2))
        assert (realised_change(*runs)["y"] / certified_change(runs[0], "train")["y"]).max() > 10.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": {"scale": 0.1}}, "algorithm.x: ldp_single_level takes none"),
        ({"inner": 2}, "algorithm.inner: ldp_single_level takes none"),
        ({"y": None}, "algorithm.y: missing"),
        ({"protocol": "private"}, 'knows no "private" protocol'),
    ],
)
def test_refusals(change: Mapping[str, Any], words: str) -> None:
    content = base("ldp_single_level")
    table = content["algorithm"] | change
    content["algorithm"] = {k: v for k, v in table.items() if v is not None}
    with pytest.raises(InputError, match=words):
        made("quadratic", content)


def test_a_missing_clip_is_refused() -> None:
    content = base("dp_dsgd")
    del content["privacy"]["clip"]
    with pytest.raises(InputError, match=r"privacy\.clip\.y: missing"):
        made("quadratic", content)
