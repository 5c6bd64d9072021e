"""MA-DSBO against the loops of its papers, against adversarial neighbours, and at its limits."""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.algorithms.gossip.ma_dsbo import MaDsbo
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.bounded import Bounded
from decentral_dp.exchange import Bundle
from decentral_dp.participants import Network
from decentral_dp.privacy.clipping import Clip
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import Shares, Told, halved, largest, with_fields_of
from tests.conformance.gossip_tracking import Ahead, TrackingConformance, tracked_twice
from tests.support import naive
from tests.support.closed_forms import optimum_of
from tests.support.naive import (
    CLIPS,
    Crossed,
    Loop,
    built,
    finished,
    ledgers,
    made,
    meddled,
    shares,
)
from tests.support.uneven import Uneven as ThreeAndTwo

ALGORITHM = {
    "kind": "ma_dsbo",
    "inner": 2,
    "inverse": 3,
    "x": {"scale": 0.4, "decay": 0.5},
    "y": {"scale": 0.3, "decay": 0.2},
    "z": {"scale": 0.2},
}


def base(*guarantee: str, **changes: Any) -> dict[str, Any]:
    return naive.base({**ALGORITHM, **changes.pop("algorithm", {})}, *guarantee, **changes)


# Naive loops ---------------------------------------------------------------------------------------------------------


class Naive(Loop):
    """Algorithm 3 of Chen & Wang in loops over agents and records, own values with or without their noise.

    separately: whether d moves by s^{k+1} − s^k, as in the paper, or by one product along z^{k+1} − z^k.
    """

    separately: bool

    def run(self) -> list[dict[str, np.ndarray]]:
        job, algorithm, m, printed, per_round = self.job, self.algorithm, self.m, self.printed, self.per_round
        mean, say, toward = self.mean, self.say, self.toward
        x, y, r, z = self.start("x"), self.start("y"), self.zeros(), self.zeros()
        y_said = list(y)
        for t in range(job.rounds):
            alpha, beta, gamma = algorithm.x(t), algorithm.y(t), algorithm.z(t)
            x_said = say(t * per_round, "x", x, printed or (self.reads_x and t > 0))
            at = x if printed else x_said
            for k in range(algorithm.inner):
                y = [toward(i, y[i], y_said) - beta * mean("lower_grad_y", t, i, at[i], y[i], z[i]) for i in range(m)]
                y_said = say(t * per_round + 1 + k, "y", y, True)
                y = y if printed else y_said
            z = self.zeros()
            b = [mean("upper_grad_y", t, i, at[i], y[i], z[i]) for i in range(m)]
            s = [-v for v in b]
            d = list(s)
            for k in range(algorithm.inverse):
                index = t * per_round + 1 + algorithm.inner + k
                z_said, d_said = say(index, "z", z, printed and k > 0), say(index, "d", d, True)
                d = d if printed else d_said
                before = z if printed else z_said
                z = [toward(i, before[i], z_said) - gamma * d[i] for i in range(m)]
                news = [mean("lower_hvp", t, i, at[i], y[i], z[i]) - b[i] for i in range(m)]
                sensitivity = [news[i] - s[i] for i in range(m)]
                if not self.separately:
                    sensitivity = [mean("lower_hvp", t, i, at[i], y[i], z[i] - before[i]) for i in range(m)]
                d = [toward(i, d[i], d_said) + sensitivity[i] for i in range(m)]
                s = news
            u = [
                mean("upper_grad_x", t, i, at[i], y[i], z[i]) - mean("lower_jvp", t, i, at[i], y[i], z[i])
                for i in range(m)
            ]
            x = [toward(i, at[i], x_said) - alpha * r[i] for i in range(m)]
            r = [(1 - alpha) * r[i] + alpha * u[i] for i in range(m)]
        last = job.rounds * per_round
        for channel, values in (("x", x), ("y", y), ("z", z)):
            say(last, channel, values, printed or (channel == "x" and self.reads_x))
        return self.told


# Planted bugs --------------------------------------------------------------------------------------------------------


