"""Corrected steps and CHOCO against loops and matrices, adversarial neighbours and fixed points."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import decentral_dp
from decentral_dp.algorithms.gossip.choco import Choco
from decentral_dp.algorithms.gossip.dlm import Dlm
from decentral_dp.algorithms.gossip.exact_diffusion import ExactDiffusion
from decentral_dp.algorithms.gossip.extra import Extra
from decentral_dp.algorithms.gossip.gradient_tracking import GradientTracking
from decentral_dp.algorithms.gossip.kgt import Kgt
from decentral_dp.algorithms.gossip.mr_mtl import MrMtl
from decentral_dp.algorithms.protocol import StepSize
from decentral_dp.errors import InputError
from decentral_dp.simulation.communication import communication, count_sent
from decentral_dp.simulation.jobs.job import PlannedJob as Job
from tests.conformance.gossip import GossipConformance, Shares, Told, largest
from tests.support.naive import SAMPLING_NAMES, SAMPLINGS, Loop, finished, made
from tests.support.replay import conversation, quiet
from tests.support.single_level import CLIP, base, moments, only_y, table

NAMES = ("gradient_tracking", "exact_diffusion", "extra", "dlm", "kgt")
# Models of a personal algorithm do not agree.
ALL_NAMES = (*NAMES, "mr_mtl")
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


class LocalSteps(Loop):
    """K-GT: lists of local changes, and exchanges before rounds 2, 4, …"""

    def run(self) -> Told:
        x, y, start = self.start("x"), self.start("y"), self.start("y")
        correction = self.zeros()
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            if t < self.job.rounds:
                start = self.say(t, "start", start, False)
                step = 0.3 / (t + 1) ** 0.2
                if t in (2, 4):
                    length = 0.3 / t**0.2 + 0.3 / (t - 1) ** 0.2
                    z = [(start[i] - said[i]) / length for i in range(self.m)]
                    correction = [correction[i] + self.toward(i, z[i], z) - z[i] for i in range(self.m)]
                    said = [self.toward(i, said[i], said) for i in range(self.m)]
                    start = said
                slopes = [self.mean("lower_grad_y", t, i, x[i], said[i], said[i]) for i in range(self.m)]
                y = [said[i] - step * (slopes[i] + correction[i]) for i in range(self.m)]
        self.say(self.job.rounds, "x", x, False)
        return self.told


class Own(Loop):
    """MR-MTL, as the gradient of each agent's loss and its distance to the mixed models."""

    def run(self) -> Told:
        x, y = self.start("x"), self.start("y")
        for t in range(self.job.rounds + 1):
            said = self.say(t, "y", y, t > 0)
            if t < self.job.rounds:
                step = 0.3 / (t + 1) ** 0.2
                pulls = [0.1 * (said[i] - self.toward(i, said[i], said)) for i in range(self.m)]
                slopes = [self.mean("lower_grad_y", t, i, x[i], said[i], said[i]) for i in range(self.m)]
                y = [said[i] - step * (slopes[i] + pulls[i]) for i in range(self.m)]
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


# Conformance ---------------------------------------------------------------------------------------------------------


class Corrected(GossipConformance):
    name: str
    kind: type
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

    def certified(self) -> Any:
        return self.kind(StepSize(0.5, 0.3), start={"x": 1.0})

    def scene(self, worst: bool) -> Any:
        channels = ("y", "s") if self.channel == "s" else ("y", "start") if self.name == "kgt" else ("y",)

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

    def free(self, kind: str) -> set[str]:
        return {"x", "y"}


class TestExactDiffusion(Corrected):
    name, kind, loop, channel = "exact_diffusion", ExactDiffusion, Exact, "y"
    table = table(name)
    moved = MappingProxyType({"train": {"y"}, "validation": set()})

    def free(self, kind: str) -> set[str]:
        return {"x"}


class TestExtra(TestExactDiffusion):
    name, kind, loop = "extra", Extra, Extrapolated
    table = table(name)


class TestDlm(TestExactDiffusion):
    name, kind, loop = "dlm", Dlm, Multipliers
    table = table(name)


class TestKgt(TestExactDiffusion):
    name, kind, loop = "kgt", Kgt, LocalSteps
    table = table(name) | {"period": 2}

    def certified(self) -> Any:
        return Kgt(StepSize(0.5, 0.3), start={"x": 1.0}, period=2)

    def free(self, kind: str) -> set[str]:
        return {"x", "start"}


