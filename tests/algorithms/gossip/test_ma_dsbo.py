"""MA-DSBO against the loops of its papers, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.algorithms.gossip.ma_dsbo import MaDsbo
from decentral_dp.algorithms.printed.printed_ma_dsbo import PrintedMaDsbo
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.data import Stream
from decentral_dp.engines.local import LocalEngine
from decentral_dp.errors import InputError
from decentral_dp.exchange import Bundle
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.gossip_plan import plan
from decentral_dp.simulation.job_builder import build
from decentral_dp.simulation.jobs import Job
from tests.support import naive
from tests.support.replay import (
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
from tests.support.uneven import Uneven as ThreeAndTwo

STREAMS: tuple[Any, ...] = ("all", {"batch": 2, "warm_start": 1}, {"kind": "minibatch", "batch": 2})
CLIPS = {"x": 0.4, "y": 0.5, "z": 0.3}


def base(guarantee: str = "certified", mechanism: str = "laplace", **changes: Any) -> dict[str, Any]:
    """A small scenario; keyword tables change it."""
    privacy: dict[str, Any] = {"guarantee": guarantee}
    if guarantee != "none":
        privacy |= {"mechanism": mechanism, **{c: {"scale": 0.3, "decay": 0.1} for c in "xyz"}}
    if guarantee == "certified":
        privacy["clip"] = CLIPS
    content: dict[str, Any] = {
        "seed": 4,
        "problem": {
            "kind": "quadratic",
            "data": "synthetic_classification",
            "validation": 0.5,
            "synthetic": {"dimension": 2, "records": 12, "test_records": 8},
        },
        "topology": {"kind": "ring", "agents": 4},
        "algorithm": {
            "kind": "ma_dsbo",
            "rounds": 3,
            "inner": 2,
            "inverse": 3,
            "x": {"scale": 0.4, "decay": 0.5},
            "y": {"scale": 0.3, "decay": 0.2},
            "z": {"scale": 0.2},
            "init": {"x": 0.7, "y": -0.4},
        },
        "privacy": privacy,
    }
    for table, values in changes.items():
        content[table] = content.get(table, {}) | values
    return content


def made(kind: str, content: dict[str, Any]) -> Job:
    """A job on a named problem, or on the one whose terms all read records."""
    problem = {"kind": "quadratic" if kind in ("crossed", "from_losses") else kind}
    problem |= {"ridge": 0.5} if problem["kind"] == "quadratic" else {}
    own = {"crossed": Crossed(2), "from_losses": crossed(2)}
    return build(decentral_dp.load(content | {"problem": content["problem"] | problem}), own.get(kind))


# Naive loops --------------------------------------------------------------------------------------------------------

# Per record, and of the regulariser.
ORACLES = {kind: naive.ORACLES[kind] for kind in ("logistic_hyperparameter", "quadratic")}
ORACLES["from_losses"] = naive.ORACLES["crossed"]


@dataclass
class Naive:
    """Algorithm 3 of Chen & Wang in loops over agents and records, own values with or without their noise.

    separately: whether d moves by s^{k+1} − s^k, as in the paper, or by one product along z^{k+1} − z^k.
    """

    job: Job
    kind: str
    noise: Noise
    clips: Mapping[str, float]
    separately: bool

    def mean(self, term: str, t: int, i: int, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        per_record, penalty = ORACLES[self.kind]
        records = self.job.records["train" if term.startswith("lower") else "validation"][i]
        rows = records.signed if hasattr(records, "signed") else records.features
        labels = np.ones(len(rows)) if hasattr(records, "signed") else records[1]
        n = len(rows) if self.job.stream.kind == "all" else min(len(rows), 1 + 2 * (t + 1))
        norm = 1 if self.job.mechanism.name == "laplace" else 2
        bound = self.clips[{"lower_grad_y": "y", "lower_hvp": "z", "upper_grad_y": "z"}.get(term, "x")]
        total = np.zeros_like(y)
        if term in per_record:
            for a, b in zip(rows[:n], labels[:n], strict=True):
                one = per_record[term](x, y, z, a, b)
                size = np.linalg.norm(one, norm)
                total = total + one * (bound / size if size > bound else 1.0) / n
        return total + penalty[term](x, y, z) if term in penalty else total

    def run(self) -> list[dict[str, np.ndarray]]:
        job, algorithm = self.job, self.job.algorithm
        assert isinstance(algorithm, MaDsbo | PrintedMaDsbo)
        weights, m = job.topology.mixing.toarray(), job.n_agents
        printed, reads_x = algorithm.protocol == "printed", self.kind == "from_losses"
        per_round = 1 + algorithm.inner + algorithm.inverse
        told: list[dict[str, np.ndarray]] = [{} for _ in range(job.rounds * per_round + 1)]

        def say(index: int, channel: str, values: list[np.ndarray], noised: bool) -> list[np.ndarray]:
            out = [v + self.noise(index, channel, i, v.size) * noised for i, v in enumerate(values)]
            told[index][channel] = np.array(out)
            return out

        def toward(i: int, own: np.ndarray, heard: list[np.ndarray]) -> np.ndarray:
            return own + sum((weights[i, j] * (heard[j] - own) for j in range(m) if j != i), np.zeros_like(own))

        x = [np.full(2, algorithm.start["x"]) for _ in range(m)]
        y = [np.full(2, algorithm.start["y"]) for _ in range(m)]
        r, y_said = [np.zeros(2) for _ in range(m)], list(y)
        z = [np.zeros(2) for _ in range(m)]
        for t in range(job.rounds):
            alpha, beta, gamma = algorithm.x(t), algorithm.y(t), algorithm.z(t)
            x_said = say(t * per_round, "x", x, printed or (reads_x and t > 0))
            at = x if printed else x_said
            for k in range(algorithm.inner):
                y = [
                    toward(i, y[i], y_said) - beta * self.mean("lower_grad_y", t, i, at[i], y[i], z[i])
                    for i in range(m)
                ]
                y_said = say(t * per_round + 1 + k, "y", y, True)
                y = y if printed else y_said
            z = [np.zeros(2) for _ in range(m)]
            b = [self.mean("upper_grad_y", t, i, at[i], y[i], z[i]) for i in range(m)]
            s = [-v for v in b]
            d = list(s)
            for k in range(algorithm.inverse):
                index = t * per_round + 1 + algorithm.inner + k
                z_said, d_said = say(index, "z", z, printed and k > 0), say(index, "d", d, True)
                d = d if printed else d_said
                before = z if printed else z_said
                z = [toward(i, before[i], z_said) - gamma * d[i] for i in range(m)]
                news = [self.mean("lower_hvp", t, i, at[i], y[i], z[i]) - b[i] for i in range(m)]
                sensitivity = [news[i] - s[i] for i in range(m)]
                if not self.separately:
                    sensitivity = [self.mean("lower_hvp", t, i, at[i], y[i], z[i] - before[i]) for i in range(m)]
                d = [toward(i, d[i], d_said) + sensitivity[i] for i in range(m)]
                s = news
            u = [
                self.mean("upper_grad_x", t, i, at[i], y[i], z[i]) - self.mean("lower_jvp", t, i, at[i], y[i], z[i])
                for i in range(m)
            ]
            x = [toward(i, at[i], x_said) - alpha * r[i] for i in range(m)]
            r = [(1 - alpha) * r[i] + alpha * u[i] for i in range(m)]
        last = job.rounds * per_round
        for channel, values in (("x", x), ("y", y), ("z", z)):
            say(last, channel, values, printed or (channel == "x" and reads_x))
        return told


def agree(job: Job, kind: str, noise: Noise, clips: Mapping[str, float], separately: bool | None = None) -> None:
    """Unless told, the paper's own increments where nothing is clipped."""
    separately = not np.isfinite(clips["z"]) if separately is None else separately
    got, want = conversation(job, noise), Naive(job, kind, noise, clips, separately).run()
    assert len(got) == len(want)
    for index, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        assert ours.keys() == theirs.keys(), index
        for channel, value in theirs.items():
            np.testing.assert_allclose(ours[channel], value, rtol=0, atol=1e-10, err_msg=f"{channel} at {index}")


