"""BSA against a loop of its formulas, against adversarial servers, and at its limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.bsa import Bsa
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.errors import InputError
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from tests.support.naive import (
    CLIPS,
    ORACLES,
    READ,
    STREAM_NAMES,
    STREAMS,
    UNCLIPPED,
    Loop,
    Unclipped,
    Vectors,
    agree,
    base,
    checked_on_every_problem,
    finished,
    ledgers,
    made,
    public_of,
    series,
    shares,
    squares,
    worlds,
)
from tests.support.replay import Noise, certified_change, conversation, loud, quiet

ALGORITHM = {
    "kind": "bsa",
    "x": {"scale": 0.6, "decay": 0.2},
    "y": {"scale": 0.5, "decay": 0.1},
    "inner": 2,
    "inverse": 3,
    "smoothness": 3.0,
}


class Naive(Loop):
    """The server's loop, over agents that answer with noise."""

    def run(self) -> list[dict[str, np.ndarray]]:
        a, index = self.algorithm, 0
        x, y = (np.full(2, a.start[c]) for c in "xy")

        def tell() -> None:
            self.say(index, "x", [x] * self.m, False)
            self.say(index, "y", [y] * self.m, False)

        def ask(channel: str, answers: Vectors, noised: bool = True) -> np.ndarray:
            nonlocal index
            index += 1
            return sum(self.say(index, channel, answers, noised), np.zeros(2)) / self.m

        def each(term: str, t: int, z: np.ndarray) -> Vectors:
            return [self.mean(term, t, i, x, y, z) for i in range(self.m)]

        for t in range(self.job.rounds):
            tell()
            for _ in range(a.inner):
                y = y - a.y.scale / (t + 1) ** a.y.decay * ask("gy", each("lower_grad_y", t, y))
            v = ask("v", each("upper_grad_y", t, y))
            w = v / a.smoothness
            for _ in range(a.inverse - 1):
                v = ask("v", [v - turned / a.smoothness for turned in each("lower_hvp", t, v)])
                w = w + v / a.smoothness
            u = [f - j for f, j in zip(each("upper_grad_x", t, w), each("lower_jvp", t, w), strict=True)]
            x = x - a.x.scale / (t + 1) ** a.x.decay * ask("gx", u, self.reads_x)
            index += 1
        tell()
        return self.told


def check(kind: str, content: dict[str, Any], noise: Noise, clips: dict[str, float]) -> Job:
    job = made(kind, content)
    agree(job, noise, Naive(job, kind, noise, clips).run())
    return job


@pytest.mark.parametrize("kind", list(ORACLES))
def test_without_noise_it_is_the_loop(kind: str) -> None:
    for stream in STREAMS[:2]:
        content = base(ALGORITHM, "none")
        content["problem"]["stream"] = stream
        job = check(kind, content, quiet, UNCLIPPED)
        last = finished(job).last
        for channel, value in conversation(job)[-1].items():
            np.testing.assert_allclose(last.released[channel], value, atol=1e-13)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", list(ORACLES))
def test_answers_are_used_with_their_noise(kind: str, mechanism: str) -> None:
    for stream in STREAMS[:2]:
        content = base(ALGORITHM, mechanism=mechanism)
        content["problem"]["stream"] = stream
        check(kind, content, loud, CLIPS)


@pytest.mark.parametrize("kind", list(ORACLES))
def test_printed_does_the_same_and_clips_nothing(kind: str) -> None:
    check(kind, base(ALGORITHM, "as_printed"), loud, UNCLIPPED)


@pytest.mark.parametrize(("inner", "inverse", "rounds"), [(1, 1, 1), (3, 1, 2), (1, 4, 2)])
def test_short_loops(inner: int, inverse: int, rounds: int) -> None:
    job = check("crossed", base(ALGORITHM | {"inner": inner, "inverse": inverse, "rounds": rounds}), loud, CLIPS)
    assert finished(job).ledger.same_releases(job.ledger)


# What it finds ------------------------------------------------------------------------------------------------------


def settled(inner: int, topology: dict[str, Any]) -> tuple[Job, Any]:
    flat = {"x": {"scale": 2.0}, "y": {"scale": 0.8}, "inner": inner, "rounds": 300}
    content = base(ALGORITHM | flat, "none", topology=topology)
    content["problem"] |= {"normalise": "l2", "partition": {"kind": "by_class", "share": 1.0}}
    job = made("quadratic", content)
    return job, finished(job).last