class TestMrMtl(TestExactDiffusion):
    name, kind, loop = "mr_mtl", MrMtl, Own
    table = table(name)
    refused = (*TestExactDiffusion.refused, ("strength", -0.1, "algorithm.strength"))


class TestChoco(Corrected):
    name, kind, loop, channel = "choco", Choco, Plain, "y"
    table = table(name)
    moved = MappingProxyType({"train": {"y"}, "validation": set()})

    def free(self, kind: str) -> set[str]:
        return {"x"}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=SAMPLING_NAMES)
@pytest.mark.parametrize("name", ALL_NAMES)
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


@pytest.mark.parametrize("name", ALL_NAMES)
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


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: str(g["kind"]))
@pytest.mark.parametrize("name", NAMES)
def test_a_constant_step_ends_at_the_common_minimiser(name: str, graph: dict[str, Any]) -> None:
    """`dp_dsgd` with the same step does not reach it."""
    rounds = 4000 if name in ("dlm", "kgt") else 600
    job, plain = smooth(name, graph, rounds, 0.3), smooth("dp_dsgd", graph, rounds, 0.3)
    parts = moments(job)
    best = np.linalg.solve(sum(h for h, _ in parts), sum(c for _, c in parts))
    assert np.abs(finished(job).last_snapshot.released["y"] - best).max() < 1e-10
    assert np.abs(finished(plain).last_snapshot.released["y"] - best).max() > 1e-4


@pytest.mark.parametrize("strength", [0.0, 0.1, 2.0])
def test_own_models_end_at_the_regularised_minimisers(strength: float) -> None:
    """On a complete graph with equal weights: H_i y_i − c_i + μ (y_i − ȳ) = 0 for all agents."""
    content = base("mr_mtl", "none", topology={"kind": "complete", "agents": 4})
    content["algorithm"] |= {"rounds": 600, "strength": strength, "learning_rate": {"scale": 0.3, "decay": 0.0}}
    content["problem"] |= {"normalise": "l2", "partition": {"kind": "dirichlet", "alpha": 1.0}}
    content["problem"]["synthetic"] = {"dimension": 2, "records": 20, "test_records": 8}
    job = made("quadratic", content)
    parts, m = moments(job), job.n_agents
    np.testing.assert_allclose(np.eye(m) + job.topology.mixing.toarray(), 1.0 / m)
    pull = strength * np.kron(np.eye(m) - 1.0 / m, np.eye(2))
    matrix, right = pull, np.concatenate([c for _, c in parts])
    for i, (h, _) in enumerate(parts):
        matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] += h
    best = np.linalg.solve(matrix, right).reshape(m, 2)
    assert np.ptp(best, axis=0).max() > 1e-3
    np.testing.assert_allclose(finished(job).last_snapshot.released["y"], best, rtol=0, atol=1e-10)


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
    with pytest.raises(InputError, match="no release of gradient_tracking reads records yet"):
        decentral_dp.plan("gradient_tracking", set={"algorithm.rounds": 1})


@pytest.mark.parametrize("name", NAMES)
def test_a_learning_rate_may_decrease_to_zero(name: str) -> None:
    """The mean over agents moves while the learning rate is above 0, and stays then."""
    content = base(name, "none", algorithm={"learning_rate": {"scale": 0.3, "points": [[0, 1.0], [3, 0.0]]}})
    means = [
        finished(made("quadratic", content | {"algorithm": content["algorithm"] | {"rounds": rounds}}))
        .last_snapshot.released["y"]
        .mean(axis=0)
        for rounds in (2, 6, 16)
    ]
    assert np.abs(means[1] - means[0]).max() > 1e-3
    np.testing.assert_allclose(means[2], means[1], rtol=0, atol=1e-12)


def test_local_rounds_send_no_messages() -> None:
    """6 rounds with exchanges before the third and the fifth one; every round is released."""
    job = made("quadratic", base("kgt", algorithm={"rounds": 6, "period": 2}))
    edges = len(job.topology.edges)
    assert communication(job).messages == 2 * 2 * edges  # type: ignore[union-attr] # gossip counts messages
    assert count_sent(job, [2, 3, 6])["messages"] == [0.0, 2 * edges / job.n_agents, 4 * edges / job.n_agents]
    (charged,) = job.ledger.charged_channels
    assert charged.rounds.tolist() == [1, 2, 3, 4, 5, 6]