class Once(MaDsbo):
    """Forgets that a record that is replaced leaves the mean as well as joins it."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "d")


class Tracked(MaDsbo):
    """Prices the increment of d as s^{k+1} − s^k, both of them clipped means."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return tracked_twice(super().planned_releases(public), "d", self)


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
    """Computes z from its d before noise, and declares it public."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        def change(exchange: Any, reply: Any) -> Any:
            own = {c: getattr(v, "value", v) for c, v in exchange.values.items()}
            return reply._replace(released=Bundle({**reply.released, **own})) if "d" in own else reply

        return meddled(super().step(t, dataset, s), lambda values: values, change)


# Conformance ---------------------------------------------------------------------------------------------------------

ROUNDS, INNER, INVERSE = 4, 2, 4


class TestMaDsbo(TrackingConformance):
    table = ALGORITHM
    kinds = tracked_on = ("logistic_hyperparameter", "quadratic", "from_losses")
    differs = "d at 5"
    short = (
        {"inner": 1, "inverse": 1, "rounds": 2},
        {"inner": 1, "inverse": 2, "rounds": 2},
        {"inner": 3, "inverse": 1, "rounds": 2},
    )
    rounds, seeds = ROUNDS, 8
    moved = MappingProxyType({"train": {"x", "y", "d"}, "validation": {"x", "d"}})
    bugs = (Once, Tracked, Forgetful, Unreleased, Leaky)
    leaks = ((Leaky, "train"), *((bug, kind) for bug in (Hidden, Unsent) for kind in ("train", "validation")))
    refused = (
        ("inner", None, "algorithm.inner: missing"),
        ("smoothness", 2.0, "algorithm.smoothness: not supported by ma_dsbo"),
        ("protocol", "private", "only by ldp_dsbo"),
    )
    _round = ((0, "lower_grad_y"), (1, "lower_grad_y"), (2, "upper_grad_y"))
    _last = ((5, "upper_grad_x"), (5, "lower_jvp"))
    asked = MappingProxyType(
        {
            "released": (*_round, (2, "lower_hvp"), (2, "lower_hvp"), *_last),
            "as_published": (
                *_round,
                *((draw, term) for draw in (3, 4) for term in ("lower_hvp", "upper_grad_y")),
                *_last,
            ),
        }
    )

    def told(self, job: Job, *rest: Any, separately: bool | None = None) -> Told:
        loop = Naive(job, *rest)
        loop.separately = not np.isfinite(loop.clips["z"]) if separately is None else separately
        return loop.run()

    def certified(self) -> MaDsbo:
        start = {"x": 1.0, "y": 1.0}
        return MaDsbo(StepSize(0.5, 0.3), StepSize(0.4, 0.2), StepSize(0.3), INNER, INVERSE, start=start)

    def scene(self, worst: bool) -> Any:
        """At worst z goes far from one k to the next."""

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: rng.normal(size=(1, 2)) for c in "xyd"}
            message = rng.normal(size=(1, 2 if e <= INNER else 4))
            if worst:
                own["x"] = own["y"] = np.ones((1, 2))
                message[0, 0] = 50.0 * (-1) ** (e - INNER)
            return own, message

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        d = largest(every, "d").reshape(ROUNDS, INVERSE)
        # b is asked for once in a round, and is all that validation records move of d.
        read, unread = (d[:, 1:], d[:, 0]) if kind == "train" else (d[:, 0], d[:, 1:])
        assert read.min() > 0.999
        assert (unread == 0.0).all()
        assert kind == "validation" or largest(every, "y").min() > 0.999
        # The first x has met nothing.
        assert largest(every, "x")[0] == 0.0
        assert largest(every, "x")[1:].min() > 0.999

    def test_a_difference_along_anything_but_public_z_is_seen_without_a_regulariser(self) -> None:
        """The direction of a Hessian product moves the private part of d¹, and no validation record may."""

        class Bare(Crossed):
            def regulariser(self, x: Any, y: Any, z: Any) -> Any:
                return type(super().regulariser(x, y, z))(0 * y, 0 * z, 0 * x)

        broken, bare = with_fields_of(Hidden, self.certified()), Bare(2)
        found = shares(self.data_sets("validation", algorithm=broken, problem=bare), "validation", "l1")
        assert np.isinf(found["d"]).any()
        assert shares(self.data_sets("validation", problem=bare), "validation", "l1")["d"].max() <= 1.0 + 1e-9


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topology", [{"kind": "ring", "agents": 4}, {"kind": "complete", "agents": 4}])
def test_the_quadratic_optimum_is_reached(topology: dict[str, Any]) -> None:
    """Decaying α and β, constant γ: the hypergradient uses tracked means, so heterogeneous agents find the optimum."""
    steps = {"x": {"scale": 1.0, "decay": 0.3}, "y": {"scale": 0.5, "decay": 0.5}, "z": {"scale": 0.3}}
    content = base("none", topology=topology, algorithm={"rounds": 800, "inner": 3, "inverse": 3, **steps})
    content["problem"]["normalise"] = "l2"
    job = made("quadratic", content)
    optimum = optimum_of(job)
    last = finished(job).last_snapshot
    start = np.abs(0.7 - optimum.x).max()
    assert np.abs(last.released["x"] - optimum.x).max() < 0.02 * start
    assert np.abs(last.released["y"] - optimum.y).max() < 0.05 * np.abs(optimum.y).max()


# The ledger ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", ["none", "as_published", "certified"])
@pytest.mark.parametrize("inverse", [1, 2, 3])
@pytest.mark.parametrize("without", [("upper_grad_y",), ("lower_hvp",), ("upper_grad_y", "lower_hvp")])
def test_what_reads_no_record_is_planned_as_free(without: tuple[str, ...], inverse: int, guarantee: str) -> None:
    """d^0 where no record is in b, all other d^k where none is in H."""
    job = built(decentral_dp.load(base(guarantee, algorithm={"inverse": inverse})), ThreeAndTwo(without=without))
    ledger = finished(job).ledger
    assert ledger.same_releases(job.ledger)
    if guarantee == "certified":
        charged = [] if "upper_grad_y" in without else [0]
        charged += [] if "lower_hvp" in without else range(1, inverse)
        d = next(c for c in ledger.channels if c.channel == "d")
        assert [
            int(i) % job.algorithm.releases_per_round - 3 for i in d.rounds if d.mechanism.name != "free"
        ] == charged * 3


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5000), st.integers(1, 40))
def test_rounding_of_what_is_remembered_is_priced(seed: int, records: int, rounds: int) -> None:
    """r in float64 of two data sets whose means differ by exactly 2C/N, against what is planned, exactly."""
    rng = np.random.default_rng(seed)
    algorithm = MaDsbo(StepSize(rng.uniform(0, 2.5), rng.uniform(0, 0.5)), StepSize(0.1), StepSize(0.1), 1, 1)
    counts = np.minimum(records, records // 3 + 1 + np.arange(rounds) * int(rng.integers(1, 50)))[:, None]
    averaged: Any = dict.fromkeys(("train", "validation"), counts.astype(float))
    rate: Any = dict.fromkeys(averaged, np.ones((rounds, 1)))
    clip = Clip("l1", **CLIPS)
    alone = Network(sp.csr_array((1, 1)))
    public = Public(rounds, averaged, rate, np.array([0.6]), Crossed(1).reads_records, clip, 1, 1, alone)
    planned = algorithm.planned_releases(public)["x"].sensitivity["train"][:, 0]
    r = [0.0, 0.0]
    for t in range(rounds):
        alpha, bound = algorithm.x(t), CLIPS["x"]
        sensitivity = abs(Fraction(alpha * r[0]) - Fraction(alpha * r[1]))
        assert sensitivity <= Fraction(float(planned[t]))
        # Both terms at their clips, so that r is as large as it can be, and in one data set a record has turned around.
        upper, lower = bound, -bound
        turned = lower + 2 * bound / float(counts[t, 0])
        r = [(1.0 - alpha) * v + alpha * (upper - mean) for v, mean in zip(r, (lower, turned), strict=True)]


# Errors of the engine ------------------------------------------------------------------------------------------------


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
    for bug, words in ((Primed, "init of the program reads records"), (Uneven, "its releases differ between blocks")):
        with pytest.raises(ValueError, match=words):
            ledgers(job, with_fields_of(bug, job.algorithm))