@pytest.mark.parametrize("stream", STREAMS[:2], ids=["all", "accumulate"])
@pytest.mark.parametrize("kind", list(ORACLES))
def test_without_noise_it_is_the_loop_of_the_paper(kind: str, stream: Any) -> None:
    content = base("none")
    content["problem"]["stream"] = stream
    job = made(kind, content)
    agree(job, kind, quiet, dict.fromkeys("xyz", np.inf))
    # The real engine and mechanism say the same.
    last = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).last
    for channel, value in conversation(job)[-1].items():
        np.testing.assert_allclose(last.released[channel], value, atol=1e-13)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", list(ORACLES))
def test_released_values_are_used_with_their_noise(kind: str, mechanism: str) -> None:
    for stream in STREAMS[:2]:
        content = base(mechanism=mechanism)
        content["problem"]["stream"] = stream
        agree(made(kind, content), kind, loud, CLIPS)


@pytest.mark.parametrize("kind", list(ORACLES))
def test_printed_has_noise_on_what_is_received_only(kind: str) -> None:
    agree(made(kind, base("as_printed")), kind, loud, dict.fromkeys("xyz", np.inf))


@pytest.mark.parametrize("kind", list(ORACLES))
def test_where_no_clip_binds_it_is_the_tracking_of_the_paper(kind: str) -> None:
    """One product along z^{k+1} − z^k is s^{k+1} − s^k, noise and all; and a clip that binds does tell them apart."""
    for stream in STREAMS[:2]:
        content = base()
        content["problem"]["stream"] = stream
        content["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
        agree(made(kind, content), kind, loud, dict.fromkeys("xyz", np.inf))
    # d^1 is the same: z^0 = 0.
    tight = base()
    tight["privacy"]["clip"] = CLIPS | {"z": 0.01}
    with pytest.raises(AssertionError, match="d at 5"):
        agree(made(kind, tight), kind, loud, CLIPS | {"z": 0.01}, separately=True)


def test_protocols_differ_only_by_noise() -> None:
    """The loops above can tell: with noise the two protocols are far apart, without it they are one."""
    wide = base()
    wide["privacy"]["clip"] = dict.fromkeys("xyz", 1e6)
    jobs = [made("crossed", c) for c in (wide, base("as_printed"))]
    with_noise, without = ([conversation(j, n)[-1]["x"] for j in jobs] for n in (loud, quiet))
    np.testing.assert_allclose(*without, atol=1e-12)
    assert np.abs(with_noise[0] - with_noise[1]).max() > 0.01


# What it finds ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 4}])
def test_the_quadratic_optimum_is_reached(topology: dict[str, Any]) -> None:
    """Decaying α and β, constant γ: the hypergradient uses tracked means, so heterogeneous agents find the optimum."""
    steps = {"x": {"scale": 1.0, "decay": 0.3}, "y": {"scale": 0.5, "decay": 0.5}, "z": {"scale": 0.3}}
    content = base("none", topology=topology, algorithm={"rounds": 800, "inner": 3, "inverse": 3, **steps})
    content["problem"]["normalise"] = "l2"
    job = made("quadratic", content)
    optimum = job.problem.optimum(list(zip(job.records["train"], job.records["validation"], strict=True)))
    last = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).last
    start = np.abs(0.7 - optimum.x).max()
    assert np.abs(last.released["x"] - optimum.x).max() < 0.02 * start
    assert np.abs(last.released["y"] - optimum.y).max() < 0.05 * np.abs(optimum.y).max()