@pytest.mark.parametrize("inner", [1, 4])
@pytest.mark.parametrize("topology", [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 1}])
def test_the_quadratic_optimum_is_reached(inner: int, topology: dict[str, Any]) -> None:
    """Agents with one class each do not matter, the server averages Hessians; here even a short series has the root."""
    job, last = settled(inner, topology)
    optimum = job.problem.optimum(list(zip(job.records["train"], job.records["validation"], strict=True)))
    m = job.n_agents
    np.testing.assert_allclose(last.released["x"], np.tile(optimum.x, (m, 1)), atol=1e-7)
    np.testing.assert_allclose(last.released["y"], np.tile(optimum.y, (m, 1)), atol=1e-7)


def test_w_is_the_truncated_series_of_the_mean_hessian() -> None:
    """x moves by α ½ w, w = (1/L) Σ_k (I − H/L)^k v_0, for H = mean_i H_i, v_0 = mean_i ∇_y f_i from moments."""
    job = made("quadratic", base(ALGORITHM | {"rounds": 2}, "none"))
    said, e, agents = conversation(job), job.algorithm.releases_per_round, squares(job)
    hessian = np.mean([s.hessian for s in agents], axis=0)
    for t in range(2):
        x, y = said[t * e]["x"][0], said[(t + 1) * e]["y"][0]
        v = np.mean([s.upper @ y - s.target for s in agents], axis=0)
        sensitivity = 0.6 / (t + 1) ** 0.2 * 0.5 * series(hessian, 3.0, 3) @ v
        np.testing.assert_allclose(said[(t + 1) * e]["x"][0], x - sensitivity, atol=1e-13)


def test_the_graph_plays_no_part_and_all_agents_hold_the_same() -> None:
    ends = []
    for topology in ({"kind": "ring", "agents": 5}, {"kind": "star", "agents": 5}, {"kind": "complete", "agents": 5}):
        job = made("crossed", base(ALGORITHM, topology=topology))
        ends.append(conversation(job, loud)[-1])
        for value in ends[-1].values():
            assert (value == value[0]).all()
    for channel in "xy":
        assert np.array_equal(ends[0][channel], ends[1][channel])
        assert np.array_equal(ends[0][channel], ends[2][channel])


# The ledger ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS, ids=STREAM_NAMES)
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["crossed", "logistic_hyperparameter"])
def test_planned_is_recorded_however_the_agents_are_hosted(kind: str, mechanism: str, stream: Any) -> None:
    ends = []
    for blocks in (1, 2, 3, 4):
        content = base(ALGORITHM, mechanism=mechanism, run={"blocks": blocks})
        content["problem"] |= {"stream": stream, "partition": {"kind": "dirichlet", "alpha": 3.0}}
        content["problem"]["synthetic"] = {"dimension": 2, "records": 16, "test_records": 4}
        job = made(kind, content)
        assert np.isfinite(job.budget.epsilon).all()
        outcome = finished(job)
        assert outcome.ledger.same_releases(job.ledger)
        assert not outcome.ledger.same_releases(job.ledger.rescaled(1.0 + 1e-9))
        free = {c.channel for c in job.ledger.channels if not c.mechanism.charged}
        assert free == ({"x", "y"} if kind == "crossed" else {"x", "y", "gx"})
        ends.append(outcome.last)
    # To the last bit: the mean of all answers adds up in the same order everywhere.
    for channel in "xy":
        for end in ends:
            assert np.array_equal(end.released[channel], ends[0].released[channel])
            assert (end.released[channel] == end.released[channel][0]).all()


@pytest.mark.parametrize(("agents", "per_actor"), [(3, 1), (20, 12)])
def test_ray_gives_the_same_bits(ray_cluster: None, agents: int, per_actor: int) -> None:
    content = base(ALGORITHM, topology={"kind": "ring", "agents": agents})
    content["problem"] |= {"kind": "logistic_hyperparameter", "stream": STREAMS[2]}
    local = decentral_dp.run(content)
    remote = decentral_dp.run(content | {"run": {"engine": "ray", "agents_per_actor": per_actor}})
    assert remote.records.same_releases(local.records)
    for channel, value in local.released.items():
        assert np.array_equal(remote.released[channel], value)


