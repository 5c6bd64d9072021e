"""GBDSBO against the loops of its paper, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms import messages
from decentral_dp.algorithms.gossip.gbdsbo import Gbdsbo
from decentral_dp.algorithms.printed.printed_gbdsbo import PrintedGbdsbo
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.data import Stream
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.gossip_plan import plan
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from tests.support.replay import Noise, certified_change, conversation, loud, quiet, realised_change, replay
from tests.support.uneven import CLIPS, PROBLEMS, UNCLIPPED, Uneven, made, naive_mean, stationary
from tests.support.uneven import base as basis

STREAMS: tuple[Any, ...] = ("all", {"batch": 2, "warm_start": 1}, {"kind": "minibatch", "batch": 2})
NAMES = ["all", "accumulate", "minibatch"]
ALGORITHM: dict[str, Any] = {
    "kind": "gbdsbo",
    "x": {"scale": 0.4, "decay": 0.5},
    "y": {"scale": 0.3, "decay": 0.2},
    "averaging": {"scale": 0.6, "decay": 0.3},
    "inverse": 3,
    "smoothness": 4.0,
}


def base(guarantee: str = "certified", mechanism: str = "laplace", stream: Any = "all", **more: Any) -> dict[str, Any]:
    content: dict[str, Any] = basis(ALGORITHM | more, guarantee, mechanism)
    content["problem"]["stream"] = stream
    return content


def recorded(job: Job) -> Any:
    return LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)


# Naive loops --------------------------------------------------------------------------------------------------------


def naive(job: Job, noise: Noise, clips: Mapping[str, float]) -> list[dict[str, np.ndarray]]:
    """Everything that is said, by loops over agents and matrices that are formed; q too."""
    algorithm = job.algorithm
    assert isinstance(algorithm, Gbdsbo | PrintedGbdsbo)
    weights, m, b = job.topology.mixing.toarray(), job.n_agents, algorithm.inverse
    printed = algorithm.protocol == "printed"
    terms = {"s": "upper_grad_x", "h": "upper_grad_y", "u": "lower_jacobian"}
    terms |= {f"v{j}": "lower_hessian" for j in range(1, b + 1)}
    own: list[dict[str, np.ndarray]] = []
    for _ in range(m):
        zero = {"s": np.zeros(3), "h": np.zeros(2), "u": np.zeros((3, 2))}
        zero |= {c: np.zeros((2, 2)) for c in terms if c[0] == "v"}
        own.append({"x": np.full(3, algorithm.start["x"]), "y": np.full(2, algorithm.start["y"]), **zero})
    reads = {"lower_jacobian": "lower_jvp", "lower_hessian": "lower_hvp"}
    touched = {c for c, term in terms.items() if reads.get(term, term) in job.problem.reads_records} | {"y"}
    told = []
    for t in range(job.rounds + 1):
        sent = ["x", "y"] if t == job.rounds else list(own[0])
        said = []
        for i in range(m):
            out = {}
            for c in sent:
                noised = printed or (t > 0 and c in touched)
                out[c] = own[i][c] + noised * noise(t, c, i, own[i][c].size).reshape(own[i][c].shape)
            said.append(out)
        told.append({c: np.array([out[c].ravel() for out in said]) for c in sent})
        if t == job.rounds:
            break
        used = own if printed else said
        new = []
        for i in range(m):
            mine = used[i]
            mixed = {
                c: (1.0 + weights[i, i]) * v + sum((weights[i, j] * said[j][c] for j in range(m) if j != i), 0.0 * v)
                for c, v in mine.items()
            }
            x, y, beta = mine["x"], mine["y"], algorithm.averaging(t)
            q = np.eye(2)
            for j in range(1, b + 1):
                q = np.eye(2) + (np.eye(2) - mine[f"v{j}"] / algorithm.smoothness) @ q
            q = q / algorithm.smoothness
            after = {
                c: (1 - beta) * mixed[c] + beta * naive_mean(job, t, i, term, x, y, clips) for c, term in terms.items()
            }
            after["x"] = mixed["x"] - algorithm.x(t) * (mine["s"] - mine["u"] @ q @ mine["h"])
            after["y"] = mixed["y"] - algorithm.y(t) * naive_mean(job, t, i, "lower_grad_y", x, y, clips)
            new.append({c: after[c] for c in mine})
        own = new
    return told


def agree(job: Job, noise: Noise, clips: Mapping[str, float]) -> None:
    got, want = conversation(job, noise), naive(job, noise, clips)
    assert len(got) == len(want)
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        assert ours.keys() == theirs.keys(), index
        for channel, value in theirs.items():
            np.testing.assert_allclose(ours[channel], value, rtol=0, atol=1e-10, err_msg=f"{channel} at {index}")


@pytest.mark.parametrize("stream", STREAMS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_without_noise_it_is_the_loop_of_the_paper(problem: str, stream: Any) -> None:
    job = made(base("none", stream=stream, rounds=5), problem)
    agree(job, quiet, UNCLIPPED)
    # The real engine and mechanism say the same.
    for channel, value in conversation(job)[-1].items():
        np.testing.assert_allclose(recorded(job).last.released[channel], value, atol=1e-13)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_released_values_are_used_with_their_noise(problem: str, mechanism: str) -> None:
    for stream in STREAMS[:2]:
        agree(made(base(mechanism=mechanism, stream=stream), problem), loud, CLIPS)


@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_printed_has_noise_on_what_is_received_only(problem: str) -> None:
    agree(made(base("as_printed"), problem), loud, UNCLIPPED)


def test_protocols_differ_only_by_noise() -> None:
    """The loops above can tell: with noise the two protocols are far apart, without it they are one."""
    wide = base()
    wide["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
    jobs = [made(c) for c in (wide, base("as_printed"))]
    with_noise, without = ([conversation(j, n)[-1]["x"] for j in jobs] for n in (loud, quiet))
    np.testing.assert_allclose(*without, atol=1e-12)
    assert np.abs(with_noise[0] - with_noise[1]).max() > 0.01


@pytest.mark.parametrize(("kind", "agents"), [("complete", 1), ("complete", 3)])
def test_one_agent_and_a_complete_graph(kind: str, agents: int) -> None:
    for guarantee, noise in (("none", quiet), ("certified", loud), ("as_printed", loud)):
        content = base(guarantee) | {"topology": {"kind": kind, "agents": agents}}
        agree(made(content), noise, CLIPS if guarantee == "certified" else UNCLIPPED)


def test_every_hessian_has_a_sample_of_its_own() -> None:
    for stream, alike in zip(STREAMS, (True, True, False), strict=True):
        said = conversation(made(base("none", stream=stream)))[1]
        assert np.array_equal(said["v1"], said["v2"]) == alike


# Limits -------------------------------------------------------------------------------------------------------------


def truncated(smoothness: float, inverse: int) -> Any:
    def series(hessian: np.ndarray) -> np.ndarray:
        powers = [np.linalg.matrix_power(np.eye(2) - hessian / smoothness, k) for k in range(inverse + 1)]
        return np.sum(powers, axis=0) / smoothness

    return series


def test_one_agent_ends_where_the_truncated_series_says() -> None:
    """The bias of b + 1 terms, by closed form; it vanishes as b grows."""
    apart = []
    for inverse in (1, 4, 16):
        steps = {"x": {"scale": 0.2}, "y": {"scale": 0.3}, "averaging": {"scale": 0.5}}
        content = base("none", **steps, inverse=inverse, smoothness=8.0, rounds=250) | {
            "topology": {"kind": "complete", "agents": 1}
        }
        job = made(content)
        end = recorded(job).last.released["x"][0]
        np.testing.assert_allclose(end, stationary(job, truncated(8.0, inverse)), atol=1e-9)
        apart.append(np.abs(end - stationary(job, np.linalg.inv)).max())
    assert apart[0] > 0.01
    assert apart[0] > 2 * apart[1] > 40 * apart[2]


def test_agents_that_differ_end_near_the_optimum_for_decaying_steps() -> None:
    steps = {
        "x": {"scale": 1.0, "decay": 0.6},
        "y": {"scale": 0.4, "decay": 0.5},
        "averaging": {"scale": 1.0, "decay": 0.5},
    }
    job = made(base("none", **steps, inverse=6, rounds=300))
    end, goal = recorded(job).last.released["x"], stationary(job, truncated(4.0, 6))
    assert np.abs(end - goal).max() < 0.01
    assert np.abs(goal - stationary(job, np.linalg.inv)).max() < 0.001
    assert np.abs(0.7 - goal).max() > 0.3


# Plans --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", list(PROBLEMS))
@pytest.mark.parametrize("stream", STREAMS, ids=NAMES)
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_planned_is_recorded_and_engines_agree(mechanism: str, stream: Any, problem: str) -> None:
    ends = []
    for blocks in (1, 3):
        job = made(base(mechanism=mechanism, stream=stream) | {"run": {"blocks": blocks}}, problem)
        outcome = recorded(job)
        assert outcome.ledger.same_releases(job.ledger)
        assert not outcome.ledger.same_releases(job.ledger.rescaled(1.0 + 1e-9)), "the comparison has no power"
        assert np.isfinite(job.budget.epsilon).all()
        ends.append(outcome.last)
    for channel in ("x", "y"):
        np.testing.assert_allclose(ends[0].released[channel], ends[1].released[channel], rtol=0, atol=1e-9)


@pytest.mark.parametrize("zero", [None, "x", "y", "averaging"])
@pytest.mark.parametrize("rounds", [1, 2, 4])
@pytest.mark.parametrize("guarantee", ["none", "as_printed", "certified"])
def test_few_rounds_and_steps_of_zero_are_planned(guarantee: str, rounds: int, zero: str | None) -> None:
    for problem in PROBLEMS:
        still = {} if zero is None else {zero: {"scale": 0.0}}
        job = made(base(guarantee, rounds=rounds, **still), problem)
        assert recorded(job).ledger.same_releases(job.ledger)


def test_the_plan_is_the_hand_made_one() -> None:
    """What one replaced record moves, from the formulas, without slack; nothing is amplified."""
    for stream, seen in zip(STREAMS, (None, [3, 5, 7], [2, 2, 2]), strict=True):
        job = made(base(stream=stream))
        gamma = 0.3 / np.arange(1, 4) ** 0.2
        beta = (0.6 / np.arange(1, 4) ** 0.3)[:2]
        for agent in range(job.n_agents):
            n, v = (np.minimum(job.counts[k][agent], seen or [99] * 3) for k in ("train", "validation"))
            want = {"y": ("train", gamma * 2 * CLIPS["y"] / n)}
            want |= {
                "s": ("validation", beta * 2 * CLIPS["x"] / v[:2]),
                "h": ("validation", beta * 2 * CLIPS["z"] / v[:2]),
            }
            want |= {"u": ("train", beta * 2 * CLIPS["x"] / n[:2])}
            want |= {f"v{j}": ("train", beta * 2 * CLIPS["z"] / n[:2]) for j in (1, 2, 3)}
            assert {c.channel for c in job.ledger.charged} == set(want)
            for c in job.ledger.charged:
                kind, sizes = want[c.channel]
                assert list(c.sensitivity) == [kind]
                np.testing.assert_allclose(c.sensitivity[kind][:, c.group[agent]], sizes, rtol=1e-12)
                assert (c.rate[kind] == 1.0).all()


def test_printed_proves_nothing_but_of_what_met_no_record() -> None:
    job = made(base("as_printed"))
    accumulated = {c.channel: np.isinf(c.sensitivity["train"]).all(axis=1) for c in job.ledger.charged}
    assert accumulated.pop("x").tolist() == [False, True, True]
    assert all(m.all() for m in accumulated.values())
    assert np.isinf(job.budget.epsilon).all()


# Adversaries --------------------------------------------------------------------------------------------------------

ROUNDS = 4


def certified(kind: type[Gbdsbo] = Gbdsbo) -> Gbdsbo:
    return kind(StepSize(0.4, 0.5), StepSize(0.3, 0.2), StepSize(0.6, 0.3), 2, 4.0, start={"x": 0.7, "y": -0.4})


def shares(
    kind: Any, norm: Any, stream: Stream, seed: int, worst: bool, algorithm: Any = None, problem: Any = None
) -> Any:
    """Realised over certified change per release, of one agent on one transcript with one record replaced."""
    rng = np.random.default_rng([3, seed])
    algorithm, problem, n = algorithm or certified(), problem or Uneven(), 3
    rows = {k: rng.normal(size=(n, 2)) * 10.0 ** rng.integers(0, 3) for k in ("train", "validation")}
    labels = {k: rng.choice([-1.0, 1.0], size=n) for k in rows}
    if worst:
        for k in rows:
            rows[k][0] = [1e4, 2e4]
    other = ({k: r.copy() for k, r in rows.items()}, {k: v.copy() for k, v in labels.items()})
    if worst and kind == "train":
        other[1][kind][0] *= -1
    else:
        other[0][kind][0] *= -1 if worst else rng.normal(size=2)
    widths = {c: channel.width for c, channel in algorithm.releases(3, 2).items()}
    own = [{c: rng.normal(size=(1, w)) for c, w in widths.items()} for _ in range(ROUNDS + 1)]
    received = [rng.normal(size=(1, sum(widths.values()))) for _ in range(ROUNDS)]
    runs = []
    for features, marks in ((rows, labels), other):
        records = [problem.prepare(features[k], marks[k], norm) for k in ("train", "validation")]
        scene = {"rounds": ROUNDS, "neighbour_weight": 0.6, "own": own, "received": received, "stream": stream}
        runs.append(replay(algorithm, problem, *records, **scene, clip=Clip(norm, **CLIPS)))
    allowed, out = certified_change(runs[0], kind), {}
    for channel, sizes in realised_change(*runs, norm=norm).items():
        with np.errstate(divide="ignore", invalid="ignore"):
            out[channel] = np.where(sizes == 0.0, 0.0, sizes / allowed[channel])
    return out


READ = (Stream("all"), Stream("accumulate", batch=1), Stream("minibatch", batch=1))


@pytest.mark.parametrize("stream", READ, ids=NAMES)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", ["train", "validation"])
def test_no_neighbour_exceeds_the_certificate_and_the_worst_reaches_it(kind: str, norm: Any, stream: Stream) -> None:
    accumulated = {"train": {"y", "u", "v1", "v2"}, "validation": {"s", "h"}}[kind]
    for seed in range(8):
        for channel, share in shares(kind, norm, stream, seed, seed % 2 == 0).items():
            assert (share <= 1.0 + 1e-9).all(), (channel, seed)
            assert channel in accumulated or (share == 0.0).all()
            if channel in accumulated and seed % 2 == 0 and stream.kind != "minibatch":
                assert share.min() > 0.999, channel


class Unreleased(Gbdsbo):
    """Evaluates its gradients at its own y before noise, taking it for public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        inner = super().step(t, dataset, s)
        exchange = next(inner)
        reply = yield exchange
        y = exchange.values["y"]
        own = {**reply.released, "y": getattr(y, "value", y)}
        try:
            inner.send(reply._replace(released=own))
        except StopIteration as done:
            return done.value