def test_d_tracks_the_mean_residual() -> None:
    """Noise-free, Σ_i d_i = Σ_i (H_i z_i − b_i) at every k, recomputed here from what was said."""
    job = made("quadratic", base("none"))
    said = conversation(job)
    per_round = job.algorithm.releases_per_round
    for t in range(job.rounds):
        y = said[t * per_round + 2]["y"]
        for k in range(3):
            now = said[t * per_round + 3 + k]
            residual = np.zeros(2)
            for i in range(job.n_agents):
                train, validation = job.records["train"][i], job.records["validation"][i]
                hessian = train.features.T @ train.features / len(train.target) + 0.5 * np.eye(2)
                b = validation.features.T @ (validation.features @ y[i] - validation.target) / len(validation.target)
                residual += hessian @ now["z"][i] - b
            np.testing.assert_allclose(now["d"].sum(axis=0), residual, atol=1e-12)


def test_one_agent_descends_the_exact_hypergradient() -> None:
    """Alone, with many inner steps, u is ∇F at x, and x follows its running average."""
    steps = {"x": {"scale": 0.5}, "y": {"scale": 0.5}, "z": {"scale": 0.5}}
    content = base("none", topology={"kind": "complete", "agents": 1})
    content["algorithm"] |= {"inner": 120, "inverse": 120, "rounds": 4, **steps}
    content["problem"]["normalise"] = "l2"
    job = made("quadratic", content)
    agents = list(zip(job.records["train"], job.records["validation"], strict=True))
    x, r = np.full(2, 0.7), np.zeros(2)
    for said in conversation(job)[:: job.algorithm.releases_per_round]:
        np.testing.assert_allclose(said["x"][0], x, atol=1e-6)
        x, r = x - 0.5 * r, 0.5 * r + 0.5 * job.problem.hypergradient(x, agents)
    assert np.abs(r).max() > 0.01


