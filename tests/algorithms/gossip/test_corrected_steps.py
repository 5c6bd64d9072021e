"""Corrected steps and CHOCO against loops and matrices, adversarial neighbours and fixed points."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.dlm import Dlm
from decentral_dp.algorithms.gossip.exact_diffusion import ExactDiffusion
from decentral_dp.algorithms.gossip.extra import Extra
from decentral_dp.algorithms.gossip.gradient_tracking import GradientTracking
from decentral_dp.algorithms.gossip.single_level import Choco
from decentral_dp.algorithms.protocol import Planned, Public, StepSize
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import GossipConformance, Shares, Told, halved, largest
from tests.support.naive import SAMPLING_NAMES, SAMPLINGS, Loop, finished, made
from tests.support.replay import conversation, quiet
from tests.support.single_level import CLIP, base, moments, only_y, table

NAMES = ("gradient_tracking", "exact_diffusion", "extra", "dlm")
GRAPHS = ({"kind": "ring", "agents": 5}, {"kind": "star", "agents": 4})


# Naive loops, in the variables of the papers -------------------------------------------------------------------------


class Tracking(Loop):
    """y⁺ = P(y − λ s̃), s⁺ = P s̃ + g⁺ − g̃, with a separate list of released gradients."""

    def run(self) -> Told:
        x, y, s = self.start("x"), self.start("y"), self.zeros()
        gradients = self.zeros()
        for t in range(self.job.rounds):
            y = self.say(t, "y", y, False)
            said = self.say(t, "s", s, t > 0)
            # The part of a release that is neither mixed nor subtracted is the gradient, with its noise.
            gradients = [g + said[i] - s[i] for i, g in enumerate(gradients)]
            step = 0.3 / (t + 1) ** 0.2
            moved = [y[i] - step * said[i] for i in range(self.m)]
            y = [self.toward(i, moved[i], moved) for i in range(self.m)]
            fresh = [self.mean("lower_grad_y", t, i, x[i], y[i], y[i]) for i in range(self.m)]
            s = [self.toward(i, said[i], said) + fresh[i] - gradients[i] for i in range(self.m)]
            gradients = fresh
        self.say(self.job.rounds, "x", x, False)
        self.say(self.job.rounds, "y", y, False)
        return self.told


class Exact(Loop):
    """Adapt, correct, combine, with a separate list of ψ."""

    def run(self) -> Told:
        x, y = self.start("x"), self.start("y")
        psi: list[np.ndarray] = []
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            # The noise of what was sent is in ψ too.
            psi = [psi[i] + said[i] - y[i] for i in range(self.m)] if t else list(said)
            if t < self.job.rounds:
                c = [(said[i] + self.toward(i, said[i], said)) / 2 for i in range(self.m)]
                step = 0.3 / (t + 1) ** 0.2
                adapted = [c[i] - step * self.mean("lower_grad_y", t, i, x[i], c[i], c[i]) for i in range(self.m)]
                y = [adapted[i] + c[i] - psi[i] for i in range(self.m)]
                psi = adapted
        self.say(self.job.rounds, "x", x, False)
        return self.told


class Extrapolated(Loop):
    """EXTRA in two steps, with the noise of what was sent in the earlier point as well."""

    def run(self) -> Told:
        x, y = self.start("x"), self.start("y")
        total = self.zeros()
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            if t < self.job.rounds:
                mixed = [self.toward(i, said[i], said) for i in range(self.m)]
                step = 0.3 / (t + 1) ** 0.2
                slopes = [self.mean("lower_grad_y", t, i, x[i], said[i], said[i]) for i in range(self.m)]
                y = [mixed[i] + total[i] - step * slopes[i] for i in range(self.m)]
                total = [total[i] + (mixed[i] - said[i]) / 2 for i in range(self.m)]
        self.say(self.job.rounds, "x", x, False)
        return self.told


class Multipliers(Loop):
    """DLM with a multiplier for each agent."""

    def run(self) -> Told:
        x, y, c = self.start("x"), self.start("y"), 0.1
        multipliers = self.zeros()
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            if t < self.job.rounds:
                apart = [said[i] - self.toward(i, said[i], said) for i in range(self.m)]
                multipliers = [multipliers[i] + c * apart[i] for i in range(self.m)]
                step = 1 / ((t + 1) ** 0.2 / 0.3 + 2 * c)
                slopes = [self.mean("lower_grad_y", t, i, x[i], said[i], said[i]) for i in range(self.m)]
                y = [said[i] - step * (slopes[i] + multipliers[i] + c * apart[i]) for i in range(self.m)]
        self.say(self.job.rounds, "x", x, False)
        return self.told


class Plain(Loop):
    """Decentralised SGD, which CHOCO is where messages are whole."""

    def run(self) -> Told:
        x, y = self.start("x"), self.start("y")
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            if t < self.job.rounds:
                c = [self.toward(i, said[i], said) for i in range(self.m)]
                step = 0.3 / (t + 1) ** 0.2
                y = [c[i] - step * self.mean("lower_grad_y", t, i, x[i], c[i], c[i]) for i in range(self.m)]
        self.say(self.job.rounds, "x", x, False)
        return self.told


# Planted bugs --------------------------------------------------------------------------------------------------------


class HalfTracking(GradientTracking):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "s")


class UnnoisedTracking(GradientTracking):
    """Takes off its gradient of the round before without the noise that it was released with."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        step = super().step(t, dataset, s)
        reply = yield next(step)
        try:
            step.send(reply)
        except StopIteration as done:
            after = done.value
            return after._replace(s=after.s + (reply.released.s - s.s))