def test_many_agents_in_blocks_of_one_give_the_same_bits() -> None:
    """Twenty are more answers than are added up in a Python loop."""
    content = base(ALGORITHM, topology={"kind": "ring", "agents": 20})
    whole = finished(made("quadratic", content)).last
    single = finished(made("quadratic", content | {"run": {"blocks": 20}})).last
    for channel, value in whole.released.items():
        assert np.array_equal(single.released[channel], value)


@pytest.mark.parametrize("guarantee", ["none", "as_printed"])
@pytest.mark.parametrize("stream", STREAMS, ids=STREAM_NAMES)
def test_planned_is_recorded_without_a_certificate(guarantee: str, stream: Any) -> None:
    """Nothing is clipped: whatever reads a kind of record costs ∞ for it, and nothing for the other kind."""
    for kind in ("crossed", "quadratic"):
        content = base(ALGORITHM, guarantee)
        content["problem"]["stream"] = stream
        job = made(kind, content)
        assert finished(job).ledger.same_releases(job.ledger)
        assert np.isinf(job.budget.epsilon).all()
        lines = {c.channel: c for c in job.ledger.channels}
        assert np.isinf(lines["gy"].sensitivity["train"]).all()
        assert "validation" not in lines["gy"].sensitivity
        first = lines["v"].rounds % job.algorithm.releases_per_round == 3
        assert np.isinf(lines["v"].sensitivity["validation"][first]).all()
        assert (lines["v"].sensitivity["train"][first] == 0.0).all()
        assert lines["x"].mechanism.name == lines["y"].mechanism.name == "free"
        assert (lines["gx"].mechanism.name == "free") == (kind == "quadratic")


@pytest.mark.parametrize("still", [{"x": {"scale": 0.0}}, {"y": {"scale": 0.0}}])
@pytest.mark.parametrize("guarantee", ["certified", "as_printed"])
def test_steps_of_zero_are_planned(still: dict[str, Any], guarantee: str) -> None:
    job = made("crossed", base(ALGORITHM | still, guarantee))
    assert finished(job).ledger.same_releases(job.ledger)


def test_planned_is_recorded_whatever_reads_records() -> None:
    checked_on_every_problem(ALGORITHM)


@pytest.mark.parametrize("stream", STREAMS, ids=STREAM_NAMES)
def test_the_plan_is_the_hand_made_one(stream: Any) -> None:
    content = base(ALGORITHM)
    content["problem"]["stream"] = stream
    job = made("crossed", content)
    seen = {"all": None, "accumulate": [3, 5, 7], "minibatch": [2, 2, 2]}[job.stream.kind]
    lines = {c.channel: c for c in job.ledger.channels}
    for agent in range(job.n_agents):
        size = {k: int(job.counts[k][agent]) for k in ("train", "validation")}
        n = {k: [s if seen is None else min(s, seen[t]) for t in range(3)] for k, s in size.items()}
        wanted = {
            "gy": {"train": [2 * CLIPS["y"] / m for m in n["train"] for _ in range(2)]},
            "v": {
                "train": [2 * CLIPS["z"] / 3.0 / m * (k > 0) for m in n["train"] for k in range(3)],
                "validation": [2 * CLIPS["z"] / m * (k == 0) for m in n["validation"] for k in range(3)],
            },
            "gx": {k: [2 * CLIPS["x"] / m for m in n[k]] for k in size},
        }
        for channel, kinds in wanted.items():
            line = lines[channel]
            assert line.sensitivity.keys() == kinds.keys()
            for kind, sizes in kinds.items():
                got = line.sensitivity[kind][:, line.group[agent]]
                np.testing.assert_allclose(got, sizes, rtol=1e-11)
                share = 2 / size[kind] if job.stream.kind == "minibatch" else 1.0
                np.testing.assert_allclose(line.rate[kind][got > 0.0, line.group[agent]], share)
    assert lines["gy"].rounds.tolist() == [1, 2, 8, 9, 15, 16]
    assert lines["v"].rounds.tolist() == [3, 4, 5, 10, 11, 12, 17, 18, 19]
    assert lines["gx"].rounds.tolist() == [6, 13, 20]