def test_a_complete_graph_agrees_at_once() -> None:
    """With Metropolis weights ρ = 0: one exchange makes everyone's z the same but for what its own d adds."""
    still = {c: {"scale": 0.0} for c in "xyz"}
    content = base("none", topology={"kind": "complete", "agents": 5}, algorithm=still)
    said = conversation(made("crossed", content), loud)
    # d is averaged, and differs only by increments, which vanish while z stays where it is.
    assert np.ptp(said[3]["d"] - loud_of(said, 3, "d"), axis=0).max() > 1e-3
    assert np.ptp(said[4]["d"] - loud_of(said, 4, "d"), axis=0).max() < 1e-12
    assert np.ptp(said[6]["x"], axis=0).max() > 1e-3


def loud_of(said: list[dict[str, np.ndarray]], index: int, channel: str) -> np.ndarray:
    m, width = said[index][channel].shape
    return np.stack([loud(index, channel, i, width) for i in range(m)])


# The ledger ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS, ids=["all", "accumulate", "minibatch"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["crossed", "logistic_hyperparameter"])
def test_planned_is_recorded_however_the_agents_are_hosted(kind: str, mechanism: str, stream: Any) -> None:
    ends = []
    for blocks in (1, 3):
        content = base(mechanism=mechanism, run={"blocks": blocks})
        content["problem"] |= {"stream": stream, "partition": {"kind": "dirichlet", "alpha": 3.0}}
        content["problem"]["synthetic"] = {"dimension": 2, "records": 16, "test_records": 4}
        job = made(kind, content)
        assert np.isfinite(job.budget.epsilon).all()
        outcome = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
        assert outcome.ledger.same_releases(job.ledger)
        assert not outcome.ledger.same_releases(job.ledger.rescaled(1.0 + 1e-9))
        ends.append(outcome.last)
    for channel in "xyz":
        np.testing.assert_allclose(ends[0].released[channel], ends[1].released[channel], rtol=0, atol=1e-9)


@pytest.mark.parametrize("guarantee", ["none", "as_printed"])
def test_planned_is_recorded_without_a_certificate(guarantee: str) -> None:
    for kind in ("crossed", "quadratic"):
        job = made(kind, base(guarantee))
        outcome = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
        assert outcome.ledger.same_releases(job.ledger)
        assert np.isinf(job.budget.epsilon).all()


@pytest.mark.parametrize(("inner", "inverse"), [(1, 1), (1, 2), (3, 1)])
def test_short_loops_are_planned(inner: int, inverse: int) -> None:
    content = base(algorithm={"inner": inner, "inverse": inverse, "rounds": 2})
    job = made("from_losses", content)
    outcome = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
    assert outcome.ledger.same_releases(job.ledger)
    agree(job, "from_losses", loud, CLIPS)


@pytest.mark.parametrize("guarantee", ["none", "as_printed", "certified"])
@pytest.mark.parametrize("inverse", [1, 2, 3])
@pytest.mark.parametrize("without", [("upper_grad_y",), ("lower_hvp",), ("upper_grad_y", "lower_hvp")])
def test_what_reads_no_record_is_planned_as_free(without: tuple[str, ...], inverse: int, guarantee: str) -> None:
    """d^0 where no record is in b, all other d^k where none is in H."""
    job = build(decentral_dp.load(base(guarantee, algorithm={"inverse": inverse})), ThreeAndTwo(without=without))
    ledger = LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).ledger
    assert ledger.same_releases(job.ledger)
    if guarantee == "certified":
        charged = [] if "upper_grad_y" in without else [0]
        charged += [] if "lower_hvp" in without else range(1, inverse)
        d = next(c for c in ledger.channels if c.channel == "d")
        assert [
            int(i) % job.algorithm.releases_per_round - 3 for i in d.rounds if d.mechanism.name != "free"
        ] == charged * 3


class Asked:
    """A shard, or a batch of it, that notes down every query and the number of the draw it is made of."""

    def __init__(self, of: Any, log: list[tuple[int, str]], draw: int = -1) -> None:
        self._of, self._log, self._draw = of, log, draw

    def __getattr__(self, name: str) -> Any:
        if self._draw >= 0:
            self._log.append((self._draw, name))
        return getattr(self._of, name)

    def batch(self, t: int, draw: int, kept: bool) -> Any:
        assert kept
        return Asked(self._of.batch(t, draw, kept=kept), self._log, draw)