class HalfExact(ExactDiffusion):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "y")


class UnnoisedExact(ExactDiffusion):
    """Corrects by ψ as it was before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        step = super().step(t, dataset, s)
        reply = yield next(step)
        try:
            step.send(reply)
        except StopIteration as done:
            after = done.value
            return after._replace(y=after.y + (reply.released.y - s.y))


class HalfExtra(Extra):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "y")


class UnnoisedExtra(Extra):
    """Mixes its own value as it was before noise."""

    def step(self, t: int, dataset: Any, s: Any) -> Any:
        step = super().step(t, dataset, s)
        reply = yield next(step)
        try:
            step.send(reply)
        except StopIteration as done:
            after = done.value
            return after._replace(y=after.y - (reply.released.y - s.y))


class HalfDlm(Dlm):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "y")


# Conformance ---------------------------------------------------------------------------------------------------------


class Corrected(GossipConformance):
    name: str
    kind: type
    loop: type
    channel: str
    kinds = ("logistic_hyperparameter", "quadratic", "from_losses")
    hosted = ("crossed",)
    rounds, seeds = 4, 12
    # Neither was published with noise.
    test_printed_has_its_noise_where_the_paper_has_it = None
    test_protocols_differ_only_by_noise = None

    def content(self, *guarantee: Any, **tables: Any) -> dict[str, Any]:
        content = super().content(*guarantee, **tables)
        return content | {"privacy": only_y(content["privacy"])}

    def told(self, job: Job, *rest: Any) -> Told:
        return self.loop(job, *rest).run()

    def certified(self) -> Any:
        return self.kind(StepSize(0.5, 0.3), start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        channels = ("y", "s") if self.channel == "s" else ("y",)

        def say(t: int, e: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
            own = {c: rng.normal(size=(1, 2)) * 5 for c in channels}
            return own, rng.normal(size=(1, 2 * len(channels))) * 5

        return say

    def reached(self, kind: str, sampling: str, every: Shares) -> None:
        assert all(set(one) == {self.channel} for one in every)
        assert kind == "validation" or largest(every, self.channel).min() > 0.99


class TestGradientTracking(Corrected):
    name, kind, loop, channel = "gradient_tracking", GradientTracking, Tracking, "s"
    table = table(name)
    moved = MappingProxyType({"train": {"s"}, "validation": set()})
    bugs = (HalfTracking, UnnoisedTracking)
    refused = (
        ("x", {"scale": 0.1}, "algorithm.x: not supported by gradient_tracking"),
        ("learning_rate", None, "algorithm.learning_rate: missing"),
        ("protocol", "private", "only by ldp_dsbo"),
    )

    def free(self, kind: str) -> set[str]:
        return {"x", "y"}


class TestExactDiffusion(Corrected):
    name, kind, loop, channel = "exact_diffusion", ExactDiffusion, Exact, "y"
    table = table(name)
    moved = MappingProxyType({"train": {"y"}, "validation": set()})
    bugs = (HalfExact, UnnoisedExact)
    refused = (
        ("momentum", 0.5, "algorithm.momentum"),
        ("protocol", "private", "only by ldp_dsbo"),
    )

    def free(self, kind: str) -> set[str]:
        return {"x"}


class TestExtra(TestExactDiffusion):
    name, kind, loop = "extra", Extra, Extrapolated
    table = table(name)
    bugs = (HalfExtra, UnnoisedExtra)


class TestDlm(TestExactDiffusion):
    name, kind, loop = "dlm", Dlm, Multipliers
    table = table(name)
    bugs = (HalfDlm,)
    refused = (*TestExactDiffusion.refused, ("penalty", 0.0, "algorithm.penalty"))


class HalfChoco(Choco):
    """Forgets that a replaced record leaves and enters."""

    def planned_releases(self, public: Public) -> dict[str, Planned]:
        return halved(super().planned_releases(public), "y")


class TestChoco(Corrected):
    name, kind, loop, channel = "choco", Choco, Plain, "y"
    table = table(name)
    moved = MappingProxyType({"train": {"y"}, "validation": set()})
    bugs = (HalfChoco,)
    refused = (("momentum", 0.5, "algorithm.momentum"),)

    def free(self, kind: str) -> set[str]:
        return {"x"}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=SAMPLING_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_the_hand_made_one(name: str, sampling: Any) -> None:
    """Bound a release by one clipped mean, times λ in a step: 2C/N, not the 4C/N of a difference of two."""
    content = base(name)
    content["problem"] |= {"sampling": sampling, "partition": {"kind": "dirichlet", "alpha": 3.0}}
    job = made("crossed", content)
    (charged,) = job.ledger.charged_channels
    steps = np.ones(4) if name == "gradient_tracking" else 0.3 / np.arange(1, 6) ** 0.2
    np.testing.assert_array_equal(charged.rounds, np.arange(1, steps.size + 1))
    steps = 1 / (1 / steps + 0.2) if name == "dlm" else steps
    for agent in range(job.n_agents):
        n = int(job.counts["train"][agent])
        seen = {"full": [n] * 5, "streaming": [3, 5, 7, 9, 11], "fixed_batch": [2] * 5}[job.sampling.kind]
        averaged = np.minimum(seen, n)[: steps.size]
        column = charged.group[agent]
        np.testing.assert_allclose(charged.sensitivity["train"][:, column], steps * 2 * CLIP / averaged, rtol=1e-12)
        rate = averaged / n if job.sampling.kind == "fixed_batch" else 1.0
        np.testing.assert_allclose(charged.rate["train"][:, column], rate)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_released_is_what_is_planned(name: str) -> None:
    """A whole job with noise: no noiseless state enters a later release."""
    job = made("crossed", base(name))
    assert finished(job).ledger.same_releases(job.ledger)


# Without noise -------------------------------------------------------------------------------------------------------


def smooth(name: str, topology: dict[str, Any], rounds: int, step: float) -> Job:
    algorithm = {"rounds": rounds, "learning_rate": {"scale": step, "decay": 0.0}}
    content = base(name, "none", topology=topology, algorithm=algorithm)
    content["problem"] |= {"normalise": "l2", "partition": {"kind": "dirichlet", "alpha": 1.0}}
    content["problem"]["synthetic"] = {"dimension": 2, "records": 20, "test_records": 8}
    return made("quadratic", content)


def oracle(name: str, job: Job, step: float) -> list[np.ndarray]:
    """All y of the paper's recursion, by matrices: nothing but the graph and the curvatures are the package's."""
    parts, m = moments(job), job.n_agents
    mixing = np.eye(m) + job.topology.mixing.toarray()
    curve, linear = np.stack([h for h, _ in parts]), np.stack([c for _, c in parts])

    def slopes(y: np.ndarray) -> np.ndarray:
        return np.einsum("ijk,ik->ij", curve, y) - linear

    y = np.full((m, 2), -0.4)
    out = [y]
    if name == "gradient_tracking":
        # Round 0 reads the first gradient; from there on DIGing, adapt then combine.
        s = slopes(y)
        out.append(y)
        for _ in range(job.rounds - 1):
            ahead = mixing @ (y - step * s)
            s = mixing @ s + slopes(ahead) - slopes(y)
            y = ahead
            out.append(y)
        return out
    half, psi = (np.eye(m) + mixing) / 2, y
    if name == "extra":
        # (2.13) of the paper, in differences of gradients.
        out.append(mixing @ y - step * slopes(y))
        for _ in range(job.rounds - 1):
            before, now = out[-2:]
            out.append((np.eye(m) + mixing) @ now - half @ before - step * (slopes(now) - slopes(before)))
        return out
    if name == "dlm":
        # (9) and (10) of the paper with φ_0 = c (I − P) y_0 and one step size.
        laplacian, step = 0.1 * (np.eye(m) - mixing), 1 / (1 / step + 0.2)
        multiplier = laplacian @ y
        for _ in range(job.rounds):
            y = y - step * (slopes(y) + multiplier + laplacian @ y)
            multiplier = multiplier + laplacian @ y
            out.append(y)
        return out
    w = y
    for _ in range(job.rounds):
        adapted = w - step * slopes(w)
        phi, psi = adapted + w - psi, adapted
        w = half @ phi
        out.append(phi)
    return out


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: str(g["kind"]))
@pytest.mark.parametrize("name", NAMES)
def test_without_noise_it_is_the_recursion_of_its_paper(name: str, graph: dict[str, Any]) -> None:
    job = smooth(name, graph, 12, 0.4)
    for said, wanted in zip(conversation(job, quiet), oracle(name, job, 0.4), strict=True):
        np.testing.assert_allclose(said["y"], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: str(g["kind"]))
@pytest.mark.parametrize("name", NAMES)
def test_a_constant_step_ends_at_the_common_minimiser(name: str, graph: dict[str, Any]) -> None:
    """`dp_dsgd` with the same step does not reach it."""
    rounds = 2000 if name == "dlm" else 600
    job, plain = smooth(name, graph, rounds, 0.3), smooth("dp_dsgd", graph, rounds, 0.3)
    parts = moments(job)
    best = np.linalg.solve(sum(h for h, _ in parts), sum(c for _, c in parts))
    assert np.abs(finished(job).last_snapshot.released["y"] - best).max() < 1e-10
    assert np.abs(finished(plain).last_snapshot.released["y"] - best).max() > 1e-4


def test_noise_of_a_tracker_does_not_add_up() -> None:
    """The network's mean of s̃ is that of the released gradients, without earlier noise."""
    job = made("quadratic", base("gradient_tracking", algorithm={"rounds": 6}))
    rng, drawn = np.random.default_rng(3), {}

    def noise(index: int, channel: str, agent: int, width: int) -> np.ndarray:
        return drawn.setdefault((index, agent), rng.normal(size=width))

    said = conversation(job, noise)
    for index in range(1, job.rounds):
        y, m = said[index]["y"], job.n_agents
        loop = Tracking(job, "quadratic", quiet, {"y": CLIP})
        x = loop.start("x")
        slopes = np.stack([loop.mean("lower_grad_y", index, i, x[i], y[i], y[i]) for i in range(m)])
        now = np.stack([drawn[index, i] for i in range(m)])
        np.testing.assert_allclose(said[index]["s"].mean(axis=0), (slopes + now).mean(axis=0), atol=1e-12)


def test_one_round_of_tracking_has_no_noise_to_calibrate() -> None:
    with pytest.raises(InputError, match="no release of gradient_tracking reads a record so early"):
        decentral_dp.plan("gradient_tracking", set={"algorithm.rounds": 1})
