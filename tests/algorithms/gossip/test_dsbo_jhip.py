"""DSBO-JHIP against the loops of its paper, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms import messages
from decentral_dp.algorithms.gossip import dsbo_jhip
from decentral_dp.algorithms.gossip.dsbo_jhip import DsboJhip
from decentral_dp.algorithms.printed.printed_dsbo_jhip import PrintedDsboJhip
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.bounded import Bounded, Sensitivity
from decentral_dp.constants.bounded_matrices import transposed, unproven
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
    "kind": "dsbo_jhip",
    "x": {"scale": 0.4, "decay": 0.5},
    "y": {"scale": 0.3, "decay": 0.2},
    "z": {"scale": 0.2, "decay": 0.1},
    "inner": 2,
    "inverse": 3,
}


def base(guarantee: str = "certified", mechanism: str = "laplace", stream: Any = "all", **more: Any) -> dict[str, Any]:
    content: dict[str, Any] = basis(ALGORITHM | more, guarantee, mechanism)
    content["problem"]["stream"] = stream
    return content


def recorded(job: Job) -> Any:
    return LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)


# Naive loops --------------------------------------------------------------------------------------------------------


def naive(job: Job, noise: Noise, clips: Mapping[str, float], separately: bool) -> list[dict[str, np.ndarray]]:
    """Everything that is said, by loops over agents and (q, p) matrices.

    separately: whether D moves by S^{k+1} − S^k, as in the paper, or by one product along Z^{k+1} − Z^k.
    """
    algorithm = job.algorithm
    assert isinstance(algorithm, DsboJhip | PrintedDsboJhip)
    weights, m, reads_records = job.topology.mixing.toarray(), job.n_agents, job.problem.reads_records
    printed, per_round = algorithm.protocol == "printed", 1 + algorithm.inner + algorithm.inverse
    told: list[dict[str, np.ndarray]] = [{} for _ in range(job.rounds * per_round + 1)]

    def say(index: int, channel: str, values: list[np.ndarray], noised: bool) -> list[np.ndarray]:
        out = [v + noised * noise(index, channel, i, v.size).reshape(v.shape) for i, v in enumerate(values)]
        told[index][channel] = np.array([v.ravel() for v in out])
        return out

    def mixed(i: int, own: np.ndarray, heard: list[np.ndarray]) -> np.ndarray:
        return (1.0 + weights[i, i]) * own + sum((weights[i, j] * heard[j] for j in range(m) if j != i), 0.0 * own)

    def mean(term: str, t: int, i: int, z: Any = None) -> np.ndarray:
        return naive_mean(job, t, i, term, at[i], y[i], clips, z)

    x = [np.full(3, algorithm.start["x"]) for _ in range(m)]
    y = [np.full(2, algorithm.start["y"]) for _ in range(m)]
    y_said = list(y)
    for t in range(job.rounds):
        index = t * per_round
        x_said = say(index, "x", x, printed or (t > 0 and "upper_grad_x" in reads_records))
        at = x if printed else x_said
        for k in range(algorithm.inner):
            y = [mixed(i, y[i], y_said) - algorithm.y(t) * mean("lower_grad_y", t, i) for i in range(m)]
            y_said = say(index + 1 + k, "y", y, True)
            y = y if printed else y_said
        h = [mean("upper_grad_y", t, i) for i in range(m)]
        jacobian = [mean("lower_jacobian", t, i) for i in range(m)]
        z = [np.zeros((2, 3)) for _ in range(m)]
        s = [-j.T for j in jacobian]
        d = list(s)
        for k in range(algorithm.inverse):
            spot = index + 1 + algorithm.inner + k
            z_said = say(spot, "Z", z, printed and k > 0)
            d_said = say(spot, "D", d, printed or ("lower_hvp" if k else "lower_jvp") in reads_records)
            if k == 0 and not printed:
                h = say(spot, "h", h, True)
            d = d if printed else d_said
            before = z if printed else z_said
            z = [mixed(i, before[i], z_said) - algorithm.z(t) * d[i] for i in range(m)]
            new = [mean("lower_hessian_product", t, i, z[i]) - jacobian[i].T for i in range(m)]
            sensitivity = [new[i] - s[i] for i in range(m)]
            if not separately:
                sensitivity = [mean("lower_hessian_product", t, i, z[i] - before[i]) for i in range(m)]
            d = [mixed(i, d[i], d_said) + sensitivity[i] for i in range(m)]
            s = new
        x = [mixed(i, at[i], x_said) - algorithm.x(t) * (mean("upper_grad_x", t, i) - z[i].T @ h[i]) for i in range(m)]
    last = job.rounds * per_round
    say(last, "x", x, printed or "upper_grad_x" in reads_records)
    say(last, "y", y, printed)
    return told


def agree(job: Job, noise: Noise, clips: Mapping[str, float], separately: bool | None = None) -> None:
    """Unless told, the paper's own increments where nothing is clipped."""
    separately = not np.isfinite(clips["z"]) if separately is None else separately
    got, want = conversation(job, noise), naive(job, noise, clips, separately)
    assert len(got) == len(want)
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        assert ours.keys() == theirs.keys(), index
        for channel, value in theirs.items():
            np.testing.assert_allclose(ours[channel], value, rtol=0, atol=1e-10, err_msg=f"{channel} at {index}")