@pytest.mark.parametrize("protocol", ["released", "printed"])
def test_one_batch_serves_the_inverse_loop_of_the_certified_form_only(
    protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it asks for b once per round, for one product per increment; as printed, fresh samples for each k."""
    log: list[tuple[int, str]] = []

    job = made("crossed", base("certified" if protocol == "released" else "as_printed"))
    own = type(job.algorithm).step
    monkeypatch.setattr(type(job.algorithm), "step", lambda a, t, dataset, s: own(a, t, Asked(dataset, log), s))
    LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False)
    loop = {
        "released": [(2, "upper_grad_y"), (2, "lower_hvp"), (2, "lower_hvp")],
        "printed": [(2, "upper_grad_y"), (3, "lower_hvp"), (3, "upper_grad_y"), (4, "lower_hvp"), (4, "upper_grad_y")],
    }
    round_ = [(0, "lower_grad_y"), (1, "lower_grad_y"), *loop[protocol], (5, "upper_grad_x"), (5, "lower_jvp")]
    assert log == round_ * job.rounds


def hand_made(counts: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    """The sensitivities of one agent in three rounds with K = 2, N = 3, from the formulas, without slack.

    counts: kind → N_t.
    """
    alpha = 0.4 / (np.arange(3) + 1) ** 0.5
    beta = 0.3 / (np.arange(3) + 1) ** 0.2
    n, v = counts["train"], counts["validation"]
    out: dict[str, dict[str, np.ndarray]] = {"y": {"train": np.repeat(beta * 2 * CLIPS["y"] / n, 2)}}
    unit = {"train": 2 * CLIPS["z"] / n, "validation": 2 * CLIPS["z"] / v}
    # d⁰ = −b; then one product each.
    out["d"] = {
        "train": np.outer(unit["train"], [0, 1, 1]).ravel(),
        "validation": np.outer(unit["validation"], [1, 0, 0]).ravel(),
    }
    out["x"] = {}
    for kind, seen in counts.items():
        sensitivity, sizes = 0.0, []
        for t in range(3):
            sizes.append(alpha[t] * sensitivity)
            sensitivity = (1 - alpha[t]) * sensitivity + alpha[t] * 2 * CLIPS["x"] / seen[t]
        out["x"][kind] = np.array(sizes)
    return out


@pytest.mark.parametrize("stream", STREAMS, ids=["all", "accumulate", "minibatch"])
def test_the_plan_is_the_hand_made_one(stream: Any) -> None:
    content = base()
    content["problem"]["stream"] = stream
    job = made("crossed", content)
    seen = {"all": None, "accumulate": np.array([3, 5, 7]), "minibatch": np.array([2, 2, 2])}[job.stream.kind]
    kinds = ("train", "validation")
    for agent in range(job.n_agents):
        sizes = {k: int(job.counts[k][agent]) for k in kinds}
        counts = {k: np.minimum(n, np.full(3, n) if seen is None else seen) for k, n in sizes.items()}
        for name, wanted in hand_made(counts).items():
            channel = next(c for c in job.ledger.channels if c.channel == name)
            for kind in kinds:
                got = channel.sensitivity.get(kind, np.zeros_like(channel.scale))[:, channel.group[agent]]
                np.testing.assert_allclose(got, wanted.get(kind, np.zeros_like(got)), rtol=1e-12, atol=0)
            # Batches live on in d and r, so nothing is amplified.
            assert all((rate == 1.0).all() for rate in channel.rate.values())


# Adversaries --------------------------------------------------------------------------------------------------------

LABELS = np.array([1.0, 1.0, -1.0])
ROUNDS, INNER, INVERSE = 4, 2, 4
PER_ROUND = 1 + INNER + INVERSE


def certified(**more: Any) -> MaDsbo:
    start = {"x": 1.0, "y": 1.0}
    return MaDsbo(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), INNER, INVERSE, start=start, **more)


def worlds(
    algorithm: Any, kind: str, norm: Any, stream: Stream, seed: int, worst: bool, problem: Any = None
) -> list[list[dict[str, Any]]]:
    """One agent on one transcript, its first record of this kind replaced; `worst`: as an adversary would have it."""
    rng = np.random.default_rng([7, seed])
    d, n = 2, LABELS.size
    problem = problem or Crossed(d)
    features = {k: rng.normal(size=(n, d)) * 10.0 ** rng.integers(0, 3) for k in ("train", "validation")}
    labels = {k: LABELS.copy() for k in features}
    if worst:
        for rows in features.values():
            rows[0] = [1e3, 0.0]
    other = {k: v.copy() for k, v in features.items()}, {k: v.copy() for k, v in labels.items()}
    if worst:
        other[1][kind][0] *= -1
    else:
        other[0][kind][0] = rng.normal(size=d) * 100
    own = [{c: rng.normal(size=(1, d)) for c in "xyd"} for _ in range(ROUNDS * PER_ROUND + 1)]
    received = []
    for index in range(ROUNDS * PER_ROUND):
        e = index % PER_ROUND
        message = rng.normal(size=(1, d if e <= INNER else 2 * d))
        if worst:
            own[index]["x"] = own[index]["y"] = np.ones((1, d))
            # z goes far from one k to the next.
            message[0, 0] = 50.0 * (-1) ** (e - INNER)
        received.append(message)
    runs = []
    for rows, marks in ((features, labels), other):
        records = [problem.prepare(rows[k], marks[k], norm) for k in ("train", "validation")]
        runs.append(
            replay(
                algorithm, problem, *records, rounds=ROUNDS, neighbour_weight=0.6, own=own, received=received,
                clip=Clip(norm, **CLIPS), stream=stream,
            )
        )  # fmt: skip
    return runs


def shares(runs: list[list[dict[str, Any]]], kind: Any, norm: Any) -> dict[str, np.ndarray]:
    """Realised change over certified sensitivity, per release; 0 where both are 0."""
    allowed, out = certified_change(runs[0], kind), {}
    for channel, sizes in realised_change(*runs, norm=norm).items():
        with np.errstate(divide="ignore", invalid="ignore"):
            out[channel] = np.where(sizes == 0.0, 0.0, sizes / allowed[channel])
    return out


READ = (Stream("all"), Stream("accumulate", batch=1), Stream("minibatch", batch=1))


@pytest.mark.parametrize("stream", READ, ids=["all", "accumulate", "minibatch"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("kind", ["train", "validation"])
def test_no_neighbour_exceeds_the_certificate(kind: str, norm: Any, stream: Stream) -> None:
    best = {c: np.zeros(1) for c in "xyd"}
    for seed in range(8):
        for channel, share in shares(worlds(certified(), kind, norm, stream, seed, seed % 2 == 0), kind, norm).items():
            assert (share <= 1.0 + 1e-9).all(), (channel, seed)
            best[channel] = np.maximum(best[channel], share)
    if stream.kind == "minibatch":
        return
    d = best["d"].reshape(ROUNDS, INVERSE)
    if kind == "train":
        # Every bound is reached: of y, of the increments of d, and of x, whose first release has met nothing.
        assert best["y"].min() > 0.999
        assert (d[:, 0] == 0.0).all()
        assert d[:, 1:].min() > 0.999
    else:
        assert (best["y"] == 0.0).all()
        assert d[:, 0].min() > 0.999
        # b is asked for once in a round.
        assert (d[:, 1:] == 0.0).all()
    assert best["x"][0] == 0.0
    assert best["x"][1:].min() > 0.999


def test_the_released_plan_states_what_the_replay_carries() -> None:
    """The certificate tested above is the one that is priced."""
    clip = Clip("l1", **CLIPS)
    for stream in READ:
        t = np.arange(ROUNDS)[:, None]
        counts = np.full((1, 1), LABELS.size)
        public = Public(
            ROUNDS,
            {k: stream.averaged(t, counts) * 1.0 for k in ("train", "validation")},
            {k: stream.rate(t, counts) for k in ("train", "validation")},
            np.array([0.6]),
            Crossed(2).reads_records,
            clip,
            None,
            2,
            2,
        )
        planned = certified().planned_releases(public)
        run = worlds(certified(), "train", "l1", stream, 0, True)[0]
        for kind in ("train", "validation"):
            for channel, sizes in certified_change(run, kind).items():
                listed = planned[channel].sensitivity.get(kind, np.zeros((sizes.size, 1)))
                np.testing.assert_allclose(listed[:, 0], sizes, rtol=1e-12)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5000), st.integers(1, 40))
def test_rounding_of_what_is_remembered_is_priced(seed: int, records: int, rounds: int) -> None:
    """r in float64 in two worlds whose means differ by exactly 2C/N, against what is planned: in exact arithmetic."""
    rng = np.random.default_rng(seed)
    algorithm = MaDsbo(StepSize(rng.uniform(0, 2.5), rng.uniform(0, 0.5)), StepSize(0.1), StepSize(0.1), 1, 1)
    counts = np.minimum(records, records // 3 + 1 + np.arange(rounds) * int(rng.integers(1, 50)))[:, None]
    averaged: Any = dict.fromkeys(("train", "validation"), counts.astype(float))
    rate: Any = dict.fromkeys(averaged, np.ones((rounds, 1)))
    clip = Clip("l1", **CLIPS)
    public = Public(rounds, averaged, rate, np.array([0.6]), Crossed(1).reads_records, clip, None, 1, 1)
    planned = algorithm.planned_releases(public)["x"].sensitivity["train"][:, 0]
    r = [0.0, 0.0]
    for t in range(rounds):
        alpha, bound = algorithm.x(t), CLIPS["x"]
        sensitivity = abs(Fraction(alpha * r[0]) - Fraction(alpha * r[1]))
        assert sensitivity <= Fraction(float(planned[t]))
        # Both terms at their clips, so that r is as large as it can be, and in one world a record has turned around.
        upper, lower = bound, -bound
        turned = lower + 2 * bound / float(counts[t, 0])
        r = [(1.0 - alpha) * v + alpha * (upper - mean) for v, mean in zip(r, (lower, turned), strict=True)]


# Planted bugs -------------------------------------------------------------------------------------------------------


class Once(MaDsbo):
    """Forgets that a record that is replaced leaves the mean as well as joins it."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        half = {k: s / 2 for k, s in out["d"].sensitivity.items()}
        return out | {"d": out["d"]._replace(sensitivity=half)}


class Tracked(MaDsbo):
    """Prices the increment of d as s^{k+1} − s^k, both of them clipped means."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        k = (out["d"].indices % self.releases_per_round - 1 - self.inner)[:, None]
        twice = {c: np.where(k > 1, 2.0, 1.0) * s for c, s in out["d"].sensitivity.items()}
        return out | {"d": out["d"]._replace(sensitivity=twice)}


class Forgetful(MaDsbo):
    """Prices x as if r forgot every round but the last."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        out = super().planned_releases(public)
        short = {k: np.where(np.arange(len(s))[:, None] > 1, s[1:2], s) for k, s in out["x"].sensitivity.items()}
        return out | {"x": out["x"]._replace(sensitivity=short)}


class Unreleased(MaDsbo):
    """Takes its own y before noise where it should take the released one."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        def change(exchange: Any, reply: Any) -> Any:
            return (
                reply._replace(released=Bundle({**reply.released, **exchange.values}))
                if "y" in exchange.values
                else reply
            )

        return meddled(super().step(t, dataset, s), lambda values: values, change)


class Leaky(MaDsbo):
    """Passes its residual on as if it were public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        def opened(values: Any) -> Any:
            return {c: v.value if c == "d" and t > 0 and isinstance(v, Bounded) else v for c, v in values.items()}

        return meddled(super().step(t, dataset, s), opened, lambda _, reply: reply)


class Ahead:
    """A shard, or a batch of it, whose Hessian is multiplied by more than the public difference of z."""

    def __init__(self, of: Any, hidden: dict[str, np.ndarray]) -> None:
        self._of, self._hidden = of, hidden

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def batch(self, *args: Any, **more: Any) -> Any:
        return Ahead(self._of.batch(*args, **more), self._hidden)

    def lower_hvp(self, x: Any, y: Any, along: Any) -> Any:
        return self._of.lower_hvp(x, y, along + self._hidden["along"])


class Hidden(MaDsbo):
    """Takes z^{k+1} − z^k along the z that its own d makes before noise, and that for public; sends the right z."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        hidden: dict[str, np.ndarray] = {}

        def change(exchange: Any, reply: Any) -> Any:
            if "d" in exchange.values:
                hidden["along"] = self.z(t) * (
                    reply.released.d - getattr(exchange.values["d"], "value", reply.released.d)
                )
            return reply

        return meddled(super().step(t, Ahead(dataset, hidden), s), lambda values: values, change)


class Unsent(MaDsbo):
    """Makes z of its own d before noise, and that for public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        def change(exchange: Any, reply: Any) -> Any:
            own = {c: getattr(v, "value", v) for c, v in exchange.values.items()}
            return reply._replace(released=Bundle({**reply.released, **own})) if "d" in own else reply

        return meddled(super().step(t, dataset, s), lambda values: values, change)


def meddled(step: Any, sent: Any, heard: Any) -> Any:
    """A step whose messages and replies are changed on the way."""
    reply = None
    try:
        while True:
            exchange = step.send(reply)
            exchange.values = sent(exchange.values)
            reply = heard(exchange, (yield exchange))
    except StopIteration as done:
        return done.value


@pytest.mark.parametrize("bug", [Once, Tracked, Forgetful, Unreleased, Leaky])
def test_a_planted_bug_is_refused_by_the_comparison_of_plan_and_record(bug: Any) -> None:
    job = made("crossed", base())
    a = job.algorithm
    assert isinstance(a, MaDsbo)
    broken = bug(a.x, a.y, a.z, a.inner, a.inverse, start=a.start)
    nodes = [n._replace(program=broken) for n in job.nodes()]
    recorded = LocalEngine().run(nodes, job.rounds, [], lambda s: False).ledger
    planned = plan(
        broken, job.problem, job.counts, job.stream, job.topology.neighbour_weight, job.clip, None, job.rounds,
        job.mechanism, job.noise,
    )  # fmt: skip
    assert not recorded.same_releases(planned)
    assert LocalEngine().run(job.nodes(), job.rounds, [], lambda s: False).ledger.same_releases(job.ledger)


def test_a_planted_leak_is_seen_by_the_replay() -> None:
    """What leaves as a plain array is compared between neighbours as well."""
    runs = worlds(Leaky(*(getattr(certified(), c) for c in "xyz"), INNER, INVERSE), "train", "l1", READ[0], 0, True)
    with pytest.raises(ValueError, match="counts as public"):
        realised_change(*runs)


@pytest.mark.parametrize("bug", [Hidden, Unsent])
@pytest.mark.parametrize("kind", ["train", "validation"])
def test_a_difference_along_anything_but_public_z_is_seen_by_the_replay(bug: Any, kind: Any) -> None:
    """Plan and record agree about these bugs; what neighbours say does not."""
    broken = bug(*(getattr(certified(), c) for c in "xyz"), INNER, INVERSE, start={"x": 1.0, "y": 1.0})
    with pytest.raises(ValueError, match="counts as public"):
        realised_change(*worlds(broken, kind, "l1", READ[0], 0, True))

    class Bare(Crossed):
        """Nothing but records: what a Hessian is multiplied by shows in the private part alone."""

        def regulariser(self, x: Any, y: Any, z: Any) -> Any:
            return type(super().regulariser(x, y, z))(0 * y, 0 * z, 0 * x)

    if bug is Hidden and kind == "validation":
        # It moves d^1, which no validation record may.
        assert np.isinf(shares(worlds(broken, kind, "l1", READ[0], 0, True, Bare(2)), kind, "l1")["d"]).any()
        good = worlds(certified(), kind, "l1", READ[0], 0, True, Bare(2))
        assert shares(good, kind, "l1")["d"].max() <= 1.0 + 1e-9


def test_a_forgotten_clip_exceeds_the_certificate() -> None:
    problem = Crossed(2)

    class Unclipped:
        def __getattr__(self, name: str) -> Any:
            return getattr(problem, name)

        def terms(self, x: Any, y: Any, z: Any, a: Any, b: Any, clip: Clip, wanted: Any) -> Any:
            return problem.terms(x, y, z, a, b, Clip(clip.norm), wanted)

    runs = worlds(certified(), "train", "l1", READ[0], 0, True, Unclipped())
    assert min(share.max() for share in shares(runs, "train", "l1").values()) > 10.0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [("inner", None, "algorithm.inner: missing"), ("smoothness", 2.0, "algorithm.smoothness: ma_dsbo takes none"),
     ("protocol", "private", 'knows no "private" protocol')],
)  # fmt: skip
def test_refusals(key: str, value: Any, words: str) -> None:
    content = base()
    content["algorithm"] = {k: v for k, v in content["algorithm"].items() if k != key}
    if value is not None:
        content["algorithm"][key] = value
    with pytest.raises(InputError, match=words):
        made("quadratic", content)