# Adversaries --------------------------------------------------------------------------------------------------------

ROUNDS, INNER, INVERSE = 3, 2, 3


def certified() -> Bsa:
    return Bsa(StepSize(0.1, 0.2), StepSize(0.1), INNER, INVERSE, 2.0, start={"x": 9.0, "y": 9.0})


def scene(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Means of answers that keep the points away from where any term vanishes."""
    own = {c: rng.normal(size=(1, 2)) for c in ("gy", "v", "gx")}
    return own, 1.0 + rng.random(size=(1, 4 if e == 0 else 2))


@pytest.mark.parametrize("stream", READ, ids=STREAM_NAMES)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", ["train", "validation"])
def test_no_neighbour_exceeds_the_certificate(kind: str, norm: Any, stream: Any) -> None:
    best: dict[str, np.ndarray] = {}
    for seed in range(6):
        runs = worlds(certified(), ROUNDS, scene, kind, norm, stream, seed, seed % 2 == 0)
        for channel, share in shares(runs, kind, norm).items():
            assert (share <= 1.0 + 1e-9).all(), (channel, seed)
            best[channel] = np.maximum(best.get(channel, 0.0), share)
    if stream.kind == "minibatch":
        return
    first = np.arange(ROUNDS * INVERSE) % INVERSE == 0
    assert best["gx"].min() > 0.999
    assert (best["gy"].min() > 0.999) if kind == "train" else (best["gy"] == 0.0).all()
    read, unread = (~first, first) if kind == "train" else (first, ~first)
    assert best["v"][read].min() > 0.999
    assert (best["v"][unread] == 0.0).all()


def test_the_released_plan_states_what_the_replay_carries() -> None:
    for stream in READ:
        planned = certified().planned_releases(public_of(ROUNDS, stream))
        run = worlds(certified(), ROUNDS, scene, "train", "l1", stream, 0, True)[0]
        for kind in ("train", "validation"):
            for channel, sizes in certified_change(run, kind).items():
                listed = planned[channel].sensitivity.get(kind, np.zeros((sizes.size, 1)))
                np.testing.assert_allclose(listed[:, 0], sizes, rtol=1e-12)


# Planted bugs -------------------------------------------------------------------------------------------------------


class Stepped(Bsa):
    """Prices answers as if they were multiplied by the step already."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        return out | {"gy": out["gy"]._replace(sensitivity={k: 0.5 * s for k, s in out["gy"].sensitivity.items()})}


class Own(Bsa):
    """Goes on from the agent's own v before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        inner, reply = super().step(t, dataset, s), None
        try:
            while True:
                exchange = inner.send(reply)
                reply = yield exchange
                if "v" in exchange.values:
                    reply = reply._replace(mean=type("Mean", (), {"v": exchange.values["v"]})())
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("bug", [Stepped, Own])
def test_a_planted_bug_is_refused_by_the_comparison_of_plan_and_record(bug: Any) -> None:
    job = made("crossed", base(ALGORITHM))
    a = job.algorithm
    assert isinstance(a, Bsa)
    recorded, planned = ledgers(job, bug(a.x, a.y, a.inner, a.inverse, a.smoothness, start=a.start))
    assert not recorded.same_releases(planned)
    recorded, planned = ledgers(job, a)
    assert recorded.same_releases(planned)


def test_a_forgotten_clip_exceeds_the_certificate() -> None:
    runs = worlds(certified(), ROUNDS, scene, "train", "l1", READ[0], 0, True, Unclipped(2))
    assert min(share.max() for share in shares(runs, "train", "l1").values()) > 10.0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("inner", None, "algorithm.inner: missing"),
        ("smoothness", None, "algorithm.smoothness: missing"),
        ("inner", 0, "algorithm.inner"),
        ("z", {"scale": 0.1}, "algorithm.z: bsa takes none"),
    ],
)
def test_refusals(key: str, value: Any, words: str) -> None:
    content = base(ALGORITHM)
    content["algorithm"] = {k: v for k, v in (content["algorithm"] | {key: value}).items() if v is not None}
    with pytest.raises(InputError, match=words):
        build(decentral_dp.load(content))