@pytest.mark.parametrize("stream", STREAMS[:2], ids=NAMES[:2])
@pytest.mark.parametrize("problem", list(PROBLEMS))
def test_without_noise_it_is_the_loop_of_the_paper(problem: str, stream: Any) -> None:
    job = made(base("none", stream=stream), problem)
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


@pytest.mark.parametrize("stream", STREAMS[:2], ids=NAMES[:2])
def test_where_no_clip_binds_it_is_the_tracking_of_the_paper(stream: Any) -> None:
    """One product along Z^{k+1} − Z^k is S^{k+1} − S^k, noise and all; and a clip that binds does tell them apart."""
    content = base(stream=stream)
    content["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
    agree(made(content), loud, UNCLIPPED)
    # D^1 is the same: Z^0 = 0.
    with pytest.raises(AssertionError, match="D at 5"):
        agree(made(base(stream=stream)), loud, CLIPS, separately=True)


def test_protocols_differ_only_by_noise() -> None:
    """The loops above can tell: with noise the two protocols are far apart, without it they are one."""
    wide = base()
    wide["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
    jobs = [made(c) for c in (wide, base("as_printed"))]
    with_noise, without = ([conversation(j, n)[-1]["x"] for j in jobs] for n in (loud, quiet))
    np.testing.assert_allclose(*without, atol=1e-12)
    assert np.abs(with_noise[0] - with_noise[1]).max() > 0.01


@pytest.mark.parametrize(("kind", "agents"), [("complete", 1), ("complete", 3)])
@pytest.mark.parametrize(("inner", "inverse"), [(1, 1), (3, 2)])
def test_one_agent_a_complete_graph_and_short_loops(kind: str, agents: int, inner: int, inverse: int) -> None:
    for guarantee, noise in (("none", quiet), ("certified", loud), ("as_printed", loud)):
        content = base(guarantee, inner=inner, inverse=inverse) | {"topology": {"kind": kind, "agents": agents}}
        agree(made(content), noise, CLIPS if guarantee == "certified" else UNCLIPPED)


def test_noise_makes_the_mean_of_the_tracker_walk() -> None:
    """Mean D^k = mean S^k + the sum of all noise that was added to D^0 … D^k since the round began."""
    content = base(inverse=6)
    content["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
    job = made(content)
    said = conversation(job, loud)[3:9]
    walk = np.zeros(6)
    hessians = [
        naive_mean(job, 0, i, "lower_hessian", np.zeros(3), np.zeros(2), UNCLIPPED) for i in range(job.n_agents)
    ]
    start = None
    for k, message in enumerate(said):
        walk += np.mean([loud(3 + k, "D", i, 6) for i in range(job.n_agents)], axis=0)
        products = [h @ z.reshape(2, 3) for h, z in zip(hessians, message["Z"], strict=True)]
        off = message["D"].mean(axis=0) - np.mean(products, axis=0).ravel() - walk
        start = off if start is None else start
        np.testing.assert_allclose(off, start, atol=1e-10)
    assert np.abs(walk).max() > 0.1


# Limits -------------------------------------------------------------------------------------------------------------


def truncated(step: float, inverse: int) -> Any:
    def series(hessian: np.ndarray) -> np.ndarray:
        return step * np.sum([np.linalg.matrix_power(np.eye(2) - step * hessian, k) for k in range(inverse)], axis=0)

    return series


def test_one_agent_ends_where_so_many_steps_of_z_say() -> None:
    """N steps of size γ from 0 are the first N terms of a Neumann series: a bias in closed form."""
    apart = []
    for inverse in (1, 3, 40):
        steps = {"x": {"scale": 0.3}, "y": {"scale": 0.3}, "z": {"scale": 0.15}}
        rounds = 150 if inverse < 40 else 60
        content = base("none", **steps, inverse=inverse, inner=3, rounds=rounds)
        job = made(content | {"topology": {"kind": "complete", "agents": 1}})
        end = recorded(job).last.released["x"][0]
        np.testing.assert_allclose(end, stationary(job, truncated(0.15, inverse)), atol=1e-7)
        apart.append(np.abs(end - stationary(job, np.linalg.inv)).max())
    assert apart[0] > 0.02
    assert apart[0] > 1.5 * apart[1]
    assert apart[2] < 1e-5


def test_agents_that_differ_end_near_the_optimum_for_decaying_steps() -> None:
    """The mean of x closely; each x within its last step of it."""
    steps = {"x": {"scale": 1.0, "decay": 0.6}, "y": {"scale": 0.4, "decay": 0.5}, "z": {"scale": 0.1}}
    job = made(base("none", **steps, inverse=40, rounds=80))
    end, goal = recorded(job).last.released["x"], stationary(job, np.linalg.inv)
    assert np.abs(end.mean(axis=0) - goal).max() < 0.002
    assert np.abs(end - goal).max() < 1.0 / 80**0.6
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


@pytest.mark.parametrize("zero", [None, "x", "y", "z"])
@pytest.mark.parametrize(("inner", "inverse"), [(1, 1), (1, 2), (3, 1), (2, 4)])
@pytest.mark.parametrize("guarantee", ["none", "as_printed", "certified"])
def test_short_loops_and_steps_of_zero_are_planned(guarantee: str, inner: int, inverse: int, zero: str | None) -> None:
    for problem in PROBLEMS:
        still = {} if zero is None else {zero: {"scale": 0.0}}
        job = made(base(guarantee, rounds=2, inner=inner, inverse=inverse, **still), problem)
        assert recorded(job).ledger.same_releases(job.ledger)


@pytest.mark.parametrize("inverse", [1, 2, 3])
def test_the_tracker_is_charged_where_it_reads_a_record_and_nowhere_else(inverse: int) -> None:
    for without in ((), ("lower_jvp",), ("lower_hvp",), ("lower_jvp", "lower_hvp")):
        job = build(decentral_dp.load(base(inverse=inverse)), Uneven(without=without))
        ledger = recorded(job).ledger
        assert ledger.same_releases(job.ledger)
        charged = [] if "lower_jvp" in without else [0]
        charged += [] if "lower_hvp" in without else range(1, inverse)
        tracker = next(c for c in ledger.channels if c.channel == "D")
        assert [int(i) % job.algorithm.releases_per_round - 3 for i in tracker.rounds if tracker.mechanism.charged] == (
            charged * job.rounds
        )


@pytest.mark.parametrize("protocol", ["released", "printed"])
def test_one_batch_serves_the_inverse_loop_of_the_certified_form_only(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it asks for J once per round, for one product per increment; as printed, fresh samples for each k."""
    log: list[tuple[int, str]] = []

    class Asked:
        def __init__(self, of: Any, draw: int = -1) -> None:
            self._of, self._draw = of, draw

        def __getattr__(self, name: str) -> Any:
            if self._draw >= 0:
                log.append((self._draw, name))
            return getattr(self._of, name)

        def batch(self, t: int, draw: int, kept: bool) -> Any:
            assert kept
            return Asked(self._of.batch(t, draw, kept=kept), draw)

    job = made(base("certified" if protocol == "released" else "as_printed"))
    own = type(job.algorithm).step
    monkeypatch.setattr(type(job.algorithm), "step", lambda a, t, dataset, s: own(a, t, Asked(dataset), s))
    LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
    product, jacobian = "lower_hessian_product", "lower_jacobian"
    loop = {
        "released": [(2, product), (2, product)],
        "printed": [(3, product), (3, jacobian), (4, product), (4, jacobian)],
    }[protocol]
    begin = [(0, "lower_grad_y"), (1, "lower_grad_y"), (2, "upper_grad_y"), (2, jacobian)]
    assert log == [*begin, *loop, (5, "upper_grad_x")] * job.rounds


@pytest.mark.parametrize("inverse", [1, 2])
def test_short_loops_can_be_calibrated(inverse: int) -> None:
    for problem in PROBLEMS:
        content = base(rounds=1, inverse=inverse)
        content["privacy"] = {"epsilon": 3.0, "clip": dict(CLIPS)}
        assert made(content, problem).budget.epsilon.max() == pytest.approx(3.0, rel=2e-3)


def test_the_plan_is_the_hand_made_one() -> None:
    """What one replaced record moves, from the formulas, without slack; nothing is amplified."""
    for stream, seen in zip(STREAMS, (None, [3, 5, 7], [2, 2, 2]), strict=True):
        job = made(base(stream=stream))
        eta, beta = 0.4 / np.arange(1, 4) ** 0.5, 0.3 / np.arange(1, 4) ** 0.2
        for agent in range(job.n_agents):
            n, v = (np.minimum(job.counts[k][agent], seen or [99] * 3) for k in ("train", "validation"))
            tracker = [2 * CLIPS["x"], 2 * CLIPS["z"], 2 * CLIPS["z"]]
            want = {
                "x": ("validation", eta * 2 * CLIPS["x"] / v),
                "y": ("train", np.repeat(beta * 2 * CLIPS["y"] / n, 2)),
                "D": ("train", np.outer(1.0 / n, tracker).ravel()),
                "h": ("validation", 2 * CLIPS["z"] / v),
            }
            assert {c.channel for c in job.ledger.charged} == set(want)
            for c in job.ledger.charged:
                kind, sizes = want[c.channel]
                sensitivity = c.sensitivity[kind][:, c.group[agent]]
                np.testing.assert_allclose(sensitivity, sizes, rtol=1e-12)
                assert all((s == 0.0).all() for k, s in c.sensitivity.items() if k != kind)
                assert all((r == 1.0).all() for r in c.rate.values())


# Adversaries --------------------------------------------------------------------------------------------------------

ROUNDS, INNER, INVERSE = 3, 2, 4
PER_ROUND = 1 + INNER + INVERSE


def certified(kind: type[DsboJhip] = DsboJhip, inner: int = INNER, inverse: int = INVERSE) -> DsboJhip:
    return kind(StepSize(0.4, 0.5), StepSize(0.3, 0.2), StepSize(0.2, 0.1), inner, inverse, start={"x": 0.7, "y": -0.4})


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
    own = [{c: rng.normal(size=(1, w)) for c, w in {"x": 3, "y": 2, "D": 6, "h": 2}.items()}
           for _ in range(ROUNDS * PER_ROUND + 1)]  # fmt: skip
    received = []
    for index in range(ROUNDS * PER_ROUND):
        e = index % PER_ROUND
        width = 3 if e == 0 else 2 if e <= INNER else 14 if e == INNER + 1 else 12
        message = rng.normal(size=(1, width))
        if worst and e > INNER:
            # Z goes far from one k to the next.
            message[0, :6] = 50.0 * (-1) ** e
        received.append(message)
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
def test_no_neighbour_exceeds_the_certificate_and_the_worst_comes_near(kind: str, norm: Any, stream: Stream) -> None:
    sensitivity = {"train": {"y", "D"}, "validation": {"x", "h"}}[kind]
    for seed in range(8):
        for channel, share in shares(kind, norm, stream, seed, seed % 2 == 0).items():
            assert (share <= 1.0 + 1e-9).all(), (channel, seed)
            assert channel in sensitivity or (share == 0.0).all()
            if channel in sensitivity and seed % 2 == 0 and stream.kind != "minibatch":
                assert share.min() > 0.999, channel


class Unreleased(DsboJhip):
    """Multiplies Z by its ∇_y f before noise, taking it for public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        inner, reply = super().step(t, dataset, s), None
        try:
            while True:
                exchange = inner.send(reply)
                reply = yield exchange
                if "h" in exchange.values:
                    h = exchange.values["h"]
                    reply = reply._replace(
                        released=type(reply.released)({**reply.released, "h": getattr(h, "value", h)})
                    )
        except StopIteration as done:
            return done.value


class Ahead:
    """A shard, or a batch of it, whose Hessian is multiplied by more than the public difference of Z."""

    def __init__(self, of: Any, hidden: dict[str, np.ndarray]) -> None:
        self._of, self._hidden = of, hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def batch(self, *args: Any, **more: Any) -> Any:
        return Ahead(self._of.batch(*args, **more), self._hidden)

    def lower_hessian_product(self, x: Any, y: Any, along: Any) -> Any:
        return self._of.lower_hessian_product(x, y, along + self._hidden["along"])


class Hidden(DsboJhip):
    """Takes Z^{k+1} − Z^k along the Z that its own D makes before noise, and that for public; sends the right Z."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        hidden: dict[str, np.ndarray] = {}
        inner, reply = super().step(t, Ahead(dataset, hidden), s), None
        try:
            while True:
                exchange = inner.send(reply)
                reply = yield exchange
                if "D" in exchange.values:
                    hidden["along"] = self.z(t) * (reply.released.D - exchange.values["D"].value)
        except StopIteration as done:
            return done.value


class Tracked(DsboJhip):
    """Prices the increment of D as S^{k+1} − S^k, both of them clipped means."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        k = (out["D"].indices % self.releases_per_round - 1 - self.inner)[:, None]
        twice = {c: np.where(k > 1, 2.0, 1.0) * s for c, s in out["D"].sensitivity.items()}
        return out | {"D": out["D"]._replace(sensitivity=twice)}


class Once(DsboJhip):
    """Forgets that a record that is replaced leaves the mean as well as joins it."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        half = {k: s / 2 for k, s in out["D"].sensitivity.items()}
        return out | {"D": out["D"]._replace(sensitivity=half)}


def test_planted_bugs_are_caught() -> None:
    with pytest.raises(ValueError, match="counts as public"):
        shares("validation", "l1", READ[0], 0, True, certified(Unreleased))
    with pytest.raises(ValueError, match="counts as public"):
        shares("train", "l1", READ[0], 0, True, certified(Hidden))
    assert shares("train", "l1", READ[0], 0, True, None, Uneven(clipped=False))["D"].max() > 10.0
    job = made(base())
    for kind, same in ((DsboJhip, True), (Once, False), (Tracked, False)):
        broken = certified(kind, 2, 3)
        planned = plan(
            broken, job.problem, job.counts, job.stream, job.topology.neighbour_weight, job.clip, None, job.rounds,
            job.mechanism, job.noise,
        )  # fmt: skip
        nodes = [n._replace(program=broken) for n in job.nodes()]
        ledger = LocalEngine().run(nodes, job.rounds, [], lambda s: False).ledger
        assert ledger.same_releases(planned) == same


def test_a_layout_that_is_not_transposed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive loops can tell (p, q) from (q, p)."""
    monkeypatch.setattr(dsbo_jhip, "transposed", lambda value, rows, columns: value)
    with pytest.raises(AssertionError, match="D at"):
        agree(made(base("none")), quiet, UNCLIPPED)


# Values as matrices -------------------------------------------------------------------------------------------------


def test_a_transposed_value_keeps_its_sensitivity() -> None:
    flat = np.arange(12.0).reshape(2, 6)
    spread = {"train": Sensitivity(np.array([1.0, 2.0]), np.ones(2), None)}
    value = transposed(Bounded(flat, 2 * flat, spread, "l1"), 3, 2)
    assert isinstance(value, Bounded)
    for row in range(2):
        assert np.array_equal(value.public[row].reshape(2, 3), flat[row].reshape(3, 2).T)
    assert np.array_equal(value.private, 2 * value.public)
    assert value.sensitivities is spread
    assert np.array_equal(transposed(flat, 3, 2), value.public)


def test_what_is_unproven_is_infinite_for_the_kinds_and_rows_that_can_move_it() -> None:
    one, ones = np.ones((2, 1)), np.ones(2)
    sensitivity = Bounded(0 * one, one, {"train": Sensitivity(np.array([0.0, 0.5]), ones, None)}, "l2")
    product = unproven(np.multiply, sensitivity, 3 * one)
    assert isinstance(product, Bounded)
    assert np.array_equal(product.value, 3 * one)
    assert not product.public.any()
    assert product.sensitivities["train"].sensitivity.tolist() == [0.0, np.inf]
    assert product.sensitivities["validation"].sensitivity.tolist() == [0.0, 0.0]
    assert np.array_equal(unproven(np.multiply, one, one), one)


# Refusals -----------------------------------------------------------------------------------------------------------


def test_messages_that_are_too_large_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    certified().check(2047, 2048)
    with pytest.raises(InputError, match=f"{8 * (2 * 2048 * 2048 + 2048):,} bytes.*67,108,864.*ma_dsbo"):
        certified().check(2048, 2048)
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 8 * 14 - 1)
    with pytest.raises(InputError, match=r"p = 3 and q = 2 each message of dsbo_jhip .* 112 bytes"):
        made(base())
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 8 * 14)
    made(base())


def test_other_refusals() -> None:
    content = base()
    del content["algorithm"]["inverse"]
    with pytest.raises(InputError, match=r"algorithm\.inverse: missing"):
        made(content)
    with pytest.raises(InputError, match=r"algorithm\.smoothness: dsbo_jhip takes none"):
        made(base(smoothness=2.0))
    content = base()
    del content["privacy"]["clip"]["x"]
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
        made(content)
    assert made(content, "free x").budget.epsilon.max() < np.inf