def test_a_missing_clip_of_x_is_refused_only_where_x_reads_records() -> None:
    content = base()
    content["privacy"]["clip"] = {c: v for c, v in CLIPS.items() if c != "x"}
    with pytest.raises(InputError, match=r"privacy\.clip\.x: missing"):
        made("crossed", content)
    assert made("quadratic", content).budget.epsilon.max() < np.inf


# What the engine refuses ---------------------------------------------------------------------------------------------


class Primed(MaDsbo):
    """Starts from its data."""

    def init(self, dataset: Any) -> Any:
        s = super().init(dataset)
        return s._replace(y=dataset.batch(0).lower_grad_y(s.x, s.y))


class Uneven(MaDsbo):
    """Agent 0 sends its last d before noise, as if it were public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        def opened(values: Any) -> Any:
            leaks = t == 2 and 0 in dataset.agents
            return {c: v.value if c == "d" and leaks and isinstance(v, Bounded) else v for c, v in values.items()}

        return meddled(super().step(t, dataset, s), opened, lambda _, reply: reply)


def test_what_blocks_say_must_be_alike_and_must_not_start_from_data() -> None:
    job = made("crossed", base(run={"blocks": 2}))
    a = job.algorithm
    assert isinstance(a, MaDsbo)
    for bug, words in ((Primed, "starts from data"), (Uneven, "not released alike")):
        broken = bug(a.x, a.y, a.z, a.inner, a.inverse, start=a.start)
        nodes = [n._replace(program=broken) for n in job.nodes()]
        with pytest.raises(ValueError, match=words):
            LocalEngine().run(nodes, job.rounds, [], lambda s: False)