class Halved(Gbdsbo):
    """Forgets that a replaced record both leaves and comes."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return {
            c: p._replace(sensitivity={k: s / 2 for k, s in p.sensitivity.items()})
            for c, p in super().planned_releases(public).items()
        }


def test_planted_bugs_are_caught() -> None:
    with pytest.raises(ValueError, match="counts as public"):
        shares("train", "l1", READ[0], 0, True, certified(Unreleased))
    assert max(s.max() for s in shares("train", "l1", READ[0], 0, True, None, Uneven(clipped=False)).values()) > 10.0
    job = made(base())
    planned = plan(
        certified(Halved), job.problem, job.counts, job.stream, job.topology.neighbour_weight, job.clip, None,
        job.rounds,
        job.mechanism, job.noise | {"v3": job.noise["v1"]},
    )  # fmt: skip
    nodes = [n._replace(program=certified(Halved)) for n in job.nodes()]
    assert not LocalEngine().run(nodes, job.rounds, [], lambda s: False).ledger.same_releases(planned)


# Refusals -----------------------------------------------------------------------------------------------------------


def test_messages_that_are_too_large_are_refused_with_their_size() -> None:
    algorithm = certified()
    p = q = 1000
    size = 8 * (2 * p + 2 * q + p * q + 2 * q * q)
    assert size <= messages.LARGEST_MESSAGE
    algorithm.check(p, q)
    with pytest.raises(InputError, match=f"{8 * (4 * 2000 + 3 * 2000 * 2000):,} bytes.*67,108,864.*inverse"):
        algorithm.check(2000, 2000)


def test_a_job_is_refused_before_anything_of_that_size_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 8 * (6 + 4 + 6 + 12) - 1)
    with pytest.raises(InputError, match=r"p = 3 and q = 2 each message of gbdsbo .* 224 bytes"):
        made(base())
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 8 * (6 + 4 + 6 + 12))
    made(base())


def test_other_refusals() -> None:
    with pytest.raises(InputError, match=r"averaging\.scale: got 1\.5"):
        made(base(averaging={"scale": 1.5}))
    content = base()
    del content["algorithm"]["smoothness"]
    with pytest.raises(InputError, match=r"algorithm\.smoothness: missing"):
        made(content)
    content = base()
    del content["privacy"]["clip"]["x"]
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
        made(content)
    assert build(decentral_dp.load(content)).budget.epsilon.max() < np.inf
